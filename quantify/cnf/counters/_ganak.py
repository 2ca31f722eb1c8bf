"""In Ganak's child process: a formula goes in; its count, and how often the cache was consulted, come out."""

from __future__ import annotations

import os
import re
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the child does without quantify
    from quantify.cnf.counters._worker import Call

CONFLICTS = 20_000
"""About a second's search for a first model: Ganak's preprocessing spends seconds on tiny unsatisfiable formulas."""
CACHE_LINE = re.compile(rb"^c o cache K \(lookup/ stores/ hits/ dels\)\s+(\d+)\s+(\d+)\s", re.MULTILINE)


def solve(library: ModuleType, call: Call) -> dict[str, Any]:
    """The count, and lookups · stores (thousands, rounded up, of every block of statistics that verbosity 1 prints)."""
    if call.model(CONFLICTS) == []:
        return {"count": 0, "unsatisfiable": True}
    counter = library.Counter(verbose=1, seed=call.seed)
    counter.new_vars(call.variables)  # first, or variables beyond the last clause's would not exist
    counter.add_clauses(call.clauses())
    counter.set_sampling_set(call.projection)
    stdout, printed = os.dup(1), os.memfd_create("printed")
    os.dup2(printed, 1)
    try:
        count = counter.count()
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
    os.lseek(printed, 0, os.SEEK_SET)
    with os.fdopen(printed, "rb") as file:
        blocks = CACHE_LINE.findall(file.read())
    lookups, stores = (sum(1000 * (int(block[column]) + 1) for block in blocks) for column in (0, 1))
    return {"count": count, "cache_accesses": str(lookups * stores) if blocks else None}

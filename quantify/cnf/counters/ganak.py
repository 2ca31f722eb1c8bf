"""Ganak: exact projected counts, but for hash collisions in its cache of components."""

from __future__ import annotations

import os
import re
import tempfile
from fractions import Fraction
from types import ModuleType
from typing import Any

from quantify.cnf.counters._base import LibraryCounter, Raw
from quantify.cnf.counters._worker import Call
from quantify.cnf.formula import Cnf
from quantify.ir.count import Guarantee

_HASH_BITS = 64
_WITHOUT_STATISTICS = Fraction(1, 10**9)
"""The authors' figure, should a version not print how often it consulted its cache."""
_CACHE_LINE = re.compile(rb"^c o cache K \(lookup/ stores/ hits/ dels\)\s+(\d+)\s+(\d+)\s", re.MULTILINE)


class Ganak(LibraryCounter):
    """Components are looked up by a 64-bit hash alone (Sharma et al., "GANAK", IJCAI 2019, section 4).

    A lookup goes wrong when it meets one of the stored components by accident, so the answer is wrong with probability
    at most lookups · stores / 2^64, which is the δ that is reported (`compute_collision_prob` in Ganak's main.cpp).
    """

    name = "ganak"
    guarantee = Guarantee.PROB_EXACT
    install = "pip install pyganak"
    by_default = True
    library = "pyganak"
    distribution = "pyganak"

    def interpret(self, count: int, answer: dict[str, Any], cnf: Cnf, epsilon: Fraction) -> Raw:
        accesses = answer["cache_accesses"]
        delta = _WITHOUT_STATISTICS if accesses is None else Fraction(int(accesses), 1 << _HASH_BITS)
        return Raw(count, count, delta=delta)


def solve(library: ModuleType, call: Call) -> dict[str, Any]:
    """In the child: the count, and lookups · stores (rounded up from thousands) as printed at verbosity 1."""
    counter = library.Counter(verbose=1, seed=call.seed)
    counter.new_vars(call.variables)  # first, or variables beyond the last clause's would not exist
    counter.add_clauses(call.clauses())
    counter.set_sampling_set(call.projection)
    with tempfile.TemporaryFile() as printed:
        before = os.dup(1)
        os.dup2(printed.fileno(), 1)
        try:
            count = counter.count()
        finally:
            os.dup2(before, 1)
            os.close(before)
        printed.seek(0)
        blocks = _CACHE_LINE.findall(printed.read())
    lookups, stores = (sum(1000 * (int(block[column]) + 1) for block in blocks) for column in (0, 1))
    return {"count": count, "cache_accesses": str(lookups * stores) if blocks else None}


COUNTER = Ganak()

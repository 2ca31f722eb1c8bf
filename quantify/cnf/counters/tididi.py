"""tididi-cnf: exact projected counts, by compiling the formula into a tree decision diagram."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from quantify.cnf.counters._base import LibraryCounter
from quantify.cnf.counters._worker import Call
from quantify.ir.count import Guarantee


class Tididi(LibraryCounter):
    """Right only when every projection variable occurs in a clause, which reduction sees to."""

    name = "tididi"
    guarantee = Guarantee.EXACT
    install = "pip install tididi-cnf"
    by_default = True
    library = "tididi_cnf.tididi_cnf"
    distribution = "tididi-cnf"


def solve(library: ModuleType, call: Call) -> dict[str, Any]:
    """In the child: the count."""
    package = importlib.import_module(library.__name__.partition(".")[0])
    answer = package.count(
        call.clauses(), mode="pmc", num_vars=call.variables, show=call.projection, mem_limit_mb=call.memory_mb or 0
    )
    return {"count": answer.count}


COUNTER = Tididi()

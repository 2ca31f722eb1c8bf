"""In tididi's child process: a formula goes in, its count comes out."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the child does without quantify
    from quantify.cnf.counters._worker import Call


def solve(library: ModuleType, call: Call) -> dict[str, Any]:
    """The count. With its memory limit known, tididi splits the formula when it comes near."""
    package = importlib.import_module(library.__name__.partition(".")[0])
    answer = package.count(
        call.clauses(), mode="pmc", num_vars=call.variables, show=call.projection, mem_limit_mb=call.memory_mb or 0
    )
    return {"count": answer.count}

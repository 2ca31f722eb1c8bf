"""In ApproxMC's child process: a formula goes in, the estimate for one model more than it has comes out."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the child does without quantify
    from quantify.cnf.counters._worker import Call


def solve(library: ModuleType, call: Call) -> dict[str, Any]:
    """0 for an unsatisfiable formula, else the raw estimate for the formula anchored at a model (see `ApproxMC`)."""
    model = call.model()
    if not model:
        return {"count": 0, "unsatisfiable": True}
    chosen = set(model)
    fresh = call.variables + 1
    literals = array("i", call.literals)
    for variable in call.projection:
        literals.extend((variable if variable in chosen else -variable, fresh, 0))
    counter = library.Counter(verbosity=0, seed=call.seed % (1 << 31), epsilon=call.epsilon, delta=call.delta)
    counter.add_clauses(literals)
    cells, hashes = counter.count([*call.projection, fresh])
    return {"count": cells << hashes}

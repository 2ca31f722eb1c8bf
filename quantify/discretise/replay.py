"""An input that an engine claims to satisfy a query in, and the witness out after the original model was asked."""

from __future__ import annotations

import numpy as np

from quantify.discretise.inputs import to_inputs
from quantify.discretise.network_fidelity import may_differ
from quantify.errors import ContradictionError
from quantify.ir.evidence import Witness
from quantify.ir.problem import Case, GridProblem, Problem


def replay(
    problem: Problem, grid: GridProblem, case: Case, query: str, positions: tuple[int, ...], claimed: int, holds: bool
) -> Witness:
    """The witness, with the label that the model itself gives.

    Args:
        query: Name of the query.
        claimed: Class index that the integer model gives the input.
        holds: Whether the query's predicate is true of it.

    Raises:
        ContradictionError: The model's answer, or the predicate, is not what the engine claimed.
    """
    point = np.array([positions], dtype=np.int64)
    label = int(problem.model.predict(to_inputs(problem, point))[0])
    told = problem.model.classes[label]
    if holds and label != claimed and may_differ(problem, grid, point):
        told = f"{problem.model.classes[claimed]} (the model itself: {told})"
    elif label != claimed or not holds:
        raise ContradictionError(
            f"a witness for {query} does not replay: {problem.domain.shown(positions)} "
            f"gets {problem.model.classes[label]!r} from the model",
            "this is a defect of quantify: please report it with the model and the property",
        )
    shown = problem.domain.shown(positions)
    if case.centre is None:
        return Witness(query, shown, told)
    changed = {
        feature.name: feature.shown(before)
        for feature, before, after in zip(problem.domain, case.centre, positions, strict=True)
        if before != after
    }
    return Witness(query, shown, told, changed)

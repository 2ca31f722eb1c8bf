"""The figures that go with every count on a network: how far integers, real arithmetic and the library agree.

For networks a disagreement is measured and told, never hidden; but one between the real function and the library that
floating-point rounding cannot explain is a contradiction, and nothing is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantify.discretise.draws import from_box, from_region
from quantify.discretise.inputs import input_error, to_inputs
from quantify.discretise.networks import exact_mode, is_assumed_exact, lower_network
from quantify.errors import ContradictionError
from quantify.ir import network_eval
from quantify.ir.evidence import Check
from quantify.ir.model import Predict
from quantify.ir.network import IntNetwork, Network
from quantify.ir.problem import Box, GridProblem, NetworkOptions, Problem, Region

Points = NDArray[np.int64]

WHOLE = 2**20
"""Domains of at most this many inputs are compared in full."""
LIBRARY_WHOLE = 2**16
"""The same where the library itself is asked."""
CELLS = 2**16
"""Matrix cells of one chunk, which so stays in the processor's cache."""
FEWEST_ROWS = 1024
WORK = 4 * 10**9
"""Weights times inputs that the comparison may cost; large networks are compared on fewer draws."""
FEWEST = 500


@dataclass
class Tally:
    """What was found so far."""

    compared: int = 0
    quantised: int = 0
    """Inputs that the integer network and the real function label differently."""
    library: int = 0
    """Inputs that the real function and the library label differently."""
    ambiguous: int = 0
    """Inputs whose label some floating-point evaluation could change."""


def check_network(problem: Problem, grid: GridProblem, *, seed: int, samples: int = 10_000) -> tuple[Check, ...]:
    """Compare the integer network with the real function of the stored constants, and that with the library.

    Domains of up to 2^20 inputs are compared in full; larger ones on `samples` uniform draws, half as many from the
    cases' regions, and every robustness centre.

    Returns:
        The checks `fidelity` (real against library), `quantised` (integers against real, where they differ by design)
        and `float-ambiguous`; and a note when exact arithmetic was chosen because nothing was said.

    Raises:
        ContradictionError: Real function and library disagree on an input, and no rounding error explains it.
    """
    counted, real = grid.network, _real_function(problem, grid)
    assert counted is not None
    whole = _in_full(problem, WHOLE)
    tally = Tally()
    points = _every(problem) if whole else _some(problem, seed, _affordable(problem, samples))
    for block in points:
        _compare(problem, counted, real, block, tally)
    return (*_checks(problem, counted, tally, _scope(tally.compared, whole)), *_assumption(problem))


def check_library(problem: Problem, grid: GridProblem, library: Predict, *, seed: int, samples: int = 10_000) -> Check:
    """Compare the real function, and the evaluator behind `model.predict`, with the library itself.

    Domains of up to 2^16 inputs are compared in full; larger ones where `check_network` compares them.

    Args:
        library: Its answers; `LibraryAnswers` keeps them.

    Raises:
        ContradictionError: They disagree on an input, and no rounding error explains it.
        MissingToolError: The library is not installed.
    """
    real = _real_function(problem, grid)
    whole = _in_full(problem, LIBRARY_WHOLE)
    compared = real_differs = ours_differs = 0
    for block in _every(problem) if whole else _some(problem, seed, _affordable(problem, samples)):
        inputs = to_inputs(problem, block)
        theirs = library(inputs)
        exact, ours = network_eval.labels(real, block), problem.model.predict(inputs)
        real_unequal, ours_unequal = (np.asarray(found != theirs, np.bool_) for found in (exact, ours))
        _explained(problem, block, inputs, ours_unequal, ours, theirs, "quantify's evaluator", "the library itself")
        _explained(problem, block, inputs, real_unequal, exact, theirs, "real arithmetic", "the library itself")
        compared += len(block)
        real_differs += int(real_unequal.sum())
        ours_differs += int(ours_unequal.sum())
    name = getattr(library, "name", "the library itself")
    scope = _scope(compared, whole)
    if not real_differs and not ours_differs:
        return Check("library", "ok", f"{scope}: all labels agree with {name}")
    detail = f"{real_differs} labels of the real function and {ours_differs} of quantify's evaluator differ from {name}"
    return Check("library", "measured", f"{scope}: {detail}, within float rounding")


def may_differ(problem: Problem, grid: GridProblem, points: Points) -> bool:
    """Whether rounding or quantisation may give one of the points another label in the library."""
    if grid.network is None:
        return False
    if not grid.network.exact:
        return True
    if problem.model.ambiguous is None:
        return False
    inputs = to_inputs(problem, points)
    decision = (problem.network or NetworkOptions()).decision
    return bool(problem.model.ambiguous(inputs, input_error(problem, inputs), decision).any())


def _real_function(problem: Problem, grid: GridProblem) -> IntNetwork:
    assert grid.network is not None
    return grid.network if grid.network.exact else lower_network(exact_mode(problem)).network


# --- where to compare ----------------------------------------------------------------------------------------------
def _affordable(problem: Problem, samples: int) -> int:
    network = problem.model.structure
    assert isinstance(network, Network)
    weights = sum(len(layer.rows.columns) for layer in network.layers if hasattr(layer, "rows"))
    return max(FEWEST, min(samples, WORK // max(1, weights)))


def _in_full(problem: Problem, most: int) -> bool:
    return problem.domain.size <= most and _affordable(problem, most) >= problem.domain.size


def _scope(compared: int, whole: bool) -> str:
    return f"all {compared} inputs" if whole else f"{compared} inputs (uniform draws, regions, centres)"


def _every(problem: Problem) -> Iterator[Points]:
    sizes = problem.domain.sizes
    step = max(FEWEST_ROWS, CELLS // max(1, len(sizes)))
    for start in range(0, math.prod(sizes), step):
        numbers = np.arange(start, min(start + step, math.prod(sizes)), dtype=np.int64)
        yield np.stack(np.unravel_index(numbers, sizes), axis=1).astype(np.int64)


def _some(problem: Problem, seed: int, samples: int) -> Iterator[Points]:
    rng = np.random.default_rng(seed)
    sizes = problem.domain.sizes
    step = max(FEWEST_ROWS, CELLS // max(1, len(sizes)))
    everything = Box((0,) * len(sizes), sizes)
    for start in range(0, samples, step):
        yield from_box(rng, everything.low, everything.high, min(step, samples - start))
    regions = [case.region for case in problem.cases if case.region != everything and _inhabited(case.region)]
    for region in regions:
        yield from_region(rng, region, max(1, min(step, samples // (2 * len(regions)))))
    centres = [case.centre for case in problem.cases if case.centre is not None]
    for start in range(0, len(centres), step):
        yield np.array(centres[start : start + step], dtype=np.int64)


def _inhabited(region: Region) -> bool:
    box = region if isinstance(region, Box) else region.box
    return all(low < high for low, high in zip(box.low, box.high, strict=True))


# --- comparing -----------------------------------------------------------------------------------------------------
def _compare(problem: Problem, counted: IntNetwork, real: IntNetwork, points: Points, tally: Tally) -> None:
    inputs = to_inputs(problem, points)
    theirs = np.asarray(problem.model.predict(inputs), dtype=np.int64)
    exact = network_eval.labels(real, points)
    unequal = np.asarray(exact != theirs, np.bool_)
    unsure = _explained(
        problem, points, inputs, unequal, exact, theirs, "real arithmetic", problem.model.library, every=True
    )
    tally.compared += len(points)
    tally.library += int(unequal.sum())
    tally.ambiguous += int(unsure.sum())
    if counted is not real:
        tally.quantised += int((network_eval.labels(counted, points) != exact).sum())


def _explained(
    problem: Problem,
    points: Points,
    inputs: NDArray[np.float64],
    unequal: NDArray[np.bool_],
    ours: NDArray[np.int64],
    theirs: NDArray[np.int64],
    us: str,
    them: str,
    *,
    every: bool = False,
) -> NDArray[np.bool_]:
    """Which inputs are float-ambiguous (of the unequal ones, or of all when `every`); the others must be equal."""
    unsure = np.zeros(len(points), np.bool_)
    asked = np.arange(len(points)) if every else np.flatnonzero(unequal)
    if problem.model.ambiguous is not None and len(asked):
        decision = (problem.network or NetworkOptions()).decision
        given = inputs[asked]
        unsure[asked] = problem.model.ambiguous(given, input_error(problem, given), decision)
    unexplained = np.flatnonzero(unequal & ~unsure)
    if len(unexplained):
        row = int(unexplained[0])
        shown = problem.domain.shown(tuple(int(position) for position in points[row]))
        text = ", ".join(f"{name}={value!r}" for name, value in list(shown.items())[:32])
        classes = problem.model.classes
        raise ContradictionError(
            f"{us} gives {classes[int(ours[row])]!r} and {them} gives {classes[int(theirs[row])]!r} for the input "
            f"{text}{', …' if len(shown) > 32 else ''}, which rounding cannot explain",
            "nothing was counted: this is a defect of quantify, please report it with the model and the property file",
        )
    return unsure


# --- telling -------------------------------------------------------------------------------------------------------
def _checks(problem: Problem, counted: IntNetwork, tally: Tally, scope: str) -> Iterator[Check]:
    library = problem.model.library
    if tally.library:
        detail = f"{scope}: {tally.library} labels of the real function differ from {library}, within float rounding"
        yield Check("fidelity", "measured", f"{detail} ({_share(tally.library, tally.compared)})")
    else:
        yield Check("fidelity", "ok", f"{scope}: all labels of the real function agree with {library}")
    if not counted.exact:
        detail = f"{scope}: {tally.quantised} labels of the counted integer network differ from the real function"
        share = _share(tally.quantised, tally.compared)
        yield Check("quantised", "measured" if tally.quantised else "ok", f"{detail} ({share})")
    if problem.model.ambiguous is None:
        yield Check("float-ambiguous", "ok", f"{scope}: 0, the model computes in integers")
    else:
        detail = f"{scope}: {tally.ambiguous} whose label an evaluation in another order could change"
        yield Check("float-ambiguous", "measured" if tally.ambiguous else "ok", detail)


def _assumption(problem: Problem) -> Iterator[Check]:
    if is_assumed_exact(problem):
        yield Check(
            "note",
            "ok",
            "no quantization given: counted as the exact real function of the stored floats "
            "(write quantization: {mode: exact} or {bits: 8})",
        )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.4g} %"

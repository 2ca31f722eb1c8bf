"""The check before every count: the integer model and the library's own predict, input by input, must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from quantify.discretise.cuts import Cuts
from quantify.discretise.draws import around_thresholds, from_box, from_region
from quantify.discretise.inputs import to_inputs
from quantify.discretise.network_fidelity import check_network
from quantify.errors import ContradictionError
from quantify.ir.evidence import Check
from quantify.ir.model import Tree
from quantify.ir.problem import Box, GridProblem, Problem, Region

CELLS = 2**21
"""Matrix cells of one chunk: bounds memory whatever the number of features."""
SHOWN_FEATURES = 32
"""An input with more features than this is named by those that the tree asks on its way."""

Points = NDArray[np.int64]
Origin = tuple[str, int]
"""Where a number of consecutive points came from, and how many they are."""


def check_fidelity(
    problem: Problem,
    grid: GridProblem,
    evaluate: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    *,
    seed: int,
    samples: int = 10_000,
) -> tuple[Check, ...]:
    """Compare `evaluate` (class indices by the integer tree, at rows of positions) with the library's predict.

    Compared are `samples` uniform draws from the domain; half as many from the cases' regions, at least one from
    each; every robustness centre; and for every threshold of the library's tree inputs that reach its node, with the
    feature at the cut, one step either side of it, and missing where it can be.

    Returns:
        One check, "fidelity", with the number of inputs compared.

    Networks are compared by `network_fidelity.check_network`, which tells disagreements instead of refusing them.

    Raises:
        ContradictionError: Some input gets two different labels; it is named with both of them.
    """
    tree = problem.model.structure
    if not isinstance(tree, Tree):
        return check_network(problem, grid, seed=seed, samples=samples)
    compared = 0
    for points, origins in _chunks(_points(problem, tree, seed, samples), max(64, CELLS // max(1, len(grid.sizes)))):
        ours = np.asarray(evaluate(points), dtype=np.int64)
        theirs = np.asarray(problem.model.predict(to_inputs(problem, points)), dtype=np.int64)
        different = np.flatnonzero(ours != theirs)
        if len(different):
            row = int(different[0])
            raise _disagreement(problem, grid, points[row], int(ours[row]), int(theirs[row]), _origin(origins, row))
        compared += len(points)
    detail = f"{compared} inputs (uniform draws, regions, centres, both sides of every threshold): all labels agree"
    return (Check("fidelity", "ok", f"{detail} with {problem.model.library}"),)


def _points(problem: Problem, tree: Tree, seed: int, samples: int) -> Iterator[tuple[Points, str]]:
    """Blocks of points to compare, with a word on where they come from; large blocks are cut by `_chunks`."""
    rng = np.random.default_rng(seed)
    domain = problem.domain
    step = max(64, CELLS // max(1, len(domain.features)))
    cuts = Cuts(domain, problem.columns, tree.dtype)
    for points in around_thresholds(rng, tree, cuts, problem.columns, domain, most_rows=samples, chunk=step):
        yield points, "next to a threshold"
    everything = Box((0,) * len(domain.sizes), domain.sizes)
    drawn = 0
    while drawn < samples:
        rows = min(step, samples - drawn)
        yield from_box(rng, everything.low, everything.high, rows), "drawn from the domain"
        drawn += rows
    regions = [case for case in problem.cases if case.region != everything and _inhabited(case.region)]
    for case in regions:
        where = "" if case.row is None else f" of row {case.row}, ε={case.epsilon}"
        left = max(1, samples // (2 * len(regions)))
        while left > 0:
            yield from_region(rng, case.region, min(step, left)), f"drawn from the region{where}"
            left -= step
    for case in problem.cases:
        if case.centre is not None:
            yield np.array([case.centre], dtype=np.int64), f"the centre of row {case.row}"


def _inhabited(region: Region) -> bool:
    box = region if isinstance(region, Box) else region.box
    return all(low < high for low, high in zip(box.low, box.high, strict=True))


def _chunks(blocks: Iterator[tuple[Points, str]], rows: int) -> Iterator[tuple[Points, list[Origin]]]:
    """The blocks, small ones gathered until they make about `rows` rows: each call of predict has a fixed price."""
    waiting: list[Points] = []
    origins: list[Origin] = []
    held = 0
    for points, origin in blocks:
        waiting.append(points)
        origins.append((origin, len(points)))
        held += len(points)
        if held >= rows:
            yield _joined(waiting), origins
            waiting, origins, held = [], [], 0
    if waiting:
        yield _joined(waiting), origins


def _joined(blocks: list[Points]) -> Points:
    return np.ascontiguousarray(blocks[0] if len(blocks) == 1 else np.concatenate(blocks))


def _origin(origins: Sequence[Origin], row: int) -> str:
    for origin, many in origins:
        if row < many:
            return origin
        row -= many
    raise AssertionError("a row without an origin")


def _disagreement(
    problem: Problem, grid: GridProblem, point: Points, ours: int, theirs: int, origin: str
) -> ContradictionError:
    positions = tuple(int(position) for position in point)
    shown = problem.domain.shown(positions)
    named = shown
    if len(shown) > SHOWN_FEATURES:
        names = list(shown)
        named = {names[place]: shown[names[place]] for place in _asked(grid, positions)}
    text = ", ".join(f"{name}={value!r}" for name, value in named.items())
    return ContradictionError(
        f"the integer tree gives {_name(problem, ours)} and {problem.model.library} gives {_name(problem, theirs)} "
        f"for the input {text} ({origin}{'' if named is shown else '; only the features that were asked are shown'})",
        "nothing was counted: this is a defect of quantify, please report it with the model and the property file",
    )


def _name(problem: Problem, label: int) -> str:
    classes = problem.model.classes
    return repr(classes[label]) if 0 <= label < len(classes) else f"class index {label}, which does not exist"


def _asked(grid: GridProblem, positions: Sequence[int]) -> list[int]:
    """The features that the integer tree reads for this input, in the order of its questions, each once."""
    tree, node = grid.tree, 0
    asked: dict[int, None] = {}
    while tree.feature[node] >= 0:
        place = tree.feature[node]
        asked[place] = None
        node = tree.right[node] if tree.low[node] <= positions[place] < tree.high[node] else tree.left[node]
    return list(asked)

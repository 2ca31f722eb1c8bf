"""One expression, four back ends: compiled C, native evaluation, reasoning over boxes, decision diagrams.

Random expressions are held against Python's own eval of their text, the predicate library against its definitions
over sets of pairs; on every input for what answers at points, on random boxes for what answers for boxes.
"""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from compiled import answers
from drawn_problems import Mask, draw_problem
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from quantify import engines, pipeline
from quantify.cnf.codegen import emit_program, symbols
from quantify.engines import logic
from quantify.errors import InputError
from quantify.ir.predicate import Always
from quantify.ir.problem import Box, GridCase, GridProblem
from quantify.ir.ranges import on_box
from quantify.resources import Limits, Progress

BOXES = 12
"""Random boxes a query, beside the whole domain and single points."""


def check_compiled(grid: GridProblem, wanted: dict[str, Mask], positions: NDArray[np.int64], folder: Path) -> bool:
    """False when the arithmetic is too wide for a C compiler's integers."""
    (case,) = grid.cases
    try:
        program = emit_program(grid, case)
    except InputError:
        return False
    found = answers(program, [f"query_{symbol}" for symbol in symbols(case.queries)], positions, folder)
    for column, query in enumerate(case.queries):
        assert (found[:, column] == wanted[query.name]).all(), f"compiled C on {query}"
    return True


def check_native(grid: GridProblem, wanted: dict[str, Mask], positions: NDArray[np.int64]) -> None:
    (case,) = grid.cases
    for query in case.queries:
        found = engines.evaluate.truths(grid, case, query, positions)
        assert (found == wanted[query.name]).all(), f"native evaluation of {query}"


def random_box(rng: random.Random, sizes: Sequence[int]) -> Box:
    low = [rng.randrange(size) if rng.random() < 0.6 else 0 for size in sizes]
    high = [
        rng.randint(start + 1, size) if rng.random() < 0.6 else size for start, size in zip(low, sizes, strict=True)
    ]
    if rng.random() < 0.2:
        high = [start + 1 for start in low]
    return Box(tuple(low), tuple(high))


def inside(box: Box, positions: NDArray[np.int64]) -> Mask:
    found: Mask = ((positions >= np.array(box.low)) & (positions < np.array(box.high))).all(axis=1)
    return found


def check_boxes(grid: GridProblem, wanted: dict[str, Mask], positions: NDArray[np.int64], rng: random.Random) -> int:
    """What is said of a box holds at each of its points and labels; a point with its label is decided."""
    decided = 0
    labels = engines.evaluate.labels(grid, positions)
    for query in grid.cases[0].queries:
        for _ in range(BOXES):
            box = random_box(rng, grid.sizes)
            chosen = inside(box, positions)
            possible = sorted(set(labels[chosen].tolist()))
            truths = set(wanted[query.name][chosen].tolist())
            for known in (None, tuple(possible), possible[0] if len(possible) == 1 else tuple(possible)):
                said = on_box(query.predicate, box.low, box.high, known)
                assert said is None or truths == {said}, f"{query} on {box} with labels {known}"
                decided += said is not None
                shorter = logic.specialise(query.predicate, box.low, box.high, known)
                assert said is None or shorter == Always(said)
                for row in np.flatnonzero(chosen)[:5].tolist():
                    holds = logic.holds(shorter, tuple(positions[row].tolist()), int(labels[row]))
                    assert holds == wanted[query.name][row], f"{query} specialised to {box}"
            if box.size == 1 and len(possible) == 1:
                assert on_box(query.predicate, box.low, box.high, possible[0]) is not None
    return decided


def check_counts(grid: GridProblem, wanted: dict[str, Mask], positions: NDArray[np.int64], rng: random.Random) -> int:
    """Diagrams, and splitting by box reasoning, on the domain and on random parts of it."""
    compared = 0
    for box in (Box((0,) * len(grid.sizes), grid.sizes), *(random_box(rng, grid.sizes) for _ in range(3))):
        case = GridCase(box, grid.cases[0].queries, ())
        chosen = inside(box, positions)
        for name in ("bdd", "boxes"):
            engine = engines.discover()[name]
            if engine.refuses(grid, case) is None:
                counts = engine.count(grid, case, Limits(), Progress())
                found = {query: count.lower for query, count in counts.items()}
                assert found == {query: int((mask & chosen).sum()) for query, mask in wanted.items()}, name
                compared += 1
    return compared


# --- random expressions ------------------------------------------------------------------------------------------
CHUNK = 10
SEEDS = [range(70_000 + chunk * CHUNK, 70_000 + (chunk + 1) * CHUNK) for chunk in range(12)]


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_back_ends_agree_on_random_expressions(seeds: range, tmp_path: Path) -> None:
    compiled = decided = compared = 0
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        drawn = draw_problem(seed, folder, ("safety", "learnability"), 2048)
        grid = pipeline.prepare(drawn.model, drawn.property, pipeline.Options(), Progress()).grid
        wanted, rng = drawn.cases[0], random.Random(seed)
        check_native(grid, wanted, drawn.positions)
        compiled += check_compiled(grid, wanted, drawn.positions, folder)
        decided += check_boxes(grid, wanted, drawn.positions, rng)
        plain = GridProblem(grid.sizes, grid.labels, grid.tree, type(grid.measure)(), grid.cases)
        compared += check_counts(plain, wanted, drawn.positions, rng)
    assert compiled >= CHUNK // 2
    assert decided > 0
    assert compared >= 4 * CHUNK


# --- the predicate library ---------------------------------------------------------------------------------------
Pairs = frozenset[tuple[int, int]]


def reflexive(n: range, r: Pairs) -> bool:
    return all((a, a) in r for a in n)


def irreflexive(n: range, r: Pairs) -> bool:
    return not any((a, a) in r for a in n)


def symmetric(n: range, r: Pairs) -> bool:
    return r == {(b, a) for a, b in r}


def antisymmetric(n: range, r: Pairs) -> bool:
    return all(a == b for a, b in r if (b, a) in r)


def transitive(n: range, r: Pairs) -> bool:
    return {(a, d) for a, b in r for c, d in r if b == c} <= r


def semiconnex(n: range, r: Pairs) -> bool:
    return all((a, b) in r or (b, a) in r for a in n for b in n if a != b)


def functional(n: range, r: Pairs) -> bool:
    return all(sum(a == b for b, _ in r) <= 1 for a in n)


DEFINITIONS: dict[str, tuple[Callable[[range, Pairs], bool], ...]] = {
    "reflexive": (reflexive,),
    "irreflexive": (irreflexive,),
    "symmetric": (symmetric,),
    "antisymmetric": (antisymmetric,),
    "transitive": (transitive,),
    "semiconnex": (semiconnex,),
    "functional": (functional,),
    "connex": (semiconnex, reflexive),
    "equivalence": (reflexive, symmetric, transitive),
    "preorder": (reflexive, transitive),
    "partialorder": (antisymmetric, transitive),
    "nonstrictorder": (reflexive, antisymmetric, transitive),
    "strictorder": (irreflexive, antisymmetric, transitive),
    "totalorder": (reflexive, antisymmetric, transitive, semiconnex),
}


def test_every_predicate_of_the_library_has_a_definition_here() -> None:
    from quantify.properties.library import LIBRARY

    assert set(LIBRARY) == set(DEFINITIONS)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_back_ends_agree_on_the_library(name: str, nodes: int, tmp_path: Path) -> None:
    positions = np.array(list(itertools.product((0, 1), repeat=nodes**2)), np.int64)
    places = list(itertools.product(range(nodes), repeat=2))
    truth = []
    for row in positions.tolist():
        pairs = frozenset(pair for pair, related in zip(places, row, strict=True) if related)
        truth.append(all(part(range(nodes), pairs) for part in DEFINITIONS[name]))
    rng = np.random.default_rng(nodes)
    tree = DecisionTreeClassifier(random_state=0, max_leaf_nodes=8).fit(positions, rng.integers(0, 2, len(positions)))
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(tree))
    (tmp_path / "property.yaml").write_text(
        f"property: safety\ndomain: {{relation: {{nodes: {nodes}}}}}\nassert: \"{name} and label == '1'\"\n"
    )
    ready = pipeline.prepare(tmp_path / "model.pkl", tmp_path / "property.yaml", pipeline.Options(), Progress())
    satisfied = np.array(truth) & (tree.predict(positions) == 1)
    wanted = {"satisfied": satisfied, "violated": ~satisfied}
    assert {query.name for query in ready.grid.cases[0].queries} == set(wanted)
    check_native(ready.grid, wanted, positions)
    assert check_compiled(ready.grid, wanted, positions, tmp_path)
    check_boxes(ready.grid, wanted, positions, random.Random(nodes))
    assert check_counts(ready.grid, wanted, positions, random.Random(nodes)) == 8

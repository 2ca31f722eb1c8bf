"""The reference engine against sums written out in the test."""

from __future__ import annotations

import itertools
import math
import time

import pytest
from random_grids import counted, points, random_problem

from quantify import engines
from quantify.engines.logic import holds, label_of
from quantify.engines.reference import ENGINE
from quantify.ir.count import Guarantee
from quantify.ir.domain import Measure
from quantify.ir.predicate import AllOf, Always, HasLabel, Within
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree, Region
from quantify.resources import Limits, Progress

STUMP = GridTree((0, -1, -1), (2, 0, 0), (4, 0, 0), (1, -1, -1), (2, -1, -1), (-1, 0, 1))


def problem(region: Region, sizes: tuple[int, ...] = (4, 3), measure: Measure | None = None) -> GridProblem:
    queries = (GridQuery("one", HasLabel((1,))), GridQuery("both", AllOf((HasLabel((1,)), Within(1, 0, 1)))))
    return GridProblem(sizes, 2, STUMP, measure or Measure(), (GridCase(region, queries, ()),))


def counts(grid: GridProblem) -> dict[str, tuple[int, int]]:
    found = ENGINE.count(grid, grid.cases[0], Limits(), Progress())
    assert all(c.guarantee is Guarantee.EXACT and c.digest == grid.digest(grid.cases[0]) for c in found.values())
    return {name: (count.lower, count.upper) for name, count in found.items()}


def test_it_is_discovered_and_never_automatic() -> None:
    assert engines.discover()["reference"] is ENGINE
    assert not ENGINE.automatic
    assert list(engines.discover()) == sorted(engines.discover())


def test_counts_by_hand() -> None:
    assert counts(problem(Box((0, 0), (4, 3)))) == {"one": (6, 6), "both": (2, 2)}
    assert counts(problem(Box((1, 1), (3, 3)))) == {"one": (2, 2), "both": (0, 0)}
    whole = Box((0, 0), (4, 3))
    # Within l1 distance 1 of (1, 0): (1,0) (0,0) (2,0) (1,1); of these (2,0) has label 1.
    assert counts(problem(Ball(whole, (1, 0), "l1", (1, 1), 1))) == {"one": (1, 1), "both": (1, 1)}
    # With one feature free: (0…3, 0) and (1, 0…2).
    assert counts(problem(Ball(whole, (1, 0), "l0", (1, 1), 1))) == {"one": (2, 2), "both": (2, 2)}
    # Distance 2 a step of feature 0, 1 a step of feature 1, at most 3.
    assert counts(problem(Ball(whole, (1, 0), "l1", (2, 1), 3))) == {"one": (2, 2), "both": (1, 1)}


def test_weights_multiply() -> None:
    measure = Measure("product", ((1, 2, 3, 4), None))
    assert counts(problem(Box((0, 0), (4, 3)), measure=measure)) == {"one": (21, 21), "both": (7, 7)}


@pytest.mark.parametrize("seed", range(40))
def test_counts_equal_the_definition(seed: int) -> None:
    grid = random_problem(seed)
    case = grid.cases[0]
    assert counts(grid) == {name: (total, total) for name, total in counted(grid, case).items()}
    for query in case.queries:
        found = ENGINE.witness(grid, case, query, Limits())
        satisfying = [p for p in points(case.region) if holds(query.predicate, p, label_of(grid.tree, p))]
        assert found == (satisfying[0] if satisfying else None)


@pytest.mark.parametrize("seed", range(10))
def test_weighted_counts_equal_the_definition(seed: int) -> None:
    uniform = random_problem(seed)
    weights = tuple(
        None if place % 3 == 2 else tuple((place + 2 * p) % 4 for p in range(size))
        for place, size in enumerate(uniform.sizes)
    )
    grid = GridProblem(uniform.sizes, uniform.labels, uniform.tree, Measure("product", weights), uniform.cases)
    case = grid.cases[0]
    for query in case.queries:
        total = sum(
            math.prod(1 if w is None else w[p] for w, p in zip(weights, point, strict=True))
            for point in points(case.region)
            if holds(query.predicate, point, label_of(grid.tree, point))
        )
        assert counts(grid)[query.name] == (total, total)
        assert (ENGINE.witness(grid, case, query, Limits()) is None) == (total == 0)


def test_a_deadline_leaves_bounds_that_hold() -> None:
    sizes = (4, 2**10, 2**8)
    everything = Box((0, 0, 0), sizes)
    queries = (GridQuery("all", Always(True)), GridQuery("one", HasLabel((1,))))
    grid = GridProblem(sizes, 2, STUMP, Measure(), (GridCase(everything, queries, ()),))
    assert ENGINE.refuses(grid, grid.cases[0]) is None
    late = ENGINE.count(grid, grid.cases[0], Limits(deadline=time.monotonic() - 1), Progress())
    assert {n: (c.lower, c.upper) for n, c in late.items()} == dict.fromkeys(("all", "one"), (0, 2**20))
    limits = Limits.starting_now(0.5)

    class Dawdling(Progress):
        def update(self, message: str, done: int = 0, total: int = 0) -> None:
            if done >= 8192:
                time.sleep(limits.remaining() or 0)

    some = ENGINE.count(grid, grid.cases[0], limits, Dawdling())
    for name, truth in (("all", 2**20), ("one", 2**19)):
        assert some[name].guarantee is Guarantee.BOUNDS
        assert some[name].lower <= truth <= some[name].upper < 2 * 2**20
    assert 0 < some["all"].lower < some["all"].upper == 2**20
    assert ENGINE.witness(grid, grid.cases[0], queries[0], Limits(deadline=time.monotonic() - 1)) is None


def test_large_regions_are_refused_with_the_reason() -> None:
    grid = problem(Box((0, 0), (2**11, 2**10)), (2**11, 2**10))
    assert "2^20" in (ENGINE.refuses(grid, grid.cases[0]) or "")
    ball = problem(Ball(Box((0, 0), (2**11, 2**10)), (0, 0), "l1", (1, 1), 1), (2**11, 2**10))
    assert ENGINE.refuses(ball, ball.cases[0]) is not None


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []

    class Listening(Progress):
        def update(self, message: str, done: int = 0, total: int = 0) -> None:
            seen.append((done, total))

    grid = problem(Box((0, 0), (64, 256)), (64, 256))
    ENGINE.count(grid, grid.cases[0], Limits(), Listening())
    assert seen == [(done, 2**14) for done in itertools.islice(itertools.count(0, 4096), 4)]

"""Seeded random integer problems and a plain-Python count of their points, for the tests of engines."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from quantify.engines import logic
from quantify.ir.domain import Measure
from quantify.ir.predicate import (
    AllOf,
    Always,
    AnyOf,
    CountOf,
    Extreme,
    FloorDiv,
    HasLabel,
    IntExpr,
    Linear,
    Negation,
    Plus,
    Predicate,
    Sign,
    Times,
    Within,
)
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree, Region


def random_tree(rng: random.Random, sizes: tuple[int, ...], labels: int, inner: int) -> GridTree:
    """A tree of `inner` inner nodes, some with two cuts, some sharing a child."""
    feature, low, high, left, right, label = [], [], [], [], [], []
    for node in range(inner):
        f = rng.randrange(len(sizes))
        cut = rng.randrange(sizes[f] + 1)
        feature.append(f)
        low.append(cut)
        high.append(sizes[f] if rng.random() < 0.7 else rng.randrange(cut, sizes[f] + 1))
        for child in (left, right):
            child.append(rng.randrange(node + 1, inner + labels))
        label.append(-1)
    for number in range(labels):
        for array in (low, high, left, right):
            array.append(0)
        feature.append(-1)
        label.append(number)
    return GridTree(tuple(feature), tuple(low), tuple(high), tuple(left), tuple(right), tuple(label))


def random_number(rng: random.Random, sizes: tuple[int, ...], labels: int, depth: int) -> IntExpr:
    kind = rng.choice(("linear", "plus", "times", "floor", "extreme", "count")) if depth else "linear"
    if kind == "linear":
        chosen = sorted(rng.sample(range(len(sizes)), rng.randint(0, len(sizes))))
        return Linear(tuple((f, rng.choice((-7, -3, -1, 1, 2, 5))) for f in chosen), rng.randint(-9, 9))
    if kind == "times":
        return Times(*(random_number(rng, sizes, labels, depth - 1) for _ in range(2)))
    if kind == "floor":
        return FloorDiv(random_number(rng, sizes, labels, depth - 1), rng.choice((1, 2, 3, 4, 7)))
    if kind == "count":
        return CountOf(tuple(random_predicate(rng, sizes, labels, depth - 1) for _ in range(rng.randint(0, 3))))
    arguments = tuple(random_number(rng, sizes, labels, depth - 1) for _ in range(rng.randint(1, 3)))
    return Plus(arguments) if kind == "plus" else Extreme(rng.choice(("min", "max")), arguments)


def random_predicate(rng: random.Random, sizes: tuple[int, ...], labels: int, depth: int) -> Predicate:
    kind = rng.choice(("within", "label", "sign", "not", "all", "any", "all", "any")) if depth else "within"
    if kind == "within":
        f = rng.randrange(len(sizes))
        low = rng.randrange(sizes[f] + 1)
        return Within(f, low, rng.randrange(low, sizes[f] + 2))
    if kind == "label":
        return HasLabel(tuple(k for k in range(labels) if rng.random() < 0.5))
    if kind == "sign":
        return Sign(rng.choice(("<", "<=", "==", "!=")), random_number(rng, sizes, labels, depth - 1))
    if kind == "not":
        return Negation(random_predicate(rng, sizes, labels, depth - 1))
    if rng.random() < 0.05:
        return Always(rng.random() < 0.5)
    arguments = tuple(random_predicate(rng, sizes, labels, depth - 1) for _ in range(rng.randint(0, 3)))
    return AllOf(arguments) if kind == "all" else AnyOf(arguments)


def random_region(rng: random.Random, sizes: tuple[int, ...], kind: str) -> Region:
    low = tuple(rng.randrange(size) for size in sizes)
    high = tuple(rng.randint(a + 1, size) for a, size in zip(low, sizes, strict=True))
    if kind == "domain":
        return Box((0,) * len(sizes), sizes)
    if kind == "box":
        return Box(low, high)
    centre = tuple(rng.randrange(a, b) for a, b in zip(low, high, strict=True))
    if kind == "l0":
        return Ball(Box(low, high), centre, "l0", (1,) * len(sizes), rng.randint(0, len(sizes)))
    return Ball(Box(low, high), centre, "l1", tuple(rng.choice((1, 1, 2, 3)) for _ in sizes), rng.randint(0, 12))


def random_problem(
    seed: int, regions: tuple[str, ...] = ("domain", "box", "l0", "l1"), widths: tuple[int, ...] = (1, 2, 2, 3, 5, 8)
) -> GridProblem:
    """A problem with one case of three queries (one complemented in a partition), at most 4,096 points."""
    rng = random.Random(seed)
    sizes: tuple[int, ...] = ()
    while not sizes or _product(sizes) > 4096:
        sizes = tuple(rng.choice(widths) for _ in range(rng.randint(1, 7)))
    labels = rng.randint(1, 4)
    tree = random_tree(rng, sizes, labels, rng.randint(0, 9))
    queries = [random_predicate(rng, sizes, labels, rng.randint(1, 3)) for _ in range(2)]
    named = [GridQuery(f"q{k}", q) for k, q in enumerate(queries)] + [GridQuery("rest", Negation(queries[0]), False)]
    case = GridCase(random_region(rng, sizes, rng.choice(regions)), tuple(named), (("q0", "rest"),))
    return GridProblem(sizes, labels, tree, Measure(), (case,))


def _product(sizes: tuple[int, ...]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def points(region: Region) -> Iterator[tuple[int, ...]]:
    """Every point of the region, by the definition."""
    box = region if isinstance(region, Box) else region.box
    for point in itertools.product(*(range(a, b) for a, b in zip(box.low, box.high, strict=True))):
        if isinstance(region, Ball):
            steps = [abs(p - c) for p, c in zip(point, region.centre, strict=True)]
            if region.norm == "l0":
                distance = sum(step != 0 for step in steps)
            else:
                distance = sum(w * step for w, step in zip(region.weights, steps, strict=True))
            if distance > region.radius:
                continue
        yield point


def counted(problem: GridProblem, case: GridCase) -> dict[str, int]:
    """Points per query, one at a time."""
    totals = {query.name: 0 for query in case.queries}
    for point in points(case.region):
        label = logic.label_of(problem.tree, point)
        for query in case.queries:
            totals[query.name] += logic.holds(query.predicate, point, label)
    return totals

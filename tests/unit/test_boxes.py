"""The engine `boxes` against brute force over random trees with three-way cuts, shared children, weights and balls."""

import itertools
import math
import random
import time
from fractions import Fraction

import pytest

from quantify.engines.boxes import ENGINE, BoxesEngine, count_boxes
from quantify.engines.descent import native_module, prepare
from quantify.errors import InputError
from quantify.ir.count import Guarantee
from quantify.ir.domain import Measure
from quantify.ir.predicate import (
    AllOf,
    Always,
    AnyOf,
    CountOf,
    Extreme,
    FloorDiv,
    HasLabel,
    Linear,
    Negation,
    Plus,
    Sign,
    Times,
    Within,
)
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree
from quantify.resources import Limits, Progress

LABELS = 3
UNIFORM = Measure()


# --- brute force, from the definitions in the IR -----------------------------------------------------------------
def label_at(tree, point):
    node = 0
    while tree.feature[node] >= 0:
        inside = tree.low[node] <= point[tree.feature[node]] < tree.high[node]
        node = tree.right[node] if inside else tree.left[node]
    return tree.label[node]


def number_at(number, point, label):
    match number:
        case Linear(terms, constant):
            return constant + sum(c * point[f] for f, c in terms)
        case Plus(arguments):
            return sum(number_at(a, point, label) for a in arguments)
        case Times(left, right):
            return number_at(left, point, label) * number_at(right, point, label)
        case FloorDiv(argument, divisor):
            return math.floor(Fraction(number_at(argument, point, label), divisor))
        case Extreme(which, arguments):
            return {"min": min, "max": max}[which](number_at(a, point, label) for a in arguments)
        case CountOf(arguments):
            return len([a for a in arguments if true_at(a, point, label)])


def true_at(predicate, point, label):
    match predicate:
        case Always(value):
            return value
        case Within(feature, low, high):
            return low <= point[feature] < high
        case HasLabel(labels):
            return label in labels
        case Negation(argument):
            return not true_at(argument, point, label)
        case AllOf(arguments):
            return all(true_at(a, point, label) for a in arguments)
        case AnyOf(arguments):
            return any(true_at(a, point, label) for a in arguments)
        case Sign(op, argument):
            value = number_at(argument, point, label)
            return {"<": value < 0, "<=": value <= 0, "==": value == 0, "!=": value != 0}[op]


def points(region):
    box = region if isinstance(region, Box) else region.box
    for point in itertools.product(*(range(a, b) for a, b in zip(box.low, box.high, strict=True))):
        if isinstance(region, Box):
            yield point
            continue
        steps = [abs(p - c) for p, c in zip(point, region.centre, strict=True)]
        if region.norm == "l0":
            distance = sum(s > 0 for s in steps)
        else:
            distance = sum(w * s for w, s in zip(region.weights, steps, strict=True))
        if distance <= region.radius:
            yield point


def weight(measure, point):
    if measure.kind == "uniform":
        return 1
    return math.prod(1 if w is None else w[p] for w, p in zip(measure.weights, point, strict=True))


def brute(problem, region, predicate):
    total = 0
    for point in points(region):
        if true_at(predicate, point, label_at(problem.tree, point)):
            total += weight(problem.measure, point)
    return total


# --- random cases ------------------------------------------------------------------------------------------------
def random_tree(rng, sizes, depth, shared=0.2):
    rows = []
    finished = []

    def make(level):
        if finished and rng.random() < shared:
            return rng.choice(finished)
        node = len(rows)
        rows.append(None)
        if level == 0 or rng.random() < 0.1:
            rows[node] = (-1, 0, 0, -1, -1, rng.randrange(LABELS))
        else:
            feature = rng.randrange(len(sizes))
            size = sizes[feature]
            low, high = sorted((rng.randint(0, size), rng.choice([size, rng.randint(0, size)])))
            left = make(level - 1)
            rows[node] = (feature, low, high, left, make(level - 1), -1)
        finished.append(node)
        return node

    make(depth)
    return GridTree(*(tuple(column) for column in zip(*rows, strict=True)))


def random_number(rng, sizes, depth):
    kind = rng.choice(["linear"] * 4 + ["plus", "times", "floor", "extreme", "count"]) if depth else "linear"
    if kind == "linear":
        used = sorted(rng.sample(range(len(sizes)), rng.randint(0, len(sizes))))
        return Linear(tuple((f, rng.choice([-3, -2, -1, 1, 1, 2, 5])) for f in used), rng.randint(-6, 6))
    if kind == "plus":
        return Plus(tuple(random_number(rng, sizes, depth - 1) for _ in range(rng.randint(1, 3))))
    if kind == "times":
        return Times(random_number(rng, sizes, depth - 1), random_number(rng, sizes, depth - 1))
    if kind == "floor":
        return FloorDiv(random_number(rng, sizes, depth - 1), rng.randint(1, 4))
    if kind == "extreme":
        arguments = tuple(random_number(rng, sizes, depth - 1) for _ in range(rng.randint(1, 3)))
        return Extreme(rng.choice(["min", "max"]), arguments)
    return CountOf(tuple(random_predicate(rng, sizes, depth - 1) for _ in range(rng.randint(1, 4))))


def random_predicate(rng, sizes, depth):
    if depth == 0 or rng.random() < 0.2:
        kind = rng.choice(["within", "within", "label", "always"])
    else:
        kind = rng.choice(["not", "all", "any", "sign", "sign"])
    if kind == "within":
        feature = rng.randrange(len(sizes))
        low, high = sorted((rng.randint(0, sizes[feature]), rng.randint(0, sizes[feature])))
        return Within(feature, low, high)
    if kind == "label":
        return HasLabel(tuple(sorted(rng.sample(range(LABELS), rng.randint(1, LABELS)))))
    if kind == "always":
        return Always(rng.random() < 0.5)
    if kind == "not":
        return Negation(random_predicate(rng, sizes, depth - 1))
    if kind == "sign":
        return Sign(rng.choice(["<", "<=", "==", "!="]), random_number(rng, sizes, depth - 1))
    parts = tuple(random_predicate(rng, sizes, depth - 1) for _ in range(rng.randint(0, 3)))
    return AllOf(parts) if kind == "all" else AnyOf(parts)


def random_region(rng, sizes, kind):
    low = tuple(rng.choice([0, rng.randrange(n)]) for n in sizes)
    high = tuple(rng.choice([n, rng.randint(a + 1, n)]) for a, n in zip(low, sizes, strict=True))
    box = Box(low, high)
    if kind == "box":
        return box
    centre = tuple(rng.randrange(a, b) if rng.random() < 0.8 else rng.randrange(n)
                   for a, b, n in zip(low, high, sizes, strict=True))
    weights = tuple(rng.choice([1, 1, 2, 3]) if kind == "l1" else 1 for _ in sizes)
    return Ball(box, centre, kind, weights, rng.randint(0, 6))


def random_problem(rng, weighted):
    sizes = tuple(rng.randint(1, 5) for _ in range(rng.randint(1, 5)))
    measure = UNIFORM
    if weighted:
        weights = [None if rng.random() < 0.3 else tuple(rng.choice([0, 1, 2, 5]) for _ in range(n)) for n in sizes]
        measure = Measure("product", tuple(weights))
    return GridProblem(sizes, LABELS, random_tree(rng, sizes, rng.randint(0, 5)), measure, ())


def count(problem, region, predicate, engine=ENGINE, limits=None):
    case = GridCase(region, (GridQuery("q", predicate),), ())
    return engine.count(problem, case, limits or Limits(), Progress())["q"]


# --- tests -------------------------------------------------------------------------------------------------------
def test_the_native_module_is_there():
    assert native_module() is not None


@pytest.mark.parametrize("kind", ["box", "l1", "l0"])
@pytest.mark.parametrize("weighted", [False, True])
def test_label_counts_equal_brute_force(kind, weighted):
    rng = random.Random(f"{kind} {weighted}")
    plain = BoxesEngine(native=False)
    for _ in range(120):
        problem = random_problem(rng, weighted)
        region = random_region(rng, problem.sizes, kind)
        for label in range(LABELS):
            expected = brute(problem, region, HasLabel((label,)))
            for engine in (ENGINE, plain):
                found = count(problem, region, HasLabel((label,)), engine)
                assert (found.lower, found.upper, found.guarantee) == (expected, expected, Guarantee.EXACT)


@pytest.mark.parametrize("kind", ["box", "l1", "l0"])
@pytest.mark.parametrize("weighted", [False, True])
def test_predicates_equal_brute_force_and_witnesses_satisfy_them(kind, weighted):
    rng = random.Random(f"predicates {kind} {weighted}")
    for _ in range(150):
        problem = random_problem(rng, weighted)
        region = random_region(rng, problem.sizes, kind)
        predicate = random_predicate(rng, problem.sizes, 3)
        expected = brute(problem, region, predicate)
        found = count(problem, region, predicate)
        assert (found.lower, found.upper) == (expected, expected), (problem, region, predicate)
        case = GridCase(region, (), ())
        point = ENGINE.witness(problem, case, GridQuery("q", predicate), Limits())
        assert (point is not None) == (expected > 0)
        if point is not None:
            assert point in set(points(region))
            assert weight(problem.measure, point) > 0
            assert true_at(predicate, point, label_at(problem.tree, point))


@pytest.mark.parametrize("kind", ["box", "l1"])
@pytest.mark.parametrize("weighted", [False, True])
def test_splitting_is_exact_when_nothing_can_be_tabulated(monkeypatch, kind, weighted):
    monkeypatch.setattr("quantify.engines.cells.MOST_BITS", 4)
    monkeypatch.setattr("quantify.engines.cells.MOST_NUMBERS", 4)
    monkeypatch.setattr("quantify.engines.sums.MOST_WORK", 0)
    monkeypatch.setattr("quantify.engines.sums.MOST_LINES", 0)
    monkeypatch.setattr("quantify.engines.splitting.MOST_WAITING", 3)
    rng = random.Random(f"splitting {kind} {weighted}")
    for _ in range(80):
        problem = random_problem(rng, weighted)
        region = random_region(rng, problem.sizes, kind)
        predicate = random_predicate(rng, problem.sizes, 3)
        expected = brute(problem, region, predicate)
        assert count(problem, region, predicate).lower == expected, (problem, region, predicate)
        assert count(problem, region, predicate).upper == expected
        point = ENGINE.witness(problem, GridCase(region, (), ()), GridQuery("q", predicate), Limits())
        assert (point is not None) == (expected > 0)
        assert point is None or true_at(predicate, point, label_at(problem.tree, point))

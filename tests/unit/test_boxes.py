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


def random_tally(rng, sizes):
    """A bound on a sum of parts that share few features: counts, absolute differences, multiples of both."""
    parts = []
    for feature in range(len(sizes)):
        cut = rng.randint(0, sizes[feature])
        ways = (Linear(((feature, 1),), -cut), Linear(((feature, -1),), cut))
        part = rng.choice([CountOf((Within(feature, cut, sizes[feature]),)), Extreme("max", ways), ways[0]])
        parts.append(Times(part, Linear((), rng.choice([-2, -1, 1, 3]))) if rng.random() < 0.4 else part)
    ranges = [Within(f, 0, rng.randint(0, n)) for f, n in enumerate(sizes) for _ in range(rng.choice([1, 1, 2]))]
    tallies = (Plus((*parts, Linear((), rng.randint(-6, 6)))), Plus((CountOf(tuple(ranges)), Linear((), -1))))
    return Sign(rng.choice(["<", "<=", "==", "!="]), rng.choice(tallies))


def random_tallies(rng, sizes, depth):
    if depth == 0:
        return random_tally(rng, sizes[: rng.randint(1, len(sizes))])
    parts = tuple(random_tallies(rng, sizes, depth - 1) for _ in range(rng.randint(1, 3)))
    return rng.choice([AllOf, AnyOf, lambda some: Negation(some[0])])(parts)


def random_predicate(rng, sizes, depth):
    if depth == 3 and rng.random() < 0.3:
        return random_tallies(rng, sizes, rng.randint(0, 3))
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
    centre = tuple(
        rng.randrange(a, b) if rng.random() < 0.8 else rng.randrange(n)
        for a, b, n in zip(low, high, sizes, strict=True)
    )
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


def test_relations_at_four_nodes():
    def holds(i, j):
        return Within(4 * i + j, 1, 2)

    nodes = range(4)
    transitive = AllOf(
        tuple(
            AnyOf((Negation(holds(i, j)), Negation(holds(j, k)), holds(i, k)))
            for i in nodes
            for j in nodes
            for k in nodes
        )
    )
    reflexive = AllOf(tuple(holds(i, i) for i in nodes))
    functional = AllOf(
        tuple(Sign("<=", Plus((CountOf(tuple(holds(i, j) for j in nodes)), Linear((), -1)))) for i in nodes)
    )
    # Published numbers of labelled relations on four nodes.
    known = {transitive: 3994, AllOf((reflexive, transitive)): 355, functional: 5**4}
    rng = random.Random(4)
    for predicate, expected in known.items():
        problem = GridProblem((2,) * 16, LABELS, random_tree(rng, (2,) * 16, 6, shared=0.0), UNIFORM, (), 4)
        region = Box((0,) * 16, (2,) * 16)
        cells = [(wanted, label) for wanted in (predicate, Negation(predicate)) for label in range(LABELS)]
        counts = [count(problem, region, AllOf((wanted, HasLabel((label,))))).lower for wanted, label in cells]
        assert sum(counts[:LABELS]) == expected
        assert sum(counts) == 2**16


def wide_problem(rng, sizes, depth=8):
    return GridProblem(sizes, LABELS, random_tree(rng, sizes, depth, shared=0.0), UNIFORM, ())


@pytest.mark.parametrize("top", [7, 2**20, 2**31, 2**61])
def test_native_and_plain_descents_agree_on_many_boxes(top):
    rng = random.Random(top)
    for _ in range(10):
        sizes = tuple(rng.randint(1, top) for _ in range(40))
        problem = wide_problem(rng, sizes)
        boxes = [random_region(rng, sizes, "box") for _ in range(10)]
        found = count_boxes(problem, boxes)
        assert found == count_boxes(problem, boxes, native=False)
        assert [sum(row) for row in found] == [box.size for box in boxes]


def test_more_than_128_bits_are_detected_and_counted_in_big_integers():
    sizes = (2**60,) * 5
    # A chain of five halvings: label 1 iff every position is in its upper half.
    inner = [(f, 2**59, 2**60, 5, f + 1 if f < 4 else 6, -1) for f in range(5)]
    rows = [*inner, (-1, 0, 0, -1, -1, 0), (-1, 0, 0, -1, -1, 1)]
    tree = GridTree(*(tuple(column) for column in zip(*rows, strict=True)))
    problem = GridProblem(sizes, 2, tree, UNIFORM, ())
    box = Box((0,) * 5, sizes)
    ready = prepare(problem)
    assert ready.native_counts([box], []) == [None]
    assert count_boxes(problem, [box]) == [[2**300 - 2**295, 2**295]]
    narrow = Box((2**59 - 1,) * 5, (2**59 + 1,) * 5)
    assert ready.native_counts([narrow], []) == [[31, 1]]


def test_untouched_features_and_residual_at_the_edge_of_128_bits():
    tree = GridTree(
        (0, 1, -1, -1, -1),
        (2**62, 2**61, 0, 0, 0),
        (2**63, 2**62, 0, 0, 0),
        (2, 3, -1, -1, -1),
        (1, 4, -1, -1, -1),
        (-1, -1, 0, 1, 2),
    )
    sizes = (2**63, 2**62, 2**200)
    problem = GridProblem(sizes, 3, tree, UNIFORM, ())
    box = Box((0, 0, 0), sizes)
    assert not prepare(problem).has_native  # a position of feature 0 may need 63 bits
    assert count_boxes(problem, [box]) == [[2**324, 2**323, 2**323]]


def test_single_leaf_and_empty_boxes():
    problem = GridProblem((3, 4), 2, GridTree((-1,), (0,), (0,), (-1,), (-1,), (1,)), UNIFORM, ())
    boxes = [Box((0, 0), (3, 4)), Box((2, 2), (2, 4)), Box((1, 1), (2, 2))]
    assert count_boxes(problem, boxes) == [[0, 12], [0, 0], [0, 1]]
    assert count(problem, boxes[1], HasLabel((1,))).upper == 0
    assert ENGINE.witness(problem, GridCase(boxes[1], (), ()), GridQuery("q", Always(True)), Limits()) is None


@pytest.mark.parametrize(
    "change",
    [
        {"left": (9, -1, -1)},
        {"right": (0, -1, -1)},
        {"feature": (7, -1, -1)},
        {"label": (-1, 0, 5)},
        {"low": (1,)},
    ],
)
def test_trees_that_native_code_must_not_follow(change):
    sound = {
        "feature": (0, -1, -1),
        "low": (1, 0, 0),
        "high": (2, 0, 0),
        "left": (1, -1, -1),
        "right": (2, -1, -1),
        "label": (-1, 0, 1),
    }
    problem = GridProblem((2,), 2, GridTree(**(sound | change)), UNIFORM, ())
    with pytest.raises(InputError):
        count_boxes(problem, [Box((0,), (2,))])


def test_shared_children_beyond_the_visit_budget_fall_back(monkeypatch):
    monkeypatch.setattr("quantify.engines.descent.VISITS", 10)
    rows = [(f, 1, 2, f + 1, f + 1, -1) for f in range(8)] + [(-1, 0, 0, -1, -1, 2)]
    problem = GridProblem((2,) * 8, LABELS, GridTree(*(tuple(c) for c in zip(*rows, strict=True))), UNIFORM, ())
    box = Box((0,) * 8, (2,) * 8)
    assert prepare(problem).native_counts([box], []) == [None]
    assert count_boxes(problem, [box]) == [[0, 0, 256]]


def test_lines_over_float32_grids_are_closed_forms():
    size = 2**32
    rng = random.Random(5)
    problem = wide_problem(rng, (size,) * 3)
    region = Box((0,) * 3, (size,) * 3)
    less = Sign("<", Linear(((0, 1), (1, -1)), 0))
    assert count(problem, region, less).lower == size * (size - 1) // 2 * size
    near = Sign(
        "<=", Plus((Extreme("max", (Linear(((0, 1), (1, -1)), 0), Linear(((0, -1), (1, 1)), 0))), Linear((), -1000)))
    )
    expected = size + 2 * sum(size - d for d in range(1, 1001))
    assert count(problem, region, near).lower == expected * size


def test_sums_of_many_features():
    problem = wide_problem(random.Random(6), (256,) * 12, 4)
    region = Box((0,) * 12, (256,) * 12)
    below = Sign("<=", Linear(tuple((f, 1) for f in range(12)), -200))
    # No position can reach 256 before the sum exceeds 200: stars and bars.
    assert count(problem, region, below).lower == math.comb(212, 12)
    few = Sign("==", Plus((CountOf(tuple(Within(f, 0, 10) for f in range(12))), Linear((), -3))))
    assert count(problem, region, few).lower == math.comb(12, 3) * 10**3 * 246**9


@pytest.mark.parametrize("norm", ["l0", "l1"])
def test_balls_in_image_sized_domains(norm):
    pixels, radius = 784, 5
    problem = wide_problem(random.Random(norm), (256,) * pixels)
    ball = Ball(Box((0,) * pixels, (256,) * pixels), (100,) * pixels, norm, (1,) * pixels, radius)
    if norm == "l0":
        size = sum(math.comb(pixels, k) * 255**k for k in range(radius + 1))
    else:  # choose the k features that move, split the distance among them, give each a sign
        size = sum(math.comb(pixels, k) * math.comb(radius, k) * 2**k for k in range(radius + 1))
    whole = [count(problem, ball, HasLabel((label,))).lower for label in range(LABELS)]
    halves = [
        count(problem, ball, AllOf((HasLabel((label,)), Within(3, *side)))).lower
        for label in range(LABELS)
        for side in ((0, 100), (100, 256))
    ]
    assert sum(whole) == sum(halves) == size


def test_a_ball_of_too_many_distances_is_refused():
    problem = GridProblem((2**40,), 2, GridTree((-1,), (0,), (0,), (-1,), (-1,), (1,)), UNIFORM, ())
    ball = Ball(Box((0,), (2**40,)), (0,), "l1", (1,), 10**9)
    assert "distances" in ENGINE.refuses(problem, GridCase(ball, (), ()))
    scaled = Ball(Box((0,), (2**40,)), (0,), "l1", (10**6,), 10**9)
    assert ENGINE.refuses(problem, GridCase(scaled, (), ())) is None
    assert count(problem, scaled, Always(True)).lower == 1001


def hard_case():
    """Six inequalities over ten features: nothing but splitting decides them."""
    rng = random.Random(7)
    rows = tuple(
        Sign("<=", Linear(tuple((f, rng.choice([-3, -2, 2, 3])) for f in range(10)), -5 - i)) for i in range(6)
    )
    return wide_problem(rng, (64,) * 10, 5), Box((0,) * 10, (64,) * 10), AllOf(rows)


def test_the_deadline_gives_bounds():
    problem, region, hard = hard_case()
    started = time.monotonic()
    at_once = count(problem, region, hard, limits=Limits.starting_now(0))
    later = count(problem, region, hard, limits=Limits.starting_now(0.3))
    complement = count(problem, region, Negation(hard), limits=Limits.starting_now(0.3))
    assert time.monotonic() - started < 5
    for found in (at_once, later, complement):
        assert 0 <= found.lower < found.upper <= 64**10
        assert found.guarantee is Guarantee.BOUNDS
    assert complement.lower + later.lower <= 64**10 <= complement.upper + later.upper
    assert ENGINE.estimate(problem, GridCase(region, (GridQuery("q", hard),), ())).seconds > 100


@pytest.mark.parametrize("kind", ["box", "l1"])
def test_bounds_at_any_moment_hold_the_count(monkeypatch, kind):
    """The deadline after every possible number of steps: bounds hold the brute-force count and only tighten."""
    monkeypatch.setattr("quantify.engines.cells.MOST_BITS", 2)
    monkeypatch.setattr("quantify.engines.cells.MOST_NUMBERS", 2)

    class Steps:
        def __init__(self, left):
            self.left = left

        def expired(self):
            self.left -= 1
            return self.left < 0

        def why(self):
            return "no steps are left"

    rng = random.Random(f"moments {kind}")
    for _ in range(40):
        problem = random_problem(rng, weighted=True)
        region = random_region(rng, problem.sizes, kind)
        predicate = random_predicate(rng, problem.sizes, 3)
        expected = brute(problem, region, predicate)
        for left in range(16):
            found = count(problem, region, predicate, limits=Steps(left))
            assert found.lower <= expected <= found.upper


@pytest.mark.parametrize("engine", [ENGINE, BoxesEngine(native=False)])
@pytest.mark.parametrize("predicate", [HasLabel((0,)), AllOf((HasLabel((0,)), Within(0, 0, 2**19)))])
def test_leaves_not_reached_before_the_deadline_stay_open(engine, predicate):
    problem = wide_problem(random.Random(9), (2**20,) * 4, 11)
    region = Box((0,) * 4, (2**20,) * 4)
    full = count(problem, region, predicate, engine)
    cut = count(problem, region, predicate, engine, Limits.starting_now(0))
    assert full.lower == full.upper
    assert cut.lower <= full.lower <= cut.upper
    assert prepare(problem).paths > 64


@pytest.mark.parametrize("junction", [AllOf, AnyOf])
def test_strips_between_and_outside_parallel_lines(junction):
    problem = GridProblem((7, 9), LABELS, GridTree((-1,), (0,), (0,), (-1,), (-1,), (0,)), UNIFORM, ())
    region = Box((0, 0), (7, 9))
    for low in range(-12, 13):
        for high in range(-12, 13):
            above = Sign("<=", Linear(((0, -2), (1, 1)), low))
            below = Sign("<=", Linear(((0, 2), (1, -1)), -high))
            expected = brute(problem, region, junction((above, below)))
            assert count(problem, region, junction((above, below))).lower == expected


def test_a_label_count_needs_no_splitting_and_is_estimated_so():
    problem = wide_problem(random.Random(8), (256,) * 30)
    case = GridCase(Box((0,) * 30, (256,) * 30), (GridQuery("q", HasLabel((1,))),), ())
    assert ENGINE.refuses(problem, case) is None
    assert ENGINE.estimate(problem, case).seconds < 0.01

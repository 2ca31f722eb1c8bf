"""Engine bdd against enumeration by `logic.holds`, against published counts, and at its limits."""

from __future__ import annotations

import itertools
import random
import sys
import time
from fractions import Fraction

import pytest

from quantify.engines import bdd, diagrams
from quantify.engines.logic import holds, label_of
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
from quantify.resources import Limits, Progress

ENGINE = bdd.ENGINE


# --- problems by hand ----------------------------------------------------------------------------------------------
def single_leaf(label: int = 0) -> GridTree:
    return GridTree((-1,), (0,), (0,), (0,), (0,), (label,))


def random_tree(rng: random.Random, sizes: list[int], labels: int, depth: int) -> GridTree:
    rows: list[tuple[int, int, int, int, int, int]] = []

    def grow(level: int) -> int:
        node = len(rows)
        rows.append((-1, 0, 0, 0, 0, rng.randrange(labels)))
        if level:
            feature = rng.randrange(len(sizes))
            low = rng.randrange(sizes[feature] + 1)
            high = rng.choice([sizes[feature], rng.randrange(low, sizes[feature] + 1)])
            rows[node] = (feature, low, high, grow(level - 1), grow(level - 1), 0)
        return node

    grow(depth)
    return GridTree(*(tuple(column) for column in zip(*rows, strict=True)))


def random_number(rng: random.Random, sizes: list[int], depth: int) -> IntExpr:
    if depth == 0 or rng.random() < 0.4:
        features = sorted(rng.sample(range(len(sizes)), rng.randint(1, min(3, len(sizes)))))
        return Linear(tuple((f, rng.choice([-5, -2, -1, 1, 2, 3, 7])) for f in features), rng.randint(-9, 9))
    kind = rng.randrange(5)
    if kind == 0:
        return Plus(tuple(random_number(rng, sizes, depth - 1) for _ in range(rng.randint(1, 3))))
    if kind == 1:
        return Times(random_number(rng, sizes, depth - 1), random_number(rng, sizes, 0))
    if kind == 2:
        return FloorDiv(random_number(rng, sizes, depth - 1), rng.randint(1, 6))
    if kind == 3:
        arguments = tuple(random_number(rng, sizes, depth - 1) for _ in range(rng.randint(1, 3)))
        return Extreme(rng.choice(["min", "max"]), arguments)
    return CountOf(tuple(random_predicate(rng, sizes, depth - 1) for _ in range(rng.randint(0, 4))))


def random_predicate(rng: random.Random, sizes: list[int], depth: int) -> Predicate:
    if depth == 0 or rng.random() < 0.2:
        kind = rng.randrange(8)
        if kind == 0:
            return Always(rng.random() < 0.5)
        if kind <= 2:
            return HasLabel(tuple(sorted(rng.sample(range(3), rng.randint(1, 2)))))
        feature = rng.randrange(len(sizes))
        low = rng.randint(-1, sizes[feature])
        return Within(feature, low, rng.randint(low, sizes[feature] + 1))
    kind = rng.randrange(5)
    if kind <= 1:
        arguments = tuple(random_predicate(rng, sizes, depth - 1) for _ in range(rng.randint(0, 3)))
        return AllOf(arguments) if kind else AnyOf(arguments)
    if kind == 2:
        return Negation(random_predicate(rng, sizes, depth - 1))
    return Sign(rng.choice(["<", "<=", "==", "!="]), random_number(rng, sizes, depth - 1))


def random_region(rng: random.Random, sizes: list[int]) -> Region:
    low = [rng.randrange(size) for size in sizes]
    high = [rng.randint(start + 1, size) for start, size in zip(low, sizes, strict=True)]
    box = Box(tuple(low), tuple(high))
    if rng.random() < 0.5:
        return box
    centre = tuple(rng.randrange(a, b) for a, b in zip(low, high, strict=True))
    if rng.random() < 0.5:
        return Ball(box, centre, "l0", (1,) * len(sizes), rng.randint(0, len(sizes)))
    return Ball(box, centre, "l1", tuple(rng.choice([1, 2, 4]) for _ in sizes), rng.randint(0, 12))


def random_measure(rng: random.Random, sizes: list[int]) -> Measure:
    if rng.random() < 0.5:
        return Measure()
    weights = [None if rng.random() < 0.3 else tuple(rng.randint(0, 4) for _ in range(size)) for size in sizes]
    return Measure("product", tuple(weights))


def points(region: Region) -> list[tuple[int, ...]]:
    box = region if isinstance(region, Box) else region.box
    found = itertools.product(*(range(a, b) for a, b in zip(box.low, box.high, strict=True)))
    if isinstance(region, Box):
        return list(found)
    if region.norm == "l0":
        return [p for p in found if sum(a != b for a, b in zip(p, region.centre, strict=True)) <= region.radius]
    return [
        p
        for p in found
        if sum(w * abs(a - b) for a, b, w in zip(p, region.centre, region.weights, strict=True)) <= region.radius
    ]


def enumerated(problem: GridProblem, case: GridCase, query: GridQuery) -> int:
    total = 0
    for point in points(case.region):
        if holds(query.predicate, point, label_of(problem.tree, point)):
            weight = 1
            if problem.measure.kind == "product":
                for position, weights in zip(point, problem.measure.weights, strict=True):
                    weight *= 1 if weights is None else weights[position]
            total += weight
    return total


def boolean_problem(bits: int, tree: GridTree, **queries: Predicate) -> tuple[GridProblem, GridCase]:
    case = GridCase(
        Box((0,) * bits, (2,) * bits), tuple(GridQuery(name, p) for name, p in queries.items()), ((*queries,),)
    )
    return GridProblem((2,) * bits, 2, tree, Measure(), (case,)), case


def count_one(problem: GridProblem, case: GridCase, limits: Limits | None = None) -> int:
    (count,) = ENGINE.count(problem, case, limits or Limits(), Progress()).values()
    assert count.lower == count.upper
    assert count.guarantee is Guarantee.EXACT
    return count.lower


# --- against enumeration -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(150))
def test_counts_and_witnesses_are_those_of_enumeration(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice([1, 2, 2, 3, 5, 6, 8]) for _ in range(rng.randint(1, 4))]
    tree = random_tree(rng, sizes, 3, rng.randint(0, 4))
    queries = tuple(GridQuery(f"q{i}", random_predicate(rng, sizes, rng.randint(1, 3))) for i in range(3))
    case = GridCase(random_region(rng, sizes), queries, ())
    problem = GridProblem(tuple(sizes), 3, tree, random_measure(rng, sizes), (case,))
    assert ENGINE.refuses(problem, case) is None
    assert ENGINE.estimate(problem, case).seconds < 1
    counts = ENGINE.count(problem, case, Limits(), Progress())
    inside = set(points(case.region))
    for query in queries:
        expected = enumerated(problem, case, query)
        assert (counts[query.name].lower, counts[query.name].upper) == (expected, expected)
        witness = ENGINE.witness(problem, case, query, Limits())
        assert (witness is None) == (expected == 0)
        if witness is not None:
            assert witness in inside
            assert holds(query.predicate, witness, label_of(tree, witness))


def test_the_pure_python_diagrams_count_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    autoref = pytest.importorskip("dd.autoref")
    bdd.forget()
    monkeypatch.setattr(diagrams, "library", lambda: (autoref.BDD, False))
    monkeypatch.setattr(bdd, "library", lambda: (autoref.BDD, False))
    for seed in range(20):
        test_counts_and_witnesses_are_those_of_enumeration(seed)
    bdd.forget()


# --- relations -----------------------------------------------------------------------------------------------------
def relation(name: str, n: int) -> Predicate:
    nodes = range(n)

    def related(i: int, j: int) -> Predicate:
        return Within(i * n + j, 1, 2)

    def clause(*literals: tuple[bool, int, int]) -> Predicate:
        return AnyOf(tuple(related(i, j) if sign else Negation(related(i, j)) for sign, i, j in literals))

    triples = list(itertools.product(nodes, repeat=3))
    pairs = list(itertools.combinations(nodes, 2))
    parts: dict[str, Predicate] = {
        "reflexive": AllOf(tuple(related(i, i) for i in nodes)),
        "irreflexive": AllOf(tuple(Negation(related(i, i)) for i in nodes)),
        "transitive": AllOf(tuple(clause((False, i, j), (False, j, k), (True, i, k)) for i, j, k in triples)),
        "antisymmetric": AllOf(tuple(clause((False, i, j), (False, j, i)) for i, j in pairs)),
        "semiconnex": AllOf(tuple(clause((True, i, j), (True, j, i)) for i, j in pairs)),
        "symmetric": AllOf(tuple(clause((flag, i, j), (not flag, j, i)) for i, j in pairs for flag in (False, True))),
        "functional": AllOf(
            tuple(Sign("<=", Plus((CountOf(tuple(related(i, j) for j in nodes)), Linear((), -1)))) for i in nodes)
        ),
    }
    made = {
        "connex": ("semiconnex", "reflexive"),
        "equivalence": ("reflexive", "symmetric", "transitive"),
        "nonstrictorder": ("reflexive", "antisymmetric", "transitive"),
        "partialorder": ("antisymmetric", "transitive"),
        "preorder": ("reflexive", "transitive"),
        "strictorder": ("irreflexive", "transitive"),
        "totalorder": ("reflexive", "antisymmetric", "transitive", "semiconnex"),
    }
    return AllOf(tuple(parts[p] for p in made[name])) if name in made else parts[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("antisymmetric", 11664), ("connex", 729), ("semiconnex", 11664), ("equivalence", 15), ("irreflexive", 4096),
        ("reflexive", 4096), ("nonstrictorder", 219), ("partialorder", 3504), ("preorder", 355),
        ("strictorder", 219), ("totalorder", 24), ("transitive", 3994), ("symmetric", 1024), ("functional", 625),
    ],
)  # fmt: skip
def test_relations_on_four_nodes(name: str, expected: int) -> None:
    problem, case = boolean_problem(16, single_leaf(), models=relation(name, 4))
    assert count_one(problem, case) == expected


@pytest.mark.parametrize(("nodes", "expected"), [(1, 2), (2, 13), (3, 171), (4, 3994), (5, 154303)])
def test_transitive_relations_follow_the_published_sequence(nodes: int, expected: int) -> None:
    """The numbers of transitive relations: OEIS A006905."""
    problem, case = boolean_problem(nodes**2, single_leaf(), models=relation("transitive", nodes))
    assert count_one(problem, case) == expected


def test_confusion_counts_on_five_nodes_sum_to_the_domain() -> None:
    rng = random.Random(5)
    tree = random_tree(rng, [2] * 25, 2, 7)
    truth = relation("partialorder", 5)
    positive = HasLabel((1,))
    problem, case = boolean_problem(
        25,
        tree,
        tp=AllOf((positive, truth)),
        fp=AllOf((positive, Negation(truth))),
        fn=AllOf((Negation(positive), truth)),
        tn=AllOf((Negation(positive), Negation(truth))),
    )
    counts = ENGINE.count(problem, case, Limits(), Progress())
    assert sum(count.lower for count in counts.values()) == 2**25
    # A partial order is an irreflexive transitive relation and any choice of loops; 4,231 of those: OEIS A001035.
    assert counts["tp"].lower + counts["fn"].lower == 4231 * 2**5


# --- big numbers ---------------------------------------------------------------------------------------------------
def test_counts_past_double_precision_are_exact() -> None:
    # Exactly one input of 2^100 is excluded: a double would not notice.
    bits = 100
    some = AnyOf(tuple(Within(f, 1, 2) for f in range(bits)))
    problem, case = boolean_problem(bits, single_leaf(), models=some)
    assert count_one(problem, case) == 2**bits - 1


def test_sums_over_wide_features_are_exact() -> None:
    # x + y ≤ n − 1 over n × n: n(n + 1)/2 points, for n no power of two and a product past 2^64.
    for size in (1000, 37):
        features = 8
        sign = Sign("<", Linear(((0, 1), (1, 1)), -size))
        case = GridCase(Box((0,) * features, (size,) * features), (GridQuery("q", sign),), ())
        problem = GridProblem((size,) * features, 1, single_leaf(), Measure(), (case,))
        assert count_one(problem, case) == size * (size + 1) // 2 * size ** (features - 2)


def test_positions_past_machine_words_are_exact() -> None:
    size = 10**30
    predicate = AllOf((Within(0, 10**29, size - 7), Negation(Within(0, 5 * 10**29, 5 * 10**29 + 3))))
    case = GridCase(Box((5,), (size,)), (GridQuery("q", predicate),), ())
    problem = GridProblem((size,), 1, single_leaf(), Measure(), (case,))
    assert count_one(problem, case) == size - 7 - 10**29 - 3


def test_many_features_need_no_deep_recursion() -> None:
    features = 2000
    assert features > sys.getrecursionlimit()
    predicate = Sign("==", Plus((CountOf(tuple(Within(f, 1, 2) for f in range(0, features, 100))), Linear((), -1))))
    problem, case = boolean_problem(features, single_leaf(), models=predicate)
    assert count_one(problem, case) == 20 * 2 ** (features - 20)
    first = Sign("<", Linear(tuple((f, 1) for f in range(features)), -1))
    problem, case = boolean_problem(features, single_leaf(), models=first)
    assert count_one(problem, case) == 1


def test_a_ball_of_many_features() -> None:
    features, radius = 300, 2
    box = Box((0,) * features, (256,) * features)
    ball = Ball(box, (100,) * features, "l1", (3,) * features, 3 * radius)
    case = GridCase(ball, (GridQuery("q", Always(True)),), ())
    problem = GridProblem((256,) * features, 1, single_leaf(), Measure(), (case,))
    # Centre; one step of 1 or 2 either way; two features one step either way.
    assert count_one(problem, case) == 1 + 4 * features + 4 * (features * (features - 1) // 2)


# --- edges ---------------------------------------------------------------------------------------------------------
def test_an_empty_region_has_nothing_in_it() -> None:
    case = GridCase(Box((3, 0), (3, 4)), (GridQuery("q", Sign("<", Linear(((0, 1), (1, 1)), -3))),), ())
    problem = GridProblem((5, 4), 1, single_leaf(), Measure(), (case,))
    assert ENGINE.refuses(problem, case) is None
    assert ENGINE.estimate(problem, case).seconds < 1
    assert count_one(problem, case) == 0
    assert ENGINE.witness(problem, case, case.queries[0], Limits()) is None


def test_weights_that_are_all_zero_leave_nothing() -> None:
    case = GridCase(Box((0, 0), (2, 2)), (GridQuery("q", Always(True)),), ())
    problem = GridProblem((2, 2), 1, single_leaf(), Measure("product", ((0, 0), None)), (case,))
    assert count_one(problem, case) == 0


def test_a_label_that_no_input_reaches_counts_zero() -> None:
    problem, case = boolean_problem(3, single_leaf(0), q=HasLabel((1,)))
    assert count_one(problem, case) == 0


# --- limits --------------------------------------------------------------------------------------------------------
def confusion(nodes: int, tree: GridTree) -> tuple[GridProblem, GridCase]:
    truth = relation("transitive", nodes)
    return boolean_problem(nodes**2, tree, tp=AllOf((HasLabel((1,)), truth)))


def test_a_deadline_gives_bounds() -> None:
    bdd.forget()
    problem, case = confusion(7, random_tree(random.Random(1), [2] * 49, 2, 6))
    started = time.monotonic()
    count = ENGINE.count(problem, case, Limits.starting_now(timeout=0.5), Progress())["tp"]
    assert time.monotonic() - started < 5
    assert count.guarantee is Guarantee.BOUNDS
    assert 0 <= count.lower < count.upper < 2**49
    assert "time" in count.note


def test_a_deadline_in_the_past_still_answers() -> None:
    problem, case = confusion(4, random_tree(random.Random(1), [2] * 16, 2, 3))
    count = ENGINE.count(problem, case, Limits(deadline=time.monotonic() - 1), Progress())["tp"]
    assert count.guarantee is Guarantee.BOUNDS
    assert (count.lower, count.upper) == (0, 2**16)


def test_a_memory_limit_gives_bounds() -> None:
    bdd.forget()
    problem, case = confusion(7, single_leaf(1))
    count = ENGINE.count(problem, case, Limits(memory_mb=40), Progress())["tp"]
    assert count.guarantee is Guarantee.BOUNDS
    assert "memory" in count.note
    bdd.forget()


def test_what_would_not_fit_is_refused() -> None:
    problem, case = confusion(9, single_leaf(1))
    assert "nodes" in (ENGINE.refuses(problem, case) or "")
    ball = Ball(Box((0,) * 100, (65536,) * 100), (5,) * 100, "l1", (1,) * 100, 60000)
    case = GridCase(ball, (GridQuery("q", Always(True)),), ())
    problem = GridProblem((65536,) * 100, 1, single_leaf(), Measure(), (case,))
    assert "ball" in (ENGINE.refuses(problem, case) or "")


def test_fractions_never_enter() -> None:
    problem, case = boolean_problem(4, single_leaf(1), q=Within(0, 1, 2))
    (count,) = ENGINE.count(problem, case, Limits(), Progress()).values()
    assert type(count.lower) is int
    assert not isinstance(count.upper, Fraction)

"""Expressions in integers against their exact evaluation at every point of small domains."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest
from library_trees import fitted, problem_around

from quantify.discretise import lower
from quantify.discretise.predicates import Lowering
from quantify.engines.logic import holds
from quantify.errors import InputError
from quantify.ir.domain import (
    BoolFeature,
    CategoricalFeature,
    Feature,
    FixedFeature,
    Float32Feature,
    IntFeature,
    float32_from_key,
    float32_key,
)
from quantify.ir.predicate import AllOf, Always, AnyOf, HasLabel, Linear, Negation, Predicate, Sign, Within
from quantify.ir.problem import Box, Case, Query
from quantify.ir.property import (
    Aggregate,
    And,
    Arithmetic,
    BoolExpr,
    CategoryIn,
    Compare,
    Constant,
    CountTrue,
    FeatureValue,
    FloorDivide,
    IsMissing,
    LabelIn,
    Modulo,
    Negate,
    Not,
    NumberExpr,
    Or,
    Truth,
)
from quantify.properties.evaluate import truth

LABELS = 3
OPS = ("<", "<=", ">", ">=", "==", "!=")
FEATURES: tuple[Feature, ...] = (
    IntFeature("i", minimum=-2, maximum=2),
    FixedFeature("d", True, minimum=Fraction(-1, 2), step=Fraction(3, 10), steps=4),
    BoolFeature("b", True),
    CategoricalFeature("c", True, values=("r", "g", "b"), codes=(-1, Fraction(1, 2), 4)),
)
FLOATS: tuple[Feature, ...] = (
    Float32Feature("x", minimum=float32_from_key(-2), maximum=float32_from_key(2)),
    Float32Feature("y", True, minimum=float32_from_key(-3), maximum=float32_from_key(1)),
    Float32Feature("z", minimum=float32_from_key(float32_key(1.0) - 1), maximum=float32_from_key(float32_key(1.0) + 1)),
    IntFeature("i", True, minimum=-1, maximum=1),
)


def rational(rng: random.Random) -> Fraction:
    return Fraction(rng.randint(-12, 12), rng.choice((1, 1, 2, 3, 10)))


def number(rng: random.Random, depth: int) -> NumberExpr:
    if depth == 0 or rng.random() < 0.15:
        return FeatureValue(rng.randrange(len(FEATURES))) if rng.random() < 0.7 else Constant(rational(rng))
    kind = rng.choice(("+", "-", "*", "negate", "floor", "modulo", "abs", "min", "max", "sum", "count"))
    if kind in ("+", "-", "*"):
        return Arithmetic(kind, number(rng, depth - 1), number(rng, depth - 1))
    if kind == "negate":
        return Negate(number(rng, depth - 1))
    if kind in ("floor", "modulo"):
        divisor = rational(rng) or Fraction(-7, 3)
        return (FloorDivide if kind == "floor" else Modulo)(number(rng, depth - 1), divisor)
    if kind == "count":
        return CountTrue(tuple(boolean(rng, depth - 1) for _ in range(rng.randint(0, 3))))
    many = 1 if kind == "abs" else rng.randint(1, 3)
    return Aggregate(kind, tuple(number(rng, depth - 1) for _ in range(many)))


def boolean(rng: random.Random, depth: int) -> BoolExpr:
    kind = rng.choice(("compare",) * 5 + ("not", "and", "or", "category", "missing", "label", "truth"))
    if depth == 0 and kind in ("compare", "not", "and", "or"):
        kind = rng.choice(("category", "missing", "label"))
    if kind == "compare":
        return Compare(rng.choice(OPS), number(rng, depth - 1), number(rng, rng.randrange(depth)))
    if kind == "not":
        return Not(boolean(rng, depth - 1))
    if kind in ("and", "or"):
        arguments = tuple(boolean(rng, depth - 1) for _ in range(rng.randint(0, 3)))
        return And(arguments) if kind == "and" else Or(arguments)
    if kind == "category":
        return CategoryIn(3, tuple(p for p in range(3) if rng.random() < 0.5))
    if kind == "missing":
        return IsMissing(rng.randrange(len(FEATURES)))
    if kind == "label":
        return LabelIn(tuple(k for k in range(LABELS) if rng.random() < 0.5))
    return Truth(rng.random() < 0.5)


def assert_same(expression: BoolExpr, predicate: Predicate, features: tuple[Feature, ...]) -> None:
    for point in itertools.product(*(range(feature.size) for feature in features)):
        values = [
            None if position == feature.missing_position else feature.value(position)
            for feature, position in zip(features, point, strict=True)
        ]
        for label in range(LABELS):
            expected = truth(expression, values, point, label)
            assert holds(predicate, point, label) == expected, (expression, predicate, point, label)


@pytest.mark.parametrize("seed", range(150))
def test_random_expressions_keep_their_meaning(seed: int) -> None:
    rng = random.Random(seed)
    lowering = Lowering(FEATURES, LABELS)
    for depth in (1, 2, 3):
        expression = boolean(rng, depth)
        assert_same(expression, lowering.predicate(expression), FEATURES)


def float_number(rng: random.Random, depth: int) -> NumberExpr:
    """Numbers over float32 features that stay comparable, mostly."""
    if depth == 0:
        return FeatureValue(rng.randrange(3))
    kind = rng.choice(("leaf", "negate", "abs", "min", "max", "constant", "scaled"))
    if kind == "leaf":
        return FeatureValue(rng.randrange(4))
    if kind == "negate":
        return Negate(float_number(rng, depth - 1))
    if kind == "constant":
        near = FLOATS[rng.randrange(3)]
        value = near.value(rng.randrange(near.grid_size))
        return Constant(Fraction(value) + rng.choice((0, Fraction(1, 2**160), Fraction(-1, 2**160), 1)))
    if kind == "scaled":
        return Arithmetic("*", Constant(rational(rng)), float_number(rng, depth - 1))
    many = 1 if kind == "abs" else rng.randint(1, 3)
    return Aggregate(kind, tuple(float_number(rng, depth - 1) for _ in range(many)))


def test_float32_expressions_keep_their_meaning_or_are_refused() -> None:
    accepted = 0
    for seed in range(160):
        rng = random.Random(seed)
        expression = Compare(rng.choice(OPS), float_number(rng, 2), float_number(rng, 1))
        try:
            predicate = Lowering(FLOATS, LABELS).predicate(expression)
        except InputError:
            continue
        accepted += 1
        assert_same(expression, predicate, FLOATS)
    assert accepted > 80


def lowered(expression: BoolExpr, features: tuple[Feature, ...] = FEATURES) -> Predicate:
    predicate = Lowering(features, LABELS).predicate(expression)
    assert_same(expression, predicate, features)
    return predicate


N, D, B = FeatureValue(0), FeatureValue(1), FeatureValue(2)


def constant(text: str) -> Constant:
    return Constant(Fraction(text))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # i is −2 … 2 at positions 0 … 4; d is −0.5, −0.2, 0.1, 0.4, missing.
        (Compare("<=", N, constant("0.5")), Within(0, 0, 3)),
        (Compare("<", N, constant("0")), Within(0, 0, 2)),
        (Compare(">", Arithmetic("*", constant("-2"), N), constant("1")), Within(0, 0, 2)),
        (Compare("==", N, constant("1/2")), Always(False)),
        (Compare("!=", N, constant("0")), AnyOf((Within(0, 0, 2), Within(0, 3, 5)))),
        (Compare(">=", D, constant("0.1")), Within(1, 2, 4)),
        (Compare(">=", D, constant("-100")), Within(1, 0, 4)),
        (Compare("==", Arithmetic("-", D, D), constant("0")), Within(1, 0, 4)),
        (Compare("<=", N, constant("2")), Always(True)),
        (Not(Compare("<=", D, constant("0.1"))), Negation(Within(1, 0, 3))),
        (CategoryIn(3, (0, 2)), AnyOf((Within(3, 0, 1), Within(3, 2, 3)))),
        (IsMissing(1), Within(1, 4, 5)),
        (IsMissing(0), Always(False)),
        (LabelIn((0, 2)), HasLabel((0, 2))),
        (LabelIn((0, 1, 2)), Always(True)),
        (LabelIn(()), Always(False)),
        # 10·(i + d) = 10·(p0 − 2) + (3·p1 − 5) ≤ 3, that is 10·p0 + 3·p1 − 28 ≤ 0, where d is there.
        (
            Compare("<=", Arithmetic("+", N, D), constant("0.3")),
            AllOf((Within(1, 0, 4), Sign("<=", Linear(((0, 10), (1, 3)), -28)))),
        ),
        # |i| ≤ 1 is two comparisons with constants.
        (Compare("<=", Aggregate("abs", (N,)), constant("1")), Within(0, 1, 4)),
        # A common factor goes: 2·i − 4·b ≤ 1 is i − 2·b ≤ 0.
        (
            Compare("<=", Arithmetic("-", Arithmetic("*", constant("2"), N), Arithmetic("*", constant("4"), B)),
                    constant("1")),
            AllOf((Within(2, 0, 2), Sign("<=", Linear(((0, 1), (2, -2)), -2)))),
        ),
    ],
)  # fmt: skip
def test_known_forms(expression: BoolExpr, expected: Predicate) -> None:
    assert lowered(expression) == expected


def test_a_count_does_not_become_missing_with_what_it_counts() -> None:
    inside = CountTrue((IsMissing(1), Compare(">", D, constant("0"))))
    assert lowered(Compare("==", inside, constant("0"))) != Always(True)
    assert lowered(Compare("<", inside, constant("3"))) == Always(True)


def test_a_comparison_of_a_missing_value_is_false_even_times_zero() -> None:
    product = Arithmetic("*", constant("0"), D)
    assert lowered(Compare("==", product, constant("0"))) == Within(1, 0, 4)
    assert lowered(Compare("!=", product, constant("0"))) == Always(False)


def test_two_float32_features_compare_by_rank() -> None:
    x, y = FeatureValue(0), FeatureValue(1)
    predicate = lowered(Compare("<", x, y), FLOATS)
    # Keys are p0 − 2 and p1 − 3: x < y is p0 − p1 + 1 < 0.
    assert predicate == AllOf((Within(1, 0, 5), Sign("<=", Linear(((0, 1), (1, -1)), 2))))
    lowered(Compare("<=", Arithmetic("+", x, y), constant("0")), FLOATS)


def test_wide_float32_features_are_bisected() -> None:
    wide = (Float32Feature("x", minimum=-3.0e38, maximum=3.0e38),)
    first = wide[0].first_key
    predicate = Lowering(wide, LABELS).predicate(Compare("<", FeatureValue(0), Constant(Fraction(1, 10))))
    # float32(0.1) is above the decimal 0.1, so the last value below it is the float32 before.
    assert predicate == Within(0, 0, float32_key(0.1) - first)


@pytest.mark.parametrize(
    "expression",
    [
        Compare("<", Arithmetic("+", FeatureValue(0), FeatureValue(2)), constant("1")),
        Compare("<", Arithmetic("*", FeatureValue(0), FeatureValue(0)), constant("1")),
        Compare("<", FeatureValue(0), FeatureValue(3)),
        Compare("<", FloorDivide(FeatureValue(0), Fraction(2)), constant("1")),
        Compare("<", Modulo(FeatureValue(0), Fraction(2)), constant("1")),
        Compare("<", Arithmetic("*", constant("2"), FeatureValue(0)), FeatureValue(2)),
    ],
)
def test_float32_arithmetic_without_exact_form_is_refused(expression: BoolExpr) -> None:
    with pytest.raises(InputError, match="float32") as caught:
        Lowering(FLOATS, LABELS).predicate(expression)
    assert "fixed" in caught.value.hint


def test_too_many_case_splits_are_refused() -> None:
    total: NumberExpr = Constant(Fraction(0))
    for _ in range(8):
        total = Arithmetic("+", total, Aggregate("abs", (FeatureValue(0),)))
    with pytest.raises(InputError, match="too many cases"):
        Lowering(FLOATS, LABELS).predicate(Compare("<", total, constant("1")))


def test_long_sums_are_fine_and_deep_nesting_is_an_error() -> None:
    total: NumberExpr = N
    for _ in range(5000):
        total = Arithmetic("+", total, N)
    assert Lowering(FEATURES, LABELS).predicate(Compare("<", total, constant("0"))) == Within(0, 0, 2)
    nested: BoolExpr = LabelIn((0,))
    for _ in range(100_000):
        nested = Not(nested)
    with pytest.raises(InputError, match="nested"):
        Lowering(FEATURES, LABELS).predicate(nested)
    while isinstance(nested, Not):  # taken apart by hand: freeing it in one go would recurse
        nested = nested.argument


def test_lower_keeps_cases_queries_and_partitions() -> None:
    model = fitted(random.Random(0), 2, 3, LABELS, missing=False)
    features = (IntFeature("a", minimum=0, maximum=3), BoolFeature("b"))
    expression = And((LabelIn((1,)), Compare("<", FeatureValue(0), constant("2"))))
    queries = (Query("yes", expression), Query("no", Not(expression), reported=False))
    regions = (Box((0, 0), (4, 2)), Box((1, 0), (3, 1)))
    cases = tuple(Case(region, queries, (("yes", "no"),)) for region in regions)
    grid = lower(problem_around(model, features, cases=cases))
    assert (grid.sizes, grid.labels) == ((4, 2), LABELS)
    assert [case.region for case in grid.cases] == list(regions)
    for case in grid.cases:
        assert [(q.name, q.reported) for q in case.queries] == [("yes", True), ("no", False)]
        assert case.partitions == (("yes", "no"),)
        assert case.queries[0].predicate == AllOf((HasLabel((1,)), Within(0, 0, 2)))

"""The meaning of integer predicates, and that what is proven over boxes holds at every point of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_grids import random_number, random_predicate

from quantify.engines.logic import (
    features_used,
    holds,
    interval,
    label_of,
    on_box,
    reads_label,
    restrict,
    specialise,
    value,
)
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
from quantify.ir.problem import GridTree
from quantify.ir.ranges import bits, bounds

LABELS = 3
X = Linear(((0, 1),), 0)
Y = Linear(((1, 1),), 0)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Linear(((0, 2), (1, -3)), 7), 2 * 4 - 3 * 5 + 7),
        (Plus((X, Y, X)), 13),
        (Times(X, Y), 20),
        (FloorDiv(Linear(((0, -1),), 0), 3), -2),
        (FloorDiv(X, 3), 1),
        (Extreme("min", (X, Y)), 4),
        (Extreme("max", (X, Y)), 5),
        (CountOf((Always(True), Within(0, 5, 9), HasLabel((1,)))), 2),
        (CountOf(()), 0),
    ],
)
def test_values_at_a_point(expression: Linear, expected: int) -> None:
    assert value(expression, (4, 5), 1) == expected
    assert interval(expression, (4, 5), (5, 6), 1) == (expected, expected)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Within(0, 4, 5), True),
        (Within(0, 5, 9), False),
        (Within(0, 0, 4), False),
        (HasLabel((0, 1)), True),
        (HasLabel((0, 2)), False),
        (HasLabel(()), False),
        (Sign("<", Linear(((0, 1),), -5)), True),
        (Sign("<", Linear(((0, 1),), -4)), False),
        (Sign("<=", Linear(((0, 1),), -4)), True),
        (Sign("<=", Linear(((0, 1),), -3)), False),
        (Sign("==", Linear(((0, 1),), -4)), True),
        (Sign("!=", Linear(((0, 1),), -4)), False),
        (AllOf(()), True),
        (AnyOf(()), False),
        (Negation(AnyOf(())), True),
        (AllOf((Always(True), Within(0, 5, 9))), False),
        (AnyOf((Within(0, 5, 9), Always(True))), True),
    ],
)
def test_truth_at_a_point(predicate: Within, expected: bool) -> None:
    assert holds(predicate, (4, 5), 1) is expected
    assert on_box(predicate, (4, 5), (5, 6), 1) is expected


def test_labels_may_be_unknown_or_several() -> None:
    assert on_box(HasLabel((0, 2)), (), (), None) is None
    assert on_box(HasLabel((0, 2)), (), (), (0, 2)) is True
    assert on_box(HasLabel((0, 2)), (), (), (0, 1)) is None
    assert on_box(HasLabel((0, 2)), (), (), {1}) is False
    assert on_box(HasLabel(()), (), ()) is False


def test_a_square_is_not_negative() -> None:
    assert interval(Times(X, X), (-0,), (4,)) == (0, 9)
    shifted = Linear(((0, 1),), -2)
    assert interval(Times(shifted, shifted), (0,), (4,)) == (0, 4)


def points(low: tuple[int, ...], high: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(a, b) for a, b in zip(low, high, strict=True)))


@st.composite
def boxes(draw: st.DrawFn) -> tuple[random.Random, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    sizes = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    low = tuple(draw(st.integers(0, size - 1)) for size in sizes)
    high = tuple(draw(st.integers(a + 1, size)) for a, size in zip(low, sizes, strict=True))
    return random.Random(draw(st.integers(0, 2**32))), sizes, low, high


@settings(max_examples=300, deadline=None)
@given(boxes(), st.sets(st.integers(0, LABELS - 1), min_size=1))
def test_boxes_are_sound(case: tuple, labels: set[int]) -> None:
    rng, sizes, low, high = case
    predicate = random_predicate(rng, sizes, LABELS, 4)
    truths = {holds(predicate, p, k) for p in points(low, high) for k in labels}
    answer = on_box(predicate, low, high, labels)
    assert answer is None or truths == {answer}
    smaller = specialise(predicate, low, high, labels)
    assert all(holds(smaller, p, k) == holds(predicate, p, k) for p in points(low, high) for k in labels)
    assert answer is None or smaller == Always(answer)
    assert set(features_used(smaller)) <= set(features_used(predicate))


@settings(max_examples=300, deadline=None)
@given(boxes())
def test_intervals_contain_every_value(case: tuple) -> None:
    rng, sizes, low, high = case
    expression = random_number(rng, sizes, LABELS, 4)
    least, most = bounds(expression, low, high)
    values = {value(expression, p, k) for p in points(low, high) for k in range(LABELS)}
    assert least <= min(values) <= max(values) <= most
    word = bits(expression, sizes)
    assert all(-(2 ** (word - 1)) <= v < 2 ** (word - 1) for v in values)


@settings(max_examples=300, deadline=None)
@given(boxes())
def test_single_points_are_decided(case: tuple) -> None:
    rng, sizes, low, _ = case
    predicate = random_predicate(rng, sizes, LABELS, 4)
    for label in range(LABELS):
        assert on_box(predicate, low, tuple(p + 1 for p in low), label) is holds(predicate, low, label)


@settings(max_examples=200, deadline=None)
@given(boxes(), st.integers(0, LABELS - 1))
def test_restriction_to_a_label(case: tuple, label: int) -> None:
    rng, sizes, low, high = case
    predicate = random_predicate(rng, sizes, LABELS, 4)
    restricted = restrict(predicate, label)
    assert not reads_label(restricted)
    assert all(holds(restricted, p, 0) == holds(predicate, p, label) for p in points(low, high))


def test_features_used_are_ascending_and_complete() -> None:
    predicate = AllOf((Within(5, 0, 1), Sign("<=", Times(Linear(((3, 1),), 0), CountOf((Within(1, 0, 1),))))))
    assert features_used(predicate) == (1, 3, 5)
    assert not reads_label(predicate)
    assert reads_label(Sign("==", CountOf((HasLabel((0,)),))))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (Linear(((0, 1),), 0), 9),  # 0 … 255 is signed
        (Linear(((0, -1),), 0), 9),
        (Linear(((0, 1), (1, 1)), 0), 10),
        (Times(X, Y), 17),
        (Sign("<", Linear((), -(2**40))), 42),
        (Always(True), 2),
    ],
)
def test_bits_of_known_expressions(node: Linear, expected: int) -> None:
    assert bits(node, (256, 256)) == expected


def test_the_walk_of_a_tree() -> None:
    tree = GridTree((0, 1, -1, -1), (2, 1, 0, 0), (4, 2, 0, 0), (2, 3, -1, -1), (1, 2, -1, -1), (-1, -1, 7, 8))
    assert [label_of(tree, p) for p in ((1, 1), (2, 1), (3, 0), (4, 0))] == [7, 7, 8, 7]

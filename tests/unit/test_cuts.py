"""Cuts and lowered trees against scikit-learn's own predict, at the floats next to every threshold."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from library_trees import (
    edited,
    every_point,
    fitted,
    float_neighbours,
    problem_around,
    random_feature,
    random_library_problem,
)

from quantify.discretise import lower, to_inputs
from quantify.discretise.cuts import cut
from quantify.discretise.grids import round_to_float32
from quantify.engines.logic import label_of
from quantify.errors import InputError
from quantify.ir.domain import BoolFeature, CategoricalFeature, Feature, FixedFeature, Float32Feature, IntFeature
from quantify.ir.problem import GridTree


def goes_left(feature: Feature, threshold: float) -> list[bool]:
    """What scikit-learn itself does at every value, by a stump."""
    stump = fitted(random.Random(0), 1, 2, 2, missing=False)
    edited(stump, threshold=[threshold, -2, -2])
    values = np.array([[float(feature.value(position))] for position in range(feature.grid_size)])
    return [leaf == 1 for leaf in stump.apply(values)]


@pytest.mark.parametrize("seed", range(150))
def test_cut_is_where_scikit_learn_changes_sides(seed: int) -> None:
    rng = random.Random(seed)
    feature = random_feature(rng, "f", missing=False)
    threshold = float_neighbours(rng, feature, level=False)
    sides = goes_left(feature, threshold)
    middle = cut(feature, threshold, "float32")
    assert sides == [position < middle for position in range(feature.grid_size)]


@pytest.mark.parametrize(
    ("feature", "threshold", "expected"),
    [
        (IntFeature("f", minimum=0, maximum=9), 3.0, 4),
        (IntFeature("f", minimum=0, maximum=9), math.nextafter(3.0, 0.0), 3),
        (IntFeature("f", minimum=0, maximum=9), -1e308, 0),
        (IntFeature("f", minimum=0, maximum=9), 1e308, 10),
        # 2^24 + 1 rounds to 2^24 in float32, 2^24 + 3 to 2^24 + 4.
        (IntFeature("f", minimum=2**24, maximum=2**24 + 4), 2.0**24, 2),
        (IntFeature("f", minimum=2**24, maximum=2**24 + 4), 2.0**24 + 2, 3),
        # 0.1 in float32 is above 0.1 in float64.
        (FixedFeature("f", minimum=Fraction(0), step=Fraction(1, 10), steps=11), 0.1, 1),
        (FixedFeature("f", minimum=Fraction(0), step=Fraction(1, 10), steps=11), float(np.float32(0.1)), 2),
        (Float32Feature("f", minimum=-1e-45, maximum=1e-45), -0.0, 2),
        (Float32Feature("f", minimum=-1e-45, maximum=1e-45), 5e-324, 2),
        (BoolFeature("f"), 0.5, 1),
    ],
)
def test_known_cuts(feature: Feature, threshold: float, expected: int) -> None:
    assert cut(feature, threshold, "float32") == expected


def test_float64_trees_keep_doubles() -> None:
    feature = IntFeature("f", minimum=2**24, maximum=2**24 + 4)
    assert [cut(feature, 2.0**24 + k, "float64") for k in range(4)] == [1, 2, 3, 4]
    tenths = FixedFeature("f", minimum=Fraction(0), step=Fraction(1, 10), steps=11)
    assert cut(tenths, 0.1, "float64") == 2


@pytest.mark.parametrize("exponent", [*range(-150, -120, 3), -1, 0, 1, 126, 127])
def test_rounding_to_float32_is_numpys(exponent: int) -> None:
    rng = random.Random(exponent)
    with np.errstate(over="ignore"):
        for _ in range(50):
            number = math.ldexp(rng.uniform(-2, 2), exponent)
            assert round_to_float32(number) == float(np.float32(number))
        largest = float(np.finfo(np.float32).max)
        for number in (largest, math.nextafter(largest + 2.0**103, 0), largest + 2.0**103, -1e300):
            assert round_to_float32(number) == float(np.float32(number))


def grid_labels(tree: GridTree, points: np.ndarray) -> list[int]:
    return [label_of(tree, point) for point in points.tolist()]


@pytest.mark.parametrize("seed", range(120))
def test_lowered_trees_give_the_librarys_labels_everywhere(seed: int) -> None:
    problem = random_library_problem(seed, most_points=1500)
    grid = lower(problem)
    points = every_point(problem)
    assert grid_labels(grid.tree, points) == problem.model.predict(to_inputs(problem, points)).tolist()


@pytest.mark.parametrize("seed", range(60))
def test_lowered_trees_are_in_preorder_without_dead_nodes(seed: int) -> None:
    problem = random_library_problem(seed)
    grid = lower(problem)
    tree = grid.tree
    seen = []
    stack = [0]
    while stack:
        node = stack.pop()
        seen.append(node)
        if tree.feature[node] >= 0:
            size = grid.sizes[tree.feature[node]]
            assert 0 <= tree.low[node] < tree.high[node] <= size
            assert (tree.low[node], tree.high[node]) != (0, size)
            stack.extend((tree.right[node], tree.left[node]))
    assert seen == list(range(len(tree.feature)))


@pytest.mark.parametrize(("left", "missing_goes"), [(True, True), (True, False), (False, True), (False, False)])
def test_missing_values_go_where_the_node_says(left: bool, missing_goes: bool) -> None:
    feature = IntFeature("f", True, minimum=0, maximum=4)
    stump = edited(
        fitted(random.Random(1), 1, 2, 2, missing=True),
        threshold=[2.0 if left else -1.0, -2, -2],
        missing_go_to_left=[missing_goes, False, False],
    )
    problem = problem_around(stump, [feature])
    labels = grid_labels(lower(problem).tree, every_point(problem))
    assert labels == problem.model.predict(np.array([[0], [1], [2], [3], [4], [np.nan]])).tolist()


def test_one_hot_columns_test_the_level() -> None:
    category = CategoricalFeature("c", values=("a", "b", "c"), codes=(0, 1, 2), onehot=("c_a", "c_b", "c_c"))
    for column, threshold in itertools.product(range(3), (-0.5, 0.0, 0.5, 1.0)):
        stump = fitted(random.Random(2), 3, 2, 2, missing=False)
        edited(stump, feature=[column, -2, -2], threshold=[threshold, -2, -2])
        problem = problem_around(stump, [category])
        labels = grid_labels(lower(problem).tree, every_point(problem))
        assert labels == problem.model.predict(np.eye(3)).tolist()


def refused(feature: Feature, **model_changes: object) -> str:
    problem = problem_around(fitted(random.Random(3), 1, 2, 2, missing=False), [feature])
    for name, value in model_changes.items():
        object.__setattr__(problem.model, name, value)
    with pytest.raises(InputError) as caught:
        lower(problem)
    assert caught.value.hint
    return caught.value.message


def test_what_no_tree_could_be_asked_is_refused() -> None:
    assert "no values" in refused(IntFeature("f", minimum=1, maximum=0))
    assert "2^62" in refused(IntFeature("f", minimum=0, maximum=2**63))
    assert "too large" in refused(FixedFeature("f", minimum=Fraction(0), step=Fraction(10**39), steps=2))
    assert "missing" in refused(IntFeature("f", True, minimum=0, maximum=1), accepts_missing=False)
    assert "columns" in refused(IntFeature("f", minimum=0, maximum=1), columns=2)


def test_a_one_hot_feature_cannot_be_missing() -> None:
    category = CategoricalFeature("c", True, values=("a", "b"), codes=(0, 1), onehot=("c_a", "c_b"))
    problem = problem_around(fitted(random.Random(4), 2, 2, 2, missing=True), [category])
    with pytest.raises(InputError, match="one-hot"):
        lower(problem)


def test_a_feature_of_2_to_the_61_values_is_cut_exactly() -> None:
    feature = IntFeature("f", minimum=0, maximum=2**61 - 1)
    # Both roundings matter. Float32s above 2^60 are 2^37 apart, and their middle goes to the even one, 2^60; doubles
    # are 2^8 apart, and the 2^7 integers after the middle go to it first.
    assert cut(feature, 2.0**60, "float32") == 2**60 + 2**36 + 2**7 + 1

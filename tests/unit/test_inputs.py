"""The matrix handed to the library: every cell is the exact value of its position, rounded once."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from library_trees import every_point, fitted, problem_around, random_library_problem

from quantify.discretise import to_inputs
from quantify.ir.domain import BoolFeature, CategoricalFeature, Feature, FixedFeature, Float32Feature, IntFeature
from quantify.ir.problem import Problem


def matrix(problem: Problem, points: np.ndarray) -> list[list[float]]:
    """By the definition, one cell at a time."""
    rows = []
    for point in points.tolist():
        row = []
        for column in problem.columns:
            feature, position = problem.domain.features[column.feature], point[column.feature]
            if column.level is not None:
                row.append(float(position == column.level))
            else:
                missing = position == feature.missing_position
                row.append(float("nan") if missing else float(Fraction(feature.value(position))))
        rows.append(row)
    return rows


@pytest.mark.parametrize("seed", range(60))
def test_random_domains_of_every_kind(seed: int) -> None:
    problem = random_library_problem(seed, most_points=600)
    points = every_point(problem)
    inputs = to_inputs(problem, points)
    assert inputs.dtype == np.float64
    np.testing.assert_array_equal(inputs, np.array(matrix(problem, points)))


@pytest.mark.parametrize(
    "feature",
    [
        IntFeature("f", minimum=-(2**61), maximum=2**61),
        IntFeature("f", True, minimum=2**53 - 1000, maximum=2**53 + 1000),
        IntFeature("f", minimum=10**30, maximum=10**30 + 10**6),
        FixedFeature("f", True, minimum=Fraction(-3, 10), step=Fraction(1, 1000), steps=10**6),
        FixedFeature("f", minimum=Fraction(1, 10**20), step=Fraction(1, 10**20), steps=10**6),
        FixedFeature("f", minimum=Fraction(2**53 - 1, 10), step=Fraction(1, 10), steps=100),
        FixedFeature("f", minimum=Fraction(1, 3), step=Fraction(1, 7), steps=2**50),
        Float32Feature("f", True, minimum=-3.0e38, maximum=3.0e38),
        CategoricalFeature("f", True, values=("a", "b"), codes=(Fraction(1, 3), 2**60 + 1)),
        BoolFeature("f", True),
    ],
    ids=lambda feature: f"{feature.kind}-{feature.size}",
)
def test_wide_features(feature: Feature) -> None:
    problem = problem_around(fitted(random.Random(0), 2, 2, 2, missing=True), [feature, BoolFeature("b")])
    rng = random.Random(1)
    drawn = [rng.randrange(feature.size) for _ in range(500)] + [0, feature.grid_size - 1, feature.size - 1]
    points = np.array([(position, position % 2) for position in drawn], dtype=np.int64)
    np.testing.assert_array_equal(to_inputs(problem, points), np.array(matrix(problem, points)))


def test_columns_may_repeat_and_reorder_features() -> None:
    features = [IntFeature("a", minimum=5, maximum=9), FixedFeature("b", step=Fraction(1, 10), steps=7)]
    problem = problem_around(fitted(random.Random(0), 2, 2, 2, missing=False), features)
    object.__setattr__(problem, "columns", problem.columns[::-1])
    assert to_inputs(problem, np.array([[0, 3], [4, 6]])).tolist() == [[0.3, 5.0], [0.6, 9.0]]


def test_no_rows() -> None:
    problem = problem_around(fitted(random.Random(0), 1, 2, 2, missing=False), [BoolFeature("b")])
    assert to_inputs(problem, np.empty((0, 1), dtype=np.int64)).shape == (0, 1)

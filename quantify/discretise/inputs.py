"""Grid positions to the float64 matrix that the library's predict takes, each value rounded once and correctly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quantify.discretise.grids import Affine, affine, divide
from quantify.ir.domain import CategoricalFeature, Feature, Float32Feature
from quantify.ir.problem import Problem

EXACT = 2**53
"""Integers up to here are float64 values, so a quotient of two of them is rounded once: by the division."""


def to_inputs(problem: Problem, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """The model's inputs at grid positions.

    Args:
        problem: Names the features, and the column that each one feeds.
        positions: (rows × features), 0 ≤ position < size of its feature.

    Returns:
        (rows × model columns): the exact value of each position rounded once to float64, NaN at a missing position,
        0 or 1 in the columns of a one-hot group.
    """
    columns = problem.columns
    features = problem.domain.features
    taken = [column.feature for column in columns]
    source = positions if taken == list(range(positions.shape[1])) else positions[:, taken]
    plain = np.array([column.level is None for column in columns], dtype=bool)
    forms = [_exact_form(feature) for feature in features]
    result = _affine_values(source, [forms[place] for place in taken])
    for number, column in enumerate(columns):
        feature = features[column.feature]
        if not plain[number]:
            result[:, number] = source[:, number] == column.level
        elif forms[column.feature] is None:
            result[:, number] = feature_values(feature, source[:, number])
        elif feature.missing:
            result[source[:, number] == feature.missing_position, number] = np.nan
    return result


def _exact_form(feature: Feature) -> Affine | None:
    """The affine form of a feature whose values can be worked out in float64 with a single rounding."""
    form = affine(feature)
    if form is None:
        return None
    ends = (form.offset, form.offset + form.step * (feature.size - 1), form.step * feature.size, form.denominator)
    return form if all(abs(end) <= EXACT for end in ends) else None


def _affine_values(source: NDArray[np.int64], forms: list[Affine | None]) -> NDArray[np.float64]:
    """(offset + step·position) / denominator, column by column; columns without a form come out as the position."""
    result = source.astype(np.float64)
    for row, neutral in ((1, 1), (0, 0), (2, 1)):
        factors = np.array([neutral if form is None else form[row] for form in forms], dtype=np.float64)
        if (factors == neutral).all():
            continue
        # Products and sums stay below 2^53 (`_exact_form`), so only the division rounds.
        if row == 1:
            result *= factors
        elif row == 0:
            result += factors
        else:
            result /= factors
    return result


def feature_values(feature: Feature, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """The float64 values of one feature at `positions`, NaN at its missing position."""
    present = positions < feature.grid_size
    inside = np.where(present, positions, 0)
    if isinstance(feature, Float32Feature):
        values = _from_keys(inside + feature.first_key)
    elif isinstance(feature, CategoricalFeature):
        values = np.array([divide(code.numerator, code.denominator) for code in feature.codes])[inside]
    else:
        form = affine(feature)
        assert form is not None
        numerators = (form.offset + form.step * position for position in inside.tolist())
        values = np.array([divide(numerator, form.denominator) for numerator in numerators], dtype=np.float64)
    return np.where(present, values, np.nan)


def _from_keys(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """`float32_from_key`, vectorised."""
    bits = np.where(keys >= 0, keys, -keys | 0x80000000).astype(np.uint32)
    return bits.view(np.float32).astype(np.float64)

"""Grid positions to the float64 matrix that the library's predict takes, each value rounded once and correctly."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from quantify.discretise.grids import Affine, affine, divide
from quantify.discretise.network_inputs import column_value, preprocess
from quantify.ir.domain import CategoricalFeature, Feature, Float32Feature
from quantify.ir.problem import Problem

EXACT = 2**53
"""Integers up to here are float64 values, so a quotient of two of them is rounded once: by the division."""
LEAST = Fraction(1, 2**1000)
LARGEST = 2**1000
"""Well inside the range of float64."""


def to_inputs(problem: Problem, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """The model's inputs at grid positions.

    Args:
        problem: Names the features, and the column that each one feeds.
        positions: (rows × features), 0 ≤ position < size of its feature.

    Returns:
        (rows × model columns): the exact value of each position rounded once to float64, NaN at a missing position,
        0 or 1 in the columns of a one-hot group. A network's `preprocess` is applied before the rounding.
    """
    columns = problem.columns
    features = problem.domain.features
    taken = [column.feature for column in columns]
    source = positions if taken == list(range(positions.shape[1])) else positions[:, taken]
    plain = np.array([column.level is None for column in columns], dtype=bool)
    if problem.network is not None and (problem.network.scale is not None or problem.network.offset is not None):
        return _preprocessed(problem, source)
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


def input_error(problem: Problem, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bounds on |the exact input − the float64 of `to_inputs`|, (rows × columns); 0 in columns that are exact."""
    exact = np.array([_is_exact(*_source(problem, number)) for number in range(len(problem.columns))], dtype=bool)
    if exact.all():
        return np.zeros(inputs.shape)
    # Half a unit in the last place, and half the smallest denormal.
    return np.where(exact, 0.0, np.abs(inputs) * 2.0**-53 * (1 + 2.0**-50) + 2.0**-1074)


def _source(problem: Problem, number: int) -> tuple[Feature, int | None, Fraction, Fraction]:
    """Feature, one-hot level, scale and offset of a model column."""
    column = problem.columns[number]
    return (problem.domain.features[column.feature], column.level, *preprocess(problem, number))


@lru_cache(maxsize=4096)
def _is_exact(feature: Feature, level: int | None, scale: Fraction, offset: Fraction) -> bool:
    """Whether every value of a model column is a float64."""
    if level is not None:
        values = [offset, offset + scale]
    elif isinstance(feature, CategoricalFeature):
        values = [code * scale + offset for code in feature.codes]
    else:
        form = affine(feature)
        if form is None:
            return True
        step = Fraction(form.step, form.denominator) * scale
        first = Fraction(form.offset, form.denominator) * scale + offset
        # Multiples of a power of two with at most 53 bits.
        unit = Fraction(1, math.lcm(step.denominator, first.denominator))
        ends = [abs(first + step * end) / unit for end in (0, feature.grid_size - 1)]
        return unit.denominator & (unit.denominator - 1) == 0 and unit >= LEAST and max(ends) <= EXACT
    return all(abs(value) < LARGEST and Fraction(float(value)) == value for value in values)


def _preprocessed(problem: Problem, source: NDArray[np.int64]) -> NDArray[np.float64]:
    """scale·value + offset of each column, exactly, rounded once."""
    forms = [_adjusted(*_source(problem, number)) for number in range(len(problem.columns))]
    result = _affine_values(source, forms)
    for number, known in enumerate(forms):
        if known is None:
            seen, where = np.unique(source[:, number], return_inverse=True)
            values = [float(column_value(problem, number, position)) for position in seen.tolist()]
            result[:, number] = np.array(values, dtype=np.float64)[where.reshape(-1)]
    return result


@lru_cache(maxsize=4096)
def _adjusted(feature: Feature, level: int | None, scale: Fraction, offset: Fraction) -> Affine | None:
    """The affine form of scale·value + offset, when it can be worked out with a single rounding."""
    form = _exact_form(feature) if level is None else None
    if form is None:
        return None
    step = Fraction(form.step, form.denominator) * scale
    first = Fraction(form.offset, form.denominator) * scale + offset
    common = math.lcm(step.denominator, first.denominator)
    found = Affine(int(first * common), int(step * common), common)
    ends = (found.offset, found.offset + found.step * (feature.size - 1), found.step * feature.size, common)
    return found if all(abs(end) <= EXACT for end in ends) else None


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

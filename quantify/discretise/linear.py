"""Linear layers in exact numbers: stored constants in, integer weights and biases with a rational unit each out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from quantify.discretise.whole import (
    Integers,
    divisor_of,
    integers,
    narrowed,
    plus,
    rational_gcd,
    row_sums,
    times,
    with_unit,
)
from quantify.ir.network import LinearLayer, Rows


@dataclass(frozen=True, eq=False)
class RealLinear:
    """y = unit·(weights · x) + bias_unit·bias, all integers, the units positive rationals."""

    inputs: int
    start: NDArray[np.int64]
    columns: NDArray[np.int64]
    weights: Integers
    unit: Fraction
    bias: Integers
    bias_unit: Fraction

    @property
    def outputs(self) -> int:
        """Number of rows."""
        return len(self.start) - 1

    @property
    def entries(self) -> int:
        """Number of stored weights."""
        return len(self.columns)

    @property
    def is_diagonal(self) -> bool:
        """Whether every output reads at most one input."""
        return bool((np.diff(self.start) <= 1).all())

    def rows(self, weights: Integers) -> Rows:
        """These places with other weights."""
        return Rows(self.inputs, self.start, self.columns, weights)


def real_linear(layer: LinearLayer) -> RealLinear:
    """A stored layer, its divisors multiplied out.

    Raises:
        ValueError: A constant is infinite or NaN.
    """
    weights, unit = with_unit(layer.rows.values)
    bias, bias_unit = with_unit(layer.bias)
    if layer.divisor is not None:
        common = math.lcm(*layer.divisor.tolist())
        factors = integers(common // divisor for divisor in layer.divisor.tolist())
        weights = times(weights, np.repeat(factors, np.diff(layer.rows.start)))
        bias = times(bias, factors)
        unit, bias_unit = unit / common, bias_unit / common
    return RealLinear(layer.rows.inputs, layer.rows.start, layer.rows.columns, weights, unit, bias, bias_unit)


def from_fractions(inputs: int, rows: Sequence[tuple[dict[int, Fraction], Fraction]]) -> RealLinear:
    """A linear map given row by row: {input: coefficient} and the constant."""
    start = np.concatenate([[0], np.cumsum([len(terms) for terms, _ in rows])]).astype(np.int64)
    columns = np.array([place for terms, _ in rows for place in terms], np.int64)
    values = np.array([c for terms, _ in rows for c in terms.values()] or [Fraction(0)], dtype=object)[: len(columns)]
    weights, unit = with_unit(values)
    bias, bias_unit = with_unit(np.array([constant for _, constant in rows], dtype=object))
    return RealLinear(inputs, start, columns, weights, unit, bias, bias_unit)


def identity(width: int) -> Rows:
    """Rows that copy a vector."""
    return Rows(width, np.arange(width + 1), np.arange(width), np.ones(width, np.int64))


def composed(second: RealLinear, first: RealLinear) -> RealLinear:
    """second ∘ first, exactly."""
    bias, bias_unit = _composed_bias(second, first)
    if first.is_diagonal:
        start, columns, weights = _through_diagonal(second, first)
    else:
        start, columns, weights = _product(second, first)
    return RealLinear(first.inputs, start, columns, weights, second.unit * first.unit, bias, bias_unit)


def _composed_bias(second: RealLinear, first: RealLinear) -> tuple[Integers, Fraction]:
    carried = row_sums(second.start, times(second.weights, first.bias[second.columns]))
    carried_unit = second.unit * first.bias_unit
    unit = rational_gcd([carried_unit, second.bias_unit])
    return plus(times(carried, int(carried_unit / unit)), times(second.bias, int(second.bias_unit / unit))), unit


def _through_diagonal(second: RealLinear, first: RealLinear) -> tuple[NDArray[np.int64], NDArray[np.int64], Integers]:
    lengths = np.diff(first.start)
    place = np.zeros(first.outputs, np.int64)
    factor = np.zeros(first.outputs, first.weights.dtype)
    filled = np.flatnonzero(lengths)
    place[filled], factor[filled] = first.columns, first.weights
    columns, weights = place[second.columns], times(second.weights, factor[second.columns])
    if len(np.unique(place[filled])) == len(filled) == first.outputs and not (factor == 0).any():
        return second.start, columns, weights
    return _merged(second.start, columns, weights)


def _merged(
    start: NDArray[np.int64], columns: NDArray[np.int64], weights: Integers
) -> tuple[NDArray[np.int64], NDArray[np.int64], Integers]:
    """Entries of one place added up, zeros dropped."""
    rows: list[dict[int, int]] = []
    places, values = columns.tolist(), weights.tolist()
    for row in range(len(start) - 1):
        total: dict[int, int] = {}
        for entry in range(start[row], start[row + 1]):
            total[places[entry]] = total.get(places[entry], 0) + values[entry]
        rows.append(total)
    return _from_dicts(rows)


def _product(second: RealLinear, first: RealLinear) -> tuple[NDArray[np.int64], NDArray[np.int64], Integers]:
    outer_places, outer = second.columns.tolist(), second.weights.tolist()
    inner_places, inner, begin = first.columns.tolist(), first.weights.tolist(), first.start.tolist()
    rows: list[dict[int, int]] = []
    for row in range(second.outputs):
        total: dict[int, int] = {}
        for entry in range(second.start[row], second.start[row + 1]):
            middle, factor = outer_places[entry], outer[entry]
            for k in range(begin[middle], begin[middle + 1]):
                total[inner_places[k]] = total.get(inner_places[k], 0) + factor * inner[k]
        rows.append(total)
    return _from_dicts(rows)


def _from_dicts(rows: list[dict[int, int]]) -> tuple[NDArray[np.int64], NDArray[np.int64], Integers]:
    kept = [sorted((place, value) for place, value in row.items() if value) for row in rows]
    start = np.concatenate([[0], np.cumsum([len(row) for row in kept])]).astype(np.int64)
    columns = np.array([place for row in kept for place, _ in row], np.int64)
    return start, columns, integers(value for row in kept for _, value in row)


def pays(second: RealLinear, first: RealLinear) -> bool:
    """Whether the composition has no more weights than the two layers."""
    spread = row_sums(second.start, np.diff(first.start)[second.columns])
    return int(np.minimum(spread, first.inputs).sum()) <= second.entries + first.entries


def scaled(linear: RealLinear, scale: Fraction) -> tuple[Rows, Integers, Fraction]:
    """Integer weights and bias over inputs that count `scale`, and the coarsest unit that the outputs can count."""
    weight_gcd, bias_gcd = divisor_of(linear.weights), divisor_of(linear.bias)
    weight_unit, bias_unit = linear.unit * scale * weight_gcd, linear.bias_unit * bias_gcd
    target = rational_gcd([weight_unit, bias_unit])
    weights = linear.weights
    if weight_gcd:
        weights = times(_divided(weights, weight_gcd), int(weight_unit / target))
    bias = linear.bias
    if bias_gcd:
        bias = times(_divided(bias, bias_gcd), int(bias_unit / target))
    return linear.rows(weights), bias, target


def _divided(values: Integers, divisor: int) -> Integers:
    return values if divisor == 1 else narrowed(np.asarray(values // divisor))


def finer(rows: Rows, bias: Integers, factor: int) -> tuple[Rows, Integers]:
    """The layer whose outputs are `factor` times larger."""
    if factor == 1:
        return rows, bias
    return Rows(rows.inputs, rows.start, rows.columns, times(rows.values, factor)), times(bias, factor)


__all__ = [
    "RealLinear",
    "composed",
    "finer",
    "from_fractions",
    "identity",
    "pays",
    "real_linear",
    "scaled",
]

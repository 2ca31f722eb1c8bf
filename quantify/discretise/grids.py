"""Feature to the value at each position: an exact affine form where there is one, and the floats the model sees."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Literal, NamedTuple

from quantify.ir.domain import (
    BoolFeature,
    CategoricalFeature,
    Feature,
    FixedFeature,
    Float32Feature,
    IntFeature,
    float32_from_key,
)

FloatType = Literal["float32", "float64"]

_FLOAT32 = struct.Struct("<f")


class Affine(NamedTuple):
    """value(p) = (offset + step·p) / denominator, exactly; step and denominator are positive."""

    offset: int
    step: int
    denominator: int


def affine(feature: Feature) -> Affine | None:
    """The affine form of a feature's grid, or None (float32, and categories, whose codes may be anything)."""
    if isinstance(feature, IntFeature):
        return Affine(feature.minimum, 1, 1)
    if isinstance(feature, BoolFeature):
        return Affine(0, 1, 1)
    if isinstance(feature, FixedFeature):
        common = math.lcm(feature.minimum.denominator, feature.step.denominator)
        return Affine(int(feature.minimum * common), int(feature.step * common), common)
    return None


def round_to_float32(number: float) -> float:
    """`number` rounded to the nearest float32, ties to even, as a Python float; ±inf when out of range."""
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return rounded


def divide(numerator: int, denominator: int) -> float:
    """The float64 nearest to the quotient, ±inf when out of range; the denominator is positive.

    Python's division of integers rounds once and correctly whatever their size, unlike float(a) / float(b).
    """
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def seen_by_model(feature: Feature, dtype: FloatType) -> Callable[[int], float]:
    """The function from a position (not the missing one) to the float that the library compares with thresholds.

    That is the exact value rounded once to float64, the type of the matrix handed to the library, and then to `dtype`
    (scikit-learn casts to float32: sklearn/tree/_classes.py, `_validate_X_predict`). It never decreases.
    """
    if isinstance(feature, Float32Feature):
        first = feature.first_key
        return lambda position: float32_from_key(first + position)
    as_float64 = _float64_values(feature)
    if dtype == "float64":
        return as_float64
    return lambda position: round_to_float32(as_float64(position))


def _float64_values(feature: Feature) -> Callable[[int], float]:
    form = affine(feature)
    if form is not None:
        offset, step, denominator = form
        return lambda position: divide(offset + step * position, denominator)
    assert isinstance(feature, CategoricalFeature)
    codes = tuple(divide(code.numerator, code.denominator) for code in feature.codes)
    return codes.__getitem__

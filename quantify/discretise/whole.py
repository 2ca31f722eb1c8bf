"""Arrays of numbers to integer arrays with a common unit, and integer arithmetic on them that never overflows.

Integers are int64 where every value fits with room to spare, else Python integers in an object array.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[Any]
"""int64, or object where int64 would be too narrow."""

ROOM = 62
"""Values of at most this many bits are kept in int64."""


def bit_length(values: Integers) -> int:
    """Bits of the largest magnitude."""
    if values.size == 0:
        return 0
    return max(abs(int(values.max())), abs(int(values.min()))).bit_length()


def narrowed(values: Integers) -> Integers:
    """The same integers, in int64 when they fit."""
    return values.astype(np.int64 if bit_length(values) <= ROOM else object, copy=False)


def integers(values: Iterable[int]) -> Integers:
    """An array of Python integers."""
    return narrowed(np.array(list(values), dtype=object))


def times(left: Integers, right: Integers | int) -> Integers:
    """Elementwise product."""
    other = bit_length(right) if isinstance(right, np.ndarray) else right.bit_length()
    if bit_length(left) + other <= ROOM:
        if isinstance(right, np.ndarray):
            return left.astype(np.int64) * right.astype(np.int64)
        return left.astype(np.int64) * np.int64(right)
    factor = right.astype(object) if isinstance(right, np.ndarray) else right
    return narrowed(np.asarray(left.astype(object) * factor))


def plus(left: Integers, right: Integers) -> Integers:
    """Elementwise sum."""
    if left.dtype != object and right.dtype != object and max(bit_length(left), bit_length(right)) < ROOM:
        return np.asarray(left + right)
    return narrowed(np.asarray(left.astype(object) + right.astype(object)))


def row_sums(start: NDArray[np.int64], terms: Integers) -> Integers:
    """Sum of terms[start[i]:start[i+1]] for every row i."""
    longest = int(np.diff(start).max(initial=0))
    wide = bit_length(terms) + longest.bit_length() > ROOM
    kept = terms.astype(object if wide else np.int64)
    sums = np.zeros(len(start) - 1, dtype=kept.dtype)
    filled = np.flatnonzero(np.diff(start))
    if len(filled):
        # Rows without terms are left out: reduceat would give them the next row's first term.
        sums[filled] = np.add.reduceat(kept, start[:-1][filled])
    return narrowed(sums)


def divisor_of(values: Integers) -> int:
    """The greatest common divisor, 0 when all are 0."""
    if values.dtype != object:
        return int(np.gcd.reduce(values)) if values.size else 0
    return math.gcd(*values.tolist())


def rational_gcd(numbers: Iterable[Fraction]) -> Fraction:
    """The largest rational of which all the numbers are integer multiples (zeros aside; 1 when nothing is left)."""
    kept = [number for number in numbers if number]
    if not kept:
        return Fraction(1)
    denominator = math.lcm(*(number.denominator for number in kept))
    return Fraction(math.gcd(*(int(number * denominator) for number in kept)), denominator)


def with_unit(values: NDArray[np.generic]) -> tuple[Integers, Fraction]:
    """Exact integers and the unit they count: values = integers · unit.

    Floats are dyadic, so their unit is a power of two; object arrays may hold integers, fractions and floats.

    Raises:
        ValueError: An infinity or NaN.
    """
    if values.dtype == object:
        exact = [Fraction(value) for value in values.tolist()]
        denominator = math.lcm(*(number.denominator for number in exact)) if exact else 1
        return integers(int(number * denominator) for number in exact), Fraction(1, denominator)
    if np.issubdtype(values.dtype, np.integer):
        return narrowed(values), Fraction(1)
    if not np.isfinite(values).all():
        raise ValueError("a constant is infinite or NaN")
    mantissa, exponent = np.frexp(values.astype(np.float64))
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    used = np.flatnonzero(whole)
    if len(used) == 0:
        return np.zeros(len(values), np.int64), Fraction(1)
    lowest = whole[used] & -whole[used]
    trailing = np.frexp(lowest.astype(np.float64))[1] - 1
    power = exponent[used].astype(np.int64) - 53 + trailing
    odd = whole[used] >> trailing
    base = int(power.min())
    shifts = power - base
    if int(shifts.max()) + bit_length(odd) <= ROOM:
        result = np.zeros(len(values), np.int64)
        result[used] = odd << shifts
    else:
        result = np.zeros(len(values), object)
        result[used] = [number << shift for number, shift in zip(odd.tolist(), shifts.tolist(), strict=True)]
    return result, Fraction(2) ** base

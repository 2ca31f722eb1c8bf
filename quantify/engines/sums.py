"""Linear and additive constraints over independent ranges to how many points meet them, in closed form or by sums.

All numbers are exact: Python integers, or int64 where the total mass proves that nothing overflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORD = 2**62
MOST_LINES = 2**14
"""Most pairs of ranges that `points_below` sums over for constraints of three and more features."""
MOST_WORK = 2**27
"""Most additions that `mass_below` does, big integers counting for several."""
BIG_INTEGER = 40
"""Cost of an addition of big integers, in those of words."""


def floor_sum(count: int, divisor: int, slope: int, start: int) -> int:
    """Σ ⌊(slope·i + start) / divisor⌋ over 0 ≤ i < count, for slope, start ≥ 0 and divisor > 0.

    The Euclid-like recursion on (divisor, slope): Graham, Knuth, Patashnik, Concrete Mathematics, section 3.5.
    """
    total = 0
    while count > 0:
        total += slope // divisor * (count * (count - 1) // 2) + start // divisor * count
        slope, start = slope % divisor, start % divisor
        top = slope * count + start
        count, start = divmod(top, divisor)
        slope, divisor = divisor, slope
        if slope == 0 or divisor == 0:
            break
    return total


def pairs_below(a: int, width_a: int, b: int, width_b: int, limit: int) -> int:
    """Number of 0 ≤ x < width_a, 0 ≤ y < width_b with a·x + b·y ≤ limit, for a, b > 0."""
    if limit < 0:
        return 0
    last = min(width_a - 1, limit // a)
    full_limit = limit - b * (width_b - 1)
    full = min(last, full_limit // a) + 1 if full_limit >= 0 else 0
    count = last - full + 1
    return full * width_b + count + floor_sum(count, b, a, limit - a * last)


@dataclass(frozen=True, slots=True)
class Line:
    """One feature of a linear constraint, turned so that it runs 0…width−1 with a positive coefficient."""

    coefficient: int
    width: int


def turned(terms: Sequence[tuple[int, int, int]], constant: int) -> tuple[list[Line], int]:
    """Σ coefficient·position + constant with low ≤ position < high as Σ coefficient'·step + constant', steps from 0.

    Args:
        terms: (coefficient, low, high) of each feature.
        constant: The constant.
    """
    lines = []
    for coefficient, low, high in terms:
        constant += coefficient * (low if coefficient > 0 else high - 1)
        lines.append(Line(abs(coefficient), high - low))
    return lines, constant


def points_below(lines: Sequence[Line], limit: int) -> int | None:
    """Number of points with Σ coefficient·step ≤ limit, or None when that would take too long.

    All but the two widest features are looped over; these two are summed in closed form.
    """
    ordered = sorted(lines, key=lambda line: line.width)
    outer, inner = ordered[:-2], ordered[-2:]
    if not inner:
        return int(limit >= 0)
    if len(inner) == 1:
        return 0 if limit < 0 else min(inner[0].width, limit // inner[0].coefficient + 1)
    combinations = 1
    for line in outer:
        combinations *= line.width
    if combinations > MOST_LINES:
        return None
    one, two = inner
    return sum(
        pairs_below(one.coefficient, one.width, two.coefficient, two.width, limit - sum(steps))
        for steps in product(*(range(0, line.coefficient * line.width, line.coefficient) for line in outer))
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of one independent summand: masses of its distinct values, ascending from 0."""

    values: NDArray[Any] | None
    """None for 0, stride, 2·stride, … each of mass 1."""
    masses: NDArray[Any] | None
    stride: int
    count: int
    span: int
    """The largest value."""
    total: int
    """Sum of the masses."""


def line_spread(line: Line) -> Spread:
    """The distribution of one feature of a linear constraint under the uniform measure."""
    return Spread(None, None, line.coefficient, line.width, line.coefficient * (line.width - 1), line.width)


def mass_below(spreads: Sequence[Spread], limits: Sequence[int]) -> list[int] | None:
    """Mass of the points whose sum of independent summands is ≤ each limit, or None when that would take too long."""
    top = min(max(limits), sum(spread.span for spread in spreads))
    if top < 0:
        return [0 for _ in limits]
    total = 1
    for spread in spreads:
        total *= spread.total
    wide = total >= WORD
    work = (top + 1) * sum(3 if spread.values is None else spread.count for spread in spreads)
    if work * (BIG_INTEGER if wide else 1) > MOST_WORK:
        return None
    table: NDArray[Any] = np.zeros(top + 1, dtype=object if wide else np.int64)
    table[0] = 1
    for spread in spreads:
        table = _convolved(table, spread)
    running = np.cumsum(table)
    return [int(running[min(limit, top)]) if limit >= 0 else 0 for limit in limits]


def _convolved(table: NDArray[Any], spread: Spread) -> NDArray[Any]:
    if spread.values is None:
        return _window_sums(table, spread.stride, spread.count)
    assert spread.masses is not None
    new = np.zeros_like(table)
    for value, mass in zip(spread.values.tolist(), spread.masses.tolist(), strict=True):
        if value < len(table):
            new[value:] += table[: len(table) - value] * mass
    return new


def _window_sums(table: NDArray[Any], stride: int, count: int) -> NDArray[Any]:
    """new[s] = Σ table[s − stride·j] over 0 ≤ j < count."""
    length = len(table)
    if stride >= length:
        return table
    rows = -(-length // stride)
    padded = np.zeros(rows * stride, dtype=table.dtype)
    padded[:length] = table
    running = np.cumsum(padded.reshape(rows, stride), axis=0)
    if count < rows:
        running[count:] = running[count:] - running[:-count].copy()
    return running.reshape(-1)[:length]

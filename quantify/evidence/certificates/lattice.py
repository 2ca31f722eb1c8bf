"""Half-spaces and boxes go in, the numbers of their integer points come out: floor sums over planes, in integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

CHUNK = 1 << 16
"""Planes at once."""
WORD = 62
MOST_PLANES = 1 << 24
"""For one box; a certificate that needs more is not checked."""


class TooManyPlanesError(Exception):
    """A half-space that would take too long."""


def floor_sum(n: Any, m: Any, a: Any, b: Any) -> Any:
    """Σ over 0 ≤ i < n of ⌊(a·i + b) / m⌋, elementwise; n, a, b ≥ 0 and m > 0, all changed.

    Euclid's steps (Graham, Knuth & Patashnik, "Concrete Mathematics", section 3.5): what exceeds the unit is summed in
    closed form, then the lattice points below the line are counted along the other axis.
    """
    total = np.zeros_like(n)
    places = np.arange(len(n))
    while len(places):
        total[places] += n * (n - 1) // 2 * (a // m) + n * (b // m)
        a, b = a % m, b % m
        last = a * n + b
        go = np.flatnonzero(last >= m)
        places, last = places[go], last[go]
        n, b, m, a = last // m[go], last % m[go], a[go], m[go]
    return total


def planes(n: Any, m: Any, a: Any, b: Any, bound: Any) -> Any:
    """Points (x, y) with 0 ≤ x < n, 0 ≤ y < m and a·x + b·y ≤ bound, elementwise; a ≥ 0, b ≥ 0."""
    out = np.where(bound < 0, 0, np.where(a * (n - 1) + b * (m - 1) <= bound, n * m, 0))
    left = (bound >= 0) & (a * (n - 1) + b * (m - 1) > bound)
    flat_x, flat_y = left & (a == 0), left & (b == 0)
    out[flat_x] = n[flat_x] * (bound[flat_x] // b[flat_x] + 1)
    out[flat_y] = m[flat_y] * (bound[flat_y] // a[flat_y] + 1)
    go = np.flatnonzero(left & (a > 0) & (b > 0))
    n, m, a, b, bound = n[go], m[go], a[go], b[go], bound[go]
    last = np.minimum(bound // a, n - 1)
    rest = bound - b * (m - 1)
    full = np.where(rest < 0, 0, np.minimum(rest // a, last) + 1)
    columns = last + 1 - full
    out[go] = full * m + columns + floor_sum(columns, b, a, bound - a * last)
    return out


def count(slopes: list[int], constant: int, low: Any, high: Any, go_on: Callable[[], None] = lambda: None) -> list[int]:
    """Per box (d × N, low ≤ x < high), the points with Σ slopes·x + constant ≥ 0.

    Args:
        go_on: Called now and then; what it raises ends the work.

    Raises:
        TooManyPlanesError: A box has more than MOST_PLANES planes.
    """
    dims, boxes = low.shape
    slope = np.array(slopes, object)
    reach = sum(abs(s) * int(h) for s, h in zip(slopes, abs(high).max(axis=1, initial=0).tolist(), strict=True))
    width = high - low
    widest = int(width.max(initial=1))
    size = max((_product(row) for row in np.sort(width, axis=0)[-2:].T.tolist()), default=1)
    # Every intermediate is at most a·n + b of a plane, its points, or a square of a width.
    top = max(4 * (reach + abs(constant)), size, widest * widest)
    kind = np.int64 if top.bit_length() <= WORD else object
    width, low = width.astype(kind), low.astype(kind)
    slope = slope.astype(kind)[:, None]
    # Σ slopes·(low + u) + constant ≥ 0 becomes Σ |slopes|·v ≤ bound: v is u where they fall, else counted from the top.
    bound = (slope * low + np.where(slope > 0, slope, 0) * (width - 1)).sum(axis=0) + constant
    steep = np.broadcast_to(abs(slope), (dims, boxes))
    if dims < 2:
        pad = np.zeros((2 - dims, boxes), kind)
        steep, width = np.concatenate([steep, pad]), np.concatenate([width, pad + 1])
    order = np.argsort(width, axis=0, kind="stable")
    steep, width = np.take_along_axis(steep, order, 0), np.take_along_axis(width, order, 0)
    outer = [_product(row) for row in width[:-2].T.tolist()]
    if max(outer, default=0) > MOST_PLANES:
        raise TooManyPlanesError
    totals = [0] * boxes
    start = 0
    while start < boxes:
        end, work = start, 0
        while end < boxes and (end == start or work + outer[end] <= CHUNK):
            work += outer[end]
            end += 1
        for first in range(0, sum(outer[start:end]), CHUNK):
            go_on()
            part = slice(start, end)
            _add(totals, start, first, outer[part], steep[:, part], width[:, part], bound[part])
        start = end
    return totals


def _product(values: list[int]) -> int:
    out = 1
    for value in values:
        out *= value
    return out


def _add(totals: list[int], start: int, first: int, outer: list[int], steep: Any, width: Any, bound: Any) -> None:
    """Add up CHUNK planes of some boxes, from number `first` on."""
    number = np.array(outer, np.int64)
    ends = np.cumsum(number)
    place = np.arange(first, min(first + CHUNK, int(ends[-1])))
    which = np.searchsorted(ends, place, side="right")
    rest = place - (ends - number)[which]
    left = bound[which]
    for k in range(len(width) - 2):
        by = width[k][which]
        digit = rest % by.astype(np.int64)
        left = left - steep[k][which] * digit
        rest = rest // by.astype(np.int64)
    found = planes(width[-1][which], width[-2][which], steep[-1][which], steep[-2][which], left)
    for box, points in zip(*_summed(which, found), strict=True):
        totals[start + box] += points


def _summed(which: Any, values: Any) -> tuple[list[int], list[int]]:
    """Totals of runs of equal `which`."""
    starts = np.flatnonzero(np.concatenate([[True], which[1:] != which[:-1]]))
    if values.dtype != object and int(values.max(initial=0)).bit_length() + len(values).bit_length() > WORD:
        values = values.astype(object)
    return which[starts].tolist(), np.add.reduceat(values, starts).tolist()

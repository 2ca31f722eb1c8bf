"""Boxes go in on which most neurons are proven stable; how many of their points get each label comes out.

A stable neuron is affine, so it is folded away. What is left of the network on a box are the arguments of its unstable
neurons and the scores, each affine in the inputs and in the values of the unstable neurons before: these are evaluated
at every point, or, of two labels and at most one ReLU, counted line by line. All numbers are whole and proven to fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantify.evidence.certificates import forms, points

VALUES = 1 << 17
"""Numbers in one array, about: what stays in a processor's cache."""


@dataclass(frozen=True, eq=False)
class Parts:
    """What is left of a network on N boxes: affine functions of 1, the d inputs, and U unstable neurons."""

    arguments: Any
    """(U × (1 + d + U) × N): of each unstable neuron, in those before it; zeros where a box has fewer."""
    scores: Any
    """(labels × (1 + d + U) × N)."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The same on n boxes with as many unstable neurons, as functions of the place in the box.

    Rows are the arguments of the neurons, then the score of each possible label after the first, minus that of the
    first.
    """

    constant: Any
    """(R × n)."""
    slopes: Any
    """(R × d × n), the widest input first."""
    by: Any
    """(R × neurons × n)."""

    def some(self, part: Any) -> Rows:
        """The rows on some of the boxes (a slice, or their places)."""
        return Rows(self.constant[:, part], self.slopes[:, :, part], self.by[:, :, part])


class Folder:
    """Counts points by label on boxes of a region.

    Args:
        bits: `Evaluator.bits`: what holds every partial sum of the network over the region, in any order. All that is
            computed here is sums over paths through the network, some of their terms left out; measuring inputs from a
            box's corner, and subtracting one score from another, takes a bit each.
    """

    def __init__(self, layered: forms.Layered, bits: int) -> None:
        self._layered = layered
        kinds = {points.activation(layer): layer for _, layer in layered.hidden if layer.activation != "none"}
        self._layer = next(iter(kinds.values()), None)
        self.usable = len(kinds) < 2 and bits + 2 <= points.WORD
        """Whether all hidden layers have one activation, and words have room."""
        relu = self._layer is not None and (self._layer.activation, self._layer.cap) == ("relu", None)
        self._bends = int(relu)
        """Most unstable neurons with which boxes are counted line by line."""
        self._kind: Any = np.float64 if bits + 2 <= points.DOUBLE else np.int64
        self._rows = [
            (rows.matrix.astype(self._kind), rows.constant.astype(self._kind)[:, None])
            for rows in (*(rows for rows, _ in layered.hidden), layered.scores)
            if self.usable
        ]

    def parts(self, states: Any, most: int) -> Parts:
        """What is left where this is proven of every neuron (neurons × N), at most `most` of them being unstable."""
        dims, count = len(self._layered.varying), states.shape[1]
        slots = 1 + dims + most
        at = np.zeros((dims, slots, count), self._kind)
        at[np.arange(dims), 1 + np.arange(dims)] = 1
        arguments = np.zeros((most, slots, count), self._kind)
        taken = np.zeros(count, np.intp)
        start = 0
        for (_, layer), (matrix, constant) in zip(self._layered.hidden, self._rows, strict=False):
            z = _through(matrix, constant, at)
            state = states[start : start + len(z)]
            start += len(z)
            slopes, constants = (part.astype(self._kind)[state] for part in forms.lines(layer))
            at = z * slopes[:, None]
            at[:, 0] += constants
            for neuron in np.flatnonzero((state == forms.UNSTABLE).any(axis=1)).tolist():
                boxes = np.flatnonzero(state[neuron] == forms.UNSTABLE)
                arguments[taken[boxes], :, boxes] = z[neuron][:, boxes].T
                at[neuron, 1 + dims + taken[boxes], boxes] = 1
                taken[boxes] += 1
        return Parts(arguments, _through(*self._rows[-1], at))

    def totals(self, low: Any, high: Any, states: Any, possible: Any) -> list[int]:
        """Points of each label on boxes (d × N) on which no label can win but those possible (labels × N)."""
        unstable = (states == forms.UNSTABLE).sum(axis=0)
        parts = self.parts(states, int(unstable.max(initial=0)))
        width = high - low
        order = np.argsort(-width, axis=0, kind="stable")
        width = np.take_along_axis(width, order, 0)
        total = [0] * len(possible)
        for key, at in grouped(np.concatenate([width, unstable[None], possible])):
            sizes, neurons = key[: len(width)], key[len(width)]
            labels = [label for label, found in enumerate(key[len(width) + 1 :]) if found]
            if neurons == 0 and len(labels) == 1:
                total[labels[0]] += len(at) * int(np.prod(sizes))
                continue
            rows = _rows(parts, at, neurons, labels, low[:, at], order[:, at])
            if len(labels) == 2 and neurons <= self._bends:
                affine, some = _affine(rows)
                second = _on_lines(affine.some(some), sizes)
                total[labels[1]] += second
                total[labels[0]] += len(some) * int(np.prod(sizes)) - second
                rows = rows.some(np.setdiff1d(np.arange(len(at)), some))
            for values, by in _at_points(rows, sizes):
                for label, many in zip(labels, self._winners(values, by), strict=True):
                    total[label] += many
        return total

    def _winners(self, values: Any, by: Any) -> list[int]:
        """Points where each possible label wins, the first having score 0.

        values: (R × n × points) without what neurons add, used up; by: (R × neurons × n), how much of each they add.
        """
        neurons = by.shape[1]
        added = np.empty_like(values[0]) if neurons else None
        for j in range(neurons):
            assert self._layer is not None
            h = points.activated(self._layer, values[j])
            for r in range(j + 1, len(values)):
                if by[r, j].any():
                    np.multiply(by[r, j][:, None], h, out=added)
                    values[r] += added
        margins = values[neurons:]
        best = margins[0] if len(margins) == 1 else margins.max(axis=0, initial=0)
        left = best > 0
        found = [int(np.count_nonzero(left))]
        for margin in margins[:-1]:
            here = left & (margin == best)
            left &= ~here
            found[-1:] = [int(np.count_nonzero(here)), int(np.count_nonzero(left))]
        return [left.size - sum(found), *found][: 1 + len(margins)]


@dataclass(frozen=True, eq=False)
class Affine:
    """On n boxes, the functions that make up a margin: it is the largest of them or, where it is concave, the least."""

    constant: Any
    """(F × n)."""
    slopes: Any
    """(F × d × n), the widest input first."""
    concave: Any
    """(n)."""

    def some(self, part: Any) -> Affine:
        """The functions on some of the boxes."""
        return Affine(self.constant[:, part], self.slopes[:, :, part], self.concave[part])


def _affine(rows: Rows) -> tuple[Affine, Any]:
    """The margin of two labels: m or, with one neuron, m + c·max(z, 0), which is m and m + c·z, the larger if c ≥ 0.

    Also the places of the boxes where all of these depend on the widest input.
    """
    by = rows.by[-1]
    constant = rows.constant[-1] + np.concatenate([np.zeros_like(rows.constant[-1:]), by * rows.constant[:-1]])
    slopes = rows.slopes[-1] + np.concatenate([np.zeros_like(rows.slopes[-1:]), by[:, None] * rows.slopes[:-1]])
    return Affine(constant, slopes, (by < 0).any(axis=0)), np.flatnonzero((slopes[:, 0] != 0).all(axis=0))


def _on_lines(margin: Affine, sizes: list[int]) -> int:
    """Points of boxes of these sizes where the margin is positive, line by line along the widest input.

    From one end of a line, that where it is largest, an affine function is positive on a first so many points.
    """
    width, total = sizes[0], 0
    step = max(1, VALUES // (len(margin.constant) * int(np.prod(sizes[1:]))))
    for first in range(0, len(margin.concave), step):
        part = margin.some(slice(first, first + step))
        rising, steep = part.slopes[:, 0] > 0, abs(part.slopes[:, 0])
        largest = part.constant + rising * steep * (width - 1)
        at = _sums(largest[:, :, None], part.slopes[:, 1:], sizes[1:]).astype(np.int64)
        positive = np.clip(-(-at // steep.astype(np.int64)[:, :, None]), 0, width)
        if len(positive) == 1:
            total += int(positive.sum())
            continue
        # Where all must be positive, no point is left out by either: what is not is counted from the other ends.
        concave = part.concave[:, None]
        one, two = np.where(concave, width - positive, positive)
        same = (rising[0] == rising[1])[:, None]
        some = np.where(same, np.maximum(one, two), np.minimum(one + two, width))
        total += int(np.where(concave, width - some, some).sum())
    return total


def _at_points(rows: Rows, sizes: list[int]) -> Iterator[tuple[Any, Any]]:
    """The affine rows at all points of boxes of these sizes, some boxes at once: (R × n × points); and their `by`."""
    total, count = len(rows.constant), rows.constant.shape[1]
    middle = next((k for k in range(len(sizes)) if np.prod(sizes[: k + 1]) ** 2 >= np.prod(sizes)), 0) + 1
    size = int(np.prod(sizes))
    few = max(1, VALUES // (size * max(1, total)))
    many = few * max(1, size // int(np.prod(sizes[:middle])))
    for first in range(0, count, many):
        some = rows.some(slice(first, first + many))
        inner = _sums(some.constant[:, :, None], some.slopes[:, :middle], sizes[:middle])
        outer = _sums(np.zeros_like(some.constant)[:, :, None], some.slopes[:, middle:], sizes[middle:])
        for start in range(0, some.constant.shape[1], few):
            part = slice(start, start + few)
            values = outer[:, part, :, None] + inner[:, part, None, :]
            yield values.reshape(*values.shape[:2], size), some.by[:, :, part]


def _sums(start: Any, slopes: Any, sizes: list[int]) -> Any:
    """(R × n × points): what is there at the start and Σ slope·place, over all places."""
    out = start
    for k, size in enumerate(sizes):
        steps = slopes[:, k, :, None] * np.arange(size)
        out = (steps[:, :, :, None] + out[:, :, None, :]).reshape(*start.shape[:2], -1)
    return out


def _rows(parts: Parts, at: Any, neurons: int, labels: list[int], low: Any, order: Any) -> Rows:
    first = parts.scores[labels[0]][:, at]
    margins = [parts.scores[label][:, at] - first for label in labels[1:]]
    rows = np.concatenate([parts.arguments[:neurons][:, :, at], *(margin[None] for margin in margins)])
    dims = len(low)
    slopes = rows[:, 1 : 1 + dims]
    constant = rows[:, 0] + (slopes * low).sum(axis=1)
    slopes = np.take_along_axis(slopes, np.broadcast_to(order, slopes.shape), 1)
    return Rows(constant, slopes, rows[:, 1 + dims : 1 + dims + neurons])


def _through(matrix: Any, constant: Any, at: Any) -> Any:
    """Affine functions (m × n) of affine functions (n × slots × N)."""
    flat = at.reshape(len(at), -1)
    out = np.empty((len(matrix), flat.shape[1]), matrix.dtype)
    step = max(1, points.PRODUCTS // max(1, matrix.size))
    for first in range(0, flat.shape[1], step):
        part = slice(first, first + step)
        np.matmul(matrix, flat[:, part], out=out[:, part])
    out = out.reshape(len(matrix), *at.shape[1:])
    out[:, 0] += constant
    return out


def grouped(columns: Any) -> Iterator[tuple[list[int], Any]]:
    """The different columns of a table of whole numbers, and the places of each."""
    table = np.ascontiguousarray(columns.T, np.int64)
    groups: dict[bytes, list[int]] = {}
    for place, row in enumerate(table):
        groups.setdefault(row.tobytes(), []).append(place)
    for places in groups.values():
        yield table[places[0]].tolist(), np.array(places)

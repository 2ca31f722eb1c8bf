"""Integer layers and a domain in, proven widths of all accumulators and the intervals of the scores out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quantify.discretise.whole import Integers, bit_length, integers, narrowed, plus, row_sums, times
from quantify.errors import InputError
from quantify.ir import network_eval
from quantify.ir.network import IntLayer

ACCUMULATOR_BITS = 31
"""A quantised library's accumulators are int32."""


@dataclass(frozen=True, eq=False)
class Interval:
    """Smallest and largest possible value of each element of a vector, both included."""

    low: Integers
    high: Integers

    @property
    def magnitude(self) -> Integers:
        """The largest absolute value of each element."""
        return np.asarray(np.maximum(abs(self.low), abs(self.high)))


def of_positions(sizes: Sequence[int]) -> Interval:
    """The grid positions of a domain."""
    return Interval(np.zeros(len(sizes), np.int64), integers(size - 1 for size in sizes))


def proven(layers: Sequence[IntLayer], sizes: Sequence[int]) -> tuple[tuple[IntLayer, ...], Interval]:
    """The layers with `bits` filled in, and the interval of every score.

    Raises:
        InputError: A quantised model's accumulator may overflow.
    """
    interval = of_positions(sizes)
    done = []
    for layer in layers:
        layer, interval = through(layer, interval)
        done.append(layer)
    return tuple(done), interval


def through(layer: IntLayer, given: Interval) -> tuple[IntLayer, Interval]:
    """The layer with its proven width, and the interval of what it puts out.

    The width covers every partial sum in any order, the sum, and what the activation makes of it.
    """
    if layer.members is not None:
        members = np.where(layer.members < 0, layer.members.max(axis=1, keepdims=True), layer.members)
        pooled = Interval(given.low[members].max(axis=1), given.high[members].max(axis=1))
        return replace(layer, bits=bit_length(given.magnitude) + 1), pooled
    sums, most = _linear(layer, given)
    result = _activated(layer, sums)
    width = max(most, bit_length(result.magnitude))
    if layer.activation == "requantise":
        _check_requantise(layer, most)
    return replace(layer, bits=width + 1), result


def _linear(layer: IntLayer, given: Interval) -> tuple[Interval, int]:
    rows = layer.rows
    ends = times(rows.values, given.low[rows.columns]), times(rows.values, given.high[rows.columns])
    bias = narrowed(layer.bias)
    low = plus(row_sums(rows.start, np.minimum(*ends)), bias)
    high = plus(row_sums(rows.start, np.maximum(*ends)), bias)
    largest = plus(row_sums(rows.start, np.maximum(abs(ends[0]), abs(ends[1]))), abs(bias))
    return Interval(low, high), max(bit_length(largest), bit_length(rows.values))


def _activated(layer: IntLayer, sums: Interval) -> Interval:
    kind = layer.activation
    if kind == "none":
        return sums
    if kind == "leaky":
        ends = [_leaky(layer, end) for end in (sums.low, sums.high)]
        low, high = np.minimum(*ends), np.maximum(*ends)
        crosses = (sums.low < 0) & (sums.high > 0)
        return Interval(np.where(crosses, np.minimum(low, 0), low), np.where(crosses, np.maximum(high, 0), high))
    if kind == "sign":
        return Interval(*(_sign(layer, end) for end in (sums.low, sums.high)))
    if kind == "relu":
        low, high = np.maximum(sums.low, 0), np.maximum(sums.high, 0)
        if layer.cap is not None:
            low, high = np.minimum(low, layer.cap), np.minimum(high, layer.cap)
        return Interval(narrowed(low), narrowed(high))
    if kind == "floor_shift":
        ends = [narrowed(np.clip(end >> layer.shift, layer.low, layer.high)) for end in (sums.low, sums.high)]
        return Interval(ends[0], ends[1])
    assert layer.requantise is not None
    ends = [network_eval.requantised(layer.requantise, end[None, :])[0] for end in (sums.low, sums.high)]
    return Interval(ends[0], ends[1])


def _leaky(layer: IntLayer, values: Integers) -> Integers:
    return np.where(values >= 0, times(values, layer.positive), times(values, layer.negative))


def _sign(layer: IntLayer, values: Integers) -> Integers:
    signs = np.where(values > 0, 1, np.where(values < 0, -1, layer.at_zero))
    return signs.astype(np.int64)


def _check_requantise(layer: IntLayer, most: int) -> None:
    assert layer.requantise is not None
    left = max(0, int(layer.requantise.shift.max(initial=0)))
    if most + left > ACCUMULATOR_BITS:
        raise InputError(
            f"a 32-bit accumulator of the quantised model may overflow on this domain ({most + left + 1} bits needed)",
            "narrow the features' ranges to what the model was calibrated for",
        )

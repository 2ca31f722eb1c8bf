"""Grid positions and an IntNetwork in, its exact integer scores and class indices out: in bulk, or one point slowly.

In bulk, matrix products run in float64 on limbs that are so short that every sum is an exact integer below 2^53; the
limbs are put together in 64-bit words where the layer's proven width allows it, else in Python integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.ir import network_filter
from quantify.ir.network import IntLayer, IntNetwork, RequantiseLayer, Rows

Integers = NDArray[Any]
"""int64, or object where 64 bits are not proven to suffice."""

WORD = 64
MANTISSA = 53
CHUNK_VALUES = 1 << 22
"""Matrix elements held at once for the widest layer."""
DENSE_SHARE = 0.2
"""Above this share of non-zeros a dense product is the faster one."""


def scores(network: IntNetwork, positions: NDArray[np.int64]) -> Integers:
    """Integer scores of every row, (rows × outputs): int64, or object when a layer may need more bits.

    Args:
        network: Its `bits` are trusted: they are what the lowering proved.
        positions: (rows × inputs), inside the domain that the widths were proven for.

    Raises:
        ValueError: The positions have another number of columns.
    """
    if positions.ndim != 2 or positions.shape[1] != network.inputs:
        raise ValueError(f"the network has {network.inputs} inputs, not a matrix of shape {positions.shape}")
    products = _products(network)
    rows = max(1, CHUNK_VALUES // max([network.inputs, *(_width(layer) for layer in network.layers)]))
    parts = []
    for start in range(0, len(positions), rows):
        values: Integers = positions[start : start + rows].astype(np.int64, copy=False)
        for layer, product in zip(network.layers, products, strict=True):
            values = _activated(layer, _pooled(layer, values) if product is None else product(values))
        parts.append(values)
    if not parts:
        return np.empty((0, network.outputs), np.int64)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def labels(network: IntNetwork, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Class index of every row: the lowest index of its largest score.

    Where integers would be wide, double precision with a proven error decides most rows and integers the others.
    """
    if all(layer.bits <= WORD for layer in network.layers) or not network_filter.applies(network):
        return best(scores(network, positions))
    found, sure = network_filter.labels(network, positions)
    rest = np.flatnonzero(~sure)
    if len(rest):
        found[rest] = best(scores(network, positions[rest]))
    return found


def best(found: Integers) -> NDArray[np.int64]:
    """The lowest index of the largest score of each row."""
    if found.dtype != object:
        return np.asarray(found.argmax(axis=1), np.int64)
    winner = np.zeros(len(found), np.int64)
    top = found[:, 0]
    for index in range(1, found.shape[1]):
        higher = np.asarray(found[:, index] > top, np.bool_)
        winner[higher] = index
        top = np.where(higher, found[:, index], top)
    return winner


def _width(layer: IntLayer) -> int:
    return len(layer.bias) if layer.members is None else layer.members.size


# --- one layer -----------------------------------------------------------------------------------------------------
class _Product:
    """Σ weights·x + bias, exactly."""

    def __init__(self, layer: IntLayer) -> None:
        self._rows = layer.rows
        self._bias = layer.bias
        self._narrow = layer.bits <= WORD
        self._longest = int(np.diff(layer.rows.start).max(initial=1))
        self._weight_bits = _most_bits(layer.rows.values)
        self._limbs: dict[int, list[Any]] = {}

    def __call__(self, values: Integers) -> Integers:
        room = MANTISSA - max(1, self._longest).bit_length()
        value_bits = _most_bits(values)
        if self._weight_bits + value_bits <= room:
            weight_step, value_step = max(1, self._weight_bits), max(1, value_bits)
        elif 2 * min(self._weight_bits, value_bits) <= room:
            # The shorter side stays whole, the longer one is cut to what is left.
            if value_bits <= self._weight_bits:
                value_step = max(1, value_bits)
                weight_step = room - value_step
            else:
                weight_step = max(1, self._weight_bits)
                value_step = room - weight_step
        else:
            weight_step = value_step = room // 2
        total: Integers | None = None
        for left, part in enumerate(_split(values, value_step, value_bits)):
            for right, matrix in enumerate(self._matrices(weight_step)):
                shift = left * value_step + right * weight_step
                if self._narrow and shift >= WORD:
                    continue
                found = self._joined(_multiplied(matrix, part), shift)
                total = found if total is None else total + found
        assert total is not None
        result: Integers = total + self._bias_row()
        return result

    def _joined(self, exact: NDArray[np.float64], shift: int) -> Integers:
        words = exact.astype(np.int64)
        # Sums modulo 2^64 are right because the result is proven to fit.
        return words << shift if self._narrow else words.astype(object) * (1 << shift)

    def _bias_row(self) -> Integers:
        return self._bias.astype(np.int64 if self._narrow else object)

    def _matrices(self, step: int) -> list[Any]:
        known = self._limbs.get(step)
        if known is None:
            limbs = _split(self._rows.values, step, self._weight_bits)
            known = self._limbs[step] = [_matrix(self._rows, limb) for limb in limbs]
        return known


def _most_bits(values: Integers) -> int:
    if values.size == 0:
        return 0
    return max(abs(int(values.max())), abs(int(values.min()))).bit_length()


def _split(values: Integers, step: int, bits: int) -> list[NDArray[np.float64]]:
    """Signed limbs of `step` bits, the lowest first: values = Σ limb_k·2^(k·step)."""
    if bits <= step:
        return [values.astype(np.float64)]
    magnitude: Any = abs(values)
    mask = (1 << step) - 1
    negative = np.asarray(values < 0, np.bool_)
    limbs = []
    for shift in range(0, bits, step):
        limb = ((magnitude >> shift) & mask).astype(np.float64)
        limbs.append(np.where(negative, -limb, limb))
    return limbs


def _matrix(rows: Rows, values: NDArray[np.float64]) -> Any:
    """The (inputs × outputs) matrix, dense or sparse."""
    if len(values) > DENSE_SHARE * rows.inputs * rows.outputs or len(values) < 4096:
        dense = Rows(rows.inputs, rows.start, rows.columns, values).to_dense()
        return np.ascontiguousarray(dense.T)
    from scipy.sparse import csr_matrix

    return csr_matrix((values, rows.columns, rows.start), shape=(rows.outputs, rows.inputs)).T


def _multiplied(matrix: Any, values: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = values @ matrix if isinstance(matrix, np.ndarray) else (matrix.T @ values.T).T
    return found


@lru_cache(maxsize=8)
def _products(network: IntNetwork) -> tuple[_Product | None, ...]:
    return tuple(None if layer.members is not None else _Product(layer) for layer in network.layers)


def _pooled(layer: IntLayer, values: Integers) -> Integers:
    assert layer.members is not None
    # A window cut by the border is padded with one of its own members.
    members = np.where(layer.members < 0, layer.members.max(axis=1, keepdims=True), layer.members)
    return np.asarray(values[:, members].max(axis=2))


def _activated(layer: IntLayer, values: Integers) -> Integers:
    kind = layer.activation
    if kind in ("none", "max"):
        return values
    if kind == "relu":
        positive = np.maximum(values, 0)
        return positive if layer.cap is None else _shrunk(np.minimum(positive, layer.cap), layer.cap)
    if kind == "leaky":
        factor = max(abs(layer.positive), abs(layer.negative))
        if values.dtype != object and _most_bits(values) + factor.bit_length() >= WORD:
            values = values.astype(object)
        return np.where(values >= 0, values * layer.positive, values * layer.negative)
    if kind == "sign":
        signs = np.where(values > 0, 1, np.where(values < 0, -1, layer.at_zero))
        return signs.astype(np.int64)
    if kind == "floor_shift":
        shifted = np.minimum(np.maximum(values >> layer.shift, layer.low), layer.high)
        return _shrunk(shifted, max(abs(layer.low), abs(layer.high)))
    assert layer.requantise is not None
    return requantised(layer.requantise, values)


def _shrunk(values: Integers, most: int) -> Integers:
    """As int64 when they fit."""
    return values.astype(np.int64) if values.dtype == object and most.bit_length() < WORD else values


# --- the arithmetic of quantised libraries -------------------------------------------------------------------------
def requantised(layer: RequantiseLayer, values: Integers) -> NDArray[np.int64]:
    """int32 accumulators (rows × outputs) to the library's int8, bit for bit.

    double: a saturating rounding doubling high multiplication, then a rounding shift; single: one 64-bit product
    rounded once (TFLite: kernels/internal/common.h, `MultiplyByQuantizedMultiplier`, both variants).
    """
    wide = values.astype(np.int64)
    left, right = np.maximum(layer.shift, 0), np.maximum(-layer.shift, 0)
    if layer.rounding == "single":
        total = 31 - layer.shift
        scaled = (wide * layer.multiplier + (np.int64(1) << (total - 1))) >> total
    else:
        product = (wide << left) * layer.multiplier
        nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
        # Division by 2^31 that truncates towards zero, as in C.
        high = np.where(nudged >= 0, nudged >> 31, -((-nudged) >> 31))
        mask = (np.int64(1) << right) - 1
        scaled = (high >> right) + ((high & mask) > ((mask >> 1) + (high < 0)))
    result: NDArray[np.int64] = np.clip(scaled + layer.zero_point, layer.low, layer.high)
    return result


# --- one point, obviously ------------------------------------------------------------------------------------------
def point_scores(network: IntNetwork, position: Sequence[int]) -> list[int]:
    """Integer scores of one point, in plain Python integers: slow, and what `scores` must equal."""
    values = [int(entry) for entry in position]
    for layer in network.layers:
        if layer.members is not None:
            values = [max(values[m] for m in window if m >= 0) for window in layer.members.tolist()]
            continue
        start, columns, weights = layer.rows.start.tolist(), layer.rows.columns.tolist(), layer.rows.values.tolist()
        sums = []
        for row, bias in enumerate(layer.bias.tolist()):
            entries = range(start[row], start[row + 1])
            sums.append(bias + sum(weights[k] * values[columns[k]] for k in entries))
        values = [_point_activated(layer, index, z) for index, z in enumerate(sums)]
    return values


def point_label(network: IntNetwork, position: Sequence[int]) -> int:
    """Class index of one point."""
    found = point_scores(network, position)
    return found.index(max(found))


def _point_activated(layer: IntLayer, index: int, z: int) -> int:
    kind = layer.activation
    if kind == "relu":
        return max(z, 0) if layer.cap is None else min(max(z, 0), layer.cap)
    if kind == "leaky":
        return z * (layer.positive if z >= 0 else layer.negative)
    if kind == "sign":
        return 1 if z > 0 else -1 if z < 0 else layer.at_zero
    if kind == "floor_shift":
        return min(max(z >> layer.shift, layer.low), layer.high)
    if kind == "requantise":
        assert layer.requantise is not None
        return _point_requantised(layer.requantise, index, z)
    return z


def _point_requantised(layer: RequantiseLayer, index: int, z: int) -> int:
    multiplier, shift = int(layer.multiplier[index]), int(layer.shift[index])
    if layer.rounding == "single":
        total = 31 - shift
        scaled = (z * multiplier + (1 << (total - 1))) >> total
    else:
        product = (z << max(shift, 0)) * multiplier
        # Half of 2^31 is added away from zero, or just short of it below zero; the division truncates.
        high = (product + (1 << 30)) >> 31 if product >= 0 else -((-product - 1 + (1 << 30)) >> 31)
        right = max(-shift, 0)
        half = ((1 << right) - 1) // 2 + (high < 0)
        scaled = (high >> right) + ((high & ((1 << right) - 1)) > half)
    return min(max(scaled + layer.zero_point, layer.low), layer.high)

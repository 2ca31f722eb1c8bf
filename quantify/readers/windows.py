"""Convolution and pooling geometry to sparse rows and window members over flattened inputs, channels last."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError
from quantify.ir.network import Rows

LIMIT = 1 << 25
"""Most connections of one layer: half a gigabyte of sparse rows, far beyond what can be counted."""


@dataclass(frozen=True)
class Axis:
    """One spatial axis: how windows of `window` cells, `dilation` apart, step by `stride` over `size` inputs."""

    size: int
    window: int
    stride: int
    dilation: int
    before: int
    """Padding cells before the first input."""
    outputs: int

    @classmethod
    def padded(
        cls, size: int, window: int, stride: int = 1, dilation: int = 1, before: int = 0, after: int = 0
    ) -> Axis:
        """An axis with explicit padding; `outputs` is 0 or less where no window fits."""
        reach = dilation * (window - 1) + 1
        return cls(size, window, stride, dilation, before, (size + before + after - reach) // stride + 1)

    @classmethod
    def same(cls, size: int, window: int, stride: int = 1, dilation: int = 1) -> Axis:
        """TensorFlow's SAME: ⌈size/stride⌉ outputs, the odd cell of padding after the last input."""
        reach = dilation * (window - 1) + 1
        outputs = -(-size // stride)
        padding = max((outputs - 1) * stride + reach - size, 0)
        return cls(size, window, stride, dilation, padding // 2, outputs)

    @property
    def cells(self) -> NDArray[np.int64]:
        """(outputs × window) input index of each cell, −1 in the padding."""
        starts = np.arange(self.outputs, dtype=np.int64) * self.stride - self.before
        found = starts[:, None] + np.arange(self.window, dtype=np.int64) * self.dilation
        return np.where((found >= 0) & (found < self.size), found, -1)


def positions(axes: tuple[Axis, ...]) -> NDArray[np.int64]:
    """(output positions × window cells) flat input position, −1 in the padding; row by row on both sides.

    Raises:
        InputError: A window that fits nowhere, or too many cells.
    """
    if any(axis.outputs < 1 for axis in axes):
        raise InputError("has a window larger than its input", "no window fits, so there is no output")
    check_size(math.prod(axis.outputs * axis.window for axis in axes))
    flat = np.zeros((1, 1), np.int64)
    inside = np.ones((1, 1), np.bool_)
    for axis in axes:
        cells = axis.cells
        outer = (flat.shape[0] * cells.shape[0], flat.shape[1] * cells.shape[1])
        flat = (flat[:, None, :, None] * axis.size + np.maximum(cells, 0)[None, :, None, :]).reshape(outer)
        inside = (inside[:, None, :, None] & (cells >= 0)[None, :, None, :]).reshape(outer)
    return np.where(inside, flat, -1)


def check_size(connections: int) -> None:
    """Refuse a layer with more than `LIMIT` connections.

    Raises:
        InputError: It has.
    """
    if connections > LIMIT:
        raise InputError(f"has {connections} connections", f"quantify reads layers with up to {LIMIT}")


def convolution(axes: tuple[Axis, ...], kernel: NDArray[np.generic], groups: int = 1) -> Rows:
    """Rows of a convolution, outputs in (position, filter) order.

    Args:
        axes: The spatial axes.
        kernel: (window cells × channels of a group × filters); filter f reads the group f·groups // filters.
        groups: Groups of channels.
    """
    where = positions(axes)
    cells, channels, filters = kernel.shape
    check_size(where.size * channels * filters)
    total = channels * groups
    first = (np.arange(filters, dtype=np.int64) * groups // filters) * channels
    # (position, filter, cell, channel)
    shape = (len(where), filters, cells, channels)
    columns = where[:, None, :, None] * total + first[:, None, None] + np.arange(channels, dtype=np.int64)
    values = np.broadcast_to(np.moveaxis(kernel, 2, 0), shape)
    present = (where >= 0)[:, None, :, None] & (values != 0)
    return _rows(math.prod(axis.size for axis in axes) * total, columns, values, present, cells * channels)


def depthwise(axes: tuple[Axis, ...], kernel: NDArray[np.generic]) -> Rows:
    """Rows of a depthwise convolution, outputs in (position, channel, multiplier) order.

    `kernel` is (window cells × channels × multiplier).
    """
    where = positions(axes)
    cells, channels, multiplier = kernel.shape
    check_size(where.size * channels * multiplier)
    # (position, channel, multiplier, cell)
    shape = (len(where), channels, multiplier, cells)
    columns = where[:, None, None, :] * channels + np.arange(channels, dtype=np.int64)[:, None, None]
    columns = np.broadcast_to(columns, shape)
    values = np.broadcast_to(np.moveaxis(kernel, 0, 2), shape)
    present = (where >= 0)[:, None, None, :] & (values != 0)
    return _rows(math.prod(axis.size for axis in axes) * channels, columns, values, present, cells)


def _rows(
    inputs: int, columns: NDArray[np.int64], values: NDArray[np.generic], present: NDArray[np.bool_], terms: int
) -> Rows:
    """Rows from three parallel arrays, in which `terms` consecutive elements make a row; absent ones are left out."""
    counts = present.reshape(-1, terms).sum(axis=1, dtype=np.int64)
    start = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
    return Rows(inputs, start, np.ascontiguousarray(columns[present]), np.ascontiguousarray(values[present]))


def members(axes: tuple[Axis, ...], channels: int) -> NDArray[np.int64]:
    """(position·channels × window cells) flat input index of each pooling window, −1 in the padding."""
    where = positions(axes)
    check_size(where.size * channels)
    spread = where[:, None, :] * channels + np.arange(channels, dtype=np.int64)[:, None]
    return np.where(where[:, None, :] < 0, -1, spread).reshape(-1, where.shape[1])


def sums(inputs: int, found: NDArray[np.int64], dtype: str) -> tuple[Rows, NDArray[np.int64]]:
    """Rows that add up each window's members, and how many there are: an average leaves the padding out."""
    present = found >= 0
    counts = present.sum(axis=1, dtype=np.int64)
    start = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
    columns = found[present]
    return Rows(inputs, start, columns, np.ones(len(columns), dtype)), counts

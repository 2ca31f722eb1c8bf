"""Points go in, their exact scores come out: by plain sums, where nothing can leave a double's or a word's integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from quantify.evidence.certificates.forms import Layered
from quantify.ir import network_eval
from quantify.ir.network import IntLayer, IntNetwork
from quantify.ir.problem import Box

DOUBLE = 53
"""Whole numbers of so many bits are exact in doubles, and so are their sums and products, in any order."""
WORD = 62
PRODUCTS = 1 << 18
"""Of one matrix product, about: OpenBLAS would start threads for more, which wait for each other."""


class Evaluator:
    """The scores and labels of points of a region."""

    def __init__(self, network: IntNetwork, layered: Layered, region: Box) -> None:
        self._network, self._layered, self._region = network, layered, region
        self._layers = [*layered.hidden, (layered.scores, None)]
        self.bits = self._bits()
        """Bits that hold every weight and every partial sum over the region, in any order."""
        self._fits = self.bits <= WORD
        if self._fits:
            self._kind = np.float64 if self.bits <= DOUBLE else np.int64
            self._rows = [
                (r.matrix.astype(self._kind), r.constant.astype(self._kind)[:, None]) for r, _ in self._layers
            ]

    def _bits(self) -> int:
        bits = 0
        reach = [max(abs(self._region.low[k]), self._region.high[k] - 1) for k in self._layered.varying]
        for rows, layer in self._layers:
            reach = [
                abs(b) + sum(abs(w) * max(1, most) for w, most in zip(row, reach, strict=True))
                for row, b in zip(rows.matrix.tolist(), rows.constant.tolist(), strict=True)
            ]
            if layer is not None:
                steep = max(layer.positive, layer.negative, 1) if layer.activation == "leaky" else 1
                least = max(1, abs(layer.low), abs(layer.high), layer.cap or 0)
                reach = [max(least, max(1, most) * steep) for most in reach]
            bits = max(bits, max(reach, default=0).bit_length())
        return bits

    def scores(self, at: Any) -> Any:
        """(N × labels) of positions of the varying inputs (d × N int64): int64 or object."""
        if not self._fits:
            return network_eval.scores(self._network, self._whole(at))
        return self._values(at).T.astype(np.int64)

    def labels(self, at: Any) -> Any:
        """(N) lowest index of the largest score."""
        if not self._fits:
            return network_eval.labels(self._network, self._whole(at))
        return self._values(at).argmax(axis=0)

    def _values(self, at: Any) -> Any:
        """(labels × N) scores, in doubles or words."""
        values = at.astype(self._kind)
        for (matrix, constant), (_, layer) in zip(self._rows, self._layers, strict=True):
            values = matrix @ values
            values += constant
            if layer is not None:
                values = activated(layer, values)
        return values

    def _whole(self, at: Any) -> Any:
        whole = np.tile(np.array(self._region.low, np.int64), (at.shape[1], 1))
        whole[:, list(self._layered.varying)] = at.T
        return whole


def activation(layer: IntLayer) -> tuple[object, ...]:
    """All that `activated` reads of a layer."""
    return (
        layer.activation, layer.cap, layer.positive, layer.negative, layer.at_zero, layer.shift, layer.low, layer.high
    )  # fmt: skip


def activated(layer: IntLayer, z: Any) -> Any:
    """A layer's values from its arguments, in doubles or words; `z` may be used up."""
    if layer.activation == "relu":
        return np.maximum(z, 0, out=z) if layer.cap is None else np.clip(z, 0, layer.cap, out=z)
    if layer.activation == "leaky":
        return z * np.where(z >= 0, layer.positive, layer.negative)
    if layer.activation == "sign":
        return np.where(z == 0, layer.at_zero, np.sign(z))
    if layer.activation == "floor_shift":
        shift = min(layer.shift, 63)
        shifted = np.floor(np.ldexp(z, -shift)) if z.dtype == np.float64 else z >> shift
        return np.clip(shifted, layer.low, layer.high)
    return z

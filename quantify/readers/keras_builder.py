"""A network under construction from Keras layers: what their converters ask for, their weights and their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError
from quantify.ir.network import Layer, LinearLayer, Rows
from quantify.readers.keras_config import LayerConfig
from quantify.readers.unpickle import printable

Array = NDArray[np.floating[Any]]
Wanted = tuple[int | None, ...]
MAX_WIDTH = 1 << 24
"""Most values between two layers."""


class Weights(Protocol):
    """Where a layer's arrays come from."""

    def visit(self, layer: LayerConfig) -> None:
        """Called for each layer in order, with weights or without, before anything of it is taken."""
        ...

    def take(self, layer: LayerConfig, shapes: Sequence[Wanted]) -> list[NDArray[np.generic]]:
        """The layer's arrays in Keras's order, of these shapes (None: any size).

        Raises:
            InputError: Others are stored.
        """
        ...


@dataclass
class Builder:
    """The network so far."""

    shape: tuple[int, ...] | None
    """Of the values that the next layer gets, channels last; None before a first layer that tells."""
    dtype: Literal["float32", "float64"]
    weights: Weights
    inputs: int | None
    """Of the whole network; None before a first layer that tells."""
    layers: list[Layer] = field(default_factory=list)
    squash: Literal["none", "softmax", "sigmoid"] = "none"

    def add(self, layer: LayerConfig, convert: Callable[[Builder, LayerConfig], None]) -> None:
        """Append one layer of the file, as its converter says.

        Raises:
            InputError: Not supported, or not what its weights say; the message names the layer.
        """
        try:
            convert(self, layer)
        except InputError as error:
            named = error.message if error.message.startswith(str(layer)) else f"{layer} {error.message}"
            raise type(error)(named, error.hint) from None
        if self.shape is not None and math.prod(self.shape) > MAX_WIDTH:
            raise InputError(f"{layer} has {math.prod(self.shape)} outputs", f"quantify reads up to {MAX_WIDTH}")

    def known(self, rank: int | None = None) -> tuple[int, ...]:
        """The input shape, which must be known and, if said, of this rank."""
        if self.shape is None:
            raise InputError(
                "is the first, and the file does not say what shape its input has", "give the model an Input"
            )
        if rank is not None and len(self.shape) != rank:
            raise InputError(f"gets values of shape {self.shape}, not of {rank} axes", "reshape its input")
        return self.shape

    def append(self, layer: Layer) -> None:
        """One more layer of the network; none may follow the softmax or sigmoid."""
        if self.squash != "none":
            raise InputError(
                f"follows a {self.squash}", "quantify reads softmax and sigmoid at the end of a network only"
            )
        self.layers.append(layer)

    def linear(self, layer: LayerConfig, rows: Rows, bias: Array, shape: tuple[int, ...]) -> None:
        """One linear layer, of finite constants."""
        for constants in (rows.values.astype(self.dtype, copy=False), bias):
            if not np.isfinite(constants).all():
                raise InputError("has weights that are infinite or no numbers", "train the model again")
        self.append(LinearLayer(rows, bias, origin=str(layer)))
        self.shape = shape

    def diagonal(
        self,
        layer: LayerConfig,
        factor: Array,
        offset: Array,
        divisor: NDArray[np.int64] | None = None,
        derived: Array | None = None,
    ) -> None:
        """(x·factor + offset)/divisor elementwise, all broadcast over the input shape; `derived` as in LinearLayer."""
        shape = self.known()
        size = math.prod(shape)

        def spread(values: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(np.broadcast_to(values, shape)).reshape(-1)

        values, bias = spread(factor), spread(offset)
        if not (np.isfinite(values).all() and np.isfinite(bias).all()):
            raise InputError("has constants that are infinite or no numbers", "train the model again")
        present = values != 0
        start = np.concatenate([np.zeros(1, np.int64), present.cumsum(dtype=np.int64)])
        rows = Rows(size, start, np.flatnonzero(present).astype(np.int64), values[present])
        by, size_of = (None if part is None else spread(part) for part in (divisor, derived))
        self.append(LinearLayer(rows, bias, by, str(layer), size_of))

    def arrays(self, layer: LayerConfig, shapes: Sequence[Wanted]) -> list[Array]:
        """The layer's weights in the network's type."""
        found = self.weights.take(layer, shapes)
        for array in found:
            if array.dtype.kind != "f":
                raise InputError(f"has weights of type {array.dtype}", "quantify reads float32 and float64 weights")
            if array.dtype.itemsize > np.dtype(self.dtype).itemsize:
                raise InputError(f"has {array.dtype} weights and computes in {self.dtype}", "save it in one type")
        with np.errstate(invalid="ignore"):  # signalling NaNs are refused later, with all others
            return [array.astype(self.dtype) for array in found]


# --- values from the configuration of a layer ----------------------------------------------------------------------
def number(config: Mapping[str, Any], *names: str, default: float | None) -> float | None:
    """A finite number under the first of these names that is there."""
    for name in names:
        if name in config:
            found = config[name]
            if isinstance(found, dict):  # Keras 3 writes some scalars as {"config": {"value": 0.1}}
                found = found.get("config", {}).get("value") if isinstance(found.get("config"), dict) else found
            if found is None:
                return default
            if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) <= 1e300:
                raise InputError(f"has {name} {printable(str(found))}", "it must be a number")
            return float(found)
    return default


def sizes(config: Mapping[str, Any], name: str, rank: int, default: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """A positive integer, or one an axis."""
    found = config.get(name)
    shown = printable(str(found))
    if found is None:
        found = default
    if isinstance(found, int) and not isinstance(found, bool):
        found = [found] * rank
    if not isinstance(found, list | tuple) or len(found) != rank:
        raise InputError(f"has {name} {shown}", f"it must be {rank} positive whole numbers")
    for size in found:
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_WIDTH:
            raise InputError(f"has {name} {shown}", f"it must be {rank} positive whole numbers")
    return tuple(found)

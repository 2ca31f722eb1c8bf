"""A network under construction from ONNX nodes: what converters ask for, constants computed early, and attributes.

Values stay in ONNX's own order (channels first, rows of the last axis together); a transposition is remembered and paid
by the next layer that reads places.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError
from quantify.ir.network import Layer, LinearLayer, MaxPoolLayer, Rows
from quantify.readers.onnx_file import Graph, Node
from quantify.readers.unpickle import printable
from quantify.readers.windows import Axis

Converter: TypeAlias = "Callable[[Builder, Node], None]"

MAX_WIDTH = 1 << 24
"""Most values between two layers."""
CHAIN = "quantify reads chains of operators, each reading the one before it and constants"


@dataclass
class Builder:
    """The network so far."""

    graph: Graph
    dtype: Literal["float32", "float64"] | None
    """Of the arithmetic; None while the input still waits to be cast."""
    shape: tuple[int, ...]
    """Of the current value, the batch axis left out."""
    current: str
    constants: dict[str, NDArray[Any]]
    layers: list[Layer] = field(default_factory=list)
    order: NDArray[np.int64] | None = None
    """Where each value of the current shape stands in the last layer's vector; None for in order."""
    squash: Literal["none", "softmax", "sigmoid"] = "none"
    label: bool = False
    """Whether an ArgMax ended it."""

    def add(self, node: Node, convert: Converter | None, supported: str) -> None:
        """Append one node by its converter, or compute it when all it reads is constant.

        Raises:
            InputError: Not supported, or not what its constants say; the message names the node.
        """
        try:
            if self._folded(node):
                return
            if convert is None:
                raise InputError("is not supported", f"quantify reads {supported}")
            if node.inputs.count(self.current) != 1:
                raise InputError("does not follow the one before it", CHAIN)
            for name in node.inputs:
                if name and name != self.current and name not in self.constants:
                    raise InputError("reads another value that is no constant", CHAIN)
            if self.label:
                raise InputError("follows an ArgMax", "quantify reads an ArgMax at the end of a network only")
            convert(self, node)
        except InputError as error:
            raise type(error)(f"{node} {error.message}", error.hint) from None
        if math.prod(self.shape) > MAX_WIDTH:
            raise InputError(f"{node} has {math.prod(self.shape)} outputs", f"quantify reads up to {MAX_WIDTH}")
        self.current = node.outputs[0]

    # --- what converters ask for ---------------------------------------------------------------------------------
    @property
    def width(self) -> int:
        """Values of the current shape."""
        return math.prod(self.shape)

    @property
    def kind(self) -> Literal["float32", "float64"]:
        """The type of the arithmetic."""
        if self.dtype is None:
            raise InputError(f"computes in {self.graph.dtype}", "quantify reads float32 and float64 networks")
        return self.dtype

    def spatial(self, node: Node) -> tuple[int, tuple[int, ...]]:
        """Channels and spatial sizes."""
        if not 2 <= len(self.shape) <= 4:
            raise InputError(f"gets values of shape {self.shape}", "it needs channels and one to three more axes")
        return self.shape[0], self.shape[1:]

    def constant(self, node: Node, place: int) -> NDArray[Any] | None:
        """The constant at this place of the node's inputs, None when it is left out."""
        name = node.inputs[place] if place < len(node.inputs) else ""
        if not name:
            return None
        if name == self.current:
            raise InputError(f"has the network's value as input {place}", CHAIN)
        return self.constants[name]

    def floats(self, node: Node, place: int) -> NDArray[Any]:
        """A constant of the arithmetic's type, finite."""
        found = self.constant(node, place)
        if found is None:
            raise InputError(f"lacks input {place}", "export the model again")
        if str(found.dtype) != self.kind:
            raise InputError(f"has constants of type {found.dtype} and computes in {self.kind}", "save it in one type")
        if not np.isfinite(found).all():
            raise InputError("has constants that are infinite or no numbers", "train the model again")
        return found

    # --- layers ----------------------------------------------------------------------------------------------------
    def append(self, layer: Layer) -> None:
        """One more layer; none may follow the softmax or sigmoid."""
        if self.squash != "none":
            raise InputError(
                f"follows a {self.squash}", "quantify reads softmax and sigmoid at the end of a network only"
            )
        self.layers.append(layer)

    def linear(self, node: Node, rows: Rows, bias: NDArray[Any], shape: tuple[int, ...]) -> None:
        """One linear layer, its columns being places of the current shape."""
        if not np.isfinite(bias).all():
            raise InputError("has constants that are infinite or no numbers", "train the model again")
        self.append(LinearLayer(self.placed(rows), bias, origin=str(node)))
        self.shape, self.order = shape, None

    def diagonal(
        self, node: Node, factor: NDArray[Any], offset: NDArray[Any], divisor: NDArray[np.int64] | None = None,
        derived: NDArray[Any] | None = None,
    ) -> None:  # fmt: skip
        """(x·factor + offset)/divisor, elementwise; all are broadcast over the current shape."""

        def spread(values: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(np.broadcast_to(values, self.shape)).reshape(-1)

        values, bias = spread(factor), spread(offset)
        if not (np.isfinite(values).all() and np.isfinite(bias).all()):
            raise InputError("has constants that are infinite or no numbers", "train the model again")
        present = values != 0
        start = np.concatenate([np.zeros(1, np.int64), present.cumsum(dtype=np.int64)])
        rows = Rows(self.width, start, np.flatnonzero(present).astype(np.int64), values[present])
        by, size_of = (None if part is None else spread(part) for part in (divisor, derived))
        self.append(LinearLayer(self.placed(rows), bias, by, str(node), size_of))
        self.order = None

    def pool(self, node: Node, windows: NDArray[np.int64], shape: tuple[int, ...]) -> None:
        """A maximum over windows of places of the current shape, −1 being none."""
        if self.order is not None:
            windows = np.where(windows < 0, -1, self.order[windows])
        self.append(MaxPoolLayer(self.width, windows, str(node)))
        self.shape, self.order = shape, None

    def placed(self, rows: Rows) -> Rows:
        """Rows over the last layer's vector from rows over the current shape."""
        return rows if self.order is None else replace(rows, columns=self.order[rows.columns])

    def _folded(self, node: Node) -> bool:
        """Compute a node of constants alone."""
        if node.kind == "Constant":
            self.constants[node.outputs[0]] = _constant(node)
            return True
        if not node.inputs or any(name and name not in self.constants for name in node.inputs):
            return False
        if node.kind not in FOLDED:
            raise InputError("computes with constants alone", "simplify the model first (for example with onnxsim)")
        found = FOLDED[node.kind](self, node, self.constants[node.inputs[0]])
        self.constants[node.outputs[0]] = found
        return True


# --- constants -----------------------------------------------------------------------------------------------------
def _constant(node: Node) -> NDArray[Any]:
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    found = node.attributes.get("value")
    if isinstance(found, np.ndarray):
        return found
    for name, kind in kinds.items():
        if name in node.attributes:
            return np.asarray(node.attributes[name], kind)
    raise InputError("holds no numbers", "quantify reads constants of numbers")


def _fold_transpose(builder: Builder, node: Node, value: NDArray[Any]) -> NDArray[Any]:
    order = node.attributes.get("perm", list(range(value.ndim))[::-1])
    if sorted(order) != list(range(value.ndim)):
        raise InputError(f"has the permutation {order}", "export the model again")
    return np.ascontiguousarray(value.transpose(order))


def _fold_reshape(builder: Builder, node: Node, value: NDArray[Any]) -> NDArray[Any]:
    target = builder.constant(node, 1)
    wanted = [] if target is None else [int(size) for size in target.reshape(-1)]
    return value.reshape(sizes(wanted, value.shape, value.size))


def _fold_unsqueeze(builder: Builder, node: Node, value: NDArray[Any]) -> NDArray[Any]:
    axes = axes_of(builder, node, value.ndim + len(axis_list(builder, node)))
    return np.expand_dims(value, tuple(axes))


def _fold_squeeze(builder: Builder, node: Node, value: NDArray[Any]) -> NDArray[Any]:
    axes = axes_of(builder, node, value.ndim) or [axis for axis, size in enumerate(value.shape) if size == 1]
    if any(value.shape[axis] != 1 for axis in axes):
        raise InputError(f"takes axes {axes} out of {value.shape}", "export the model again")
    return np.squeeze(value, tuple(axes))


FOLDED: dict[str, Callable[[Builder, Node, NDArray[Any]], NDArray[Any]]] = {
    "Identity": lambda builder, node, value: value,
    "Transpose": _fold_transpose,
    "Reshape": _fold_reshape,
    "Unsqueeze": _fold_unsqueeze,
    "Squeeze": _fold_squeeze,
}


# --- attributes ----------------------------------------------------------------------------------------------------
def integers(node: Node, name: str, count: int, default: int, least: int) -> tuple[int, ...]:
    """An attribute of so many whole numbers, each at least `least`."""
    found = node.attributes.get(name)
    if found is None:
        return (default,) * count
    good = isinstance(found, list) and len(found) == count
    if not good or any(not isinstance(n, int) or not least <= n <= MAX_WIDTH for n in found):
        raise InputError(f"has {name} {printable(str(found))}", f"it must be {count} whole numbers of at least {least}")
    return tuple(found)


def number(node: Node, name: str, default: float) -> float:
    """A finite numeric attribute."""
    found = node.attributes.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise InputError(f"has {name} {printable(str(found))}", "it must be a number")
    return found


def axis_list(builder: Builder, node: Node) -> list[int]:
    """Axes as an attribute (before operator set 13) or as an input."""
    found = node.attributes.get("axes")
    if found is None and len(node.inputs) > 1:
        given = builder.constant(node, 1)
        found = None if given is None else [int(axis) for axis in given.reshape(-1)]
    return list(found or [])


def axes_of(builder: Builder, node: Node, rank: int) -> list[int]:
    """The axes named, counted from the front, ascending."""
    axes = [axis + rank if axis < 0 else axis for axis in axis_list(builder, node)]
    if len(set(axes)) != len(axes) or any(not 0 <= axis < rank for axis in axes):
        raise InputError(f"has axes {axes} of {rank}", "export the model again")
    return sorted(axes)


def geometry(node: Node, spatial: tuple[int, ...], window: tuple[int, ...]) -> tuple[Axis, ...]:
    """How the windows of a convolution or pooling node lie."""
    rank = len(spatial)
    strides = integers(node, "strides", rank, 1, 1)
    dilations = integers(node, "dilations", rank, 1, 1)
    pads = integers(node, "pads", 2 * rank, 0, 0)
    auto = node.attributes.get("auto_pad", "NOTSET")
    found = []
    for axis, sizes in enumerate(zip(spatial, window, strides, dilations, strict=True)):
        if auto == "NOTSET":
            found.append(Axis.padded(*sizes, before=pads[axis], after=pads[rank + axis]))
        elif auto == "VALID":
            found.append(Axis.padded(*sizes))
        elif auto in ("SAME_UPPER", "SAME_LOWER"):
            same = Axis.same(*sizes)
            reach = same.dilation * (same.window - 1) + 1
            total = max((same.outputs - 1) * same.stride + reach - same.size, 0)
            # The odd cell of padding goes after the last input, or before the first.
            found.append(same if auto == "SAME_UPPER" else replace(same, before=total - total // 2))
        else:
            raise InputError(f"has auto_pad {printable(str(auto))}", "export it with explicit pads")
    if node.attributes.get("ceil_mode"):
        for cells, size, before, after in zip(found, spatial, pads[:rank], pads[rank:], strict=True):
            reach = cells.dilation * (cells.window - 1) + 1
            if auto == "NOTSET" and (size + before + after - reach) % cells.stride:
                raise InputError("has windows that reach beyond the padding (ceil_mode)", "export it with ceil_mode=0")
    return tuple(found)


def sizes(target: list[int], shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The shape that a reshape gives: 0 copies a size, one −1 takes what is left."""
    if (
        any(n < -1 for n in target)
        or target.count(-1) > 1
        or any(n == 0 and i >= len(shape) for i, n in enumerate(target))
    ):
        raise InputError(f"asks for the shape {target[:8]}", "export it again")
    known = [shape[i] if n == 0 else n for i, n in enumerate(target)]
    rest = math.prod(n for n in known if n != -1)
    if (size % rest if -1 in known and rest else rest != size) or (-1 in known and not rest):
        raise InputError(f"makes {target[:8]} of {shape}", "export it again")
    return tuple(size // rest if n == -1 else n for n in known)

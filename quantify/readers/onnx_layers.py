"""An ONNX graph, node after node along one chain, to layers of a Network over the flattened input."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError
from quantify.ir.network import ActivationLayer, LinearLayer, Network, Rows
from quantify.readers.keras_layers import odd_part
from quantify.readers.onnx_builder import (
    CHAIN,
    Builder,
    Converter,
    axes_of,
    axis_list,
    geometry,
    integers,
    number,
    sizes,
)
from quantify.readers.onnx_file import Graph, Node
from quantify.readers.unpickle import printable
from quantify.readers.windows import Axis, check_size, convolution, members

MANY_CLASSES = 64
"""Most classes of a log-softmax: its rounding is then no more than a softmax's (`float_error`)."""


def network_of(graph: Graph) -> Network:
    """The network of a graph.

    Raises:
        InputError: A model that is not counted; the message names the node.
    """
    dtype: Literal["float32", "float64"] | None = None
    if graph.dtype == "float32":
        dtype = "float32"
    elif graph.dtype == "float64":
        dtype = "float64"
    elif np.dtype(graph.dtype).kind not in "iu":
        raise InputError(f"computes in {graph.dtype}", "quantify reads float32 and float64 networks")
    builder = Builder(graph, dtype, graph.shape, graph.input, dict(graph.constants))
    supported = ", ".join(sorted(CONVERTERS))
    for node in graph.nodes:
        if not node.outputs or not node.outputs[0]:
            raise InputError(f"{node} has no output", "export the model again")
        builder.add(node, CONVERTERS.get(node.kind), supported)
    if builder.current != graph.output:
        raise InputError(f"has the output {printable(graph.output)}, which its last node does not compute", CHAIN)
    if builder.order is not None:
        width = builder.width
        places = np.arange(width, dtype=np.int64)
        rows = Rows(width, np.arange(width + 1, dtype=np.int64), builder.order[places], np.ones(width, builder.kind))
        builder.layers.append(LinearLayer(rows, np.zeros(width, builder.kind), origin="transposition"))
    scores = builder.width
    if not builder.layers:
        raise InputError("has no node that computes anything", CHAIN)
    if max(builder.shape, default=1) != scores:
        raise InputError(f"has outputs of shape {builder.shape}", "quantify reads classifiers: one vector of scores")
    return Network(
        inputs=math.prod(graph.shape),
        layers=tuple(builder.layers),
        outputs=scores,
        dtype=builder.kind,
        head="sigmoid" if builder.squash == "sigmoid" and scores == 1 and not builder.label else "order",
        squash=builder.squash,
    )


# --- linear layers -------------------------------------------------------------------------------------------------
def _channels_first(rows: Rows, positions_in: int, channels: int, positions_out: int, filters: int) -> Rows:
    """Rows over (channel, position) from rows over (position, channel), on both sides."""
    columns = rows.columns % channels * positions_in + rows.columns // channels
    source = np.arange(positions_out * filters, dtype=np.int64).reshape(positions_out, filters).T.reshape(-1)
    counts = np.diff(rows.start)[source]
    start = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
    # Element k of new row i is element k of its source row.
    within = np.arange(start[-1], dtype=np.int64) - np.repeat(start[:-1], counts)
    picked = np.repeat(rows.start[:-1][source], counts) + within
    return Rows(rows.inputs, start, columns[picked], rows.values[picked])


def _conv(builder: Builder, node: Node) -> None:
    channels, spatial = builder.spatial(node)
    kernel = builder.floats(node, 1)
    groups = int(number(node, "group", 1))
    if (
        kernel.ndim != len(spatial) + 2
        or groups < 1
        or channels != kernel.shape[1] * groups
        or kernel.shape[0] % groups
    ):
        raise InputError(f"has weights of shape {kernel.shape} for values of shape {builder.shape}", "export it again")
    filters, group, *window = kernel.shape
    if integers(node, "kernel_shape", len(window), 0, 1) not in (tuple(window), (0,) * len(window)):
        raise InputError("has a kernel_shape that is not that of its weights", "export it again")
    axes = geometry(node, spatial, tuple(window))
    cells = np.ascontiguousarray(kernel.reshape(filters, group, -1).transpose(2, 1, 0))
    shape = (filters, *(axis.outputs for axis in axes))
    rows = convolution(axes, cells, groups)
    rows = _channels_first(rows, math.prod(spatial), channels, math.prod(shape[1:]), filters)
    bias = builder.floats(node, 2) if len(node.inputs) > 2 else np.zeros(filters, builder.kind)
    if bias.shape != (filters,):
        raise InputError(f"has a bias of shape {bias.shape}", "export it again")
    builder.linear(node, rows, np.repeat(bias, math.prod(shape[1:])), shape)


def _dense(builder: Builder, node: Node, matrix: NDArray[Any], bias: NDArray[Any]) -> None:
    """y = x·matrix + bias along the last axis."""
    *others, inputs = builder.shape
    if matrix.ndim != 2 or matrix.shape[0] != inputs:
        raise InputError(f"has weights of shape {matrix.shape} for values of shape {builder.shape}", "export it again")
    repeats = math.prod(others)
    check_size(repeats * matrix.size)
    rows = convolution((Axis.padded(repeats, 1),), np.ascontiguousarray(matrix)[None])
    units = matrix.shape[1]
    try:
        spread = np.broadcast_to(bias, (*others, units)).reshape(-1)
    except ValueError:
        raise InputError(f"has a bias of shape {bias.shape}", "export it again") from None
    builder.linear(node, rows, np.ascontiguousarray(spread), (*others, units))


def _gemm(builder: Builder, node: Node) -> None:
    if number(node, "alpha", 1.0) != 1 or (number(node, "beta", 1.0) != 1 and len(node.inputs) > 2):
        raise InputError("has an alpha or beta other than 1", "fold it into the weights")
    if node.inputs[0] != builder.current or node.attributes.get("transA") or len(builder.shape) != 1:
        raise InputError("multiplies from the left", "quantify reads input·weights")
    matrix = builder.floats(node, 1)
    if node.attributes.get("transB") and matrix.ndim == 2:
        matrix = matrix.T
    bias = builder.floats(node, 2) if len(node.inputs) > 2 else np.zeros(1, builder.kind)
    _dense(builder, node, matrix, bias.reshape(-1) if bias.ndim == 2 and bias.shape[0] == 1 else bias)


def _matmul(builder: Builder, node: Node) -> None:
    if node.inputs[0] != builder.current:
        raise InputError("multiplies from the left", "quantify reads input·weights")
    _dense(builder, node, builder.floats(node, 1), np.zeros(1, builder.kind))


def _operand(builder: Builder, node: Node) -> tuple[NDArray[Any], bool]:
    """The constant of an elementwise operator, in the current shape, and whether it is the first operand."""
    first = node.inputs[0] != builder.current
    value = builder.floats(node, 0 if first else 1)
    shape = (1, *builder.shape)
    try:
        fits = np.broadcast_shapes(value.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise InputError(
            f"has a constant of shape {value.shape} for values of shape {builder.shape}", "export it again"
        )
    return np.broadcast_to(value, shape)[0], first


def _add(builder: Builder, node: Node) -> None:
    value, _ = _operand(builder, node)
    last = builder.layers[-1] if builder.layers else None
    if (
        isinstance(last, LinearLayer)
        and last.origin.startswith("MatMul")
        and not last.bias.any()
        and builder.order is None
    ):
        # A bias of its own: the layer's sums take it in, in whatever order they are made.
        builder.layers[-1] = replace(last, bias=np.ascontiguousarray(value).reshape(-1))
        return
    builder.diagonal(node, np.ones((), builder.kind), value)


def _sub(builder: Builder, node: Node) -> None:
    value, first = _operand(builder, node)
    one = np.ones((), builder.kind)
    builder.diagonal(node, -one if first else one, value if first else -value)


def _mul(builder: Builder, node: Node) -> None:
    value, _ = _operand(builder, node)
    builder.diagonal(node, value, np.zeros((), builder.kind))


def _div(builder: Builder, node: Node) -> None:
    value, first = _operand(builder, node)
    if first or not value.all():
        raise InputError("divides by the network's value or by zero", "quantify reads division by constants")
    # The quotient is exact: by the odd part, times a power of two.
    factor, divisor = odd_part(np.abs(value))
    if not np.isfinite(factor).all() or not factor.all():
        raise InputError("divides by a constant out of range", "rescale the model's inputs")
    builder.diagonal(node, np.copysign(factor, value), np.zeros((), builder.kind), divisor)


def _batch_normalization(builder: Builder, node: Node) -> None:
    """x·factor + (bias − mean·factor), factor = scale/√(variance + ε), in the arithmetic's type, as ONNX Runtime."""
    if node.attributes.get("training_mode") or not node.attributes.get("spatial", 1):
        raise InputError("is in training mode", "export the model for inference")
    scale, bias, mean, variance = (builder.floats(node, place) for place in range(1, 5))
    if any(part.shape != builder.shape[:1] for part in (scale, bias, mean, variance)):
        raise InputError(f"has constants of shape {scale.shape} for values of shape {builder.shape}", "export it again")
    kind = np.dtype(builder.kind).type
    with np.errstate(all="ignore"):
        inverse = kind(1) / np.sqrt(variance + kind(number(node, "epsilon", 1e-5))) * scale
        offset = bias - mean * inverse
        derived = np.abs(bias) + np.abs(mean * inverse)

    def along(part: NDArray[Any]) -> NDArray[Any]:
        return part.reshape(-1, *(1,) * (len(builder.shape) - 1))

    builder.diagonal(node, along(inverse), along(offset), derived=along(derived))


# --- pooling -------------------------------------------------------------------------------------------------------
def _windows(axes: tuple[Axis, ...], channels: int) -> NDArray[np.int64]:
    """(channel·position × window cells) places over (channel, position), −1 in the padding."""
    one = members(axes, 1)
    check_size(one.size * channels)
    size = math.prod(axis.size for axis in axes)
    offsets = np.arange(channels, dtype=np.int64)[:, None, None] * size
    return np.where(one[None] < 0, -1, one[None] + offsets).reshape(-1, one.shape[1])


def _pool_axes(builder: Builder, node: Node) -> tuple[tuple[Axis, ...], int]:
    channels, spatial = builder.spatial(node)
    if node.kind.startswith("Global"):
        return tuple(Axis.padded(size, size) for size in spatial), channels
    window = integers(node, "kernel_shape", len(spatial), 0, 1)
    if min(window) < 1:
        raise InputError("has no kernel_shape", "export it again")
    return geometry(node, spatial, window), channels


def _max_pool(builder: Builder, node: Node) -> None:
    if len(node.outputs) > 1 or node.attributes.get("storage_order"):
        raise InputError("gives places as well", "quantify reads the maximum alone")
    axes, channels = _pool_axes(builder, node)
    windows = _windows(axes, channels)
    if (windows < 0).all(axis=1).any():
        raise InputError("has windows in the padding alone", "export it with less padding")
    builder.pool(node, windows, (channels, *(axis.outputs for axis in axes)))


def _average_pool(builder: Builder, node: Node) -> None:
    axes, channels = _pool_axes(builder, node)
    windows = _windows(axes, channels)
    present = windows >= 0
    counts = present.sum(axis=1, dtype=np.int64)
    if not counts.all():
        raise InputError("has windows in the padding alone", "export it with less padding")
    start = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
    columns = windows[present]
    rows = Rows(builder.width, start, columns, np.ones(len(columns), builder.kind))
    padding = node.attributes.get("count_include_pad", 0) == 1
    divisor = np.full(len(counts), windows.shape[1], np.int64) if padding else counts
    builder.append(LinearLayer(builder.placed(rows), np.zeros(len(counts), builder.kind), divisor, str(node)))
    builder.shape, builder.order = (channels, *(axis.outputs for axis in axes)), None


def _reduce_mean(builder: Builder, node: Node) -> None:
    rank = len(builder.shape) + 1
    axes = axes_of(builder, node, rank)
    if len(builder.shape) < 2 or axes != list(range(2, rank)):
        raise InputError(f"is over axes {axes}", "quantify reads the mean over all axes after the channels")
    _average_pool(builder, replace(node, kind="GlobalAveragePool", attributes={}))
    if not node.attributes.get("keepdims", 1):
        builder.shape = builder.shape[:1]


# --- shapes --------------------------------------------------------------------------------------------------------
def _reshape(builder: Builder, node: Node) -> None:
    found = builder.constant(node, 1)
    target = [] if found is None else [int(size) for size in found.reshape(-1)]
    if not target or len(target) > 8:
        raise InputError("has no fixed shape", "export it with a constant shape")
    # The batch: copied, left over, or one input.
    if target[0] not in (-1, 0, 1):
        raise InputError(f"mixes the inputs of a batch ({target})", "export it with a free batch axis")
    builder.shape = sizes([1, *target[1:]], (1, *builder.shape), builder.width)[1:]


def _flatten(builder: Builder, node: Node) -> None:
    axis = int(number(node, "axis", 1))
    if axis not in (1, -len(builder.shape)):
        raise InputError(f"flattens from axis {axis}", "quantify reads it from axis 1, the batch staying")
    builder.shape = (builder.width,)


def _transpose(builder: Builder, node: Node) -> None:
    rank = len(builder.shape) + 1
    order = node.attributes.get("perm", list(range(rank))[::-1])
    if sorted(order) != list(range(rank)) or order[0] != 0:
        raise InputError(
            f"has the permutation {printable(str(order))}", "quantify reads it with the batch staying first"
        )
    places = np.arange(builder.width, dtype=np.int64) if builder.order is None else builder.order
    moved = places.reshape(builder.shape).transpose([axis - 1 for axis in order[1:]])
    builder.shape, builder.order = moved.shape, np.ascontiguousarray(moved).reshape(-1)
    if (builder.order == np.arange(builder.width)).all():
        builder.order = None


def _squeeze(builder: Builder, node: Node) -> None:
    shape = (1, *builder.shape)
    axes = axes_of(builder, node, len(shape))
    if not axes or 0 in axes or any(shape[axis] != 1 for axis in axes):
        raise InputError(
            f"takes axes {axes} out of {builder.shape}", "export it with the axes named, the batch staying"
        )
    builder.shape = tuple(size for axis, size in enumerate(shape) if axis not in axes)[1:]


def _unsqueeze(builder: Builder, node: Node) -> None:
    count = len(axis_list(builder, node))
    axes = axes_of(builder, node, len(builder.shape) + 1 + count)
    if 0 in axes:
        raise InputError("puts an axis before the batch", "export it with the batch first")
    sizes = iter(builder.shape)
    builder.shape = tuple(1 if axis in axes else next(sizes) for axis in range(1, len(builder.shape) + 1 + count))


def _ignored(builder: Builder, node: Node) -> None:
    """Nodes that do nothing when predicting."""


def _dropout(builder: Builder, node: Node) -> None:
    training = builder.constant(node, 2)
    if training is not None and training.any():
        raise InputError("is in training mode", "export the model for inference")


def _cast(builder: Builder, node: Node) -> None:
    target = {1: "float32", 11: "float64"}.get(int(number(node, "to", 0)))
    if target is None and not (builder.label or builder.dtype is None):
        raise InputError("rounds the network's values", "quantify reads float32 and float64 networks")
    if target == builder.dtype or builder.label:
        return
    if builder.layers or target is None:
        raise InputError("changes the type on the way", "save the model in one type")
    builder.dtype = "float32" if target == "float32" else "float64"


# --- activations ---------------------------------------------------------------------------------------------------
def _relu(builder: Builder, node: Node) -> None:
    builder.append(ActivationLayer("relu", origin=str(node)))


def _clip(builder: Builder, node: Node) -> None:
    bounds: list[float | None] = []
    for place, name in ((1, "min"), (2, "max")):
        if len(node.inputs) > place and node.inputs[place]:
            value = builder.floats(node, place)
            bounds.append(float(value.reshape(-1)[0]) if value.size == 1 else math.nan)
        elif name in node.attributes:
            limit = number(node, name, 0.0)
            # The default of operator sets before 11: no bound at all.
            bounds.append(None if abs(limit) >= float(np.finfo(np.float32).max) else limit)
        else:
            bounds.append(None)
    low, high = bounds
    if low != 0 or (high is not None and not high >= 0):
        raise InputError(f"is from {low} to {high}", "quantify reads Clip from 0, with or without an upper end")
    builder.append(ActivationLayer("relu", None if high is None else Fraction(high), origin=str(node)))


def _leaky(builder: Builder, node: Node) -> None:
    slope = Fraction(float(np.float32(number(node, "alpha", 0.01))))
    if not 0 <= slope <= 1:
        raise InputError(f"has the slope {float(slope)}", "quantify reads slopes from 0 to 1")
    builder.append(ActivationLayer("leaky", slope=slope, origin=str(node)))


def _sign(builder: Builder, node: Node) -> None:
    builder.append(ActivationLayer("sign", sign_of_zero=0, origin=str(node)))


def _last_axis(builder: Builder, node: Node, default: int) -> None:
    rank = len(builder.shape) + 1
    axis = int(number(node, "axis", default))
    axis = axis + rank if axis < 0 else axis
    # Over all values of one input, those before the axis being one.
    flattens = node.kind != "ArgMax" and builder.graph.opset < 13
    span = math.prod(builder.shape[axis - 1 :]) if flattens else builder.shape[axis - 1] if 1 <= axis < rank else 0
    if not 1 <= axis < rank or span != builder.width:
        raise InputError(f"is over parts of {builder.shape}", "quantify reads it over all outputs")


def _end(builder: Builder, squash: Literal["softmax", "sigmoid"]) -> None:
    if builder.squash != "none":
        raise InputError(f"follows a {builder.squash}", "quantify reads one softmax or sigmoid at the end of a network")
    builder.squash = squash


def _softmax(builder: Builder, node: Node) -> None:
    _last_axis(builder, node, 1 if builder.graph.opset < 13 else -1)
    if node.kind == "LogSoftmax" and builder.width > MANY_CLASSES:
        raise InputError(f"is over {builder.width} classes", f"quantify reads up to {MANY_CLASSES}, or a Softmax")
    _end(builder, "softmax")


def _sigmoid(builder: Builder, node: Node) -> None:
    _end(builder, "sigmoid")


def _argmax(builder: Builder, node: Node) -> None:
    if node.attributes.get("select_last_index"):
        raise InputError("prefers the last of equal scores", "export it with select_last_index=0")
    _last_axis(builder, node, 0)
    builder.label = True


CONVERTERS: dict[str, Converter] = {
    "Add": _add,
    "ArgMax": _argmax,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "Clip": _clip,
    "Constant": _ignored,
    "Conv": _conv,
    "Div": _div,
    "Dropout": _dropout,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "GlobalAveragePool": _average_pool,
    "GlobalMaxPool": _max_pool,
    "Identity": _ignored,
    "LeakyRelu": _leaky,
    "LogSoftmax": _softmax,
    "MatMul": _matmul,
    "MaxPool": _max_pool,
    "Mul": _mul,
    "ReduceMean": _reduce_mean,
    "Relu": _relu,
    "Reshape": _reshape,
    "Sigmoid": _sigmoid,
    "Sign": _sign,
    "Softmax": _softmax,
    "Squeeze": _squeeze,
    "Sub": _sub,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}

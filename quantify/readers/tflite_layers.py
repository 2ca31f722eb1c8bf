"""The operators of a full-integer TensorFlow Lite graph, one after the other, to layers of a Network over int8 values.

Zero points are folded into biases: Σ w·(q − zero) + b = Σ w·q + (b − zero·Σ w), padding being left out of both sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError
from quantify.ir.network import Layer, LinearLayer, MaxPoolLayer, RequantiseLayer, Rows
from quantify.readers.tflite_arithmetic import (
    fixed_point,
    mean_multiplier,
    quotient_multiplier,
    rounded_multiplier,
    softmax_keeps_order,
)
from quantify.readers.tflite_file import CONVERT_AGAIN, Graph, Operator, Tensor
from quantify.readers.windows import Axis, convolution, depthwise, members

LOW, HIGH = -128, 127
SAME, VALID = 0, 1
LEAST_STEP = 0.02
"""Least scale of a sigmoid's scores."""
FULL_INTEGER = (
    "convert it with a representative data set, target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]"
)
SHAPES = frozenset({"SHAPE", "STRIDED_SLICE", "PACK"})
"""Operators that only compute the shape that a reshape asks for."""


@dataclass
class Builder:
    """The network so far, and the tensor that holds its result."""

    graph: Graph
    current: int
    layers: list[Layer] = field(default_factory=list)
    squash: Literal["none", "softmax", "sigmoid"] = "none"

    def add(self, operator: Operator) -> None:
        """Append one operator.

        Raises:
            InputError: Not supported, or not what its tensors say; the message names it.
        """
        convert = CONVERTERS.get(operator.kind)
        if convert is None:
            known = ", ".join(sorted(CONVERTERS))
            raise InputError(f"{operator} is not supported", f"quantify reads {known} in int8")
        if self.squash != "none" and operator.kind not in ENDS:
            raise InputError(f"{operator} follows a {self.squash}", f"quantify reads a {self.squash} at the end only")
        if not operator.inputs or operator.inputs[0] != self.current or len(operator.outputs) != 1:
            raise InputError(f"{operator} does not follow the one before it", "quantify reads chains of operators")
        try:
            convert(self, operator)
        except InputError as error:
            raise type(error)(f"{operator} {error.message}", error.hint) from None
        self.current = operator.outputs[0]

    @property
    def width(self) -> int:
        """Values between this operator and the next."""
        return math.prod(self.graph.tensors[self.current].shape)

    def input(self, rank: int | None = None) -> Tensor:
        """The current tensor, which must be int8 and, if said, of this rank."""
        return self._checked(self.current, rank)

    def without_zero_point(self, zero: int) -> None:
        """Take the zero point off the last values, so that scores are multiples of their scale."""
        last = self.layers[-1]
        if isinstance(last, RequantiseLayer) and last.zero_point == zero:
            self.layers[-1] = replace(last, zero_point=0, low=last.low - zero, high=last.high - zero)
        elif zero:
            width = self.width
            self.layers.append(LinearLayer(_identity(width), np.full(width, -zero, np.int64), origin="zero point"))

    def output(self, operator: Operator, shape: tuple[int, ...]) -> Tensor:
        """The operator's result, which must hold int8 values of this shape, axes of one value aside."""
        found = self._checked(operator.outputs[0], None)
        if [size for size in found.shape if size != 1] != [size for size in shape if size != 1]:
            raise InputError(f"gives {found} the shape {found.shape}, not {shape}", CONVERT_AGAIN)
        return found

    def constant(self, operator: Operator, place: int, kind: str) -> Tensor:
        """The constant at this place of the operator's inputs."""
        index = operator.inputs[place] if place < len(operator.inputs) else -1
        if index < 0 or self.graph.tensors[index].values is None:
            raise InputError(f"has no constant as input {place}", "quantify reads fixed weights only")
        found = self.graph.tensors[index]
        if found.type != kind:
            raise InputError(f"has {found.type} constants", f"quantify reads {kind} there: {FULL_INTEGER}")
        return found

    def _checked(self, index: int, rank: int | None) -> Tensor:
        found = self.graph.tensors[index]
        if found.type != "int8":
            raise InputError(f"has {found} in {found.type}", f"quantify reads int8 models: {FULL_INTEGER}")
        scale_of(found)
        if not LOW <= int(found.zero_points[0]) <= HIGH:
            raise InputError(f"has the zero point {found.zero_points[0]}", CONVERT_AGAIN)
        if rank is not None and (len(found.shape) != rank or found.shape[0] != 1):
            raise InputError(f"gets values of shape {found.shape}", f"it needs one input of {rank} axes")
        return found


def scale_of(tensor: Tensor) -> float:
    """The one scale of a tensor, a float32."""
    if len(tensor.scales) != 1:
        raise InputError(
            f"has {tensor} with {len(tensor.scales)} scales", f"quantify reads int8 models: {FULL_INTEGER}"
        )
    scale = float(tensor.scales[0])
    if not (math.isfinite(scale) and scale > 0):
        raise InputError(f"has {tensor} with the scale {scale}", CONVERT_AGAIN)
    return scale


def zero_of(tensor: Tensor) -> int:
    """The zero point of a tensor."""
    return int(tensor.zero_points[0])


def _range(activation: int, output: Tensor) -> tuple[int, int]:
    """Least and greatest output of a fused activation (kernel_util.cc, `CalculateActivationRangeQuantized`)."""
    scale, zero = np.float32(scale_of(output)), zero_of(output)

    def quantised(value: float) -> int:
        with np.errstate(over="ignore"):
            steps = float(np.float32(value) / scale)
        # std::round of a float32; far outside the range it makes no difference.
        return zero + int(math.copysign(math.floor(min(abs(steps), 1e6) + 0.5), steps))

    if activation == 0:
        return LOW, HIGH
    if activation == 1:
        return max(LOW, quantised(0.0)), HIGH
    if activation == 2:
        return max(LOW, quantised(-1.0)), min(HIGH, quantised(1.0))
    if activation == 3:
        return max(LOW, quantised(0.0)), min(HIGH, quantised(6.0))
    raise InputError(f"has the fused activation {activation}", "quantify reads RELU, RELU6 and RELU_N1_TO_1")


def _identity(width: int) -> Rows:
    places = np.arange(width, dtype=np.int64)
    return Rows(width, np.arange(width + 1, dtype=np.int64), places, np.ones(width, np.int64))


# --- layers with weights -------------------------------------------------------------------------------------------
def _weighted(
    builder: Builder, operator: Operator, rows: Rows, channels: int, activation: int, shape: tuple[int, ...]
) -> None:
    """A linear layer and its rescaling; outputs have their channel last."""
    given, weights = builder.input(), builder.graph.tensors[operator.inputs[1]]
    output = builder.output(operator, shape)
    bias = np.zeros(channels, np.int64)
    if len(operator.inputs) > 2 and operator.inputs[2] >= 0:
        found = builder.constant(operator, 2, "int32").values
        assert found is not None
        if found.shape != (channels,):
            raise InputError(f"has a bias of shape {found.shape}, not ({channels},)", CONVERT_AGAIN)
        bias = found.astype(np.int64)
    repeats = math.prod(shape) // channels
    sums = np.add.reduceat(np.append(rows.values, 0), rows.start[:-1]) * (np.diff(rows.start) > 0)
    folded = np.tile(bias, repeats) - zero_of(given) * sums
    low, high = _range(activation, output)
    reals = [scale_of(given) * float(scale) / scale_of(output) for scale in weights.scales]
    rounding: Literal["double", "single"] = "double"
    if operator.kind == "FULLY_CONNECTED":
        rounding = "single"
        most = _most(rows, folded)
        multipliers = [rounded_multiplier(real, low - zero_of(output), high - zero_of(output), most) for real in reals]
    else:
        multipliers = [fixed_point(real) for real in reals]
    multiplier, shift = (np.array(part, np.int64) for part in zip(*multipliers, strict=True))
    each = repeats if len(multipliers) == channels else repeats * channels
    builder.layers.append(LinearLayer(rows, folded, origin=str(operator)))
    builder.layers.append(
        RequantiseLayer(
            np.tile(multiplier, each), np.tile(shift, each), zero_of(output), low, high, rounding, str(operator)
        )
    )


def _most(rows: Rows, bias: NDArray[np.int64]) -> int:
    """Largest size that a sum over int8 values may have."""
    weights = np.add.reduceat(np.append(np.abs(rows.values), 0), rows.start[:-1]) * (np.diff(rows.start) > 0)
    return int((128 * weights + np.abs(bias)).max(initial=1))


def _weights(builder: Builder, operator: Operator, rank: int, axis: int, channels: int | None) -> NDArray[np.int64]:
    found = builder.constant(operator, 1, "int8")
    assert found.values is not None
    if len(found.shape) != rank:
        raise InputError(f"has weights of shape {found.shape}", CONVERT_AGAIN)
    count = found.shape[axis] if channels is None else channels
    if len(found.scales) not in (1, count) or (len(found.scales) > 1 and found.axis != axis):
        raise InputError(f"has {len(found.scales)} scales for {count} channels", CONVERT_AGAIN)
    zeros = found.zero_points
    if len(found.scales) > 1 and zeros.any():
        raise InputError("has weights with zero points", CONVERT_AGAIN)
    if zeros[0] and operator.kind != "FULLY_CONNECTED":
        raise InputError("has weights with a zero point", CONVERT_AGAIN)
    return found.values.astype(np.int64) - int(zeros[0])


def _axes(
    operator: Operator, spatial: tuple[int, ...], window: tuple[int, ...], strides: list[int], dilations: list[int]
) -> tuple[Axis, ...]:
    padding = operator.number(0, "int8")
    if padding not in (SAME, VALID) or min(strides) < 1 or min(dilations) < 1 or min(window) < 1:
        raise InputError("has a geometry that makes no sense", CONVERT_AGAIN)
    make = Axis.same if padding == SAME else Axis.padded
    return tuple(make(*sizes) for sizes in zip(spatial, window, strides, dilations, strict=True))


def _convolution(builder: Builder, operator: Operator) -> None:
    _, height, width, channels = builder.input(4).shape
    kernel = _weights(builder, operator, 4, 0, None)
    filters, rows, columns, group = kernel.shape
    if group < 1 or channels % group or filters % (channels // group):
        raise InputError(f"has weights of shape {kernel.shape} for {channels} channels", CONVERT_AGAIN)
    axes = _axes(
        operator, (height, width), (rows, columns),
        [operator.number(2, "int32"), operator.number(1, "int32")],
        [operator.number(5, "int32", 1), operator.number(4, "int32", 1)],
    )  # fmt: skip
    cells = np.ascontiguousarray(np.moveaxis(kernel, 0, -1)).reshape(rows * columns, group, filters)
    shape = (1, *(axis.outputs for axis in axes), filters)
    found = convolution(axes, cells, channels // group)
    _weighted(builder, operator, found, filters, operator.number(3, "int8"), shape)


def _depthwise(builder: Builder, operator: Operator) -> None:
    _, height, width, channels = builder.input(4).shape
    kernel = _weights(builder, operator, 4, 3, None)
    one, rows, columns, outputs = kernel.shape
    if one != 1 or channels < 1 or outputs % channels:
        raise InputError(f"has weights of shape {kernel.shape} for {channels} channels", CONVERT_AGAIN)
    axes = _axes(
        operator, (height, width), (rows, columns),
        [operator.number(2, "int32"), operator.number(1, "int32")],
        [operator.number(6, "int32", 1), operator.number(5, "int32", 1)],
    )  # fmt: skip
    shape = (1, *(axis.outputs for axis in axes), outputs)
    # Output channel c·multiplier + m reads input channel c.
    found = depthwise(axes, kernel.reshape(rows * columns, channels, outputs // channels))
    _weighted(builder, operator, found, outputs, operator.number(4, "int8"), shape)


def _fully_connected(builder: Builder, operator: Operator) -> None:
    given = builder.input()
    kernel = _weights(builder, operator, 2, 0, None)
    units, inputs = kernel.shape
    if operator.number(1, "int8"):
        raise InputError("has shuffled weights", CONVERT_AGAIN)
    size = math.prod(given.shape)
    if inputs < 1 or size % inputs:
        raise InputError(f"has weights of shape {kernel.shape} for {size} values", CONVERT_AGAIN)
    repeats = size // inputs
    rows = convolution((Axis.padded(repeats, 1),), np.ascontiguousarray(kernel.T)[None])
    _weighted(builder, operator, rows, units, operator.number(0, "int8"), (repeats, units))


# --- pooling -------------------------------------------------------------------------------------------------------
def _pool(kind: Literal["max", "average"]) -> Callable[[Builder, Operator], None]:
    def convert(builder: Builder, operator: Operator) -> None:
        _, height, width, channels = builder.input(4).shape
        axes = _axes(
            operator, (height, width), (operator.number(4, "int32"), operator.number(3, "int32")),
            [operator.number(2, "int32"), operator.number(1, "int32")], [1, 1],
        )  # fmt: skip
        windows = members(axes, channels)
        output = _same_scale(builder, operator, (1, *(axis.outputs for axis in axes), channels))
        low, high = _range(operator.number(5, "int8"), output)
        if kind == "max":
            builder.layers.append(MaxPoolLayer(builder.width, windows, str(operator)))
            if (low, high) != (LOW, HIGH):
                _clamp(builder, operator, len(windows), low, high)
            return
        present = windows >= 0
        counts = present.sum(axis=1, dtype=np.int64)
        start = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
        rows = Rows(builder.width, start, windows[present], np.ones(int(start[-1]), np.int64))
        pairs = [quotient_multiplier(int(count)) for count in counts]
        multiplier, shift = (np.array(part, np.int64) for part in zip(*pairs, strict=True))
        builder.layers.append(LinearLayer(rows, np.zeros(len(windows), np.int64), origin=str(operator)))
        # pooling.h, AveragePool: the sum and half the count, by the count, truncated: halves away from zero.
        builder.layers.append(RequantiseLayer(multiplier, shift, 0, low, high, "single", str(operator)))

    return convert


def _same_scale(builder: Builder, operator: Operator, shape: tuple[int, ...]) -> Tensor:
    given, output = builder.input(), builder.output(operator, shape)
    if scale_of(given) != scale_of(output) or zero_of(given) != zero_of(output):
        raise InputError("changes the scale", CONVERT_AGAIN)
    return output


def _clamp(builder: Builder, operator: Operator, width: int, low: int, high: int) -> None:
    # 2^30·2^(1 − 31) is 1, exactly.
    one, shift = np.full(width, 1 << 30, np.int64), np.full(width, 1, np.int64)
    builder.layers.append(LinearLayer(_identity(width), np.zeros(width, np.int64), origin=str(operator)))
    builder.layers.append(RequantiseLayer(one, shift, 0, low, high, "double", str(operator)))


def _mean(builder: Builder, operator: Operator) -> None:
    given = builder.input(4)
    _, height, width, channels = given.shape
    axes = builder.constant(operator, 1, "int32").values
    assert axes is not None
    if sorted(int(axis) % 4 for axis in axes.reshape(-1)) != [1, 2]:
        raise InputError("is not over height and width", "quantify reads it there: global average pooling")
    output = builder.output(operator, (channels,))
    windows = members((Axis.padded(height, height), Axis.padded(width, width)), channels)
    count = height * width
    start = np.arange(channels + 1, dtype=np.int64) * count
    rows = Rows(builder.width, start, windows.reshape(-1), np.ones(windows.size, np.int64))
    multiplier, shift = mean_multiplier(scale_of(given) / scale_of(output), count)
    bias = np.full(channels, -zero_of(given) * count, np.int64)
    builder.layers.append(LinearLayer(rows, bias, origin=str(operator)))
    _rescale(builder, operator, channels, (multiplier, shift), output, 0)


def _rescale(
    builder: Builder, operator: Operator, width: int, by: tuple[int, int], output: Tensor, activation: int
) -> None:
    low, high = _range(activation, output)
    multiplier, shift = (np.full(width, part, np.int64) for part in by)
    builder.layers.append(RequantiseLayer(multiplier, shift, zero_of(output), low, high, "double", str(operator)))


# --- the rest ------------------------------------------------------------------------------------------------------
def _pad(builder: Builder, operator: Operator) -> None:
    given = builder.input()
    found = builder.constant(operator, 1, "int32")
    assert found.values is not None
    if found.shape != (len(given.shape), 2) or (found.values.astype(np.int64) < 0).any():
        raise InputError(f"has paddings of shape {found.shape}", CONVERT_AGAIN)
    pairs = found.values.astype(np.int64).tolist()
    axes = tuple(Axis.padded(size, 1, 1, 1, *pair) for size, pair in zip(given.shape, pairs, strict=True))
    _same_scale(builder, operator, tuple(axis.outputs for axis in axes))
    windows = members(axes, 1)[:, 0]
    present = windows >= 0
    start = np.concatenate([np.zeros(1, np.int64), present.cumsum(dtype=np.int64)])
    rows = Rows(builder.width, start, windows[present], np.ones(int(start[-1]), np.int64))
    builder.layers.append(LinearLayer(rows, np.where(present, 0, zero_of(given)), origin=str(operator)))


def _reshape(builder: Builder, operator: Operator) -> None:
    # Values stay in their order; the file holds the shape that any second input would compute.
    given = builder.input()
    output = builder.graph.tensors[operator.outputs[0]]
    if math.prod(given.shape) != math.prod(output.shape):
        raise InputError(f"makes {output.shape} of {given.shape}", CONVERT_AGAIN)
    _same_scale(builder, operator, output.shape)


def _relu(activation: int) -> Callable[[Builder, Operator], None]:
    def convert(builder: Builder, operator: Operator) -> None:
        given = builder.input()
        output = builder.output(operator, given.shape)
        width = builder.width
        bias = np.full(width, -zero_of(given), np.int64)
        builder.layers.append(LinearLayer(_identity(width), bias, origin=str(operator)))
        _rescale(builder, operator, width, fixed_point(scale_of(given) / scale_of(output)), output, activation)

    return convert


def _softmax(builder: Builder, operator: Operator) -> None:
    given = builder.input()
    output = builder.output(operator, given.shape)
    classes = given.shape[-1] if given.shape else 0
    if classes != math.prod(given.shape):
        raise InputError(f"is over parts of {given.shape}", "quantify reads a softmax over all outputs")
    if scale_of(output) != 1 / 256 or zero_of(output) != LOW:
        raise InputError("has outputs in another scale than 1/256", CONVERT_AGAIN)
    if not softmax_keeps_order(scale_of(given), operator.real(0), classes):
        raise InputError(
            f"over {classes} classes in steps of {scale_of(given):.3g} can give unequal scores equal int8 outputs",
            "convert the model without its softmax: the label is that of the largest score",
        )
    builder.squash = "softmax"


def _logistic(builder: Builder, operator: Operator) -> None:
    """A probability of at least 1/2, as int8, is a score of at least 0 where one step of scores is visible in it.

    A step below 0 gives 128 − 64·scale of 256 or less: below 127.5 by more than the kernel's table may be off.
    """
    given = builder.input()
    output = builder.output(operator, given.shape)
    if math.prod(given.shape) != 1:
        raise InputError(f"is over values of shape {given.shape}", "quantify reads a sigmoid of one score")
    if scale_of(output) != 1 / 256 or zero_of(output) != LOW:
        raise InputError("has outputs in another scale than 1/256", CONVERT_AGAIN)
    if scale_of(given) < LEAST_STEP:
        raise InputError(f"reads scores in steps of {scale_of(given):.3g}", "convert the model without its sigmoid")
    builder.squash = "sigmoid"


def _quantize(builder: Builder, operator: Operator) -> None:
    output = builder.output(operator, builder.graph.tensors[builder.current].shape)
    given = builder.input()
    width = builder.width
    bias = np.full(width, -zero_of(given), np.int64)
    builder.layers.append(LinearLayer(_identity(width), bias, origin=str(operator)))
    _rescale(builder, operator, width, fixed_point(scale_of(given) / scale_of(output)), output, 0)


ENDS = frozenset({"RESHAPE"})
CONVERTERS: dict[str, Callable[[Builder, Operator], None]] = {
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _fully_connected,
    "MAX_POOL_2D": _pool("max"),
    "AVERAGE_POOL_2D": _pool("average"),
    "MEAN": _mean,
    "PAD": _pad,
    "RESHAPE": _reshape,
    "SQUEEZE": _reshape,
    "EXPAND_DIMS": _reshape,
    "RELU": _relu(1),
    "RELU_N1_TO_1": _relu(2),
    "RELU6": _relu(3),
    "SOFTMAX": _softmax,
    "LOGISTIC": _logistic,
    "QUANTIZE": _quantize,
}

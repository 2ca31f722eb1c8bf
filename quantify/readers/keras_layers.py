"""One Keras layer after the other, with its weights, to layers of a Network."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError
from quantify.ir.network import ActivationLayer, LinearLayer, MaxPoolLayer
from quantify.readers.keras_builder import MAX_WIDTH, Array, Builder, Wanted, number, sizes
from quantify.readers.keras_config import LayerConfig
from quantify.readers.unpickle import printable
from quantify.readers.windows import Axis, check_size, convolution, depthwise, members, sums

RECURRENT = ("GRU", "LSTM")
"""Layers that `keras_recurrent` reads; in a `.keras` archive their weights are those of a cell inside them."""
EPSILON = 1e-7
"""keras.config.epsilon(): the least standard deviation that Normalization divides by."""


def converter(layer: LayerConfig) -> Callable[[Builder, LayerConfig], None]:
    """What appends such a layer to a network.

    Raises:
        InputError: No count can read it.
    """
    if layer.kind not in CONVERTERS:
        raise unsupported(layer)
    return CONVERTERS[layer.kind]


def unsupported(layer: LayerConfig) -> InputError:
    """What to say of a layer that no count can read."""
    hint = "quantify reads " + ", ".join(sorted(SUPPORTED))
    if layer.kind in RECURRENT:
        hint = "recurrent networks cannot be counted; quantify evolve searches for inputs that they get wrong"
    return InputError(f"{layer} is not supported", hint)


# --- windows ----------------------------------------------------------------------------------------------------------
def _channels_last(config: Mapping[str, Any]) -> None:
    if config.get("data_format") not in (None, "channels_last"):
        raise InputError("has channels first", "quantify reads channels_last models")


def _axes(
    config: Mapping[str, Any],
    spatial: tuple[int, ...],
    window: tuple[int, ...],
    default_stride: Any,
    *,
    causal: bool = False,
) -> tuple[Axis, ...]:
    """The geometry of a convolution or pooling layer."""
    rank = len(spatial)
    strides = sizes(config, "strides", rank, default_stride)
    dilations = sizes(config, "dilation_rate", rank, 1)
    padding = config.get("padding", "valid")
    found: list[Axis] = []
    for size, cells, stride, dilation in zip(spatial, window, strides, dilations, strict=True):
        if padding == "same":
            found.append(Axis.same(size, cells, stride, dilation))
        elif padding == "valid":
            found.append(Axis.padded(size, cells, stride, dilation))
        elif padding == "causal" and causal:
            found.append(Axis.padded(size, cells, stride, dilation, before=dilation * (cells - 1)))
        else:
            raise InputError(f"has padding {printable(str(padding))}", "quantify reads valid and same (Conv1D: causal)")
    return tuple(found)


# --- layers with weights -----------------------------------------------------------------------------------------
def _bias(config: Mapping[str, Any]) -> bool:
    return bool(config.get("use_bias", True))


def _dense(builder: Builder, layer: LayerConfig) -> None:
    units = sizes(layer.config, "units", 1, None)[0]
    if layer.config.get("quantization_config") is not None or layer.config.get("lora_rank") is not None:
        raise InputError("is quantised or has LoRA weights", "save the float model")
    inputs = builder.shape[-1] if builder.shape is not None else None
    use_bias = _bias(layer.config)
    found = builder.arrays(layer, [(inputs, units), (units,)][: 1 + use_bias])
    kernel = found[0]
    if builder.shape is None:
        builder.shape = (kernel.shape[0],)
        builder.inputs = kernel.shape[0]
    bias = found[1] if use_bias else np.zeros(units, builder.dtype)
    shape = builder.shape
    # A Dense layer works on the last axis, wherever that is: a convolution with windows of one cell.
    axes = tuple(Axis.padded(size, 1) for size in shape[:-1]) or (Axis.padded(1, 1),)
    rows = convolution(axes, kernel[None])
    builder.linear(layer, rows, np.tile(bias, math.prod(shape[:-1])), (*shape[:-1], units))
    _argument(builder, layer)


def _convolution(rank: int) -> Callable[[Builder, LayerConfig], None]:
    def convert(builder: Builder, layer: LayerConfig) -> None:
        config = layer.config
        _channels_last(config)
        *spatial, channels = builder.known(rank + 1)
        filters = sizes(config, "filters", 1, None)[0]
        groups = sizes(config, "groups", 1, 1)[0]
        window = sizes(config, "kernel_size", rank, None)
        if channels % groups or filters % groups:
            raise InputError(
                f"has {groups} groups for {channels} channels and {filters} filters", "they must divide both"
            )
        axes = _axes(config, tuple(spatial), window, 1, causal=rank == 1)
        use_bias = _bias(config)
        shapes: list[Wanted] = [(*window, channels // groups, filters), (filters,)]
        found = builder.arrays(layer, shapes[: 1 + use_bias])
        rows = convolution(axes, found[0].reshape(-1, channels // groups, filters), groups)
        shape = (*(axis.outputs for axis in axes), filters)
        bias = found[1] if use_bias else np.zeros(filters, builder.dtype)
        builder.linear(layer, rows, np.tile(bias, math.prod(shape[:-1])), shape)
        _argument(builder, layer)

    return convert


def _depthwise(rank: int) -> Callable[[Builder, LayerConfig], None]:
    def convert(builder: Builder, layer: LayerConfig) -> None:
        config = layer.config
        _channels_last(config)
        *spatial, channels = builder.known(rank + 1)
        window = sizes(config, "kernel_size", rank, None)
        multiplier = sizes(config, "depth_multiplier", 1, 1)[0]
        axes = _axes(config, tuple(spatial), window, 1)
        outputs = channels * multiplier
        use_bias = _bias(config)
        shapes: list[Wanted] = [(*window, channels, multiplier), (outputs,)]
        found = builder.arrays(layer, shapes[: 1 + use_bias])
        rows = depthwise(axes, found[0].reshape(-1, channels, multiplier))
        shape = (*(axis.outputs for axis in axes), outputs)
        bias = found[1] if use_bias else np.zeros(outputs, builder.dtype)
        builder.linear(layer, rows, np.tile(bias, math.prod(shape[:-1])), shape)
        _argument(builder, layer)

    return convert


def _last_axis(builder: Builder, layer: LayerConfig) -> int:
    """Size of the last axis, which must be the one the layer's constants belong to."""
    shape = builder.known()
    axis = layer.config.get("axis", -1)
    if isinstance(axis, list) and len(axis) == 1:
        axis = axis[0]
    if axis not in (-1, len(shape)):
        raise InputError(f"works along axis {printable(str(axis))}", "quantify reads it along the last axis only")
    return shape[-1]


def _batch_normalization(builder: Builder, layer: LayerConfig) -> None:
    """x·inv + (beta − mean·inv), inv = gamma/√(variance + ε), in the library's type (tf.nn.batch_normalization)."""
    config = layer.config
    size = _last_axis(builder, layer)
    scale, centre = bool(config.get("scale", True)), bool(config.get("center", True))
    found = builder.arrays(layer, [(size,)] * (2 + scale + centre))
    kind = np.dtype(builder.dtype).type
    mean, variance = found[-2:]
    gamma = found[0] if scale else np.ones(size, builder.dtype)
    beta = found[int(scale)] if centre else np.zeros(size, builder.dtype)
    epsilon = number(config, "epsilon", default=1e-3)
    with np.errstate(all="ignore"):
        spread = variance + kind(epsilon)
        # One rounded square root and one rounded reciprocal, as in TensorFlow's plain code; its vector code (eight
        # channels and more) is up to two units in the last place off, differently on each processor.
        inverse = kind(1) / np.sqrt(spread) * gamma
        offset = beta - mean * inverse
        derived = np.abs(beta) + np.abs(mean * inverse)
    builder.diagonal(layer, inverse, offset, derived=derived)


def _normalization(builder: Builder, layer: LayerConfig) -> None:
    """(x − mean)/max(√variance, ε), the division exact: the deviation's odd part divides, a power of two multiplies."""
    config = layer.config
    if config.get("invert"):
        raise InputError("is inverted", "quantify reads normalisation, not its inverse")
    given = [config.get("mean", config.get("input_mean")), config.get("variance", config.get("input_variance"))]
    shape = builder.known()
    if given[0] is not None and given[1] is not None:
        mean, variance = (_constants(value, shape, builder.dtype, "mean or variance") for value in given)
    else:
        wanted: Wanted = () if config.get("axis", -1) in (None, []) else (_last_axis(builder, layer),)
        stored = builder.weights.take(layer, [wanted, wanted, ()])
        mean, variance = (array.astype(builder.dtype) for array in stored[:2])
    with np.errstate(all="ignore"):
        deviation = np.maximum(np.sqrt(variance), np.dtype(builder.dtype).type(EPSILON))
    if not (np.isfinite(deviation).all() and np.isfinite(mean).all()):
        raise InputError("has a mean or variance that is no number", "adapt the layer again")
    factor, divisor = odd_part(deviation)
    with np.errstate(all="ignore"):
        offset = -mean * factor
        # A power of two is lost only by leaving the type's range.
        exact = np.isfinite(offset).all() and (offset / factor == -mean).all()
    if not exact:
        raise InputError("has a mean and variance of hopelessly different sizes", "adapt the layer again")
    builder.diagonal(layer, factor, offset, divisor)


def odd_part(values: Array) -> tuple[Array, NDArray[np.int64]]:
    """Powers of two f and odd integers s with value = s/f, for positive finite values."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    low = whole & -whole
    power = exponent.astype(np.int64) - 53 + np.frexp(low.astype(np.float64))[1] - 1
    return np.ldexp(1.0, -power).astype(values.dtype), whole // low


def _constants(found: Any, shape: tuple[int, ...], dtype: str, what: str) -> Array:
    """A number or (nested) list, perhaps in the wrapping that Keras 3 gives arrays, in the layer's type."""
    if isinstance(found, dict) and isinstance(found.get("config"), dict):
        found = found["config"].get("value")
    try:
        with np.errstate(over="ignore"):
            values: Array = np.asarray(found, np.float64).astype(dtype)
        return np.broadcast_to(values, shape)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"has a {what} that does not fit its input", "save the model again") from None


def _rescaling(builder: Builder, layer: LayerConfig) -> None:
    """x·scale + offset, both rounded to the layer's type."""
    shape = builder.known()
    scale = _constants(layer.config.get("scale", 1.0), shape, builder.dtype, "scale")
    builder.diagonal(layer, scale, _constants(layer.config.get("offset", 0.0), shape, builder.dtype, "offset"))


# --- layers without weights --------------------------------------------------------------------------------------
def _pool(rank: int, kind: Literal["max", "average"]) -> Callable[[Builder, LayerConfig], None]:
    def convert(builder: Builder, layer: LayerConfig) -> None:
        _channels_last(layer.config)
        *spatial, channels = builder.known(rank + 1)
        window = sizes(layer.config, "pool_size", rank, 2)
        axes = _axes(layer.config, tuple(spatial), window, window)
        _pooled(builder, layer, members(axes, channels), kind, (*(axis.outputs for axis in axes), channels))

    return convert


def _global(rank: int, kind: Literal["max", "average"]) -> Callable[[Builder, LayerConfig], None]:
    def convert(builder: Builder, layer: LayerConfig) -> None:
        _channels_last(layer.config)
        *spatial, channels = builder.known(rank + 1)
        axes = tuple(Axis.padded(size, size) for size in spatial)
        kept = (1,) * rank if layer.config.get("keepdims") else ()
        _pooled(builder, layer, members(axes, channels), kind, (*kept, channels))

    return convert


def _pooled(
    builder: Builder,
    layer: LayerConfig,
    windows: NDArray[np.int64],
    kind: Literal["max", "average"],
    shape: tuple[int, ...],
) -> None:
    inputs = math.prod(builder.known())
    if kind == "max":
        builder.append(MaxPoolLayer(inputs, windows, str(layer)))
    else:
        rows, counts = sums(inputs, windows, builder.dtype)
        builder.append(LinearLayer(rows, np.zeros(len(windows), builder.dtype), counts, str(layer)))
    builder.shape = shape


def _flatten(builder: Builder, layer: LayerConfig) -> None:
    _channels_last(layer.config)
    builder.shape = (math.prod(builder.known()),)


def _reshape(builder: Builder, layer: LayerConfig) -> None:
    size = math.prod(builder.known())
    target = layer.config.get("target_shape")
    if not isinstance(target, list) or not all(isinstance(n, int) and (n > 0 or n == -1) for n in target):
        raise InputError(f"has target_shape {printable(str(target))}", "it must be positive whole numbers, or one -1")
    known = math.prod(n for n in target if n != -1)
    if target.count(-1) > 1 or size % known or (-1 not in target and known != size):
        raise InputError(f"makes {tuple(target)} of {size} values", "save the model again")
    builder.shape = tuple(size // known if n == -1 else n for n in target)


def _pairs(found: Any, rank: int) -> list[tuple[int, int]]:
    """Padding before and after each axis, from one number, a number an axis, or a pair an axis."""
    each = [found] * rank if isinstance(found, int) else found
    if rank == 1 and isinstance(each, list) and len(each) == 2:
        each = [each]
    pairs = [[pair, pair] if isinstance(pair, int) else pair for pair in each] if isinstance(each, list) else []
    good = len(pairs) == rank and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
    if not good or any(not isinstance(n, int) or not 0 <= n <= MAX_WIDTH for pair in pairs for n in pair):
        raise InputError(f"has padding {printable(str(found))}", f"it must be {rank} pairs of whole numbers")
    return [(before, after) for before, after in pairs]


def _zero_padding(rank: int) -> Callable[[Builder, LayerConfig], None]:
    def convert(builder: Builder, layer: LayerConfig) -> None:
        _channels_last(layer.config)
        *spatial, channels = builder.known(rank + 1)
        pairs = _pairs(layer.config.get("padding", 1), rank)
        axes = tuple(Axis.padded(size, 1, 1, 1, *pair) for size, pair in zip(spatial, pairs, strict=True))
        shape = (*(axis.outputs for axis in axes), channels)
        check_size(math.prod(shape))
        rows, _ = sums(math.prod(builder.known()), members(axes, channels), builder.dtype)
        builder.linear(layer, rows, np.zeros(math.prod(shape), builder.dtype), shape)

    return convert


def _ignored(builder: Builder, layer: LayerConfig) -> None:
    """Layers that do nothing when predicting."""


# --- activations -------------------------------------------------------------------------------------------------
def _argument(builder: Builder, layer: LayerConfig) -> None:
    """The activation given as a layer's argument, or that of an Activation layer."""
    found = layer.config.get("activation")
    if found is None or found == "linear":
        return
    if isinstance(found, dict):
        kind, config = found.get("class_name"), found.get("config")
        if kind in ("ReLU", "LeakyReLU", "Softmax") and isinstance(config, dict):
            CONVERTERS[kind](builder, LayerConfig(kind, layer.name, config))
            return
        found = config if kind == "function" else kind
    if not isinstance(found, str) or found not in FUNCTIONS:
        named = ", ".join(["linear", *FUNCTIONS])
        raise InputError(f"has the activation {printable(str(found))}", f"quantify reads {named}")
    FUNCTIONS[found](builder, layer)


def _relu(builder: Builder, layer: LayerConfig, cap: float | None = None) -> None:
    kind = np.dtype(builder.dtype).type
    limit = None if cap is None else Fraction(float(kind(cap)))
    builder.append(ActivationLayer("relu", limit, origin=str(layer)))


def _relu_layer(builder: Builder, layer: LayerConfig) -> None:
    cap = number(layer.config, "max_value", default=None)
    slope = number(layer.config, "negative_slope", "alpha", default=0.0)
    threshold = number(layer.config, "threshold", "theta", default=0.0)
    assert slope is not None
    if threshold:
        raise InputError(f"has threshold {threshold}", "quantify reads ReLU with threshold 0")
    if cap is not None and (slope or cap < 0):
        raise InputError(
            f"has max_value {cap} and negative_slope {slope}", "quantify reads a cap ≥ 0 or a slope, not both"
        )
    if slope:
        _leaky(builder, layer, slope)
    else:
        _relu(builder, layer, cap)


def _leaky(builder: Builder, layer: LayerConfig, slope: float) -> None:
    exact = Fraction(float(np.dtype(builder.dtype).type(slope)))
    if not 0 <= exact <= 1:
        raise InputError(f"has the slope {slope}", "quantify reads slopes from 0 to 1")
    builder.append(ActivationLayer("leaky", slope=exact, origin=str(layer)))


def _leaky_layer(builder: Builder, layer: LayerConfig) -> None:
    slope = number(layer.config, "negative_slope", "alpha", default=0.3)
    assert slope is not None
    _leaky(builder, layer, slope)


def _sign(builder: Builder, layer: LayerConfig) -> None:
    # keras.ops.sign and tf.sign are 0 at 0.
    builder.append(ActivationLayer("sign", sign_of_zero=0, origin=str(layer)))


def _softmax(builder: Builder, layer: LayerConfig) -> None:
    shape = builder.known()
    if layer.kind == "Softmax" and layer.config.get("axis", -1) not in (-1, len(shape)):
        raise InputError("is a softmax along another axis than the last", "quantify reads a softmax over all outputs")
    if shape[-1] != math.prod(shape):
        raise InputError(f"is a softmax over parts of {shape}", "quantify reads a softmax over all outputs")
    _end(builder, "softmax")


def _sigmoid(builder: Builder, layer: LayerConfig) -> None:
    _end(builder, "sigmoid")


def _end(builder: Builder, squash: Literal["softmax", "sigmoid"]) -> None:
    if builder.squash != "none":
        raise InputError(f"follows a {builder.squash}", "quantify reads one softmax or sigmoid at the end of a network")
    builder.squash = squash


FUNCTIONS: dict[str, Callable[[Builder, LayerConfig], None]] = {
    "relu": _relu,
    "relu6": lambda builder, layer: _relu(builder, layer, 6.0),
    "leaky_relu": lambda builder, layer: _leaky(builder, layer, 0.2),
    "sign": _sign,
    "softmax": _softmax,
    "sigmoid": _sigmoid,
}
"""Activations by the names that Keras writes; linear is none."""

CONVERTERS: dict[str, Callable[[Builder, LayerConfig], None]] = {
    "Dense": _dense,
    "Conv1D": _convolution(1),
    "Conv2D": _convolution(2),
    "DepthwiseConv1D": _depthwise(1),
    "DepthwiseConv2D": _depthwise(2),
    "BatchNormalization": _batch_normalization,
    "BatchNormalizationV1": _batch_normalization,
    "BatchNormalizationV2": _batch_normalization,
    "Normalization": _normalization,
    "Rescaling": _rescaling,
    "MaxPooling1D": _pool(1, "max"),
    "MaxPooling2D": _pool(2, "max"),
    "AveragePooling1D": _pool(1, "average"),
    "AveragePooling2D": _pool(2, "average"),
    "GlobalMaxPooling1D": _global(1, "max"),
    "GlobalMaxPooling2D": _global(2, "max"),
    "GlobalAveragePooling1D": _global(1, "average"),
    "GlobalAveragePooling2D": _global(2, "average"),
    "ZeroPadding1D": _zero_padding(1),
    "ZeroPadding2D": _zero_padding(2),
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Activation": _argument,
    "ReLU": _relu_layer,
    "LeakyReLU": _leaky_layer,
    "Softmax": _softmax,
    "Dropout": _ignored,
    "SpatialDropout1D": _ignored,
    "SpatialDropout2D": _ignored,
    "AlphaDropout": _ignored,
    "GaussianDropout": _ignored,
    "GaussianNoise": _ignored,
    "ActivityRegularization": _ignored,
    "Identity": _ignored,
}
SUPPORTED = [kind for kind in CONVERTERS if not kind.startswith("BatchNormalizationV")]

"""Keras files written by hand, without Keras, and their networks evaluated by hand: exactly, and with plain loops."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

GROUPS = {
    "Dense": "dense",
    "Conv1D": "conv1d",
    "Conv2D": "conv2d",
    "DepthwiseConv1D": "depthwise_conv1d",
    "DepthwiseConv2D": "depthwise_conv2d",
    "BatchNormalization": "batch_normalization",
    "Normalization": "normalization",
}
"""Groups of a `.keras` archive, as Keras 3 names them."""
NAMES = {
    "BatchNormalization": ["gamma", "beta", "moving_mean", "moving_variance"],
    "Normalization": ["mean", "variance", "count"],
    "GRU": ["kernel", "recurrent_kernel", "bias"],
    "LSTM": ["kernel", "recurrent_kernel", "bias"],
}
CELLS = {"GRU": "gru_cell", "LSTM": "lstm_cell"}
"""Layers whose weights belong to a cell inside them."""


@dataclass
class Spec:
    """A layer to write: class, configuration, weights."""

    kind: str
    config: dict[str, Any] = field(default_factory=dict)
    weights: list[np.ndarray] = field(default_factory=list)


def entries(specs: list[Spec], shape: tuple[int | None, ...] | None, functional: bool) -> dict[str, Any]:
    """The configuration of a model."""
    layers: list[dict[str, Any]] = []
    if shape is not None:
        layers.append(
            {
                "module": "keras.layers",
                "class_name": "InputLayer",
                "config": {"batch_shape": [None, *shape], "dtype": "float32", "name": "given"},
                "registered_name": None,
            }
        )
    for number, spec in enumerate(specs):
        config = {"name": f"l{number}", "dtype": {"module": "keras", "class_name": "DTypePolicy",
                  "config": {"name": "float32"}, "registered_name": None}, **spec.config}  # fmt: skip
        if config.get("activation") == "sign":
            # How Keras 3 writes keras.ops.sign.
            named = {"module": "builtins", "class_name": "function", "config": "sign", "registered_name": "function"}
            config["activation"] = named
        layers.append({"module": "keras.layers", "class_name": spec.kind, "config": config, "registered_name": None})
    if not functional:
        return {"module": "keras", "class_name": "Sequential", "config": {"name": "m", "layers": layers}}
    before = None
    for layer in layers:
        layer["name"] = layer["config"]["name"]
        tensor = {"class_name": "__keras_tensor__", "config": {"keras_history": [before, 0, 0]}}
        layer["inbound_nodes"] = [] if before is None else [{"args": [tensor], "kwargs": {"training": False}}]
        before = layer["name"]
    ends = {"input_layers": [["given", 0, 0]], "output_layers": [[before, 0, 0]]}
    return {"module": "keras.src.models.functional", "class_name": "Functional",
            "config": {"name": "m", "layers": layers, **ends}, "registered_name": "Functional"}  # fmt: skip


def archive(
    specs: list[Spec],
    shape: tuple[int | None, ...],
    *,
    functional: bool = False,
    document: Any = None,
    edit: Any = None,
) -> bytes:
    """A `.keras` file; `edit` may change the open HDF5 file."""
    import h5py

    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        used: dict[str, int] = {}
        for number, spec in enumerate(specs):
            kind = GROUPS.get(spec.kind, spec.kind.lower())
            used[kind] = used.get(kind, -1) + 1
            group = file.create_group(f"layers/{kind}_{used[kind]}" if used[kind] else f"layers/{kind}")
            stored = group.create_group("vars")
            stored.attrs["name"] = f"l{number}"
            if spec.kind in CELLS:
                stored = group.create_group("cell/vars")
                stored.attrs["name"] = CELLS[spec.kind]
            for index, array in enumerate(spec.weights):
                stored[str(index)] = array
        if edit is not None:
            edit(file)
    config = json.dumps(entries(specs, shape, functional) if document is None else document)
    return zipped(
        {"metadata.json": '{"keras_version": "3.5.0"}', "config.json": config, "model.weights.h5": weights.getvalue()}
    )


def zipped(parts: dict[str, str | bytes]) -> bytes:
    """A zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return out.getvalue()


def hdf5(
    specs: list[Spec],
    shape: tuple[int | None, ...] | None,
    *,
    functional: bool = False,
    version: str = "3.5.0",
    document: Any = None,
    edit: Any = None,
) -> bytes:
    """An `.h5` file; Keras 2 wrote weight names with `:0`."""
    import h5py

    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        described = entries(specs, shape, functional) if document is None else document
        file.attrs["model_config"] = json.dumps(described)
        file.attrs["keras_version"] = version
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = np.array([f"l{n}".encode() for n in range(len(specs))])
        for number, spec in enumerate(specs):
            group = weights.create_group(f"l{number}")
            names = NAMES.get(spec.kind, ["kernel", "bias"])
            ending = ":0" if version.startswith("2") else ""
            inner = f"l{number}/{CELLS[spec.kind]}" if spec.kind in CELLS else f"l{number}"
            paths = [f"m/{inner}/{names[index]}{ending}" for index in range(len(spec.weights))]
            group.attrs["weight_names"] = np.array([path.encode() for path in paths])
            for path, array in zip(paths, spec.weights, strict=True):
                group[path] = array
        if edit is not None:
            edit(file)
    return out.getvalue()


# --- evaluation by hand ------------------------------------------------------------------------------------------
Tensor = dict[tuple[int, ...], Fraction]


def evaluate(specs: list[Spec], shape: tuple[int, ...], values: list[Fraction]) -> list[Fraction]:
    """Scores (before a softmax or sigmoid) of one input, given in row-major order."""
    tensor = dict(zip(product(*map(range, shape)), values, strict=True))
    for spec in specs:
        tensor, shape = apply(spec, tensor, shape)
    return [tensor[index] for index in product(*map(range, shape))]


def apply(spec: Spec, x: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """One layer's values and their shape."""
    config = spec.config
    *outer, channels = shape
    if spec.kind == "Dense":
        kernel = spec.weights[0]
        y = {}
        for at in product(*map(range, outer)):
            for unit in range(kernel.shape[1]):
                total = sum((x[(*at, c)] * _exact(kernel[c, unit]) for c in range(channels)), Fraction(0))
                y[(*at, unit)] = total + (_exact(spec.weights[1][unit]) if len(spec.weights) > 1 else 0)
        return _active(config.get("activation"), y), (*outer, kernel.shape[1])
    if spec.kind.startswith(("Conv", "Depthwise")):
        return _convolved(spec, x, shape)
    if "Pooling" in spec.kind:
        return _pooled(spec, x, shape)
    if spec.kind == "BatchNormalization":
        weights = list(spec.weights)
        gamma = weights.pop(0) if config.get("scale", True) else np.ones(channels, "f")
        beta = weights.pop(0) if config.get("center", True) else np.zeros(channels, "f")
        mean, variance = weights
        inverse = np.float32(1) / np.sqrt(variance + np.float32(config["epsilon"])) * gamma
        offset = beta - mean * inverse
        return {at: value * _exact(inverse[at[-1]]) + _exact(offset[at[-1]]) for at, value in x.items()}, shape
    if spec.kind == "Normalization":
        mean, variance, _ = spec.weights
        deviation = np.maximum(np.sqrt(variance), np.float32(1e-7))
        return {at: (value - _exact(mean[at[-1]])) / _exact(deviation[at[-1]]) for at, value in x.items()}, shape
    if spec.kind == "Rescaling":
        scale, offset = _exact(np.float32(config["scale"])), _exact(np.float32(config["offset"]))
        return {at: value * scale + offset for at, value in x.items()}, shape
    if spec.kind == "ZeroPadding2D":
        (top, bottom), (left, right) = config["padding"]
        padded = (shape[0] + top + bottom, shape[1] + left + right, channels)
        return {
            at: x.get((at[0] - top, at[1] - left, at[2]), Fraction(0)) for at in product(*map(range, padded))
        }, padded
    if spec.kind == "Flatten":
        return {(i,): x[at] for i, at in enumerate(product(*map(range, shape)))}, (len(x),)
    if spec.kind in ("Activation", "ReLU", "LeakyReLU"):
        return _active(config.get("activation", spec), x), shape
    assert spec.kind in ("Dropout", "Softmax", "GaussianNoise"), spec.kind
    return x, shape


def _exact(value: Any) -> Fraction:
    return Fraction(float(value))


def _active(found: Any, x: Tensor) -> Tensor:
    if isinstance(found, Spec):
        slope = found.config.get("negative_slope", 0.0)
        cap = found.config.get("max_value")
    else:
        slope, cap = {"leaky_relu": 0.2}.get(found, 0.0), {"relu6": 6.0}.get(found)
        if found in (None, "linear", "softmax", "sigmoid"):
            return x
        if found == "sign":
            return {at: Fraction((value > 0) - (value < 0)) for at, value in x.items()}
        assert found in ("relu", "relu6", "leaky_relu"), found
    y = {at: value if value > 0 else value * _exact(np.float32(slope)) for at, value in x.items()}
    return y if cap is None else {at: min(value, _exact(np.float32(cap))) for at, value in y.items()}


def _places(size: int, window: int, stride: int, dilation: int, padding: str) -> list[list[int | None]]:
    """Input index of each cell of each window along one axis, by trying every start; None in the padding."""
    reach = (window - 1) * dilation + 1
    before = after = 0
    if padding == "same":
        wanted = (size + stride - 1) // stride
        missing = max(0, (wanted - 1) * stride + reach - size)
        before, after = missing // 2, missing - missing // 2
    elif padding == "causal":
        before = reach - 1
    found = []
    for start in range(-before, size + after - reach + 1, stride):
        cells = [start + cell * dilation for cell in range(window)]
        found.append([cell if 0 <= cell < size else None for cell in cells])
    return found


def _windows(config: dict[str, Any], spatial: list[int], window: Any, stride: Any) -> list[list[list[int | None]]]:
    dilation = config.get("dilation_rate", [1] * len(spatial))
    strides = config.get("strides") or stride
    padding = config.get("padding", "valid")
    return [_places(*each, padding) for each in zip(spatial, window, strides, dilation, strict=True)]


def _convolved(spec: Spec, x: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    *spatial, channels = shape
    kernel = spec.weights[0]
    window = kernel.shape[: len(spatial)]
    axes = _windows(spec.config, spatial, window, [1] * len(spatial))
    deep = spec.kind.startswith("Depthwise")
    multiplier = kernel.shape[-1]
    groups = spec.config.get("groups", 1)
    filters = channels * multiplier if deep else kernel.shape[-1]
    y = {}
    for at in product(*(range(len(axis)) for axis in axes)):
        for f in range(filters):
            total = _exact(spec.weights[1][f]) if len(spec.weights) > 1 else Fraction(0)
            for cell in product(*map(range, window)):
                where = tuple(axis[i][k] for axis, i, k in zip(axes, at, cell, strict=True))
                if None in where:
                    continue
                if deep:
                    total += x[(*where, f // multiplier)] * _exact(kernel[(*cell, f // multiplier, f % multiplier)])
                    continue
                each = channels // groups
                first = (f // (filters // groups)) * each
                for c in range(each):
                    total += x[(*where, first + c)] * _exact(kernel[(*cell, c, f)])
            y[(*at, f)] = total
    return _active(spec.config.get("activation"), y), (*(len(axis) for axis in axes), filters)


def _pooled(spec: Spec, x: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    *spatial, channels = shape
    everything = spec.kind.startswith("Global")
    window = spatial if everything else spec.config["pool_size"]
    axes = _windows(spec.config, spatial, window, window)
    y = {}
    for at in product(*(range(len(axis)) for axis in axes)):
        for c in range(channels):
            cells = product(*(axis[i] for axis, i in zip(axes, at, strict=True)))
            found = [x[(*where, c)] for where in cells if None not in where]
            y[(*at, c)] = max(found) if "Max" in spec.kind else sum(found, Fraction(0)) / len(found)
    shape = (*(len(axis) for axis in axes), channels)
    if everything:
        return {(at[-1],): value for at, value in y.items()}, (channels,)
    return y, shape

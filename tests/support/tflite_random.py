"""Random full-integer `.tflite` chains: every operator that is read, scales that make halves as well as odd ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from tflite_models import Operator, Tensor, tflite

SAME, VALID = 0, 1


def single(value: float) -> float:
    """The float32 nearest to a number."""
    return float(np.float32(value))


class Chain:
    """Tensors and operators so far; the last tensor is the current one."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
        self.rng = rng
        self.tensors = [self._activation(shape)]
        self.operators: list[Operator] = []
        self.last = 0

    def _scale(self) -> float:
        # Powers of two meet exact halves; the others almost never do.
        return single(2.0 ** -self.rng.integers(3, 7) if self.rng.random() < 0.4 else self.rng.uniform(0.01, 0.2))

    def _activation(self, shape: tuple[int, ...], like: Tensor | None = None) -> Tensor:
        if like is not None:
            return Tensor(shape, scale=like.scale, zero=like.zero)
        return Tensor(shape, scale=[self._scale()], zero=[int(self.rng.integers(-128, 128))])

    def _new(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    @property
    def current(self) -> Tensor:
        return self.tensors[self.last]

    def step(self, kind: str, output: Tensor, *constants: Tensor, options: Any = ()) -> None:
        inputs = [self.last, *(self._new(constant) for constant in constants)]
        self.last = self._new(output)
        self.operators.append(Operator(kind, inputs, [self.last], options))

    def weighted(self, kind: str, weights: Any, channels: int, axis: int, shape: tuple[int, ...], options: Any) -> None:
        """A convolution or dense layer whose outputs spread over int8."""
        rng = self.rng
        count = channels if rng.random() < 0.6 else 1
        scales = [self._scale() / 8 for _ in range(count)]
        scales = [single(scale) for scale in scales]
        given = self.current
        fan = max(1, weights.size // channels)
        spread = given.scale[0] * float(np.mean(scales)) * 70 * 70 * np.sqrt(fan)
        reach = spread / rng.uniform(20, 90)
        scale = single(2.0 ** np.round(np.log2(reach)) if rng.random() < 0.4 else reach)
        output = Tensor(shape, scale=[scale], zero=[int(rng.integers(-128, 60))])
        bias = rng.integers(-3000, 3000, channels)
        self.step(
            kind,
            output,
            Tensor(weights.shape, scale=scales, zero=[0] * count, axis=axis, data=weights),
            Tensor((channels,), "int32", [single(given.scale[0] * s) for s in scales], [0] * count, data=bias),
            options=options,
        )

    def bytes(self) -> bytes:
        return tflite(self.tensors, self.operators)


def random_chain(rng: np.random.Generator) -> Chain:
    """Two or three spatial layers, a dense layer or a mean, and perhaps a softmax."""
    height, width = (int(n) for n in rng.integers(4, 8, 2))
    chain = Chain(rng, (1, height, width, int(rng.integers(1, 4))))
    for _ in range(int(rng.integers(1, 4))):
        _spatial(chain)
    shape = tuple(chain.current.shape)
    if rng.random() < 0.3:
        options = [(0, "bool", int(rng.random() < 0.5))]
        output = chain._activation((1, 1, 1, shape[3]) if options[0][2] else (1, shape[3]))
        chain.step("MEAN", output, Tensor((2,), "int32", data=[1, 2]), options=options)
    size = int(np.prod(chain.current.shape))
    chain.step("RESHAPE", chain._activation((1, size), chain.current), Tensor((2,), "int32", data=[1, size]))
    units = int(rng.integers(2, 6))
    weights = rng.integers(-127, 128, (units, size))
    chain.weighted("FULLY_CONNECTED", weights, units, 0, (1, units), [(0, "int8", int(rng.integers(4)))])
    if rng.random() < 0.5:
        softmax = Tensor((1, units), scale=[1 / 256], zero=[-128])
        chain.step("SOFTMAX", softmax, options=[(0, "float32", 1.0)])
    return chain


def _spatial(chain: Chain) -> None:
    rng = chain.rng
    _, height, width, channels = chain.current.shape
    kind = str(rng.choice(["CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D", "PAD", "RELU6"]))
    if kind == "PAD":
        pads = rng.integers(0, 2, (4, 2)) * np.array([[0], [1], [1], [0]])
        shape = tuple(int(n) for n in np.array(chain.current.shape) + pads.sum(axis=1))
        chain.step("PAD", chain._activation(shape, chain.current), Tensor((4, 2), "int32", data=pads))
        return
    if kind == "RELU6":
        chain.step(str(rng.choice(["RELU", "RELU6", "QUANTIZE"])), chain._activation(tuple(chain.current.shape)))
        return
    window = [int(n) for n in rng.integers(1, 4, 2)]
    strides = [int(n) for n in rng.integers(1, 3, 2)]
    padding = int(rng.integers(2))
    sizes = [
        -(-size // stride) if padding == SAME else (size - cells) // stride + 1
        for size, cells, stride in zip((height, width), window, strides, strict=True)
    ]
    if min(sizes) < 1:
        return
    fused = int(rng.integers(4))
    if kind.endswith("POOL_2D"):
        options = [(0, "int8", padding), (1, "int32", strides[1]), (2, "int32", strides[0]), (3, "int32", window[1]),
                   (4, "int32", window[0]), (5, "int8", fused)]  # fmt: skip
        chain.step(kind, chain._activation((1, *sizes, channels), chain.current), options=options)
        return
    begin = [(0, "int8", padding), (1, "int32", strides[1]), (2, "int32", strides[0])]
    if kind == "CONV_2D":
        filters = int(rng.integers(1, 5))
        weights = rng.integers(-127, 128, (filters, *window, channels))
        chain.weighted(kind, weights, filters, 0, (1, *sizes, filters), [*begin, (3, "int8", fused)])
        return
    multiplier = int(rng.integers(1, 3))
    weights = rng.integers(-127, 128, (1, *window, channels * multiplier))
    options = [*begin, (3, "int32", multiplier), (4, "int8", fused)]
    chain.weighted(kind, weights, channels * multiplier, 3, (1, *sizes, channels * multiplier), options)

"""Random and hand-made ONNX models, built with onnx.helper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64}


class Maker:
    """A chain under construction."""

    def __init__(self, shape: Sequence[int], dtype: str = "float32", opset: int = 17, batch: Any = "n") -> None:
        self.dtype, self.opset, self.batch = dtype, opset, batch
        self.inputs = tuple(shape)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.last = "x"

    def constant(self, value: Any, dtype: str | None = None) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype or self.dtype), name))
        return name

    def add(self, kind: str, *constants: Any, first: Any = None, ints: bool = False, **attributes: Any) -> Maker:
        """A node that reads the last value and constants (`first`: one before it)."""
        names = [self.constant(value, "int64" if ints else None) if value is not None else "" for value in constants]
        before = [] if first is None else [self.constant(first)]
        out = f"v{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(kind, [*before, self.last, *names], [out], name=f"n{len(self.nodes)}", **attributes)
        )
        self.last = out
        return self

    def model(self, output: str | None = None) -> Any:
        kind = TYPES[output or self.dtype]
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", TYPES[self.dtype], [self.batch, *self.inputs])],
            [helper.make_tensor_value_info(self.last, kind, None)],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def bytes(self, output: str | None = None) -> bytes:
        data: bytes = self.model(output).SerializeToString()
        return data


def random_chain(rng: np.random.Generator) -> Maker:
    """A random classifier: perhaps convolutions and pooling, then dense layers and a head."""
    dtype = str(rng.choice(["float32", "float64"]))
    opset = int(rng.choice([11, 13, 17]))

    def normal(*shape: int) -> Any:
        return rng.normal(size=shape).astype(dtype)

    if rng.random() < 0.6:
        channels, height, width = (int(n) for n in rng.integers([1, 4, 4], [4, 9, 9]))
        maker = Maker((channels, height, width), dtype, opset, rng.choice(["n", None]))
        if rng.random() < 0.4:
            maker.add(str(rng.choice(["Sub", "Add", "Mul", "Div"])), normal(channels, 1, 1) + 3)
        for _ in range(int(rng.integers(1, 3))):
            channels, height, width = _spatial(maker, rng, channels, height, width, normal)
        end = rng.random()
        if end < 0.25:
            maker.add(str(rng.choice(["GlobalAveragePool", "GlobalMaxPool"])))
            height = width = 1
        elif end < 0.5:
            maker.add("Transpose", perm=[0, 2, 3, 1])
        size = channels * height * width
        if rng.random() < 0.5:
            maker.add("Flatten")
        else:
            maker.add("Reshape", [[0, -1], [-1, size]][int(rng.integers(2))], ints=True)
    else:
        size = int(rng.integers(2, 9))
        maker = Maker((size,), dtype, opset)
        if rng.random() < 0.5:
            maker.add("Sub", normal(size)).add("Div", np.abs(normal(size)) + 0.1)
    for _ in range(int(rng.integers(0, 3))):
        units = int(rng.integers(2, 9))
        size = _dense(maker, rng, size, units, normal)
        _activation(maker, rng, dtype)
    size = _dense(maker, rng, size, int(rng.integers(2, 7)), normal)
    head = str(rng.choice(["none", "Softmax", "LogSoftmax", "Sigmoid"]))
    if head == "Sigmoid":
        maker.add(head)
    elif head != "none":
        maker.add(head, axis=1)
    return maker


def _dense(maker: Maker, rng: np.random.Generator, size: int, units: int, normal: Any) -> int:
    if rng.random() < 0.5:
        across = bool(rng.random() < 0.5)
        weights = normal(units, size) if across else normal(size, units)
        maker.add("Gemm", weights, normal(units), transB=int(across))
    else:
        maker.add("MatMul", normal(size, units))
        if rng.random() < 0.7:
            maker.add("Add", normal(units))
    return units


def _activation(maker: Maker, rng: np.random.Generator, dtype: str) -> None:
    kind = str(rng.choice(["Relu", "LeakyRelu", "Clip", "Sign", "Identity"]))
    if kind == "LeakyRelu":
        maker.add(kind, alpha=0.25)
    elif kind == "Clip":
        maker.add(kind, np.zeros((), dtype), np.asarray(1.5, dtype))
    else:
        maker.add(kind)


def _spatial(
    maker: Maker, rng: np.random.Generator, channels: int, height: int, width: int, normal: Any
) -> tuple[int, int, int]:
    kind = str(rng.choice(["Conv", "Depthwise", "MaxPool", "AveragePool", "BatchNormalization"]))
    if kind == "BatchNormalization":
        maker.add(kind, normal(channels), normal(channels), normal(channels), np.abs(normal(channels)) + 0.1)
        return channels, height, width
    window = [int(n) for n in rng.integers(1, 4, 2)]
    strides = [int(n) for n in rng.integers(1, 3, 2)]
    dilations = [int(n) for n in rng.integers(1, 3, 2)] if "Pool" not in kind else [1, 1]
    pads = [int(rng.integers(0, n)) for n in (*window, *window)]
    geometry: dict[str, Any] = {"strides": strides}
    auto = bool(rng.random() < 0.3)
    if auto:
        geometry["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    else:
        geometry["pads"] = pads
    if "Pool" not in kind:
        geometry["dilations"] = dilations
    sizes = []
    for axis, size in enumerate((height, width)):
        reach = dilations[axis] * (window[axis] - 1) + 1
        if not auto:
            size += pads[axis] + pads[2 + axis]
        sizes.append(
            -(-size // strides[axis])
            if auto and "SAME" in geometry["auto_pad"]
            else (size - reach) // strides[axis] + 1
        )
    if min(sizes) < 1:
        return channels, height, width
    if kind == "Conv":
        filters = int(rng.integers(1, 4))
        maker.add("Conv", normal(filters, channels, *window), normal(filters), **geometry)
        channels = filters
    elif kind == "Depthwise":
        filters = channels * int(rng.integers(1, 3))
        maker.add("Conv", normal(filters, 1, *window), group=channels, **geometry)
        channels = filters
    elif kind == "MaxPool":
        maker.add(kind, kernel_shape=window, **geometry)
    else:
        maker.add(kind, kernel_shape=window, count_include_pad=int(rng.integers(2)), **geometry)
    if rng.random() < 0.5:
        maker.add("Relu")
    return channels, sizes[0], sizes[1]

"""Small `.tflite` files, written with the flatbuffers library and nothing of TensorFlow: slots as in its schema.fbs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np

TYPES = {"float32": 0, "int32": 2, "uint8": 3, "int64": 4, "int16": 7, "int8": 9}
CODES = {
    "ADD": 0, "AVERAGE_POOL_2D": 1, "CONV_2D": 3, "DEPTHWISE_CONV_2D": 4, "DEQUANTIZE": 6, "FULLY_CONNECTED": 9,
    "LOGISTIC": 14, "MAX_POOL_2D": 17, "RELU": 19, "RELU6": 21, "RESHAPE": 22, "SOFTMAX": 25, "PAD": 34, "MEAN": 40,
    "QUANTIZE": 114, "BATCH_MATMUL": 126,
}  # fmt: skip
OPTIONS = {
    "CONV_2D": 1, "DEPTHWISE_CONV_2D": 2, "AVERAGE_POOL_2D": 5, "MAX_POOL_2D": 5, "FULLY_CONNECTED": 8, "SOFTMAX": 9,
    "ADD": 11, "RESHAPE": 17, "MEAN": 27,
}  # fmt: skip
"""Members of the union BuiltinOptions."""
WIDTHS = {"int8": 1, "bool": 1, "int32": 4, "float32": 4}


@dataclass
class Tensor:
    shape: Sequence[int]
    type: str = "int8"
    scale: Sequence[float] = ()
    zero: Sequence[int] = ()
    axis: int = 0
    data: Any = None


@dataclass
class Operator:
    kind: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: Sequence[tuple[int, str, float]] = field(default=())
    """(slot, type, value)."""


def tflite(
    tensors: Sequence[Tensor], operators: Sequence[Operator], inputs: Sequence[int] = (0,), outputs: Sequence[int] = ()
) -> bytes:
    """A model with one graph; its output is the last operator's unless said."""
    b = flatbuffers.Builder(1024)
    buffers = [_table(b, {})]
    made = []
    for index, tensor in enumerate(tensors):
        place = 0
        if tensor.data is not None:
            data = np.asarray(tensor.data).astype(np.dtype(tensor.type).newbyteorder("<")).tobytes()
            place = len(buffers)
            # Constants are read in place and must be aligned.
            b.StartVector(1, len(data), 16)
            for byte in reversed(data):
                b.PrependByte(byte)
            buffers.append(_table(b, {0: ("offset", b.EndVector())}))
        quantised = None
        if len(tensor.scale):
            scales, zeros = _vector(b, tensor.scale, "float32"), _vector(b, tensor.zero, "int64")
            quantised = _table(b, {2: ("offset", scales), 3: ("offset", zeros), 6: ("int32", tensor.axis)})
        slots: dict[int, tuple[str, Any]] = {
            0: ("offset", _vector(b, tensor.shape, "int32")),
            1: ("int8", TYPES[tensor.type]),
            2: ("uint32", place),
            3: ("offset", b.CreateString(f"t{index}")),
        }
        if quantised is not None:
            slots[4] = ("offset", quantised)
        made.append(_table(b, slots))
    kinds = sorted({operator.kind for operator in operators})
    codes = [_table(b, {0: ("int8", CODES[kind]), 2: ("int32", 1), 3: ("int32", CODES[kind])}) for kind in kinds]
    steps = []
    for operator in operators:
        found: dict[int, tuple[str, Any]] = {
            0: ("uint32", kinds.index(operator.kind)),
            1: ("offset", _vector(b, operator.inputs, "int32")),
            2: ("offset", _vector(b, operator.outputs, "int32")),
        }
        if operator.kind in OPTIONS:
            options = _table(b, {slot: (kind, value) for slot, kind, value in operator.options})
            found |= {3: ("uint8", OPTIONS[operator.kind]), 4: ("offset", options)}
        steps.append(_table(b, found))
    results = outputs or operators[-1].outputs
    graph = _table(
        b,
        {
            0: ("offset", _tables(b, made)),
            1: ("offset", _vector(b, inputs, "int32")),
            2: ("offset", _vector(b, results, "int32")),
            3: ("offset", _tables(b, steps)),
        },
    )
    model = _table(
        b,
        {
            0: ("uint32", 3),
            1: ("offset", _tables(b, codes)),
            2: ("offset", _tables(b, [graph])),
            4: ("offset", _tables(b, buffers)),
        },
    )
    b.Finish(model, file_identifier=b"TFL3")
    return bytes(b.Output())


def _table(b: Any, slots: dict[int, tuple[str, Any]]) -> int:
    b.StartObject(max(slots, default=-1) + 1)
    for slot, (kind, value) in slots.items():
        if kind == "offset":
            b.PrependUOffsetTRelativeSlot(slot, value, 0)
        else:
            # A default that no value equals: everything is stored.
            getattr(b, f"Prepend{kind.capitalize()}Slot")(slot, value, None)
    return int(b.EndObject())


def _vector(b: Any, values: Sequence[float], kind: str) -> int:
    return int(b.CreateNumpyVector(np.asarray(values, kind)))


def _tables(b: Any, offsets: Sequence[int]) -> int:
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return int(b.EndVector())


def dense(
    weights: Any,
    bias: Any,
    scales: Sequence[float],
    given: tuple[float, int],
    result: tuple[float, int],
    fused: int = 0,
) -> bytes:
    """One fully connected layer, (units × inputs) weights."""
    weights = np.asarray(weights)
    units, inputs = weights.shape
    tensors = [
        Tensor((1, inputs), scale=[given[0]], zero=[given[1]]),
        Tensor((units, inputs), scale=scales, zero=[0] * len(scales), data=weights),
        Tensor((units,), "int32", [given[0] * scale for scale in scales], [0] * len(scales), data=bias),
        Tensor((1, units), scale=[result[0]], zero=[result[1]]),
    ]
    return tflite(tensors, [Operator("FULLY_CONNECTED", [0, 1, 2], [3], [(0, "int8", fused)])])

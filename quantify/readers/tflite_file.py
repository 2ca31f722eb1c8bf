"""A `.tflite` file to its one graph: tensors with constants and scales, and operators with their options.

The file is a flatbuffer; tables, slots and codes are those of TensorFlow Lite's schema.fbs (file identifier TFL3). The
flatbuffers library does not verify buffers, so every access may meet nonsense: all of it ends in one InputError.
"""

from __future__ import annotations

import importlib
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError, MissingToolError
from quantify.readers.unpickle import printable

IDENTIFIER = b"TFL3"
MAX_ITEMS = 1 << 12
"""Most tensors, operators or axes of one graph."""
MAX_VALUES = 1 << 24
"""Most values of one tensor."""
CONVERT_AGAIN = "convert the model again with TFLiteConverter"

TYPES = {0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8"}
CODES = {
    0: "ADD", 1: "AVERAGE_POOL_2D", 2: "CONCATENATION", 3: "CONV_2D", 4: "DEPTHWISE_CONV_2D", 6: "DEQUANTIZE",
    9: "FULLY_CONNECTED", 14: "LOGISTIC", 16: "LSTM", 17: "MAX_POOL_2D", 18: "MUL", 19: "RELU", 20: "RELU_N1_TO_1",
    21: "RELU6", 22: "RESHAPE", 25: "SOFTMAX", 28: "TANH", 32: "CUSTOM", 34: "PAD", 36: "GATHER",
    37: "BATCH_TO_SPACE_ND", 38: "SPACE_TO_BATCH_ND", 39: "TRANSPOSE", 40: "MEAN", 41: "SUB", 42: "DIV",
    43: "SQUEEZE", 45: "STRIDED_SLICE",
    49: "SPLIT", 50: "LOG_SOFTMAX", 53: "CAST", 54: "PRELU", 55: "MAXIMUM", 56: "ARG_MAX", 57: "MINIMUM", 60: "PADV2",
    65: "SLICE", 67: "TRANSPOSE_CONV", 70: "EXPAND_DIMS", 74: "SUM", 77: "SHAPE", 82: "REDUCE_MAX", 83: "PACK",
    97: "RESIZE_NEAREST_NEIGHBOR", 98: "LEAKY_RELU", 101: "ABS", 111: "ELU", 114: "QUANTIZE", 117: "HARD_SWISH",
    126: "BATCH_MATMUL", 150: "GELU",
}  # fmt: skip

DAMAGE = (struct.error, IndexError, ValueError, OverflowError, TypeError, KeyError, MemoryError)
"""What reading references and sizes that make no sense may raise."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor of the graph."""

    index: int
    name: str
    shape: tuple[int, ...]
    type: str
    values: NDArray[np.generic] | None
    """Of a constant, in its shape."""
    scales: NDArray[np.float32]
    zero_points: NDArray[np.int64]
    """As many as scales; none where the file says nothing about quantisation."""
    axis: int
    """The axis that the scales belong to when there are several."""

    def __str__(self) -> str:
        return f"tensor {self.index} ({printable(self.name)})"


@dataclass(frozen=True, eq=False)
class Operator:
    """One operator; its options are read by slot, as the schema numbers them."""

    index: int
    kind: str
    inputs: tuple[int, ...]
    """Tensor indices; −1 for an optional one that is absent."""
    outputs: tuple[int, ...]
    options: Table | None

    def __str__(self) -> str:
        return f"operator {self.index} ({self.kind})"

    def number(self, slot: int, width: str, default: int = 0) -> int:
        """An integer option; `width` is "int8", "int32" or "bool"."""
        return default if self.options is None else int(self.options.scalar(slot, width, default))

    def real(self, slot: int, default: float = 0.0) -> float:
        """A float32 option."""
        return default if self.options is None else float(self.options.scalar(slot, "float32", default))


@dataclass(frozen=True, eq=False)
class Graph:
    """The one subgraph of a file."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    input: int
    output: int


def read_graph(data: bytes) -> Graph:
    """The graph in the bytes of a `.tflite` file.

    Raises:
        MissingToolError: The flatbuffers library is not installed.
        InputError: No such file, damaged, or with several graphs, inputs or outputs.
    """
    if data[4:8] != IDENTIFIER:
        raise InputError("is no TensorFlow Lite model", CONVERT_AGAIN)
    try:
        return _graph(_root(data))
    except DAMAGE as error:
        raise InputError(f"is a damaged TensorFlow Lite model ({printable(str(error))})", CONVERT_AGAIN) from None


class Table:
    """A flatbuffer table, read by slot number."""

    def __init__(self, table: Any, flags: Any) -> None:
        self._table = table
        self._flags = flags

    def scalar(self, slot: int, width: str, default: float) -> Any:
        """A number; `default` where the slot is empty."""
        place = self._place(slot)
        return default if place is None else self._table.Get(FLAGS[width](self._flags), place)

    def table(self, slot: int) -> Table | None:
        """A nested table."""
        place = self._place(slot)
        if place is None:
            return None
        return self._at(self._checked(self._table.Indirect(place)))

    def text(self, slot: int) -> str:
        """A string, which may be anything."""
        return self.raw(slot).decode("utf-8", "replace")

    def raw(self, slot: int) -> bytes:
        """A vector of bytes."""
        return self.numbers(slot, "uint8").tobytes()

    def numbers(self, slot: int, dtype: str) -> NDArray[Any]:
        """A vector of numbers, empty where the slot is."""
        place = self._place(slot)
        if place is None:
            return np.empty(0, dtype)
        # Slots hold offsets from the table's start; the library's vector functions want them relative.
        relative = place - self._table.Pos
        length = self._table.VectorLen(relative)
        start = self._checked(self._table.Vector(relative))
        return np.frombuffer(self._table.Bytes, np.dtype(dtype).newbyteorder("<"), length, start)

    def tables(self, slot: int) -> list[Table]:
        """A vector of tables."""
        place = self._place(slot)
        if place is None:
            return []
        relative = place - self._table.Pos
        length = self._table.VectorLen(relative)
        if length > MAX_ITEMS:
            raise ValueError(f"{length} items in one list")
        start = self._table.Vector(relative)
        return [self._at(self._checked(self._table.Indirect(start + 4 * index))) for index in range(length)]

    def _place(self, slot: int) -> int | None:
        offset = self._table.Offset(4 + 2 * slot)
        return self._checked(self._table.Pos + offset) if offset else None

    def _checked(self, place: int) -> int:
        """Python would read negative places from the end."""
        if not 0 <= place < len(self._table.Bytes):
            raise ValueError("a reference outside the file")
        return place

    def _at(self, place: int) -> Table:
        return Table(type(self._table)(self._table.Bytes, place), self._flags)


FLAGS: dict[str, Callable[[Any], Any]] = {
    "bool": lambda flags: flags.BoolFlags,
    "int8": lambda flags: flags.Int8Flags,
    "uint8": lambda flags: flags.Uint8Flags,
    "int32": lambda flags: flags.Int32Flags,
    "uint32": lambda flags: flags.Uint32Flags,
    "uint64": lambda flags: flags.Uint64Flags,
    "float32": lambda flags: flags.Float32Flags,
}


def _root(data: bytes) -> Table:
    try:
        table = importlib.import_module("flatbuffers.table").Table
        flags = importlib.import_module("flatbuffers.number_types")
    except ImportError:
        raise MissingToolError(
            "reading TensorFlow Lite models needs the flatbuffers library", "pip install flatbuffers"
        ) from None
    place = struct.unpack_from("<I", data)[0]
    if place >= len(data):
        raise ValueError("a reference outside the file")
    return Table(table(data, place), flags)


# --- the schema ----------------------------------------------------------------------------------------------------
def _graph(model: Table) -> Graph:
    graphs = model.tables(2)
    if len(graphs) != 1:
        raise InputError(f"has {len(graphs)} graphs", "quantify reads models with one graph and no control flow")
    graph = graphs[0]
    buffers = model.tables(4)
    tensors = tuple(_tensor(index, found, buffers) for index, found in enumerate(graph.tables(0)))
    codes = [_code(found) for found in model.tables(1)]

    def known(found: NDArray[Any], least: int) -> tuple[int, ...]:
        places = tuple(int(entry) for entry in found)
        if len(places) > MAX_ITEMS or any(not least <= place < len(tensors) for place in places):
            raise ValueError("a tensor that does not exist")
        return places

    operators = []
    for index, found in enumerate(graph.tables(3)):
        kind = codes[found.scalar(0, "uint32", 0)]
        operators.append(
            Operator(index, kind, known(found.numbers(1, "int32"), -1), known(found.numbers(2, "int32"), 0),
                     found.table(4))
        )  # fmt: skip
    inputs, outputs = known(graph.numbers(1, "int32"), 0), known(graph.numbers(2, "int32"), 0)
    if len(inputs) != 1 or len(outputs) != 1:
        raise InputError(
            f"has {len(inputs)} inputs and {len(outputs)} outputs", "quantify reads models with one of each"
        )
    return Graph(tensors, tuple(operators), inputs[0], outputs[0])


def _code(found: Table) -> str:
    # Codes above 127 did not fit the first field (schema version 3a).
    code = max(int(found.scalar(0, "int8", 0)), int(found.scalar(3, "int32", 0)))
    return CODES.get(code, f"builtin code {code}")


def _tensor(index: int, found: Table, buffers: list[Table]) -> Tensor:
    shape = tuple(int(size) for size in found.numbers(0, "int32"))
    if len(shape) > 8 or any(size < 0 for size in shape) or math.prod(shape) > MAX_VALUES:
        raise InputError(f"has a tensor of shape {shape[:8]}", f"quantify reads tensors of up to {MAX_VALUES} values")
    code = int(found.scalar(1, "int8", 0))
    kind = TYPES.get(code, f"type {code}")
    name = found.text(3)
    quantised = found.table(4)
    scales = np.empty(0, np.float32) if quantised is None else quantised.numbers(2, "float32")
    zeros = np.empty(0, np.int64) if quantised is None else quantised.numbers(3, "int64")
    if len(zeros) != len(scales):
        raise ValueError(f"tensor {index} has {len(scales)} scales and {len(zeros)} zero points")
    axis = 0 if quantised is None else int(quantised.scalar(6, "int32", 0))
    buffer = buffers[found.scalar(2, "uint32", 0)]
    if buffer.scalar(1, "uint64", 0) > 1 or found.table(6) is not None:
        raise InputError(f"keeps {printable(name)} outside the file or sparse", CONVERT_AGAIN + ", without that option")
    stored = buffer.raw(0)
    values: NDArray[np.generic] | None = None
    if stored:
        if code not in TYPES:
            raise InputError(f"has a constant of {kind}", "quantify reads full-integer models")
        values = np.frombuffer(stored, np.dtype(kind).newbyteorder("<")).reshape(shape)
    return Tensor(index, name, shape, kind, values, scales.astype(np.float32), zeros.astype(np.int64), axis)

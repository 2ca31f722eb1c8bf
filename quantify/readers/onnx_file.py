"""An `.onnx` file to its graph: nodes with plain attributes, constants, one input and one output."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError, MissingToolError
from quantify.readers.unpickle import printable

INSTALL = "pip install 'quantify-ml[onnx]'"
EXPORT_AGAIN = "export the model again"
MAX_NODES = 1 << 12
MAX_VALUES = 1 << 26
"""Most values of all constants together."""
OLDEST = 7
"""Operator set whose broadcasting and normalisation are the present ones."""
NEWEST = 26
"""Newest operator set whose changes were looked at."""
FLOATS = ("float32", "float64")


@dataclass(frozen=True, eq=False)
class Node:
    """One operator of the graph."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    """Names of values, empty for an optional one that is absent; trailing absent ones are left out."""
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    """Integers, floats, text, lists of these, or arrays."""

    def __str__(self) -> str:
        return f"{self.kind} node {printable(self.name)}"


@dataclass(frozen=True, eq=False)
class Graph:
    """The graph of a file."""

    nodes: tuple[Node, ...]
    constants: dict[str, NDArray[Any]]
    input: str
    shape: tuple[int, ...]
    """Of one input, the batch axis left out."""
    batch: int | None
    """1 where the file fixes it, None where it is free."""
    dtype: str
    """Of the input, as numpy calls it."""
    output: str
    opset: int
    producer: str


def read_graph(data: bytes) -> Graph:
    """The graph in the bytes of an `.onnx` file.

    Raises:
        MissingToolError: The onnx library is not installed.
        InputError: No such file, damaged, too large, or with several inputs or outputs.
    """
    try:
        onnx = importlib.import_module("onnx")
        helper = importlib.import_module("onnx.helper")
        arrays = importlib.import_module("onnx.numpy_helper")
        message = importlib.import_module("google.protobuf.message")
    except ImportError:
        raise MissingToolError("reading ONNX models needs the onnx library", INSTALL) from None
    try:
        model = onnx.ModelProto.FromString(data)
    except (message.DecodeError, ValueError, RecursionError) as error:
        raise InputError(f"is no ONNX model ({printable(str(error))})", EXPORT_AGAIN) from None
    try:
        return _graph(model, onnx, helper, arrays)
    # What the library raises for fields that contradict each other.
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError, RuntimeError) as error:
        raise InputError(f"is a damaged ONNX model ({printable(str(error))})", EXPORT_AGAIN) from None


def _graph(model: Any, onnx: Any, helper: Any, arrays: Any) -> Graph:
    if not model.HasField("graph") or not model.graph.node:
        raise InputError("holds no ONNX graph", EXPORT_AGAIN)
    opset = _opset(model)
    if len(model.functions):
        raise InputError("defines functions of its own", "export it without local functions")
    graph = model.graph
    if len(graph.node) > MAX_NODES:
        raise InputError(f"has {len(graph.node)} nodes", f"quantify reads up to {MAX_NODES}")
    if len(graph.sparse_initializer):
        raise InputError("has sparse constants", "export it with dense weights")
    reader = _Arrays(onnx, arrays)
    constants = {tensor.name: reader.read(tensor) for tensor in graph.initializer}
    nodes = tuple(_node(node, onnx, helper, reader) for node in graph.node)
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise InputError(
            f"has {len(inputs)} inputs and {len(graph.output)} outputs",
            "quantify reads models with one input and one output: the scores, or their argmax",
        )
    shape, batch, dtype = _input(inputs[0], helper)
    return Graph(
        nodes, constants, inputs[0].name, shape, batch, dtype, graph.output[0].name, opset,
        printable(f"{model.producer_name} {model.producer_version}".strip()) or "an unnamed program",
    )  # fmt: skip


def _opset(model: Any) -> int:
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if len(versions) != 1 or not OLDEST <= versions[0] <= NEWEST:
        shown = ", ".join(map(str, versions)) or "none"
        raise InputError(
            f"is written for ONNX operator set {shown}", f"export it for one from {OLDEST} to {NEWEST}, such as 17"
        )
    return int(versions[0])


def _input(value: Any, helper: Any) -> tuple[tuple[int, ...], int | None, str]:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        raise InputError(f"does not say what shape its input {printable(value.name)} has", EXPORT_AGAIN)
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    if len(sizes) < 2 or len(sizes) > 6:
        raise InputError(
            f"has an input of {len(sizes)} axes", "quantify reads inputs with a batch axis and one to five more"
        )
    if sizes[0] not in (None, 0, 1):
        raise InputError(f"takes {sizes[0]} inputs at a time", "export it with a free batch axis, or one of size 1")
    rest = tuple(int(size or 0) for size in sizes[1:])
    if any(size < 1 for size in rest):
        raise InputError(
            "has an input whose size is not fixed", "export it with fixed sizes; only the batch may be free"
        )
    if math.prod(rest) > MAX_VALUES:
        raise InputError(f"has an input of shape {rest}", f"quantify reads up to {MAX_VALUES} values")
    return rest, 1 if sizes[0] == 1 else None, _dtype(tensor.elem_type, helper)


def _dtype(code: int, helper: Any) -> str:
    try:
        return str(np.dtype(helper.tensor_dtype_to_np_dtype(code)))
    except KeyError:
        raise InputError(f"has values of type {code}", "quantify reads float32 and float64") from None


def _node(node: Any, onnx: Any, helper: Any, reader: _Arrays) -> Node:
    inputs = list(node.input)
    while inputs and not inputs[-1]:
        inputs.pop()
    domain = node.domain
    kind = node.op_type if domain in ("", "ai.onnx") else f"{domain}.{node.op_type}"
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            attributes[attribute.name] = reader.read(attribute.t)
        elif attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            raise InputError(
                f"has a {printable(kind)} node with a graph inside", "quantify reads graphs without control flow"
            )
        else:
            found = helper.get_attribute_value(attribute)
            attributes[attribute.name] = found.decode("utf-8", "replace") if isinstance(found, bytes) else found
    name = node.name or (node.output[0] if node.output else "")
    return Node(printable(kind), name, tuple(inputs), tuple(node.output), attributes)


class _Arrays:
    """Turns tensors of the file to arrays, counting their values."""

    def __init__(self, onnx: Any, arrays: Any) -> None:
        self._onnx = onnx
        self._arrays = arrays
        self._left = MAX_VALUES

    def read(self, tensor: Any) -> NDArray[Any]:
        if tensor.data_location == self._onnx.TensorProto.EXTERNAL or len(tensor.external_data):
            raise InputError(
                f"keeps {printable(tensor.name)} in another file",
                "save it in one file (onnx.save without external data)",
            )
        if any(size < 0 for size in tensor.dims) or math.prod(tensor.dims) > self._left:
            raise InputError(f"has more than {MAX_VALUES} constants", "quantify reads smaller models")
        self._left -= math.prod(tensor.dims)
        return np.asarray(self._arrays.to_array(tensor))

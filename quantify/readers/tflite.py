"""A full-integer TensorFlow Lite classifier to a Model that computes what the reference kernels do, bit for bit."""

from __future__ import annotations

import importlib
import math
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError, MissingToolError
from quantify.ir.model import Decision, Model, Predict
from quantify.ir.network import Network, RequantiseLayer
from quantify.readers.installed import TENSORFLOW, versions
from quantify.readers.integer_network import scores
from quantify.readers.tflite_file import CONVERT_AGAIN, DAMAGE, IDENTIFIER, Graph, Operator, Tensor, read_graph
from quantify.readers.tflite_layers import FULL_INTEGER, SHAPES, Builder, scale_of, zero_of
from quantify.readers.unpickle import printable

INSTALL = "pip install 'quantify-ml[tflite]'"


class TfliteReader:
    """Reads full-integer `.tflite` classifiers; see `readers.Reader`."""

    name = "TensorFlow Lite int8 networks"
    suffixes = (".tflite",)

    def sniff(self, data: bytes) -> bool:
        """Whether the flatbuffer's identifier is TensorFlow Lite's."""
        return data[4:8] == IDENTIFIER

    def read(self, path: Path, data: bytes, sha256: str, *, trust_pickle: bool) -> Model:
        """See `readers.Reader.read`."""
        try:
            network = network_of(data)
        except (InputError, MissingToolError) as error:
            raise type(error)(f"{path}: {error.message}", error.hint) from None
        return Model(
            path=str(path),
            sha256=sha256,
            kind="network",
            classes=tuple(str(label) for label in range(2 if network.head == "sigmoid" else network.outputs)),
            columns=network.inputs,
            column_names=None,
            structure=network,
            predict=predictor(network),
            accepts_missing=False,
            library="quantify's own evaluation of TensorFlow Lite's reference kernels",
            predict_by=lambda decision: predictor(network, decision),
            library_predict=lambda decision: library_predict(path, network, decision),
            library_version=lambda: versions(("ai-edge-litert", *TENSORFLOW)),
        )


READER = TfliteReader()


def predictor(network: Network, decision: Decision = "argmax") -> Predict:
    """The label of real inputs, quantised as a device would: nearest step, clamped to int8.

    Raises:
        InputError: argmin of a softmax, whose small outputs are all alike.
    """
    refuse_argmin(network, decision)

    def predict(inputs: NDArray[np.float64]) -> NDArray[np.int64]:
        found = scores(network, quantised(network, inputs))
        if network.head == "sigmoid":
            return np.asarray(found[:, 0] >= 0, np.int64)
        best = found.argmax(axis=1) if decision == "argmax" else found.argmin(axis=1)
        return np.asarray(best, np.int64)

    return predict


def refuse_argmin(network: Network, decision: Decision) -> None:
    """The order of small softmax outputs is lost in int8.

    Raises:
        InputError: It is asked for.
    """
    if decision == "argmin" and network.squash == "softmax":
        raise InputError(
            "decision: argmin of an int8 softmax, whose smallest outputs are all equal", "use decision: argmax"
        )


def quantised(network: Network, inputs: NDArray[np.float64]) -> NDArray[np.int64]:
    """int8 values of real inputs, halves away from zero, then clamped: in float32 where the file does it itself.

    quantize.h, `AffineQuantize`, for the latter.
    """
    assert network.input_scale is not None
    scale = np.array(float(network.input_scale))
    kind = "float32" if network.input_rounding == "float32" else "float64"
    with np.errstate(over="ignore"):
        steps = (inputs.astype(kind) / scale.astype(kind)).astype(np.float64)
    nearest = np.copysign(np.floor(np.abs(steps) + 0.5), steps) + network.input_zero_point
    clamped: NDArray[np.int64] = np.clip(nearest, -128, 127).astype(np.int64)
    return clamped


# --- the network ---------------------------------------------------------------------------------------------------
def network_of(data: bytes) -> Network:
    """The network in the bytes of a `.tflite` file.

    Raises:
        InputError: Damaged, or a model that is not counted; the message names the operator.
        MissingToolError: The flatbuffers library is not installed.
    """
    try:
        return _network(data)
    # Options are read late, and may be damaged as well.
    except DAMAGE as error:
        raise InputError(f"is a damaged TensorFlow Lite model ({printable(str(error))})", CONVERT_AGAIN) from None


def _network(data: bytes) -> Network:
    graph = read_graph(data)
    chain = _without_shapes(graph)
    if not chain:
        raise InputError("computes nothing", CONVERT_AGAIN)
    start = graph.tensors[graph.input]
    graph, chain, first = _unwrapped_input(graph, chain)
    chain, last = _unwrapped_output(graph, chain)
    given, result = graph.tensors[first], graph.tensors[last]
    if given.type != "int8" or result.type != "int8":
        kind = given.type if given.type != "int8" else result.type
        raise InputError(f"computes in {kind}", f"quantify reads full-integer int8 models: {FULL_INTEGER}")
    if given.shape[:1] != (1,):
        raise InputError(f"takes inputs of shape {given.shape}", "quantify reads models for one input at a time")
    builder = Builder(graph, first)
    builder.input()
    scored = first
    for operator in chain:
        builder.add(operator)
        # The scores are what goes into a softmax or sigmoid.
        scored = scored if builder.squash != "none" else builder.current
    if builder.current != last:
        raise InputError("has an output that its last operator does not compute", CONVERT_AGAIN)
    classes = result.shape[-1] if result.shape else 0
    if classes < 1 or classes != math.prod(result.shape):
        raise InputError(f"has outputs of shape {result.shape}", "quantify reads classifiers: one vector of scores")
    if classes == 1 and builder.squash != "sigmoid":
        raise InputError("has one output", "quantify reads classifiers with an output a class, or one sigmoid")
    if not any(isinstance(layer, RequantiseLayer) for layer in builder.layers):
        raise InputError("computes nothing", CONVERT_AGAIN)
    builder.without_zero_point(zero_of(graph.tensors[scored]))
    return Network(
        inputs=math.prod(given.shape),
        layers=tuple(builder.layers),
        outputs=classes,
        dtype="float32",
        head="sigmoid" if builder.squash == "sigmoid" else "order",
        squash=builder.squash,
        input_scale=Fraction(scale_of(given)),
        input_zero_point=zero_of(given),
        output_scale=Fraction(scale_of(graph.tensors[scored])),
        input_rounding="float32" if start.type == "float32" else "nearest",
    )


def _without_shapes(graph: Graph) -> list[Operator]:
    """The operators, without those that only compute a shape for a reshape."""
    made: set[int] = set()
    chain = []
    for operator in graph.operators:
        if operator.kind in SHAPES and all(graph.tensors[out].type == "int32" for out in operator.outputs):
            made.update(operator.outputs)
        else:
            chain.append(operator)
    for operator in chain:
        if made.intersection(operator.inputs if operator.kind != "RESHAPE" else operator.inputs[:1]):
            raise InputError(f"{operator} reads a shape", "quantify reads chains of operators")
    return chain


def _unwrapped_input(graph: Graph, chain: list[Operator]) -> tuple[Graph, list[Operator], int]:
    """Without a first QUANTIZE from float32, or from uint8 of the same scale, which is a step of 128."""
    first = chain[0]
    given = graph.tensors[graph.input]
    if first.kind != "QUANTIZE" or given.type not in ("float32", "uint8"):
        return graph, chain, graph.input
    if first.inputs != (graph.input,) or len(first.outputs) != 1:
        raise InputError(f"{first} does not read the input", CONVERT_AGAIN)
    after = graph.tensors[first.outputs[0]]
    if given.type == "uint8" and not _shifted(given, after):
        raise InputError(f"{first} changes the scale", CONVERT_AGAIN)
    return graph, chain[1:], after.index


def _unwrapped_output(graph: Graph, chain: list[Operator]) -> tuple[list[Operator], int]:
    """Without a last DEQUANTIZE, or QUANTIZE to uint8 of the same scale: both keep the order."""
    result = graph.tensors[graph.output]
    if not chain or result.type not in ("float32", "uint8") or chain[-1].kind not in ("DEQUANTIZE", "QUANTIZE"):
        return chain, graph.output
    last = chain[-1]
    if len(last.inputs) != 1 or last.outputs != (graph.output,):
        raise InputError(f"{last} does not give the output", CONVERT_AGAIN)
    before = graph.tensors[last.inputs[0]]
    if result.type == "uint8" and not _shifted(result, before):
        raise InputError(f"{last} changes the scale", CONVERT_AGAIN)
    return chain[:-1], before.index


def _shifted(unsigned: Tensor, signed: Tensor) -> bool:
    """Whether both hold the same real numbers."""
    return scale_of(unsigned) == scale_of(signed) and zero_of(unsigned) == zero_of(signed) + 128


# --- the library itself --------------------------------------------------------------------------------------------
def library_predict(path: Path, network: Network, decision: Decision = "argmax") -> Predict:
    """The interpreter's own prediction, with its reference kernels; `network` is what was read from the file.

    Raises:
        MissingToolError: No interpreter is installed; the hint is the command that installs it.
        InputError: The interpreter cannot load the file.
    """
    refuse_argmin(network, decision)
    run = library_outputs(path, network)

    def predict(inputs: NDArray[np.float64]) -> NDArray[np.int64]:
        found = run(inputs)
        if network.head == "sigmoid":
            half = {"i": 0.0, "u": 128.0, "f": 0.5}[found.dtype.kind]
            return np.asarray(found[:, 0] >= half, np.int64)
        best = found.argmax(axis=1) if decision == "argmax" else found.argmin(axis=1)
        return np.asarray(best, np.int64)

    predict.__doc__ = run.__doc__
    return predict


def library_outputs(path: Path, network: Network) -> Any:
    """The interpreter as a function from real inputs to its output tensors, (rows × classes); see `library_predict`."""
    lite, version = _interpreter()
    try:
        interpreter = lite.Interpreter(
            model_content=path.read_bytes(),
            experimental_op_resolver_type=lite.OpResolverType.BUILTIN_REF,
            num_threads=1,
        )
        interpreter.allocate_tensors()
    # The library raises whatever it meets.
    except Exception as error:
        raise InputError(f"{path}: the interpreter cannot load it ({printable(str(error))})", CONVERT_AGAIN) from None
    given, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    shape = [int(size) for size in given["shape"]]
    kind = np.dtype(given["dtype"])

    def run(inputs: NDArray[np.float64]) -> NDArray[Any]:
        if kind.kind == "f":
            values = inputs.astype(kind)
        else:
            values = (quantised(network, inputs) + (128 if kind == np.uint8 else 0)).astype(kind)
        parts = []
        for row in values:
            interpreter.set_tensor(given["index"], row.reshape(shape))
            interpreter.invoke()
            parts.append(interpreter.get_tensor(result["index"]).reshape(-1))
        return np.array(parts).reshape(len(values), network.outputs)

    run.__doc__ = version
    return run


def _interpreter() -> tuple[Any, str]:
    """The module with `Interpreter` and `OpResolverType`, and what it is called."""
    # TensorFlow's start-up messages would mix with ours.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        found = importlib.import_module("ai_edge_litert.interpreter")
        return found, "the LiteRT interpreter"
    except ImportError:
        pass
    try:
        tensorflow = importlib.import_module("tensorflow")
        found = importlib.import_module("tensorflow.lite.python.interpreter")
    except ImportError:
        raise MissingToolError("no TensorFlow Lite interpreter is installed", INSTALL) from None
    return found, f"the interpreter of TensorFlow {tensorflow.__version__}"

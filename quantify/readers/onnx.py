"""A feed-forward ONNX classifier to a Model, read as data: no runtime is needed."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError, MissingToolError
from quantify.ir.model import Ambiguous, Decision, Model, Predict
from quantify.ir.network import Network
from quantify.readers.float_error import ambiguous as error_bound_ambiguous
from quantify.readers.float_network import at_least, predictor, scores
from quantify.readers.installed import versions
from quantify.readers.onnx_file import EXPORT_AGAIN, INSTALL, read_graph
from quantify.readers.onnx_layers import network_of
from quantify.readers.unpickle import printable

Matrix = NDArray[np.float64]

BATCH = 4096
NEAR = 2.0**-18


class OnnxReader:
    """Reads feed-forward ONNX classifiers; see `readers.Reader`."""

    name = "ONNX networks"
    suffixes = (".onnx",)

    def sniff(self, data: bytes) -> bool:
        """Whether the bytes begin like a ModelProto: the format's version, then who produced it or what it needs."""
        return len(data) > 3 and data[0] == 0x08 and 3 <= data[1] < 0x20 and data[2] in (0x12, 0x1A, 0x3A, 0x42)

    def read(self, path: Path, data: bytes, sha256: str, *, trust_pickle: bool) -> Model:
        """See `readers.Reader.read`."""
        try:
            graph = read_graph(data)
            network = network_of(graph)
        except (InputError, MissingToolError) as error:
            raise type(error)(f"{path}: {error.message}", error.hint) from None
        outputs = 2 if network.head == "sigmoid" else network.outputs
        return Model(
            path=str(path),
            sha256=sha256,
            kind="network",
            classes=tuple(str(label) for label in range(outputs)),
            columns=network.inputs,
            column_names=None,
            structure=network,
            predict=predictor(network),
            accepts_missing=False,
            library=f"quantify's own {network.dtype} evaluation (file written by {graph.producer})",
            ambiguous=ambiguous(network) if network.squash == "sigmoid" and network.head == "order" else None,
            library_predict=lambda decision: library_predict(path, network, decision),
            library_version=lambda: versions(("onnxruntime",)),
        )


READER = OnnxReader()


def ambiguous(network: Network) -> Ambiguous:
    """The error bound of a network that ends in several sigmoids, with what ONNX Runtime's sigmoid adds.

    Its float32 sigmoid is a rational approximation that reaches 0 and 1 early (MLAS, logistic.cpp): outputs closer than
    NEAR may come in any order.
    """

    def found(inputs: Matrix, input_error: Matrix, decision: Decision) -> NDArray[np.bool_]:
        values = scores(network, inputs).astype(np.float64)
        with np.errstate(over="ignore"):
            outputs = np.sort(1 / (1 + np.exp(-values)), axis=1)
        two = outputs[:, -2:] if decision == "argmax" else outputs[:, :2]
        close = two[:, 1] - two[:, 0] < NEAR
        return np.asarray(close | error_bound_ambiguous(network, inputs, input_error=input_error, decision=decision))

    return found


# --- the library itself --------------------------------------------------------------------------------------------
def library_predict(path: Path, network: Network, decision: Decision = "argmax") -> Predict:
    """ONNX Runtime's own prediction with the model in `path`, node by node as the file says (no graph optimisation).

    `network` is what was read from the file.

    Raises:
        MissingToolError: ONNX Runtime is not installed; the hint is the command that installs it.
        InputError: It cannot load the file, or the file names a label and argmin was asked for.
    """
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        raise MissingToolError("ONNX Runtime is not installed", INSTALL) from None
    data = path.read_bytes()
    graph = read_graph(data)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    # The library raises whatever it meets.
    except Exception as error:
        raise InputError(f"{path}: ONNX Runtime cannot load it ({printable(str(error))})", EXPORT_AGAIN) from None
    step = 1 if graph.batch == 1 else BATCH

    def outputs(inputs: NDArray[np.float64]) -> NDArray[np.generic]:
        given = inputs.astype(graph.dtype).reshape(len(inputs), *graph.shape)
        parts = [
            np.asarray(session.run(None, {graph.input: given[at : at + step]})[0]).reshape(
                len(given[at : at + step]), -1
            )
            for at in range(0, len(given), step)
        ]
        return np.concatenate(parts) if parts else np.empty((0, 1), np.int64)

    if decision == "argmin" and outputs(np.zeros((1, network.inputs))).dtype.kind != "f":
        raise InputError(f"{path}: the file itself takes the argmax", "use decision: argmax")

    def predict(inputs: NDArray[np.float64]) -> NDArray[np.int64]:
        found = outputs(inputs)
        if found.dtype.kind != "f":
            return found[:, 0].astype(np.int64)
        if network.head == "sigmoid":
            return at_least(np.asarray(found[:, 0], np.float64), network).astype(np.int64)
        best = found.argmax(axis=1) if decision == "argmax" else found.argmin(axis=1)
        return np.asarray(best, np.int64)

    predict.__doc__ = f"ONNX Runtime {runtime.__version__}"
    return predict

"""A recurrent Keras classifier in a `.keras` archive or an HDF5 file to a RecurrentNetwork, read as data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError
from quantify.ir.record import ModelRef
from quantify.ir.recurrent import Activation, Cell, DenseLayer, Floats, Head, RecurrentLayer, RecurrentNetwork
from quantify.readers import keras, read_bytes
from quantify.readers.keras_builder import Wanted, Weights, number, sizes
from quantify.readers.keras_config import LayerConfig
from quantify.readers.unpickle import printable

GATES: dict[Cell, int] = {"gru": 3, "lstm": 4}
HIDDEN: tuple[Activation, ...] = ("linear", "relu", "tanh", "sigmoid")
DEFAULTS = {"activation": "tanh", "recurrent_activation": "sigmoid"}
UNWANTED = {
    "go_backwards": "reads its input from the end",
    "stateful": "keeps its state between batches",
    "return_state": "returns its state as well",
    "time_major": "takes time as its first axis",
}
MAX_UNITS = 1 << 12


def read_recurrent(path: Path) -> tuple[RecurrentNetwork, ModelRef]:
    """The network in a Keras file, and the file's name, digest and kind.

    Raises:
        InputError: Not a Keras file, or a layer or weights that make no recurrent classifier; the message names it.
        UnsafeFileError: The file holds code.
    """
    data = read_bytes(path)
    if not keras.READER.sniff(data):
        raise InputError(f"{path}: not a Keras file", "save a recurrent network with model.save('NAME.keras')")
    try:
        chain, weights, _ = keras.opened(data)
        chain.dtype("float32")
        building = _Building(weights, chain.input_sizes)
        for layer in chain.layers:
            weights.visit(layer)
            building.add(layer)
        network = building.finished()
        weights.finish()
    except InputError as error:
        raise type(error)(f"{path}: {error.message}", error.hint) from None
    return network, ModelRef(str(path), hashlib.sha256(data).hexdigest(), network.kind)


def library_scores(path: Path, network: RecurrentNetwork) -> Callable[[Floats], NDArray[np.float64]]:
    """Keras itself: inputs (rows × steps × features) to probabilities (rows × classes).

    Raises:
        MissingToolError: TensorFlow is not installed; the hint is the command that installs it.
        InputError: Keras cannot load the file.
    """
    model, _ = keras.loaded(path)
    shape = tuple(model.input_shape[1:])

    def scores(inputs: Floats) -> NDArray[np.float64]:
        given = inputs.reshape(len(inputs), *shape) if None not in shape else inputs
        found = np.asarray(model.predict(given, verbose=0, batch_size=1024), np.float64)
        return found if network.head_given and network.head == "softmax" else probabilities(found, network)

    def probabilities(found: NDArray[np.float64], network: RecurrentNetwork) -> NDArray[np.float64]:
        if network.head == "sigmoid":
            one = found if network.head_given else 1 / (1 + np.exp(-found))
            return np.concatenate([1 - one, one], axis=1)
        powers = np.exp(found - found.max(axis=1, keepdims=True))
        total: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
        return total

    return scores


@dataclass
class _Building:
    """The network so far."""

    weights: Weights
    shape: tuple[int | None, ...] | None
    """Of the values that the next layer gets: (steps, features) up to the last recurrent layer, then (units,)."""
    layers: list[RecurrentLayer] = field(default_factory=list)
    dense: list[DenseLayer] = field(default_factory=list)
    steps: int | None = None
    head: Head | None = None
    scaling: tuple[float, float] | None = None

    def add(self, layer: LayerConfig) -> None:
        """Append one layer of the file."""
        convert = CONVERTERS.get(layer.kind)
        if convert is None:
            raise InputError(f"{layer} is not supported", "evolve reads " + ", ".join(sorted(CONVERTERS)))
        try:
            if self.head is not None and layer.kind != "Dropout":
                raise InputError(f"follows a {self.head}", "evolve reads softmax and sigmoid at the end only")
            convert(self, layer)
        except InputError as error:
            named = error.message if error.message.startswith(str(layer)) else f"{layer} {error.message}"
            raise type(error)(named, error.hint) from None

    def finished(self) -> RecurrentNetwork:
        """The whole network.

        Raises:
            InputError: No recurrent layer, a sequence at the end, or no probabilities of two classes and more.
        """
        if not self.layers:
            raise InputError(
                "has no recurrent layer", "evolve reads GRU and LSTM networks; others are counted: quantify count"
            )
        if len(self.shape or ()) != 1:
            raise InputError("returns a sequence", "give its last recurrent layer return_sequences=False")
        if not self.dense:
            raise InputError("ends with its recurrent layer", "end it with a dense layer and a softmax")
        last = self.dense[-1]
        width = len(last.bias)
        if self.head is None and last.activation != "linear":
            raise InputError(
                f"ends with {width} results of {last.activation}, which are no probabilities of classes",
                "end it with a softmax, or with a single sigmoid",
            )
        head: Head = self.head or ("softmax" if width > 1 else "sigmoid")
        if head == "softmax" and width < 2:
            raise InputError("has a softmax over a single output", "it needs a unit for each solver, or a sigmoid")
        scale, offset = self.scaling or (1.0, 0.0)
        return RecurrentNetwork(
            tuple(self.layers), tuple(self.dense), head, self.head is not None, self.steps, scale, offset
        )

    def arrays(self, layer: LayerConfig, shapes: Sequence[Wanted]) -> list[Floats]:
        """The layer's weights: finite float32."""
        found = self.weights.take(layer, shapes)
        for array in found:
            if array.dtype != np.float32:
                raise InputError(f"has weights of type {array.dtype}", "evolve reads float32 weights")
            if not np.isfinite(array).all():
                raise InputError("has weights that are infinite or no numbers", "train the model again")
        return [np.ascontiguousarray(array, np.float32) for array in found]

    def sequence(self) -> tuple[int | None, int]:
        """Steps and features of what the next layer gets, which must be a sequence."""
        if self.shape is None or len(self.shape) != 2 or self.shape[1] is None:
            shown = (
                "unknown" if self.shape is None else f"({', '.join('?' if s is None else str(s) for s in self.shape)})"
            )
            raise InputError(f"gets values of shape {shown}", "give the model an Input((items, 1))")
        return self.shape[0], self.shape[1]

    def vector(self) -> int:
        """Width of the vector that the next layer gets, after the recurrent layers."""
        if not self.layers or self.shape is None or len(self.shape) != 1 or self.shape[0] is None:
            raise InputError(
                "does not follow the last recurrent layer's final state",
                "evolve reads recurrent layers, the last with return_sequences=False, and dense layers after them",
            )
        return self.shape[0]


def _recurrent(cell: Cell) -> Callable[[_Building, LayerConfig], None]:
    def convert(building: _Building, layer: LayerConfig) -> None:
        config = layer.config
        steps, inputs = building.sequence()
        (units,) = sizes(config, "units", 1, None)
        if units > MAX_UNITS:
            raise InputError(f"has {units} units", f"evolve reads up to {MAX_UNITS}")
        for name, default in DEFAULTS.items():
            given = _activation(config.get(name, default))
            if given != default:
                raise InputError(f"has the {name} {given}", f"evolve reads recurrent layers with {default} there")
        for name, does in UNWANTED.items():
            if config.get(name):
                raise InputError(f"{does} ({name}=True)", "evolve reads recurrent layers without it")
        after = cell == "gru" and _flag(config, "reset_after", None)
        columns = GATES[cell] * units
        shapes: list[Wanted] = [(inputs, columns), (units, columns)]
        if _flag(config, "use_bias", True):
            shapes.append((2, columns) if after else (columns,))
        kernel, recurrent, *biases = building.arrays(layer, shapes)
        bias = biases[0] if biases else np.zeros((2, columns) if after else columns, np.float32)
        first, second = (bias[0], bias[1]) if after else (bias, None)
        building.layers.append(RecurrentLayer(cell, kernel, recurrent, first, second))
        building.shape = (steps, units) if _flag(config, "return_sequences", False) else (units,)
        if len(building.layers) == 1:
            building.steps = steps

    return convert


def _dense(building: _Building, layer: LayerConfig) -> None:
    config = layer.config
    width = building.vector()
    (units,) = sizes(config, "units", 1, None)
    if units > MAX_UNITS:
        raise InputError(f"has {units} units", f"evolve reads up to {MAX_UNITS}")
    if config.get("quantization_config") is not None or config.get("lora_rank") is not None:
        raise InputError("is quantised or has LoRA weights", "save the float model")
    use_bias = _flag(config, "use_bias", True)
    shapes: list[Wanted] = [(width, units), (units,)]
    kernel, *biases = building.arrays(layer, shapes[: 1 + use_bias])
    building.dense.append(DenseLayer(kernel, biases[0] if use_bias else np.zeros(units, np.float32)))
    building.shape = (units,)
    _activate(building, _activation(config.get("activation")))


def _activate(building: _Building, name: str) -> None:
    """What a dense layer's activation makes of its units; a sigmoid of the last layer is found to be one later."""
    *before, last = building.dense
    if name == "softmax" or (name == "sigmoid" and len(last.bias) == 1):
        building.head = "softmax" if name == "softmax" else "sigmoid"
        return
    for known in HIDDEN:
        if name == known:
            if last.activation != "linear":
                raise InputError(f"follows the activation {last.activation}", "give each layer one activation")
            building.dense = [*before, DenseLayer(last.kernel, last.bias, known)]
            return
    raise InputError(f"has the activation {name}", f"evolve reads {', '.join([*HIDDEN, 'softmax'])}")


def _activation_layer(building: _Building, layer: LayerConfig) -> None:
    building.vector()
    if not building.dense:
        raise InputError("does not follow a dense layer", "evolve reads activations of dense layers")
    _activate(building, "softmax" if layer.kind == "Softmax" else _activation(layer.config.get("activation")))


def _rescaling(building: _Building, layer: LayerConfig) -> None:
    if building.layers or building.scaling is not None:
        raise InputError("is not the first layer", "evolve reads one Rescaling, before the recurrent layers")
    scale, offset = (number(layer.config, name, default=given) for name, given in (("scale", 1.0), ("offset", 0.0)))
    building.scaling = float(np.float32(1.0 if scale is None else scale)), float(np.float32(offset or 0.0))


def _reshape(building: _Building, layer: LayerConfig) -> None:
    """(items,) to (items, 1): an instance as a sequence."""
    target = layer.config.get("target_shape")
    given = building.shape
    if building.layers or given is None or len(given) != 1 or target not in ([-1, 1], [given[0], 1]):
        raise InputError(
            f"makes {printable(str(given))} into {printable(str(target))}", "evolve reads a Reshape to (items, 1)"
        )
    building.shape = (given[0], 1)


def _ignored(building: _Building, layer: LayerConfig) -> None:
    """Does nothing when predicting."""


def _flag(config: Any, name: str, default: bool | None) -> bool:
    found = config.get(name, default)
    if not isinstance(found, bool):
        raise InputError(f"says {printable(str(found))} for {name}", "save the model again with model.save")
    return found


def _activation(found: Any) -> str:
    """Its name, in any way that Keras writes it."""
    if found is None:
        return "linear"
    if isinstance(found, dict):
        found = found.get("config") if isinstance(found.get("config"), str) else found.get("class_name")
    return printable(str(found))


CONVERTERS: dict[str, Callable[[_Building, LayerConfig], None]] = {
    "GRU": _recurrent("gru"),
    "LSTM": _recurrent("lstm"),
    "Dense": _dense,
    "Activation": _activation_layer,
    "Softmax": _activation_layer,
    "Rescaling": _rescaling,
    "Reshape": _reshape,
    "Dropout": _ignored,
    "SpatialDropout1D": _ignored,
    "GaussianNoise": _ignored,
    "GaussianDropout": _ignored,
}

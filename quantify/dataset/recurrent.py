"""A recurrent network in a Keras file to a selector: rows of whole numbers in, probabilities out, natively.

The scores of a row are bit for bit the same alone, in any batch and in any process of one machine: every instance has
a lane of its own. Against the library they differ by the rounding of float32.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.dataset.native import ffi, lib, pointer
from quantify.errors import InputError
from quantify.ir.record import ModelRef
from quantify.ir.recurrent import DenseLayer, Floats, RecurrentLayer, RecurrentNetwork
from quantify.ir.selector import Instances
from quantify.readers.keras_recurrent import library_scores, read_recurrent

ISAS = {"": 0, "portable": 1, "avx2": 2, "avx512": 3, "vnni": 4}
"""Instruction sets by the name that QUANTIFY_ISA gives; what is beyond avx2 computes in avx2."""
KINDS = {"gru_after": 0, "gru": 1, "lstm": 2, "dense": 3}
ACTIVATIONS = {"linear": 0, "relu": 1, "tanh": 2, "sigmoid": 3}


class RecurrentSelector:
    """A network, the file that it came from, and how sizes become its inputs; see `ir.selector.Selector`."""

    def __init__(self, network: RecurrentNetwork, ref: ModelRef, scale: Fraction, offset: Fraction) -> None:
        """Sizes x become x · scale + offset, computed in float64 and rounded to float32 once.

        Raises:
            InputError: The network takes more than one number a time step.
        """
        if network.features != 1:
            raise InputError(
                f"{ref.path}: takes {network.features} numbers at each time step, an instance has one",
                "train it on inputs of shape (items, 1)",
            )
        self.network = network
        self.ref = ref
        self.length = network.steps
        self.scale, self.offset = scale, offset
        self._native: _Native | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # What is native is made anew in each process.
        return RecurrentSelector, (self.network, self.ref, self.scale, self.offset)

    @property
    def note(self) -> str | None:
        """What must be said of the probabilities, or None."""
        if self.network.head_given:
            return None
        return f"the network ends without a {self.network.head}: its results were taken for logits"

    def inputs(self, instances: Instances) -> Floats:
        """What the library's network is given for each row, (rows × steps × 1).

        Raises:
            InputError: The network was built for another length.
        """
        if self.length is not None and instances.shape[1] != self.length:
            raise InputError(
                f"{self.ref.path}: takes instances of {self.length} items, not of {instances.shape[1]}",
                "give the instances that the model is for",
            )
        if self.scale == 1 and self.offset == 0:
            return instances.astype(np.float32, order="C")[:, :, None]
        values = instances.astype(np.float64) * float(self.scale) + float(self.offset)
        return values.astype(np.float32, order="C")[:, :, None]

    def scores(self, instances: Instances) -> NDArray[np.float64]:
        """Probabilities of each row, (rows × classes), every row summing to 1.

        Raises:
            InputError: Rows of a length that the network does not take.
        """
        given = self.inputs(instances)
        if (self.network.scale, self.network.offset) != (1.0, 0.0):
            given *= np.float32(self.network.scale)
            given += np.float32(self.network.offset)
        if self._native is None:
            self._native = _Native(self.network)
        return self._native(given)

    def library(self) -> Callable[[Instances], NDArray[np.float64]]:
        """`scores` as Keras itself computes them, in the order of its own; the call imports Keras.

        Raises:
            MissingToolError: TensorFlow is not installed; the hint is the command that installs it.
        """
        ask = library_scores(Path(self.ref.path), self.network)
        return lambda instances: ask(self.inputs(instances))


def load(path: Path, *, scale: Fraction = Fraction(1), offset: Fraction = Fraction(0)) -> RecurrentSelector:
    """The recurrent network in a Keras file as a selector.

    Raises:
        InputError: Not such a file, or a network that is not supported.
        UnsafeFileError: The file holds code.
    """
    return RecurrentSelector(*read_recurrent(path), scale, offset)


class _Native:
    """The network in the form of native/recurrent.h."""

    def __init__(self, network: RecurrentNetwork) -> None:
        self._keep: list[NDArray[Any]] = []
        self._layers = ffi().new("recurrent_layer[]", len(network.layers) + len(network.dense))
        for number, recurrent in enumerate(network.layers):
            self._recurrent(self._layers[number], recurrent)
        for number, dense in enumerate(network.dense, len(network.layers)):
            self._dense(self._layers[number], dense)
        self._outputs = self._layers[len(self._layers) - 1].units
        self._sigmoid = network.head == "sigmoid"
        self._shape = ffi().new("recurrent_shape *")
        self._shape.layers = self._layers
        self._shape.count, self._shape.recurrent = len(self._layers), len(network.layers)
        self._shape.features, self._shape.outputs = network.features, self._outputs

    def __call__(self, inputs: Floats) -> NDArray[np.float64]:
        """Probabilities (rows × classes) of inputs (rows × steps × features)."""
        name = os.environ.get("QUANTIFY_ISA", "")
        if name not in ISAS:
            known = ", ".join(key for key in ISAS if key)
            raise InputError(f"there is no instruction set {name!r}", f"set QUANTIFY_ISA to one of: {known}")
        rows, steps, _ = inputs.shape
        found = np.empty((rows, self._outputs), np.float32)
        given, taken = pointer("float", inputs), pointer("float", found)
        failed = lib().recurrent_scores(self._shape, given, rows, steps, ISAS[name], taken)
        if failed == 2:
            raise InputError("this processor lacks what QUANTIFY_ISA asks for", "unset QUANTIFY_ISA")
        if failed:
            raise MemoryError
        probabilities = np.empty((rows, 2 if self._sigmoid else self._outputs))
        lib().recurrent_probabilities(taken, rows, self._outputs, self._sigmoid, pointer("double", probabilities))
        return probabilities

    def _recurrent(self, target: Any, layer: RecurrentLayer) -> None:
        units, after = layer.units, layer.recurrent_bias
        kind = "lstm" if layer.cell == "lstm" else "gru" if after is None else "gru_after"
        bias = layer.bias.copy()
        if after is not None:  # what update and reset gates add up anyway
            bias[: 2 * units] += after[: 2 * units]
            target.candidate_bias = self._kept(after[2 * units :])
        target.kind, target.inputs, target.units = KINDS[kind], layer.inputs, units
        target.kernel = self._kept(np.concatenate([layer.kernel, layer.recurrent_kernel]))
        target.bias = self._kept(bias)

    def _dense(self, target: Any, layer: DenseLayer) -> None:
        target.kind, target.activation = KINDS["dense"], ACTIVATIONS[layer.activation]
        target.inputs, target.units = layer.kernel.shape
        target.kernel, target.bias = self._kept(layer.kernel), self._kept(layer.bias)

    def _kept(self, array: Floats) -> Any:
        self._keep.append(np.ascontiguousarray(array, np.float32))
        return pointer("float", self._keep[-1])

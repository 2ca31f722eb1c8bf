"""Recurrent networks that classify sequences, as read from a file: GRU and LSTM layers, then dense ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Cell = Literal["gru", "lstm"]
Activation = Literal["linear", "relu", "tanh", "sigmoid"]
Head = Literal["softmax", "sigmoid"]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentLayer:
    """One layer over time, with tanh and sigmoid where its library has them by default; its first state is zero.

    Columns, `units` each: update, reset and candidate of a GRU; input, forget, cell and output of an LSTM.
    """

    cell: Cell
    kernel: Floats
    """(inputs × columns)"""
    recurrent_kernel: Floats
    """(units × columns)"""
    bias: Floats
    """(columns), added to the inputs' product."""
    recurrent_bias: Floats | None
    """(columns), added to the state's product: a GRU whose reset gate multiplies that product (`reset_after`).

    None: an LSTM, or a GRU whose reset gate multiplies the state itself.
    """

    @property
    def units(self) -> int:
        """Width of the hidden state."""
        return len(self.recurrent_kernel)

    @property
    def inputs(self) -> int:
        """Width of what it is given at each time step."""
        return len(self.kernel)


@dataclass(frozen=True, slots=True, eq=False)
class DenseLayer:
    """activation(x · kernel + bias)."""

    kernel: Floats
    """(inputs × units)"""
    bias: Floats
    """(units)"""
    activation: Activation = "linear"


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentNetwork:
    """Sequences of vectors to probabilities of classes."""

    layers: tuple[RecurrentLayer, ...]
    """At least one; each hands on its state at every time step, the last one at the last only."""
    dense: tuple[DenseLayer, ...]
    """At least one."""
    head: Head
    """Softmax over the last layer's units, or sigmoid of its only unit: the probability of class 1."""
    head_given: bool
    """Whether the file has the head; else its last layer is linear, and its results were taken for logits."""
    steps: int | None
    """Length of the sequences that the file fixes."""
    scale: float = 1.0
    offset: float = 0.0
    """A layer before all others that makes x into x · scale + offset, both float32."""

    @property
    def features(self) -> int:
        """Width of a time step."""
        return self.layers[0].inputs

    @property
    def classes(self) -> int:
        """Number of probabilities, at least two."""
        return 2 if self.head == "sigmoid" else len(self.dense[-1].bias)

    @property
    def kind(self) -> str:
        """ "gru", "lstm" or "gru+lstm", by its layers."""
        return "+".join(sorted({layer.cell for layer in self.layers}))

"""Feed-forward networks: as read from a file (`Network`, the library's own constants) and in integers (`IntNetwork`).

Both are chains of flat vectors: convolution, pooling, reshapes and the library's memory order are resolved by the
reader into sparse rows over the flattened input of each layer, so that every later stage is one kind of loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # a counter's child process imports this module and must start fast
    import numpy as np
    from numpy.typing import NDArray


# --- as read -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Rows:
    """Sparse rows over an input vector (CSR): row i has columns[start[i]:start[i+1]] and the parallel values."""

    inputs: int
    start: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.generic]
    """float32, float64, int64, or object (Python ints) where int64 would be too narrow."""

    @property
    def outputs(self) -> int:
        """Number of rows."""
        return len(self.start) - 1

    @classmethod
    def dense(cls, matrix: NDArray[np.generic]) -> Rows:
        """Rows of a dense (outputs × inputs) matrix, zeros dropped."""
        import numpy as np

        columns: list[NDArray[np.int64]] = []
        values = []
        start = [0]
        for row in matrix:
            places = np.flatnonzero(row != 0)
            columns.append(places.astype(np.int64))
            values.append(row[places])
            start.append(start[-1] + len(places))
        empty = matrix[:0].ravel()
        return cls(
            matrix.shape[1],
            np.array(start, np.int64),
            np.concatenate(columns) if columns else np.empty(0, np.int64),
            np.concatenate(values) if values else empty,
        )

    def to_dense(self) -> NDArray[np.generic]:
        """The (outputs × inputs) matrix."""
        import numpy as np

        out = np.zeros((self.outputs, self.inputs), self.values.dtype)
        for row in range(self.outputs):
            cut = slice(self.start[row], self.start[row + 1])
            np.add.at(out[row], self.columns[cut], self.values[cut])
        return out


@dataclass(frozen=True, eq=False)
class LinearLayer:
    """y = (Σ values·x + bias) / divisor, all constants as the library holds them."""

    rows: Rows
    bias: NDArray[np.generic]
    """One a row, of the values' dtype."""
    divisor: NDArray[np.int64] | None = None
    """Exact positive divisors (average pooling); None for 1 everywhere."""
    origin: str = ""
    """Name and kind in the file, for messages."""
    derived: NDArray[np.generic] | None = None
    """Constants made from others (batch normalisation): the size of what each bias was rounded from; None otherwise.

    Libraries make such constants in different ways, a few roundings apart."""


@dataclass(frozen=True)
class ActivationLayer:
    """An elementwise function.

    relu: min(max(x, 0), cap) (no cap: None). leaky: x if x ≥ 0 else slope·x, slope the library's own float, exactly.
    sign: 1 if x ≥ 0 else −1, or 0 at 0 where `sign_of_zero` is 0.
    """

    kind: Literal["relu", "leaky", "sign"]
    cap: Fraction | None = None
    slope: Fraction = Fraction(0)
    sign_of_zero: Literal[-1, 0, 1] = 1
    origin: str = ""


@dataclass(frozen=True, eq=False)
class MaxPoolLayer:
    """y_i = max over x[members[i]]; rows are padded with −1 where a window is cut by the border."""

    inputs: int
    members: NDArray[np.int64]
    """(outputs × window)."""
    origin: str = ""


@dataclass(frozen=True, eq=False)
class RequantiseLayer:
    """The integer rescaling of a quantised library, bit for bit: int32 accumulators to int8.

    y = clamp(zero_point + round(x · multiplier · 2^(shift−31))), rounding as `rounding` says
    (TFLite: `MultiplyByQuantizedMultiplier`).
    """

    multiplier: NDArray[np.int64]
    """Fixed-point multipliers, one an output: of 31 bits; wider for single rounding where x · multiplier fits in 64."""
    shift: NDArray[np.int64]
    """Powers of two, positive to the left, one an output."""
    zero_point: int
    low: int
    high: int
    rounding: Literal["double", "single"] = "double"
    origin: str = ""


Layer = LinearLayer | ActivationLayer | MaxPoolLayer | RequantiseLayer


@dataclass(frozen=True, eq=False)
class Network:
    """A classifier as stored: layers from the model's inputs to its scores, and how scores become a label."""

    inputs: int
    layers: tuple[Layer, ...]
    outputs: int
    """Number of scores; 1 for a sigmoid head."""
    dtype: Literal["float32", "float64"]
    """Type of the library's inputs and arithmetic (full-integer models: of the inputs alone)."""
    head: Literal["order", "sigmoid"] = "order"
    """order: the label is an extreme score, ties to the lowest index. sigmoid: class 1 iff the probability ≥ threshold
    (the logit is compared)."""
    threshold: Fraction = Fraction(1, 2)
    squash: Literal["none", "softmax", "sigmoid"] = "none"
    """What the library applies to the scores before comparing them: increasing, so only its rounding changes labels."""
    input_bounds: tuple[tuple[float, float], ...] | None = None
    """Smallest and largest value the file allows for each input (`.nnet`)."""
    input_scale: Fraction | None = None
    """int8 models: real input = scale·(q − zero point)."""
    input_zero_point: int = 0
    input_rounding: Literal["nearest", "float32"] = "nearest"
    """int8 models: whether the file takes integers, to which users round, or float32 values that it rounds itself:
    round(x/scale) in float32, halves away from zero."""
    output_scale: Fraction | None = None
    """int8 models: real score = scale · the last layer's integers (zero points are taken off there)."""


# --- in integers -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class IntLayer:
    """z = Σ weights·x + bias over the previous layer's integers, then the activation; all exact.

    none: z. relu: max(z, 0), at most cap. leaky: positive·z if z ≥ 0 else negative·z. sign: ±1 (zero as `at_zero`).
    floor_shift: z >> shift, clamped to [low, high]. max: no weights; the maximum over `members`.
    requantise: the RequantiseLayer arithmetic.
    """

    rows: Rows
    """int64 values, or object where needed."""
    bias: NDArray[np.generic]
    activation: Literal["none", "relu", "leaky", "sign", "floor_shift", "max", "requantise"] = "none"
    cap: int | None = None
    positive: int = 1
    negative: int = 0
    at_zero: int = 1
    shift: int = 0
    low: int = 0
    high: int = 0
    members: NDArray[np.int64] | None = None
    requantise: RequantiseLayer | None = None
    bits: int = 64
    """Proven by range analysis over the whole domain: |z| and every partial sum, in any order, is below 2^(bits−1)."""


@dataclass(frozen=True, eq=False)
class IntNetwork:
    """A network over grid positions: layer 0 reads the positions themselves (offsets and steps are in its weights).

    The label is the lowest index of the largest score (argmin: the last layer is negated). Real score i is
    (integer score i) · score_scale.
    """

    inputs: int
    layers: tuple[IntLayer, ...]
    outputs: int
    score_scale: Fraction = Fraction(1)
    score_sign: Literal[1, -1] = 1
    """−1 when the scores were negated for argmin; predicates on scores are lowered accordingly."""
    exact: bool = True
    """Whether it is the real-arithmetic function of the stored constants (False: quantised)."""

    @cached_property
    def digest_text(self) -> str:
        """Everything that determines the counts, for digests."""
        import hashlib

        h = hashlib.sha256()
        for layer in self.layers:
            for array in (layer.rows.start, layer.rows.columns, layer.rows.values, layer.bias, layer.members):
                if array is not None:
                    h.update(repr(array.tolist()).encode())
            h.update(
                repr(
                    (layer.activation, layer.cap, layer.positive, layer.negative, layer.at_zero, layer.shift, layer.low,
                     layer.high)
                ).encode()
            )  # fmt: skip
            if layer.requantise is not None:
                r = layer.requantise
                h.update(
                    repr((r.multiplier.tolist(), r.shift.tolist(), r.zero_point, r.low, r.high, r.rounding)).encode()
                )
        return f"network {self.inputs} {self.outputs} {h.hexdigest()}"

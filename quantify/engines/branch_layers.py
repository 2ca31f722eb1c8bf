"""An integer network and a box go in; the same function of the inputs that vary comes out, with proven magnitudes.

Inputs that the box fixes are folded into the first biases, and every layer gets the power of two by which its integers
are divided before they become doubles (0 unless they are enormous).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.ir.network import IntLayer, IntNetwork
from quantify.ir.problem import Box

Matrix = list[list[int]]
WIDEST_DOUBLE = 400
"""Integers of more bits are scaled down before they become doubles."""
MOST_SCALE = 850
"""Beyond it the charges of the native engine for underflow, 2^-900, would hide whole numbers, and doubles vanish."""
EXACT_BITS = 53
WORD = 63
ROUNDING = 2.0**-51
SAFE = 1 + 2.0**-30
MOST_SHIFT = 1000
"""Beyond it the double 2^-shift would vanish, and −1 · 2^-shift with it, whose floor is −1."""
SUPPORTED = ("none", "relu", "leaky", "sign", "floor_shift")


def refusal(network: IntNetwork) -> str | None:
    """Why `branch` cannot bound this network, or None."""
    for number, layer in enumerate(network.layers, 1):
        if layer.activation not in SUPPORTED:
            return f"layer {number} has the activation {layer.activation}, for which there are no linear bounds here"
        if layer.activation == "leaky" and not 0 <= layer.negative <= layer.positive:
            return f"the leaky slopes of layer {number} are not 0 ≤ negative ≤ positive"
        if layer.activation == "floor_shift" and layer.low > layer.high:
            return f"the clamp of layer {number} is empty"
        if layer.activation == "floor_shift" and layer.shift > MOST_SHIFT:
            return f"layer {number} shifts by more than {MOST_SHIFT:,} bits"
    return None


@dataclass
class Layer:
    """One hidden layer in Python integers, over the inputs that vary."""

    weights: Matrix
    bias: list[int]
    source: IntLayer
    argument_scale: int = 0
    """Doubles hold the argument divided by two to this power."""
    value_scale: int = 0
    slope_scale: int = 0
    """leaky: the slopes are divided by two to this power."""
    argument_error: float = 0.0
    """Bound on the error of the argument's double at any point."""
    largest: list[int] = field(default_factory=list)
    """Per neuron, the largest absolute value of what it passes on."""


@dataclass
class Layers:
    """A network over the `varying` inputs of a box."""

    varying: list[int]
    fixed: dict[int, int]
    """Position of every other input."""
    hidden: list[Layer]
    score_weights: Matrix
    """Scores are affine in the last hidden vector (in the inputs, without hidden layers)."""
    score_bias: list[int]
    input_largest: list[int]
    """Largest position of each varying input."""
    exact: bool
    """Whether doubles evaluate points exactly."""
    value_error: float = 0.0
    """Bound on the error of a last hidden value's double, per value."""

    @property
    def last_largest(self) -> list[int]:
        """Largest absolute values of the last hidden vector."""
        return self.hidden[-1].largest if self.hidden else self.input_largest

    @property
    def last_scale(self) -> int:
        return self.hidden[-1].value_scale if self.hidden else 0

    @property
    def weights(self) -> int:
        """Number of weights, zeros included."""
        return sum(len(m) * (len(m[0]) if m else 0) for m in [*(x.weights for x in self.hidden), self.score_weights])


def dense(layer: IntLayer) -> Matrix:
    """The weights of a layer as rows of Python integers; repeated columns add up."""
    rows = layer.rows
    start, columns, values = rows.start.tolist(), rows.columns.tolist(), rows.values.tolist()
    out = []
    for i in range(rows.outputs):
        row = [0] * rows.inputs
        for k in range(start[i], start[i + 1]):
            row[columns[k]] += int(values[k])
        out.append(row)
    return out


def scale_of(reach: int) -> int:
    """The power of two by which integers of at most `reach` are divided before they become doubles.

    Raises:
        OverflowError: It is more than doubles can take.
    """
    return checked(max(0, reach.bit_length() - WIDEST_DOUBLE))


def checked(scale: int) -> int:
    """The scale itself.

    Raises:
        OverflowError: It is above `MOST_SCALE`.
    """
    if scale > MOST_SCALE:
        raise OverflowError(f"integers are divided by 2^{scale}")
    return scale


def scaled(value: int, scale: int) -> float:
    """value / 2^scale, rounded to nearest."""
    return value / (1 << scale) if scale >= 0 else float(value << -scale)


def matrix(rows: Matrix, scale: int, columns: int) -> NDArray[np.float64]:
    """The doubles of integers divided by 2^scale."""
    out = np.zeros((len(rows), columns))
    for i, row in enumerate(rows):
        out[i] = [scaled(value, scale) for value in row]
    return out


def prepare(network: IntNetwork, region: Box) -> Layers:
    """Fold the inputs that `region` (not empty) fixes, and prove magnitudes and rounding errors over it.

    Raises:
        OverflowError: Numbers leave the range of doubles.
    """
    varying = [k for k in range(network.inputs) if region.high[k] - region.low[k] > 1]
    fixed = {k: region.low[k] for k in range(network.inputs) if region.high[k] - region.low[k] == 1}
    stack = [(dense(layer), [int(b) for b in layer.bias.tolist()], layer) for layer in network.layers]
    first, bias, source = stack[0]
    bias = [b + sum(row[k] * p for k, p in fixed.items()) for row, b in zip(first, bias, strict=True)]
    stack[0] = ([[row[k] for k in varying] for row in first], bias, source)
    if stack[-1][2].activation == "none":
        score_weights, score_bias, _ = stack.pop()
    else:
        outputs = len(stack[-1][1])
        score_weights = [[int(i == j) for j in range(outputs)] for i in range(outputs)]
        score_bias = [0] * outputs
    hidden = [Layer(w, b, s) for w, b, s in stack]
    low = [region.low[k] for k in varying]
    high = [region.high[k] - 1 for k in varying]
    layers = Layers(varying, fixed, hidden, score_weights, score_bias, high, True)
    widest = 0
    for layer in hidden:
        reach, low, high = _ranges(layer, low, high, layers)
        widest = max(widest, reach)
    reach = max((_reach(row, b, low, high) for row, b in zip(score_weights, score_bias, strict=True)), default=0)
    layers.exact = max(widest, 2 * reach).bit_length() < EXACT_BITS
    if not layers.exact:
        _errors(layers)
    return layers


def _reach(row: list[int], bias: int, low: list[int], high: list[int]) -> int:
    """Bound on every partial sum, in any order."""
    return abs(bias) + sum(abs(w) * max(abs(a), abs(b)) for w, a, b in zip(row, low, high, strict=True))


def _ranges(layer: Layer, low: list[int], high: list[int], layers: Layers) -> tuple[int, list[int], list[int]]:
    """Sets scales and magnitudes; returns the largest number met and the ranges of the values."""
    source = layer.source
    reach = max((_reach(row, b, low, high) for row, b in zip(layer.weights, layer.bias, strict=True)), default=0)
    layer.argument_scale = scale_of(reach)
    out_low, out_high = [], []
    for row, bias in zip(layer.weights, layer.bias, strict=True):
        least = bias + sum(w * (a if w > 0 else b) for w, a, b in zip(row, low, high, strict=True))
        most = bias + sum(w * (b if w > 0 else a) for w, a, b in zip(row, low, high, strict=True))
        out_low.append(_value(source, least))
        out_high.append(_value(source, most))
    layer.value_scale = layer.argument_scale
    if source.activation == "leaky":
        reach *= max(1, source.positive)
        layer.slope_scale = max(0, source.positive.bit_length() - 30)
        layer.value_scale = checked(layer.argument_scale + layer.slope_scale)
    if source.activation in ("sign", "floor_shift"):
        layer.value_scale = 0
        reach = max(reach, abs(source.low), abs(source.high))
    layer.largest = [max(abs(a), abs(b)) for a, b in zip(out_low, out_high, strict=True)]
    return max(reach, source.cap or 0), out_low, out_high


def _value(layer: IntLayer, z: int) -> int:
    """The activation; non-decreasing for every kind that is supported, except that sign at 0 is widened."""
    if layer.activation == "relu":
        return max(z, 0) if layer.cap is None else min(max(z, 0), layer.cap)
    if layer.activation == "leaky":
        return layer.positive * z if z >= 0 else layer.negative * z
    if layer.activation == "sign":
        return 1 if z > 0 else -1 if z < 0 else layer.at_zero
    if layer.activation == "floor_shift":
        return min(max(z >> layer.shift, layer.low), layer.high)
    return z


def _errors(layers: Layers) -> None:
    """How far doubles at a point can be from the truth, layer by layer.

    A sum of n products in doubles is within (n + 3)·2^-53 of the sum of absolute values; four times that is charged.
    """
    error = 0.0
    largest = np.array([float(x) for x in layers.input_largest]) * SAFE
    scale = 0
    for layer in layers.hidden:
        weights = np.abs(matrix(layer.weights, layer.argument_scale - scale, len(largest))) * SAFE
        bias = np.abs(np.array([scaled(b, layer.argument_scale) for b in layer.bias]))
        layer.argument_error = point_error(weights, bias, largest, error)
        error, scale = layer.argument_error, layer.value_scale
        largest = np.array([scaled(x, scale) for x in layer.largest]) * SAFE
        if layer.source.activation in ("sign", "floor_shift"):
            error = 0.0
        elif layer.source.activation == "leaky":
            steepest = scaled(layer.source.positive, layer.slope_scale)
            error = (error * steepest + ROUNDING * float(largest.max(initial=0.0))) * SAFE
        if layer.source.cap is not None:
            error += ROUNDING * scaled(layer.source.cap, scale)
    layers.value_error = error


def point_error(
    weights: NDArray[np.float64], bias: NDArray[np.float64], largest: NDArray[np.float64], error: float
) -> float:
    """Bound on the error of |weights|·values + |bias| when each value, at most `largest`, is off by at most `error`.

    Infinite where doubles cannot hold it.
    """
    rounding = (len(largest) + 8) * ROUNDING
    with np.errstate(over="ignore", invalid="ignore"):
        rows: Any = (weights * (error + rounding * (largest + error))).sum(axis=1) + rounding * bias
    bound = float(rows.max(initial=0.0)) * SAFE
    return bound if bound < math.inf else math.inf  # 0 times infinity is no number

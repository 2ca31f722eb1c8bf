"""A stored Network in, the steps of both lowerings out: exact linear maps, merged where cheaper, and functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.discretise.linear import RealLinear, composed, identity, pays, real_linear
from quantify.discretise.whole import Integers, narrowed
from quantify.errors import InputError
from quantify.ir.network import (
    ActivationLayer,
    IntLayer,
    LinearLayer,
    MaxPoolLayer,
    Network,
    RequantiseLayer,
    Rows,
)

Function = ActivationLayer | MaxPoolLayer | RequantiseLayer
Step = RealLinear | Function


def steps_of(network: Network) -> list[Step]:
    """The network's layers, linear ones in exact numbers.

    Raises:
        InputError: A constant is infinite or NaN.
    """
    found: list[Step] = []
    for layer in network.layers:
        if not isinstance(layer, LinearLayer):
            found.append(layer)
            continue
        try:
            found.append(real_linear(layer))
        except ValueError as error:
            raise InputError(f"layer {layer.origin or len(found)}: {error}", "train the network again") from None
    return found


def with_inputs(steps: Sequence[Step], inputs: RealLinear) -> tuple[RealLinear, list[Step]]:
    """Leading layers that treat each input by itself (normalisation), taken into the input map; and the rest."""
    rest = list(steps)
    while rest and isinstance(rest[0], RealLinear) and rest[0].is_diagonal:
        inputs = composed(rest[0], inputs)
        rest.pop(0)
    return inputs, rest


def merged(steps: Sequence[Step]) -> list[Step]:
    """Neighbouring linear maps multiplied where the product has no more weights than they have."""
    found: list[Step] = []
    for step in steps:
        last = found[-1] if found else None
        if isinstance(step, RealLinear) and isinstance(last, RealLinear) and pays(step, last):
            found[-1] = composed(step, last)
        else:
            found.append(step)
    return found


def is_integer(network: Network) -> bool:
    """Whether all constants are integers, so that nothing needs to be decided about them."""
    for layer in network.layers:
        if isinstance(layer, LinearLayer):
            if layer.divisor is not None or not (_whole(layer.rows.values) and _whole(layer.bias)):
                return False
        elif isinstance(layer, ActivationLayer) and layer.kind == "leaky" and layer.slope.denominator != 1:
            return False
    return True


def _whole(values: NDArray[np.generic]) -> bool:
    if np.issubdtype(values.dtype, np.integer):
        return True
    if values.dtype == object:
        return all(Fraction(value).denominator == 1 for value in values.tolist())
    floats = values.astype(np.float64)
    return bool((np.isfinite(floats) & (floats == np.rint(floats))).all())


def is_quantised(network: Network) -> bool:
    """Whether the file's own arithmetic is in integers (TFLite)."""
    return any(isinstance(layer, RequantiseLayer) for layer in network.layers)


def origin(step: Function) -> str:
    """How messages call a step."""
    return step.origin or {ActivationLayer: "activation", MaxPoolLayer: "pooling"}.get(type(step), "rescaling")


# --- layers under construction -------------------------------------------------------------------------------------
class Builder:
    """Integer layers, the last linear one open until its activation is known."""

    def __init__(self, width: int) -> None:
        self.layers: list[IntLayer] = []
        self.width = width
        self.open: tuple[Rows, Integers] | None = None

    def linear(self, rows: Rows, bias: Integers) -> None:
        """Start a layer; one that is open ends without an activation."""
        self.flush()
        self.open = rows, bias
        self.width = rows.outputs

    def taken(self) -> tuple[Rows, Integers]:
        """The open layer for an activation to complete; a copy of the values when there is none."""
        rows, bias = self.open or (identity(self.width), np.zeros(self.width, np.int64))
        self.open = None
        return rows, bias

    def close(self, layer: IntLayer) -> None:
        """Add a complete layer."""
        self.flush()
        self.layers.append(layer)
        self.width = layer.rows.outputs if layer.members is None else len(layer.members)

    def flush(self) -> None:
        """End the open layer without an activation."""
        if self.open is not None:
            rows, bias = self.open
            self.open = None
            self.layers.append(IntLayer(rows, bias))
            self.width = rows.outputs

    def pool(self, step: MaxPoolLayer) -> None:
        """Add a maximum."""
        nothing = Rows(step.inputs, np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
        self.close(IntLayer(nothing, np.empty(0, np.int64), activation="max", members=step.members))


# --- from scores to labels -----------------------------------------------------------------------------------------
def decided(layers: Sequence[IntLayer], network: Network, scale: Fraction, decision: str) -> tuple[list[IntLayer], int]:
    """Layers whose largest score names the label, and the sign of their scores (−1: negated for argmin).

    A sigmoid head becomes two scores: the logit, and the constant just below the least logit that makes class 1.

    Raises:
        InputError: argmin of a sigmoid.
    """
    if network.head == "sigmoid":
        if decision == "argmin":
            raise InputError("decision: argmin has no meaning for a sigmoid output", "remove decision:")
        return _two_classes(layers, least_logit(network.threshold, scale)), 1
    if decision == "argmax":
        return list(layers), 1
    last = layers[-1]
    if last.activation != "none" or last.members is not None:
        width = len(last.bias) if last.members is None else len(last.members)
        last = IntLayer(identity(width), np.zeros(width, np.int64))
        layers = [*layers, last]
    return [*layers[:-1], replace(last, rows=_negated(last.rows), bias=_minus(last.bias))], -1


def _negated(rows: Rows) -> Rows:
    return Rows(rows.inputs, rows.start, rows.columns, _minus(rows.values))


def _minus(values: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(-values)


def _two_classes(layers: Sequence[IntLayer], least: int) -> list[IntLayer]:
    last = layers[-1]
    if last.activation != "none" or last.members is not None:
        last = IntLayer(identity(1), np.zeros(1, np.int64))
        layers = [*layers, last]
    start = np.concatenate([[0], last.rows.start]).astype(np.int64)
    rows = Rows(last.rows.inputs, start, last.rows.columns, last.rows.values)
    bias = narrowed(np.concatenate([np.array([least - 1], object), last.bias.astype(object)]))
    return [*layers[:-1], IntLayer(rows, bias)]


def least_logit(threshold: Fraction, scale: Fraction) -> int:
    """The least integer z with 1/(1 + exp(−z·scale)) ≥ threshold, that is z·scale ≥ ln(t/(1 − t)).

    Raises:
        InputError: The threshold is not between 0 and 1.
    """
    if not 0 < threshold < 1:
        raise InputError(f"the threshold {threshold} is not between 0 and 1", "save the model with another threshold")
    odds = threshold / (1 - threshold)
    if odds == 1:
        return 0
    digits = 40
    while True:
        low, high = _logarithm(odds, digits)
        least, most = math.ceil(low / scale), math.ceil(high / scale)
        # The logarithm of a rational other than 1 is irrational: at some precision both ends agree.
        if least == most:
            return least
        digits *= 2


def _logarithm(number: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Rational bounds on ln(number); `Decimal.ln` is rounded correctly, to half a unit in the last place."""
    with localcontext() as context:
        context.prec = digits
        low = high = Fraction(0)
        for part, sign in ((number.numerator, 1), (number.denominator, -1)):
            value = Decimal(part).ln()
            slack = Fraction(Decimal(1).scaleb(value.adjusted() - digits + 1)) if value else Fraction(0)
            low += sign * Fraction(value) - slack
            high += sign * Fraction(value) + slack
    return low, high

"""Steps in exact numbers to integer layers with the same real function: one rational unit for all values of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from quantify.discretise.linear import RealLinear, finer, scaled
from quantify.discretise.network_steps import Builder, Step, origin
from quantify.discretise.whole import rational_gcd
from quantify.errors import InputError
from quantify.ir.network import ActivationLayer, IntLayer, MaxPoolLayer


def exact_layers(steps: Sequence[Step], width: int) -> tuple[list[IntLayer], Fraction]:
    """Integer layers over integers that are the steps' inputs, and what one unit of the scores is worth.

    max(·, 0), maxima and signs commute with a positive unit; caps are made multiples of it, and a slope p/q becomes
    the factors q and p over a unit that is q times finer.
    """
    builder, unit = Builder(width), Fraction(1)
    for step in steps:
        if isinstance(step, RealLinear):
            rows, bias, unit = scaled(step, unit)
            builder.linear(rows, bias)
        elif isinstance(step, ActivationLayer):
            unit = _activation(builder, step, unit)
        elif isinstance(step, MaxPoolLayer):
            builder.pool(step)
        else:
            raise InputError(f"{origin(step)}: integer rescaling in a network of floats", "convert the model again")
    builder.flush()
    return builder.layers, unit


def _activation(builder: Builder, step: ActivationLayer, unit: Fraction) -> Fraction:
    rows, bias = builder.taken()
    if step.kind == "sign":
        builder.close(IntLayer(rows, bias, activation="sign", at_zero=step.sign_of_zero))
        return Fraction(1)
    if step.kind == "leaky":
        positive, negative = step.slope.denominator, step.slope.numerator
        builder.close(IntLayer(rows, bias, activation="leaky", positive=positive, negative=negative))
        return unit / positive
    if step.cap is None:
        builder.close(IntLayer(rows, bias, activation="relu"))
        return unit
    common = rational_gcd([unit, step.cap])
    rows, bias = finer(rows, bias, int(unit / common))
    builder.close(IntLayer(rows, bias, activation="relu", cap=int(step.cap / common)))
    return common


def integer_layers(steps: Sequence[Step], width: int) -> list[IntLayer]:
    """The layers of a network whose file already computes in integers: constants stay what they are.

    Raises:
        InputError: A constant is no integer.
    """
    builder = Builder(width)
    for step in steps:
        if isinstance(step, RealLinear):
            rows, bias = finer(step.rows(step.weights), step.bias, 1)
            if step.unit.denominator != 1 or step.bias_unit.denominator != 1:
                raise InputError("a quantised network with constants that are no integers", "convert the model again")
            rows, _ = finer(rows, bias, int(step.unit))
            _, bias = finer(rows, bias, int(step.bias_unit))
            builder.linear(rows, bias)
        elif isinstance(step, MaxPoolLayer):
            builder.pool(step)
        elif isinstance(step, ActivationLayer):
            _activation(builder, step, Fraction(1))
        else:
            rows, bias = builder.taken()
            builder.close(IntLayer(rows, bias, activation="requantise", requantise=step))
    builder.flush()
    return builder.layers

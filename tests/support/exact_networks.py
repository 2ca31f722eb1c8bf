"""The real function of a Network as read, in rationals, one layer after the other."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from quantify.ir.network import ActivationLayer, LinearLayer, MaxPoolLayer, Network


def exact_scores(network: Network, values: list[Fraction]) -> list[Fraction]:
    """Scores of one input."""
    assert len(values) == network.inputs
    for layer in network.layers:
        if isinstance(layer, LinearLayer):
            values = [_row(layer, row, values) for row in range(layer.rows.outputs)]
        elif isinstance(layer, MaxPoolLayer):
            values = [max(values[i] for i in members if i >= 0) for members in layer.members.tolist()]
        else:
            assert isinstance(layer, ActivationLayer)
            values = [_active(layer, value) for value in values]
    assert len(values) == network.outputs
    return values


def _row(layer: LinearLayer, row: int, values: list[Fraction]) -> Fraction:
    rows = layer.rows
    total = exact(layer.bias[row])
    for place in range(int(rows.start[row]), int(rows.start[row + 1])):
        total += exact(rows.values[place]) * values[int(rows.columns[place])]
    return total if layer.divisor is None else total / int(layer.divisor[row])


def _active(layer: ActivationLayer, value: Fraction) -> Fraction:
    if layer.kind == "relu":
        return max(value, Fraction(0)) if layer.cap is None else min(max(value, Fraction(0)), layer.cap)
    if layer.kind == "leaky":
        return value if value >= 0 else layer.slope * value
    return Fraction((value > 0) - (value < 0)) if value else Fraction(layer.sign_of_zero)


def exact(value: Any) -> Fraction:
    """The rational that a float is."""
    return Fraction(float(value))

"""A network and a box in, what interval arithmetic alone says about a label out: the yardstick of `margins`."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from quantify.engines.stages import UNIT, Chain, Floats, chain_of
from quantify.ir.network import IntNetwork
from quantify.ir.problem import Box


def interval_share(network: IntNetwork, box: Box, label: int) -> tuple[Fraction, Fraction]:
    """Proven bounds of the share of the box with class index `label`: (1, 1), (0, 0) or, undecided, (0, 1).

    Ranges of values are propagated in float64, widened by their rounding.

    Raises:
        NoFormError: See `chain_of`.
    """
    low, high = interval_scores(chain_of(network), box)
    others = [j for j in range(network.outputs) if j != label]
    if all(low[label] > high[j] or (low[label] == high[j] and label < j) for j in others):
        return Fraction(1), Fraction(1)
    if any(high[label] < low[j] or (high[label] == low[j] and j < label) for j in others):
        return Fraction(0), Fraction(0)
    return Fraction(0), Fraction(1)


def interval_scores(chain: Chain, box: Box) -> tuple[Floats, Floats]:
    """Proven ends of every score over the box, as the chain scales them."""
    low, high = np.array(box.low, np.float64), np.array(box.high, np.float64) - 1
    for stage in chain.stages:
        middle, half = (low + high) / 2, (high - low) / 2
        reach = np.asarray(stage.absolute @ half)
        z = np.asarray(stage.weights @ middle) + stage.bias
        size = np.asarray(stage.absolute @ np.maximum(np.abs(low), np.abs(high))) + np.abs(stage.bias)
        # Sums of `terms` products each: their rounding, that of the middles and half-widths, and of the weights.
        slack = 8 * (chain.terms + 16) * UNIT * size + 2.0**-900
        low, high = stage.values(z - reach - slack, z + reach + slack)
    return low, high

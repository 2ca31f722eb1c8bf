"""A difference of scores and a few neurons in, its lower forms for every combination of their phases out.

Where max(0, z) enters with a negative weight v, v·max(0, z) = min(0, v·z): the difference is the smallest of several
forms, and it fails only where one of them does. So the shares add up, and no line over the range of z is needed. In the
phase z ≥ kink a negative multiple of z − kink may be added besides (and a positive one where z ≤ kink): it is chosen so
that the form's mean is as many standard deviations above 0 as can be. The choice is heuristic, any choice is sound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quantify.engines.affine_forms import Forms, Phases, Split
from quantify.engines.stages import Floats

SWEEPS = 3


def loosest(forms: Forms, row: Floats, most: int) -> tuple[list[Phases], Floats]:
    """Neurons whose line costs the difference `row` (1 × scores) most, at most `most`, with their coefficients."""
    found: list[tuple[float, float, Phases]] = []
    for number, coefficients in enumerate(forms.coefficients(row)):
        relaxed, stage = forms.relaxed[number], forms.chain.stages[number]
        weights = coefficients[0]
        loss = np.maximum(weights, 0) * relaxed.loose_low - np.minimum(weights, 0) * relaxed.loose_high
        first = (stage.kink[0] > relaxed.low) & (stage.kink[0] < relaxed.high)
        second = (stage.kink[1] > relaxed.low) & (stage.kink[1] < relaxed.high)
        for neuron in np.flatnonzero((loss > 0) & (first != second)).tolist():
            which = 0 if first[neuron] else 1
            phases = Phases(number, neuron, float(stage.kink[which, neuron]), (which, which + 1))
            found.append((float(loss[neuron]), float(weights[neuron]), phases))
    found.sort(key=lambda entry: -entry[0])
    chosen = found[:most]
    return [phases for _, _, phases in chosen], np.array([weight for _, weight, _ in chosen])


def split_forms(forms: Forms, row: Floats, neurons: list[Phases], weights: Floats) -> tuple[Floats, Floats]:
    """Lower forms of `row` (1 × scores), one for each combination of phases: everywhere one of them is a bound."""
    count = len(neurons)
    phase = (np.arange(1 << count)[:, None] >> np.arange(count) & 1).astype(np.bool_)
    multiplier = _multipliers(forms, row, neurons, weights, phase)
    return forms.lower(np.repeat(row, len(phase), axis=0), Split(tuple(neurons), phase, multiplier))


def _multipliers(forms: Forms, row: Floats, neurons: list[Phases], weights: Floats, phase: NDArray[np.bool_]) -> Floats:
    """Coordinate ascent on mean/deviation of every combination, over the coefficients of z − kink."""
    count = len(neurons)
    z, mean = _middle_forms(forms, neurons)
    pieces = np.array([n.pieces for n in neurons])
    slopes = np.array([[forms.chain.stages[n.stage].slope[p, n.neuron] for p in n.pieces] for n in neurons])
    at_kink = np.array(
        [
            [
                forms.chain.stages[n.stage].slope[p, n.neuron] * n.kink
                + forms.chain.stages[n.stage].intercept[p, n.neuron]
                for p in n.pieces
            ]
            for n in neurons
        ]
    )
    assert pieces.shape == (count, 2)
    plain = Split(tuple(neurons), np.zeros((1, count), np.bool_), np.zeros((1, count)))
    rest, constant = forms.lower(row, plain)
    start = weights * slopes[:, 0]
    rest = rest[0] - start @ z
    constants = constant[0] - start @ mean + phase @ (weights * (at_kink[:, 1] - at_kink[:, 0]))
    weighted = z * forms.ball.variance
    gram, cross, own = weighted @ z.T, weighted @ rest, float((rest * rest) @ forms.ball.variance)
    bound = weights * np.where(phase, slopes[:, 1], slopes[:, 0])
    chosen = bound.copy()
    with np.errstate(all="ignore"):
        for _ in range(SWEEPS):
            for k in range(count):
                _ascend(chosen, bound, phase, k, constants, mean, gram, cross, own)
    change = chosen - bound
    change = np.where(np.isfinite(change), change, 0.0)
    return np.where(phase, np.minimum(change, 0.0), np.maximum(change, 0.0))


def _ascend(
    chosen: Floats, bound: Floats, phase: NDArray[np.bool_], k: int, constants: Floats, mean: Floats, gram: Floats,
    cross: Floats, own: float,
) -> None:  # fmt: skip
    """The best coefficient k of each combination, the others kept."""
    others = chosen.copy()
    others[:, k] = 0.0
    centre = constants + others @ mean
    across = cross[k] + others @ gram[:, k]
    variance = own + 2 * (others @ cross) + np.einsum("ij,jk,ik->i", others, gram, others)
    steepness = centre * gram[k, k] - mean[k] * across
    best = (mean[k] * variance - centre * across) / steepness
    far = 10 * np.sqrt(np.maximum(variance, 0) / gram[k, k]) * np.sign(mean[k])
    best = np.where(steepness > 0, best, far)
    best = np.where(phase[:, k], np.minimum(best, bound[:, k]), np.maximum(best, bound[:, k]))

    def score(value: Floats) -> Floats:
        spread = np.maximum(variance + 2 * value * across + value * value * gram[k, k], 1e-300)
        return np.asarray((centre + value * mean[k]) / np.sqrt(spread))

    better = score(best) > score(chosen[:, k])
    chosen[:, k] = np.where(better, best, chosen[:, k])


def _middle_forms(forms: Forms, neurons: list[Phases]) -> tuple[Floats, Floats]:
    """z − kink of each neuron as a form halfway between its bounds."""
    rows, means = [], []
    for neuron in neurons:
        below, above = forms.neuron_forms(neuron.stage, np.array([neuron.neuron]), forms.relaxed[neuron.stage].z_size)
        difference = below[0] - above[0]
        rows.append((difference if isinstance(difference, np.ndarray) else difference.toarray())[0] / 2)
        means.append((below[1][0] - above[1][0]) / 2 - neuron.kink)
    return np.array(rows), np.array(means)

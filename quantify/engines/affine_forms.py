"""A chain of stages over a box in, affine lower bounds of differences of scores out, proven in float64.

A bound is a row a and a constant b with: value ≥ b + a·y for every y outside a set of proven small share, where y is
the input minus the centre of the box. Rows are substituted backwards through the stages; an activation is replaced by a
line below or above it, by the sign of its coefficient (Zhang et al., CROWN, NeurIPS 2018; Singh et al., DeepPoly,
POPL 2019). Two things are added. Ranges may be cut where a sub-Gaussian tail is small: the inputs are independent and
uniform, and the share cut off is charged. And a row may be written as several, one for each combination of the phases
of a few neurons: where the value fails, at least one of these rows fails.

Rounding: a sum of n products of floats is off by at most n·u·Σ|products| to first order, u = 2^-53, in any order and
with or without fused operations (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Each
substitution step charges that to b, with bounds on |h| and |z| over the box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.engines.stages import UNIT, Chain, Floats, NoFormError, Stage

TINY = 2.0**-900
"""Charged for underflow in each step: at most 2^60 operations lose at most 2^-1022 each, even when flushed to zero."""
TINY_ROOT = 2.0**-440
"""The same under a square root."""
SAFE = 1.0 + 1e-6
"""Factor on computed shares: covers the library's exp and log (documented to within a few units in the last place)."""
CHUNK = 1 << 22
"""Matrix elements held at once while ranges are computed."""


@dataclass(frozen=True, eq=False)
class Ball:
    """The inputs: centre (half-integers), half-widths, and variances of independent uniform integers around it."""

    centre: Floats
    radius: Floats
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, low: Sequence[int], high: Sequence[int]) -> Ball:
        """The box low ≤ x < high; positions below 2^51, so that all numbers here are exact."""
        first, last = np.array(low, np.int64), np.array(high, np.int64) - 1
        return cls((first + last) / 2, (last - first) / 2, last - first + 1)

    @property
    def variance(self) -> Floats:
        """Of one uniform integer of m: (m² − 1)/12, to a relative error of 4·2^-53."""
        return (self.counts.astype(np.float64) ** 2 - 1) / 12


@dataclass(frozen=True, eq=False)
class Relaxed:
    """One stage's activations between lines, for z in [low, high]: alpha·z + beta, and bounds on the sizes."""

    low: Floats
    high: Floats
    mean: Floats
    """Where z is expected; a choice, not a bound."""
    alpha_low: Floats
    beta_low: Floats
    alpha_high: Floats
    beta_high: Floats
    beta_size: Floats
    z_size: Floats
    """At least |weights|·|h| + |bias|."""
    h_size: Floats
    loose_low: Floats
    """How far the lower line lies below f at the mean: 0 for neurons with one piece."""
    loose_high: Floats


@dataclass(frozen=True, eq=False)
class Phases:
    """One neuron of few pieces that rows are split on: below its kink (phase 0) or above (phase 1)."""

    stage: int
    neuron: int
    kink: float
    pieces: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Split:
    """For each row and split neuron its phase, and the multiplier of (z − kink): ≥ 0 in phase 0, ≤ 0 in phase 1."""

    neurons: tuple[Phases, ...]
    phase: NDArray[np.bool_]
    multiplier: Floats


class Forms:
    """Relaxations of every stage over one box, and the substitution through them.

    Args:
        chain: The network.
        ball: The box.
        spread: Ranges end this many standard deviations from the mean (at most); None for the whole range.

    `failing` is a proven bound on the share of the box where some range that was used does not hold.
    """

    def __init__(self, chain: Chain, ball: Ball, spread: float | None = None) -> None:
        self.chain = chain
        self.ball = ball
        self.failing = 0.0
        self.gamma = 1.1 * (chain.terms + 16) * UNIT
        self._spread = spread
        self._centre_size = np.abs(ball.centre) + ball.radius
        self.relaxed: list[Relaxed] = []
        with np.errstate(all="ignore"):
            for number, stage in enumerate(chain.stages):
                self.relaxed.append(self._relax(number, stage))
        self.failing *= SAFE

    # --- substitution ----------------------------------------------------------------------------------------------
    def lower(self, rows: Floats, split: Split | None = None) -> tuple[Floats, Floats]:
        """Coefficients a over the centred inputs and constants b, with rows·scores ≥ b + a·y.

        Args:
            rows: (rows × scores), the scores as the chain scales them.
            split: Phases of the neurons that rows are split on.
        """
        constant = np.zeros(len(rows))
        for number in range(len(self.chain.stages) - 1, -1, -1):
            rows, constant = self._through_activation(rows, constant, number, split)
            rows, constant = self._through_weights(rows, constant, number)
        return self._to_centre(rows, constant)

    def coefficients(self, rows: Floats) -> list[Floats]:
        """The coefficients of `rows` over the values after each stage, the lowest first."""
        constant = np.zeros(len(rows))
        found = []
        for number in range(len(self.chain.stages) - 1, -1, -1):
            found.append(rows)
            rows, constant = self._through_activation(rows, constant, number, None)
            rows, constant = self._through_weights(rows, constant, number)
        return found[::-1]

    def _through_activation(self, rows: Any, constant: Floats, number: int, split: Split | None) -> tuple[Any, Floats]:
        relaxed = self.relaxed[number]
        size = np.abs(constant) + abs(rows) @ relaxed.beta_size
        beta_low, beta_high = relaxed.beta_low, relaxed.beta_high
        result = _by_sign(rows, relaxed.alpha_low, relaxed.alpha_high)
        if split is not None:
            here = [k for k, neuron in enumerate(split.neurons) if neuron.stage == number]
            if here:
                beta_low, beta_high = beta_low.copy(), beta_high.copy()
                ids = [split.neurons[k].neuron for k in here]
                beta_low[ids] = beta_high[ids] = 0.0
                for k in here:
                    added, more = self._phase(rows, result, split, k)
                    constant = constant + added
                    size += more
        constant = constant + np.asarray(_by_sign(rows, beta_low, beta_high).sum(axis=1))
        size += abs(result) @ relaxed.z_size
        return result, constant - (self.gamma * size + TINY)

    def _phase(self, rows: Floats, result: Floats, split: Split, k: int) -> tuple[Floats, Floats]:
        """Put the exact piece of a split neuron into `result`; returns what it adds to the constants, and its size.

        In phase 1, z ≥ kink and the multiplier m ≤ 0: m·(z − kink) ≤ 0 may be added; phase 0 the other way round.
        """
        neuron = split.neurons[k]
        stage = self.chain.stages[neuron.stage]
        column = rows[:, neuron.neuron]
        phase = split.phase[:, k].astype(np.int64)
        piece = np.array(neuron.pieces)[phase]
        slope = stage.slope[piece, neuron.neuron]
        intercept = stage.intercept[piece, neuron.neuron]
        band = np.where(column > 0, -stage.band_low[neuron.neuron], stage.band_high[neuron.neuron])
        multiplier = split.multiplier[:, k]
        result[:, neuron.neuron] = column * slope + multiplier
        added = column * (intercept + band) - multiplier * neuron.kink
        size = np.abs(column) * (np.abs(intercept) + np.abs(band)) + np.abs(multiplier * neuron.kink)
        size += (np.abs(column * slope) + np.abs(multiplier)) * self.relaxed[neuron.stage].z_size[neuron.neuron]
        return added, 4 * size

    def _through_weights(self, rows: Any, constant: Floats, number: int) -> tuple[Any, Floats]:
        stage = self.chain.stages[number]
        # z_size covers weights and bias: their own rounding, and that of the products.
        size = np.abs(constant) + abs(rows) @ self.relaxed_size(number)
        constant = constant + rows @ stage.bias
        return stage.times(rows), constant - (2 * self.gamma * size + TINY)

    def relaxed_size(self, number: int) -> Floats:
        """`z_size` of a stage, also while its relaxation is being made."""
        if number < len(self.relaxed):
            return self.relaxed[number].z_size
        stage = self.chain.stages[number]
        below = self.relaxed[number - 1].h_size if number else self._centre_size
        return np.asarray(stage.absolute @ below) + np.abs(stage.bias)

    def _to_centre(self, rows: Any, constant: Floats) -> tuple[Any, Floats]:
        size = np.abs(constant) + abs(rows) @ np.abs(self.ball.centre)
        return rows, constant + rows @ self.ball.centre - (2 * self.gamma * size + TINY)

    # --- ranges ----------------------------------------------------------------------------------------------------
    def least(self, rows: Any, constant: Floats) -> Floats:
        """A lower bound of constant + rows·y over the whole box."""
        reach = np.asarray(abs(rows) @ self.ball.radius)
        least: Floats = constant - reach - (self.gamma * (np.abs(constant) + reach) + TINY)
        return least

    def deviation(self, rows: Any) -> Floats:
        """An upper bound of the standard deviation of rows·y.

        It is also its sub-Gaussian parameter. For a uniform integer of m values, centred, in steps of 2, E exp(tX) =
        sinh(mt)/(m·sinh t); with sinh x = x·Π(1 + x²/k²π²) and ln((1 + m²s)/(1 + s)) ≤ (m² − 1)s, ln E exp(tX) ≤
        (m² − 1)t²/6 = Var·t²/2. So the share with rows·y ≥ d is at most exp(−d²/2·deviation²).
        """
        return np.asarray(np.sqrt((rows * rows) @ self.ball.variance) * (1.0 + 2 * self.gamma) + TINY_ROOT)

    def _relax(self, number: int, stage: Stage) -> Relaxed:
        z_size = self.relaxed_size(number)
        # Where there is one piece only, sizes do: ranges decide nothing.
        high = z_size * (1 + 4 * self.gamma)
        low, mean = -high, np.zeros(stage.outputs)
        bent = np.flatnonzero(np.isfinite(stage.kink).any(axis=0))
        widest = max([self.chain.inputs, *(s.outputs for s in self.chain.stages[:number])])
        step = max(1, CHUNK // widest)
        for start in range(0, len(bent), step):
            part = bent[start : start + step]
            below, above = self.neuron_forms(number, part, z_size)
            mean[part] = (below[1] - above[1]) / 2
            low[part], high[part] = self._range(below, above, stage.kink[:, part])
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise NoFormError("its values leave the range of float64")
        return _relaxation(stage, low, high, np.clip(mean, low, high), z_size)

    def neuron_forms(
        self, number: int, part: NDArray[np.int64], z_size: Floats
    ) -> tuple[tuple[Any, Floats], tuple[Any, Floats]]:
        """Lower forms of z and of −z for some neurons of a stage, sparse if the stage is."""
        stage = self.chain.stages[number]
        weights = stage.weights[part]
        charge = 2 * self.gamma * z_size[part] + TINY
        forms = []
        for rows, constant in ((weights, stage.bias[part] - charge), (-weights, -stage.bias[part] - charge)):
            for below in range(number - 1, -1, -1):
                rows, constant = self._through_activation(rows, constant, below, None)
                rows, constant = self._through_weights(rows, constant, below)
            forms.append(self._to_centre(rows, constant))
        return forms[0], forms[1]

    def _range(self, below: tuple[Any, Floats], above: tuple[Any, Floats], kinks: Floats) -> tuple[Floats, Floats]:
        """Ends of the ranges of z; where a kink lies inside, cut at `spread` deviations, the share cut off charged."""
        whole = self.least(*below), self.least(*above)
        if self._spread is None:
            return whole[0], -whole[1]
        deviations = self.deviation(below[0]), self.deviation(above[0])
        cuts = [form[1] - self._spread * d for form, d in zip((below, above), deviations, strict=True)]
        ends = []
        for form, least, cut, sign in zip((below, above), whole, cuts, (1.0, -1.0), strict=True):
            # A kink beyond the cut: the range may as well end there, for the smaller share that lies beyond it.
            turned = sign * kinks
            nearest = np.where((turned < form[1]) & (turned > least), turned, -np.inf).max(axis=0)
            ends.append(np.where(nearest > cut, np.maximum(cut, least), np.maximum(nearest, least)))
        still = ((kinks > ends[0]) & (kinks < -ends[1])).any(axis=0)
        for side, form in enumerate((below, above)):
            ends[side] = np.where(still, np.maximum(ends[side], cuts[side]), ends[side])
            charged = ends[side] > whole[side]
            distance = np.maximum(form[1] - ends[side], 0.0)[charged] / deviations[side][charged]
            self.failing += float(np.exp(-(distance**2) / 2 * (1 - 1e-12)).sum())
        return ends[0], -ends[1]


def _relaxation(stage: Stage, low: Floats, high: Floats, mean: Floats, z_size: Floats) -> Relaxed:
    """Lines below and above the activations for z in [low, high]."""
    used = stage.used(low, high)
    ends, value, inexact = stage.corners(low, high)
    slopes = _candidate_slopes(ends, value, np.where(used, stage.slope, np.nan))
    at_mean = _value_at(stage, used, mean)
    touched = (low - stage.reach <= stage.kink[1]) & (high + stage.reach >= stage.kink[0])
    band_low, band_high = np.where(touched, stage.band_low, 0.0), np.where(touched, stage.band_high, 0.0)
    lines = []
    for side in (-1.0, 1.0):
        best_alpha, best_beta = np.zeros_like(low), np.full_like(low, np.inf)
        best_at_mean = np.full_like(low, np.inf)
        for alpha in slopes:
            # side·beta ≥ side·(f(e) − alpha·e) at both ends of every piece.
            rest = side * (value - alpha * ends)
            rounding = inexact + 8 * UNIT * (np.abs(value) + np.abs(alpha * ends))
            beta = np.fmax.reduce(rest + rounding, axis=0) + TINY
            there = side * alpha * mean + beta
            better = np.isfinite(alpha) & (there < best_at_mean)
            best_alpha = np.where(better, alpha, best_alpha)
            best_beta = np.where(better, beta, best_beta)
            best_at_mean = np.where(better, there, best_at_mean)
        band = band_low if side < 0 else band_high
        beta = (best_beta + band) * side
        beta += side * 4 * UNIT * (np.abs(best_beta) + band)
        lines.append((best_alpha, beta, np.maximum(best_at_mean - side * at_mean, 0.0)))
    (alpha_low, beta_low, loose_low), (alpha_high, beta_high, loose_high) = lines
    split = used.sum(axis=0) > 1
    least, most = stage.values(low, high)
    h_size = np.maximum(np.abs(least), np.abs(most)) + TINY
    return Relaxed(
        low, high, mean, alpha_low, beta_low, alpha_high, beta_high,
        np.maximum(np.abs(beta_low), np.abs(beta_high)), z_size, h_size,
        np.where(split, loose_low, 0.0), np.where(split, loose_high, 0.0),
    )  # fmt: skip


def _by_sign(rows: Any, low: Floats, high: Floats) -> Any:
    """Columns times `low` where the entry is positive, times `high` where it is not."""
    if isinstance(rows, np.ndarray):
        return np.maximum(rows, 0.0) * low + np.minimum(rows, 0.0) * high
    result = rows.copy()
    result.data = rows.data * np.where(rows.data > 0, low[rows.indices], high[rows.indices])
    return result


def _candidate_slopes(ends: Floats, value: Floats, slopes: Floats) -> list[Floats]:
    """Slopes of the pieces in use and of the chords between their ends; NaN where there is none."""
    found = list(slopes)
    for a, b in ((0, 3), (0, 4), (0, 5), (1, 4), (1, 5), (2, 5), (3, 5), (4, 5)):
        run = ends[b] - ends[a]
        usable = run > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            chord = np.where(usable, (value[b] - value[a]) / np.where(usable, run, 1.0), np.nan)
        if np.isfinite(chord).any():
            found.append(chord)
    return found


def _value_at(stage: Stage, used: NDArray[np.bool_], z: Floats) -> Floats:
    piece = np.where(z < stage.kink[0], 0, np.where(z < stage.kink[1], 1, 2))
    everyone = np.arange(len(z))
    return np.asarray(stage.slope[piece, everyone] * z + stage.intercept[piece, everyone])

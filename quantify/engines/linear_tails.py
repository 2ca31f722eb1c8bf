"""Affine forms over independent uniform integers in, proven upper bounds of the share where they are not positive out.

Two bounds: the sub-Gaussian tail (see `Forms.deviation`), and the distribution itself on a grid of bins, by
convolution.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from quantify.engines.affine_forms import SAFE, TINY, Ball
from quantify.engines.stages import UNIT, Floats

FINE_BINS = 1 << 17
COARSE_BINS = 1 << 13
WINDOW = 9.5
"""Half-width of the bins' window in standard deviations; a walk leaves it with probability ≤ 2·exp(−WINDOW²/2)."""
MOST_TERMS = 257
"""Largest prime factor of a number of values: each takes as many additions of all bins."""
DISPLACED = (3.5, 4.5, 5.5, 6.5, 7.5, 9.0)
"""The rounding displacement is beyond t of its own deviations with probability ≤ exp(−t²/2); the best t is taken."""


def gaussian_tails(constant: Floats, deviation: Floats, least: Floats) -> Floats:
    """Bounds of the share where constant + a·y ≤ 0, for forms whose sub-Gaussian parameter is at most `deviation`.

    0 where the form is positive on the whole box (`least` > 0), 1 where it is not positive at the centre.
    """
    with np.errstate(all="ignore"):
        ratio = np.maximum(constant, 0.0) / deviation
        tail = np.exp(-(ratio**2) / 2 * (1 - 1e-12)) * SAFE + TINY
    known = np.isfinite(constant) & np.isfinite(deviation) & np.isfinite(tail)
    tail = np.where(known, np.minimum(tail, 1.0), 1.0)
    return np.where(least > 0, 0.0, tail)


def binned_tail(row: Floats, constant: float, ball: Ball, bins: int = FINE_BINS) -> float:
    """A bound of the share of the box where constant + row·y ≤ 0, by convolution over `bins` bins.

    With row_i = ±h·(q_i + δ_i), q_i an integer, the form is ≤ 0 only where Σ q_i·y_i ≤ −constant/h + D, D = −Σ δ_i·y_i
    (a sign does not matter, as y_i is symmetric). D is at most Σ|δ_i|·r_i, and with probability 1 − exp(−t²/2)
    at most t standard deviations. Σ q_i·y_i is summed up bin by bin; a partial sum beyond the window counts as
    failing, which has probability at most 2·exp(−w²/2V) (Doob's inequality for the exponential martingale).
    Each of the (p + 1) operations that a uniform variable of p values takes, and the final sum, has relative error u.
    """
    size = np.abs(row)
    variance = ball.variance
    deviation = math.sqrt(float((size * size) @ variance))
    reach = float(size @ ball.radius)
    if not (math.isfinite(constant) and math.isfinite(reach)) or reach < 2.0**-400:
        return 1.0
    width = min(WINDOW * deviation, reach)
    step = _unit(size, 2 * width / (bins - 4))
    with np.errstate(all="ignore"):
        quotient = size / step
    whole = np.rint(quotient)
    # The quotient is off by at most half a unit in the last place, relatively UNIT.
    off = np.abs(quotient - whole) + 2 * UNIT * quotient
    worst = float(off @ ball.radius) * (1 + 4 * len(row) * UNIT)
    deviations = math.sqrt(float((off * off) @ variance)) * (1 + 4 * len(row) * UNIT)
    steps = whole.astype(np.int64)
    half = bins // 2
    if width == reach:
        # The window holds every sum, also after the coefficients were rounded: nothing is cut.
        half = math.ceil(float(whole @ ball.radius)) + 4
    found = _distribution(steps, ball.counts, half)
    if found is None:
        return 1.0
    mass, first, edge, operations = found
    lost = TINY
    if edge:
        spread = float((whole * whole) @ variance) * (1 + 4 * len(row) * UNIT)
        lost += 2 * math.exp(-((half - 2) ** 2) / (2 * spread)) * SAFE
    below = np.cumsum(mass)
    inexact = 1.0 + 1.1 * (operations + len(mass) + 8) * UNIT
    best = 1.0
    for displaced, chance in ((worst, 0.0), *((t * deviations, math.exp(-(t**2) / 2) * SAFE) for t in DISPLACED)):
        limit = displaced - (constant / step) * (1 - 4 * UNIT if constant > 0 else 1 + 4 * UNIT)
        limit += 4 * UNIT * (abs(limit) + displaced)
        # Bin t holds the sum (first + 2t)/2.
        last = math.floor(limit - first / 2 + 1e-6)
        if last < len(mass):
            best = min(best, (float(below[last]) * inexact if last >= 0 else 0.0) + lost + chance)
    return best


def _unit(size: Floats, step: float) -> float:
    """The step, or the smallest coefficient where all are multiples of it (as in binary networks), but for rounding."""
    least = float(size[size > 0].min())
    if least < step:
        return step
    quotient = size / least
    regular = (np.abs(quotient - np.rint(quotient)) <= 2.0**-40 * quotient).all()
    return least if regular else step


def _distribution(
    steps: NDArray[np.int64], counts: NDArray[np.int64], half: int
) -> tuple[Floats, int, bool, int] | None:
    """Distribution of Σ steps_i·y_i, y_i the centred uniform integers, for partial sums within ±half.

    Returns:
        The probabilities of bins, twice the sum that bin 0 stands for (bins are 1 apart), whether some probability
        was lost beyond the window, and the operations that any probability went through. None when an input's number
        of values has too large a prime factor.
    """
    factors = [
        (int(q) * stride, prime)
        for q, m in zip(steps.tolist(), counts.tolist(), strict=True)
        if q and m > 1
        for prime, stride in _factors(m)
    ]
    factors.sort(key=lambda factor: factor[0] * (factor[1] - 1))
    if any(prime > MOST_TERMS or stride * (prime - 1) > 4 * half + 8 for stride, prime in factors):
        return None
    mass = np.ones(1)
    first = 0
    edge = False
    operations = 0
    for stride, prime in factors:
        grown = np.zeros(len(mass) + stride * (prime - 1))
        for k in range(prime):
            grown[stride * k : stride * k + len(mass)] += mass
        grown *= 1.0 / prime
        operations += prime + 1
        first -= stride * (prime - 1)
        # Cut what lies beyond ±half.
        low_cut = max(0, -half - math.ceil(first / 2))
        high_cut = max(0, math.floor(first / 2) + len(grown) - 1 - half)
        if low_cut or high_cut:
            edge = True
            grown = grown[low_cut : len(grown) - high_cut]
            first += 2 * low_cut
        mass = grown
    return mass, first, edge, operations


def _factors(count: int) -> list[tuple[int, int]]:
    """(prime, stride) whose uniform variables sum to one of `count` values: mixed-radix digits."""
    found = []
    stride = 1
    prime = 2
    while count > 1:
        if prime * prime > count:
            prime = count
        while count % prime == 0:
            found.append((prime, stride))
            count //= prime
            stride *= prime
        prime += 1
    return found

"""Successes of several seeds on the same cases in, an interval for the expected success of the recipe out.

There are two reasons why a mean over seeds is not the recipe's rate: other cases, and other seeds. Their variances are
added on the scale of log odds, so that the ends stay between 0 and 1 and the interval reaches further to the side
where there is more room:

    logit(end) = logit(m) ∓ √(t²·s²/k + z²·m(1 − m)/n) / (m(1 − m))

with k seeds, n cases, s² the sample variance of the seeds' rates, z the normal quantile and t that of Student's
distribution with k − 1 degrees of freedom: a variance from k numbers is itself uncertain. The term of the cases is not
divided by k, for every seed was tried on the same ones. For the lower end m is the mean over the k seeds and one more
of the small weight √k/45 that gets nothing right, for the upper end one that gets everything right: where all seeds
agree, s² says nothing of seeds that do otherwise. Coverage by simulation: docs/seeds.md, benchmarks/seeds_coverage.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

UNSEEN = 1 / 45
"""Weight of the unseen seed, times √k. By simulation: coverage holds up to an intraclass correlation of 0.08."""
FEWEST = 3
"""Seeds below which nothing is decided."""
GRID = 10**9
"""Ends are rounded outwards to multiples of 1/GRID."""
Rates = NDArray[np.float64]


def interval(lower: Sequence[int], upper: Sequence[int], cases: int, confidence: Fraction) -> tuple[Fraction, Fraction]:
    """An approximate interval for the expected rate over seeds and cases.

    Args:
        lower: Successes of each seed, cases without an answer being failures: these make the lower end.
        upper: The same, cases without an answer being successes: these make the upper end.
        cases: How many each seed was tried on, 1 or more.
        confidence: Strictly between 0 and 1.

    Returns:
        Both ends, within 0 to 1. One seed says nothing of others: 0 and 1.
    """
    if len(lower) < 2:
        return Fraction(0), Fraction(1)
    low = float(lower_ends(np.array([lower], float) / cases, cases, float(confidence))[0])
    high = 1 - float(lower_ends(1 - np.array([upper], float) / cases, cases, float(confidence))[0])
    first, last = (Fraction(sum(some), cases * len(some)) for some in (lower, upper))
    return (
        min(max(Fraction(math.floor(low * GRID), GRID), Fraction(0)), first),
        max(min(Fraction(math.ceil(high * GRID), GRID), Fraction(1)), last),
    )


def lower_ends(rates: Rates, cases: int, confidence: float) -> Rates:
    """Lower ends for many recipes at once; the upper end is 1 minus the lower end of the failures.

    Args:
        rates: (recipes × seeds), each seed's share of successes.
    """
    from scipy.special import ndtri, stdtrit

    seeds = rates.shape[1]
    tail = (1 + confidence) / 2
    z, t = ndtri(tail), stdtrit(seeds - 1, tail)
    mean = rates.sum(axis=1) / (seeds + UNSEEN * math.sqrt(seeds))
    spread = mean * (1 - mean)
    some = spread > 0
    spread = np.where(some, spread, 1.0)
    half = np.sqrt(t**2 * rates.var(axis=1, ddof=1) / seeds + z**2 * spread / cases) / spread
    odds = np.where(some, mean, 0.5) / np.where(some, 1 - mean, 0.5)
    return np.where(some, 1 / (1 + np.exp(np.minimum(half, 700.0)) / odds), 0.0)

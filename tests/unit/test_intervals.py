"""Clopper-Pearson intervals: against exact binomial sums, SciPy's beta quantiles, and by their coverage."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from quantify.ir.intervals import clopper_pearson, scaled_outward

NINETY_FIVE = Fraction(95, 100)


def mass(n: int, k: int, p: Fraction) -> Fraction:
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20, 60])
@pytest.mark.parametrize("confidence", [Fraction(1, 10), NINETY_FIVE, 1 - Fraction(1, 10**6)])
def test_tails_at_the_ends_are_at_most_half_of_alpha_and_nearly_that(n: int, confidence: Fraction) -> None:
    alpha = 1 - confidence
    for k in range(n + 1):
        low, high = clopper_pearson(k, n, confidence)
        assert 0 <= low <= Fraction(k, n) <= high <= 1
        above = sum(mass(n, j, low) for j in range(k, n + 1))
        below = sum(mass(n, j, high) for j in range(k + 1))
        if k:
            assert alpha / 2 * (1 - Fraction(1, 10**9)) < above <= alpha / 2
        else:
            assert low == 0
        if k < n:
            assert alpha / 2 * (1 - Fraction(1, 10**9)) < below <= alpha / 2
        else:
            assert high == 1


@pytest.mark.parametrize("n", [1, 5, 12, 30])
@pytest.mark.parametrize("confidence", [Fraction(1, 2), NINETY_FIVE])
def test_coverage_is_never_below_the_confidence(n: int, confidence: Fraction) -> None:
    intervals = [clopper_pearson(k, n, confidence) for k in range(n + 1)]
    ends = [end for interval in intervals for end in interval]
    for p in {*ends, *(Fraction(k, 64) for k in range(65))}:
        covered = sum(mass(n, k, p) for k, (low, high) in enumerate(intervals) if low <= p <= high)
        assert covered >= confidence, (n, p)


@pytest.mark.parametrize(
    ("hits", "draws"),
    [(1, 10**6), (17, 10**6), (500_000, 10**6), (999_999, 10**6), (10**6, 10**6), (3, 10**7), (4_999_999, 10**7),
     (201, 402), (200, 40_000), (12_345_678, 4 * 10**7)],
)  # fmt: skip
@pytest.mark.parametrize("confidence", [NINETY_FIVE, 1 - Fraction(1, 10**6)])
def test_large_samples_agree_with_beta_quantiles_from_outside(hits: int, draws: int, confidence: Fraction) -> None:
    from scipy.stats import beta

    alpha = float(1 - confidence)
    low, high = clopper_pearson(hits, draws, confidence)
    wanted_low = beta.ppf(alpha / 2, hits, draws - hits + 1)
    assert float(low) == pytest.approx(wanted_low, rel=1e-9)
    if hits < draws:
        assert 1 - float(high) == pytest.approx(beta.isf(alpha / 2, hits + 1, draws - hits) * -1 + 1, rel=1e-8)


def test_no_draws_say_nothing() -> None:
    assert clopper_pearson(0, 0, NINETY_FIVE) == (0, 1)


def test_nonsense_is_refused() -> None:
    for hits, draws in ((-1, 5), (6, 5)):
        with pytest.raises(ValueError, match="draws"):
            clopper_pearson(hits, draws, NINETY_FIVE)
    for confidence in (Fraction(0), Fraction(1), Fraction(3, 2)):
        with pytest.raises(ValueError, match="confidence"):
            clopper_pearson(1, 5, confidence)


def test_ends_scale_outward() -> None:
    assert scaled_outward((Fraction(1, 3), Fraction(2, 3)), 10) == (3, 7)
    assert scaled_outward((Fraction(0), Fraction(1)), 10**30) == (0, 10**30)

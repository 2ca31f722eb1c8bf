"""The interval over seeds: the document's figures, its formula by hand, what a failed seed does, and its coverage."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist, mean, stdev

import numpy as np
import pytest

from quantify.dataset.recipe_interval import interval, lower_ends

CONFIDENCE = Fraction(95, 100)
FIVE = [257, 263, 265, 267, 271]
STUDENT = {2: 4.302653, 4: 2.776445, 9: 2.262157}
"""The 0.975 quantiles, from printed tables."""


def by_hand(successes: list[int], cases: int) -> float:
    """The lower end, from the formula of docs/seeds.md and tables."""
    k = len(successes)
    rates = [count / cases for count in successes]
    m = sum(rates) / (k + math.sqrt(k) / 45)
    seeds = STUDENT[k - 1] ** 2 * stdev(rates) ** 2 / k
    sampled = NormalDist().inv_cdf(0.975) ** 2 * m * (1 - m) / cases
    logit = math.log(m / (1 - m)) - math.sqrt(seeds + sampled) / (m * (1 - m))
    return 1 / (1 + math.exp(-logit))


def test_the_figures_of_the_document() -> None:
    lower, upper = interval(FIVE, FIVE, 300, CONFIDENCE)
    assert abs(100 * lower - Fraction("83.2")) < 1
    assert abs(100 * upper - Fraction("91.9")) < 1
    assert round(100 * mean(FIVE) / 300, 1) == 88.2


@pytest.mark.parametrize(
    ("successes", "cases"), [(FIVE, 300), ([30, 41, 44], 50), ([980, 990, 985, 1000, 970, 3, 991, 992, 993, 994], 1000)]
)
def test_both_ends_are_those_of_the_formula(successes: list[int], cases: int) -> None:
    lower, upper = interval(successes, successes, cases, CONFIDENCE)
    assert float(lower) == pytest.approx(by_hand(successes, cases), rel=1e-5)
    failures = [cases - count for count in successes]
    assert 1 - float(upper) == pytest.approx(by_hand(failures, cases), rel=1e-5)


def test_a_failed_seed_widens_the_interval_to_both_sides() -> None:
    four = [257, 263, 267, 271]
    lower, upper = interval(four, four, 300, CONFIDENCE)
    with_failed = interval([*four, 0], [*four, 300], 300, CONFIDENCE)
    assert with_failed[0] < lower - Fraction(1, 10)
    assert with_failed[1] > upper


@pytest.mark.parametrize("k", [2, 3, 5, 10])
def test_the_ends_stay_within_0_and_1_and_round_the_rate(k: int) -> None:
    for count in (0, 1, 25, 49, 50):
        lower, upper = interval([count] * k, [count] * k, 50, CONFIDENCE)
        assert 0 <= lower <= Fraction(count, 50) <= upper <= 1
        assert (lower == 0, upper == 1) == (count == 0, count == 50)
    assert interval([0] * k, [50] * k, 50, CONFIDENCE) == (0, 1)


def test_one_seed_says_nothing() -> None:
    assert interval([40], [40], 50, CONFIDENCE) == (0, 1)


def test_more_confidence_is_a_wider_interval() -> None:
    narrow, wide = (interval(FIVE, FIVE, 300, Fraction(c, 1000)) for c in (900, 999))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("cases", [50, 300, 1000])
def test_coverage_under_a_beta_binomial_model(seeds: int, cases: int) -> None:
    """At least 93 % of 4,000 recipes a setting; 91.6 % is four standard deviations of chance below that."""
    random = np.random.default_rng([seeds, cases])
    recipes = 4000
    chance = 4 * math.sqrt(0.93 * 0.07 / recipes)
    for rate in (0.5, 0.8, 0.95, 0.98):
        for correlation in (0.0, 0.003, 0.02, 0.08):
            own: np.ndarray | float = rate
            if correlation:
                total = 1 / correlation - 1
                own = random.beta(rate * total, (1 - rate) * total, (recipes, seeds))
            rates = random.binomial(cases, own, (recipes, seeds)) / cases
            held = (lower_ends(rates, cases, 0.95) <= rate) & (lower_ends(1 - rates, cases, 0.95) <= 1 - rate)
            assert held.mean() >= 0.93 - chance, (rate, correlation)

"""Intervals of draws against the binomial itself, and the number of draws that a decision would take."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest
from scipy.stats import beta

from quantify.evidence.proportions import draws_needed, interval_at, interval_of, proportion
from quantify.ir.record import Draws

F = Fraction


def binomial(draws: int, share: F, hits: range) -> F:
    """P(number of hits in the range), exactly."""
    return sum((comb(draws, k) * share**k * (1 - share) ** (draws - k) for k in hits), F(0))


@pytest.mark.parametrize(("hits", "draws"), [(0, 7), (1, 7), (3, 10), (10, 10), (49, 60)])
@pytest.mark.parametrize("risk", [F(1, 20), F(1, 3), F(1, 10**6)])
def test_the_ends_are_where_the_tails_are_half_the_risk(hits: int, draws: int, risk: F) -> None:
    lower, upper = interval_of((Draws(hits, draws),), "share", risk)
    tails = [binomial(draws, lower, range(hits, draws + 1)), binomial(draws, upper, range(hits + 1))]
    for end, tail, trivial in ((lower, tails[0], 0), (upper, tails[1], 1)):
        assert end == trivial or risk / 2 * F(999_999, 1_000_000) < tail <= risk / 2
    assert float(lower) == pytest.approx(beta.ppf(float(risk) / 2, hits, draws - hits + 1) if hits else 0, rel=1e-9)
    assert float(upper) == pytest.approx(
        beta.isf(float(risk) / 2, hits + 1, draws - hits) if hits < draws else 1, rel=1e-9
    )


@pytest.mark.parametrize("share", [F(1, 50), F(1, 3), F(1, 2), F(24, 25)])
def test_coverage_over_every_outcome_is_at_least_nominal(share: F) -> None:
    draws, risk = 40, F(1, 10)
    misses = F(0)
    for hits in range(draws + 1):
        lower, upper = interval_of((Draws(hits, draws),), "share", risk)
        if not lower <= share <= upper:
            misses += binomial(draws, share, range(hits, hits + 1))
    assert misses <= risk


def test_coverage_of_the_mean_of_two_rows_is_at_least_nominal() -> None:
    draws, risk, shares = 12, F(1, 5), (F(9, 10), F(2, 3))
    mean, misses = sum(shares) / 2, F(0)
    for first in range(draws + 1):
        for second in range(draws + 1):
            parts = (Draws(first, draws, F(1, 2)), Draws(second, draws, F(1, 2)))
            lower, upper = interval_of(parts, "share", risk)
            if not lower <= mean <= upper:
                misses += binomial(draws, shares[0], range(first, first + 1)) * binomial(
                    draws, shares[1], range(second, second + 1)
                )
    assert misses <= risk


def test_of_several_rows_each_may_miss_with_its_part_of_the_risk() -> None:
    rows = ((3, 10, F(1, 2)), (7, 12, F(1, 3)), (9, 9, F(1, 6)))
    lower, upper = interval_of(tuple(Draws(*row) for row in rows), "share", F(3, 20))
    tail = 0.05 / 2  # three rows: 0.15/3 each, half of it a side
    assert float(lower) == pytest.approx(sum(w * beta.ppf(tail, k, n - k + 1) for k, n, w in rows), rel=1e-9)
    ends = [w * (1 if k == n else beta.isf(tail, k + 1, n - k)) for k, n, w in rows]
    assert float(upper) == pytest.approx(float(sum(ends)), rel=1e-9)


def test_unanswered_draws_count_against_both_ends() -> None:
    lower, upper = interval_of((Draws(30, 50, unknown=5),), "share", F(1, 20))
    assert lower == interval_of((Draws(30, 50),), "share", F(1, 20))[0]
    assert upper == interval_of((Draws(35, 50),), "share", F(1, 20))[1]
    assert proportion("correct", "suite", "s", Draws(30, 50, unknown=5)).value == F(65, 100)


def test_no_draws_say_nothing() -> None:
    assert interval_of((Draws(0, 0),), "share", F(1, 20)) == (0, 1)


def test_draws_are_judged_at_any_confidence_and_other_intervals_only_at_their_own() -> None:
    reading = proportion("correct", "suite", "s", Draws(30, 50))
    wide, narrow = interval_at(reading, F(1, 1000)), interval_at(reading, F(1, 3))
    assert wide is not None
    assert narrow is not None
    assert wide[0] < reading.lower < narrow[0] < narrow[1] < reading.upper < wide[1]


@pytest.mark.parametrize(
    ("parts", "threshold", "form"),
    [
        ((Draws(3, 100),), F(5, 100), "share"),
        ((Draws(97, 100),), F(95, 100), "share"),
        ((Draws(0, 40),), F(2, 100), "share"),
        ((Draws(40, 40),), F(99, 100), "share"),
        ((Draws(8, 100),), F(5, 100), "share"),
        ((Draws(45, 50, F(1, 2)), Draws(50, 50, F(1, 2))), F(92, 100), "share"),
        ((Draws(80, 100),), F(85, 100), "f1"),
    ],
)
def test_the_number_of_draws_needed_is_enough_and_little_less_is_not(
    parts: tuple[Draws, ...], threshold: F, form: str
) -> None:
    risk = F(1, 20)
    reading = proportion("f1" if form == "f1" else "robustness", "property", "p", parts, form=form)  # type: ignore[arg-type]
    before = interval_at(reading, risk)
    assert before is not None
    assert before[0] <= threshold <= before[1]
    needed = draws_needed(reading, threshold, risk)
    assert needed is not None
    for factor, clears in ((F(1), True), (F(8, 10), False)):
        scaled = []
        for one in parts:
            made = int(needed * factor)
            hits = F(one.hits * made, one.samples)
            scaled.append(Draws(int(hits) if reading.value > threshold else -int(-hits // 1), made, one.weight))
        lower, upper = interval_of(tuple(scaled), form, risk)
        assert (lower > threshold or upper < threshold) is clears


def test_no_number_of_draws_proves_zero_or_tells_equals_apart() -> None:
    assert draws_needed(proportion("correct", "suite", "s", Draws(0, 10)), F(0), F(1, 20)) is None
    assert draws_needed(proportion("correct", "suite", "s", Draws(5, 10)), F(1, 2), F(1, 20)) is None
    assert draws_needed(proportion("correct", "suite", "s", Draws(4, 10, unknown=1)), F(1, 2), F(1, 20)) is None

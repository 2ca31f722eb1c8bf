"""Draws to rates: a reading with an exact interval, the interval at another confidence, and how many draws would do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Literal

from quantify.ir.count import Guarantee
from quantify.ir.intervals import clopper_pearson
from quantify.ir.record import About, Draws, Reading

CONFIDENCE = Fraction(95, 100)
"""Of the interval that a reading shows; the gate makes its own."""
MOST = 10**18
"""Draws beyond which a number is no longer a plan."""


def proportion(
    metric: str,
    about: About,
    subject: str,
    draws: Draws | Iterable[Draws],
    *,
    confidence: Fraction = CONFIDENCE,
    form: Literal["share", "f1", "least"] = "share",
    looks: int = 1,
    **more: Any,
) -> Reading:
    """A sampled reading from draws: the sum of the shares times their weights, which sum to 1, or the least share.

    Args:
        looks: `least`: how many rates were looked at.
        more: Further fields of the reading (`group`, `support`, `reason`, `need`, `problem`).
    """
    parts = (draws,) if isinstance(draws, Draws) else tuple(draws)
    lower, upper = interval_of(parts, form, 1 - confidence, looks)
    return Reading(
        metric,
        about,
        subject,
        lower,
        upper,
        min(max(_estimate(parts, form), lower), upper),
        Guarantee.SAMPLED,
        risk=1 - confidence,
        draws=parts,
        form=form,
        looks=looks,
        **more,
    )


def interval_of(draws: tuple[Draws, ...], form: str, risk: Fraction, looks: int = 1) -> tuple[Fraction, Fraction]:
    """Ends that miss the true rate with probability at most `risk`: Clopper-Pearson, the risk divided among the parts.

    Draws without an answer are failures for the lower end and successes for the upper. The least of several rates lies
    between the least of the lower and the least of the upper ends where all intervals hold at once (Bonferroni).
    """
    if form == "least":
        ends = [_ends(one, 1 - risk / looks) for one in draws]
        return min(low for low, _ in ends), min(high for _, high in ends)
    lower = upper = Fraction(0)
    for one in draws:
        low, high = _ends(one, 1 - risk / len(draws))
        lower += one.weight * low
        upper += one.weight * high
    if form == "f1":
        return _f1(lower), _f1(upper)
    return lower, upper


def interval_at(reading: Reading, risk: Fraction) -> tuple[Fraction, Fraction] | None:
    """The reading's interval at this probability of missing; None when it cannot claim so much.

    A proof holds at any risk. Draws are evaluated anew; any other interval stands or falls with its own risk.
    """
    if reading.draws:
        return interval_of(reading.draws, reading.form, risk, reading.looks)
    return (reading.lower, reading.upper) if reading.risk <= risk else None


def draws_needed(reading: Reading, threshold: Fraction, risk: Fraction) -> int | None:
    """Draws (of each part, as many as the largest has now) at which the interval would clear the threshold.

    Supposes that the shares stay as observed, hits rounded against the decision. None when no number would do: the
    observed rate is the threshold itself, or so close that it would take more than 10^18, or the least of several.
    """
    estimate = _estimate(reading.draws, reading.form)
    is_share = reading.draws and reading.form != "least"
    if estimate == threshold or not is_share or any(one.unknown for one in reading.draws):
        return None
    above = estimate > threshold
    now = max(1, *(one.samples for one in reading.draws))

    def clears(each: int) -> bool:
        ends = [_scaled(one, each, now, above) for one in reading.draws]
        value = sum(
            float(one.weight) * _end(hits, made, float(risk) / 2 / len(ends), above)
            for one, (hits, made) in zip(reading.draws, ends, strict=True)
        )
        value = 2 * value / (1 + value) if reading.form == "f1" else value
        return value > float(threshold) if above else value < float(threshold)

    high = now
    while not clears(high):
        high *= 2
        if high > MOST:
            return None
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if clears(middle) else (middle, high)
    return high


def _ends(one: Draws, confidence: Fraction) -> tuple[Fraction, Fraction]:
    if one.samples == 0:
        return Fraction(0), Fraction(1)
    lower, upper = clopper_pearson(one.hits, one.samples, confidence)
    if one.unknown:
        upper = clopper_pearson(one.hits + one.unknown, one.samples, confidence)[1]
    return lower, upper


def _estimate(draws: tuple[Draws, ...], form: str) -> Fraction:
    """The weighted shares, what is unknown half and half; or the least share."""
    shares = [
        one.weight * (Fraction(2 * one.hits + one.unknown, 2 * one.samples) if one.samples else Fraction(1, 2))
        for one in draws
    ]
    if form == "least":
        return min(shares)
    total = sum(shares, Fraction(0))
    return _f1(total) if form == "f1" else total


def _f1(share: Fraction) -> Fraction:
    """F1 = 2TP/(2TP+FP+FN) from J = TP/(TP+FP+FN), which it rises with."""
    return 2 * share / (1 + share)


def _scaled(one: Draws, each: int, now: int, above: bool) -> tuple[int, int]:
    """Hits and draws when the largest part has `each`, hits rounded away from the decision."""
    made = max(1, -(-one.samples * each // now))
    hits = Fraction(one.hits * made, one.samples) if one.samples else Fraction(made, 2)
    return (math.floor(hits) if above else math.ceil(hits)), made


def _end(hits: int, made: int, tail: float, lower: bool) -> float:
    """One end of the Clopper-Pearson interval in floating point: good enough for a plan."""
    from scipy.special import betaincinv

    if lower:
        return float(betaincinv(hits, made - hits + 1, tail)) if hits else 0.0
    return 1 - float(betaincinv(made - hits, hits + 1, tail)) if hits < made else 1.0

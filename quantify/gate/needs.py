"""A rule that its evidence leaves open in, what would decide it out: draws, cases, seconds, a smaller ε or δ."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from quantify.evidence.proportions import draws_needed
from quantify.ir.count import Guarantee
from quantify.ir.record import Reading, Record
from quantify.ir.verdict import Need


def to_decide(
    record: Record, reading: Reading, ends: tuple[Fraction, Fraction], thresholds: list[Fraction], risk: Fraction
) -> tuple[Need, ...]:
    """What would let this reading decide.

    Args:
        ends: The interval as it is.
        thresholds: The rule's; those within the interval are in the way.
        risk: Probability with which the interval may miss.
    """
    crossed = [threshold for threshold in thresholds if ends[0] <= threshold <= ends[1]]
    if reading.form == "least":
        text = "more rows, or fewer sets of them: a larger --min-size, a smaller --depth, fewer --attributes"
        return (Need("cases", None, text),)
    if reading.draws:
        return (_draws(record, reading, crossed, risk),)
    if reading.guarantee is Guarantee.BOUNDS:
        return (_seconds(record, reading),)
    if reading.guarantee in (Guarantee.PAC, Guarantee.PROB_EXACT):
        return tuple(_tolerance(reading, crossed, risk))
    return (Need("other", None, reading.need or "evidence with a narrower interval"),)


def _draws(record: Record, reading: Reading, crossed: list[Fraction], risk: Fraction) -> Need:
    amounts = [draws_needed(reading, threshold, risk) for threshold in crossed]
    is_count = record.kind == "count"
    if any(amount is None for amount in amounts) or not amounts:
        unknown = sum(one.unknown for one in reading.draws)
        if unknown:
            return Need("other", None, f"an answer to the {unknown} cases that have none, or more cases")
        text = "no number of {} would do if the rate is what was observed: it is the threshold itself{}".format(
            *(("draws", "; count exactly") if is_count else ("cases", ""))
        )
        return Need("samples" if is_count else "cases", None, text)
    most = max(amount for amount in amounts if amount is not None)
    if is_count:
        # What is needed are draws that met the assumption; the run must make more of them.
        made = _samples(record.body)
        used = max(one.samples for one in reading.draws)
        if made and used:
            most = -(-most * made // used)
        return Need("samples", most, f"if the rate stays as observed, {most:,} draws would do: --samples {most}")
    return Need("cases", most, f"if the rate stays as observed, {most:,} cases would do")


def _samples(body: Any) -> int:
    """The largest `samples` of any count in what `--json` printed."""
    if isinstance(body, dict):
        own = body.get("samples")
        return max([own if isinstance(own, int) else 0, *map(_samples, body.values())])
    return max(map(_samples, body), default=0) if isinstance(body, list) else 0


def _seconds(record: Record, reading: Reading) -> Need:
    gap = reading.upper - reading.lower
    seconds = record.body.get("seconds")
    if record.body.get("complete") is True:
        return Need("seconds", None, "the count ended with bounds by itself: another --engine may say more")
    if gap >= 1 or not isinstance(seconds, int | float) or seconds <= 0:
        return Need("seconds", None, "nothing is proven yet: count again with a longer --timeout")
    more = max(1, math.ceil(Fraction(seconds) * gap / (1 - gap)))
    return Need("seconds", more, f"at the pace so far, {more:,} s more would finish the count: a longer --timeout")


def _tolerance(reading: Reading, crossed: list[Fraction], risk: Fraction) -> list[Need]:
    found = []
    if reading.risk > risk:
        share = (reading.delta or reading.risk) * risk / reading.risk
        delta = _rounded_down(share)
        found.append(Need("delta", delta, f"a smaller error probability of each count: --delta {_short(delta)}"))
    if reading.guarantee is Guarantee.PAC and crossed:
        ratio = min(_ratio(reading, threshold) for threshold in crossed)
        epsilon = _rounded_down(_root(ratio, max(1, reading.sides)) - 1)
        if epsilon <= 0:
            text = "no tolerance would do if the rate is what was estimated: it is the threshold itself; count exactly"
            found.append(Need("epsilon", None, text))
        else:
            found.append(Need("epsilon", epsilon, f"if the estimate stays as it is: --epsilon {_short(epsilon)}"))
    return found or [Need("other", None, "an exact count")]


def _ratio(reading: Reading, threshold: Fraction) -> Fraction:
    """By which factor estimate and threshold differ, in the odds where it is these that the tolerance multiplies."""
    value, other = reading.value, threshold
    if reading.sides:
        if 1 in (value, other):
            return Fraction(1)
        value, other = value / (1 - value), other / (1 - other)
    if 0 in (value, other):
        return Fraction(1)
    return max(value / other, other / value)


def _root(value: Fraction, degree: int) -> Fraction:
    """A lower bound of the root, to about 15 digits."""
    return value if degree == 1 else Fraction(math.isqrt(value.numerator * 10**32 // value.denominator), 10**16)


def _rounded_down(value: Fraction) -> Fraction:
    """Two significant digits, not above the value."""
    if value <= 0:
        return Fraction(0)
    scale = Fraction(1)
    while value * scale < 10:
        scale *= 10
    return Fraction(math.floor(value * scale)) / scale


def _short(value: Fraction) -> str:
    return f"{float(value):g}"

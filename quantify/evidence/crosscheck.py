"""Two sets of counts, or one and the whole region, to a check, or to the error that says they contradict each other.

Proofs (exact, bounds) and prob-exact counts must have a common value. A sampled count is widened to the exact
interval that misses with probability 10^-6 and only then held against the others. A pac count that misses is not yet
a contradiction unless its δ is that small: it is reported as a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from quantify.errors import ContradictionError
from quantify.ir.count import Count, Guarantee
from quantify.ir.digits import to_digits
from quantify.ir.evidence import Check

STRICTNESS = Fraction(1, 10**6)
"""Error probability up to which a statistical statement may contradict a proof."""
LONGEST = 60
"""Digits up to which a count is written in full in a message."""


def agreement(first: Mapping[str, Count], second: Mapping[str, Count], total: int) -> Check:
    """Compare the counts that two ways gave for the same queries.

    Args:
        first: By query name.
        second: The same from another engine; names that only one side has are left out.
        total: Size or weight of the region, which sampled counts refer to.

    Returns:
        A check named `cross-check ENGINE` after the second way: ok when every pair is confirmed, measured when some
        only overlap, warning when a pac statement missed, skipped when there was nothing to compare.

    Raises:
        ContradictionError: A pair has no common value; the message gives both counts.
    """
    shared = [name for name in first if name in second]
    name = "cross-check " + _engines(second.values())
    if not shared:
        return Check(name, "skipped", "no query was counted both ways")
    misses, overlaps = [], []
    for query in shared:
        one, other = first[query], second[query]
        low, high = _interval(one, total)
        other_low, other_high = _interval(other, total)
        if high < other_low or other_high < low:
            both = f"{query}: {text(one)}, but {text(other)}"
            if _is_soft(one) or _is_soft(other):
                misses.append(both)
                continue
            raise ContradictionError(
                f"two ways of counting disagree on {both}", "no number of this run may be believed; report the bundle"
            )
        if Guarantee.BOUNDS in (one.guarantee, other.guarantee):
            overlaps.append(query)
    if misses:
        return Check(name, "warning", f"outside the stated tolerance (allowed with probability δ): {'; '.join(misses)}")
    if overlaps:
        return Check(name, "measured", f"consistent, but only bounds were compared for {', '.join(overlaps)}")
    return Check(name, "ok", f"{_engines(first.values())} and {_engines(second.values())} agree on {', '.join(shared)}")


def partitions(counts: Mapping[str, Count], sets: Sequence[Sequence[str]], total: int) -> Check:
    """Check that the disjoint queries which together cover the region sum to its total.

    Returns:
        A check named `partition ENGINE`: ok when each set was counted exactly and sums to the total, measured when
        bounds (or statistical intervals) only allow it, warning when a pac sum missed, skipped when no set was counted.

    Raises:
        ContradictionError: The sum cannot be the total; the message gives the counts.
    """
    name = "partition " + _engines(counts.values())
    whole = [names for names in sets if names and all(n in counts for n in names)]
    if not whole:
        return Check(name, "skipped", "no partition of the region was counted completely")
    said, is_exact = [], True
    for names in whole:
        parts = [counts[n] for n in names]
        intervals = [_interval(part, total) for part in parts]
        low, high = sum(i[0] for i in intervals), sum(i[1] for i in intervals)
        sum_text = " + ".join(names)
        if not low <= total <= high:
            listed = ", ".join(f"{n} {text(counts[n])}" for n in names)
            if not any(map(_is_soft, parts)):
                raise ContradictionError(
                    f"{sum_text} cannot be {shown(total)}, the whole region: {listed}",
                    "no number of this run may be believed; report the bundle",
                )
            return Check(name, "warning", f"{sum_text} misses {shown(total)} by more than the tolerance: {listed}")
        if low == high:
            said.append(f"{sum_text} = {shown(total)}, the whole region")
        else:
            is_exact = False
            said.append(f"{sum_text} may be {shown(total)}, the whole region")
    return Check(name, "ok" if is_exact else "measured", "; ".join(said))


def text(count: Count) -> str:
    """A count with its guarantee and engine, for messages."""
    number = shown(count.lower)
    if count.lower != count.upper:
        number += f" to {shown(count.upper)}"
    return f"{number} ({count.guarantee}, {count.engine})"


def shown(number: int) -> str:
    """The digits in groups, or first and last ones when there are very many."""
    digits = to_digits(number)
    if len(digits) > LONGEST:
        return f"{digits[:12]}…{digits[-12:]} ({len(digits)} digits)"
    return f"{number:,}"


def _engines(counts: Iterable[Count]) -> str:
    return " and ".join(dict.fromkeys(count.engine for count in counts)) or "nothing"


def _is_soft(count: Count) -> bool:
    """Whether the statement may be wrong with more than the strictest probability."""
    if count.guarantee is Guarantee.PAC:
        return count.delta is None or count.delta > STRICTNESS
    return count.guarantee is Guarantee.SAMPLED and (count.hits is None or not count.samples)


def _interval(count: Count, total: int) -> tuple[Fraction, Fraction]:
    """The ends that the count is held to."""
    if count.guarantee is Guarantee.SAMPLED and count.hits is not None and count.samples:
        from quantify.ir.intervals import clopper_pearson

        low, high = clopper_pearson(count.hits, count.samples, 1 - STRICTNESS)
        return low * total, high * total
    return Fraction(count.lower), Fraction(count.upper)

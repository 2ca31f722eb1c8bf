"""Counts of one case to its rates, each between exact rational ends.

Every rate is monotone in every count, so the ends of the counts give the ends of the rate. A count that is no proof
(sampled, pac, prob-exact) brings the probability that it is wrong; the risks of the counts that were used add up.
With (ε, δ) counts c/(1+ε) … c(1+ε) on both sides of a quotient this is the usual statement: within (1+ε)² of the
quotient of the estimates, except with probability 2δ. The scale of a product measure cancels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from quantify.evidence.totals import region_total
from quantify.ir.count import Count, Guarantee
from quantify.ir.evidence import Rate
from quantify.ir.problem import PropertyKind

__all__ = ["metrics", "ratio", "region_total", "risk"]

CONFUSION = ("tp", "fp", "tn", "fn")
LEARNABILITY: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("accuracy", ("tp", "tn"), ("fp", "fn")),
    ("precision", ("tp",), ("fp",)),
    ("recall", ("tp",), ("fn",)),
    ("f1", ("tp", "tp"), ("fp", "fn")),
)
"""Each metric is good / (good + bad): the counts that are good, with repetition, and those that are bad."""


def metrics(kind: PropertyKind, counts: Mapping[str, Count], total: int) -> dict[str, Rate | None]:
    """The rates of a case.

    Args:
        kind: Kind of property. Query names are those of `ir.problem`: `satisfied`, `violated`; `robust`, `fragile`;
            `tp`, `fp`, `tn`, `fn`, alone or after `LABEL/`; for classes the labels themselves.
        counts: Counts by query name. A query that is absent may be anything from 0 to `total`.
        total: Size or weight of the region.

    Returns:
        Rate by metric name, None for 0/0. Names are `satisfaction`, `violation`, `robustness`, `accuracy`,
        `precision`, `recall`, `f1` (the last four after `LABEL/` when the counts are), and `class_share/LABEL`.
    """
    if kind == "safety":
        yes, no = _count(counts, "satisfied", total), _count(counts, "violated", total)
        return {"satisfaction": ratio([yes], [no]), "violation": ratio([no], [yes])}
    if kind == "robustness":
        robust, fragile = _count(counts, "robust", total), counts.get("fragile")
        return {"robustness": _robustness(robust, fragile, total)}
    if kind == "classes":
        return {
            f"class_share/{label}": ratio([count], [other for name, other in counts.items() if name != label])
            for label, count in counts.items()
        }
    found: dict[str, Rate | None] = {}
    for prefix in _prefixes(counts):
        cells = _sharpened({name: _count(counts, prefix + name, total) for name in CONFUSION}, total)
        for metric, good, bad in LEARNABILITY:
            found[prefix + metric] = ratio([cells[name] for name in good], [cells[name] for name in bad])
    return found


def ratio(good: Iterable[Count], bad: Iterable[Count]) -> Rate | None:
    """Σ good / (Σ good + Σ bad), None when that is 0/0 whatever the counts are.

    A count may be named twice among the good. When only some of the possible counts give 0/0, the ends are those of
    the others.
    """
    good, bad = list(good), list(bad)
    least, most = sum(c.lower for c in good), sum(c.upper for c in good)
    fewest, worst = sum(c.lower for c in bad), sum(c.upper for c in bad)
    if most + worst == 0:
        return None
    lower = Fraction(least, least + worst) if least + worst else Fraction(1)
    upper = Fraction(most, most + fewest) if most + fewest else Fraction(0)
    return _rate(lower, upper, _estimated(good, bad), [*good, *bad])


def risk(counts: Iterable[Count]) -> Fraction:
    """Probability, at most, that one of the counts (each taken once) lies outside its interval."""
    total = Fraction(0)
    for count in {id(count): count for count in counts}.values():
        if count.guarantee is Guarantee.SAMPLED:
            total += 1 - count.confidence if count.confidence is not None else 1
        elif count.guarantee in (Guarantee.PAC, Guarantee.PROB_EXACT):
            total += count.delta if count.delta is not None else 1
    return min(total, Fraction(1))


def _robustness(robust: Count, fragile: Count | None, total: int) -> Rate | None:
    """robust / total; what is known of the fragile ones narrows it where the robust ones are open."""
    if total == 0:
        return None
    lower, upper, used = robust.lower, robust.upper, [robust]
    if fragile is not None and lower != upper:
        narrower = max(lower, total - fragile.upper), min(upper, total - fragile.lower)
        if narrower != (lower, upper) and narrower[0] <= narrower[1]:
            (lower, upper), used = narrower, [robust, fragile]
    estimate = None if robust.estimate is None else Fraction(robust.estimate, total)
    return _rate(Fraction(lower, total), Fraction(upper, total), estimate, used)


def _count(counts: Mapping[str, Count], name: str, total: int) -> Count:
    found = counts.get(name)
    return Count(0, total, Guarantee.BOUNDS, "none", 0.0, "") if found is None else found


def _sharpened(cells: dict[str, Count], total: int) -> dict[str, Count]:
    """Disjoint cells, each confined to what the others leave of the region; only proofs are used for it.

    Nothing is said of lower ends: inputs outside `assume` are in no cell.
    """
    if not all(count.guarantee in (Guarantee.EXACT, Guarantee.BOUNDS) for count in cells.values()):
        return cells
    least = sum(c.lower for c in cells.values())
    return {name: replace(c, upper=min(c.upper, total - (least - c.lower))) for name, c in cells.items()}


def _prefixes(counts: Mapping[str, Count]) -> list[str]:
    """ "" or "LABEL/" before tp, fp, tn and fn, in order of appearance."""
    found = [name[: -len(cell)] for name in counts for cell in CONFUSION if name == cell or name.endswith("/" + cell)]
    return list(dict.fromkeys(found))


def _estimated(good: list[Count], bad: list[Count]) -> Fraction | None:
    """The quotient of the point estimates, when a count has one."""
    if all(count.estimate is None for count in [*good, *bad]):
        return None
    best = [[c.lower if c.estimate is None else c.estimate for c in side] for side in (good, bad)]
    whole = sum(best[0]) + sum(best[1])
    return Fraction(sum(best[0]), whole) if whole else None


def _rate(lower: Fraction, upper: Fraction, estimate: Fraction | None, used: list[Count]) -> Rate:
    middle = (lower + upper) / 2 if estimate is None else min(max(estimate, lower), upper)
    weakest = min(count.guarantee for count in used)
    return Rate(lower, upper, float(middle), weakest, risk(used))

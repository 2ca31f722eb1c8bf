"""Slices of a table the obvious way: sets are frozensets, values fractions, and all are compared with all."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations


def families(base, depth, least):
    """{rows: names of it as sets of base names}: every intersection of up to `depth` base sets of that size."""
    found = {}
    for count in range(1, depth + 1):
        for names in combinations(base, count):
            rows = frozenset.intersection(*(base[name] for name in names))
            if len(rows) >= least:
                found.setdefault(rows, set()).add(frozenset(names))
    return found


def unions(sets, parts):
    """Every union of up to `parts` of some sets."""
    found = set(sets)
    for count in range(2, parts + 1):
        found |= {frozenset.union(*some) for some in combinations(sets, count)}
    return found


def value(rows, hits, within, f1=False):
    """The value of a set, or None."""
    judged = rows & within
    right = len(judged & hits)
    if not judged:
        return None
    return Fraction(2 * right, len(judged) + right) if f1 else Fraction(right, len(judged))


def inconsistency(one, values, k):
    """Incon_k of a set, and the sets that attain it, by the definition: V ⊆ U, |U∖V| ≤ k, and the empty set gives 0."""
    if values[one] is None:
        return None, set()
    inside = {
        other: abs(values[one] - values[other])
        for other in values
        if other <= one and len(one - other) <= k and values[other] is not None
    }
    most = max(inside.values())
    return most, {other for other, difference in inside.items() if difference == most}

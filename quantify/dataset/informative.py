"""All sets in, the few that a report shows out: those that say what neither all rows nor a larger set says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from quantify.dataset.families import Space
from quantify.ir.slices import WHOLE, Sets, Shown, Whole

MOST = 20
"""Sets that are shown at either end."""
TRIED = 5000
"""Sets that are looked at in detail at either end."""


def choose(space: Space, sets: Sets, whole: Whole) -> Shown:
    """The informative sets.

    A set is informative when its corrected interval excludes the value of all rows, and its own interval the value of
    every set that has one generator less: those are explained by a larger set.
    """
    value = whole.value
    if value is None:
        return Shown((), (), 0)
    with np.errstate(invalid="ignore"):
        apart = np.flatnonzero((sets.corrected_upper < value) | (sets.corrected_lower > value))
    known: dict[tuple[int, ...], float] = {}
    first = _some(space, sets, apart.tolist(), known)
    last = _some(space, sets, apart[::-1].tolist(), known)
    places = tuple(sorted({*first, *last}))
    return Shown(places, tuple(_edges(space, sets, places)), len(apart))


def _some(space: Space, sets: Sets, candidates: Sequence[int], known: dict[tuple[int, ...], float]) -> list[int]:
    found: list[int] = []
    for place in candidates[:TRIED]:
        if len(found) == MOST:
            break
        members = [member for member in sets.members[place].tolist() if member >= 0]
        larger = [tuple(members[:i] + members[i + 1 :]) for i in range(len(members))] if len(members) > 1 else []
        for one in larger:
            if one not in known:
                known[one] = space.value_of(np.array(one))
        if all(not sets.lower[place] <= known[one] <= sets.upper[place] for one in larger):
            found.append(place)
    return found


def _edges(space: Space, sets: Sets, places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Each set with the smallest of the shown sets that contain it."""
    rows = {place: space.rows_of(sets.members[place]) for place in places}
    above = {
        one: [other for other in places if sets.size[other] > sets.size[one] and not (rows[one] & ~rows[other]).any()]
        for one in places
    }
    for one in places:
        between = {beyond for other in above[one] for beyond in above[other]}
        direct = [other for other in above[one] if other not in between]
        yield from ((other, one) for other in direct or [WHOLE])

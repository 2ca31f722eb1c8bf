"""What is known of the slices of a table in, the record with its rates out: the worst slice and the inconsistency."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from quantify import __version__
from quantify.evidence import records
from quantify.evidence.proportions import proportion
from quantify.ir.count import Guarantee
from quantify.ir.record import Draws, Reading, Record
from quantify.ir.slices import WHOLE, Slices

FLOAT_ERROR = Fraction(1, 2**50)
"""More than float64 can err in the difference of two shares."""
CLOSEST = 2**50
"""Differences of shares whose denominators' product stays below this are told apart by float64."""


def readings(found: Slices) -> Iterator[Reading]:
    """`worst_slice_accuracy`, by draws for all sets at once, and `incon_k`, a fact about the table.

    Nothing of a run that was cut short: sets that were not looked at may be worse.
    """
    if not found.complete:
        return
    if found.metric == "accuracy" and (drawn := worst_draws(found)):
        worst = int(found.sets.samples[0]) if len(found.sets) else found.whole.samples
        yield proportion(
            "worst_slice_accuracy",
            "table",
            found.name,
            drawn,
            confidence=found.confidence,
            form="least",
            looks=found.looked_at,
            support=worst,
        )
    inconsistency = _inconsistency(found)
    if inconsistency is not None:
        yield inconsistency


def worst_draws(found: Slices) -> tuple[Draws, ...]:
    """The sets that can have the least lower or upper end, whatever the confidence.

    Both ends rise with the hits and fall with the misses: a set with no more hits and no fewer misses than another one
    has lower ends.
    """
    sets = found.sets
    hits, samples = np.r_[sets.hits, found.whole.hits], np.r_[sets.samples, found.whole.samples]
    judged = samples > 0
    hits, misses = hits[judged], (samples - hits)[judged]
    front: list[Draws] = []
    most = -1
    for place in np.lexsort((-misses, hits)).tolist():
        if misses[place] > most:
            most = int(misses[place])
            front.append(Draws(int(hits[place]), int(hits[place]) + most))
    return tuple(front)


def _inconsistency(found: Slices) -> Reading | None:
    largest = found.largest_incon
    if largest is None or found.incon_of != "all":
        return None
    value, place, inside = largest
    group = None if found.metric == "accuracy" else f"metric={found.metric}"
    exact = _share(found, place) - _share(found, inside) if found.metric != "loss" else None
    if exact is not None and found.whole.size**4 < CLOSEST:
        lower = upper = abs(exact)
        guarantee = Guarantee.EXACT
    elif exact is not None:
        lower, upper, guarantee = abs(exact), abs(exact) + FLOAT_ERROR, Guarantee.BOUNDS
    else:
        error = Fraction(found.rounding)
        lower, upper, guarantee = max(Fraction(value) - error, Fraction(0)), Fraction(value) + error, Guarantee.BOUNDS
    support = found.whole.size if place == WHOLE else int(found.sets.size[place])
    return Reading("incon_k", "table", found.name, lower, upper, lower, guarantee, group=group, support=support)


def _share(found: Slices, place: int) -> Fraction:
    if place == WHOLE:
        hits, samples = found.whole.hits, found.whole.samples
    else:
        hits, samples = int(found.sets.hits[place]), int(found.sets.samples[place])
    return Fraction(2 * hits, samples + hits) if found.metric == "f1" else Fraction(hits, samples)


def to_record(found: Slices, body: dict[str, Any], created: str | None = None) -> Record:
    """The record; `body` is the answer without the sets that a report leaves out."""
    return Record(
        kind="slices",
        created=records.now() if created is None else created,
        tool={"version": __version__},
        readings=tuple(readings(found)),
        model=found.model,
        property=found.declared,
        data=(found.table, *found.data),
        body=body,
    )

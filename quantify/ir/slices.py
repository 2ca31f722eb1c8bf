"""What is known of a model on the sets of rows of a table: a value for each, its interval, and how values change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quantify.ir.record import DataRef, ModelRef, PropertyRef

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
WHOLE = -1
"""Place of the set of all rows."""
WHOLE_NAME = "all rows"
MEET, JOIN = " ∩ ", " ∪ "


@dataclass(frozen=True, slots=True)
class Names:
    """What sets are called."""

    generators: tuple[str, ...]
    """Of the subbasis, then of unions."""
    bare: int
    """How many are of the subbasis: the others are put in parentheses where they meet."""

    def of(self, members: Sequence[int]) -> str:
        """The name of the intersection of some generators, given as places; −1 is none."""
        return MEET.join([self.generators[place] for place in members if place >= 0])

    def all_of(self, members: NDArray[np.int32]) -> list[str]:
        """The names of many."""
        # One name per generator, with what goes before it when it is not the first; −1 finds the empty text at the end.
        first, later = (*self.generators, ""), (*(MEET + name for name in self.generators), "")
        columns = [map(first.__getitem__, members[:, 0].tolist())]
        columns += [map(later.__getitem__, column.tolist()) for column in members[:, 1:].T]
        return list(map("".join, zip(*columns, strict=True)))


@dataclass(frozen=True)
class Sets:
    """Distinct sets, worst first; those without a value at the end."""

    members: NDArray[np.int32]
    """(sets × depth): places of generators."""
    size: Ints
    samples: Ints
    """Judged rows."""
    hits: Ints
    """0 where values are means."""
    value: Floats
    """NaN where no row is judged."""
    lower: Floats
    """NaN where there is no interval."""
    upper: Floats
    corrected_lower: Floats
    """Of intervals that hold for all sets at once."""
    corrected_upper: Floats
    incon: Floats
    """NaN where there is no value, or it was not asked for."""
    attained: Ints
    """Place of the set that attains it; WHOLE is all rows. Undefined where `incon` is NaN."""

    def __len__(self) -> int:
        return len(self.size)


@dataclass(frozen=True, slots=True)
class Whole:
    """All rows, which may be one of the sets as well."""

    size: int
    samples: int
    hits: int
    value: float | None
    lower: float | None
    upper: float | None
    incon: float | None
    attained: int | None


@dataclass(frozen=True)
class Point:
    """How a model does around one row."""

    row: int
    maximum: float | None
    minimum: float | None
    max_at: int | None
    min_at: int | None
    neighbourhoods: Ints
    """Places of the sets that contain it, worst first; the set of all rows is one too and not among them."""


@dataclass(frozen=True)
class Shown:
    """The sets that a report shows."""

    places: tuple[int, ...]
    """Informative ones, worst first."""
    edges: tuple[tuple[int, int], ...]
    """(larger, smaller): inclusions with none of the shown sets, and not all rows, between; WHOLE is all rows."""
    total: int
    """Sets whose corrected interval excludes the value of all rows."""


@dataclass(frozen=True)
class Slices:
    """The answer of `quantify slices`."""

    table: DataRef
    label: str | None
    predictions: str | None
    """The column, or the file of the model."""
    model: ModelRef | None
    declared: PropertyRef | None
    """The property file by which the model was asked."""
    data: tuple[DataRef, ...]
    """Files besides the table."""
    metric: str
    column: str | None
    positive: str | None
    worst: Literal["low", "high"]
    depth: int
    least: int
    k: int
    unions: int
    incon_of: Literal["all", "base"]
    confidence: Fraction
    interval: Literal["clopper-pearson", "hoeffding"] | None
    value_range: tuple[float, float] | None
    """Declared, of a loss."""
    looked_at: int
    """Distinct sets, all rows among them: what intervals are corrected for."""
    subbasis: tuple[tuple[str, str, int], ...]
    """(name, attribute, rows)."""
    skipped: tuple[str, ...]
    indices: tuple[str, ...]
    """Those of the skipped columns that are pandas' index."""
    names: Names
    sets: Sets
    equal_members: NDArray[np.int32]
    """Sets that equal another, …"""
    equal_to: Ints
    """… and the places of these, ascending."""
    whole: Whole
    point: Point | None
    shown: Shown
    unanswered: int
    unjudged: int
    strange: int
    rounding: float
    """At most by so much float64 errs in a difference of two values of a loss; 0 of all else."""
    complete: bool
    seconds: float

    @property
    def name(self) -> str:
        """What rules call the table: the name of its file."""
        return self.table.path.replace("\\", "/").rsplit("/", 1)[-1]

    def set_name(self, place: int) -> str:
        """The name of a set."""
        return WHOLE_NAME if place == WHOLE else self.names.of(self.sets.members[place].tolist())

    def equal_names(self, place: int) -> list[str]:
        """Other names of a set."""
        start, end = np.searchsorted(self.equal_to, [place, place + 1]).tolist()
        return self.names.all_of(self.equal_members[start:end])

    @cached_property
    def largest_incon(self) -> tuple[float, int, int] | None:
        """The largest inconsistency, of which set, and the place of the set inside it; None when there is none."""
        found: list[tuple[float, int, int]] = []
        if len(self.sets) and not np.isnan(self.sets.incon).all():
            place = int(np.nanargmax(self.sets.incon))
            found.append((float(self.sets.incon[place]), place, int(self.sets.attained[place])))
        if self.whole.incon is not None and self.whole.attained is not None:
            found.append((self.whole.incon, WHOLE, self.whole.attained))
        return max(found, key=lambda one: one[0], default=None)

    def optional(self, value: Any) -> float | None:
        """A float of an array, None for NaN."""
        return None if np.isnan(value) else float(value)

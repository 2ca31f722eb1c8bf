"""Sets of rows in, the family of their intersections (and unions) out, and how values change within it; native code.

Rows are bits in an order of their own, drawn at random: the first two rows of a set are then two of its rows at random,
and a set V ⊆ U without at most k rows of U has its first two among the first k + 2 of U. By these two rows the sets
are kept, so that of all sets only few are compared with U.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.dataset import native
from quantify.dataset.assignment import Assignment
from quantify.dataset.workers import in_order
from quantify.errors import InputError, UndecidedError
from quantify.resources import Limits, Progress

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rows = NDArray[np.bool_]
WORDS = 8
"""Sets are padded to a multiple of so many words."""
DEEPEST = 16
SET_BYTES = 260
"""What a set takes through all stages, its members apart: twice in the family, once with all that is known of it."""
PIECE = 512
"""Sets between two looks at the clock."""
MOST_ROWS = 2**31 - 1
FIELDS = (("members", "int32_t"), ("size", "uint32_t"), ("samples", "uint32_t"), ("hits", "uint32_t"),
          ("low", "uint32_t"), ("hash", "uint64_t"))  # fmt: skip


@dataclass(frozen=True)
class Family:
    """Sets of rows, each the intersection of some generators."""

    members: NDArray[np.int32]
    """(sets × depth): places of the generators, ascending, −1 where there are fewer."""
    size: NDArray[np.uint32]
    samples: NDArray[np.uint32]
    """Judged rows."""
    hits: NDArray[np.uint32]
    low: NDArray[np.uint32]
    """(sets × 2): the first two rows in the order of bits; the number of rows where there is none."""
    hash: NDArray[np.uint64]
    sum: Floats | None
    """Of values, where the assignment has such."""

    def __len__(self) -> int:
        return len(self.size)

    def taken(self, places: Ints | slice) -> Family:
        """Some of the sets."""
        some = {name: getattr(self, name)[places] for name, _ in FIELDS}
        return Family(**some, sum=None if self.sum is None else self.sum[places])


class Space:
    """Rows as bits, the generators among the sets of rows, and what is assigned to rows."""

    def __init__(self, generators: Sequence[Rows], assigned: Assignment, seed: int = 0, isa: int = 0) -> None:
        """`isa`: 0 the best that the processor has, 1 portable, 2 AVX2."""
        self.rows = len(assigned.within)
        if self.rows > MOST_ROWS:
            raise InputError(f"{self.rows:,} rows are too many", "take a sample of them")
        self.order = np.random.default_rng(seed).permutation(self.rows)
        self.words = -(-self.rows // (64 * WORDS)) * WORDS
        self._assigned = assigned
        self._kernel = native.lib().bits_choose(isa)
        if self._kernel == native.ffi().NULL:
            raise ValueError(f"this processor has no path {isa}")
        self._keys = np.random.default_rng(2).integers(0, 2**64, self.words, np.uint64)
        self._hits, self._within = self.packed(assigned.hits), self.packed(assigned.within)
        self._values = None if assigned.values is None else np.ascontiguousarray(assigned.values[self.order])
        self.sets = np.stack([self.packed(rows) for rows in generators])
        self.bare = len(self.sets)
        """Generators of the subbasis; those that come after are unions."""

    def packed(self, rows: Rows) -> NDArray[np.uint64]:
        """A set of rows as bits."""
        found = np.zeros(8 * self.words, np.uint8)
        bits = np.packbits(rows[self.order], bitorder="little")
        found[: len(bits)] = bits
        return found.view("<u8")

    def unpacked(self, words: NDArray[np.uint64]) -> Rows:
        """The inverse of `packed`."""
        found = np.empty(self.rows, np.bool_)
        found[self.order] = np.unpackbits(words.view(np.uint8), count=self.rows, bitorder="little").astype(bool)
        return found

    def rows_of(self, members: NDArray[np.int32]) -> Rows:
        """The rows of one set."""
        return self.unpacked(np.bitwise_and.reduce(self.sets[members[members >= 0]], axis=0))

    def value_of(self, members: NDArray[np.int32]) -> float:
        """The value of one set, NaN where no row is judged."""
        words = np.bitwise_and.reduce(self.sets[members], axis=0)
        judged = words & self._within
        total = None
        if self._values is not None:
            inside = np.unpackbits(judged.view(np.uint8), count=self.rows, bitorder="little").astype(bool)
            total = np.array([self._values[inside].sum()])
        hits, samples = (
            np.array([int.from_bytes(some.tobytes(), "little").bit_count()]) for some in (words & self._hits, judged)
        )
        return float(self._assigned.value_of(hits, samples, total)[0])

    def with_generators(self, more: NDArray[np.uint64]) -> None:
        """Add sets, as bits, to the generators."""
        self.sets = np.concatenate((self.sets, more))

    def native(self) -> Any:
        """The space as C takes it; valid while the space lives and gets no generators."""
        found = native.ffi().new("bits_space *")
        found.rows, found.words, found.kernel = self.rows, self.words, self._kernel
        found.sets = native.pointer("uint64_t", self.sets)
        found.keys = native.pointer("uint64_t", self._keys)
        found.hits, found.within = native.pointer("uint64_t", self._hits), native.pointer("uint64_t", self._within)
        if self._values is not None:
            found.values = native.pointer("double", self._values)
        return found


# --- enumeration -----------------------------------------------------------------------------------------------------
def intersections(
    space: Space, depth: int, least: int, limits: Limits, progress: Progress, first: int = 0
) -> tuple[Family, bool]:
    """Every intersection of 1 to `depth` generators with at least `least` rows, and whether these are all.

    In the order of their members; equal sets are all there. A limit ends it early: then the intersections with a
    later first member are missing.

    Args:
        first: Place of a generator from which on all are taken by themselves, unless it is 0.

    Raises:
        UndecidedError: Memory ran out.
    """
    sets, where, most = len(space.sets), space.native(), _most_sets(depth, limits)

    def with_first(place: int) -> Any:
        made = native.ffi().gc(native.lib().bits_new(depth, most), native.lib().bits_free)
        _check(native.lib().bits_enumerate(where, made, place, place + 1 if first else sets, least))
        return made

    made: list[Any] = []
    total = 0
    for one in in_order(with_first, range(first, sets), limits.jobs, limits.expired):
        made.append(one)
        total += one.length
        _check(total > most)
        progress.update("intersecting sets", len(made), sets - first)
    return _joined(space, made, depth), len(made) == sets - first


def _most_sets(depth: int, limits: Limits) -> int:
    """Sets for which there is memory: as much as the limit allows, or else three quarters of what the machine has."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4
    if limits.memory_mb is not None:
        memory = limits.memory_mb << 20
    return int(memory // (SET_BYTES + 16 * depth))


def _check(code: int) -> None:
    if code:
        raise UndecidedError(
            "there are more sets than memory holds",
            "fewer sets: a larger --min-size, a smaller --depth, fewer --attributes; or more --memory",
        )


def _joined(space: Space, made: Sequence[Any], depth: int) -> Family:
    """Native families one after another, copied."""
    widths = {"members": depth, "low": 2}
    found: dict[str, Any] = {}
    names = [*FIELDS, ("sum", "double")] if space._values is not None else FIELDS
    for name, kind in names:
        width = widths.get(name, 1)
        parts = [native.view(kind, getattr(one, name), one.length * width) for one in made if one.length]
        whole = np.concatenate(parts) if parts else np.empty(0, native.TYPES[kind])
        found[name] = whole.reshape(-1, width) if name in widths else whole
    return Family(**{"sum": None, **found})


def _as_native(family: Family) -> Any:
    found = native.ffi().new("bits_family *")
    found.length = found.capacity = len(family)
    found.depth = family.members.shape[1]
    for name, kind in FIELDS:
        setattr(found, name, native.ffi().cast(f"{kind} *", native.pointer(kind, getattr(family, name))))
    return found


# --- equal sets ------------------------------------------------------------------------------------------------------
def merged(space: Space, family: Family) -> tuple[Family, Family, Ints]:
    """Equal sets made one: the distinct sets, the others, and for each of these the place of the one it equals.

    Of equal sets the one with the fewest members stays, and among these the first.
    """
    order = np.argsort(family.hash, kind="stable").astype(np.int64)
    same = np.empty(len(family), np.int64)
    if len(family):
        arguments = (native.pointer("int64_t", order), native.pointer("int64_t", same))
        _check(native.lib().bits_merge(space.native(), _as_native(family), *arguments))
    stays = same == np.arange(len(family))
    if stays.all():
        return family, family.taken(slice(0, 0)), np.empty(0, np.int64)
    place = np.cumsum(stays) - 1
    return family.taken(np.flatnonzero(stays)), family.taken(np.flatnonzero(~stays)), place[same[~stays]]


# --- unions ----------------------------------------------------------------------------------------------------------
def unions(
    space: Space, family: Family, parts: int, most: int, limits: Limits, progress: Progress
) -> tuple[NDArray[np.uint64], list[tuple[int, ...]], bool]:
    """The unions of 2 to `parts` sets of a family that are none of its sets, as bits, each with its parts.

    Raises:
        InputError: There would be more than `most`.
    """
    bits = np.stack([np.bitwise_and.reduce(space.sets[row[row >= 0]], axis=0) for row in family.members])
    known = {row.tobytes() for row in bits}
    found: dict[bytes, tuple[int, ...]] = {}
    layer: list[tuple[NDArray[np.uint64], tuple[int, ...]]] = [(row, (place,)) for place, row in enumerate(bits)]
    for _ in range(parts - 1):
        following = []
        for done, (row, members) in enumerate(layer):
            if limits.expired():
                return _rows_of_bytes(space, found), list(found.values()), False
            progress.update("uniting sets", done, len(layer))
            later = bits[members[-1] + 1 :] | row
            for offset, united in enumerate(later):
                key = united.tobytes()
                if key in known or key in found:
                    continue
                found[key] = (*members, members[-1] + 1 + offset)
                following.append((united, found[key]))
                if len(found) > most:
                    raise InputError(
                        f"there are more than {most:,} unions of {len(bits):,} sets",
                        "a larger --min-size, a smaller --depth or fewer --attributes; or leave out --unions",
                    )
        layer = following
    return _rows_of_bytes(space, found), list(found.values()), True


def _rows_of_bytes(space: Space, found: dict[bytes, tuple[int, ...]]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(found), np.uint64).reshape(-1, space.words)


# --- how values change -----------------------------------------------------------------------------------------------
class Index:
    """The sets of a family by their first two rows and their size, with a value for each."""

    def __init__(self, space: Space, family: Family, values: Floats, least: int) -> None:
        """`least`: sets with fewer rows are not asked for."""
        valued = np.flatnonzero(~np.isnan(values) & (family.size >= least))
        order = valued[np.lexsort((family.size[valued], family.low[valued, 1], family.low[valued, 0]))]
        self.order = order.astype(np.int64)
        """Place in the family of each set of the index."""
        self._space, self._family = space, family
        self._members = np.ascontiguousarray(family.members[order])
        self._size, self._value = np.ascontiguousarray(family.size[order]), np.ascontiguousarray(values[order])
        low = family.low[order]
        starts = np.flatnonzero(np.r_[True, (low[1:] != low[:-1]).any(axis=1)]) if len(low) else np.empty(0, np.int64)
        self._group_low = np.ascontiguousarray(low[starts, 1])
        self._group_start = np.r_[starts, len(low)].astype(np.int64)
        self._row_start = np.searchsorted(low[starts, 0], np.arange(space.rows + 2)).astype(np.int64)

    def native(self) -> Any:
        """The index as C takes it."""
        found = native.ffi().new("bits_index *")
        found.count, found.depth = len(self.order), self._members.shape[1]
        found.members, found.size = native.pointer("int32_t", self._members), native.pointer("uint32_t", self._size)
        found.value, found.identity = native.pointer("double", self._value), native.pointer("int64_t", self.order)
        found.row_start = native.pointer("int64_t", self._row_start)
        found.group_low = native.pointer("uint32_t", self._group_low)
        found.group_start = native.pointer("int64_t", self._group_start)
        return found


def inconsistency(
    space: Space, family: Family, values: Floats, of: Ints, k: int, limits: Limits, progress: Progress
) -> tuple[Floats, Ints, int]:
    """Incon_k of some sets: the largest difference of values to a set of the family inside it, and which set that is.

    "Local k-bounded inconsistency", section 4.1 of the document of slices: V ⊆ U with at most k rows of U missing.
    Ties go to the larger set, then to the earlier one. The empty set has the restriction of U's value for its own
    and contributes 0.

    Args:
        of: Places of the sets U in the family.

    Returns:
        The value of each U (NaN where U has none) and the place of the V that attains it (U itself where it is 0, −1
        where U has no value); and how many were done before a limit was reached.
    """
    index = Index(space, family, values, int(family.size[of].min(initial=MOST_ROWS)) - k)
    place = np.full(len(family), -1, np.int64)
    place[index.order] = np.arange(len(index.order))
    most, attained = np.full(len(of), np.nan), np.full(len(of), -1, np.int64)
    valued = np.flatnonzero(place[of] >= 0)
    where, ordered = space.native(), index.native()

    def piece(start: int) -> None:
        some = valued[start : start + PIECE]
        places = np.ascontiguousarray(place[of[some]])
        best, at = np.empty(len(some)), np.empty(len(some), np.int64)
        pointers = (native.pointer("double", best), native.pointer("int64_t", at))
        wanted = native.pointer("int64_t", places)
        _check(native.lib().bits_inconsistency(where, ordered, wanted, len(some), k, *pointers))
        most[some], attained[some] = best, index.order[at]

    done = 0
    for _ in in_order(piece, range(0, len(valued), PIECE), limits.jobs, limits.expired):
        done = min(done + PIECE, len(valued))
        progress.update("comparing sets with those inside them", done, len(valued))
    finished = len(of) if done == len(valued) else int(valued[done])
    most[finished:], attained[finished:] = np.nan, -1
    return most, attained, finished

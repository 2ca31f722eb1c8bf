"""The bytes of a split tree go in, its leaves come out in batches of arrays; what the tree claims is not believed here.

The layout is that of docs/certificates.md. Every split must lie strictly inside its box, so the leaves are disjoint and
cover the region whatever the bytes say.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

DECIDED, ENUMERATED, HALF_SPACE, OPEN = 0x40, 0x41, 0x42, 0x43
KINDS = {DECIDED: "decided", ENUMERATED: "enumerated", HALF_SPACE: "half-space", OPEN: "open"}
POSSIBLE = 0xFF
STEEPEST = 1 << 16
"""k of a chord that has the slope above the kink."""
DEEPEST = 1 << 16
"""Most boxes that wait while the tree is read."""
LONGEST_NUMBER = 19
"""Bytes of a number: 128 bits."""
LONGEST_STEP = 10
"""Bytes of a relaxation step."""


class TreeError(Exception):
    """The bytes are no split tree of this region."""


@dataclass(frozen=True)
class Shape:
    """What is needed to read a tree."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    """The region over the inputs that vary."""
    labels: int
    places: int
    """Two for each hidden neuron."""


@dataclass(frozen=True, eq=False)
class Leaves:
    """Leaves of one kind (N of them, over d varying inputs)."""

    kind: int
    first: int
    """Number of the first of them among the leaves of this kind."""
    low: Any
    high: Any
    """(d × N) int64: low ≤ position < high."""
    winner: Any = None
    """(N × labels) uint8: for each label, who beats it on the whole box (`POSSIBLE`: nobody); decided, half-space."""
    leaf: Any = None
    place: Any = None
    chord: Any = None
    line: Any = None
    """Decided: the relaxation steps, in parallel: index of the leaf, place, k, line."""
    count: tuple[int, ...] = ()
    """Half-space: points of the lower label."""

    def __len__(self) -> int:
        return int(self.low.shape[1])

    def box(self, index: int) -> tuple[tuple[int, int], ...]:
        """(low, high) of each varying input."""
        return tuple(zip(self.low[:, index].tolist(), self.high[:, index].tolist(), strict=True))

    def subset(self, indices: Any) -> Leaves:
        """The leaves at these indices (ascending)."""
        indices = np.asarray(indices)
        if self.kind != DECIDED:
            count = tuple(self.count[i] for i in indices.tolist()) if self.count else ()
            winner = None if self.winner is None else self.winner[indices]
            return Leaves(self.kind, self.first, self.low[:, indices], self.high[:, indices], winner, count=count)
        new = np.full(len(self), -1)
        new[indices] = np.arange(len(indices))
        keep = new[self.leaf] >= 0
        return Leaves(
            self.kind, self.first, self.low[:, indices], self.high[:, indices], self.winner[indices],
            new[self.leaf[keep]], self.place[keep], self.chord[keep], self.line[keep],
        )  # fmt: skip


def leaves(blocks: Iterable[bytes], shape: Shape, batch: int) -> Iterator[Leaves]:
    """The leaves of a tree, in batches of at most `batch` of one kind; memory is bounded by the batch and a block.

    Raises:
        TreeError: Bytes are missing, left over or out of range.
    """
    walker = _Walker(shape, batch)
    longest = 1 + shape.labels + LONGEST_NUMBER + LONGEST_STEP * shape.places
    rest = b""
    for block in blocks:
        data = rest + block
        used = yield from walker.read(data)
        rest = data[used:]
        if len(rest) > longest:
            raise TreeError("a leaf is too long")
    if walker.stack:
        raise TreeError("the tree is cut off")
    for kind in KINDS:
        yield from walker.flush(kind)


class _Walker:
    def __init__(self, shape: Shape, batch: int) -> None:
        self._shape = shape
        self._batch = batch
        self._number = dict.fromkeys(KINDS, 0)
        self._boxes: dict[int, list[tuple[int, ...]]] = {kind: [] for kind in KINDS}
        self._winners: dict[int, list[bytes]] = {DECIDED: [], HALF_SPACE: []}
        self._steps: list[bytes] = []
        self._step_counts: list[int] = []
        self._counts: list[int] = []
        empty = any(a >= b for a, b in zip(shape.low, shape.high, strict=True))
        self.stack: list[tuple[int, ...]] = [] if empty else [shape.low + shape.high]
        """Boxes that are still to come: all low ends, then all high ends."""

    def read(self, data: bytes) -> Generator[Leaves, None, int]:
        """The leaves of what is complete in `data`; returns how many bytes that is."""
        stack, boxes = self.stack, self._boxes
        dims, end = len(self._shape.low), len(data)
        stops = np.flatnonzero(np.frombuffer(data, np.uint8) < 0x80).tolist()
        at = 0
        while at < end:
            if not stack:
                raise TreeError("bytes follow the tree")
            kind = data[at]
            after = _number(data, at + 1) if kind < DECIDED else self._leaf(kind, data, at + 1, stops)
            if after is None:
                break
            box = stack.pop()
            if isinstance(after, int):
                at = after
                waiting = boxes[kind]
                waiting.append(box)
                if len(waiting) >= self._batch:
                    yield from self.flush(kind)
                continue
            cut, at = after
            if kind >= dims or not box[kind] < cut < box[dims + kind]:
                raise TreeError(
                    f"a split of input {kind} at {cut} lies outside its box {shown(box[:dims], box[dims:])}"
                )
            if len(stack) > DEEPEST:
                raise TreeError("the tree is too deep")
            stack.append((*box[:kind], cut, *box[kind + 1 :]))
            stack.append((*box[: dims + kind], cut, *box[dims + kind + 1 :]))
        return at

    def _leaf(self, kind: int, data: bytes, at: int, stops: list[int]) -> int | None:
        """Keeps what follows the byte of a leaf; the place after it, or None when it is not complete."""
        if kind in (ENUMERATED, OPEN):
            return at
        if kind not in KINDS:
            raise TreeError(f"byte {kind} is no kind of node")
        winner = data[at : at + self._shape.labels]
        found = _number(data, at + self._shape.labels)
        if found is None:
            return None
        count, at = found
        if kind == HALF_SPACE:
            self._counts.append(count)
        else:
            if count > self._shape.places:
                raise TreeError(f"a leaf has {count} relaxation steps")
            if count:
                last = bisect_left(stops, at) + 2 * count - 1
                if last >= len(stops):
                    return None
                self._steps.append(data[at : stops[last] + 1])
                at = stops[last] + 1
            self._step_counts.append(count)
        self._winners[kind].append(winner)
        return at

    def flush(self, kind: int) -> Iterator[Leaves]:
        """What has been gathered of this kind."""
        boxes = self._boxes[kind]
        if not boxes:
            return
        dims = len(self._shape.low)
        first, self._number[kind] = self._number[kind], self._number[kind] + len(boxes)
        table = np.array(boxes, np.int64).reshape(len(boxes), 2 * dims).T
        low, high = np.ascontiguousarray(table[:dims]), np.ascontiguousarray(table[dims:])
        boxes.clear()
        if kind in (ENUMERATED, OPEN):
            yield Leaves(kind, first, low, high)
            return
        winner = np.frombuffer(b"".join(self._winners[kind]), np.uint8).reshape(-1, self._shape.labels)
        self._winners[kind].clear()
        self._check(winner, low, high)
        if kind == HALF_SPACE:
            count = tuple(self._counts)
            self._counts.clear()
            yield Leaves(kind, first, low, high, winner, count=count)
            return
        leaf, place, packed = self._decoded(b"".join(self._steps), np.array(self._step_counts, np.int64))
        self._steps.clear()
        self._step_counts.clear()
        yield Leaves(kind, first, low, high, winner, leaf, place, packed >> 1, packed & 1)

    def _check(self, winner: Any, low: Any, high: Any) -> None:
        own = winner == np.arange(self._shape.labels, dtype=np.uint8)
        bad = ((winner != POSSIBLE) & (winner >= self._shape.labels)) | own
        nobody = (winner != POSSIBLE).all(axis=1)
        wrong = np.flatnonzero(bad.any(axis=1) | nobody)
        if len(wrong):
            raise TreeError(f"the labels of the leaf {shown(low[:, wrong[0]].tolist(), high[:, wrong[0]].tolist())}")

    def _decoded(self, text: bytes, counts: Any) -> tuple[Any, Any, Any]:
        """The steps of many leaves: index of the leaf, place, 2k + line."""
        leaf = np.repeat(np.arange(len(counts)), counts)
        data = np.frombuffer(text, np.uint8).astype(np.int64)
        stops = np.flatnonzero(data < 0x80)
        starts = np.concatenate([[0], stops[:-1] + 1]) if len(stops) else stops
        length = stops - starts + 1
        if (length > 5).any():
            raise TreeError("a relaxation step out of range")
        numbers = np.zeros(len(stops), np.int64)
        for byte in range(int(length.max(initial=0))):
            some = length > byte
            numbers[some] |= (data[starts[some] + byte] & 0x7F) << (7 * byte)
        distance, packed = numbers[0::2], numbers[1::2]
        total = np.cumsum(distance)
        begin = np.cumsum(counts) - counts
        before = np.concatenate([[0], total])[begin]
        place = total - np.repeat(before, counts)
        repeated = distance == 0
        repeated[begin[counts > 0]] = False
        if repeated.any() or (place >= self._shape.places).any() or (packed >> 1 > STEEPEST).any():
            raise TreeError("a relaxation step out of range")
        return leaf, place, packed


def _number(data: bytes, at: int) -> tuple[int, int] | None:
    """The unsigned LEB128 number at a place and the place after it; None when the data end before it does."""
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift >= 7 * LONGEST_NUMBER:
            raise TreeError("a number is too long")
    return None


def shown(low: Iterable[int], high: Iterable[int]) -> str:
    """A box for messages: the positions of the varying inputs, ends included."""
    return " × ".join(f"[{a}, {b - 1}]" for a, b in zip(low, high, strict=True)) or "[the point]"

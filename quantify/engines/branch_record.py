"""The recorded split tree of `branch` to its leaves, and to the boxes where a query holds.

The stream is the tree in pre-order, over the inputs that vary (in `Record.varying`; 0 is the first of these).
Numbers are unsigned LEB128. A node begins with one byte:

    0…30    an inner node: the input that is split; number: the position `cut`. The part below cut follows, then the
            rest.
    0x40    decided: one byte per label: 0xFF when it is possible, else the label that beats it on the whole box.
            number: how many relaxation steps follow; each is two numbers, the distance of its place from the place
            before (from 0 at first), and k·2 + line.
    0x41    enumerated: nothing follows; every point is to be evaluated.
    0x42    half-space: one byte per label as above, exactly two being possible; number: the points where the lower of
            the two wins. Every neuron is stable on the box.
    0x43    open.

Places count two steps per neuron through all hidden layers (those before the scores) in order: place = 2·neuron + step.
Step 0 is the kink of relu and leaky at 0, or the lower clamp of floor_shift; step 1 is the upper clamp (capped relu,
floor_shift). Only steps that neither side of the kink covers alone are listed. With y = c + g(z − c), g of slope p
above 0 and n below, the chord has slope n + (p − n)·k/2^16 and line says which of the two lines bounds the other side
(1: slope p). Convex g (p ≥ n: kinks upwards) has the chord above, concave g below; the chord's shift is what makes
it valid on the range of its own form. Unstable sign is the constant interval [−1, 1]; floor_shift takes z·2^-s
above and z·2^-s − (1 − 2^-s) below, then the two clamps.

A last layer with an activation counts as hidden, and the scores are its values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quantify.engines import logic
from quantify.errors import ContradictionError
from quantify.ir import network_eval
from quantify.ir.count import Count
from quantify.ir.network import IntNetwork
from quantify.ir.predicate import Predicate
from quantify.ir.problem import Box, GridCase, GridProblem
from quantify.ir.ranges import on_box

DECIDED, ENUMERATED, HALF_SPACE, OPEN = 0x40, 0x41, 0x42, 0x43
POSSIBLE = 0xFF
OPEN_NAME = "open"
MOST_POINTS = 1 << 12
"""Of a part of a leaf that is looked at point by point."""
Kind = Literal["decided", "enumerated", "half-space", "open"]


@dataclass(frozen=True)
class Record:
    """A split tree and what is needed to read it."""

    stream: bytes
    region: Box
    varying: tuple[int, ...]
    """The inputs that the tree splits; the others have one position in the region."""
    labels: int
    neurons: tuple[int, ...]
    """Per hidden layer."""


@dataclass(frozen=True)
class Leaf:
    """One leaf: its box over all inputs, and the proof."""

    kind: Kind
    low: tuple[int, ...]
    high: tuple[int, ...]
    winner: tuple[int | None, ...] = ()
    """Per label, the label that beats it on the whole box, None where it is possible (decided, half-space)."""
    steps: tuple[tuple[int, int, int], ...] = ()
    """Decided: (place, k, line)."""
    count: int = 0
    """Half-space: points of the lower label."""

    @property
    def possible(self) -> tuple[int, ...]:
        """Labels that are not ruled out."""
        return tuple(label for label, winner in enumerate(self.winner) if winner is None)


class _Reader:
    def __init__(self, record: Record) -> None:
        self._record = record
        self._stream = record.stream
        self._at = 0

    def byte(self) -> int:
        value = self._stream[self._at]
        self._at += 1
        return value

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def winners(self) -> tuple[int | None, ...]:
        found = (self.byte() for _ in range(self._record.labels))
        return tuple(None if winner == POSSIBLE else winner for winner in found)

    def steps(self) -> tuple[tuple[int, int, int], ...]:
        place, out = 0, []
        for _ in range(self.number()):
            place += self.number()
            packed = self.number()
            out.append((place, packed >> 1, packed & 1))
        return tuple(out)


def _with(corner: tuple[int, ...], place: int, position: int) -> tuple[int, ...]:
    return (*corner[:place], position, *corner[place + 1 :])


def leaves(record: Record) -> Iterator[Leaf]:
    """The leaves in the order of the tree; their boxes are disjoint and cover the region."""
    reader = _Reader(record)
    stack = [(record.region.low, record.region.high)]
    while stack:
        low, high = stack.pop()
        head = reader.byte()
        if head < DECIDED:
            feature = record.varying[head]
            cut = reader.number()
            stack.append((_with(low, feature, cut), high))
            stack.append((low, _with(high, feature, cut)))
        elif head == DECIDED:
            winner = reader.winners()
            yield Leaf("decided", low, high, winner, reader.steps())
        elif head == HALF_SPACE:
            winner = reader.winners()
            yield Leaf("half-space", low, high, winner, count=reader.number())
        else:
            yield Leaf("enumerated" if head == ENUMERATED else "open", low, high)


def boxes_where(record: Record, network: IntNetwork, predicate: Predicate) -> Iterator[Box]:
    """Disjoint boxes that together hold exactly the points, outside open leaves, where the predicate is true."""
    for leaf in leaves(record):
        yield from _in_leaf(network, predicate, leaf)


def boxes_of(
    problem: GridProblem, case: GridCase, record: Record | None, names: Sequence[str], counts: Mapping[str, Count]
) -> Iterator[tuple[str, Box]]:
    """The boxes of each named query with its name, and those of open leaves with `OPEN_NAME`.

    Args:
        record: Of a run over all of the case's queries; None for a region of at most one point.
        counts: What that run said.

    Raises:
        ContradictionError: The boxes do not add up to the counts.
    """
    network, region = problem.network, case.region
    assert network is not None
    assert isinstance(region, Box)
    queries = [query for query in case.queries if query.name in names]
    held = dict.fromkeys((query.name for query in queries), 0)
    left = 0
    for leaf in leaves(record) if record is not None else ():
        if leaf.kind == "open":
            left += Box(leaf.low, leaf.high).size
            yield OPEN_NAME, Box(leaf.low, leaf.high)
        for query in queries:
            for box in _in_leaf(network, query.predicate, leaf):
                held[query.name] += box.size
                yield query.name, box
    for query in queries:
        count = counts[query.name]
        if record is None and count.lower:
            held[query.name] = region.size
            yield query.name, region
        # A query may be settled on a leaf that another leaves open.
        if not held[query.name] <= count.lower <= count.upper <= held[query.name] + left:
            raise ContradictionError(
                f"the boxes of {query.name} hold {held[query.name]} inputs and {left} are open, "
                f"but {count.lower} to {count.upper} were counted",
                "this is a defect of quantify: please report it with the model and the property",
            )


def _in_leaf(network: IntNetwork, predicate: Predicate, leaf: Leaf) -> Iterator[Box]:
    if leaf.kind == "open":
        return
    if leaf.kind == "decided":
        answer = on_box(predicate, leaf.low, leaf.high, leaf.possible)
        if answer is None:  # decided by scores: one point speaks for all of them
            answer = bool(_holds(network, predicate, np.array([leaf.low], np.int64))[0])
        if answer:
            yield Box(leaf.low, leaf.high)
        return
    parts = [(leaf.low, leaf.high)]
    while parts:
        low, high = parts.pop()
        if leaf.kind == "half-space":
            answer = on_box(predicate, low, high, _at_corners(network, low, high))
            if answer is not None:
                if answer:
                    yield Box(low, high)
                continue
        if Box(low, high).size <= MOST_POINTS:
            yield from _runs(network, predicate, low, high)
            continue
        place = max(range(len(low)), key=lambda k: high[k] - low[k])
        middle = (low[place] + high[place]) // 2
        parts += [(_with(low, place, middle), high), (low, _with(high, place, middle))]


def _at_corners(network: IntNetwork, low: tuple[int, ...], high: tuple[int, ...]) -> tuple[int, ...]:
    """The labels at the corners: of a half-space and its complement, both convex, no other lies inside."""
    ends = [sorted({a, b - 1}) for a, b in zip(low, high, strict=True)]
    corners = np.array(list(itertools.product(*ends)), np.int64)
    return tuple(sorted(set(network_eval.labels(network, corners).tolist())))


def _holds(network: IntNetwork, predicate: Predicate, points: NDArray[np.int64]) -> NDArray[np.bool_]:
    scores = network_eval.scores(network, points)
    labels = network_eval.best(scores)
    rows = zip(points.tolist(), labels.tolist(), scores.tolist(), strict=True)
    return np.array([logic.holds(predicate, point, label, score) for point, label, score in rows], np.bool_)


def _runs(network: IntNetwork, predicate: Predicate, low: tuple[int, ...], high: tuple[int, ...]) -> Iterator[Box]:
    """The points of a box where the predicate is true: the box itself, or runs along its last input that varies."""
    widths = [b - a for a, b in zip(low, high, strict=True)]
    along = max((k for k, width in enumerate(widths) if width > 1), default=len(widths) - 1)
    grids = np.meshgrid(*(np.arange(a, b) for a, b in zip(low, high, strict=True)), indexing="ij")
    points = np.stack([grid.ravel() for grid in grids], axis=1).astype(np.int64)
    true = _holds(network, predicate, points)
    if true.all():
        yield Box(low, high)
        return
    # Inputs behind `along` do not vary, so that consecutive rows of `points` lie along it.
    lines = np.pad(true.reshape(-1, widths[along]).astype(np.int8), ((0, 0), (1, 1)))
    steps = np.diff(lines, axis=1)
    starts, ends = np.argwhere(steps == 1), np.argwhere(steps == -1)
    for (line, start), (_, end) in zip(starts.tolist(), ends.tolist(), strict=True):
        corner = tuple(points[line * widths[along]].tolist())
        first, last = low[along] + start, low[along] + end
        yield Box(_with(corner, along, first), _with(tuple(c + 1 for c in corner), along, last))

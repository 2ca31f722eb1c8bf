"""A case about a network goes in, exact counts come out, by running the network on every input of the region's box.

Part of the engine `enumerate`. Queries about the label alone share one count per label. As soon as some query reads
more than that, every query's predicate is run on every point; or `enumerate` runs them in bit slices and asks for the
labels of a block (`NetworkLabels`) where they still matter.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.engines import evaluate, logic
from quantify.engines.bytecode import NotNativeError, Program, compile_predicates
from quantify.engines.native_network import NativeNetwork, lower
from quantify.engines.slicing import box_of, inside
from quantify.engines.tallies import Stop, Tally, counts_of, gathered
from quantify.ir.count import Count, Estimate
from quantify.ir.network import IntNetwork
from quantify.ir.predicate import reads_scores
from quantify.ir.problem import Box, GridCase, GridProblem, GridQuery
from quantify.resources import Limits, Progress

MAX_POINTS = 1 << 62
PIECES = 256
PIECE_NANOSECONDS = 2e6
"""Pieces are at least this long, so that starting them costs little."""
CALL_NANOSECONDS = 40e6
"""Work of one native call, short enough for the deadline and Ctrl-C."""
UNIT_NANOSECONDS = 0.025
"""Per point and unit of the first layer when two layers run as one; four times as much without vectors."""
OPERATION_NANOSECONDS = 0.06
POINT_NANOSECONDS = 1.5
STEP_NANOSECONDS = 1.5
PREDICATE_NANOSECONDS = 10.0


@dataclass
class Walk:
    """How one case will be counted."""

    native: NativeNetwork | None
    """None when the region is empty."""
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    """Of the features that the native network reads."""
    points: int
    """Points of the box over these features."""
    factor: int
    """Points over all other features."""
    work: float
    """Expected nanoseconds of one worker."""
    program: Program | None
    """None when labels decide every query."""

    @property
    def reason(self) -> str:
        """What the work consists of."""
        each = "labels" if self.program is None else f"{len(self.program.steps)} steps of predicates"
        return f"2^{max(0, self.points - 1).bit_length()} inputs through the network, {each}"


@dataclass(frozen=True)
class NetworkLabels:
    """What bit slices need to ask a network about a block of inputs."""

    native: NativeNetwork
    lows: NDArray[np.int64]
    sets: NDArray[np.uint8]
    """(sets × labels), 1 for members."""
    nanoseconds: float

    @classmethod
    def of(cls, walk: Walk, native: NativeNetwork, label_sets: Sequence[tuple[int, ...]]) -> NetworkLabels:
        """For inputs that say whether the label is in each of `label_sets`."""
        sets = np.zeros((max(1, len(label_sets)), native.labels), np.uint8)
        for row, members in enumerate(label_sets):
            sets[row, list(members)] = 1
        return cls(native, walk.low, sets[: len(label_sets)], _point_nanoseconds(native, None))

    def native_form(self, isa: str) -> tuple[Any, Any]:
        """An `enumerate_labels *` for one thread, and what must live as long as it."""
        from quantify.engines import _native

        task = self.native.task(isa)
        pointers = (evaluate.pointer("int64_t[]", self.lows), evaluate.pointer("uint8_t[]", self.sets))
        made = _native.ffi.new(
            "enumerate_labels *",
            {
                "network": task,
                "lows": pointers[0],
                "sets": pointers[1],
                "count": len(self.sets),
                "classes": self.native.labels,
                "nanoseconds": self.nanoseconds,
            },
        )
        return made, (task, pointers)


def planned(problem: GridProblem, network: IntNetwork, case: GridCase) -> Walk:
    """The plan for a case.

    Raises:
        NotNativeError: The case is refused, the argument says why.
    """
    box = box_of(case.region)
    widths = [max(0, high - low) for low, high in zip(box.low, box.high, strict=True)]
    nothing = np.zeros(1, np.int64)
    if 0 in widths:
        return Walk(None, nothing, nothing, 0, 0, 0.0, None)
    matter = _features_that_matter(network, case, widths)
    points = math.prod(widths[f] for f in matter)
    if points > MAX_POINTS:
        raise NotNativeError(f"{len(matter)} features matter, with 2^{(points - 1).bit_length()} inputs")
    low = list(box.low)
    high = [box.high[f] if f in matter else box.low[f] + 1 for f in range(len(widths))]
    scores = any(reads_scores(query.predicate) for query in case.queries)
    program = None
    if not isinstance(case.region, Box) or scores or any(logic.features_used(q.predicate) for q in case.queries):
        program = compile_predicates([query.predicate for query in case.queries], problem, inside(case.region))
    native = lower(network, problem.labels, low, high, walk=True, scores=scores)
    return Walk(
        native,
        np.array([low[f] for f in native.features] or [0], np.int64),
        np.array([high[f] for f in native.features] or [0], np.int64),
        points,
        math.prod(widths) // points,
        points * _point_nanoseconds(native, program),
        program,
    )


def estimate(walk: Walk) -> Estimate:
    """What the walk will take."""
    return Estimate(1e-4 + walk.work * 1e-9, walk.reason)


def count(
    problem: GridProblem, case: GridCase, walk: Walk, engine: str, isa: str, limits: Limits, progress: Progress
) -> Mapping[str, Count]:
    """One count a query, whatever the number of threads; bounds when the deadline comes first."""
    started = time.monotonic()
    tally = Tally([0] * len(case.queries))
    if walk.native is not None and case.queries:
        pool = _Pool(walk, walk.native, isa, box_of(case.region), case)
        tally = gathered(pool.pieces(), walk.points, len(case.queries), limits, progress)
    points = walk.points if case.queries else 0
    return counts_of(problem, case, engine, tally, points, walk.factor, time.monotonic() - started)


def witness(problem: GridProblem, case: GridCase, query: GridQuery, isa: str, limits: Limits) -> tuple[int, ...] | None:
    """The first input, the last feature moving fastest, that satisfies the query; None also on the deadline."""
    assert problem.network is not None
    single = GridCase(case.region, (query,), ())
    walk = planned(problem, problem.network, single)
    if walk.native is None:
        return None
    if walk.program is None:
        walk.program = compile_predicates([query.predicate], problem)
    return _Pool(walk, walk.native, isa, box_of(case.region), single).witness(limits)


class _Pool:
    """Native tasks over one box, handed to whichever thread asks."""

    def __init__(self, walk: Walk, native: NativeNetwork, isa: str, box: Box, case: GridCase) -> None:
        self._walk, self._native, self._isa, self._box = walk, native, isa, box
        self._lib = evaluate.native()
        self._ids = np.array(native.features or (0,), np.int32)
        self._free: list[Any] = []
        self._outputs = len(case.queries)
        # Labels that satisfy each query, when labels are all that queries read.
        self._sets: list[list[bool]] = []
        if walk.program is None:
            self._sets = [[logic.holds(q.predicate, (), k) for k in range(native.labels)] for q in case.queries]
        task = self._taken()
        self._tiles = self._box_of(task)
        self._free.append(task)
        self._call = max(1, int(CALL_NANOSECONDS * self._tiles / max(walk.work, 1.0)))

    def pieces(self) -> list[Callable[[Stop], Tally]]:
        """Runs of tiles that follow each other."""
        number = min(PIECES, self._tiles, max(1, int(self._walk.work / PIECE_NANOSECONDS)))
        ends = [self._tiles * k // number for k in range(number + 1)]

        def piece(first: int, end: int) -> Callable[[Stop], Tally]:
            return lambda stop: self._run(first, end, stop)

        return [piece(first, end) for first, end in itertools.pairwise(ends)]

    def witness(self, limits: Limits) -> tuple[int, ...] | None:
        """The first point that satisfies the only query."""
        task = self._taken()
        positions = np.array(self._box.low, np.int64)
        first = 0
        while first < self._tiles and not (first and limits.expired()):
            tiles = min(self._call, self._tiles - first)
            if self._truths(task, first, tiles, positions, np.zeros(1, np.uint64), seek=True):
                return tuple(positions.tolist())
            first += tiles
        return None

    def _run(self, first: int, end: int, stop: Stop) -> Tally:
        task = self._taken()
        start = first
        counts = np.zeros(self._outputs if self._walk.program else self._native.labels, np.uint64)
        positions = np.array(self._box.low, np.int64)
        while first < end:
            tiles = min(self._call, end - first)
            if self._walk.program is None:
                self._lib.network_count(task, first, tiles, evaluate.pointer("uint64_t[]", counts))
            else:
                self._truths(task, first, tiles, positions, counts)
            first += tiles
            if stop():
                break
        visited = self._lib.network_start(task, first) - self._lib.network_start(task, start)
        self._free.append(task)
        found: list[int] = counts.tolist()
        if self._walk.program is None:
            found = [sum(n for n, is_in in zip(found, s, strict=True) if is_in) for s in self._sets]
        return Tally(found, visited)

    def _truths(
        self,
        task: Any,
        first: int,
        tiles: int,
        positions: NDArray[np.int64],
        counts: NDArray[np.uint64],
        seek: bool = False,
    ) -> bool:
        program = self._walk.program
        assert program is not None
        return bool(
            self._lib.network_truths(
                task,
                first,
                tiles,
                evaluate.pointer("evaluate_step[]", program.steps),
                evaluate.pointer("uint8_t[]", program.label_sets),
                program.wide,
                program.registers,
                evaluate.pointer("int32_t[]", self._ids),
                evaluate.pointer("int64_t[]", positions),
                self._outputs,
                evaluate.pointer("uint64_t[]", counts),
                seek,
            )
        )

    def _taken(self) -> Any:
        try:
            return self._free.pop()
        except IndexError:
            task = self._native.task(self._isa)
            self._box_of(task)
            return task

    def _box_of(self, task: Any) -> int:
        low, high = self._walk.low, self._walk.high
        tiles: int = self._lib.network_box(
            task, evaluate.pointer("int64_t[]", low), evaluate.pointer("int64_t[]", high)
        )
        return tiles


def _features_that_matter(network: IntNetwork, case: GridCase, widths: Sequence[int]) -> frozenset[int]:
    """Features that the network reads, or that a predicate or the ball reads, and that can vary in the box."""
    found: set[int] = set()
    for predicate in (inside(case.region), *(query.predicate for query in case.queries)):
        found.update(logic.features_used(predicate))
    first = network.layers[0]
    if any(logic.reads_label(q.predicate) or reads_scores(q.predicate) for q in case.queries):
        if first.members is not None:
            found.update(int(m) for m in np.unique(first.members) if m >= 0)
        else:
            found.update(int(c) for c in np.unique(first.rows.columns[first.rows.values != 0]))
    return frozenset(f for f in found if widths[f] > 1)


def _point_nanoseconds(native: NativeNetwork, program: Program | None) -> float:
    if native.fused:
        each = native.units * UNIT_NANOSECONDS
    else:
        each = POINT_NANOSECONDS + (native.operations + native.units) * OPERATION_NANOSECONDS
    return each + (PREDICATE_NANOSECONDS + len(program.steps) * STEP_NANOSECONDS if program is not None else 0.0)

"""The engine `branch`: integer networks over few wide inputs go in, exact counts or bounds at any time come out.

Boxes of inputs are bounded by affine forms with a running error; decided boxes add their volume, half-spaces are
counted by floor sums, small boxes by what their stable neurons leave of the network, the others split, the heaviest
first. What is open when work stops stands between the lower and the upper count. Every query is counted by itself.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from quantify.engines import logic
from quantify.engines.branch_checkpoint import Checkpoint, Checkpoints, Group, State, heaviest_first, without
from quantify.engines.branch_plan import Plan, Tuning, make_plan, refuses
from quantify.engines.branch_record import Record, leaves
from quantify.engines.descent import native_module
from quantify.errors import InputError, UndecidedError
from quantify.ir import network_eval
from quantify.ir.count import Count, Estimate, Guarantee
from quantify.ir.predicate import reads_scores
from quantify.ir.problem import Box, GridCase, GridProblem, GridQuery
from quantify.resources import Limits, Progress

ISAS = {"": 0, "portable": 1, "avx2": 2, "avx512": 3}
DONE, MORE, IDLE, DOUBTS, NO_MEMORY = range(5)
SLICE_SECONDS = 0.1
BOX_BYTES = 384
"""Memory of a waiting box with its place in the order, at most (7 inputs or fewer)."""
DOUBT_ROOM = 1 << 15
SCALE = 10_000
STATS = ("boxes", "decided", "enumerated", "half_spaces", "points")


@dataclass(frozen=True)
class Outcome:
    """What a run proved, beyond the counts."""

    counts: Mapping[str, Count]
    open_share: Fraction
    """Largest share of the region that any query leaves open."""
    work: Mapping[str, int]
    """Boxes bounded, decided, counted by points or parts, and as half-spaces; points of those by points or parts."""
    record: Record | None
    """The split tree, when it was asked for."""
    proven: Mapping[str, tuple[int, int]]
    """With `record`: what its leaves prove of each query, the volumes of parts of open boxes left out."""


class BranchEngine:
    """Exact counts of label sets, boxes and linear conditions on inputs and scores, with bounds at every moment.

    Args:
        gap: Stop as soon as the open share of every query is at most this; None runs to the end.
        isa: "portable", "avx2" or "avx512" instead of the best that the processor has; the environment variable
            QUANTIFY_ISA does the same.
        checkpoint: Where unfinished work is kept and taken up again, one file a case; the caller finishes it.
        checkpoint_seconds: Time between two writings of that file.
        tuning: What the work is spent on; counts that are complete do not depend on it.
    """

    name: ClassVar[str] = "branch"
    guarantee: ClassVar[Guarantee] = Guarantee.EXACT
    automatic: ClassVar[bool] = True
    structures: ClassVar[frozenset[str]] = frozenset({"network"})

    def __init__(
        self,
        gap: Fraction | None = None,
        isa: str = "",
        checkpoint: Checkpoints | None = None,
        checkpoint_seconds: float = 60.0,
        tuning: Tuning | None = None,
    ) -> None:
        self.gap = gap
        self.isa = isa
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.tuning = tuning or Tuning()

    def refuses(self, problem: GridProblem, case: GridCase) -> str | None:
        return refuses(problem, case)

    def estimate(self, problem: GridProblem, case: GridCase) -> Estimate:
        """A guess from measured runs: boxes grow like a power of the points, each costs a pass over the weights."""
        network, region = problem.network, case.region
        assert network is not None
        assert isinstance(region, Box)
        weights = sum(len(layer.rows.values) for layer in network.layers)
        neurons = sum(layer.rows.outputs for layer in network.layers[:-1])
        inputs = sum(b - a > 1 for a, b in zip(region.low, region.high, strict=True))
        points = max(1, region.size)
        # Boundaries have one dimension less than the region, and each neuron brings a kink of its own.
        boxes = min(points / 16, (1 + neurons) ** 2 * points ** ((inputs - 1) / max(1, inputs)) / 64)
        seconds = 1e-3 + max(1.0, boxes) * (1e-6 + weights * 4e-9)
        return Estimate(seconds, f"2^{(points - 1).bit_length()} inputs in boxes, {weights:,} weights")

    def count(self, problem: GridProblem, case: GridCase, limits: Limits, progress: Progress) -> Mapping[str, Count]:
        """See `Engine.count`.

        Raises:
            InputError: The case is refused, QUANTIFY_ISA names what this processor lacks, or a checkpoint does not fit.
            UndecidedError: Memory ran out before anything was proven.
        """
        return self.run(problem, case, limits, progress).counts

    def run(
        self, problem: GridProblem, case: GridCase, limits: Limits, progress: Progress, record: bool = False
    ) -> Outcome:
        """`count` with what else is known; with `record` the split tree is kept (in memory, some 100 bytes a leaf).

        Raises:
            InputError: See `count`; or both a record and a checkpoint folder are wanted.
            UndecidedError: See `count`.
        """
        started = time.monotonic()
        if record and self.checkpoint is not None:
            raise InputError("a split tree cannot be resumed", "leave out --checkpoint, or what needs the split tree")
        run = self._start(problem, case, limits, record)
        try:
            if run.size:
                self._work(run, limits, progress)
            return self._outcome(run, limits, time.monotonic() - started)
        finally:
            run.close()

    def _start(self, problem: GridProblem, case: GridCase, limits: Limits, record: bool) -> _Run:
        if reason := self.refuses(problem, case):
            raise InputError(f"the engine branch cannot count this: {reason}", "choose another --engine")
        name = self.isa or os.environ.get("QUANTIFY_ISA", "")
        if name not in ISAS:
            raise InputError(f"there is no instruction set {name!r}", "set QUANTIFY_ISA to portable, avx2 or avx512")
        run = _Run(problem, case, self.tuning, limits, ISAS[name], record)
        if self.checkpoint is not None:
            run.checkpoint = self.checkpoint.of(run.digest)
        return run

    def _work(self, run: _Run, limits: Limits, progress: Progress) -> None:
        loading = time.monotonic()
        run.begin(progress)
        saved = time.monotonic()
        if run.resumed and limits.deadline is not None:
            # The limit is for the work: taking it up again must not use it up.
            limits = replace(limits, deadline=limits.deadline + saved - loading)
        for status in run.slices(limits):
            share = run.open_share()
            done = SCALE - math.ceil(SCALE * share)
            progress.update(f"splitting boxes ({float(share):.3%} open)", done, SCALE)
            if status in (DONE, NO_MEMORY) or (self.gap is not None and share <= self.gap) or limits.expired():
                run.status = status
                break
            if run.checkpoint is not None and time.monotonic() - saved > self.checkpoint_seconds:
                run.save()
                saved = time.monotonic()
        # Boxes that found no memory are neither settled nor waiting: the last checkpoint stands.
        if run.checkpoint is not None and run.status != NO_MEMORY:
            run.save()

    def _why(self, run: _Run, share: Fraction, limits: Limits) -> str:
        """Why a part of the region is open."""
        if self.gap is not None and share <= self.gap:
            return "the gap was reached"
        if run.status == NO_MEMORY:
            return "memory ran out"
        return limits.why()

    def _outcome(self, run: _Run, limits: Limits, seconds: float) -> Outcome:
        share = run.open_share()
        note = ""
        if share:
            note = f"{_percent(share)} open: {self._why(run, share, limits)}"
            if run.status == NO_MEMORY and share == 1:
                raise UndecidedError("memory ran out before anything was proven", "raise --memory")
        inside, outside = run.totals()
        counts = {}
        for query, lower, excluded in zip(run.case.queries, inside, outside, strict=True):
            upper = run.size - excluded
            guarantee = Guarantee.EXACT if lower == upper else Guarantee.BOUNDS
            counts[query.name] = Count(
                lower, upper, guarantee, self.name, seconds, run.digest, note="" if lower == upper else note
            )
        return Outcome(counts, share, run.work(), run.record(), run.proven())

    def witness(self, problem: GridProblem, case: GridCase, query: GridQuery, limits: Limits) -> tuple[int, ...] | None:
        """See `Engine.witness`: draws first, then boxes until one is proven to hold a point."""
        region = case.region
        if not isinstance(region, Box) or self.refuses(problem, case) or region.size == 0:
            return None
        drawn = _draw(problem, region, query, limits.seed)
        if drawn is not None:
            return drawn
        alone = GridCase(region, (query,), ())
        tuning = Tuning(loop_work=0.0, credit_points=math.inf)
        run = _Run(problem, alone, tuning, Limits(limits.deadline, limits.memory_mb), 0, True)
        try:
            run.begin(Progress())
            for status in run.slices(limits):
                if run.totals()[0][0]:
                    return run.point_inside(query)
                if status in (DONE, NO_MEMORY) or limits.expired():
                    return None
        finally:
            run.close()
        return None


class _Run:
    """One native engine at work on one case."""

    def __init__(
        self, problem: GridProblem, case: GridCase, tuning: Tuning, limits: Limits, isa: int, record: bool
    ) -> None:
        self.problem, self.case = problem, case
        self.digest = problem.digest(case)
        self.status = MORE
        self.checkpoint: Checkpoint | None = None
        self.resumed = False
        self._recording = record
        self._queries = len(case.queries)
        assert isinstance(case.region, Box)
        self._region = case.region
        self.size = case.region.size
        self._extra_in, self._extra_out = [0] * self._queries, [0] * self._queries
        self._best_in, self._best_out = [0] * self._queries, [0] * self._queries
        self._kept: State | None = None
        self._taken = 0
        self._groups: list[Group] = []
        self._native: Any = None
        module = native_module()
        self._lib, self._ffi = module.lib, module.ffi
        self.jobs = max(1, limits.jobs)
        self._single = self.size == 1
        if self.size > 1:
            memory = (limits.memory_mb or 2048) << 20
            waiting = max(16, memory * 3 // 4 // BOX_BYTES)
            self.plan: Plan = make_plan(
                problem, case, tuning, workers=self.jobs, recording=record, isa=isa, most_waiting=waiting
            )
            self._native = self._lib.branch_new(self.plan.native)
            if self._native == self._ffi.NULL:
                raise InputError("this processor lacks what QUANTIFY_ISA asks for", "unset QUANTIFY_ISA")

    def close(self) -> None:
        if self._native is not None:
            self._lib.branch_free(self._native)
            self._native = None

    def begin(self, progress: Progress) -> None:
        """Queue the region, or read what a checkpoint left of it: `slices` queues that bit by bit."""
        every = (1 << self._queries) - 1
        if self._single:
            self._settle(np.array([self._region.low], np.int64), [every])
            return
        state = self.checkpoint.load(self.plan, self._queries, progress) if self.checkpoint is not None else None
        if state is not None:
            self.resumed, self._kept, self._groups = True, state, state.groups
            self._extra_in, self._extra_out = state.inside, state.outside
            self._best_in, self._best_out = state.lower, [self.size - upper for upper in state.upper]
        elif not self._lib.branch_add(
            self._native, self.plan.low, self.plan.high, every, (1 << self.problem.labels) - 1
        ):
            raise UndecidedError("there is no memory for the boxes", "raise --memory")

    def _take_up(self, most: int) -> bool:
        """Queue the next boxes of the checkpoint; whether there was memory."""
        state = self._kept
        if state is None:
            return True
        dims, start = len(self.plan.low), self._taken
        low, high = (self._ffi.cast("int64_t *", self._ffi.from_buffer(x)) for x in (state.low, state.high))
        stop = min(start + most, len(state.open))
        masks = zip(state.open[start:stop].tolist(), state.labels[start:stop].tolist(), strict=True)
        for place, (still, labels) in enumerate(masks, start):
            if not self._lib.branch_add(self._native, low + place * dims, high + place * dims, still, labels):
                return False
        self._taken, self._groups = stop, without(self._groups, stop - start)
        if stop == len(state.open):
            self._kept = None
        return True

    def slices(self, limits: Limits) -> Iterator[int]:
        """Work in slices; after each, with all workers at rest, how things stand."""
        if self._single:
            yield DONE
            return
        # A box that is taken up is bounded again before it is split: with one box, the second round of a spent limit
        # is progress. Later half of the boxes bounded are new ones, so that a short run does not bound the old alone.
        most, rounds = 1, 2 if self.resumed else 1
        with ThreadPoolExecutor(self.jobs) as pool:
            while True:
                bounded = self.work()["boxes"]
                if not self._take_up(most):
                    yield NO_MEMORY
                    return
                for _ in range(rounds):
                    found = self._round(pool, limits)
                rounds = 1
                dry = DONE in found and not self._lib.branch_waiting(self._native)
                most = 2 * most if dry else max(1, (self.work()["boxes"] - bounded) // 2)
                if NO_MEMORY in found:
                    yield NO_MEMORY
                elif dry and self._kept is None:
                    yield DONE
                else:
                    yield MORE

    def _round(self, pool: ThreadPoolExecutor, limits: Limits) -> list[int]:
        """One slice of every worker, and how each ended."""
        left = limits.remaining()
        seconds = SLICE_SECONDS if left is None else min(SLICE_SECONDS, left)
        others = [pool.submit(self._lib.branch_run, self._native, k, seconds) for k in range(1, self.jobs)]
        try:
            found = [self._lib.branch_run(self._native, 0, seconds)]
        finally:
            found_others = [other.result() for other in others]
        self._drain()
        return found + found_others

    def _drain(self) -> None:
        """Settle the points that doubles left open, in whole numbers."""
        dims = len(self.plan.low)
        positions = np.empty((DOUBT_ROOM, dims), np.int64)
        still = np.empty(DOUBT_ROOM, np.uint64)
        cast = self._ffi.from_buffer
        while count := self._lib.branch_doubts(
            self._native, cast("int64_t[]", positions), cast("uint64_t[]", still), DOUBT_ROOM
        ):
            whole = np.tile(np.array(self._region.low, np.int64), (count, 1))
            whole[:, self.plan.layers.varying] = positions[:count]
            self._settle(whole, [int(x) for x in still[:count]])

    def _settle(self, positions: Any, still: list[int]) -> None:
        """Count single points, exactly."""
        network = self.problem.network
        assert network is not None
        scores = network_eval.scores(network, positions)
        labels = network_eval.best(scores)
        for point, score, label, left in zip(positions.tolist(), scores.tolist(), labels.tolist(), still, strict=True):
            for q, query in enumerate(self.case.queries):
                if left >> q & 1:
                    into = self._extra_in if logic.holds(query.predicate, point, label, score) else self._extra_out
                    into[q] += 1

    # --- what is known -----------------------------------------------------------------------------------------------
    def totals(self) -> tuple[list[int], list[int]]:
        """Points proven in and proven out, per query: the most so far, in all runs of a checkpoint."""
        if self._native is None:
            return list(self._extra_in), list(self._extra_out)
        found = self._native_totals()
        for group in self._groups:
            for total, proven in zip(found, (group.inside, group.outside), strict=True):
                total[:] = [a + b for a, b in zip(total, proven, strict=True)]
        # Parts of a box may prove less than the box did, and boxes taken up prove nothing at first.
        self._best_in = [max(pair) for pair in zip(self._best_in, found[0], strict=True)]
        self._best_out = [max(pair) for pair in zip(self._best_out, found[1], strict=True)]
        if any(a + b > self.size for a, b in zip(self._best_in, self._best_out, strict=True)):
            assert self.checkpoint is not None, "bounds of one run contradict each other"
            raise self.checkpoint.bad("its bounds do not add up with what was counted now")
        return list(self._best_in), list(self._best_out)

    def _native_totals(self) -> tuple[list[int], list[int]]:
        inside, outside = (self._ffi.new("uint64_t[]", 2 * self._queries) for _ in range(2))
        self._lib.branch_totals(self._native, inside, outside)
        return self._joined(inside, self._extra_in), self._joined(outside, self._extra_out)

    def _joined(self, words: Any, extra: list[int]) -> list[int]:
        return [words[2 * q] + (words[2 * q + 1] << 64) + extra[q] for q in range(self._queries)]

    def open_share(self) -> Fraction:
        if not self.size:
            return Fraction(0)
        inside, outside = self.totals()
        left = max((self.size - a - b for a, b in zip(inside, outside, strict=True)), default=0)
        return Fraction(left, self.size)

    def work(self) -> dict[str, int]:
        if self._native is None:
            return dict.fromkeys(STATS, 0)
        numbers = self._ffi.new("uint64_t[]", self._lib.BRANCH_STATS)
        self._lib.branch_stats(self._native, numbers)
        return dict(zip(STATS, numbers, strict=False))

    def record(self) -> Record | None:
        if not self._recording or self._native is None:
            return None
        length = self._ffi.new("int64_t *")
        text = self._lib.branch_record(self._native, length)
        if text == self._ffi.NULL:
            raise UndecidedError("there is no memory for the split tree", "raise --memory")
        try:
            stream = bytes(self._ffi.buffer(text, length[0]))
        finally:
            self._lib.branch_record_free(text)
        layers = tuple(len(layer.bias) for layer in self.plan.layers.hidden)
        return Record(stream, self._region, tuple(self.plan.layers.varying), self.problem.labels, layers)

    def point_inside(self, query: GridQuery) -> tuple[int, ...] | None:
        """A point of a recorded leaf where the query holds."""
        record = self.record()
        if record is None:
            return self._region.low if self._extra_in[0] else None
        network = self.problem.network
        assert network is not None
        for leaf in leaves(record):
            if leaf.kind == "open":
                continue
            grids = [range(a, b) for a, b in zip(leaf.low, leaf.high, strict=True)]
            if leaf.kind == "decided":
                grids = [grid[:1] for grid in grids]
            points = np.stack([g.ravel() for g in np.meshgrid(*grids, indexing="ij")], axis=1).astype(np.int64)
            found = _first(network_eval.scores(network, points), points, query)
            if found is not None:
                return found
        return None

    def save(self) -> None:
        """Write the open boxes and what is settled."""
        assert self.checkpoint is not None
        if self._native is None:
            return
        count = self._lib.branch_waiting(self._native)
        inside, outside = self._native_totals()
        groups: list[Group] = []
        boxes = self._room(count)
        done = 0
        while done < count:  # by a quarter more each time: all calls together copy five times the boxes
            room = min(count, done + 1 + done // 4)
            less_in, less_out = self._export(boxes, room)
            proven_in, proven_out = (
                tuple(a - b for a, b in zip(*pair, strict=True)) for pair in ((inside, less_in), (outside, less_out))
            )
            groups.append(Group(room - done, proven_in, proven_out))
            inside, outside, done = less_in, less_out, room
        if (kept := self._kept) is not None:
            rest = (x[self._taken :] for x in (kept.low, kept.high, kept.open, kept.labels))
            boxes = tuple(np.concatenate(pair) for pair in zip(boxes, rest, strict=True))
            boxes, groups = heaviest_first(boxes, groups + self._groups)
        low, high, still, labels = boxes
        lower, best_out = self.totals()
        upper = [self.size - x for x in best_out]
        self.checkpoint.save(State(low, high, still, labels, inside, outside, lower, upper, groups))

    def proven(self) -> dict[str, tuple[int, int]]:
        """Per query, the least and the most points by the leaves of the record."""
        if not self._recording:
            return {}
        inside, outside = self.totals() if self._native is None else self._settled()
        names = [query.name for query in self.case.queries]
        return {name: (a, self.size - b) for name, a, b in zip(names, inside, outside, strict=True)}

    def _settled(self) -> tuple[list[int], list[int]]:
        """What is proven outside of the open boxes."""
        count = self._lib.branch_waiting(self._native)
        return self._export(self._room(count), count)

    def _room(self, count: int) -> tuple[Any, ...]:
        corners = (np.empty((count, len(self.plan.low)), np.int64) for _ in range(2))
        return *corners, np.empty(count, np.uint64), np.empty(count, np.uint64)

    def _export(self, boxes: tuple[Any, ...], count: int) -> tuple[list[int], list[int]]:
        """The first open boxes, with the queries open and labels possible; what is proven, parts of them left out."""
        low, high, still, labels = boxes
        inside, outside = (self._ffi.new("uint64_t[]", 2 * self._queries) for _ in range(2))
        cast = self._ffi.from_buffer
        self._lib.branch_export(
            self._native, cast("int64_t[]", low), cast("int64_t[]", high), cast("uint64_t[]", still),
            cast("uint64_t[]", labels), count, inside, outside,
        )  # fmt: skip
        return self._joined(inside, self._extra_in), self._joined(outside, self._extra_out)


def _percent(share: Fraction) -> str:
    """Three digits, rounded up."""
    up = Context(prec=3, rounding=ROUND_CEILING)
    return f"{float(up.divide(Decimal(100 * share.numerator), Decimal(share.denominator))):g} %"


def _first(scores: Any, points: Any, query: GridQuery) -> tuple[int, ...] | None:
    labels = network_eval.best(scores)
    for point, score, label in zip(points.tolist(), scores.tolist(), labels.tolist(), strict=True):
        if logic.holds(query.predicate, point, label, score):
            return tuple(point)
    return None


def _draw(problem: GridProblem, region: Box, query: GridQuery, seed: int) -> tuple[int, ...] | None:
    """A random point where the query holds, if a thousand draws find one."""
    network = problem.network
    assert network is not None
    rng = np.random.default_rng(seed)
    points = rng.integers(np.array(region.low), np.array(region.high), (1000, len(region.low)))
    if reads_scores(query.predicate):
        return _first(network_eval.scores(network, points), points, query)
    for point, label in zip(points.tolist(), network_eval.labels(network, points).tolist(), strict=True):
        if logic.holds(query.predicate, point, label):
            return tuple(point)
    return None


ENGINE = BranchEngine()

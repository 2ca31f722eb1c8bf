"""A case goes in, exact counts come out, by running the tree and the predicates on every input, many at a time.

Small cases go point by point through the native evaluator; the others become a circuit over the bits of the
positions, which is narrowed bit by bit (a branch that decides every query is added as it stands) and run on blocks of
8,192 inputs in bit slices. Every query is counted by itself, none is derived from another.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from quantify.engines import evaluate, logic
from quantify.engines.bytecode import NotNativeError, Program, compile_predicates
from quantify.engines.circuit import TooManyGatesError
from quantify.engines.slicing import Sliced, box_of, inside, nodes_children_first, slice_predicates
from quantify.errors import InputError
from quantify.ir.count import Count, Estimate, Guarantee
from quantify.ir.problem import GridCase, GridProblem, GridQuery
from quantify.resources import Limits, Progress

ISAS = {"": 0, "portable": 1, "avx2": 2, "avx512": 3}
"""Instruction sets by the name that QUANTIFY_ISA gives; empty: the best there is."""
MAX_BITS = 64
"""Inputs beyond 2^64 are left to engines that follow structure."""
MAX_GATES = 10_000
SCALAR_POINTS = 1 << 12
"""Up to here, building a circuit costs more than it saves."""
MAX_SCALAR_POINTS = 1 << 36
CALL_NANOSECONDS = 40_000_000
"""Work of one native call, short enough for the deadline and Ctrl-C."""
STEP_NANOSECONDS = 1.5
SPLIT_NANOSECONDS = 20e6
PROBES = 64
LANE_BITS = 13
DONE, MORE, FOUND, NO_MEMORY = range(4)


@dataclass
class Plan:
    """How one case will be counted."""

    features: tuple[int, ...]
    """Features that matter, ascending; all others only multiply."""
    points: int
    """Points of the region's box over these features."""
    factor: int
    """Points over the other features."""
    work: float
    """Expected nanoseconds of one worker."""
    sliced: Sliced | None = None
    program: Program | None = None


@dataclass
class Tally:
    """What has been counted, per query, and how many of `Plan.points` that took."""

    counts: list[int]
    visited: int = 0


class EnumerateEngine:
    """Exact counts by enumeration.

    Args:
        isa: "portable", "avx2" or "avx512" instead of the best that the processor has; the environment variable
            QUANTIFY_ISA does the same.
        bit_slices: False sends everything through the scalar evaluator, True everything through bit slices, None
            whatever is faster.
        lane_bits: Up to 2^lane_bits inputs are run as one block.
    """

    name: ClassVar[str] = "enumerate"
    guarantee: ClassVar[Guarantee] = Guarantee.EXACT
    automatic: ClassVar[bool] = True

    def __init__(self, isa: str = "", bit_slices: bool | None = None, lane_bits: int = LANE_BITS) -> None:
        self.isa = isa
        self.lane_bits = lane_bits
        self.bit_slices = bit_slices
        self._plans: list[tuple[weakref.ref[GridProblem], GridCase, Plan | str]] = []

    def refuses(self, problem: GridProblem, case: GridCase) -> str | None:
        plan = self._plan(problem, case)
        return plan if isinstance(plan, str) else None

    def estimate(self, problem: GridProblem, case: GridCase) -> Estimate:
        plan = self._accepted(problem, case)
        way = f"{len(plan.sliced.gates)} gates in bit slices" if plan.sliced else "one by one"
        return Estimate(1e-4 + plan.work * 1e-9, f"2^{max(0, plan.points - 1).bit_length()} inputs, {way}")

    def count(self, problem: GridProblem, case: GridCase, limits: Limits, progress: Progress) -> Mapping[str, Count]:
        """Every query is counted by itself.

        Raises:
            InputError: The case is refused, or QUANTIFY_ISA names what this processor does not have.
        """
        started = time.monotonic()
        plan = self._accepted(problem, case)
        tally = self._counted(problem, case, plan, limits, progress)
        seconds = time.monotonic() - started
        open_points = (plan.points - tally.visited) * plan.factor
        guarantee = Guarantee.BOUNDS if open_points else Guarantee.EXACT
        note = f"stopped after {tally.visited} of {plan.points} inputs" if open_points else ""
        digest = problem.digest(case)
        return {
            query.name: Count(
                found * plan.factor, found * plan.factor + open_points, guarantee, self.name, seconds, digest, note=note
            )
            for query, found in zip(case.queries, tally.counts, strict=True)
        }

    def witness(self, problem: GridProblem, case: GridCase, query: GridQuery, limits: Limits) -> tuple[int, ...] | None:
        """The first satisfying input in the order of the search; None also when the deadline came first."""
        single = GridCase(case.region, (query,), ())
        plan = self._accepted(problem, single)
        if not plan.points * plan.factor:
            return None
        if plan.sliced is not None:
            offsets = self._sliced_witness(plan.sliced, limits)
        else:
            offsets = _Scalar(problem, single, plan).witness(limits)
        if offsets is None:
            return None
        positions = list(box_of(case.region).low)
        for feature, offset in offsets.items():
            positions[feature] += offset
        return tuple(positions)

    # --- planning ---
    def _accepted(self, problem: GridProblem, case: GridCase) -> Plan:
        plan = self._plan(problem, case)
        if isinstance(plan, str):
            raise InputError(f"engine enumerate cannot count this: {plan}", "use --engine auto")
        return plan

    def _plan(self, problem: GridProblem, case: GridCase) -> Plan | str:
        """The plan, or the reason for a refusal; the last few are remembered."""
        for known, of_case, plan in self._plans:
            if known() is problem and of_case is case:
                return plan
        plan = self._made_plan(problem, case)
        self._plans = [*self._plans[-3:], (weakref.ref(problem), case, plan)]
        return plan

    def _made_plan(self, problem: GridProblem, case: GridCase) -> Plan | str:
        if problem.measure.kind != "uniform":
            return "it counts points, not weights"
        box = box_of(case.region)
        widths = [max(0, high - low) for low, high in zip(box.low, box.high, strict=True)]
        if 0 in widths:
            return Plan((), 0, 0, 0.0)
        features = _features_that_matter(problem, case)
        bits = sum((widths[f] - 1).bit_length() for f in features)
        if bits > MAX_BITS:
            return f"{len(features)} features matter, with 2^{bits} inputs"
        points = math.prod(widths[f] for f in features)
        ways: list[Callable[[], Plan]] = [
            lambda: self._sliced_plan(problem, case, math.prod(widths)),
            lambda: _scalar_plan(problem, case, features, points, math.prod(widths) // points),
        ]
        if self.bit_slices is not None:
            ways = ways[:1] if self.bit_slices else ways[1:]
        elif points <= SCALAR_POINTS:
            ways.reverse()
        reasons = []
        for way in ways:
            try:
                return way()
            except (TooManyGatesError, NotNativeError) as error:
                reasons.append(str(error))
        return "; ".join(reasons)

    def _sliced_plan(self, problem: GridProblem, case: GridCase, volume: int) -> Plan:
        predicates = [query.predicate for query in case.queries]
        sliced = slice_predicates(problem, case.region, predicates, MAX_GATES)
        points = math.prod(sliced.widths)
        return Plan(sliced.features, points, volume // points, self._probed(sliced), sliced=sliced)

    def _probed(self, sliced: Sliced) -> float:
        """Expected nanoseconds of the walk, from random paths through it."""
        with self._task(sliced) as task:
            costs = [task.probe(seed) for seed in range(PROBES)]
        return sum(costs) / PROBES

    def _task(self, sliced: Sliced, prefix_bits: int = 0, prefix: int = 0) -> _Task:
        name = self.isa or os.environ.get("QUANTIFY_ISA", "")
        if name not in ISAS:
            raise InputError(f"there is no instruction set {name!r}", "set QUANTIFY_ISA to portable, avx2 or avx512")
        return _Task(sliced, ISAS[name], self.lane_bits, prefix_bits, prefix)

    # --- counting ---
    def _counted(self, problem: GridProblem, case: GridCase, plan: Plan, limits: Limits, progress: Progress) -> Tally:
        if not plan.points * plan.factor:
            return Tally([0] * len(case.queries))
        if plan.sliced is None:
            scalar = _Scalar(problem, case, plan)
            return _gathered(scalar.pieces(), plan.points, len(case.queries), limits, progress)
        sliced = plan.sliced
        prefix_bits = 8 if plan.work > SPLIT_NANOSECONDS else 0

        def piece(prefix: int) -> Callable[[_Stop], Tally]:
            def run(stop: _Stop) -> Tally:
                with self._task(sliced, prefix_bits, prefix) as task:
                    while task.run() == MORE and not stop():
                        pass
                    return task.tally()

            return run

        pieces = [piece(prefix) for prefix in range(1 << prefix_bits)]
        return _gathered(pieces, plan.points, len(case.queries), limits, progress)

    def _sliced_witness(self, sliced: Sliced, limits: Limits) -> dict[int, int] | None:
        with self._task(sliced) as task:
            while (state := task.run(seek=True)) == MORE and not limits.expired():
                pass
            return task.found() if state == FOUND else None


def _scalar_plan(problem: GridProblem, case: GridCase, features: tuple[int, ...], points: int, factor: int) -> Plan:
    if points > MAX_SCALAR_POINTS:
        raise NotNativeError(f"2^{(points - 1).bit_length()} inputs are too many to take one by one")
    program = compile_predicates([query.predicate for query in case.queries], problem, inside(case.region))
    evaluate.prepared(problem)
    work = points * STEP_NANOSECONDS * (20 + len(program.steps) / 2)
    return Plan(features, points, factor, work, program=program)


_Stop = Callable[[], bool]


def _gathered(
    pieces: Sequence[Callable[[_Stop], Tally]], points: int, queries: int, limits: Limits, progress: Progress
) -> Tally:
    """The sum over independent pieces of work, run by `limits.jobs` threads until the deadline."""
    total = Tally([0] * queries)
    interrupted = threading.Event()

    def stop() -> bool:
        return interrupted.is_set() or limits.expired()

    def add(part: Tally) -> None:
        total.counts = [a + b for a, b in zip(total.counts, part.counts, strict=True)]
        total.visited += part.visited
        progress.update("enumerating", total.visited, points)

    if limits.jobs <= 1 or len(pieces) == 1:
        for piece in pieces:
            add(piece(stop))
            if stop():
                break
        return total
    with ThreadPoolExecutor(limits.jobs) as pool:
        try:
            for part in pool.map(lambda piece: Tally([0] * queries) if stop() else piece(stop), pieces):
                add(part)
        finally:
            interrupted.set()
    return total


def _features_that_matter(problem: GridProblem, case: GridCase) -> tuple[int, ...]:
    """Features that the tree cuts inside the region's box, or that a predicate or the ball reads there."""
    box, tree = box_of(case.region), problem.tree
    found: set[int] = set()
    for predicate in (inside(case.region), *(query.predicate for query in case.queries)):
        found.update(logic.features_used(predicate))
    if any(logic.reads_label(query.predicate) for query in case.queries):
        for node in nodes_children_first(tree):
            feature = tree.feature[node]
            if feature >= 0 and any(
                box.low[feature] < cut < box.high[feature] for cut in (tree.low[node], tree.high[node])
            ):
                found.add(feature)
    return tuple(sorted(f for f in found if box.high[f] - box.low[f] > 1))


# --- the two native ways -------------------------------------------------------------------------------------------
class _Task:
    """A native search over one circuit; a context manager, for its memory lies outside Python's."""

    def __init__(self, sliced: Sliced, isa: int, lane_bits: int, prefix_bits: int, prefix: int) -> None:
        self._sliced = sliced
        self._lib = evaluate.native()
        self._pointer = self._lib.enumerate_open(
            evaluate.pointer("enumerate_gate[]", sliced.gates),
            len(sliced.gates),
            evaluate.pointer("uint32_t[]", sliced.outputs),
            len(sliced.outputs),
            evaluate.pointer("int64_t[]", np.array(sliced.widths, np.int64)),
            evaluate.pointer("int32_t[]", np.array(sliced.bits, np.int32)),
            len(sliced.features),
            lane_bits,
            isa,
            prefix_bits,
            prefix,
        )
        if not self._pointer:
            if not self._lib.slices_choose(isa):
                raise InputError("this processor lacks what QUANTIFY_ISA asks for", "unset QUANTIFY_ISA")
            raise MemoryError

    def __enter__(self) -> _Task:
        return self

    def __exit__(self, *_: object) -> None:
        self._lib.enumerate_close(self._pointer)

    def run(self, seek: bool = False) -> int:
        """Work for one call's time: MORE, DONE, or FOUND (only when seeking)."""
        state: int = self._lib.enumerate_run(self._pointer, CALL_NANOSECONDS, seek)
        if state == NO_MEMORY:
            raise MemoryError
        return state

    def probe(self, seed: int) -> float:
        """An unbiased guess at the nanoseconds of the whole walk; before the first run only."""
        cost: float = self._lib.enumerate_probe(self._pointer, seed)
        return cost

    def tally(self) -> Tally:
        """Counts of the part walked so far."""
        words = np.zeros(2 * len(self._sliced.outputs) + 2, np.uint64)
        counts, visited = words[:-2], words[-2:]
        self._lib.enumerate_read(
            self._pointer, evaluate.pointer("uint64_t[]", counts), evaluate.pointer("uint64_t[]", visited)
        )
        low_high = words.tolist()
        sums = [low + (high << 64) for low, high in zip(low_high[::2], low_high[1::2], strict=True)]
        return Tally(sums[:-1], sums[-1])

    def found(self) -> dict[int, int]:
        """Offsets by feature of the point that stopped a seeking run."""
        offsets = np.zeros(len(self._sliced.features), np.int64)
        self._lib.enumerate_found(self._pointer, evaluate.pointer("int64_t[]", offsets))
        return dict(zip(self._sliced.features, offsets.tolist(), strict=True))


class _Scalar:
    """Point by point, in mixed radix over the features that matter, the first of them fastest."""

    def __init__(self, problem: GridProblem, case: GridCase, plan: Plan) -> None:
        assert plan.program is not None
        box = box_of(case.region)
        self._nodes = evaluate.prepared(problem).nodes
        self._program = plan.program
        self._plan = plan
        self._low = np.array(box.low, np.int64)
        self._high = np.array(box.high, np.int64)
        self._order = np.array(plan.features, np.int32)
        self._outputs = len(case.queries)
        self._chunk = max(1, int(CALL_NANOSECONDS * plan.points / max(plan.work, 1.0)))

    def pieces(self) -> list[Callable[[_Stop], Tally]]:
        """Independent runs of successive points, each about as long as one native call may take, or 256 longer ones."""
        length = max(self._chunk, -(-self._plan.points // 256))

        def piece(start: int) -> Callable[[_Stop], Tally]:
            return lambda stop: self._run(start, min(length, self._plan.points - start), stop)

        return [piece(start) for start in range(0, self._plan.points, length)]

    def witness(self, limits: Limits) -> dict[int, int] | None:
        """Offsets by feature of the first point that satisfies the only query."""
        positions = self._positions(0)
        for start in range(0, self._plan.points, self._chunk):
            points = min(self._chunk, self._plan.points - start)
            first = self._call(positions, points, np.zeros(1, np.uint64))
            if first[0] >= 0:
                found = self._positions(start + int(first[0])) - self._low
                return {f: int(found[f]) for f in self._plan.features}
            if limits.expired():
                return None
        return None

    def _run(self, start: int, points: int, stop: _Stop) -> Tally:
        counts = np.zeros(self._outputs, np.uint64)
        positions = self._positions(start)
        done = 0
        while done < points:
            step = min(self._chunk, points - done)
            self._call(positions, step, counts)
            done += step
            if stop():
                break
        return Tally([int(c) for c in counts.tolist()], done)

    def _positions(self, index: int) -> NDArray[np.int64]:
        positions = self._low.copy()
        for feature in self._plan.features:
            index, offset = divmod(index, int(self._high[feature] - self._low[feature]))
            positions[feature] += offset
        return positions

    def _call(self, positions: NDArray[np.int64], points: int, counts: NDArray[np.uint64]) -> NDArray[np.int64]:
        first = np.zeros(self._outputs, np.int64)
        evaluate.native().evaluate_range(
            evaluate.pointer("evaluate_node[]", self._nodes),
            evaluate.pointer("evaluate_step[]", self._program.steps),
            evaluate.pointer("uint8_t[]", self._program.label_sets),
            self._program.wide,
            self._program.registers,
            evaluate.pointer("int64_t[]", self._low),
            evaluate.pointer("int64_t[]", self._high),
            evaluate.pointer("int32_t[]", self._order),
            len(self._order),
            evaluate.pointer("int64_t[]", positions),
            points,
            self._outputs,
            evaluate.pointer("uint64_t[]", counts),
            evaluate.pointer("int64_t[]", first),
        )
        return first


ENGINE = EnumerateEngine()

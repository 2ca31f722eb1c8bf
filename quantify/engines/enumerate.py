"""A case goes in, exact counts come out, by running the tree and the predicates on every input, many at a time.

Small cases go point by point through the native evaluator; the others become a circuit over the bits of the
positions, which is narrowed bit by bit (a branch that decides every query is added as it stands) and run on blocks of
8,192 inputs in bit slices. Every query is counted by itself, none is derived from another.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quantify.engines import enumerate_network, evaluate, logic
from quantify.engines.bytecode import NotNativeError, Program, compile_predicates
from quantify.engines.circuit import TooManyGatesError
from quantify.engines.enumerate_network import NetworkLabels, Walk
from quantify.engines.slicing import Sliced, box_of, inside, nodes_children_first, slice_predicates
from quantify.engines.tallies import Stop, Tally, counts_of, gathered
from quantify.errors import InputError
from quantify.ir.count import Count, Estimate, Guarantee
from quantify.ir.network import IntNetwork
from quantify.ir.problem import GridCase, GridProblem, GridQuery
from quantify.resources import Limits, Progress

ISAS = {"": 0, "portable": 1, "avx2": 2, "avx512": 3, "vnni": 3}
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
    labels: NetworkLabels | None = None
    """Of a network in bit slices."""


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
    structures: ClassVar[frozenset[str]] = frozenset({"tree", "network"})

    def __init__(self, isa: str = "", bit_slices: bool | None = None, lane_bits: int = LANE_BITS) -> None:
        self.isa = isa
        self.lane_bits = lane_bits
        self.bit_slices = bit_slices
        self._plans: list[tuple[weakref.ref[GridProblem], GridCase, Plan | Walk | str]] = []

    def refuses(self, problem: GridProblem, case: GridCase) -> str | None:
        plan = self._plan(problem, case)
        return plan if isinstance(plan, str) else None

    def estimate(self, problem: GridProblem, case: GridCase) -> Estimate:
        plan = self._accepted(problem, case)
        if isinstance(plan, Walk):
            return enumerate_network.estimate(plan)
        way = f"{len(plan.sliced.gates)} gates in bit slices" if plan.sliced else "one by one"
        if plan.labels is not None:
            way += " and the network where they ask for it"
        return Estimate(1e-4 + plan.work * 1e-9, f"2^{max(0, plan.points - 1).bit_length()} inputs, {way}")

    def count(self, problem: GridProblem, case: GridCase, limits: Limits, progress: Progress) -> Mapping[str, Count]:
        """Every query is counted by itself.

        Raises:
            InputError: The case is refused, or QUANTIFY_ISA names what this processor does not have.
        """
        started = time.monotonic()
        plan = self._accepted(problem, case)
        if isinstance(plan, Walk):
            return enumerate_network.count(problem, case, plan, self.name, self.isa, limits, progress)
        tally = self._counted(problem, case, plan, limits, progress)
        return counts_of(problem, case, self.name, tally, plan.points, plan.factor, time.monotonic() - started)

    def witness(self, problem: GridProblem, case: GridCase, query: GridQuery, limits: Limits) -> tuple[int, ...] | None:
        """The first satisfying input in the order of the search; None also when the deadline came first."""
        single = GridCase(case.region, (query,), ())
        plan = self._accepted(problem, single)
        if isinstance(plan, Walk):
            return enumerate_network.witness(problem, single, query, self.isa, limits)
        if not plan.points * plan.factor:
            return None
        if plan.sliced is not None:
            offsets = self._sliced_witness(plan.sliced, plan.labels, limits)
        else:
            offsets = _Scalar(problem, single, plan).witness(limits)
        if offsets is None:
            return None
        positions = list(box_of(case.region).low)
        for feature, offset in offsets.items():
            positions[feature] += offset
        return tuple(positions)

    # --- planning ---
    def _accepted(self, problem: GridProblem, case: GridCase) -> Plan | Walk:
        plan = self._plan(problem, case)
        if isinstance(plan, str):
            raise InputError(f"engine enumerate cannot count this: {plan}", "use --engine auto")
        return plan

    def _plan(self, problem: GridProblem, case: GridCase) -> Plan | Walk | str:
        """The plan, or the reason for a refusal; the last few are remembered."""
        for known, of_case, plan in self._plans:
            if known() is problem and of_case is case:
                return plan
        plan = self._made_plan(problem, case)
        self._plans = [*self._plans[-3:], (weakref.ref(problem), case, plan)]
        return plan

    def _made_plan(self, problem: GridProblem, case: GridCase) -> Plan | Walk | str:
        if problem.measure.kind != "uniform":
            return "it counts points, not weights"
        if problem.network is not None:
            return self._network_plan(problem, problem.network, case)
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

    def _network_plan(self, problem: GridProblem, network: IntNetwork, case: GridCase) -> Plan | Walk | str:
        """Point by point, or in bit slices with the network's labels as inputs, whatever is faster."""
        try:
            walk = enumerate_network.planned(problem, network, case)
        except NotNativeError as error:
            return str(error)
        wanted = self.bit_slices
        if wanted is None:
            wanted = walk.program is not None and walk.points > SCALAR_POINTS
        if not wanted or walk.native is None:
            return walk
        predicates = [query.predicate for query in case.queries]
        try:
            sliced = slice_predicates(problem, case.region, predicates, MAX_GATES, walk.native.features)
        except TooManyGatesError:
            return walk
        labels = NetworkLabels.of(walk, walk.native, sliced.label_sets)
        work = self._probed(sliced, labels)
        if self.bit_slices is None and work > walk.work:
            return walk
        return Plan(sliced.features, walk.points, walk.factor, work, sliced=sliced, labels=labels)

    def _sliced_plan(self, problem: GridProblem, case: GridCase, volume: int) -> Plan:
        predicates = [query.predicate for query in case.queries]
        sliced = slice_predicates(problem, case.region, predicates, MAX_GATES)
        points = math.prod(sliced.widths)
        return Plan(sliced.features, points, volume // points, self._probed(sliced), sliced=sliced)

    def _probed(self, sliced: Sliced, labels: NetworkLabels | None = None) -> float:
        """Expected nanoseconds of the walk, from random paths through it."""
        with self._task(sliced, labels) as task:
            costs = [task.probe(seed) for seed in range(PROBES)]
        return sum(costs) / PROBES

    def _task(self, sliced: Sliced, labels: NetworkLabels | None, prefix_bits: int = 0, prefix: int = 0) -> _Task:
        name = self.isa or os.environ.get("QUANTIFY_ISA", "")
        if name not in ISAS:
            raise InputError(f"there is no instruction set {name!r}", "set QUANTIFY_ISA to portable, avx2 or avx512")
        asked = None if labels is None else labels.native_form(self.isa)
        return _Task(sliced, ISAS[name], self.lane_bits, prefix_bits, prefix, asked)

    # --- counting ---
    def _counted(self, problem: GridProblem, case: GridCase, plan: Plan, limits: Limits, progress: Progress) -> Tally:
        if not plan.points * plan.factor:
            return Tally([0] * len(case.queries))
        if plan.sliced is None:
            scalar = _Scalar(problem, case, plan)
            return gathered(scalar.pieces(), plan.points, len(case.queries), limits, progress)
        sliced = plan.sliced
        prefix_bits = 8 if plan.work > SPLIT_NANOSECONDS else 0

        def piece(prefix: int) -> Callable[[Stop], Tally]:
            def run(stop: Stop) -> Tally:
                with self._task(sliced, plan.labels, prefix_bits, prefix) as task:
                    while task.run() == MORE and not stop():
                        pass
                    return task.tally()

            return run

        pieces = [piece(prefix) for prefix in range(1 << prefix_bits)]
        return gathered(pieces, plan.points, len(case.queries), limits, progress)

    def _sliced_witness(self, sliced: Sliced, labels: NetworkLabels | None, limits: Limits) -> dict[int, int] | None:
        with self._task(sliced, labels) as task:
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

    def __init__(
        self, sliced: Sliced, isa: int, lane_bits: int, prefix_bits: int, prefix: int, labels: Any = None
    ) -> None:
        self._sliced = sliced
        self._labels = labels
        self._lib = evaluate.native()
        arguments = (
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
        if labels is None:
            self._pointer = self._lib.enumerate_open(*arguments)
        else:
            self._pointer = self._lib.enumerate_open_labelled(*arguments, labels[0])
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
        self._nodes = evaluate.tree_nodes(problem)
        self._program = plan.program
        self._plan = plan
        self._low = np.array(box.low, np.int64)
        self._high = np.array(box.high, np.int64)
        self._order = np.array(plan.features, np.int32)
        self._outputs = len(case.queries)
        self._chunk = max(1, int(CALL_NANOSECONDS * plan.points / max(plan.work, 1.0)))

    def pieces(self) -> list[Callable[[Stop], Tally]]:
        """Independent runs of successive points, each about as long as one native call may take, or 256 longer ones."""
        length = max(self._chunk, -(-self._plan.points // 256))

        def piece(start: int) -> Callable[[Stop], Tally]:
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

    def _run(self, start: int, points: int, stop: Stop) -> Tally:
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

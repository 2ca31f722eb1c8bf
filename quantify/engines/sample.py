"""A case goes in, sampled counts with exact confidence intervals come out.

Draws are uniform over the region (independent and weighted under a product measure), and a position is drawn only
when the tree or a predicate reads it. Block number b of a case always holds the same draws for the same seed, so
results depend neither on the number of threads nor on how the work was divided.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quantify.engines import evaluate
from quantify.engines.bytecode import MAX_SIZE, NotNativeError, Program, compile_predicates
from quantify.errors import InputError
from quantify.ir.count import Count, Estimate, Guarantee
from quantify.ir.intervals import clopper_pearson, scaled_outward
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, Region
from quantify.resources import Limits, Progress

BLOCK = 1 << 16
"""Draws of one native call and one stream of random words."""
FEATURE = np.dtype([("low", "i8"), ("width", "i8"), ("weights", "u8")], align=True)
MAX_TABLE = 1 << 20
"""Entries of the table of ways for a ball: features times distances."""
MAX_TABLE_WORK = 1 << 23
WITNESS_BLOCKS = 64
NANOSECONDS = 100


@dataclass
class Draws:
    """How often each query was hit among `made` draws."""

    made: int
    hits: dict[str, int]


@dataclass
class _Space:
    """A region as native code draws from it; the arrays are kept alive here."""

    features: NDArray[np.void]
    weights: list[NDArray[np.uint64]]
    ways: NDArray[np.uint64] | None
    ball: Ball | None
    radius: int
    total: int
    """Points (or integer weight) of the region."""


class SampleEngine:
    """Confidence intervals from random draws; never chosen automatically.

    Args:
        samples: Draws a case; fewer when the deadline comes first.
        confidence: Of the two-sided interval (Clopper and Pearson) that `lower` and `upper` are.
    """

    name: ClassVar[str] = "sample"
    guarantee: ClassVar[Guarantee] = Guarantee.SAMPLED
    automatic: ClassVar[bool] = False

    def __init__(self, samples: int = 1_000_000, confidence: Fraction = Fraction(95, 100)) -> None:
        if samples < 1:
            raise InputError(f"{samples} samples are too few", "ask for at least one")
        self.samples = samples
        self.confidence = Fraction(confidence)

    def refuses(self, problem: GridProblem, case: GridCase) -> str | None:
        try:
            _prepared(problem, case)
        except NotNativeError as error:
            return str(error)
        return None

    def estimate(self, problem: GridProblem, case: GridCase) -> Estimate:
        return Estimate(self.samples * NANOSECONDS * 1e-9, f"{self.samples} draws")

    def count(self, problem: GridProblem, case: GridCase, limits: Limits, progress: Progress) -> Mapping[str, Count]:
        """Every query's interval holds with the engine's confidence by itself, not all of them jointly.

        Raises:
            InputError: The case is refused.
        """
        started = time.monotonic()
        total = _accepted(problem, case)[0].total
        draws = draw(problem, case, self.samples if total else 0, limits, limits.seed, progress)
        seconds = time.monotonic() - started
        digest = problem.digest(case)
        counts = {}
        for name, hits in draws.hits.items():
            lower, upper = scaled_outward(clopper_pearson(hits, draws.made, self.confidence), total)
            middle = round(Fraction(hits * total, draws.made)) if draws.made else 0
            counts[name] = Count(
                lower,
                upper,
                Guarantee.SAMPLED,
                self.name,
                seconds,
                digest,
                seed=limits.seed,
                confidence=self.confidence,
                samples=draws.made,
                hits=hits,
                estimate=middle,
            )
        return counts

    def witness(self, problem: GridProblem, case: GridCase, query: GridQuery, limits: Limits) -> tuple[int, ...] | None:
        """The first draw that satisfies the query among some four million, or None."""
        space = _accepted(problem, case)[0]
        if not space.total:
            return None
        for block in range(WITNESS_BLOCKS):
            positions = _points(space, BLOCK // 8, limits.seed, _stream(problem, case), block)
            hits = np.flatnonzero(evaluate.truths(problem, case, query, positions))
            if len(hits):
                return tuple(positions[hits[0]].tolist())
            if limits.expired():
                return None
        return None


def draw(
    problem: GridProblem,
    case: GridCase,
    n: int,
    limits: Limits,
    seed: int,
    progress: Progress | None = None,
) -> Draws:
    """`n` independent draws from the case's region, or as many whole blocks of 65,536 as the deadline allows (≥ 1).

    Raises:
        InputError: The region cannot be drawn from, or a predicate does not fit machine words.
    """
    space, program = _accepted(problem, case)
    stream = _stream(problem, case)
    nodes = evaluate.prepared(problem).nodes
    native_space = _native_space(space)
    hits = np.zeros(len(case.queries), np.uint64)
    made = 0

    def run(block: int) -> tuple[int, NDArray[np.uint64]]:
        found = np.zeros(len(case.queries), np.uint64)
        size = min(BLOCK, n - block * BLOCK)
        if block and limits.expired():
            return 0, found
        failed = evaluate.native().sample_block(
            evaluate.pointer("evaluate_node[]", nodes),
            evaluate.pointer("evaluate_step[]", program.steps),
            evaluate.pointer("uint8_t[]", program.label_sets),
            program.wide,
            program.registers,
            *native_space[:3],
            seed % (1 << 64),
            stream,
            block,
            size,
            len(case.queries),
            evaluate.pointer("uint64_t[]", found),
        )
        if failed:
            raise MemoryError
        return size, found

    for size, found in _in_order(run, -(-n // BLOCK), limits.jobs):
        if not size:
            break
        made += size
        hits += found
        if progress is not None:
            progress.update("sampling", made, n)
    return Draws(made, {q.name: count for q, count in zip(case.queries, hits.tolist(), strict=True)})


def points(problem: GridProblem, region: Region, n: int, seed: int) -> NDArray[np.int64]:
    """`n` independent draws from a region themselves (n × features, grid positions).

    Raises:
        InputError: The region is empty or cannot be drawn from.
    """
    try:
        space = _space(problem, region)
    except NotNativeError as error:
        raise _refusal(error) from error
    if not space.total:
        raise InputError("the region is empty", "give it at least one point")
    return _points(space, n, seed, 0, 0)


def _in_order(run: Any, blocks: int, jobs: int) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    """The results of blocks 0, 1, … by `jobs` threads; those after a gap left by the deadline are dropped."""
    if jobs <= 1 or blocks <= 1:
        yield from map(run, range(blocks))
        return
    pool = ThreadPoolExecutor(jobs)
    try:
        for start in range(0, blocks, 8 * jobs):
            yield from pool.map(run, range(start, min(blocks, start + 8 * jobs)))
    finally:
        pool.shutdown(cancel_futures=True)


# --- what is drawn from --------------------------------------------------------------------------------------------
_remembered: list[tuple[weakref.ref[GridProblem], GridCase, tuple[_Space, Program]]] = []


def _accepted(problem: GridProblem, case: GridCase) -> tuple[_Space, Program]:
    try:
        return _prepared(problem, case)
    except NotNativeError as error:
        raise _refusal(error) from error


def _refusal(error: NotNativeError) -> InputError:
    return InputError(f"engine sample cannot draw from this: {error}", "use --engine auto")


def _prepared(problem: GridProblem, case: GridCase) -> tuple[_Space, Program]:
    """The region's tables and the queries' program; the last few are remembered."""
    for known, of_case, made in _remembered:
        if known() is problem and of_case is case:
            return made
    program = compile_predicates([query.predicate for query in case.queries], problem)
    result = _space(problem, case.region), program
    evaluate.prepared(problem)
    _remembered.append((weakref.ref(problem), case, result))
    del _remembered[:-4]
    return result


def _space(problem: GridProblem, region: Region) -> _Space:
    box = region if isinstance(region, Box) else region.box
    widths = [max(0, high - low) for low, high in zip(box.low, box.high, strict=True)]
    if max(widths, default=0) > MAX_SIZE:
        raise NotNativeError(f"a feature has {max(widths)} positions")
    features = np.zeros(len(widths), FEATURE)
    features["low"] = [min(low, MAX_SIZE) for low in box.low]
    features["width"] = widths
    kept: list[NDArray[np.uint64]] = []
    totals = list(widths)
    if problem.measure.kind == "product":
        if isinstance(region, Ball):
            raise NotNativeError("weights inside an l1 or l0 ball")
        for place, weights in enumerate(problem.measure.weights):
            if weights is None:
                continue
            sums = list(accumulate(weights[box.low[place] : box.high[place]]))
            totals[place] = sums[-1] if sums else 0
            if totals[place] >> 63:
                raise NotNativeError("the weights of a feature need more than 63 bits")
            kept.append(np.array(sums, np.uint64))
            features["weights"][place] = kept[-1].ctypes.data
    if isinstance(region, Box) or 0 in widths:
        return _Space(features, kept, None, None, 0, math.prod(totals))
    ways, radius = _ways(region, widths)
    total = int(ways[0, radius, 0]) + (int(ways[0, radius, 1]) << 64)
    return _Space(features, kept, ways, region, radius, total)


def _ways(ball: Ball, widths: Sequence[int]) -> tuple[NDArray[np.uint64], int]:
    """ways[k, r]: points of the features from k on at distance at most r from the centre, in two 64-bit words."""
    counts = [_at_distance(ball, feature) for feature in range(len(widths))]
    radius = min(ball.radius, sum(max(steps) for steps in counts))
    if radius < 0:
        return np.zeros((len(widths) + 1, 1, 2), np.uint64), 0
    if (len(widths) + 1) * (radius + 1) > MAX_TABLE or sum(map(len, counts)) * (radius + 1) > MAX_TABLE_WORK:
        raise NotNativeError(f"a ball of radius {radius} steps over {len(widths)} features is too large to draw from")
    row = np.full(radius + 1, 1, object)
    table = [row]
    for steps in reversed(counts):
        below = np.full(radius + 1, 0, object)
        for distance, number in steps.items():
            if distance <= radius:
                below[distance:] += number * row[: radius + 1 - distance]
        row = below
        table.append(row)
    if row[radius] >> 127:
        raise NotNativeError("the ball has more than 2^127 points")
    mask = (1 << 64) - 1
    words = [[(int(v) & mask, int(v) >> 64) for v in values] for values in reversed(table)]
    return np.array(words, np.uint64), radius


def _at_distance(ball: Ball, feature: int) -> dict[int, int]:
    """Number of positions of a feature by their distance from the centre, those beyond the radius left out."""
    low, high, centre = ball.box.low[feature], ball.box.high[feature], ball.centre[feature]
    if ball.norm == "l0":
        inside = low <= centre < high
        return {d: n for d, n in ((0, int(inside)), (1, high - low - inside)) if n}
    weight = ball.weights[feature]
    if high - low == 1:
        return {weight * abs(low - centre): 1}
    if weight <= 0:
        raise NotNativeError("a feature of weight 0 in an l1 ball")
    reach = ball.radius // weight
    if min(high, centre + reach + 1) - max(low, centre - reach) > MAX_TABLE_WORK:
        raise NotNativeError(f"a ball that reaches over {reach} positions of a feature is too large to draw from")
    found: dict[int, int] = {}
    for position in range(max(low, centre - reach), min(high, centre + reach + 1)):
        distance = weight * abs(position - centre)
        found[distance] = found.get(distance, 0) + 1
    return found or {ball.radius + 1: 1}


def _native_space(space: _Space) -> tuple[Any, ...]:
    """Native arguments for a space, and at the end what must stay alive meanwhile."""
    from quantify.engines import _native

    ffi = _native.ffi
    features = ffi.cast("sample_feature *", ffi.from_buffer(space.features))
    if space.ball is None or space.ways is None:
        return features, len(space.features), ffi.NULL, space
    centre = np.array(space.ball.centre, np.int64)
    weights = np.array(space.ball.weights, np.int64)
    ball = ffi.new(
        "sample_ball *",
        {
            "l0": space.ball.norm == "l0",
            "radius": space.radius,
            "centre": evaluate.pointer("int64_t[]", centre),
            "weights": evaluate.pointer("int64_t[]", weights),
            "ways": evaluate.pointer("uint64_t[]", space.ways),
        },
    )
    return features, len(space.features), ball, (space, centre, weights)


def _points(space: _Space, n: int, seed: int, stream: int, block: int) -> NDArray[np.int64]:
    out = np.empty((n, len(space.features)), np.int64)
    arguments = _native_space(space)
    failed = evaluate.native().sample_points(
        *arguments[:3], seed % (1 << 64), stream, block, n, evaluate.pointer("int64_t[]", out)
    )
    if failed:
        raise MemoryError
    return out


def _stream(problem: GridProblem, case: GridCase) -> int:
    """A number that names the case, so that cases of one seed get unrelated draws."""
    return int(problem.digest(case)[:16], 16)


ENGINE = SampleEngine()

"""Independent pieces of an enumeration go in, run by threads until the deadline; their sums come out as counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from quantify.ir.count import Count, Guarantee
from quantify.ir.problem import GridCase, GridProblem
from quantify.resources import Limits, Progress

Stop = Callable[[], bool]
"""Whether a piece should return what it has so far."""


@dataclass
class Tally:
    """What has been counted, per query, and how many of the case's points that took."""

    counts: list[int]
    visited: int = 0


def gathered(
    pieces: Sequence[Callable[[Stop], Tally]], points: int, queries: int, limits: Limits, progress: Progress
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


def counts_of(
    problem: GridProblem, case: GridCase, engine: str, tally: Tally, points: int, factor: int, seconds: float
) -> dict[str, Count]:
    """A count per query: exact when all `points` were visited, each standing for `factor` inputs; else bounds."""
    open_points = (points - tally.visited) * factor
    guarantee = Guarantee.BOUNDS if open_points else Guarantee.EXACT
    note = f"stopped after {tally.visited} of {points} inputs" if open_points else ""
    digest = problem.digest(case)
    return {
        query.name: Count(found * factor, found * factor + open_points, guarantee, engine, seconds, digest, note=note)
        for query, found in zip(case.queries, tally.counts, strict=True)
    }

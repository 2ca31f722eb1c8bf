"""The counts of one case in, one input out for each query of failures that some engine can find an input for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from quantify.engines import evaluate
from quantify.engines.choice import refusal
from quantify.errors import UndecidedError
from quantify.ir.count import Count, Engine, Guarantee
from quantify.ir.problem import GridCase, GridProblem, GridQuery
from quantify.resources import Limits

FAILURES = {"violated", "fragile", "fp", "fn"}
"""Queries whose inputs are the failures: for these the answer shows one."""
SECONDS = 5.0
"""What the search for an input may take when it is not proven that there is one."""


def failures(case: GridCase) -> tuple[str, ...]:
    """Names of the case's queries of failures."""
    return tuple(query.name for query in case.queries if query.name.rpartition("/")[2] in FAILURES)


def search(
    grid: GridProblem,
    case: GridCase,
    counts: Mapping[str, Count],
    total: int,
    known: Mapping[str, Engine],
    first: Engine,
    limits: Limits,
    centre: tuple[int, ...] | None = None,
) -> Iterator[tuple[GridQuery, tuple[int, ...]]]:
    """Each query of failures with the positions of an input that, by the engine that found it, satisfies it.

    Args:
        total: Size or weight of the region.
        first: The engine that counted; it is asked first.
        centre: Of a ball; inputs found are moved towards it, feature by feature, while the query holds.
    """
    for query in case.queries:
        if query.name not in failures(case):
            continue
        if query.name in counts and counts[query.name].upper == 0:
            continue
        if query.name == "fragile" and counts["robust"].lower == total:
            continue
        allowed = limits if _surely_exists(query, counts, total) else _shortened(limits)
        positions = _find(grid, case, query, known, first, allowed)
        if positions is not None:
            if centre is not None:
                positions = _nearer(grid, case, query, positions, centre)
            yield query, positions


def _surely_exists(query: GridQuery, counts: Mapping[str, Count], total: int) -> bool:
    """Whether some input is proven to satisfy the query."""
    if query.name in counts:
        return counts[query.name].lower > 0 and counts[query.name].guarantee >= Guarantee.BOUNDS
    robust = counts.get("robust")
    return robust is not None and robust.upper < total and robust.guarantee >= Guarantee.BOUNDS


def _shortened(limits: Limits) -> Limits:
    """The limits of a search that may have nothing to find."""
    soon = time.monotonic() + SECONDS
    return replace(limits, deadline=soon if limits.deadline is None else min(soon, limits.deadline))


def _find(
    grid: GridProblem, case: GridCase, query: GridQuery, known: Mapping[str, Engine], first: Engine, limits: Limits
) -> tuple[int, ...] | None:
    others = (known.get(name) for name in ("boxes", "branch") if name != first.name)
    for engine in (first, *others):
        if engine is not None and refusal(engine, grid, case) is None:
            with contextlib.suppress(UndecidedError):
                found = engine.witness(grid, case, query, limits)
                if found is not None:
                    return found
    return None


def _nearer(
    grid: GridProblem, case: GridCase, query: GridQuery, positions: tuple[int, ...], centre: tuple[int, ...]
) -> tuple[int, ...]:
    """A witness that differs from the centre in few features: the others are put back, halves first, while it holds."""
    point, goal = np.array(positions, dtype=np.int64), np.array(centre, dtype=np.int64)

    def holds(trial: NDArray[np.int64]) -> bool:
        return bool(evaluate.truths(grid, case, query, trial[np.newaxis])[0])

    # A false witness is left as it is, for the replay to find.
    parts = [np.flatnonzero(point != goal)] if holds(point) else []
    while parts:
        part = parts.pop()
        trial = point.copy()
        trial[part] = goal[part]
        if holds(trial):
            point = trial
        elif len(part) > 1:
            half = len(part) // 2
            parts += [part[half:], part[:half]]
    return tuple(point.tolist())

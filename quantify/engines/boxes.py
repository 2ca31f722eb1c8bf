"""The exact engine `boxes`: a tree is descended with the whole region at once, so cost follows the leaves it reaches.

A leaf's count is the product of its widths (boxes), or the head of a series in the distance (balls). Queries about the
label alone come from one descent; where a query also looks at features, each leaf's box is decided, counted in closed
form, tabulated or split. Every query is counted by itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from quantify.engines.descent import leaves, prepare
from quantify.engines.effort import ball_effort, predicate_effort, tree_effort
from quantify.engines.masses import WIDEST_RADIUS, Masses, Widths, make_masses, prefix_sums, reach
from quantify.engines.splitting import Splitter
from quantify.ir.count import Count, Estimate, Guarantee
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery
from quantify.resources import Limits, Progress

__all__ = ["ENGINE", "BoxesEngine", "count_boxes"]


def count_boxes(problem: GridProblem, boxes: Sequence[Box], native: bool = True) -> list[list[int]]:
    """Points (or weight) per label in each box: entry [b][c] is how much of box b has class index c.

    The prepared tree is kept with the problem, so a batch costs one native call and one product per box.

    Args:
        problem: The tree, the sizes and the measure; its cases are not looked at.
        boxes: Boxes inside the grid; empty ones count 0.
        native: False forces the plain Python path, which is also taken for boxes whose numbers need more than 128 bits.

    Raises:
        InputError: The tree's indices are out of range or it has a cycle.
    """
    ready = prepare(problem)
    counts: list[list[int] | None] = [None if _has_points(box) else [0] * problem.labels for box in boxes]
    wanted = [b for b, found in enumerate(counts) if found is None]
    if native and wanted and ready.has_native:
        found = ready.native_counts([boxes[b] for b in wanted], prefix_sums(problem.measure))
        for b, result in zip(wanted, found, strict=True):
            counts[b] = result
    return [
        _totals(problem, Widths(box, problem.measure), Limits())[0] if count is None else count
        for box, count in zip(boxes, counts, strict=True)
    ]


def _has_points(box: Box) -> bool:
    return all(low < high for low, high in zip(box.low, box.high, strict=True))


def _totals(problem: GridProblem, masses: Masses, limits: Limits) -> tuple[list[int], int]:
    """Mass per label found by the plain descent, and the mass not yet looked at when the deadline came."""
    totals = [0] * problem.labels
    unseen = _whole(masses)
    for number, (label, _, element) in enumerate(leaves(problem.tree, masses)):
        if number % 64 == 63 and limits.expired():
            return totals, unseen
        mass = masses.total(element)
        totals[label] += mass
        unseen -= mass
    return totals, 0


def _whole(masses: Masses) -> int:
    whole = masses.unit
    for feature, (low, high) in enumerate(zip(masses.low, masses.high, strict=True)):
        whole = masses.times(whole, masses.part(feature, low, high))
    return masses.total(whole)


class BoxesEngine:
    """Exact counts of a tree over boxes and l1 or l0 balls, uniform or product measure, with any predicate.

    Args:
        native: False keeps to the plain Python descent.
    """

    name: ClassVar[str] = "boxes"
    guarantee: ClassVar[Guarantee] = Guarantee.EXACT
    automatic: ClassVar[bool] = True
    structures: ClassVar[frozenset[str]] = frozenset({"tree"})

    def __init__(self, native: bool = True) -> None:
        self._use_native = native

    def refuses(self, problem: GridProblem, case: GridCase) -> str | None:
        if isinstance(case.region, Ball) and reach(case.region) > WIDEST_RADIUS:
            return f"the radius spans more than {WIDEST_RADIUS:,} distances, each of which is counted by itself"
        return None

    def estimate(self, problem: GridProblem, case: GridCase) -> Estimate:
        ready = prepare(problem)
        degree = reach(case.region) if isinstance(case.region, Ball) else 0
        seconds = ball_effort(ready, degree) if isinstance(case.region, Ball) else tree_effort(ready)
        reason = f"one descent of a tree of {ready.nodes:,} nodes"
        masses = make_masses(problem, case.region)
        splitter = Splitter(problem, masses)
        for query in case.queries:
            roots = splitter.roots(query.predicate, ready.reached)
            if any(root > 1 for root in roots.values()):
                more, why = predicate_effort(splitter.clauses, masses, roots, ready)
                seconds, reason = seconds + more, why
        return Estimate(seconds, reason)

    def count(self, problem: GridProblem, case: GridCase, limits: Limits, progress: Progress) -> Mapping[str, Count]:
        """See `Engine.count`; bounds hold the mass of the boxes that are still open when the deadline comes.

        Raises:
            InputError: The tree's indices are out of range or it has a cycle.
        """
        ready = prepare(problem)
        digest = problem.digest(case)
        masses = make_masses(problem, case.region)
        splitter = Splitter(problem, masses)
        by_label: tuple[list[int], int] | None = None
        counts: dict[str, Count] = {}
        for query in case.queries:
            started = time.monotonic()
            roots = splitter.roots(query.predicate, ready.reached)
            if any(root > 1 for root in roots.values()):
                lower, upper = splitter.count(roots, limits, progress)
            else:
                by_label = by_label or self._by_label(problem, case, masses, limits)
                lower = sum(by_label[0][label] for label, root in roots.items() if root)
                upper = lower + by_label[1]
            guarantee = Guarantee.EXACT if lower == upper else Guarantee.BOUNDS
            counts[query.name] = Count(
                lower,
                upper,
                guarantee,
                self.name,
                time.monotonic() - started,
                digest,
                note="" if lower == upper else limits.why(),
            )
        return counts

    def _by_label(self, problem: GridProblem, case: GridCase, masses: Masses, limits: Limits) -> tuple[list[int], int]:
        """Mass per label, and what is left unseen."""
        if self._use_native and isinstance(case.region, Box) and _has_points(case.region):
            ready = prepare(problem)
            if ready.has_native:
                found = ready.native_counts([case.region], prefix_sums(problem.measure))[0]
                if found is not None:
                    return found, 0
        return _totals(problem, masses, limits)

    def witness(self, problem: GridProblem, case: GridCase, query: GridQuery, limits: Limits) -> tuple[int, ...] | None:
        """See `Engine.witness`; in a ball the point is the closest of its box, and its weight is never zero."""
        splitter = Splitter(problem, make_masses(problem, case.region))
        return splitter.find(splitter.roots(query.predicate, prepare(problem).reached), limits)


ENGINE = BoxesEngine()

"""Small integer problem to Count by looking at every point: slow, obvious, and what every other engine must equal."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from typing import ClassVar

from quantify.engines.logic import holds, label_of
from quantify.ir import network_eval
from quantify.ir.count import Count, Estimate, Guarantee
from quantify.ir.problem import Box, GridCase, GridProblem, GridQuery, Region
from quantify.resources import Limits, Progress

MOST_POINTS = 2**20
"""Larger boxes are refused: they would take minutes."""
SECONDS_A_POINT = 5e-6
STRIDE = 4096
"""Points between two looks at the clock."""


class ReferenceEngine:
    """Enumerates the box of the region in order, point by point, in Python."""

    name: ClassVar[str] = "reference"
    guarantee: ClassVar[Guarantee] = Guarantee.EXACT
    automatic: ClassVar[bool] = False
    structures: ClassVar[frozenset[str]] = frozenset({"tree", "network"})

    def refuses(self, problem: GridProblem, case: GridCase) -> str | None:
        """Regions whose box has more than 2^20 points."""
        points = enclosing_box(case.region).size
        if points <= MOST_POINTS:
            return None
        return f"the region's box has more than 2^{points.bit_length() - 1} points, and it looks at each (at most 2^20)"

    def estimate(self, problem: GridProblem, case: GridCase) -> Estimate:
        """A fixed time for each point and query."""
        points = enclosing_box(case.region).size
        steps = 1 + len(case.queries)
        if problem.network is not None:
            steps += sum(len(layer.rows.values) + len(layer.bias) for layer in problem.network.layers) // 20
        return Estimate(points * steps * SECONDS_A_POINT, f"{points} points, one by one in Python")

    def count(self, problem: GridProblem, case: GridCase, limits: Limits, progress: Progress) -> Mapping[str, Count]:
        """One pass over the points, every query asked at each; on the deadline, bounds from what is left to see."""
        started = time.monotonic()
        counted = dict.fromkeys((query.name for query in case.queries), 0)
        box = enclosing_box(case.region)
        unseen = mass_of_box(problem, box)
        complete = True
        for number, point in enumerate(points_of(box)):
            if number % STRIDE == 0:
                progress.update("enumerating", number, box.size)
                if limits.expired():
                    complete = False
                    break
            weight = weight_of(problem, point)
            unseen -= weight
            if not contains(case.region, point):
                continue
            label, scores = answer(problem, point)
            for query in case.queries:
                if holds(query.predicate, point, label, scores):
                    counted[query.name] += weight
        slack = 0 if complete else unseen
        guarantee = Guarantee.EXACT if complete else Guarantee.BOUNDS
        seconds, digest = time.monotonic() - started, problem.digest(case)
        return {
            name: Count(least, least + slack, guarantee, self.name, seconds, digest) for name, least in counted.items()
        }

    def witness(self, problem: GridProblem, case: GridCase, query: GridQuery, limits: Limits) -> tuple[int, ...] | None:
        """The first point, in order, that satisfies the query and has weight."""
        for number, point in enumerate(points_of(enclosing_box(case.region))):
            if number % STRIDE == 0 and limits.expired():
                return None
            if not contains(case.region, point) or weight_of(problem, point) == 0:
                continue
            if holds(query.predicate, point, *answer(problem, point)):
                return point
        return None


def answer(problem: GridProblem, point: tuple[int, ...]) -> tuple[int, list[int]]:
    """Class index of a point and, of a network, its scores; in plain Python."""
    if problem.network is None:
        return label_of(problem.tree, point), []
    scores = network_eval.point_scores(problem.network, point)
    return scores.index(max(scores)), scores


def enclosing_box(region: Region) -> Box:
    """The box of the region (itself when it is one)."""
    return region if isinstance(region, Box) else region.box


def points_of(box: Box) -> Iterator[tuple[int, ...]]:
    """Every point of the box, the last feature moving fastest."""
    return itertools.product(*(range(low, high) for low, high in zip(box.low, box.high, strict=True)))


def contains(region: Region, point: tuple[int, ...]) -> bool:
    """Whether a point of the region's box lies in the region."""
    if isinstance(region, Box):
        return True
    if region.norm == "l0":
        return sum(p != c for p, c in zip(point, region.centre, strict=True)) <= region.radius
    distance = sum(w * abs(p - c) for w, p, c in zip(region.weights, point, region.centre, strict=True))
    return distance <= region.radius


def weight_of(problem: GridProblem, point: tuple[int, ...]) -> int:
    """What a point counts under the measure: 1 when it is uniform."""
    if problem.measure.kind == "uniform":
        return 1
    return math.prod(w[p] for w, p in zip(problem.measure.weights, point, strict=True) if w is not None)


def mass_of_box(problem: GridProblem, box: Box) -> int:
    """What all points of the box count together."""
    if problem.measure.kind == "uniform":
        return box.size
    ranges = zip(problem.measure.weights, box.low, box.high, strict=True)
    return math.prod(max(0, high - low) if w is None else sum(w[low:high]) for w, low, high in ranges)


ENGINE = ReferenceEngine()

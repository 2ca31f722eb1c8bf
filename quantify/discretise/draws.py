"""Where to compare the integer tree with the library: draws from the domain and regions, both sides of thresholds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from quantify.discretise.cuts import Cuts
from quantify.ir.domain import Domain
from quantify.ir.model import Tree
from quantify.ir.problem import Ball, Box, Column, Region

Interval = tuple[int, int]
Path = dict[int, tuple[Interval, ...]]
"""What the way to a node allows: feature → disjoint intervals of positions; features that are not named are free."""

MOST_MOVES = 8
"""Features that a draw from an l1 ball moves away from the centre at most."""


def from_box(rng: np.random.Generator, low: Sequence[int], high: Sequence[int], rows: int) -> NDArray[np.int64]:
    """`rows` uniform draws from a box, (rows × features)."""
    start = np.array(low, dtype=np.int64)
    widths = np.array(high, dtype=np.int64) - start
    distinct = np.unique(widths)
    if len(distinct) > 16:
        return rng.integers(start, start + widths, size=(rows, len(start)), dtype=np.int64)
    drawn = np.empty((rows, len(start)), dtype=np.int64)
    for width in distinct.tolist():
        chosen = np.flatnonzero(widths == width)
        drawn[:, slice(None) if len(distinct) == 1 else chosen] = rng.integers(0, width, size=(rows, len(chosen)))
    drawn += start
    return drawn


def from_region(rng: np.random.Generator, region: Region, rows: int) -> NDArray[np.int64]:
    """`rows` draws from a region, uniform for a box; for a ball, the centre with some features moved."""
    if isinstance(region, Box):
        return from_box(rng, region.low, region.high, rows)
    drawn = np.tile(np.array(region.centre, dtype=np.int64), (rows, 1))
    movable = np.array(
        [i for i, (low, high) in enumerate(zip(region.box.low, region.box.high, strict=True)) if high - low > 1],
        dtype=np.int64,
    )
    if len(movable) == 0:
        return drawn
    every_row = np.arange(rows)
    if region.norm == "l0":
        for _ in range(min(region.radius, len(movable))):
            feature = rng.choice(movable, size=rows)
            drawn[every_row, feature] = _one_each(rng, region.box, feature)
        return drawn
    _move_within_l1(rng, region, drawn, movable)
    return drawn


def _one_each(rng: np.random.Generator, box: Box, feature: NDArray[np.int64]) -> NDArray[np.int64]:
    low, high = np.array(box.low, dtype=np.int64), np.array(box.high, dtype=np.int64)
    return rng.integers(low[feature], high[feature], dtype=np.int64)


def _move_within_l1(rng: np.random.Generator, ball: Ball, drawn: NDArray[np.int64], movable: NDArray[np.int64]) -> None:
    low, high = np.array(ball.box.low, dtype=np.int64), np.array(ball.box.high, dtype=np.int64)
    centre = np.clip(np.array(ball.centre, dtype=np.int64), low, high - 1)
    drawn[:] = centre
    every_row = np.arange(len(drawn))
    budget = np.full(len(drawn), float(ball.radius))
    weights = np.array([float(weight) for weight in ball.weights])
    for _ in range(min(MOST_MOVES, len(movable))):
        feature = rng.choice(movable, size=len(drawn))
        budget += weights[feature] * np.abs(drawn[every_row, feature] - centre[feature])
        # A rounding error here can at worst leave the ball: still an input of the domain, and a fair question.
        reach = np.minimum(budget / np.maximum(weights[feature], 1.0), 2.0**62).astype(np.int64)
        at_least = np.maximum(low[feature], centre[feature] - reach)
        at_most = np.minimum(high[feature] - 1, centre[feature] + reach)
        drawn[every_row, feature] = rng.integers(at_least, at_most, endpoint=True)
        budget -= weights[feature] * np.abs(drawn[every_row, feature] - centre[feature])


# --- thresholds ----------------------------------------------------------------------------------------------------
def around_thresholds(
    rng: np.random.Generator,
    tree: Tree,
    cuts: Cuts,
    columns: Sequence[Column],
    domain: Domain,
    *,
    most_rows: int,
    chunk: int,
) -> Iterator[NDArray[np.int64]]:
    """For every inner node of the library's tree: inputs that reach it, at its cut, one step either side, and missing.

    The node's path fixes the features it reads to random allowed positions, the others are drawn from the domain; a
    node that nothing reaches gets a base from the domain. Each threshold is visited once, and again, as often for
    each, while the rows stay below `most_rows`. Blocks end with the node that takes them to `chunk` rows.
    """
    inner = max(1, sum(column >= 0 for column in tree.column))
    repeats = max(1, min(64, most_rows // (4 * inner)))
    wanted: list[tuple[Path, int, int, int]] = []
    rows = 0
    for node, path in _paths(tree, cuts, columns, domain.sizes):
        place = columns[tree.column[node]].feature
        for position in _neighbours(tree, node, cuts, columns, domain):
            wanted.append((path, place, position, repeats))
            rows += repeats
        if rows >= chunk:
            yield _filled(rng, wanted, domain.sizes)
            wanted, rows = [], 0
    if wanted:
        yield _filled(rng, wanted, domain.sizes)


def _neighbours(tree: Tree, node: int, cuts: Cuts, columns: Sequence[Column], domain: Domain) -> list[int]:
    column = columns[tree.column[node]]
    feature = domain.features[column.feature]
    middle = column.level if column.level is not None else cuts.position(column.feature, tree.threshold[node])
    found = {min(max(middle + step, 0), feature.grid_size - 1) for step in (-1, 0, 1)}
    if feature.missing:
        found.add(feature.grid_size)
    return sorted(found)


def _paths(tree: Tree, cuts: Cuts, columns: Sequence[Column], sizes: Sequence[int]) -> Iterator[tuple[int, Path]]:
    """Every inner node once, with what the way to it allows (nothing, when no input gets there)."""
    seen: set[int] = set()
    stack: list[tuple[int, Path | None]] = [(0, {})]
    while stack:
        node, path = stack.pop()
        if tree.column[node] < 0 or node in seen:
            continue
        seen.add(node)
        yield node, path if path is not None else {}
        place = columns[tree.column[node]].feature
        low, high = cuts.right_interval(tree.column[node], tree.threshold[node], tree.missing_left[node])
        sides = ((tree.right[node], ((low, high),)), (tree.left[node], ((0, low), (max(low, high), sizes[place]))))
        for child, allowed in sides:
            stack.append((child, None if path is None else _narrowed(path, place, allowed, sizes[place])))


def _narrowed(path: Path, place: int, allowed: tuple[Interval, ...], size: int) -> Path | None:
    """The path with the feature held to `allowed` too, or None when nothing is left."""
    kept = tuple(
        (max(a, c), min(b, d)) for a, b in path.get(place, ((0, size),)) for c, d in allowed if max(a, c) < min(b, d)
    )
    return {**path, place: kept} if kept else None


def _filled(
    rng: np.random.Generator, wanted: Sequence[tuple[Path, int, int, int]], sizes: Sequence[int]
) -> NDArray[np.int64]:
    """Domain draws, with each path's features drawn from what it allows, and the tested feature where it is wanted."""
    points = from_box(rng, [0] * len(sizes), sizes, sum(times for *_, times in wanted))
    rows: list[int] = []
    places: list[int] = []
    intervals: list[Interval] = []
    tested: list[tuple[int, int]] = []
    for path, place, position, times in wanted:
        choices = _combinations(path)
        start = len(tested) % len(choices)
        for choice in itertools.islice(itertools.cycle(choices), start, start + times):
            rows.extend([len(tested)] * len(path))
            places.extend(path)
            intervals.extend(choice)
            tested.append((place, position))
    if intervals:
        low, high = np.array(intervals, dtype=np.int64).T
        offsets = (rng.random(len(low)) * (high - low)).astype(np.int64)
        points[rows, places] = low + np.minimum(offsets, high - low - 1)
    at, positions = np.array(tested, dtype=np.int64).T
    points[np.arange(len(tested)), at] = positions
    return points


def _combinations(path: Path) -> list[tuple[Interval, ...]]:
    """One interval for each feature of the path: enough choices for every interval to be taken at least once."""
    most = max((len(intervals) for intervals in path.values()), default=1)
    return [tuple(intervals[turn % len(intervals)] for intervals in path.values()) for turn in range(most)]

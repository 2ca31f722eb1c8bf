"""Engine `bdd`: tree × predicate by decision diagrams; a grid problem goes in, exact counts come out.

Only the predicate becomes a diagram, built once per process for its box and kept: a tree in an unlucky feature order
has a diagram of a million nodes where the predicate has a thousand. The tree is walked leaf by leaf, and the
predicate (with the leaf's label put in) is counted inside each leaf's box by one sweep over arrays.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import ClassVar

from quantify.engines.diagram_size import log2_nodes
from quantify.engines.diagrams import Space, Stopped, Workspace, is_installed, library, physical_memory
from quantify.engines.layers import Layered, Range, Region, flatten
from quantify.engines.logic import restrict
from quantify.engines.masses import reach
from quantify.ir.count import Count, Estimate, Guarantee
from quantify.ir.predicate import Always, Predicate
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree
from quantify.resources import Limits, Progress

LARGEST = 27.0
"""Binary logarithm of the expected nodes past which the engine refuses: they would need more than 10 GB."""
WIDEST_BALL = 2_000_000
"""Most steps (features × radius × distances) that the diagram of a ball may take."""
WORKSPACES = 2
"""Diagram managers that are kept."""
PATHS = 20_000
"""Leaves after which an estimate stops looking."""

Key = tuple[tuple[int, ...], tuple[int, ...], Ball | None]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A part of the region that one path of the tree leads to."""

    label: int
    cuts: dict[int, Range]
    """The features whose range is smaller than the region's."""
    mass: int


class BddEngine:
    """Exact counting with decision diagrams.

    Every query is counted by itself: its own diagram, its own sum over the leaves of the tree. Nothing is had by
    subtraction; a predicate and its negation are different arrays. When time or memory runs out, the leaves that were
    done are the lower bound and the mass of the others is the gap. A single operation of CUDD cannot be interrupted;
    raising its memory in steps keeps it short.
    """

    name: ClassVar[str] = "bdd"
    guarantee: ClassVar[Guarantee] = Guarantee.EXACT
    automatic: ClassVar[bool] = True
    structures: ClassVar[frozenset[str]] = frozenset({"tree"})

    def refuses(self, problem: GridProblem, case: GridCase) -> str | None:
        if not is_installed():
            return "the library dd is not installed"
        low, high, ball = _shape(case)
        if any(a >= b for a, b in zip(low, high, strict=True)):
            return None
        if ball is not None and _ball_work(ball) > WIDEST_BALL:
            return "the ball is too wide for a decision diagram"
        space = Space(low, high)
        widest = max((log2_nodes(query.predicate, space) for query in case.queries), default=0.0)
        return f"the decision diagram may need 2^{widest:.0f} nodes" if widest > LARGEST else None

    def estimate(self, problem: GridProblem, case: GridCase) -> Estimate:
        low, high, ball = _shape(case)
        region = Region(low, high, problem.measure)
        space = Space(low, high)
        leaves = [leaf for leaf, _ in zip(_leaves(problem.tree, region), range(PATHS), strict=False)]
        labels = {leaf.label for leaf in leaves}
        wanted = {restrict(query.predicate, label) for query in case.queries for label in labels}
        nodes = sum(2.0 ** min(log2_nodes(p, space), 100.0) for p in wanted if not isinstance(p, Always))
        if ball is not None:
            nodes += _ball_work(ball)
        seconds = 2e-5 * len(leaves) * (1 + len(case.queries))
        if nodes:
            layers = sum(bits > 0 for bits in space.bits)
            factor = 1.0 if region.is_narrow else 8.0
            sweeps = len(leaves) * max(1.0, len(case.queries) / 2)
            seconds += 0.02 + 6e-6 * nodes + sweeps * factor * (8e-6 * layers + 2e-8 * nodes / max(1, len(wanted)))
        if nodes and find_spec("dd.cudd") is None:
            seconds *= 20
        return Estimate(seconds, f"{len(leaves):,} leaves, diagrams of about {nodes:,.0f} nodes")

    def count(self, problem: GridProblem, case: GridCase, limits: Limits, progress: Progress) -> Mapping[str, Count]:
        run = _Run(problem, case, limits)
        counts = {}
        for number, query in enumerate(case.queries):
            progress.update("counting with decision diagrams", number, len(case.queries))
            counts[query.name] = run.count(query)
        return counts

    def witness(self, problem: GridProblem, case: GridCase, query: GridQuery, limits: Limits) -> tuple[int, ...] | None:
        return _Run(problem, case, limits).witness(query)


class _Run:
    """One case under its limits."""

    def __init__(self, problem: GridProblem, case: GridCase, limits: Limits) -> None:
        self._limits = limits
        self._digest = problem.digest(case)
        low, high, self._ball = _shape(case)
        self._region = Region(low, high, problem.measure)
        self._measure = repr(problem.measure) if problem.measure.kind == "product" else ""
        self._budget = physical_memory() // 2
        if limits.memory_mb is not None:
            self._budget = min(self._budget, limits.memory_mb * 2**20)
        self._is_slow = False
        self._leaves: list[Leaf] = []
        self._unseen = self._region.total
        """Mass of the region for which no leaf was found before the time was up."""
        for leaf in _leaves(problem.tree, self._region):
            self._leaves.append(leaf)
            self._unseen -= leaf.mass
            if limits.expired():
                break

    def _look_at_clock(self) -> None:
        if self._limits.expired():
            raise Stopped(self._limits.why())

    def count(self, query: GridQuery) -> Count:
        """The count of one query, or the bounds that were proven."""
        started = time.monotonic()
        lower, unknown = 0, self._unseen
        notes = {self._limits.why()} if unknown else set()
        for predicate, leaves in self._by_predicate(query):
            done = 0
            try:
                inside = self._counter(predicate)
                for leaf in leaves:
                    self._look_at_clock()
                    lower += inside(leaf)
                    done += 1
            except Stopped as stop:
                unknown += sum(leaf.mass for leaf in leaves[done:])
                notes.add(str(stop))
        if self._is_slow:
            notes.add("dd without CUDD: slow")
        return Count(
            lower,
            lower + unknown,
            Guarantee.EXACT if unknown == 0 else Guarantee.BOUNDS,
            BddEngine.name,
            time.monotonic() - started,
            self._digest,
            note="; ".join(sorted(notes)),
        )

    def witness(self, query: GridQuery) -> tuple[int, ...] | None:
        """Positions of one point with mass that satisfies the query."""
        try:
            for predicate, leaves in self._by_predicate(query):
                if predicate == Always(False):
                    continue
                diagram = self._diagram(predicate)
                for leaf in leaves:
                    self._look_at_clock()
                    point = diagram.find(leaf.cuts)
                    if point is not None:
                        return point
        except Stopped:
            pass
        return None

    def _by_predicate(self, query: GridQuery) -> Iterator[tuple[Predicate, list[Leaf]]]:
        """The leaves, grouped by what the query comes to once their label is known; constants first: they are free."""
        groups: dict[Predicate, list[Leaf]] = {}
        by_label: dict[int, Predicate] = {}
        for leaf in self._leaves:
            if leaf.label not in by_label:
                by_label[leaf.label] = restrict(query.predicate, leaf.label)
                groups.setdefault(by_label[leaf.label], [])
            groups[by_label[leaf.label]].append(leaf)
        yield from sorted(groups.items(), key=lambda group: not isinstance(group[0], Always))

    def _counter(self, predicate: Predicate) -> Callable[[Leaf], int]:
        """What counts the points of a leaf where the predicate holds."""
        if predicate == Always(False):
            return lambda leaf: 0
        if predicate == Always(True) and self._ball is None:
            return lambda leaf: leaf.mass
        diagram = self._diagram(predicate)
        return lambda leaf: diagram.count(leaf.cuts)

    def _diagram(self, predicate: Predicate) -> Layered:
        """The predicate inside the ball as layers, from the process's store when it was made before."""
        found = library()
        assert found is not None
        self._is_slow = not found[1]
        key = (self._region.low, self._region.high, self._ball)
        fresh = key not in _store
        try:
            return _bench(key).layered(predicate, self._region, self._measure, self._budget, self._look_at_clock)
        except Stopped:
            # What earlier problems left behind may be what fills the memory: a clean start may do.
            _store.pop(key, None)
            if fresh or self._limits.expired():
                raise
        return _bench(key).layered(predicate, self._region, self._measure, self._budget, self._look_at_clock)


class _Bench:
    """The diagrams of one region, kept between calls."""

    def __init__(self, key: Key) -> None:
        low, high, self._ball = key
        self._workspace = Workspace(Space(low, high))
        self._layered: dict[tuple[Predicate, str], Layered] = {}

    def layered(
        self, predicate: Predicate, region: Region, measure: str, budget: int, tick: Callable[[], None]
    ) -> Layered:
        found = self._layered.get((predicate, measure))
        if found is None:
            space = self._workspace
            space.allow(budget, tick)
            root = space.build(predicate)
            if self._ball is not None:
                root = space.both(root, space.ball(self._ball))
            found = self._layered[predicate, measure] = flatten(space, root, region, budget, tick)
        return found


_store: OrderedDict[Key, _Bench] = OrderedDict()


def _bench(key: Key) -> _Bench:
    bench = _store.pop(key, None) or _Bench(key)
    _store[key] = bench
    while len(_store) > WORKSPACES:
        _store.popitem(last=False)
    return bench


def forget() -> None:
    """Drop every diagram that is kept."""
    _store.clear()


def _shape(case: GridCase) -> tuple[tuple[int, ...], tuple[int, ...], Ball | None]:
    """First positions, positions past the last, and the ball with its distances divided by what they share."""
    region = case.region
    if isinstance(region, Box):
        return region.low, region.high, None
    unit = (math.gcd(*region.weights) or 1) if region.norm == "l1" else 1
    weights = tuple(weight // unit for weight in region.weights)
    return region.box.low, region.box.high, replace(region, weights=weights, radius=reach(region))


def _ball_work(ball: Ball) -> int:
    steps = 0
    for low, high, weight in zip(ball.box.low, ball.box.high, ball.weights, strict=True):
        if high - low > 1:
            steps += 2 if ball.norm == "l0" else min(high - low, 1 + 2 * ball.radius // max(1, weight))
    return steps * (ball.radius + 1)


def _leaves(tree: GridTree, region: Region) -> Iterator[Leaf]:
    """The pieces of the region that have mass, each with the leaf that it reaches; together they are the region."""
    if region.total == 0:
        return
    stack: list[tuple[int, dict[int, Range], int]] = [(0, {}, region.total)]
    while stack:
        node, cuts, mass = stack.pop()
        feature = tree.feature[node]
        if feature < 0:
            yield Leaf(tree.label[node], cuts, mass)
            continue
        start, stop = cuts.get(feature) or (region.low[feature], region.high[feature])
        first = min(max(tree.low[node], start), stop)
        last = max(min(tree.high[node], stop), first)
        whole = region.mass(feature, start, stop)
        for low, high, child in (
            (last, stop, tree.left[node]),
            (first, last, tree.right[node]),
            (start, first, tree.left[node]),
        ):
            part = region.mass(feature, low, high)
            if part:
                inner = cuts if (low, high) == (start, stop) else {**cuts, feature: (low, high)}
                stack.append((child, inner, mass // whole * part))


ENGINE = BddEngine()

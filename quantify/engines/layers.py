"""A decision diagram goes in, arrays by feature come out, with exact counts inside any sub-box by one sweep of them.

Bits are merged back into features: a node stands at the first feature it reads, and its edges are ranges of
positions. A complemented edge becomes a node of its own, so that a predicate and its negation are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.engines.diagrams import Function, Space, Stopped, Workspace
from quantify.ir.domain import Measure

Range = tuple[int, int]
Array = NDArray[Any]
"""int64 where every value is proven to fit, else Python integers (dtype object)."""

WORD = 2**62
"""Masses and positions below this are kept in int64: a sum of two still fits."""
EDGES = 1 << 22
"""Most edges that one node may have: a predicate such as x % 2 == 0 cuts a wide feature everywhere."""
BYTES = 100
"""What a node, or an edge, takes while layers are made."""
FALSE, TRUE = 0, 1
"""Places of the two terminals."""


class Region:
    """A box with its measure: masses of ranges, exactly."""

    def __init__(self, low: tuple[int, ...], high: tuple[int, ...], measure: Measure) -> None:
        self.low, self.high = low, high
        self._weights = measure.weights if measure.kind == "product" else (None,) * len(low)
        self._sums: dict[int, list[int]] = {}
        self._tables: dict[int, Array] = {}
        self.masses = [self.mass(f, a, b) for f, (a, b) in enumerate(zip(low, high, strict=True))]
        self.total = 1
        for mass in self.masses:
            self.total *= mass

    def sums(self, feature: int) -> list[int] | None:
        """Sums of the feature's first 0, 1, … weights, or None where every weight is 1."""
        weights = self._weights[feature]
        if weights is None:
            return None
        if feature not in self._sums:
            total, sums = 0, [0]
            for weight in weights:
                total += weight
                sums.append(total)
            self._sums[feature] = sums
        return self._sums[feature]

    def mass(self, feature: int, low: int, high: int) -> int:
        """Mass of low ≤ position < high (0 when empty)."""
        sums = self.sums(feature)
        if high <= low:
            return 0
        return high - low if sums is None else sums[high] - sums[low]

    def masses_of(self, feature: int, low: Array, high: Array) -> Array:
        """Masses of many ranges inside the region, low ≤ high."""
        sums = self.sums(feature)
        if sums is None:
            return np.asarray(high - low)
        start = self.low[feature]
        if feature not in self._tables:
            # Only the region's own stretch of the sums, moved to start at 0: it fits where the sums may not.
            stretch = [sums[p] - sums[start] for p in range(start, self.high[feature] + 1)]
            table = np.empty(len(stretch), dtype=self.dtype)
            table[:] = stretch
            self._tables[feature] = table
        table = self._tables[feature]
        return np.asarray(table[(high - start).astype(np.int64)] - table[(low - start).astype(np.int64)])

    def first_with_mass(self, feature: int, low: int, high: int) -> int:
        """The first position of the range that has mass; the range has some."""
        return next(p for p in range(low, high) if self.mass(feature, p, p + 1))

    @cached_property
    def is_narrow(self) -> bool:
        """Whether every position and every mass inside the region fits int64."""
        return self.total < WORD and all(high < WORD for high in self.high)

    @property
    def dtype(self) -> Any:
        """The dtype of masses and positions."""
        return np.int64 if self.is_narrow else object


@dataclass(frozen=True)
class Layer:
    """The nodes at one feature; edges are sorted by owner, then by position."""

    feature: int
    nodes: Array
    """Place of each node, ascending."""
    starts: Array
    """Index of each node's first edge."""
    low: Array
    high: Array
    """Edge e is taken at positions low[e] … high[e]−1."""
    target: Array
    """Place of the node that edge e leads to."""
    gap: Array
    """Index into `Layered.gaps`: which features the edge skips."""
    mass: Array
    """Mass of each edge in the whole region."""


@dataclass(frozen=True)
class Layered:
    """A diagram by features, ready to be counted inside boxes of its region."""

    region: Region
    root: int
    size: int
    """Number of nodes, terminals included."""
    layers: tuple[Layer, ...]
    """Ascending by feature."""
    gaps: tuple[Range, ...]
    """(a, b): features a … b−1 are skipped."""

    @property
    def edges(self) -> int:
        """Number of edges."""
        return sum(len(layer.low) for layer in self.layers)

    @cached_property
    def _whole(self) -> Array:
        return self._sweep({}, None)

    def count(self, cuts: Mapping[int, Range]) -> int:
        """Mass of the diagram where the features of `cuts` are confined to their (non-empty) ranges."""
        if self.region.total == 0 or any(self.region.mass(f, *cut) == 0 for f, cut in cuts.items()):
            return 0
        masses = self._masses(cuts)
        before = 1
        first = self.layers[0].feature if self.layers else len(masses)
        for mass in masses[:first]:
            before *= mass
        return before * int(self._sweep(cuts, self._whole if cuts else None)[self.root])

    def _masses(self, cuts: Mapping[int, Range]) -> list[int]:
        masses = list(self.region.masses)
        for feature, cut in cuts.items():
            masses[feature] = self.region.mass(feature, *cut)
        return masses

    def _sweep(self, cuts: Mapping[int, Range], base: Array | None) -> Array:
        """Mass of every node over its own and all later features, from the last layer up.

        Layers below the last feature that is cut are taken from `base`.
        """
        masses = np.zeros(self.size, dtype=self.region.dtype) if base is None else base.copy()
        masses[TRUE] = 1
        deepest = len(self.region.masses) if base is None else max(cuts, default=-1)
        factors = self._gap_factors(cuts)
        for layer in reversed(self.layers):
            if layer.feature > deepest:
                continue
            cut = cuts.get(layer.feature)
            edge = layer.mass if cut is None else self._edge_masses(layer, cut)
            terms = edge * masses[layer.target] * factors[layer.gap]
            masses[layer.nodes] = np.add.reduceat(terms, layer.starts)
        return masses

    def _gap_factors(self, cuts: Mapping[int, Range]) -> Array:
        products = [1]
        for mass in self._masses(cuts):
            products.append(products[-1] * mass)
        # No mass is zero here, so the quotient of two prefix products is the product between them.
        factors = np.empty(len(self.gaps), dtype=self.region.dtype)
        factors[:] = [products[b] // products[a] for a, b in self.gaps]
        return factors

    def _edge_masses(self, layer: Layer, cut: Range) -> Array:
        low, high = np.maximum(layer.low, cut[0]), np.minimum(layer.high, cut[1])
        return self.region.masses_of(layer.feature, low, np.maximum(low, high))

    def find(self, cuts: Mapping[int, Range]) -> tuple[int, ...] | None:
        """Positions of one point with mass inside the box where the diagram is true, or None."""
        if self.count(cuts) == 0:
            return None
        masses = self._sweep(cuts, self._whole if cuts else None)
        region = self.region
        bounds = [cuts.get(f, whole) for f, whole in enumerate(zip(region.low, region.high, strict=True))]
        point = [region.first_with_mass(f, *bound) for f, bound in enumerate(bounds)]
        node = self.root
        for layer in self.layers:
            row = int(np.searchsorted(layer.nodes, node))
            if row == len(layer.nodes) or layer.nodes[row] != node:
                continue
            stop = layer.starts[row + 1] if row + 1 < len(layer.starts) else len(layer.low)
            for edge in range(int(layer.starts[row]), int(stop)):
                low = max(int(layer.low[edge]), bounds[layer.feature][0])
                high = min(int(layer.high[edge]), bounds[layer.feature][1])
                if masses[layer.target[edge]] and region.mass(layer.feature, low, high):
                    point[layer.feature] = region.first_with_mass(layer.feature, low, high)
                    node = int(layer.target[edge])
                    break
        return tuple(point)


def flatten(workspace: Workspace, root: Function, region: Region, budget: int, tick: Callable[[], None]) -> Layered:
    """The diagram `root` as layers.

    Args:
        budget: Bytes that the layers may take.
        tick: Called often, to look at the clock.

    Raises:
        Stopped: The time or the memory is used up, or a node would have more than `EDGES` edges.
    """
    return _Flattening(workspace, region, budget, tick).run(root)


class _Flattening:
    def __init__(self, workspace: Workspace, region: Region, budget: int, tick: Callable[[], None]) -> None:
        self._space: Space = workspace.space
        self._room = budget // BYTES
        self._region, self._tick = region, tick
        self._terminals = {workspace.false: FALSE, workspace.true: TRUE}
        self._features = len(region.low)
        # Per feature: diagram → place, in order of discovery, which is ascending by place.
        self._waiting: list[dict[Function, int]] = [{} for _ in range(self._features)]
        self._size = 2
        self._done = 0  # edges so far
        self._gaps: dict[Range, int] = {}

    def run(self, root: Function) -> Layered:
        place, _ = self._place(root)
        layers = []
        for feature in range(self._features):
            if self._waiting[feature]:
                layers.append(self._layer(feature, self._waiting[feature]))
                self._waiting[feature] = {}
        return Layered(self._region, place, self._size, tuple(layers), tuple(self._gaps))

    def _place(self, node: Function) -> tuple[int, int]:
        """Place and feature of a node, the terminals lying past the last feature."""
        terminal = self._terminals.get(node)
        if terminal is not None:
            return terminal, self._features
        feature = self._space.feature_at[node.level]
        known = self._waiting[feature]
        place = known.get(node)
        if place is None:
            place = known[node] = self._size
            self._size += 1
        return place, feature

    def _layer(self, feature: int, nodes: dict[Function, int]) -> Layer:
        starts: list[int] = []
        low: list[int] = []
        high: list[int] = []
        target: list[int] = []
        gap: list[int] = []
        for node in nodes:
            if len(starts) % 1024 == 0:
                self._tick()
                if self._size + self._done > self._room:
                    raise Stopped("the memory limit was reached")
            starts.append(len(low))
            for start, stop, (place, there) in self._edges(feature, node):
                low.append(start)
                high.append(stop)
                target.append(place)
                skipped = (feature + 1, there)
                gap.append(self._gaps.setdefault(skipped, len(self._gaps)))
        self._done += len(low)
        lows, highs = np.array(low, dtype=self._region.dtype), np.array(high, dtype=self._region.dtype)
        return Layer(
            feature,
            np.fromiter(nodes.values(), dtype=np.int64, count=len(nodes)),
            np.array(starts, dtype=np.int64),
            lows,
            highs,
            np.array(target, dtype=np.int64),
            np.array(gap, dtype=np.int64),
            self._region.masses_of(feature, lows, highs),
        )

    def _edges(self, feature: int, node: Function) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """Ranges of positions with where they lead, ascending, neighbours with the same target merged."""
        base, end = self._region.low[feature], self._region.high[feature]
        if self._space.bits[feature] == 1:
            low, high = _children(node)
            yield base, base + 1, self._place(low)
            yield base + 1, base + 2, self._place(high)
            return
        start, target = base, -1
        where = (-1, -1)
        for code, below in self._codes(feature, node):
            there = self._place(below)
            if there[0] != target:
                if target >= 0:
                    yield start, base + code, where
                start, target, where = base + code, there[0], there
        yield start, end, where

    def _codes(self, feature: int, node: Function) -> Iterator[tuple[int, Function]]:
        """First codes of ranges with the node each leads to, ascending, those that stand for a position."""
        width = self._region.high[feature] - self._region.low[feature]
        last = self._space.first[feature] + self._space.bits[feature]
        stack: list[tuple[int, int, Function]] = [(0, self._space.first[feature], node)]
        found = 0
        while stack:
            code, level, below = stack.pop()
            if code >= width:
                continue
            if below.level >= last:
                found += 1
                if found > EDGES:
                    raise Stopped("a predicate cuts a wide feature into too many ranges")
                if found % 4096 == 0:
                    self._tick()
                yield code, below
                continue
            low, high = _children(below) if below.level == level else (below, below)
            half = 1 << (last - level - 1)
            stack.append((code + half, level + 1, high))
            stack.append((code, level + 1, low))


def _children(node: Function) -> tuple[Function, Function]:
    """The diagrams where the node's bit is 0 and 1."""
    if node.negated:
        return ~node.low, ~node.high
    return node.low, node.high

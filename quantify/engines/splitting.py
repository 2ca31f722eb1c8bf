"""Formulas on the leaves of a tree to a count: what a box does not decide at once is split, the heaviest box first.

Open boxes with the same formula on the same ranges are one: their masses add up. The count is exact when nothing
stays open; at the deadline the open mass stands between the lower and the upper bound.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from quantify.engines.cells import Cells, Key
from quantify.engines.clauses import (
    FALSE,
    TRUE,
    Affine,
    Box,
    Clauses,
    Compare,
    Formula,
    Function,
    In,
    Junction,
    Range,
    Test,
)
from quantify.engines.descent import leaves
from quantify.engines.masses import Masses
from quantify.engines.parts import components
from quantify.ir.predicate import Predicate
from quantify.ir.problem import GridProblem, GridTree
from quantify.resources import Limits, Progress

MOST_WAITING = 100_000
"""Boxes that wait in order of mass; beyond, new ones are finished first, so that memory stays bounded."""

MOST_LOOKED_AT = 16
"""Features of a formula beyond which the search for a point goes ahead without counting first."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A box still open: the formula, the ranges that differ from the region's, the mass of the unread features."""

    formula: int
    narrowed: dict[int, Range]
    mass: Any


class Splitter:
    """Counts and finds points for the queries of one problem in one region; queries share the interned formulas."""

    def __init__(self, problem: GridProblem, masses: Masses) -> None:
        self._tree: GridTree = problem.tree
        self._masses = masses
        self._region = list(zip(masses.low, masses.high, strict=True))
        self.clauses = Clauses(problem.sizes)
        self._cells = Cells(self.clauses, masses)

    def roots(self, predicate: Predicate, labels: tuple[int, ...]) -> dict[int, int]:
        """The formula of a predicate in the region, for each label."""
        every = (1 << len(self._region)) - 1
        box = Box(self._region)
        return {label: self.clauses.restrict(self.clauses.add(predicate, label), box, every) for label in labels}

    def count(self, roots: Mapping[int, int], limits: Limits, progress: Progress) -> tuple[int, int]:
        """Proven lower and upper bound of the mass where the formula of the point's label is true."""
        work = _Work(self._masses)
        whole = self._masses.unit
        for feature, (low, high) in enumerate(self._region):
            whole = self._masses.times(whole, self._masses.part(feature, low, high))
        unseen = self._masses.total(whole)
        for number, (mass, piece) in enumerate(self._open_leaves(roots)):
            if number % 64 == 63 and limits.expired():
                break
            unseen -= mass
            self._take(work, piece)
        else:
            unseen = 0
        rounds = 0
        while work.waiting and not limits.expired():
            rounds += 1
            if rounds % 1024 == 0:
                progress.update(f"splitting boxes ({len(work.waiting)} open)")
            self._expand(work, self._next(work))
        return work.proven, work.proven + work.open + unseen

    def find(self, roots: Mapping[int, int], limits: Limits) -> tuple[int, ...] | None:
        """A point of the region with mass where the formula of its label is true, or None (also at the deadline)."""
        for _, leaf in self._open_leaves(roots):
            stack = [leaf]
            while stack:
                if limits.expired():
                    return None
                piece = stack.pop()
                if piece.formula == TRUE:
                    return self._point(piece)
                if piece.formula != FALSE and self._possible(piece):
                    stack.extend(self._halves(piece))
        return None

    def _open_leaves(self, roots: Mapping[int, int]) -> Iterator[tuple[int, Piece]]:
        """Every leaf of the region with its mass and what is to be decided on it."""
        for label, changed, mass in leaves(self._tree, self._masses):
            mask = sum(1 << feature for feature in changed)
            box = Box(self._region, changed)
            formula = self.clauses.restrict(roots[label], box, mask)
            rest = mass
            for feature in self.clauses.used(formula):
                rest = self._masses.over(rest, self._masses.part(feature, *box[feature]))
            yield self._masses.total(mass), Piece(formula, changed, rest)

    # --- what is open ----------------------------------------------------------------------------------------------
    def _mass(self, piece: Piece) -> int:
        """Mass of the whole box of a piece."""
        box = Box(self._region, piece.narrowed)
        mass = piece.mass
        for feature in self.clauses.used(piece.formula):
            mass = self._masses.times(mass, self._masses.part(feature, *box[feature]))
        return self._masses.total(mass)

    def _take(self, work: _Work, piece: Piece) -> None:
        """Prove, drop or queue a piece."""
        if piece.formula == FALSE:
            return
        mass = self._mass(piece)
        if piece.formula == TRUE or mass == 0:
            work.proven += mass
            return
        box = Box(self._region, piece.narrowed)
        key = (piece.formula, tuple(box[feature] for feature in self.clauses.used(piece.formula)))
        work.add(key, piece.mass, mass)

    def _next(self, work: _Work) -> Piece:
        (formula, ranges), mass = work.pop()
        return Piece(formula, dict(zip(self.clauses.used(formula), ranges, strict=True)), mass)

    def _expand(self, work: _Work, piece: Piece) -> None:
        """Count a piece at once, or what comes apart of it, or halve it."""
        node = self.clauses.nodes[piece.formula]
        parts = components(self.clauses, node) if isinstance(node, Junction) else [piece.formula]
        if isinstance(node, Junction) and not node.every and len(parts) > 1:
            left = self._any_of(work, piece, parts)
        else:
            left = self._all_of(piece, parts)
        if left.formula == piece.formula:
            for half in self._halves(piece):
                self._take(work, half)
        else:
            self._take(work, left)

    def _all_of(self, piece: Piece, parts: list[int]) -> Piece:
        """The piece with every component that can be counted at once taken into its mass."""
        box, mass, hard = Box(self._region, piece.narrowed), piece.mass, []
        for component in parts:
            counted = self._cells.count(component, box)
            if counted is None:
                hard.append(component)
            else:
                mass = self._masses.product(mass, counted)
        return Piece(self.clauses.junction(True, hard), piece.narrowed, mass)

    def _any_of(self, work: _Work, piece: Piece, parts: list[int]) -> Piece:
        """What is left where the components that can be counted at once are false; where one is true is proven."""
        box, mass, hard = Box(self._region, piece.narrowed), piece.mass, list(parts)
        for component in parts:
            true = self._cells.count(component, box)
            false = None if true is None else self._cells.count_negated(component, box)
            if false is None:
                continue
            hard.remove(component)
            others = self._masses.product(mass, true)
            for other in hard:
                for feature in self.clauses.used(other):
                    others = self._masses.times(others, self._masses.part(feature, *box[feature]))
            work.proven += self._masses.total(others)
            mass = self._masses.product(mass, false)
        return Piece(self.clauses.junction(False, hard), piece.narrowed, mass)

    def _halves(self, piece: Piece) -> Iterator[Piece]:
        """The piece split in two on the feature that matters most, without halves of no mass."""
        box = Box(self._region, piece.narrowed)
        feature, cut = self._choose(piece.formula, box)
        low, high = box[feature]
        used = self.clauses.used(piece.formula)
        for first, last in ((low, cut), (cut, high)):
            narrowed = piece.narrowed | {feature: (first, last)}
            inside = Box(self._region, narrowed)
            formula = self.clauses.restrict(piece.formula, inside, 1 << feature)
            mass = piece.mass
            kept = self.clauses.features[formula]
            for other in used:
                if not kept >> other & 1:
                    mass = self._masses.times(mass, self._masses.part(other, *inside[other]))
            half = Piece(formula, narrowed, mass)
            if self._mass(half):
                yield half

    def _choose(self, formula: int, box: Box) -> tuple[int, int]:
        """The feature to split and where: at the end of a range if there is one, else in the middle."""
        weights: dict[int, int] = {}
        cuts: dict[int, set[int]] = {}
        for node in self._below(formula):
            if isinstance(node, In):
                weights[node.feature] = weights.get(node.feature, 0) + 1024
                low, high = box[node.feature]
                inside = {cut for cut in (node.low, node.high) if low < cut < high}
                cuts.setdefault(node.feature, set()).update(inside)
                continue
            terms = node.terms if isinstance(node, Compare | Affine) else ()
            spans = {f: abs(c) * (box[f][1] - box[f][0] - 1) for f, c in terms}
            whole = sum(spans.values()) or 1
            for f, span in spans.items():
                weights[f] = weights.get(f, 0) + 1024 * span // whole
        feature = max(weights, key=lambda f: (weights[f], -f))
        low, high = box[feature]
        ends = sorted(cuts.get(feature, ()))
        return feature, ends[len(ends) // 2] if ends else (low + high) // 2

    def _below(self, formula: int) -> Iterator[Formula]:
        stack = [formula]
        while stack:
            node = self.clauses.nodes[stack.pop()]
            yield node
            if isinstance(node, Junction | Function):
                stack.extend(node.arguments)
            elif isinstance(node, Test):
                stack.append(node.number)

    # --- points ----------------------------------------------------------------------------------------------------
    def _possible(self, piece: Piece) -> bool:
        """False when a count already says that no point of the piece is wanted."""
        box = Box(self._region, piece.narrowed)
        node = self.clauses.nodes[piece.formula]
        parts = components(self.clauses, node) if isinstance(node, Junction) and node.every else [piece.formula]
        mass = piece.mass
        for part in parts:
            used = self.clauses.used(part)
            counted = self._cells.count(part, box) if len(used) <= MOST_LOOKED_AT else None
            if counted is None:
                for feature in used:
                    mass = self._masses.times(mass, self._masses.part(feature, *box[feature]))
            else:
                mass = self._masses.product(mass, counted)
        return self._masses.total(mass) > 0

    def _point(self, piece: Piece) -> tuple[int, ...]:
        """The point of a decided box that has mass and lies closest to the centre."""
        box = Box(self._region, piece.narrowed)
        point = []
        for feature in range(len(self._region)):
            position = self._masses.nearest(feature, *box[feature])
            assert position is not None, "boxes without mass are never kept"
            point.append(position)
        return tuple(point)


@dataclass(slots=True)
class _Work:
    """Pieces that wait, merged by key, with their mass; and what is proven so far."""

    masses: Masses
    proven: int = 0
    open: int = 0
    waiting: dict[Key, tuple[Any, int]] = field(default_factory=dict)
    heap: list[tuple[int, int, Key]] = field(default_factory=list)
    stack: list[Key] = field(default_factory=list)
    serial: int = 0

    def add(self, key: Key, element: Any, mass: int) -> None:
        """Queue a piece of this mass, or add it to the one that waits with the same key."""
        self.open += mass
        if key in self.waiting:
            other, more = self.waiting[key]
            element, mass = self.masses.plus(other, element), mass + more
        self.waiting[key] = (element, mass)
        self.serial += 1
        if len(self.heap) < MOST_WAITING:
            heapq.heappush(self.heap, (-mass, self.serial, key))
        else:
            self.stack.append(key)

    def pop(self) -> tuple[Key, Any]:
        """The next piece that waits: the newest that found no place in the order, else the heaviest."""
        key = None
        while key not in self.waiting:  # one that was merged into is queued twice
            key = self.stack.pop() if self.stack else heapq.heappop(self.heap)[2]
        element, mass = self.waiting.pop(key)
        self.open -= mass
        return key, element

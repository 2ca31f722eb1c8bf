"""Predicates to the nodes that the native engine evaluates on boxes and points, and to rows of scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quantify.ir import ranges
from quantify.ir.predicate import (
    AllOf,
    Always,
    AnyOf,
    CountOf,
    Extreme,
    FloorDiv,
    HasLabel,
    IntExpr,
    Linear,
    Negation,
    Plus,
    Predicate,
    Score,
    Sign,
    Times,
    Within,
)

ALWAYS, LABEL, WITHIN, NOT, ALL, ANY, ROW, COMPARE, LINEAR, PLUS, TIMES, FLOORDIV, MIN, MAX, COUNT = range(15)
OPERATIONS = {"<": 0, "<=": 1, "==": 2, "!=": 3}
EVERY = (1 << 64) - 1
WIDEST = 120
"""Bits of an integer expression that 128-bit words can take."""


class UnsupportedError(Exception):
    """A predicate that the engine cannot evaluate; the message says why."""


@dataclass(frozen=True)
class Affine:
    """constant + Σ coefficient·score + Σ coefficient·position."""

    scores: Mapping[int, int]
    positions: Mapping[int, int]
    constant: int


@dataclass(frozen=True)
class Node:
    """One node; see branch.h."""

    op: int
    a: int = 0
    b: int = 0
    x: int = 0
    y: int = 0


@dataclass
class Compiled:
    """Nodes (operands first), their links and constants, the rows of scores they read, and the root of each query."""

    nodes: list[Node] = field(default_factory=list)
    links: list[int] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    rows: list[Affine] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    label_only: bool = True
    """No query reads positions or scores."""
    true_for: list[int] = field(default_factory=list)
    """With `label_only`: per label, the set of queries that hold for it, as a mask."""


def affine(expression: IntExpr) -> Affine | None:
    """The expression as a weighted sum of scores and positions, or None when it is none."""
    if isinstance(expression, Linear):
        return Affine({}, dict(expression.terms), expression.constant)
    if isinstance(expression, Score):
        return Affine({expression.index: 1}, {}, 0)
    if isinstance(expression, Plus):
        parts = [affine(argument) for argument in expression.arguments]
        return None if None in parts else _sum([part for part in parts if part is not None])
    if isinstance(expression, Times):
        left, right = affine(expression.left), affine(expression.right)
        if left is None or right is None:
            return None
        for by, other in ((left, right), (right, left)):
            if not by.scores and not by.positions:
                return _times(other, by.constant)
    if isinstance(expression, Extreme) and len(expression.arguments) == 1:
        return affine(expression.arguments[0])
    return None


def _times(form: Affine, by: int) -> Affine:
    return Affine(
        {i: c * by for i, c in form.scores.items()}, {i: c * by for i, c in form.positions.items()}, form.constant * by
    )


def _sum(parts: list[Affine]) -> Affine:
    scores: dict[int, int] = {}
    positions: dict[int, int] = {}
    for part in parts:
        for into, terms in ((scores, part.scores), (positions, part.positions)):
            for i, c in terms.items():
                into[i] = into.get(i, 0) + c
    return Affine(
        {i: c for i, c in scores.items() if c}, {i: c for i, c in positions.items() if c},
        sum(part.constant for part in parts),
    )  # fmt: skip


def compile_queries(
    predicates: list[Predicate], sizes: tuple[int, ...], labels: int, varying: list[int], fixed: Mapping[int, int]
) -> Compiled:
    """Nodes for all predicates; input numbers are places in `varying`, the others have their `fixed` position.

    Raises:
        UnsupportedError: Scores enter other than in a weighted sum, or numbers need more than 120 bits.
    """
    builder = _Builder(sizes, labels, {f: k for k, f in enumerate(varying)}, fixed)
    out = builder.out
    for predicate in predicates:
        out.roots.append(builder.truth(predicate))
    out.label_only = all(node.op in (ALWAYS, LABEL, NOT, ALL, ANY) for node in out.nodes)
    if out.label_only:
        zeros, ones = [0] * len(sizes), [1] * len(sizes)
        for label in range(labels):
            holds = [ranges.on_box(predicate, zeros, ones, label) for predicate in builder.folded(predicates)]
            out.true_for.append(sum(1 << q for q, answer in enumerate(holds) if answer))
    return out


class _Builder:
    def __init__(self, sizes: tuple[int, ...], labels: int, place: dict[int, int], fixed: Mapping[int, int]) -> None:
        self.out = Compiled()
        self._sizes = sizes
        self._every = (1 << labels) - 1
        self._place = place
        self._fixed = fixed
        self._known: dict[object, int] = {}

    def folded(self, predicates: list[Predicate]) -> list[Predicate]:
        """The predicates with ranges of fixed inputs decided (all that `label_only` leaves to decide)."""
        return [self._fold(predicate) for predicate in predicates]

    def _fold(self, predicate: Predicate) -> Predicate:
        if isinstance(predicate, Within):
            return Always(predicate.low <= self._fixed[predicate.feature] < predicate.high)
        if isinstance(predicate, Sign):
            form = self._affine(predicate.argument)
            assert form is not None
            assert not form.positions
            assert not form.scores
            return Sign(predicate.op, Linear((), form.constant))
        if isinstance(predicate, Negation):
            return Negation(self._fold(predicate.argument))
        if isinstance(predicate, AllOf):
            return AllOf(tuple(self._fold(argument) for argument in predicate.arguments))
        if isinstance(predicate, AnyOf):
            return AnyOf(tuple(self._fold(argument) for argument in predicate.arguments))
        return predicate

    def truth(self, predicate: Predicate) -> int:
        """The node of a predicate."""
        if isinstance(predicate, Always):
            return self._add(ALWAYS, x=int(predicate.value))
        if isinstance(predicate, HasLabel):
            mask = sum(1 << label for label in predicate.labels) & self._every
            return self._add(LABEL, x=mask - (1 << 64) if mask >> 63 else mask)
        if isinstance(predicate, Within):
            return self._within(predicate)
        if isinstance(predicate, Negation):
            return self._add(NOT, self.truth(predicate.argument))
        if isinstance(predicate, AllOf | AnyOf):
            parts = [self.truth(argument) for argument in predicate.arguments]
            return self._group(ALL if isinstance(predicate, AllOf) else ANY, parts)
        return self._sign(predicate)

    def _within(self, predicate: Within) -> int:
        place = self._place.get(predicate.feature)
        if place is None:
            return self._add(ALWAYS, x=int(predicate.low <= self._fixed[predicate.feature] < predicate.high))
        size = self._sizes[predicate.feature]
        return self._add(WITHIN, place, x=min(max(predicate.low, 0), size), y=min(max(predicate.high, 0), size))

    def _affine(self, expression: IntExpr) -> Affine | None:
        form = affine(expression)
        if form is None:
            return None
        constant = form.constant + sum(c * self._fixed[f] for f, c in form.positions.items() if f in self._fixed)
        places = {self._place[f]: c for f, c in form.positions.items() if f in self._place and c}
        return Affine({i: c for i, c in form.scores.items() if c}, places, constant)

    def _sign(self, predicate: Sign) -> int:
        form = self._affine(predicate.argument)
        op = OPERATIONS[predicate.op]
        if form is not None and not form.scores and not form.positions:
            value = form.constant
            return self._add(ALWAYS, x=int((value < 0, value <= 0, value == 0, value != 0)[op]))
        if form is not None and form.scores:
            if form not in self.out.rows:
                self.out.rows.append(form)
            return self._add(ROW, self.out.rows.index(form), op)
        if ranges.bits(predicate.argument, self._sizes) > WIDEST:
            raise UnsupportedError("a comparison of the property needs integers of more than 120 bits")
        return self._add(COMPARE, self.number(predicate.argument), op)

    def number(self, expression: IntExpr) -> int:
        """The node of an expression over positions."""
        form = self._affine(expression)
        if form is not None and not form.scores:
            links = [part for f, c in sorted(form.positions.items()) for part in (f, self._constant(c))]
            return self._linked(LINEAR, links, self._constant(form.constant))
        if isinstance(expression, Plus):
            return self._group(PLUS, [self.number(argument) for argument in expression.arguments])
        if isinstance(expression, Times):
            return self._add(TIMES, self.number(expression.left), self.number(expression.right))
        if isinstance(expression, FloorDiv):
            return self._add(FLOORDIV, self.number(expression.argument), x=self._constant(expression.divisor))
        if isinstance(expression, Extreme):
            parts = [self.number(argument) for argument in expression.arguments]
            return self._group(MIN if expression.which == "min" else MAX, parts)
        if isinstance(expression, CountOf):
            return self._group(COUNT, [self._plain(argument) for argument in expression.arguments])
        raise UnsupportedError("scores can only be added, multiplied by constants and compared here")

    def _plain(self, predicate: Predicate) -> int:
        """A truth node inside a number: it must not depend on the label."""
        before = len(self.out.nodes)
        node = self.truth(predicate)
        if any(n.op == LABEL for n in self.out.nodes[before:]) or self._reads_label(predicate):
            raise UnsupportedError("labels cannot be counted inside an expression here")
        return node

    def _reads_label(self, predicate: Predicate) -> bool:
        if isinstance(predicate, Negation):
            return self._reads_label(predicate.argument)
        if isinstance(predicate, AllOf | AnyOf):
            return any(self._reads_label(argument) for argument in predicate.arguments)
        return isinstance(predicate, HasLabel)

    # --- storage -----------------------------------------------------------------------------------------------------
    def _add(self, op: int, a: int = 0, b: int = 0, x: int = 0, y: int = 0) -> int:
        node = Node(op, a, b, x, y)
        if node not in self._known:
            self._known[node] = len(self.out.nodes)
            self.out.nodes.append(node)
        return self._known[node]

    def _group(self, op: int, parts: list[int]) -> int:
        return self._linked(op, parts, 0)

    def _linked(self, op: int, links: list[int], x: int) -> int:
        key = (op, tuple(links), x)
        if key not in self._known:
            start = len(self.out.links)
            self.out.links.extend(links)
            self._known[key] = len(self.out.nodes)
            self.out.nodes.append(Node(op, start, len(self.out.links), x))
        return self._known[key]

    def _constant(self, value: int) -> int:
        self.out.constants.append(value)
        return len(self.out.constants) - 1

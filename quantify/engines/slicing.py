"""A case of an integer problem goes in, a circuit over the bits of its positions comes out.

Features are seen as offsets within the region's box, in binary. Numbers are an offset plus an unsigned bit vector
whose largest value is tracked, so that no width is ever guessed: sums, products by constants, minima and floor
divisions stay exact. Offsets at or beyond a feature's width may give any answer; the engine never counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from quantify.engines import logic
from quantify.engines.circuit import FALSE, NATIVE_FALSE, TRUE, Circuit, TooManyGatesError
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
from quantify.ir.problem import Ball, Box, GridProblem, GridTree, Region

NO_TREE = GridTree((-1,), (0,), (0,), (0,), (0,), (0,))
"""Stands where a problem has a network."""


@dataclass(frozen=True)
class Number:
    """offset + Σ 2^i·bits[i], the sum being at most `top` (and len(bits) = top.bit_length())."""

    offset: int
    bits: tuple[int, ...]
    top: int


@dataclass(frozen=True)
class Sliced:
    """A circuit of three-input gates (`circuit.GATE`) and the features whose bits are its inputs."""

    gates: NDArray[np.void]
    outputs: NDArray[np.uint32]
    features: tuple[int, ...]
    """A feature's inputs follow those of the features before it, lowest bit first; ascending for a tree."""
    widths: tuple[int, ...]
    """Positions of each of these features inside the region's box."""
    bits: tuple[int, ...]
    """Inputs of each of these features."""
    label_sets: tuple[tuple[int, ...], ...] = ()
    """Of a network: the further inputs, each true when the label is in the set."""


def inside(region: Region) -> Predicate:
    """Whether a point of the region's box lies in the region."""
    if isinstance(region, Box):
        return Always(True)
    if region.norm == "l0":
        differs = tuple(Negation(Within(f, c, c + 1)) for f, c in enumerate(region.centre))
        return Sign("<=", Plus((CountOf(differs), Linear((), -region.radius))))
    distances: list[IntExpr] = [Linear((), -region.radius)]
    for feature, (centre, weight) in enumerate(zip(region.centre, region.weights, strict=True)):
        if weight:
            sides = (Linear(((feature, weight),), -weight * centre), Linear(((feature, -weight),), weight * centre))
            distances.append(Extreme("max", sides))
    return Sign("<=", Plus(tuple(distances)))


def box_of(region: Region) -> Box:
    """The box around the region."""
    return region.box if isinstance(region, Ball) else region


def slice_predicates(
    problem: GridProblem, region: Region, predicates: Sequence[Predicate], limit: int, always: Sequence[int] = ()
) -> Sliced:
    """One circuit with an output per predicate, each true only inside the region.

    Features that no output depends on have no inputs, except those in `always`. A network's labels are inputs, and
    its features come in descending order.

    Raises:
        TooManyGatesError: More than `limit` two-input gates, or scores are read.
    """
    lowering = _Lowering(problem, box_of(region), limit, predicates)
    guard = lowering.truth(inside(region))
    outputs = [lowering.circuit.conjunction(guard, lowering.truth(predicate)) for predicate in predicates]
    mapped = lowering.circuit.mapped(outputs)
    starts = list(accumulate((len(bits) for bits in lowering.bits), initial=0))
    features, renumbered, made = [], np.zeros(lowering.circuit.inputs, np.uint32), 0
    order = range(len(lowering.bits))
    for feature in order if problem.network is None else reversed(order):
        first, end = starts[feature], starts[feature + 1]
        if feature in always or any(number in mapped.inputs for number in range(first, end)):
            features.append(feature)
            renumbered[first:end] = np.arange(made, made + end - first)
            made += end - first
    labels = len(lowering.label_inputs)
    renumbered[starts[-1] :] = np.arange(made, made + labels)
    made += labels
    ids = np.concatenate([renumbered, np.arange(made, made + len(mapped.gates), dtype=np.uint32)])
    gates = mapped.gates.copy()
    for name in ("a", "b", "c"):
        gates[name] = ids[gates[name]]
    outputs_now = [v if v >= NATIVE_FALSE else 2 * int(ids[v >> 1]) + (v & 1) for v in mapped.outputs.tolist()]
    return Sliced(
        gates,
        np.array(outputs_now, np.uint32),
        tuple(features),
        tuple(lowering.widths[f] for f in features),
        tuple(len(lowering.bits[f]) for f in features),
        tuple(lowering.label_inputs),
    )


class _Lowering:
    def __init__(self, problem: GridProblem, box: Box, limit: int, predicates: Sequence[Predicate]) -> None:
        self.tree = problem.tree if problem.network is None else NO_TREE
        self.labels = problem.labels
        self.label_inputs: dict[tuple[int, ...], int] = {}
        self.low = box.low
        self.widths = [high - low for low, high in zip(box.low, box.high, strict=True)]
        lengths = [(width - 1).bit_length() for width in self.widths]
        if problem.network is not None:
            for labels in sorted({labels for predicate in predicates for labels in logic.label_sets(predicate)}):
                rest = tuple(k for k in range(self.labels) if k not in labels)
                if labels and rest and rest not in self.label_inputs:
                    self.label_inputs[labels] = sum(lengths) + len(self.label_inputs)
        self.circuit = Circuit(sum(lengths) + len(self.label_inputs), limit)
        self.bits: list[tuple[int, ...]] = []
        start = 0
        for length in lengths:
            self.bits.append(tuple(self.circuit.input(start + k) for k in range(length)))
            start += length
        self._order = nodes_children_first(self.tree)
        self._label_bits = max(1, (problem.labels - 1).bit_length())
        self._sets: dict[tuple[int, ...], int] = {}
        self._nests: dict[int, int] = {}
        self._tests: dict[int, int] = {}
        self._truths: dict[int, tuple[Predicate, int]] = {}

    # --- truth values ---
    def truth(self, predicate: Predicate) -> int:
        """The literal of a predicate; the same object is lowered once."""
        known = self._truths.get(id(predicate))
        if known is None:
            known = self._truths[id(predicate)] = (predicate, self._truth(predicate))
        return known[1]

    def _truth(self, predicate: Predicate) -> int:
        match predicate:
            case Always(value):
                return TRUE if value else FALSE
            case Within(feature, low, high):
                return self.within(feature, low, high)
            case HasLabel(labels):
                return self._has_label(labels)
            case Sign(op, argument):
                return self._sign(op, self.number(argument))
            case Negation(argument):
                return self.truth(argument) ^ 1
            case AllOf(arguments):
                return self.circuit.all(self.truth(argument) for argument in arguments)
            case AnyOf(arguments):
                return self.circuit.any(self.truth(argument) for argument in arguments)

    def within(self, feature: int, low: int, high: int) -> int:
        """low ≤ position < high."""
        start, bits, width = self.low[feature], self.bits[feature], self.widths[feature]
        below_high = self._below(bits, high - start, width - 1)
        return self.circuit.conjunction(below_high, self._below(bits, low - start, width - 1) ^ 1)

    def _below(self, bits: tuple[int, ...], limit: int, top: int) -> int:
        """Whether the unsigned number, at most `top`, is less than the constant `limit`."""
        if limit > top:
            return TRUE
        result = FALSE
        if limit > 0:
            for place, bit in enumerate(bits):
                combine = self.circuit.disjunction if limit >> place & 1 else self.circuit.conjunction
                result = combine(bit ^ 1, result)
        return result

    def _sign(self, op: str, number: Number) -> int:
        limit = -number.offset
        if op == "<":
            return self._below(number.bits, limit, number.top)
        if op == "<=":
            return self._below(number.bits, limit + 1, number.top)
        equal = FALSE
        if 0 <= limit <= number.top:
            equal = self.circuit.all(bit ^ (1 - (limit >> place & 1)) for place, bit in enumerate(number.bits))
        return equal ^ (op == "!=")

    # --- the tree ---
    def _has_label(self, labels: tuple[int, ...]) -> int:
        """A nest of selects per set of labels, or over the label's bits once there are more sets than bits.

        Of a network: an input, or one turned round.
        """
        if self.tree is NO_TREE:
            if labels in self.label_inputs:
                return self.circuit.input(self.label_inputs[labels])
            rest = tuple(k for k in range(self.labels) if k not in labels)
            if rest in self.label_inputs:
                return self.circuit.input(self.label_inputs[rest]) ^ 1
            return TRUE if labels else FALSE
        if labels in self._sets:
            return self._sets[labels]
        if len(self._sets) < self._label_bits:
            members = frozenset(labels)
            found = self._nest([label in members for label in self.tree.label])
        else:
            bits = [self._label_bit(place) for place in range(self._label_bits)]
            found = self.circuit.any(
                self.circuit.all(bit ^ (1 - (label >> place & 1)) for place, bit in enumerate(bits)) for label in labels
            )
        self._sets[labels] = found
        return found

    def _label_bit(self, place: int) -> int:
        if place not in self._nests:
            self._nests[place] = self._nest([bool(label >> place & 1) for label in self.tree.label])
        return self._nests[place]

    def _nest(self, leaves: Sequence[bool]) -> int:
        tree, literals = self.tree, {}
        for node in self._order:
            if tree.feature[node] < 0:
                literals[node] = TRUE if leaves[node] else FALSE
                continue
            if node not in self._tests:
                self._tests[node] = self.within(tree.feature[node], tree.low[node], tree.high[node])
            literals[node] = self.circuit.choose(
                self._tests[node], literals[tree.right[node]], literals[tree.left[node]]
            )
        return literals[0]

    # --- numbers ---
    def number(self, expression: IntExpr) -> Number:
        """The bits of an integer expression."""
        match expression:
            case Linear(terms, constant):
                scaled = [self._scaled(self._position(feature), coefficient) for feature, coefficient in terms]
                return self._sum([Number(constant, (), 0), *scaled])
            case Plus(arguments):
                return self._sum([self.number(argument) for argument in arguments])
            case Times(left, right):
                return self._product(self.number(left), self.number(right))
            case FloorDiv(argument, divisor):
                return self._quotient(self.number(argument), divisor)
            case Extreme(which, arguments):
                numbers = [self.number(argument) for argument in arguments]
                result = numbers[0]
                for other in numbers[1:]:
                    result = self._extreme(result, other, which == "max")
                return result
            case CountOf(truths):
                return self._sum([Number(0, (self.truth(argument),), 1) for argument in truths])
            case Score():
                raise TooManyGatesError("scores of a network have no circuit")

    def _position(self, feature: int) -> Number:
        return Number(self.low[feature], self.bits[feature], self.widths[feature] - 1)

    def _sum(self, numbers: list[Number]) -> Number:
        """Smallest first, so that the adders stay narrow."""
        pending = sorted(numbers, key=lambda number: number.top)
        if not pending:
            return Number(0, (), 0)
        while len(pending) > 1:
            first, second = pending.pop(0), pending.pop(0)
            added = self._added(first, second)
            place = next((k for k, other in enumerate(pending) if other.top >= added.top), len(pending))
            pending.insert(place, added)
        return pending[0]

    def _added(self, x: Number, y: Number) -> Number:
        top, circuit, carry, bits = x.top + y.top, self.circuit, FALSE, []
        for place in range(top.bit_length()):
            a = x.bits[place] if place < len(x.bits) else FALSE
            b = y.bits[place] if place < len(y.bits) else FALSE
            odd = circuit.parity(a, b)
            bits.append(circuit.parity(odd, carry))
            carry = circuit.choose(odd, carry, a)
        return Number(x.offset + y.offset, tuple(bits), top)

    def _negated(self, x: Number) -> Number:
        """−x, by complementing the bits."""
        reach = (1 << len(x.bits)) - 1
        return Number(-x.offset - reach, tuple(bit ^ 1 for bit in x.bits), reach)

    def _scaled(self, x: Number, factor: int) -> Number:
        if factor < 0:
            return self._scaled(self._negated(x), -factor)
        shifted = [
            Number(0, (FALSE,) * place + x.bits, x.top << place)
            for place in range(factor.bit_length())
            if factor >> place & 1 and x.top
        ]
        total = self._sum(shifted)
        return replace(total, offset=x.offset * factor)

    def _product(self, x: Number, y: Number) -> Number:
        """(o + u)(p + v) = op + ov + pu + uv."""
        parts = [
            self._scaled(replace(y, offset=0), x.offset),
            self._scaled(replace(x, offset=0), y.offset),
            Number(x.offset * y.offset, (), 0),
        ]
        for place, bit in enumerate(x.bits):
            masked = tuple(self.circuit.conjunction(bit, other) for other in y.bits)
            if y.top:
                parts.append(Number(0, (FALSE,) * place + masked, y.top << place))
        return self._sum(parts)

    def _quotient(self, x: Number, divisor: int) -> Number:
        """⌊x / divisor⌋ by long division of x less a multiple of the divisor."""
        base, remainder = divmod(x.offset, divisor)
        shifted = self._added(Number(0, x.bits, x.top), _constant(remainder))
        rest: tuple[int, ...] = ()
        quotient = []
        width = divisor.bit_length()
        for bit in reversed(shifted.bits):
            rest = (bit, *rest)[: width + 1]
            small = self._below(rest, divisor, (1 << len(rest)) - 1)
            quotient.append(small ^ 1)
            less = self._less(rest, divisor)
            rest = tuple(self.circuit.choose(small, a, b) for a, b in zip(rest, less, strict=True))[:width]
        top = shifted.top // divisor
        return Number(base, tuple(reversed(quotient))[: top.bit_length()], top)

    def _less(self, bits: tuple[int, ...], constant: int) -> tuple[int, ...]:
        """The lowest bits of (number − constant), as many as the number has."""
        borrow, result = FALSE, []
        for place, bit in enumerate(bits):
            taken = TRUE if constant >> place & 1 else FALSE
            result.append(self.circuit.parity(self.circuit.parity(bit, taken), borrow))
            join = self.circuit.disjunction if taken else self.circuit.conjunction
            borrow = join(bit ^ 1, borrow)
        return tuple(result)

    def _extreme(self, x: Number, y: Number, largest: bool) -> Number:
        base = min(x.offset, y.offset)
        x, y = (replace(self._added(replace(n, offset=0), _constant(n.offset - base)), offset=base) for n in (x, y))
        top = max(x.top, y.top)
        length = top.bit_length()
        a, b = (n.bits + (FALSE,) * (length - len(n.bits)) for n in (x, y))
        x_less = FALSE
        for p, q in zip(a, b, strict=True):
            x_less = self.circuit.choose(self.circuit.parity(p, q), q, x_less)
        first, second = (b, a) if largest else (a, b)
        top = top if largest else min(x.top, y.top)
        bits = tuple(self.circuit.choose(x_less, p, q) for p, q in zip(first, second, strict=True))
        return Number(base, bits[: top.bit_length()], top)


def _constant(value: int) -> Number:
    bits = tuple(TRUE if value >> place & 1 else FALSE for place in range(value.bit_length()))
    return Number(0, bits, value)


def nodes_children_first(tree: GridTree) -> list[int]:
    """The nodes below the root, every node after its children."""
    order: list[int] = []
    done: set[int] = set()
    stack = [(0, False)]
    while stack:
        node, expanded = stack.pop()
        if node in done:
            continue
        if expanded or tree.feature[node] < 0:
            done.add(node)
            order.append(node)
        else:
            stack += [(node, True), (tree.left[node], False), (tree.right[node], False)]
    return order

"""Integer predicates to interned formulas in negation normal form, which a box of positions makes smaller.

Every formula and number is an index into a `Clauses` store, equal ones sharing theirs, so that engines compare and
merge them as integers. Formulas are free of labels and negations: those are resolved when a predicate is added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

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

FALSE, TRUE = 0, 1
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class In:
    """low ≤ position of the feature < high."""

    feature: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Compare:
    """Σ coefficient·position + constant op 0 with op one of <=, ==, !=; two or more features."""

    op: str
    terms: tuple[tuple[int, int], ...]
    constant: int


@dataclass(frozen=True, slots=True)
class Test:
    """number op 0 for a number that is not linear."""

    op: str
    number: int


@dataclass(frozen=True, slots=True)
class Junction:
    """Conjunction or disjunction of two or more formulas, ascending."""

    every: bool
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Affine:
    """constant + Σ coefficient·position."""

    terms: tuple[tuple[int, int], ...]
    constant: int


@dataclass(frozen=True, slots=True)
class Function:
    """plus, times (two), min, max or count (of formulas) of the arguments; div is the floor by `divisor`."""

    name: str
    arguments: tuple[int, ...]
    divisor: int = 1


@dataclass(frozen=True, slots=True)
class Constant:
    """A truth value."""

    value: bool


Formula = Constant | In | Compare | Test | Junction | Affine | Function


@dataclass(slots=True)
class Box:
    """Ranges of the features: those that were narrowed, over those of the region."""

    region: Sequence[Range]
    narrowed: Mapping[int, Range] = field(default_factory=dict)

    def __getitem__(self, feature: int) -> Range:
        return self.narrowed.get(feature) or self.region[feature]


class Clauses:
    """The store. `sizes` bound the positions that negated ranges are completed to."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self.nodes: list[Formula] = []
        self.features: list[int] = []
        """Per node the set of features it reads, as a bit mask."""
        self._places: dict[Formula, int] = {}
        self._negated: dict[int, int] = {}
        self.intern(Constant(False))
        self.intern(Constant(True))

    def intern(self, node: Formula) -> int:
        """The index of a node, which must already be in its normal form."""
        place = self._places.get(node)
        if place is None:
            place = self._places[node] = len(self.nodes)
            self.nodes.append(node)
            self.features.append(self._mask(node))
        return place

    def _mask(self, node: Formula) -> int:
        if isinstance(node, In):
            return 1 << node.feature
        if isinstance(node, Compare | Affine):
            return sum(1 << feature for feature, _ in node.terms)
        mask = 0
        if isinstance(node, Junction | Function):
            for argument in node.arguments:
                mask |= self.features[argument]
        elif isinstance(node, Test):
            mask = self.features[node.number]
        return mask

    # --- building ------------------------------------------------------------------------------------------------
    def add(self, predicate: Predicate, label: int, negate: bool = False) -> int:
        """The formula of a predicate (or of its negation) for points whose class index is `label`."""
        if isinstance(predicate, Always):
            return int(predicate.value != negate)
        if isinstance(predicate, HasLabel):
            return int((label in predicate.labels) != negate)
        if isinstance(predicate, Negation):
            return self.add(predicate.argument, label, not negate)
        if isinstance(predicate, AllOf | AnyOf):
            every = isinstance(predicate, AllOf) != negate
            return self.junction(every, (self.add(argument, label, negate) for argument in predicate.arguments))
        if isinstance(predicate, Within):
            return self._within(predicate, negate)
        if isinstance(predicate, Sign):
            number = self.number(predicate.argument, label)
            if predicate.op in ("==", "!="):
                return self.test("==" if (predicate.op == "==") != negate else "!=", number)
            number = self.shifted(number, 1) if predicate.op == "<" else number
            return self.test("<=", self.shifted(self._opposite(number), 1) if negate else number)
        assert_never(predicate)

    def _within(self, predicate: Within, negate: bool) -> int:
        size = self._sizes[predicate.feature]
        low, high = max(0, predicate.low), min(size, predicate.high)
        if low >= high:
            return int(negate)
        ranges = ((0, low), (high, size)) if negate else ((low, high),)
        return self.junction(False, (self._range(predicate.feature, a, b, 0, size) for a, b in ranges))

    def _range(self, feature: int, low: int, high: int, first: int, last: int) -> int:
        """The feature lies in [low, high), of all that lies in [first, last)."""
        low, high = max(low, first), min(high, last)
        if low >= high:
            return FALSE
        return TRUE if (low, high) == (first, last) else self.intern(In(feature, low, high))

    def junction(self, every: bool, arguments: Iterable[int]) -> int:
        """Conjunction (or disjunction) in normal form."""
        absorbing, kept = int(not every), set[int]()
        for argument in arguments:
            if argument == absorbing:
                return absorbing
            node = self.nodes[argument]
            if isinstance(node, Junction) and node.every == every:
                kept.update(node.arguments)
            elif argument != 1 - absorbing:
                kept.add(argument)
        if not kept:
            return 1 - absorbing
        return kept.pop() if len(kept) == 1 else self.intern(Junction(every, tuple(sorted(kept))))

    def negated(self, formula: int) -> int:
        """The formula that is true where `formula` is false."""
        found = self._negated.get(formula)
        if found is None:
            found = self._negated[formula] = self._negate(formula)
        return found

    def _negate(self, formula: int) -> int:
        node = self.nodes[formula]
        if isinstance(node, Constant):
            return int(not node.value)
        if isinstance(node, In):
            return self._within(Within(node.feature, node.low, node.high), True)
        if isinstance(node, Junction):
            return self.junction(not node.every, (self.negated(argument) for argument in node.arguments))
        if isinstance(node, Compare):
            number = self.affine(node.terms, node.constant)
        else:
            assert isinstance(node, Test)
            number = node.number
        if node.op == "<=":
            return self.test("<=", self.shifted(self._opposite(number), 1))
        return self.test("!=" if node.op == "==" else "==", number)

    # --- numbers -------------------------------------------------------------------------------------------------
    def number(self, expression: IntExpr, label: int) -> int:
        """The index of a number for points whose class index is `label`."""
        if isinstance(expression, Linear):
            return self.affine(expression.terms, expression.constant)
        if isinstance(expression, CountOf):
            return self.count(self.add(argument, label) for argument in expression.arguments)
        if isinstance(expression, Plus):
            return self.plus([self.number(argument, label) for argument in expression.arguments])
        if isinstance(expression, Extreme):
            return self.extreme(expression.which, [self.number(argument, label) for argument in expression.arguments])
        if isinstance(expression, Times):
            return self.times(self.number(expression.left, label), self.number(expression.right, label))
        if isinstance(expression, FloorDiv):
            return self.floor(self.number(expression.argument, label), expression.divisor)
        if isinstance(expression, Score):
            raise TypeError("scores belong to networks")
        assert_never(expression)

    def affine(self, terms: Iterable[tuple[int, int]], constant: int) -> int:
        """constant + Σ coefficient·position; terms may repeat a feature."""
        merged: dict[int, int] = {}
        for feature, coefficient in terms:
            merged[feature] = merged.get(feature, 0) + coefficient
        return self.intern(Affine(tuple(sorted((f, c) for f, c in merged.items() if c)), constant))

    def constant_of(self, number: int) -> int | None:
        """The value of a number that is constant."""
        node = self.nodes[number]
        return node.constant if isinstance(node, Affine) and not node.terms else None

    def count(self, formulas: Iterable[int]) -> int:
        """How many of the formulas are true."""
        sure, open_ones = 0, []
        for formula in formulas:
            if formula == TRUE:
                sure += 1
            elif formula != FALSE:
                open_ones.append(formula)
        if not open_ones:
            return self.affine((), sure)
        return self.shifted(self.intern(Function("count", tuple(sorted(open_ones)))), sure)

    def plus(self, numbers: Sequence[int]) -> int:
        """The sum, with its linear part collected."""
        terms: list[tuple[int, int]] = []
        constant, others = 0, list[int]()
        stack = list(numbers)
        while stack:
            number = stack.pop()
            node = self.nodes[number]
            if isinstance(node, Affine):
                terms.extend(node.terms)
                constant += node.constant
            elif isinstance(node, Function) and node.name == "plus":
                stack.extend(node.arguments)
            else:
                others.append(number)
        linear = self.affine(terms, constant)
        if not others:
            return linear
        if self.constant_of(linear) != 0:
            others.append(linear)
        return others[0] if len(others) == 1 else self.intern(Function("plus", tuple(sorted(others))))

    def shifted(self, number: int, by: int) -> int:
        """number + by."""
        return self.plus([number, self.affine((), by)]) if by else number

    def _opposite(self, number: int) -> int:
        return self.times(number, self.affine((), -1))

    def times(self, left: int, right: int) -> int:
        """The product; constants are multiplied into sums and extremes."""
        if self.constant_of(left) is not None:
            left, right = right, left
        factor = self.constant_of(right)
        node = self.nodes[left]
        if factor is None:
            return self.intern(Function("times", (min(left, right), max(left, right))))
        if factor == 0:
            return self.affine((), 0)
        if isinstance(node, Affine):
            return self.affine(((f, c * factor) for f, c in node.terms), node.constant * factor)
        if factor == 1:
            return left
        if isinstance(node, Function) and node.name == "plus":
            return self.plus([self.times(argument, right) for argument in node.arguments])
        if isinstance(node, Function) and node.name in ("min", "max"):
            which = node.name if factor > 0 else "max" if node.name == "min" else "min"
            return self.extreme(which, [self.times(argument, right) for argument in node.arguments])
        if isinstance(node, Function) and node.name == "times":
            for one, other in (node.arguments, node.arguments[::-1]):
                if (inner := self.constant_of(other)) is not None:
                    return self.times(one, self.affine((), inner * factor))
        return self.intern(Function("times", (min(left, right), max(left, right))))

    def extreme(self, which: str, numbers: Sequence[int]) -> int:
        """The smallest or largest of the numbers."""
        choose = min if which == "min" else max
        kept = set(numbers)
        constants = {number: value for number in kept if (value := self.constant_of(number)) is not None}
        if len(constants) > 1:
            kept -= constants.keys()
            kept.add(self.affine((), choose(constants.values())))
        return kept.pop() if len(kept) == 1 else self.intern(Function(which, tuple(sorted(kept))))

    def floor(self, number: int, divisor: int) -> int:
        """⌊number / divisor⌋."""
        node = self.nodes[number]
        if divisor == 1:
            return number
        if isinstance(node, Affine) and all(c % divisor == 0 for _, c in node.terms):
            return self.affine(((f, c // divisor) for f, c in node.terms), node.constant // divisor)
        return self.intern(Function("div", (number,), divisor))

    def test(self, op: str, number: int, box: Box | None = None) -> int:
        """number op 0 with op one of <=, ==, != (on a box, when given): constants, ranges, linear tests or the rest."""
        node = self.nodes[number]
        if isinstance(node, Affine):
            return self._linear(op, node, box)
        if op == "<=" and isinstance(node, Function):
            split = self._distributed(node)
            if split is not None:
                return self.junction(split[0], (self.test("<=", argument, box) for argument in split[1]))
        if box is not None:
            decided = _decided(op, *self.bounds(number, box))
            if decided is not None:
                return decided
        return self.intern(Test(op, number))

    def _distributed(self, node: Function) -> tuple[bool, list[int]] | None:
        """max(…) + r <= 0 is every … + r <= 0, and min(…) any; for up to two extremes in a sum, as it multiplies."""
        if node.name in ("min", "max"):
            return node.name == "max", list(node.arguments)
        if node.name != "plus":
            return None
        inner = [(a, n) for a in node.arguments if isinstance(n := self.nodes[a], Function)]
        extremes = [(a, n) for a, n in inner if n.name in ("min", "max")]
        if not 1 <= len(extremes) <= 2:
            return None
        chosen, extreme = extremes[0]
        rest = [other for other in node.arguments if other != chosen]
        return extreme.name == "max", [self.plus([choice, *rest]) for choice in extreme.arguments]

    def _linear(self, op: str, node: Affine, box: Box | None) -> int:
        terms, constant = node.terms, node.constant
        if box is not None:
            fixed = {f: low for f, _ in terms for low, high in (box[f],) if high - low == 1}
            constant += sum(c * fixed[f] for f, c in terms if f in fixed)
            terms = tuple((f, c) for f, c in terms if f not in fixed)
        common = math.gcd(*(c for _, c in terms))
        if not common:
            return int(constant <= 0 if op == "<=" else (constant == 0) == (op == "=="))
        if op == "<=":
            constant = -(-constant // common)
        elif constant % common:
            return int(op == "!=")
        else:
            constant //= common
        terms = tuple((f, c // common) for f, c in terms)
        if op != "<=" and terms[0][1] < 0:
            terms, constant = tuple((f, -c) for f, c in terms), -constant
        if len(terms) == 1:
            return self._one_feature(op, *terms[0], constant, box)
        if box is not None:
            decided = _decided(op, *affine_bounds(terms, constant, box))
            if decided is not None:
                return decided
        return self.intern(Compare(op, terms, constant))

    def _one_feature(self, op: str, feature: int, coefficient: int, constant: int, box: Box | None) -> int:
        """±position + constant op 0 as ranges: the coefficient is 1 or −1 after division."""
        first, last = (0, self._sizes[feature]) if box is None else box[feature]
        if op == "<=":
            low, high = (first, 1 - constant) if coefficient > 0 else (constant, last)
            return self._range(feature, low, high, first, last)
        ranges = ((-constant, 1 - constant),) if op == "==" else ((first, -constant), (1 - constant, last))
        return self.junction(False, (self._range(feature, low, high, first, last) for low, high in ranges))

    # --- on a box ------------------------------------------------------------------------------------------------
    def bounds(self, number: int, box: Box) -> Range:
        """Both ends (included) of an interval that holds the number everywhere in the box."""
        node = self.nodes[number]
        if isinstance(node, Affine):
            return affine_bounds(node.terms, node.constant, box)
        assert isinstance(node, Function)
        if node.name == "count":
            return 0, len(node.arguments)
        ends = [self.bounds(argument, box) for argument in node.arguments]
        lows, highs = [low for low, _ in ends], [high for _, high in ends]
        if node.name == "plus":
            return sum(lows), sum(highs)
        if node.name == "min":
            return min(lows), min(highs)
        if node.name == "max":
            return max(lows), max(highs)
        if node.name == "div":
            return lows[0] // node.divisor, highs[0] // node.divisor
        corners = [a * b for a in ends[0] for b in ends[1]]
        return min(corners), max(corners)

    def restrict(self, formula: int, box: Box, changed: int) -> int:
        """A formula equal to `formula` on the box; only what reads a feature of the mask `changed` is looked at."""
        if not self.features[formula] & changed:
            return formula
        node = self.nodes[formula]
        if isinstance(node, In):
            return self._range(node.feature, node.low, node.high, *box[node.feature])
        if isinstance(node, Compare):
            return self._linear(node.op, Affine(node.terms, node.constant), box)
        if isinstance(node, Junction):
            return self.junction(node.every, (self.restrict(a, box, changed) for a in node.arguments))
        assert isinstance(node, Test)
        return self.test(node.op, self._restrict_number(node.number, box, changed), box)

    def _restrict_number(self, number: int, box: Box, changed: int) -> int:
        if not self.features[number] & changed:
            return number
        node = self.nodes[number]
        if isinstance(node, Affine):
            fixed = {f: low for f, _ in node.terms for low, high in (box[f],) if high - low == 1}
            constant = node.constant + sum(c * fixed[f] for f, c in node.terms if f in fixed)
            return self.affine(((f, c) for f, c in node.terms if f not in fixed), constant)
        assert isinstance(node, Function)
        if node.name == "count":
            return self.count(self.restrict(argument, box, changed) for argument in node.arguments)
        arguments = [self._restrict_number(argument, box, changed) for argument in node.arguments]
        if node.name == "plus":
            return self.plus(arguments)
        if node.name == "times":
            return self.times(*arguments)
        if node.name == "div":
            return self.floor(arguments[0], node.divisor)
        return self._restrict_extreme(node.name, arguments, box)

    def _restrict_extreme(self, which: str, arguments: list[int], box: Box) -> int:
        """Without the arguments that another one beats everywhere in the box."""
        ends = [self.bounds(argument, box) for argument in arguments]
        if which == "min":
            best = min(high for _, high in ends)
            kept = [a for a, (low, _) in zip(arguments, ends, strict=True) if low <= best]
        else:
            best = max(low for low, _ in ends)
            kept = [a for a, (_, high) in zip(arguments, ends, strict=True) if high >= best]
        return self.extreme(which, kept)

    def used(self, formula: int) -> list[int]:
        """The features that the formula reads, ascending."""
        mask, found = self.features[formula], []
        while mask:
            lowest = mask & -mask
            found.append(lowest.bit_length() - 1)
            mask ^= lowest
        return found


def affine_bounds(terms: Iterable[tuple[int, int]], constant: int, box: Box) -> Range:
    """Smallest and largest value of constant + Σ coefficient·position in the box."""
    low = high = constant
    for feature, coefficient in terms:
        first, last = box[feature]
        if coefficient > 0:
            low, high = low + coefficient * first, high + coefficient * (last - 1)
        else:
            low, high = low + coefficient * (last - 1), high + coefficient * first
    return low, high


def _decided(op: str, low: int, high: int) -> int | None:
    """The truth of number op 0 for a number in [low, high], None when it depends."""
    if op == "<=":
        return TRUE if high <= 0 else FALSE if low > 0 else None
    if low > 0 or high < 0:
        return int(op == "!=")
    return int(op == "==") if low == high == 0 else None

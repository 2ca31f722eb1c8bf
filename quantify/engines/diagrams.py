"""Label-free predicates over a box go in, binary decision diagrams come out (dd on CUDD, else dd in Python).

A position p of feature f with low ≤ p < high is the binary code p − low, most significant bit first, features in
order, no reordering: row by row for relations. Codes past the last position mean nothing: diagrams may say anything
there, and whoever counts must leave them out.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cache, reduce
from importlib.util import find_spec
from typing import Any, assert_never

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
from quantify.ir.problem import Ball

Function = Any
"""A diagram: an object of dd, which ships no types."""
Word = tuple[Function, ...]
"""A two's complement integer, least significant bit first; the last bit is the sign."""

FIRST_MEMORY = 256 * 2**20
"""Bytes that CUDD may use at first. One operation cannot be interrupted, so the limit is raised in steps, with a look
at the clock between them: an operation that is cut short has cost at most about as much as all the work before it."""
GROWTH = 1.6
SPLITS = 4_000_000
"""Most states of one linear threshold."""


class Stopped(Exception):
    """A limit was reached; the text says which."""


@cache
def library() -> tuple[Any, bool] | None:
    """The BDD class of dd and whether it is CUDD's, or None when dd is not installed."""
    try:
        from dd.cudd import BDD

        return BDD, True
    except ImportError:
        pass
    try:
        from dd.autoref import BDD
    except ImportError:
        return None
    return BDD, False


@cache
def is_installed() -> bool:
    """Whether dd is there; unlike `library`, this imports nothing heavy."""
    return find_spec("dd") is not None


def physical_memory() -> int:
    """Bytes of main memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Space:
    """The binary coding of a box: which level of a diagram holds which bit of which feature."""

    def __init__(self, low: Sequence[int], high: Sequence[int]) -> None:
        self.low = tuple(low)
        self.high = tuple(high)
        self.bits: list[int] = [max(0, b - a - 1).bit_length() for a, b in zip(low, high, strict=True)]
        self.first: list[int] = []
        """Level of each feature's most significant bit."""
        self.feature_at: list[int] = []
        """Feature of each level."""
        for feature, count in enumerate(self.bits):
            self.first.append(len(self.feature_at))
            self.feature_at.extend([feature] * count)

    @property
    def levels(self) -> int:
        """Number of bits."""
        return len(self.feature_at)


class Workspace:
    """One diagram manager for one box, with every diagram built so far by its predicate."""

    def __init__(self, space: Space) -> None:
        found = library()
        assert found is not None
        make, self.native = found
        self.space = space
        if self.native:
            self._limit = min(FIRST_MEMORY, physical_memory() // 2)
            self.manager = make(memory_estimate=self._limit, initial_cache_size=2**14)
            self.manager.configure(reordering=False, max_memory=self._limit)
        else:
            self._limit = 0
            self.manager = make()
        self._budget = self._limit
        self._tick: Callable[[], None] = lambda: None
        names = [f"b{level}" for level in range(space.levels)]
        if names:
            self.manager.declare(*names)
        self.bit: list[Function] = [self.manager.var(name) for name in names]
        self.true: Function = self.manager.true
        self.false: Function = self.manager.false
        self._known: dict[Predicate, Function] = {}
        self._at_least: dict[tuple[int, int], Function] = {}

    def allow(self, budget: int, tick: Callable[[], None]) -> None:
        """Set the memory budget in bytes, and what is called often to look at the clock (it raises `Stopped`)."""
        self._budget, self._tick = budget, tick
        if self.native and self._limit > budget:
            self._limit = budget
            self.manager.configure(max_memory=budget)

    # --- guarded operations ------------------------------------------------------------------------------------
    def _do(self, operation: Callable[..., Function], *arguments: Function) -> Function:
        while True:
            self._tick()
            try:
                return operation(*arguments)
            except (ValueError, RuntimeError) as error:
                # dd wraps CUDD's null pointer, its word for "no memory", in one of these two.
                if not self.native or not ("NULL" in str(error) or "memory" in str(error)):
                    raise
                self._more_memory()

    def _more_memory(self) -> None:
        if self._limit >= self._budget:
            raise Stopped("the memory limit was reached")
        self._limit = min(self._budget, int(self._limit * GROWTH))
        self.manager.configure(max_memory=self._limit)

    def both(self, one: Function, other: Function) -> Function:
        """one and other."""
        return self._do(one.__and__, other)

    def either(self, one: Function, other: Function) -> Function:
        """one or other."""
        return self._do(one.__or__, other)

    def differ(self, one: Function, other: Function) -> Function:
        """one xor other."""
        return self.choose(one, ~other, other)

    def choose(self, test: Function, then: Function, otherwise: Function) -> Function:
        """test ? then : otherwise."""
        return self._do(self.manager.ite, test, then, otherwise)

    def _gather(self, join: Callable[[Function, Function], Function], parts: Iterable[Function]) -> Function:
        """Join in pairs, the deepest first: intermediate diagrams stay small and over neighbouring levels."""
        rest = sorted(parts, key=lambda part: -part.level)
        while len(rest) > 1:
            paired = [join(rest[i], rest[i + 1]) for i in range(0, len(rest) - 1, 2)]
            rest = paired + rest[2 * len(paired) :]
        return rest[0]

    # --- truth values ------------------------------------------------------------------------------------------
    def build(self, predicate: Predicate) -> Function:
        """The diagram of a predicate without HasLabel.

        Raises:
            Stopped: Time, memory or the states of a threshold ran out.
        """
        if isinstance(predicate, Always):
            return self.true if predicate.value else self.false
        if isinstance(predicate, Within):
            return self.within(predicate.feature, predicate.low, predicate.high)
        if isinstance(predicate, HasLabel):
            raise TypeError("labels must be replaced before a diagram is built")
        if isinstance(predicate, Negation):
            return ~self.build(predicate.argument)
        found = self._known.get(predicate)
        if found is None:
            found = self._known[predicate] = self._make(predicate)
        return found

    def _make(self, predicate: Sign | AllOf | AnyOf) -> Function:
        if isinstance(predicate, Sign):
            return self._sign(predicate)
        parts = [self.build(argument) for argument in predicate.arguments]
        if isinstance(predicate, AllOf):
            return self._gather(self.both, parts) if parts else self.true
        return self._gather(self.either, parts) if parts else self.false

    def within(self, feature: int, low: int, high: int) -> Function:
        """low ≤ position of `feature` < high."""
        start = self.space.low[feature]
        width = self.space.high[feature] - start
        first, last = max(0, low - start), min(width, high - start)
        if first >= last:
            return self.false
        below = self.true if last == width else ~self.code_at_least(feature, last)
        return self.both(self.code_at_least(feature, first), below)

    def code_at_least(self, feature: int, code: int) -> Function:
        """code of `feature` ≥ `code`, 0 ≤ code < 2^bits."""
        key = (feature, code)
        found = self._at_least.get(key)
        if found is None:
            found = self.true
            level = self.space.first[feature] + self.space.bits[feature]
            for place in range(self.space.bits[feature]):
                level -= 1
                bit = self.bit[level]
                found = self.both(bit, found) if code >> place & 1 else self.either(bit, found)
            self._at_least[key] = found
        return found

    def ball(self, ball: Ball) -> Function:
        """Whether a point of the ball's box is in the ball; distances are added up from the last feature on."""
        # within_reach[d]: the features so far are at a distance of at most d.
        within_reach = [self.true] * (ball.radius + 1)
        for feature in range(len(ball.centre) - 1, -1, -1):
            start, stop, centre = self.space.low[feature], self.space.high[feature], ball.centre[feature]
            if stop - start == 1 and start == centre:
                continue
            if ball.norm == "l0":
                steps = {0: self.within(feature, centre, centre + 1)}
                steps[1] = ~steps[0]
            else:
                steps = self._distances(feature, start, stop, ball)
            farther = []
            for distance in range(ball.radius + 1):
                fits = self.false
                for step, here in steps.items():
                    if step <= distance:
                        fits = self.choose(here, within_reach[distance - step], fits)
                farther.append(fits)
            within_reach = farther
        return within_reach[ball.radius]

    def _distances(self, feature: int, start: int, stop: int, ball: Ball) -> dict[int, Function]:
        centre, weight = ball.centre[feature], ball.weights[feature]
        if weight == 0:
            return {0: self.true}
        steps: dict[int, Function] = {}
        reach = ball.radius // weight
        for position in range(max(start, centre - reach), min(stop, centre + reach + 1)):
            here = self.within(feature, position, position + 1)
            distance = abs(position - centre) * weight
            steps[distance] = self.either(steps[distance], here) if distance in steps else here
        return steps

    # --- comparisons -------------------------------------------------------------------------------------------
    def _sign(self, sign: Sign) -> Function:
        if sign.op == "!=":
            return ~self.build(Sign("==", sign.argument))
        form = as_linear(sign.argument)
        if form is not None:
            shift = 1 if sign.op == "<=" else 0  # n ≤ 0 is n − 1 < 0
            return self._threshold(form, shift, equal=sign.op == "==")
        word = self.word(sign.argument)
        if sign.op == "<":
            return word[-1]
        zero = ~reduce(self.either, word)
        return zero if sign.op == "==" else self.either(word[-1], zero)

    def _threshold(self, form: Linear, shift: int, *, equal: bool) -> Function:
        """The diagram of form − shift < 0 (or = 0), each state standing for a whole interval of partial sums.

        Source: Eén and Sörensson, Translating Pseudo-Boolean Constraints into SAT, 2006, section 5.3, with the
        intervals of Abío et al., A New Look at BDDs for Pseudo-Boolean Constraints, 2012.
        """
        constant = form.constant - shift
        terms: list[tuple[int, int]] = []
        for feature, coefficient in form.terms:
            constant += coefficient * self.space.low[feature]
            first, bits = self.space.first[feature], self.space.bits[feature]
            terms.extend((first + i, coefficient << (bits - 1 - i)) for i in range(bits))
        return _Threshold(self, terms, equal).diagram(constant)

    # --- words -------------------------------------------------------------------------------------------------
    def word(self, expression: IntExpr) -> Word:
        """The integer as bits."""
        if isinstance(expression, Linear):
            return self._linear_word(expression)
        if isinstance(expression, Plus):
            return reduce(self.add, [self.word(a) for a in expression.arguments], self.number(0))
        if isinstance(expression, Times):
            return self.multiply(self.word(expression.left), self.word(expression.right))
        if isinstance(expression, FloorDiv):
            return self.floor_divide(self.word(expression.argument), expression.divisor)
        if isinstance(expression, Extreme):
            return reduce(
                lambda one, other: self._extreme(expression.which == "max", one, other),
                [self.word(a) for a in expression.arguments],
            )
        if isinstance(expression, CountOf):
            words = [(self.build(a), self.false) for a in expression.arguments]
            return reduce(self.add, words, self.number(0))
        if isinstance(expression, Score):
            raise TypeError("scores belong to networks")
        assert_never(expression)

    def _linear_word(self, form: Linear) -> Word:
        constant = form.constant
        total = self.number(0)
        for feature, coefficient in form.terms:
            constant += coefficient * self.space.low[feature]
            first, bits = self.space.first[feature], self.space.bits[feature]
            code = (*reversed(self.bit[first : first + bits]), self.false)
            total = self.add(total, self.multiply(code, self.number(coefficient)))
        return self.add(total, self.number(constant))

    def number(self, value: int) -> Word:
        """A constant."""
        return tuple(self.true if value >> i & 1 else self.false for i in range(value.bit_length() + 1))

    def _trimmed(self, bits: list[Function]) -> Word:
        while len(bits) > 1 and bits[-1] == bits[-2]:
            bits.pop()
        return tuple(bits)

    @staticmethod
    def _extended(word: Word, length: int) -> Word:
        return word + (word[-1],) * (length - len(word))

    def add(self, one: Word, other: Word) -> Word:
        """one + other."""
        length = max(len(one), len(other)) + 1
        carry = self.false
        bits = []
        for a, b in zip(self._extended(one, length), self._extended(other, length), strict=True):
            half = self.differ(a, b)
            bits.append(self.differ(half, carry))
            carry = self.choose(half, carry, a)
        return self._trimmed(bits)

    def negate(self, word: Word) -> Word:
        """−word."""
        flipped = tuple(~bit for bit in self._extended(word, len(word) + 1))
        return self.add(flipped, self.number(1))

    def multiply(self, one: Word, other: Word) -> Word:
        """one · other; the sign bit of a two's complement number weighs −2^(n−1)."""
        total = self.number(0)
        for place, bit in enumerate(other):
            if bit == self.false:
                continue
            part = (self.false,) * place + tuple(self.both(a, bit) for a in one)
            total = self.add(total, self.negate(part) if place == len(other) - 1 else part)
        return total

    def floor_divide(self, word: Word, divisor: int) -> Word:
        """⌊word / divisor⌋, divisor > 0: long division of the word moved up to be non-negative."""
        lift = 1 << len(word)
        raised = self.add(word, self.number(lift * divisor))
        minus = self.number(-divisor)
        remainder, quotient = self.number(0), []
        for bit in reversed(raised[:-1]):
            remainder = self._trimmed([bit, *remainder])
            less = self.add(remainder, minus)
            fits = ~less[-1]
            quotient.append(fits)
            remainder = self._select(fits, less, remainder)
        return self.add(self._trimmed([*reversed(quotient), self.false]), self.number(-lift))

    def _select(self, test: Function, then: Word, otherwise: Word) -> Word:
        length = max(len(then), len(otherwise))
        pairs = zip(self._extended(then, length), self._extended(otherwise, length), strict=True)
        return self._trimmed([self.choose(test, a, b) for a, b in pairs])

    def _extreme(self, largest: bool, one: Word, other: Word) -> Word:
        smaller = self.add(one, self.negate(other))[-1]
        return self._select(smaller, other, one) if largest else self._select(smaller, one, other)


class _Threshold:
    """Builder of one linear threshold: Σ coefficient·bit + start < 0 (or = 0)."""

    def __init__(self, workspace: Workspace, terms: list[tuple[int, int]], equal: bool) -> None:
        self._workspace, self._terms, self._equal = workspace, terms, equal
        self._least, self._most = [0], [0]
        for _, coefficient in reversed(terms):
            self._least.append(self._least[-1] + min(0, coefficient))
            self._most.append(self._most[-1] + max(0, coefficient))
        self._least.reverse()
        self._most.reverse()
        # Per depth, disjoint intervals of the partial sum by their lower ends: (lower, upper, diagram).
        self._lows: list[list[int]] = [[] for _ in range(len(terms) + 1)]
        self._states: list[list[tuple[int, int, Function]]] = [[] for _ in range(len(terms) + 1)]
        self._count = 0

    def diagram(self, start: int) -> Function:
        """The diagram for the constant `start`, by an explicit depth-first walk."""
        self._far = 2 * (abs(start) + self._most[0] - self._least[0]) + 1
        stack = [(0, start)]
        while stack:
            depth, total = stack[-1]
            if self._find(depth, total) is not None:
                stack.pop()
                continue
            level, coefficient = self._terms[depth]
            low = self._find(depth + 1, total)
            high = self._find(depth + 1, total + coefficient)
            if low is None:
                stack.append((depth + 1, total))
            elif high is None:
                stack.append((depth + 1, total + coefficient))
            else:
                node = self._workspace.choose(self._workspace.bit[level], high[2], low[2])
                self._insert(depth, max(low[0], high[0] - coefficient), min(low[1], high[1] - coefficient), node)
                stack.pop()
        found = self._find(0, start)
        assert found is not None
        return found[2]

    def _find(self, depth: int, total: int) -> tuple[int, int, Function] | None:
        """The interval of partial sums around `total` that share a diagram."""
        if total + self._most[depth] < 0:
            return -self._far, -self._most[depth] - 1, self._workspace.false if self._equal else self._workspace.true
        if self._equal and total + self._least[depth] > 0:
            return 1 - self._least[depth], self._far, self._workspace.false
        if not self._equal and total + self._least[depth] >= 0:
            return -self._least[depth], self._far, self._workspace.false
        if depth == len(self._terms):
            return 0, 0, self._workspace.true
        place = bisect_right(self._lows[depth], total) - 1
        if place >= 0 and total <= self._states[depth][place][1]:
            return self._states[depth][place]
        return None

    def _insert(self, depth: int, lower: int, upper: int, node: Function) -> None:
        self._count += 1
        if self._count > SPLITS:
            raise Stopped(f"a comparison needs more than {SPLITS:,} states")
        place = bisect_right(self._lows[depth], lower)
        self._lows[depth].insert(place, lower)
        self._states[depth].insert(place, (lower, upper, node))


def as_linear(expression: IntExpr) -> Linear | None:
    """The expression as one linear form, when it is a sum of such."""
    if isinstance(expression, Linear):
        return expression
    if not isinstance(expression, Plus):
        return None
    sums: dict[int, int] = {}
    constant = 0
    for argument in expression.arguments:
        part = as_linear(argument)
        if part is None:
            return None
        constant += part.constant
        for feature, coefficient in part.terms:
            sums[feature] = sums.get(feature, 0) + coefficient
    return Linear(tuple((f, c) for f, c in sorted(sums.items()) if c), constant)

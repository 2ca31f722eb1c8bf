"""Property expression to integer predicate: `ir.property` over exact values becomes `ir.predicate` over positions.

The meaning is kept exactly: `holds(lowered, positions, label)` equals the truth of the expression at the values of
these positions. What has no exact form over positions (arithmetic over float32 features beyond comparisons of one
with a constant, or of two with each other) is refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import NoReturn, assert_never

from quantify.discretise import numbers
from quantify.discretise.comparisons import Axes, all_of, any_of, compare_with_zero, negation, position_runs
from quantify.discretise.numbers import ONE, Number, combined
from quantify.errors import InputError
from quantify.ir.domain import Feature
from quantify.ir.predicate import Always, CountOf, HasLabel, Predicate, Score, Within
from quantify.ir.property import (
    Aggregate,
    And,
    Arithmetic,
    BoolExpr,
    CategoryIn,
    Compare,
    Constant,
    CountTrue,
    FeatureValue,
    FloorDivide,
    IsMissing,
    LabelIn,
    Modulo,
    Negate,
    Not,
    NumberExpr,
    Or,
    ScoreValue,
    Truth,
)
from quantify.ir.ranges import on_box

MOST_CASES = 64
"""Case splits (abs, min, max over float32 features) that one comparison may multiply up to."""

Cases = tuple[tuple[Predicate, Number], ...]
"""A number by cases: at every input without missing values some condition holds, and each that does gives it."""


def refuse_float32(features: Sequence[Feature], number: Number) -> NoReturn:
    """Raise the error for arithmetic that is not exact over positions.

    Raises:
        InputError: Always.
    """
    names = ", ".join(repr(features[place].name) for place in number.floats)
    raise InputError(
        f"this arithmetic over float32 values ({names}) cannot be made exact on their grid",
        "compare a float32 feature with a constant, or two of them with each other, or declare it "
        "`type: fixed` with a step",
    )


class Lowering:
    """Lowers the expressions of one problem; the same expression object is lowered once."""

    def __init__(self, features: Sequence[Feature], labels: int, scores: Sequence[tuple[Fraction, Score]] = ()) -> None:
        self._features = features
        self._scores = scores
        self._axes = Axes(features)
        self._labels = labels
        self._done: dict[int, tuple[BoolExpr, Predicate]] = {}

    def predicate(self, expression: BoolExpr) -> Predicate:
        """The integer predicate with the meaning of `expression`.

        Raises:
            InputError: Arithmetic over float32 features that has no exact form, or nesting too deep.
        """
        known = self._done.get(id(expression))
        if known is None:
            try:
                known = (expression, self._truth(expression))
            except RecursionError:
                raise InputError(
                    "the expression is nested too deeply", "use sum(...), all(...) or any(...) over a range instead"
                ) from None
            self._done[id(expression)] = known
        return known[1]

    def _truth(self, expression: BoolExpr) -> Predicate:
        if isinstance(expression, Compare):
            return self._compare(expression)
        if isinstance(expression, And):
            return all_of(self._truth(argument) for argument in expression.arguments)
        if isinstance(expression, Or):
            return any_of(self._truth(argument) for argument in expression.arguments)
        if isinstance(expression, Not):
            return negation(self._truth(expression.argument))
        if isinstance(expression, Truth):
            return Always(expression.value)
        if isinstance(expression, LabelIn):
            wanted = tuple(sorted(set(expression.labels) & set(range(self._labels))))
            return HasLabel(wanted) if 0 < len(wanted) < self._labels else Always(bool(wanted))
        if isinstance(expression, CategoryIn):
            return position_runs(expression.feature, expression.positions, self._features[expression.feature].size)
        if isinstance(expression, IsMissing):
            feature = self._features[expression.feature]
            if not feature.missing:
                return Always(False)
            return Within(expression.feature, feature.grid_size, feature.size)
        assert_never(expression)

    # --- comparisons -----------------------------------------------------------------------------------------------
    def _compare(self, expression: Compare) -> Predicate:
        sides = (self._number(expression.left), self._number(expression.right))
        reads_missing = sorted(
            place for place in _features_read(expression.left, expression.right) if self._features[place].missing
        )
        answers = (
            all_of((left_case, right_case, self._with_zero(expression.op, combined([(ONE, left), (-ONE, right)]))))
            for (left_case, left), (right_case, right) in itertools.product(*sides)
        )
        answer = any_of(answers)
        if len(reads_missing) == 1 and not self._may_hold(answer, reads_missing[0]):
            return answer
        present = [Within(place, 0, self._features[place].grid_size) for place in reads_missing]
        return all_of((*present, answer))

    def _may_hold(self, answer: Predicate, missing: int) -> bool:
        """Whether `answer` is not proven to be false wherever the feature is missing."""
        low = list(self._axes.low)
        low[missing] = self._features[missing].grid_size
        return on_box(answer, low, self._axes.high) is not False

    def _with_zero(self, op: str, number: Number) -> Predicate:
        answer = compare_with_zero(op, number, self._axes)
        if answer is None:
            refuse_float32(self._features, number)
        return answer

    # --- numbers ---------------------------------------------------------------------------------------------------
    def _number(self, expression: NumberExpr) -> Cases:
        parts = [(factor, self._summand(part)) for factor, part in _summands(expression)]
        if len(parts) == 1 and parts[0][0] == 1:
            return parts[0][1]
        return _by_cases(
            [cases for _, cases in parts],
            lambda chosen: _single(combined(zip((factor for factor, _ in parts), chosen, strict=True))),
        )

    def _summand(self, expression: NumberExpr) -> Cases:
        if isinstance(expression, Constant):
            return _single(Number(expression.value))
        if isinstance(expression, FeatureValue):
            return _single(numbers.feature_number(expression.feature, self._features[expression.feature]))
        if isinstance(expression, ScoreValue):
            return _single(Number(opaque=(self._scores[expression.index],)))
        if isinstance(expression, CountTrue):
            return _single(_count([self._truth(argument) for argument in expression.arguments]))
        if isinstance(expression, FloorDivide | Modulo):
            return _by_cases([self._number(expression.argument)], lambda chosen: self._divided(expression, chosen[0]))
        if isinstance(expression, Aggregate):
            arguments = [self._number(argument) for argument in expression.arguments]
            return _by_cases(arguments, lambda chosen: self._extreme(expression.function, chosen))
        assert isinstance(expression, Arithmetic)
        return _by_cases([self._number(expression.left), self._number(expression.right)], self._product)

    def _divided(self, expression: FloorDivide | Modulo, number: Number) -> Cases:
        if number.floats:
            refuse_float32(self._features, number)
        quotient = numbers.floor_quotient(number, expression.divisor)
        if isinstance(expression, FloorDivide):
            return _single(quotient)
        return _single(combined([(ONE, number), (-expression.divisor, quotient)]))

    def _product(self, chosen: Sequence[Number]) -> Cases:
        left, right = chosen
        if left.is_constant:
            return _single(combined([(left.constant, right)]))
        if right.is_constant:
            return _single(combined([(right.constant, left)]))
        for number in chosen:
            if number.floats:
                refuse_float32(self._features, number)
        return _single(numbers.product(left, right))

    def _extreme(self, function: str, chosen: Sequence[Number]) -> Cases:
        if function == "abs":
            function, chosen = "max", (chosen[0], combined([(-ONE, chosen[0])]))
        if not any(number.floats for number in chosen):
            return _single(numbers.extreme(function, chosen))
        # Several cases hold where several numbers are the extreme one, and then they are equal.
        beats = "<=" if function == "min" else ">="
        cases = []
        for place, number in enumerate(chosen):
            rivals = (combined([(ONE, number), (-ONE, n)]) for other, n in enumerate(chosen) if other != place)
            cases.append((all_of(self._with_zero(beats, rival) for rival in rivals), number))
        return tuple(case for case in cases if case[0] != Always(False))


def _single(number: Number) -> Cases:
    return ((Always(True), number),)


def _by_cases(arguments: Sequence[Cases], result: Callable[[Sequence[Number]], Cases]) -> Cases:
    """The cases of a function of numbers that are themselves given by cases.

    Raises:
        InputError: There would be more than `MOST_CASES`.
    """
    if math.prod(len(cases) for cases in arguments) > MOST_CASES:
        raise InputError(
            "abs, min and max over float32 features split this comparison into too many cases",
            "break the expression up with `and` / `or`, or declare the features `type: fixed` with a step",
        )
    found = []
    for choice in itertools.product(*arguments):
        condition = all_of(guard for guard, _ in choice)
        for guard, number in result([number for _, number in choice]):
            found.append((all_of((condition, guard)), number))
    return tuple(found)


def _count(predicates: Sequence[Predicate]) -> Number:
    sure = sum(isinstance(p, Always) and p.value for p in predicates)
    unsure = tuple(p for p in predicates if not isinstance(p, Always))
    return Number(Fraction(sure), opaque=((ONE, CountOf(unsure)),) if unsure else ())


def _summands(expression: NumberExpr) -> Iterator[tuple[Fraction, NumberExpr]]:
    """(factor, part) pairs whose weighted sum is the expression, no part being a sum; iterative, sums can be long."""
    stack: list[tuple[Fraction, NumberExpr]] = [(ONE, expression)]
    while stack:
        factor, top = stack.pop()
        if isinstance(top, Negate):
            stack.append((-factor, top.argument))
        elif isinstance(top, Arithmetic) and top.op != "*":
            stack.append((factor if top.op == "+" else -factor, top.right))
            stack.append((factor, top.left))
        elif isinstance(top, Arithmetic) and isinstance(top.left, Constant):
            stack.append((factor * top.left.value, top.right))
        elif isinstance(top, Arithmetic) and isinstance(top.right, Constant):
            stack.append((factor * top.right.value, top.left))
        elif isinstance(top, Aggregate) and top.function == "sum":
            stack.extend((factor, argument) for argument in reversed(top.arguments))
        else:
            yield factor, top


def _features_read(*expressions: NumberExpr) -> set[int]:
    """Features whose value the arithmetic itself reads: what stands inside a count is a truth value of its own."""
    found: set[int] = set()
    stack = list(expressions)
    while stack:
        top = stack.pop()
        if isinstance(top, FeatureValue):
            found.add(top.feature)
        elif isinstance(top, Negate | FloorDivide | Modulo):
            stack.append(top.argument)
        elif isinstance(top, Arithmetic):
            stack.extend((top.left, top.right))
        elif isinstance(top, Aggregate):
            stack.extend(top.arguments)
    return found

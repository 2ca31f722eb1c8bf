"""A syntax tree and one input in, its truth out: exact, slow and obvious; every back end must mean the same."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import assert_never

from quantify.ir.domain import Number
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

_COMPARE: Mapping[str, Callable[[Fraction, Fraction], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_ARITHMETIC: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_AGGREGATE: Mapping[str, Callable[[list[Fraction]], Fraction]] = {
    "abs": lambda values: abs(values[0]),
    "min": min,
    "max": max,
    "sum": lambda values: sum(values, Fraction(0)),
}


def truth(
    expression: BoolExpr,
    values: Sequence[Number | None],
    positions: Sequence[int],
    label: int,
    scores: Sequence[Fraction] = (),
) -> bool:
    """Whether `expression` holds for one input.

    Args:
        expression: Over features by place.
        values: The exact value of each feature, None for a missing one (numbers of categories are not read).
        positions: The grid position of each feature.
        label: The model's class index.
        scores: The network's real scores.
    """
    if isinstance(expression, Truth):
        return expression.value
    if isinstance(expression, Compare):
        left = number(expression.left, values, positions, label, scores)
        right = number(expression.right, values, positions, label, scores)
        return left is not None and right is not None and _COMPARE[expression.op](left, right)
    if isinstance(expression, CategoryIn):
        return positions[expression.feature] in expression.positions
    if isinstance(expression, IsMissing):
        return values[expression.feature] is None
    if isinstance(expression, LabelIn):
        return label in expression.labels
    if isinstance(expression, Not):
        return not truth(expression.argument, values, positions, label, scores)
    if isinstance(expression, And):
        return all(truth(argument, values, positions, label, scores) for argument in expression.arguments)
    if isinstance(expression, Or):
        return any(truth(argument, values, positions, label, scores) for argument in expression.arguments)
    assert_never(expression)


def number(
    expression: NumberExpr,
    values: Sequence[Number | None],
    positions: Sequence[int],
    label: int,
    scores: Sequence[Fraction] = (),
) -> Fraction | None:
    """The exact value of `expression` for one input (as for `truth`); None when it reads a missing feature.

    Counting truth values reads nothing itself: a comparison inside that reads a missing feature is merely false.
    """
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, FeatureValue):
        value = values[expression.feature]
        return None if value is None else Fraction(value)
    if isinstance(expression, ScoreValue):
        return scores[expression.index]
    if isinstance(expression, CountTrue):
        return Fraction(sum(truth(argument, values, positions, label, scores) for argument in expression.arguments))
    if isinstance(expression, Arithmetic):
        left = number(expression.left, values, positions, label, scores)
        right = number(expression.right, values, positions, label, scores)
        return None if left is None or right is None else _ARITHMETIC[expression.op](left, right)
    if isinstance(expression, Aggregate):
        known: list[Fraction] = []
        for part in expression.arguments:
            value = number(part, values, positions, label, scores)
            if value is None:
                return None
            known.append(value)
        return _AGGREGATE[expression.function](known)
    if isinstance(expression, Negate | FloorDivide | Modulo):
        argument = number(expression.argument, values, positions, label, scores)
        if argument is None:
            return None
        if isinstance(expression, Negate):
            return -argument
        quotient = math.floor(argument / expression.divisor)
        return Fraction(quotient) if isinstance(expression, FloorDivide) else argument - expression.divisor * quotient
    assert_never(expression)

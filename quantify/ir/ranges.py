"""Proven facts about integer expressions and predicates over a box of positions: intervals, truth values, word widths.

A box is `low[i] ≤ position i < high[i]` and must not be empty. Everything here is sound: an interval contains every
value, and True or False is said only when it holds for every point of the box and every possible label. On a single
point with a single label both are exact.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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

Labels = int | Collection[int] | None
"""A known class index, the possible ones, or None when any is possible."""
Scores = Sequence[tuple[int, int]] | None
"""Smallest and largest value of each integer score on the box, or None: then those over the whole domain."""


def interval(
    expression: IntExpr, low: Sequence[int], high: Sequence[int], labels: Labels = None, scores: Scores = None
) -> tuple[int, int]:
    """Smallest and largest value that `expression` can be proven to stay between on the box, both included."""
    if isinstance(expression, Linear):
        least = most = expression.constant
        for feature, coefficient in expression.terms:
            if coefficient > 0:
                least += coefficient * low[feature]
                most += coefficient * (high[feature] - 1)
            else:
                least += coefficient * (high[feature] - 1)
                most += coefficient * low[feature]
        return least, most
    if isinstance(expression, Plus):
        parts = [interval(argument, low, high, labels, scores) for argument in expression.arguments]
        return sum(part[0] for part in parts), sum(part[1] for part in parts)
    if isinstance(expression, Times):
        return _product(expression, low, high, labels, scores)
    if isinstance(expression, FloorDiv):
        least, most = interval(expression.argument, low, high, labels, scores)
        return least // expression.divisor, most // expression.divisor
    if isinstance(expression, Extreme):
        parts = [interval(argument, low, high, labels, scores) for argument in expression.arguments]
        choose = min if expression.which == "min" else max
        return choose(part[0] for part in parts), choose(part[1] for part in parts)
    if isinstance(expression, CountOf):
        answers = [on_box(argument, low, high, labels, scores) for argument in expression.arguments]
        return sum(a is True for a in answers), sum(a is not False for a in answers)
    if isinstance(expression, Score):
        return (expression.low, expression.high) if scores is None else scores[expression.index]
    assert_never(expression)


def _product(
    expression: Times, low: Sequence[int], high: Sequence[int], labels: Labels, scores: Scores
) -> tuple[int, int]:
    least, most = interval(expression.left, low, high, labels, scores)
    if expression.left == expression.right:
        ends = (least * least, most * most)
        return (0 if least <= 0 <= most else min(ends)), max(ends)
    other_least, other_most = interval(expression.right, low, high, labels, scores)
    corners = (least * other_least, least * other_most, most * other_least, most * other_most)
    return min(corners), max(corners)


def on_box(
    predicate: Predicate, low: Sequence[int], high: Sequence[int], labels: Labels = None, scores: Scores = None
) -> bool | None:
    """Whether `predicate` holds everywhere on the box (True), nowhere (False), or is not proven either way (None)."""
    if isinstance(predicate, Within):
        first, end = low[predicate.feature], high[predicate.feature]
        if predicate.low <= first and end <= predicate.high:
            return True
        return False if end <= predicate.low or predicate.high <= first else None
    if isinstance(predicate, AllOf):
        answer: bool | None = True
        for argument in predicate.arguments:
            part = on_box(argument, low, high, labels, scores)
            if part is False:
                return False
            if part is None:
                answer = None
        return answer
    if isinstance(predicate, AnyOf):
        answer = False
        for argument in predicate.arguments:
            part = on_box(argument, low, high, labels, scores)
            if part is True:
                return True
            if part is None:
                answer = None
        return answer
    if isinstance(predicate, Negation):
        part = on_box(predicate.argument, low, high, labels, scores)
        return None if part is None else not part
    if isinstance(predicate, Sign):
        return _sign(predicate, low, high, labels, scores)
    if isinstance(predicate, HasLabel):
        return _label(predicate, labels)
    if isinstance(predicate, Always):
        return predicate.value
    assert_never(predicate)


def _sign(predicate: Sign, low: Sequence[int], high: Sequence[int], labels: Labels, scores: Scores) -> bool | None:
    least, most = interval(predicate.argument, low, high, labels, scores)
    if predicate.op == "<":
        return True if most < 0 else False if least >= 0 else None
    if predicate.op == "<=":
        return True if most <= 0 else False if least > 0 else None
    equal = True if least == most == 0 else False if least > 0 or most < 0 else None
    if equal is None:
        return None
    return equal if predicate.op == "==" else not equal


def _label(predicate: HasLabel, labels: Labels) -> bool | None:
    if labels is None:
        return None if predicate.labels else False
    if isinstance(labels, int):
        return labels in predicate.labels
    inside = sum(label in predicate.labels for label in labels)
    return True if inside == len(labels) else False if inside == 0 else None


def bounds(expression: IntExpr, low: Sequence[int], high: Sequence[int]) -> tuple[int, int]:
    """`interval` under any label: what a word must hold for the value itself."""
    return interval(expression, low, high)


def bits(node: IntExpr | Predicate, sizes: Sequence[int]) -> int:
    """Width of a two's complement word in which `node` can be evaluated over the whole domain without overflow.

    Covers every constant, every intermediate of every sub-expression, sums in any order, and floor divisions that
    shift the dividend by less than the divisor.
    """
    return _magnitude(node, sizes).bit_length() + 1


def _magnitude(node: IntExpr | Predicate, sizes: Sequence[int]) -> int:
    """A bound on the absolute value of everything that appears while `node` is evaluated."""
    if isinstance(node, Linear):
        return abs(node.constant) + sum(
            max(abs(coefficient), 1) * max(sizes[feature] - 1, 1) for feature, coefficient in node.terms
        )
    if isinstance(node, Plus):
        return sum(_magnitude(argument, sizes) for argument in node.arguments)
    if isinstance(node, Times):
        left, right = _magnitude(node.left, sizes), _magnitude(node.right, sizes)
        return max(left * right, left, right)
    if isinstance(node, FloorDiv):
        return _magnitude(node.argument, sizes) + node.divisor
    if isinstance(node, CountOf):
        return max([len(node.arguments), *(_magnitude(argument, sizes) for argument in node.arguments)])
    if isinstance(node, Within):
        return max(abs(node.low), abs(node.high), sizes[node.feature])
    if isinstance(node, Score):
        return max(abs(node.low), abs(node.high))
    if isinstance(node, Sign | Negation):
        return _magnitude(node.argument, sizes)
    if isinstance(node, HasLabel):
        return max(node.labels, default=0)
    if isinstance(node, Always):
        return 1
    return max((_magnitude(argument, sizes) for argument in node.arguments), default=1)

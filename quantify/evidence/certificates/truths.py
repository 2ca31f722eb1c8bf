"""Predicates and boxes go in; on which boxes they are proven true and proven false comes out, box by box in arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

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

WORD = 60


class UnreadableError(Exception):
    """Scores enter a predicate in a way that is not checked."""


@dataclass(frozen=True)
class Sum:
    """constant + Σ coefficient·score + Σ coefficient·position."""

    scores: tuple[tuple[int, int], ...]
    positions: tuple[tuple[int, int], ...]
    constant: int


@dataclass(frozen=True)
class Boxes:
    """N boxes over all inputs, and what is known of scores on them."""

    low: Any
    high: Any
    """(inputs × N) int64."""
    sizes: tuple[int, ...]
    signs: Callable[[Sum, Any], tuple[Any, Any]]
    """Of a sum of scores (with `low`): (least, most) sign per box, each −1, 0 or 1."""

    def __len__(self) -> int:
        return int(self.low.shape[1])


def truth(predicate: Predicate, boxes: Boxes, label: Any) -> tuple[Any, Any]:
    """Where `predicate` is proven true, and proven false (N each), for the label given (one, or one a box).

    Raises:
        UnreadableError: Scores are multiplied or divided.
    """
    if isinstance(predicate, Always):
        return _both(np.full(len(boxes), predicate.value))
    if isinstance(predicate, HasLabel):
        return _both(np.isin(np.broadcast_to(label, len(boxes)), predicate.labels))
    if isinstance(predicate, Within):
        low, high = boxes.low[predicate.feature], boxes.high[predicate.feature]
        yes = (low >= predicate.low) & (high <= predicate.high)
        return yes, (high <= predicate.low) | (low >= predicate.high)
    if isinstance(predicate, Negation):
        yes, no = truth(predicate.argument, boxes, label)
        return no, yes
    if isinstance(predicate, AllOf | AnyOf):
        every = isinstance(predicate, AllOf)
        both, any_ = np.ones(len(boxes), bool), np.zeros(len(boxes), bool)
        for argument in predicate.arguments:
            yes, no = truth(argument, boxes, label)
            both &= yes if every else no
            any_ |= no if every else yes
        return (both, any_) if every else (any_, both)
    return _compared(predicate, boxes, label)


def _both(yes: Any) -> tuple[Any, Any]:
    return yes, ~yes


def _compared(predicate: Sign, boxes: Boxes, label: Any) -> tuple[Any, Any]:
    line = linear(predicate.argument)
    if line is not None and line.scores:
        least, most = boxes.signs(line, boxes.low)
    else:
        least, most = _interval(predicate.argument, boxes, label)
    if predicate.op == "<":
        return most < 0, least >= 0
    if predicate.op == "<=":
        return most <= 0, least > 0
    equal, apart = (least == 0) & (most == 0), (least > 0) | (most < 0)
    return (equal, apart) if predicate.op == "==" else (apart, equal)


def _interval(expression: IntExpr, boxes: Boxes, label: Any) -> tuple[Any, Any]:
    """(least, most) per box, in words where every intermediate is proven to fit."""
    line = linear(expression)
    if line is not None:
        if line.scores:
            raise UnreadableError
        size = abs(line.constant) + sum(abs(c) * boxes.sizes[f] for f, c in line.positions)
        kind = np.int64 if size.bit_length() <= WORD else object
        least = most = np.full(len(boxes), line.constant, kind)
        for feature, by in line.positions:
            first, last = by * boxes.low[feature].astype(kind), by * (boxes.high[feature] - 1).astype(kind)
            least, most = least + np.minimum(first, last), most + np.maximum(first, last)
        return least, most
    if isinstance(expression, CountOf):
        answers = [truth(argument, boxes, label) for argument in expression.arguments]
        zero = np.zeros(len(boxes), np.int64)
        return sum((a[0].astype(int) for a in answers), zero), sum(((~a[1]).astype(int) for a in answers), zero)
    wide = ranges.bits(expression, boxes.sizes) > WORD
    if isinstance(expression, FloorDiv):
        parts = [_interval(expression.argument, boxes, label)]
    elif isinstance(expression, Times):
        parts = [_interval(part, boxes, label) for part in (expression.left, expression.right)]
    else:
        assert isinstance(expression, Plus | Extreme)
        parts = [_interval(argument, boxes, label) for argument in expression.arguments]
    if wide:
        parts = [(a.astype(object), b.astype(object)) for a, b in parts]
    if isinstance(expression, FloorDiv):
        return parts[0][0] // expression.divisor, parts[0][1] // expression.divisor
    if isinstance(expression, Times):
        corners = [a * b for a in parts[0] for b in parts[1]]
        return _folded(np.minimum, corners), _folded(np.maximum, corners)
    lows, highs = [a for a, _ in parts], [b for _, b in parts]
    if isinstance(expression, Plus):
        return sum(lows), sum(highs)
    choose = np.minimum if expression.which == "min" else np.maximum
    return _folded(choose, lows), _folded(choose, highs)


def _folded(function: Any, parts: list[Any]) -> Any:
    out = parts[0]
    for part in parts[1:]:
        out = function(out, part)
    return out


def linear(expression: IntExpr) -> Sum | None:
    """The expression as a weighted sum of scores and positions, or None when it is none."""
    found = _terms(expression)
    if found is None:
        return None
    scores = tuple(sorted((k, c) for (kind, k), c in found.items() if kind == "score" and c))
    positions = tuple(sorted((k, c) for (kind, k), c in found.items() if kind == "position" and c))
    return Sum(scores, positions, found.get(("one", 0), 0))


_Terms = dict[tuple[str, int], int]


def _terms(expression: IntExpr) -> _Terms | None:
    if isinstance(expression, Linear):
        found: _Terms = {("one", 0): expression.constant}
        for feature, by in expression.terms:
            found["position", feature] = found.get(("position", feature), 0) + by
        return found
    if isinstance(expression, Score):
        return {("score", expression.index): 1}
    if isinstance(expression, Plus):
        total: _Terms = {}
        for argument in expression.arguments:
            part = _terms(argument)
            if part is None:
                return None
            for key, by in part.items():
                total[key] = total.get(key, 0) + by
        return total
    if isinstance(expression, Times):
        left, right = _terms(expression.left), _terms(expression.right)
        if left is None or right is None:
            return None
        for factor, other in ((left, right), (right, left)):
            if not any(by for key, by in factor.items() if key[0] != "one"):
                constant = factor.get(("one", 0), 0)
                return {key: by * constant for key, by in other.items()}
    if isinstance(expression, Extreme) and len(expression.arguments) == 1:
        return _terms(expression.arguments[0])
    return None

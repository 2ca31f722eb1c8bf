"""A number in normal form, compared with zero, to an integer predicate; and the constructors that fold constants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from quantify.discretise.numbers import ZERO, Number, combined, common_denominator, integer
from quantify.ir.domain import Feature, Float32Feature
from quantify.ir.predicate import AllOf, Always, AnyOf, Extreme, IntExpr, Linear, Negation, Predicate, Sign, Within
from quantify.ir.ranges import on_box

SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
"""The operator for (−a, 0) that says what this one says for (a, 0)."""


class Axes:
    """The features by place, and the box of all positions."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self.features = tuple(features)
        self.low = (0,) * len(self.features)
        self.high = tuple(feature.size for feature in self.features)


def all_of(arguments: Iterable[Predicate]) -> Predicate:
    """Conjunction, flattened, constants folded, ranges of one feature intersected."""
    kept: list[Predicate] = []
    ranges: dict[int, int] = {}
    waiting = list(arguments)[::-1]
    while waiting:
        argument = waiting.pop()
        if isinstance(argument, Always):
            if not argument.value:
                return argument
        elif isinstance(argument, AllOf):
            waiting.extend(argument.arguments[::-1])
        elif isinstance(argument, Within) and argument.feature in ranges:
            place = ranges[argument.feature]
            known = kept[place]
            assert isinstance(known, Within)
            both = Within(argument.feature, max(known.low, argument.low), min(known.high, argument.high))
            if both.low >= both.high:
                return Always(False)
            kept[place] = both
        else:
            if isinstance(argument, Within):
                ranges[argument.feature] = len(kept)
            kept.append(argument)
    if not kept:
        return Always(True)
    return kept[0] if len(kept) == 1 else AllOf(tuple(kept))


def any_of(arguments: Iterable[Predicate]) -> Predicate:
    """Disjunction, flattened, constants folded."""
    kept: list[Predicate] = []
    for argument in arguments:
        if isinstance(argument, Always):
            if argument.value:
                return argument
        elif isinstance(argument, AnyOf):
            kept.extend(argument.arguments)
        else:
            kept.append(argument)
    if not kept:
        return Always(False)
    return kept[0] if len(kept) == 1 else AnyOf(tuple(kept))


def negation(argument: Predicate) -> Predicate:
    """Not, constants and double negation folded."""
    if isinstance(argument, Always):
        return Always(not argument.value)
    return argument.argument if isinstance(argument, Negation) else Negation(argument)


def position_runs(feature: int, positions: Iterable[int], size: int) -> Predicate:
    """The feature is at one of `positions`; `size` is its number of positions."""
    runs: list[tuple[int, int]] = []
    for position in sorted(set(positions)):
        if runs and runs[-1][1] == position:
            runs[-1] = (runs[-1][0], position + 1)
        else:
            runs.append((position, position + 1))
    return any_of(_within(feature, low, high, size) for low, high in runs)


def _within(feature: int, low: int, high: int, size: int) -> Predicate:
    if low >= high:
        return Always(False)
    return Always(True) if low <= 0 and high >= size else Within(feature, low, high)


def compare_with_zero(op: str, number: Number, axes: Axes) -> Predicate | None:
    """`number op 0` at inputs without missing values, op one of < <= > >= == !=; None when it has no exact form.

    At inputs where a feature of the number is missing the answer may be anything: the caller guards.
    """
    return _compare_floats(op, number, axes) if number.floats else _compare_exact(op, number, axes)


def _compare_exact(op: str, number: Number, axes: Axes) -> Predicate:
    if number.is_constant:
        return Always(_truth(op, number.constant))
    if len(number.positions) == 1 and not number.opaque:
        ((place, coefficient),) = number.positions.items()
        threshold = -number.constant / coefficient
        size = axes.features[place].grid_size
        below = min(max(math.ceil(threshold), 0), size)
        exact = threshold.denominator == 1 and 0 <= threshold < size
        return _ranges(op if coefficient > 0 else SWAPPED[op], place, below, exact, axes.features[place])
    if not number.positions and len(number.opaque) == 1 and isinstance(number.opaque[0][1], Extreme):
        return _compare_extreme(op, number, axes)
    return _compare_integers(op, number, axes)


def _truth(op: str, value: Fraction) -> bool:
    return {"<": value < 0, "<=": value <= 0, ">": value > 0, ">=": value >= 0, "==": value == 0, "!=": value != 0}[op]


def _ranges(op: str, place: int, below: int, exact: bool, feature: Feature) -> Predicate:
    """`feature op threshold` when `below` of its values are smaller, and `exact` says that the next one is equal."""
    upto, size = below + exact, feature.grid_size
    spans = {
        "<": ((0, below),),
        "<=": ((0, upto),),
        ">": ((upto, size),),
        ">=": ((below, size),),
        "==": ((below, upto),),
        "!=": ((0, below), (upto, size)) if exact else ((0, size),),
    }[op]
    return any_of(_within(place, low, high, feature.size) for low, high in spans)


def _compare_floats(op: str, number: Number, axes: Axes) -> Predicate | None:
    if number.positions or number.opaque:
        return None
    (place, coefficient), *others = number.floats.items()
    if coefficient < 0:
        op = SWAPPED[op]
    if not others:
        threshold, feature = -number.constant / coefficient, axes.features[place]
        below = feature.first_at_least(threshold)
        exact = below < feature.grid_size and feature.value(below) == threshold
        return _ranges(op, place, below, exact, feature)
    if len(others) > 1 or number.constant or abs(others[0][1]) != abs(coefficient):
        return None
    # x − y and x + y have the sign of key(x) − key(y) and key(x) + key(y): keys rank the values and are odd in them.
    other, sign = others[0][0], 1 if others[0][1] == coefficient else -1
    first, second = axes.features[place], axes.features[other]
    assert isinstance(first, Float32Feature)
    assert isinstance(second, Float32Feature)
    keys = Number(Fraction(first.first_key + sign * second.first_key), {place: Fraction(1), other: Fraction(sign)})
    return _compare_exact(op, keys, axes)


def _compare_extreme(op: str, number: Number, axes: Axes) -> Predicate:
    """factor·max(…) + constant op 0 by the arguments one at a time, which boxes can decide exactly."""
    ((factor, expression),) = number.opaque
    assert isinstance(expression, Extreme)
    is_max = (expression.which == "max") == (factor > 0)
    arguments = [_as_number(factor, argument, number.constant) for argument in expression.arguments]

    def each(operator: str) -> list[Predicate]:
        return [_compare_exact(operator, argument, axes) for argument in arguments]

    if op in ("==", "!="):
        bounded, attained = ("<=", ">=") if is_max else (">=", "<=")
        equal = all_of((*each(bounded), any_of(each(attained))))
        return equal if op == "==" else negation(equal)
    return all_of(each(op)) if (op in ("<", "<=")) == is_max else any_of(each(op))


def _as_number(factor: Fraction, expression: IntExpr, constant: Fraction) -> Number:
    """factor·expression + constant."""
    if isinstance(expression, Linear):
        plain = Number(Fraction(expression.constant), {place: Fraction(c) for place, c in expression.terms})
        return combined([(factor, plain), (Fraction(1), Number(constant))])
    return Number(constant, opaque=((factor, expression),))


def _compare_integers(op: str, number: Number, axes: Axes) -> Predicate:
    """Over the integers: divided by the common factor, < and > turned into ≤, decided at once when the domain does."""
    if op in (">", ">="):
        op, number = SWAPPED[op], combined([(Fraction(-1), number)])
    scale = common_denominator([number])
    factor = math.gcd(*(int(c * scale) for c in number.positions.values()), *(int(c * scale) for c, _ in number.opaque))
    constant = int(number.constant * scale) + (op == "<")
    if op in ("==", "!=") and constant % factor:
        return Always(op == "!=")
    scaled = combined([(Fraction(scale, factor), Number(ZERO, number.positions, {}, number.opaque))])
    shifted = Number(Fraction(-(-constant // factor)), scaled.positions, {}, scaled.opaque)
    sign = Sign("==" if op == "==" else "!=" if op == "!=" else "<=", integer(shifted, 1))
    # Missing positions belong to the box: what a count asks about them is not guarded by the caller.
    answer = on_box(sign, axes.low, axes.high)
    return sign if answer is None else Always(answer)

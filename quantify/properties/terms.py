"""Parts of a syntax tree in, the whole out: constructors that fold constants and flatten, and change nothing else.

No arithmetic that reads a feature is ever dropped: a comparison that reads a missing value is false, so `0 * x`
matters.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Literal

from quantify.ir.domain import Number
from quantify.ir.property import (
    Aggregate,
    And,
    Arithmetic,
    BoolExpr,
    Compare,
    CompareOp,
    Constant,
    CountTrue,
    FeatureValue,
    FloorDivide,
    LabelIn,
    Modulo,
    Negate,
    Not,
    NumberExpr,
    Or,
    Truth,
)

TRUE, FALSE = Truth(True), Truth(False)


def constant(value: Number) -> Constant:
    """An exact constant."""
    return Constant(Fraction(value))


def all_of(arguments: Iterable[BoolExpr]) -> BoolExpr:
    """Their conjunction."""
    parts: list[BoolExpr] = []
    for argument in arguments:
        if argument == FALSE:
            return FALSE
        if isinstance(argument, And):
            parts.extend(argument.arguments)
        elif argument != TRUE:
            parts.append(argument)
    return TRUE if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))


def any_of(arguments: Iterable[BoolExpr]) -> BoolExpr:
    """Their disjunction."""
    parts: list[BoolExpr] = []
    for argument in arguments:
        if argument == TRUE:
            return TRUE
        if isinstance(argument, Or):
            parts.extend(argument.arguments)
        elif argument != FALSE:
            parts.append(argument)
    return FALSE if not parts else parts[0] if len(parts) == 1 else Or(tuple(parts))


def negation(argument: BoolExpr) -> BoolExpr:
    """Its negation."""
    if isinstance(argument, Truth):
        return Truth(not argument.value)
    return argument.argument if isinstance(argument, Not) else Not(argument)


def implies(condition: BoolExpr, consequence: BoolExpr) -> BoolExpr:
    """Consequence holds wherever condition does."""
    return any_of((negation(condition), consequence))


def is_true(feature: int) -> BoolExpr:
    """The boolean feature is 1."""
    return Compare("==", FeatureValue(feature), constant(1))


def label_in(labels: Iterable[int], classes: int) -> BoolExpr:
    """The answer is one of these class indices."""
    places = tuple(sorted(set(labels)))
    if not places:
        return FALSE
    return TRUE if len(places) == classes else LabelIn(places)


def compare(op: CompareOp, left: NumberExpr, right: NumberExpr) -> BoolExpr:
    """Left op right, decided at once between constants."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        a, b = left.value, right.value
        return Truth({"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[op])
    return Compare(op, left, right)


def negative(argument: NumberExpr) -> NumberExpr:
    """−argument."""
    if isinstance(argument, Constant):
        return Constant(-argument.value)
    return argument.argument if isinstance(argument, Negate) else Negate(argument)


def total(arguments: Iterable[NumberExpr]) -> NumberExpr:
    """Their sum; constants become one."""
    fixed = Fraction(0)
    parts: list[NumberExpr] = []
    for argument in arguments:
        if isinstance(argument, Constant):
            fixed += argument.value
        else:
            parts.append(argument)
    if fixed or not parts:
        parts.append(Constant(fixed))
    if len(parts) == 1:
        return parts[0]
    if len(parts) > 2:
        return Aggregate("sum", tuple(parts))
    if isinstance(parts[1], Negate):
        return Arithmetic("-", parts[0], parts[1].argument)
    return Arithmetic("+", parts[0], parts[1])


def product(left: NumberExpr, right: NumberExpr) -> NumberExpr:
    """Left · right."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return Constant(left.value * right.value)
    return Arithmetic("*", left, right)


def floor_divide(argument: NumberExpr, divisor: Fraction) -> NumberExpr:
    """⌊argument / divisor⌋, divisor ≠ 0."""
    if isinstance(argument, Constant):
        return constant(argument.value // divisor)
    return FloorDivide(argument, divisor)


def modulo(argument: NumberExpr, divisor: Fraction) -> NumberExpr:
    """argument − divisor·⌊argument / divisor⌋, divisor ≠ 0."""
    if isinstance(argument, Constant):
        return Constant(argument.value % divisor)
    return Modulo(argument, divisor)


def extreme(which: Literal["min", "max"], arguments: Iterable[NumberExpr]) -> NumberExpr:
    """The smallest or largest of one or more."""
    parts = tuple(arguments)
    values = [part.value for part in parts if isinstance(part, Constant)]
    if len(values) == len(parts):
        return Constant(min(values) if which == "min" else max(values))
    return parts[0] if len(parts) == 1 else Aggregate(which, parts)


def absolute(argument: NumberExpr) -> NumberExpr:
    """|argument|."""
    return Constant(abs(argument.value)) if isinstance(argument, Constant) else Aggregate("abs", (argument,))


def how_many(arguments: Iterable[BoolExpr]) -> NumberExpr:
    """How many of them are true."""
    certain = 0
    parts: list[BoolExpr] = []
    for argument in arguments:
        if isinstance(argument, Truth):
            certain += argument.value
        else:
            parts.append(argument)
    counted = CountTrue(tuple(parts)) if parts else constant(0)
    return total((counted, constant(certain)))

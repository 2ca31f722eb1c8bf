"""Exact numbers over an input: the normal form in which `predicates` lowers arithmetic to integers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from quantify.discretise.grids import affine
from quantify.ir.domain import CategoricalFeature, Feature, Float32Feature
from quantify.ir.predicate import CountOf, Extreme, FloorDiv, IntExpr, Linear, Plus, Times, Within

ZERO = Fraction(0)
ONE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Number:
    """constant + Σ positions[f]·(position of f) + Σ floats[f]·(value of float32 f) + Σ factor·(integer expression).

    Coefficients are non-zero.
    """

    constant: Fraction = ZERO
    positions: dict[int, Fraction] = field(default_factory=dict)
    floats: dict[int, Fraction] = field(default_factory=dict)
    opaque: tuple[tuple[Fraction, IntExpr], ...] = ()

    @property
    def is_constant(self) -> bool:
        """Whether no input is read."""
        return not (self.positions or self.floats or self.opaque)


def feature_number(place: int, feature: Feature) -> Number:
    """The value of a feature, away from its missing position."""
    form = affine(feature)
    if form is not None:
        return Number(Fraction(form.offset, form.denominator), {place: Fraction(form.step, form.denominator)})
    if isinstance(feature, Float32Feature):
        return Number(floats={place: ONE})
    assert isinstance(feature, CategoricalFeature)
    codes = [Fraction(code) for code in feature.codes]
    steps = ((codes[p] - codes[p - 1], CountOf((Within(place, p, feature.grid_size),))) for p in range(1, len(codes)))
    return Number(codes[0], opaque=tuple(steps))


def combined(parts: Iterable[tuple[Fraction, Number]]) -> Number:
    """Σ factor·number."""
    constant = ZERO
    positions: dict[int, Fraction] = {}
    floats: dict[int, Fraction] = {}
    opaque: list[tuple[Fraction, IntExpr]] = []
    for factor, number in parts:
        constant += factor * number.constant
        for source, target in ((number.positions, positions), (number.floats, floats)):
            for place, coefficient in source.items():
                target[place] = target.get(place, ZERO) + factor * coefficient
        if factor:
            opaque.extend((factor * coefficient, expression) for coefficient, expression in number.opaque)
    return Number(constant, _without_zeros(positions), _without_zeros(floats), tuple(opaque))


def _without_zeros(coefficients: dict[int, Fraction]) -> dict[int, Fraction]:
    return {place: coefficient for place, coefficient in sorted(coefficients.items()) if coefficient}


def common_denominator(numbers: Sequence[Number]) -> int:
    """The smallest d > 0 for which d times each number is an integer at every input (float32 values aside)."""
    return math.lcm(
        *(n.constant.denominator for n in numbers),
        *(c.denominator for n in numbers for c in n.positions.values()),
        *(c.denominator for n in numbers for c, _ in n.opaque),
    )


def integer(number: Number, scale: int) -> IntExpr:
    """`scale` times the number as an integer expression; `scale` is a multiple of its common denominator."""
    terms = tuple((place, int(coefficient * scale)) for place, coefficient in number.positions.items())
    linear = Linear(terms, int(number.constant * scale))
    if not number.opaque:
        return linear
    scaled = [_times(int(coefficient * scale), expression) for coefficient, expression in number.opaque]
    if linear.terms or linear.constant:
        scaled.insert(0, linear)
    return scaled[0] if len(scaled) == 1 else Plus(tuple(scaled))


def _times(factor: int, expression: IntExpr) -> IntExpr:
    return expression if factor == 1 else Times(Linear((), factor), expression)


def product(left: Number, right: Number) -> Number:
    """left · right, neither of them constant and neither with float32 values."""
    left_scale, right_scale = common_denominator([left]), common_denominator([right])
    expression = Times(integer(left, left_scale), integer(right, right_scale))
    return Number(opaque=((Fraction(1, left_scale * right_scale), expression),))


def floor_quotient(number: Number, divisor: Fraction) -> Number:
    """⌊number / divisor⌋ for a non-zero divisor, rounding towards −∞ whatever the signs; no float32 values."""
    quotient = combined([(ONE / divisor, number)])
    scale = common_denominator([quotient])
    # Whole multiples leave the floor, so that what is divided stays small.
    whole = Fraction(math.floor(quotient.constant))
    rest = combined([(ONE, quotient), (-ONE, Number(whole))])
    if rest.is_constant:
        return Number(whole)
    if scale == 1:
        return quotient
    return Number(whole, opaque=((ONE, _floor(integer(rest, scale), scale)),))


def _floor(expression: IntExpr, divisor: int) -> IntExpr:
    """⌊expression / divisor⌋; a factor that divides the divisor and every coefficient is taken out of both.

    ⌊(g·L + k) / (g·d)⌋ = ⌊(L + ⌊k/g⌋) / d⌋ because L is an integer.
    """
    if isinstance(expression, Linear):
        factor = math.gcd(divisor, *(coefficient for _, coefficient in expression.terms))
        terms = tuple((place, coefficient // factor) for place, coefficient in expression.terms)
        expression, divisor = Linear(terms, expression.constant // factor), divisor // factor
    return expression if divisor == 1 else FloorDiv(expression, divisor)


def extreme(which: str, numbers: Sequence[Number]) -> Number:
    """The smallest ("min") or largest ("max") of numbers without float32 values."""
    if all(number.is_constant for number in numbers):
        choose = min if which == "min" else max
        return Number(choose(number.constant for number in numbers))
    if len(numbers) == 1:
        return numbers[0]
    scale = common_denominator(numbers)
    arguments = tuple(integer(number, scale) for number in numbers)
    return Number(opaque=((Fraction(1, scale), Extreme("min" if which == "min" else "max", arguments)),))

"""A region and a measure to the algebra that counts slices of it: integers for boxes, series in the distance for balls.

Both algebras count a product of independent features. `part` is what one feature contributes when it is confined to
a range; elements are products of parts. `over` undoes `times` exactly, so an engine walks a tree by exchanging the
part of the feature that was cut.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Protocol

from quantify.ir.domain import Measure
from quantify.ir.problem import Ball, Box, GridProblem, Region

WIDEST_RADIUS = 100_000
"""Largest number of distinct distances that a series may have."""


class Masses(Protocol):
    """The algebra of one region under one measure. Elements and parts are opaque to its users."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    """The box that holds the region."""
    unit: Any
    """The element of the empty product."""
    scalar: bool
    """Whether there is no distance: elements are integers, and every point of the box counts."""
    degree: int
    """Largest distance that counts (0 for boxes): a table has degree + 1 columns."""

    def part(self, feature: int, low: int, high: int) -> Any:
        """Contribution of `feature` confined to low ≤ position < high."""
        ...

    def times(self, element: Any, part: Any) -> Any:
        """element · part."""
        ...

    def over(self, element: Any, part: Any) -> Any:
        """The element whose product with `part` is `element`; the part contributed to it and is not nothing."""
        ...

    def product(self, one: Any, other: Any) -> Any:
        """Product of two elements over different features."""
        ...

    def plus(self, one: Any, other: Any) -> Any:
        """Sum of two elements."""
        ...

    def total(self, element: Any) -> int:
        """The count that the element stands for: everything within the radius."""
        ...

    def row(self, feature: int, low: int, high: int) -> list[int]:
        """Mass of the range by distance, degree + 1 entries."""
        ...

    def element(self, masses: list[int]) -> Any:
        """The element with these masses by distance (as many as `row` gives)."""
        ...

    def plain(self, feature: int) -> bool:
        """Whether a range of this feature counts simply by its width."""
        ...

    def nearest(self, feature: int, low: int, high: int) -> int | None:
        """A position of the range that has mass, the closest to the centre; None when there is none."""
        ...


def make_masses(problem: GridProblem, region: Region) -> Masses:
    """The algebra for one region of a problem."""
    if isinstance(region, Box):
        return Widths(region, problem.measure)
    return Distances(region, problem.measure)


@lru_cache(maxsize=8)
def _sums(weights: tuple[int, ...]) -> tuple[int, ...]:
    return (0, *accumulate(weights))


def prefix_sums(measure: Measure) -> list[tuple[int, ...] | None]:
    """Per feature the sums of its first 0, 1, … weights, or None where all are 1; [] for the uniform measure."""
    if measure.kind == "uniform":
        return []
    return [None if weights is None else _sums(weights) for weights in measure.weights]


class Widths:
    """Boxes: parts and elements are integers."""

    unit = 1
    scalar = True
    degree = 0

    def __init__(self, box: Box, measure: Measure) -> None:
        self.low, self.high = box.low, box.high
        self._prefix = prefix_sums(measure)

    def part(self, feature: int, low: int, high: int) -> int:
        if high <= low:
            return 0
        sums = self._prefix[feature] if self._prefix else None
        return high - low if sums is None else sums[high] - sums[low]

    def times(self, element: int, part: int) -> int:
        return element * part

    def over(self, element: int, part: int) -> int:
        return element // part

    def product(self, one: int, other: int) -> int:
        return one * other

    def plus(self, one: int, other: int) -> int:
        return one + other

    def total(self, element: int) -> int:
        return element

    def row(self, feature: int, low: int, high: int) -> list[int]:
        return [self.part(feature, low, high)]

    def element(self, masses: list[int]) -> int:
        return masses[0]

    def plain(self, feature: int) -> bool:
        return not self._prefix or self._prefix[feature] is None

    def nearest(self, feature: int, low: int, high: int) -> int | None:
        if high <= low:
            return None
        sums = self._prefix[feature] if self._prefix else None
        if sums is None:
            return low
        first = bisect_left(sums, sums[low] + 1, low, high + 1) - 1
        return first if first < high else None


@dataclass(frozen=True, slots=True)
class Part:
    """z^shift · (Σ coefficient·z^degree) / (1 − z^step), step 0 meaning no denominator; no terms means nothing."""

    shift: int
    terms: tuple[tuple[int, int], ...]
    """(degree, coefficient), ascending; the first degree is 0."""
    step: int


@dataclass(frozen=True, slots=True)
class Series:
    """z^shift · Σ coefficients[i]·z^i, known for i = 0…degree."""

    shift: int
    coefficients: tuple[int, ...]


class Distances:
    """Balls: parts and elements are power series in z, the exponent being the distance, cut off past the radius.

    Under the uniform measure the part of an l1 ball is short: (1 + z^s − z^(s(a+1)) − z^(s(b+1))) / (1 − z^s)
    for a steps of weight s to the left and b to the right. Exchanging one costs a few additions a coefficient. The
    power of z is kept apart (`shift`): what remains starts with a non-zero constant, which makes division exact.
    """

    scalar = False

    def __init__(self, ball: Ball, measure: Measure) -> None:
        self.low, self.high = ball.box.low, ball.box.high
        self._centre = ball.centre
        self._l0 = ball.norm == "l0"
        self._prefix = prefix_sums(measure)
        self._weights = measure.weights if self._prefix else ()
        self._unit_of_distance = 1 if self._l0 else math.gcd(*ball.weights) or 1
        self._steps = tuple(weight // self._unit_of_distance for weight in ball.weights)
        self.degree = reach(ball)
        self.unit = Series(0, (1,) + (0,) * self.degree)
        self._parts: dict[tuple[int, int, int], Part] = {}

    def part(self, feature: int, low: int, high: int) -> Part:
        key = (feature, low, high)
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = self._make_part(feature, low, high)
        return found

    def _make_part(self, feature: int, low: int, high: int) -> Part:
        if high <= low:
            return Part(0, (), 0)
        if not self._l0 and self._steps[feature] and self.plain(feature):
            return self._l1_part(feature, low, high)
        row = self._far_row(feature, low, high)
        degrees = sorted(degree for degree, mass in row.items() if mass)
        if not degrees:
            return Part(0, (), 0)
        shift = degrees[0]
        return Part(shift, tuple((d - shift, row[d]) for d in degrees if d - shift <= self.degree), 0)

    def _l1_part(self, feature: int, low: int, high: int) -> Part:
        centre, step = self._centre[feature], self._steps[feature]
        if low <= centre < high:
            ends = ((0, 1), (step, 1), (step * (centre - low + 1), -1), (step * (high - centre), -1))
            shift = 0
        else:
            shift = step * (low - centre if centre < low else centre - high + 1)
            ends = ((0, 1), (step * (high - low), -1), (0, 0), (0, 0))
        numerator: dict[int, int] = {}
        for degree, coefficient in ends:
            numerator[degree] = numerator.get(degree, 0) + coefficient
        terms = tuple((d, c) for d, c in sorted(numerator.items()) if c and d <= self.degree)
        return Part(shift, terms, step)

    def _far_row(self, feature: int, low: int, high: int) -> dict[int, int]:
        """Mass by distance; distances past the radius appear only where they are the nearest there are."""
        if self._l0:
            centre = self._centre[feature]
            at_centre = self._mass(feature, centre, centre + 1) if low <= centre < high else 0
            return {0: at_centre, 1: self._mass(feature, low, high) - at_centre}
        step, centre = self._steps[feature], self._centre[feature]
        if step == 0:
            return {0: self._mass(feature, low, high)}
        nearest = self.nearest(feature, low, high)
        if nearest is None:
            return {}
        first = abs(nearest - centre)
        last = first + self.degree // step
        row: dict[int, int] = {}
        for position in range(max(low, centre - last), min(high, centre + last + 1)):
            distance = abs(position - centre) * step
            row[distance] = row.get(distance, 0) + self._mass(feature, position, position + 1)
        return row

    def _mass(self, feature: int, low: int, high: int) -> int:
        sums = self._prefix[feature] if self._prefix else None
        return high - low if sums is None else sums[high] - sums[low]

    def times(self, element: Series, part: Part) -> Series:
        old = element.coefficients
        if not part.terms:
            return Series(element.shift, (0,) * len(old))
        new = [0] * len(old)
        for degree, coefficient in part.terms:
            for i in range(degree, len(old)):
                new[i] += coefficient * old[i - degree]
        for i in range(part.step, len(new) if part.step else 0):
            new[i] += new[i - part.step]
        return Series(element.shift + part.shift, tuple(new))

    def over(self, element: Series, part: Part) -> Series:
        new = list(element.coefficients)
        for i in range(len(new) - 1, part.step - 1 if part.step else len(new), -1):
            new[i] -= new[i - part.step]
        constant = part.terms[0][1]
        for i in range(len(new)):
            value = new[i]
            for degree, coefficient in part.terms[1:]:
                if degree > i:
                    break
                value -= coefficient * new[i - degree]
            new[i] = value // constant
        return Series(element.shift - part.shift, tuple(new))

    def product(self, one: Series, other: Series) -> Series:
        terms = tuple((i, c) for i, c in enumerate(other.coefficients) if c)
        return self.times(one, Part(other.shift, terms, 0))

    def plus(self, one: Series, other: Series) -> Series:
        if one.shift > other.shift:
            one, other = other, one
        gap = other.shift - one.shift
        moved = ((0,) * min(gap, len(one.coefficients)) + other.coefficients)[: len(one.coefficients)]
        return Series(one.shift, tuple(a + b for a, b in zip(one.coefficients, moved, strict=True)))

    def total(self, element: Series) -> int:
        return sum(element.coefficients[: max(0, self.degree - element.shift + 1)])

    def row(self, feature: int, low: int, high: int) -> list[int]:
        row = [0] * (self.degree + 1)
        if low < high:
            for distance, mass in self._far_row(feature, low, high).items():
                if distance <= self.degree:
                    row[distance] += mass
        return row

    def element(self, masses: list[int]) -> Series:
        return Series(0, tuple(masses))

    def plain(self, feature: int) -> bool:
        return not self._prefix or self._prefix[feature] is None

    def nearest(self, feature: int, low: int, high: int) -> int | None:
        if high <= low:
            return None
        centre = self._centre[feature]
        if self.plain(feature):
            return min(max(centre, low), high - 1)
        weights = self._weights[feature]
        assert weights is not None
        charged = (position for position in range(low, high) if weights[position])
        return min(charged, key=lambda position: abs(position - centre), default=None)


def reach(ball: Ball) -> int:
    """Largest distance of a point of the ball, in units of the greatest common divisor of the weights (at most)."""
    sides = zip(ball.box.low, ball.box.high, ball.centre, strict=True)
    farthest = [max(centre - low, high - 1 - centre, 0) for low, high, centre in sides]
    if ball.norm == "l0":
        return min(ball.radius, sum(steps > 0 for steps in farthest))
    unit = math.gcd(*ball.weights) or 1
    return min(ball.radius, sum(w * n for w, n in zip(ball.weights, farthest, strict=True))) // unit

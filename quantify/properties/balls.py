"""A centre, a norm and ε in, the region of grid positions around the centre out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from quantify.ir.domain import Domain, Feature, FixedFeature, IntFeature, Number
from quantify.ir.problem import Ball, Box, Region
from quantify.properties.yaml import Node, fail

NUMERIC = ("int", "fixed", "float32")
"""Kinds that have distances; the others move under l0 only."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What all balls of one property share."""

    domain: Domain
    norm: Literal["linf", "l1", "l0"]
    clip: tuple[Number, Number] | None
    """Cuts the numeric features."""
    held: frozenset[int]
    """Places of features that stay at their value."""


def region(shape: Shape, centre: tuple[int, ...], epsilon: Number, node: Node) -> Region:
    """The inputs at distance at most `epsilon` from `centre`, within the domain and `clip`.

    linf: every numeric feature within ε. l1: the sum of their distances within ε. l0: at most ε features differ, each
    taking any value of its range (a missing one too, unless `clip` bounds the feature). `node` is blamed.

    Raises:
        InputError: l1 over a float32 feature that may move.
    """
    box = _box(shape, centre, epsilon)
    if shape.norm == "linf":
        return box
    count = len(centre)
    if shape.norm == "l0":
        return Ball(box, centre, "l0", (1,) * count, min(math.floor(epsilon), count))
    units: list[Fraction | None] = [None] * count
    for place, feature in enumerate(shape.domain):
        if box.high[place] - box.low[place] == 1:
            continue
        if feature.kind == "float32":
            fail(
                node,
                f"l1 is not defined over the uneven grid of float32 features ({feature.name!r})",
                "use norm: linf, type: fixed, or hold the feature with fixed:",
            )
        units[place] = feature.step if isinstance(feature, FixedFeature) else Fraction(1)
    weights, radius = _integer_weights(units, Fraction(epsilon))
    return Ball(box, centre, "l1", weights, radius)


def _integer_weights(units: list[Fraction | None], epsilon: Fraction) -> tuple[tuple[int, ...], int]:
    """Coprime integer weights in the ratio of the units (1 where there is none), and ε in the same measure."""
    moving = [unit for unit in units if unit is not None]
    if not moving:
        return (1,) * len(units), 0
    common = math.lcm(*(unit.denominator for unit in moving))
    scaled = [int(unit * common) for unit in moving]
    divisor = math.gcd(*scaled)
    rest = iter(value // divisor for value in scaled)
    weights = tuple(1 if unit is None else next(rest) for unit in units)
    return weights, math.floor(epsilon * common / divisor)


def _box(shape: Shape, centre: tuple[int, ...], epsilon: Number) -> Box:
    low, high = list(centre), [position + 1 for position in centre]
    for place, feature in enumerate(shape.domain):
        if place in shape.held:
            continue
        numeric = feature.kind in NUMERIC
        if shape.norm == "l0":
            low[place], high[place] = 0, feature.size
            if numeric and shape.clip is not None:
                low[place], high[place] = _between(feature, *shape.clip)
        elif numeric:
            value = feature.value(centre[place])
            least, most = value - epsilon, value + epsilon
            if shape.clip is not None:
                least, most = max(least, shape.clip[0]), min(most, shape.clip[1])
            low[place], high[place] = _between(feature, least, most)
    return Box(tuple(low), tuple(high))


def _between(feature: Feature, least: Number, most: Number) -> tuple[int, int]:
    """Positions low ≤ p < high of the values between `least` and `most`, both included."""
    if isinstance(feature, IntFeature):  # images have hundreds: no search
        first, last = max(math.ceil(least), feature.minimum), min(math.floor(most), feature.maximum)
        return first - feature.minimum, last + 1 - feature.minimum
    end = feature.first_at_least(most)
    if end < feature.grid_size and feature.value(end) == most:
        end += 1
    return feature.first_at_least(least), end

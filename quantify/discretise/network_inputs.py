"""A problem's features and model columns in, the exact map from grid positions to the network's inputs out.

Where every column is affine in its feature's position the map is one linear layer. Others (categories with codes of
their own, one-hot columns, what a quantised library rounds) are piecewise linear, f(p) = f(0) + Σ c_k·max(p − k, 0):
one layer of ReLUs before the map makes any table of values exact for every engine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from quantify.discretise.grids import affine
from quantify.discretise.linear import RealLinear, from_fractions
from quantify.errors import InputError
from quantify.ir.domain import CategoricalFeature, Feature, Float32Feature
from quantify.ir.network import IntLayer, Network, Rows
from quantify.ir.problem import Problem

MOST_ENTRIES = 2**16
"""Values of one feature that are looked up in a table; more are refused."""


@dataclass(frozen=True, eq=False)
class InputMap:
    """Positions → (tables, if any) → linear → the network's inputs."""

    tables: IntLayer | None
    """ReLU units over the positions; None when the positions themselves are read."""
    linear: RealLinear
    """The network's inputs over the units (or positions), as exact real numbers."""


def input_map(problem: Problem, network: Network) -> InputMap:
    """The exact inputs of the network at every position, `preprocess` applied.

    Raises:
        InputError: A float32 feature, an input outside what the file allows, a table that is too long.
    """
    features = problem.domain.features
    for column in problem.columns:
        if isinstance(features[column.feature], Float32Feature):
            raise InputError(
                f"feature {features[column.feature].name!r} is float32, and a network's inputs must be evenly spaced",
                "declare it type: fixed with a step, such as {type: fixed, min: 0, max: 1, step: 0.001}",
            )
    columns = [_Column(problem, network, number) for number in range(len(problem.columns))]
    lines = [column.line() for column in columns]
    if all(line is not None for line in lines):
        rows = [
            ({column.feature: line[0]} if line[0] else {}, line[1])
            for column, line in zip(columns, lines, strict=True)
            if line is not None
        ]
        return InputMap(None, from_fractions(len(features), rows))
    return _with_tables(features, columns, lines)


def column_value(problem: Problem, number: int, position: int) -> Fraction:
    """The exact number that model column `number` gets at a position of its feature, `preprocess` applied."""
    column = problem.columns[number]
    if column.level is not None:
        raw = Fraction(int(position == column.level))
    else:
        raw = Fraction(problem.domain.features[column.feature].value(position))
    scale, offset = preprocess(problem, number)
    return raw * scale + offset


def preprocess(problem: Problem, number: int) -> tuple[Fraction, Fraction]:
    """Scale and offset of model column `number`."""
    options = problem.network
    if options is None:
        return Fraction(1), Fraction(0)
    return (
        Fraction(1) if options.scale is None else options.scale[number],
        Fraction(0) if options.offset is None else options.offset[number],
    )


class _Column:
    """One model column as a function of its feature's position."""

    def __init__(self, problem: Problem, network: Network, number: int) -> None:
        self.problem, self.network, self.number = problem, network, number
        column = problem.columns[number]
        self.feature = column.feature
        self.size = problem.domain.features[column.feature].grid_size
        self.name = problem.domain.features[column.feature].name
        self._check_bounds()

    def value(self, position: int) -> Fraction:
        real = column_value(self.problem, self.number, position)
        if self.network.input_scale is None:
            return real
        return Fraction(quantised(real, self.network, self.name))

    def line(self) -> tuple[Fraction, Fraction] | None:
        """(step, value at 0) when the column is affine in the position."""
        if self.size <= 2:
            first = self.value(0)
            return (self.value(self.size - 1) - first if self.size == 2 else Fraction(0)), first
        column = self.problem.columns[self.number]
        form = affine(self.problem.domain.features[column.feature])
        if self.network.input_scale is None:
            if form is None or column.level is not None:
                return self._as_line(self.table()) if column.level is None else None
            scale, offset = preprocess(self.problem, self.number)
            step, first = Fraction(form.step, form.denominator), Fraction(form.offset, form.denominator)
            return step * scale, first * scale + offset
        return self._as_line(self.table())

    def table(self) -> list[Fraction]:
        """Every value."""
        if self.size > MOST_ENTRIES:
            raise InputError(
                f"feature {self.name!r} has {self.size} values that the network does not see evenly spaced",
                f"use at most {MOST_ENTRIES} values, or a step that fits the network's inputs",
            )
        return [self.value(position) for position in range(self.size)]

    @staticmethod
    def _as_line(values: Sequence[Fraction]) -> tuple[Fraction, Fraction] | None:
        step = values[1] - values[0]
        return (step, values[0]) if all(b - a == step for a, b in itertools.pairwise(values)) else None

    def _check_bounds(self) -> None:
        bounds = self.network.input_bounds
        if bounds is None:
            return
        low, high = bounds[self.number]
        feature = self.problem.domain.features[self.feature]
        ends = (0, self.size - 1) if not isinstance(feature, CategoricalFeature) else range(self.size)
        for position in ends:
            # The file's bounds are floats: a decimal that rounds to one is inside.
            seen = float(column_value(self.problem, self.number, position))
            if not low <= seen <= high:
                raise InputError(
                    f"feature {self.name!r} reaches {seen:.12g}, and the model file allows {low:.12g} to {high:.12g}",
                    "narrow the feature's range to what the network was made for",
                )


def quantised(real: Fraction, network: Network, name: str) -> int:
    """The int8 that a quantised library, or its user, makes of a real input: nearest, clamped.

    Raises:
        InputError: So near to the middle of two that a user's floating point may take either.
    """
    assert network.input_scale is not None
    scale, zero_point = network.input_scale, network.input_zero_point
    with np.errstate(over="ignore"):
        single = np.float32(float(real))
        steps = np.float32(single / np.float32(float(scale)))
    # In float32, as in exact arithmetic or float64, a quotient only moves as far as the middle, never across it.
    near = math.floor(abs(float(steps)) + 0.5) if abs(steps) < 2**20 else 2**20
    if network.input_rounding == "nearest" and abs(steps) < 2**20:
        exact = real / scale
        middle = abs(exact - math.floor(exact) - Fraction(1, 2)) <= abs(exact) / 2**50
        if middle or math.floor(abs(exact) + Fraction(1, 2)) != near or float(abs(steps)) % 1 == 0.5:
            raise InputError(
                f"feature {name!r}: {float(real):.9g} lies between two of the network's quantised inputs",
                f"choose values that are multiples of the input scale {float(scale):.9g}",
            )
    return min(max((near if steps >= 0 else -near) + zero_point, -128), 127)


def _with_tables(
    features: Sequence[Feature], columns: Sequence[_Column], lines: Sequence[tuple[Fraction, Fraction] | None]
) -> InputMap:
    """Units max(position − k, 0) for the features that need them, and the columns over these units."""
    tabled = {column.feature for column, line in zip(columns, lines, strict=True) if line is None}
    first: list[int] = []
    unit_feature: list[int] = []
    unit_shift: list[int] = []
    for place, feature in enumerate(features):
        first.append(len(unit_feature))
        for shift in range(max(1, feature.grid_size - 1) if place in tabled else 1):
            unit_feature.append(place)
            unit_shift.append(shift)
    rows: list[tuple[dict[int, Fraction], Fraction]] = []
    for column, line in zip(columns, lines, strict=True):
        base = first[column.feature]
        if line is not None:
            rows.append(({base: line[0]} if line[0] else {}, line[1]))
            continue
        values = column.table()
        slopes = [b - a for a, b in itertools.pairwise(values)]
        bends = [slope - before for slope, before in zip(slopes, [Fraction(0), *slopes], strict=False)]
        rows.append(({base + k: bend for k, bend in enumerate(bends) if bend}, values[0]))
    width = len(unit_feature)
    places = np.array(unit_feature, np.int64)
    units = Rows(len(features), np.arange(width + 1), places, np.ones(width, np.int64))
    tables = IntLayer(units, -np.array(unit_shift, np.int64), activation="relu")
    return InputMap(tables, from_fractions(width, rows))

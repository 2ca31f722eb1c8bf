"""Finite input domains: each feature is an ordered grid of values, addressed by positions 0…n−1.

Every engine sees positions only. Values are exact (`int` or `Fraction`); the position after the last value of a
feature with `missing=True` stands for NaN. Grids are strictly ascending in value, so a threshold of a model is
one cut position.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Literal

type_names = ("int", "bool", "categorical", "fixed", "float32")
Number = int | Fraction
Shown = int | float | str | bool | None
"""A value as JSON and the terminal show it; None is the missing value."""


def float32_key(value: float) -> int:
    """Rank of a finite float32 among all of them: monotone in the value, 0 for both zeros.

    Raises:
        OverflowError: The value is no finite float32 after rounding.
    """
    bits: int = struct.unpack("<i", struct.pack("<f", value))[0]
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


def float32_from_key(key: int) -> float:
    """The float32 (as a Python float) whose rank is `key`; the inverse of `float32_key`, zero being +0.0."""
    bits = key if key >= 0 else (-key) | 0x80000000
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value


@dataclass(frozen=True)
class Feature:
    """Base of the feature kinds: a name, a grid of `grid_size` ascending values, perhaps one missing position."""

    kind: ClassVar[str]
    name: str
    missing: bool = False
    """Whether one more position, the last, stands for NaN."""

    @property
    def grid_size(self) -> int:
        """Number of values, the missing one not counted (0 for an empty grid)."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Number of positions, the missing one included."""
        return self.grid_size + self.missing

    @property
    def missing_position(self) -> int | None:
        """The position that stands for NaN, or None."""
        return self.grid_size if self.missing else None

    def value(self, position: int) -> Number:
        """The exact number the model is given at `position` (not the missing one), 0 ≤ position < grid_size."""
        raise NotImplementedError

    def position(self, value: Number) -> int | None:
        """The position whose value is exactly `value`, or None when it is not on the grid."""
        low = self.first_at_least(value)
        return low if low < self.grid_size and self.value(low) == value else None

    def first_at_least(self, value: Number) -> int:
        """The first position whose value is ≥ `value` (grid_size when there is none)."""
        low, high = 0, self.grid_size
        while low < high:
            middle = (low + high) // 2
            if self.value(middle) < value:
                low = middle + 1
            else:
                high = middle
        return low

    def shown(self, position: int) -> Shown:
        """The value at `position` for people and JSON: None for the missing one, a name for a category."""
        if position == self.missing_position:
            return None
        value = self.value(position)
        return value if isinstance(value, int) else float(value)


@dataclass(frozen=True)
class IntFeature(Feature):
    """Every integer from `minimum` to `maximum`, both included."""

    kind: ClassVar[str] = "int"
    minimum: int = 0
    maximum: int = 0

    @property
    def grid_size(self) -> int:
        return max(0, self.maximum - self.minimum + 1)

    def value(self, position: int) -> int:
        return self.minimum + position

    def first_at_least(self, value: Number) -> int:
        return min(max(math.ceil(value) - self.minimum, 0), self.grid_size)


@dataclass(frozen=True)
class BoolFeature(Feature):
    """0 (false) and 1 (true)."""

    kind: ClassVar[str] = "bool"

    @property
    def grid_size(self) -> int:
        return 2

    def value(self, position: int) -> int:
        return position


@dataclass(frozen=True)
class CategoricalFeature(Feature):
    """Named values, kept in ascending order of the number (`codes`) that the model sees for each.

    With `onehot`, the model has one 0/1 column a value instead (`onehot[i]` belongs to `values[i]`).
    """

    kind: ClassVar[str] = "categorical"
    values: tuple[str, ...] = ()
    codes: tuple[Number, ...] = ()
    onehot: tuple[str, ...] = ()

    @property
    def grid_size(self) -> int:
        return len(self.values)

    def value(self, position: int) -> Number:
        return self.codes[position]

    def shown(self, position: int) -> Shown:
        return None if position == self.missing_position else self.values[position]


@dataclass(frozen=True)
class FixedFeature(Feature):
    """The exact decimals minimum + i·step for i = 0…steps−1."""

    kind: ClassVar[str] = "fixed"
    minimum: Fraction = Fraction(0)
    step: Fraction = Fraction(1)
    steps: int = 1

    @property
    def grid_size(self) -> int:
        return self.steps

    def value(self, position: int) -> Fraction:
        return self.minimum + position * self.step

    def first_at_least(self, value: Number) -> int:
        return min(max(math.ceil((value - self.minimum) / self.step), 0), self.steps)


@dataclass(frozen=True)
class Float32Feature(Feature):
    """Every float32 from `minimum` to `maximum` (both float32 values), −0.0 and 0.0 being one."""

    kind: ClassVar[str] = "float32"
    minimum: float = 0.0
    maximum: float = 0.0

    @property
    def first_key(self) -> int:
        """`float32_key` of position 0: position p has key first_key + p."""
        return float32_key(self.minimum)

    @property
    def grid_size(self) -> int:
        return max(0, float32_key(self.maximum) - self.first_key + 1)

    def value(self, position: int) -> Fraction:
        return Fraction(float32_from_key(self.first_key + position))


@dataclass(frozen=True)
class Domain:
    """A product of finite features, in the order of the property file."""

    features: tuple[Feature, ...]
    relation_nodes: int | None = None
    """n when the features are the n×n adjacency matrix r_0_0 … of a relation, row by row."""

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of positions of each feature."""
        return tuple(feature.size for feature in self.features)

    @cached_property
    def size(self) -> int:
        """Number of inputs, exactly."""
        return math.prod(self.sizes)

    def index(self, name: str) -> int | None:
        """Place of the feature called `name`, or None."""
        return self._places.get(name)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {feature.name: place for place, feature in enumerate(self.features)}

    def shown(self, positions: tuple[int, ...]) -> dict[str, Shown]:
        """An input as name → value, for witnesses."""
        return {f.name: f.shown(p) for f, p in zip(self.features, positions, strict=True)}

    def __iter__(self) -> Iterator[Feature]:
        return iter(self.features)


MeasureKind = Literal["uniform", "product"]


@dataclass(frozen=True)
class Measure:
    """What is counted: grid points, or the mass of independent weights per feature value.

    For `product`, `weights[i][p]` is the non-negative integer weight of position p of feature i, None standing for
    weight 1 everywhere; the probability of a value is its weight over the feature's sum (`totals[i]`).
    """

    kind: MeasureKind = "uniform"
    weights: tuple[tuple[int, ...] | None, ...] = ()
    source: str = ""
    """Where the weights came from (a file with its digest, or "given")."""

    def totals(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Sum of each feature's weights: `sizes` itself under the uniform measure."""
        if self.kind == "uniform":
            return sizes
        return tuple(n if w is None else sum(w) for n, w in zip(sizes, self.weights, strict=True))

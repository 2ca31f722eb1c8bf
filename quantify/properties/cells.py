"""A cell of a data file and a feature in, the grid position out: the one whose value the model cannot tell from it."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import NoReturn

from quantify.errors import InputError
from quantify.ir.domain import (
    CategoricalFeature,
    Feature,
    FixedFeature,
    Float32Feature,
    IntFeature,
    Number,
    float32_key,
)
from quantify.properties.domain import shown
from quantify.properties.table import Cell, Rounding, Table


def position_of(feature: Feature, cell: Cell, table: Table, row: int) -> int:
    """The position of `cell` on the grid of `feature`.

    Exact values must be on the grid exactly. A cell of a float array matches the decimal that rounds to it, and for a
    float32 feature a value becomes the float32 that the library makes of it (by way of float64).

    Raises:
        InputError: Missing where the feature cannot be, text that is no value, or off the grid.
    """
    if isinstance(feature, IntFeature) and isinstance(cell, int) and feature.minimum <= cell <= feature.maximum:
        return cell - feature.minimum
    if cell is None:
        if feature.missing:
            return feature.grid_size
        _off(feature, table, row, "is empty or NaN", "remove the row, or give the feature missing: true")
    if isinstance(feature, CategoricalFeature):
        name = cell if isinstance(cell, str) else shown(cell)
        if name in feature.values:
            return feature.values.index(name)
    if isinstance(cell, str):
        truth = {"true": 1, "false": 0}.get(cell.lower())
        if feature.kind != "bool" or truth is None:
            known = f"values are {', '.join(feature.values[:8])}" if isinstance(feature, CategoricalFeature) else ""
            _off(feature, table, row, f"holds {cell!r}, which is no {'value' if known else 'number'}", known)
        cell = truth
    position = _nearest(feature, cell, table.rounding)
    if position is None:
        _off(feature, table, row, f"is {shown(cell)}, which is not on its grid", _neighbours(feature, cell))
    return position


def _off(feature: Feature, table: Table, row: int, what: str, hint: str) -> NoReturn:
    message = f"{table.path}: row {row}, column {feature.name!r} {what}"
    raise InputError(message, hint or "correct the cell, or choose other rows")


def _nearest(feature: Feature, value: Number, rounding: Rounding) -> int | None:
    if isinstance(feature, Float32Feature):
        try:
            position = float32_key(float(value)) - feature.first_key
        except OverflowError:
            return None
        return position if 0 <= position < feature.grid_size else None
    if rounding == "exact" or not isinstance(feature, FixedFeature):
        return feature.position(value)
    above = feature.first_at_least(value)
    for position in (above, above - 1):
        if 0 <= position < feature.grid_size and _rounded(feature.value(position), rounding) == value:
            return position
    return None


def _rounded(value: Fraction, rounding: Rounding) -> Fraction:
    """The decimal as a float array holds it."""
    number = float(value)
    if rounding == "float32":
        number = struct.unpack("<f", struct.pack("<f", number))[0]
    return Fraction(number)


def _neighbours(feature: Feature, value: Number) -> str:
    above = feature.first_at_least(value)
    near = [shown(feature.value(p)) for p in (above - 1, above) if 0 <= p < feature.grid_size]
    return f"the nearest values of its grid: {', '.join(near)}; change the domain or the row"

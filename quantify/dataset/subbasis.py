"""A table in, the sets of rows that everything else is made of out: classes, values of attributes, thresholds.

Topological framework of "Kvinge et al., 2021": a data set becomes a space by the sets that its labels and metadata
name. A row whose cell is missing is in none of the attribute's sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.dataset.columns import Column, Columns, written
from quantify.errors import InputError

Rows = NDArray[np.bool_]
PRESENT = frozenset(("1", "true", "yes", "y", "t"))
ABSENT = frozenset(("0", "false", "no", "n", "f"))


@dataclass(frozen=True)
class Named:
    """A set of rows of the subbasis."""

    name: str
    attribute: str
    rows: Rows


@dataclass(frozen=True)
class Subbasis:
    """The sets, and the columns that gave none."""

    sets: tuple[Named, ...]
    skipped: tuple[str, ...]
    indices: tuple[str, ...]
    """Those of the skipped ones that only number the rows."""


def build(
    table: Columns,
    label: str | None,
    attributes: Sequence[str] | None,
    others: Sequence[str],
    *,
    present_only: bool,
    most_values: int,
    parts: int,
) -> Subbasis:
    """The subbasis of a table.

    Args:
        label: The column whose classes are sets, or None.
        attributes: Columns; None: all except the label and `others`, pandas' index and texts with
            many values being skipped.
        present_only: One set for a binary attribute, of the rows that have it, instead of one a value.
        most_values: Up to so many values an attribute has one set a value.
        parts: Numeric attributes with more are cut at the quantiles 1/parts, 2/parts, …

    Raises:
        InputError: There is no such column, or one that was named is text with too many values, or there are no sets.
    """
    apart = (label, *others)
    indices = tuple(name for name in table.indices() if name not in apart) if attributes is None else ()
    wanted = tuple(name for name in table.names if name not in (*apart, *indices)) if attributes is None else attributes
    sets: list[Named] = []
    skipped = [*indices]
    if label is not None:
        sets += _one_a_value(table.column(label))
    for name in dict.fromkeys(wanted):
        if name == label:
            continue
        column = table.column(name)
        if len(column.cells) <= most_values:
            sets += _one_a_value(column, _absent(column) if present_only else None)
        elif column.numeric:
            sets += _thresholds(column, parts)
        elif attributes is None:
            skipped.append(name)
        else:
            raise InputError(
                f"{table.path}: the attribute {name!r} has {len(column.cells):,} values that are no numbers",
                f"leave it out, or allow one set a value: --most-values {len(column.cells)}",
            )
    if not sets:
        raise InputError(f"{table.path}: there are no attributes", "name columns: --attributes A,B, or --label Y")
    return Subbasis(tuple(sets), tuple(skipped), indices)


def _one_a_value(column: Column, without: int | None = None) -> Iterator[Named]:
    for place, cell in enumerate(column.cells):
        if place != without:
            yield Named(f"{column.name}={written(cell)}", column.name, column.codes == place)


def _absent(column: Column) -> int | None:
    """Place of the value that says that a binary attribute is absent; None when the attribute is not of that kind."""
    texts = [text.lower() for text in column.texts()]
    if set(texts) <= PRESENT | ABSENT and len(texts) <= 2:
        return next((place for place, text in enumerate(texts) if text in ABSENT), None)
    return None


def _thresholds(column: Column, parts: int) -> Iterator[Named]:
    """The sets of the values up to, and from, each quantile; a quantile is a value that occurs."""
    present = np.sort(column.codes[column.codes >= 0])
    places = [-(-len(present) * part // parts) - 1 for part in range(1, parts)]
    for code in dict.fromkeys(int(present[place]) for place in places):
        cell: Any = column.cells[code]
        yield Named(f"{column.name}<={written(cell)}", column.name, (column.codes >= 0) & (column.codes <= code))
        yield Named(f"{column.name}>={written(cell)}", column.name, column.codes >= code)

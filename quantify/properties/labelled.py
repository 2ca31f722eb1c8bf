"""A data file with labels goes in; the inputs as the model takes them and the class index of each row come out."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from quantify.errors import InputError
from quantify.ir.model import Model
from quantify.ir.problem import NetworkOptions
from quantify.properties.domain import shown
from quantify.properties.table import Cell, Table, column_index, open_table
from quantify.properties.yaml import exact_decimal, listed, suggest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def labelled_rows(
    path: Path, model: Model, label: str, network: NetworkOptions | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Every row of a file: (rows × model columns, NaN where a cell is empty) and the class index of its label.

    Columns are taken by name where the model has names, else in the order of the file; each value is the exact decimal,
    after the `preprocess` of `network`, rounded once to float64.

    Raises:
        InputError: The file cannot be read, has other columns than the model, holds text where a number is needed, or
            a label that is no class.
    """
    import numpy as np

    table = open_table(path)
    rows = table.rows(range(table.height()))
    if not rows:
        raise InputError(f"{path}: there are no rows", "give a file with data")
    places = _places(table, model, label)
    scale, offset = (None, None) if network is None else (network.scale, network.offset)
    scale, offset = scale or (Fraction(1),) * len(places), offset or (Fraction(0),) * len(places)
    steps = list(zip(places, scale, offset, strict=True))
    inputs = np.array(
        [[_number(row[at], a, b, table, number) for at, a, b in steps] for number, row in enumerate(rows)]
    )
    cells = table.labels(range(len(rows)), label)
    return inputs, np.array([_class(cell, table, number, model) for number, cell in enumerate(cells)], np.int64)


def _places(table: Table, model: Model, label: str) -> list[int]:
    if model.column_names is not None and table.names is not None:
        return [column_index(table, name) for name in model.column_names]
    skipped = table.names.index(label) if table.names is not None and label in table.names else None
    places = [place for place in range(table.width) if place != skipped]
    if len(places) != model.columns:
        raise InputError(
            f"{table.path}: {len(places)} columns beside the label, and the model takes {model.columns}",
            "keep the model's columns, in its order, and the label",
        )
    return places


def _number(cell: Cell, scale: Fraction, offset: Fraction, table: Table, row: int) -> float:
    if cell is None:
        return float("nan")
    if isinstance(cell, str):
        raise InputError(f"{table.path}: row {row}: {cell!r} is no number", "encode it as the model was trained")
    return float(Fraction(cell) * scale + offset)


def _class(cell: Cell, table: Table, row: int, model: Model) -> int:
    written = "" if cell is None else cell if isinstance(cell, str) else shown(cell)
    found = class_of(written, model.classes)
    if found is None:
        raise InputError(
            f"{table.path}: the label {written!r} of row {row} is no class of the model"
            + suggest(written, model.classes),
            f"its classes are {listed(model.classes, 20)}",
        )
    return found


def class_of(written: str, classes: Sequence[str]) -> int | None:
    """Index of the class that a label names, by its text or else as the one of the same value (`1.0` for "1")."""
    if written in classes:
        return classes.index(written)
    value = exact_decimal(written)
    same = [i for i, name in enumerate(classes) if value is not None and exact_decimal(name) == value]
    return same[0] if len(same) == 1 else None

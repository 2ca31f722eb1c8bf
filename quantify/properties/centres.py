"""The `inputs:` section of a robustness property in, its rows as grid positions and labels out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from quantify.errors import InputError
from quantify.ir.domain import CategoricalFeature, Domain, Feature, Number
from quantify.ir.model import Model
from quantify.ir.problem import Column
from quantify.properties.balls import NUMERIC
from quantify.properties.cells import position_of
from quantify.properties.domain import shown
from quantify.properties.fields import Fields, blame, boolean, describe, text
from quantify.properties.table import Cell, Table, column_index, open_table
from quantify.properties.yaml import Node, Scalar, Sequence, exact_decimal, fail, listed, suggest

MAX_ROWS = 1_000_000
_ROWS = re.compile(r"(\d+)(?:\s*-\s*(\d+))?\Z", re.ASCII)


@dataclass(frozen=True)
class Centres:
    """The chosen rows of a data file."""

    node: Node
    """The section, blamed for what has no line of its own."""
    table: Table
    rows: tuple[int, ...]
    cells: tuple[tuple[Cell, ...], ...]
    """One tuple a chosen row, all columns of the file."""
    label_column: int | None
    """Place of the label among the columns, None without label or when it is an array of its own."""
    labels: tuple[Cell, ...] | None
    """The label of each chosen row, None when none was named."""

    def places(self) -> list[int]:
        """Places of the columns that hold features."""
        return [place for place in range(self.table.width) if place != self.label_column]

    def feature_names(self, model: Model) -> tuple[str, ...]:
        """Names of the model's columns: its own, else those of the file, else x0, x1, …

        Raises:
            InputError: The file has another number of columns.
        """
        if model.column_names is not None:
            return model.column_names
        places = self.places()
        if len(places) != model.columns:
            self.wrong_width(len(places), model)
        names = self.table.names
        return tuple(f"x{i}" for i in range(model.columns)) if names is None else tuple(names[p] for p in places)

    def wrong_width(self, count: int, model: Model) -> NoReturn:
        """Raise the error about the number of columns."""
        beside = "" if self.label_column is None else " beside the label"
        fail(
            self.node,
            f"{self.table.path} has {count} columns{beside}, the model takes {model.columns}",
            "name the label column with label:, and remove columns that are no features",
        )

    def column_of(self, name: str) -> int:
        """Place of the feature column called `name` in a file with names.

        Raises:
            InputError: There is none.
        """
        place = self._by_name.get(name)
        if place is None:
            known = list(self._by_name)
            fail(
                self.node,
                f"{self.table.path}: the column {name!r} is missing{suggest(name, known)}",
                f"its columns are {listed(known)}",
            )
        return place

    @cached_property
    def _by_name(self) -> dict[str, int]:
        """Places of the named feature columns."""
        names = self.table.names or ()
        return {name: place for place, name in enumerate(names) if place != self.label_column}

    def integer(self, cell: Cell, row: int, name: str) -> int:
        """A cell that must be an integer, as there is no domain.

        Raises:
            InputError: It is none, with row and column.
        """
        if isinstance(cell, int):
            return cell
        where = f"{self.table.path}: row {row}, column {name!r}"
        if cell is None:
            message, hint = f"{where} is empty or NaN", "remove the row or fill the cell"
        elif isinstance(cell, str):
            message, hint = f"{where} holds {cell!r}, which is no number", "add domain: with this feature's values"
        else:
            message, hint = f"{where} is {shown(cell)}, no integer", "add domain: with type: fixed or float32 features"
        raise InputError(f"{self.node.file}:{self.node.line}: {message}", hint)

    def positions(
        self, domain: Domain, columns: tuple[Column, ...], model: Model, clip: tuple[Number, Number] | None
    ) -> tuple[list[tuple[int, ...]], tuple[str, ...]]:
        """The grid positions of every centre, and notes about what was rounded.

        Raises:
            InputError: Off the grid, missing, or outside `clip`, with row and column.
        """
        sources = self._sources(domain, columns, model)
        centres: list[tuple[int, ...]] = []
        rounded = 0
        with blame(self.node):
            for row, cells in zip(self.rows, self.cells, strict=True):
                point = []
                for feature, source in zip(domain, sources, strict=True):
                    position = self._position(feature, [cells[place] for place in source], row)
                    if feature.kind in NUMERIC:
                        value = feature.value(position)
                        rounded += feature.kind == "float32" and value != cells[source[0]]
                        if clip is not None and not clip[0] <= value <= clip[1]:
                            where = f"{self.table.path}: row {row}, column {feature.name!r} is {shown(value)}"
                            bounds = f"[{shown(clip[0])}, {shown(clip[1])}]"
                            raise InputError(f"{where}, outside clip {bounds}", "widen clip, or choose other rows")
                    point.append(position)
                centres.append(tuple(point))
        note = f"{rounded} cells of the centres were rounded to float32, as the model does"
        return centres, (note,) if rounded else ()

    def _position(self, feature: Feature, cells: list[Cell], row: int) -> int:
        if len(cells) > 1:
            assert isinstance(feature, CategoricalFeature)
            if sorted(cell == 1 for cell in cells)[-2:] != [False, True] or any(cell not in (0, 1) for cell in cells):
                raise InputError(
                    f"{self.table.path}: row {row}: exactly one of {listed(feature.onehot)} must be 1, the others 0",
                    "correct the row, or choose other rows",
                )
            return cells.index(1)
        if cells[0] is None:
            raise InputError(
                f"{self.table.path}: row {row}, column {feature.name!r} is empty or NaN",
                "a centre needs all its values: choose other rows",
            )
        return position_of(feature, cells[0], self.table, row)

    def _sources(self, domain: Domain, columns: tuple[Column, ...], model: Model) -> list[list[int]]:
        """For each feature, the places of the columns that hold it: one, or one a value for onehot columns."""
        if self.table.names is not None:
            return [
                [self.column_of(name) for name in feature.onehot]
                if isinstance(feature, CategoricalFeature) and feature.onehot and feature.name not in self.table.names
                else [self.column_of(feature.name)]
                for feature in domain
            ]
        places = self.places()
        if len(places) != model.columns:
            self.wrong_width(len(places), model)
        sources: list[list[tuple[int, int]]] = [[] for _ in domain]
        for place, column in zip(places, columns, strict=True):
            sources[column.feature].append((column.level or 0, place))
        return [[place for _, place in sorted(source)] for source in sources]


def read_centres(node: Node, base: Path) -> Centres:
    """Read the chosen rows; relative paths start from `base`.

    Raises:
        InputError: No such file, rows or label column.
    """
    fields = Fields(node, "inputs", ("file", "rows", "label", "header"))
    file_node = fields.need("file", 'write inputs: {file: data.csv, rows: "0-9"}')
    header = fields.get("header")
    with blame(file_node):
        table = open_table(base / text(file_node, "file"), header is None or boolean(header, "header"))
        if table.height() == 0:
            fail(file_node, f"{table.path} has no data rows", "robustness needs at least one input")
    rows_node = fields.get("rows")
    label_node = fields.get("label")
    label_column, labels = None, None
    with blame(rows_node or node):
        rows = tuple(range(table.height())) if rows_node is None else tuple(_rows(rows_node))
        cells = tuple(table.rows(rows))
    if label_node is not None:
        name = text(label_node, "label")
        with blame(label_node):
            labels = tuple(table.labels(rows, name))
            label_column = None if name in getattr(table, "arrays", {}) else column_index(table, name)
    return Centres(node, table, rows, cells, label_column, labels)


def read_cells(centres: Centres, names: tuple[str, ...], model: Model) -> list[tuple[Cell, ...]]:
    """The chosen rows with the model's columns only, in the order of `names`.

    Raises:
        InputError: A column is missing, or without names their number differs.
    """
    if centres.table.names is not None:
        places = [centres.column_of(name) for name in names]
    else:
        places = centres.places()
        if len(places) != model.columns:
            centres.wrong_width(len(places), model)
    return [tuple(row[place] for place in places) for row in centres.cells]


def class_of(cell: Cell, classes: tuple[str, ...], centres: Centres, row: int) -> int:
    """The index of the class that a label cell means: the same text, else the same number (`7.0` is the class 7).

    Raises:
        InputError: No class, or several, are meant.
    """
    if cell is None:
        fail(centres.node, f"{centres.table.path}: row {row} has no label", "choose other rows")
    written = cell if isinstance(cell, str) else shown(cell)
    if written in classes:
        return classes.index(written)
    value = exact_decimal(written) if isinstance(cell, str) else cell
    same = [i for i, name in enumerate(classes) if value is not None and exact_decimal(name) == value]
    if len(same) != 1:
        message = f"{centres.table.path}: the label {written!r} of row {row} is no class of the model"
        fail(centres.node, message + suggest(written, classes), f"its classes are {listed(classes, 20)}")
    return same[0]


def _rows(node: Node) -> list[int]:
    """Row numbers from a number, text such as "0-3,7" (ends included), or a list of both."""
    entries = node.items if isinstance(node, Sequence) else (node,)
    rows: list[int] = []
    seen: set[int] = set()
    for entry in entries:
        if not isinstance(entry, Scalar):
            fail(entry, f"rows must be numbers or ranges, not {describe(entry)}", 'write rows: "0-9" or [0, 3, 7]')
        for part in entry.text.split(","):
            match = _ROWS.match(part.strip())
            if match is None or len(part) > 40:
                fail(entry, f"rows: {part.strip()!r} is no row or range", 'write rows: "0-9", "0,3,5-7" or [0, 3, 7]')
            first, last = int(match.group(1)), int(match.group(2) or match.group(1))
            if last < first:
                fail(entry, f"rows: {part.strip()!r} runs backwards", f'write "{last}-{first}"')
            if last - first >= MAX_ROWS:
                fail(entry, f"rows: {part.strip()!r} are more than {MAX_ROWS} rows", "choose fewer rows")
            for row in range(first, last + 1):
                if row in seen:
                    fail(entry, f"row {row} is there twice", "name each row once")
                seen.add(row)
                rows.append(row)
    if not rows:
        fail(node, "no row is chosen", 'write rows: "0-9"')
    return rows

"""A data file (csv, npy, npz) in, cells of chosen rows out, exactly; rows that nobody asks for are not parsed.

Rows are data rows, counted from 0. A cell is an exact number or text; the numbers of an array are the exact values of
its floats, and `rounding` says what they were rounded to before they were stored.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from quantify.errors import InputError
from quantify.ir.domain import Number
from quantify.properties.yaml import exact_decimal, integral, listed, suggest

if TYPE_CHECKING:
    from numpy.typing import NDArray

Cell = Number | str | None
"""An exact number, text that is none, or None for a missing value."""
Rounding = Literal["exact", "float32", "float64"]
MISSING_WORDS = frozenset(("", "na", "nan", "n/a", "null", "none", "?"))
CSV_CHUNK = 2000
NO_TEXT = {
    b"\x1f\x8b": "it is compressed: unpack it first, as with gzip -d",
    b"PK\x03\x04": "it is an archive or a spreadsheet: unpack it, or save the sheet as CSV in UTF-8",
    b"\xff\xfe": "it is UTF-16: save it as UTF-8",
    b"\xfe\xff": "it is UTF-16: save it as UTF-8",
}
"""How files begin that are taken for text, and what to do then."""


class Table(Protocol):
    """What a data file offers."""

    path: Path
    names: tuple[str, ...] | None
    """Column names, or None when the file has none."""
    width: int
    """Number of columns (of an npz: of X)."""
    rounding: Rounding
    sha256: str

    def rows(self, wanted: Sequence[int]) -> list[tuple[Cell, ...]]:
        """The cells of some rows.

        Raises:
            InputError: A row that the file does not have, or a ragged one.
        """
        ...

    def height(self) -> int:
        """Number of data rows."""
        ...

    def distinct(self) -> list[set[Cell]]:
        """The different cells of each column, over all rows."""
        ...

    def labels(self, wanted: Sequence[int], column: str) -> list[Cell]:
        """The cells that hold the labels of some rows: a column, or an array of an npz.

        Raises:
            InputError: There is no such column.
        """
        ...


def open_table(path: Path, header: bool = True) -> Table:
    """The table in a .csv, .npy or .npz file; `header` says whether a CSV begins with its column names.

    Raises:
        InputError: Not there, not readable, of another type, or without rows and columns.
    """
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".npy", ".npz"):
        raise InputError(f"{path}: data files are csv, npy or npz", "save the data as one of these")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file", "paths in a property file are relative to that file")
    try:
        if suffix == ".csv":
            return CsvTable.read(path, header)
        return ArrayTable.read(path)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{path}: cannot be read: {reason}", "check the path and permissions") from None


def cell_of(text: str) -> Cell:
    """A cell of a CSV file: number, missing, or text."""
    text = text.strip()
    value = exact_decimal(text)
    if value is not None:
        return value
    return None if text.lower() in MISSING_WORDS else text


def column_index(table: Table, name: str) -> int:
    """Place of the column called `name`; without names, `name` is the place itself.

    Raises:
        InputError: There is none.
    """
    if table.names is not None:
        if name in table.names:
            return table.names.index(name)
        no_such_column(table.path, name, table.names)
    if name.isascii() and name.isdigit() and int(name) < table.width:
        return int(name)
    raise InputError(
        f"{table.path}: the columns have no names, and {name!r} is no place among its {table.width} columns",
        f"give the place of the column, 0 to {table.width - 1}",
    )


def no_such_column(path: Path, name: str, names: Sequence[str]) -> NoReturn:
    """Raise the error about a column that a file with a header does not have."""
    raise InputError(
        f"{path}: there is no column {name!r}{suggest(name, names)}",
        separated(names) or f"its columns are {listed(names)}",
    )


def separated(names: Sequence[str]) -> str:
    """What to do where the one name of a header is several ones, separated by something else; or nothing."""
    marks = {";": "semicolons", "\t": "tabs", "|": "bars"}
    found = [word for mark, word in marks.items() if len(names) == 1 and mark in names[0]]
    return f"its cells are separated by {found[0]}: save it with commas" if found else ""


def utf8(path: Path, content: bytes) -> str:
    """The text of a file, without a byte order mark.

    Raises:
        InputError: It is none in UTF-8; with the line.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        hint = next((hint for magic, hint in NO_TEXT.items() if content.startswith(magic)), "save the file as UTF-8")
        raise InputError(f"{path}:{line}: not UTF-8 text", hint) from None


def no_such_row(path: Path, row: int, height: int) -> NoReturn:
    """Raise the error about a row beyond the end."""
    last = f"rows 0 to {height - 1}" if height else "no rows"
    raise InputError(f"{path}: there is no row {row}: the file has {height} data rows", f"it has {last}")


@dataclass
class CsvTable:
    """A CSV file, split into lines; only lines that are asked for are split into cells."""

    path: Path
    names: tuple[str, ...] | None
    width: int
    sha256: str
    lines: list[str]
    """Data rows, each a whole record."""
    rounding: Rounding = "exact"
    _cells: dict[str, Cell] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, header: bool) -> CsvTable:
        """Split the file into records and read its header."""
        content = path.read_bytes()
        lines = _records(path, utf8(path, content))
        if not lines:
            raise InputError(f"{path}: the file is empty", "the first line names the columns")
        first = _split(path, lines[0])
        names = tuple(name.strip() for name in first) if header else None
        if names is not None:
            _check_header(path, names)
        return cls(path, names, len(first), hashlib.sha256(content).hexdigest(), lines[1:] if header else lines)

    def height(self) -> int:
        """Number of data rows."""
        return len(self.lines)

    def _cell(self, text: str) -> Cell:
        try:
            return self._cells[text]
        except KeyError:
            return self._cells.setdefault(text, cell_of(text))

    def _record(self, row: int) -> list[str]:
        if row >= len(self.lines):
            no_such_row(self.path, row, len(self.lines))
        record = _split(self.path, self.lines[row])
        if len(record) != self.width:
            raise InputError(
                f"{self.path}: row {row} has {len(record)} cells instead of {self.width}",
                separated(self.names or ()) or "every row needs one cell for each column of the header",
            )
        return record

    def rows(self, wanted: Sequence[int]) -> list[tuple[Cell, ...]]:
        """The cells of some rows."""
        return [tuple(map(self._cell, self._record(row))) for row in wanted]

    def distinct(self) -> list[set[Cell]]:
        """The different cells of each column."""
        texts: list[set[str]] = [set() for _ in range(self.width)]
        for start in range(0, len(self.lines), CSV_CHUNK):
            chunk = [self._record(row) for row in range(start, min(start + CSV_CHUNK, len(self.lines)))]
            for seen, column in zip(texts, zip(*chunk, strict=True), strict=True):
                seen.update(column)
        return [set(map(self._cell, seen)) for seen in texts]

    def labels(self, wanted: Sequence[int], column: str) -> list[Cell]:
        """The label cells of some rows, as text."""
        place = column_index(self, column)
        return [self._record(row)[place].strip() for row in wanted]


def _records(path: Path, text: str) -> list[str]:
    """The records of a CSV text, blank lines left out."""
    if '"' not in text:
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return [line for line in lines if line]
    # A quoted cell may hold line breaks: let the csv module say where records end, and write each back as one line.
    records: list[str] = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    try:
        for record in reader:
            if record:
                buffer.seek(0)
                buffer.truncate()
                writer.writerow(record)
                records.append(buffer.getvalue())
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not valid CSV: {error}", "check the quotes on this line") from None
    return records


def _split(path: Path, record: str) -> list[str]:
    if '"' not in record:
        return record.split(",")
    try:
        return next(csv.reader(io.StringIO(record, newline=""), strict=True))
    except csv.Error as error:
        raise InputError(f"{path}: not valid CSV: {error}", "check the quotes") from None


def _check_header(path: Path, names: tuple[str, ...]) -> None:
    seen: set[str] = set()
    hint = "the first line must name the columns; without one, write header: false beside file:"
    for place, name in enumerate(names):
        if not name:
            # What pandas writes unless told otherwise.
            index = "an index that pandas wrote? to_csv(…, index=False) leaves it out; else " if place == 0 else ""
            raise InputError(f"{path}:1: column {place} has no name", index + hint)
        if name in seen:
            raise InputError(f"{path}:1: the column name {name!r} is there twice", hint)
        seen.add(name)
    values = [exact_decimal(name) for name in names]
    if None not in values and values != list(range(len(values))):
        raise InputError(f"{path}:1: the first line holds numbers, not column names", hint)


@dataclass
class ArrayTable:
    """A matrix in an npy file, or the arrays X and y (or another) in an npz file."""

    path: Path
    width: int
    sha256: str
    matrix: NDArray[Any]
    arrays: dict[str, NDArray[Any]]
    """The other arrays of an npz."""
    rounding: Rounding
    names: tuple[str, ...] | None = None

    @classmethod
    def read(cls, path: Path) -> ArrayTable:
        """Map the file into memory and check that it holds a matrix of numbers."""
        import numpy as np

        arrays: dict[str, NDArray[Any]] = {}
        try:
            if path.suffix.lower() == ".npy":
                matrix = np.load(path, mmap_mode="r", allow_pickle=False)
            else:
                with np.load(path, allow_pickle=False) as archive:
                    if "X" not in archive.files:
                        raise InputError(f"{path}: there is no array 'X'", f"the file has {listed(archive.files)}")
                    matrix = archive["X"]
                    arrays = {name: archive[name] for name in archive.files if name != "X"}
        except InputError:
            raise
        except Exception as error:  # whatever NumPy and zipfile raise on a broken file, there is one answer
            raise InputError(
                f"{path}: not an array file that can be read: {error}",
                "save it with numpy.save or numpy.savez, without objects",
            ) from None
        if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            shape, kind = getattr(matrix, "shape", "?"), getattr(matrix, "dtype", "?")
            raise InputError(f"{path}: a matrix of numbers is needed, not {kind} of shape {shape}", "rows × columns")
        rounding: Rounding = "exact"
        if matrix.dtype.kind == "f":
            if matrix.dtype.itemsize > 8:
                raise InputError(f"{path}: {matrix.dtype} is not supported", "save the array as float64")
            widths: dict[int, Rounding] = {8: "float64", 4: "float32"}
            rounding = widths.get(matrix.dtype.itemsize, "exact")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(path, matrix.shape[1], digest, matrix, arrays, rounding)

    def height(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    def rows(self, wanted: Sequence[int]) -> list[tuple[Cell, ...]]:
        """The cells of some rows."""
        for row in wanted:
            if row >= self.height():
                no_such_row(self.path, row, self.height())
        return [tuple(self._cell(value, row) for value in self.matrix[row].tolist()) for row in wanted]

    def _cell(self, value: bool | int | float, row: int | None = None) -> Cell:
        if not isinstance(value, float):
            return int(value)
        if math.isnan(value):
            return None
        if math.isinf(value):
            where = "" if row is None else f" row {row}:"
            raise InputError(f"{self.path}:{where} an infinite value", "inputs are finite: remove the row")
        return integral(Fraction(value))

    def distinct(self) -> list[set[Cell]]:
        """The different cells of each column, floats as the shortest decimal that rounds to them."""
        import numpy as np

        return [set(map(self._shortest, np.unique(self.matrix[:, j]))) for j in range(self.width)]

    def _shortest(self, value: Any) -> Cell:
        cell = self._cell(value.item())
        return cell if cell is None or self.rounding == "exact" else exact_decimal(str(value))

    def labels(self, wanted: Sequence[int], column: str) -> list[Cell]:
        """The labels of some rows: from the array called `column`, or from a column of the matrix by place."""
        array = self.arrays.get(column)
        if array is None:
            if self.arrays and not re.fullmatch("[0-9]+", column):
                raise InputError(
                    f"{self.path}: there is no array {column!r}{suggest(column, self.arrays)}",
                    f"the file has {listed(self.arrays)} beside X",
                )
            place = column_index(self, column)
            return [row[place] for row in self.rows(wanted)]
        if array.ndim != 1 or len(array) != self.height() or array.dtype.kind not in "biufUS":
            raise InputError(f"{self.path}: {column!r} is no list of {self.height()} labels", "one label a row of X")
        return [self._label(array[row].item()) for row in wanted]

    def _label(self, value: bool | int | float | str | bytes) -> Cell:
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return str(value) if isinstance(value, bool | str) else self._cell(value)

"""A file of training rows, larger than memory perhaps, as pieces of lines; each piece is read by itself.

JSON lines and CSV files without quotes are cut at line ends anywhere; a CSV file with quotes, in which a line break
may be part of a cell, is one piece.
"""

from __future__ import annotations

import csv
import io
import json
import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from quantify.dataset.suite import JSON_LINES
from quantify.errors import InputError
from quantify.properties.yaml import exact_decimal

PIECE = 1 << 25
"""Bytes of a piece."""
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Training:
    """A training file, ready to be read in pieces."""

    path: Path
    size: int
    header: tuple[str, ...] | None
    """Columns of a CSV; None for JSON lines."""
    start: int
    """First byte after the header and the byte-order mark."""
    quoted: bool
    """Whether a CSV has quotes."""

    @property
    def pieces(self) -> tuple[tuple[int, int], ...]:
        """(first byte, byte after the last) of every piece; a line belongs to the piece in which it begins."""
        if self.quoted:
            return ((self.start, self.size),)
        return tuple((at, min(at + PIECE, self.size)) for at in range(self.start, self.size, PIECE))


class BadRow(Exception):
    """A row that cannot be read: its place among the lines of its piece (from 0), and why."""


def open_training(path: Path) -> Training:
    """Look at the beginning of a training file.

    Raises:
        InputError: Not there, of another type, empty, or a CSV header that names a column twice.
    """
    suffix = path.suffix.lower()
    if suffix not in (".csv", *JSON_LINES):
        raise InputError(f"{path}: training data are a .csv or .jsonl file", "one row a line")
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            bom = len(BOM) if file.read(len(BOM)) == BOM else 0
            if size == bom:
                raise InputError(f"{path}: the file is empty", "give the file that the model was trained on")
            if suffix != ".csv":
                return Training(path, size, None, bom, False)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                quoted = content.find(b'"') >= 0
            file.seek(bom)
            if not quoted:
                header = _decoded(path, file.readline()).rstrip("\r\n").split(",")
                return Training(path, size, _checked_header(path, header), file.tell(), False)
        with path.open(encoding="utf-8-sig", newline="") as text:
            header = next(csv.reader(text, strict=True), [])
        return Training(path, size, _checked_header(path, header), 0, True)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        reason = "there is no such file" if missing else f"cannot be read: {error.strerror}"
        raise InputError(f"{path}: {reason}", "give the file that the model was trained on") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}:1: the header cannot be read: {error}", "save it as a CSV file in UTF-8") from None


def _decoded(path: Path, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}:1: not UTF-8 text", "save the file as UTF-8") from None


def _checked_header(path: Path, header: list[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in header)
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InputError(f"{path}:1: the column name {name!r} is there twice", "give each column its own name")
    return names


# --- the lines of a piece ---------------------------------------------------------------------------------------------
def lines(training: Training, piece: tuple[int, int]) -> list[bytes]:
    """The lines that begin in a piece, without their ends."""
    start, end = piece
    with training.path.open("rb") as file:
        if start > training.start:
            file.seek(start - 1)
            # The line that the piece's first byte is in the middle of belongs to the one before.
            start += len(file.readline()) - 1
        if start >= end:
            return []
        file.seek(start)
        data = file.read(end - start)
        if not data.endswith(b"\n"):
            data += file.readline()
    found = data.split(b"\n")
    if not found[-1]:
        found.pop()
    return found


ABSENT = object()
"""What a row has under a key that it lacks: unlike null, it equals nothing."""
Handle = tuple[int, Any, bytes]
"""Line within the piece (from 0), the row, and for JSON the line as it stands."""


class Rows(Protocol):
    """The rows of one piece."""

    lines: int
    """Lines of the piece, blank ones included; of a file with quotes, lines read so far."""

    def __iter__(self) -> Iterator[tuple[Any, Handle]]:
        """(value of the first field, the row), numbers as floats; ABSENT where the row lacks the field.

        Raises:
            BadRow: A line that is no row.
        """
        ...

    def values(self, row: Handle) -> list[Any]:
        """The values of all fields, numbers as floats."""
        ...

    def exact_values(self, row: Handle) -> list[Any]:
        """The values of all fields, numbers exact."""
        ...


def rows(training: Training, piece: tuple[int, int], fields: Sequence[str], first: int) -> Rows:
    """The rows of a piece, their values in `fields`; `fields[first]` is the one that is looked at first."""
    if training.header is None:
        return _Objects(training, piece, fields, first)
    return _Cells(training, piece, [training.header.index(name) for name in fields], first)


class _Objects:
    """JSON lines. What an object holds under `features` is taken before what it holds itself."""

    def __init__(self, training: Training, piece: tuple[int, int], fields: Sequence[str], first: int) -> None:
        self._lines = lines(training, piece)
        self.lines = len(self._lines)
        self._fields = fields
        self._first = fields[first]

    def __iter__(self) -> Iterator[tuple[Any, Handle]]:
        name = self._first
        for place, line in enumerate(self._lines):
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                if not line.strip():
                    continue
                # What the strict parser refuses may be NaN, a number beyond float64 or half of a surrogate pair.
                row = _loads(place, line, float)
            if type(row) is not dict:
                raise BadRow(place, "a training row is an object")
            inner = row.get("features")
            if type(inner) is dict and name in inner:
                yield inner[name], (place, row, line)
            else:
                yield row.get(name, ABSENT), (place, row, line)

    def values(self, row: Handle) -> list[Any]:
        return self._of(row[1])

    def exact_values(self, row: Handle) -> list[Any]:
        return self._of(_loads(row[0], row[2], _exact))

    def _of(self, row: dict[str, Any]) -> list[Any]:
        inner = row.get("features")
        if type(inner) is dict:
            return [inner[name] if name in inner else row.get(name, ABSENT) for name in self._fields]
        return [row.get(name, ABSENT) for name in self._fields]


class _Cells:
    """CSV: a value is the text of a cell."""

    def __init__(self, training: Training, piece: tuple[int, int], columns: list[int], first: int) -> None:
        self._training = training
        self._lines = [] if training.quoted else lines(training, piece)
        self.lines = len(self._lines)
        self._columns = columns
        self._first = columns[first]

    def __iter__(self) -> Iterator[tuple[Any, Handle]]:
        assert self._training.header is not None
        width, first = len(self._training.header), self._first
        for place, row in _quoted(self._training) if self._training.quoted else self._plain():
            if len(row) != width:
                raise BadRow(place, f"{len(row)} cells instead of {width}")
            yield row[first], (place, row, b"")

    def values(self, row: Handle) -> list[Any]:
        return [row[1][column] for column in self._columns]

    exact_values = values

    def _plain(self) -> Iterator[tuple[int, list[str]]]:
        for place, line in enumerate(self._lines):
            try:
                text = line.decode()
            except UnicodeDecodeError:
                raise BadRow(place, "not UTF-8 text") from None
            if text.endswith("\r"):
                text = text[:-1]
            if text:
                yield place, text.split(",")


def _exact(text: str) -> Any:
    value = exact_decimal(text)
    return _Huge(text) if value is None else value


@dataclass(frozen=True, slots=True)
class _Huge:
    """A number that no case has: NaN, an infinity, or beyond what a suite may hold."""

    text: str


def _loads(place: int, line: bytes, number: Callable[[str], Any]) -> Any:
    try:
        return json.loads(line, parse_float=number, parse_int=number, parse_constant=_Huge)
    except RecursionError:
        raise BadRow(place, "nested too deeply") from None
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise BadRow(place, f"not a line of JSON: {reason}") from None


def _quoted(training: Training) -> Iterator[tuple[int, list[str]]]:
    with training.path.open("rb") as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        reader = csv.reader(text, strict=True)
        try:
            next(reader)
            for row in reader:
                if row:
                    yield reader.line_num - 2, row
        except csv.Error as error:
            raise BadRow(reader.line_num - 2, f"not valid CSV: {error}") from None
        except UnicodeDecodeError:
            raise BadRow(reader.line_num - 1, "not UTF-8 text") from None

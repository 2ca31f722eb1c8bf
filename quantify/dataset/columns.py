"""A CSV table in, its columns out as codes of their distinct cells: tables of millions of cells take a second."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError
from quantify.ir.domain import Number
from quantify.ir.record import DataRef
from quantify.properties.domain import shown
from quantify.properties.table import Cell, cell_of, no_such_column, separated, utf8

Codes = NDArray[np.int32]
Places = NDArray[np.int32] | NDArray[np.int64]
COMMA, NEWLINE, RETURN = 44, 10, 13
PACKED = 8
"""Bytes of a cell that fit one machine word."""
INDEX = re.compile(r"|Unnamed: 0(\.\d+)*")
"""What `DataFrame.to_csv` calls the index, and what becomes of that when such a file is read and written again."""
HINT = "give a CSV file whose first line names the columns"


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    cells: tuple[Number | str, ...]
    """Distinct cells, numbers in ascending order before texts; none is missing."""
    codes: Codes
    """For each row the place of its cell in `cells`, or −1 where it is missing."""

    @property
    def numeric(self) -> bool:
        """Whether all cells are numbers."""
        return not any(isinstance(cell, str) for cell in self.cells)

    def texts(self) -> tuple[str, ...]:
        """The distinct cells as text."""
        return tuple(written(cell) for cell in self.cells)


def written(cell: Number | str) -> str:
    """A cell as text: numbers as the shortest decimal."""
    return cell if isinstance(cell, str) else shown(cell)


@dataclass(frozen=True)
class Columns:
    """A table; columns are decoded when they are asked for."""

    path: Path
    sha256: str
    names: tuple[str, ...]
    rows: int
    _content: bytes
    _starts: Places
    """(columns × rows): first byte of each cell; empty when the file has quotes."""
    _ends: Places
    _cells: tuple[tuple[str, ...], ...] | None = None
    """Columns of a file with quotes."""

    def ref(self) -> DataRef:
        """The file as a record names it."""
        return DataRef("table", str(self.path), self.sha256, self.rows)

    def check(self, name: str) -> str:
        """The name of a column.

        Raises:
            InputError: There is none of that name.
        """
        if name not in self.names:
            no_such_column(self.path, name, self.names)
        return name

    def indices(self) -> tuple[str, ...]:
        """Columns before all others that are pandas' index: without a name of their own, and 0 … n−1."""
        return tuple(itertools.takewhile(self._is_index, self.names))

    def _is_index(self, name: str) -> bool:
        if INDEX.fullmatch(name) is None:
            return False
        column = self.column(name)
        return column.cells == tuple(range(self.rows)) and bool((column.codes == np.arange(self.rows)).all())

    def column(self, name: str) -> Column:
        """A column, decoded.

        Raises:
            InputError: There is none of that name.
        """
        place = self.names.index(self.check(name))
        if self._cells is not None:
            return _coded(name, *_of_texts(self._cells[place]))
        starts, ends = self._starts[place], self._ends[place]
        if int((ends - starts).max(initial=0)) > PACKED:
            content = self._content
            pieces = [content[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
            return _coded(name, *_of_texts([piece.decode() for piece in pieces]))
        return _coded(name, *_of_words(np.frombuffer(self._content, np.uint8), starts, ends))


def read(path: Path) -> Columns:
    """Read a table with a header.

    Raises:
        InputError: Not there, no CSV in UTF-8, a ragged row, a column name twice, or no rows.
    """
    if path.suffix.lower() != ".csv":
        raise InputError(f"{path}: a table is a .csv file", HINT)
    try:
        content = path.read_bytes()
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        reason = "there is no such file" if missing else f"cannot be read: {error.strerror}"
        raise InputError(f"{path}: {reason}", HINT) from None
    sha256 = hashlib.sha256(content).hexdigest()
    text = utf8(path, content)
    content = content.removeprefix(b"\xef\xbb\xbf")
    cut = None if b'"' in content or b"\0" in content else _cut(content)
    if cut is not None:
        header, content, starts, ends = cut
        names = _names(path, header)
        if starts.shape[1]:
            return Columns(path, sha256, names, starts.shape[1], content, starts, ends)
    return _with_quotes(path, sha256, text)


def _cut(content: bytes) -> tuple[list[str], bytes, Places, Places] | None:
    """Header, content and where its cells begin and end; None for what the slow way must look at."""
    content = content.rstrip(b"\r\n") + b"\n"
    every = np.frombuffer(content, np.uint8)
    kind = np.int32 if len(content) < 2**31 else np.int64
    header = content[: content.index(b"\n")].decode().rstrip("\r").split(",")
    marks = np.flatnonzero((every == COMMA) | (every == NEWLINE)).astype(kind)
    if len(marks) % len(header):
        return None
    # By column: a column's places lie together then, and reading 512 of them does not go through memory 512 times.
    ends = np.ascontiguousarray(marks.reshape(-1, len(header)).T)
    if (every[ends[-1]] != NEWLINE).any() or content.count(b"\n") != ends.shape[1]:
        return None
    starts = np.empty_like(ends)
    starts[1:] = ends[:-1] + 1
    starts[0, 0], starts[0, 1:] = 0, ends[-1, :-1] + 1
    returns = content.count(b"\r")
    if returns:
        last = ends[-1]
        before = every[last - 1] == RETURN
        if int(before.sum()) != returns:
            return None
        last -= before
    if len(header) == 1 and (ends == starts).any():
        return None  # a blank line, or a missing cell of a table with one column
    return header, content, starts[:, 1:], ends[:, 1:]


def _names(path: Path, header: Sequence[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in header)
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InputError(f"{path}:1: the column name {name!r} is there twice", "give each column its own name")
    if not any(names):
        raise InputError(f"{path}: the file is empty", HINT)
    return names


def _with_quotes(path: Path, sha256: str, text: str) -> Columns:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    try:
        names = _names(path, next(reader, []))
        for row in reader:
            if row:
                if len(row) != len(names):
                    raise InputError(
                        f"{path}:{reader.line_num}: {len(row)} cells instead of {len(names)}",
                        separated(names) or "every row has a cell for every column",
                    )
                rows.append(row)
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not valid CSV: {error}", "check the quotes") from None
    if not rows:
        raise InputError(f"{path}: there are no rows below the header", HINT)
    none = np.empty((0, 0), np.int64)
    return Columns(path, sha256, names, len(rows), b"", none, none, tuple(zip(*rows, strict=True)))


# --- cells to codes --------------------------------------------------------------------------------------------------
def _of_texts(texts: Sequence[str]) -> tuple[list[str], NDArray[Any]]:
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return list(places), np.fromiter(map(places.__getitem__, texts), np.int32, len(texts))


def _of_words(every: NDArray[np.uint8], starts: Places, ends: Places) -> tuple[list[str], NDArray[Any]]:
    """Distinct texts of up to eight bytes, and where each row has which."""
    lengths = ends - starts
    longest = int(lengths.max(initial=0))
    codes: NDArray[Any]
    if longest <= 1:
        letters = every[starts] * (lengths > 0)
        found = np.flatnonzero(np.bincount(letters, minlength=256))
        table = np.zeros(256, np.int32)
        table[found] = np.arange(len(found))
        codes = table[letters]
    else:
        words = np.zeros(len(starts), np.uint64)
        for place in range(longest):
            # Beyond the end of a cell there is another, or nothing: what is read there is not used.
            byte = every[np.minimum(starts + place, len(every) - 1)]
            words |= np.where(lengths > place, byte, 0).astype(np.uint64) << np.uint64(8 * place)
        found, codes = np.unique(words, return_inverse=True)
    return [int(word).to_bytes(PACKED, "little").rstrip(b"\0").decode() for word in found], codes


def _coded(name: str, texts: Sequence[str], places: NDArray[Any]) -> Column:
    cells: list[Cell] = [cell_of(text) for text in texts]
    present = {cell for cell in cells if cell is not None}
    ordered = sorted(present, key=lambda cell: (isinstance(cell, str), cell))
    codes = {cell: place for place, cell in enumerate(ordered)}
    table = np.array([-1 if cell is None else codes[cell] for cell in cells], np.int32)
    return Column(name, tuple(ordered), table[places.reshape(-1)])

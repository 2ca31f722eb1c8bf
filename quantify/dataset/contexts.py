"""Columns of a test table in, discrete context features out; cells of other tables are placed among their values.

Numeric columns with more values than there are to be bins are cut into uniform bins of the range that the test set has.
Bins contain their lower edge, the last one both; the arithmetic is exact. A missing value is a value of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantify.dataset.columns import Column, written
from quantify.errors import InputError
from quantify.ir.domain import Number
from quantify.ir.transfer import ContextFeature
from quantify.properties.table import Cell

BINS = 10
MISSING = "missing"
OUTSIDE = -1
"""The code of a value that the test set does not have."""
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Coding:
    """From the cells of a column to codes 0 … n − 1."""

    name: str
    values: tuple[Number | str, ...] | None
    """None: bins."""
    low: Number
    high: Number
    bins: int
    has_missing: bool

    @property
    def size(self) -> int:
        """Number of codes, a missing value's among them."""
        return (self.bins if self.values is None else len(self.values)) + self.has_missing

    def code(self, cell: Cell) -> int:
        """The code of a cell, or `OUTSIDE`.

        Raises:
            InputError: Text where bins are of numbers.
        """
        if cell is None:
            return self.size - 1 if self.has_missing else OUTSIDE
        if self.values is not None:
            return self.values.index(cell) if cell in self.values else OUTSIDE
        if isinstance(cell, str):
            raise InputError(f"{cell!r} is no number, and {self.name!r} is one in the test table", "correct the cell")
        if not self.low <= cell <= self.high:
            return OUTSIDE
        return min(int((cell - self.low) * self.bins // (self.high - self.low)), self.bins - 1)

    def codes(self, column: Column) -> Codes:
        """The codes of a whole column. Raises as `code` does."""
        if column.cells == self.values:
            table = list(range(len(column.cells)))
        else:
            known = None if self.values is None else {cell: place for place, cell in enumerate(self.values)}
            table = [self.code(cell) if known is None else known.get(cell, OUTSIDE) for cell in column.cells]
        return np.array([*table, self.code(None)], np.int64)[column.codes]

    def feature(self, missing: int) -> ContextFeature:
        """The feature as answers tell of it."""
        edges = None
        if self.values is None:
            span = self.high - self.low
            edges = tuple(float(self.low + span * place / self.bins) for place in range(self.bins + 1))
            last = self.bins - 1
            labels = [
                f"[{edges[i]:.6g}, {edges[i + 1]:.6g}{']' if i == last else ')'}" for i in range(self.bins)
            ]  # fmt: skip
        else:
            labels = [written(value) for value in self.values]
        if self.has_missing:
            labels.append(MISSING)
        return ContextFeature(self.name, "bins" if self.values is None else "values", tuple(labels), edges, missing)


def coding(column: Column, bins: int = BINS, categorical: bool = False) -> Coding:
    """How a column of the test set is made discrete.

    Args:
        categorical: Whether its numbers are names, however many there are.
    """
    has_missing = bool((column.codes < 0).any())
    cells = column.cells
    if column.numeric and len(cells) > bins and not categorical:
        low, high = cells[0], cells[-1]
        assert not isinstance(low, str)
        assert not isinstance(high, str)
        return Coding(column.name, None, low, high, bins, has_missing)
    return Coding(column.name, cells, 0, 0, 0, has_missing)


def joined(codes: list[Codes]) -> Codes:
    """One number a row for several features: the same number exactly where all codes are the same.

    Returns:
        Numbers 0 … m − 1 for m different rows, in the lexicographic order of the codes; with no feature all 0.
    """
    assert codes
    found = np.zeros(len(codes[0]), np.int64)
    for one in codes:
        _, found = np.unique(found * (int(one.max()) + 1) + one, return_inverse=True)
        found = found.reshape(-1)
    return found

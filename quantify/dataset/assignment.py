"""Labels, predictions or losses of rows in, what a set of rows is given out: hits of judged rows, or a sum of values.

An assignment of the presheaf that maps a set to the numbers it may have: the restriction from a set to a smaller one is
the identity, and to the empty set it is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from quantify.dataset.columns import Column, Columns, written
from quantify.errors import InputError
from quantify.ir.domain import Number
from quantify.properties.yaml import listed, suggest

Metric = Literal["accuracy", "loss", "precision", "recall", "f1", "rate"]
METRICS: tuple[Metric, ...] = get_args(Metric)
Rows = NDArray[np.bool_]
Floats = NDArray[np.float64]
LOSS_HINT = "a loss is a number in every row, or missing"
LARGEST = 1e290
"""Of losses: the sum of as many as there can be rows is a float64."""
RATE_HINT = "a rate is of a column with 0 and 1; the mean of numbers is --metric loss"
TRUE, FALSE = frozenset(("1", "true", "yes")), frozenset(("0", "false", "no"))


@dataclass(frozen=True)
class Assignment:
    """For each row, whether it is judged, and whether it is a hit or what its value is."""

    metric: Metric
    column: str | None
    """Of a loss or a rate."""
    positive: str | None
    """The class that precision, recall and f1 are about."""
    within: Rows
    """Rows that are judged; for f1 those that are, or are called, positive."""
    hits: Rows
    """Of these, the good ones; for a rate those that have it."""
    values: Floats | None = None
    """Of a loss: one a row, 0 where there is none."""
    unanswered: int = 0
    """Rows without a prediction: they are no hits."""
    unjudged: int = 0
    """Rows without a label or a value: they are left out."""
    strange: int = 0
    """Rows whose prediction is none of the labels in the table: they are no hits."""

    def value_of(self, hits: NDArray[np.int64], samples: NDArray[np.int64], sums: Floats | None) -> Floats:
        """The value of sets with so many hits, or such a sum, among so many judged rows; NaN where there are none."""
        top, bottom = hits.astype(np.float64), samples.astype(np.float64)
        if sums is not None:
            top = sums
        elif self.metric == "f1":
            top, bottom = 2 * top, top + bottom
        found: Floats = np.divide(top, bottom, out=np.full(len(bottom), np.nan), where=samples > 0)
        return found


def restriction(value: float, to_rows: int) -> float:
    """What a value of a set becomes on a part of it with so many rows (Definition 3.2 for the accuracy presheaf)."""
    return value if to_rows else 0.0


# --- from labels and predictions -------------------------------------------------------------------------------------
def of_predictions(
    table: Columns, label: Column, predicted: tuple[str | None, ...], metric: Metric, positive: str | None
) -> Assignment:
    """Accuracy, or precision, recall or f1 of one class.

    Args:
        predicted: The prediction for each row as text, None where there is none.

    Raises:
        InputError: No row has a label, or the positive class is none of the labels.
    """
    texts = label.texts()
    if not texts:
        raise InputError(f"{table.path}: no row has a label in {label.name!r}", "name the column of the labels")
    codes = {text: place for place, text in enumerate(texts)}
    called = np.array([-1 if name is None else codes.get(name, -2) for name in predicted], np.int32)
    unanswered, strange = (int((called == code).sum()) for code in (-1, -2))
    judged = label.codes >= 0
    unjudged = int((~judged).sum())
    if metric == "accuracy":
        return Assignment(
            metric, None, None, judged, judged & (called == label.codes), None, unanswered, unjudged, strange
        )
    if positive is None:
        raise InputError(f"{metric} is of one class", f"name it with --positive; classes are {listed(texts)}")
    if positive not in codes:
        raise InputError(
            f"{table.path}: {positive!r} is no class of {label.name!r}{suggest(positive, texts)}",
            f"classes are {listed(texts)}",
        )
    actual, found = label.codes == codes[positive], judged & (called == codes[positive])
    within = {"precision": found, "recall": actual, "f1": found | actual}[metric]
    return Assignment(metric, None, positive, within, found & actual, None, unanswered, unjudged, strange)


def of_column(table: Columns, column: Column, metric: Metric) -> Assignment:
    """A loss (numbers), or a rate (0 and 1, or words for them).

    Raises:
        InputError: A cell that is neither; no row has one.
    """
    there = column.codes >= 0
    unjudged = int((~there).sum())
    if not column.cells:
        raise InputError(f"{table.path}: no row has a value in {column.name!r}", "name another column")
    if metric == "loss":
        _refuse(table, column, [isinstance(cell, str) for cell in column.cells], "is no number", LOSS_HINT)
        values = np.array([*map(_number, column.cells), 0.0])
        _refuse(table, column, (np.abs(values[:-1]) > LARGEST).tolist(), "is above 1e290", "check the value")
        return Assignment(metric, column.name, None, there, there, values[column.codes], 0, unjudged)
    texts = [text.lower() for text in column.texts()]
    _refuse(table, column, [text not in TRUE | FALSE for text in texts], "is neither 0 nor 1", RATE_HINT)
    hits = np.array([*(text in TRUE for text in texts), False])[column.codes]
    return Assignment(metric, column.name, None, there, hits, None, 0, unjudged)


def _number(cell: Number | str) -> float:
    try:
        return float(cell)
    except OverflowError:
        return float("inf")


def _refuse(table: Columns, column: Column, bad: list[bool], what: str, hint: str) -> None:
    """Name the first row with one of the cells that are bad."""
    if any(bad):
        row = int(np.flatnonzero(np.array([*bad, False])[column.codes])[0])
        cell = written(column.cells[column.codes[row]])
        raise InputError(f"{table.path}: {column.name!r} of row {row} {what}: {cell!r}", hint)

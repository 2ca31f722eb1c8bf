"""A matrix of numbers to a heat map for pages: where its cells stand, how dark they are, which names have room."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from quantify.report.plots import LETTER, LINE, WIDTH, number, position

LONGEST_LABEL = 16
"""Letters of a row's or column's name that are shown; the tooltip has all."""
FAINTEST = 0.08
"""Opacity of the lowest value."""
HIGHEST, LOWEST = 34, 5
"""Height of a row: with few rows, with many."""
SWATCHES = 5
_Box = tuple[float, float, float, float]
"""x, y, width, height."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A rectangle of a heat map."""

    x: str
    y: str
    right: str
    bottom: str
    width: str
    height: str
    middle: tuple[str, str]
    kind: str
    """`up`, `down` (below 0 where the map is signed) or `absent`."""
    opacity: str
    title: str
    text: str
    over: bool
    """Whether its text stands on a dark ground."""


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a row or column, cut where it is long."""

    x: str
    y: str
    text: str
    title: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A heat map as drawn."""

    title: str
    spoken: str
    height: int
    x_label: str
    y_label: str
    rows: tuple[Name, ...]
    columns: tuple[Name, ...]
    turned: bool
    """Whether the columns' names are written upwards."""
    cells: tuple[Cell, ...]
    swatches: tuple[tuple[str, str], ...]
    """Kind and opacity from the lowest to the highest value."""
    low: str
    high: str
    absent: str
    """What a cell without a value means; empty where there is none."""


@dataclass(frozen=True, slots=True)
class _Look:
    """How values become colours and text."""

    low: float
    high: float
    signed: bool
    percent: bool
    written: bool
    """Whether values have room in their cells."""
    absent: str


def heat_map(
    title: str,
    columns: Sequence[str],
    rows: Sequence[str],
    values: Sequence[Sequence[float | None]],
    *,
    x_label: str = "",
    y_label: str = "",
    low: float | None = None,
    high: float | None = None,
    signed: bool = False,
    percent: bool = False,
    absent: str = "no value",
) -> HeatMap:
    """A rectangle for every value, the darker the higher.

    Args:
        values: One list a row, one value a column; None: no value, drawn crossed out.
        low: What is drawn faintest; the lowest value by default.
        high: What is drawn strongest; the highest value by default.
        signed: Whether values below 0 have a colour of their own: 0 is then faintest, the largest |value| strongest.
        percent: Whether values are shares shown in percent.
        absent: What it means that there is no value.

    Raises:
        ValueError: No cell, rows of different lengths, or a value that is not finite.
    """
    if not columns or len(rows) != len(values) or not rows or any(len(row) != len(columns) for row in values):
        raise ValueError("a heat map needs one value for each row and column")
    known = [value for row in values for value in row if value is not None]
    if not all(map(math.isfinite, known)):
        raise ValueError("a value that is not finite")
    if signed:
        high = max(map(abs, known), default=0) if high is None else high
        low = 0.0
    low = min(known, default=0.0) if low is None else low
    high = max(known, default=0.0) if high is None else high
    left = 8 + LETTER * min(LONGEST_LABEL, max(map(len, rows)))
    cell_width = (WIDTH - left - 2) / len(columns)
    cell_height = min(float(HIGHEST), max(float(LOWEST), 360 / len(rows)))
    longest = min(LONGEST_LABEL, max(map(len, columns)))
    turned = longest * LETTER > cell_width - 2
    head = (LETTER * longest + 8 if turned else LINE) + (LINE if x_label or y_label else 0)
    widest = max((len(number(value, percent)) for value in known), default=0)
    written = LETTER * widest + 2 <= cell_width and cell_height >= LINE
    look = _Look(low, high, signed, percent, written, absent)
    cells = [
        _cell((left + j * cell_width, head + i * cell_height, cell_width, cell_height),
              value, f"{rows[i]}, {columns[j]}", look)
        for i, row in enumerate(values) for j, value in enumerate(row)
    ]  # fmt: skip
    every_row, every_column = math.ceil(LINE / cell_height), math.ceil(LINE / cell_width) if turned else 1
    has_gaps = len(known) < len(cells)
    swatches = [("up", share / (SWATCHES - 1)) for share in range(SWATCHES)]
    if signed:
        swatches = [("down", share) for _, share in reversed(swatches[1:])] + swatches
    span = f"from {number(-high if signed else low, percent)} to {number(high, percent)}"
    return HeatMap(
        title, f"{title}: {len(rows):,} rows, {len(columns):,} columns, {span}",
        math.ceil(head + len(rows) * cell_height) + 2, x_label, y_label,
        tuple(
            Name(position(left - 6), position(head + (i + 0.5) * cell_height), _cut(name), name)
            for i, name in enumerate(rows) if i % every_row == 0
        ),
        tuple(
            Name(position(left + (j + 0.5) * cell_width), position(head - 6), _cut(name), name)
            for j, name in enumerate(columns) if j % every_column == 0
        ),
        turned, tuple(cells), tuple((kind, _opacity(share)) for kind, share in swatches),
        number(-high if signed else low, percent), number(high, percent), absent if has_gaps else "",
    )  # fmt: skip


def _cell(box: _Box, value: float | None, name: str, look: _Look) -> Cell:
    x, y, width, height = box
    left, top, right, bottom, across, down = map(position, (x, y, x + width, y + height, width, height))
    middle = (position(x + width / 2), position(y + height / 2))
    if value is None:
        label = f"{name}: {look.absent}"
        return Cell(left, top, right, bottom, across, down, middle, "absent", "0", label, "", False)
    below = look.signed and value < 0
    share = ((-value if below else value) - look.low) / (look.high - look.low) if look.high > look.low else 0.5
    share = min(1.0, max(0.0, share))
    shown = number(value, look.percent)
    kind, label, text = "down" if below else "up", f"{name}: {shown}", shown if look.written else ""
    opacity, over = _opacity(share), share > 0.5
    return Cell(left, top, right, bottom, across, down, middle, kind, opacity, label, text, over)


def _opacity(share: float) -> str:
    return f"{FAINTEST + (1 - FAINTEST) * share:.3f}"


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "…"

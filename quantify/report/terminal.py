"""Evidence to a report on the terminal (rich)."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from typing import TYPE_CHECKING

from quantify.ir.evidence import CnfEvidence, Evidence
from quantify.report import view
from quantify.report.view import Table, View

if TYPE_CHECKING:
    from rich.console import Console

STATUS_STYLES = {
    "ok": "green",
    "warning": "yellow",
    "vacuous": "yellow",
    "measured": "cyan",
    "failed": "bold red",
    "skipped": "dim",
    "PASS": "green",
    "MANUAL_REVIEW": "yellow",
    "INSUFFICIENT_EVIDENCE": "yellow",
    "FAIL": "bold red",
    "INVALID": "bold red",
}
LONGEST_WORD = 32
"""Words up to this length, numbers above all, are not broken into lines."""
GUTTER = 2
"""Columns between two cells."""
NARROWEST = 60
WIDEST = 160


def to_text(evidence: Evidence, width: int | None = None, colour: bool | None = None) -> str:
    """The report of `quantify count`.

    Args:
        width: Columns; the terminal's by default (100 where there is none).
        colour: Whether to write ANSI colours; by default when stdout is a terminal and NO_COLOR is not set.
    """
    return view_to_text(view.of_evidence(evidence), width, colour)


def cnf_to_text(evidence: CnfEvidence, width: int | None = None, colour: bool | None = None) -> str:
    """The report of `quantify cnf`; arguments as of `to_text`."""
    return view_to_text(view.of_cnf(evidence), width, colour)


def render(evidence: Evidence, console: Console) -> None:
    """Print the report of `quantify count` on `console`."""
    _print(view.of_evidence(evidence), console)


def view_to_text(report: View, width: int | None = None, colour: bool | None = None) -> str:
    """Any report in words and tables; arguments as of `to_text`."""
    from rich.console import Console

    if colour is None:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    if width is None:
        width = min(max(shutil.get_terminal_size((100, 24)).columns, NARROWEST), WIDEST)
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=colour, color_system="standard" if colour else None)
    _print(report, console)
    return "".join(line.rstrip() + "\n" for line in output.getvalue().splitlines())


def _print(report: View, console: Console) -> None:
    from rich.table import Table as Grid
    from rich.text import Text

    console.print(Text.assemble((_printable(report.title), "bold"), f"  {report.subtitle}"))
    facts = Grid.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in report.facts:
        facts.add_row(Text(name), Text(_printable(value)))
    console.print(facts)
    for table in report.tables:
        console.print()
        _print_table(table, console)
    if report.notes:
        console.print()
        for note in report.notes:
            console.print(Text(_printable(note), style="dim"))


def _print_table(table: Table, console: Console) -> None:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    console.print(Text(table.title, style="bold"))
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    widths = _widths(table, console.width)
    for header, style, width in zip(table.headers, table.styles, widths, strict=True):
        grid.add_column(
            Text(header),
            justify="right" if style == "number" else "left",
            overflow="fold",
            min_width=width,
            max_width=width,
        )
    for row in table.rows:
        grid.add_row(
            *(
                Text(_printable(cell), style=STATUS_STYLES.get(cell, ""))
                if style == "status"
                else Text(_broken(_printable(cell), width) if style == "number" else _printable(cell))
                for cell, style, width in zip(row, table.styles, widths, strict=True)
            )
        )
    console.print(grid)


def _broken(text: str, width: int) -> str:
    """A number on lines of at most `width` columns, broken between words, and within a longer word after a comma."""
    lines = [""]
    for word in re.findall(r"\S+\s*", text):
        if len(lines[-1]) + len(word.rstrip()) > width:
            lines.append("")
        for part in [word] if len(word.rstrip()) <= width else re.findall(r"[^,]+,?", word):
            if len(lines[-1]) + len(part.rstrip()) > width:
                lines.append("")
            lines[-1] += part
    return "\n".join(line.rstrip() for line in lines if line)


def _printable(text: str) -> str:
    """The text without control characters: names come from files, and a terminal obeys what it is sent."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _widths(table: Table, room: int) -> list[int]:
    """Column widths that fit: the widest column gives way first, down to its longest word if that is enough."""
    columns = [[header, *(row[place] for row in table.rows)] for place, header in enumerate(table.headers)]
    widths = [max(map(len, column)) for column in columns]
    words = [min(LONGEST_WORD, max(len(word) for word in " ".join(column).split() or [""])) for column in columns]
    while sum(widths) + GUTTER * (len(widths) - 1) > room and max(widths) > 1:
        spare = [width if width > word else 0 for width, word in zip(widths, words, strict=True)]
        chosen = spare if any(spare) else widths
        widths[chosen.index(max(chosen))] -= 1
    return widths

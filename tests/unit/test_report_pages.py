"""What must hold of every report, whatever it says."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

from quantify.report import html, terminal


def load_reports() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reports", Path(__file__).with_name("reports.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reports = load_reports()
VOID = {"meta", "link"}


class Page(HTMLParser):
    """Elements that are well nested, their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend(attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text += data


@pytest.mark.parametrize("name", sorted(reports.EVERY))
def test_pages_are_self_contained_and_run_nothing(name: str) -> None:
    text = html.render(reports.EVERY[name]())
    page = Page(text)
    assert not {"script", "img", "iframe", "object", "embed", "form"} & set(page.tags)
    for attribute, value in page.attributes:
        assert attribute not in ("src", "style", "srcset")
        assert not attribute.startswith("on")
        assert attribute != "href" or value == "data:,"
    assert "http://" not in text
    assert "https://" not in text
    assert not re.search(r"@import|url\(", text)


def test_pages_escape_what_files_bring() -> None:
    page = Page(html.render(reports.classes()))
    assert page.text.count(reports.HOSTILE) >= 8


@pytest.mark.parametrize("name", sorted(set(reports.EVERY) - {"enormous"}))
@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_the_terminal_never_cuts_a_line_or_the_status(name: str, width: int) -> None:
    evidence = reports.EVERY[name]()
    text = terminal.to_text(evidence, width=width, colour=False)
    assert max(map(len, text.splitlines())) <= width
    for check in evidence.checks:
        assert check.status in text
    letters = re.sub(r"\s", "", text)
    for case in evidence.cases:
        for count in case.counts.values():
            assert count.engine in letters
            assert str(count.guarantee) in letters


def test_all_but_three_is_not_all() -> None:
    text = terminal.to_text(reports.safety(), width=120, colour=False)
    assert "99.99…% (all but 3)" in text
    assert not re.search(r"(?<![\d.])100(\.0+)? %(?! −)", text)


def test_an_incomplete_run_says_so() -> None:
    text = terminal.to_text(reports.robustness(), width=120, colour=False)
    assert "incomplete" in text
    assert "incomplete" not in terminal.to_text(replace(reports.robustness(), complete=True), width=120, colour=False)


def test_huge_counts_do_not_crash_the_reports() -> None:
    assert "(30,000 digits)" in terminal.to_text(reports.enormous(), width=160, colour=False)
    assert "(30,000 digits)" in html.render(reports.enormous())


def test_colours_only_when_asked_for() -> None:
    assert "\x1b[" in terminal.to_text(reports.safety(), width=100, colour=True)
    assert "\x1b" not in terminal.to_text(reports.safety(), width=100, colour=False)
    assert "\x1b" not in terminal.to_text(reports.safety())  # no terminal here


def test_names_cannot_steer_the_terminal() -> None:
    made = reports.safety()
    name, path = {"name": "\x1b[2Jgone\nmore"}, {"path": "\x07\r"}
    hostile = replace(made, property=made.property | name, model=made.model | path)
    text = terminal.to_text(hostile, width=100, colour=False)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[2Jgone" in text


def test_rendering_on_a_console_gives_the_same() -> None:
    import io

    from rich.console import Console

    output = io.StringIO()
    terminal.render(reports.safety(), Console(file=output, width=100))
    stripped = "".join(line.rstrip() + "\n" for line in output.getvalue().splitlines())
    assert stripped == terminal.to_text(reports.safety(), width=100, colour=False)


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("12,345", 20, ["12,345"]),
        ("12,345,678", 7, ["12,345,", "678"]),
        ("5,000 to 16,200", 9, ["5,000 to", "16,200"]),
        ("0 to 123,456,789", 8, ["0 to", "123,456,", "789"]),
    ],
)
def test_numbers_break_between_words_then_between_groups(text: str, width: int, lines: list[str]) -> None:
    assert terminal._broken(text, width).split("\n") == lines

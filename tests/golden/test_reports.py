"""Whole reports, as the terminal and a browser get them.

After an intended change: `PYTHONPATH=. python tests/golden/test_reports.py` writes the files again; read the diff.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from quantify import __version__
from quantify.report import html, terminal

HERE = Path(__file__).parent / "report"


def load_reports() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reports", Path(__file__).parents[1] / "unit" / "reports.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reports = load_reports()
TEXTS = sorted(set(reports.EVERY) - {"enormous"})
PAGES = ["classes", "learnability", "safety"]


def text_of(name: str) -> str:
    return terminal.to_text(reports.EVERY[name](), width=100, colour=False)


def page_of(name: str) -> str:
    return html.render(reports.EVERY[name]()).replace(f"quantify {__version__}", "quantify VERSION") + "\n"


@pytest.mark.parametrize("name", TEXTS)
def test_terminal(name: str) -> None:
    assert text_of(name) == (HERE / f"{name}.txt").read_text(encoding="utf-8")


def test_terminal_cnf() -> None:
    text = terminal.cnf_to_text(reports.cnf(), width=100, colour=False)
    assert text == (HERE / "cnf.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_page(name: str) -> None:
    assert page_of(name) == (HERE / f"{name}.html").read_text(encoding="utf-8")


def test_no_golden_file_is_left_over() -> None:
    expected = {f"{name}.txt" for name in [*TEXTS, "cnf"]} | {f"{name}.html" for name in PAGES}
    assert {path.name for path in HERE.iterdir()} == expected


def write() -> None:
    for name in TEXTS:
        (HERE / f"{name}.txt").write_text(text_of(name), encoding="utf-8")
    (HERE / "cnf.txt").write_text(terminal.cnf_to_text(reports.cnf(), width=100, colour=False), encoding="utf-8")
    for name in PAGES:
        (HERE / f"{name}.html").write_text(page_of(name), encoding="utf-8")


if __name__ == "__main__":
    write()

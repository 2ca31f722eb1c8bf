"""What the errors tell users to install is what the package really offers."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from quantify.cli import doctor

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = [*(ROOT / "quantify").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
EXTRA = re.compile(r"quantify-ml\[([^\]]*)\]")


def brought_by(extra: str) -> set[str]:
    return {re.split(r"[<>=!~ ]", need)[0] for need in PROJECT["optional-dependencies"][extra]}


def test_every_hint_names_the_package_and_an_extra_of_it() -> None:
    assert PROJECT["name"] == "quantify-ml"
    named = {
        (str(path), extra)
        for path in SOURCES
        for extra in EXTRA.findall(path.read_text(encoding="utf-8"))
        if "{" not in extra  # what doctor fills in is looked at below
    }
    assert len(named) >= 4, "the readers of three kinds of network and the documents have such hints"
    assert {extra for _, extra in named} <= set(PROJECT["optional-dependencies"])


def test_doctor_names_the_extra_that_brings_each_optional_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    entries = doctor._extras()
    lines = {entry["name"]: doctor._line(entry) for entry in entries}
    assert set(lines) == set().union(*map(brought_by, ("onnx", "keras", "tflite")))
    for name, line in lines.items():
        (extra,) = EXTRA.findall(line)
        assert name in brought_by(extra)
        assert line.startswith("absent  "), "what is optional is not called MISSING"
    assert not any(entry["required"] for entry in entries)


def test_doctor_tells_the_version_of_an_optional_library_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: f"9.{len(name)}")
    lines = [doctor._line(entry) for entry in doctor._extras()]
    assert lines[0].split() == ["ok", "onnx", "9.4", "reads", ".onnx"]
    assert not any("pip install" in line for line in lines)

"""Streams that are closed, full, or whose reader left: the exit code keeps its meaning, and nobody sees a traceback."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from quantify import resources
from quantify.cli import main

QUANTIFY = [sys.executable, "-P", "-m", "quantify"]
FORMULA = "p cnf 2 1\n1 2 0\n"  # three of the four assignments


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = ["bash", "-c", command, "bash", *QUANTIFY]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture
def formula(tmp_path: Path) -> Path:
    (tmp_path / "f.cnf").write_text(FORMULA)
    return tmp_path


@pytest.mark.parametrize(
    ("redirection", "code"),
    [("0<&-", 0), (">&-", 0), ("2>&-", 0), ("2>/dev/full", 0), ("0<&- >&- 2>&-", 0), (">/dev/full", 2)],
)
def test_a_count_under_odd_streams(formula: Path, redirection: str, code: int) -> None:
    done = shell(f'"$@" cnf f.cnf --json a.json {redirection}', formula)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code == 0:
        assert json.loads((formula / "a.json").read_text())["counts"]["models"]["lower"] == "3"
    else:
        assert done.stderr.startswith("quantify: error: No space left on device\n  hint: ")


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "2>/dev/full", "2>&1 | true"])
def test_an_error_keeps_its_exit_code(formula: Path, redirection: str) -> None:
    done = shell(f'"$@" cnf none.cnf {redirection}; exit "${{PIPESTATUS[0]}}"', formula)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", ["--help", "completion bash", "cnf f.cnf --json -"])
def test_what_cannot_be_printed_is_an_error(formula: Path, words: str) -> None:
    done = shell(f'"$@" {words} >/dev/full', formula)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "No space left on device" in done.stderr


def test_an_example_is_copied_whole_or_not_at_all(tmp_path: Path) -> None:
    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))

    (tmp_path / "empty").mkdir()
    for words, left in (([], ["empty"]), (["empty"], ["empty"])):
        done = subprocess.run(
            [*QUANTIFY, "init", "--example", "cancer", *words], cwd=tmp_path, preexec_fn=little_room,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        target = words[0] if words else "cancer"
        assert done.stderr.startswith(f"quantify: error: cannot write {target}: "), done.stderr
        assert "File too large" in done.stderr
        assert "another folder" in done.stderr
        assert [path.name for path in sorted(tmp_path.iterdir())] == left
        assert not any((tmp_path / "empty").iterdir())
    assert (resources.templates_dir("examples") / "cancer" / "train.py").stat().st_size > 300


def test_streams_are_as_before_after_a_run_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    assert main.run(["--version"]) == 0
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out.startswith("quantify, version ")

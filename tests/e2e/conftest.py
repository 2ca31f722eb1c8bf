"""The command line as a user meets it: a process of its own, in a folder with models."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def quantify(tmp_path: Path) -> Run:
    """Run `quantify ARGUMENTS` in the test's folder."""

    def run(*arguments: object, timeout: float = 300, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "quantify", *map(str, arguments)], check=False,
            cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """As `quantify`, but in this process: for sequences of commands whose starts would take longer than they do."""
    from quantify.cli.main import run as main

    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        words = [str(argument) for argument in arguments]
        capfd.readouterr()
        with monkeypatch.context() as context:
            for name, value in environment.items():
                context.setenv(name, value)
            code = main(words)
        printed = capfd.readouterr()
        assert "Traceback" not in printed.err, printed.err
        return subprocess.CompletedProcess(words, code, printed.out, printed.err)

    return run


@pytest.fixture
def answer(quantify: Run) -> Callable[..., dict[str, Any]]:
    """Run `quantify count … --json -` and return what it printed; the exit code must be 0."""

    def run(*arguments: object, **environment: str) -> dict[str, Any]:
        done = quantify("count", *arguments, "--json", "-", **environment)
        assert done.returncode == 0, done.stderr
        printed: dict[str, Any] = json.loads(done.stdout)
        return printed

    return run


@pytest.fixture
def small_tree(tmp_path: Path) -> DecisionTreeClassifier:
    """A tree over two integers 0…15 and 0…15 with three string classes, saved as model.pkl."""
    grid = np.array([(a, b) for a in range(16) for b in range(16)])
    names = np.where(grid.sum(axis=1) < 9, "low", np.where(grid[:, 0] > grid[:, 1], "mid", "high"))
    rows = np.random.default_rng(3).choice(len(grid), 80, replace=False)
    tree = DecisionTreeClassifier(random_state=0).fit(grid[rows], names[rows])
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(tree))
    return tree


DOMAIN = """domain:
  features:
    - {name: a, type: int, min: 0, max: 15}
    - {name: b, type: int, min: 0, max: 15}
"""


@pytest.fixture
def write_property(tmp_path: Path) -> Callable[[str], Path]:
    """Write property.yaml; `DOMAIN` in the text stands for the small tree's domain."""

    def write(text: str) -> Path:
        path = tmp_path / "property.yaml"
        path.write_text(text.replace("DOMAIN\n", DOMAIN), encoding="utf-8")
        return path

    return write

"""`quantify batch`: every row once, whatever happens to the processes that count them."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import signal
import subprocess
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from quantify.cli.main import run as quantify_here
from quantify.errors import ContradictionError
from quantify.evidence import cases as case_evidence
from quantify.evidence.store import Store

Run = Callable[..., subprocess.CompletedProcess[str]]
GRID = np.array([(a, b) for a in range(16) for b in range(16)])
KILLINGS = 200
WRITERS = 8


def tree(seed: int) -> DecisionTreeClassifier:
    rows = np.random.default_rng(seed).choice(len(GRID), 60, replace=False)
    return DecisionTreeClassifier(random_state=0).fit(GRID[rows], np.where(GRID[rows].sum(axis=1) < 9, "low", "high"))


@pytest.fixture
def plan(tmp_path: Path) -> tuple[int, list[DecisionTreeClassifier]]:
    """plan.yaml with three models and four properties, one of them with three ε: 18 rows."""
    trees = [tree(seed) for seed in range(3)]
    for number, model in enumerate(trees):
        (tmp_path / f"m{number}.pkl").write_bytes(pickle.dumps(model))
    head = "domain:\n  features:\n" + "".join(
        f"    - {{name: {name}, type: int, min: 0, max: 15}}\n" for name in ("a", "b")
    )
    for number in range(3):
        text = f"property: safety\nname: p{number}\n{head}assume: 'a >= {number}'\nassert: \"label == 'high'\"\n"
        (tmp_path / f"p{number}.yaml").write_text(text)
    (tmp_path / "rows.csv").write_text("a,b,y\n3,4,low\n9,9,high\n")
    (tmp_path / "ball.yaml").write_text(
        f"property: robustness\nname: ball\n{head}inputs: {{file: rows.csv, label: y}}\nepsilon: 9\nclip: [0, 15]\n"
    )
    (tmp_path / "plan.yaml").write_text(
        "models: [m0.pkl, m1.pkl, m2.pkl]\nproperties: [p0.yaml, p1.yaml, p2.yaml, ball.yaml]\nepsilon: [0, 1, 2.5]\n"
    )
    return 18, trees


def rows_on_record(path: Path) -> dict[str, str]:
    """Row → digest of what is on record; the store must be intact."""
    with Store(path) as store:
        many, damages = store.verify()
        assert damages == ()
        stored = store.all()[0]
        assert len(stored) == many
        return {one.record.body["batch"]["row"]: one.digest for one in stored}


def test_every_row_is_what_scikit_learn_says_and_is_counted_once(
    quantify: Run, plan: tuple[int, list[DecisionTreeClassifier]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, trees = plan
    done = quantify("batch", "plan.yaml", "--json", "answer.json")
    assert done.returncode == 0, done.stderr
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert [row["status"] for row in answer["rows"]] == ["counted"] * many
    found: dict[tuple[str, str, str | None], Fraction] = {}
    with Store(tmp_path / ".quantify" / "evidence.db") as store:
        for one in store.all()[0]:
            for reading in one.record.readings:
                if reading.metric in ("violation", "robustness"):
                    assert one.record.model is not None
                    found[one.record.model.path, reading.subject, reading.group] = reading.lower
    assert len(found) == many
    for number, model in enumerate(trees):
        answers = model.predict(GRID)
        for least in range(3):
            inside = GRID[:, 0] >= least
            share = Fraction(int((answers[inside] == "low").sum()), int(inside.sum()))
            assert found[f"m{number}.pkl", f"p{least}", None] == share
        for epsilon, steps in (("0", 0), ("1", 1), ("2.5", 2)):
            shares = []
            for centre, label in (((3, 4), "low"), ((9, 9), "high")):
                near = np.abs(GRID - centre).max(axis=1) <= steps
                shares.append(Fraction(int((answers[near] == label).sum()), int(near.sum())))
            assert found[f"m{number}.pkl", "ball", f"epsilon={epsilon}"] == sum(shares) / 2
    monkeypatch.chdir(tmp_path)

    def statuses() -> list[str]:
        assert quantify_here(["batch", "plan.yaml", "--json", "again.json", "--quiet"]) == 0
        return [row["status"] for row in json.loads((tmp_path / "again.json").read_text())["rows"]]

    assert statuses() == ["on record"] * many
    # Another ε, another option, another content: only what is new is counted.
    text = (tmp_path / "plan.yaml").read_text().replace("[0, 1, 2.5]", "[0, 1, 2.5, 3]")
    (tmp_path / "plan.yaml").write_text(text)
    (tmp_path / "m2.pkl").write_bytes(pickle.dumps(tree(9)))
    assert statuses() == (["on record"] * 6 + ["counted"]) * 2 + ["counted"] * 7


def test_a_row_that_cannot_be_counted_does_not_stop_the_others(
    plan: tuple[int, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p1.yaml").write_text((tmp_path / "p1.yaml").read_text().replace("'high'", "'hihg'"))
    assert quantify_here(["batch", "plan.yaml", "--json", "-"]) == 2
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["status"] for row in rows] == (["counted", "failed"] + ["counted"] * 4) * 3
    assert "did you mean" in rows[1]["said"]
    assert quantify_here(["batch", "plan.yaml"]) == 2
    assert "3 of 18 rows are not finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: []\nproperties: [p0.yaml]\n", "plan.yaml:1: models is empty"),
        ("models: [m0.pkl]\nproperties: [none.yaml]\n", "plan.yaml:2: there is no file none.yaml"),
        ("models: [m0.pkl, m0.pkl]\nproperties: [p0.yaml]\n", "plan.yaml:1: m0.pkl is there twice"),
        ("models: [m0.pkl]\nproperties: [p0.yaml]\nepsilon: [1]\n", "plan.yaml:3: epsilon, but no property"),
        ("models: [m0.pkl]\nproperties: [ball.yaml]\nepsilon: [1, 1]\n", "plan.yaml:3: an epsilon below 0, or twice"),
        ("models: [m0.pkl]\nproperties: [p0.yaml]\ntimout: 3\n", "(did you mean 'timeout'?)"),
        ("models: [m0.pkl]\nproperties: [p0.yaml]\nsamples: 0\n", "plan.yaml:3: samples: 0 is too small"),
        ("models: [m0.pkl]\nproperties: [p0.yaml]\nconfidence: 1\n", "plan.yaml:3: confidence is out of range"),
    ],
)
def test_a_bad_plan_is_one_error(
    plan: tuple[int, Any], text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.yaml").write_text(text)
    assert quantify_here(["batch", "plan.yaml"]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / ".quantify").exists()


def worker(store: Path, log: Path) -> int:
    """A process of its own that works on plan.yaml and logs what it reports; the imports are done already."""
    pid = os.fork()
    if pid:
        return pid
    with contextlib.suppress(BaseException):
        os.environ["QUANTIFY_STORE"] = str(store)
        with log.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            code = quantify_here(["batch", "plan.yaml", "--jobs", "1"])
        os._exit(code)
    os._exit(99)


def reported(log: Path) -> set[str]:
    """Beginnings of the digests of the rows that were reported as recorded."""
    lines = log.read_text(errors="replace").split("\n")[:-1] if log.exists() else []  # the last may be half a line
    return {line.rsplit(" as ", 1)[1] for line in lines if line.startswith("quantify: recorded ")}


def test_killed_and_concurrent_batches_lose_nothing_and_repeat_nothing(
    plan: tuple[int, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Eight processes work on one plan and are killed at random moments, 200 in all; then one goes on to the end."""
    many, _ = plan
    monkeypatch.chdir(tmp_path)
    assert quantify_here(["batch", "plan.yaml"]) == 0, capfd.readouterr()  # imports everything, once
    draws, killed, rounds, finished = random.Random(7), 0, 0, 0
    while killed < KILLINGS:
        store, log = tmp_path / f"round{rounds}.db", tmp_path / f"round{rounds}.log"
        rounds += 1
        for _ in range(2):  # the second eight find the store as the first eight left it
            workers = [worker(store, log) for _ in range(WRITERS)]
            for pid in workers:
                time.sleep(draws.uniform(0, 0.05))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            ends = [os.waitpid(pid, 0)[1] for pid in workers]
            killed += sum(os.WIFSIGNALED(end) for end in ends)
            finished += sum(os.WIFEXITED(end) and os.WEXITSTATUS(end) == 0 for end in ends)
            assert all(os.WIFSIGNALED(end) or os.WEXITSTATUS(end) == 0 for end in ends)
        before = rows_on_record(store) if store.exists() else {}
        with Store(store) as opened:
            names = {one.digest[:12] for one in opened.all()[0]}
        assert reported(log) <= names
        monkeypatch.setenv("QUANTIFY_STORE", str(store))
        capfd.readouterr()
        assert quantify_here(["batch", "plan.yaml", "--jobs", "1", "--json", "-"]) == 0
        rows = json.loads(capfd.readouterr().out)["rows"]
        assert sum(row["status"] == "on record" for row in rows) == len(before)
        assert sum(row["status"] == "counted" for row in rows) == many - len(before)
        after = rows_on_record(store)
        assert len(after) == many
        assert before.items() <= after.items()


def test_a_row_whose_ways_disagree_is_on_record_as_such_and_counted_again(
    plan: tuple[int, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.yaml").write_text("models: [m0.pkl]\nproperties: [p0.yaml, p1.yaml]\n")

    def statuses() -> tuple[int, list[str]]:
        capfd.readouterr()
        code = quantify_here(["batch", "plan.yaml", "--json", "-"])
        return code, [row["status"] for row in json.loads(capfd.readouterr().out)["rows"]]

    def apart(*_: object) -> None:
        raise ContradictionError("two ways of counting disagree")

    with monkeypatch.context() as planted:
        planted.setattr(case_evidence, "what_counts_say", apart)
        assert statuses() == (4, ["contradiction"] * 2)
    with Store(tmp_path / ".quantify" / "evidence.db") as store:
        assert [one.record.status for one in store.all()[0]] == ["invalid"] * 2
    assert statuses() == (0, ["counted"] * 2)
    assert statuses() == (0, ["on record"] * 2)

"""Long counts by `branch` as typed: cut short and continued, told to stop at a gap, written as boxes."""

from __future__ import annotations

import csv
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
Point = tuple[float, float]

SIZES = (2, 8, 3)
PROPERTY = """property: safety
labels: [left, right, straight]
quantization: {mode: exact}
domain:
  features:
    - {name: a, type: fixed, min: -2, max: 2, step: STEP}
    - {name: b, type: fixed, min: -2, max: 2, step: STEP}
assume: "a >= -1"
assert: "label != 'right'"
"""


def layers(seed: int) -> list[tuple[list[list[int]], list[int]]]:
    draw = random.Random(seed)
    return [
        (
            [[draw.randint(-9, 9) for _ in range(before)] for _ in range(after)],
            [draw.randint(-20, 20) for _ in range(after)],
        )
        for before, after in itertools.pairwise(SIZES)
    ]


SEED = 37


@pytest.fixture
def model(tmp_path: Path) -> Path:
    lines = ["// by hand", "2,2,3,8,", "2,8,3,", "0,", "-2,-2,", "2,2,", "0,0,0,", "1,1,1,"]
    for weights, biases in layers(SEED):
        lines += [",".join(map(str, row)) + "," for row in weights] + [f"{bias}," for bias in biases]
    (tmp_path / "model.nnet").write_text("\n".join(lines) + "\n")
    return tmp_path / "model.nnet"


def label(a: Fraction, b: Fraction) -> int:
    (first, first_bias), (last, last_bias) = layers(SEED)
    hidden = [max(Fraction(0), w[0] * a + w[1] * b + bias) for w, bias in zip(first, first_bias, strict=True)]
    scores = [
        sum(x * y for x, y in zip(w, hidden, strict=True)) + bias for w, bias in zip(last, last_bias, strict=True)
    ]
    return scores.index(max(scores))


def write(folder: Path, step: str) -> None:
    (folder / "p.yaml").write_text(PROPERTY.replace("STEP", step))


def violated(done: subprocess.CompletedProcess[str]) -> tuple[int, int]:
    found = json.loads(done.stdout)["counts"]["violated"]
    return int(found["lower"]), int(found["upper"])


def said(done: subprocess.CompletedProcess[str], name: str) -> str:
    return " ".join(c["detail"] for c in json.loads(done.stdout)["checks"] if c["name"] == name)


COUNT = ("count", "model.nnet", "--property", "p.yaml", "--engine", "branch", "--json", "-")
STOPPED = ("--timeout", "1e-9")
"""A spent limit still lets one round of boxes pass, on machines of every speed."""


@pytest.fixture
def truth(model: Path) -> int:
    """Inputs with a ≥ −1 and the label "right", with step 1/400: scores times 400 in whole numbers, input by input.

    They are too many for a box that is counted at once.
    """
    write(model.parent, "0.0025")
    return of_label(1)


def of_label(wanted: int) -> int:
    (first, first_bias), (last, last_bias) = layers(SEED)
    a, b = (grid.ravel() for grid in np.meshgrid(np.arange(-400, 801), np.arange(-800, 801)))
    hidden = np.maximum(0, np.stack([a, b], axis=1) @ np.array(first).T + 400 * np.array(first_bias))
    scores = hidden @ np.array(last).T + 400 * np.array(last_bias)
    return int((scores.argmax(axis=1) == wanted).sum())


# --- continuing ----------------------------------------------------------------------------------------------------
def test_a_count_that_was_cut_short_goes_on(quantify: Run, tmp_path: Path, truth: int) -> None:
    first = quantify(*COUNT, *STOPPED, "--checkpoint", "kept")
    assert first.returncode == 3
    low, high = violated(first)
    assert low <= truth <= high
    assert low < high
    assert "run the same command again" in said(first, "checkpoint")
    (file,) = (tmp_path / "kept").iterdir()
    second = quantify(*COUNT, "--checkpoint", "kept")
    assert second.returncode == 0
    assert violated(second) == (truth, truth)
    assert "went on from what kept kept" in said(second, "checkpoint")
    assert said(second, "open") == ""
    assert not file.exists()


def test_without_a_folder_the_answer_says_what_to_type(quantify: Run, truth: int) -> None:
    done = quantify(*COUNT, *STOPPED)
    assert done.returncode == 3
    assert "--checkpoint DIR" in said(done, "note")


def test_another_property_does_not_go_on_from_it(quantify: Run, tmp_path: Path, truth: int) -> None:
    quantify(*COUNT, *STOPPED, "--checkpoint", "kept")
    (tmp_path / "p.yaml").write_text(PROPERTY.replace("STEP", "0.0025").replace("!= 'right'", "!= 'left'"))
    done = quantify(*COUNT, "--checkpoint", "kept")
    assert "none of it was used" in said(done, "checkpoint")
    assert violated(done) == (of_label(0), of_label(0))
    assert len(list((tmp_path / "kept").iterdir())) == 1


KILLER = """
import os, sys
from quantify.cli.main import run
from quantify.engines import branch
from quantify.resources import Progress

branch.SLICE_SECONDS = 0.0
tuning = branch.Tuning(leaf_points=1, local_points=0, reduced_work=0)
branch.BranchEngine.__init__.__defaults__ = (None, "", None, 0.0, tuning)
rounds = 0

def update(self, message, done=0, total=0):
    global rounds
    rounds += message.startswith("splitting boxes")
    if rounds == 3:
        rounds += 1
        os.kill(os.getpid(), int(sys.argv[1]))

Progress.update = update
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_signals_lose_no_work(quantify: Run, tmp_path: Path, truth: int, number: signal.Signals) -> None:
    """Sent by the run to itself, after its third round of boxes."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", KILLER, str(int(number)), *COUNT, "--quiet", "--checkpoint", "kept"],
        check=False, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if number is signal.SIGKILL:
        assert done.returncode == -signal.SIGKILL
    else:
        assert done.returncode == 3, done.stderr
        assert violated(done)[0] <= truth <= violated(done)[1]
        assert "stopped by the user" in said(done, "interrupted")
    assert len(list((tmp_path / "kept").glob("*.npz"))) == 1
    after = quantify(*COUNT, "--checkpoint", "kept")
    assert violated(after) == (truth, truth)
    assert "went on" in said(after, "checkpoint")
    assert not list((tmp_path / "kept").iterdir())


def test_a_folder_that_cannot_be_used_is_refused(quantify: Run, tmp_path: Path, model: Path) -> None:
    write(tmp_path, "0.5")
    (tmp_path / "file").touch()
    done = quantify(*COUNT, "--checkpoint", "file/kept")
    assert done.returncode == 2
    assert "--checkpoint" in done.stderr


# --- the gap -------------------------------------------------------------------------------------------------------
def test_a_gap_is_reached_or_not(quantify: Run, truth: int) -> None:
    size = 1601 * 1601
    # One round of boxes settles what `assume` excludes: a quarter of the domain.
    reached = quantify(*COUNT, "--gap", "0.8", *STOPPED)
    low, high = violated(reached)
    assert reached.returncode == 0
    assert low <= truth <= high
    assert 0 < high - low <= size * 4 // 5
    assert "the gap was reached" in json.loads(reached.stdout)["counts"]["violated"]["note"]
    missed = quantify(*COUNT, "--gap", "0.01", *STOPPED)
    assert missed.returncode == 3
    found = json.loads(missed.stdout)
    satisfied = found["counts"]["satisfied"]
    low, high = violated(missed)
    assert high - low > size / 100
    assert "% open: the time limit was reached" in found["counts"]["violated"]["note"]
    # Proven in, proven out and open are told: what one may still gain is what the other may still lose.
    assert int(satisfied["upper"]) - int(satisfied["lower"]) == high - low
    told = f"proven: satisfied {int(satisfied['lower']):,}, violated {low:,}; open: {high - low:,}; of {size:,} inputs"
    assert said(missed, "open") == told
    assert said(reached, "open").startswith("proven: satisfied ")


# --- boxes ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def small(model: Path) -> dict[Point, bool]:
    """The inputs of a coarse domain with whether they violate the property."""
    write(model.parent, "0.125")
    grid = [(Fraction(k, 8), Fraction(m, 8)) for k in range(-16, 17) for m in range(-16, 17)]
    return {(float(a), float(b)): a >= -1 and label(a, b) == 1 for a, b in grid}


def test_boxes_hold_the_violations_and_nothing_else(quantify: Run, tmp_path: Path, small: dict[Point, bool]) -> None:
    done = quantify(*COUNT[:4], "--boxes", "boxes.json", "--json", "answer.json")
    assert done.returncode == 0
    (case,) = json.loads((tmp_path / "boxes.json").read_text())["cases"]
    seen: dict[Point, int] = {}
    for box in case["boxes"]:
        (low, high), (least, most) = box["input"]["a"], box["input"]["b"]
        inside = [point for point in small if low <= point[0] <= high and least <= point[1] <= most]
        assert box["of"] == "violated"
        assert box["count"] == str(len(inside))
        for point in inside:
            seen[point] = seen.get(point, 0) + 1
    assert seen == {point: 1 for point, bad in small.items() if bad}
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert case["held"] == {"violated": answer["counts"]["violated"]["lower"]} == {"violated": str(len(seen))}
    quantify(*COUNT[:4], "--boxes", "boxes.csv")
    with (tmp_path / "boxes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(case["boxes"])
    for row, box in zip(rows, case["boxes"], strict=True):
        assert (row["of"], row["count"], row["row"]) == ("violated", box["count"], "")
        assert [float(row["lowest a"]), float(row["highest a"])] == box["input"]["a"]
        assert [float(row["lowest b"]), float(row["highest b"])] == box["input"]["b"]


def test_open_boxes_are_listed_apart(quantify: Run, truth: int) -> None:
    done = quantify(*COUNT[:4], *STOPPED, "--boxes", "-")
    assert done.returncode == 3
    (case,) = json.loads(done.stdout)["cases"]
    held = {name: int(number) for name, number in case["held"].items()}
    boxes: list[dict[str, Any]] = case["boxes"]
    assert held["open"] == sum(int(box["count"]) for box in boxes if box["of"] == "open") > 0
    assert held["violated"] <= truth <= held["violated"] + held["open"]


def test_balls_as_boxes(quantify: Run, tmp_path: Path, model: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n0,1\n1,-1.5\n")
    text = PROPERTY.replace("STEP", "0.125").partition("assume")[0].replace("safety", "robustness")
    (tmp_path / "p.yaml").write_text(text + 'inputs: {file: rows.csv, rows: "0-1"}\nepsilon: [1, 2]\n')
    done = quantify(*COUNT[:4], "--boxes", "boxes.json", "--json", "-")
    cases = json.loads((tmp_path / "boxes.json").read_text())["cases"]
    answers = json.loads(done.stdout)["inputs"]
    assert [(case["row"], case["epsilon"]) for case in cases] == [(e["row"], str(e["epsilon"])) for e in answers]
    for case, entry in zip(cases, answers, strict=True):
        centre = ((Fraction(0), Fraction(1)), (Fraction(1), Fraction(-3, 2)))[entry["row"]]
        grid = [(Fraction(k, 8), Fraction(m, 8)) for k in range(-16, 17) for m in range(-16, 17)]
        ball = [p for p in grid if max(abs(p[0] - centre[0]), abs(p[1] - centre[1])) <= entry["epsilon"]]
        fragile = sum(label(*point) != label(*centre) for point in ball)
        assert case["held"] == {"fragile": str(fragile)}


def test_boxes_need_branch_and_no_checkpoint(quantify: Run, tmp_path: Path, model: Path) -> None:
    write(tmp_path, "0.5")
    for arguments, why in (
        (("--engine", "enumerate"), "keeps no boxes"),
        (("--checkpoint", "kept"), "cannot be resumed"),
    ):
        done = quantify(*COUNT[:4], "--boxes", "boxes.json", *arguments)
        assert done.returncode == 2
        assert why in done.stderr
        assert not (tmp_path / "boxes.json").exists()
    both = quantify(*COUNT[:4], "--boxes", "-", "--json", "-")
    assert both.returncode == 2

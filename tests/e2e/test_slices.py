"""`quantify slices` as typed: answers against their schema, the page, models, the gate, and what is refused."""

from __future__ import annotations

import csv
import json
import os
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from browser import show
from scipy.stats import beta
from sklearn.tree import DecisionTreeClassifier

from quantify.report.json import schema

Run = Callable[..., subprocess.CompletedProcess[str]]
BASIC = ("slices", "birds.csv", "--label", "species", "--pred", "said")


@pytest.fixture
def project(here: Run, tmp_path: Path) -> Run:
    """600 birds: all answers are right but those on every second black one that is wet."""
    draw = random.Random(3)
    rows = []
    for place in range(600):
        species, black, wet = draw.choice(["auklet", "finch"]), draw.choice("01"), draw.choice("01")
        wrong = black == wet == "1" and place % 2
        said = {"auklet": "finch", "finch": "auklet"}[species] if wrong else species
        rows.append((species, said, black, wet, f"{draw.gauss(10, 2):.2f}", f"{draw.random():.3f}"))
    write(tmp_path / "birds.csv", ("species", "said", "black", "wet", "bill", "loss"), rows)
    return here


def write(path: Path, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def answer(here: Run, *words: str, code: int = 0) -> dict[str, Any]:
    done = here(*words, "--json", "-")
    assert done.returncode == code, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(told, schema("slices"))
    return told


def test_the_planted_slice_is_the_worst_one(project: Run, tmp_path: Path) -> None:
    told = answer(project, *BASIC, "--attributes", "black,wet", "--present-only", "--point", "5")
    with (tmp_path / "birds.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    planted = [row for row in rows if row["black"] == row["wet"] == "1"]
    right = sum(row["species"] == row["said"] for row in planted)
    one = next(one for one in told["sets"] if one["name"] == "black=1 ∩ wet=1")
    assert (one["size"], one["hits"], one["value"]) == (len(planted), right, right / len(planted))
    looks = told["settings"]["looked_at"]
    assert looks == len(told["sets"]) + 1
    for name, risk in (("", 0.05), ("corrected_", 0.05 / looks)):
        ends = beta.ppf(risk / 2, right, len(planted) - right + 1), beta.isf(risk / 2, right + 1, len(planted) - right)
        assert (one[f"{name}lower"], one[f"{name}upper"]) == pytest.approx(ends, rel=1e-7)
    values = [one["value"] for one in told["sets"]]
    assert values == sorted(values)
    assert "black=1 ∩ wet=1" in told["informative"]
    assert told["whole"]["value"] == sum(row["species"] == row["said"] for row in rows) / 600
    mine = {name for name in ("black", "wet") if rows[5][name] == "1"}
    names = {f"species={rows[5]['species']}", *(f"{name}=1" for name in mine)}
    assert names <= set(told["point"]["neighbourhoods"])


def test_every_inconsistency_is_listed_and_attained_where_it_says(project: Run) -> None:
    told = answer(project, *BASIC, "--incon-k", "40", "--min-size", "5", "--depth", "3")
    values = {one["name"]: (one["size"], one["value"]) for one in told["sets"]}
    assert {one["name"] for one in told["inconsistency"]} == set(values)
    found = [one["value"] for one in told["inconsistency"]]
    assert found == sorted(found, reverse=True)
    for one in told["inconsistency"]:
        size, value = values[one["name"]]
        inside, other = values[one["attained_at"]]
        assert size - 40 <= inside <= size
        assert (one["change"], one["value"]) == (value - other, abs(value - other))
    assert told["inconsistency"][0]["value"] > 0


def test_the_report_names_the_worst_set_and_the_correction(project: Run) -> None:
    done = project(*BASIC, "--attributes", "black,wet,bill", "--point", "3")
    assert done.returncode == 0
    worse = done.stdout.split("worse than all rows")[1]
    assert re.search(r"^black=1 ∩ wet=1 +\d+ +\d\d\.\d %", worse, re.M)
    assert re.search(r"Bonferroni, for the [\d,]+ sets", done.stdout)
    assert "Around row 3:" in done.stdout
    assert project(*BASIC, "--quiet").stdout == ""


@pytest.mark.needs("chromium")
def test_predictions_that_are_no_labels_are_named_at_once(project: Run) -> None:
    head = project("slices", "birds.csv", "--label", "species", "--pred", "wet").stdout.split("\n\n")[0]
    assert "NONE of them is a label of the table" in head
    assert "NONE" not in project(*BASIC).stdout


def test_the_page_draws_the_lattice_at_any_width(project: Run, tmp_path: Path) -> None:
    assert project(*BASIC, "--depth", "3", "--html", "slices.html", "--quiet").returncode == 0
    shown = show(tmp_path / "slices.html", tmp_path, (400, 1400), (".lattice circle", ".lattice title"))
    assert shown.asked == []
    for width, seen in shown.at.items():
        assert seen["scroll"] <= width
        assert seen["cut"] == []
        circles, titles = seen["selected"][".lattice circle"], seen["selected"][".lattice title"]
        assert len(circles) == len(titles) > 2
        assert titles[0]["text"].startswith("all rows: ")
        assert any(title["text"].startswith("black=1 ∩ wet=1: ") for title in titles)


def test_unions_losses_and_rates_as_typed(project: Run) -> None:
    told = answer(project, *BASIC, "--attributes", "black,wet", "--depth", "1", "--unions")
    assert "black=1 ∪ wet=1" in {one["name"] for one in told["sets"]}
    told = answer(project, "slices", "birds.csv", "--label", "species", "--metric", "loss", "--column", "loss")
    assert {one["lower"] for one in told["sets"]} == {None}
    told = answer(
        project, "slices", "birds.csv", "--label", "species", "--metric", "loss", "--column", "loss", "--range", "0,1"
    )
    values = [one["value"] for one in told["sets"]]
    assert values == sorted(values, reverse=True)
    assert all(one["corrected_lower"] < one["lower"] < one["value"] < one["upper"] for one in told["sets"])
    told = answer(project, "slices", "birds.csv", "--metric", "rate", "--column", "black", "--worst", "high")
    assert next(one["value"] for one in told["sets"] if one["name"] == "wet=1") < 1
    told = answer(project, *BASIC, "--metric", "recall", "--positive", "finch")
    assert {one["value"] for one in told["sets"] if one["name"] == "species=auklet"} == {None}


def test_a_model_is_asked_about_the_rows(here: Run, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x = draw.random((200, 2)).round(3)
    y = (x[:, 0] > 0.5).astype(int)
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(DecisionTreeClassifier(max_depth=2).fit(x[:150], y[:150])))
    tree = pickle.loads((tmp_path / "m.pkl").read_bytes())
    said = tree.predict(x)
    y[::10] = 1 - y[::10]
    rows = [
        (str(a), str(b), str(c), str(d), "ab"[i % 2]) for i, ((a, b), c, d) in enumerate(zip(x, y, said, strict=True))
    ]
    write(tmp_path / "t.csv", ("first", "second", "label", "said", "g"), rows)
    asked = answer(here, "slices", "t.csv", "--label", "label", "--model", "m.pkl", "--features", "first,second",
                   "--attributes", "g,first")  # fmt: skip
    read = answer(here, "slices", "t.csv", "--label", "label", "--pred", "said", "--attributes", "g,first")
    assert asked["sets"] == read["sets"]
    assert asked["model"]["kind"] == "tree"
    assert read["model"] is None
    refused = here("slices", "t.csv", "--label", "label", "--model", "m.pkl")
    assert refused.returncode == 2
    assert "--features A,B" in refused.stderr


def test_the_gate_decides_by_the_worst_slice_and_by_incon(project: Run, tmp_path: Path) -> None:
    narrow = (*BASIC, "--attributes", "black,wet", "--present-only")
    told = answer(project, *narrow, "--record", "--incon-k", "300")
    least = min(one["corrected_lower"] for one in (*told["sets"],))
    largest = told["inconsistency"][0]["value"]
    assert 0.2 < least < 0.5
    assert largest > 0.1

    def gate(rule: str, code: int) -> dict[str, Any]:
        (tmp_path / "policy.yaml").write_text(f"rules:\n  - {rule}\n")
        done = project("gate", "policy.yaml", "--json", "-")
        assert done.returncode == code, done.stdout + done.stderr
        verdict: dict[str, Any] = json.loads(done.stdout)
        return verdict

    gate(f"{{id: worst, metric: worst_slice_accuracy, table: birds.csv, min: {least - 1e-6:.7f}}}", 0)
    gate(f"{{id: worst, metric: worst_slice_accuracy, table: birds.csv, min: {least + 1e-6:.7f}}}", 3)
    gate("{id: worst, metric: worst_slice_accuracy, min: 0.8}", 1)
    # At a higher confidence the same record has a wider interval.
    gate(f"{{id: worst, metric: worst_slice_accuracy, min: {least - 1e-6:.7f}, confidence: 0.99}}", 3)
    gate(f"{{id: even, metric: incon_k, max: {largest + 1e-9:.12f}}}", 0)
    gate(f"{{id: even, metric: incon_k, max: {largest - 1e-9:.12f}}}", 1)
    (tmp_path / "birds.csv").write_text((tmp_path / "birds.csv").read_text() + "finch,finch,0,0,9,0.5\n")
    verdict = gate("{id: worst, metric: worst_slice_accuracy, min: 0.1}", 3)
    assert "stale" in json.dumps(verdict)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--label", "species", "--pred", "species"), "--label and --pred are both 'species'"),
        (("--label", "specie", "--pred", "said"), "did you mean 'species'"),
        (("--label", "species"), "--pred YHAT"),
        (("--label", "species", "--pred", "said", "--point", "600"), "--point 0 to 599"),
        (("--label", "species", "--pred", "said", "--min-size", "601"), "smaller --min-size"),
        (("--label", "species", "--pred", "said", "--attributes", "black,,wet"), "empty name"),
        (("--metric", "loss"), "--column C"),
        (("--metric", "loss", "--column", "species"), "'species' of row 0 is no number"),
        (("--metric", "loss", "--column", "loss", "--range", "0,0.1"), "outside 0 to 0.1"),
        (("--metric", "loss", "--column", "loss", "--range", "1,0"), "such as 0,1"),
        (("--label", "species", "--pred", "said", "--model", "m.pkl"), "one of them"),
        (("--label", "species", "--pred", "said", "--column", "loss"), "--column is of a loss or a rate"),
        (("--label", "species", "--model", "missing.pkl"), "missing.pkl"),
        (("--label", "species", "--pred", "said", "--json", "nowhere/a.json"), "mkdir -p nowhere"),
    ],
)
def test_mistakes_are_told_with_what_to_do(project: Run, words: tuple[str, ...], said: str) -> None:
    done = project("slices", "birds.csv", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_full_disk_is_one_error(project: Run) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    done = project(*BASIC, "--json", "/dev/full")
    assert done.returncode == 2
    assert "cannot write /dev/full" in done.stderr


STOPPER = """
import os, signal, sys
from quantify.cli.main import run
from quantify.resources import Progress

def update(self, message, done=0, total=0):
    if message.startswith("intersecting") and done == 3:
        os.kill(os.getpid(), signal.SIGINT)

Progress.update = update
sys.exit(run(sys.argv[1:]))
"""


def test_an_interruption_keeps_what_was_found(project: Run, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", STOPPER, *BASIC, "--quiet", "--jobs", "1", "--json", "cut.json", "--record"],
        check=False, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    told = json.loads((tmp_path / "cut.json").read_text())
    jsonschema.validate(told, schema("slices"))
    assert not told["complete"]
    every = {one["name"]: one for one in answer(project, *BASIC)["sets"]}
    assert 0 < len(told["sets"]) < len(every)
    for one in told["sets"]:
        assert one["value"] == every[one["name"]]["value"]
    (tmp_path / "policy.yaml").write_text("rules:\n  - {id: worst, metric: worst_slice_accuracy, min: 0.01}\n")
    assert project("gate", "policy.yaml").returncode == 3

"""The example model-validation: its README is typed from top to bottom, and every command ends as it says there."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from browser import show
from ci_formats import read_junit, read_sarif
from PIL import Image

from quantify.report.json import schema

Run = Callable[..., subprocess.CompletedProcess[str]]
OUTCOMES = {0: {"PASS"}, 1: {"FAIL"}, 3: {"INSUFFICIENT_EVIDENCE", "MANUAL_REVIEW"}, 4: {"INVALID"}}
STEPS = ["leakage", "noise", "run", "seeds", "count", "gate"]


def typed(folder: Path) -> list[tuple[list[str], int]]:
    """The commands of the README, and the exit code behind each."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()]
    found = []
    for line in lines:
        command, code = line.rsplit("  # ", 1)
        program, *words = shlex.split(command)
        assert program == "quantify"
        found.append((words, int(code)))
    return found


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_the_flow_of_the_example(here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = here("init", "--example", "model-validation")
    assert made.returncode == 0, made.stderr
    assert "README.md" in made.stdout
    folder = tmp_path / "model-validation"
    monkeypatch.chdir(folder)
    commands = typed(folder)
    assert list(dict.fromkeys(words[0] for words, _ in commands)) == STEPS
    seen = set()
    for words, code in commands:
        files = {"--json": "v.json", "--junit": "v.xml", "--sarif": "v.sarif"} if words[0] == "gate" else {}
        done = here(*words, *(word for option in files.items() if option[0] not in words for word in option))
        assert done.returncode == code, (words, done.stdout, done.stderr)
        if words[0] == "gate":
            told, junit, sarif = (
                words[words.index(option) + 1] if option in words else file for option, file in files.items()
            )
            seen.add(check_verdict(folder / told, folder / junit, folder / sarif, code))
        if words[0] == "seeds":
            assert "MANUAL_REVIEW" in done.stdout if code else "PASS" in done.stdout
    assert seen == {outcome for outcomes in OUTCOMES.values() for outcome in outcomes}
    check_count(folder, here)
    check_labels(folder, here)
    check_pages(folder)


def check_verdict(answer: Path, junit: Path, sarif_file: Path, code: int) -> str:
    """The verdict in every form; its outcome."""
    told: dict[str, Any] = json.loads(answer.read_text())
    jsonschema.validate(told, schema("gate"))
    assert told["exit_code"] == code
    assert told["outcome"] in OUTCOMES[code]
    outcomes = [rule["outcome"] for rule in told["rules"]]
    cases = list(read_junit(junit).iter("testcase"))
    assert [case[0].attrib["type"] if len(case) else "PASS" for case in cases] == outcomes
    sarif = read_sarif(sarif_file)
    assert [result["properties"]["outcome"] for result in sarif["results"]] == outcomes
    assert sarif["invocations"][0]["exitCode"] == code
    return str(told["outcome"])


def check_count(folder: Path, here: Run) -> None:
    """The count of the example, by evaluating the network's text on every input that meets the assumption."""
    lines = (folder / "model.nnet").read_text().splitlines()
    rows = [np.array([float(part) for part in line.rstrip(",").split(",")]) for line in lines[7:]]
    first, second = np.array(rows[:6]), np.array(rows[12:14])
    bias, last = np.concatenate(rows[6:12]), np.concatenate(rows[14:16])
    grid = np.stack(
        np.meshgrid(np.arange(10, 151), np.arange(50, 101) / 100, np.arange(41), np.arange(5, 11), indexing="ij"), -1
    ).reshape(-1, 4)
    scores = np.maximum(grid @ first.T + bias, 0) @ second.T + last
    lent = int((scores[:, 1] > scores[:, 0]).sum())
    told = json.loads(here("count", "model.nnet", "--property", "safety.yaml", "--json", "-").stdout)
    assert int(told["counts"]["violated"]["lower"]) == int(told["counts"]["violated"]["upper"]) == lent
    assert Fraction(told["metrics"]["violation"]["lower"]) == Fraction(lent, len(grid)) > 0


def check_labels(folder: Path, here: Run) -> None:
    """Where a label says that the scratch cannot be seen, at most one of its pixels is left, and nowhere else."""
    assert here("noise", "image/noise.yaml", "--images", "looked-at", "--quiet").returncode == 0
    cases = [json.loads(line) for line in (folder / "image/sheets.jsonl").read_text().splitlines()]
    with (folder / "image/labels/patch.csv").open() as file:
        labels = {row["case"]: row["meaning"] for row in csv.DictReader(file)}
    assert set(labels) == {case["id"] for case in cases}
    assert set(labels.values()) == {"kept", "changed"}
    for case in cases:
        before, after = (
            np.array(Image.open(path)).astype(int)
            for path in (folder / "image" / case["image"], next((folder / "looked-at/patch").glob(f"{case['id']}*")))
        )
        if case["label"] == 0:
            assert labels[case["id"]] == "kept"
            continue
        columns = [3, 6, 9, 12]
        bright = before[:, columns] - np.maximum(
            before[:, [c - 1 for c in columns]], before[:, [c + 1 for c in columns]]
        )
        column = columns[int((bright > 22).sum(axis=0).argmax())]
        scratch = bright[:, columns.index(column)] > 22
        left = int((scratch & (before[:, column] == after[:, column])).sum())
        assert labels[case["id"]] == ("changed" if left <= 1 else "kept")


def check_pages(folder: Path) -> None:
    """The pages of the gate and of the seeds in a browser."""
    told = json.loads((folder / "gate.json").read_text())
    shown = show(folder / "gate.html", folder, (400, 1400), [".rule .outcome", "svg .end", "h3"])
    assert shown.asked == []
    for seen in shown.at.values():
        assert (seen["scroll"] <= seen["client"], seen["cut"]) == (True, [])
        picked = seen["selected"]
        assert [one["text"] for one in picked[".rule .outcome"]] == [rule["outcome"] for rule in told["rules"]]
        ends = [rule["interval"][end] for rule in told["rules"] if rule["interval"] for end in ("lower", "upper")]
        assert [one["attributes"]["data-value"] for one in picked["svg .end"]] == ends
        assert any(one["text"].startswith("Witnesses of count") for one in picked["h3"])
    shown = show(folder / "seeds.html", folder, (400, 1400), ["#cases tbody tr", "#cases thead th"])
    assert shown.asked == []
    for seen in shown.at.values():
        assert (seen["scroll"] <= seen["client"], seen["cut"]) == (True, [])
        assert len(seen["selected"]["#cases tbody tr"]) == 300
        headers = [one["text"] for one in seen["selected"]["#cases thead th"]]
        assert headers == ["case", "seed_1", "seed_2", "seed_3", "seed_4", "seed_5"]

"""`quantify leakage` as typed: a planted copy is found, a clean suite passes, the training data stay where they are."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from quantify.report.json import schema

Run = Callable[..., subprocess.CompletedProcess[str]]
WORDS = ("quixotic", "zephyr", "obelisk", "marzipan", "juniper")


@pytest.fixture
def files(tmp_path: Path) -> list[dict[str, object]]:
    """suite.jsonl with 30 cases and training.jsonl with 500 other rows, whose texts are made of WORDS."""
    rng = random.Random(4)
    rows: list[dict[str, object]] = [
        {"income": round(rng.uniform(1e4, 9e4), 2), "note": f"{rng.choice(WORDS)} {rng.choice(WORDS)}"}
        for _ in range(530)
    ]
    suite = [{"id": f"case-{i}", "features": row} for i, row in enumerate(rows[500:])]
    (tmp_path / "suite.jsonl").write_text("".join(json.dumps(one) + "\n" for one in suite))
    (tmp_path / "training.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows[:500]))
    return rows


def plant(folder: Path, row: dict[str, object]) -> None:
    with (folder / "training.jsonl").open("a") as file:
        file.write(json.dumps({"label": "yes", "features": {**row, "note": f" {str(row['note']).upper()}  "}}) + "\n")


def test_a_clean_suite_passes_and_a_planted_copy_is_found(
    quantify: Run, files: list[dict[str, object]], tmp_path: Path
) -> None:
    arguments = ("leakage", "--cases", "suite.jsonl", "--training", "training.jsonl", "--record", "--json", "-")
    done = quantify(*arguments)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    jsonschema.validate(told, schema("leakage"))
    assert (told["leakage"]["clean"], told["training"]["rows"], told["found"]) == (True, 500, [])
    plant(tmp_path, files[507])
    done = quantify(*arguments)
    assert done.returncode == 4
    told = json.loads(done.stdout)
    jsonschema.validate(told, schema("leakage"))
    assert told["found"] == [{"id": "case-7", "rows": 1}]
    shown = json.loads(quantify("evidence", "show", "latest", "--json", "-").stdout)["record"]
    assert (shown["status"], shown["body"]) == ("invalid", told)
    assert [data["role"] for data in shown["data"]] == ["cases", "training"]
    told = quantify("leakage", "--cases", "suite.jsonl", "--training", "training.jsonl").stdout
    assert "1 of 30 cases is among 501 training rows" in told
    assert "case-7: 1 row\n" in told


def test_nothing_of_the_training_data_is_kept_or_shown(
    quantify: Run, files: list[dict[str, object]], tmp_path: Path
) -> None:
    plant(tmp_path, files[507])
    arguments = ("leakage", "--cases", "suite.jsonl", "--training", "training.jsonl", "--near", "0.5", "--jobs", "2")
    shown = quantify(*arguments, "--record", "--json", "answer.json")
    assert shown.returncode == 4
    kept = b"".join(path.read_bytes() for path in (tmp_path / ".quantify").iterdir())
    kept += (tmp_path / "answer.json").read_bytes() + (shown.stdout + shown.stderr).encode()
    assert b"case-7" in kept
    for row in files:
        assert str(row["income"]).encode() not in kept
    for word in WORDS:
        assert word.encode() not in kept.lower()


def test_the_gate_is_blocked_until_a_clean_check_is_on_record(
    quantify: Run, files: list[dict[str, object]], tmp_path: Path
) -> None:
    quantify("run", "--failed", "none", "--system", "s", "--cases", "suite.jsonl", "--record")
    (tmp_path / "labelled.csv").write_text("id,x,label\na,1,b\n")
    quantify("run", "--failed", "none", "--system", "s", "--cases", "labelled.csv", "--record")
    (tmp_path / "release.yaml").write_text(
        "leakage: required\nsuite: suite.jsonl\nrules:\n  - {id: r, metric: correct, suite: labelled.csv, min: 0}\n"
    )

    def judged() -> tuple[int, dict[str, str]]:
        done = quantify("gate", "release.yaml", "--json", "-")
        findings = json.loads(done.stdout)["rules"]
        return done.returncode, {one["id"]: one["outcome"] for one in findings}

    code, outcomes = judged()
    assert (code, outcomes["leakage"]) == (3, "INSUFFICIENT_EVIDENCE")
    check = ("leakage", "--cases", "suite.jsonl", "--training", "training.jsonl", "--record")
    assert quantify(*check).returncode == 0
    assert judged()[1]["leakage"] == "PASS"
    plant(tmp_path, files[507])
    assert quantify(*check).returncode == 4
    code, outcomes = judged()
    assert (code, outcomes["leakage"]) == (4, "INVALID")


def test_bad_input_is_one_error(quantify: Run, files: list[dict[str, object]], tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"incomes": 1}\n')
    for extra in (
        ("--training", "none.jsonl"),
        ("--training", "other.jsonl"),
        ("--training", "training.jsonl", "--field", "incomes"),
        ("--training", "training.jsonl", "--round", "-1"),
        ("--training", "training.jsonl", "--near", "0.01"),
    ):
        done = quantify("leakage", "--cases", "suite.jsonl", "--record", *extra)
        assert (done.returncode, done.stdout) == (2, ""), extra
    assert json.loads(quantify("evidence", "list", "--json", "-").stdout)["records"] == []

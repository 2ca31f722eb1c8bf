"""`--record` and `quantify evidence` as typed: what was counted is on record, and stays what it was."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from sklearn.tree import DecisionTreeClassifier

from quantify.report.json import schema

Run = Callable[..., subprocess.CompletedProcess[str]]

SAFETY = """property: safety
name: small
DOMAIN
assume: "a >= 3"
assert: "label != 'low'"
"""


@pytest.fixture
def recorded(here: Run, small_tree: DecisionTreeClassifier, write_property: Callable[[str], Path]) -> dict[str, Any]:
    """What one recorded count printed."""
    write_property(SAFETY)
    done = here("count", "model.pkl", "--property", "property.yaml", "--record", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert "recorded as" in done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_recorded_count_can_be_read_again(quantify: Run, here: Run, recorded: dict[str, Any], tmp_path: Path) -> None:
    listed = quantify("evidence", "list", "--json", "-")
    assert listed.returncode == 0
    answer = json.loads(listed.stdout)
    jsonschema.validate(answer, schema("evidence"))
    (row,) = answer["records"]
    assert row["model"] == {
        "path": "model.pkl", "kind": "tree", "sha256": hashlib.sha256((tmp_path / "model.pkl").read_bytes()).hexdigest()
    }  # fmt: skip
    assert row["property"]["sha256"] == hashlib.sha256((tmp_path / "property.yaml").read_bytes()).hexdigest()
    rates = {reading["metric"]: Fraction(reading["lower"]) for reading in row["readings"]}
    assert rates == {name: Fraction(rate["lower"]) for name, rate in recorded["metrics"].items()}
    for name in (row["digest"][:8], "latest"):
        shown = json.loads(here("evidence", "show", name, "--json", "-").stdout)
        jsonschema.validate(shown, schema("evidence"))
        assert shown["record"]["body"] == recorded
    text = here("evidence", "show", "latest").stdout
    assert row["digest"] in text.replace("\n", "")
    assert "violation" in text


def test_lines_of_the_export_are_the_records(here: Run, recorded: dict[str, Any], tmp_path: Path) -> None:
    here("count", "model.pkl", "--property", "property.yaml", "--record", "--engine", "reference", "--quiet")
    assert here("evidence", "export", "--output", "all.jsonl").returncode == 0
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    listed = json.loads(here("evidence", "list", "--json", "-", "--kind", "count").stdout)["records"]
    assert [line["digest"] for line in lines] == [row["digest"] for row in listed]
    for line in lines:
        content = {key: value for key, value in line.items() if key not in ("digest", "created")}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        assert hashlib.sha256(text.encode()).hexdigest() == line["digest"]
    assert here("evidence", "export").stdout == (tmp_path / "all.jsonl").read_text()


def test_tampering_is_found_and_told(here: Run, recorded: dict[str, Any], tmp_path: Path) -> None:
    assert here("evidence", "verify").returncode == 0
    connection = sqlite3.connect(tmp_path / ".quantify" / "evidence.db")
    connection.execute("UPDATE records SET content = replace(content, '\"satisfaction\"', '\"violation\"')")
    connection.commit()
    connection.close()
    for arguments in (("verify",), ("list",), ("export",), ("show", "latest")):
        done = here("evidence", *arguments)
        assert done.returncode == 4, arguments
        assert "changed after it was stored" in done.stderr
    answer = json.loads(here("evidence", "verify", "--json", "-").stdout)
    jsonschema.validate(answer, schema("evidence"))
    assert (answer["intact"], answer["records"], len(answer["damages"])) == (False, 1, 1)


def test_bad_input_is_one_error(here: Run, tmp_path: Path) -> None:
    for arguments in (("show", "latest"), ("show", "zz"), ("verify",), ("list", "--kind", "gossip"), ("show",)):
        done = here("evidence", *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
    assert here("evidence", "list").returncode == 0
    assert not (tmp_path / ".quantify").exists()
    (tmp_path / "text.db").write_text("this is no database\n" * 99)
    assert here("evidence", "list", QUANTIFY_STORE="text.db").returncode == 2


def test_a_store_that_cannot_be_written_is_refused_before_counting(
    here: Run, small_tree: DecisionTreeClassifier, write_property: Callable[[str], Path], tmp_path: Path
) -> None:
    write_property(SAFETY)
    (tmp_path / "text.db").write_text("this is no database\n" * 99)
    done = here("count", "model.pkl", "--property", "property.yaml", "--record", QUANTIFY_STORE="text.db")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no evidence store" in done.stderr

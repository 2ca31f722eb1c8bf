"""`quantify gate` as typed: count, record, decide; every outcome with its exit code and in every form."""

from __future__ import annotations

import html
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from ci_formats import read_junit, read_sarif
from sklearn.tree import DecisionTreeClassifier

from quantify import engines
from quantify.evidence.store import Store
from quantify.ir.count import Count, Guarantee
from quantify.ir.record import DataRef, Reading, Record
from quantify.report.json import schema

Run = Callable[..., subprocess.CompletedProcess[str]]
GRID = np.array([(a, b) for a in range(16) for b in range(16)])
SAFETY = "property: safety\nname: small\nDOMAIN\nassume: 'a >= 3'\nassert: \"label != 'low'\"\n"
COUNT = ("count", "model.pkl", "--property", "property.yaml", "--record", "--quiet")


@pytest.fixture
def truth(small_tree: DecisionTreeClassifier, write_property: Callable[[str], Path]) -> Fraction:
    """The share of violations, by asking scikit-learn about every input; the property is written."""
    write_property(SAFETY)
    answers = small_tree.predict(GRID[GRID[:, 0] >= 3])
    return Fraction(int((answers == "low").sum()), len(answers))


@pytest.fixture
def gate(here: Run, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Run the gate on a policy; all its files are checked, must agree, and the JSON is returned."""

    def run(text: str, outcome: str, exit_code: int) -> dict[str, Any]:
        (tmp_path / "release.yaml").write_text(text, encoding="utf-8")
        files = ("--json", "v.json", "--junit", "v.xml", "--sarif", "v.sarif", "--html", "v.html")
        done = here("gate", "release.yaml", *files)
        assert done.returncode == exit_code, done.stderr
        answer: dict[str, Any] = json.loads((tmp_path / "v.json").read_text())
        jsonschema.validate(answer, schema("gate"))
        assert (answer["outcome"], answer["exit_code"]) == (outcome, exit_code)
        assert outcome in done.stdout
        page = re.search("<pre>(.*?)</pre>", (tmp_path / "v.html").read_text(), re.S)
        assert page is not None
        assert json.loads(html.unescape(page[1])) == answer
        suite = read_junit(tmp_path / "v.xml")
        outcomes = [rule["outcome"] for rule in answer["rules"]]
        assert [case[0].attrib["type"] if len(case) else "PASS" for case in suite.iter("testcase")] == outcomes
        sarif = read_sarif(tmp_path / "v.sarif")
        assert [result["properties"]["outcome"] for result in sarif["results"]] == outcomes
        assert sarif["invocations"][0]["exitCode"] == exit_code
        texts = [done.stdout, (tmp_path / "v.xml").read_text(), (tmp_path / "v.sarif").read_text()]
        for rule in answer["rules"]:
            for source in rule["evidence"]:
                assert all(source["digest"][: 12 if text is done.stdout else 64] in text for text in texts[1:])
                if source["use"] == "decides":
                    assert source["digest"][:12] in done.stdout
            for reason in rule["reasons"]:
                assert rule["outcome"] == "PASS" or all(reason["code"] in text for text in texts)
        return answer

    return run


def test_exact_counts_decide_to_the_last_input(
    quantify: Run, gate: Callable[..., dict[str, Any]], truth: Fraction
) -> None:
    assert quantify(*COUNT).returncode == 0
    rule = "rules:\n  - {{id: unsafe, metric: violation, property: small, max: {}}}\n"
    answer = gate(rule.format(truth), "PASS", 0)
    assert answer["rules"][0]["interval"] == {
        "lower": f"{truth.numerator}/{truth.denominator}", "upper": f"{truth.numerator}/{truth.denominator}",
        "value": float(truth), "guarantee": "exact", "confidence": None,
    }  # fmt: skip
    answer = gate(rule.format(truth - Fraction(1, 10**30)), "FAIL", 1)
    assert [source["use"] for source in answer["rules"][0]["evidence"]] == ["decides"]
    assert quantify("gate", "release.yaml").returncode == 1


def test_evidence_that_is_missing_too_weak_or_stale_is_insufficient(
    here: Run, gate: Callable[..., dict[str, Any]], truth: Fraction, tmp_path: Path
) -> None:
    rule = "rules:\n  - {id: unsafe, metric: violation, property: small, max: 0.9}\n"
    assert gate(rule, "INSUFFICIENT_EVIDENCE", 3)["rules"][0]["reasons"][0]["code"] == "never_measured"
    assert here(*COUNT, "--engine", "sample", "--samples", "2000").returncode == 0
    assert gate(rule, "INSUFFICIENT_EVIDENCE", 3)["rules"][0]["reasons"][0]["code"] == "guarantee_too_low"
    assert gate("least_guarantee: sampled\n" + rule, "PASS", 0)["rules"][0]["interval"]["confidence"] == 0.95
    assert here(*COUNT).returncode == 0
    gate(rule, "PASS", 0)
    other = DecisionTreeClassifier(max_depth=1, random_state=1).fit(GRID, np.where(GRID[:, 0] < 9, "low", "high"))
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(other))
    assert gate(rule, "INSUFFICIENT_EVIDENCE", 3)["rules"][0]["reasons"][0]["code"] == "stale"
    assert gate("model: model.pkl\n" + rule, "INSUFFICIENT_EVIDENCE", 3)["rules"][0]["reasons"][0]["code"] == "stale"


def test_draws_that_would_do_do(here: Run, gate: Callable[..., dict[str, Any]], truth: Fraction) -> None:
    """The number that the gate asks for decides when it is drawn, up to the luck of the draw."""
    near = truth + Fraction(1, 50)
    policy = f"least_guarantee: sampled\nrules:\n  - {{id: unsafe, metric: violation, property: small, max: {near}}}\n"
    assert here(*COUNT, "--engine", "sample", "--samples", "500").returncode == 0
    (need,) = gate(policy, "INSUFFICIENT_EVIDENCE", 3)["rules"][0]["needs"]
    assert need["kind"] == "samples"
    assert here(*COUNT, "--engine", "sample", "--samples", 3 * need["amount"], "--seed", "1").returncode == 0
    gate(policy, "PASS", 0)


def test_an_approximate_interval_is_for_a_person_and_a_contradiction_for_nobody(
    here: Run, gate: Callable[..., dict[str, Any]], truth: Fraction, tmp_path: Path
) -> None:
    assert here(*COUNT).returncode == 0
    seeds = Reading(
        "correct", "recipe", "loan", Fraction(83, 100), Fraction(92, 100), Fraction(88, 100), Guarantee.SAMPLED,
        risk=Fraction(1, 20), approximate=True,
    )  # fmt: skip
    with Store(tmp_path / ".quantify" / "evidence.db") as store:
        counted = store.latest("count").record
        store.add(Record("seeds", counted.created, counted.tool, (seeds,)))
        rule = "rules:\n  - {id: recipe, metric: correct, recipe: loan, min: 0.8}\n"
        gate(rule, "MANUAL_REVIEW", 3)
        gate("allow_approximate_methods: true\n" + rule, "PASS", 0)
        off = tuple(
            Reading(one.metric, one.about, one.subject, one.lower / 2, one.lower / 2, one.lower / 2, Guarantee.EXACT)
            for one in counted.readings
        )
        store.add(Record("count", counted.created, counted.tool, off, counted.model, counted.property, counted.data))
        rule = "rules:\n  - {id: unsafe, metric: violation, property: small, max: 1}\n"
        assert gate(rule, "INVALID", 4)["rules"][0]["reasons"][0]["code"] == "contradiction"
        cases = DataRef("cases", "cases.csv", "a" * 64)
        store.add(Record("leakage", counted.created, counted.tool, data=(cases,), status="invalid"))
        gate("leakage: required\n" + rule, "INVALID", 4)


def test_a_changed_record_is_invalid(
    here: Run, gate: Callable[..., dict[str, Any]], truth: Fraction, tmp_path: Path
) -> None:
    import sqlite3

    assert here(*COUNT).returncode == 0
    connection = sqlite3.connect(tmp_path / ".quantify" / "evidence.db")
    connection.execute("UPDATE records SET content = replace(content, '\"tree\"', '\"bush\"')")
    connection.commit()
    connection.close()
    answer = gate("rules:\n  - {id: unsafe, metric: violation, property: small, max: 1}\n", "INVALID", 4)
    assert answer["rules"][0]["reasons"][0]["code"] == "tampered"


def test_bad_policies_are_one_error_with_a_line(here: Run, tmp_path: Path) -> None:
    for text, said in (
        ("rules: []\n", "release.yaml:1: "),
        (
            "rules:\n  - {id: a, metric: vilation, property: p, max: 0}\n",
            "release.yaml:2: metric: 'vilation' is unknown",
        ),
    ):
        (tmp_path / "release.yaml").write_text(text)
        done = here("gate", "release.yaml", "--json", "v.json")
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert "hint: " in done.stderr
        assert not (tmp_path / "v.json").exists()
    assert here("gate", "none.yaml").returncode == 2
    (tmp_path / "release.yaml").write_text("rules:\n  - {id: a, metric: violation, property: p, max: 0}\n")
    assert here("gate", "release.yaml", "--json", "-", "--junit", "-").returncode == 2


def test_names_that_no_xml_allows_are_replaced(gate: Callable[..., dict[str, Any]], truth: Fraction) -> None:
    gate(
        'rules:\n  - {id: "a\\u0001<&>\\"", metric: violation, property: "p\\u0008]]>", max: 0}\n',
        "INSUFFICIENT_EVIDENCE",
        3,
    )


@pytest.mark.parametrize("words", ["gate release.yaml", "gate release.yaml --json -", "gate missing.yaml", "--help"])
def test_a_reader_that_went_away_changes_no_exit_code(words: str, tmp_path: Path, quantify: Run) -> None:
    (tmp_path / "release.yaml").write_text("rules: [{id: small, metric: violation, property: small, max: 0}]\n")
    expected = quantify(*words.split()).returncode
    assert expected == {"gate missing.yaml": 2, "--help": 0}.get(words, 3)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as nobody:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "quantify", *words.split()],
            cwd=tmp_path, stdout=nobody, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert done.returncode == expected
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def plant(planted: pytest.MonkeyPatch) -> None:
    """Let the engine that is preferred count one violation too many."""
    engine = engines.discover()["boxes"]
    right = engine.count

    def wrong(*arguments: Any) -> dict[str, Count]:
        counts = dict(right(*arguments))
        count = counts["violated"]
        return counts | {"violated": replace(count, lower=count.lower + 1, upper=count.upper + 1)}

    planted.setattr(engine, "count", wrong, raising=False)


def test_ways_that_disagree_are_on_record_and_invalidate_the_rule(
    here: Run, gate: Callable[..., dict[str, Any]], truth: Fraction, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as planted:
        plant(planted)
        done = here(*COUNT, "--cross-check")
    assert done.returncode == 4
    assert "the whole region" in done.stderr
    rule = "rules:\n  - {id: unsafe, metric: violation, property: small, max: 1}\n"
    (found,) = gate(rule, "INVALID", 4)["rules"]
    (reason,) = found["reasons"]
    assert reason["code"] == "contradiction"
    assert "cannot be 256, the whole region" in reason["text"]
    (source,) = found["evidence"]
    with Store(tmp_path / ".quantify" / "evidence.db") as store:
        ((stored,), _) = store.all()
    assert stored.digest == source["digest"]
    assert stored.record.status == "invalid"
    assert {(reading.lower, reading.upper) for reading in stored.record.readings} == {(0, 1)}
    # A count that is right does not take back that somebody counted otherwise.
    here(*COUNT)
    gate(rule, "INVALID", 4)


def test_integers_that_disagree_with_the_library_are_on_record_as_well(
    here: Run, gate: Callable[..., dict[str, Any]], truth: Fraction, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    right = engines.evaluate.labels
    with monkeypatch.context() as planted:
        planted.setattr(engines.evaluate, "labels", lambda grid, positions: (right(grid, positions) + 1) % 2)
        done = here(*COUNT)
    assert done.returncode == 4
    assert "scikit-learn" in done.stderr
    rule = "rules:\n  - {id: unsafe, metric: violation, property: small, max: 1}\n"
    (found,) = gate(rule, "INVALID", 4)["rules"]
    assert [reason["code"] for reason in found["reasons"]] == ["contradiction"]
    with Store(tmp_path / ".quantify" / "evidence.db") as store:
        ((stored,), _) = store.all()
    assert stored.record.status == "invalid"
    assert {(reading.lower, reading.upper) for reading in stored.record.readings} == {(0, 1)}
    assert [check["name"] for check in stored.record.body["checks"]] == ["contradiction"]


def test_a_contradiction_that_nobody_records_leaves_no_evidence(
    here: Run, gate: Callable[..., dict[str, Any]], truth: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as planted:
        plant(planted)
        assert here(*[word for word in COUNT if word != "--record"], "--cross-check").returncode == 4
    rule = "rules:\n  - {id: unsafe, metric: violation, property: small, max: 1}\n"
    assert gate(rule, "INSUFFICIENT_EVIDENCE", 3)["rules"][0]["reasons"][0]["code"] == "never_measured"


def test_a_rate_that_the_property_does_not_give_is_said_to_be_none_of_its(
    here: Run, gate: Callable[..., dict[str, Any]], truth: Fraction
) -> None:
    rule = "model: model.pkl\nrules:\n  - {id: right, metric: accuracy, property: small, min: 0.5}\n"
    (found,) = gate(rule, "INSUFFICIENT_EVIDENCE", 3)["rules"]
    (need,) = found["needs"]
    assert "quantify count model.pkl --property P.yaml --record" in need["text"]
    assert "learnability" in need["text"]
    assert here(*COUNT).returncode == 0
    (found,) = gate(rule, "INSUFFICIENT_EVIDENCE", 3)["rules"]
    assert "on record of it: satisfaction, violation" in found["reasons"][0]["text"]

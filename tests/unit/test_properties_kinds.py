"""Safety, classes and learnability: queries, partitions that cover the domain, and refusals; reading of the file."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from pathlib import Path

import pytest
from property_files import bind, hand_model, refused

from quantify import properties
from quantify.errors import InputError
from quantify.ir.problem import Box, Case, Problem
from quantify.properties.evaluate import truth

CLASSES = ("no", "yes", "maybe")


def answer(row: list[float]) -> int:
    """The hand-made model: depends on both columns, never gives class 2 when b is 0."""
    return 2 if row[1] == 1 and row[0] > 4 else int(row[0] > 2)


MODEL = hand_model(2, classes=CLASSES, predict=answer)
DOMAIN = "domain: {features: [{name: a, type: int, min: 0, max: 5}, {name: b, type: bool}]}\n"


def counted(problem: Problem) -> dict[str, int]:
    """Inputs that satisfy each query, by enumeration; every partition must cover the domain exactly once."""
    (case,) = problem.cases
    assert case.region == Box((0,) * len(problem.domain.features), problem.domain.sizes)
    totals: Counter[str] = Counter({query.name: 0 for query in case.queries})
    for point in itertools.product(*map(range, problem.domain.sizes)):
        values = [feature.value(p) for feature, p in zip(problem.domain, point, strict=True)]
        label = answer([float(value) for value in values])
        holding = [query.name for query in case.queries if truth(query.expression, values, point, label)]
        totals.update(holding)
        for partition in case.partitions:
            assert sum(name in holding for name in partition) == 1
    return dict(totals)


def reported(case: Case) -> list[str]:
    return [query.name for query in case.queries if query.reported]


# --- safety --------------------------------------------------------------------------------------------------------
def test_safety(tmp_path: Path) -> None:
    problem = bind(tmp_path, f"property: safety\nname: s\n{DOMAIN}assert: \"label != 'maybe'\"\n", MODEL)
    assert (problem.kind, problem.name) == ("safety", "s")
    assert counted(problem) == {"satisfied": 11, "violated": 1}
    assert problem.cases[0].partitions == (("satisfied", "violated"),)


def test_safety_with_an_assumption(tmp_path: Path) -> None:
    problem = bind(tmp_path, f"property: safety\n{DOMAIN}assume: b and a >= 3\nassert: label == 'maybe'\n", MODEL)
    assert problem.name == "p"
    assert counted(problem) == {"satisfied": 1, "violated": 2, "outside": 9}
    assert reported(problem.cases[0]) == ["satisfied", "violated"]


def test_an_assumption_that_nothing_meets(tmp_path: Path) -> None:
    problem = bind(tmp_path, f"property: safety\n{DOMAIN}assume: a > 9\nassert: b\n", MODEL)
    assert counted(problem) == {"satisfied": 0, "violated": 0, "outside": 12}


# --- classes -------------------------------------------------------------------------------------------------------
def test_classes(tmp_path: Path) -> None:
    assert counted(bind(tmp_path, f"property: classes\n{DOMAIN}", MODEL)) == {"no": 6, "yes": 5, "maybe": 1}
    problem = bind(tmp_path, f"property: classes\n{DOMAIN}assume: not b\n", MODEL)
    assert counted(problem) == {"no": 3, "yes": 3, "maybe": 0, "outside": 6}


def test_a_class_called_outside(tmp_path: Path) -> None:
    model = hand_model(2, classes=("in", "outside"))
    (case,) = bind(tmp_path, f"property: classes\n{DOMAIN}assume: b\n", model).cases
    assert [query.name for query in case.queries] == ["in", "outside", "(outside)"]


def test_a_single_class(tmp_path: Path) -> None:
    (case,) = bind(tmp_path, f"property: classes\n{DOMAIN}", hand_model(2, classes=("only",))).cases
    assert truth(case.queries[0].expression, (0, 0), (0, 0), 0)


# --- learnability --------------------------------------------------------------------------------------------------
def test_learnability_one_against_the_rest(tmp_path: Path) -> None:
    problem = bind(tmp_path, f"property: learnability\n{DOMAIN}ground_truth: a >= 4\npositive: yes\n", MODEL)
    assert problem.positive == "yes"
    # "yes" is said for a in 3, 4 (b or not) and for a = 5 without b.
    assert counted(problem) == {"tp": 3, "fp": 2, "fn": 1, "tn": 6}
    assert reported(problem.cases[0]) == ["tp", "fp", "tn", "fn"]


def test_learnability_with_an_assumption(tmp_path: Path) -> None:
    text = f"property: learnability\n{DOMAIN}ground_truth: a >= 4\npositive: 'yes'\nassume: not b\n"
    assert counted(bind(tmp_path, text, MODEL)) == {"tp": 2, "fp": 1, "fn": 0, "tn": 3, "outside": 6}


def test_learnability_label_by_label(tmp_path: Path) -> None:
    text = f"property: learnability\n{DOMAIN}ground_truth: {{no: a < 2, yes: a > 1 and a < 5, maybe: b and a > 3}}\n"
    problem = bind(tmp_path, text, MODEL)
    counts = counted(problem)
    assert problem.positive is None
    assert {name: counts[name] for name in ("gap", "overlap", "unique")} == {"gap": 1, "overlap": 1, "unique": 10}
    assert [counts[f"no/{four}"] for four in ("tp", "fp", "tn", "fn")] == [4, 2, 6, 0]
    assert [counts[f"maybe/{four}"] for four in ("tp", "fp", "tn", "fn")] == [1, 0, 10, 1]
    assert reported(problem.cases[0]) == [f"{label}/{four}" for label in CLASSES for four in ("tp", "fp", "tn", "fn")]


def test_learnability_of_one_label_among_several_expressions(tmp_path: Path) -> None:
    text = f"property: learnability\n{DOMAIN}ground_truth: {{no: a < 2, yes: a > 1}}\npositive: no\n"
    problem = bind(tmp_path, text, MODEL)
    assert reported(problem.cases[0]) == ["tp", "fp", "tn", "fn"]
    assert counted(problem) == {"gap": 0, "overlap": 0, "unique": 12, "tp": 4, "fp": 2, "tn": 6, "fn": 0}


def test_a_relation_by_name(tmp_path: Path) -> None:
    text = "property: learnability\ndomain: {relation: {nodes: 2}}\nground_truth: reflexive\npositive: 1\n"
    problem = bind(tmp_path, text, hand_model(4))
    assert problem.positive == "1"
    assert problem.domain.relation_nodes == 2
    boolean = hand_model(4, classes=("False", "True"))
    assert bind(tmp_path, text.replace("positive: 1", "positive: true"), boolean).positive == "True"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("property: safety\n{d}", None, "needs the key 'assert'"),
        ("property: safety\n{d}assert: c > 1\n", 3, "assert, column 1: the name 'c' is unknown"),
        ("property: safety\n{d}assume: label == 'yess'\nassert: b\n", 3, "did you mean 'yes'?"),
        ("property: safety\n{d}asert: b\n", 3, "did you mean 'assert'?"),
        ("property: safety\n{d}assert: b\nepsilon: 1\n", 4, "has no key 'epsilon'"),
        ("property: safety\n{d}assert: [b]\n", 3, "must be an expression, not a list"),
        ("property: safety\n{d}assert:\n", 3, "not nothing"),
        ("property: safety\n{d}assert: b\nquantization: {mode: exact}\n", 4, "is for networks"),
        ("property: safty\n{d}", 1, "did you mean 'safety'?"),
        ("property: fairness\n{d}", 1, "'fairness' is unknown"),
        ("name: x\n{d}", 1, "the key 'property' is missing"),
        ("property: safety\nassert: b\n", 1, "needs the key 'domain'"),
        ("- property\n", 1, "is a mapping"),
        ("property: learnability\n{d}ground_truth: b\n", 3, "which label does the ground truth describe?"),
        ("property: learnability\n{d}positive: yes\n", None, "needs the key 'ground_truth'"),
        ("property: learnability\n{d}ground_truth: b\npositive: ja\n", 4, "'ja' is unknown"),
        ("property: learnability\n{d}ground_truth: transitive\npositive: yes\n", 3, "must be boolean"),
        ("property: learnability\n{d}ground_truth: label == 'yes'\npositive: yes\n", 3, "cannot use the model's label"),
        ("property: learnability\n{d}ground_truth: {jes: b}\n", 3, "did you mean 'yes'?"),
        ("property: learnability\n{d}ground_truth: {yes: b}\npositive: no\n", 3, "'no' has no expression"),
        ("property: learnability\n{d}ground_truth: {}\n", 3, "empty"),
        ("property: classes\ndomain: {features: [{name: a, type: int, min: 2, max: 1}]}\n", 2, "is empty"),
    ],
)
def test_refusals(tmp_path: Path, text: str, line: int | None, words: str) -> None:
    assert words in refused(tmp_path, text.replace("{d}", DOMAIN), MODEL, line=line)


def test_load_needs_no_model(tmp_path: Path) -> None:
    path = tmp_path / "phi5.yaml"
    path.write_text(f"property: safety\n{DOMAIN}assert: nonsense everywhere\n")
    source = properties.load(path)
    assert (source.kind, source.name) == ("safety", "phi5")
    assert source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        properties.load(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        properties.load(tmp_path)

"""`quantify count` against enumeration with scikit-learn's own predict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

Answer = Callable[..., dict[str, Any]]
Write = Callable[[str], Path]
GRID = np.array([(a, b) for a in range(16) for b in range(16)])
EXACT_ENGINES = ("boxes", "enumerate", "bdd", "reference")

SAFETY = """property: safety
name: far-is-not-low
DOMAIN
assume: "a >= 3 and a + 2*b <= 30"
assert: "label != 'low'"
"""


def truth(tree: DecisionTreeClassifier) -> tuple[int, int]:
    labels = tree.predict(GRID)
    met = [(a >= 3 and a + 2 * b <= 30, label != "low") for (a, b), label in zip(GRID, labels, strict=True)]
    return sum(m and good for m, good in met), sum(m and not good for m, good in met)


@pytest.mark.parametrize("engine", ["auto", *EXACT_ENGINES])
def test_safety(engine: str, answer: Answer, small_tree: DecisionTreeClassifier, write_property: Write) -> None:
    write_property(SAFETY)
    satisfied, violated = truth(small_tree)
    got = answer("model.pkl", "--property", "property.yaml", "--engine", engine)
    for name, expected in (("satisfied", satisfied), ("violated", violated)):
        assert got["counts"][name]["lower"] == got["counts"][name]["upper"] == str(expected)
        assert got["counts"][name]["guarantee"] == "exact"
    assert Fraction(got["metrics"]["satisfaction"]["lower"]) == Fraction(satisfied, satisfied + violated)
    assert got["schema"] == "quantify/1"
    assert got["domain"]["size"] == "256"
    assert got["model"]["classes"] == ["high", "low", "mid"]
    assert {check["name"]: check["status"] for check in got["checks"]}["fidelity"] == "ok"


def test_witnesses_violate_when_predicted_again(
    answer: Answer, small_tree: DecisionTreeClassifier, write_property: Write
) -> None:
    write_property(SAFETY)
    (witness,) = answer("model.pkl", "--property", "property.yaml")["witnesses"]
    a, b = witness["input"]["a"], witness["input"]["b"]
    assert a >= 3
    assert a + 2 * b <= 30
    assert small_tree.predict([[a, b]])[0] == witness["label"] == "low"


@pytest.mark.needs("cbmc")
def test_cross_check_agrees(answer: Answer, small_tree: DecisionTreeClassifier, write_property: Write) -> None:
    write_property(SAFETY)
    got = answer("model.pkl", "--property", "property.yaml", "--cross-check")
    assert int(got["counts"]["violated"]["lower"]) == truth(small_tree)[1]
    said = " ".join(check["name"] + " " + check["detail"] for check in got["checks"])
    assert {check["status"] for check in got["checks"]} == {"ok"}
    assert "cnf" in said
    assert "sample" in said


@pytest.mark.needs("cbmc")
@pytest.mark.parametrize("counter", ["ganak", "tididi"])
def test_reference_path_alone(
    counter: str, answer: Answer, small_tree: DecisionTreeClassifier, write_property: Write
) -> None:
    write_property(SAFETY)
    got = answer("model.pkl", "--property", "property.yaml", "--engine", "cnf", "--counter", counter)
    satisfied, violated = truth(small_tree)
    assert (got["counts"]["satisfied"]["lower"], got["counts"]["violated"]["upper"]) == (str(satisfied), str(violated))
    assert got["counts"]["satisfied"]["guarantee"] == ("prob-exact" if counter == "ganak" else "exact")


def test_classes_cover_the_domain(answer: Answer, small_tree: DecisionTreeClassifier, write_property: Write) -> None:
    write_property("property: classes\nname: shares\nDOMAIN\n")
    got = answer("model.pkl", "--property", "property.yaml")["counts"]
    assert {name: int(c["lower"]) for name, c in got.items()} == Counter(small_tree.predict(GRID))


def test_learnability(answer: Answer, small_tree: DecisionTreeClassifier, write_property: Write) -> None:
    write_property('property: learnability\nname: low\nDOMAIN\nground_truth: "a + b < 9"\npositive: low\n')
    said, true = small_tree.predict(GRID) == "low", GRID.sum(axis=1) < 9
    expected = {
        "tp": np.sum(said & true), "fp": np.sum(said & ~true), "tn": np.sum(~said & ~true), "fn": np.sum(~said & true),
    }  # fmt: skip
    got = answer("model.pkl", "--property", "property.yaml")
    assert {name: int(c["lower"]) for name, c in got["counts"].items()} == expected
    assert Fraction(got["metrics"]["accuracy"]["lower"]) == Fraction(int(expected["tp"] + expected["tn"]), 256)


@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 1), ("l1", 2), ("l0", 1)])
def test_robustness(
    norm: str, epsilon: int, answer: Answer, small_tree: DecisionTreeClassifier, write_property: Write, tmp_path: Path
) -> None:
    centres = [(2, 3), (15, 0), (9, 9)]
    (tmp_path / "rows.csv").write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in centres))
    write_property(
        f"property: robustness\nname: r\ninputs: {{file: rows.csv}}\nepsilon: [1, {epsilon + 1}]\n"
        f"norm: {norm}\nclip: [0, 15]\n"
    )
    whole = answer("model.pkl", "--property", "property.yaml")
    got = whole["inputs"]
    for witness in whole["witnesses"]:
        row = dict(zip("ab", centres[witness["row"]], strict=True))
        assert witness["changed"] == {name: row[name] for name in "ab" if witness["input"][name] != row[name]}
        for name, before in witness["changed"].items():
            nearer = witness["input"] | {name: before}
            assert small_tree.predict([[nearer["a"], nearer["b"]]])[0] == small_tree.predict([list(row.values())])[0]
    assert [(entry["row"], Fraction(str(entry["epsilon"]))) for entry in got] == [
        (row, e) for row in range(3) for e in (1, epsilon + 1)
    ]
    for entry in got:
        offset = np.abs(GRID - centres[entry["row"]])
        distance = {"linf": offset.max(axis=1), "l1": offset.sum(axis=1), "l0": (offset > 0).sum(axis=1)}[norm]
        ball = GRID[distance <= float(entry["epsilon"])]
        label = small_tree.predict([centres[entry["row"]]])[0]
        assert entry["label"] == label
        assert int(entry["total"]) == len(ball)
        assert (
            int(entry["robust"]["lower"]) == int(entry["robust"]["upper"]) == np.sum(small_tree.predict(ball) == label)
        )


def test_sampling_is_labelled_and_contains_the_truth(
    answer: Answer, small_tree: DecisionTreeClassifier, write_property: Write
) -> None:
    write_property(SAFETY)
    arguments = ("model.pkl", "--property", "property.yaml", "--engine", "sample", "--confidence", "0.999999")
    got, again = answer(*arguments), answer(*arguments, "--jobs", 1)
    count = got["counts"]["violated"]
    assert count["guarantee"] == "sampled"
    assert int(count["lower"]) <= truth(small_tree)[1] <= int(count["upper"])
    assert (count["lower"], count["upper"]) == tuple(again["counts"]["violated"][end] for end in ("lower", "upper"))


def test_product_measure_weighs_inputs(answer: Answer, small_tree: DecisionTreeClassifier, tmp_path: Path) -> None:
    data = np.random.default_rng(5).integers(0, 16, (40, 2))
    (tmp_path / "data.csv").write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in data))
    (tmp_path / "property.yaml").write_text(
        "property: classes\nname: weighted\ndomain:\n  features:\n    - {name: a, type: int, min: 0, max: 15}\n"
        "    - {name: b, type: int, min: 0, max: 15}\nmeasure: {product: {fit: data.csv}}\n"
    )
    got = answer("model.pkl", "--property", "property.yaml")
    frequency = [Counter(data[:, column].tolist()) for column in (0, 1)]
    expected: dict[str, Fraction] = {name: Fraction(0) for name in got["model"]["classes"]}
    for (a, b), label in zip(GRID.tolist(), small_tree.predict(GRID), strict=True):
        expected[label] += Fraction(frequency[0][a], 40) * Fraction(frequency[1][b], 40)
    assert {name: Fraction(c["lower"]) for name, c in got["counts"].items()} == expected
    assert got["domain"]["measure"] == "product"


def test_vacuous_assumption_is_said(answer: Answer, small_tree: DecisionTreeClassifier, write_property: Write) -> None:
    write_property(SAFETY.replace("a >= 3", "a > 15"))
    got = answer("model.pkl", "--property", "property.yaml")
    assert got["counts"]["satisfied"]["upper"] == got["counts"]["violated"]["upper"] == "0"
    assert got["metrics"]["satisfaction"] is None
    assert "vacuous" in {check["status"] for check in got["checks"]}


def test_a_time_limit_leaves_bounds_and_exit_code_3(
    quantify: Callable[..., Any], small_tree: DecisionTreeClassifier, tmp_path: Path
) -> None:
    names = [f"f{i}" for i in range(2)]
    terms = " + ".join(f"{3 * i + 2}*{name}*{name}" for i, name in enumerate(names))
    features = "".join(f"    - {{name: {name}, type: int, min: 0, max: 9999999}}\n" for name in names)
    (tmp_path / "property.yaml").write_text(
        f'property: safety\nname: hard\ndomain:\n  features:\n{features}assert: "({terms}) % 7 == 3"\n'
    )
    done = quantify("count", "model.pkl", "--property", "property.yaml", "--timeout", "2", "--json", "-")
    assert done.returncode == 3, done.stderr
    got = json.loads(done.stdout)
    assert got["complete"] is False
    for count in got["counts"].values():
        assert 0 <= int(count["lower"]) < int(count["upper"]) <= 10**14
        assert count["guarantee"] == "bounds"

"""`quantify compare` against enumeration with scikit-learn's own predict and against sklearn.metrics."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score
from sklearn.tree import DecisionTreeClassifier

GRID = np.array([(a, b) for a in range(16) for b in range(16)])
TRUE = GRID.sum(axis=1) < 9
PROPERTY = 'property: learnability\nname: low\nDOMAIN\nground_truth: "a + b < 9"\npositive: low\n'
SCORES = {"accuracy": accuracy_score, "precision": precision_score, "recall": recall_score, "f1": f1_score}
Run = Callable[..., Any]


@pytest.fixture
def trees(tmp_path: Path, write_property: Callable[[str], Path]) -> dict[str, DecisionTreeClassifier]:
    """Two trees of different depth, saved under their names, and the property."""
    names = np.where(TRUE, "low", "rest")
    rows = np.random.default_rng(8).choice(len(GRID), 70, replace=False)
    found = {}
    for name, depth in (("deep.pkl", None), ("flat.pkl", 2)):
        found[name] = DecisionTreeClassifier(max_depth=depth, random_state=0).fit(GRID[rows], names[rows])
        (tmp_path / name).write_bytes(pickle.dumps(found[name]))
    write_property(PROPERTY)
    return found


@pytest.fixture
def test_rows(tmp_path: Path) -> np.ndarray:
    """Numbers of the grid points in test.csv, whose column `kind` is their true label."""
    rows = np.random.default_rng(9).choice(len(GRID), 40, replace=False)
    lines = [f"{a},{'low' if true else 'rest'},{b}" for (a, b), true in zip(GRID[rows], TRUE[rows], strict=True)]
    (tmp_path / "test.csv").write_text("a,kind,b\n" + "\n".join(lines) + "\n")
    return rows


def scored(tree: DecisionTreeClassifier, rows: np.ndarray) -> dict[str, float]:
    said = tree.predict(GRID[rows]) == "low"
    return {name: score(TRUE[rows], said) for name, score in SCORES.items()}


def compared(quantify: Run, *arguments: str) -> list[dict[str, Any]]:
    done = quantify("compare", *arguments, "--property", "property.yaml", "--json", "-")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["schema"] == "quantify/1"
    entries: list[dict[str, Any]] = printed["models"]
    return entries


def test_true_metrics_stand_beside_those_of_the_test_file(
    quantify: Run, trees: dict[str, DecisionTreeClassifier], test_rows: np.ndarray
) -> None:
    entries = compared(quantify, *trees, "--data", "test.csv", "--label", "kind")
    assert [entry["model"]["path"] for entry in entries] == list(trees)
    everywhere = np.arange(len(GRID))
    for entry, tree in zip(entries, trees.values(), strict=True):
        said = tree.predict(GRID) == "low"
        counts = {"tp": said & TRUE, "fp": said & ~TRUE, "tn": ~said & ~TRUE, "fn": ~said & TRUE}
        assert {name: int(c["lower"]) for name, c in entry["counts"].items()} == {n: c.sum() for n, c in counts.items()}
        assert entry["test"]["rows"] == len(test_rows)
        true, tested = scored(tree, everywhere), scored(tree, test_rows)
        assert any(true[name] != tested[name] for name in SCORES)
        for name in SCORES:
            rate = entry["metrics"][name]
            assert rate["lower"] == rate["upper"]
            assert float(Fraction(rate["lower"])) == pytest.approx(true[name], abs=1e-12)
            assert float(Fraction(entry["test"][name]["exact"])) == pytest.approx(tested[name], abs=1e-12)
            assert entry["test"][name]["value"] == pytest.approx(tested[name], abs=1e-12)
            difference = Fraction(rate["lower"]) - Fraction(entry["test"][name]["exact"])
            assert Fraction(entry["difference"][name]["exact"]) == difference
        assert Fraction(entry["metrics"]["accuracy"]["lower"]) == Fraction(int((said == TRUE).sum()), 256)


def test_without_data_nothing_stands_beside(quantify: Run, trees: dict[str, DecisionTreeClassifier]) -> None:
    for entry in compared(quantify, *trees):
        assert "test" not in entry
        assert "difference" not in entry


def test_the_table_shows_each_model_and_metric(
    quantify: Run, trees: dict[str, DecisionTreeClassifier], test_rows: np.ndarray
) -> None:
    done = quantify("compare", *trees, "--property", "property.yaml", "--data", "test.csv", "--label", "kind")
    assert done.returncode == 0, done.stderr
    blocks = done.stdout.strip().split("\n")
    assert len(blocks) == len(trees) * (1 + len(SCORES))
    everywhere = np.arange(len(GRID))
    for place, (name, tree) in enumerate(trees.items()):
        title, *lines = blocks[place * 5 : place * 5 + 5]
        assert title == f"{name} (tree)"
        for line in lines:
            metric, true, word, tested, other, difference = line.split()
            assert (word, other) == ("test", "difference")
            assert true == f"{scored(tree, everywhere)[metric]:.4f}"
            assert tested == f"{scored(tree, test_rows)[metric]:.4f}"
            exact = scored(tree, everywhere)[metric] - scored(tree, test_rows)[metric]
            assert float(difference) == pytest.approx(exact, abs=6e-5)


def test_a_tree_and_a_network_on_one_property(
    quantify: Run, trees: dict[str, DecisionTreeClassifier], test_rows: np.ndarray, tmp_path: Path
) -> None:
    # Scores 17·a' + 17·b' − 8.5 and 0 of a' = a/17, b' = b/17: the lowest is `low` exactly where a + b < 9.
    (tmp_path / "net.nnet").write_text(
        "1,2,2,2,\n2,2,\n0,\n0.0,0.0,\n1.0,1.0,\n0.0,0.0,0.0,\n1.0,1.0,1.0,\n17.0,17.0,\n0.0,0.0,\n-8.5,\n0.0,\n"
    )
    property_file = tmp_path / "property.yaml"
    keys = 'labels: [low, rest]\ndecision: argmin\npreprocess: {scale: "1/17"}\n'
    property_file.write_text(keys + property_file.read_text())
    (entry,) = compared(quantify, "net.nnet", "--data", "test.csv", "--label", "kind")
    assert entry["model"]["kind"] == "network"
    wanted = {"tp": int(TRUE.sum()), "fp": 0, "tn": int((~TRUE).sum()), "fn": 0}
    assert {name: int(count["lower"]) for name, count in entry["counts"].items()} == wanted
    # What the file says holds for the rows of the test file too.
    for name in SCORES:
        assert entry["test"][name]["exact"] == "1/1"
        assert entry["difference"][name]["exact"] == "0/1"


def test_labels_that_are_no_class_are_refused(quantify: Run, trees: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("a,b,label\n1,2,low\n3,4,lw\n")
    done = quantify("compare", *trees, "--property", "property.yaml", "--data", "test.csv")
    assert done.returncode == 2
    assert "the label 'lw' of row 1 is no class of the model" in done.stderr


def test_robustness_is_not_compared(
    quantify: Run, trees: dict[str, Any], write_property: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n8,3\n")
    write_property("property: robustness\ninputs: {file: rows.csv}\nepsilon: 1\nclip: [0, 15]\n")
    done = quantify("compare", *trees, "--property", "property.yaml")
    assert done.returncode == 2
    assert "one answer a model" in done.stderr

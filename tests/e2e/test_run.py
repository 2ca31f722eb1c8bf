"""`quantify run` as typed: the answers are the library's own, and what is recorded is what was said."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from quantify.report.json import schema

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def suite(tmp_path: Path, small_tree: DecisionTreeClassifier) -> list[dict[str, object]]:
    """Every input of the small tree's domain with the label that it was trained towards, saved as suite.csv."""
    rows: list[dict[str, object]] = []
    for a in range(16):
        for b in range(16):
            label = "low" if a + b < 9 else "mid" if a > b else "high"
            rows.append({"id": f"{a}-{b}", "a": a, "b": b, "label": label, "group:half": "left" if a < 8 else "right"})
    with (tmp_path / "suite.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return rows


def test_answers_are_those_of_the_library(
    quantify: Run, small_tree: DecisionTreeClassifier, suite: list[dict[str, object]], tmp_path: Path
) -> None:
    done = quantify("run", "model.pkl", "--cases", "suite.csv", "--record", "--json", "-")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    jsonschema.validate(told, schema("run"))
    predicted = small_tree.predict(np.array([[row["a"], row["b"]] for row in suite])).tolist()
    assert [one["answer"] for one in told["answers"]] == predicted
    right = [answer == row["label"] for answer, row in zip(predicted, suite, strict=True)]
    assert [one["correct"] for one in told["answers"]] == right
    assert 0 < sum(right) < 256
    assert told["counts"] == {
        "cases": 256, "answered": 256, "labelled": 256, "correct": sum(right), "unanswered": 0
    }  # fmt: skip
    rates = {rate["group"]: rate for rate in told["rates"]}
    assert rates.keys() == {None, "half=left", "half=right"}
    for half in ("left", "right"):
        members = [ok for ok, row in zip(right, suite, strict=True) if row["group:half"] == half]
        assert (rates[f"half={half}"]["hits"], rates[f"half={half}"]["samples"]) == (sum(members), 128)
    shown = json.loads(quantify("evidence", "show", "latest", "--json", "-").stdout)["record"]
    assert (shown["kind"], shown["body"]) == ("run", told)
    (data,) = shown["data"]
    digest = hashlib.sha256((tmp_path / "suite.csv").read_bytes()).hexdigest()
    assert (data["role"], data["sha256"], data["rows"]) == ("cases", digest, 256)
    assert shown["model"]["sha256"] == hashlib.sha256((tmp_path / "model.pkl").read_bytes()).hexdigest()


def test_the_gate_decides_by_a_run(quantify: Run, suite: list[dict[str, object]], tmp_path: Path) -> None:
    quantify("run", "model.pkl", "--cases", "suite.csv", "--record", "--quiet")
    for threshold, code in ((0.1, 0), (1, 1)):
        rule = f"{{id: right, metric: correct, suite: suite.csv, min: {threshold}}}"
        (tmp_path / "release.yaml").write_text(f"rules:\n  - {rule}\n")
        assert quantify("gate", "release.yaml").returncode == code


def test_a_failed_run_is_kept(quantify: Run, suite: list[dict[str, object]]) -> None:
    done = quantify(
        "run", "--failed", "diverged", "--system", "seed-4", "--cases", "suite.csv", "--record", "--json", "-"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    jsonschema.validate(told, schema("run"))
    assert (told["counts"]["unanswered"], told["run"]["failed"], told["model"]) == (256, "diverged", None)
    (whole, *_) = told["rates"]
    assert (Fraction(whole["lower"]), Fraction(whole["upper"])) == (0, 1)


@pytest.mark.needs("onnx")
def test_a_regressor_answers_with_scores(quantify: Run, tmp_path: Path) -> None:
    from onnx_models import Maker

    # By hand: score = 2a − b + 1/4.
    maker = Maker((2,)).add("Gemm", np.array([[2.0], [-1.0]]), np.array([0.25]))
    (tmp_path / "net.onnx").write_bytes(maker.bytes())
    (tmp_path / "s.csv").write_text("a,b,label\n1,1,1.25\n0,2,-1.5\n3,0,6\n")
    done = quantify("run", "net.onnx", "--cases", "s.csv", "--tolerance", "0.25", "--json", "-")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    jsonschema.validate(told, schema("run"))
    assert [one["answer"] for one in told["answers"]] == [1.25, -1.75, 6.25]
    assert [one["correct"] for one in told["answers"]] == [True, True, True]
    tight = json.loads(quantify("run", "net.onnx", "--cases", "s.csv", "--tolerance", "0.2", "--json", "-").stdout)
    assert [one["correct"] for one in tight["answers"]] == [True, False, False]
    free = json.loads(quantify("run", "net.onnx", "--cases", "s.csv", "--json", "-").stdout)
    assert (free["rates"], free["counts"]["answered"]) == ([], 3)


def test_categories_are_read_as_the_property_file_says(quantify: Run, tmp_path: Path) -> None:
    import pickle

    # Columns: c_red, c_green, size; the label is whether it is green and at least 2.
    grid = np.array([(red, 1 - red, size) for red in (0, 1) for size in range(4)])
    labels = (grid[:, 1] == 1) & (grid[:, 2] >= 2)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(DecisionTreeClassifier().fit(grid, labels)))
    (tmp_path / "p.yaml").write_text(
        "property: classes\ndomain:\n  features:\n"
        "    - {name: colour, type: categorical, values: [red, green], onehot: [c_red, c_green]}\n"
        "    - {name: size, type: int, min: 0, max: 3}\n"
    )
    (tmp_path / "s.csv").write_text("size,colour,label\n3,green,True\n3,red,False\n1,green,False\n")
    done = quantify("run", "model.pkl", "--cases", "s.csv", "--property", "p.yaml", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert [one["answer"] for one in json.loads(done.stdout)["answers"]] == ["True", "False", "False"]
    (tmp_path / "s.csv").write_text("size,colour\n3,greeen\n")
    done = quantify("run", "model.pkl", "--cases", "s.csv", "--property", "p.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'green'" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--cases", "suite.csv"),
        ("run", "model.pkl", "--cases", "suite.csv", "--failed", "x", "--system", "s"),
        ("run", "--failed", "x", "--cases", "suite.csv"),
        ("run", "--failed", "x", "--system", "s", "--tolerance", "1", "--cases", "suite.csv"),
        ("run", "model.pkl", "--cases", "none.csv"),
        ("run", "model.pkl", "--cases", "suite.csv", "--tolerance", "0.5"),
        ("run", "none.pkl", "--cases", "suite.csv"),
        ("run", "model.pkl", "--cases", "suite.csv", "--property", "none.yaml", "--record"),
    ],
)
def test_bad_input_is_one_error(quantify: Run, suite: list[dict[str, object]], arguments: tuple[str, ...]) -> None:
    done = quantify(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "rror" in done.stderr

"""Whatever is wrong with the input: one error, a hint, the right exit code, no traceback, no number."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

Run = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[[str], Path]
CLASSES = "property: classes\nname: n\nDOMAIN\n"


def refused(done: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr.count("quantify: error:") == 1
    assert "hint:" in done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("property: safety\nname: n\nDOMAIN\nassert: \"label == 'lwo'\"\n", ["lwo", "'low'", "property.yaml:7"]),
        ('property: safety\nname: n\nDOMAIN\nassert: "aa > 3"\n', ["aa", "property.yaml:7"]),
        ("property: safety\nname: n\nDOMAIN\nassert: \"label > 'low'\"\n", ["label"]),
        ("property: safety\nname: n\nDOMAIN\nassert: \"__import__('os').system('true')\"\n", ["property.yaml:7"]),
        ("property: safety\nname: n\nDOMAIN\n", ["assert"]),
        (CLASSES.replace("property: classes", "property: clases"), ["clases", "classes", "property.yaml:1"]),
        (CLASSES + "name: again\n", ["name", "property.yaml:7"]),
        (CLASSES + "mesure: uniform\n", ["mesure", "measure"]),
        (CLASSES + "---\nproperty: classes\n", ["one"]),
        ("property: [\n", ["property.yaml"]),
        ("", ["property.yaml"]),
    ],
)
def test_bad_properties(text: str, words: list[str], quantify: Run, small_tree: object, write_property: Write) -> None:
    write_property(text)
    refused(quantify("count", "model.pkl", "--property", "property.yaml"), *words)


@pytest.mark.parametrize(
    ("feature", "words"),
    [
        ("{name: b, type: int, min: 5, max: 3}", ["5", "3", "property.yaml:5"]),
        ("{name: b, type: fixed, min: 0, max: 1, step: 0.3}", ["0.3", "property.yaml:5"]),
        ("{name: b, type: int, min: .nan, max: 3}", ["property.yaml:5"]),
        ("{name: b, type: categorical, values: []}", ["property.yaml:5"]),
        ("{name: a, type: int, min: 0, max: 3}", ["a", "property.yaml:5"]),
        ("{name: b, type: integer, min: 0, max: 3}", ["integer", "int"]),
        ("{name: b, type: float32, min: 1.00000001, max: 1.00000002}", ["property.yaml:5"]),
    ],
)
def test_bad_domains(feature: str, words: list[str], quantify: Run, small_tree: object, tmp_path: Path) -> None:
    (tmp_path / "property.yaml").write_text(
        "property: classes\nname: n\ndomain: {features: [\n"
        f"  {{name: a, type: int, min: 0, max: 15}},\n  {feature}]}}\n"
    )
    refused(quantify("count", "model.pkl", "--property", "property.yaml"), *words)


def test_too_few_features(quantify: Run, small_tree: object, tmp_path: Path) -> None:
    (tmp_path / "property.yaml").write_text(
        "property: classes\nname: n\ndomain: {features: [{name: a, type: int, min: 0, max: 15}]}\n"
    )
    refused(quantify("count", "model.pkl", "--property", "property.yaml"), "1", "2")


@pytest.mark.parametrize(
    ("rows", "extra", "words"),
    [
        ("a,b\n1,2\n3,99\n", "clip: [0, 15]\n", ["clip"]),
        ("a,b\n1,2\n3,nan\n", "clip: [0, 15]\n", ["NaN", "row 1", "'b'"]),
        ("a,b\n1,2\n3,x\n", "clip: [0, 15]\n", ["x"]),
        ("a,b\n1,2\n3\n", "clip: [0, 15]\n", ["row 1", "2"]),
        ("a\n1\n", "clip: [0, 15]\n", ["1", "2"]),
        ("a,b\n1,2\n", "clip: [0, 15]\nfixed: [c]\n", ["c"]),
        ("a,b\n1,2\n", "norm: l0\n", ["l0"]),
        ("a,b\n", "clip: [0, 15]\n", ["rows.csv"]),
    ],
)
def test_bad_rows(
    rows: str, extra: str, words: list[str], quantify: Run, small_tree: object, write_property: Write, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text(rows)
    norm = "" if "norm" in extra else "norm: linf\n"
    write_property(f"property: robustness\nname: n\ninputs: {{file: rows.csv}}\nepsilon: 1\n{norm}{extra}")
    refused(quantify("count", "model.pkl", "--property", "property.yaml"), *words)


def test_missing_files(quantify: Run, small_tree: object, write_property: Write) -> None:
    write_property(CLASSES)
    refused(quantify("count", "absent.pkl", "--property", "property.yaml"), "absent.pkl")
    refused(quantify("count", "model.pkl", "--property", "absent.yaml"), "absent.yaml")
    refused(quantify("count", ".", "--property", "property.yaml"))


class Hostile:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        import os

        return os.system, ("touch executed",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pickle.dumps(Hostile()), ["system", "--trust-pickle"]),
        (pickle.dumps(DecisionTreeRegressor().fit([[0, 0], [1, 1]], [0.0, 1.0])), ["DecisionTreeRegressor"]),
        (pickle.dumps({"a": 1}), ["dict"]),
        (b"\x80\x04 not a pickle", ["model.pkl"]),
        (b"", ["empty"]),
        (pickle.dumps(DecisionTreeClassifier().fit([[0, 0], [1, 1]], [0, 1]))[:200], ["model.pkl"]),
    ],
)
def test_bad_models(content: bytes, words: list[str], quantify: Run, write_property: Write, tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(content)
    write_property(CLASSES)
    refused(quantify("count", "model.pkl", "--property", "property.yaml"), *words)
    assert not (tmp_path / "executed").exists()


def test_unknown_words(quantify: Run, small_tree: object, write_property: Write) -> None:
    write_property(CLASSES)
    refused(quantify("count", "model.pkl", "--property", "property.yaml", "--engine", "boxs"), "boxs", "boxes")
    done = quantify("cuont")
    assert done.returncode == 2
    assert "quantify count" in done.stderr
    done = quantify("count", "model.pkl")
    assert done.returncode == 2
    assert "--property" in done.stderr


def test_outputs_that_cannot_be_written(
    quantify: Run, small_tree: object, write_property: Write, tmp_path: Path
) -> None:
    write_property(CLASSES)
    refused(quantify("count", "model.pkl", "--property", "property.yaml", "--json", "no/such/x.json"), "no/such")
    refused(quantify("count", "model.pkl", "--property", "property.yaml", "--html", "."), "folder")
    done = quantify("count", "model.pkl", "--property", "property.yaml", "--json", "/dev/full")
    assert done.returncode == 2
    assert "No space left" in done.stderr


def test_an_old_answer_survives_a_failed_run(
    quantify: Run, small_tree: object, write_property: Write, tmp_path: Path
) -> None:
    write_property(CLASSES.replace("max: 15", "max: -1"))
    (tmp_path / "answer.json").write_text("the old one")
    write_property(CLASSES + "mesure: uniform\n")
    refused(quantify("count", "model.pkl", "--property", "property.yaml", "--json", "answer.json"))
    assert (tmp_path / "answer.json").read_text() == "the old one"


def test_cbmc_absent_is_a_message_with_the_command(
    quantify: Run, small_tree: object, write_property: Write, tmp_path: Path
) -> None:
    write_property(CLASSES)
    done = quantify(
        "count", "model.pkl", "--property", "property.yaml", "--engine", "cnf", QUANTIFY_CBMC=str(tmp_path / "none")
    )
    refused(done, "none")


FAKE_CBMC = """#!/bin/sh
case "$*" in *--version*) echo "6.6.0 (cbmc-6.6.0)"; exit 0;; esac
{behaviour}
"""


@pytest.mark.parametrize(
    ("behaviour", "word"),
    [("kill -SEGV $$", "CBMC"), ("exit 0", "no whole formula")],
    ids=["crashes", "writes no CNF"],
)
def test_cbmc_that_misbehaves(
    behaviour: str, word: str, quantify: Run, small_tree: object, write_property: Write, tmp_path: Path
) -> None:
    write_property(CLASSES)
    fake = tmp_path / "cbmc"
    fake.write_text(FAKE_CBMC.format(behaviour=behaviour))
    fake.chmod(0o755)
    done = quantify(
        "count", "model.pkl", "--property", "property.yaml", "--engine", "cnf",
        QUANTIFY_CBMC=str(fake), QUANTIFY_CACHE=str(tmp_path / "cache"),
    )  # fmt: skip
    assert done.returncode == 3, done.stdout + done.stderr
    assert word in done.stderr


def test_cbmc_that_hangs_is_killed_at_the_limit(
    quantify: Run, small_tree: object, write_property: Write, tmp_path: Path
) -> None:
    write_property(CLASSES)
    fake = tmp_path / "cbmc"
    fake.write_text(FAKE_CBMC.format(behaviour="sleep 600"))
    fake.chmod(0o755)
    done = quantify(
        "count", "model.pkl", "--property", "property.yaml", "--engine", "cnf", "--timeout", "15", "--json", "-",
        QUANTIFY_CBMC=str(fake), QUANTIFY_CACHE=str(tmp_path / "cache"), timeout=120,
    )  # fmt: skip
    assert done.returncode == 3, done.stdout + done.stderr
    counts = json.loads(done.stdout)["counts"] if done.stdout else {}
    assert all(count["guarantee"] == "bounds" for count in counts.values())


def test_ctrl_c_reports_what_is_known(small_tree: object, tmp_path: Path) -> None:
    features = "".join(f"    - {{name: f{i}, type: int, min: 0, max: 9999999}}\n" for i in range(2))
    (tmp_path / "property.yaml").write_text(
        f'property: safety\nname: hard\ndomain:\n  features:\n{features}assert: "(2*f0*f0 + 5*f1*f1) % 7 == 3"\n'
    )
    command = [sys.executable, "-P", "-m", "quantify", "count", "model.pkl", "--property", "property.yaml"]
    process = subprocess.Popen(
        [*command, "--json", "answer.json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = ""
    while "open" not in said:  # "splitting boxes (5120 open)": it is counting
        line = process.stderr.readline()
        assert line, "it was to be interrupted while counting"
        said += line
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 3, errors
    assert "Traceback" not in errors
    counts: dict[str, Any] = json.loads((tmp_path / "answer.json").read_text())["counts"]
    assert all(int(c["lower"]) <= int(c["upper"]) and c["guarantee"] == "bounds" for c in counts.values())


def test_classes_the_model_lacks_in_rows(
    quantify: Run, small_tree: object, write_property: Write, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("a,b,y\n1,2,purple\n")
    write_property(
        "property: robustness\nname: n\ninputs: {file: rows.csv, label: y}\nepsilon: 1\nnorm: linf\nclip: [0, 15]\n"
    )
    refused(quantify("count", "model.pkl", "--property", "property.yaml"), "purple")


def test_missing_values_need_a_model_that_takes_them(quantify: Run, tmp_path: Path) -> None:
    tree = DecisionTreeClassifier(splitter="random", random_state=0).fit(np.array([[0], [1]]), [0, 1])
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(tree))
    (tmp_path / "property.yaml").write_text(
        "property: classes\nname: n\ndomain: {features: [{name: a, type: int, min: 0, max: 3, missing: true}]}\n"
    )
    done = quantify("count", "model.pkl", "--property", "property.yaml")
    if done.returncode != 0:
        refused(done, "missing")


def test_an_unknown_engine_is_refused_before_anything_is_read(quantify: Run, tmp_path: Path) -> None:
    refused(quantify("count", "none.pkl", "--property", "none.yaml", "--engine", "bracnh"), "'bracnh'", "branch")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("count", "model.pkl"), "hint: add --property P.yaml: What to count, and where; quantify init writes"),
        (("verify", "model.pkl"), "hint: add --certificate FILE"),
        (("verify",), "hint: give MODEL"),
    ],
)
def test_what_is_missing_is_named_with_what_to_type(quantify: Run, words: tuple[str, ...], hint: str) -> None:
    done = quantify(*words)
    assert done.returncode == 2
    assert hint in done.stderr

"""Test files and the metrics on them: columns by name or place, empty cells, labels, 0/0."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from property_files import hand_model
from sklearn.metrics import f1_score, precision_score, recall_score

from quantify.errors import InputError
from quantify.evidence.rows import metrics_on_rows
from quantify.ir.problem import NetworkOptions
from quantify.properties.labelled import labelled_rows


def write(folder: Path, text: str) -> Path:
    path = folder / "test.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_are_taken_by_name(tmp_path: Path) -> None:
    model = hand_model(2, names=("width", "height"), classes=("no", "yes"))
    inputs, labels = labelled_rows(write(tmp_path, "height,spare,y,width\n1.5,9,yes,2\n3,9,no,0.1\n"), model, "y")
    assert inputs.dtype == np.float64
    assert inputs.tolist() == [[2.0, 1.5], [0.1, 3.0]]
    assert labels.tolist() == [1, 0]


def test_without_names_the_order_of_the_file_counts(tmp_path: Path) -> None:
    inputs, labels = labelled_rows(write(tmp_path, "p,label,q\n1,1,2\n3,0,4\n"), hand_model(2), "label")
    assert inputs.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert labels.tolist() == [1, 0]


def test_empty_cells_are_nan(tmp_path: Path) -> None:
    inputs, _ = labelled_rows(write(tmp_path, "p,q,label\n,2,0\n1,nan,1\n"), hand_model(2), "label")
    assert np.isnan(inputs).tolist() == [[True, False], [False, True]]


def test_labels_that_are_written_differently_are_the_same_number(tmp_path: Path) -> None:
    _, labels = labelled_rows(write(tmp_path, "p,label\n0,1.0\n0,0\n0,01\n"), hand_model(1), "label")
    assert labels.tolist() == [1, 0, 1]


def test_preprocessing_is_exact_and_rounded_once(tmp_path: Path) -> None:
    options = NetworkOptions(scale=(Fraction(1, 3), Fraction(-2)), offset=(Fraction(1, 7), Fraction(0)))
    inputs, _ = labelled_rows(write(tmp_path, "p,q,label\n0.1,,0\n2,5,1\n"), hand_model(2), "label", options)
    assert inputs[:, 0].tolist() == [float(Fraction(1, 30) + Fraction(1, 7)), float(Fraction(2, 3) + Fraction(1, 7))]
    assert np.isnan(inputs[0, 1])
    assert inputs[1, 1] == -10


def test_an_archive_of_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "test.npz", X=np.array([[1.0, 2.0], [3.0, np.nan]]), y=np.array(["no", "yes"]))
    model = hand_model(2, classes=("no", "yes"))
    inputs, labels = labelled_rows(tmp_path / "test.npz", model, "y")
    assert inputs[0].tolist() == [1.0, 2.0]
    assert np.isnan(inputs[1, 1])
    assert labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p,label\n1,1\n2,2\n", "the label '2' of row 1 is no class"),
        ("p,label\n1,\n", "the label '' of row 0 is no class"),
        ("p,label\none,1\n", "row 0: 'one' is no number"),
        ("p,q,label\n1,2,1\n", "2 columns beside the label, and the model takes 1"),
        ("p,y\n1,1\n", "2 columns beside the label, and the model takes 1"),
        ("p,label\n", "there are no rows"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        labelled_rows(write(tmp_path, text), hand_model(1), "label")
    assert said in caught.value.message
    assert caught.value.hint


def test_a_column_the_file_lacks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no column 'width'"):
        labelled_rows(write(tmp_path, "witdh,label\n1,1\n"), hand_model(1, names=("width",)), "label")


# --- metrics -------------------------------------------------------------------------------------------------------
def test_metrics_are_those_of_the_library() -> None:
    draw = random.Random(3)
    for _ in range(50):
        answers, labels = ([draw.randrange(3) for _ in range(12)] for _ in range(2))
        said, true = np.equal(answers, 1), np.equal(labels, 1)
        found = metrics_on_rows(answers, labels, 1)
        assert found["accuracy"] == Fraction(sum(a == b for a, b in zip(answers, labels, strict=True)), 12)
        for name, score in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
            value = score(true, said, zero_division=np.nan)
            assert (found[name] is None) == np.isnan(value)
            assert found[name] is None or float(found[name]) == pytest.approx(value, abs=1e-12)


def test_nothing_over_nothing_is_none() -> None:
    assert metrics_on_rows([], [], 0) == dict.fromkeys(("accuracy", "precision", "recall", "f1"))
    assert metrics_on_rows([1], [1], 0) == {"accuracy": 1, "precision": None, "recall": None, "f1": None}
    assert metrics_on_rows([0], [1], 0) == {"accuracy": 0, "precision": 0, "recall": None, "f1": 0}
    assert metrics_on_rows([1], [0], 0) == {"accuracy": 0, "precision": None, "recall": 0, "f1": 0}


def test_without_a_positive_class_there_is_accuracy_only() -> None:
    assert metrics_on_rows([0, 1, 2], [0, 1, 1], None) == {"accuracy": Fraction(2, 3)}

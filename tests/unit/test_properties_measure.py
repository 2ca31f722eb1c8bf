"""Product measures: given and fitted weights become the smallest integers in their ratio."""

from __future__ import annotations

from pathlib import Path

import pytest
from property_files import bind, hand_model, refused

from quantify.ir.domain import Measure

DOMAIN = """\
property: classes
domain:
  features:
    - {name: colour, type: categorical, values: {red: 5, green: 2}, missing: true}
    - {name: flag, type: bool}
    - {name: t, type: fixed, min: 0, max: 0.2, step: 0.1}
"""
MODEL = hand_model(3, missing=True)


def measured(folder: Path, measure: str) -> Measure:
    return bind(folder, f"{DOMAIN}measure: {measure}\n", MODEL).measure


def test_uniform_is_the_default(tmp_path: Path) -> None:
    assert bind(tmp_path, DOMAIN, MODEL).measure == measured(tmp_path, "uniform") == Measure()


def test_given_weights(tmp_path: Path) -> None:
    measure = measured(
        tmp_path,
        "{product: {weights: {colour: {red: 1/3, missing: 1/2, green: '1/6'}, t: {0.10: 0.25, 0: 0.75}}}}",
    )
    assert measure.kind == "product"
    assert measure.weights == ((1, 2, 3), None, (3, 1, 0))  # green has the smaller code, so it comes first
    assert measure.source == "given"
    assert measure.totals((3, 2, 3)) == (6, 2, 4)


def test_truth_values_name_the_values_of_booleans(tmp_path: Path) -> None:
    assert measured(tmp_path, "{product: {weights: {flag: {true: 0.9, false: 0.1}}}}").weights[1] == (1, 9)
    assert measured(tmp_path, "{product: {weights: {flag: {1: 1}}}}").weights[1] == (0, 1)


def test_fitted_weights(tmp_path: Path) -> None:
    rows = ["red,1,0.1,a", "green,1,0.1,b", "red,0,0.20,c", ",1,0,d"]
    (tmp_path / "d.csv").write_text("colour,flag,t,other\n" + "\n".join(rows) + "\n")
    measure = measured(tmp_path, "{product: {fit: d.csv}}")
    assert measure.weights == ((1, 2, 1), (1, 3), (1, 2, 1))
    assert "d.csv sha256:" in measure.source
    partly = measured(tmp_path, "{product: {fit: d.csv, features: [t], weights: {flag: {0: 1/2, 1: 1/2}}}}")
    assert partly.weights == (None, (1, 1), (1, 2, 1))
    assert partly.source.startswith("given; ")


def test_codes_name_categories_in_data(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("colour\n5\n5\n2\n")
    assert measured(tmp_path, "{product: {fit: d.csv, features: [colour]}}").weights[0] == (1, 2, 0)


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        ("normal", "the measure the text 'normal' is unknown"),
        ("{produkt: {}}", "did you mean 'product'?"),
        ("{product: {}}", "without weights"),
        ("{product: {weights: {flag: {0: 0.3, 1: 0.6}}}}", "sum to 0.9, not to 1"),
        ("{product: {weights: {flag: {0: 0.333, 1: 2/3}}}}", "sum to 2999/3000"),
        ("{product: {weights: {flag: {0: -1, 1: 2}}}}", "negative"),
        ("{product: {weights: {flag: {0: 1/0}}}}", "divides by zero"),
        ("{product: {weights: {flag: {0: half}}}}", "must be a number"),
        ("{product: {weights: {flag: {2: 1}}}}", "'2' is no value of 'flag'"),
        ("{product: {weights: {flag: {missing: 1}}}}", "'missing' is no value"),
        ("{product: {weights: {t: {0.05: 1}}}}", "'0.05' is no value of 't'"),
        ("{product: {weights: {t: {0.1: 1/2, 1e-1: 1/2}}}}", "there twice"),
        ("{product: {weights: {flag: {true: 1/2, 1: 1/2}}}}", "there twice"),
        ("{product: {weights: {colour: {rde: 1}}}}", "did you mean 'red'?"),
        ("{product: {weights: {flg: {0: 1}}}}", "did you mean 'flag'?"),
        ("{product: {features: [flag]}}", "no file"),
        ("{product: {fit: d.csv}}", "no column 't'"),
        ("{product: {fit: d.csv, features: [tt]}}", "'tt' is unknown"),
        ("{product: {fit: d.csv, features: [flag], weights: {flag: {0: 1}}}}", "under weights already"),
        ("{product: {fit: d.csv, features: [flag]}}", "row 1, column 'flag' is 2, which is not on its grid"),
        ("{product: {fit: d.csv, features: [colour]}}", "row 0, column 'colour' holds 'pink'"),
    ],
)
def test_refusals(tmp_path: Path, measure: str, words: str) -> None:
    (tmp_path / "d.csv").write_text("colour,flag\npink,1\nred,2\n")
    if "no column 't'" in words:
        (tmp_path / "d.csv").write_text("colour,flag\nred,1\n")
    assert words in refused(tmp_path, f"{DOMAIN}measure: {measure}\n", MODEL, line=7)


def test_a_grid_too_large_to_weigh(tmp_path: Path) -> None:
    text = "property: classes\ndomain: {features: [{name: a, type: int, min: 0, max: 5000000}]}\n"
    assert "too many to weigh" in refused(tmp_path, f"{text}measure: {{product: {{weights: {{a: {{0: 1}}}}}}}}\n")

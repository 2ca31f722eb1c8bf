"""The JSON contract: every kind of evidence against its schema, and the values in it."""

from __future__ import annotations

import importlib.util
import json
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

from quantify.ir.digits import from_digits
from quantify.report import json as report_json


def load_reports() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reports", Path(__file__).with_name("reports.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reports = load_reports()


def answer(name: str) -> dict[str, Any]:
    text = json.dumps(report_json.to_dict(reports.EVERY[name]()), allow_nan=False)
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@pytest.mark.parametrize("name", ["count", "cnf", "doctor"])
def test_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(report_json.schema(name))


@pytest.mark.parametrize("name", sorted(reports.EVERY))
def test_every_kind_meets_the_schema(name: str) -> None:
    jsonschema.Draft202012Validator(report_json.schema("count")).validate(answer(name))


def test_the_schema_refuses_what_is_not_the_contract() -> None:
    validator = jsonschema.Draft202012Validator(report_json.schema("count"))

    def broken(name: str, *path: str, value: object) -> dict[str, Any]:
        data = answer(name)
        place = data
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        return data

    for data in (
        broken("safety", "counts", "satisfied", "lower", value=3),
        broken("safety", "counts", "satisfied", "guarantee", value="sure"),
        broken("safety", "counts", "satisfied", value=None),
        broken("safety", "metrics", "satisfaction", "lower", value="0.5"),
        broken("safety", "schema", value="quantify/2"),
        broken("approximate", "counts", "satisfied", "delta", value="x"),
        broken("learnability", "counts", "tp", value="3"),
        broken("learnability_by_label", "counts", "c", value={}),
        broken("robustness", "inputs", value=None),
    ):
        assert not validator.is_valid(data)
    without_delta = answer("approximate")
    del without_delta["counts"]["satisfied"]["delta"]
    assert not validator.is_valid(without_delta)


def test_safety() -> None:
    data = answer("safety")
    assert data["schema"] == "quantify/1"
    assert data["domain"]["size"] == "1000000000000"
    assert data["counts"]["satisfied"]["lower"] == "999999999997"
    assert data["counts"]["satisfied"]["guarantee"] == "exact"
    assert data["metrics"]["violation"] == {
        "lower": "3/1000000000000", "upper": "3/1000000000000", "value": 3e-12, "guarantee": "exact",
    }  # fmt: skip
    assert data["witnesses"][0]["input"] == {"rho": 250, "theta": 0.2, "kind": "red", "age": None}
    assert data["complete"] is True


def test_learnability_with_and_without_a_positive_label() -> None:
    data = answer("learnability")
    assert {cell: int(data["counts"][cell]["lower"]) for cell in ("tp", "fp", "tn", "fn")} == {
        "tp": 11000, "fp": 2000, "tn": 52436, "fn": 100,
    }  # fmt: skip
    assert Fraction(data["metrics"]["f1"]["lower"]) == Fraction(22000, 24100)
    labelled = answer("learnability_by_label")
    assert set(labelled["counts"]) == {"a/b", "c"}
    assert labelled["counts"]["a/b"]["tn"]["lower"] == "9"
    assert labelled["metrics"]["c"]["precision"] is None


def test_classes_are_keyed_by_label_and_unreached_ones_are_there() -> None:
    data = answer("classes")
    assert data["counts"]["never"]["upper"] == "0"
    assert data["metrics"]["class_share"]["red"]["lower"] == "5/8"


def test_robustness_has_an_entry_a_row_and_epsilon() -> None:
    data = answer("robustness")
    assert "counts" not in data
    assert [(i["row"], i["epsilon"]) for i in data["inputs"]] == [(0, 1), (1, 1), (2, 1), (0, 2), (1, 2)]
    assert from_digits(data["inputs"][0]["total"]) == 3**784
    assert from_digits(data["inputs"][1]["robust"]["lower"]) == 3**784 - 3
    assert data["inputs"][2]["robustness"]["lower"] == "2/3"
    assert data["inputs"][4]["robust"]["guarantee"] == "bounds"
    assert data["inputs"][4]["robust"]["note"]
    assert data["summary"]["fully_robust"] == 2
    assert data["summary"]["undecided"] == 1
    assert data["summary"]["by_epsilon"][0]["inputs"] == 3
    assert data["complete"] is False
    assert data["witnesses"][0]["row"] == 1
    assert data["witnesses"][0]["epsilon"] == 1
    assert len(data["witnesses"][0]["input"]) == 784


def test_a_product_measure_gives_masses() -> None:
    data = answer("weighted")
    assert data["counts"]["satisfied"]["lower"] == "1/3"
    assert data["total"] == "1/1"
    assert data["metrics"]["violation"]["upper"] == "2/3"


def test_approximate_counts_say_how() -> None:
    satisfied, violated = answer("approximate")["counts"].values()
    assert (satisfied["epsilon"], satisfied["delta"], satisfied["seed"]) == (0.8, 0.2, 7)
    assert satisfied["estimate"] == "9000000"
    assert (violated["confidence"], violated["samples"], violated["hits"]) == (0.95, 1_000_000, 1234)
    assert answer("approximate")["metrics"]["satisfaction"]["risk"] == 0.25


def test_very_many_digits_are_written() -> None:
    data = answer("enormous")
    assert data["counts"]["satisfied"]["lower"] == "9" * reports.DIGITS
    assert data["metrics"]["satisfaction"]["upper"] == "9" * reports.DIGITS + "/1" + "0" * reports.DIGITS


def test_cnf_meets_its_schema() -> None:
    data = json.loads(json.dumps(report_json.cnf_to_dict(reports.cnf()), allow_nan=False))
    jsonschema.Draft202012Validator(report_json.schema("cnf")).validate(data)
    models = data["counts"]["models"]
    assert int(models["lower"]) == 2**300 - 5
    assert models["guarantee"] == "prob-exact"
    assert models["delta"] == 1e-9

"""Files of cases: CSV and JSON lines mean the same, and every mistake is named by its line."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from property_files import hand_model

from quantify.dataset import answers, run, suite
from quantify.dataset.images import flat, read
from quantify.errors import InputError
from quantify.ir.record import Draws


def write(folder: Path, text: str, name: str = "suite.jsonl") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def lines(*cases: object) -> str:
    return "".join(json.dumps(case) + "\n" for case in cases)


def test_csv_and_json_lines_say_the_same(tmp_path: Path) -> None:
    csv = write(
        tmp_path,
        'id,income,debt,label,group:region\n"c,1",0.1,3,yes,north\nc2,1e-5,,no,south\n',
        "suite.csv",
    )
    jsonl = write(
        tmp_path,
        '{"id": "c,1", "features": {"income": 0.1, "debt": 3}, "label": "yes", "groups": {"region": "north"}}\n'
        '\n{"id":"c2","features":{"debt":null,"income":0.00001},"expected":"no","groups":{"region":"south"}}\n',
    )
    first, second = suite.load(csv), suite.load(jsonl)
    assert first.features == second.features == ("income", "debt")
    assert first.attributes == second.attributes == ("region",)
    assert first.group_names() == ("region=north", "region=south")
    for a, b in zip(first.cases, second.cases, strict=True):
        assert (a.id, a.features, a.label, a.groups) == (b.id, b.features, b.label, b.groups)
    assert first.cases[0].features == (Fraction(1, 10), 3)
    assert first.cases[1].features == (Fraction(1, 100_000), None)
    assert [case.line for case in second.cases] == [1, 3]


def test_ids_are_places_unless_given_and_labels_are_text(tmp_path: Path) -> None:
    read_back = suite.load(write(tmp_path, lines(*({"features": [k], "label": k / 2} for k in range(3)))))
    assert [case.id for case in read_back.cases] == ["0", "1", "2"]
    assert [case.label for case in read_back.cases] == ["0", "0.5", "1"]
    assert read_back.features is None


CASE = {"id": "a", "features": {"x": 1, "y": 2}, "groups": {"g": "1"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there are no cases"),
        ("{\n", r":1: not a line of JSON"),
        ("[1]\n", r":1: a case is an object"),
        (lines(CASE, CASE), r":2: the id 'a' is there twice \(first on line 1\)"),
        (lines(CASE, {**CASE, "id": "b", "features": {"x": 1, "z": 2}}), r":2: .* lacks 'y' and has 'z'"),
        (lines(CASE, {**CASE, "id": "b", "groups": {}}), r":2: grouped by nothing"),
        (lines(CASE, {**CASE, "id": "b", "features": [1, 2]}), r":2: features of another kind"),
        (lines({"features": [1]}, {"features": [1, 2]}), r":2: 2 features, and the first case has 1"),
        (lines({"features": {"x": [1]}}), r":1: 'x' is a list"),
        (lines({"features": {}}), r":1: features is an object or a list"),
        (lines({"lable": "yes", "features": [1]}), r":1: a case has no key 'lable' \(did you mean 'label'\?\)"),
        (lines({"label": "yes"}), r":1: neither features nor image"),
        (lines({"features": [1], "image": "a.png"}), r":1: features and image"),
        (lines({"features": [1], "label": 1, "expected": 1}), r":1: label and expected"),
        (lines({"features": [1], "id": True}), r":1: an id is text"),
        ('{"features": [1], "features": [2]}\n', r":1: .*'features' is there twice"),
        ('{"features": [NaN]}\n', r":1: .*NaN is no JSON"),
        ('{"features": [1e999999]}\n', r":1: .*too large"),
        ('{"features": ' + "[" * 5000 + "]" * 5000 + "}\n", r":1: "),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        suite.load(write(tmp_path, text))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,x\na,1\na,2\n", r":3: the id 'a' is there twice"),
        ("id,x\n,1\n", r":2: a case without an id"),
        ("x,label,expected\n1,2,3\n", r"the columns 'label', 'expected'"),
        ("image,x\na.png,1\n", r"the column image, and 'x'"),
        ("id,x\na,1,2\n", "has 3 cells instead of 2"),
        ("id,x\n", "there are no cases"),
    ],
)
def test_mistakes_in_csv(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        suite.load(write(tmp_path, text, "suite.csv"))


def test_other_files_are_refused(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "suite.npy", "a suite is a"),
        (tmp_path / "none.csv", "no such file"),
        (tmp_path, "a suite is a"),
    ):
        with pytest.raises(InputError, match=message):
            suite.load(path)
    (tmp_path / "bytes.jsonl").write_bytes(b'{"features": ["\xff"]}\n')
    with pytest.raises(InputError, match=r":1: not UTF-8"):
        suite.load(tmp_path / "bytes.jsonl")


def asked(folder: Path, text: str, **model: object) -> answers.Asked:
    read_back = suite.load(write(folder, text))
    made = hand_model(**model)  # type: ignore[arg-type]
    return answers.Asked(made, read_back, answers._columns(made, None, read_back), "hwc")


def test_features_reach_the_columns_of_their_names(tmp_path: Path) -> None:
    one = asked(tmp_path, lines({"features": {"b": 0.1, "a": True}}), columns=2, names=("a", "b"))
    assert answers.inputs(one, one.suite.cases).tolist() == [[1.0, 0.1]]
    by_place = asked(tmp_path, lines({"features": {"b": 0.25, "a": 1}}), columns=2)
    assert answers.inputs(by_place, by_place.suite.cases).tolist() == [[0.25, 1.0]]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"features": {"a": 1, "c": 1}}, r"lacks 'b' and has 'c'"),
        ({"features": [1]}, "the cases have 1 features, and the model takes 2"),
        ({"features": {"a": 1, "b": "red"}}, r"b is 'red', and the model takes numbers"),
        ({"features": {"a": 1, "b": 10**309}}, "too large for a float64"),
    ],
)
def test_cases_that_do_not_fit_the_model(tmp_path: Path, case: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        answers.ask(one := asked(tmp_path, lines(case), columns=2, names=("a", "b")), one.suite.cases)


def test_what_has_no_answer_is_unknown_and_what_has_no_label_is_in_no_rate(tmp_path: Path) -> None:
    # By hand: the model says class 1 iff x > 0.5.
    cases = [
        {"id": "right", "features": [1], "label": "1"},
        {"id": "also right", "features": [0], "label": 0},
        {"id": "wrong", "features": [0], "label": "1"},
        {"id": "missing", "features": [None], "label": "1"},
        {"id": "unlabelled", "features": [1]},
    ]
    one = asked(tmp_path, lines(*cases))
    found = run.run(one, "s")
    assert [a.answer for a in found.answered] == ["1", "0", "0", None, "1"]
    assert run.draws(found.answered) == Draws(2, 4, unknown=1)
    (reading,) = run.readings(found)
    assert (reading.metric, reading.about, reading.subject, reading.support) == ("correct", "suite", "suite.jsonl", 4)
    assert run.draws(run.failed(one.suite, "s", "no").answered) == Draws(0, 4, unknown=4)


def test_a_label_that_is_no_class_is_refused(tmp_path: Path) -> None:
    one = asked(tmp_path, lines({"features": [1], "label": "yes"}))
    with pytest.raises(InputError, match=r":1: the label 'yes' is no class of the model"):
        run.run(one, "s")


def test_pixels_are_read_in_the_order_of_the_model(tmp_path: Path) -> None:
    from PIL import Image

    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    Image.fromarray(pixels, "RGB").save(tmp_path / "a.png")
    assert read(tmp_path / "a.png", 18, "hwc", "here") == tuple(range(18))
    assert read(tmp_path / "a.png", 18, "chw", "here") == tuple(pixels.transpose(2, 0, 1).ravel().tolist())
    Image.fromarray(pixels[:, :, 0], "L").save(tmp_path / "g.png")
    assert read(tmp_path / "g.png", 6, "chw", "here") == tuple(pixels[:, :, 0].ravel().tolist())
    assert flat(Image.fromarray(pixels[:, :, 0], "L"), "hwc") == tuple(pixels[:, :, 0].ravel().tolist())
    for columns, name, message in ((7, "g.png", "6 pixels|3 × 2"), (6, "none.png", "no image")):
        with pytest.raises(InputError, match=message):
            read(tmp_path / name, columns, "hwc", "here")
    (tmp_path / "bad.png").write_bytes((tmp_path / "a.png").read_bytes()[:40])
    with pytest.raises(InputError, match="no image that can be read"):
        read(tmp_path / "bad.png", 18, "hwc", "here")

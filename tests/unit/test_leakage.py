"""Leakage: which rows are the same as a case, by a comparison written anew; of the training data, nothing is kept."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import random
import re
from collections import Counter
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantify.dataset import leakage, suite, training
from quantify.dataset.equality import Equality, folded
from quantify.errors import InputError, UndecidedError
from quantify.evidence import records
from quantify.resources import Limits, Progress, Stop


def check(
    folder: Path, cases: str, rows: str | bytes, *fields: str, digits: int | None = None, near: float | None = None,
    names: tuple[str, str] = ("suite.jsonl", "training.jsonl"), **limits: Any,
) -> leakage.Leakage:  # fmt: skip
    (folder / names[0]).write_text(cases, encoding="utf-8")
    content = rows if isinstance(rows, bytes) else rows.encode("utf-8", "surrogatepass")
    (folder / names[1]).write_bytes(content)
    read = suite.load(folder / names[0])
    return leakage.check(read, folder / names[1], fields, digits, near, Limits(**limits), Progress())


def case(**features: Any) -> str:
    return json.dumps({"features": features}) + "\n"


def same(folder: Path, one: str, other: str, digits: int | None = None) -> bool:
    """Whether a case with the value `one` (JSON) is found in a row with the value `other`."""
    found = check(folder, f'{{"features": {{"x": {one}}}}}\n', f'{{"x": {other}}}\n', digits=digits)
    assert found.rows == 1
    return not found.clean


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("1", "1.0", True),
        ("1", "1e0", True),
        ("100", "1E2", True),
        ("0", "-0.0", True),
        ("0.1", "0.10", True),
        ("0.1", "0.1000000000000000055511151231257827", False),  # the same float64
        ("9007199254740993", "9007199254740992", False),  # the same float64
        ("9007199254740993", "9007199254740993.0", True),
        ("123456789012345678901234567890", "1.2345678901234567890123456789e29", True),
        ("18446744073709551616", "18446744073709551616.0", True),
        ("1e308", "1e309", False),
        ("1e399", "1e399", True),
        ("1e399", "2e399", False),
        ("1", '"1"', False),
        ("1", "true", False),
        ("0", "false", False),
        ("true", "true", True),
        ("null", "null", True),
        ("null", "0", False),
        ('""', "null", False),
        ('"a"', '"A"', True),
        ('"two  words "', '"\\tTwo\\u00a0WORDS"', True),
        ('"twowords"', '"two words"', False),
        ('"caf\\u00e9"', '"CAF\u00c9"', True),
        ('"caf\\u00e9"', '"cafe\\u0301"', False),  # no Unicode normalisation
        ('"\\ud83d\\ude00"', '"\U0001f600"', True),
        ('"a\\ud800"', '"A\\ud800"', True),
        ("1", "[1]", False),
        ('"1"', '{"x": "1"}', False),
        ("1", "NaN", False),
    ],
)
def test_what_is_the_same(tmp_path: Path, one: str, other: str, equal: bool) -> None:
    assert same(tmp_path, one, other) == equal
    if other != "[1]" and "{" not in other and "NaN" not in other:
        assert same(tmp_path, other, one) == equal


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("0.15", "0.2", True),  # half to even, of the decimal and not of its float64
        ("0.25", "0.2", True),
        ("0.25", "0.3", False),
        ("0.35", "0.4", True),
        ("1.04", "0.96", True),
        ("1.04", "1.06", False),
        ("123456789012345678.04", "123456789012345678", True),
        ("123456789012345678.06", "123456789012345678", False),
        ("-0.04", "0", True),
    ],
)
def test_rounding(tmp_path: Path, one: str, other: str, equal: bool) -> None:
    assert same(tmp_path, one, other, digits=1) == same(tmp_path, other, one, digits=1) == equal


def test_rounding_where_float64_falls_on_the_other_side(tmp_path: Path) -> None:
    assert 1.015 * 100 < 101.5  # and yet 1.015 is as far from 1.01 as from 1.02, and even digits win
    assert same(tmp_path, "1.015", "1.02", digits=2)
    assert same(tmp_path, "1.02", "1.015", digits=2)
    assert not same(tmp_path, "1.015", "1.01", digits=2)


def test_list_features_are_compared_entry_by_entry(tmp_path: Path) -> None:
    cases = '{"features": [1, "a b", null]}\n'
    assert not check(tmp_path, cases, '{"features": [1.0, "A  B", null]}\n').clean
    assert check(tmp_path, cases, '{"features": [1, "ab", null]}\n{"features": [1, "a b"]}\n').clean


def test_rows_may_be_nested_or_flat_and_other_keys_do_not_matter(tmp_path: Path) -> None:
    cases = case(a=1, b="x")
    rows = ['{"a": 1, "b": "X", "label": 3}', '{"features": {"b": "x", "a": 1.0}}', '{"features": {"a": 1}, "b": "x"}',
            '{"a": 1}', '{"a": 1, "b": null}', '{"features": {"a": 1, "b": "y"}, "b": "x"}']  # fmt: skip
    found = check(tmp_path, cases, "\n".join(rows))
    assert (found.rows, found.found) == (6, {0: 3})


def test_fields_may_be_chosen(tmp_path: Path) -> None:
    cases = '{"features": {"a": 1, "b": 2}, "label": "yes"}\n'
    rows = '{"a": 1, "b": 3, "label": "Yes"}\n'
    assert check(tmp_path, cases, rows).clean
    assert not check(tmp_path, cases, rows, "a").clean
    assert not check(tmp_path, cases, rows, "a", "label").clean
    assert check(tmp_path, cases, rows, "features", "label").fields == ("a", "b", "label")
    assert check(tmp_path, cases, '{"a": 1, "label": "no"}\n', "a", "label").clean


@pytest.mark.parametrize("names", [("suite.csv", "training.csv"), ("suite.jsonl", "training.csv")])
def test_csv_has_no_types(tmp_path: Path, names: tuple[str, str]) -> None:
    cells = [("7", "North", ""), ("007", " north ", "NA"), ("7", "north", "0"), ("8", "north", "")]
    rows = "n,region,m\r\n" + "".join(f"{','.join(row)}\r\n" for row in cells)
    cases = "id,n,region,m\nc,7.0,NORTH,\n" if names[0] == "suite.csv" else case(n=7.0, region="NORTH", m=None)
    assert check(tmp_path, cases, rows, names=names).found == {0: 2}
    quoted = rows.replace("North", '"North"')
    assert check(tmp_path, cases, quoted, names=names).found == {0: 2}


def test_a_case_of_text_numbers_is_found_across_formats(tmp_path: Path) -> None:
    names = ("suite.csv", "training.jsonl")
    rows = '{"zip": "01234", "ok": true}\n{"zip": 1234, "ok": "TRUE"}\n{"zip": "1234 ", "ok": 1}\n'
    assert check(tmp_path, "zip,ok\n1234,True\n", rows, names=names).found == {0: 2}


def test_quoted_cells_may_hold_line_breaks_and_commas(tmp_path: Path) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerows([["note", "n"], ['two\nlines, and a "quote"', 1], ["plain", 2]])
    found = check(tmp_path, case(n=1, note='Two Lines, AND a "quote"'), buffer.getvalue(), names=("s.jsonl", "t.csv"))
    assert (found.rows, found.found) == (2, {0: 1})


# --- against a comparison written anew --------------------------------------------------------------------------------
VALUES = [
    "1",
    "1.0",
    "10e-1",
    "2",
    "0.25",
    "0.250",
    '"a"',
    '"A "',
    '" a"',
    '"1"',
    "true",
    "null",
    '"a b"',
    '"A\\u2003B"',
]


def plain(value: Any) -> tuple[str, str]:
    """A key of a JSON value, numbers being Decimals."""
    if isinstance(value, bool) or value is None:
        return ("constant", str(value))
    if isinstance(value, Decimal):
        return ("number", format(value.normalize(), "f"))
    return ("text", re.sub(r"\s+", " ", value.lower()).strip())


@pytest.mark.parametrize("jobs", [1, 2])
def test_random_rows_against_another_comparison(tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)

    def draw() -> str:
        return f'{{"a": {rng.choice(VALUES)}, "b": {rng.choice(VALUES)}, "c": {rng.choice(VALUES)}}}'

    cases, rows = [draw() for _ in range(60)], [draw() for _ in range(400)]

    def key(text: str) -> tuple[object, ...]:
        row = json.loads(text, parse_float=Decimal, parse_int=Decimal)
        return tuple(plain(row[name]) for name in "abc")

    counts = Counter(map(key, rows))
    expected = {at: counts[key(one)] for at, one in enumerate(cases) if counts[key(one)]}
    assert 10 < len(expected) < 50
    # Many small pieces, cut anywhere.
    monkeypatch.setattr(training, "PIECE", 997 if jobs == 1 else 6_000)
    found = check(tmp_path, "".join(f'{{"features": {one}}}\n' for one in cases), "\n".join(rows) + "\n", jobs=jobs)
    assert (found.rows, found.found) == (400, expected)


@given(
    st.decimals(-(10**6), 10**6, allow_nan=False, allow_infinity=False, places=4),
    st.decimals(-(10**6), 10**6, allow_nan=False, allow_infinity=False, places=4) | st.none(),
    st.integers(0, 4),
)
def test_rough_keys_never_lose_a_match(one: Decimal, other: Decimal | None, digits: int) -> None:
    near = one + Decimal("0.0004") if other is None else other
    equality = Equality(digits)
    rounded = [value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_EVEN) for value in (one, near)]
    equal = equality.exact(Fraction(one)) == equality.exact(Fraction(near))
    assert equal == (rounded[0] == rounded[1])
    if equal:
        assert equality.rough(float(near)) in equality.rough_matches(Fraction(one))


@given(
    st.text(max_size=12) | st.sampled_from(["nan", " NaN", "-NaN", "inf", "1_0", "１", "1e5", "-.5", "+3", "0x1"]),
    st.booleans(),
)
def test_rough_keys_of_text_follow_the_exact_ones(text: str, untyped: bool) -> None:
    equality = Equality(None, untyped)
    for other in (text, text.upper(), f"  {text} ", folded(text)):
        if equality.exact(other) == equality.exact(text):
            assert equality.rough(other) in equality.rough_matches(text)


def test_lines_are_cut_without_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    whole = [b'{"x": %d}' % 10 ** rng.randrange(9) for _ in range(200)]
    path = tmp_path / "t.jsonl"
    for end in (b"", b"\n", b"\n\n"):
        path.write_bytes(training.BOM + b"\n".join(whole) + end)
        for size in (1, 2, 7, 50, 10**6):
            monkeypatch.setattr(training, "PIECE", size)
            opened = training.open_training(path)
            found = [line for piece in opened.pieces for line in training.lines(opened, piece)]
            assert [line for line in found if line] == whole


# --- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rows", "name", "message"),
    [
        (b'{"x": 1}\n{"x": \n', "t.jsonl", r":2: not a line of JSON"),
        (b'{"x": 1}\n\n[1]\n', "t.jsonl", r":3: a training row is an object"),
        (b'{"x": "\xff"}\n', "t.jsonl", r":1: not a line of JSON"),
        (b'{"x": ' + b"[" * 9999 + b"]" * 9999 + b"}\n", "t.jsonl", r":1: "),
        (b'{"y": 1}\n', "t.jsonl", r"no training row has the field 'x'"),
        (b"", "t.jsonl", "the file is empty"),
        (b"\n\n", "t.jsonl", "there are no rows"),
        (b"x,y\n1,2\n1\n", "t.csv", r":3: 1 cells instead of 2"),
        (b"X,y\n1,2\n", "t.csv", r"no training row has the field 'x'"),
        (b"x,x\n1,2\n", "t.csv", r":1: the column name 'x' is there twice"),
        (b"x\n1\n\xff\n", "t.csv", r":3: not UTF-8"),
        (b'x\n"1\n', "t.csv", r"not valid CSV"),
        (b"x\n", "t.csv", "there are no rows"),
        (b"x", "t.parquet", "training data are a"),
    ],
)
def test_bad_training_files(tmp_path: Path, rows: bytes, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        check(tmp_path, case(x=1), rows, names=("s.jsonl", name))
    assert caught.value.hint


def test_a_bad_row_far_on_is_named_by_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "PIECE", 64)
    with pytest.raises(InputError, match=r":703: not a line"):
        check(tmp_path, case(x=1), '{"x": 2}\n\n' * 351 + "oops\n")


def test_bad_fields(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no field 'incom' \(did you mean 'income'\?\)"):
        check(tmp_path, case(income=1), '{"income": 2}\n', "incom")
    with pytest.raises(InputError, match="a case without a label"):
        check(tmp_path, case(income=1), '{"income": 2}\n', "label")
    with pytest.raises(InputError, match="no such file"):
        leakage.check(suite.load(tmp_path / "suite.jsonl"), tmp_path / "n.csv", (), None, None, Limits(), Progress())


def test_an_unfinished_comparison_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "PIECE", 16)
    stop = Stop()
    stop.set()
    with pytest.raises(UndecidedError, match="whether the suite is clean is not known"):
        check(tmp_path, case(x=1), '{"x": 2}\n' * 50, stop=stop)


def die(question: leakage.Question, piece: tuple[int, int]) -> leakage.Tally:
    os._exit(1)


def test_a_worker_that_was_killed_leaves_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "PIECE", 16)
    monkeypatch.setattr(leakage, "_scan_apart", die)
    with pytest.raises(UndecidedError, match="a worker was killed"):
        check(tmp_path, case(x=1), '{"x": 2}\n' * 50, jobs=2)


# --- near duplicates --------------------------------------------------------------------------------------------------
def test_near_duplicates_are_reported_apart_with_their_true_share(tmp_path: Path) -> None:
    names = [f"f{i}" for i in range(20)]
    base = {name: float(i) for i, name in enumerate(names)}
    close = {**base, "f3": -1.0}
    far = {name: -float(i + 1) for i, name in enumerate(names)}
    rows = [close, base, far, close]
    cases = case(**base) + case(**far).replace("{", '{"id": "far", ', 1) + case(**{**base, "f7": -2.0, "f8": -3.0})
    found = check(tmp_path, cases, "".join(json.dumps(row) + "\n" for row in rows), near=0.7)
    assert found.found == {0: 1, 1: 1}
    assert found.near is not None
    # By hand: the third case shares 18 of 22 values with `base`, and 17 of 23 with `close`.
    assert {at: (one.rows, one.similarity) for at, one in found.near.items()} == {2: (3, Fraction(18, 22))}


def test_near_text(tmp_path: Path) -> None:
    text = "the applicant paid every instalment on time and moved to another town in spring"
    found = check(
        tmp_path, case(note=text), json.dumps({"note": text.replace("spring", "autumn")}) + '\n{"note": "short"}\n',
        near=0.6,
    )  # fmt: skip

    def runs(t: str) -> set[str]:
        return {t[i : i + 5] for i in range(len(t) - 4)}

    one, other = runs(text), runs(text.replace("spring", "autumn"))
    assert found.clean
    assert found.near is not None
    assert [one_.similarity for one_ in found.near.values()] == [Fraction(len(one & other), len(one | other))]


def test_a_share_that_is_the_threshold_itself_is_near(tmp_path: Path) -> None:
    # Of three values two are shared: 2 of the 4 that both have. Many rows, as each is found with some probability.
    rows = [{"a": 1, "b": 2, "c": 100 + i} for i in range(40)]
    found = check(tmp_path, case(a=1, b=2, c=3), "".join(json.dumps(row) + "\n" for row in rows), near=0.5)
    assert found.clean
    assert found.near is not None
    assert [(at, one.similarity) for at, one in found.near.items()] == [(0, Fraction(1, 2))]


# --- what is kept -----------------------------------------------------------------------------------------------------
def test_nothing_of_the_data_is_in_the_record(tmp_path: Path) -> None:
    secret = "xyzzy-secret-note"
    cases = json.dumps({"id": "c1", "features": {"note": secret, "n": 31.4159}}) + "\n"
    rows = json.dumps({"note": secret, "n": 31.4159}) + "\n" + json.dumps({"note": "plugh-other", "n": 2.71828}) + "\n"
    found = check(tmp_path, cases, rows, near=0.5)
    text = records.canonical(leakage.to_record(found))
    assert '"id":"c1"' in text
    for word in ("xyzzy", "plugh", "31.4", "2.71"):
        assert word not in text
    assert leakage.to_record(found).status == "invalid"
    assert not math.isnan(found.rows)

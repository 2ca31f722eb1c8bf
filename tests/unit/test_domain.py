"""Domains: every kind of feature, taken from data, matched with the model, and what is refused."""

from __future__ import annotations

import struct
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from property_files import bind, hand_model, refused

from quantify.ir.domain import (
    BoolFeature,
    CategoricalFeature,
    Feature,
    FixedFeature,
    Float32Feature,
    IntFeature,
    float32_from_key,
)
from quantify.ir.problem import Column


def features(folder: Path, entries: str, columns: int = 1, missing: bool = True) -> tuple[Feature, ...]:
    """The features of a flow-style list of entries."""
    text = f"property: classes\ndomain:\n  features: [{entries}]\n"
    return bind(folder, text, hand_model(columns, missing=missing)).domain.features


def wrong(folder: Path, entries: str, columns: int = 1, missing: bool = True) -> str:
    """The error about a list of entries, which stand on line 3."""
    text = f"property: classes\ndomain:\n  features: [{entries}]\n"
    return refused(folder, text, hand_model(columns, missing=missing), line=3)


def values(feature: Feature) -> list[object]:
    return [feature.value(p) for p in range(feature.grid_size)]


# --- kinds ---------------------------------------------------------------------------------------------------------
def test_integers_and_booleans(tmp_path: Path) -> None:
    found = features(tmp_path, "{name: a, type: int, min: -2, max: 3.0}, {name: b, type: bool, missing: true}", 2)
    assert found == (IntFeature("a", False, -2, 3), BoolFeature("b", True))
    assert found[1].size == 3


def test_fixed_values_are_exact_decimals(tmp_path: Path) -> None:
    (theta,) = features(tmp_path, "{name: t, type: fixed, min: 0.2, max: 0.4, step: 0.05}")
    assert theta == FixedFeature("t", False, Fraction(1, 5), Fraction(1, 20), 5)
    assert values(theta) == [Fraction(20 + 5 * i, 100) for i in range(5)]
    (single,) = features(tmp_path, "{name: t, type: fixed, min: 0.2, max: 0.2, step: 7}")
    assert single.size == 1


def test_fixed_steps_that_floats_would_get_wrong(tmp_path: Path) -> None:
    # 0.3 / 0.1 is 2.9999999999999996 in floats.
    assert features(tmp_path, "{name: t, type: fixed, min: 0, max: 0.3, step: 0.1}")[0].size == 4
    assert features(tmp_path, "{name: t, type: fixed, min: 0, max: 1e-5, step: 1e-7}")[0].size == 101


@pytest.mark.parametrize(
    ("low", "high"), [("0.1", "0.2"), ("-0.3", "0.7"), ("-1", "1"), ("1e-46", "1e-44"), ("-1e-46", "0"), ("3", "3")]
)
def test_float32_bounds_round_inward(tmp_path: Path, low: str, high: str) -> None:
    (feature,) = features(tmp_path, f"{{name: f, type: float32, min: {low}, max: {high}}}")
    assert isinstance(feature, Float32Feature)
    first, last = feature.value(0), feature.value(feature.grid_size - 1)
    assert Fraction(low) <= first <= last <= Fraction(high)
    before = Fraction(float32_from_key(feature.first_key - 1))
    after = Fraction(float32_from_key(feature.first_key + feature.grid_size))
    assert before < Fraction(low)
    assert after > Fraction(high)
    assert struct.pack("<f", feature.minimum)[3:] != b"\x80" or feature.minimum != 0  # no −0.0


def test_float32_over_the_whole_range(tmp_path: Path) -> None:
    (feature,) = features(tmp_path, "{name: f, type: float32, min: -3.4028234663852886e38, max: 3.4028234663852886e38}")
    # 2^32 bit patterns, without 2·(2^23 − 1) NaN, 2 infinities and one of the zeros.
    assert feature.size == 2**32 - 2 * (2**23 - 1) - 2 - 1


def test_categories_by_list_and_by_code(tmp_path: Path) -> None:
    found = features(
        tmp_path,
        "{name: a, type: categorical, values: [red, green]}, {name: b, type: categorical, values: {red: 7, green: 3}}, "
        "{name: c, type: categorical, values: [0, 1, 2]}, {name: d, type: categorical, values: ['5', '3']}",
        4,
    )
    assert found == (
        CategoricalFeature("a", False, ("red", "green"), (0, 1)),
        CategoricalFeature("b", False, ("green", "red"), (3, 7)),
        CategoricalFeature("c", False, ("0", "1", "2"), (0, 1, 2)),
        CategoricalFeature("d", False, ("5", "3"), (0, 1)),
    )


def test_onehot_columns_become_levels(tmp_path: Path) -> None:
    text = """\
    property: classes
    domain:
      features:
        - {name: size, type: int, min: 0, max: 9}
        - {name: colour, type: categorical, values: [red, green], onehot: [c_red, c_green]}
    """
    named = bind(tmp_path, text, hand_model(3, ["c_green", "size", "c_red"]))
    assert named.columns == (Column(1, 1), Column(0), Column(1, 0))
    assert named.domain.size == 20
    assert bind(tmp_path, text, hand_model(3)).columns == (Column(0), Column(1, 0), Column(1, 1))


def test_default_and_count(tmp_path: Path) -> None:
    text = """\
    property: classes
    domain:
      default: {type: int, min: 0, max: 255}
      features:
        - {name: "px_{i}", count: 3}
        - extra
        - {name: small, max: 1}
        - {name: flag, type: bool}
    """
    problem = bind(tmp_path, text, hand_model(6))
    assert problem.domain.features == (
        *(IntFeature(f"px_{i}", False, 0, 255) for i in range(3)),
        IntFeature("extra", False, 0, 255),
        IntFeature("small", False, 0, 1),
        BoolFeature("flag"),
    )


def test_default_alone_covers_every_column_of_the_model(tmp_path: Path) -> None:
    text = "property: classes\ndomain: {default: {type: int, min: 0, max: 3}}\n"
    assert [f.name for f in bind(tmp_path, text, hand_model(2, ["a", "b"])).domain] == ["a", "b"]
    assert [f.name for f in bind(tmp_path, text, hand_model(2)).domain] == ["x0", "x1"]


def test_relations(tmp_path: Path) -> None:
    problem = bind(tmp_path, "property: classes\ndomain: {relation: {nodes: 3}}\n", hand_model(9))
    assert problem.domain.relation_nodes == 3
    assert [f.name for f in problem.domain][:4] == ["r_0_0", "r_0_1", "r_0_2", "r_1_0"]
    assert problem.domain.size == 512


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{name: a, type: int, min: 5, max: 3}", ["range of 'a' is empty", "min 5 > max 3"]),
        ("{name: a, type: fixed, min: 0.5, max: 0.3, step: 0.1}", ["empty: min 0.5 > max 0.3"]),
        ("{name: a, type: fixed, min: 0, max: 1, step: 0.3}", ["0.3 does not divide", "max can be 0.9 or 1.2"]),
        ("{name: a, type: fixed, min: 0, max: 1, step: 0}", ["must be positive"]),
        ("{name: a, type: fixed, min: 0, max: 1}", ["needs 'step'"]),
        ("{name: a, type: int, min: 0}", ["needs 'max'", "{name: age"]),
        ("{name: a, type: int, min: 0, max: 1.5}", ["must be an integer"]),
        ("{name: a, type: int, min: 0, max: .nan}", ["must be finite"]),
        ("{name: a, type: float32, min: 0, max: .inf}", ["must be finite"]),
        ("{name: a, type: int, min: 0, max: ten}", ["must be a number"]),
        ("{name: a, type: int, min: 0, max: 1e39}", ["beyond the range of float32"]),
        ("{name: a, type: int, min: 0, max: 9223372036854775807}", ["more than 2^62"]),
        ("{name: a, type: float32, min: 0, max: 3.41e38}", ["beyond the range of float32"]),
        ("{name: a, type: float32, min: 0.1, max: 0.1}", ["no float32 lies between"]),
        ("{name: a, type: int, min: 0, max: 1, step: 1}", ["is int, which has no 'step'"]),
        ("{name: a, type: bool, min: 0}", ["is bool, which has no 'min'"]),
        ("{name: a, type: integer, min: 0, max: 1}", ["'integer' is unknown", "did you mean 'int'?"]),
        ("{name: a, typ: int, min: 0, max: 1}", ["has no key 'typ'", "did you mean 'type'?"]),
        ("{name: a, min: 0, max: 1}", ["has no type"]),
        ("{type: bool}", ["needs the key 'name'"]),
        ("a", ["has no type"]),
        ("{name: a, type: bool, missing: yes}", ["must be true or false"]),
        ("{name: a, type: bool}, {name: a, type: bool}", ["'a' is there twice (first on line 3)"]),
        ("{name: a, type: categorical, values: []}", ["no values"]),
        ("{name: a, type: categorical, values: [3, 7]}", ["given to the model as 0", "values: {3: 3}"]),
        ("{name: a, type: categorical, values: [1, 2]}", ["given to the model as 0"]),
        ("{name: a, type: categorical, values: [red, 5]}", ["given to the model as 1"]),
        ("{name: a, type: categorical, values: [false, true]}", ["use type: bool"]),
        ("{name: a, type: categorical, values: [red, red]}", ["'red' of 'a' is there twice"]),
        ("{name: a, type: categorical, values: {red: 1, green: 1.0}}", ["have one code, 1"]),
        ("{name: a, type: categorical, values: {red: x}}", ["must be a number"]),
        ("{name: a, type: categorical, values: [r, g], onehot: [c]}", ["2 values but 1 onehot columns"]),
        ("{name: a, type: categorical, values: {r: 1, g: 2}, onehot: [c, d]}", ["no codes"]),
        ("{name: a, type: categorical, values: [r, g], onehot: [c, d], missing: true}", ["cannot be missing"]),
        ("{name: a, type: categorical, values: [r, g], onehot: [c, c]}", ["'c' is there twice"]),
        ("{name: a, count: 3, type: bool}", ["cannot all be called", "px_{i}"]),
        ("{name: 'a{i}', count: 0, type: bool}", ["between 1 and"]),
        ("", ["list of features is empty"]),
    ],
)  # fmt: skip
def test_refusals(tmp_path: Path, entry: str, words: list[str]) -> None:
    message = wrong(tmp_path, entry)
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        ("{}", "needs the key 'features'"),
        ("[]", "must be a mapping"),
        ("{relation: {nodes: 0}}", "between 1 and"),
        ("{relation: {node: 4}}", "did you mean 'nodes'?"),
        ("{relation: {nodes: 2}, features: []}", "both 'relation' and 'features'"),
        ("{features: [{name: a, type: bool}], label: y}", "belongs to a domain taken from a file"),
        ("{features: {a: 1}}", "must be a list"),
    ],
)
def test_refused_sections(tmp_path: Path, domain: str, words: str) -> None:
    assert words in refused(tmp_path, f"property: classes\ndomain: {domain}\n", line=2)


# --- matching with the model ---------------------------------------------------------------------------------------
TWO = "property: classes\ndomain:\n  features: [{name: a, type: bool}, {name: b, type: int, min: 0, max: 2}]\n"


def test_names_are_matched_as_a_set_and_ordered_by_the_model(tmp_path: Path) -> None:
    assert bind(tmp_path, TWO, hand_model(2, ["b", "a"])).columns == (Column(1), Column(0))
    assert bind(tmp_path, TWO, hand_model(2)).columns == (Column(0), Column(1))


def test_names_and_counts_that_do_not_match(tmp_path: Path) -> None:
    message = refused(tmp_path, TWO, hand_model(2, ["a", "bb"]), line=3)
    assert "lacks 'bb'" in message
    assert "has no feature 'b' (did you mean 'bb'?)" in message
    assert "lacks 'c'" in refused(tmp_path, TWO, hand_model(3, ["a", "b", "c"]))
    assert "has 2 features, the model takes 3" in refused(tmp_path, TWO, hand_model(3), line=3)


def test_missing_needs_a_model_that_accepts_it(tmp_path: Path) -> None:
    assert "does not accept missing" in wrong(tmp_path, "{name: a, type: bool, missing: true}", missing=False)


# --- from data -----------------------------------------------------------------------------------------------------
def from_data(folder: Path, csv: str, more: str = "", columns: int = 1, missing: bool = True):
    (folder / "d.csv").write_text(csv, encoding="utf-8")
    text = f"property: classes\ndomain: {{from: d.csv{more}}}\n"
    return bind(folder, text, hand_model(columns, missing=missing))


def test_the_plainest_grid_that_holds_the_data(tmp_path: Path) -> None:
    problem = from_data(
        tmp_path,
        "age,price,colour,id,y,gap,here\n30,1.5,red,1,a,,True\n20,0.25,blue,2,b,7,False\n25,3,red,3,a,9,True\n",
        ", label: y, drop: [id]",
        5,
    )
    assert problem.domain.features == (
        IntFeature("age", False, 20, 30),
        FixedFeature("price", False, Fraction(1, 4), Fraction(1, 100), 276),
        CategoricalFeature("colour", False, ("blue", "red"), (0, 1)),
        IntFeature("gap", True, 7, 9),
        BoolFeature("here"),
    )
    (note,) = problem.notes
    for words in ("age int 20…30", "price fixed 0.25…3 by 0.01", "blue=0, red=1", "gap int 7…9 or missing", "3 rows"):
        assert words in note


def test_overrides_fix_what_they_name(tmp_path: Path) -> None:
    csv = "a,b,c,d,e\n1,0.5,0,3,0.12\n4,0.7,1,7,0.31\n"
    more = (
        ", features: [{name: a, max: 9}, {name: b, type: float32}, {name: c, type: bool}, "
        "{name: d, type: categorical}, {name: e, step: 0.05}]"
    )
    a, b, c, d, e = from_data(tmp_path, csv, more, 5).domain.features
    assert a == IntFeature("a", False, 1, 9)
    assert isinstance(b, Float32Feature)
    assert b.value(0) >= Fraction(1, 2)
    assert c == BoolFeature("c")
    assert d == CategoricalFeature("d", False, ("3", "7"), (3, 7))
    assert e == FixedFeature("e", False, Fraction(1, 10), Fraction(1, 20), 6)  # 0.10 to 0.35


def test_arrays_give_ranges_too(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.array([[1, 0.1], [3, 0.25]]))
    problem = bind(tmp_path, "property: classes\ndomain: {from: d.npy}\n", hand_model(2, ["u", "v"]))
    assert problem.domain.features == (
        IntFeature("u", False, 1, 3),
        FixedFeature("v", False, Fraction(1, 10), Fraction(1, 100), 16),
    )


def test_quoted_cells_and_odd_line_ends(tmp_path: Path) -> None:
    problem = from_data(tmp_path, '\ufeff"a, b",c\r\n"1",x\r\n\r\n"3","y\nz"\r\n', "", 2)
    assert [f.name for f in problem.domain] == ["a, b", "c"]
    assert problem.domain.features[1] == CategoricalFeature("c", False, ("x", "y\nz"), (0, 1))


@pytest.mark.parametrize(
    ("csv", "more", "words"),
    [
        ("a,b\n1,2\n3\n", "", "row 1 has 1 cells instead of 2"),
        ("a,a\n1,2\n", "", "'a' is there twice"),
        ("a,\n1,2\n", "", "column 1 has no name"),
        (",a\n0,2\n", "", "index=False"),
        ("1,5\n1,2\n", "", "numbers, not column names"),
        ("a\n", "", "no data rows"),
        ("", "", "empty"),
        ("a\n1\n", ", label: b", "no column 'b'"),
        ("age\n1\n", ", features: [{name: aeg}]", "did you mean 'age'?"),
        ("a\nx\n1\n", "", "mixes numbers (1) and text ('x')"),
        ("a,b\n,1\n,2\n", "", "no values"),
        ("a\nx\n", ", features: [{name: a, type: int}]", "holds text"),
        ("a\nx\n", ", features: [{name: a, type: categorical, values: [y]}]", "also holds 'x'"),
        ("a\n2\n", ", features: [{name: a, type: bool}]", "more than 0 and 1"),
        ("a\n0.1234567890123456789\n1000\n", "", "more than 2^62"),
        ("a\n1\n", ", default: {type: bool}", "both 'from' and 'default'"),
        ("a,b\n1,2\n", "", "has 2 features, the model takes 1"),
        ("a,b\n1,2\n", "", "name the column of the answer with label:"),
    ],
)
def test_data_that_gives_no_domain(tmp_path: Path, csv: str, more: str, words: str) -> None:
    (tmp_path / "d.csv").write_text(csv, encoding="utf-8")
    text = f"property: classes\ndomain: {{from: d.csv{more}}}\n"
    assert words in refused(tmp_path, text, hand_model(1, missing=True), line=2)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path, "property: classes\ndomain: {from: none.csv}\n", line=2)
    (tmp_path / "d.txt").write_text("a\n1\n")
    assert "csv, npy or npz" in refused(tmp_path, "property: classes\ndomain: {from: d.txt}\n", line=2)
    (tmp_path / "d.csv").write_bytes("a\n\xe4\n".encode("latin-1"))
    assert "d.csv:2: not UTF-8" in refused(tmp_path, "property: classes\ndomain: {from: d.csv}\n", line=2)
    missing = hand_model(1, missing=False)
    (tmp_path / "d.csv").write_text("a,b\n1,2\n,3\n")
    assert "does not accept missing" in refused(
        tmp_path, "property: classes\ndomain: {from: d.csv, drop: [b]}\n", missing
    )


@pytest.mark.parametrize(
    "feature",
    [
        IntFeature("f", minimum=-3, maximum=4),
        IntFeature("f", missing=True, minimum=2, maximum=2),
        BoolFeature("f"),
        CategoricalFeature("f", values=("a", "b", "c"), codes=(-1, Fraction(1, 2), 7)),
        FixedFeature("f", minimum=Fraction(-1, 2), step=Fraction(3, 10), steps=6),
        Float32Feature("f", minimum=-3e-45, maximum=3e-45),
    ],
)
def test_positions_are_where_a_walk_over_the_values_finds_them(feature: Feature) -> None:
    grid = [Fraction(feature.value(p)) for p in range(feature.grid_size)]
    between = [(a + b) / 2 for a, b in pairwise(grid)]
    for value in (*grid, *between, grid[0] - Fraction(1, 3), grid[-1] + Fraction(1, 3)):
        assert feature.first_at_least(value) == sum(one < value for one in grid)
        assert feature.position(value) == (grid.index(value) if value in grid else None)

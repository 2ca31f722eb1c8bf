"""Robustness: regions against distances by enumeration, rows and labels from every file type, and refusals."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from property_files import bind, hand_model, refused

from quantify.ir.domain import Domain, IntFeature
from quantify.ir.model import Model
from quantify.ir.problem import Ball, Box, Case, Problem, Region
from quantify.ir.property import LabelIn, Not

CSV = "a,b,target\n1,5,0\n2,6,1\n3,7,0\n0,9,1\n"


def robust(folder: Path, more: str = "", model: Model | None = None, csv: str = CSV) -> Problem:
    (folder / "d.csv").write_text(csv, encoding="utf-8")
    text = "property: robustness\n" + (more if "inputs:" in more else f"inputs: {{file: d.csv, label: target}}\n{more}")
    return bind(folder, text, model or hand_model(2))


def inside(region: Region, point: tuple[int, ...]) -> bool:
    """Whether the region holds the point, by the definition in `quantify.ir.problem`."""
    box = region.box if isinstance(region, Ball) else region
    if not all(low <= p < high for low, p, high in zip(box.low, point, box.high, strict=True)):
        return False
    if isinstance(region, Box):
        return True
    moved = [abs(p - c) for p, c in zip(point, region.centre, strict=True)]
    if region.norm == "l0":
        return sum(step > 0 for step in moved) <= region.radius
    return sum(w * step for w, step in zip(region.weights, moved, strict=True)) <= region.radius


MIXED = """\
domain:
  features:
    - {name: n, type: int, min: -2, max: 3}
    - {name: t, type: fixed, min: 0.1, max: 0.7, step: 0.2}
    - {name: w, type: fixed, min: 0, max: 1.5, step: 0.75}
    - {name: flag, type: bool}
    - {name: colour, type: categorical, values: {red: 4, green: 2, blue: 9}}
"""
NUMERIC = (True, True, True, False, False)


@pytest.mark.parametrize("norm", ["linf", "l1", "l0"])
@pytest.mark.parametrize("clip", [None, (Fraction(0), Fraction(1))])
@pytest.mark.parametrize("held", [(), (1, 3)])
def test_regions_hold_exactly_the_inputs_within_the_distance(
    tmp_path: Path, norm: str, clip: tuple[Fraction, Fraction] | None, held: tuple[int, ...]
) -> None:
    (tmp_path / "d.csv").write_text("n,t,w,flag,colour\n1,0.5,0.75,1,red\n0,0.10,0.0,0,9\n")
    names = ["n", "t", "w", "flag", "colour"]
    epsilons = ["0", "0.2", "0.75", "1.3", "2", "9/4"]
    text = (
        f"property: robustness\ninputs: {{file: d.csv}}\nepsilon: [{', '.join(epsilons)}]\nnorm: {norm}\n{MIXED}"
        f"fixed: [{', '.join(names[i] for i in held)}]\n" + (f"clip: [{clip[0]}, {clip[1]}]\n" if clip else "")
    )
    problem = bind(tmp_path, text, hand_model(5, names))
    assert problem.norm == norm
    assert [(case.row, case.epsilon) for case in problem.cases] == [
        (row, Fraction(epsilon)) for row in (0, 1) for epsilon in epsilons
    ]
    centres = [(Fraction(1), Fraction("0.5"), Fraction("0.75"), 1, 4), (Fraction(0), Fraction("0.1"), 0, 0, 9)]
    for case in problem.cases:
        assert case.row is not None
        assert case.epsilon is not None
        centre = centres[case.row]
        for point in itertools.product(*map(range, problem.domain.sizes)):
            values = [feature.value(p) for feature, p in zip(problem.domain, point, strict=True)]
            moved = [abs(value - middle) for value, middle in zip(values, centre, strict=True)]
            wanted = all(moved[i] == 0 for i in held)
            if clip is not None:
                wanted &= all(clip[0] <= v <= clip[1] for v, numeric in zip(values, NUMERIC, strict=True) if numeric)
            if norm == "l0":
                wanted &= sum(step > 0 for step in moved) <= case.epsilon
            else:
                wanted &= moved[3] == moved[4] == 0
                distance = max(moved[:3]) if norm == "linf" else sum(moved[:3])
                wanted &= distance <= case.epsilon
            assert inside(case.region, point) == wanted, (case, values)


def test_queries_are_a_partition(tmp_path: Path) -> None:
    case = robust(tmp_path, "epsilon: 1\n").cases[0]
    assert [(q.name, q.expression, q.reported) for q in case.queries] == [
        ("robust", LabelIn((0,)), True), ("fragile", Not(LabelIn((0,))), False),
    ]  # fmt: skip
    assert case.partitions == (("robust", "fragile"),)


# --- without a domain ----------------------------------------------------------------------------------------------
def test_integer_centres_span_the_domain(tmp_path: Path) -> None:
    problem = robust(tmp_path, "epsilon: [1, 1.5]\nclip: [0, 10]\n")
    assert problem.domain == Domain((IntFeature("a", False, 0, 5), IntFeature("b", False, 3, 10)))
    first = problem.cases[0]
    assert first.region == Box((0, 1), (3, 4))
    assert first.centre == (1, 2)
    assert problem.cases[1].region == first.region  # 1.5 reaches no further than 1


def test_l0_ranges_over_clip(tmp_path: Path) -> None:
    problem = robust(tmp_path, "epsilon: 1\nnorm: l0\nclip: [-0.5, 10.5]\n")
    assert problem.domain == Domain((IntFeature("a", False, 0, 10), IntFeature("b", False, 0, 10)))
    assert problem.cases[0].region == Ball(Box((0, 0), (11, 11)), (1, 5), "l0", (1, 1), 1)


def test_columns_are_found_by_the_models_names(tmp_path: Path) -> None:
    problem = robust(tmp_path, "epsilon: 1\n", hand_model(2, ["b", "a"], predict=lambda row: int(row[0] > 5)))
    assert [feature.name for feature in problem.domain] == ["b", "a"]
    assert problem.cases[0].centre == (1, 2)  # b = 5 of 4…10, a = 1 of −1…4
    extra = CSV.replace("target", "target,id").replace(",0\n", ",0,7\n").replace(",1\n", ",1,8\n")
    again = robust(tmp_path, "epsilon: 1\n", hand_model(2, ["b", "a"], predict=lambda row: int(row[0] > 5)), extra)
    assert again.cases == problem.cases


# --- labels --------------------------------------------------------------------------------------------------------
def labels(problem: Problem) -> list[str | None]:
    return [case.label for case in problem.cases]


def test_named_labels_count_as_right(tmp_path: Path) -> None:
    model = hand_model(2, predict=lambda row: int(row[1] > 5))
    problem = robust(tmp_path, "epsilon: 1\n", model)
    assert labels(problem) == ["0", "1", "0", "1"]
    assert problem.notes == ("the model itself gives another label at the centre of rows 2",)


def test_without_a_label_the_model_answers(tmp_path: Path) -> None:
    model = hand_model(2, predict=lambda row: int(row[1] > 5))
    problem = robust(
        tmp_path, "inputs: {file: d.csv, rows: [3, '0-1']}\nepsilon: 1\n", model, CSV.replace(",target", "")
        .replace(",0\n", "\n").replace(",1\n", "\n"),
    )  # fmt: skip
    assert labels(problem) == ["1", "0", "1"]
    assert [case.row for case in problem.cases] == [3, 0, 1]


@pytest.mark.parametrize(
    ("cells", "classes", "expected"),
    [
        (("7", "8"), ("7", "8"), ["7", "8"]),
        (("7.0", "8.0"), ("7", "8"), ["7", "8"]),
        (("7", "8"), ("7.0", "8.0"), ["7.0", "8.0"]),
        (("cat", " dog "), ("cat", "dog"), ["cat", "dog"]),
        (("1", "1.0"), ("1", "1.0"), ["1", "1.0"]),
        (("True", "False"), ("False", "True"), ["True", "False"]),
    ],
)
def test_label_cells_name_classes(
    tmp_path: Path, cells: tuple[str, str], classes: tuple[str, ...], expected: list[str]
) -> None:
    problem = robust(
        tmp_path, "epsilon: 1\n", hand_model(1, classes=classes), f"a,target\n1,{cells[0]}\n2,{cells[1]}\n"
    )
    assert labels(problem) == expected


def test_predict_sees_what_the_model_sees(tmp_path: Path) -> None:
    seen: list[list[float]] = []

    def predict(row: list[float]) -> int:
        seen.append(row)
        return 0

    text = """\
    property: robustness
    inputs: {file: d.csv}
    epsilon: 1
    domain:
      features:
        - {name: t, type: fixed, min: 0, max: 1, step: 0.1}
        - {name: colour, type: categorical, values: {red: 4, green: 2}}
        - {name: shape, type: categorical, values: [disc, ring], onehot: [s_disc, s_ring]}
        - {name: flag, type: bool}
    """
    (tmp_path / "d.csv").write_text("flag,t,colour,s_disc,s_ring\nTrue,0.3,red,0,1\n0,0.7,2,1,0\n")
    model = hand_model(5, ["s_ring", "colour", "t", "s_disc", "flag"], predict=predict)
    problem = bind(tmp_path, text, model)
    assert seen == [[1.0, 4.0, 0.3, 0.0, 1.0], [0.0, 2.0, 0.7, 1.0, 0.0]]
    assert [case.centre for case in problem.cases] == [(3, 1, 1, 1), (7, 0, 0, 0)]


# --- arrays --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float64", "float16"])
def test_integral_arrays(tmp_path: Path, dtype: str) -> None:
    matrix = np.array([[1, 5], [2, 6]], dtype=dtype)
    np.save(tmp_path / "d.npy", matrix)
    problem = bind(tmp_path, "property: robustness\ninputs: {file: d.npy, rows: 1}\nepsilon: 1\n", hand_model(2))
    assert problem.domain == Domain((IntFeature("x0", False, 1, 3), IntFeature("x1", False, 5, 7)))
    np.savez(tmp_path / "d.npz", X=matrix, y=np.array([1.0, 0.0]))
    text = "property: robustness\ninputs: {file: d.npz, label: y}\nepsilon: 1\n"
    assert labels(bind(tmp_path, text, hand_model(2))) == ["1", "0"]
    np.savez(tmp_path / "d.npz", X=matrix, names=np.array(["b", "a"]))
    text = "property: robustness\ninputs: {file: d.npz, label: names}\nepsilon: 1\n"
    assert labels(bind(tmp_path, text, hand_model(2, classes=("a", "b")))) == ["b", "a"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_arrays_match_the_decimals_that_round_to_them(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "d.npy", np.array([[0.3, 0.1], [0.7, 0.9]], dtype=dtype))
    text = """\
    property: robustness
    inputs: {file: d.npy}
    epsilon: 0.1
    domain: {default: {type: fixed, min: 0, max: 1, step: 0.1}}
    """
    cases = bind(tmp_path, text, hand_model(2)).cases
    assert [case.centre for case in cases] == [(3, 1), (7, 9)]
    assert cases[0].region == Box((2, 0), (5, 3))


def test_float32_centres_round_as_the_library_does(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a\n0.1\n0.5\n")
    domain = "domain: {features: [{name: a, type: float32, min: 0, max: 1}]}\n"
    text = f"property: robustness\ninputs: {{file: d.csv}}\nepsilon: 0.25\n{domain}"
    problem = bind(tmp_path, text, hand_model(1))
    feature = problem.domain.features[0]
    centre = [case.centre[0] for case in problem.cases if case.centre]
    assert [float(feature.value(p)) for p in centre] == [float(np.float32(0.1)), 0.5]
    assert problem.notes == ("1 cells of the centres were rounded to float32, as the model does",)
    region = problem.cases[1].region
    assert isinstance(region, Box)
    first, last = feature.value(region.low[0]), feature.value(region.high[0] - 1)
    assert (first, last) == (Fraction(1, 4), Fraction(3, 4))


def test_csv_without_a_header(tmp_path: Path) -> None:
    text = "inputs: {file: d.csv, header: false, label: 2}\nepsilon: 1\n"
    problem = robust(tmp_path, text, hand_model(2), "1,5,0\n2,6,1\n")
    assert labels(problem) == ["0", "1"]
    assert [feature.name for feature in problem.domain] == ["x0", "x1"]


def test_only_chosen_rows_are_read(tmp_path: Path) -> None:
    csv = "a,b,target\n1,2,0\nx,,\n3,4,1\nragged\n"
    problem = robust(tmp_path, 'inputs: {file: d.csv, rows: "0,2", label: target}\nepsilon: 1\n', None, csv)
    assert [case.row for case in problem.cases] == [0, 2]


# --- held features -------------------------------------------------------------------------------------------------
def widths(case: Case) -> list[int]:
    assert isinstance(case.region, Box)
    return [high - low for low, high in zip(case.region.low, case.region.high, strict=True)]


def test_held_features(tmp_path: Path) -> None:
    assert widths(robust(tmp_path, "epsilon: 1\nfixed: [b]\n").cases[0]) == [3, 1]
    csv = ",".join(f"f{i}" for i in range(10)) + "\n" + ",".join(["5"] * 10) + "\n"
    text = "inputs: {file: d.csv}\nepsilon: 1\nfixed: {fraction: 0.35, seed: 4}\n"
    first = robust(tmp_path, text, hand_model(10), csv)
    assert sorted(widths(first.cases[0])) == [1] * 3 + [3] * 7
    assert "3 of 10 features held (seed 4): 'f" in first.notes[0]
    assert robust(tmp_path, text, hand_model(10), csv).cases == first.cases
    assert robust(tmp_path, text.replace("seed: 4", "seed: 5"), hand_model(10), csv).cases != first.cases
    (tmp_path / "p.yaml").write_text("property: robustness\n" + text.replace(", seed: 4", ""))
    seeded = bind(tmp_path, "property: robustness\n" + text.replace(", seed: 4", ""), hand_model(10), seed=4)
    assert seeded.cases == first.cases


# --- refusals ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", ["needs the key 'epsilon'"]),
        ("epsilon: -1\n", ["must not be negative"]),
        ("epsilon: []\n", ["list of ε is empty"]),
        ("epsilon: [1, 1.0]\n", ["1 is there twice"]),
        ("epsilon: .inf\n", ["must be finite"]),
        ("epsilon: one\n", ["must be a number"]),
        ("epsilon: 1\nnorm: l2\n", ["'l2' is unknown"]),
        ("epsilon: 1\nclip: [3, 1]\n", ["clip is empty", "write clip: [1, 3]"]),
        ("epsilon: 1\nclip: 3\n", ["must be a list"]),
        ("epsilon: 1\nclip: [1]\n", ["takes two numbers"]),
        ("epsilon: 1\nclip: [0, 8]\n", ["row 3, column 'b' is 9, outside clip [0, 8]"]),
        ("epsilon: 1\nnorm: l0\nclip: [1, 9]\n", ["row 3, column 'a' is 0, outside clip"]),
        ("epsilon: 1\nnorm: l0\n", ["any value of its range", "add clip"]),
        ("epsilon: 1\nfixed: [c]\n", ["'c' is unknown"]),
        ("epsilon: 1\nfixed: {fraction: 1.5}\n", ["between 0 and 1"]),
        ("epsilon: 1\nfixed: {seed: 1}\n", ["needs the key 'fraction'"]),
        ("epsilon: 1e300\n", ["too large"]),
        ("epsilon: 1\nassume: a > 1\n", ["has no key 'assume'"]),
        ("epsilon: 1\nmeasure: {product: {weights: {a: {1: 1}}}}\n", ["needs a domain"]),
        ("epsilon: 1\ndomain: {default: {type: int, min: 0, max: 8}, features: [a, b]}\n",
         ["row 3, column 'b' is 9, which is not on its grid"]),
        ("epsilon: 1\nnorm: l1\ndomain: {default: {type: float32, min: 0, max: 9}, features: [a, b]}\n",
         ["l1 is not defined", "'a'"]),
    ],
)  # fmt: skip
def test_refused_properties(tmp_path: Path, more: str, words: list[str]) -> None:
    (tmp_path / "d.csv").write_text(CSV)
    message = refused(tmp_path, f"property: robustness\ninputs: {{file: d.csv, label: target}}\n{more}", hand_model(2))
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("inputs", "csv", "words"),
    [
        ("", CSV, "needs the key 'file'"),
        ("file: none.csv", CSV, "no such file"),
        ("file: d.csv", CSV, "has 3 columns, the model takes 2"),
        ("file: d.csv, label: y", CSV, "no column 'y'"),
        ("file: d.csv, label: targt", CSV, "did you mean 'target'?"),
        ("file: d.csv, label: target, rows: 4", CSV, "no row 4: the file has 4 data rows"),
        ('file: d.csv, label: target, rows: "0-9"', CSV, "no row 4: the file has 4 data rows"),
        ('file: d.csv, label: target, rows: "3-1"', CSV, "runs backwards"),
        ('file: d.csv, label: target, rows: "0-1,1"', CSV, "row 1 is there twice"),
        ('file: d.csv, label: target, rows: "-1"', CSV, "'-1' is no row or range"),
        ("file: d.csv, label: target, rows: [1.5]", CSV, "'1.5' is no row or range"),
        ("file: d.csv, label: target, rows: []", CSV, "no row is chosen"),
        ("file: d.csv, label: target, rows: {from: 1}", CSV, "must be numbers or ranges"),
        ('file: d.csv, label: target, rows: "0-99999999"', CSV, "more than"),
        ("file: d.csv, label: target", CSV.replace("1,5", "nan,5"), "row 0, column 'a' is empty or NaN"),
        ("file: d.csv, label: target", CSV.replace("2,6", "2,"), "row 1, column 'b' is empty or NaN"),
        ("file: d.csv, label: target", CSV.replace("2,6", "2,x"), "row 1, column 'b' holds 'x', which is no number"),
        ("file: d.csv, label: target", CSV.replace("2,6", "inf,6"), "row 1, column 'a' holds 'inf'"),
        ("file: d.csv, label: target", CSV.replace("2,6", "2,6.5"), "row 1, column 'b' is 6.5, no integer"),
        ("file: d.csv, label: target", CSV.replace("2,6,1", "2,6"), "row 1 has 2 cells instead of 3"),
        ("file: d.csv, label: target", CSV.replace("2,6,1", "2,6,5"), "the label '5' of row 1 is no class"),
        ("file: d.csv, label: target", CSV.replace("2,6,1", "2,6,"), "the label '' of row 1 is no class"),
        ("file: d.csv, label: target", "a,b,target\n", "no data rows"),
    ],
)
def test_refused_inputs(tmp_path: Path, inputs: str, csv: str, words: str) -> None:
    (tmp_path / "d.csv").write_text(csv)
    text = f"property: robustness\ninputs: {{{inputs}}}\nepsilon: 1\n"
    assert words in refused(tmp_path, text, hand_model(2), line=2)


def test_a_missing_column(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(CSV)
    text = "property: robustness\ninputs: {file: d.csv, label: target}\nepsilon: 1\n"
    message = refused(tmp_path, text, hand_model(3, ["a", "b", "c"]), line=2)
    assert "the column 'c' is missing" in message


def test_refused_arrays(tmp_path: Path) -> None:
    text = "property: robustness\ninputs: {file: d.npy}\nepsilon: 1\n"

    def message(array: object, **keys: bool) -> str:
        np.save(tmp_path / "d.npy", array, **keys)
        return refused(tmp_path, text, hand_model(2), line=2)

    assert "row 1, column 'x0' is empty or NaN" in message(np.array([[1.0, 2.0], [np.nan, 1.0]]))
    assert "row 0: an infinite value" in message(np.array([[np.inf, 2.0]]))
    assert "row 0, column 'x1' is 2.5, no integer" in message(np.array([[1.0, 2.5]]))
    assert "has 3 columns, the model takes 2" in message(np.zeros((1, 3)))
    assert "a matrix of numbers is needed" in message(np.zeros(3))
    assert "a matrix of numbers is needed" in message(np.array([["a", "b"]]))
    assert "no data rows" in message(np.zeros((0, 2)))
    assert "not an array file" in message(np.array([[object()]]), allow_pickle=True)
    (tmp_path / "d.npy").write_bytes(b"not an array")
    assert "not an array file" in refused(tmp_path, text, hand_model(2), line=2)
    np.savez(tmp_path / "d.npz", data=np.zeros((1, 2)))
    text = "property: robustness\ninputs: {file: d.npz, label: y}\nepsilon: 1\n"
    assert "no array 'X'" in refused(tmp_path, text, hand_model(2), line=2)
    np.savez(tmp_path / "d.npz", X=np.zeros((1, 2)), yy=np.zeros(1))
    assert "did you mean 'yy'?" in refused(tmp_path, text, hand_model(2), line=2)
    np.savez(tmp_path / "d.npz", X=np.zeros((1, 2)), y=np.zeros(2))
    assert "no list of 1 labels" in refused(tmp_path, text, hand_model(2), line=2)

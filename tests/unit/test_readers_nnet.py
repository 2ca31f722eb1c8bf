"""The .nnet text format: what is read, and what is refused with its line."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact_networks import exact_scores

from quantify.errors import InputError
from quantify.ir.network import Network
from quantify.readers import read_model
from quantify.readers.float_network import scores
from quantify.readers.nnet import READER

# 2 inputs, one hidden layer of 3, 2 outputs.
SMALL = """\
// A small network
// made by hand
2,2,2,3,
2,3,2,
0,
-1.0,0.0,
1.0,10.0,
0.25,5.0,7.5,
0.6,6.28318530718,3.0,
1.0,-2.0,
0.5,0.25,
-1.5,1e-1,
0.1,
-0.2,
0.3,
1.0,2.0,3.0,
-1.0,0.5,0.25,
0.01,
-0.01,
"""
LINES = SMALL.splitlines()


def by_hand(x: list[Fraction]) -> list[Fraction]:
    """The small network in rationals, decimals being doubles."""

    def d(text: str) -> Fraction:
        return Fraction(float(text))

    first = (x[0] - d("0.25")) / d("0.6")
    second = (x[1] - d("5.0")) / d("6.28318530718")
    hidden = [
        max(Fraction(0), first * d(a) + second * d(b) + d(c))
        for a, b, c in (("1.0", "-2.0", "0.1"), ("0.5", "0.25", "-0.2"), ("-1.5", "1e-1", "0.3"))
    ]
    rows = ((("1.0", "2.0", "3.0"), "0.01"), (("-1.0", "0.5", "0.25"), "-0.01"))
    found = [sum((d(w) * h for w, h in zip(weights, hidden, strict=True)), d(bias)) for weights, bias in rows]
    return [score * 3 + d("7.5") for score in found]


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "model.nnet"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def network(path: Path) -> Network:
    found = read_model(path).structure
    assert isinstance(found, Network)
    return found


def test_scores_are_exactly_those_of_the_text(tmp_path: Path) -> None:
    found = network(written(tmp_path, SMALL))
    for x in ([Fraction(0), Fraction(0)], [Fraction(1, 3), Fraction(9)], [Fraction(-1), Fraction(1, 7)]):
        assert exact_scores(found, x) == by_hand(x)
        near = scores(found, np.array([[float(v) for v in x]]))
        assert near.dtype == np.float64
        np.testing.assert_allclose(near[0], [float(v) for v in by_hand(x)], rtol=1e-13)


def test_the_model_says_what_it_is(tmp_path: Path) -> None:
    model = read_model(written(tmp_path, SMALL))
    assert (model.kind, model.classes, model.columns, model.column_names) == ("network", ("0", "1"), 2, None)
    assert isinstance(model.structure, Network)
    assert model.structure.input_bounds == ((-1.0, 1.0), (0.0, 10.0))
    assert (model.structure.head, model.structure.dtype) == ("order", "float64")
    points = np.array([[0.0, 0.0], [-1.0, 10.0], [1.0, 0.0]])
    wanted = [max((0, 1), key=lambda i: by_hand([Fraction(v) for v in row])[i]) for row in points.tolist()]
    assert model.predict(points).tolist() == wanted


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ([1.0000001, 0.0], r"input 0 is 1\.0000001, outside \[-1\.0, 1\.0\]"),
        ([0.0, -1e-9], r"input 1 is -1e-09, outside \[0\.0, 10\.0\]"),
    ],
)
def test_inputs_outside_the_header_are_errors(point: list[float], said: str, tmp_path: Path) -> None:
    model = read_model(written(tmp_path, SMALL))
    with pytest.raises(InputError, match=said):
        model.predict(np.array([[0.0, 0.0], [0.5, 1.0], point]))


def test_windows_line_ends_and_missing_final_commas_are_fine(tmp_path: Path) -> None:
    loose = "\r\n".join(line.rstrip(",") for line in LINES)
    x = [Fraction(1, 2), Fraction(3)]
    assert exact_scores(network(written(tmp_path, loose)), x) == by_hand(x)


def test_outputs_that_are_not_normalised_get_no_extra_layer(tmp_path: Path) -> None:
    changed = [*LINES[:7], "0.25,5.0,0.0", "0.6,6.28318530718,1.0", *LINES[9:]]
    found = network(written(tmp_path, "\n".join(changed)))
    assert len(found.layers) == len(network(written(tmp_path, SMALL)).layers) - 1


def test_it_is_told_by_its_first_lines(tmp_path: Path) -> None:
    assert READER.sniff(SMALL.encode())
    assert not READER.sniff(b"1,2,3\n4,5,6\n")
    assert not READER.sniff(b"a,b,c,d\n1,2,3,4\n")
    path = tmp_path / "network.txt"
    path.write_text(SMALL)
    assert read_model(path).kind == "network"


def line(number: int, text: str) -> str:
    return "\n".join([*LINES[: number - 1], text, *LINES[number:]])


BROKEN: list[tuple[Any, str]] = [
    (line(3, "2,2,2"), ":3: has 3 numbers, not 4"),
    (line(3, "2,2,0,3"), ":3: .* positive whole numbers"),
    (line(3, "2,2.5,2,3"), ":3: .* positive whole numbers"),
    (line(3, "2,3,2,3"), ":4: layers from 2 to 2, not 3 to 2"),
    (line(4, "2,3"), ":4: has 2 numbers, not 3"),
    (line(4, "2,99999999,2"), ":4: .*(positive whole|weights)"),
    (line(6, "-1.0"), ":6: has 1 numbers, not 2"),
    (line(7, "-2.0,10.0"), ":7: an input whose minimum is above its maximum"),
    (line(8, "0,0"), ":8: has 2 numbers, not 3"),
    (line(9, "0.6,0.0,3.0"), ":9: a range that is not positive"),
    (line(9, "0.6,1.0,-3.0"), ":9: a range that is not positive"),
    (line(10, "1.0,nan"), ":10: 'nan' is no number"),
    (line(10, "1.0,inf"), ":10: 'inf' is no number"),
    (line(10, "1.0,1e999"), ":10: a number too large"),
    (line(10, "1.0,0x1p3"), ":10: '0x1p3' is no number"),
    (line(10, "1.0,1_0"), ":10: '1_0' is no number"),
    (line(10, "1.0,,2.0"), ":10: '' is no number"),
    (line(13, "0.1,0.2"), ":13: has 2 numbers, not 1"),
    ("\n".join(LINES[:-1]), ":18: ends before biases of layer 2"),
    (SMALL + "1.0\n", ":20: '1.0' after the last layer"),
    (line(9, "1e-300,1.0,1.0").replace("0.25,5.0", "1e300,5.0"), "hopelessly different"),
    (SMALL.encode() + "é".encode(), "no ASCII"),
    ("\x00" + SMALL, "is no number"),
    ("// nothing\n", "ends before"),
]


@pytest.mark.parametrize(("text", "match"), BROKEN, ids=range(len(BROKEN)))
def test_broken_files_are_refused_with_their_line(text: str | bytes, match: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=match) as caught:
        read_model(path)
    assert str(path) in caught.value.message
    assert caught.value.hint
    assert caught.value.message.isprintable()

"""Damaged property files: whatever a file holds, the answer is a Problem or one explained error, never a traceback."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from property_files import hand_model

from quantify import properties
from quantify.errors import InputError

ROBUSTNESS = """\
property: robustness
inputs: {file: d.csv, rows: '0-2', label: target}
epsilon: [1, 0.5]
norm: l1
clip: [0, 9]
fixed: [a]
"""
SAFETY = """\
property: safety
domain:
  features:
    - {name: a, type: fixed, min: 0.2, max: 0.4, step: 0.1}
    - {name: b, type: categorical, values: {red: 3, green: 7}}
measure: {product: {weights: {b: {red: 1/3, green: 2/3}}}}
assume: "a >= 0.3 and b in ('red', 'green')"
assert: "label == '1' or all(i * a < 3 for i in range(3) if i != 2)"
"""
LEARNABILITY = """\
property: learnability
domain: {from: e.csv, features: [{name: a, step: 0.25}]}
ground_truth: {0: a > 0.5, 1: 'b == "red"'}
measure: uniform
"""
CLASSES = """\
property: classes
domain: {default: {type: float32, min: -1, max: 1e3, missing: true}, features: [a, {name: 'p{i}', count: 1, type: int}]}
assume: is_missing(a) or -a // 0.5 % 3 >= min(a, 2)
"""
TOKENS = (
    "{", "}", "[", "]", ":", ",", "-", "'", '"', "\n", "  ", "&a ", "*a", "null", "true", ".nan", "1e400", "-1", "0",
    "0.1", "9" * 40 + ".5", "1e-300", "1e300", "a", "b", "label", "x", "for", "in", "(", ")", "if", "not", "==", "<",
    "//", "%", "*", "type", "min", "float32", "int", "bool", "categorical", "#", "!!str ", "values", "d.csv", "é", "\t",
    "range", "sum", "l0", "0-3", "\x00", "|\n  ", "> ",
)  # fmt: skip


@pytest.mark.parametrize("file", [ROBUSTNESS, SAFETY, LEARNABILITY, CLASSES])
def test_damaged_files_never_cause_a_traceback(tmp_path: Path, file: str) -> None:
    (tmp_path / "d.csv").write_text("a,b,target\n1,5,0\n2,6,1\n3,7,0\n0,9,1\n")
    (tmp_path / "e.csv").write_text("a,b\n1,red\n0.5,green\n")
    path, model = tmp_path / "p.yaml", hand_model(2, missing=True)
    path.write_text(file)
    assert properties.bind(properties.load(path), model).cases
    draw = random.Random(file)
    for _ in range(120):
        text = file
        for _ in range(draw.choice((1, 1, 2, 4))):
            start = draw.randrange(len(text) + 1)
            end = min(len(text), start + draw.choice((0, 0, 1, 3, 6)))
            text = text[:start] + draw.choice(TOKENS) + text[end:]
        path.write_text(text)
        with contextlib.suppress(InputError):
            assert properties.bind(properties.load(path), model).cases

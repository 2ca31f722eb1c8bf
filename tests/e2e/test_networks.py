"""`quantify count` on small networks, written by hand as `.nnet`, against their own arithmetic in fractions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

Answer = Callable[..., dict[str, Any]]
Write = Callable[[str], Path]

SIZES = (2, 4, 3)
NAMES = ("left", "right", "straight")
MEANS, RANGES = (10.0, 0.5), (4.0, 2.0)
OUTPUT_MEAN, OUTPUT_RANGE = 1.0, 2.0


class Nnet:
    """A network over a (4 … 16) and b (−0.5 … 1.5), weights with three decimals."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.layers = [
            (
                [[round(draw.uniform(-2, 2), 3) for _ in range(inputs)] for _ in range(outputs)],
                [round(draw.uniform(-1, 1), 3) for _ in range(outputs)],
            )
            for inputs, outputs in itertools.pairwise(SIZES)
        ]

    def text(self) -> str:
        lines = ["// by hand", "2,2,3,4,", "2,4,3,", "0,", "4.0,-0.5,", "16.0,1.5,"]
        lines.append(",".join(map(str, (*MEANS, OUTPUT_MEAN))) + ",")
        lines.append(",".join(map(str, (*RANGES, OUTPUT_RANGE))) + ",")
        for weights, biases in self.layers:
            lines += [",".join(map(str, row)) + "," for row in weights] + [f"{bias}," for bias in biases]
        return "\n".join(lines) + "\n"

    def scores(self, a: Fraction, b: Fraction) -> list[Fraction]:
        """The real function: the numbers in the file are read as doubles."""
        values = [(v - Fraction(m)) / Fraction(r) for v, m, r in zip((a, b), MEANS, RANGES, strict=True)]
        for number, (weights, biases) in enumerate(self.layers):
            sums = [
                sum((Fraction(w) * v for w, v in zip(row, values, strict=True)), Fraction(bias))
                for row, bias in zip(weights, biases, strict=True)
            ]
            values = sums if number else [max(value, Fraction(0)) for value in sums]
        return [value * Fraction(OUTPUT_RANGE) + Fraction(OUTPUT_MEAN) for value in values]


DOMAIN_TEXT = """domain:
  features:
    - {name: a, type: int, min: 4, max: 16}
    - {name: b, type: fixed, min: -0.5, max: 1.5, step: 0.1}
"""
POINTS = [(Fraction(a), Fraction(b, 10)) for a in range(4, 17) for b in range(-5, 16)]


@pytest.fixture
def network(tmp_path: Path) -> Nnet:
    made = Nnet(4)
    (tmp_path / "model.nnet").write_text(made.text())
    return made


def labels(network: Nnet, choose: Callable[[list[Fraction]], Fraction]) -> list[int]:
    found = (network.scores(a, b) for a, b in POINTS)
    return [scores.index(choose(scores)) for scores in found]


@pytest.mark.parametrize("engine", ["auto", "branch", "reference"])
def test_classes_by_the_lowest_score(engine: str, answer: Answer, network: Nnet, write_property: Write) -> None:
    keys = f"labels: [{', '.join(NAMES)}]\ndecision: argmin\nquantization: {{mode: exact}}\n"
    write_property(f"property: classes\n{keys}{DOMAIN_TEXT}")
    got = answer("model.nnet", "--property", "property.yaml", "--engine", engine)
    wanted = labels(network, min)
    assert len(set(wanted)) > 1
    for index, name in enumerate(NAMES):
        assert got["counts"][name]["lower"] == got["counts"][name]["upper"] == str(wanted.count(index))
    checks = {check["name"]: check for check in got["checks"]}
    assert checks["fidelity"]["status"] == "ok"
    assert "all 273 inputs" in checks["float-ambiguous"]["detail"]
    assert "note" not in checks
    assert got["model"]["kind"] == "network"
    assert got["model"]["arithmetic"] == "exact"


@pytest.mark.parametrize("engine", ["auto", "branch"])
def test_safety_with_scores(engine: str, answer: Answer, network: Nnet, write_property: Write) -> None:
    write_property(
        f"property: safety\nlabels: [{', '.join(NAMES)}]\n{DOMAIN_TEXT}"
        "assume: \"a >= 6 or b < 0.35\"\nassert: \"score['left'] - score[1] <= 1.5 and lowest != 'straight'\"\n"
    )
    got = answer("model.nnet", "--property", "property.yaml", "--engine", engine)
    satisfied = violated = 0
    for a, b in POINTS:
        if a >= 6 or b < Fraction(35, 100):
            scores = network.scores(a, b)
            holds = scores[0] - scores[1] <= Fraction(3, 2) and scores.index(min(scores)) != 2
            satisfied, violated = satisfied + holds, violated + (not holds)
    assert satisfied
    assert violated
    assert got["counts"]["satisfied"]["lower"] == got["counts"]["satisfied"]["upper"] == str(satisfied)
    assert got["counts"]["violated"]["lower"] == got["counts"]["violated"]["upper"] == str(violated)
    (witness,) = got["witnesses"]
    a, b = Fraction(witness["input"]["a"]), Fraction(str(witness["input"]["b"]))
    scores = network.scores(a, b)
    assert not (scores[0] - scores[1] <= Fraction(3, 2) and scores.index(min(scores)) != 2)
    # Nothing was said about quantization, so the answer says what was taken.
    assert any(check["name"] == "note" and "exact real function" in check["detail"] for check in got["checks"])


def test_quantised_counts_say_how_far_they_are_off(answer: Answer, network: Nnet, write_property: Write) -> None:
    write_property(f"property: classes\nquantization: {{bits: 3}}\n{DOMAIN_TEXT}")
    got = answer("model.nnet", "--property", "property.yaml")
    checks = {check["name"]: check for check in got["checks"]}
    assert checks["quantised"]["status"] == "measured"
    told = int(checks["quantised"]["detail"].split("273 inputs: ")[1].split()[0])
    assert told > 0
    wanted = labels(network, max)
    off = sum(abs(int(got["counts"][str(index)]["lower"]) - wanted.count(index)) for index in range(3))
    assert off <= 2 * told
    assert got["model"]["arithmetic"] == "quantised"


def test_robustness(answer: Answer, network: Nnet, write_property: Write, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n8,0.3\n14,1.2\n")
    write_property(f"property: robustness\ninputs: {{file: rows.csv}}\nepsilon: 2\n{DOMAIN_TEXT}")
    got = answer("model.nnet", "--property", "property.yaml")
    wanted = dict(zip(POINTS, labels(network, max), strict=True))
    for entry, (a, b) in zip(got["inputs"], ((8, Fraction(3, 10)), (14, Fraction(12, 10))), strict=True):
        ball = [point for point in POINTS if abs(point[0] - a) <= 2 and abs(point[1] - b) <= 2]
        robust = sum(wanted[point] == wanted[(Fraction(a), b)] for point in ball)
        assert entry["total"] == str(len(ball))
        assert entry["robust"]["lower"] <= str(robust) <= entry["robust"]["upper"]
        assert entry["robust"]["lower"] == str(robust)


def test_a_gap_ends_a_count_with_bounds(answer: Answer, network: Nnet, write_property: Write) -> None:
    wide = DOMAIN_TEXT.replace("int, min: 4, max: 16", "fixed, min: 4, max: 16, step: 0.0001").replace(
        "step: 0.1}", "step: 0.0001}"
    )
    write_property(f"property: classes\n{wide}")
    got = answer("model.nnet", "--property", "property.yaml", "--engine", "branch", "--gap", "0.05")
    size = 120001 * 20001
    for count in got["counts"].values():
        assert int(count["upper"]) - int(count["lower"]) <= size // 20
    assert got["domain"]["size"] == str(size)


@pytest.mark.needs("cbmc")
def test_cross_check(answer: Answer, network: Nnet, write_property: Write) -> None:
    write_property(f"property: classes\nquantization: {{bits: 3}}\n{DOMAIN_TEXT}")
    got = answer("model.nnet", "--property", "property.yaml", "--cross-check")
    said = " ".join(check["name"] + " " + check["detail"] for check in got["checks"])
    assert "cross-check" in said
    assert "sample" in said


def test_inputs_that_the_file_rules_out(quantify: Callable[..., Any], network: Nnet, write_property: Write) -> None:
    write_property("property: classes\n" + DOMAIN_TEXT.replace("max: 16", "max: 17"))
    done = quantify("count", "model.nnet", "--property", "property.yaml")
    assert done.returncode == 2
    assert "'a' reaches 17, and the model file allows 4 to 16" in done.stderr


def test_tree_engines_say_that_this_is_a_network(
    quantify: Callable[..., Any], network: Nnet, write_property: Write
) -> None:
    write_property("property: classes\n" + DOMAIN_TEXT)
    done = quantify("count", "model.nnet", "--property", "property.yaml", "--engine", "boxes")
    assert done.returncode == 2
    assert "it counts on trees, and this model is a network" in done.stderr

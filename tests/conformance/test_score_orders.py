"""Claims about the order of scores over disjunctive regions: every exact engine equals enumeration in whole numbers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from quantify import engines, pipeline
from quantify.engines.branch import BranchEngine
from quantify.engines.branch_plan import Tuning
from quantify.ir.count import Guarantee
from quantify.resources import Limits, Progress

NAMES = ("clear", "weak", "left", "right")
LEVELS = (6, 5, 4)
SIZES = (3, 4, len(NAMES))
SEEDS = range(4)
SPLIT = BranchEngine(tuning=Tuning(leaf_points=1, loop_work=0, credit_points=1, local_points=0))
"""Splits boxes down to points, so that bounds decide everything."""

Scores = Sequence[int]
CLAIMS: dict[str, Callable[[int, int, Scores], bool]] = {
    "lowest == 'clear'": lambda low, high, _: low == 0,
    "highest != 'clear'": lambda low, high, _: high != 0,
    "lowest in ('weak', 'right') or highest == 'left'": lambda low, high, _: low in (1, 3) or high == 2,
    "highest not in ('left', 'right')": lambda low, high, _: high < 2,
    "lowest not in ('clear', 'weak', 'right') and score['left'] >= -3": lambda low, high, s: low == 2 and s[2] >= -3,
    "lowest != highest": lambda low, high, _: low != high,
}
REGIONS: dict[str, Callable[[Fraction, Fraction, Fraction], bool]] = {
    "a >= 1.5 or a <= 0.5": lambda a, b, c: a >= Fraction(3, 2) or a <= Fraction(1, 2),
    "not (0 < b < 3) and (a > 0.5 or c == 2)": lambda a, b, c: not 0 < b < 3 and (a > Fraction(1, 2) or c == 2),
}


class Drawn:
    """A network of small whole weights, as a `.nnet` file; halves of `a` leave its scores whole."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.layers = [
            (
                [[draw.randint(-1, 1) * (2 - number) for _ in range(width)] for _ in range(height)],
                [draw.randint(-1, 1) for _ in range(height)],
            )
            for number, (width, height) in enumerate(itertools.pairwise(SIZES))
        ]

    def text(self) -> str:
        lines = ["2,3,4,4,", "3,4,4,", "0,", "0,0,0,", "9,9,9,", "0,0,0,0,", "1,1,1,1,"]
        for weights, biases in self.layers:
            lines += ["".join(f"{w}," for w in row) for row in weights] + [f"{b}," for b in biases]
        return "\n".join(lines) + "\n"

    def scores(self, point: Sequence[Fraction]) -> list[int]:
        values: list[Fraction] = list(point)
        for number, (weights, biases) in enumerate(self.layers):
            sums = [sum((w * v for w, v in zip(row, values, strict=True)), Fraction(b)) for row, b in
                    zip(weights, biases, strict=True)]  # fmt: skip
            values = sums if number else [max(value, Fraction(0)) for value in sums]
        assert all(value.denominator == 1 for value in values)
        return [int(value) for value in values]


def values_of(positions: Sequence[int]) -> tuple[Fraction, Fraction, Fraction]:
    a, b, c = positions
    return Fraction(a, 2), Fraction(b), Fraction(c)


POINTS = [values_of(positions) for positions in itertools.product(*map(range, LEVELS))]


@pytest.mark.parametrize("decision", ["argmax", "argmin"])
@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("claim", CLAIMS)
def test_orders_of_scores_over_disjunctive_regions(tmp_path: Path, claim: str, region: str, decision: str) -> None:
    prop = tmp_path / "property.yaml"
    prop.write_text(
        f"property: safety\nlabels: [{', '.join(NAMES)}]\ndecision: {decision}\nquantization: {{mode: exact}}\n"
        "domain:\n  features:\n    - {name: a, type: fixed, min: 0, max: 2.5, step: 0.5}\n"
        "    - {name: b, type: int, min: 0, max: 4}\n    - {name: c, type: int, min: 0, max: 3}\n"
        f'assume: "{region}"\nassert: "{claim}"\n'
    )
    for seed in SEEDS:
        drawn = Drawn(seed)
        model = tmp_path / f"{seed}.nnet"
        model.write_text(drawn.text())
        satisfied = violated = 0
        for point in POINTS:
            if REGIONS[region](*point):
                scores = drawn.scores(point)
                holds = CLAIMS[claim](scores.index(min(scores)), scores.index(max(scores)), scores)
                satisfied, violated = satisfied + holds, violated + (not holds)
        grid = pipeline.prepare(model, prop, pipeline.Options(), Progress()).grid
        exact = {name: engine for name, engine in engines.discover().items() if "network" in engine.structures}
        exact = {name: engine for name, engine in exact.items() if engine.guarantee is Guarantee.EXACT}
        exact["split"] = SPLIT
        asked = [name for name, engine in exact.items() if engine.refuses(grid, grid.cases[0]) is None]
        assert {"branch", "reference"} < set(asked)
        for name in asked:
            counts = exact[name].count(grid, grid.cases[0], Limits(), Progress())
            found = {key: (counts[key].lower, counts[key].upper) for key in ("satisfied", "violated")}
            assert found == {"satisfied": (satisfied, satisfied), "violated": (violated, violated)}, (name, seed)


def test_ties_decide_some_of_these_claims() -> None:
    """Else the order at ties would not be tested."""
    tied = [scores for seed in SEEDS for scores in map(Drawn(seed).scores, POINTS) if len(set(scores)) < len(scores)]
    assert sum(scores.count(min(scores)) > 1 for scores in tied) > 20
    assert sum(scores.count(max(scores)) > 1 for scores in tied) > 20

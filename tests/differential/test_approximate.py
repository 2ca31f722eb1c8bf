"""ApproxMC on formulas whose counts are known by enumeration: outside of its (ε, δ) interval as rarely as it says."""

from __future__ import annotations

from fractions import Fraction

import pytest
from drawn_problems import draw_problem
from scipy.stats import binom

from quantify import pipeline
from quantify.cnf import counters
from quantify.cnf.cbmc import translate
from quantify.cnf.formula import Cnf
from quantify.ir.count import Guarantee
from quantify.resources import Limits, Progress

FORMULAS = 60
SEEDS = (1, 2, 3)
EPSILON, DELTA = Fraction(4, 5), Fraction(1, 5)
EXACTLY_BELOW = 150
"""ApproxMC counts smaller numbers by enumeration, which would prove nothing."""


@pytest.fixture
def formulas(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Cnf, int]]:
    """Formulas by CBMC with the number of inputs by the library's predict, all of them large enough to be hashed."""
    found: list[tuple[Cnf, int]] = []
    seed = 50_000
    while len(found) < FORMULAS:
        drawn = draw_problem(seed, tmp_path_factory.mktemp("problem"), ("safety", "classes", "linf", "l0"), 4096)
        seed += 1
        sizes = {
            (number, name): int(mask.sum())
            for number, masks in enumerate(drawn.cases)
            for name, mask in masks.items()
            if EXACTLY_BELOW < mask.sum() < drawn.regions[number].sum()
        }
        if not sizes:
            continue
        (number, name), count = max(sizes.items(), key=lambda item: item[1])
        grid = pipeline.prepare(drawn.model, drawn.property, pipeline.Options(), Progress()).grid
        query = next(query for query in grid.cases[number].queries if query.name == name)
        cnf = translate(grid, grid.cases[number], query, Limits()).cnf
        if cnf.literals.count(0) < 10_000 and count > EXACTLY_BELOW * cnf.multiplier:
            found.append((cnf, count))
    return found


@pytest.mark.needs("cbmc", "pyapproxmc")
def test_intervals_hold_at_the_stated_rate(formulas: list[tuple[Cnf, int]]) -> None:
    approxmc = counters.get("approxmc")
    trials = misses = inexact = 0
    ratios: list[float] = []
    for seed in SEEDS:
        answers = approxmc.count_all(  # type: ignore[attr-defined]
            [cnf for cnf, _ in formulas], Limits(seed=seed), epsilon=EPSILON, delta=DELTA
        )
        for answer, (_, count) in zip(answers, formulas, strict=True):
            assert answer.guarantee is Guarantee.PAC
            assert (answer.epsilon, answer.delta, answer.seed) == (EPSILON, DELTA, seed)
            assert answer.lower <= answer.estimate <= answer.upper
            trials += 1
            misses += not answer.lower <= count <= answer.upper
            inexact += answer.estimate != count
            ratios.append(answer.estimate / count)
    assert trials >= 60
    assert inexact > 0, "every answer was exact: the formulas are too small to test an approximation"
    # Each misses with probability δ at most: more than this many together happen once in a million.
    assert misses <= binom.isf(1e-6, trials, float(DELTA)), f"{misses} of {trials} outside of their interval"
    # The interval is wide; the estimates themselves must follow the counts closely on average.
    ratios.sort()
    assert 0.9 < ratios[trials // 2] < 1.1
    assert 0.5 < ratios[trials // 20] <= ratios[-trials // 20] < 2.0

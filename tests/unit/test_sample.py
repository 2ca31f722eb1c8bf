"""Random draws: the generator against NumPy's, uniformity over every kind of region, and counts inside intervals."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from random_grids import counted, points, random_problem

from quantify.engines import evaluate, sample
from quantify.errors import InputError
from quantify.ir.count import Guarantee
from quantify.ir.domain import Measure
from quantify.ir.intervals import clopper_pearson
from quantify.ir.predicate import Always, HasLabel, Linear, Sign, Times, Within
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree, Region
from quantify.resources import Limits, Progress

LEAF = GridTree((-1,), (0,), (0,), (0,), (0,), (0,))
TINY = 1e-9
"""Chance that a sound generator fails one of these tests; seeds are fixed, so it fails always or never."""


def problem_over(sizes: tuple[int, ...], measure: Measure | None = None) -> GridProblem:
    return GridProblem(sizes, 1, LEAF, measure or Measure(), ())


def chi_square_chance(observed: list[int], shares: list[Fraction], draws: int) -> float:
    from scipy.stats import chi2

    expected = [float(share * draws) for share in shares]
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return float(chi2.sf(statistic, max(1, len(observed) - 1)))


def test_words_are_those_of_philox() -> None:
    for seed, stream, block in ((0, 0, 0), (1, 2, 3), ((1 << 64) - 1, 1 << 63, 12345)):
        words = np.empty(1000, np.uint64)
        evaluate.native().sample_words(seed, stream, block, 1000, evaluate.pointer("uint64_t[]", words))
        key, counter = np.array([seed, stream], np.uint64), np.array([0, block, 0, 0], np.uint64)
        wanted = np.random.Philox(key=key, counter=counter).random_raw(1000)
        assert words.tolist() == wanted.tolist()


@pytest.mark.parametrize("width", [1, 2, 3, 5, 100, 257])
def test_every_value_of_a_feature_is_equally_likely(width: int) -> None:
    draws = 200_000
    drawn = sample.points(problem_over((7 + width,)), Box((4,), (4 + width,)), draws, seed=width)[:, 0]
    observed = np.bincount(drawn - 4, minlength=width).tolist()
    assert len(observed) == width
    assert chi_square_chance(observed, [Fraction(1, width)] * width, draws) > TINY


REGIONS: list[tuple[tuple[int, ...], Region]] = [
    ((3, 2, 5), Box((0, 0, 0), (3, 2, 5))),
    ((6, 6, 6), Box((1, 5, 2), (4, 6, 4))),
    ((5, 5, 5), Ball(Box((0, 0, 0), (5, 5, 5)), (2, 0, 4), "l0", (1, 1, 1), 2)),
    ((5, 1, 4, 2), Ball(Box((0, 0, 0, 0), (5, 1, 4, 2)), (2, 0, 3, 1), "l0", (1, 1, 1, 1), 1)),
    ((5, 5, 5), Ball(Box((0, 0, 0), (5, 5, 5)), (2, 0, 4), "l1", (1, 1, 1), 3)),
    ((9, 4, 3), Ball(Box((2, 0, 1), (9, 4, 3)), (3, 3, 1), "l1", (2, 1, 3), 7)),
    ((4, 4), Ball(Box((1, 0), (3, 4)), (3, 3), "l1", (1, 1), 2)),
    ((4, 4), Ball(Box((0, 2), (4, 3)), (0, 1), "l0", (1, 1), 2)),
    ((4, 4), Ball(Box((0, 2), (4, 3)), (0, 1), "l1", (1, 0), 2)),
    ((4, 4), Ball(Box((0, 0), (4, 4)), (2, 1), "l1", (1, 1), 0)),
]


@pytest.mark.parametrize("number", range(len(REGIONS)))
def test_every_point_of_a_region_is_equally_likely(number: int) -> None:
    sizes, region = REGIONS[number]
    everything = list(points(region))
    draws = 60_000
    drawn = sample.points(problem_over(sizes), region, draws, seed=number)
    places = {point: place for place, point in enumerate(everything)}
    observed = np.bincount([places[tuple(p)] for p in drawn.tolist()], minlength=len(everything)).tolist()
    assert chi_square_chance(observed, [Fraction(1, len(everything))] * len(everything), draws) > TINY


def test_a_large_ball_is_drawn_by_its_distances() -> None:
    sizes = (256,) * 784
    ball = Ball(Box((0,) * 784, sizes), (7,) * 784, "l0", (1,) * 784, 4)
    draws = 20_000
    drawn = sample.points(problem_over(sizes), ball, draws, seed=3)
    ways = [math.comb(784, k) * 255**k for k in range(5)]
    observed = np.bincount((drawn != 7).sum(axis=1), minlength=5).tolist()
    assert observed[:2] == [0, 0]
    assert observed[3] + observed[4] >= draws - 3
    expected = Fraction(ways[3], sum(ways)) * draws
    assert abs(observed[3] - expected) < 7 * math.sqrt(expected) + 1
    touched = np.bincount(np.nonzero(drawn != 7)[1], minlength=784)
    assert chi_square_chance(touched.tolist(), [Fraction(1, 784)] * 784, int(touched.sum())) > TINY


def test_weights_are_followed() -> None:
    measure = Measure("product", ((0, 3, 1, 0, 6), None, (1 << 62, 1 << 60)))
    problem = problem_over((5, 2, 2), measure)
    draws = 100_000
    drawn = sample.points(problem, Box((1, 0, 0), (5, 2, 2)), draws, seed=1)
    everything = list(itertools.product((1, 2, 4), (0, 1), (0, 1)))
    weights = [measure.weights[0][a] * (4, 1)[c] for a, _, c in everything]  # type: ignore[index]
    observed = [int((drawn == point).all(axis=1).sum()) for point in everything]
    assert sum(observed) == draws
    assert chi_square_chance(observed, [Fraction(w, sum(weights)) for w in weights], draws) > TINY


@pytest.mark.parametrize("block", range(4))
def test_counts_lie_in_intervals_that_fail_once_in_a_billion(block: int) -> None:
    engine = sample.SampleEngine(samples=20_000, confidence=1 - Fraction(1, 10**9))
    for seed in range(block * 30, block * 30 + 30):
        problem = random_problem(seed)
        case = problem.cases[0]
        wanted = counted(problem, case)
        total = sum(1 for _ in points(case.region))
        for name, count in engine.count(problem, case, Limits(seed=seed), Progress()).items():
            assert count.lower <= wanted[name] <= count.upper <= total, (seed, name)
            assert count.guarantee is Guarantee.SAMPLED
            assert count.samples == 20_000
            assert count.hits is not None
            low, high = clopper_pearson(count.hits, 20_000, engine.confidence)
            assert (count.lower, count.upper) == (math.floor(low * total), math.ceil(high * total))
            assert count.estimate == round(Fraction(count.hits * total, 20_000))


def test_lazy_and_whole_draws_hit_alike() -> None:
    """The same share of hits, whether positions are drawn when read or all at once."""
    for seed in range(40):
        problem = random_problem(seed)
        case = problem.cases[0]
        n = 40_000
        lazy = sample.draw(problem, case, n, Limits(), seed).hits
        whole = sample.points(problem, case.region, n, seed + 1000)
        for query in case.queries:
            a, b = lazy[query.name], int(evaluate.truths(problem, case, query, whole).sum())
            spread = math.sqrt((a + b) * (2 * n - a - b) / (2 * n)) or 1
            assert abs(a - b) <= 6.5 * spread, (seed, query.name)


def test_draws_depend_on_the_seed_and_not_on_the_threads() -> None:
    problem = random_problem(11, regions=("domain",))
    case = problem.cases[0]
    n = 5 * sample.BLOCK + 77
    alone = sample.draw(problem, case, n, Limits(jobs=1), 9)
    assert alone.made == n
    for jobs in (2, 3, 8):
        assert sample.draw(problem, case, n, Limits(jobs=jobs), 9) == alone
    assert sample.draw(problem, case, n, Limits(), 10) != alone


def test_the_deadline_leaves_whole_blocks() -> None:
    problem = random_problem(11, regions=("domain",))
    case = problem.cases[0]
    for jobs in (1, 2):
        limits = Limits(deadline=time.monotonic() + 0.15, jobs=jobs)
        draws = sample.draw(problem, case, 10**12, limits, 9)
        assert 0 < draws.made < 10**12
        assert draws.made % sample.BLOCK == 0
        assert draws == sample.draw(problem, case, draws.made, Limits(), 9)
    assert sample.draw(problem, case, 10**9, Limits(deadline=0.0), 9).made == sample.BLOCK


def test_witnesses_satisfy_their_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "WITNESS_BLOCKS", 4)
    found = 0
    for seed in range(60):
        problem = random_problem(seed)
        case = problem.cases[0]
        wanted = counted(problem, case)
        for query in case.queries:
            positions = sample.ENGINE.witness(problem, case, query, Limits())
            assert positions is None or evaluate.truths(problem, case, query, np.array([positions]))[0]
            assert (positions is not None) == (wanted[query.name] > 0)
            found += positions is not None
    assert found > 50


def test_an_empty_region_has_no_points() -> None:
    problem = problem_over((3, 4))
    case = GridCase(Box((1, 2), (1, 4)), (GridQuery("q", Always(True)),), ())
    count = sample.ENGINE.count(problem, case, Limits(), Progress())["q"]
    assert (count.lower, count.upper, count.samples, count.hits) == (0, 0, 0, 0)
    assert sample.ENGINE.witness(problem, case, case.queries[0], Limits()) is None
    with pytest.raises(InputError, match="empty"):
        sample.points(problem, case.region, 3, 0)


def test_what_cannot_be_drawn_is_refused() -> None:
    ball = Ball(Box((0, 0), (4, 4)), (1, 1), "l0", (1, 1), 1)
    weighted = problem_over((4, 4), Measure("product", ((1, 2, 3, 4), None)))
    always = (GridQuery("q", Always(True)),)
    huge = Linear(((0, 1 << 90),), 0)
    wide = Ball(Box((0, 0), (1 << 40, 4)), (0, 0), "l1", (1, 1), 1 << 39)
    for problem, case, reason in (
        (weighted, GridCase(ball, always, ()), "weights inside"),
        (problem_over((4, 4)), GridCase(ball, (GridQuery("q", Sign("<", Times(huge, huge))),), ()), "bits"),
        (problem_over((1 << 80,)), GridCase(Box((0,), (1 << 80,)), always, ()), "positions"),
        (problem_over((1 << 40, 4)), GridCase(wide, always, ()), "too large"),
    ):
        refusal = sample.ENGINE.refuses(problem, case)
        assert refusal is not None
        assert reason in refusal
        with pytest.raises(InputError, match=reason):
            sample.ENGINE.count(problem, case, Limits(), Progress())
    with pytest.raises(InputError, match="samples"):
        sample.SampleEngine(samples=0)


def test_wide_arithmetic_and_labels_are_sampled_too() -> None:
    tree = GridTree((0, -1, -1), (3, 0, 0), (10, 0, 0), (1, 0, 0), (2, 0, 0), (-1, 0, 1))
    far = Linear(((0, 1 << 70), (1, -(1 << 70))), 0)
    queries = (GridQuery("less", Sign("<", far)), GridQuery("one", HasLabel((1,))), GridQuery("in", Within(1, 2, 6)))
    case = GridCase(Box((0, 0), (10, 10)), queries, ())
    problem = replace(problem_over((10, 10)), labels=2, structure=tree)
    hits = sample.draw(problem, case, 100_000, Limits(), 1).hits
    for name, share in (("less", 0.45), ("one", 0.7), ("in", 0.4)):
        assert abs(hits[name] / 100_000 - share) < 0.01

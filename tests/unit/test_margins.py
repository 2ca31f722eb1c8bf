"""`margins` and its parts against enumeration, exact arithmetic and sampling, on networks that are hard on purpose."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from quantify.engines import affine_forms, linear_tails
from quantify.engines.affine_forms import Forms
from quantify.engines.interval_margins import interval_scores, interval_share
from quantify.engines.margins import MarginsEngine
from quantify.engines.phase_splits import loosest, split_forms
from quantify.engines.stages import chain_of
from quantify.ir import network_eval
from quantify.ir.count import Guarantee
from quantify.ir.domain import Measure
from quantify.ir.network import IntLayer, IntNetwork, RequantiseLayer, Rows
from quantify.ir.predicate import AllOf, Always, AnyOf, HasLabel, Linear, Negation, Score, Sign, Within
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree
from quantify.resources import Limits, Progress

NOTHING = np.zeros(0, np.int64)
ENGINE = MarginsEngine()


def dense(weights: Any, bias: Any, activation: str = "none", **options: Any) -> IntLayer:
    matrix = np.array(weights, object)
    return IntLayer(Rows.dense(matrix), np.array(bias, object), activation, bits=4096, **options)  # type: ignore[arg-type]


def random_layer(rng: random.Random, inputs: int, outputs: int, kind: str, most: int) -> IntLayer:
    if kind == "max":
        members = [[rng.randrange(inputs), *rng.choices(range(-1, inputs), k=3)] for _ in range(outputs)]
        empty = Rows(inputs, np.zeros(1, np.int64), NOTHING, NOTHING)
        return IntLayer(empty, NOTHING, "max", members=np.array(members))
    thin = rng.choice((0.3, 0.9))
    weights = [[rng.randint(-most, most) * (rng.random() < thin) for _ in range(inputs)] for _ in range(outputs)]
    if most > 9 and rng.random() < 0.2:  # scales far apart
        weights = [[w * rng.choice((1, 1 << 30)) for w in row] for row in weights]
    bias = [rng.randint(-2 * most, 2 * most) for _ in range(outputs)]
    if kind == "capped":
        return dense(weights, bias, "relu", cap=rng.randint(0, 3 * most))
    if kind == "leaky":
        return dense(weights, bias, kind, positive=rng.randint(1, 9), negative=rng.randint(-3, 12))
    if kind == "sign":
        return dense(weights, bias, kind, at_zero=rng.choice((-1, 0, 1)))
    if kind == "floor_shift":
        return dense(weights, bias, kind, shift=rng.randint(0, 6), low=rng.randint(-128, 0), high=rng.randint(1, 300))
    if kind == "requantise":
        multiplier = np.array([rng.randrange(1 << 30, 1 << 31) for _ in range(outputs)])
        shift = np.array([rng.randint(-7, 2) for _ in range(outputs)])
        rounding = rng.choice(("double", "single"))
        arithmetic = RequantiseLayer(multiplier, shift, rng.randint(-20, 20), -128, 127, rounding)
        return dense(weights, bias, kind, requantise=arithmetic)
    return dense(weights, bias, kind)


KINDS = ("none", "relu", "capped", "leaky", "sign", "floor_shift", "max", "requantise")


def random_network(rng: random.Random, inputs: int, kinds: tuple[str, ...]) -> IntNetwork:
    most = rng.choice((3, 9)) if "requantise" in kinds else rng.choice((3, 20, 127, 10**5, 1 << 40))
    widths = [inputs, *(rng.randint(1, 7) for _ in range(rng.randint(0, 3))), rng.randint(2, 5)]
    layers = []
    for before, after in itertools.pairwise(widths):
        last = len(layers) == len(widths) - 2
        kind = "none" if last and rng.random() < 0.7 else rng.choice(kinds)
        if kind == "requantise" and layers and layers[-1].activation != kind:
            kind = "floor_shift"  # the arithmetic is meant for 32-bit accumulators
        layers.append(random_layer(rng, before, after, kind, most))
    return IntNetwork(inputs, tuple(layers), widths[-1])


def bent_at(network: IntNetwork, point: list[int], rng: random.Random) -> IntNetwork:
    """The network with biases such that `point` lies on, or one step beside, every kink and every tie of scores."""
    layers: list[IntLayer] = []
    for layer in network.layers:
        if layer.members is None:
            linear = replace(layer, activation="none", cap=None, requantise=None)
            before = network_eval.point_scores(IntNetwork(network.inputs, (*layers, linear), 1), point)
            moved = [b - z + rng.choice((0, 0, 1, -1)) for b, z in zip(layer.bias.tolist(), before, strict=True)]
            layer = replace(layer, bias=np.array(moved, object))
        layers.append(layer)
    return replace(network, layers=tuple(layers))


def random_box(rng: random.Random, inputs: int) -> Box:
    widths = [rng.randint(1, 5) for _ in range(inputs)]
    while np.prod(widths) > 400:
        widths[rng.randrange(inputs)] = 1
    low = tuple(rng.choice((0, 0, 3, 100, 250)) for _ in range(inputs))
    return Box(low, tuple(a + w for a, w in zip(low, widths, strict=True)))


def all_points(box: Box) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(a, b) for a, b in zip(box.low, box.high, strict=True))))


def hard_case(seed: int) -> tuple[IntNetwork, Box, random.Random]:
    rng = random.Random(seed)
    kinds = rng.choice(
        (KINDS, ("relu",), ("relu", "max"), ("sign",), ("requantise", "relu", "floor_shift"), ("leaky",))
    )
    inputs = rng.randint(3, 8)
    network, box = random_network(rng, inputs, kinds), random_box(rng, inputs)
    if rng.random() < 0.7:
        network = bent_at(network, [rng.randrange(a, b) for a, b in zip(box.low, box.high, strict=True)], rng)
    return network, box, rng


def problem_of(network: IntNetwork, box: Box, queries: tuple[GridQuery, ...]) -> GridProblem:
    return GridProblem(box.high, network.outputs, network, Measure(), (GridCase(box, queries, ()),))


def label_queries(outputs: int, rng: random.Random) -> dict[str, tuple[GridQuery, set[int]]]:
    every = set(range(outputs))
    some = set(rng.sample(sorted(every), 2))
    found = {f"is {k}": (HasLabel((k,)), {k}) for k in every}
    found |= {f"not {k}": (Negation(HasLabel((k,))), every - {k}) for k in every}  # type: ignore[dict-item]
    found["some"] = (AnyOf(tuple(HasLabel((k,)) for k in sorted(some))), some)  # type: ignore[assignment]
    found["none"] = (AllOf((HasLabel((0,)), HasLabel((1,)))), set())  # type: ignore[assignment]
    found["all"] = (Always(True), every)  # type: ignore[assignment]
    return {name: (GridQuery(name, predicate), labels) for name, (predicate, labels) in found.items()}


# --- the engine ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("block", range(8))
def test_bounds_contain_the_truth(block: int) -> None:
    decided = 0
    for seed in range(25 * block, 25 * block + 25):
        network, box, rng = hard_case(seed)
        truth = Counter(network_eval.point_label(network, p) for p in all_points(box))
        queries = label_queries(network.outputs, rng)
        problem = problem_of(network, box, tuple(query for query, _ in queries.values()))
        case = problem.cases[0]
        assert ENGINE.refuses(problem, case) is None
        assert ENGINE.estimate(problem, case).seconds > 0
        counts = ENGINE.count(problem, case, Limits(), Progress())
        for name, (query, labels) in queries.items():
            count, want = counts[name], sum(truth[k] for k in labels)
            assert count.lower <= want <= count.upper, (seed, name)
            assert (count.guarantee is Guarantee.EXACT) == (count.lower == count.upper)
            decided += count.lower == count.upper
            if name in ("is 0", "some"):
                witness = ENGINE.witness(problem, case, query, Limits())
                assert witness is not None or 10 * count.lower < box.size, (seed, name)
                assert witness is None or witness in set(all_points(box))
                assert witness is None or network_eval.point_label(network, witness) in labels
        for k in range(network.outputs):
            low, high = interval_share(network, box, k)
            assert low <= Fraction(truth[k], box.size) <= high
    assert decided > 25


def test_whole_ball_of_a_wide_network_and_a_contested_one() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.integers(-127, 128, (16, 200)), rng.integers(-127, 128, (4, 16))
    network = IntNetwork(
        200,
        (
            IntLayer(Rows.dense(first), rng.integers(-9999, 9999, 16), "relu"),
            IntLayer(Rows.dense(second), np.zeros(4, np.int64)),
        ),
        4,
    )
    centre = rng.integers(5, 250, 200)
    found = network_eval.scores(network, centre[None, :])[0]
    best = int(found.argmax())
    for shift, radius in ((0, 1), (-1, 1), (-1, 4)):
        # With the shift the best score is only just the best.
        margin = int(found[best] - np.delete(found, best).max())
        bias = np.zeros(4, np.int64)
        bias[best] = shift * margin
        contested = replace(network, layers=(network.layers[0], replace(network.layers[1], bias=bias)))
        box = Box(tuple((centre - radius).tolist()), tuple((centre + radius + 1).tolist()))
        problem = problem_of(contested, box, (GridQuery("robust", HasLabel((best,))),))
        count = ENGINE.count(problem, problem.cases[0], Limits(), Progress())["robust"]
        if not shift:
            assert count.lower == count.upper == box.size == 3**200
            continue
        draws = 40_000
        points = rng.integers(np.array(box.low), np.array(box.high), (draws, 200))
        hits = int((network_eval.labels(contested, points) == best).sum())
        # Hoeffding: the sampled share is off by more than `slack` with probability 1e-9.
        slack = Fraction((np.log(2e9) / (2 * draws)) ** 0.5)
        assert Fraction(count.lower, box.size) <= Fraction(hits, draws) + slack
        assert Fraction(count.upper, box.size) >= Fraction(hits, draws) - slack
        assert 0 < count.lower < count.upper < box.size or radius == 4
        assert count.upper - count.lower < box.size // 2 or radius == 4
        assert count.guarantee is Guarantee.BOUNDS


def test_a_sparse_convolution_with_pooling() -> None:
    rng = np.random.default_rng(5)
    rows = [[(i + a) * 12 + j + b for a in range(3) for b in range(3)] for i in range(10) for j in range(10)]
    kernels = rng.integers(-9, 10, (4, 9))
    start = np.arange(0, 9 * 401, 9)
    columns = np.array([c for _ in range(4) for row in rows for c in row])
    values = np.repeat(kernels, 100, axis=0).ravel()
    windows = [
        [k * 100 + 2 * i * 10 + 2 * j + s for s in (0, 1, 10, 11)] for k in range(4) for i in range(5) for j in range(5)
    ]
    network = IntNetwork(
        144,
        (
            IntLayer(Rows(144, start, columns, values), np.repeat(rng.integers(-50, 50, 4), 100), "relu"),
            IntLayer(Rows(400, np.zeros(1, np.int64), NOTHING, NOTHING), NOTHING, "max", members=np.array(windows)),
            IntLayer(Rows.dense(rng.integers(-9, 10, (3, 100))), np.zeros(3, np.int64)),
        ),
        3,
    )
    assert not isinstance(chain_of(network).stages[1].weights, np.ndarray)
    centre = rng.integers(5, 250, 144)
    box = Box(tuple((centre - 3).tolist()), tuple((centre + 4).tolist()))
    points = rng.integers(np.array(box.low), np.array(box.high), (20_000, 144))
    labels, scores = network_eval.labels(network, points), network_eval.scores(network, points)
    queries = tuple(GridQuery(f"{k}", HasLabel((k,))) for k in range(3))
    problem = problem_of(network, box, queries)
    counts = ENGINE.count(problem, problem.cases[0], Limits(), Progress())
    for k in range(3):
        share, slack = Fraction(int((labels == k).sum()), 20_000), Fraction(25, 1000)  # Hoeffding at 1e-10
        assert Fraction(counts[f"{k}"].lower, box.size) <= share + slack
        assert Fraction(counts[f"{k}"].upper, box.size) >= share - slack
    chain = chain_of(network)
    low, high = (np.ldexp(end, chain.exponent) for end in interval_scores(chain, box))
    assert (low <= scores.min(axis=0)).all()
    assert (scores.max(axis=0) <= high).all()


def test_no_point_one_point_and_no_time() -> None:
    network, _, _ = hard_case(1)
    query = (GridQuery("zero", HasLabel((0,))),)
    n = network.inputs
    for box, want in ((Box((3,) * n, (3,) * n), 0), (Box((2,) * n, (3,) * n), None)):
        problem = GridProblem((9,) * n, network.outputs, network, Measure(), (GridCase(box, query, ()),))
        count = ENGINE.count(problem, problem.cases[0], Limits(), Progress())["zero"]
        truth = int(network_eval.point_label(network, box.low) == 0) if want is None else want
        assert (count.lower, count.upper, count.guarantee) == (truth, truth, Guarantee.EXACT)
    box = Box((0,) * n, (9,) * n)
    problem = problem_of(network, box, query)
    count = ENGINE.count(problem, problem.cases[0], Limits.starting_now(0.0), Progress())["zero"]
    assert count.guarantee is Guarantee.BOUNDS
    assert count.upper - count.lower == box.size - 1  # the centre's label is known
    assert "time limit" in count.note


def test_refusals() -> None:
    network, box, _ = hard_case(1)
    label = GridQuery("q", HasLabel((0,)))
    problem = problem_of(network, box, (label,))
    case = problem.cases[0]
    tree = GridTree((-1,), (0,), (0,), (0,), (0,), (0,))
    assert "trees" in (ENGINE.refuses(replace(problem, structure=tree), case) or "")
    ball = Ball(box, box.low, "l1", (1,) * network.inputs, 3)
    assert "l1" in (ENGINE.refuses(problem, replace(case, region=ball)) or "")
    weighted = replace(problem, measure=Measure("product", (None,) * network.inputs))
    assert "uniform" in (ENGINE.refuses(weighted, case) or "")
    wide = Box((0,) * network.inputs, (1 << 60,) * network.inputs)
    assert "2^50" in (ENGINE.refuses(problem, replace(case, region=wide)) or "")
    feature = next(f for f in range(network.inputs) if box.high[f] - box.low[f] > 1)
    mixed = AllOf((HasLabel((0,)), Within(feature, 0, box.low[feature] + 1)))
    assert "mixes" in (ENGINE.refuses(problem, replace(case, queries=(GridQuery("m", mixed),))) or "")
    scored = Sign("<", Score(0, -9, 9))
    assert "scores" in (ENGINE.refuses(problem, replace(case, queries=(GridQuery("s", scored),))) or "")
    # A condition on features that holds on the whole region is no hindrance.
    fine = AllOf((HasLabel((0,)), Sign("<=", Linear(((0, -1),), 0))))
    assert ENGINE.refuses(problem, replace(case, queries=(GridQuery("f", fine),))) is None
    capped = dense([[1]], [0], "relu", cap=(1 << 60) + 1)
    odd = problem_of(IntNetwork(1, (capped, dense([[1], [-1]], [0, 0])), 2), Box((0,), (3,)), (label,))
    assert "float64" in (ENGINE.refuses(odd, odd.cases[0]) or "")
    huge = IntNetwork(1, (dense([[1], [2]], [1 << 1100, 0]),), 2)
    assert "float64" in (ENGINE.refuses(replace(odd, structure=huge), odd.cases[0]) or "")


def test_ties_go_to_the_lower_label() -> None:
    tie = IntNetwork(2, (dense([[1, 2], [1, 2], [0, 0]], [5, 5, 0]),), 3)
    problem = problem_of(tie, Box((0, 0), (50, 50)), tuple(GridQuery(f"{k}", HasLabel((k,))) for k in range(3)))
    counts = ENGINE.count(problem, problem.cases[0], Limits(), Progress())
    # No rounding here: every score is a small integer.
    assert [(counts[f"{k}"].lower, counts[f"{k}"].upper) for k in range(3)] == [(2500, 2500), (0, 0), (0, 0)]


# --- affine forms --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("spread", [None, 3.0, 1.0])
def test_forms_hold_but_for_the_share_they_admit(spread: float | None) -> None:
    checked = 0
    for seed in range(1000, 1060):
        network, box, _ = hard_case(seed)
        chain = chain_of(network)
        forms = Forms(chain, affine_forms.Ball.of(box.low, box.high), spread)
        rows = np.eye(network.outputs) - np.roll(np.eye(network.outputs), 1, axis=1)
        coefficients, constants = forms.lower(rows)
        points = all_points(box)
        centre = [Fraction(a + b - 1, 2) for a, b in zip(box.low, box.high, strict=True)]
        broken = 0
        bounds = [
            ([Fraction(c) for c in row], Fraction(b))
            for row, b in zip(coefficients.tolist(), constants.tolist(), strict=True)
        ]
        for point in points[:: max(1, len(points) // 60)] if spread is None else points[:120]:
            scores = network_eval.point_scores(network, point)
            y = [p - c for p, c in zip(point, centre, strict=True)]
            bad = False
            for t, (row, constant) in enumerate(bounds):
                true = Fraction(scores[t] - scores[(t + 1) % len(scores)]) / Fraction(2) ** chain.exponent
                bad |= true < constant + sum(a * b for a, b in zip(row, y, strict=True))
            broken += bad
            checked += 1
        assert broken <= forms.failing * len(points), seed
    assert checked > 1000


def test_of_the_forms_of_a_split_one_always_holds() -> None:
    splits = 0
    for seed in range(2000, 2120):
        network, box, rng = hard_case(seed)
        if seed % 2:  # pieces with an error band
            inputs = network.inputs
            scores = dense([[rng.randint(-5, 5) for _ in range(4)] for _ in range(3)], [0] * 3)
            network = IntNetwork(inputs, (random_layer(rng, inputs, 4, "floor_shift", 9), scores), 3)
            network = bent_at(network, list(box.low), rng)
        chain = chain_of(network)
        forms = Forms(chain, affine_forms.Ball.of(box.low, box.high))
        row = np.zeros((1, network.outputs))
        row[0, 0], row[0, 1] = 1.0, -1.0
        neurons, weights = loosest(forms, row, 3)
        if not neurons:
            continue
        splits += 1
        coefficients, constants = split_forms(forms, row, neurons, weights)
        assert len(constants) == 2 ** len(neurons)
        centre = [Fraction(a + b - 1, 2) for a, b in zip(box.low, box.high, strict=True)]
        bounds = [
            ([Fraction(c) for c in line], Fraction(b))
            for line, b in zip(coefficients.tolist(), constants.tolist(), strict=True)
        ]
        for point in all_points(box)[::7]:
            scores = network_eval.point_scores(network, point)
            true = Fraction(scores[0] - scores[1]) / Fraction(2) ** chain.exponent
            y = [p - c for p, c in zip(point, centre, strict=True)]
            assert any(true >= b + sum(a * v for a, v in zip(line, y, strict=True)) for line, b in bounds), seed
    assert splits > 15


# --- tails of linear forms -----------------------------------------------------------------------------------------
def exact_tail(row: list[float], constant: float, low: tuple[int, ...], high: tuple[int, ...]) -> Fraction:
    """Share with constant + row·y ≤ 0, in rationals."""
    masses = {Fraction(constant): Fraction(1)}
    for a, first, stop in zip(row, low, high, strict=True):
        new: dict[Fraction, Fraction] = {}
        for value, mass in masses.items():
            for x in range(first, stop):
                key = value + Fraction(a) * (x - Fraction(first + stop - 1, 2))
                new[key] = new.get(key, Fraction(0)) + mass / (stop - first)
        masses = new
    return sum((mass for value, mass in masses.items() if value <= 0), Fraction(0))


@pytest.mark.parametrize("seed", range(60))
def test_tails_are_never_below_the_truth(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(1, 6)
    low = tuple(rng.randint(0, 9) for _ in range(n))
    high = tuple(a + rng.randint(1, 4) for a in low)
    mode = rng.randrange(4)
    if mode == 0:
        row = [rng.uniform(-1, 1) for _ in range(n)]
    elif mode == 1:  # scales far apart
        row = [rng.choice((-1, 1)) * 2.0 ** rng.randint(-60, 60) for _ in range(n)]
    elif mode == 2:  # many equal sums, so that the boundary carries mass
        row = [float(rng.choice((-3, -1, 0, 1, 2))) for _ in range(n)]
    else:  # just off the boundaries of 64 bins
        row = [(rng.randint(1, 8) + 0.5 + rng.choice((-1, 1)) * 2.0**-40) / 30 for _ in range(n)]
    y = [rng.randrange(a, b) - (a + b - 1) / 2 for a, b in zip(low, high, strict=True)]
    hit = -sum(a * v for a, v in zip(row, y, strict=True))
    for constant in (hit, float(np.nextafter(hit, 9e99)), float(np.nextafter(hit, -9e99)), hit + 0.1, -hit):
        truth = exact_tail(row, constant, low, high)
        ball = affine_forms.Ball.of(low, high)
        for bins in (64, 1 << 13):
            assert Fraction(linear_tails.binned_tail(np.array(row), constant, ball, bins)) >= truth
        variance = float((np.array(row) ** 2) @ ball.variance)
        least = constant - sum(abs(a) * (h - 1 - b) / 2 for a, b, h in zip(row, low, high, strict=True))
        found = linear_tails.gaussian_tails(
            np.array([constant]), np.array([variance**0.5 * (1 + 1e-12)]), np.array([least - 1e-9 * abs(least)])
        )
        assert Fraction(float(found[0])) >= truth


def test_a_wide_convolution_is_close() -> None:
    """150 inputs of 2 to 9 values, against the same sum over finer integers in exact counts."""
    rng = np.random.default_rng(7)
    steps = rng.integers(-30, 31, 150)
    counts = rng.choice([2, 3, 5, 6, 9], 150)
    table = [1]
    for q, m in zip(np.abs(steps).tolist(), counts.tolist(), strict=True):
        if q == 0:
            continue
        grown = np.zeros(len(table) + q * (m - 1), object)
        for k in range(m):
            grown[q * k : q * k + len(table)] += np.array(table, object)
        table = grown.tolist()
    total = sum(table)
    span = len(table) - 1  # sums are (2t − span)/2
    ball = affine_forms.Ball.of((0,) * 150, tuple(counts.tolist()))
    for limit in (-1500, -600, 0):
        truth = Fraction(sum(table[t] for t in range(len(table)) if 2 * t - span <= 2 * limit), total)
        scale = 0.001
        found = linear_tails.binned_tail(steps * scale, -limit * scale - 1e-9, ball)
        assert truth <= Fraction(found) <= truth * Fraction(102, 100) + Fraction(1, 10**9)


def test_inputs_of_a_large_prime_number_of_values_have_no_convolution() -> None:
    ball = affine_forms.Ball.of((0, 0), (1009, 3))
    assert linear_tails.binned_tail(np.array([1.0, 1.0]), 1.0, ball) == 1.0

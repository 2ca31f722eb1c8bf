"""Seeded random integer networks over small grids, and a plain-Python count of their points, for tests of engines."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from random_grids import points, random_predicate, random_region

from quantify.engines import logic
from quantify.ir import network_eval
from quantify.ir.domain import Measure
from quantify.ir.network import IntLayer, IntNetwork, RequantiseLayer, Rows
from quantify.ir.predicate import AllOf, AnyOf, HasLabel, Linear, Plus, Predicate, Score, Sign, Times
from quantify.ir.problem import GridCase, GridProblem, GridQuery

KINDS = ("none", "relu", "leaky", "sign", "floor_shift", "max", "requantise")
NO_ROWS = np.zeros(0, np.int64)
LARGE = 1 << 80
"""A bound on every score that the small weights can lead to."""


def random_layer(rng: random.Random, inputs: int, outputs: int, kind: str, most: int) -> IntLayer:
    """Weights up to `most`, a fifth of them 0."""
    if kind == "max":
        members = [[rng.randrange(inputs) if rng.random() < 0.8 else -1 for _ in range(3)] for _ in range(outputs)]
        for window in members:
            window[rng.randrange(3)] = rng.randrange(inputs)
        return IntLayer(
            Rows(inputs, np.zeros(1, np.int64), NO_ROWS, NO_ROWS), NO_ROWS, "max", members=np.array(members)
        )
    weights = [[rng.randint(-most, most) if rng.random() < 0.8 else 0 for _ in range(inputs)] for _ in range(outputs)]
    matrix = np.array(weights, object if most >> 62 else np.int64)
    bias = np.array([rng.randint(-2 * most, 2 * most) for _ in range(outputs)], matrix.dtype)
    extra: dict[str, Any] = {"bits": 64 if most < 1 << 30 else 500}
    if kind == "relu" and rng.random() < 0.4:
        extra["cap"] = rng.randint(0, 3 * most)
    if kind == "leaky":
        extra |= {"positive": rng.randint(1, 9), "negative": rng.randint(-3, 5)}
    if kind == "sign":
        extra["at_zero"] = rng.choice((-1, 0, 1))
    if kind == "floor_shift":
        extra |= {"shift": rng.randint(0, 9), "low": rng.randint(-128, 0), "high": rng.randint(1, 300)}
    if kind == "requantise":
        multiplier = np.array([rng.randrange(1 << 30, 1 << 31) for _ in range(outputs)])
        shift = np.array([rng.randint(-9, 2) for _ in range(outputs)])
        rounding = rng.choice(("double", "single"))
        extra["requantise"] = RequantiseLayer(multiplier, shift, rng.randint(-20, 20), -128, 127, rounding)
    return IntLayer(Rows.dense(matrix), bias, kind, **extra)  # type: ignore[arg-type]


def random_network(
    rng: random.Random, inputs: int, most: int | None = None, kinds: tuple[str, ...] = KINDS
) -> IntNetwork:
    """One to four layers, two to five scores."""
    depth = rng.randint(1, 4)
    widths = [inputs, *(rng.randint(1, 7) for _ in range(depth - 1)), rng.randint(2, 5)]
    layers = []
    for k in range(depth):
        kind = "none" if k == depth - 1 and rng.random() < 0.7 else rng.choice(kinds)
        largest = most or rng.choice((1, 3, 9, 127, 127, 1000, 40000, 10**6))
        layers.append(random_layer(rng, widths[k], widths[k + 1], kind, largest))
    return IntNetwork(inputs, tuple(layers), widths[-1])


def dense_network(n: int, hidden: int, seed: int, outputs: int = 2, most: int = 127) -> IntNetwork:
    """n-hidden-outputs with a ReLU, weights of 8 bits."""
    rng = np.random.default_rng(seed)

    def layer(rows: int, columns: int, activation: Any) -> IntLayer:
        weights = rng.integers(-most, most + 1, (rows, columns))
        return IntLayer(Rows.dense(weights), rng.integers(-4 * most, 4 * most + 1, rows), activation)

    return IntNetwork(n, (layer(hidden, n, "relu"), layer(outputs, hidden, "none")), outputs)


def score_predicate(rng: random.Random, outputs: int) -> Predicate:
    """Arithmetic over two scores, within 64 bits or not."""
    wide = rng.random() < 0.5
    most = LARGE >> 20 if wide else 1 << 62

    def score() -> Score:
        return Score(rng.randrange(outputs), -most, most - 1)

    number = Plus((score(), Times(score(), Linear((), -1)), Linear(((0, 7),), rng.randint(-9, 9))))
    return AnyOf((Sign(rng.choice(("<", "<=", "==")), number), AllOf((HasLabel((0,)), Sign("<", score())))))


def network_problem(
    seed: int, *, scores: bool = True, most: int | None = None, sizes: tuple[int, ...] = (), points_at_most: int = 1000
) -> GridProblem:
    """A random network over a random region with label counts, or with predicates over features, label and scores."""
    rng = random.Random(seed)
    grid = sizes
    while not grid or (not sizes and int(np.prod(grid)) > points_at_most):
        grid = tuple(rng.choice((1, 2, 2, 2, 3, 4, 5, 9)) for _ in range(rng.randint(1, 7)))
    network = random_network(rng, len(grid), most)
    mode = rng.randrange(3)
    predicates: list[Predicate] = [HasLabel((k,)) for k in range(network.outputs)]
    if mode:
        predicates = [random_predicate(rng, grid, network.outputs, rng.randint(1, 3)) for _ in range(2)]
    if mode == 2 and scores:
        predicates.append(score_predicate(rng, network.outputs))
    region = random_region(rng, grid, rng.choice(("domain", "domain", "box", "l0", "l1")))
    case = GridCase(region, tuple(GridQuery(f"q{k}", p) for k, p in enumerate(predicates)), ())
    return GridProblem(grid, network.outputs, network, Measure(), (case,))


def counted_by_python(problem: GridProblem) -> dict[str, int]:
    """Points per query of the first case, one at a time, in Python's integers."""
    case, network = problem.cases[0], problem.network
    assert network is not None
    totals = {query.name: 0 for query in case.queries}
    for point in points(case.region):
        scores = network_eval.point_scores(network, point)
        label = scores.index(max(scores))
        for query in case.queries:
            totals[query.name] += logic.holds(query.predicate, point, label, scores)
    return totals

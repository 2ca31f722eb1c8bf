"""`branch` where doubles are at their worst, against Python's integers at every point.

Weights of 2^0 to 2^60 side by side, arguments and margins of −1, 0 and 1 at corners and on inputs of one or two
positions, neurons that occur twice and cancel, layers that are dead.
"""

from __future__ import annotations

import functools
import itertools
import random
from typing import Any

import numpy as np
import pytest
from random_networks import int_layer, network_problem

from quantify.engines.branch import BranchEngine
from quantify.engines.branch_plan import Tuning
from quantify.ir.network import IntLayer, IntNetwork
from quantify.resources import Limits, Progress

Matrix = list[list[int]]
BITS = 60
SEEDS = range(84)
SHAPES = (
    (1, 2, 5_000),
    (2, 2, 1_800),
    (3, 2, 30, 40),
    (1, 60, 1, 80),
    (2, 1, 17, 2, 90),
    (7_000,),
    (1, 2, 3, 1, 30, 40),
)
WAYS = {
    "parts": Tuning(),
    "half-spaces and boxes": Tuning(leaf_points=8, reduced_work=0),
    "volumes": Tuning(leaf_points=1, loop_work=0, credit_points=1, local_points=0, descent_points=64),
}


def magnitude(rng: random.Random, zero: float = 0.3) -> int:
    return 0 if rng.random() < zero else rng.choice((1, -1)) * ((1 << rng.randint(0, BITS)) + rng.randint(-1, 1))


def hidden_layer(rng: random.Random, before: Any) -> IntLayer:
    """Neurons over the values (points × neurons) before them; each argument is −1, 0 or 1 at some point."""
    inputs = before.shape[1]
    few = [k for k in range(inputs) if len(set(before[:, k].tolist())) in (2, 3)]
    weights: Matrix = []
    bias: list[int] = []
    for _ in range(rng.randint(2, 5)):
        kind = rng.choice(("step", "step", "ramp", "ramp", "mixed", "twin", "dead"))
        if kind == "twin" and weights:
            weights.append(weights[-1])
            bias.append(bias[-1] + rng.choice((0, 0, 1, -1)))
            continue
        row = [0] * inputs
        if kind == "step":
            row[rng.choice(few if few and rng.random() < 0.7 else range(inputs))] = magnitude(rng, 0)
        elif kind == "ramp":
            row = [rng.randint(-3, 3) for _ in range(inputs)]
        elif kind == "mixed":
            row = [magnitude(rng) for _ in range(inputs)]
        anchor = before[rng.randrange(len(before))]
        offset = -(1 << rng.randint(0, BITS)) if kind == "dead" else rng.choice((-1, -1, 0, 1))
        weights.append(row)
        bias.append(offset - int(anchor @ np.array(row, object)))
    return int_layer(weights, bias, "relu")


def last_layer(rng: random.Random, before: Any) -> IntLayer:
    """Scores that differ by −1, 0 or 1 at some point; some weights cancel, some are all there is."""
    inputs = before.shape[1]
    small = rng.random() < 0.6
    weights = [
        [rng.randint(-2, 2) if small else magnitude(rng) for _ in range(inputs)] for _ in range(rng.randint(2, 5))
    ]
    if rng.random() < 0.3:
        weights = [[w + rng.randint(-1, 1) for w in weights[0]] for _ in weights]
    anchor = before[rng.randrange(len(before))]
    return int_layer(weights, [rng.choice((-1, 0, 0, 1)) - int(anchor @ np.array(row, object)) for row in weights])


def values_of(layer: IntLayer, before: Any) -> Any:
    z = before @ np.array(layer.rows.to_dense().tolist(), object).T + np.array([int(b) for b in layer.bias], object)
    return np.maximum(z, 0) if layer.activation == "relu" else z


def draw(seed: int) -> tuple[IntNetwork, tuple[int, ...], dict[str, tuple[int, int]]]:
    """A network, the positions of its inputs, and the points of each label by Python's integers."""
    rng = random.Random(seed)
    sizes = SHAPES[seed % len(SHAPES)]
    values = (
        np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1).reshape(-1, len(sizes)).astype(object)
    )
    layers = []
    for _ in range(rng.choice((1, 1, 2))):
        layers.append(hidden_layer(rng, values))
        values = values_of(layers[-1], values)
    layers.append(last_layer(rng, values))
    scores = values_of(layers[-1], values)
    first = functools.reduce(
        lambda best, label: np.where(scores[:, label] > scores[np.arange(len(scores)), best], label, best),
        range(1, scores.shape[1]), np.zeros(len(scores), np.int64),
    )  # fmt: skip
    counts = np.bincount(first, minlength=scores.shape[1])
    network = IntNetwork(len(sizes), tuple(layers), scores.shape[1])
    return network, sizes, {str(label): (int(n), int(n)) for label, n in enumerate(counts)}


@pytest.mark.parametrize("seed", SEEDS)
def test_magnitudes_apart(seed: int) -> None:
    network, sizes, expected = draw(seed)
    problem = network_problem(network, sizes)
    for isa in ("portable", ""):
        for way, tuning in WAYS.items():
            for record in (False, True) if way == "parts" else (False,):
                engine = BranchEngine(isa=isa, tuning=tuning)
                outcome = engine.run(problem, problem.cases[0], Limits(), Progress(), record=record)
                assert {name: (c.lower, c.upper) for name, c in outcome.counts.items()} == expected, (isa, way, record)


def test_the_draws_are_of_every_kind() -> None:
    """Several labels win somewhere, twins and dead neurons occur, and weights reach 2^59."""
    drawn = [draw(seed)[::2] for seed in SEEDS]
    assert sum(sum(n > 0 for n, _ in expected.values()) > 1 for _, expected in drawn) > len(SEEDS) // 2
    layers = [layer for network, _ in drawn for layer in network.layers[:-1]]
    rows = [layer.rows.to_dense().tolist() for layer in layers]
    assert any(a == b for matrix in rows for a, b in itertools.pairwise(matrix))
    assert max(abs(int(w)) for matrix in rows for row in matrix for w in row).bit_length() >= BITS - 1

"""Boxes that `branch` counts by what their stable neurons leave of the network, against point-by-point counts."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from random_networks import int_layer, network_problem, plain_count, random_network

from quantify.engines.branch import BranchEngine
from quantify.engines.branch_plan import Tuning
from quantify.ir import network_eval
from quantify.ir.network import IntNetwork
from quantify.resources import Limits, Progress

REDUCED = Tuning(leaf_points=1, reduced_work=1e9, loop_work=0, local_points=0, descent_points=0)
"""Every box with few unstable neurons is counted by what is left of its network, whatever its size."""


@pytest.mark.parametrize("isa", ["portable", ""])
@pytest.mark.parametrize("seed", range(24))
def test_boxes_counted_by_what_their_stable_neurons_leave(seed, isa):
    rng = random.Random(seed)
    sizes = ((40, 33), (1, 17, 9, 11), (5, 7, 6, 3, 2), (300, 4))[seed % 4]
    kinds = ("relu", "relu", "leaky", "none") if seed % 3 else ("relu", "capped", "sign", "floor_shift")
    labels = rng.randint(2, 6)
    # Small weights make ties common; they go to the lower label.
    network = random_network(rng, len(sizes), labels, [rng.randint(1, 4) for _ in range(seed % 4)], kinds, 3, 12)
    problem = network_problem(network, sizes)
    expected = plain_count(problem, problem.cases[0])
    outcome = BranchEngine(tuning=REDUCED, isa=isa).run(problem, problem.cases[0], Limits(), Progress())
    assert {name: c.lower for name, c in outcome.counts.items()} == expected
    assert outcome.open_share == 0
    if seed % 3:
        assert outcome.work["boxes"] == 1, "the whole region was small enough"


@pytest.mark.parametrize("isa", ["portable", ""])
@pytest.mark.parametrize("bits", [20, 45, 70])
def test_rounded_weights_leave_points_in_doubt_to_others(bits, isa):
    rng = random.Random(bits)
    for labels in (2, 4):
        # Rows that differ in their last bit: margins far below what doubles of such sums can tell.
        network = random_network(rng, 3, labels, [3, 3], ("relu", "leaky"), 1 << bits, 1 << (bits + 3))
        last = network.layers[-1]
        first = last.rows.to_dense()[0].tolist()
        near = [[w + (k and rng.randint(-1, 1)) for w in first] for k in range(labels)]
        close = int_layer(near, [int(last.bias[0])] * labels)
        for layers in (network.layers, (*network.layers[:-1], close)):
            problem = network_problem(IntNetwork(3, layers, labels), (9, 8, 7))
            expected = plain_count(problem, problem.cases[0])
            outcome = BranchEngine(tuning=REDUCED, isa=isa).run(problem, problem.cases[0], Limits(), Progress())
            assert {name: (c.lower, c.upper) for name, c in outcome.counts.items()} == {
                name: (count, count) for name, count in expected.items()
            }


DESCENT = Tuning(leaf_points=1, loop_work=0, local_points=0, descent_points=1e9)
"""Every box with few unstable neurons is split by what is left of its network until it is counted."""


def every_label(network, sizes):
    """Points per label, by evaluating the network everywhere with NumPy."""
    grid = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1).reshape(-1, len(sizes))
    found = np.bincount(network_eval.labels(network, grid), minlength=network.outputs)
    return {str(label): (int(n), int(n)) for label, n in enumerate(found)}


def ends_of(outcome):
    return {name: (count.lower, count.upper) for name, count in outcome.counts.items()}


@pytest.mark.parametrize("isa", ["portable", ""])
@pytest.mark.parametrize("seed", range(30))
def test_descents_count_every_point(seed, isa):
    rng = random.Random(seed)
    sizes = ((160, 150), (31, 30, 29), (1, 14, 13, 12, 11), (8, 7, 9, 8, 7), (3, 5, 4, 6, 7, 5), (40_000,))[seed % 6]
    kinds = ("relu", "leaky", "none") if seed % 4 == 3 else ("relu",)
    weight = (2, 9, 127, 1 << 18)[seed // 6 % 4]  # small ones make ties common
    hidden = [rng.randint(1, 7) for _ in range(seed % 5)]
    network = random_network(rng, len(sizes), rng.randint(2, 6), hidden, kinds, weight, weight * 40)
    problem = network_problem(network, sizes)
    outcome = BranchEngine(tuning=DESCENT, isa=isa).run(problem, problem.cases[0], Limits(), Progress())
    assert ends_of(outcome) == every_label(network, sizes)
    assert outcome.work["boxes"] == 1, "the whole region is one descent"


@pytest.mark.parametrize("by", [3, -3])
@pytest.mark.parametrize("slope", [1, -1])
@pytest.mark.parametrize("kink", [2, -2, 7])
def test_lines_with_a_kink_are_counted_from_both_ends(by, slope, kink):
    # Second score: slope x + 5 y - z + c + by max(kink x - 3 y + 2 z - 25, 0); the first is 0. Both pieces' directions
    # along x agree or not, and the larger or the smaller of them counts.
    sizes = (64, 8, 9)
    hidden = int_layer([[1, 0, 0], [0, 1, 0], [0, 0, 1], [kink, -3, 2]], [0, 0, 0, -25], "relu")
    for constant in (-70, -20, 0, 35):
        scores = int_layer([[0, 0, 0, 0], [slope, 5, -1, by]], [0, constant])
        network = IntNetwork(3, (hidden, scores), 2)
        problem = network_problem(network, sizes)
        outcome = BranchEngine(tuning=DESCENT).run(problem, problem.cases[0], Limits(), Progress())
        assert ends_of(outcome) == every_label(network, sizes)


@pytest.mark.parametrize("isa", ["portable", ""])
@pytest.mark.parametrize("bits", [25, 45, 70])
def test_descents_leave_points_in_doubt_to_others(bits, isa):
    rng = random.Random(bits)
    for labels in (2, 4):
        network = random_network(rng, 3, labels, [3, 3], ("relu", "leaky"), 1 << bits, 1 << (bits + 4))
        first = network.layers[-1].rows.to_dense()[0].tolist()
        near = [[w + (k and rng.randint(-1, 1)) for w in first] for k in range(labels)]
        close = int_layer(near, [int(network.layers[-1].bias[0])] * labels)
        for layers in (network.layers, (*network.layers[:-1], close)):
            problem = network_problem(IntNetwork(3, layers, labels), (14, 13, 12))
            outcome = BranchEngine(tuning=DESCENT, isa=isa).run(problem, problem.cases[0], Limits(), Progress())
            assert ends_of(outcome) == every_label(problem.network, (14, 13, 12))


@pytest.mark.parametrize("isa", ["portable", ""])
@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_sketches_of_waiting_boxes_hold_the_truth(seed, levels, isa):
    rng = random.Random(seed)
    sizes = ((60, 50, 40), (18, 17, 16, 15), (12, 11, 10, 9, 8), (300, 200), (9, 8, 9, 8, 5, 4), (5, 4, 4, 5, 4, 4, 5))[
        seed
    ]
    network = random_network(rng, len(sizes), 2 + seed % 4, [5, 4][: seed % 3], ("relu",), 30, 900)
    problem = network_problem(network, sizes)
    truth = every_label(network, sizes)
    for credit_points, gap in ((2, Fraction(9, 10)), (2, Fraction(1, 2)), (1000, Fraction(1, 4)), (2, Fraction(1, 50))):
        tuning = Tuning(
            leaf_points=1, loop_work=0, local_points=0, descent_points=0, reduced_work=1, sketch_levels=levels,
            credit_points=credit_points,
        )  # fmt: skip
        outcome = BranchEngine(gap, tuning=tuning, isa=isa).run(problem, problem.cases[0], Limits(), Progress())
        assert outcome.open_share <= gap
        for name, (lower, upper) in ends_of(outcome).items():
            assert lower <= truth[name][0] <= upper


def test_a_sketch_of_a_wide_half_space_is_nearly_all_of_it():
    """One affine margin on 2^60 points: half of them by symmetry, and the first sketch knows that to a thousandth."""
    width = 1 << 12
    rows = [[0] * 5, [7, -7, 3, -3, 0]]
    network = IntNetwork(5, (int_layer(rows, [0, 0]),), 2)
    problem = network_problem(network, (width,) * 5)
    tuning = Tuning(loop_work=0, descent_points=0)
    limits = Limits.starting_now(0.0)
    outcome = BranchEngine(tuning=tuning).run(problem, problem.cases[0], limits, Progress())
    half = Fraction(width**5, 2)
    for name in "01":
        count = outcome.counts[name]
        assert count.lower <= half * (1 + Fraction(1, width)), "ties, a thousandth of all, go to the first label"
        assert count.upper >= half * (1 - Fraction(1, width))
    assert outcome.open_share < Fraction(1, 100)
    assert math.prod(problem.sizes) == 1 << 60

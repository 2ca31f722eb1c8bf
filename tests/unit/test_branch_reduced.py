"""Boxes that `branch` counts by what their stable neurons leave of the network, against point-by-point counts."""

import random

import pytest
from random_networks import int_layer, network_problem, plain_count, random_network

from quantify.engines.branch import BranchEngine
from quantify.engines.branch_plan import Tuning
from quantify.ir.network import IntNetwork
from quantify.resources import Limits, Progress

REDUCED = Tuning(leaf_points=1, reduced_work=1e9, loop_work=0, local_points=0)
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

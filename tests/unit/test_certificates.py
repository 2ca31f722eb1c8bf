"""Certificates of `branch`: they verify, and their counts are those of enumeration."""

import itertools
import random

import numpy as np
import pytest
from certificate_trees import ENGINES, any_problem, contained, exactly, grown, proven, recorded, relu_problem
from random_networks import int_layer, network_problem, plain_count, random_network

from quantify.engines.branch import BranchEngine
from quantify.engines.branch_plan import Tuning
from quantify.errors import UndecidedError
from quantify.evidence.certificates import check as checking
from quantify.evidence.certificates import forms, proofs
from quantify.evidence.certificates.check import RefutedError, check
from quantify.ir.network import IntNetwork
from quantify.resources import Limits, Progress


@pytest.fixture
def in_whole_numbers(monkeypatch):
    """No leaf is proven in words."""
    monkeypatch.setattr(forms, "FEWEST", 1000)


@pytest.mark.parametrize("seed", range(60))
def test_relu_networks_at_16_levels_are_certified(seed):
    problem = relu_problem(seed, ((16, 16), (16, 16, 16), (16, 16, 16, 16))[seed % 3])
    grid = np.stack([g.ravel() for g in np.meshgrid(*map(np.arange, problem.sizes), indexing="ij")], axis=1)
    for layer in problem.network.layers:
        grid = grid @ layer.rows.to_dense().T + layer.bias
        grid = np.maximum(grid, 0) if layer.activation == "relu" else grid
    expected = exactly({str(k): int((grid.argmax(axis=1) == k).sum()) for k in range(problem.labels)})
    for engine in ENGINES[: 1 + (seed % 3 < 2)]:
        stream, counts = recorded(problem, engine)
        assert counts == expected
        assert proven(problem, stream).counts == expected


@pytest.mark.parametrize("seed", range(45))
def test_every_activation_and_predicate_is_certified(seed):
    problem = any_problem(seed)
    expected = exactly(plain_count(problem, problem.cases[0]))
    for engine in ENGINES:
        stream, counts = recorded(problem, engine)
        assert counts == expected
        assert proven(problem, stream, 1 + seed * 7).counts == expected


@pytest.mark.parametrize("seed", range(15))
def test_whole_numbers_prove_what_words_prove(seed, in_whole_numbers):
    problem = any_problem(seed)
    stream, counts = recorded(problem, ENGINES[seed % 3])
    found = proven(problem, stream)
    assert found.counts == counts
    if len(problem.network.layers) > 1:  # else there may be nothing to sum
        assert found.exact == found.leaves["decided"] + found.leaves["half-space"]


@pytest.mark.parametrize("bits", [24, 40, 60])
@pytest.mark.parametrize("seed", range(3))
def test_weights_of_any_size_are_certified(seed, bits):
    rng = random.Random(seed)
    kinds = ("relu", "leaky", "capped", "sign", "floor_shift")
    network = random_network(rng, 3, 3, [4, 4, 3, 3, 3][: 2 + seed], kinds[: 2 + seed], 1 << bits, 1 << (bits + 4))
    problem = network_problem(network, (6, 7, 5))
    for engine in ENGINES:
        stream, counts = recorded(problem, engine)
        assert proven(problem, stream).counts == counts == exactly(plain_count(problem, problem.cases[0]))


@pytest.mark.parametrize("bits", [30, 46, 47, 48, 60, 64, 80])
def test_slopes_of_any_size_give_bounds_that_hold(bits):
    # With 16 bits more, 2^47 is one past the largest word.
    steep = int_layer([[3, -2], [-1, 1]], [-4, 1], "leaky", positive=1 << bits, negative=1)
    network = IntNetwork(2, (steep, int_layer([[1, -1], [-1, 2]], [0, 0])), 2)
    for chord, line in itertools.product((-1, 0, 40000, 65536), (0, 1)):
        assert contained(network, [0, 0], [4, 5], [chord] * 4, [line] * 4, False)
    problem = network_problem(network, (6, 7))
    expected = exactly(plain_count(problem, problem.cases[0]))
    stream = grown(problem, problem.cases[0].region, 2, random.Random(bits))
    assert proven(problem, stream).counts == expected
    stream, counts = recorded(problem)
    assert proven(problem, stream).counts == counts == expected


@pytest.mark.parametrize("seed", range(12))
def test_large_enumerated_leaves_are_certified(seed, monkeypatch):
    """Nothing but points: leaves of a thousand and more, folded where few neurons bend, and not where many do."""
    problem = relu_problem(seed, (16, 16, 16), [4, 3] if seed % 2 else None)
    expected = exactly(plain_count(problem, problem.cases[0]))
    for halves in range(4):
        stream = b"\x41"
        for k in range(halves):
            stream = bytes([k]) + b"\x08" + stream + b"\x41"
        for few in (8, 0):
            monkeypatch.setattr(proofs, "FEW_UNSTABLE", few)
            found = proven(problem, stream)
            assert found.counts == expected
            assert found.points == 16**3


def test_near_ties_need_whole_numbers():
    big = 1 << 70
    first = int_layer([[big, 0], [big, 1]], [0, 0], "relu")
    last = int_layer([[-1, 1], [0, 0], [0, 0]], [0, 1, 1])
    problem = network_problem(IntNetwork(2, (first, last), 3), (9, 9))
    # Score 0 is the second input, after numbers of 74 bits cancel: 0 wins from 1 on, ties included.
    stream = b"\x01\x01" + b"\x40\x01\xff\x01\x00" + b"\x40\xff\x00\x00\x00"
    found = proven(problem, stream)
    assert found.counts == exactly({"0": 72, "1": 9, "2": 0})
    assert found.exact == 2


def test_workers_agree_and_time_is_up(monkeypatch):
    problem = relu_problem(1, (16, 16, 16), [9, 9])
    stream, counts = recorded(problem, ENGINES[2])
    blocks = [stream[i : i + 64] for i in range(0, len(stream), 64)]
    alone = check(problem, problem.cases[0], blocks, len(stream), Limits(), Progress())
    monkeypatch.setattr(checking, "LARGE", 0)
    found = check(problem, problem.cases[0], blocks, len(stream), Limits(jobs=2), Progress())
    assert (found.counts, found.leaves, found.points) == (counts, alone.leaves, alone.points)
    with pytest.raises(RefutedError, match="outside its box"):
        check(problem, problem.cases[0], [b"\x00\x00"], 2, Limits(jobs=2), Progress())
    with pytest.raises(RefutedError, match="not proven"):
        check(problem, problem.cases[0], [b"\x40\xff" + bytes(problem.labels)], 1, Limits(jobs=2), Progress())
    with pytest.raises(UndecidedError, match="time was up"):
        check(problem, problem.cases[0], blocks, len(stream), Limits.starting_now(0.0), Progress())


def test_a_run_cut_short_proves_what_its_leaves_prove():
    # The time is up after one round of boxes; what the volumes of parts of open boxes prove is not in the tree.
    network = IntNetwork(3, (int_layer([[7, -3, 2], [0, 0, 0]], [-90, 0]),), 2)
    problem = network_problem(network, (128, 128, 128))
    for local in (0, 1 << 20):
        engine = BranchEngine(tuning=Tuning(closed_form=False, credit_points=1, local_points=local))
        outcome = engine.run(problem, problem.cases[0], Limits.starting_now(0.0), Progress(), record=True)
        found = proven(problem, outcome.record.stream)
        assert found.leaves["open"] > 0
        assert found.counts == outcome.proven
        for name, count in outcome.counts.items():
            assert found.counts[name][0] < count.lower <= count.upper < found.counts[name][1]

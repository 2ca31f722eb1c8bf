"""Signs behind a box against enumeration and exact arithmetic: patterns, zeros that never come, linear programmes."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from quantify.engines.affine_forms import Ball
from quantify.engines.margins import MarginsEngine
from quantify.engines.sign_patterns import Patterns, most_share
from quantify.engines.stages import chain_of
from quantify.ir import network_eval
from quantify.ir.count import Guarantee
from quantify.ir.domain import Measure
from quantify.ir.network import IntLayer, IntNetwork, Rows
from quantify.ir.predicate import HasLabel
from quantify.ir.problem import Box, GridCase, GridProblem, GridQuery
from quantify.resources import Limits, Progress


def layer(weights: Any, bias: Any, activation: str = "none", at_zero: int = 1) -> IntLayer:
    matrix, shift = np.array(weights, object), np.array(bias, object)
    return IntLayer(Rows.dense(matrix), shift, activation, at_zero=at_zero, bits=64)  # type: ignore[arg-type]


def binary_network(rng: random.Random, inputs: int, centre: list[int]) -> IntNetwork:
    """±1 or ternary weights, one or two layers of signs; sums near 0 at the centre, 0 itself among them."""
    layers = []
    widths = [inputs, *(rng.randint(2, 6) for _ in range(rng.randint(1, 2))), rng.randint(2, 4)]
    values = centre
    for before, after in itertools.pairwise(widths):
        choices = rng.choice(((-1, 1), (-1, 0, 1), (-3, -2, 2, 4)))
        unit = rng.choice((1, 2, 6))
        weights = [[unit * rng.choice(choices) for _ in range(before)] for _ in range(after)]
        sums = [sum(w * v for w, v in zip(row, values, strict=True)) for row in weights]
        bias = [rng.randint(-6, 6) - s for s in sums]
        last = len(layers) == len(widths) - 2
        layers.append(layer(weights, bias, "none" if last else "sign", rng.choice((-1, 0, 0, 1))))
        values = network_eval.point_scores(IntNetwork(inputs, tuple(layers), after), centre)
    return IntNetwork(inputs, tuple(layers), widths[-1])


@pytest.mark.parametrize("block", range(4))
def test_bounds_contain_the_truth_and_are_close(block: int) -> None:
    open_shares = []
    for seed in range(20 * block, 20 * block + 20):
        rng = random.Random(seed)
        inputs = rng.randint(3, 6)
        low = [rng.randint(0, 9) for _ in range(inputs)]
        high = [a + rng.randint(1, 4) for a in low]
        network = binary_network(rng, inputs, [(a + b - 1) // 2 for a, b in zip(low, high, strict=True)])
        box = Box(tuple(low), tuple(high))
        points = itertools.product(*(range(a, b) for a, b in zip(low, high, strict=True)))
        truth = Counter(network_eval.point_label(network, point) for point in points)
        found = Patterns(network, chain_of(network), Ball.of(low, high), 0, Limits())
        assert found.failing <= Fraction(2) ** -44
        every = frozenset(range(network.outputs))
        for size in range(1, network.outputs):
            for wanted in map(frozenset, itertools.combinations(sorted(every), size)):
                share = Fraction(sum(truth[k] for k in wanted), box.size)
                least, most = found.lower(wanted, network.outputs), 1 - found.lower(every - wanted, network.outputs)
                assert least <= share <= most, (seed, wanted)
                open_shares.append(most - least)
    # Signs of sums near 0 on tiny boxes are as dependent as can be: a good part is still decided.
    assert sum(share < Fraction(1, 10**6) for share in open_shares) * 3 > len(open_shares)


def test_one_point_among_three_to_the_hundredth() -> None:
    """The sign differs in one corner alone, which no sum in float64 beside a share of 1 would show."""
    ones = layer([[1] * 100, [0] * 100], [-199, 1], "sign", at_zero=-1)
    network = IntNetwork(100, (ones, layer([[-1, 0], [1, 0]], [0, 0])), 2)
    box = Box((0,) * 100, (3,) * 100)
    queries = tuple(GridQuery(str(k), HasLabel((k,))) for k in range(2))
    case = GridCase(box, queries, ())
    problem = GridProblem(box.high, 2, network, Measure(), (case,))
    counts = MarginsEngine().count(problem, case, Limits(), Progress())
    assert counts["1"].lower <= 1 <= counts["1"].upper
    assert counts["0"].lower <= box.size - 1 <= counts["0"].upper
    assert counts["0"].guarantee is Guarantee.BOUNDS
    assert Fraction(counts["1"].upper, box.size) < Fraction(1, 10**12)


def test_a_binary_network_of_hundreds_of_inputs() -> None:
    """One contested neuron: its share is known from the binomial distribution."""
    rng = np.random.default_rng(0)
    weights = rng.choice([-1, 1], (8, 300))
    centre = rng.integers(5, 250, 300)
    sums = weights @ centre
    far = np.where(np.arange(8) % 2 == 0, 500, -500)
    bias = far - sums
    bias[0] = -sums[0] + 10
    # The scores are the sign of neuron 0, weighed so that the others never turn it over.
    scores = np.ones((2, 8), np.int64)
    scores[0, 0], scores[1, 0] = 20, -20
    network = IntNetwork(300, (layer(weights, bias, "sign", at_zero=0), layer(scores, [0, 0])), 2)
    box = Box(tuple((centre - 1).tolist()), tuple((centre + 2).tolist()))
    # z₀ = 10 + a sum of 300 uniform values of −1, 0, 1; label 1 where it is negative (0 gives equal scores: label 0).
    ways = [1]
    for _ in range(300):
        ways = [sum(ways[i - k] for k in range(3) if 0 <= i - k < len(ways)) for i in range(len(ways) + 2)]
    truth = Fraction(sum(ways[t] for t in range(300 - 10)), 3**300)
    found = Patterns(network, chain_of(network), Ball.of(box.low, box.high), 0, Limits())
    least, most = found.lower(frozenset({1}), 2), 1 - found.lower(frozenset({0}), 2)
    assert least <= truth <= most
    # The chance of z₀ = 0 is only known as the rest of two other chances.
    assert most - least < Fraction(1, 10**6)


@pytest.mark.parametrize("odd", [False, True])
def test_signs_that_are_never_zero_have_two_pieces(odd: bool) -> None:
    united = 0
    values = np.array(list(itertools.product((-1, 1) if odd else range(-9, 10), repeat=3)))
    for seed in range(60):
        rng = random.Random(seed)
        unit = rng.choice((1, 2, 3, 4))
        weights = [[unit * rng.randint(-2, 2) for _ in range(3)] for _ in range(3)]
        bias = [rng.randint(-5, 5) for _ in range(3)]
        signs = layer(weights, bias, "sign", at_zero=0)
        before = (layer(np.eye(3, dtype=int), [0] * 3, "sign"),) if odd else ()
        chain = chain_of(IntNetwork(3, (*before, signs), 3))
        for row in range(3):
            zero = bool((values @ weights[row] + bias[row] == 0).any())
            two = bool(np.isinf(chain.stages[-1].kink[1, row]))
            assert not (zero and two), (seed, row)
            united += two
    assert united > 60


def test_the_programme_bounds_every_distribution() -> None:
    """Against random distributions, of which events have the shares that they have."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        atoms = int(rng.integers(2, 12))
        events = rng.random((int(rng.integers(1, 8)), atoms)) < 0.5
        weights = [int(w) for w in rng.integers(0, 50, atoms) ** 2]
        total = sum(weights) or 1
        chosen = rng.random(atoms) < 0.5
        shares = [Fraction(sum(w for w, e in zip(weights, event, strict=True) if e), total) for event in events]
        above = [float(np.nextafter(float(share), 2.0)) for share in shares]
        truth = Fraction(sum(w for w, c in zip(weights, chosen, strict=True) if c), total)
        assert truth <= most_share(chosen, list(zip(events, above, strict=True))) <= 1


def test_the_programme_is_exact_for_one_event_and_for_its_complement() -> None:
    atoms = np.array(list(itertools.product((False, True), repeat=3)))
    events = [(atoms[:, k], share) for k, share in enumerate((0.25, 0.5, 0.125))]
    one, both = most_share(atoms[:, 0], events), most_share(atoms[:, 0] & atoms[:, 1], events)
    either = most_share(atoms[:, 0] | atoms[:, 2], events)
    near = Fraction(1, 10**9)
    assert abs(one - Fraction(1, 4)) < near
    assert abs(both - Fraction(1, 4)) < near
    assert abs(either - Fraction(3, 8)) < near

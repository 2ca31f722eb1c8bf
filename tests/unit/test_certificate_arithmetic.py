"""The arithmetic of the checker: bounds contain, sums and half-spaces are exact, predicates are never guessed."""

import itertools
import random

import numpy as np
import pytest
from certificate_trees import contained
from random_networks import (
    int_layer,
    plain_label,
    plain_scores,
    plain_truth,
    random_network,
    random_score_predicate,
)

from quantify.evidence.certificates import folded, forms, lattice, points, truths
from quantify.ir.network import IntNetwork
from quantify.ir.problem import Box


@pytest.mark.parametrize("seed", range(60))
def test_forms_contain_every_value_whatever_the_slopes(seed):
    rng = random.Random(seed)
    dims, bits = rng.randint(1, 3), rng.choice((4, 4, 20, 50))
    kinds = ("relu", "capped", "leaky", "sign", "floor_shift", "none")
    network = random_network(rng, dims, 2, [rng.randint(1, 4) for _ in range(rng.randint(1, 3))], kinds, 1 << bits, 40)
    low = [rng.randrange(20) for _ in range(dims)]
    high = [a + rng.randint(1, 4) for a in low]
    places = 2 * sum(len(layer.bias) for layer in network.layers[:-1])
    chord = [rng.choice((-1, 0, rng.randint(0, 65536), 65536)) for _ in range(places)]
    line = [rng.randint(0, 1) for _ in range(places)]
    assert contained(network, low, high, chord, line, False)
    try:
        assert contained(network, low, high, chord, line, True)
    except forms.TooWideError:
        assert bits == 50


SINGLE = {
    "relu": {}, "capped": {"cap": 7}, "none": {}, "sign up": {"at_zero": 1}, "sign": {"at_zero": 0},
    "sign down": {"at_zero": -1}, "leaky": {"positive": 5, "negative": 2}, "leaky flat": {"positive": 3, "negative": 3},
    "floor_shift": {"shift": 2, "low": -90, "high": 90}, "floor_shift cut": {"shift": 1, "low": -2, "high": 3},
    "floor_shift none": {"shift": 0, "low": 0, "high": 5},
}  # fmt: skip


@pytest.mark.parametrize("kind", SINGLE)
def test_forms_of_single_neurons_contain_their_values(kind):
    name = {"capped": "relu"}.get(kind, kind.split()[0])
    for bias, width, weight in itertools.product(range(-12, 9, 2), (1, 4), (1, -3)):
        layer = int_layer([[weight]], [bias], name, **SINGLE[kind])
        network = IntNetwork(1, (layer, int_layer([[1], [-1]], [0, 0])), 2)
        for chord, line, narrow in itertools.product((-1, 30000), (0, 1), (True, False)):
            assert contained(network, [3], [3 + width], [chord] * 2, [line] * 2, narrow)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_cut_off_is_charged_outwards(seed):
    rng = np.random.default_rng(seed)
    below, apart = (rng.integers(-1 << 40, 1 << 40, (5, 4, 6)) for _ in range(2))
    given = forms.Forms(below, below + apart, int(rng.integers(-9, 9)))
    for least in (None, 40):
        cut = forms.fit(given, 12, least)
        assert max(int(abs(side).sum(axis=1).max()) for side in (cut.below, cut.above)) < 1 << 12
        assert least is None or cut.exponent >= least
        for corner in itertools.product((-1, 1), repeat=3):
            t = np.array([1, *corner])[:, None]
            before = [(side * t).sum(axis=1).astype(object) for side in (given.below, given.above)]
            after = [
                (side * t).sum(axis=1).astype(object) << (cut.exponent - given.exponent)
                for side in (cut.below, cut.above)
            ]
            assert (after[0] <= before[0]).all()
            assert (after[1] >= before[1]).all()


@pytest.mark.parametrize("seed", range(40))
def test_half_spaces_are_counted_point_by_point(seed):
    rng = random.Random(seed)
    dims = rng.randint(0, 4)
    wide = 1 << rng.choice((0, 0, 65))
    slopes = [rng.randint(-9, 9) * wide if rng.random() < 0.8 else 0 for _ in range(dims)]
    low = np.array([[rng.randrange(5) for _ in range(6)] for _ in range(dims)], np.int64).reshape(dims, 6)
    high = low + np.array([[rng.randint(1, 7) for _ in range(6)] for _ in range(dims)], np.int64).reshape(dims, 6)
    constant = rng.randint(-60, 60) * wide
    expected = [
        sum(
            sum(s * x for s, x in zip(slopes, point, strict=True)) + constant >= 0
            for point in itertools.product(*(range(a, b) for a, b in zip(low[:, n], high[:, n], strict=True)))
        )
        for n in range(6)
    ]
    assert lattice.count(slopes, constant, low, high) == expected


def test_large_half_spaces_have_a_closed_form():
    wide = 1 << 40
    low, high = np.zeros((2, 1), np.int64), np.full((2, 1), wide)
    assert lattice.count([1, -1], 0, low, high) == [wide * (wide + 1) // 2]
    with pytest.raises(lattice.TooManyPlanesError):
        lattice.count([1, 2, 3], -5, np.zeros((3, 1), np.int64), np.full((3, 1), 1 << 25))


@pytest.mark.parametrize("seed", range(60))
def test_truths_on_boxes_hold_at_their_points(seed):
    rng = random.Random(seed)
    sizes, labels = (5, 6, 4), 3
    predicate = random_score_predicate(rng, sizes, labels, 3)
    boxes = [[(a := rng.randrange(size), rng.randint(a + 1, size)) for size in sizes] for _ in range(8)]
    low, high = (np.array([[box[k][end] for box in boxes] for k in range(3)]) for end in (0, 1))
    scores = [rng.randint(-20, 20) for _ in range(labels)]

    def signs(line, positions):
        by = dict(line.positions)
        base = line.constant + sum(c * scores[i] for i, c in line.scores)
        ends = [[], []]
        for box in boxes:
            values = [
                base + sum(c * point[f] for f, c in by.items())
                for point in itertools.product(*(range(*e) for e in box))
            ]
            ends[0].append(min(values))
            ends[1].append(max(values))
        return np.sign(ends[0]), np.sign(ends[1])

    decided = 0
    for label in range(labels):
        yes, no = truths.truth(predicate, truths.Boxes(low, high, sizes, signs), label)
        for n, box in enumerate(boxes):
            found = {plain_truth(predicate, p, label, scores) for p in itertools.product(*(range(*e) for e in box))}
            assert not (yes[n] and False in found)
            assert not (no[n] and True in found)
            decided += bool(yes[n] or no[n])
    assert decided or any(len(set(box)) for box in boxes)


@pytest.mark.parametrize("bits", [5, 62])
def test_points_get_the_scores_of_the_definition(bits):
    rng = random.Random(bits)
    kinds = ("relu", "capped", "leaky", "sign", "floor_shift")
    for _ in range(12):
        network = random_network(rng, 3, 3, [5, 4], kinds, 1 << bits, 90)
        region = Box((1, 2, 3), (6, 3, 9))
        evaluator = points.Evaluator(network, forms.layered(network, region), region)
        at = np.array([[rng.randint(1, 5), rng.randint(3, 8)] for _ in range(20)]).T
        whole = [(a, 2, b) for a, b in at.T.tolist()]
        assert evaluator.scores(at).tolist() == [plain_scores(network, point) for point in whole]
        assert evaluator.labels(at).tolist() == [plain_label(plain_scores(network, point)) for point in whole]


def labels_in(network, box):
    """How many points of a box have each label, by the definition."""
    found = [0] * network.outputs
    for point in itertools.product(*(range(*ends) for ends in zip(box.low, box.high, strict=True))):
        found[plain_label(plain_scores(network, point))] += 1
    return found


ONE_KIND = ("relu", "capped", "leaky", "sign", "floor_shift", "none")


@pytest.mark.parametrize("kind", ONE_KIND)
@pytest.mark.parametrize("seed", range(8))
def test_folded_networks_give_points_their_labels(kind, seed):
    rng = random.Random(f"{kind}{seed}")
    dims = rng.randint(1, 3)
    most = 2 if kind in ("relu", "none") else 1  # the others are drawn with numbers of their own for each layer
    hidden = [rng.randint(1, 4) for _ in range(rng.randint(0, most))]
    bits = (4, 40 // (1 + len(hidden)))[seed % 2]  # sums in doubles, and in words
    network = random_network(rng, dims, rng.randint(1, 4), hidden, (kind,), 1 << bits, 40)
    low = np.array([[rng.randrange(20) for _ in range(12)] for _ in range(dims)])
    high = low + np.array([[rng.choice((1, 2, 5, 6)) for _ in range(12)] for _ in range(dims)])
    region = Box((0,) * dims, (30,) * dims)
    net = forms.layered(network, region)
    folder = folded.Folder(net, points.Evaluator(network, net, region).bits)
    assert folder.usable
    untold = np.full((net.places, 12), -1)
    _, states = forms.hidden(net, low, high, untold, untold, True)
    every = np.ones((network.outputs, 12), bool)
    boxes = zip(low.T.tolist(), high.T.tolist(), strict=True)
    expected = [labels_in(network, Box(tuple(a), tuple(b))) for a, b in boxes]
    assert folder.totals(low, high, states, every) == np.sum(expected, axis=0).tolist()
    # What cannot win may be left out; and what is not known to be stable is taken as unstable.
    possible = np.array(expected).T > 0
    vague = np.full_like(states, forms.UNSTABLE) if seed % 4 < 2 and kind != "none" else states
    for n in range(12):
        one = (low[:, [n]], high[:, [n]], vague[:, [n]], possible[:, [n]])
        assert folder.totals(*one) == expected[n]


@pytest.mark.parametrize(("kind", "bits"), [("relu", 2), ("relu", 22), ("capped", 3), ("leaky", 3)])
def test_margins_with_at_most_one_kink_are_counted_line_by_line(kind, bits):
    """m + c·max(z, 0), whichever way m, z and their sum fall along the lines, and where they do not fall at all."""
    rng = random.Random(bits)
    top = 1 << bits
    activation = "leaky" if kind == "leaky" else "relu"
    for dims in (1, 2, 3):
        # The inputs pass through stable neurons; with few positions, sums of small numbers are often 0.
        passed = [[int(i == k) for k in range(dims)] for i in range(dims)]
        boxes = [(0,) * dims, (rng.choice((5, 9)), 4, 3)[:dims]]
        ends = tuple(np.array(side).reshape(-1, 1) for side in boxes)
        for _ in range(120):
            kink = [rng.choice((0, rng.randint(-top, top))) for _ in range(dims)]
            options = {"capped": {"cap": 2 * top}, "leaky": {"positive": 3, "negative": 1}}.get(kind, {})
            inner = int_layer([*passed, kink], [1] * dims + [rng.randint(-4 * top, 4 * top)], activation, **options)
            slopes = [rng.choice((0, rng.randint(-top, top))) for _ in range(dims)]
            by = rng.choice((-1, 0, 1, 1, -1))
            outer = int_layer([[0] * (dims + 1), [*slopes, by]], [0, rng.randint(-4 * top, 4 * top)])
            network = IntNetwork(dims, (inner, outer), 2)
            region = Box(*map(tuple, boxes))
            net = forms.layered(network, region)
            folder = folded.Folder(net, points.Evaluator(network, net, region).bits)
            untold = np.full((net.places, 1), -1)
            _, states = forms.hidden(net, *ends, untold, untold, True)
            found = folder.totals(*ends, states, np.ones((2, 1), bool))
            assert found == labels_in(network, region)


def test_folding_is_for_one_activation_and_numbers_that_fit():
    region = Box((0, 0), (9, 9))

    def usable(*layers):
        network = IntNetwork(2, (*layers, int_layer([[1, -1], [0, 1]], [0, 0])), 2)
        net = forms.layered(network, region)
        return folded.Folder(net, points.Evaluator(network, net, region).bits).usable

    relu, capped = int_layer([[1, 2], [3, 4]], [0, 0], "relu"), int_layer([[1, 2], [3, 4]], [0, 0], "relu", cap=9)
    assert usable(relu)
    assert usable(relu, relu)
    assert usable(capped, int_layer([[1, 2], [3, 4]], [0, 0]))
    assert not usable(relu, capped)
    assert not usable(int_layer([[1 << 58, 0], [0, 1]], [0, 0], "relu"))
    # 2^k + 1 is the largest sum, of k + 1 bits: with two bits more it must fit 62.
    assert [usable(int_layer([[0, 0], [0, 0]], [1 << k, 0])) for k in (57, 58, 59, 60)] == [True, True, True, False]

"""Certificates of `branch`: they verify, their counts are those of enumeration, and nothing false is verified."""

import gzip
import hashlib
import itertools
import json
import math
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from random_networks import (
    int_layer,
    network_problem,
    plain_count,
    plain_label,
    plain_scores,
    plain_truth,
    random_network,
    random_score_predicate,
)

from quantify.engines.branch import BranchEngine
from quantify.engines.branch_plan import Tuning
from quantify.engines.branch_record import leaves as engine_leaves
from quantify.errors import InputError, UndecidedError
from quantify.evidence.certificates import forms, lattice, points, tree, truths
from quantify.evidence.certificates.check import RefutedError, check
from quantify.evidence.certificates.file import CaseHead, Head, Reader, Writer, case_line, head_line
from quantify.evidence.certificates.verify import verify
from quantify.ir.domain import Measure
from quantify.ir.network import IntNetwork
from quantify.ir.predicate import HasLabel, Linear, Plus, Score, Sign, Times
from quantify.ir.problem import Box, GridQuery
from quantify.resources import Limits, Progress

ENGINES = (
    BranchEngine(),
    BranchEngine(tuning=Tuning(leaf_points=1, loop_work=1e9, credit_points=math.inf)),  # half-spaces of any size
    BranchEngine(tuning=Tuning(leaf_points=4, closed_form=False)),
)
HEAD = Head("0" * 64, "model.onnx", "1" * 64, "p.yaml", "property: safety\n")


def recorded(problem, engine=ENGINES[0]):
    """The tree that an engine writes, and its counts."""
    outcome = engine.run(problem, problem.cases[0], Limits(), Progress(), record=True)
    stream = b"\x41" if outcome.record is None else outcome.record.stream
    counts = {name: (count.lower, count.upper) for name, count in outcome.counts.items()}
    assert outcome.proven == counts
    return stream, counts


def proven(problem, stream, piece=1000):
    blocks = [stream[i : i + piece] for i in range(0, len(stream), piece)]
    return check(problem, problem.cases[0], blocks, len(stream), Limits(), Progress())


def relu_problem(seed, sizes, hidden=None):
    rng = random.Random(seed)
    widths = hidden or [rng.randint(1, 10) for _ in range(rng.randint(0, 4))]
    network = random_network(rng, len(sizes), rng.randint(2, 6), widths, ("relu",), rng.choice((2, 9, 127)), 300)
    return network_problem(network, sizes)


def any_problem(seed):
    rng = random.Random(seed)
    sizes = ((16, 16), (7, 1, 9), (3, 4, 2, 5))[seed % 3]
    labels = rng.randint(1, 5)
    network = random_network(rng, len(sizes), labels, [rng.randint(1, 7) for _ in range(rng.randint(0, 4))])
    queries = [GridQuery(f"q{k}", random_score_predicate(rng, sizes, labels, 2)) for k in range(3)]
    low = tuple(rng.randrange(size) for size in sizes)
    part = Box(low, tuple(rng.randint(a + 1, size) for a, size in zip(low, sizes, strict=True)))
    return network_problem(network, sizes, queries if seed % 3 else (), part if seed % 4 == 3 else None)


def exactly(counts):
    return {name: (count, count) for name, count in counts.items()}


@pytest.fixture
def in_whole_numbers(monkeypatch):
    """No leaf is proven in words."""
    monkeypatch.setattr(forms, "FEWEST", 1000)


# --- what the engine writes verifies -------------------------------------------------------------------------------
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


def test_workers_agree_and_time_is_up():
    problem = relu_problem(1, (16, 16, 16), [9, 9])
    stream, counts = recorded(problem, ENGINES[2])
    blocks = [stream[i : i + 64] for i in range(0, len(stream), 64)]
    assert check(problem, problem.cases[0], blocks, len(stream), Limits(jobs=3), Progress()).counts == counts
    with pytest.raises(UndecidedError, match="time was up"):
        check(problem, problem.cases[0], blocks, len(stream), Limits.starting_now(0.0), Progress())


# --- the arithmetic of the checker ---------------------------------------------------------------------------------
def contained(network, low, high, chord, line, narrow):
    """Whether the forms of all scores hold at every point of a box (low ≤ x < high)."""
    net = forms.layered(network, Box(tuple(low), tuple(high)))
    varying = list(net.varying)
    box = [np.array([ends[k] for k in varying], np.int64).reshape(-1, 1) for ends in (low, high)]
    last, _ = forms.hidden(net, *box, *(np.array(x, np.int64).reshape(-1, 1) for x in (chord, line)), narrow)
    rows = forms.sums(net.scores, last, narrow)
    least, most = forms.signs(rows)
    unit = Fraction(2) ** rows.exponent
    for point in itertools.product(*(range(a, b) for a, b in zip(low, high, strict=True))):
        t = [1, *(Fraction(2 * point[k] - low[k] - high[k] + 1, high[k] - 1 - low[k]) for k in varying)]
        for i, score in enumerate(plain_scores(network, point)):
            below, above = (
                unit * sum(int(c) * x for c, x in zip(side[i, :, 0], t, strict=True))
                for side in (rows.below, rows.above)
            )
            sign = (score > 0) - (score < 0)
            if not (below <= score <= above and least[i, 0] <= sign <= most[i, 0]):
                return False
    return True


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


# --- trees that are not what they say ------------------------------------------------------------------------------
def numbers(stream, at, count):
    """The place after `count` numbers."""
    for _ in range(count):
        while stream[at] >= 0x80:
            at += 1
        at += 1
    return at


def number_at(stream, at):
    end = numbers(stream, at, 1)
    return sum((byte & 127) << (7 * k) for k, byte in enumerate(stream[at:end]))


def written(number):
    out = b""
    while number >= 128:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def node_places(stream, problem):
    """(place, first byte) of every node, by the format as it is documented."""
    at = 0
    while at < len(stream):
        kind = stream[at]
        yield at, kind
        at += 1
        if kind < 0x40:
            at = numbers(stream, at, 1)
        elif kind == tree.HALF_SPACE:
            at = numbers(stream, at + problem.labels, 1)
        elif kind == tree.DECIDED:
            steps = number_at(stream, at + problem.labels)
            at = numbers(stream, at + problem.labels, 1 + 2 * steps)


@pytest.fixture(scope="module")
def example():
    return of_every_kind(24, (8, 8, 8), 8)


def of_every_kind(seed, sizes, smallest):
    """A problem and a tree with leaves of every kind but open ones, which no engine made."""
    problem = relu_problem(seed, sizes, [4])
    stream = grown(problem, problem.cases[0].region, smallest, random.Random(seed))
    assert {kind for _, kind in node_places(stream, problem)} > {tree.DECIDED, tree.ENUMERATED, tree.HALF_SPACE}
    return problem, stream, exactly(plain_count(problem, problem.cases[0]))


def grown(problem, box, smallest, rng):
    """A tree: halves of halves, until a box has few points, or one or two labels and a leaf that is accepted."""
    labels = [
        plain_label(plain_scores(problem.network, point))
        for point in itertools.product(*(range(*ends) for ends in zip(box.low, box.high, strict=True)))
    ]
    alone = network_problem(problem.network, problem.sizes, problem.cases[0].queries, box)
    found = sorted(set(labels))
    winners = [0xFF if i in found else found[0] for i in range(problem.labels)]
    if len(found) == 1:
        for steps in (sloped(problem, rng), b"\x00"):
            if accepted(alone, leaf := b"\x40" + bytes(winners) + steps):
                return leaf
    for beaten in itertools.product(found, repeat=problem.labels - 2) if len(found) == 2 else ():
        rest = iter(beaten)
        winners = [0xFF if i in found else next(rest) for i in range(problem.labels)]
        if accepted(alone, leaf := b"\x42" + bytes(winners) + written(labels.count(found[0]))):
            return leaf
    if len(labels) <= smallest:
        return b"\x41"
    k = max(range(len(box.low)), key=lambda i: box.high[i] - box.low[i])
    cut = (box.low[k] + box.high[k]) // 2
    parts = (
        Box(box.low, (*box.high[:k], cut, *box.high[k + 1 :])),
        Box((*box.low[:k], cut, *box.low[k + 1 :]), box.high),
    )
    return bytes([k]) + written(cut) + b"".join(grown(problem, part, smallest, rng) for part in parts)


def accepted(problem, stream):
    try:
        proven(problem, stream)
    except RefutedError:
        return False
    return True


def sloped(problem, rng):
    """Steps for the first place of every neuron."""
    neurons = sum(len(layer.bias) for layer in problem.network.layers[:-1])
    steps = [written(2 * (n > 0)) + written(2 * rng.randint(0, 65536) + rng.randint(0, 1)) for n in range(neurons)]
    return written(neurons) + b"".join(steps)


def refused(problem, stream, counts):
    """A tree is refused, or proves other counts than those that the file names."""
    try:
        return proven(problem, stream).counts != counts
    except RefutedError:
        return True


@pytest.mark.parametrize("engine", ENGINES)
def test_the_engine_and_the_checker_read_the_same_leaves(engine):
    problem = relu_problem(1, (16, 16, 16), [9, 9])
    record = engine.run(problem, problem.cases[0], Limits(), Progress(), record=True).record
    region = problem.cases[0].region
    shape = tree.Shape(region.low, region.high, problem.labels, 36)
    ours = []
    for batch in tree.leaves([record.stream[i : i + 7] for i in range(0, len(record.stream), 7)], shape, 5):
        for n in range(len(batch)):
            steps = []
            if batch.leaf is not None:
                here = np.flatnonzero(batch.leaf == n)
                steps = list(zip(*(x[here].tolist() for x in (batch.place, batch.chord, batch.line)), strict=True))
            ours.append((batch.box(n), tree.KINDS[batch.kind], steps, batch.count[n] if batch.count else 0))
    theirs = [
        (tuple(zip(leaf.low, leaf.high, strict=True)), leaf.kind, list(leaf.steps), leaf.count)
        for leaf in engine_leaves(record)
    ]
    assert sorted(ours) == sorted(theirs)
    assert len(ours) > 3


def test_false_verdicts_are_refused(example):
    problem, stream, counts = example
    labels = problem.labels
    tried = dict.fromkeys((tree.DECIDED, tree.ENUMERATED, tree.HALF_SPACE), 0)
    for at, kind in node_places(stream, problem):
        if kind < 0x40 or tried[kind] > 20:
            continue
        place = at + 1 + labels
        if kind == tree.ENUMERATED:
            for label in range(labels):  # a leaf is said to be decided, which is right only when it is
                winner = bytes(0xFF if i == label else label for i in range(labels))
                try:
                    assert proven(problem, stream[:at] + b"\x40" + winner + b"\x00" + stream[at + 1 :]).counts == counts
                except RefutedError:
                    tried[kind] += 1
            continue
        winner = stream[at + 1 : place]
        for i, best in enumerate(winner):
            for other in {0xFF, *range(labels)} - {best}:
                false = stream[: at + 1] + winner[:i] + bytes([other]) + winner[i + 1 :] + stream[place:]
                try:
                    # A beaten label may be beaten by another one too.
                    assert proven(problem, false).counts == counts
                    assert best != 0xFF
                    assert other != 0xFF
                except RefutedError:
                    tried[kind] += 1
        end = numbers(stream, place, 1)
        if kind == tree.HALF_SPACE:
            count = number_at(stream, place)
            for off in (count + 1, max(0, count - 1), count ^ 64):
                with pytest.raises(RefutedError, match="half-space leaf"):
                    proven(problem, stream[:place] + written(off) + stream[end:])
            assert refused(problem, stream[:at] + b"\x43" + stream[end:], counts)
    assert min(tried.values()) > 10, tried


def test_false_splits_are_refused(example):
    problem, stream, _ = example
    tried = 0
    for at, kind in itertools.islice(node_places(stream, problem), 60):
        if kind < 0x40:
            cut, end = number_at(stream, at + 1), numbers(stream, at + 1, 1)
            for off in (0, cut + 40, 1 << 70):
                with pytest.raises(RefutedError, match="outside its box"):
                    proven(problem, stream[: at + 1] + written(off) + stream[end:])
            tried += 1
            for other in (3, 30):
                with pytest.raises(RefutedError, match="outside its box"):
                    proven(problem, stream[:at] + bytes([other]) + stream[at + 1 :])
    assert tried > 5


def of_one_kink(scores, bias):
    """Two scores that are weighted sums of u = z + 8 and h = max(z, 0), z being x − 8 and x from 0 to 16."""
    first = int_layer([[1], [1]], [0, -8], "relu")
    return network_problem(IntNetwork(1, (first, int_layer(scores, bias)), 2), (17,))


def step(chord, line, place=2):
    return b"\x40\xff\x00\x01" + written(place) + written(2 * chord + line)


def test_the_line_of_a_step_decides_what_is_proven():
    above_line = of_one_kink([[0, 1], [1, 0]], [0, -8])  # h ≥ z
    above_zero = of_one_kink([[0, 1], [0, 0]], [0, 0])  # h ≥ 0
    for chord in (0, 1, 9999, 65536):
        assert proven(above_line, step(chord, 1)).counts == {"0": (17, 17), "1": (0, 0)}
        assert proven(above_zero, step(chord, 0)).counts == {"0": (17, 17), "1": (0, 0)}
        for problem, line in ((above_line, 0), (above_zero, 1)):
            with pytest.raises(RefutedError, match="not proven"):
                proven(problem, step(chord, line))


def test_the_chord_of_a_step_decides_what_is_proven():
    # 2h ≤ z + 8, which touches both ends of the kink: one slope of 65,537 is good enough. (Times 2^20, for otherwise
    # what is missing is less than one whole point, and no whole number lies in it.)
    problem = of_one_kink([[1 << 20, 0], [0, 2 << 20]], [0, 0])
    for chord in (0, 1, 32767, 32768, 32769, 65535, 65536):
        for line in (0, 1):
            if chord == 32768:
                assert proven(problem, step(chord, line)).counts == {"0": (17, 17), "1": (0, 0)}
            else:
                with pytest.raises(RefutedError, match="not proven"):
                    proven(problem, step(chord, line))
    # Where another neuron is named, which is stable, this one is given a slope by the reader.
    problem = of_one_kink([[1 << 20, 0], [0, 3 << 20]], [1 << 23, 0])  # 3h ≤ z + 16 needs 1/3, or nearly
    assert proven(problem, step(21846, 0)).counts == {"0": (17, 17), "1": (0, 0)}
    for stream in (step(21846, 0, place=0), step(21846, 0, place=3), b"\x40\xff\x00\x00"):
        with pytest.raises(RefutedError, match="not proven"):
            proven(problem, stream)
    # What is false is not proven by any slope: 2h ≤ z + 7 fails at both ends.
    problem = of_one_kink([[1, 0], [0, 2]], [-1, 0])
    for chord in range(0, 65537, 2048):
        with pytest.raises(RefutedError, match="not proven"):
            proven(problem, step(chord, 0))


def test_steps_out_of_range_are_refused():
    problem = of_one_kink([[1, 0], [0, 2]], [0, 0])
    for stream in (
        step(65537, 0), step(1 << 34, 0), step(32768, 0, place=4), step(32768, 0, place=1 << 40),
        b"\x40\xff\x00\x02" + written(2) + written(65536) + written(0) + written(65536),  # one place twice
        b"\x40\xff\x00" + written(5) + (b"\x01" + written(65536)) * 5,
    ):  # fmt: skip
        with pytest.raises(RefutedError, match=r"out of range|relaxation steps"):
            proven(problem, stream)


def test_no_slope_proves_what_is_false(example):
    problem, stream, counts = example
    kept = broken = 0
    for at, kind in node_places(stream, problem):
        if kind != tree.DECIDED or not (steps := number_at(stream, at + 1 + problem.labels)):
            continue
        place = numbers(stream, at + 1 + problem.labels, 1)
        for _ in range(steps):
            place = numbers(stream, place, 1)
            end = numbers(stream, place, 1)
            packed = number_at(stream, place)
            for other in (packed ^ 1, packed & 1, 65536 << 1 | packed & 1):
                try:
                    assert proven(problem, stream[:place] + written(other) + stream[end:]).counts == counts
                    kept += 1
                except RefutedError:
                    broken += 1
            place = end
        if broken + kept > 150:
            break
    assert kept > 20


def test_ties_are_not_won_by_the_higher_label():
    problem = network_problem(IntNetwork(1, (int_layer([[1], [1]], [0, 0]),), 2), (9,))
    assert proven(problem, b"\x40\xff\x00\x00").counts == {"0": (9, 9), "1": (0, 0)}
    with pytest.raises(RefutedError, match="not proven"):
        proven(problem, b"\x40\x01\xff\x00")


def test_half_spaces_need_stable_neurons_and_two_labels():
    kinked = IntNetwork(1, (int_layer([[1]], [-4], "relu"), int_layer([[1], [0]], [0, 2])), 2)
    problem = network_problem(kinked, (9,))
    for claimed in range(10):  # whatever the number, even the right one
        with pytest.raises(RefutedError, match=r"half-space leaf .* is not proven"):
            proven(problem, b"\x42\xff\xff" + bytes([claimed]))
    stable = network_problem(kinked, (9,), region=Box((4,), (9,)))
    assert proven(stable, b"\x42\xff\xff\x03").counts == {"0": (3, 3), "1": (2, 2)}
    three = network_problem(IntNetwork(1, (int_layer([[1], [-1], [0]], [0, 8, 5]),), 3), (9,))
    for claimed in range(10):
        for winner in (b"\xff\xff\xff", b"\xff\xff\x00", b"\xff\x00\x00"):
            with pytest.raises(RefutedError, match=r"half-space leaf .* is not proven"):
                proven(three, b"\x42" + winner + bytes([claimed]))


def test_numbers_are_multiplied_without_overflow():
    # All scores and positions are 0 at the only point, and coefficients are beyond words.
    huge = 1 << 70
    query = GridQuery("q", Sign("<=", Plus((Times(Linear((), huge), Score(0, 0, 0)), Linear((), -1)))))
    problem = network_problem(IntNetwork(1, (int_layer([[0], [0]], [0, 0]),), 2), (1,), [query])
    assert proven(problem, b"\x41").counts == {"q": (1, 1)}


MALFORMED = [b"", b"\x44", b"\x41\x41", b"\x00\x04\x41", b"\x40\xff", b"\x00" + b"\xff" * 40, b"\x40" + b"\xff" * 90]


@pytest.mark.parametrize("stream", MALFORMED)
def test_malformed_trees_are_refused(example, stream):
    with pytest.raises(RefutedError):
        proven(example[0], stream)


def test_leaves_that_would_take_for_ever_are_refused():
    problem = network_problem(IntNetwork(2, (int_layer([[1, -1], [0, 0]], [0, 0]),), 2), (1 << 30, 1 << 30))
    with pytest.raises(RefutedError, match="points"):
        proven(problem, b"\x41")


def test_a_property_is_not_believed_on_a_leaf_that_leaves_it_open():
    queries = [GridQuery("high", Sign("<", Score(0, -99, 99))), GridQuery("one", HasLabel((0,)))]
    problem = network_problem(IntNetwork(1, (int_layer([[1], [0]], [-4, -100]),), 2), (9,), queries)
    assert proven(problem, b"\x41").counts == {"high": (4, 4), "one": (9, 9)}
    assert proven(problem, b"\x00\x04\x40\xff\x00\x00\x40\xff\x00\x00").counts == {"high": (4, 4), "one": (9, 9)}
    for stream in (b"\x40\xff\x00\x00", b"\x00\x05\x40\xff\x00\x00\x40\xff\x00\x00"):
        with pytest.raises(RefutedError, match="not proven"):
            proven(problem, stream)


def test_open_leaves_stay_between_the_bounds(example):
    problem, stream, counts = example
    at = next(place for place, leaf in node_places(stream, problem) if leaf == tree.ENUMERATED)
    found = proven(problem, stream[:at] + b"\x43" + stream[at + 1 :])
    assert found.leaves["open"] == 1
    assert len({high - low for low, high in found.counts.values()} - {0}) == 1
    assert all(low <= counts[name][0] <= high for name, (low, high) in found.counts.items())


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


# --- files ---------------------------------------------------------------------------------------------------------
def sealed(problem, stream, counts, head=HEAD, digest=None):
    """The content of a certificate."""
    name = digest or problem.digest(problem.cases[0])
    text = head_line(head) + case_line(CaseHead(0, name, counts, len(stream))) + stream
    return text + json.dumps({"sha256": hashlib.sha256(text).hexdigest()}).encode() + b"\n"


def verdicts(path, problem):
    with Reader(path) as reader:
        return verify(reader, problem, Limits(), Progress())


def test_a_certificate_is_written_read_and_verified(tmp_path, example):
    problem, stream, counts = example
    path = tmp_path / "c.cert"
    with Writer(path, HEAD) as writer:
        writer.add(CaseHead(0, problem.digest(problem.cases[0]), counts, len(stream)), stream)
    assert writer.size == path.stat().st_size
    assert gzip.decompress(path.read_bytes()).startswith(b'{"format":"quantify-certificate","version":1,')
    assert list(tmp_path.iterdir()) == [path]
    with Reader(path) as reader:
        assert reader.head == HEAD
        (verdict,) = verify(reader, problem, Limits(), Progress())
    assert verdict.refuted == ""
    assert verdict.counts == counts
    assert sum(verdict.leaves.values()) == sum(kind >= 0x40 for _, kind in node_places(stream, problem))


def test_nothing_is_left_of_a_run_that_fails(tmp_path):
    path = tmp_path / "c.cert"
    path.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), Writer(path, HEAD):
        raise ZeroDivisionError
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match="cannot be written"), Writer(tmp_path / "no" / "c.cert", HEAD):
        pass


def test_claims_that_the_leaves_do_not_support_are_refuted(tmp_path, example):
    problem, stream, counts = example
    path = tmp_path / "c.cert"
    for name, (low, high) in counts.items():
        for ends in ((low + 1, high + 1), (low, high + 1), (low - 1, high)):
            path.write_bytes(gzip.compress(sealed(problem, stream, {**counts, name: ends} if ends[0] >= 0 else {})))
            if ends[0] < 0:
                continue
            (verdict,) = verdicts(path, problem)
            assert "add up to" in verdict.refuted
    path.write_bytes(gzip.compress(sealed(problem, stream, dict(itertools.islice(counts.items(), 2)))))
    with pytest.raises(InputError, match="another problem"):
        verdicts(path, problem)
    path.write_bytes(gzip.compress(sealed(problem, stream, counts, digest="0" * 64)))
    with pytest.raises(InputError, match="another problem"):
        verdicts(path, problem)


def test_files_that_are_no_certificates_are_bad_input(tmp_path, example):
    problem, stream, counts = example
    good = sealed(problem, stream, counts)
    path = tmp_path / "c.cert"
    cases = {
        "no certificate": [gzip.compress(b"{}\n"), gzip.compress(b"hello\n"), gzip.compress(b"[]\n")],
        "damaged|no certificate": [
            b"", b"PK\x03\x04", gzip.compress(b"hello"),
            gzip.compress(good)[:-20], gzip.compress(good[:-90]), gzip.compress(good[:200]),
            gzip.compress(good + b"x"), gzip.compress(good) + b"x", gzip.compress(good.replace(b"\x41", b"\x43", 1)),
        ],
        "version": [gzip.compress(good.replace(b'"version":1', b'"version":2', 1))],
    }  # fmt: skip
    for match, contents in cases.items():
        for content in contents:
            path.write_bytes(content)
            with pytest.raises(InputError, match=match):
                verdicts(path, problem)
    with pytest.raises(InputError, match="cannot be read"):
        Reader(tmp_path / "none")


def test_what_is_never_complete_is_given_up(example):
    # A step that goes on for ever, after a leaf's labels and one step announced.
    blocks = itertools.chain(
        [b"\x40" + bytes([0xFF] * example[0].labels) + b"\x01"], itertools.repeat(b"\x80" * 50, 20)
    )
    problem = example[0]
    with pytest.raises(RefutedError, match="too long"):
        check(problem, problem.cases[0], blocks, 1, Limits(), Progress())
    assert len(list(blocks)) > 10


def test_a_small_file_that_holds_too_much_stops_in_time(tmp_path, example):
    problem, _, counts = example
    path = tmp_path / "c.cert"
    path.write_bytes(gzip.compress(sealed(problem, bytes(1 << 20), counts)))
    assert path.stat().st_size < 4000
    calls = []

    def go_on():
        calls.append(1)
        if len(calls) > 3:
            raise UndecidedError("the time was up")

    with pytest.raises(UndecidedError):
        Reader(path, go_on)
    (verdict,) = verdicts(path, problem)
    assert "outside its box" in verdict.refuted


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../p.yaml", "/etc/p.yaml", "a\0b", "a\x1b[2Jb", "p\n.yaml", "x" * 300]
)
def test_names_that_lead_elsewhere_are_refused(tmp_path, example, name):
    problem, stream, counts = example
    path = tmp_path / "c.cert"
    for head in (replace(HEAD, property=name), replace(HEAD, model=name)):
        path.write_bytes(gzip.compress(sealed(problem, stream, counts, head)))
        with pytest.raises(InputError, match="names no files"):
            Reader(path)


def test_text_that_cannot_be_written_is_refused(tmp_path, example):
    problem, stream, counts = example
    path = tmp_path / "c.cert"
    path.write_bytes(gzip.compress(sealed(problem, stream, counts).replace(b"property: safety", b"\\ud800", 1)))
    with pytest.raises(InputError, match="no text"):
        Reader(path)


@pytest.mark.parametrize(
    "change",
    [
        {"case": True}, {"case": "0"}, {"case": 0.0}, {"bytes": -1}, {"bytes": "5"}, {"bytes": True}, {"bytes": None},
        {"counts": []}, {"counts": {"0": ["1"]}}, {"counts": {"0": [1, 1]}}, {"counts": {"0": ["-1", "1"]}},
        {"counts": {"0": ["1e3", "1"]}}, {"counts": {"0": ["9" * 65, "1"]}}, {"counts": {"0": ["\u0661", "1"]}},
    ],
)  # fmt: skip
def test_lines_that_are_not_what_they_must_be_are_refused(tmp_path, example, change):
    _, stream, counts = example
    line = {**json.loads(case_line(CaseHead(0, "d", counts, len(stream)))), **change}
    text = head_line(HEAD) + json.dumps(line).encode() + b"\n" + stream
    path = tmp_path / "c.cert"
    path.write_bytes(gzip.compress(text + json.dumps({"sha256": hashlib.sha256(text).hexdigest()}).encode() + b"\n"))
    with pytest.raises(InputError, match="damaged"):
        Reader(path)


def of_cases(path, problem, numbers, counts, streams):
    text = head_line(HEAD)
    for number, ends, stream in zip(numbers, counts, streams, strict=True):
        digest = problem.digest(problem.cases[number]) if 0 <= number < len(problem.cases) else "d"
        text += case_line(CaseHead(number, digest, ends, len(stream))) + stream
    path.write_bytes(gzip.compress(text + json.dumps({"sha256": hashlib.sha256(text).hexdigest()}).encode() + b"\n"))
    return path


def test_every_case_is_checked_against_its_own_region(tmp_path):
    network = IntNetwork(1, (int_layer([[1], [0]], [0, 3]),), 2)  # 0 from 3 on
    cases = [network_problem(network, (9,), region=Box((a,), (b,))).cases[0] for a, b in ((0, 9), (0, 5), (4, 9))]
    problem = replace(network_problem(network, (9,)), cases=tuple(cases))
    counts = [exactly({"0": 6, "1": 3}), exactly({"0": 2, "1": 3}), exactly({"0": 5, "1": 0})]
    path = tmp_path / "c.cert"
    found = verdicts(of_cases(path, problem, [0, 1, 2], counts, [b"\x41"] * 3), problem)
    assert [case.refuted for case in found] == [""] * 3
    assert len(verdicts(of_cases(path, problem, [0, 2], counts[::2], [b"\x41"] * 2), problem)) == 2
    # One case for another; the cases after it are not looked at.
    found = verdicts(of_cases(path, problem, [0, 1, 2], [counts[0], counts[2], counts[2]], [b"\x41"] * 3), problem)
    assert [bool(case.refuted) for case in found] == [False, True]
    for numbers, what in (([0, 0], "order"), ([1, 0], "order"), ([-1], "another"), ([3], "another"), ([], "no case")):
        given = [counts[0] if number == 0 else counts[1] for number in numbers]
        with pytest.raises(InputError, match=what):
            verdicts(of_cases(path, problem, numbers, given, [b"\x41"] * len(numbers)), problem)


def test_weighted_inputs_are_not_counted_as_points(tmp_path, example):
    problem, stream, counts = example
    weights = tuple((1,) * size for size in problem.sizes)
    weighted = replace(problem, measure=Measure("product", weights))
    path = tmp_path / "c.cert"
    path.write_bytes(gzip.compress(sealed(weighted, stream, counts)))
    with pytest.raises(InputError, match="weighs inputs"):
        verdicts(path, weighted)


def test_a_region_without_points_has_no_tree(tmp_path):
    problem = network_problem(IntNetwork(1, (int_layer([[1], [1]], [0, 0]),), 2), (9,), region=Box((4,), (4,)))
    assert proven(problem, b"").counts == {"0": (0, 0), "1": (0, 0)}
    for stream in (b"\x41", b"\x43"):
        with pytest.raises(RefutedError, match="empty region"):
            proven(problem, stream)


def test_another_network_grid_or_query_is_another_problem(tmp_path, example):
    problem, stream, counts = example
    path = tmp_path / "c.cert"
    path.write_bytes(gzip.compress(sealed(problem, stream, counts)))
    layers = problem.network.layers
    last = replace(layers[-1], bias=layers[-1].bias + np.eye(problem.labels, dtype=np.int64)[0])
    case = problem.cases[0]
    named = tuple(replace(q, predicate=HasLabel((0,))) for q in case.queries)
    for other in (
        replace(problem, structure=IntNetwork(3, (*layers[:-1], last), problem.labels)),
        replace(problem, sizes=(8, 8, 9)),
        replace(problem, cases=(replace(case, region=Box((0, 0, 0), (8, 8, 7))),)),
        replace(problem, cases=(replace(case, queries=named),)),
        replace(problem, cases=(replace(case, queries=case.queries[::-1]),)),
    ):
        with pytest.raises(InputError, match="another problem"):
            verdicts(path, other)


def test_no_change_of_a_byte_makes_another_count_true(tmp_path):
    problem, stream, counts = of_every_kind(27, (5, 5), 2)
    content = sealed(problem, stream, counts)
    seal = content.rindex(b'{"sha256"')
    path = tmp_path / "c.cert"
    verified = refuted = bad = 0
    for at, byte in enumerate(content):
        for other in {byte ^ 1, byte ^ 0x80, (byte + 1) % 256} - {byte}:
            text = content[:at] + bytes([other]) + content[at + 1 :]
            if at < seal:  # signed again, as somebody who means it would
                body = text[:seal]
                text = body + json.dumps({"sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n"
            path.write_bytes(gzip.compress(text, 1))
            try:
                (verdict,) = verdicts(path, problem)
            except InputError:
                bad += 1
                continue
            if verdict.refuted:
                refuted += 1
            else:
                verified += 1
                truth = {name: verdict.counts[name][0] for name in counts}
                assert truth == {name: low for name, (low, _) in counts.items()}
                assert all(low == high for low, high in verdict.counts.values())
    assert min(verified, refuted, bad) > 20

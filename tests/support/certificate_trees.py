"""Problems with split trees for certificates: those that `branch` records, and those that are grown here by hand."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
from random_networks import (
    network_problem,
    plain_count,
    plain_label,
    plain_scores,
    random_network,
    random_score_predicate,
)

from quantify.engines.branch import BranchEngine
from quantify.engines.branch_plan import Tuning
from quantify.evidence.certificates import forms, tree
from quantify.evidence.certificates.check import RefutedError, check
from quantify.ir.problem import Box, GridQuery
from quantify.resources import Limits, Progress

ENGINES = (
    BranchEngine(),
    BranchEngine(tuning=Tuning(leaf_points=1, loop_work=1e9, credit_points=math.inf)),  # half-spaces of any size
    BranchEngine(tuning=Tuning(leaf_points=4, closed_form=False)),
)


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


# --- trees by the format as it is documented ----------------------------------------------------------------------
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

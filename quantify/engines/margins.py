"""The engine `margins`: proven bounds for networks of hundreds of inputs over a box, such as an ε-ball around an image.

Differences of scores are bounded by affine forms of the inputs (`affine_forms`); where such a form is not positive on
the whole box, the share where it fails is bounded (`linear_tails`), if need be after a split on neurons
(`phase_splits`).
With d the label at the centre: the share with another label is at most Σ_j share(d does not beat j), and at least
share(t beats d) − Σ_{j≠t} share(d does not beat j) of it has label t. All are proven bounds on shares, not confidence
statements; they become counts by exact rational arithmetic.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np

from quantify.engines.affine_forms import SAFE, Ball, Forms
from quantify.engines.linear_tails import COARSE_BINS, FINE_BINS, binned_tail, gaussian_tails
from quantify.engines.phase_splits import loosest, split_forms
from quantify.engines.sign_patterns import Patterns
from quantify.engines.stages import Floats, NoFormError, chain_of
from quantify.ir import network_eval
from quantify.ir.count import Count, Estimate, Guarantee
from quantify.ir.network import IntNetwork
from quantify.ir.predicate import reads_scores
from quantify.ir.problem import Ball as GridBall
from quantify.ir.problem import Box, GridCase, GridProblem, GridQuery
from quantify.ir.ranges import on_box
from quantify.resources import Limits, Progress

__all__ = ["ENGINE", "MarginsEngine"]

SPREADS = (None, 9.5, 7.0, 5.5)
"""Where ranges are cut, in standard deviations, one attempt each."""
GOAL = 2.0**-43
"""Open shares below this are left alone."""
SPLITS = (3, 6, 9)
"""Numbers of neurons that a difference is split on, one attempt each."""
MOST_COARSE, MOST_FINE = 16, 3
"""Most convolutions for one difference of scores."""
WIDEST_POSITION = 1 << 50
OPERATIONS_A_SECOND = 1e8
SECONDS_OF_TAILS = 0.5
MOST_CORNERS, DRAWS = 64, 8
"""Of the search for a witness: corners of each kind, and batches of random points."""


@dataclass
class Shares:
    """Bounds of the shares where label t does not beat label j, fails[(t, j)], up to a share of `failing` in all."""

    centre: int
    fails: dict[tuple[int, int], float] = field(default_factory=dict)
    failing: float = 0.0

    def lower(self, wanted: frozenset[int], labels: int) -> Fraction:
        """A lower bound of the share with a label in `wanted`."""
        d = self.centre
        others = [j for j in range(labels) if j not in wanted and j != d]
        lost = Fraction(self.failing) + sum((self._of(d, j) for j in others), Fraction(0))
        if d in wanted:
            return max(Fraction(0), 1 - lost)
        beaten = min((self._of(t, d) for t in wanted), default=Fraction(1))
        return max(Fraction(0), 1 - beaten - lost)

    def _of(self, t: int, j: int) -> Fraction:
        return Fraction(self.fails.get((t, j), 1.0))


class MarginsEngine:
    """Bounds (exact when lower and upper meet) for labels of a network over a box, under the uniform measure."""

    name: ClassVar[str] = "margins"
    guarantee: ClassVar[Guarantee] = Guarantee.BOUNDS
    automatic: ClassVar[bool] = True
    structures: ClassVar[frozenset[str]] = frozenset({"network"})

    def refuses(self, problem: GridProblem, case: GridCase) -> str | None:
        """Trees, balls that are not boxes, weighted measures, and queries that the label alone does not answer."""
        network = problem.network
        if network is None:
            return "it bounds networks, not trees"
        if isinstance(case.region, GridBall):
            return f"an {case.region.norm} ball is not a product of ranges"
        if problem.measure.kind != "uniform":
            return "its shares are of the uniform measure"
        if network.outputs != problem.labels:
            return f"the network has {network.outputs} scores for {problem.labels} labels"
        if any(abs(p) > WIDEST_POSITION for p in (*case.region.low, *case.region.high)):
            return "a feature has more than 2^50 positions"
        for query in case.queries:
            if reads_scores(query.predicate):
                return f"{query.name!r} looks at scores, and it bounds labels only"
            if case.region.size and _label_set(problem, case.region, query) is None:
                return f"{query.name!r} mixes features with the label, and it bounds labels only"
        try:
            chain_of(network)
        except NoFormError as error:
            return str(error)
        return None

    def estimate(self, problem: GridProblem, case: GridCase) -> Estimate:
        """Products of every attempt's substitution, and some convolutions."""
        assert problem.network is not None
        chain = chain_of(problem.network)
        work, reach = 0.0, 1.0
        for depth, stage in enumerate(chain.stages, 1):
            # Of one neuron: entries of its row, and inputs that it depends on.
            entries = _entries(stage.weights) / max(1, stage.outputs)
            work += depth * stage.outputs * entries * reach
            reach = min(float(chain.inputs), entries * reach)
        seconds = len(SPREADS) * work / OPERATIONS_A_SECOND + SECONDS_OF_TAILS
        return Estimate(seconds, f"affine bounds over {chain.inputs} inputs")

    def count(self, problem: GridProblem, case: GridCase, limits: Limits, progress: Progress) -> Mapping[str, Count]:
        """See `Engine.count`; the queries share one set of bounds."""
        started = time.monotonic()
        assert problem.network is not None
        assert isinstance(case.region, Box)
        box, size = case.region, case.region.size
        wanted = {q.name: _label_set(problem, box, q) or frozenset() for q in case.queries} if size else {}
        everything = frozenset(range(problem.labels))
        least = dict.fromkeys([*wanted.values(), *(everything - w for w in wanted.values())], 0)
        stopped = False
        for shares in _attempts(problem.network, box, problem.labels, limits) if size else ():
            for labels in least:
                found = math.ceil(shares.lower(labels, problem.labels) * size)
                # The centre has its label in any case.
                least[labels] = max(least[labels], found, int(shares.centre in labels))
            stopped = limits.expired()
            open_points = max((size - least[w] - least[everything - w] for w in wanted.values()), default=0)
            progress.update("bounding margins")
            if stopped or open_points <= size * Fraction(GOAL) * problem.labels:
                break
        digest, seconds = problem.digest(case), time.monotonic() - started
        counts = {}
        for query in case.queries:
            labels = wanted.get(query.name, frozenset())
            low = least[labels] if size else 0
            high = size - least[everything - labels] if size else 0
            exact = low == high
            counts[query.name] = Count(
                low, high, Guarantee.EXACT if exact else Guarantee.BOUNDS, self.name, seconds, digest,
                note=limits.why() if stopped and not exact else "",
            )  # fmt: skip
        return counts

    def witness(self, problem: GridProblem, case: GridCase, query: GridQuery, limits: Limits) -> tuple[int, ...] | None:
        """The centre, or a corner of the box towards another label that the exact network confirms."""
        assert problem.network is not None
        assert isinstance(case.region, Box)
        if not case.region.size:
            return None
        wanted = _label_set(problem, case.region, query) or frozenset()
        for points in _candidates(problem.network, case.region, wanted):
            found = network_eval.labels(problem.network, points)
            for point, label in zip(points.tolist(), found.tolist(), strict=True):
                if label in wanted:
                    return tuple(point)
            if limits.expired():
                return None
        return None


# --- shares --------------------------------------------------------------------------------------------------------
def _attempts(network: IntNetwork, box: Box, labels: int, limits: Limits) -> Iterator[Shares | Patterns]:
    """Bounds of ever more effort, each valid by itself."""
    centre = _label_at_centre(network, box)
    yield Shares(centre)
    chain, ball = chain_of(network), Ball.of(box.low, box.high)
    if network.layers[0].activation == "sign" and not limits.expired():
        yield Patterns(network, chain, ball, centre, limits)
    whole: dict[tuple[int, int], float] = {}
    for spread in SPREADS:
        if limits.expired():
            return
        try:
            forms = Forms(chain, ball, spread)
        except NoFormError:
            return
        if forms.failing >= 0.5 or (forms.failing == 0.0 and spread not in SPREADS[:2]):
            # Too much is cut off, or nothing: then this is the second attempt again.
            continue
        shares = Shares(centre, dict(whole), forms.failing)
        margins = Margins(forms, shares, limits)
        margins.improve([(centre, j) for j in range(labels) if j != centre], wide=spread is not None)
        if any(value > GOAL for value in shares.fails.values()):
            contested = [(j, t) for (t, j), value in shares.fails.items() if t == centre and value > 1e-6]
            margins.improve(contested, wide=spread is not None)
        if spread is None:
            whole = dict(shares.fails)
        yield shares


class Margins:
    """Bounds of the shares where one label does not beat another, under one set of relaxations."""

    def __init__(self, forms: Forms, shares: Shares, limits: Limits) -> None:
        self._forms = forms
        self._shares = shares
        self._limits = limits

    def improve(self, pairs: list[tuple[int, int]], wide: bool) -> None:
        """Lower `fails` of the pairs as far as it goes; `wide` allows for splits and convolutions."""
        if not pairs:
            return
        rows = self._rows(pairs)
        form, constant = self._forms.lower(rows)
        constant = self._past_ties(pairs, constant)
        tails = self._tails(form, constant)
        for number, pair in enumerate(pairs):
            self._note(pair, float(tails[number]))
        for number, pair in enumerate(pairs):
            if not wide or self._known(pair) <= GOAL or self._limits.expired():
                continue
            best = form[number : number + 1], constant[number : number + 1], tails[number : number + 1]
            for most in SPLITS:
                neurons, weights = loosest(self._forms, rows[number : number + 1], most)
                if not neurons:
                    break
                split, shifted = split_forms(self._forms, rows[number : number + 1], neurons, weights)
                shifted = self._past_ties([pair] * len(shifted), shifted)
                found = self._tails(split, shifted)
                if found.sum() < best[2].sum():
                    best = split, shifted, found
                if len(neurons) < most:
                    break
            self._note(pair, float(best[2].sum()))
            self._note(pair, self._binned(*best))

    def _rows(self, pairs: list[tuple[int, int]]) -> Floats:
        rows = np.zeros((len(pairs), self._forms.chain.stages[-1].outputs))
        for number, (t, j) in enumerate(pairs):
            rows[number, t], rows[number, j] = 1.0, -1.0
        return rows

    def _past_ties(self, pairs: list[tuple[int, int]], constant: Floats) -> Floats:
        """Forms that are positive only where t beats j: score t − score j > −1 for t < j, > 0 otherwise."""
        one = math.ldexp(1.0, -self._forms.chain.exponent)
        ties = np.array([one if t < j else 0.0 for t, j in pairs])
        moved = constant + ties
        return np.asarray(moved - 4 * np.spacing(np.abs(moved) + ties))

    def _tails(self, form: Floats, constant: Floats) -> Floats:
        with np.errstate(all="ignore"):
            return gaussian_tails(constant, self._forms.deviation(form), self._forms.least(form, constant))

    def _binned(self, form: Floats, constant: Floats, tails: Floats) -> float:
        """The sum of tails, the largest ones bounded by convolution."""
        tails = tails.copy()
        for most, bins in ((MOST_COARSE, COARSE_BINS), (MOST_FINE, FINE_BINS)):
            for number in np.argsort(-tails)[:most].tolist():
                if tails.sum() <= GOAL or tails[number] <= GOAL / 4 or self._limits.expired():
                    break
                found = binned_tail(form[number], float(constant[number]), self._forms.ball, bins)
                tails[number] = min(tails[number], found)
        return float(tails.sum())

    def _note(self, pair: tuple[int, int], share: float) -> None:
        rounded = min(1.0, share * SAFE)
        self._shares.fails[pair] = min(self._known(pair), rounded)

    def _known(self, pair: tuple[int, int]) -> float:
        return self._shares.fails.get(pair, 1.0)


# --- points --------------------------------------------------------------------------------------------------------
def _centre_point(box: Box) -> list[int]:
    return [(low + high - 1) // 2 for low, high in zip(box.low, box.high, strict=True)]


def _label_at_centre(network: IntNetwork, box: Box) -> int:
    return int(network_eval.labels(network, np.array([_centre_point(box)], np.int64))[0])


def _candidates(network: IntNetwork, box: Box, wanted: frozenset[int]) -> Iterator[np.ndarray]:
    """The centre, then corners where the affine bounds favour a wanted label, then steps between them."""
    low, high = np.array(box.low, np.int64), np.array(box.high, np.int64) - 1
    middle = np.array(_centre_point(box), np.int64)
    yield middle[None, :]
    centre = _label_at_centre(network, box)
    try:
        forms = Forms(chain_of(network), Ball.of(box.low, box.high))
    except NoFormError:
        return
    outputs = forms.chain.stages[-1].outputs
    pairs = [(centre, t) for t in sorted(wanted) if t != centre][:MOST_CORNERS]
    if not pairs:
        pairs = [(j, centre) for j in range(outputs) if j != centre][:MOST_CORNERS]
    rows = np.zeros((len(pairs), outputs))
    for number, (t, j) in enumerate(pairs):
        rows[number, t], rows[number, j] = 1.0, -1.0
    below, above = forms.lower(rows)[0], -forms.lower(-rows)[0]
    for direction in (below, above, below + above):
        yield np.where(direction > 0, low, high)
    corner = np.where(below + above > 0, low, high)
    rng = np.random.default_rng(0)
    for _ in range(4):
        # Corners with a tenth of the inputs elsewhere: the best corner of a bound is not that of the network.
        drawn = rng.integers(low, high + 1, corner.shape)
        yield np.where(rng.random(corner.shape) < 0.1, drawn, corner)
    for _ in range(DRAWS):
        yield rng.integers(low, high + 1, (256, len(low)))


# --- small things --------------------------------------------------------------------------------------------------
def _label_set(problem: GridProblem, box: Box, query: GridQuery) -> frozenset[int] | None:
    """Labels with which every point of the box satisfies the query; None when the label alone does not decide."""
    answers = [on_box(query.predicate, box.low, box.high, label) for label in range(problem.labels)]
    if any(answer is None for answer in answers):
        return None
    return frozenset(label for label, answer in enumerate(answers) if answer)


def _entries(weights: object) -> int:
    return int(getattr(weights, "nnz", getattr(weights, "size", 0)))


ENGINE = MarginsEngine()

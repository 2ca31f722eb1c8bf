"""A network whose first activation is the sign and a box in, proven bounds of the shares of its labels out.

Behind the signs there are few different inputs: most neurons have one sign on all of the box, or on all but a share so
small that it is charged. The patterns of the others are enumerated and each is given to the rest of the network, in
exact integers. What the patterns of a set B weigh together is bounded by linear programming over their distributions,
given how often each neuron has each sign (Boole, 1854; Hailperin, Best possible inequalities for the probability of a
logical function of events, 1965). The solver's dual values are rounded up and checked in integers, so that nothing
depends on the solver.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.engines.affine_forms import SAFE, Ball, Forms
from quantify.engines.linear_tails import FINE_BINS, binned_tail, gaussian_tails
from quantify.engines.stages import Chain, Floats
from quantify.ir import network_eval
from quantify.ir.network import IntNetwork
from quantify.resources import Limits

CHARGED = 2.0**-44
"""Neurons are taken for constant while the shares where they are not sum up to this."""
MOST_PATTERNS = 1 << 12
ONE = 1 << 40
"""Dual values are multiples of 1/ONE."""


@dataclass
class Neuron:
    """A neuron with more than one sign: its pieces, what it gives in each, and an upper bound of the share of each."""

    index: int
    pieces: list[int]
    values: list[int]
    shares: list[float]


class Patterns:
    """Bounds for labels of the network over the box; see the module."""

    def __init__(self, network: IntNetwork, chain: Chain, ball: Ball, centre: int, limits: Limits) -> None:
        self.centre = centre
        self.failing = Fraction(0)
        self._ball, self._limits = ball, limits
        self._known: dict[frozenset[int], Fraction] = {}
        self._sharp = False
        head = Chain(chain.inputs, chain.stages[:1], 0)
        self._forms = Forms(head, ball)
        constant, self._open = self._signs()
        # One row a pattern (one row of no columns when every sign is known).
        self._states = np.array(list(itertools.product(*(range(len(n.values)) for n in self._open))), np.int64)
        values = np.repeat(constant[None, :], len(self._states), axis=0)
        for column, neuron in enumerate(self._open):
            values[:, neuron.index] = np.array(neuron.values)[self._states[:, column]]
        rest = IntNetwork(head.stages[0].outputs, network.layers[1:], network.outputs)
        self._labels = network_eval.labels(rest, values)

    def lower(self, wanted: frozenset[int], labels: int) -> Fraction:
        """A lower bound of the share with a label in `wanted`."""
        if wanted not in self._known:
            self._known[wanted] = max(Fraction(0), 1 - self.failing - self._weight(~np.isin(self._labels, [*wanted])))
        return self._known[wanted]

    # --- signs of the neurons --------------------------------------------------------------------------------------
    def _signs(self) -> tuple[NDArray[np.int64], list[Neuron]]:
        """The values that neurons have (almost) everywhere, and the neurons of which that cannot be said."""
        stage = self._forms.chain.stages[0]
        pieces = stage.intercept.astype(np.int64)
        everyone = np.arange(stage.outputs)
        shares = np.ones((3, stage.outputs))
        for piece, (from_kink, to_kink) in enumerate(((None, 0), (0, 1), (1, None))):
            for kink, side in ((from_kink, 1), (to_kink, -1)):
                if kink is not None:
                    shares[piece] = np.minimum(shares[piece], self._beyond(everyone, stage.kink[kink], side))
        likely = shares.argmax(axis=0)
        unlikely = shares.copy()
        unlikely[likely, everyone] = 0.0
        others = unlikely.sum(axis=0) * (1 + 2.0**-50)
        open_neurons: list[Neuron] = []
        patterns = 1
        budget = Fraction(CHARGED)
        for index in np.argsort(-others).tolist():
            rest = sum((Fraction(float(x)) for x in np.sort(others)[: stage.outputs - len(open_neurons)]), Fraction(0))
            possible = np.flatnonzero(shares[:, index] > 0)
            if rest <= budget or patterns * len(possible) > MOST_PATTERNS:
                self.failing = rest
                break
            patterns *= len(possible)
            values = [int(v) for v in pieces[possible, index]]
            open_neurons.append(Neuron(index, possible.tolist(), values, shares[possible, index].tolist()))
        return pieces[likely, everyone], open_neurons

    def _beyond(self, part: NDArray[np.int64], kinks: Floats, side: int) -> Floats:
        """Bounds of the shares where side·(z − kink) ≥ 0."""
        rows, constant = self._away(part, kinks, side)
        return gaussian_tails(constant, self._forms.deviation(rows), self._forms.least(rows, constant))

    def _away(self, part: NDArray[np.int64], kinks: Floats, side: int) -> tuple[Any, Floats]:
        """Forms that are positive only where z is not beyond the kink: lower forms of side·(kink − z)."""
        below, above = self._forms.neuron_forms(0, part, self._forms.relaxed[0].z_size)
        rows, constant = above if side > 0 else below
        turned = side * kinks
        with np.errstate(invalid="ignore"):
            moved = constant + turned
            moved = moved - 4 * np.spacing(np.abs(constant) + np.abs(turned))
        # Nothing lies beyond an infinite kink.
        return rows, np.where(np.isinf(turned), np.where(turned > 0, 2.0**900, -(2.0**900)), moved)

    def _sharpen(self) -> None:
        """Better bounds of the shares of the signs, once."""
        if not self._sharp:
            self._sharp = True
            for neuron in self._open:
                found = zip(neuron.pieces, neuron.shares, strict=True)
                neuron.shares = [self._sharper(neuron.index, piece, share) for piece, share in found]

    def _sharper(self, index: int, piece: int, share: float) -> float:
        stage = self._forms.chain.stages[0]
        found = []
        for kink, side in ((piece - 1, 1), (piece, -1)):
            if 0 <= kink < 2 and math.isfinite(stage.kink[kink, index]) and not self._limits.expired():
                rows, constant = self._away(np.array([index]), stage.kink[kink, [index]], side)
                row = rows[0] if isinstance(rows, np.ndarray) else rows.toarray()[0]
                found.append(binned_tail(row, float(constant[0]), self._ball, FINE_BINS))
        if len(found) == 2:
            # Beyond one kink or the other lies every z: what lies between them is counted twice.
            found.append((sum(found) - 1.0) * SAFE + 2.0**-51)
        return min([share, *found])

    # --- patterns --------------------------------------------------------------------------------------------------
    def _weight(self, chosen: NDArray[np.bool_]) -> Fraction:
        """An upper bound of the share of the box with one of the chosen patterns."""
        if not chosen.any():
            return Fraction(0)
        if chosen.all():
            return Fraction(1)
        self._sharpen()
        events = [
            (self._states[:, k] == state, share)
            for k, neuron in enumerate(self._open)
            for state, share in enumerate(neuron.shares)
        ]
        return most_share(chosen, events)


def most_share(chosen: NDArray[np.bool_], events: Sequence[tuple[NDArray[np.bool_], float]]) -> Fraction:
    """The most that the chosen atoms can weigh, all atoms weighing at most 1, when no event weighs more than its bound.

    By duality any m, l ≥ 0 with m + Σ_{events of atom s} l_e ≥ [s chosen] give the bound m + Σ l_e·bound_e.
    """
    from scipy.optimize import linprog

    member = np.array([event for event, _ in events], np.int64).T
    bounds = np.array([bound for _, bound in events])
    matrix = np.hstack([np.ones((len(chosen), 1)), member])
    found = linprog(np.append(1.0, bounds), A_ub=-matrix, b_ub=-chosen.astype(float), bounds=(0, None), method="highs")
    if found.x is None or not np.isfinite(found.x).all():
        return Fraction(1)
    dual = np.ceil(np.clip(found.x, 0, 64) * ONE).astype(np.int64)
    short = int((chosen * ONE - (dual[0] + member @ dual[1:])).max())
    constant = int(dual[0]) + max(short, 0)
    total = Fraction(constant, ONE)
    for value, bound in zip(dual[1:].tolist(), bounds.tolist(), strict=True):
        total += Fraction(value, ONE) * Fraction(bound)
    return min(Fraction(1), total)

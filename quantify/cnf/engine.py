"""The reference path as an engine: integer problem → C → CBMC → formula → projected counter → Count."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

from quantify.cnf import calibration, counters, selfcheck
from quantify.cnf.cbmc import Translation, translate
from quantify.cnf.formula import Cnf, Counter
from quantify.cnf.lowering import box_of, require_narrow
from quantify.cnf.network_lowering import products
from quantify.cnf.words import MAX_BITS
from quantify.errors import InputError, MissingToolError, UndecidedError
from quantify.ir.count import Count, Estimate, Guarantee
from quantify.ir.network import IntNetwork
from quantify.ir.problem import Ball, GridCase, GridProblem, GridQuery, Region
from quantify.resources import Limits, Progress

NEARLY = 0.05
"""Seconds before the deadline from which a tool that stopped is taken to have been stopped by it."""
MOST_PRODUCTS = 4000
"""Weights of the largest network that is translated."""
SIZING_WORK = 1_000_000
"""Additions spent at most on the size of a ball, for the bounds of a count that was cut short."""


class CnfEngine:
    """Every query by itself: emitted as C, translated by CBMC, counted by one counter, nothing derived.

    Neither CBMC nor the counter is believed before it passed its calibration.

    Args:
        counter: Which counter, by name.
        epsilon: Wanted relative error, for approximate counters.
        delta: Probability of a larger one, for approximate counters.
    """

    name: ClassVar[str] = "cnf"
    guarantee: ClassVar[Guarantee] = Guarantee.PROB_EXACT
    """With the default counter; every count says its own."""
    automatic: ClassVar[bool] = False
    structures: ClassVar[frozenset[str]] = frozenset({"tree", "network"})

    def __init__(
        self, counter: str = "ganak", epsilon: Fraction = Fraction(4, 5), delta: Fraction = Fraction(1, 5)
    ) -> None:
        self.counter = counter
        self.epsilon = epsilon
        self.delta = delta
        self._kept: dict[tuple[str, str], Translation] = {}

    def refuses(self, problem: GridProblem, case: GridCase) -> str | None:
        """Why this path cannot count the case, or None."""
        if problem.measure.kind == "product":
            return "a formula has models, not weights: only the uniform measure can be counted"
        box = box_of(case.region)
        widest = max((high - low for low, high in zip(box.low, box.high, strict=True)), default=0)
        if widest.bit_length() > MAX_BITS:
            return f"a feature has more than the 2^{MAX_BITS} positions that the C is written for"
        return None if problem.network is None else self._refuses_network(problem.network, case.region)

    @staticmethod
    def _refuses_network(network: IntNetwork, region: Region) -> str | None:
        if products(network) > MOST_PRODUCTS:
            return f"the network has {products(network)} weights, and a formula is made of at most {MOST_PRODUCTS}"
        try:
            require_narrow(network, region)
        except InputError as error:
            return error.message
        return None

    def estimate(self, problem: GridProblem, case: GridCase) -> Estimate:
        """A rough figure, on the high side: what a counter needs cannot be told from outside."""
        box = box_of(case.region)
        bits = max(0, box.size - 1).bit_length()
        network = problem.network
        size = len(problem.tree.label) if network is None else 10 * products(network)
        seconds = len(case.queries) * (0.2 + 0.0005 * size + 1.2 ** min(bits, 200) / 100)
        return Estimate(seconds, f"2^{bits} inputs through CBMC and {self.counter}")

    def count(self, problem: GridProblem, case: GridCase, limits: Limits, progress: Progress) -> Mapping[str, Count]:
        """One count per query; those that the deadline cut short are bounded by the region's size.

        Raises:
            InputError: There is no such counter, or the arithmetic needs words that are too wide.
            MissingToolError: CBMC or the counter is not installed.
            ContradictionError: CBMC or the counter failed its calibration.
            UndecidedError: A tool crashed or ran out of memory.
        """
        digest = problem.digest(case)
        counter: Counter | None = None
        counts: dict[str, Count] = {}
        for number, query in enumerate(case.queries):
            progress.update(f"CBMC and {self.counter}: {query.name!r}, count", number + 1, len(case.queries))
            started = time.monotonic()
            try:
                counter = counter or self._trusted_counter(limits)
                translation = translate(problem, case, query, limits)
                self._keep(digest, query, translation)
                counts[query.name] = self._counted(translation, counter, limits, started, digest)
            except UndecidedError as error:
                if not _out_of_time(limits):
                    raise
                seconds = time.monotonic() - started
                counts[query.name] = Count(
                    lower=0,
                    upper=region_size(case.region),
                    guarantee=Guarantee.BOUNDS,
                    engine=self.name,
                    seconds=seconds,
                    digest=digest,
                    note=f"cut short: {error.message}",
                )
        return counts

    def witness(self, problem: GridProblem, case: GridCase, query: GridQuery, limits: Limits) -> tuple[int, ...] | None:
        """Positions of one input that satisfies the query, from a SAT solver; None when there is none or time ran out.

        Raises:
            UndecidedError: CBMC gave no formula.
        """
        translation = self._kept.get((problem.digest(case), query.name)) or translate(problem, case, query, limits)
        model = _one_model(translation.cnf, limits)
        return None if model is None else translation.positions(model)

    def _trusted_counter(self, limits: Limits) -> Counter:
        counter = counters.get(self.counter)
        if counter.locate() is None:
            raise MissingToolError(f"the counter {self.counter} is not installed", counter.install)
        calibration.require_calibrated(counter, limits)
        selfcheck.require_checked(limits)
        return counter

    def _keep(self, digest: str, query: GridQuery, translation: Translation) -> None:
        """Hold on to the last case's formulas, so that a witness needs no second translation."""
        if any(kept != digest for kept, _ in self._kept):
            self._kept.clear()
        self._kept[digest, query.name] = translation

    def _counted(
        self, translation: Translation, counter: Counter, limits: Limits, started: float, digest: str
    ) -> Count:
        cnf = translation.cnf
        answer = counter.count(cnf, limits, epsilon=self.epsilon, delta=self.delta)
        return Count(
            lower=answer.lower,
            upper=answer.upper,
            guarantee=answer.guarantee,
            engine=self.name,
            seconds=time.monotonic() - started,
            digest=digest,
            seed=answer.seed,
            epsilon=answer.epsilon,
            delta=answer.delta,
            estimate=answer.estimate,
            note=f"CBMC {translation.version}: {cnf.variables} variables, {cnf.literals.count(0)} clauses, "
            f"{len(cnf.projection)} counted; {self.counter} {answer.seconds:.2f} s",
        )


def region_size(region: Region) -> int:
    """Number of points of a region; of a ball with very many distances, the size of its box, which is not less."""
    if not isinstance(region, Ball):
        return region.size
    reached = {0: 1}
    work = 0
    for low, high, centre, weight in zip(region.box.low, region.box.high, region.centre, region.weights, strict=True):
        work += len(reached) * (high - low)
        if work > SIZING_WORK:
            return region.box.size
        longer: dict[int, int] = {}
        for position in range(low, high):
            step = int(position != centre) if region.norm == "l0" else weight * abs(position - centre)
            for distance, ways in reached.items():
                if distance + step <= region.radius:
                    longer[distance + step] = longer.get(distance + step, 0) + ways
        reached = longer
    return sum(reached.values())


def _out_of_time(limits: Limits) -> bool:
    remaining = limits.remaining()
    return remaining is not None and remaining <= NEARLY


def _one_model(cnf: Cnf, limits: Limits) -> list[int] | None:
    from pysat.solvers import Glucose4

    if cnf.multiplier == 0 or any(not clause for clause in cnf.clauses()):
        return None
    with Glucose4(bootstrap_with=[list(clause) for clause in cnf.clauses()]) as solver:
        remaining = limits.remaining()
        if remaining is None:
            solved = solver.solve()
        else:
            timer = threading.Timer(remaining, solver.interrupt)
            timer.start()
            solved = solver.solve_limited(expect_interrupt=True)
            timer.cancel()
        return list(solver.get_model()) if solved else None

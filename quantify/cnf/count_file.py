"""A DIMACS file and the name of a counter go in; its projected count comes out."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from quantify.cnf import counters
from quantify.cnf.calibration import Calibration, require_calibrated
from quantify.cnf.dimacs import read_dimacs
from quantify.cnf.formula import Cnf, Counter, CounterAnswer
from quantify.errors import MissingToolError, UndecidedError
from quantify.ir.count import Guarantee
from quantify.resources import Limits, Progress
from quantify.tools.process import stopped_by

_HEAD_START = 5.0
"""Seconds that a counter has for itself before a free worker starts the next one beside it."""
_SHARE = 0.6
"""Of the time that is left, what a counter gets while others wait for the only worker."""


@dataclass(frozen=True, slots=True)
class FileCount:
    """The count of a file, and what it was established with."""

    path: str
    answer: CounterAnswer
    counter: str
    calibration: Calibration
    variables: int
    clauses: int
    projected: int
    """How many variables the count ranges over."""
    notes: tuple[str, ...] = ()
    """What other counters ran into before this one answered."""


def count_file(
    path: Path,
    counter: str,
    limits: Limits,
    epsilon: Fraction = Fraction(4, 5),
    delta: Fraction = Fraction(1, 5),
    progress: Progress | None = None,
) -> FileCount:
    """Count a DIMACS file, projected onto its `c p show` or `c ind` variables (without any: all variables).

    `auto` takes the installed exact counters (prob-exact ones included) in the order of `counters.discover`. One that
    takes long is joined by the next while there are workers (`limits.jobs`); with one worker, the next has its turn
    when the first gives up or has used its share of the time.

    Raises:
        InputError: The file is no DIMACS, or there is no such counter.
        MissingToolError: The counter, or for `auto` every exact one, is not installed.
        UndecidedError: A limit was reached.
        ContradictionError: The counter failed its calibration.
    """
    progress = progress or Progress()
    chosen = _automatic() if counter == "auto" else [counters.get(counter)]
    progress.update(f"reading {path.name}")
    cnf = read_dimacs(path)
    race = _Race(cnf, limits, epsilon, delta, progress)
    found = race.first_answer(chosen)
    return FileCount(
        str(path), found.answer, found.counter, found.calibration,
        cnf.variables, cnf.literals.count(0), len(cnf.projection), tuple(race.notes),
    )  # fmt: skip


def _automatic() -> list[Counter]:
    exact = [c for c in counters.discover().values() if c.guarantee in (Guarantee.EXACT, Guarantee.PROB_EXACT)]
    installed = [counter for counter in exact if counter.locate() is not None]
    if not installed:
        raise MissingToolError("no exact counter is installed", exact[0].install)
    return installed


@dataclass(frozen=True, slots=True)
class _Found:
    answer: CounterAnswer
    counter: str
    calibration: Calibration


class _Race:
    """One formula under several counters, of which the first answer is taken."""

    def __init__(self, cnf: Cnf, limits: Limits, epsilon: Fraction, delta: Fraction, progress: Progress) -> None:
        self.cnf = cnf
        self.limits = limits
        self.epsilon = epsilon
        self.delta = delta
        self.progress = progress
        self.notes: list[str] = []
        self.decided = threading.Event()

    def first_answer(self, chosen: Sequence[Counter]) -> _Found:
        """Start one counter, and the next beside it when it takes long, or after it when there is but one worker."""
        waiting = list(chosen)
        running: set[Future[_Found]] = set()
        workers = ThreadPoolExecutor(self.limits.jobs)
        try:
            while waiting or running:
                if waiting and len(running) < self.limits.jobs:
                    counter = waiting.pop(0)
                    self.progress.update(f"counting with {counter.name}")
                    running.add(workers.submit(self._count, counter, self._limits(waiting)))
                more_to_start = bool(waiting) and len(running) < self.limits.jobs
                done, running = wait(running, _HEAD_START if more_to_start else None, FIRST_COMPLETED)
                for future in done:
                    try:
                        return future.result()
                    except UndecidedError as error:
                        self.notes.append(error.message)
        finally:
            self.decided.set()
            workers.shutdown()
        raise UndecidedError(
            "; ".join(self.notes), "allow more with --timeout or --memory, or take --counter approxmc for an estimate"
        )

    def _limits(self, waiting: Sequence[Counter]) -> Limits:
        remaining = self.limits.remaining()
        if remaining is None or not waiting or self.limits.jobs > 1:
            return self.limits
        return replace(self.limits, deadline=time.monotonic() + _SHARE * remaining)

    def _count(self, counter: Counter, limits: Limits) -> _Found:
        with stopped_by(self.decided):
            calibration = require_calibrated(counter, limits)
            answer = counter.count(self.cnf, limits, epsilon=self.epsilon, delta=self.delta)
        return _Found(answer, counter.name, calibration)

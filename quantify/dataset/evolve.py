"""A selector and instances in, what a search for adversarial instances found out; interrupted, it can go on later."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from pickle import PicklingError
from typing import Any, Protocol

import joblib
import numpy as np
from numpy.typing import NDArray

from quantify.dataset import evolution
from quantify.dataset.evolution import SCREENING, UNVERIFIED, Book, Judged, Stopped, judge
from quantify.dataset.trials import Trials
from quantify.errors import ContradictionError, InputError, UndecidedError
from quantify.evidence.proportions import proportion
from quantify.ir.evolved import (
    STATISTICS,
    Best,
    Category,
    CrossCheck,
    Evolved,
    Excluded,
    Kind,
    Searched,
    Settings,
    Trial,
)
from quantify.ir.record import DataRef, Draws, ModelRef
from quantify.ir.selector import TIE, Domain, Instances, Selector
from quantify.resources import Limits, Progress

Scores = Callable[[Instances], NDArray[np.float64]]
"""What a network's own library says of instances: probabilities [n, 2]."""
BATCH = 1024
"""Instances that are judged in one call, where they are not a population."""


class ModelSelector(Selector, Protocol):
    """A selector that is in a file."""

    @property
    def ref(self) -> ModelRef:
        """The file."""


@dataclass(frozen=True)
class Table:
    """The instances and where they are from."""

    instances: Instances
    source: str
    """Path, or what was generated."""
    name: str
    """What rules of the gate call it."""
    data: DataRef | None = None


@dataclass(frozen=True)
class Question:
    """What every worker gets."""

    domain: Domain
    selector: Selector
    settings: Settings
    seed: int
    memory_mb: int | None
    """Limit of the address space of a process while it searches."""


@dataclass(frozen=True)
class Job:
    """One trial to be done."""

    row: int
    run: int
    instance: Instances
    winner: int


def search(
    table: Table,
    domain: Domain,
    selector: ModelSelector,
    settings: Settings,
    limits: Limits,
    progress: Progress,
    checkpoint: Path | None = None,
) -> Evolved:
    """Screen every instance that the selector is right about by random masks, and evolve masks for those that pass.

    The outcome depends on the arguments and `limits.seed` alone: not on the workers, nor on where it was interrupted.

    Args:
        checkpoint: Where finished trials are kept, and taken up again.

    Raises:
        InputError: The instances, the selector's answers or the checkpoint cannot be used; no instance is left over.
        ContradictionError: An adversarial instance does not stand a second trial.
        UndecidedError: A worker was killed.
    """
    domain.check(table.instances)
    progress.update("asking the selector", 0, len(table.instances))
    judged = _judged(domain, selector, table.instances, progress)
    excluded = exclusions(judged)
    rows = [row for row in range(len(table.instances)) if row not in excluded]
    if not rows:
        raise _nothing_left(table.source, Counter(excluded.values()))
    question = Question(domain, selector, settings, limits.seed, limits.memory_mb)
    about = _about(table, domain, selector.ref, settings, limits.seed)
    with Trials(checkpoint, about) as trials:
        jobs = {row: Job(row, SCREENING, table.instances[row], int(judged.winners[row])) for row in rows}
        _run(question, _screenings(jobs, settings, trials), trials, limits, progress, "trying random masks")
        todo, total = _evolutions(jobs, settings, trials)
        _run(question, todo, trials, limits, progress, "evolving masks", total, _Finisher(trials, settings))
        _finish(jobs, trials, settings)
        progress.update("trying what was found once more")
        searched = tuple(
            _searched(question, jobs[row], -float(judged.fitness[row]), trials.of(row), pooled)
            for row, pooled in sorted(trials.pooled().items())
        )
    unfinished = tuple(row for row in rows if row not in {one.row for one in searched})
    hits = sum(one.category != "robust" for one in searched)
    unsure = sum(one.category == "robust" and one.unverified > 0 for one in searched) + len(unfinished)
    reading = proportion(
        "adversarial_rate", "table", table.name, Draws(hits, len(rows), unknown=unsure), support=len(rows)
    )
    given, length = table.instances.shape
    note = getattr(selector, "note", None)
    return Evolved(
        selector.ref, table.data, table.source, given, length, domain.describe(), settings, limits.seed, excluded,
        searched, unfinished, reading, () if note is None else (note,),
    )  # fmt: skip


def cross_check(evolved: Evolved, table: Table, selector: Selector, library: Scores) -> Evolved:
    """Ask the network's library about the instances and about every adversarial one that is reported.

    Raises:
        ContradictionError: It is right about one that is called adversarial.
    """
    found = [(one.row, best) for one in evolved.searched for best in one.found]
    largest = float(np.abs(library(table.instances) - selector.scores(table.instances)).max())
    if found:
        scores = library(np.array([best.instance for _, best in found]))
        largest = max(largest, float(np.abs(scores - np.array([best.scores for _, best in found])).max()))
        for (row, best), told in zip(found, scores, strict=True):
            if not told[1 - best.winner] > told[best.winner]:
                raise ContradictionError(
                    f"row {row}, run {best.run}: the library is right about an instance that is called adversarial: "
                    f"{told.tolist()}, natively {list(best.scores)}",
                    "believe nothing of this search, and report it: it is a defect",
                )
    return replace(evolved, cross_check=CrossCheck(len(table.instances), len(found), largest))


def exclusions(judged: Judged) -> dict[int, Excluded]:
    """Rows that are not searched, and why: the document searches those that are classified correctly."""
    reasons: dict[int, Excluded] = {}
    for row, (winner, fitness) in enumerate(zip(judged.winners, judged.fitness, strict=True)):
        if winner == TIE:
            reasons[row] = "tie"
        elif abs(fitness) <= UNVERIFIED:
            reasons[row] = "undecided"
        elif fitness > 0:
            reasons[row] = "misclassified"
    return reasons


def _nothing_left(source: str, reasons: Counter[Excluded]) -> InputError:
    """What happened where every instance was left out, and what helps against the most frequent reason."""
    total = reasons.total()
    (most, _), *_ = reasons.most_common()
    said = {
        "tie": "no solver is better",
        "misclassified": "the selector is wrong already",
        "undecided": "its two answers are equal, or nearly",
    }
    hints: dict[Excluded, str] = {
        "tie": "give instances that one solver packs better (--instances ds2:20 generates some), or other --solvers, "
        "--capacity or --sizes",
        "misclassified": "check --solvers (the order of the outputs), --scale and the sizes",
        "undecided": "check --scale and --offset: the model may be asked far from what it was trained on",
    }
    every = ", ".join(f"{count:,} where {said[reason]}" for reason, count in reasons.most_common())
    return InputError(f"{source}: none of {total:,} instances is left to search: {every}", hints[most])


def _judged(domain: Domain, selector: Selector, instances: Instances, progress: Progress) -> Judged:
    parts = []
    for start in range(0, len(instances), BATCH):
        parts.append(judge(domain, selector, instances[start : start + BATCH]))
        progress.update("asking the selector", min(start + BATCH, len(instances)), len(instances))
    whole = [np.concatenate([getattr(part, name) for part in parts]) for name in ("winners", "scores", "fitness")]
    return Judged(*whole)


def _about(table: Table, domain: Domain, ref: ModelRef, settings: Settings, seed: int) -> dict[str, Any]:
    """What a checkpoint must be of, by the words that an error would use."""
    return {
        "the model": ref.sha256,
        "the instances": hashlib.sha256(repr(table.instances.shape).encode() + table.instances.tobytes()).hexdigest(),
        "the domain": domain.describe(),
        "the seed": seed,
        **{f"{name} of the search": value for name, value in asdict(settings).items()},
    }


# --- which trials ----------------------------------------------------------------------------------------------------
def _screenings(jobs: dict[int, Job], settings: Settings, trials: Trials) -> list[Job]:
    done = trials.done()
    return [job for job in jobs.values() if settings.screen and (job.row, SCREENING) not in done]


def _evolutions(jobs: dict[int, Job], settings: Settings, trials: Trials) -> tuple[list[Job], int]:
    """Runs that are still to be done, by instance, and how many there are with those that are done."""
    done = trials.done()
    every = [
        replace(job, run=run)
        for row, job in jobs.items()
        if (not settings.screen or done.get((row, SCREENING)) is False)
        for run in range(settings.runs)
    ]
    return [job for job in every if (job.row, job.run) not in done], len(every)


class _Finisher:
    """Pools the samples of an instance as soon as its last trial is in, so that they need not be kept."""

    def __init__(self, trials: Trials, settings: Settings) -> None:
        self._trials = trials
        self._missing: dict[int, int] = {}
        for (row, run), _ in trials.done().items():
            if run != SCREENING:
                self._missing[row] = self._missing.get(row, settings.runs) - 1
        self._runs = settings.runs

    def __call__(self, trial: Trial) -> None:
        self._missing[trial.row] = self._missing.get(trial.row, self._runs) - 1
        if self._missing[trial.row] == 0:
            self._trials.finish(trial.row, pool(self._trials.of(trial.row)))


def _finish(jobs: dict[int, Job], trials: Trials, settings: Settings) -> None:
    """Pool the samples of the instances that are complete without evolution, or were when a run was cut short."""
    finished, done = trials.pooled(), trials.done()
    runs: dict[int, int] = {}
    for row, run in done:
        runs[row] = runs.get(row, 0) + (run != SCREENING)
    for row in jobs:
        fragile = done.get((row, SCREENING), False)
        complete = fragile or (((row, SCREENING) in done or not settings.screen) and runs.get(row, 0) == settings.runs)
        if complete and row not in finished:
            trials.finish(row, pool(trials.of(row)))


# --- doing them ------------------------------------------------------------------------------------------------------
def _run(
    question: Question,
    jobs: Sequence[Job],
    trials: Trials,
    limits: Limits,
    progress: Progress,
    message: str,
    total: int = 0,
    after: Callable[[Trial], None] = lambda trial: None,
) -> None:
    total = total or len(jobs)
    done = total - len(jobs)
    progress.update(message, done, total)
    for trial in _trials(question, jobs, limits):
        if trial is not None:
            trials.add(trial)
            after(trial)
            done += 1
            progress.update(message, done, total)
        if limits.expired():
            return


def _trials(question: Question, jobs: Sequence[Job], limits: Limits) -> Iterator[Trial | None]:
    """The trials, as they come; None for one that a limit cut short."""
    try:
        yield from _worked(question, jobs, limits)
    except MemoryError:
        more = "fewer --jobs" if question.memory_mb is None else "more --memory"
        raise UndecidedError(
            "there was not enough memory for the search", f"give {more}; a --checkpoint keeps what was done"
        ) from None


def _worked(question: Question, jobs: Sequence[Job], limits: Limits) -> Iterator[Trial | None]:
    workers = min(limits.jobs, len(jobs))
    if limits.expired():
        return
    if workers <= 1:
        for job in jobs:
            yield _trial(question, job, limits.expired)
        return
    with _running(limits) as flag:
        parallel = joblib.Parallel(
            n_jobs=workers, return_as="generator_unordered", pre_dispatch="2*n_jobs", batch_size=1
        )
        results = parallel(joblib.delayed(_trial_apart)(question, job, flag, os.getpid()) for job in jobs)
        try:
            yield from results
        except PicklingError:
            raise InputError("the selector cannot be sent to workers", "give --jobs 1") from None
        except BrokenProcessPool as error:
            if "un-serialize" in str(error):
                raise InputError(
                    "a worker cannot load the selector: " + str(error.__cause__).strip(' \n"').rpartition("\n")[2],
                    "give --jobs 1, or put its module on PYTHONPATH",
                ) from None
            codes = re.search(r"\{.*\}", str(error))  # as in "The exit codes of the workers are {SIGKILL(-9)}"
            raise UndecidedError(
                "a worker ended on its own" if codes is None else f"a worker was killed: {codes[0]}",
                "is there memory for them? give fewer --jobs; a --checkpoint keeps what was done",
            ) from None
        finally:
            results.close()


def _trial(question: Question, job: Job, expired: Callable[[], bool]) -> Trial | None:
    book = Book(question.domain, question.selector, job.instance, job.winner)
    with _confined(question.memory_mb):
        if job.run == SCREENING:
            return evolution.screen(book, question.settings, question.seed, job.row)
        try:
            return evolution.evolve(book, question.settings, question.seed, job.row, job.run, expired)
        except Stopped:
            return None


@contextmanager
def _confined(memory_mb: int | None) -> Iterator[None]:
    """A limit of this process's address space, in MiB, until the block ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if memory_mb is not None:
        wanted = memory_mb << 20
        least = min([wanted, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)])
        resource.setrlimit(resource.RLIMIT_AS, (least, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _trial_apart(question: Question, job: Job, flag: str, parent: int) -> Trial | None:
    """One trial in a process of its own, where Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def expired() -> bool:
        if os.getppid() != parent:  # it was killed: there is nobody to work for, nor to tidy up
            shutil.rmtree(os.path.dirname(flag), ignore_errors=True)
            os._exit(1)
        return not os.path.exists(flag)

    return _trial(question, job, expired)


@contextmanager
def _running(limits: Limits) -> Iterator[str]:
    """The path of a file that is there until a limit is reached: workers look for it."""
    over = threading.Event()
    with tempfile.TemporaryDirectory(prefix="quantify-") as folder:
        flag = Path(folder, "running")
        flag.touch()

        def watch() -> None:
            while not over.wait(0.1):
                if limits.expired():
                    flag.unlink(missing_ok=True)
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield str(flag)
        finally:
            over.set()
            watcher.join()


# --- what they say ---------------------------------------------------------------------------------------------------
def pool(trials: Sequence[Trial]) -> dict[str, Any]:
    """What the different adversarial instances of all trials say together, as plain data."""
    samples = evolution.unique(np.concatenate([trial.samples for trial in trials]))
    if not len(samples):
        return {"unique": 0, "changed_winner": 0, "median_fitness": None, "medians": {}}
    return {
        "unique": len(samples),
        "changed_winner": int(samples["changed_winner"].sum()),
        "median_fitness": float(np.median(samples["fitness"])),
        "medians": {name: float(np.median(samples[name])) for name in STATISTICS},
    }


def _searched(
    question: Question, job: Job, confidence: float, trials: Sequence[Trial], pooled: dict[str, Any]
) -> Searched:
    runs = [trial for trial in trials if trial.run != SCREENING]
    found = [trial.queries for trial in runs if trial.queries is not None]
    screened = next((trial.queries for trial in trials if trial.run == SCREENING), None)
    category: Category = "fragile" if screened is not None else "perturbable" if found else "robust"
    queries = float(screened) if screened is not None else float(np.median(found)) if found else None
    return Searched(
        job.row,
        job.winner,
        confidence,
        category,
        max(trial.best_fitness for trial in trials),
        queries,
        kind_of(pooled["unique"], pooled["changed_winner"]),
        len(found),
        evaluations=sum(trial.evaluations for trial in trials),
        asked=sum(trial.asked for trial in trials),
        ties=sum(trial.ties for trial in trials),
        unverified=sum(trial.unverified for trial in trials),
        run_fitness=tuple(trial.best_fitness for trial in runs),
        curves=tuple(trial.curve for trial in runs),
        found=tuple(verified(question, job, trial) for trial in trials if trial.queries is not None),
        **pooled,
    )


def kind_of(unique: int, changed_winner: int) -> Kind | None:
    """Section 4.1: T1 when no adversarial instance has another winner than before, T2 when all have, T3 between."""
    if not unique:
        return None
    return "T1" if changed_winner == 0 else "T2" if changed_winner == unique else "T3"


def verified(question: Question, job: Job, trial: Trial) -> Best:
    """The strongest mask of a trial once more, alone: solved again (by other code where the domain has some).

    Raises:
        ContradictionError: The selector is right about it, or the solvers compare otherwise.
    """
    perturbed = question.domain.perturb(job.instance, trial.best_mask[None])
    judged = judge(question.domain, question.selector, perturbed)
    again: Callable[[Instances], NDArray[np.int8]] = getattr(question.domain, "recheck", question.domain.winners)
    winner, fitness = int(judged.winners[0]), float(judged.fitness[0])
    if int(again(perturbed)[0]) != winner or winner == TIE or not fitness > UNVERIFIED:
        raise ContradictionError(
            f"row {job.row}, run {trial.run}: an adversarial instance does not stand a second trial",
            "the selector's answer must depend on nothing but the instance; give --jobs 1 and compare",
        )
    scores = float(judged.scores[0, 0]), float(judged.scores[0, 1])
    return Best(trial.run, trial.best_mask, perturbed[0], winner, scores, fitness)

"""Flow 1, counting: model file + property file → Evidence; the one module that knows the order of the stages."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from quantify import discretise, properties, readers
from quantify import engines as engine_room
from quantify.engines import choice
from quantify.engines.choice import choose_engine
from quantify.errors import ContradictionError, InputError, MissingToolError, UndecidedError
from quantify.evidence import cases as case_evidence
from quantify.evidence import second_ways, subject
from quantify.evidence.totals import region_total
from quantify.ir.count import Count, Engine, Guarantee
from quantify.ir.evidence import CaseEvidence, Check, CnfEvidence, Evidence, Witness
from quantify.ir.problem import Box, Case, GridCase, GridProblem, GridQuery, Problem
from quantify.resources import Limits, Progress, Stop
from quantify.tools.process import stopped_by

if TYPE_CHECKING:
    from quantify.cnf.engine import CnfEngine
    from quantify.engines.branch_checkpoint import Checkpoints
    from quantify.engines.branch_record import Record

TOLD_TOO = {"gap", "overlap"}
"""Queries of learnability that become checks instead of counts."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose for one run."""

    engine: str = "auto"
    counter: str = "ganak"
    cross_check: bool = False
    trust_pickle: bool = False
    limits: Limits = field(default_factory=Limits)
    samples: int = 1_000_000
    confidence: Fraction = Fraction(95, 100)
    epsilon: Fraction = Fraction(4, 5)
    delta: Fraction = Fraction(1, 5)
    gap: Fraction | None = None
    """Open share of the region at which bounds are good enough; None: count to the end."""
    radius: Fraction | None = None
    """ε of a robustness property, instead of its own."""
    checkpoint: Path | None = None
    """Folder in which `branch` keeps unfinished work, and from which it goes on."""
    bundle_directory: Path = Path(".quantify")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A problem that passed validation and the fidelity check, ready to be counted."""

    problem: Problem
    grid: GridProblem
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """One case as `branch` counted it, every query of it."""

    case: Case
    grid_case: GridCase
    counts: Mapping[str, Count]
    record: Record | None
    """The split tree; None when the region has at most one input."""
    proven: Mapping[str, tuple[int, int]]
    """What the tree proves of each query."""

    @property
    def names(self) -> tuple[str, ...]:
        """The queries of failures; every query that is reported when there are none."""
        failures: tuple[str, ...] = engine_room.witness.failures(self.grid_case)
        return failures or tuple(query.name for query in self.grid_case.queries if query.reported)


Keep = Callable[[Prepared, Split], None]


class CountedApartError(ContradictionError):
    """Two ways of counting disagree, or what was to be counted disagrees with the library.

    Args:
        evidence: What is left to say: the case on which they do, and those after it, lie between nothing and all.
    """

    def __init__(self, error: ContradictionError, evidence: Evidence) -> None:
        super().__init__(error.message, error.hint)
        self.evidence = evidence


def prepare(model_path: Path, property_path: Path, options: Options, progress: Progress) -> Prepared:
    """Read, validate, lower to integers, and compare the integers with the library's own predict.

    Raises:
        InputError: Model or property cannot be used.
        CountedApartError: The integer model disagrees with the library on some input.
    """
    started = time.monotonic()
    progress.update("reading the model")
    source = properties.load(property_path)
    if options.radius is not None:
        source = properties.with_epsilon(source, options.radius)
    model = readers.read_model(model_path, trust_pickle=options.trust_pickle)
    problem = properties.bind(source, model, seed=options.limits.seed)
    progress.update("lowering to integers")
    grid = discretise.lower(problem)
    notes = tuple(Check("note", "ok", note) for note in problem.notes)
    try:
        checks = _compared(problem, grid, options, progress)
    except ContradictionError as error:
        failed = Check("contradiction", "failed", error.message)
        cases = [case_evidence.unfinished(problem, grid, *both) for both in zip(problem.cases, grid.cases, strict=True)]
        raise CountedApartError(error, _evidence(problem, grid, cases, [failed, *notes], False, started)) from error
    return Prepared(problem, grid, checks + notes)


def _compared(problem: Problem, grid: GridProblem, options: Options, progress: Progress) -> tuple[Check, ...]:
    """The integers against the library's predict, and under --cross-check against the library itself."""
    progress.update("comparing with the library's predict")
    checks = discretise.check_fidelity(
        problem, grid, lambda positions: engine_room.evaluate.labels(grid, positions), seed=options.limits.seed
    )
    if options.cross_check and problem.model.library_predict is not None:
        progress.update("asking the library itself")
        checks = (*checks, _ask_library(problem, grid, options))
    return checks


def _ask_library(problem: Problem, grid: GridProblem, options: Options) -> Check:
    """The library that the model comes from, where predict is an evaluator of ours; skipped when not installed."""
    decision = "argmax" if problem.network is None else problem.network.decision
    answers = discretise.LibraryAnswers(problem.model, decision)
    try:
        return discretise.check_library(problem, grid, answers, seed=options.limits.seed)
    except MissingToolError as error:
        return Check("library", "skipped", f"{error.message}: {error.hint}")


def count(
    model_path: Path, property_path: Path, options: Options, progress: Progress, keep: Keep | None = None
) -> Evidence:
    """Count every query of every case.

    An interruption or the deadline ends the run with what is known: unfinished cases carry the bounds [0, total].

    Args:
        keep: Called after each case with its split tree; every case is then counted by `branch`.

    Raises:
        CountedApartError: Ways of counting disagree.
        QuantifyError: Bad input, a missing tool, or a limit before anything was known.
    """
    started = time.monotonic()
    known_engine(options.engine)
    prepared = prepare(model_path, property_path, options, progress)
    with contextlib.ExitStack() as stack:
        kept = None if options.checkpoint is None else stack.enter_context(_checkpoints(options.checkpoint))
        return _count_all(prepared, options, progress, keep, kept, started)


def _count_all(
    prepared: Prepared,
    options: Options,
    progress: Progress,
    keep: Keep | None,
    kept: Checkpoints | None,
    started: float,
) -> Evidence:
    problem, grid = prepared.problem, prepared.grid
    chosen = available_engines(options, kept)
    if keep is not None and kept is not None:
        raise InputError("a count whose boxes are kept cannot be resumed", "leave out --checkpoint")
    if keep is not None and options.engine not in ("auto", "branch"):
        raise InputError(f"engine {options.engine} keeps no boxes", "leave out --engine, or use --engine branch")
    cases: list[CaseEvidence] = []
    checks = list(prepared.checks)
    interrupted = False
    apart: ContradictionError | None = None
    for number, (case, grid_case) in enumerate(zip(problem.cases, grid.cases, strict=True)):
        progress.update("counting", number, len(problem.cases))
        found: CaseEvidence = case_evidence.unfinished(problem, grid, case, grid_case)
        case_checks: tuple[Check, ...] = ()
        if not (interrupted or apart or options.limits.stopped()):
            try:
                with stopped_by(options.limits.stop or Stop()):
                    found, case_checks = _count_case(prepared, case, grid_case, chosen, options, progress, keep)
            except KeyboardInterrupt:
                interrupted = True
            except ContradictionError as error:
                apart = error
                checks.append(Check("contradiction", "failed", error.message))
            except UndecidedError:
                if not options.limits.stopped():
                    raise
        cases.append(found)
        checks.extend(case_checks)
    progress.update("counting", len(problem.cases), len(problem.cases))
    interrupted = interrupted or options.limits.stopped()
    if interrupted:
        checks.append(Check("interrupted", "warning", "stopped by the user; unfinished counts are bounds"))
    decided = all(_is_decided(c, case.total, chosen, options) for case in cases for c in case.counts.values())
    complete = decided and not interrupted and apart is None
    checks.extend(_unfinished_work(cases, complete, kept))
    evidence = _evidence(problem, grid, cases, checks, complete, started)
    if apart is not None:
        raise CountedApartError(apart, evidence) from apart
    return evidence


def _evidence(
    problem: Problem, grid: GridProblem, cases: list[CaseEvidence], checks: list[Check], complete: bool, started: float
) -> Evidence:
    return Evidence(
        model=subject.of_model(problem, grid),
        property=subject.of_property(problem),
        domain=subject.of_domain(problem),
        cases=tuple(cases),
        checks=case_evidence.merge_checks(checks),
        scale=math.prod(problem.measure.totals(problem.domain.sizes)) if problem.measure.kind == "product" else 1,
        complete=complete,
        seconds=time.monotonic() - started,
    )


def _is_decided(found: Count, total: int, known: Mapping[str, Engine], options: Options) -> bool:
    """Whether no limit cut this count short: bounds are an answer when they are as good as was asked for."""
    if found.lower == found.upper or found.guarantee is not Guarantee.BOUNDS:
        return True
    if options.gap is not None:
        return found.upper - found.lower <= options.gap * total
    engine = known.get(found.engine)
    bounds_only = engine is not None and engine.guarantee is Guarantee.BOUNDS
    return bounds_only and not options.limits.expired()


def available_engines(options: Options, kept: Checkpoints | None = None) -> dict[str, Engine]:
    """Every discovered engine by name, with sampling and the CBMC path configured as the options say.

    The CBMC path is loaded only when it is wanted: most counts never need it, and all pay for starting up.
    """
    found = dict(engine_room.discover())
    found["sample"] = engine_room.sample.SampleEngine(samples=options.samples, confidence=options.confidence)
    if options.gap is not None or kept is not None:
        found["branch"] = engine_room.branch.BranchEngine(gap=options.gap, checkpoint=kept)
    if options.engine == "cnf" or options.cross_check:
        found["cnf"] = _cnf_engine(options)
    return found


def known_engine(name: str) -> None:
    """Refuse the name of an engine that is not there.

    Raises:
        InputError: It is none of those discovered, nor auto or cnf.
    """
    known = sorted({*engine_room.discover(), "cnf"})
    if name not in ("auto", *known):
        raise InputError(f"there is no engine called {name!r}", f"choose one of: auto, {', '.join(known)}")


def _count_case(
    prepared: Prepared,
    case: Case,
    grid_case: GridCase,
    known: Mapping[str, Engine],
    options: Options,
    progress: Progress,
    keep: Keep | None,
) -> tuple[CaseEvidence, tuple[Check, ...]]:
    problem, grid = prepared.problem, prepared.grid
    total = region_total(grid, grid_case.region)
    digest = grid.digest(grid_case)
    if keep is None:
        engine, reason = choose_engine(grid, grid_case, known, options.engine)
        wanted = grid_case if options.cross_check else _needed(grid_case)
        found = engine.count(grid, wanted, options.limits, progress)
    else:
        engine, reason = known["branch"], "branch: the engine that keeps its boxes"
        if (refusal := choice.refusal(engine, grid, grid_case)) is not None:
            raise InputError(
                f"boxes and certificates come from the engine branch, which cannot count this: {refusal}",
                "leave out --boxes and --certificate",
            )
        outcome = engine_room.branch.BranchEngine(gap=options.gap).run(
            grid, grid_case, options.limits, progress, record=True
        )
        found = outcome.counts
        progress.update("writing what was kept")
        keep(prepared, Split(case, grid_case, found, outcome.record, outcome.proven))
    counts = {name: replace(count, digest=digest) for name, count in found.items()}
    checks: list[Check] = []
    if options.cross_check:
        progress.update("cross-checking")
        checks.extend(_cross_check(prepared, case, grid_case, counts, engine, known, options, progress))
    checks.extend(case_evidence.what_counts_say(problem, counts, total))
    failures = engine_room.witness.search(grid, grid_case, counts, total, known, engine, options.limits, case.centre)
    witnesses = tuple(_replayed(prepared, case, grid_case, query, positions) for query, positions in failures)
    reported = {q.name: counts[q.name] for q in grid_case.queries if q.reported and q.name in counts}
    return case_evidence.of_case(problem, case, reported, total, witnesses, reason), tuple(checks)


def _checkpoints(folder: Path) -> Checkpoints:
    from quantify.engines.branch_checkpoint import Checkpoints

    return Checkpoints(folder)


def _unfinished_work(cases: list[CaseEvidence], complete: bool, kept: Checkpoints | None) -> Iterator[Check]:
    """What became of work that a limit cut short, and what to type to go on."""
    if kept is not None:
        yield from kept.finish(complete)
    elif not complete and any(c.engine == "branch" and c.lower < c.upper for e in cases for c in e.counts.values()):
        yield Check("note", "ok", "nothing was kept of the work; with --checkpoint DIR the same command would go on")


def split_boxes(prepared: Prepared, split: Split) -> Iterator[tuple[str, Box]]:
    """The boxes that hold the inputs of each of `split.names`, after its name, and those that are open, after "open".

    Boxes of one query are disjoint, and none holds an open input.

    Raises:
        ContradictionError: They do not add up to the counts.
    """
    boxes: Iterator[tuple[str, Box]] = engine_room.branch_record.boxes_of(
        prepared.grid, split.grid_case, split.record, split.names, split.counts
    )
    return boxes


def _needed(case: GridCase) -> GridCase:
    """The case without the queries that only complete a partition."""
    keep = tuple(q for q in case.queries if q.reported or q.name in TOLD_TOO)
    return replace(case, queries=keep)


def _cross_check(
    prepared: Prepared,
    case: Case,
    grid_case: GridCase,
    counts: dict[str, Count],
    first: Engine,
    known: Mapping[str, Engine],
    options: Options,
    progress: Progress,
) -> list[Check]:
    problem, grid = prepared.problem, prepared.grid
    limits = options.limits
    if limits.deadline is None:
        limits = replace(limits, deadline=time.monotonic() + second_ways.SECONDS)
    fresh = engine_room.branch.BranchEngine(gap=options.gap)
    ways = second_ways.SecondWays(
        # Only the first way goes on from earlier work.
        exact=choice.second_ways(grid, grid_case, first, {**known, "branch": fresh}, limits.remaining() or 0.0),
        sampling=engine_room.sample.SampleEngine(samples=second_ways.SAMPLES),
        refusal=None if first.name == "cnf" else known["cnf"].refuses(grid, grid_case),
    )
    return second_ways.cross_check(
        problem, grid, case, grid_case, counts, ways, limits, progress, options.bundle_directory
    )


def _replayed(
    prepared: Prepared, case: Case, grid_case: GridCase, query: GridQuery, positions: tuple[int, ...]
) -> Witness:
    grid, point = prepared.grid, np.array([positions], dtype=np.int64)
    claimed = int(engine_room.evaluate.labels(grid, point)[0])
    holds = bool(engine_room.evaluate.truths(grid, grid_case, query, point)[0])
    return discretise.replay(prepared.problem, grid, case, query.name, positions, claimed, holds)


# --- the other two commands that count or write ----------------------------------------------------------------------
def emit(
    model_path: Path,
    property_path: Path,
    options: Options,
    progress: Progress,
    *,
    form: Literal["c", "cnf"],
    query: str | None = None,
    number: int = 0,
) -> str:
    """The C text or the DIMACS text of one query of one case.

    Raises:
        InputError: There is no such case or query.
        MissingToolError: CBMC is needed and not installed.
    """
    from quantify.cnf import cbmc, codegen

    prepared = prepare(model_path, property_path, options, progress)
    problem, grid = prepared.problem, prepared.grid
    if number >= len(grid.cases):
        raise InputError(f"there is no case {number}", f"cases are numbered 0 to {len(grid.cases) - 1}")
    case = grid.cases[number]
    names = {q.name: q for q in case.queries}
    if query is not None and query not in names:
        raise InputError(f"the property has no count called {query!r}", f"choose one of: {', '.join(names)}")
    wanted = names[query] if query is not None else case.queries[0]
    shown = codegen.Names(tuple(f.name for f in problem.domain), problem.model.classes)
    if form == "c":
        return codegen.emit_c(grid, case, wanted, shown)
    translation = cbmc.translate(grid, case, wanted, options.limits)
    return cbmc.dimacs_text(translation, wanted, shown)


def count_cnf(
    path: Path, counter: str, limits: Limits, epsilon: Fraction, delta: Fraction, progress: Progress
) -> CnfEvidence:
    """The projected count of a DIMACS file.

    Raises:
        QuantifyError: See `cnf.count_file.count_file`; a limit is an UndecidedError.
    """
    from quantify.cnf.count_file import count_file

    started = time.monotonic()
    found = count_file(path, counter, limits, epsilon, delta, progress)
    answer = found.answer
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    tool = found.calibration.tool
    return CnfEvidence(
        formula={
            "path": str(path),
            "sha256": digest,
            "variables": found.variables,
            "clauses": found.clauses,
            "projection": found.projected,
        },
        count=Count(
            answer.lower,
            answer.upper,
            answer.guarantee,
            found.counter,
            answer.seconds,
            digest,
            seed=answer.seed,
            epsilon=answer.epsilon,
            delta=answer.delta,
            estimate=answer.estimate,
            note=f"{tool.name} {tool.version}",
        ),
        checks=(
            Check(
                "calibration", "ok", f"{found.counter} {tool.version}: {found.calibration.checked} known counts right"
            ),
            *(Check("note", "ok", note) for note in found.notes),
        ),
        seconds=time.monotonic() - started,
    )


# --- small parts ---------------------------------------------------------------------------------------------------
def _cnf_engine(options: Options) -> CnfEngine:
    from quantify.cnf.engine import CnfEngine

    return CnfEngine(counter=options.counter, epsilon=options.epsilon, delta=options.delta)


def exit_code(evidence: Evidence) -> int:
    """0, or 3 when a limit left bounds or a cross-check that was asked for could not be made."""
    failed = any(check.status == "failed" for check in evidence.checks)
    return 0 if evidence.complete and not failed else 3


__all__ = [
    "CountedApartError",
    "Options",
    "Prepared",
    "Split",
    "available_engines",
    "choose_engine",
    "count",
    "count_cnf",
    "emit",
    "exit_code",
    "known_engine",
    "prepare",
    "split_boxes",
]

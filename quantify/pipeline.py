"""Flow 1, counting: model file + property file → Evidence; the one module that knows the order of the stages."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from quantify import discretise, properties, readers
from quantify import engines as engine_room
from quantify.engines.choice import choose_engine, refusal
from quantify.errors import ContradictionError, InputError, MissingToolError, UndecidedError
from quantify.evidence import bundle, crosscheck, rates
from quantify.evidence.totals import region_total
from quantify.ir.count import Count, Engine, Guarantee
from quantify.ir.evidence import CaseEvidence, Check, CnfEvidence, Evidence, Witness
from quantify.ir.model import Tree
from quantify.ir.network import LinearLayer, Network
from quantify.ir.problem import Case, GridCase, GridProblem, GridQuery, Problem
from quantify.resources import Limits, Progress, Stop
from quantify.tools.process import stopped_by

if TYPE_CHECKING:
    from quantify.cnf.engine import CnfEngine

# A query whose inputs are the failures: for these the answer shows an input, replayed through the model.
FAILURES = {"violated", "fragile", "fp", "fn"}
TOLD_TOO = {"gap", "overlap"}
"""Queries of learnability that become checks instead of counts."""
WITNESS_SECONDS = 5.0
"""What the search for an input may take when it is not proven that there is one."""
CROSS_CHECK_SAMPLES = 200_000
CROSS_CHECK_SECONDS = 120.0
"""What the second ways of one case may take when the user set no time limit."""


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
    bundle_directory: Path = Path(".quantify")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A problem that passed validation and the fidelity check, ready to be counted."""

    problem: Problem
    grid: GridProblem
    checks: tuple[Check, ...]


def prepare(model_path: Path, property_path: Path, options: Options, progress: Progress) -> Prepared:
    """Read, validate, lower to integers, and compare the integers with the library's own predict.

    Raises:
        InputError: Model or property cannot be used.
        ContradictionError: The integer model disagrees with the library on some input.
    """
    progress.update("reading the model")
    source = properties.load(property_path)
    model = readers.read_model(model_path, trust_pickle=options.trust_pickle)
    problem = properties.bind(source, model, seed=options.limits.seed)
    progress.update("lowering to integers")
    grid = discretise.lower(problem)
    progress.update("comparing with the library's predict")
    checks = discretise.check_fidelity(
        problem, grid, lambda positions: engine_room.evaluate.labels(grid, positions), seed=options.limits.seed
    )
    if options.cross_check and problem.model.library_predict is not None:
        progress.update("asking the library itself")
        checks = (*checks, _ask_library(problem, options))
    notes = tuple(Check("note", "ok", note) for note in problem.notes)
    return Prepared(problem, grid, checks + notes)


def _ask_library(problem: Problem, options: Options) -> Check:
    """The library that the model comes from, where predict is an evaluator of ours; skipped when not installed."""
    assert problem.model.library_predict is not None
    decision = "argmax" if problem.network is None else problem.network.decision
    try:
        library = problem.model.library_predict(decision)
    except MissingToolError as error:
        return Check("library", "skipped", f"{error.message}: {error.hint}")
    return discretise.check_library(problem, library, seed=options.limits.seed)


def count(model_path: Path, property_path: Path, options: Options, progress: Progress) -> Evidence:
    """Count every query of every case.

    An interruption or the deadline ends the run with what is known: unfinished cases carry the bounds [0, total].

    Raises:
        QuantifyError: Bad input, a missing tool, a limit before anything was known, or ways that disagree.
    """
    started = time.monotonic()
    prepared = prepare(model_path, property_path, options, progress)
    problem, grid = prepared.problem, prepared.grid
    chosen = available_engines(options)
    if options.engine != "auto" and options.engine not in chosen:
        raise unknown_engine(options.engine, chosen)
    cases: list[CaseEvidence] = []
    checks = list(prepared.checks)
    interrupted = False
    for number, (case, grid_case) in enumerate(zip(problem.cases, grid.cases, strict=True)):
        progress.update("counting", number, len(problem.cases))
        evidence: CaseEvidence = unfinished(problem, grid, case, grid_case)
        case_checks: tuple[Check, ...] = ()
        if not (interrupted or options.limits.stopped()):
            try:
                with stopped_by(options.limits.stop or Stop()):
                    evidence, case_checks = _count_case(prepared, case, grid_case, chosen, options, progress)
            except KeyboardInterrupt:
                interrupted = True
            except UndecidedError:
                if not options.limits.stopped():
                    raise
        cases.append(evidence)
        checks.extend(case_checks)
    progress.update("counting", len(problem.cases), len(problem.cases))
    interrupted = interrupted or options.limits.stopped()
    if interrupted:
        checks.append(Check("interrupted", "warning", "stopped by the user; unfinished counts are bounds"))
    decided = all(_is_decided(c, case.total, chosen, options) for case in cases for c in case.counts.values())
    return Evidence(
        model={**_describe_model(problem), **_arithmetic(grid)},
        property={
            "name": problem.name,
            "kind": problem.kind,
            "sha256": problem.property_sha256,
            "path": problem.property_path,
            "positive": problem.positive,
            "norm": problem.norm,
        },
        domain={
            "size": problem.domain.size,
            "measure": problem.measure.kind,
            "source": problem.measure.source,
            "features": len(problem.domain.features),
        },
        cases=tuple(cases),
        checks=_merge_checks(checks),
        scale=math.prod(problem.measure.totals(problem.domain.sizes)) if problem.measure.kind == "product" else 1,
        complete=decided and not interrupted,
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


def available_engines(options: Options) -> dict[str, Engine]:
    """Every discovered engine by name, with sampling and the CBMC path configured as the options say.

    The CBMC path is loaded only when it is wanted: most counts never need it, and all pay for starting up.
    """
    found = dict(engine_room.discover())
    found["sample"] = engine_room.sample.SampleEngine(samples=options.samples, confidence=options.confidence)
    if options.gap is not None:
        found["branch"] = engine_room.branch.BranchEngine(gap=options.gap)
    if options.engine == "cnf" or options.cross_check:
        found["cnf"] = _cnf_engine(options)
    return found


def unknown_engine(name: str, known: Mapping[str, object]) -> InputError:
    """The error for an engine name that is not there."""
    return InputError(
        f"there is no engine called {name!r}", f"choose one of: auto, {', '.join(sorted({*known, 'cnf'}))}"
    )


def unfinished(problem: Problem, grid: GridProblem, case: Case, grid_case: GridCase) -> CaseEvidence:
    """What is known of a case that was never counted: each query lies between 0 and the whole region."""
    total = region_total(grid, grid_case.region)
    digest = grid.digest(grid_case)
    counts = {q.name: Count(0, total, Guarantee.BOUNDS, "none", 0.0, digest) for q in grid_case.queries if q.reported}
    return _case_evidence(problem, case, counts, total, (), "not counted")


def _count_case(
    prepared: Prepared,
    case: Case,
    grid_case: GridCase,
    known: Mapping[str, Engine],
    options: Options,
    progress: Progress,
) -> tuple[CaseEvidence, tuple[Check, ...]]:
    problem, grid = prepared.problem, prepared.grid
    engine, reason = choose_engine(grid, grid_case, known, options.engine)
    total = region_total(grid, grid_case.region)
    wanted = grid_case if options.cross_check else _needed(grid_case)
    counts = _stamped(engine.count(grid, wanted, options.limits, progress), grid.digest(grid_case))
    checks: list[Check] = []
    if options.cross_check:
        progress.update("cross-checking")
        checks.extend(_cross_check(prepared, case, grid_case, counts, engine, known, options, progress))
    checks.extend(_what_counts_say(problem, counts))
    witnesses = tuple(_witnesses(prepared, case, grid_case, counts, total, known, engine, options.limits))
    reported = {q.name: counts[q.name] for q in grid_case.queries if q.reported and q.name in counts}
    return _case_evidence(problem, case, reported, total, witnesses, reason), tuple(checks)


def _needed(case: GridCase) -> GridCase:
    """The case without the queries that only complete a partition."""
    keep = tuple(q for q in case.queries if q.reported or q.name in TOLD_TOO)
    return replace(case, queries=keep)


def _stamped(counts: Mapping[str, Count], digest: str) -> dict[str, Count]:
    return {name: replace(c, digest=digest) for name, c in counts.items()}


def _case_evidence(
    problem: Problem, case: Case, counts: dict[str, Count], total: int, witnesses: tuple[Witness, ...], reason: str
) -> CaseEvidence:
    return CaseEvidence(
        counts=counts,
        total=total,
        metrics=rates.metrics(problem.kind, counts, total),
        witnesses=witnesses,
        row=case.row,
        label=case.label,
        epsilon=case.epsilon,
        engine_reason=reason,
    )


def _what_counts_say(problem: Problem, counts: Mapping[str, Count]) -> Iterator[Check]:
    if (
        problem.kind in ("safety", "classes")
        and counts
        and all(c.upper == 0 for name, c in counts.items() if name != "outside")
    ):
        yield Check("vacuous", "vacuous", "no input meets the assumption: the property says nothing")
    for name in ("gap", "overlap"):
        if name in counts and problem.kind == "learnability":
            many = counts[name].upper
            meaning = "no label's expression" if name == "gap" else "more than one label's expression"
            yield Check(
                name, "ok" if many == 0 else "measured", f"inputs that meet {meaning}: {crosscheck.text(counts[name])}"
            )


# --- cross-check ---------------------------------------------------------------------------------------------------
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
    total = region_total(grid, grid_case.region)
    where = "" if case.row is None else f" (row {case.row}, ε={case.epsilon})"
    budget = options.limits
    if budget.deadline is None:
        budget = replace(budget, deadline=time.monotonic() + CROSS_CHECK_SECONDS)
    checks: list[Check] = []
    second: dict[str, Count] = {}
    try:
        checks.append(crosscheck.partitions(counts, grid_case.partitions, total))
        confirmed = False
        refusal = None if first.name == "cnf" else known["cnf"].refuses(grid, grid_case)
        if refusal is not None:
            checks.append(Check("cross-check cnf", "skipped", refusal + where))
        for engine in _second_ways(grid, grid_case, first, known, budget):
            progress.update(f"cross-checking with {engine.name}")
            try:
                second = _stamped(engine.count(grid, grid_case, budget, progress), grid.digest(grid_case))
            except UndecidedError as error:
                checks.append(Check(f"cross-check {engine.name}", "skipped", error.message + where))
                continue
            check = crosscheck.agreement(counts, second, total)
            confirmed = confirmed or check.status == "ok"
            checks.append(check)
            checks.append(crosscheck.partitions(second, grid_case.partitions, total))
        second = engine_room.sample.SampleEngine(samples=CROSS_CHECK_SAMPLES).count(grid, grid_case, budget, progress)
        checks.append(crosscheck.agreement(counts, second, total))
    except ContradictionError as error:
        folder = bundle.write_bundle(
            options.bundle_directory,
            grid,
            grid_case,
            counts,
            second,
            files=(Path(problem.model.path), Path(problem.property_path)),
            reason=error.message,
        )
        raise ContradictionError(error.message + where, f"what is needed to reproduce it lies in {folder}") from error
    if not confirmed:
        checks.append(Check("cross-check", "failed", "no second exact way finished" + where))
    return [replace(c, detail=c.detail + where) if where and where not in c.detail else c for c in checks]


def _second_ways(
    grid: GridProblem, case: GridCase, first: Engine, known: Mapping[str, Engine], limits: Limits
) -> list[Engine]:
    """The CBMC path and the cheapest other exact engine, except the one that counted first."""
    remaining = limits.remaining() or 0.0
    ways: list[Engine] = []
    others = sorted(
        (engine.estimate(grid, case).seconds, name)
        for name, engine in known.items()
        if name not in ("cnf", first.name)
        and engine.guarantee is Guarantee.EXACT
        and refusal(engine, grid, case) is None
    )
    if others and others[0][0] < remaining:
        ways.append(known[others[0][1]])
    if first.name != "cnf" and refusal(known["cnf"], grid, case) is None:
        ways.append(known["cnf"])
    return ways


def _merge_checks(checks: list[Check]) -> tuple[Check, ...]:
    """Checks in order of appearance; what went well in many cases is said once, with their number."""
    groups: dict[tuple[str, str, str], list[Check]] = {}
    for check in dict.fromkeys(checks):
        apart = "" if check.status == "ok" and check.name != "note" else check.detail
        groups.setdefault((check.name, check.status, apart), []).append(check)
    return tuple(
        first if not more else replace(first, detail=f"{first.detail}; likewise in {len(more)} more cases")
        for first, *more in groups.values()
    )


# --- witnesses -----------------------------------------------------------------------------------------------------
def _witnesses(
    prepared: Prepared,
    case: Case,
    grid_case: GridCase,
    counts: Mapping[str, Count],
    total: int,
    known: Mapping[str, Engine],
    first: Engine,
    limits: Limits,
) -> Iterator[Witness]:
    for query in grid_case.queries:
        if query.name.rpartition("/")[2] not in FAILURES:
            continue
        if query.name in counts and counts[query.name].upper == 0:
            continue
        if query.name == "fragile" and counts["robust"].lower == total:
            continue
        allowed = limits if _surely_exists(query, counts, total) else _shortened(limits)
        positions = _find_witness(prepared.grid, grid_case, query, known, first, allowed)
        if positions is not None:
            if case.centre is not None:
                positions = _nearer(prepared.grid, grid_case, query, positions, case.centre)
            yield _replayed(prepared, case, grid_case, query, positions)


def _surely_exists(query: GridQuery, counts: Mapping[str, Count], total: int) -> bool:
    """Whether some input is proven to satisfy the query."""
    if query.name in counts:
        return counts[query.name].lower > 0 and counts[query.name].guarantee >= Guarantee.BOUNDS
    robust = counts.get("robust")
    return robust is not None and robust.upper < total and robust.guarantee >= Guarantee.BOUNDS


def _shortened(limits: Limits) -> Limits:
    """The limits of a search that may have nothing to find."""
    soon = time.monotonic() + WITNESS_SECONDS
    return replace(limits, deadline=soon if limits.deadline is None else min(soon, limits.deadline))


def _find_witness(
    grid: GridProblem, case: GridCase, query: GridQuery, known: Mapping[str, Engine], first: Engine, limits: Limits
) -> tuple[int, ...] | None:
    others = (known.get(name) for name in ("boxes", "branch") if name != first.name)
    for engine in (first, *others):
        if engine is not None and refusal(engine, grid, case) is None:
            with contextlib.suppress(UndecidedError):
                found = engine.witness(grid, case, query, limits)
                if found is not None:
                    return found
    return None


def _nearer(
    grid: GridProblem, case: GridCase, query: GridQuery, positions: tuple[int, ...], centre: tuple[int, ...]
) -> tuple[int, ...]:
    """A witness that differs from the centre in few features: the others are put back, halves first, while it holds."""
    point, goal = np.array(positions, dtype=np.int64), np.array(centre, dtype=np.int64)

    def holds(trial: NDArray[np.int64]) -> bool:
        return bool(engine_room.evaluate.truths(grid, case, query, trial[np.newaxis])[0])

    # A false witness is left as it is, for the replay to find.
    parts = [np.flatnonzero(point != goal)] if holds(point) else []
    while parts:
        part = parts.pop()
        trial = point.copy()
        trial[part] = goal[part]
        if holds(trial):
            point = trial
        elif len(part) > 1:
            half = len(part) // 2
            parts += [part[half:], part[:half]]
    return tuple(point.tolist())


def _replayed(
    prepared: Prepared, case: Case, grid_case: GridCase, query: GridQuery, positions: tuple[int, ...]
) -> Witness:
    """The witness after the original model was asked about it.

    Raises:
        ContradictionError: The model's answer, or the predicate, is not what the engine claimed.
    """
    problem, grid = prepared.problem, prepared.grid
    point = np.array([positions], dtype=np.int64)
    inputs = discretise.to_inputs(problem, point)
    label = int(problem.model.predict(inputs)[0])
    claimed = int(engine_room.evaluate.labels(grid, point)[0])
    holds = bool(engine_room.evaluate.truths(grid, grid_case, query, point)[0])
    told = problem.model.classes[label]
    if holds and label != claimed and discretise.may_differ(problem, grid, point):
        told = f"{problem.model.classes[claimed]} (the model itself: {told})"
    elif label != claimed or not holds:
        raise ContradictionError(
            f"a witness for {query.name} does not replay: {problem.domain.shown(positions)} "
            f"gets {problem.model.classes[label]!r} from the model",
            "this is a defect of quantify: please report it with the model and the property",
        )
    shown = problem.domain.shown(positions)
    if case.centre is None:
        return Witness(query.name, shown, told)
    changed = {
        feature.name: feature.shown(before)
        for feature, before, after in zip(problem.domain, case.centre, positions, strict=True)
        if before != after
    }
    return Witness(query.name, shown, told, changed)


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
def _describe_model(problem: Problem) -> dict[str, object]:
    model = problem.model
    return {
        "path": model.path,
        "sha256": model.sha256,
        "kind": model.kind,
        "classes": list(model.classes),
        "features": model.columns,
        **_size(model.structure),
        "library": model.library,
    }


def _size(structure: Tree | Network) -> dict[str, object]:
    if isinstance(structure, Tree):
        return {"leaves": structure.leaves}
    weights = sum(len(layer.rows.columns) for layer in structure.layers if isinstance(layer, LinearLayer))
    return {"layers": len(structure.layers), "weights": weights}


def _arithmetic(grid: GridProblem) -> dict[str, object]:
    """How a network was made integer; nothing for trees."""
    network = grid.network
    if network is None:
        return {}
    return {
        "arithmetic": "exact" if network.exact else "quantised",
        "bits": max((layer.bits for layer in network.layers), default=0),
    }


def _cnf_engine(options: Options) -> CnfEngine:
    from quantify.cnf.engine import CnfEngine

    return CnfEngine(counter=options.counter, epsilon=options.epsilon, delta=options.delta)


def exit_code(evidence: Evidence) -> int:
    """0, or 3 when a limit left bounds or a cross-check that was asked for could not be made."""
    failed = any(check.status == "failed" for check in evidence.checks)
    return 0 if evidence.complete and not failed else 3


__all__ = [
    "Options",
    "Prepared",
    "available_engines",
    "choose_engine",
    "count",
    "count_cnf",
    "emit",
    "exit_code",
    "prepare",
]

"""The counts of one case and further engines in; the checks that come of counting again out, or a contradiction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from quantify.errors import ContradictionError, UndecidedError
from quantify.evidence import bundle, crosscheck
from quantify.evidence.totals import region_total
from quantify.ir.count import Count, Engine
from quantify.ir.evidence import Check
from quantify.ir.problem import Case, GridCase, GridProblem, Problem
from quantify.resources import Limits, Progress

SECONDS = 120.0
"""What the second ways of one case may take when the user set no time limit."""
SAMPLES = 200_000
"""Draws of the sampling engine that ends every cross-check."""


@dataclass(frozen=True)
class SecondWays:
    """How one case is counted again."""

    exact: Iterable[Engine]
    """Exact engines other than the one that counted first."""
    sampling: Engine
    refusal: str | None
    """Why the CBMC path is not among them; None when it is, or when it counted first."""


def cross_check(
    problem: Problem,
    grid: GridProblem,
    case: Case,
    grid_case: GridCase,
    counts: dict[str, Count],
    ways: SecondWays,
    limits: Limits,
    progress: Progress,
    bundles: Path,
) -> list[Check]:
    """Hold the counts against each other, against the region, and against every further way.

    Args:
        counts: What the first engine said of every query of the case.
        bundles: Folder below which a contradiction leaves what is needed to reproduce it.

    Raises:
        ContradictionError: Two ways, or one and the whole region, disagree.
    """
    total = region_total(grid, grid_case.region)
    where = "" if case.row is None else f" (row {case.row}, ε={case.epsilon})"
    checks: list[Check] = []
    second: dict[str, Count] = {}
    try:
        checks.append(crosscheck.partitions(counts, grid_case.partitions, total))
        confirmed = False
        if ways.refusal is not None:
            checks.append(Check("cross-check cnf", "skipped", ways.refusal + where))
        for engine in ways.exact:
            progress.update(f"cross-checking with {engine.name}")
            try:
                second = dict(engine.count(grid, grid_case, limits, progress))
            except UndecidedError as error:
                checks.append(Check(f"cross-check {engine.name}", "skipped", error.message + where))
                continue
            check = crosscheck.agreement(counts, second, total)
            confirmed = confirmed or check.status == "ok"
            checks.append(check)
            checks.append(crosscheck.partitions(second, grid_case.partitions, total))
        second = dict(ways.sampling.count(grid, grid_case, limits, progress))
        checks.append(crosscheck.agreement(counts, second, total))
    except ContradictionError as error:
        folder = bundle.write_bundle(
            bundles,
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

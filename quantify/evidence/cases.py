"""The counts of a case to its evidence and to what they say by themselves; the checks of many cases to few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from quantify.evidence import crosscheck, rates
from quantify.evidence.totals import region_total
from quantify.ir.count import Count, Guarantee
from quantify.ir.evidence import CaseEvidence, Check, Witness
from quantify.ir.problem import Case, GridCase, GridProblem, Problem


def unfinished(problem: Problem, grid: GridProblem, case: Case, grid_case: GridCase) -> CaseEvidence:
    """What is known of a case that was never counted: each query lies between 0 and the whole region."""
    total = region_total(grid, grid_case.region)
    digest = grid.digest(grid_case)
    counts = {q.name: Count(0, total, Guarantee.BOUNDS, "none", 0.0, digest) for q in grid_case.queries if q.reported}
    return of_case(problem, case, counts, total, (), "not counted")


def of_case(
    problem: Problem, case: Case, counts: dict[str, Count], total: int, witnesses: tuple[Witness, ...], reason: str
) -> CaseEvidence:
    """The evidence of one case: its counts, the rates that they give, and inputs.

    Args:
        counts: Of the queries that are reported.
        total: Size or weight of the region.
        reason: Why this engine counted.
    """
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


def what_counts_say(problem: Problem, counts: Mapping[str, Count], total: int) -> Iterator[Check]:
    """The checks `vacuous`, `gap`, `overlap` and `open` that follow from the counts of a case alone.

    Args:
        total: Size or weight of the region.
    """
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
    # A robustness property has a line for every row already.
    wide = [count for count in counts.values() if count.guarantee is Guarantee.BOUNDS and count.lower < count.upper]
    if wide and problem.kind != "robustness":
        proven = ", ".join(f"{name} {crosscheck.shown(count.lower)}" for name, count in counts.items())
        most = crosscheck.shown(max(count.upper - count.lower for count in wide))
        unit = "inputs" if problem.measure.kind == "uniform" else "parts of the weight"
        detail = f"proven: {proven}; open: {most}; of {crosscheck.shown(total)} {unit}"
        yield Check("open", "measured", detail)


def merge_checks(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Checks in order of appearance; what went well in many cases is said once, with their number."""
    groups: dict[tuple[str, str, str], list[Check]] = {}
    for check in dict.fromkeys(checks):
        apart = "" if check.status == "ok" and check.name != "note" else check.detail
        groups.setdefault((check.name, check.status, apart), []).append(check)
    return tuple(
        first if not more else replace(first, detail=f"{first.detail}; likewise in {len(more)} more cases")
        for first, *more in groups.values()
    )

"""A certificate and the integer problem go in; for each case, whether its tree proves its counts comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from quantify.errors import InputError
from quantify.evidence.certificates.check import RefutedError, check
from quantify.evidence.certificates.file import CaseHead, Reader
from quantify.ir.certificate import Verdict
from quantify.ir.problem import Box, GridCase, GridProblem
from quantify.resources import Limits, Progress


def verify(reader: Reader, problem: GridProblem, limits: Limits, progress: Progress) -> tuple[Verdict, ...]:
    """Check every case of a certificate.

    Raises:
        InputError: It is about another problem.
        UndecidedError: The time was up.
    """
    found: list[Verdict] = []
    for head, blocks in reader.cases():
        if found and head.number <= found[-1].number:
            raise reader.bad("damaged: its cases are not in order")
        case = _case(reader, problem, head)
        assert isinstance(case.region, Box)
        verdict = Verdict(head.number, head.counts, case.region.size, tree_bytes=head.size)
        try:
            proven = check(problem, case, blocks, head.size, limits, progress)
        except RefutedError as error:
            found.append(replace(verdict, refuted=str(error)))
            break
        wrong = [name for name, ends in proven.counts.items() if ends != head.counts[name]]
        found.append(
            replace(
                verdict,
                refuted=_difference(wrong[0], head.counts, proven.counts) if wrong else "",
                leaves=proven.leaves,
                points=proven.points,
                exact=proven.exact,
                seconds=proven.seconds,
            )
        )
        if wrong:
            break
    if not found:
        raise reader.bad("it has no case")
    return tuple(found)


def _case(reader: Reader, problem: GridProblem, head: CaseHead) -> GridCase:
    """The case of the problem that a tree is about."""
    hint = "give the model and the property that it was written for, to the version of quantify that wrote it"
    other = InputError(f"{reader.path}: the certificate is about another problem", hint)
    if not 0 <= head.number < len(problem.cases):
        raise other
    whole = problem.cases[head.number]
    case = replace(whole, queries=tuple(query for query in whole.queries if query.name in head.counts))
    wanted = {query.name for query in whole.queries if query.reported}
    if problem.measure.kind != "uniform":
        raise InputError(f"{reader.path}: its property weighs inputs, and certificates count them", "drop `measure`")
    if problem.network is None or not isinstance(case.region, Box) or problem.digest(case) != head.digest:
        raise other
    if not wanted <= set(head.counts) or len(head.counts) != len(case.queries):
        raise other
    return case


def _difference(
    name: str, claimed: Mapping[str, tuple[int, int]], proven: Mapping[str, tuple[int, int]]
) -> str:  # fmt: skip
    said, found = (f"{low:,}" if low == high else f"{low:,} to {high:,}" for low, high in (claimed[name], proven[name]))
    return f"its leaves add up to {found} for {name}, not to {said}"

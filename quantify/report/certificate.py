"""A checked certificate to the words and tables of its report, and to JSON."""

from __future__ import annotations

from typing import Any

from quantify.ir.certificate import Verdict, Verification
from quantify.report.numbers import duration, grouped
from quantify.report.view import Style, Table, View

SHOWN_CASES = 20
"""Cases whose counts are shown; the JSON has all of them."""


def of_verification(found: Verification) -> View:
    """The report of `quantify verify`."""
    kinds: dict[str, int] = {}
    for case in found.cases:
        for kind, many in case.leaves.items():
            kinds[kind] = kinds.get(kind, 0) + many
    listed = ", ".join(f"{many:,} {kind}" for kind, many in kinds.items() if many)
    facts = [
        ("model", f"{found.model['path']} (sha256 {found.model['sha256']})"),
        ("property", f"{found.property['path']} (sha256 {found.property['sha256']})"),
        ("certificate", f"{found.path} ({found.size:,} bytes)"),
        ("cases", f"{len(found.cases):,} of {found.of:,}"),
        ("leaves", f"{sum(kinds.values()):,}" + (f" ({listed})" if listed else "")),
        ("points evaluated", f"{sum(case.points for case in found.cases):,}"),
        ("time", duration(found.seconds)),
    ]
    many = len(found.cases) > 1
    rows = tuple(
        ((f"case {case.number}",) if many else ()) + (name, grouped(low), grouped(high), _status(case))
        for case in found.cases[-SHOWN_CASES:]
        for name, (low, high) in case.counts.items()
    )
    headers = (("case",) if many else ()) + ("count", "at least", "at most", "status")
    styles: tuple[Style, ...] = ("text", "number", "number", "status")
    tables = [Table("What the certificate says", headers, ("text", *styles) if many else styles, rows)]
    if found.checks:
        checks = tuple((check.name, check.status, check.detail) for check in found.checks)
        tables.append(Table("Integers and model", ("check", "status", "detail"), ("text", "status", "text"), checks))
    return View("verification", "verified" if found.verified() else "refuted", tuple(facts), tuple(tables), ())


def _status(case: Verdict) -> str:
    return "failed" if case.refuted else "ok"


def to_dict(found: Verification) -> dict[str, Any]:
    """The JSON of `quantify verify`, as its schema says."""
    return {
        "schema": "quantify/1",
        "verified": found.verified(),
        "certificate": {
            "path": found.path,
            "bytes": found.size,
            "leaves": sum(many for case in found.cases for many in case.leaves.values()),
        },
        "model": {"path": found.model["path"], "sha256": found.model["sha256"]},
        "property": {"path": found.property["path"], "sha256": found.property["sha256"]},
        "cases_in_property": found.of,
        "cases": [_case(case) for case in found.cases],
        "checks": [{"name": c.name, "status": c.status, "detail": c.detail} for c in found.checks],
        "seconds": found.seconds,
    }


def _case(case: Verdict) -> dict[str, Any]:
    return {
        "case": case.number,
        "verified": not case.refuted,
        "refuted": case.refuted,
        "total": str(case.total),
        "counts": {name: {"lower": str(low), "upper": str(high)} for name, (low, high) in case.counts.items()},
        "leaves": dict(case.leaves),
        "points": case.points,
        "exact": case.exact,
        "bytes": case.tree_bytes,
        "seconds": case.seconds,
    }

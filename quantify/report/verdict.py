"""A verdict to words and tables for the terminal, and to plain JSON data; other forms are made of the same words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quantify.ir.digits import exact_ratio
from quantify.ir.verdict import Finding, Need, Outcome, Reason, Source, Verdict
from quantify.report.evidence import SHORT, amount, interval
from quantify.report.numbers import percent
from quantify.report.view import Table, View

SCHEMA = "quantify/1"


def name(finding: Finding) -> str:
    """The rule's id, with the group where there is one."""
    if finding.rule == finding.metric == "leakage":
        return f"leakage [{finding.subject}]" if finding.subject else "leakage"
    return finding.rule if finding.group is None else f"{finding.rule} [{finding.group}]"


def asked(finding: Finding) -> str:
    """What the rule asks for: `violation of phi5 ≤ 0 %`."""
    if not finding.metric:
        return "every record as it was stored"
    if finding.metric == "leakage":
        return "no case of the suite in the training data"
    subject = f" of {finding.subject}" if finding.subject else ""
    group = f" [{finding.group}]" if finding.group is not None else ""
    low = "" if finding.minimum is None else f" ≥ {amount(finding.metric, finding.minimum)}"
    high = "" if finding.maximum is None else f" ≤ {amount(finding.metric, finding.maximum)}"
    return f"{finding.metric}{subject}{group}{low}{' and' if low and high else ''}{high}"


def found(finding: Finding) -> str:
    """The interval, rounded outwards, with its guarantee; empty without one."""
    if finding.lower is None or finding.upper is None:
        return ""
    ends = interval(finding.metric, finding.lower, finding.upper)
    level = f", confidence {percent(finding.level)}" if finding.level is not None else ""
    return f"{ends} ({finding.guarantee}{level})"


def sentences(finding: Finding) -> Iterator[str]:
    """What there is to say about a finding, the evidence's digests at the end."""
    if found(finding):
        yield f"found {found(finding)}"
    for reason in finding.reasons:
        yield f"{reason.code}: {reason.text}"
    for need in finding.needs:
        yield f"needed: {need.text}"
    used = dict.fromkeys(source.digest[:SHORT] for source in finding.sources if source.use == "decides")
    refused = dict.fromkeys(source.digest[:SHORT] for source in finding.sources if source.use == "refused")
    if used:
        yield f"by evidence {', '.join(used)}"
    if refused:
        yield f"refused evidence {', '.join(refused)}"


def of_verdict(verdict: Verdict) -> View:
    """The report of `quantify gate` on the terminal."""
    rows = tuple(
        (
            name(finding),
            finding.outcome.value,
            asked(finding),
            found(finding),
            ", ".join(dict.fromkeys(s.digest[:SHORT] for s in finding.sources if s.use == "decides")),
        )
        for finding in verdict.findings
    )
    headers = ("rule", "outcome", "asks for", "found", "evidence")
    tables = [Table("Rules", headers, ("text", "status", "text", "text", "text"), rows)]
    open_ = [
        (name(finding), text)
        for finding in verdict.findings
        for text in (*_reasons(finding), *(f"needed: {need.text}" for need in finding.needs))
    ]
    if open_:
        tables.append(Table("Why, and what would help", ("rule", "reason"), ("text", "text"), tuple(open_)))
    facts = (
        ("verdict", f"{verdict.outcome.value} (exit code {verdict.exit_code})"),
        ("policy", f"{verdict.policy} (sha256 {verdict.policy_sha256[:SHORT]}…)"),
        ("evidence", verdict.store),
        ("correction", "Holm's, over the rules that statistics decide" if verdict.correction == "holm" else "none"),
    )
    return View("gate", verdict.outcome.value, facts, tuple(tables), ())


def _reasons(finding: Finding) -> Iterator[str]:
    """Why it came out so; of what passed, only what is noted besides."""
    for reason in finding.reasons:
        if finding.outcome is Outcome.PASS and reason.code != "noted":
            continue
        yield f"{reason.code}: {reason.text}"


def to_dict(verdict: Verdict) -> dict[str, Any]:
    """The answer of `quantify gate` as plain JSON data."""
    return {
        "schema": SCHEMA,
        "policy": {"path": verdict.policy, "sha256": verdict.policy_sha256},
        "store": verdict.store,
        "correction": verdict.correction,
        "outcome": verdict.outcome.value,
        "exit_code": verdict.exit_code,
        "rules": [_finding(finding) for finding in verdict.findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    interval = None
    if finding.lower is not None and finding.upper is not None and finding.value is not None:
        interval = {
            "lower": exact_ratio(finding.lower),
            "upper": exact_ratio(finding.upper),
            "value": float(finding.value),
            "guarantee": str(finding.guarantee),
            "confidence": None if finding.level is None else float(finding.level),
        }
    return {
        "id": finding.rule,
        "line": finding.line,
        "metric": finding.metric,
        "subject": finding.subject,
        "group": finding.group,
        "min": None if finding.minimum is None else exact_ratio(finding.minimum),
        "max": None if finding.maximum is None else exact_ratio(finding.maximum),
        "confidence": None if finding.confidence is None else float(finding.confidence),
        "outcome": finding.outcome.value,
        "reasons": [_reason(reason) for reason in finding.reasons],
        "needs": [_need(need) for need in finding.needs],
        "interval": interval,
        "evidence": [_source(source) for source in finding.sources],
    }


def _reason(reason: Reason) -> dict[str, str]:
    return {"code": reason.code, "text": reason.text}


def _need(need: Need) -> dict[str, Any]:
    value = need.amount if need.amount is None or isinstance(need.amount, int) else float(need.amount)
    return {"kind": need.kind, "amount": value, "text": need.text}


def _source(source: Source) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "digest": source.digest,
        "kind": source.record.kind,
        "created": source.record.created,
        "use": source.use,
    }
    if source.reason is not None:
        answer["reason"] = _reason(source.reason)
    return answer

"""A verdict to one self-contained HTML page: each rule with its interval drawn, its evidence and its witnesses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from quantify.ir.digits import exact_ratio
from quantify.ir.record import METRICS, Record
from quantify.ir.verdict import Finding, Source, Verdict
from quantify.report import verdict as words
from quantify.report.evidence import SHORT, amount, interval
from quantify.report.html import fill
from quantify.report.view import SHOWN_FEATURES, Table

SHOWN = 10
"""Witnesses of a rule that are shown; the record has all."""
WIDTH = 1000
"""Of a drawing, in its own units."""
MARGIN = Fraction(1, 4)
"""Room at either side of what is drawn, as a part of its extent."""
LIMITS: dict[str, tuple[str, ...]] = {
    "": (
        "Whether the rules are the right ones, and anything that no rule names.",
        "Whether evidence was left out before it was recorded.",
    ),
    "count": ("Inputs outside the domains of the properties. Within them the counts speak of every input.",),
    "run": ("Cases of another kind than those of the suite: rates on a suite are of a sample.",),
    "leakage": (
        "Leakage that the training file does not show: resized images, rows that were used but are not in it.",
    ),
    "noise": (
        "Perturbations that nobody declared, larger ones, and an attacker's search: only declared ones were tried.",
    ),
    "seeds": (
        "Whether seeds were chosen before any was judged, and a failure rarer than about one seed in those tried.",
    ),
    "table": ("Slices, contexts and attacks that were not among those tried.",),
}
"""What evidence of a kind leaves open; under "" what every verdict does."""


@dataclass(frozen=True)
class Drawing:
    """An interval against its thresholds, on an axis from `first` to `last`; positions are of 0 to `WIDTH`."""

    first: str
    last: str
    lower: str
    upper: str
    exact: bool
    """A point."""
    wrong: tuple[tuple[str, str], ...]
    """Where the rate must not lie: (position, width)."""
    thresholds: tuple[str, ...]
    ends: tuple[str, str]
    """Lower and upper end as "p/q"."""
    spoken: str
    """The same in words."""


def render(verdict: Verdict) -> str:
    """The page of `quantify gate`, with the JSON answer folded in at the end."""
    report = words.of_verdict(verdict)
    return fill(
        "gate.html.j2",
        f"{report.subtitle} · {verdict.policy}",
        words.to_dict(verdict),
        report=report,
        rules=[_rule(finding) for finding in verdict.findings],
        limits=list(_limits(verdict)),
    )


def _rule(finding: Finding) -> dict[str, Any]:
    return {
        "name": words.name(finding),
        "outcome": finding.outcome.value,
        "asked": words.asked(finding),
        "found": words.found(finding),
        "drawing": draw(finding),
        "reasons": [f"{reason.code}: {reason.text}" for reason in finding.reasons],
        "needs": [need.text for need in finding.needs],
        "tables": [*_evidence(finding.sources), *_witnesses(finding.sources)],
    }


# --- drawings --------------------------------------------------------------------------------------------------------
def draw(finding: Finding) -> Drawing | None:
    """The interval of a finding, if it has one.

    Shares have an axis that stays within 0 to 1; what is drawn fills it, so that narrow intervals can be seen.
    """
    if finding.lower is None or finding.upper is None:
        return None
    lower, upper = finding.lower, finding.upper
    thresholds = [one for one in (finding.minimum, finding.maximum) if one is not None]
    first, last = min([lower, *thresholds]), max([upper, *thresholds])
    room = (last - first) * MARGIN or max(abs(first), Fraction(1)) * MARGIN / 10
    first, last = first - room, last + room
    if METRICS[finding.metric].is_share:
        first, last = max(first, Fraction(0)), min(last, Fraction(1))

    def place(value: Fraction) -> Fraction:
        return (value - first) / (last - first) * WIDTH

    wrong = []
    if finding.minimum is not None:
        wrong.append((Fraction(0), place(finding.minimum)))
    if finding.maximum is not None:
        wrong.append((place(finding.maximum), WIDTH - place(finding.maximum)))
    return Drawing(
        first=amount(finding.metric, _short(first)),
        last=amount(finding.metric, _short(last)),
        lower=_position(place(lower)),
        upper=_position(place(upper)),
        exact=lower == upper,
        wrong=tuple((_position(start), _position(width)) for start, width in wrong),
        thresholds=tuple(_position(place(one)) for one in thresholds),
        ends=(exact_ratio(lower), exact_ratio(upper)),
        spoken=f"found {words.found(finding)}, asked for {words.asked(finding)}",
    )


def _position(value: Fraction) -> str:
    return f"{float(value):.3f}"


def _short(value: Fraction) -> Fraction:
    """Three significant digits: the ends of an axis are no figures."""
    return Fraction(f"{float(value):.3g}")


# --- evidence and witnesses ------------------------------------------------------------------------------------------
def _evidence(sources: Iterable[Source]) -> Iterator[Table]:
    rows = tuple(
        (
            source.use,
            source.record.kind,
            _interval(source),
            _of(source.record),
            source.record.created[:16].replace("T", " "),
            source.digest,
            "" if source.reason is None else f"{source.reason.code}: {source.reason.text}",
        )
        for source in sources
    )
    if rows:
        headers = ("use", "kind", "interval", "of", "recorded (UTC)", "digest", "why refused")
        styles = ("status", "text", "number", "text", "text", "digest", "text")
        yield Table("Evidence", headers, styles, rows)  # type: ignore[arg-type]


def _interval(source: Source) -> str:
    reading = source.reading
    if reading is None:
        return source.record.status
    return f"{interval(reading.metric, reading.lower, reading.upper)} ({reading.guarantee})"


def _of(record: Record) -> str:
    """The files that it is about."""
    named = [record.model, record.property, *record.data]
    return ", ".join(one.path for one in named if one is not None)


def _witnesses(sources: Iterable[Source]) -> Iterator[Table]:
    """Inputs and cases that the deciding records name, or of those that were considered when nothing decided."""
    every = list(sources)
    decided = [source for source in every if source.use == "decides"] or every
    for source in {source.digest: source for source in decided}.values():
        rows = list(_of_body(source))
        if rows:
            left = len(rows) - SHOWN
            more = f" ({left:,} more in the record)" if left > 0 else ""
            title = f"Witnesses of {source.record.kind} {source.digest[:SHORT]}{more}"
            yield Table(title, ("what", "which"), ("text", "text"), tuple(rows[:SHOWN]))


def _of_body(source: Source) -> Iterator[tuple[str, str]]:
    record, body = source.record, source.record.body
    for witness in body.get("witnesses") or ():
        values = [f"{name} = {value}" for name, value in witness["input"].items()]
        if witness.get("changed"):
            values = [f"{name}: {before} → {witness['input'][name]}" for name, before in witness["changed"].items()]
        rest = len(values) - SHOWN_FEATURES
        shown = ", ".join(values[:SHOWN_FEATURES]) + (f", … ({rest} more features)" if rest > 0 else "")
        yield f"{witness['query']}, the model says {witness['label']}", shown
    if record.kind == "run":
        for answer in body.get("answers") or ():
            if answer["correct"] is False:
                yield f"expected {answer['expected']}, the model says {answer['answer']}", f"case {answer['id']}"
    if record.kind == "noise" and source.reading is not None:
        for transform in body.get("transforms") or ():
            if transform["name"] == source.reading.subject:
                for pair in transform["flipped"]:
                    yield f"the answer {pair['before']} becomes {pair['after']}", f"case {pair['id']}"
    for case in (body.get("found") or ()) if record.kind == "leakage" else ():
        yield f"in {case['rows']:,} of the training rows", f"case {case['id']}"
    for case in (body.get("changing") or ()) if record.kind == "seeds" else ():
        yield "the verdict changes between seeds", f"case {case}"


def _limits(verdict: Verdict) -> Iterator[str]:
    kinds = {source.record.kind for finding in verdict.findings for source in finding.sources}
    for kind, limits in LIMITS.items():
        if kind == "" or kind in kinds or (kind == "table" and kinds & {"slices", "transfer", "evolve"}):
            yield from limits

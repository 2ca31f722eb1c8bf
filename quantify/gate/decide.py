"""A policy and the evidence on record in, the verdict out: each rule by its interval, several rules by Holm's steps.

Proofs decide first: their intersection holds whatever else is true. What proofs leave open may be decided by
statistical evidence; the rules that need it are one family, and Holm's step-down procedure (Scandinavian Journal of
Statistics 6, 1979) gives each the risk (1 − confidence)/m, m being the number of rules still open. Which statistical
evidence decides a rule does not depend on what it found.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from quantify.evidence.crosscheck import STRICTNESS
from quantify.evidence.proportions import interval_at
from quantify.evidence.store import Damage, Stored
from quantify.gate import leakage, needs
from quantify.gate.files import Files
from quantify.gate.policy import Policy, Rule
from quantify.gate.selection import Selected, select
from quantify.ir.count import Guarantee
from quantify.ir.record import Reading
from quantify.ir.verdict import REASONS, Finding, Need, Outcome, Reason, Source, Verdict, worst

Interval = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class _Open:
    """A rule that is still to be decided, and by what."""

    selected: Selected
    sources: tuple[Source, ...]
    proofs: tuple[Source, ...]
    statistics: tuple[Source, ...]
    """Distinct readings that may miss."""
    proven: Interval | None


def judge(policy: Policy, stored: Sequence[Stored], damages: Sequence[Damage], store: Path) -> Verdict:
    """The verdict of a policy on what is on record.

    Raises:
        InputError: A rule does not say which of several models, properties, … it means.
    """
    files = Files(policy.path)
    every = [selected for rule in policy.rules for selected in select(rule, policy, stored, files)]
    checks = leakage.check(policy, stored, every, files) if policy.leakage_required else ()
    findings: dict[int, Finding] = {}
    family: dict[int, _Open] = {}
    for place, selected in enumerate(every):
        decided = _before_intervals(selected, policy, checks)
        if isinstance(decided, Finding):
            findings[place] = decided
        else:
            family[place] = decided
    findings |= _by_intervals(family, policy)
    ordered = (*_of_damages(damages), *checks, *(findings[place] for place in range(len(every))))
    outcome = worst(finding.outcome for finding in ordered)
    return Verdict(str(policy.path), policy.sha256, outcome, ordered, policy.correction, str(store))


def _of_damages(damages: Sequence[Damage]) -> Iterator[Finding]:
    if damages:
        reasons = tuple(
            Reason("tampered", f"{f'record {damage.digest[:12]}: ' if damage.digest else ''}{damage.detail}")
            for damage in damages
        )
        need = Need("other", None, "restore the store, or record the evidence again in a new one")
        yield Finding("evidence", 0, "", "", None, None, None, Outcome.INVALID, reasons, (need,))


# --- what may decide -------------------------------------------------------------------------------------------------
def _before_intervals(selected: Selected, policy: Policy, checks: Sequence[Finding]) -> Finding | _Open:
    """The evidence that may decide, or the finding when there is none or it must not be believed."""
    rule = selected.rule
    sources = tuple(_refused(rule, policy, source) for source in selected.sources)
    contradiction = _contradiction([source for source in selected.sources if source.reason is None])
    if contradiction is not None:
        return _finding(selected, Outcome.INVALID, (contradiction,), sources)
    blocked = leakage.blocks(selected, checks)
    if blocked is not None:
        outcome, reason = blocked
        return _finding(selected, outcome, (reason,), sources)
    valid = [source for source in sources if source.reason is None]
    if not valid:
        return _nothing_decides(selected, sources)
    proofs = tuple(source for source in valid if _reading(source).risk == 0 and not _reading(source).approximate)
    statistics = {_reading(source): source for source in valid if source not in proofs}
    return _Open(selected, sources, proofs, tuple(statistics.values()), _intersection(proofs))


def _refused(rule: Rule, policy: Policy, source: Source) -> Source:
    """The source, refused when the rule may not be decided by it."""
    if source.reason is not None or source.reading is None:
        return source
    reading = source.reading
    reason = None
    if source.record.status != "ok":
        reason = Reason("leaked", "the record says itself that it is invalid")
    elif reading.reason is not None:
        said = REASONS.get(reading.reason, reading.reason.replace("_", " "))
        reason = Reason(reading.reason, f"{said}{f'; needed: {reading.need}' if reading.need else ''}")
    elif reading.guarantee < (least := _least(rule, reading)):
        text = f"the evidence is {reading.guarantee}, and least_guarantee is {least}"
        reason = Reason("guarantee_too_low", text)
    elif reading.support is not None and reading.support < rule.min_support:
        text = f"{reading.support} cases, and min_support is {rule.min_support}"
        reason = Reason("too_little_support", text)
    elif reading.approximate and not policy.allow_approximate:
        text = "the interval's coverage is approximate: allow_approximate_methods: true lets it decide"
        reason = Reason("approximate_method", text)
    return source if reason is None else replace(source, use="refused", reason=reason)


def _least(rule: Rule, reading: Reading) -> Guarantee:
    """A rate of a sample of cases can be no better than sampled; a rate of a domain can."""
    if rule.least_guarantee is not None:
        return rule.least_guarantee if not reading.approximate else Guarantee.SAMPLED
    return Guarantee.BOUNDS if reading.about == "property" else Guarantee.SAMPLED


NOTED = ("measured", "warning", "failed")
"""States of a check that a reader of the verdict should know of."""
CLOSEST = ("approximate_method", "too_little_support", "guarantee_too_low", "stale", "model_missing")
"""Reasons from the one that leaves least to be done."""


def _nothing_decides(selected: Selected, sources: tuple[Source, ...]) -> Finding:
    rule = selected.rule
    if selected.missing is not None or not sources:
        reason = selected.missing or Reason("never_measured", REASONS["never_measured"])
        return _finding(selected, Outcome.INSUFFICIENT_EVIDENCE, (reason,), sources, (_record_it(rule, selected),))
    found = list(dict.fromkeys(source.reason for source in sources if source.reason is not None))
    own = [reason for reason in found if reason.code not in REASONS or reason.code == "vacuous"]
    ranked = own + [reason for code in CLOSEST for reason in found if reason.code == code]
    reasons = (*ranked, *(reason for reason in found if reason not in ranked))
    first = reasons[0]
    outcome = Outcome.MANUAL_REVIEW if first.code == "approximate_method" else Outcome.INSUFFICIENT_EVIDENCE
    last = next(source for source in reversed(sources) if source.reason == first)
    return _finding(selected, outcome, reasons, sources, tuple(_lifted(rule, selected, first, last)), last.reading)


def _lifted(rule: Rule, selected: Selected, reason: Reason, source: Source) -> Iterator[Need]:
    """What would lift a refusal."""
    reading = _reading(source)
    if reason.code == "too_little_support":
        more = rule.min_support - (reading.support or 0)
        yield Need("cases", rule.min_support, f"{more} more cases of {selected.group or selected.subject}")
    elif reason.code == "guarantee_too_low":
        text = f"count by a stronger engine, or let it decide: least_guarantee: {reading.guarantee}"
        yield Need("other", None, text)
    elif reason.code in ("stale", "model_missing"):
        yield _record_it(rule, selected)
    elif reason.code == "approximate_method":
        yield Need("other", None, "a person's judgement, or allow_approximate_methods: true")
    elif reading.need:
        yield Need("other", None, reading.need)


KINDS = {"satisfaction": "safety", "violation": "safety", "robustness": "robustness", "class_share": "classes"}
"""The kind of property that gives a metric; learnability gives the others."""
COMMANDS = {
    "suite": "quantify run MODEL --cases CASES --record",
    "transform": "quantify noise … --record",
    "recipe": "quantify seeds SEEDS.yaml --policy POLICY.yaml --record",
    "table": "the command that measures it, with --record",
}


def _record_it(rule: Rule, selected: Selected) -> Need:
    about = rule.about or (_reading(selected.sources[0]).about if selected.sources else "transform")
    if about == "property":
        model, name = rule.model or "MODEL", selected.subject
        prop = name if name.endswith((".yaml", ".yml")) else "P.yaml"
        kind = KINDS.get(rule.metric, "learnability")
        text = f"record it: quantify count {shlex.quote(model)} --property {shlex.quote(prop)} --record"
        return Need("other", None, f"{text} ({rule.metric} is given by properties of the kind {kind})")
    return Need("other", None, f"record it: {COMMANDS[about]}")


# --- contradictions --------------------------------------------------------------------------------------------------
def _contradiction(sources: Sequence[Source]) -> Reason | None:
    """Two statements about one rate that cannot both be true, by proof or but for one chance in a million.

    A count whose own ways disagreed is both of them.
    """
    for source in sources:
        if source.record.kind == "count" and source.record.status != "ok":
            checks = source.record.body.get("checks", ())
            said = "".join(f": {one['detail']}" for one in checks if one["name"] == "contradiction")
            return Reason("contradiction", f"its own ways of counting disagree (record {source.digest[:12]}){said}")
    held = [(source, ends) for source in sources if (ends := _strict(_reading(source))) is not None]
    for place, (source, ends) in enumerate(held):
        for other, others in held[:place]:
            if ends[1] < others[0] or others[1] < ends[0]:
                first, second = (f"{_said(one)} (record {one.digest[:12]})" for one in (other, source))
                hint = ""
                if _reading(source).problem != _reading(other).problem:
                    hint = "; they were counted on different inputs: does the property leave a seed or data open?"
                return Reason("contradiction", f"{first} and {second} exclude each other{hint}")
    return None


def _strict(reading: Reading) -> Interval | None:
    """The interval that a contradiction may rest on."""
    if reading.approximate or reading.reason is not None:
        return None
    return interval_at(reading, STRICTNESS)


def _said(source: Source) -> str:
    reading = _reading(source)
    ends = f"{float(reading.lower):.6g}"
    if reading.lower != reading.upper:
        ends += f" to {float(reading.upper):.6g}"
    return f"{reading.guarantee} {ends}"


# --- intervals against thresholds ------------------------------------------------------------------------------------
def _by_intervals(family: dict[int, _Open], policy: Policy) -> dict[int, Finding]:
    """Every open rule by its interval: proofs first, then Holm's steps over the rules that statistics must decide."""
    findings: dict[int, Finding] = {}
    remaining: dict[int, _Open] = {}
    for place, one in family.items():
        outcome = None if one.proven is None else _side(one.selected.rule, one.proven)
        if outcome is not None or not one.statistics:
            findings[place] = _by_proof(one, outcome)
        else:
            remaining[place] = one
    while remaining:
        level = Fraction(1, len(remaining) if policy.correction == "holm" else 1)
        tried = {place: _statistical(one, level) for place, one in remaining.items()}
        decided = {place for place, finding in tried.items() if finding.outcome in (Outcome.PASS, Outcome.FAIL)}
        for place, finding in tried.items():
            if place in decided or not decided:
                findings[place] = finding
                del remaining[place]
    return findings


def _side(rule: Rule, ends: Interval) -> Outcome | None:
    """PASS or FAIL when the interval lies wholly on one side, else None."""
    lower, upper = ends
    if (rule.minimum is not None and upper < rule.minimum) or (rule.maximum is not None and lower > rule.maximum):
        return Outcome.FAIL
    if (rule.minimum is None or lower >= rule.minimum) and (rule.maximum is None or upper <= rule.maximum):
        return Outcome.PASS
    return None


def _by_proof(one: _Open, outcome: Outcome | None) -> Finding:
    assert one.proven is not None
    chosen = min(one.proofs, key=lambda source: _reading(source).upper - _reading(source).lower)
    used = [
        source
        for source in one.proofs
        if _reading(source).lower == one.proven[0] or _reading(source).upper == one.proven[1]
    ]
    return _concluded(one, outcome, one.proven, chosen, used, None)


def _statistical(one: _Open, level: Fraction) -> Finding:
    """The rule by its statistical evidence at this part of its risk, with what is proven besides."""
    allowed = 1 - one.selected.rule.confidence
    pieces = _pieces(one.statistics, allowed)
    each = allowed * level / len(pieces)
    held = [(source, ends) for source in pieces if (ends := interval_at(_reading(source), each)) is not None]
    if not held:
        return _too_risky(one, pieces[0], each)
    ends = _common([ends for _, ends in held])
    if one.proven is not None:
        narrowed = max(ends[0], one.proven[0]), min(ends[1], one.proven[1])
        ends = narrowed if narrowed[0] <= narrowed[1] else one.proven
    used = [source for source, own in held if own[0] == ends[0] or own[1] == ends[1]] or [held[0][0]]
    chosen = min(held, key=lambda entry: entry[1][1] - entry[1][0])[0]
    return _concluded(one, _side(one.selected.rule, ends), ends, chosen, used, 1 - each)


def _pieces(statistics: Sequence[Source], allowed: Fraction) -> list[Source]:
    """The evidence that decides, chosen by how it was made and not by what it found, so that choosing costs nothing.

    Of samples the one with the most draws; of other intervals the highest rung, then the smallest tolerance, among
    those whose risk the rule allows. The first of equals: to repeat a run until it passes gains nothing. Where both
    kinds are there, each gets half of the risk, at every step of Holm's alike: what is decided at a small risk must be
    decided at any larger one, or these steps would not hold. An interval that never fits its half is left out.
    """
    drawn = [source for source in statistics if _reading(source).draws]
    others = [source for source in statistics if not _reading(source).draws]
    if drawn:
        others = [source for source in others if _reading(source).risk <= allowed / 2]
    found = []
    if drawn:
        found.append(max(drawn, key=lambda source: sum(one.samples for one in _reading(source).draws)))
    if others:
        found.append(min(others, key=lambda source: _rank(_reading(source), allowed)))
    return found


def _rank(reading: Reading, allowed: Fraction) -> tuple[bool, int, Fraction, Fraction]:
    return reading.risk > allowed, -reading.guarantee, reading.epsilon or Fraction(0), reading.risk


def _common(intervals: Sequence[Interval]) -> Interval:
    """What the intervals have in common; all of them where that is nothing, as one of them has missed."""
    lower, upper = max(ends[0] for ends in intervals), min(ends[1] for ends in intervals)
    if lower <= upper:
        return lower, upper
    return min(ends[0] for ends in intervals), max(ends[1] for ends in intervals)


def _too_risky(one: _Open, source: Source, each: Fraction) -> Finding:
    reading = _reading(source)
    text = f"the evidence may miss with probability {float(reading.risk):.3g}, the rule allows {float(each):.3g}"
    thresholds = _thresholds(one.selected.rule)
    needed = needs.to_decide(source.record, reading, (reading.lower, reading.upper), thresholds, each)
    reasons = (Reason("risk_too_high", text),)
    return _finding(one.selected, Outcome.INSUFFICIENT_EVIDENCE, reasons, one.sources, needed, reading, 1 - each)


def _concluded(
    one: _Open,
    outcome: Outcome | None,
    ends: Interval,
    chosen: Source,
    used: Sequence[Source],
    level: Fraction | None,
) -> Finding:
    rule, reading = one.selected.rule, _reading(chosen)
    code = {Outcome.PASS: "within", Outcome.FAIL: "outside", None: "across"}[outcome]
    needed: tuple[Need, ...] = ()
    if outcome is None:
        risk = Fraction(0) if level is None else 1 - level
        needed = needs.to_decide(chosen.record, reading, ends, _thresholds(rule), risk)
    sources = tuple(replace(source, use="decides") if source in used else source for source in one.sources)
    return Finding(
        rule=rule.id,
        line=rule.line,
        metric=rule.metric,
        subject=one.selected.subject,
        group=one.selected.group,
        minimum=rule.minimum,
        maximum=rule.maximum,
        outcome=outcome or Outcome.INSUFFICIENT_EVIDENCE,
        reasons=(Reason(code, REASONS[code]), *_noted(used)),
        needs=needed,
        lower=ends[0],
        upper=ends[1],
        value=min(max(reading.value, ends[0]), ends[1]),
        guarantee=reading.guarantee,
        confidence=rule.confidence,
        level=level,
        sources=sources,
    )


def _noted(used: Sequence[Source]) -> Iterator[Reason]:
    """What the checks of a count found that is not plainly well: how far a rounded network is from the real one."""
    said: dict[str, None] = {}
    for source in used:
        checks = source.record.body.get("checks")
        for check in checks if isinstance(checks, list) else []:
            if isinstance(check, dict) and check.get("status") in NOTED:
                said[f"{check.get('name')}: {check.get('detail')}"] = None
    yield from (Reason("noted", text) for text in said)


def _finding(
    selected: Selected,
    outcome: Outcome,
    reasons: tuple[Reason, ...],
    sources: tuple[Source, ...],
    needed: tuple[Need, ...] = (),
    reading: Reading | None = None,
    level: Fraction | None = None,
) -> Finding:
    """A finding that no interval decided; `reading` is shown with it."""
    rule = selected.rule
    return Finding(
        rule=rule.id,
        line=rule.line,
        metric=rule.metric,
        subject=selected.subject,
        group=selected.group,
        minimum=rule.minimum,
        maximum=rule.maximum,
        outcome=outcome,
        reasons=reasons,
        needs=needed,
        lower=None if reading is None else reading.lower,
        upper=None if reading is None else reading.upper,
        value=None if reading is None else reading.value,
        guarantee=None if reading is None else reading.guarantee,
        confidence=rule.confidence,
        level=level,
        sources=sources,
    )


def _intersection(proofs: Sequence[Source]) -> Interval | None:
    if not proofs:
        return None
    return max(_reading(source).lower for source in proofs), min(_reading(source).upper for source in proofs)


def _thresholds(rule: Rule) -> list[Fraction]:
    return [threshold for threshold in (rule.minimum, rule.maximum) if threshold is not None]


def _reading(source: Source) -> Reading:
    assert source.reading is not None
    return source.reading

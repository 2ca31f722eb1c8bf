"""What one count established in, the record that the store keeps out: every metric a reading that a rule can name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Literal

from quantify import __version__
from quantify.evidence import records
from quantify.evidence.proportions import proportion
from quantify.ir.count import Count, Guarantee
from quantify.ir.digits import plain
from quantify.ir.evidence import CaseEvidence, Evidence, Rate
from quantify.ir.record import DataRef, Draws, ModelRef, PropertyRef, Reading, Record, Status

Form = Literal["share", "f1"]
CELLS = ("tp", "fp", "tn", "fn")
PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "satisfaction": (("satisfied",), ("violated",)),
    "violation": (("violated",), ("satisfied",)),
    "accuracy": (("tp", "tn"), ("fp", "fn")),
    "precision": (("tp",), ("fp",)),
    "recall": (("tp",), ("fn",)),
    "f1": (("tp",), ("fp", "fn")),
}
"""Counts that are hits of a metric and counts that are misses; for f1 of the share it is made from."""


def to_record(
    evidence: Evidence,
    body: dict[str, Any],
    data: Iterable[DataRef] = (),
    created: str | None = None,
    by_epsilon: bool = False,
    status: Status = "ok",
) -> Record:
    """The record of one `count`.

    Args:
        body: What `--json` prints of it.
        data: The data files that the property names.
        created: When; now, unless given.
        by_epsilon: As of `from_evidence`.
        status: `invalid` when ways of counting disagreed: no rule about its rates may pass.
    """
    engines = dict.fromkeys(count.engine for case in evidence.cases for count in case.counts.values())
    model, prop = evidence.model, evidence.property
    return Record(
        kind="count",
        created=records.now() if created is None else created,
        tool={"version": __version__, "engines": ", ".join(engines), "library": str(model.get("library", ""))},
        readings=tuple(from_evidence(evidence, by_epsilon)),
        model=ModelRef(str(model["path"]), str(model["sha256"]), str(model["kind"])),
        property=PropertyRef(str(prop["name"]), str(prop["path"]), str(prop["sha256"])),
        data=tuple(data),
        status=status,
        body=body,
    )


def from_evidence(evidence: Evidence, by_epsilon: bool = False) -> Iterator[Reading]:
    """A reading a metric, and a label where there are several.

    Robustness is the mean over the rows, each row weighing the same (`mean_robustness` of the summary); under several
    ε there is one reading an ε, its group `epsilon=…`, and none of the whole.

    Args:
        by_epsilon: Whether a single ε is a group as well, because it is not the property's own.
    """
    kind, name = str(evidence.property.get("kind")), str(evidence.property["name"])
    if kind == "robustness":
        rows: dict[Fraction | None, list[CaseEvidence]] = {}
        for case in evidence.cases:
            rows.setdefault(case.epsilon, []).append(case)
        for epsilon, cases in rows.items():
            group = None if len(rows) == 1 and not by_epsilon else f"epsilon={plain(epsilon or Fraction(0))}"
            yield _robustness(name, group, cases)
        return
    uniform = evidence.domain.get("measure") == "uniform"
    for case in evidence.cases:
        for key, rate in case.metrics.items():
            metric, group = _split(key, kind)
            good, bad = _parts(case, metric, group)
            yield _reading(name, metric, group, rate, good, bad, uniform)


def _split(key: str, kind: str) -> tuple[str, str | None]:
    """`class_share/LABEL` and `LABEL/accuracy` to the metric and the label."""
    if kind == "classes":
        metric, _, label = key.partition("/")
        return metric, label
    label, slash, metric = key.rpartition("/")
    return metric, label if slash else None


def _parts(case: CaseEvidence, metric: str, group: str | None) -> tuple[list[Count], list[Count]]:
    """The counts that are hits and those that are misses; a count that is missing makes both empty."""
    counts = case.counts
    if metric == "class_share":
        return [counts[group or ""]], [count for label, count in counts.items() if label != group]
    prefix = "" if group is None else f"{group}/"
    names = tuple([prefix + name for name in side] for side in PARTS[metric])
    if not all(name in counts for side in names for name in side):
        return [], []
    return [counts[name] for name in names[0]], [counts[name] for name in names[1]]


def _reading(
    subject: str,
    metric: str,
    group: str | None,
    rate: Rate | None,
    good: list[Count],
    bad: list[Count],
    uniform: bool,
) -> Reading:
    used = [*good, *bad]
    problem = _problem([count.digest for count in used], metric, group)
    support = sum(count.lower for count in used) if uniform else None
    if rate is None:
        return _vacuous(subject, metric, group, problem)
    form: Form = "f1" if metric == "f1" else "share"
    draws = _draws(good, bad)
    if draws is not None:
        return proportion(
            metric, "property", subject, draws, confidence=1 - _risk(used), form=form,
            group=group, support=support, problem=problem,
        )  # fmt: skip
    sides = sum(any(count.guarantee is Guarantee.PAC for count in side) for side in (good, bad))
    return _plain(subject, metric, group, rate, support, problem, used, sides)


def _robustness(subject: str, group: str | None, cases: Sequence[CaseEvidence]) -> Reading:
    """The mean over the rows. The risks add up; what is not counted lies between 0 and 1."""
    metric = "robustness"
    counts = [case.counts["robust"] for case in cases if "robust" in case.counts]
    problem = _problem([count.digest for count in counts], metric, group)
    rates = [case.metrics.get(metric) for case in cases]
    if any(rate is None for rate in rates):
        return _vacuous(subject, metric, group, problem)
    known = [rate for rate in rates if rate is not None]
    weight = Fraction(1, len(cases))
    if len(counts) == len(cases) and all(count.guarantee is Guarantee.SAMPLED for count in counts):
        parts = [
            Draws(count.hits, count.samples, weight)
            for count in counts
            if count.hits is not None and count.samples is not None
        ]
        if len(parts) == len(cases):
            return proportion(
                metric, "property", subject, parts, confidence=1 - max(_risk([count]) for count in counts),
                group=group, support=len(cases), problem=problem,
            )  # fmt: skip
    mean = Rate(
        weight * sum(rate.lower for rate in known),
        weight * sum(rate.upper for rate in known),
        float(weight * sum(Fraction(rate.value) for rate in known)),
        min(rate.guarantee for rate in known),
        min(sum((rate.risk for rate in known), Fraction(0)), Fraction(1)),
    )
    return _plain(subject, metric, group, mean, len(cases), problem, counts, 0)


def _plain(
    subject: str,
    metric: str,
    group: str | None,
    rate: Rate,
    support: int | None,
    problem: str,
    used: Sequence[Count],
    sides: int,
) -> Reading:
    guarantee = rate.guarantee
    if guarantee is Guarantee.EXACT and rate.lower != rate.upper:
        guarantee = Guarantee.BOUNDS
    pac = [count for count in used if count.guarantee is Guarantee.PAC and count.epsilon is not None]
    return Reading(
        metric,
        "property",
        subject,
        rate.lower,
        rate.upper,
        min(max(Fraction(rate.value), rate.lower), rate.upper),
        guarantee,
        group=group,
        risk=rate.risk,
        epsilon=max((count.epsilon for count in pac if count.epsilon is not None), default=None),
        delta=max((count.delta for count in pac if count.delta is not None), default=None),
        sides=sides if sides in (1, 2) else 0,  # type: ignore[arg-type]
        support=support,
        problem=problem,
    )


def _vacuous(subject: str, metric: str, group: str | None, problem: str) -> Reading:
    """0/0: nothing was measured, so nothing can be decided."""
    return Reading(
        metric,
        "property",
        subject,
        Fraction(0),
        Fraction(1),
        Fraction(1, 2),
        Guarantee.BOUNDS,
        group=group,
        reason="vacuous",
        need="an assumption that some input meets",
        problem=problem,
    )


def _draws(good: Sequence[Count], bad: Sequence[Count]) -> Draws | None:
    """Disjoint counts of the same draws: given that a draw was one of them, it is a hit with the rate's probability."""
    used = [*good, *bad]
    if not used or any(
        count.guarantee is not Guarantee.SAMPLED or count.hits is None or count.samples is None for count in used
    ):
        return None
    if len({(count.engine, count.seed, count.samples, count.digest) for count in used}) > 1:
        return None
    hits = sum(count.hits or 0 for count in good)
    return Draws(hits, hits + sum(count.hits or 0 for count in bad))


def _risk(used: Sequence[Count]) -> Fraction:
    """1 − the confidence that the run asked for."""
    return max((1 - count.confidence for count in used if count.confidence is not None), default=Fraction(1, 20))


def _problem(digests: Iterable[str], metric: str, group: str | None) -> str:
    """A name of what was measured; without digests none."""
    every = list(dict.fromkeys(digests))
    if not every or not all(every):
        return ""
    return hashlib.sha256("\n".join([*every, metric, group or ""]).encode()).hexdigest()

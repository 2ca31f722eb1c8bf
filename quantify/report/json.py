"""Evidence to the JSON contract `quantify/1`; the schemas that hold it lie in `schemas/`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from importlib import resources
from math import fsum
from typing import Any

from quantify.ir.count import Count
from quantify.ir.digits import exact_ratio, to_digits
from quantify.ir.evidence import CaseEvidence, Check, CnfEvidence, Evidence, Rate, Witness

SCHEMA = "quantify/1"
CONFUSION = ("tp", "fp", "tn", "fn")
WIDE = 2**53
"""Integers from here on are written as strings wherever they occur."""


@cache
def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of `name`: "count", "cnf" or "doctor"."""
    text = (resources.files("quantify.report") / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def to_dict(evidence: Evidence) -> dict[str, Any]:
    """The answer of `quantify count` as plain JSON data.

    Counts are decimal strings, or masses "p/q" under a product measure. `counts` and `metrics` are there for every
    kind but robustness, which has `inputs` (one entry a row and ε) and `summary`.
    """
    kind = evidence.property.get("kind")
    answer: dict[str, Any] = {
        "schema": SCHEMA,
        "complete": evidence.complete,
        "seconds": evidence.seconds,
        "model": _plain(evidence.model),
        "property": _plain(evidence.property),
        "domain": _plain(evidence.domain) | {"size": _digits(evidence.domain.get("size", 0))},
    }
    scale = _scale(evidence)
    if kind == "robustness":
        answer["inputs"] = [_input(case, scale) for case in evidence.cases]
        answer["summary"] = _summary(evidence.cases)
    else:
        case = evidence.cases[0]
        answer["total"] = _amount(case.total, scale)
        answer["counts"] = nested_counts(str(kind), {n: count_to_dict(c, scale) for n, c in case.counts.items()})
        answer["metrics"] = nested_metrics(str(kind), {n: rate_to_dict(r) for n, r in case.metrics.items()})
        if case.engine_reason:
            answer["engine_reason"] = case.engine_reason
    answer["checks"] = [_check(check) for check in evidence.checks]
    answer["witnesses"] = [_witness(witness, case) for case in evidence.cases for witness in case.witnesses]
    return answer


def cnf_to_dict(evidence: CnfEvidence) -> dict[str, Any]:
    """The answer of `quantify cnf` as plain JSON data."""
    return {
        "schema": SCHEMA,
        "complete": evidence.complete,
        "seconds": evidence.seconds,
        "formula": _plain(evidence.formula),
        "counts": {"models": count_to_dict(evidence.count)},
        "checks": [_check(check) for check in evidence.checks],
    }


def count_to_dict(count: Count, scale: int | None = None) -> dict[str, Any]:
    """One count; what does not apply to its guarantee is left out."""
    found: dict[str, Any] = {
        "lower": _amount(count.lower, scale),
        "upper": _amount(count.upper, scale),
        "guarantee": str(count.guarantee),
        "engine": count.engine,
        "seconds": count.seconds,
    }
    if count.estimate is not None:
        found["estimate"] = _amount(count.estimate, scale)
    for name in ("epsilon", "delta", "confidence"):
        value = getattr(count, name)
        if value is not None:
            found[name] = _number(value)
    for name in ("seed", "samples", "hits"):
        value = getattr(count, name)
        if value is not None:
            found[name] = value
    if count.note:
        found["note"] = count.note
    if count.digest:
        found["digest"] = count.digest
    return found


def rate_to_dict(rate: Rate | None) -> dict[str, Any] | None:
    """A rate between "p/q" ends; `risk` is the probability that it lies outside, when that is not 0."""
    if rate is None:
        return None
    found: dict[str, Any] = {
        "lower": exact_ratio(rate.lower),
        "upper": exact_ratio(rate.upper),
        "value": rate.value,
        "guarantee": str(rate.guarantee),
    }
    if rate.risk:
        found["risk"] = _number(rate.risk)
    return found


def nested_counts(kind: str, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Counts by name; learnability without a positive label as {label: {tp, fp, tn, fn}}."""
    if kind != "learnability":
        return dict(counts)
    found: dict[str, Any] = {}
    for name, value in counts.items():
        label, slash, cell = name.rpartition("/")
        if slash and cell in CONFUSION:
            found.setdefault(label, {})[cell] = value
        else:
            found[name] = value
    return found


def nested_metrics(kind: str, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics by name; {label: {accuracy, …}} and {class_share: {label: …}} where there is one a label."""
    found: dict[str, Any] = {}
    for name, value in metrics.items():
        first, slash, last = name.partition("/") if kind == "classes" else name.rpartition("/")
        if slash:
            found.setdefault(first, {})[last] = value
        else:
            found[name] = value
    return found


def _scale(evidence: Evidence) -> int | None:
    """What integer weights are divided by, None under the uniform measure."""
    return evidence.scale if evidence.domain.get("measure") == "product" else None


def _input(case: CaseEvidence, scale: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "row": case.row,
        "label": case.label,
        "epsilon": None if case.epsilon is None else _number(case.epsilon),
        "total": _amount(case.total, scale),
    }
    found |= {name: count_to_dict(count, scale) for name, count in case.counts.items()}
    found |= {name: rate_to_dict(rate) for name, rate in case.metrics.items()}
    if case.engine_reason:
        found["engine_reason"] = case.engine_reason
    return found


def _summary(cases: tuple[CaseEvidence, ...]) -> dict[str, Any]:
    by_epsilon: dict[Fraction | None, list[Rate]] = {}
    for case in cases:
        rate = case.metrics.get("robustness")
        by_epsilon.setdefault(case.epsilon, []).extend([rate] if rate is not None else [])
    curve = [
        {
            "epsilon": None if epsilon is None else _number(epsilon),
            "inputs": len(rates),
            "fully_robust": sum(rate.lower == 1 for rate in rates),
            "mean_robustness": fsum(rate.value for rate in rates) / len(rates) if rates else None,
            "min_robustness": min((rate.value for rate in rates), default=None),
        }
        for epsilon, rates in by_epsilon.items()
    ]
    everything = [rate for rates in by_epsilon.values() for rate in rates]
    return {
        "inputs": len(cases),
        "fully_robust": sum(rate.lower == 1 for rate in everything),
        "undecided": sum(rate.lower != rate.upper for rate in everything),
        "by_epsilon": curve,
    }


def _check(check: Check) -> dict[str, str]:
    return {"name": check.name, "status": check.status, "detail": check.detail}


def _witness(witness: Witness, case: CaseEvidence) -> dict[str, Any]:
    found: dict[str, Any] = {"query": witness.query, "input": _plain(witness.input), "label": witness.label}
    if witness.changed is not None:
        found["changed"] = _plain(witness.changed)
    if case.row is not None:
        found["row"] = case.row
    if case.epsilon is not None:
        found["epsilon"] = _number(case.epsilon)
    return found


def _amount(number: int, scale: int | None = None) -> str:
    return to_digits(number) if scale is None else exact_ratio(Fraction(number, scale))


def _digits(size: object) -> str:
    return to_digits(size) if isinstance(size, int) else str(size)


def _number(value: Fraction) -> int | float | str:
    """A parameter that people gave or chose: an int, a float, or p/q where a float would be 0 or too large."""
    if value.denominator == 1 and abs(value.numerator) < WIDE:
        return value.numerator
    try:
        number = float(value)
    except OverflowError:
        return exact_ratio(value)
    return number if number else exact_ratio(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str | float):
        return value
    if isinstance(value, int):
        return value if -WIDE < value < WIDE else to_digits(value)
    if isinstance(value, Fraction):
        return _number(value)
    return str(value)

"""A policy file in, its rules out, every mistake refused with its line and what was probably meant."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal, cast

from quantify.errors import InputError
from quantify.ir.count import Guarantee
from quantify.ir.record import METRICS, About
from quantify.properties import yaml
from quantify.properties.fields import Fields, boolean, choice, integer, items, rational, text, unknown
from quantify.properties.yaml import Mapping, Node, fail, listed

Correction = Literal["holm", "none"]
SUBJECTS: tuple[About, ...] = ("property", "suite", "transform", "recipe", "table")
"""Keys of a rule that say what it is about."""
TOP = (
    "rules", "confidence", "least_guarantee", "model", "correction", "allow_approximate_methods", "leakage", "suite",
)  # fmt: skip
RULE = (
    "id", "metric", *SUBJECTS, "min", "max", "confidence", "least_guarantee", "model", "group", "groups", "min_support",
)  # fmt: skip
RUNGS = {str(guarantee): guarantee for guarantee in reversed(Guarantee)}
CONFIDENCE = Fraction(95, 100)
EXAMPLE = "rules: [{id: unsafe, metric: violation, property: phi5, max: 0}]"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rate and where it must lie."""

    id: str
    line: int
    file: str
    """Of the policy, for messages."""
    metric: str
    about: About | None
    """None: whatever has the metric."""
    subject: str | None
    minimum: Fraction | None
    maximum: Fraction | None
    confidence: Fraction
    least_guarantee: Guarantee | None
    """Lowest rung that may decide; None: `bounds` for rates of a domain, `sampled` for rates of a sample of cases."""
    model: str | None
    groups: tuple[str, ...] | Literal["all"] | None
    """Names of the groups that it is about, each by itself; None: the whole."""
    min_support: int

    def fail(self, message: str, hint: str) -> InputError:
        """An error about this rule, with its line."""
        return InputError(f"{self.file}:{self.line}: rule {self.id!r}: {message}", hint)


@dataclass(frozen=True, slots=True)
class Policy:
    """What a release must fulfil."""

    path: Path
    sha256: str
    rules: tuple[Rule, ...]
    confidence: Fraction
    correction: Correction
    allow_approximate: bool
    leakage_required: bool
    leakage_line: int
    suite: str | None
    """Path of the suite that rules and `leakage` are about, as written; None: the suites of the evidence."""


def load(path: Path) -> Policy:
    """Read a policy file.

    Raises:
        InputError: Not there, not YAML, an unknown key or metric, no rule, a duplicate id, a threshold that is no
            share, …; with the line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", f"give a policy file such as {EXAMPLE}") from None
    root = yaml.parse(content, str(path))
    if not isinstance(root, Mapping):
        fail(root, "a policy is a mapping", f"write {EXAMPLE}")
    fields = Fields(root, "a policy", TOP)
    nodes = items(fields.need("rules", f"write {EXAMPLE}"), "rules")
    if not nodes:
        fail(fields.need("rules", ""), "rules is empty: a policy without a rule decides nothing", f"write {EXAMPLE}")
    leakage = fields.get("leakage")
    if leakage is not None:
        choice(leakage, "leakage", ("required",))
    suite = fields.get("suite")
    defaults = _Defaults(
        confidence=_confidence(fields),
        least_guarantee=_rung(fields),
        model=_optional_text(fields, "model"),
    )
    rules = tuple(_rule(node, defaults) for node in nodes)
    _check_ids(rules, nodes)
    allow, correct = fields.get("allow_approximate_methods"), fields.get("correction")
    return Policy(
        path=path,
        sha256=hashlib.sha256(content).hexdigest(),
        rules=rules,
        confidence=defaults.confidence,
        correction="holm" if correct is None else cast(Correction, choice(correct, "correction", ("holm", "none"))),
        allow_approximate=allow is not None and boolean(allow, "allow_approximate_methods"),
        leakage_required=leakage is not None,
        leakage_line=leakage.line if leakage is not None else 0,
        suite=None if suite is None else text(suite, "suite"),
    )


@dataclass(frozen=True, slots=True)
class _Defaults:
    confidence: Fraction
    least_guarantee: Guarantee | None
    model: str | None


def _rule(node: Node, defaults: _Defaults) -> Rule:
    fields = Fields(node, "a rule", RULE)
    name = text(fields.need("id", "give it a name: id: robust"), "id")
    metric_node = fields.need("metric", f"name a rate, one of: {listed(METRICS, 20)}")
    metric = text(metric_node, "metric")
    if metric not in METRICS:
        unknown(metric_node, "metric", metric, METRICS)
    about, subject = _subject(fields, metric)
    minimum, maximum = (_threshold(fields, key, metric) for key in ("min", "max"))
    if minimum is None and maximum is None:
        fail(node, f"the rule {name!r} has no threshold", "write min: 0.95 or max: 0")
    if minimum is not None and maximum is not None and minimum > maximum:
        fail(fields.need("min", ""), f"the rule {name!r} asks for min > max, which nothing fulfils", "swap them")
    support = fields.get("min_support")
    least = 0 if support is None else integer(support, "min_support")
    if support is not None and least < 1:
        fail(support, f"min_support is {least}", "write the least number of cases, 1 or more")
    return Rule(
        id=name,
        line=node.line,
        file=node.file,
        metric=metric,
        about=about,
        subject=subject,
        minimum=minimum,
        maximum=maximum,
        confidence=_confidence(fields, defaults.confidence),
        least_guarantee=_rung(fields, defaults.least_guarantee),
        model=_optional_text(fields, "model") or defaults.model,
        groups=_groups(fields),
        min_support=least,
    )


def _subject(fields: Fields, metric: str) -> tuple[About | None, str | None]:
    given = [key for key in SUBJECTS if fields.get(key) is not None]
    fitting = METRICS[metric].about
    for key in given:
        if key not in fitting:
            node = fields.need(key, "")
            fail(node, f"{metric} is not the rate of a {key}", f"write {' or '.join(fitting)}: NAME")
    if len(given) > 1:
        fail(fields.need(given[1], ""), f"a rule about a {given[0]} and a {given[1]}", "write two rules")
    if not given:
        if "property" in fitting:
            fail(fields.node, f"a rule about {metric} needs the property that was counted", "write property: NAME")
        return None, None
    return given[0], text(fields.need(given[0], ""), given[0])


def _threshold(fields: Fields, key: str, metric: str) -> Fraction | None:
    node = fields.get(key)
    if node is None:
        return None
    value = Fraction(rational(node, key))
    if METRICS[metric].is_share and not 0 <= value <= 1:
        meant = f": write {float(value / 100):g} for {float(value):g} %" if 1 < value <= 100 else ""
        fail(node, f"{metric} is a share, and {key}: {node_text(node)} is none", f"shares lie between 0 and 1{meant}")
    return value


def node_text(node: Node) -> str:
    """A scalar as written."""
    return getattr(node, "text", "…")


def _confidence(fields: Fields, default: Fraction = CONFIDENCE) -> Fraction:
    node = fields.get("confidence")
    if node is None:
        return default
    value = Fraction(rational(node, "confidence"))
    if not 0 < value < 1:
        meant = f": write {float(value / 100):g}" if 1 < value < 100 else ""
        fail(node, f"confidence: {node_text(node)} is out of range", f"it lies strictly between 0 and 1{meant}")
    return value


def _rung(fields: Fields, default: Guarantee | None = None) -> Guarantee | None:
    node = fields.get("least_guarantee")
    return default if node is None else RUNGS[choice(node, "least_guarantee", RUNGS)]


def _optional_text(fields: Fields, key: str) -> str | None:
    node = fields.get(key)
    return None if node is None else text(node, key)


def _groups(fields: Fields) -> tuple[str, ...] | Literal["all"] | None:
    one, several = fields.get("group"), fields.get("groups")
    if one is not None and several is not None:
        fail(several, "group and groups", "keep one of them")
    if one is not None:
        return (text(one, "group"),)
    if several is None:
        return None
    if isinstance(several, yaml.Scalar):
        choice(several, "groups", ("all",))
        return "all"
    names = tuple(text(node, "a group") for node in items(several, "groups"))
    if not names:
        fail(several, "groups is empty", "name some, or write groups: all")
    for name, node in zip(names, items(several, "groups"), strict=True):
        if names.count(name) > 1:
            fail(node, f"the group {name!r} is there twice", "keep one of them")
    return names


def _check_ids(rules: tuple[Rule, ...], nodes: tuple[Node, ...]) -> None:
    seen: dict[str, int] = {}
    for rule, node in zip(rules, nodes, strict=True):
        if rule.id in seen:
            fail(node, f"the rule id {rule.id!r} is there twice (first on line {seen[rule.id]})", "give it another id")
        if rule.id in ("leakage", "evidence"):
            fail(node, f"the rule id {rule.id!r} is the gate's own", f"call it {rule.id}_rate")
        seen[rule.id] = rule.line

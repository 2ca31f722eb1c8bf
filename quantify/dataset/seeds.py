"""A seeds file and the runs on record in, the recipe out: its expected rate over seeds, and its rule's outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from quantify.dataset.recipe_interval import FEWEST, interval
from quantify.errors import InputError
from quantify.evidence.store import Store, Stored
from quantify.ir.count import Guarantee
from quantify.ir.recipe import CaseVerdict, Checkpoint, Recipe
from quantify.ir.record import DataRef, Reading, Record
from quantify.ir.verdict import REASONS, Need, Outcome, Reason
from quantify.properties import yaml
from quantify.properties.fields import Fields, choice, rational, text
from quantify.properties.yaml import Mapping, Node, fail

TOP = ("recipe", "checkpoints", "rule")
RULE = ("id", "criterion", "min", "max")
CRITERIA = ("correct",)
EXAMPLE = "seeds: {recipe: NAME, checkpoints: {seed_1: latest~2, seed_2: latest~1, seed_3: latest}, rule: {…}}"
ADVISED = 5
"""Seeds that it takes to decide anything but the plainest."""


@dataclass(frozen=True)
class Plan:
    """A seeds file."""

    path: Path
    recipe: str
    checkpoints: tuple[tuple[str, Node], ...]
    """Name, and which run: `latest`, `latest~1`, …, or the beginning of a digest."""
    rule: str
    minimum: Fraction | None
    maximum: Fraction | None


def load(path: Path) -> Plan:
    """Read a seeds file.

    Raises:
        InputError: Not there, an unknown key, no checkpoint, a threshold that is no share, …; with the line.
    """
    root, _ = yaml.read(path, f"give a seeds file: {EXAMPLE}")
    whole = Fields(root, "a seeds file", ("seeds",))
    fields = Fields(whole.need("seeds", f"write {EXAMPLE}"), "seeds", TOP)
    named = fields.need("checkpoints", "name a run for every seed: {seed_1: latest~1, seed_2: latest}")
    if not isinstance(named, Mapping) or not named.items:
        fail(named, "checkpoints names no run", "name a run for every seed: {seed_1: latest~1, seed_2: latest}")
    rule = Fields(fields.need("rule", "write rule: {id: recipe_accurate, criterion: correct, min: 0.8}"), "rule", RULE)
    choice(rule.need("criterion", "write criterion: correct"), "criterion", CRITERIA)
    minimum, maximum = (_threshold(rule, key) for key in ("min", "max"))
    if minimum is None and maximum is None:
        fail(rule.node, "the rule has no threshold", "write min: 0.8")
    if minimum is not None and maximum is not None and minimum > maximum:
        fail(rule.node, "the rule asks for min > max, which nothing fulfils", "swap them")
    return Plan(
        path=path,
        recipe=text(fields.need("recipe", "give the recipe a name: recipe: loan-model"), "recipe"),
        checkpoints=tuple((key.text, node) for key, node in named.items),
        rule=text(rule.need("id", "give it a name: id: recipe_accurate"), "id"),
        minimum=minimum,
        maximum=maximum,
    )


def _threshold(rule: Fields, key: str) -> Fraction | None:
    node = rule.get(key)
    if node is None:
        return None
    value = Fraction(rational(node, key))
    if not 0 <= value <= 1:
        meant = f": write {float(value / 100):g} for {float(value):g} %" if 1 < value <= 100 else ""
        fail(node, f"{key} is {float(value):g}, and a rate is a share", f"shares lie between 0 and 1{meant}")
    return value


@dataclass(frozen=True)
class Judge:
    """What the policy says."""

    path: Path
    sha256: str
    confidence: Fraction
    allow_approximate: bool


def judge(plan: Plan, store: Store, policy: Judge) -> Recipe:
    """The recipe's expected rate from the runs that the plan names, and what the rule says of it.

    Raises:
        InputError: There is no such run, two checkpoints are one, the suites differ or declare groups, or a run says
            not what is right.
        InvalidEvidenceError: A record was changed.
    """
    runs = [(name, node, _run(name, node, store)) for name, node in plan.checkpoints]
    _check_distinct(runs)
    data, cases = _suite(runs)
    checkpoints = tuple(_checkpoint(name, node, one, cases) for name, node, one in runs)
    reading = _reading(plan.recipe, checkpoints, len(cases), policy.confidence)
    outcome, reasons, needs = _decide(plan, reading, policy)
    return Recipe(
        name=plan.recipe,
        file=str(plan.path),
        policy=str(policy.path),
        policy_sha256=policy.sha256,
        confidence=policy.confidence,
        allow_approximate=policy.allow_approximate,
        suite=runs[0][2].record.body["suite"]["name"],
        data=data,
        cases=cases,
        checkpoints=checkpoints,
        reading=reading,
        rule=plan.rule,
        minimum=plan.minimum,
        maximum=plan.maximum,
        outcome=outcome,
        reasons=reasons,
        needs=needs,
    )


# --- the runs --------------------------------------------------------------------------------------------------------
Named = Sequence[tuple[str, Node, Stored]]


def _run(name: str, node: Node, store: Store) -> Stored:
    reference = text(node, f"the checkpoint {name}")
    try:
        found = store.find(reference, "run")
    except InputError as error:
        fail(node, f"the checkpoint {name}: {error.message}", "quantify evidence list --kind run")
    if found.record.kind != "run":
        fail(
            node,
            f"the checkpoint {name}: {reference} is a record of quantify {found.record.kind}",
            "name a run: quantify evidence list --kind run",
        )
    return found


def _check_distinct(runs: Named) -> None:
    """Refuse one seed under two names: it would count as two draws."""
    seen: dict[str, str] = {}
    for name, node, one in runs:
        model = one.record.model
        for key in (one.digest, *(() if model is None else (model.sha256,))):
            if key in seen:
                what = "run" if key == one.digest else "model file"
                message = f"the checkpoints {seen[key]} and {name} are of one {what}, {key[:12]}…"
                fail(node, message, "every checkpoint is a seed of its own, trained and run by itself")
            seen[key] = name


def _suite(runs: Named) -> tuple[DataRef, tuple[str, ...]]:
    """The one suite of all runs, and its cases that say what is right."""
    first_name, first_node, first = runs[0]
    suite, settings = _identity(first.record)
    for name, node, one in runs:
        other, own = _identity(one.record)
        if other != suite:
            paths = f"{first.record.body['suite']['path']} and {one.record.body['suite']['path']}"
            message = f"{first_name} and {name} ran on suites of different content: {paths}"
            fail(node, message, "run every checkpoint on the same suite")
        if own != settings and one.record.body["run"]["failed"] is None and first.record.model is not None:
            fail(node, f"{first_name} and {name} were run with different --tolerance", "run them with the same one")
        groups = one.record.body["suite"]["groups"]
        if groups:
            message = f"the suite declares groups ({', '.join(groups)}), and an interval over seeds knows none"
            fail(node, message, "run the checkpoints on a copy of the suite without groups")
    cases = tuple(answer["id"] for answer in first.record.body["answers"] if answer["expected"] is not None)
    if not cases:
        fail(first_node, "no case of the suite says what is right", "give the cases a label, and run again")
    return next(data for data in first.record.data if data.role == "cases"), cases


def _identity(record: Record) -> tuple[tuple[Any, ...], Any]:
    suite = record.body["suite"]
    return (suite["sha256"], suite.get("images")), record.body["run"]["tolerance"]


def _checkpoint(name: str, node: Node, one: Stored, cases: Sequence[str]) -> Checkpoint:
    record = one.record
    answers = {answer["id"]: answer for answer in record.body["answers"]}
    verdicts: list[CaseVerdict] = []
    for case in cases:
        answer = answers[case]
        if answer["answer"] is None:
            verdicts.append("unanswered")
        elif answer["correct"] is None:
            fail(node, f"the run of {name} does not say which scores are right", "run it again with --tolerance")
        else:
            verdicts.append("correct" if answer["correct"] else "wrong")
    run = record.body["run"]
    return Checkpoint(name, one.digest, run["system"], record.model, run["failed"], tuple(verdicts))


# --- the rate --------------------------------------------------------------------------------------------------------
def _reading(recipe: str, checkpoints: Sequence[Checkpoint], cases: int, confidence: Fraction) -> Reading:
    sure = [one.correct for one in checkpoints]
    most = [one.correct + one.unanswered for one in checkpoints]
    lower, upper = interval(sure, most, cases, confidence)
    few = len(checkpoints) < FEWEST
    return Reading(
        "correct",
        "recipe",
        recipe,
        lower,
        upper,
        Fraction(sum(sure) + sum(most), 2 * cases * len(checkpoints)),
        Guarantee.SAMPLED,
        risk=1 - confidence,
        support=cases,
        approximate=True,
        reason="too_few_seeds" if few else None,
        need=f"{FEWEST - len(checkpoints)} more seeds; about {ADVISED} in all decide something" if few else None,
    )


def _decide(plan: Plan, reading: Reading, policy: Judge) -> tuple[Outcome, tuple[Reason, ...], tuple[Need, ...]]:
    if reading.reason is not None:
        text = f"{len(plan.checkpoints)} of at least {FEWEST} seeds"
        need = Need("other", FEWEST, reading.need or "")
        return Outcome.INSUFFICIENT_EVIDENCE, (Reason(reading.reason, text),), (need,)
    if not policy.allow_approximate:
        text = "an interval over seeds is approximate, and the policy does not say allow_approximate_methods: true"
        need = Need("other", None, "a person's judgement, or allow_approximate_methods: true in the policy")
        return Outcome.MANUAL_REVIEW, (Reason("approximate_method", text),), (need,)
    sides = list(_sides(plan, reading))
    outcome = (
        Outcome.FAIL if "outside" in sides else Outcome.PASS if set(sides) == {"within"} else
        Outcome.INSUFFICIENT_EVIDENCE
    )  # fmt: skip
    code = {Outcome.FAIL: "outside", Outcome.PASS: "within"}.get(outcome, "across")
    needs = (Need("other", None, "more seeds, or more cases"),) if code == "across" else ()
    return outcome, (Reason(code, REASONS[code]),), needs


def _sides(plan: Plan, reading: Reading) -> Iterator[str]:
    if plan.minimum is not None:
        low, high = reading.lower >= plan.minimum, reading.upper < plan.minimum
        yield "within" if low else "outside" if high else "across"
    if plan.maximum is not None:
        low, high = reading.lower > plan.maximum, reading.upper <= plan.maximum
        yield "within" if high else "outside" if low else "across"

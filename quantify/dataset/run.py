"""A model's answers to a suite in, the run out: each case judged, the share of correct ones, and the record of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from quantify import __version__
from quantify.dataset import answers
from quantify.dataset.answers import Answer, Asked, Verdict
from quantify.dataset.suite import Case, Suite, group_name
from quantify.errors import InputError
from quantify.evidence import records
from quantify.evidence.proportions import CONFIDENCE, proportion
from quantify.ir.digits import exact_ratio
from quantify.ir.model import Model
from quantify.ir.record import DataRef, Draws, ModelRef, PropertyRef, Reading, Record


@dataclass(frozen=True)
class Answered:
    """One case with its answer."""

    case: Case
    answer: Answer
    verdict: Verdict


@dataclass(frozen=True)
class Run:
    """One system on one suite."""

    system: str
    suite: Suite
    answered: tuple[Answered, ...]
    """In the order of the suite."""
    model: Model | None = None
    """None for a run that failed."""
    property: PropertyRef | None = None
    failed: str | None = None
    """Why there are no answers at all."""
    tolerance: Fraction | None = None
    """Of a regressor's scores."""
    images: str | None = None
    """Digest of the image files of the suite."""


def run(asked: Asked, system: str, tolerance: Fraction | None = None) -> Run:
    """Ask the model about every case.

    Raises:
        InputError: A case cannot be asked, or its label is no answer that the model could give.
    """
    suite = asked.suite
    if tolerance is not None and not asked.regressor:
        raise InputError(f"{asked.model.path}: a tolerance is of a regressor's scores", "leave out --tolerance")
    found = answers.ask(asked, suite.cases)
    answered = tuple(
        Answered(case, answer, answers.judge(asked, case, answer, tolerance))
        for case, answer in zip(suite.cases, found, strict=True)
    )
    problem = asked.problem
    prop = None if problem is None else PropertyRef(problem.name, problem.property_path, problem.property_sha256)
    return Run(system, suite, answered, asked.model, prop, tolerance=tolerance, images=images_digest(suite))


def failed(suite: Suite, system: str, reason: str) -> Run:
    """The run of a system that gives no answers: training failed, the model file cannot be had."""
    answered = tuple(Answered(case, None, "unlabelled" if case.label is None else "unanswered") for case in suite.cases)
    return Run(system, suite, answered, failed=reason, images=images_digest(suite))


def images_digest(suite: Suite) -> str | None:
    """Digest of the image files of a suite, in its order; None when it has none."""
    if not suite.images:
        return None
    whole = hashlib.sha256()
    for case in suite.cases:
        assert case.image is not None
        try:
            whole.update(bytes.fromhex(records.file_sha256(str(case.image))))
        except OSError:
            raise InputError(
                f"{suite.where(case)}: there is no image {case.image}", "paths are relative to the suite"
            ) from None
    return whole.hexdigest()


# --- what it says ----------------------------------------------------------------------------------------------------
def draws(answered: Iterable[Answered]) -> Draws:
    """The labelled cases as draws of which the correct ones are hits; those without an answer are unknown."""
    verdicts = [one.verdict for one in answered if one.verdict != "unlabelled"]
    return Draws(verdicts.count("correct"), len(verdicts), unknown=verdicts.count("unanswered"))


def readings(found: Run) -> tuple[Reading, ...]:
    """`correct` on the whole suite and on each of its groups; none without labels."""
    return tuple(_readings(found))


def _readings(found: Run) -> Iterator[Reading]:
    groups: list[str | None] = [None, *found.suite.group_names()]
    for group in groups:
        members = [
            one
            for one in found.answered
            if group is None or any(group_name(*pair) == group for pair in one.case.groups)
        ]
        drawn = draws(members)
        if drawn.samples:
            yield proportion("correct", "suite", found.suite.name, drawn, group=group, support=drawn.samples)


def to_dict(found: Run) -> dict[str, Any]:
    """The answer as `--json` prints it and a record keeps it."""
    drawn = draws(found.answered)
    model = found.model
    suite: dict[str, Any] = {
        "name": found.suite.name,
        "path": str(found.suite.path),
        "sha256": found.suite.sha256,
        "cases": len(found.suite.cases),
        "groups": list(found.suite.attributes),
    }
    if found.images is not None:
        suite["images"] = found.images
    return {
        "schema": "quantify/1",
        "run": {"system": found.system, "failed": found.failed, "tolerance": _decimal(found.tolerance)},
        "model": None
        if model is None
        else {
            "path": model.path,
            "sha256": model.sha256,
            "kind": "regressor" if answers.is_regressor(model) else model.kind,
            "classes": [] if answers.is_regressor(model) else list(model.classes),
        },
        "suite": suite,
        "counts": {
            "cases": len(found.answered),
            "answered": sum(one.answer is not None for one in found.answered),
            "labelled": drawn.samples,
            "correct": drawn.hits,
            "unanswered": drawn.unknown,
        },
        "rates": [rate(reading) for reading in readings(found)],
        "answers": [_answer(one) for one in found.answered],
    }


def rate(reading: Reading) -> dict[str, Any]:
    """A reading of a suite as JSON: ends as "p/q" and the value as a float."""
    found: dict[str, Any] = {
        "metric": reading.metric,
        "group": reading.group,
        "lower": exact_ratio(reading.lower),
        "upper": exact_ratio(reading.upper),
        "value": float(reading.value),
        "guarantee": str(reading.guarantee),
    }
    if reading.draws:
        found |= {
            "hits": sum(one.hits for one in reading.draws),
            "unknown": sum(one.unknown for one in reading.draws),
            "samples": sum(one.samples for one in reading.draws),
            "confidence": float(CONFIDENCE),
        }
    return found


def _answer(one: Answered) -> dict[str, Any]:
    correct = {"correct": True, "wrong": False}.get(one.verdict)
    return {"id": one.case.id, "answer": one.answer, "expected": one.case.label, "correct": correct}


def _decimal(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def to_record(found: Run, data: Iterable[DataRef] = (), created: str | None = None) -> Record:
    """The record of a run; `data` are the files that its property names."""
    model = found.model
    return Record(
        kind="run",
        created=records.now() if created is None else created,
        tool={"version": __version__, "library": "" if model is None else model.library},
        readings=readings(found),
        model=None if model is None else ModelRef(model.path, model.sha256, model.kind),
        property=found.property,
        data=(cases_ref(found.suite), *data),
        body=to_dict(found),
    )


def cases_ref(suite: Suite) -> DataRef:
    """The suite as a record names it."""
    return DataRef("cases", str(suite.path), suite.sha256, len(suite.cases))

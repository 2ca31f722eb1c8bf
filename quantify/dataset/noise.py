"""Declared transforms and a suite in, the share of cases out whose answer each transform changes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from PIL.Image import Image

from quantify import __version__, discretise
from quantify.dataset import answers, images, perturb
from quantify.dataset.answers import Answer, Asked
from quantify.dataset.noise_spec import Spec, Transform
from quantify.dataset.run import cases_ref, images_digest, rate
from quantify.dataset.suite import Case, Suite, group_name
from quantify.errors import ContradictionError, InputError
from quantify.evidence import records
from quantify.evidence.crosscheck import STRICTNESS
from quantify.evidence.proportions import interval_at, proportion
from quantify.ir.count import Count, Guarantee
from quantify.ir.evidence import CaseEvidence
from quantify.ir.problem import Box, Problem
from quantify.ir.record import DataRef, Draws, ModelRef, PropertyRef, Reading, Record
from quantify.properties.table import CsvTable
from quantify.resources import Progress

KEPT, CHANGED = "kept", "changed"
DECLARED = "transform_declared"
LOST = "labels_show_meaning_lost"
UNLABELLED = "labels_missing"


@dataclass(frozen=True, slots=True)
class Pair:
    """One case before and after."""

    case: Case
    before: Answer
    after: Answer
    flipped: bool | None
    """None: one of the two has no answer."""


@dataclass(frozen=True)
class Tried:
    """One transform, tried on every case."""

    transform: Transform
    pairs: tuple[Pair, ...]
    reason: str | None
    """A code that forbids deciding by it."""
    need: str | None
    labels: Counter[str] | None = None
    """Images: how many people said kept, changed, or nothing (`missing`)."""
    counted: Reading | None = None
    """The exact share of flips over all of the noise, where that is a region that was counted."""
    note: str | None = None
    """What became of the count."""
    problem: str = ""
    """Digest of exactly what was measured."""


@dataclass(frozen=True)
class Noise:
    """One noise file on one model and suite."""

    spec: Spec
    asked: Asked
    tried: tuple[Tried, ...]


def try_all(
    spec: Spec, asked: Asked, counted: Mapping[str, Problem], progress: Progress, folder: Path | None = None
) -> Noise:
    """Ask the model about every case, and about a changed copy by every transform.

    Args:
        counted: Transform → its robustness property bound to the model, for noise that is uniform over balls.
        folder: Where changed images are written for people to judge, FOLDER/TRANSFORM/ID.png; None: nowhere.

    Raises:
        InputError: A transform that does not fit the suite or the model, labels that do not.
    """
    suite = asked.suite
    for transform in spec.transforms:
        if (transform.relation == "same_score_within") != asked.regressor:
            kind, fitting = ("regressor", "same_score_within") if asked.regressor else ("classifier", "same_label")
            raise InputError(
                f"{spec.path}:{transform.line}: {asked.model.path} is a {kind}", f"write relation: {fitting}"
            )
        if transform.region is None:
            perturb.check(transform, suite)
    before = answers.ask(asked, suite.cases)
    tried = []
    for place, transform in enumerate(spec.transforms):
        progress.update(f"trying {transform.name}", place, len(spec.transforms))
        if transform.name in counted:
            one = _by_region(transform, asked, counted[transform.name])
        else:
            after = _after(transform, asked, folder)
            pairs = tuple(
                Pair(case, a, b, _flipped(transform, a, b))
                for case, a, b in zip(suite.cases, before, after, strict=True)
            )
            one = _judged(transform, suite, pairs)
        tried.append(replace(one, problem=_digest(asked, transform, counted.get(transform.name))))
    return Noise(spec, asked, tuple(tried))


def _after(transform: Transform, asked: Asked, folder: Path | None) -> list[Answer]:
    suite = asked.suite
    if not transform.is_image:
        return answers.ask(
            asked, [replace(case, features=perturb.features(transform, suite, case)) for case in suite.cases]
        )
    changed = []
    for case in suite.cases:
        assert case.image is not None
        picture = perturb.image(transform, case, images.opened(case.image, asked.model.columns, suite.where(case)))
        if folder is not None:
            _write(picture, folder / transform.name, case)
        changed.append(replace(case, features=images.flat(picture, asked.layout), image=None))
    return answers.ask(asked, changed)


def _write(picture: Image, folder: Path, case: Case) -> None:
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in case.id)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        picture.save(folder / f"{name}.png")
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}", "choose another folder") from None


def _flipped(transform: Transform, before: Answer, after: Answer) -> bool | None:
    if before is None or after is None:
        return None
    if transform.relation == "same_label":
        return before != after
    assert isinstance(before, float)
    assert isinstance(after, float)
    return abs(Fraction(before) - Fraction(after)) > transform.tolerance


def _digest(asked: Asked, transform: Transform, region: Problem | None) -> str:
    suite = asked.suite
    about = {
        "model": asked.model.sha256,
        "suite": [suite.sha256, images_digest(suite)],
        "transform": [transform.name, transform.parameters()],
        "region": None if region is None else region.property_sha256,
        "relation": [transform.relation, str(transform.tolerance)],
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


# --- what people say -------------------------------------------------------------------------------------------------
def _judged(transform: Transform, suite: Suite, pairs: tuple[Pair, ...]) -> Tried:
    """Whether the transform may decide: by declaration never, an image by people's labels on every case."""
    if not transform.is_image:
        need = "people cannot judge whether it keeps the meaning of a row: decide by a counted property instead"
        return Tried(transform, pairs, DECLARED, need)
    said = {} if transform.labels is None else read_labels(transform.labels, suite)
    labels = Counter(said.get(case.id, "missing") for case in suite.cases)
    if labels[CHANGED]:
        need = (
            f"people say that it changes the meaning of {labels[CHANGED]} of {len(suite.cases)} images: make it weaker"
        )
        return Tried(transform, pairs, LOST, need, labels)
    if labels["missing"]:
        need = f"let people label {labels['missing']} more of {len(suite.cases)} changed images as kept or changed"
        return Tried(transform, pairs, UNLABELLED, need, labels)
    return Tried(transform, pairs, None, None, labels)


def read_labels(path: Path, suite: Suite) -> dict[str, str]:
    """What people said of the changed images: case → `kept` or `changed`; one who says changed outweighs the others.

    Raises:
        InputError: Not a CSV with the columns `case` and `meaning`, a case that is not in the suite, another word.
    """
    try:
        table = CsvTable.read(path, header=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", "give a CSV: case,meaning") from None
    for name in ("case", "meaning"):
        if name not in (table.names or ()):
            raise InputError(f"{path}:1: there is no column {name!r}", "the columns are case and meaning")
    every = range(table.height())
    known = {case.id for case in suite.cases}
    found: dict[str, str] = {}
    for row, (case, word) in enumerate(zip(table.labels(every, "case"), table.labels(every, "meaning"), strict=True)):
        if case not in known:
            raise InputError(f"{path}:{row + 2}: there is no case {case!r} in {suite.path}", "labels name cases by id")
        if word not in (KEPT, CHANGED):
            raise InputError(f"{path}:{row + 2}: {word!r} is neither kept nor changed", "write kept or changed")
        if found.get(str(case)) != CHANGED:
            found[str(case)] = str(word)
    return found


# --- noise that is a region ------------------------------------------------------------------------------------------
def region_problem(transform: Transform, problem: Problem, suite: Suite) -> Problem:
    """Check that the balls of a robustness property are around the suite's cases, and can be drawn from uniformly.

    Raises:
        InputError: Another file or norm, several ε, a label column, or a measure that is not uniform.
    """
    where = f"{problem.property_path}: noise"
    if problem.kind != "robustness" or problem.norm != "linf" or problem.measure.kind != "uniform":
        raise InputError(f"{where} is drawn from balls", "give a robustness property with norm linf and no measure")
    if len({case.epsilon for case in problem.cases}) > 1:
        raise InputError(f"{where} has one ε", "write one: epsilon: 1")
    if any(case.row is None or case.row >= len(suite.cases) for case in problem.cases):
        raise InputError(
            f"{where}: its rows are not the cases of {suite.path}", f"write inputs: {{file: {suite.name}}}"
        )
    return problem


def _by_region(transform: Transform, asked: Asked, problem: Problem) -> Tried:
    """One draw from the ball around every case, the model's own answer to the centre being what must be kept."""
    cases = [asked.suite.cases[case.row or 0] for case in problem.cases]
    centres = np.array([case.centre for case in problem.cases], np.int64)
    drawn = np.empty_like(centres)
    for row, (ball, case) in enumerate(zip(problem.cases, cases, strict=True)):
        assert isinstance(ball.region, Box)
        rng = perturb.draws(transform, case)
        drawn[row] = [rng.randrange(a, b) for a, b in zip(ball.region.low, ball.region.high, strict=True)]
    classes = problem.model.classes
    before, after = (
        [classes[label] for label in problem.model.predict(discretise.to_inputs(problem, points)).tolist()]
        for points in (centres, drawn)
    )
    pairs = tuple(Pair(case, a, b, a != b) for case, a, b in zip(cases, before, after, strict=True))
    for ball, pair in zip(problem.cases, pairs, strict=True):
        if ball.label != pair.before:
            raise InputError(
                f"{problem.property_path}: for noise, robust means that the answer stays the model's own",
                "leave out label: of the inputs",
            )
    return _judged(transform, asked.suite, pairs)


def with_count(tried: Tried, counts: Sequence[CaseEvidence]) -> Tried:
    """Set the exact share of flips, the mean over the cases, beside the sampled one.

    The draws are one from each ball: their sum is spread no wider than a binomial of the mean share (Hoeffding, Annals
    of Mathematical Statistics 27, 1956), so the interval of the sample holds for that mean.

    Raises:
        ContradictionError: The sample's interval at 10^-6 and the count exclude each other.
    """
    robust = [case.counts.get("robust") for case in counts]
    if not robust or any(count is None or count.guarantee < Guarantee.BOUNDS for count in robust):
        return replace(tried, note="the region could not be counted by proof: the sampled rate stands alone")
    proven: list[tuple[Count, int]] = [
        (count, case.total) for count, case in zip(robust, counts, strict=True) if count is not None
    ]
    lower = sum((1 - Fraction(count.upper, total) for count, total in proven), Fraction(0)) / len(proven)
    upper = sum((1 - Fraction(count.lower, total) for count, total in proven), Fraction(0)) / len(proven)
    exact = lower == upper
    reading = Reading(
        "flips_under_noise", "transform", tried.transform.name, lower, upper, (lower + upper) / 2,
        Guarantee.EXACT if exact else Guarantee.BOUNDS, support=len(proven), reason=tried.reason, need=tried.need,
        problem=tried.problem,
    )  # fmt: skip
    sample = interval_at(readings_of(tried)[0], STRICTNESS)
    assert sample is not None
    if sample[1] < lower or upper < sample[0]:
        raise ContradictionError(
            f"{tried.transform.name}: the count says that {float(lower):.6g} to {float(upper):.6g} of the noise flips "
            f"the answer, and the sample {float(sample[0]):.6g} to {float(sample[1]):.6g} (one chance in a million)",
            "believe neither, and report it",
        )
    return replace(tried, counted=reading, note="counted: the sampled rate agrees with it")


# --- what it says ----------------------------------------------------------------------------------------------------
def readings_of(tried: Tried) -> tuple[Reading, ...]:
    """The sampled rate on the whole and on each group of cases."""
    return tuple(_readings(tried))


def _readings(tried: Tried) -> Iterator[Reading]:
    groups = sorted({group_name(*group) for pair in tried.pairs for group in pair.case.groups})
    for group in (None, *groups):
        members = [
            pair
            for pair in tried.pairs
            if group is None or any(group_name(*pair_) == group for pair_ in pair.case.groups)
        ]
        flips = Counter(pair.flipped for pair in members)
        drawn = Draws(flips[True], len(members), unknown=flips[None])
        yield proportion(
            "flips_under_noise", "transform", tried.transform.name, drawn, group=group, support=len(members),
            reason=tried.reason, need=tried.need, problem=tried.problem if group is None else "",
        )  # fmt: skip


def to_dict(found: Noise) -> dict[str, Any]:
    """The answer as `--json` prints it and a record keeps it."""
    suite, model = found.asked.suite, found.asked.model
    told: dict[str, Any] = {
        "schema": "quantify/1",
        "noise": {"path": str(found.spec.path), "sha256": found.spec.sha256},
        "model": {
            "path": model.path,
            "sha256": model.sha256,
            "kind": "regressor" if found.asked.regressor else model.kind,
        },
        "suite": {"name": suite.name, "path": str(suite.path), "sha256": suite.sha256, "cases": len(suite.cases)},
        "transforms": [_transform(one) for one in found.tried],
    }
    if (digest := images_digest(suite)) is not None:
        told["suite"]["images"] = digest
    return told


def _transform(tried: Tried) -> dict[str, Any]:
    transform = tried.transform
    flips = Counter(pair.flipped for pair in tried.pairs)
    return {
        "name": transform.name,
        "perturb": transform.parameters(),
        "relation": transform.relation,
        "tolerance": float(transform.tolerance) if transform.relation == "same_score_within" else None,
        "decides": tried.reason is None,
        "reason": tried.reason,
        "need": tried.need,
        "labels": None if tried.labels is None else {word: tried.labels[word] for word in (KEPT, CHANGED, "missing")},
        "counts": {"cases": len(tried.pairs), "flipped": flips[True], "kept": flips[False], "unanswered": flips[None]},
        "rates": [rate(reading) for reading in readings_of(tried)],
        "counted": None if tried.counted is None else rate(tried.counted),
        "note": tried.note,
        "flipped": [
            {"id": pair.case.id, "before": pair.before, "after": pair.after} for pair in tried.pairs if pair.flipped
        ],
    }


def to_record(found: Noise, data: Iterable[DataRef] = (), created: str | None = None) -> Record:
    """The record; `data` are the files beside the suite (labels, what a property names)."""
    model, problem = found.asked.model, found.asked.problem
    spec = DataRef("transforms", str(found.spec.path), found.spec.sha256)
    every = [reading for one in found.tried for reading in readings_of(one)]
    every += [one.counted for one in found.tried if one.counted is not None]
    return Record(
        kind="noise",
        created=records.now() if created is None else created,
        tool={"version": __version__, "library": model.library},
        readings=tuple(every),
        model=ModelRef(model.path, model.sha256, model.kind),
        property=None if problem is None else PropertyRef(problem.name, problem.property_path, problem.property_sha256),
        data=(cases_ref(found.asked.suite), spec, *data),
        body=to_dict(found),
    )

"""A suite and a training file in, the cases that are among the training rows out; of the rows, only counts are kept."""

from __future__ import annotations

import hashlib
import signal
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import joblib

from quantify import __version__
from quantify.dataset import near as near_rows
from quantify.dataset import suite as suites
from quantify.dataset import training as training_files
from quantify.dataset.equality import NESTED, Equality
from quantify.dataset.near import Near
from quantify.dataset.run import cases_ref
from quantify.dataset.suite import JSON_LINES, Case, Suite
from quantify.dataset.training import ABSENT, BadRow, Rows, Training
from quantify.errors import InputError, UndecidedError
from quantify.evidence import records
from quantify.ir.record import DataRef, Record
from quantify.properties.yaml import listed, suggest
from quantify.resources import Limits, Progress

FEATURES = "features"
LABEL = "label"
IMAGE = "image"


@dataclass(frozen=True, slots=True)
class Question:
    """What is compared with what, small enough to be sent to every worker."""

    suite: Path
    suite_sha256: str
    training: Training
    fields: tuple[str, ...]
    """Keys of a row that are compared."""
    equality: Equality
    near: float | None = None
    """Similarity from which on a row is a near duplicate; None: these are not looked for."""
    seed: int = 0


@dataclass(slots=True)
class Tally:
    """What one piece of the training file has to say."""

    rows: int = 0
    lines: int = 0
    found: Counter[int] = field(default_factory=Counter)
    """Place of a case → training rows that are the same."""
    near: dict[int, Near] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    """Fields that no row of it has."""
    bad: tuple[int, str] | None = None
    """Line of the piece (from 0) that cannot be read, and why."""


@dataclass(frozen=True)
class Leakage:
    """The finished comparison."""

    suite: Suite
    training: Training
    training_sha256: str
    fields: tuple[str, ...]
    digits: int | None
    rows: int
    found: dict[int, int]
    """Place of a case in the suite → training rows that are the same; the leaked cases alone."""
    near: dict[int, Near] | None
    """The same for near duplicates, leaked cases left out; None: not looked for."""
    threshold: float | None

    @property
    def clean(self) -> bool:
        """Whether no case is among the training rows."""
        return not self.found


def check(
    suite: Suite,
    training_path: Path,
    fields: Sequence[str],
    digits: int | None,
    near: float | None,
    limits: Limits,
    progress: Progress,
) -> Leakage:
    """Compare every case with every training row.

    Args:
        fields: Names of the features that are compared, `label` among them if wanted; none: every feature.
        digits: Decimals that numbers are rounded to before they are compared.
        near: Similarity (0 to 1) from which on a row is reported as a near duplicate.

    Raises:
        InputError: A file cannot be read, a row is none, or no row has a field that is compared.
        UndecidedError: A limit was reached before all rows had been read.
    """
    training = training_files.open_training(training_path)
    names = _fields(suite, fields)
    if training.header is not None and (absent := set(names) - set(training.header)):
        raise _never(training, absent, training.header)
    untyped = training.header is not None or suite.path.suffix.lower() not in JSON_LINES
    question = Question(suite.path, suite.sha256, training, names, Equality(digits, untyped), near, limits.seed)
    before = training_path.stat()
    digest = _Digest(training_path)
    total = _add_up(question, limits, progress)
    sha256 = digest.result(progress)
    after = training_path.stat()
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise InputError(f"{training_path}: the file changed while it was read", "run the command again")
    if not total.rows:
        raise InputError(f"{training_path}: there are no rows", "give the file that the model was trained on")
    if total.absent:
        raise _never(training, total.absent, ())
    found = dict(sorted(total.found.items()))
    return Leakage(
        suite, training, sha256, names, digits, total.rows, found,
        None if near is None else {at: one for at, one in sorted(total.near.items()) if at not in found}, near,
    )  # fmt: skip


def _fields(suite: Suite, wanted: Sequence[str]) -> tuple[str, ...]:
    """The keys that are compared."""
    own = (IMAGE,) if suite.images else suite.features if suite.features is not None else (FEATURES,)
    if not wanted:
        return own
    known = (*own, LABEL)
    for name in wanted:
        if name not in (*known, FEATURES):
            raise InputError(f"{suite.path}: the cases have no field {name!r}{suggest(name, known)}",
                             f"their fields are {listed(known, 20)}")  # fmt: skip
    if LABEL in wanted and (bare := next((case for case in suite.cases if case.label is None), None)) is not None:
        raise InputError(f"{suite.where(bare)}: a case without a label", "leave out --field label")
    every = [part for name in wanted for part in (own if name == FEATURES else (name,))]
    return tuple(dict.fromkeys(every))


def _never(training: Training, absent: set[str], known: Sequence[str]) -> InputError:
    names = sorted(absent)
    close = suggest(names[0], known) if known else ""
    return InputError(
        f"{training.path}: no training row has the field {listed(names)}{close}: nothing would ever be found",
        "name the fields as the suite does, or say which are compared with --field",
    )


# --- all pieces ------------------------------------------------------------------------------------------------------
def _add_up(question: Question, limits: Limits, progress: Progress) -> Tally:
    training = question.training
    pieces = training.pieces
    workers = min(limits.jobs, len(pieces))
    progress.update("comparing with the training rows", 0, training.size)
    if workers <= 1:
        results: Iterator[Tally] = (_scan(question, piece, limits.expired) for piece in pieces)
        return _joined(question, results, limits, progress)
    parallel = joblib.Parallel(n_jobs=workers, return_as="generator", pre_dispatch="2*n_jobs", batch_size=1)
    results = parallel(joblib.delayed(_scan_apart)(question, piece) for piece in pieces)
    try:
        return _joined(question, results, limits, progress)
    except BrokenProcessPool:
        raise UndecidedError(
            "a worker was killed: whether the suite is clean is not known",
            "is there memory for them? give fewer --jobs",
        ) from None
    finally:
        results.close()  # type: ignore[attr-defined]


def _joined(question: Question, results: Iterator[Tally], limits: Limits, progress: Progress) -> Tally:
    training = question.training
    total = Tally(absent=set(question.fields))
    first_line = 1 if training.header is None else 2
    for done, tally in enumerate(results, 1):
        if tally.bad is not None:
            line, reason = tally.bad
            raise InputError(f"{training.path}:{first_line + total.lines + line}: {reason}", "correct this row")
        total.rows += tally.rows
        total.lines += tally.lines
        total.found.update(tally.found)
        near_rows.merge(total.near, tally.near)
        total.absent &= tally.absent
        read = training.pieces[done - 1][1]
        progress.update("comparing with the training rows", read, training.size)
        if limits.expired() and done < len(training.pieces):
            raise _stopped(read, training.size)
    return total


def _stopped(read: int, size: int) -> UndecidedError:
    return UndecidedError(
        f"stopped after {read:,} of {size:,} bytes of training data: whether the suite is clean is not known",
        "run it to the end; a larger --timeout or more --jobs help",
    )


def _scan_apart(question: Question, piece: tuple[int, int]) -> Tally:
    """One piece in a process of its own, where Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _scan(question, piece, lambda: False)


class _Digest:
    """The SHA-256 of a file, made in a thread while workers read it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._result = ""
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = records.file_sha256(str(self._path))
        except OSError as error:
            self._error = error

    def result(self, progress: Progress) -> str:
        progress.update("hashing the training file")
        self._thread.join()
        if self._error is not None:
            raise InputError(f"{self._path}: cannot be read: {self._error.strerror}", "check the file")
        return self._result


# --- one piece -------------------------------------------------------------------------------------------------------
class Index:
    """The cases by what they hold in the compared fields."""

    def __init__(self, question: Question) -> None:
        suite = suites.load(question.suite)
        if suite.sha256 != question.suite_sha256:
            raise InputError(f"{suite.path}: the file changed while it was read", "run the command again")
        self.equality = question.equality
        self.fields = question.fields
        self.values = [values_of(suite, case, question.fields) for case in suite.cases]
        self.exact: dict[Hashable, list[int]] = {}
        for place, values in enumerate(self.values):
            self.exact.setdefault(self.key(values), []).append(place)
        self.rough: list[Callable[[Any], Hashable]] = [self.field_equality(i).rough for i in range(len(self.fields))]
        """What makes the rough key of a value of each field."""
        self.wanted = [
            {key for values in self.values for key in self.field_equality(i).rough_matches(values[i])}
            for i in range(len(self.fields))
        ]
        """The rough keys of each field that some case has."""
        if IMAGE in self.fields:
            # A path says nothing: the file must be looked at.
            image = self.fields.index(IMAGE)
            self.wanted[image] = {IMAGE}
            self.rough[image] = _image_key
        self.first = max(range(len(self.fields)), key=lambda i: (NESTED not in self.wanted[i], len(self.wanted[i])))
        """Place of the field whose values tell most: rows are looked up by it."""

    def may_hold(self, values: Sequence[Any]) -> bool:
        """Whether each value of a row is, roughly, one that some case has in that field."""
        return all(map(_has, self.rough, self.wanted, values))

    def field_equality(self, place: int) -> Equality:
        """Labels have lost their types already."""
        return _UNTYPED[self.equality.digits] if self.fields[place] == LABEL else self.equality

    def key(self, values: Sequence[Any]) -> Hashable:
        """What two rows have in common that are the same."""
        return tuple(self.field_equality(i).exact(value) for i, value in enumerate(values))


def _image_key(value: Any) -> Hashable:
    return IMAGE


def _has(rough: Callable[[Any], Hashable], wanted: set[Hashable], value: Any) -> bool:
    return rough(value) in wanted


_UNTYPED: dict[int | None, Equality] = {digits: Equality(digits, True) for digits in (None, *range(16))}


def values_of(suite: Suite, case: Case, fields: Sequence[str]) -> tuple[Any, ...]:
    """The values of a case in the compared fields."""
    places = {} if suite.features is None else {name: at for at, name in enumerate(suite.features)}
    found: list[Any] = []
    for name in fields:
        if name in places:
            found.append(case.features[places[name]])
        elif name == LABEL:
            found.append(case.label)
        elif name == IMAGE:
            assert case.image is not None
            found.append(image_digest(case.image))
        else:
            found.append(list(case.features))
    return tuple(found)


def image_digest(path: Path) -> str:
    """What an image is compared by: the bytes of its file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: the image cannot be read: {error.strerror}", "check the path") from None


@lru_cache(maxsize=1)
def _index(question: Question) -> Index:
    return Index(question)


@lru_cache(maxsize=1)
def _near_index(question: Question) -> near_rows.NearIndex:
    index = _index(question)
    return near_rows.NearIndex(index.values, question.fields, index.equality, question.near or 1.0, question.seed)


def _scan(question: Question, piece: tuple[int, int], expired: Callable[[], bool]) -> Tally:
    """Compare the rows of one piece."""
    index = _index(question)
    rows = training_files.rows(question.training, piece, question.fields, index.first)
    tally = Tally(lines=rows.lines, absent=set(question.fields))
    try:
        _compare(question, index, rows, tally, expired)
    except BadRow as error:
        tally.bad = error.args
    return tally


def _compare(question: Question, index: Index, rows: Rows, tally: Tally, expired: Callable[[], bool]) -> None:
    near = None if question.near is None else _near_index(question)
    folder = question.training.path.parent
    rough, wanted = index.rough[index.first], index.wanted[index.first]
    number = 0
    for number, (value, row) in enumerate(rows, 1):
        if tally.absent:
            present = zip(question.fields, rows.values(row), strict=True)
            tally.absent -= {name for name, held in present if held is not ABSENT}
        if not number & 0xFFF and expired():
            break
        if near is not None:
            near_rows.look_up(near, _with_images(rows.exact_values(row), question.fields, folder), tally.near)
        if rough(value) not in wanted or not index.may_hold(rows.values(row)):
            continue
        key = index.key(_with_images(rows.exact_values(row), question.fields, folder))
        for place in index.exact.get(key, ()):
            tally.found[place] += 1
    tally.rows = number


def _with_images(values: list[Any], fields: Sequence[str], folder: Path) -> list[Any]:
    """The values, an image by the digest of its file."""
    if IMAGE not in fields:
        return values
    return [
        image_digest(folder / value) if name == IMAGE and isinstance(value, str) else value
        for name, value in zip(fields, values, strict=True)
    ]


# --- the answer ------------------------------------------------------------------------------------------------------
def to_dict(found: Leakage) -> dict[str, Any]:
    """The answer as `--json` prints it and a record keeps it: ids of cases and counts."""
    cases = found.suite.cases
    near = found.near
    return {
        "schema": "quantify/1",
        "leakage": {"clean": found.clean, "fields": list(found.fields), "round": found.digits},
        "suite": {"path": str(found.suite.path), "sha256": found.suite.sha256, "cases": len(cases)},
        "training": {"path": str(found.training.path), "sha256": found.training_sha256, "rows": found.rows},
        "counts": {"found": len(found.found), "rows": sum(found.found.values())},
        "found": [{"id": cases[at].id, "rows": rows} for at, rows in found.found.items()],
        "near": None
        if near is None
        else {
            "threshold": found.threshold,
            "cases": [
                {"id": cases[at].id, "rows": one.rows, "similarity": float(one.similarity)} for at, one in near.items()
            ],
        },
    }


def to_record(found: Leakage, created: str | None = None) -> Record:
    """The record of a check; a leaked case makes the evidence about its suite invalid."""
    return Record(
        kind="leakage",
        created=records.now() if created is None else created,
        tool={"version": __version__},
        data=(
            cases_ref(found.suite),
            DataRef("training", str(found.training.path), found.training_sha256, found.rows),
        ),
        status="ok" if found.clean else "invalid",
        body=to_dict(found),
    )

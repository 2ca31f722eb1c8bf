"""A file of cases (CSV or JSON lines) in, the suite out: each case with its id, inputs, expected answer and groups."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from quantify.errors import InputError
from quantify.ir.domain import Number
from quantify.properties.domain import shown
from quantify.properties.table import CsvTable, utf8
from quantify.properties.yaml import exact_decimal, listed, suggest

Value = Number | str | bool | None
"""An exact number, text, a truth value, or None for a missing value."""
JSON_LINES = (".jsonl", ".ndjson")
EXPECTED = ("label", "expected")
"""Keys of the expected answer; one of them."""
KEYS = ("id", "features", "image", *EXPECTED, "groups")
"""Keys of a case in JSON lines."""
GROUP = "group:"
"""Beginning of the name of a CSV column that puts cases into groups."""
CASE = '{"id": "c1", "features": {"income": 12.5}, "label": "yes", "groups": {"region": "north"}}'
MOST_NESTING = "a value is a number, text, true, false or null"


@dataclass(frozen=True, slots=True)
class Case:
    """One case: what a model is asked, and what it should say."""

    id: str
    """Unique in the suite."""
    line: int
    """1-based line of the file (of a CSV: the number of the record, the header being 1)."""
    features: tuple[Value, ...]
    """In the order of `Suite.features`; empty for an image."""
    image: Path | None = None
    """An image file instead of features."""
    label: str | None = None
    """The expected answer: `str(class)`, or for a regressor a decimal; None when the suite does not say."""
    groups: tuple[tuple[str, str], ...] = ()
    """(attribute, value) pairs, the attributes those of `Suite.attributes`."""


@dataclass(frozen=True)
class Suite:
    """A file of cases, read whole."""

    path: Path
    sha256: str
    cases: tuple[Case, ...]
    features: tuple[str, ...] | None
    """Names of the features of every case; None: the features are lists without names, or images."""
    attributes: tuple[str, ...] = ()
    """What cases are grouped by."""

    @property
    def name(self) -> str:
        """What rules call it: the name of the file."""
        return self.path.name

    @property
    def images(self) -> bool:
        """Whether the cases are images."""
        return bool(self.cases) and self.cases[0].image is not None

    def group_names(self) -> tuple[str, ...]:
        """Every group with a case in it, `attribute=value`, sorted."""
        return tuple(sorted({group_name(*group) for case in self.cases for group in case.groups}))

    def where(self, case: Case) -> str:
        """File and line of a case, for messages."""
        return f"{self.path}:{case.line}"


def group_name(attribute: str, value: str) -> str:
    """A group as rules name it."""
    return f"{attribute}={value}"


def load(path: Path) -> Suite:
    """The suite in a `.csv`, `.jsonl` or `.ndjson` file.

    Raises:
        InputError: Not there, of another type, without cases, or a line that is no case; with the line.
    """
    suffix = path.suffix.lower()
    if suffix not in (".csv", *JSON_LINES):
        raise InputError(f"{path}: a suite is a .csv or .jsonl file", f"one case a line, such as {CASE}")
    try:
        content = path.read_bytes()
        suite = _from_csv(path) if suffix == ".csv" else _from_lines(path, content)
    except OSError as error:
        reason = (
            "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        )
        raise InputError(f"{path}: {reason}", f"give a suite: one case a line, such as {CASE}") from None
    if suite.sha256 != hashlib.sha256(content).hexdigest():
        raise InputError(f"{path}: the file changed while it was read", "run the command again")
    if not suite.cases:
        raise InputError(f"{path}: there are no cases", f"one case a line, such as {CASE}")
    seen: dict[str, int] = {}
    for case in suite.cases:
        if case.id in seen:
            message = f"{suite.where(case)}: the id {case.id!r} is there twice (first on line {seen[case.id]})"
            raise InputError(message, "every case needs an id of its own")
        seen[case.id] = case.line
    return suite


# --- CSV -----------------------------------------------------------------------------------------------------------
def _from_csv(path: Path) -> Suite:
    table = CsvTable.read(path, header=True)
    names = table.names or ()
    expected = [name for name in names if name in EXPECTED]
    if len(expected) > 1:
        raise InputError(f"{path}:1: there are the columns {listed(expected)}", "keep one of them")
    attributes = [name for name in names if name.startswith(GROUP)]
    features = [name for name in names if name not in ("id", "image", *expected, *attributes)]
    if "image" in names and features:
        raise InputError(f"{path}:1: the column image, and {listed(features)}", "a case is an image or has features")
    every = range(table.height())
    rows = table.rows(every)

    def texts(name: str) -> list[str]:
        return [str(cell) for cell in table.labels(every, name)]

    places = [names.index(name) for name in features]
    ids = texts("id") if "id" in names else [str(row) for row in every]
    images = texts("image") if "image" in names else None
    labels = texts(expected[0]) if expected else None
    groups = {name.removeprefix(GROUP): texts(name) for name in attributes}
    cases = []
    for row in every:
        line = row + 2
        if not ids[row]:
            raise InputError(f"{path}:{line}: a case without an id", "every case needs an id of its own")
        cases.append(
            Case(
                ids[row],
                line,
                tuple(rows[row][place] for place in places),
                None if images is None else path.parent / images[row],
                (labels[row] or None) if labels is not None else None,
                tuple((name, values[row]) for name, values in groups.items()),
            )
        )
    return Suite(path, table.sha256, tuple(cases), None if images is not None else tuple(features), tuple(groups))


# --- JSON lines ------------------------------------------------------------------------------------------------------
class _Repeated(ValueError):
    """A key that an object has twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Repeated(f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _decimal(text: str) -> Number:
    value = exact_decimal(text)
    if value is None:
        raise ValueError(f"a number too large to be meant: {text[:40]}")
    return value


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON; a missing value is null")


def _from_lines(path: Path, content: bytes) -> Suite:
    text = utf8(path, content)
    decoder = json.JSONDecoder(
        object_pairs_hook=_object, parse_float=_decimal, parse_int=_decimal, parse_constant=_constant
    )
    cases: list[Case] = []
    shape = _Shape(path)
    for number, record in enumerate(text.split("\n"), 1):
        if not record.strip():
            continue
        try:
            found = decoder.decode(record)
        except RecursionError:
            raise InputError(f"{path}:{number}: nested too deeply", MOST_NESTING) from None
        except ValueError as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise InputError(f"{path}:{number}: not a line of JSON: {reason}", f"one case a line: {CASE}") from None
        cases.append(_case(path, number, len(cases), found, shape))
    names = None if shape.names is None or shape.listed or shape.images else shape.names
    return Suite(path, hashlib.sha256(content).hexdigest(), tuple(cases), names, shape.attributes or ())


class _Shape:
    """What the first case has and the others must have too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: tuple[str, ...] | None = None
        self.listed = False
        self.images = False
        self.attributes: tuple[str, ...] | None = None

    def check(self, line: int, names: Iterable[str], *, is_list: bool, is_image: bool) -> tuple[str, ...]:
        """The feature names in the order of the first case."""
        given = tuple(names)
        if self.names is None:
            self.names, self.listed, self.images = given, is_list, is_image
            return given
        where = f"{self.path}:{line}"
        if (is_list, is_image) != (self.listed, self.images):
            raise InputError(f"{where}: features of another kind than in the first case", "all cases are of one kind")
        if is_list and len(given) != len(self.names):
            raise InputError(
                f"{where}: {len(given)} features, and the first case has {len(self.names)}",
                "every case needs every feature; null where a value is missing",
            )
        if set(given) != set(self.names):
            absent, strange = (
                set(self.names) - set(given),
                [name for name in given if name not in set(self.names or ())],
            )
            parts = ([f"lacks {listed(sorted(absent))}"] if absent else []) + (
                [f"has {listed(strange)}{suggest(strange[0], absent)}"] if strange else []
            )
            raise InputError(
                f"{where}: unlike the first case, this one {' and '.join(parts)}",
                "every case needs every feature; null where a value is missing",
            )
        return self.names

    def check_groups(self, line: int, names: Iterable[str]) -> None:
        """All cases have the same attributes."""
        given = tuple(sorted(names))
        if self.attributes is None:
            self.attributes = given
        if given != self.attributes:
            raise InputError(
                f"{self.path}:{line}: grouped by {listed(given) or 'nothing'}, and the first case by "
                f"{listed(self.attributes) or 'nothing'}",
                "give every case the same groups",
            )


def _case(path: Path, line: int, place: int, found: Any, shape: _Shape) -> Case:
    where = f"{path}:{line}"
    if not isinstance(found, dict):
        raise InputError(f"{where}: a case is an object", f"such as {CASE}")
    for key in found:
        if key not in KEYS:
            raise InputError(f"{where}: a case has no key {key!r}{suggest(key, KEYS)}", f"its keys are {listed(KEYS)}")
    if all(key in found for key in EXPECTED):
        raise InputError(f"{where}: label and expected", "keep one of them")
    if ("features" in found) == ("image" in found):
        both = "features and image" if "image" in found else "neither features nor image"
        raise InputError(f"{where}: {both}", f"a case has one of them, such as {CASE}")
    identity = found.get("id", str(place))
    if isinstance(identity, bool) or not isinstance(identity, str | int) or identity == "":
        raise InputError(f"{where}: an id is text or a whole number", f"such as {CASE}")
    groups = found.get("groups", {})
    if not isinstance(groups, dict):
        raise InputError(f"{where}: groups is an object", 'such as {"region": "north"}')
    shape.check_groups(line, groups)
    label = next((found[key] for key in EXPECTED if key in found), None)
    features, image = _inputs(path, line, found, shape)
    return Case(
        str(identity),
        line,
        features,
        image,
        None if label is None else written(_value(where, "label", label)),
        tuple((name, written(_value(where, name, groups[name]))) for name in shape.attributes or ()),
    )


def _inputs(path: Path, line: int, found: Mapping[str, Any], shape: _Shape) -> tuple[tuple[Value, ...], Path | None]:
    where = f"{path}:{line}"
    if "image" in found:
        if not isinstance(found["image"], str) or not found["image"]:
            raise InputError(f"{where}: image is the path of a file", 'such as "image": "images/0.png"')
        shape.check(line, (), is_list=False, is_image=True)
        return (), path.parent / found["image"]
    features = found["features"]
    if isinstance(features, dict) and features:
        names = shape.check(line, features, is_list=False, is_image=False)
        return tuple(_value(where, name, features[name]) for name in names), None
    if isinstance(features, list) and features:
        names = shape.check(line, map(str, range(len(features))), is_list=True, is_image=False)
        return tuple(_value(where, name, value) for name, value in zip(names, features, strict=True)), None
    raise InputError(f"{where}: features is an object or a list, and not empty", f"such as {CASE}")


def _value(where: str, name: str, value: Any) -> Value:
    if isinstance(value, dict | list):
        raise InputError(f"{where}: {name!r} is a list or an object", MOST_NESTING)
    checked: Value = value
    return checked


def written(value: Value) -> str:
    """A label or group as text: numbers as the shortest decimal, `True` and `False` as Python writes them."""
    if value is None:
        return ""
    return str(value) if isinstance(value, str | bool) else shown(value)

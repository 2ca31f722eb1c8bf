"""A model and a suite in, the model's own answers out: class names, or the scores of a regressor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quantify import properties, readers
from quantify.dataset import images
from quantify.dataset.suite import Case, Suite, Value
from quantify.errors import InputError
from quantify.ir.domain import CategoricalFeature
from quantify.ir.model import Model
from quantify.ir.network import Network, RequantiseLayer
from quantify.ir.problem import Problem
from quantify.properties.labelled import class_of
from quantify.properties.yaml import listed, suggest
from quantify.readers import float_network

Matrix = NDArray[np.float64]
Answer = str | float | None
"""`str(class)`, the score of a regressor, or None: there is no answer (a missing value that the model does not take,
a score that is no finite number)."""


@dataclass(frozen=True, slots=True)
class Column:
    """Where a model column gets its value."""

    place: int
    """Of the feature, in the case."""
    name: str
    category: CategoricalFeature | None = None
    level: int | None = None
    """For one-hot columns: 1 iff the category is this one."""
    scale: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)


@dataclass(frozen=True)
class Asked:
    """A model, and how the cases of one suite become its inputs."""

    model: Model
    suite: Suite
    columns: tuple[Column, ...]
    """One a model column."""
    layout: images.Layout
    problem: Problem | None = None
    """What the property file says of the model, if one was given."""

    @property
    def regressor(self) -> bool:
        """Whether the model answers with a score instead of a class: a network with one output and no sigmoid."""
        return is_regressor(self.model)


def is_regressor(model: Model) -> bool:
    """Whether its one output is a score."""
    network = model.structure
    return (
        isinstance(network, Network)
        and network.outputs == 1
        and network.head == "order"
        and not any(isinstance(layer, RequantiseLayer) for layer in network.layers)
    )


def prepare(
    model_path: Path,
    suite: Suite,
    property_path: Path | None = None,
    *,
    trust_pickle: bool = False,
    layout: images.Layout = "hwc",
    seed: int = 0,
) -> Asked:
    """Read the model and match its columns with the suite's features: by name where the model has names.

    Args:
        property_path: A property file of this model: its names of features and labels, its categories, its `decision`
            and its `preprocess` are used, nothing is counted.
        layout: Of the inputs of an image model with several channels.

    Raises:
        InputError: They do not fit together.
    """
    return match(*read(model_path, property_path, trust_pickle=trust_pickle, seed=seed), suite, layout)


def read(
    model_path: Path, property_path: Path | None, *, trust_pickle: bool = False, seed: int = 0
) -> tuple[Model, Problem | None]:
    """The model, and what a property file says of it. Raises as `prepare` does."""
    model = readers.read_model(model_path, trust_pickle=trust_pickle)
    if property_path is None:
        return model, None
    problem = properties.bind(properties.load(property_path), model, seed=seed)
    return problem.model, problem


def match(model: Model, problem: Problem | None, suite: Suite, layout: images.Layout = "hwc") -> Asked:
    """The model's columns matched with the suite's features. Raises as `prepare` does."""
    return Asked(model, suite, _columns(model, problem, suite), layout, problem)


def ask(asked: Asked, cases: Sequence[Case]) -> list[Answer]:
    """The answer to each case."""
    return answers(asked, inputs(asked, cases))


def inputs(asked: Asked, cases: Sequence[Case]) -> Matrix:
    """The model's inputs, (cases × model columns): exact values rounded once to float64, NaN where one is missing.

    Raises:
        InputError: Text where the model takes numbers, a category that the property does not have, an image that
            cannot be read or has another number of pixels.
    """
    found = np.empty((len(cases), asked.model.columns))
    known: dict[tuple[object, ...], float] = {}
    for row, case in enumerate(cases):
        values = _values(asked, case)
        for number, column in enumerate(asked.columns):
            value = values[column.place]
            key = (type(value), value, column.level, column.scale, column.offset, id(column.category))
            if key not in known:
                known[key] = _number(asked.suite, case, column, value)
            found[row, number] = known[key]
    return found


def answers(asked: Asked, matrix: Matrix) -> list[Answer]:
    """The answers to rows of inputs, as `inputs` makes them."""
    model = asked.model
    found: list[Answer] = [None] * len(matrix)
    able = np.ones(len(matrix), bool) if model.accepts_missing else ~np.isnan(matrix).any(axis=1)
    rows = np.flatnonzero(able)
    if not len(rows):
        return found
    if asked.regressor:
        assert isinstance(model.structure, Network)
        scores = float_network.outputs(model.structure, matrix[rows])[:, 0].astype(np.float64)
        for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
            found[row] = score if np.isfinite(score) else None
        return found
    for row, label in zip(rows.tolist(), model.predict(matrix[rows]).tolist(), strict=True):
        found[row] = model.classes[label]
    return found


def _values(asked: Asked, case: Case) -> Sequence[Value]:
    if case.image is None:
        return case.features
    return images.read(case.image, asked.model.columns, asked.layout, asked.suite.where(case))


# --- columns ---------------------------------------------------------------------------------------------------------
def _columns(model: Model, problem: Problem | None, suite: Suite) -> tuple[Column, ...]:
    names = suite.features
    if problem is not None and not suite.images:
        return _by_property(problem, suite)
    scale, offset = _preprocess(problem, model.columns)
    if suite.images or model.column_names is None or names is None:
        width = model.columns if suite.images else len(suite.cases[0].features)
        if width != model.columns:
            raise InputError(
                f"{suite.path}: the cases have {width} features, and the model takes {model.columns}",
                "give the model's inputs in its order, in CSV beside id, label and group:… columns",
            )
        shown = names or tuple(f"x[{i}]" for i in range(width))
        return tuple(Column(i, shown[i], scale=scale[i], offset=offset[i]) for i in range(width))
    _same_names(suite, names, model.column_names, "the model")
    return tuple(Column(names.index(name), name) for name in model.column_names)


def _by_property(problem: Problem, suite: Suite) -> tuple[Column, ...]:
    features = problem.domain.features
    if suite.features is not None:
        _same_names(suite, suite.features, [feature.name for feature in features], "the property")
        places = [suite.features.index(feature.name) for feature in features]
    else:
        width = len(suite.cases[0].features)
        if width != len(features):
            raise InputError(
                f"{suite.path}: the cases have {width} features, and the property has {len(features)}",
                "give the features in the property's order, or by name",
            )
        places = list(range(width))
    scale, offset = _preprocess(problem, len(problem.columns))
    found = []
    for number, column in enumerate(problem.columns):
        feature = features[column.feature]
        category = feature if isinstance(feature, CategoricalFeature) else None
        place = places[column.feature]
        found.append(Column(place, feature.name, category, column.level, scale[number], offset[number]))
    return tuple(found)


def _preprocess(problem: Problem | None, columns: int) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
    options = None if problem is None else problem.network
    scale, offset = (None, None) if options is None else (options.scale, options.offset)
    return scale or (Fraction(1),) * columns, offset or (Fraction(0),) * columns


def _same_names(suite: Suite, given: Sequence[str], wanted: Sequence[str], whose: str) -> None:
    absent = [name for name in wanted if name not in given]
    strange = [name for name in given if name not in wanted]
    if not absent and not strange:
        return
    parts = []
    if absent:
        parts.append(f"lacks {listed(absent)}")
    if strange:
        parts.append(f"has {listed(strange)}{suggest(strange[0], absent)}")
    raise InputError(
        f"{suite.path}: features differ from those of {whose}: the suite {' and '.join(parts)}",
        f"the features of {whose}: {listed(wanted, 20)}; in CSV, id, label and group:… are no features",
    )


def _number(suite: Suite, case: Case, column: Column, value: Value) -> float:
    if value is None:
        return float("nan")
    if column.category is not None:
        value = _category(suite, case, column, column.category, value)
    if isinstance(value, str):
        raise InputError(
            f"{suite.where(case)}: {column.name} is {value!r}, and the model takes numbers",
            "write the number that the model is given, or name the categories in a property file: --property P.yaml",
        )
    try:
        return float(Fraction(value) * column.scale + column.offset)
    except OverflowError:
        raise InputError(f"{suite.where(case)}: {column.name} is too large for a float64", "check the value") from None


def _category(
    suite: Suite, case: Case, column: Column, category: CategoricalFeature, value: Value
) -> int | Fraction | str:
    word = value if isinstance(value, str) else None
    if word is None:
        position = category.position(int(value) if isinstance(value, bool) else value)  # type: ignore[arg-type]
    else:
        position = category.values.index(word) if word in category.values else None
    if position is None:
        # Numbers may be the names of categories as well.
        position = category.values.index(str(value)) if str(value) in category.values else None
    if position is None:
        raise InputError(
            f"{suite.where(case)}: {column.name} is {value!r}{suggest(str(value), category.values)}",
            f"its values are {listed(category.values, 20)}",
        )
    return int(position == column.level) if column.level is not None else category.value(position)


# --- what is right ---------------------------------------------------------------------------------------------------
Verdict = Literal["correct", "wrong", "unanswered", "unlabelled"]


def judge(asked: Asked, case: Case, answer: Answer, tolerance: Fraction | None) -> Verdict:
    """Whether an answer is the expected one: the same class, or a score within the tolerance.

    Raises:
        InputError: The label is no class of the model, or for a regressor no number.
    """
    if case.label is None or (asked.regressor and tolerance is None):
        return "unlabelled"
    where = asked.suite.where(case)
    if asked.regressor:
        assert tolerance is not None
        expected = _expected(where, case.label)
        if answer is None:
            return "unanswered"
        assert isinstance(answer, float)
        return "correct" if abs(Fraction(answer) - expected) <= tolerance else "wrong"
    index = class_of(case.label, asked.model.classes)
    if index is None:
        raise InputError(
            f"{where}: the label {case.label!r} is no class of the model{suggest(case.label, asked.model.classes)}",
            f"its classes are {listed(asked.model.classes, 20)}",
        )
    if answer is None:
        return "unanswered"
    return "correct" if asked.model.classes[index] == answer else "wrong"


def _expected(where: str, label: str) -> Fraction:
    try:
        return Fraction(label)
    except (ValueError, ZeroDivisionError):
        raise InputError(f"{where}: the label {label!r} is no number", "a regressor is compared with numbers") from None

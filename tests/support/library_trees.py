"""Real scikit-learn trees with thresholds and NaN directions put in by hand, and problems around them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from quantify.ir.domain import (
    BoolFeature,
    CategoricalFeature,
    Domain,
    Feature,
    FixedFeature,
    Float32Feature,
    IntFeature,
    Measure,
    float32_from_key,
)
from quantify.ir.model import Model, Tree
from quantify.ir.problem import Box, Case, Column, Problem, Query
from quantify.ir.property import LabelIn


def columns_of(features: Sequence[Feature]) -> tuple[Column, ...]:
    """One column a feature, one a level for one-hot groups."""
    columns: list[Column] = []
    for place, feature in enumerate(features):
        if isinstance(feature, CategoricalFeature) and feature.onehot:
            columns.extend(Column(place, level) for level in range(feature.grid_size))
        else:
            columns.append(Column(place))
    return tuple(columns)


def float_neighbours(rng: random.Random, feature: Feature, level: bool) -> float:
    """A threshold on, next to, or between the floats of two neighbouring values, or somewhere absurd."""
    if level:
        return rng.choice((-1e-300, -0.0, 0.0, 5e-324, 0.5, math.nextafter(1.0, 0.0), 1.0, 2.0, -3.0))
    position = rng.randrange(feature.grid_size)
    near = float(np.float32(float(feature.value(position))))
    exact = float(feature.value(position))
    other = float(np.float32(float(feature.value(min(position + 1, feature.grid_size - 1)))))
    middle = (near + other) / 2
    return rng.choice(
        (
            near,
            exact,
            middle,
            math.nextafter(near, math.inf),
            math.nextafter(near, -math.inf),
            float(np.nextafter(np.float32(near), np.float32(np.inf))),
            float(np.nextafter(np.float32(near), np.float32(-np.inf))),
            math.nextafter(middle, math.inf),
            math.nextafter(middle, -math.inf),
            rng.choice((0.0, -0.0, 1e300, -1e300, 1e-45, -1e-45)),
        )
    )


def fitted(rng: random.Random, columns: int, leaves: int, classes: int, missing: bool) -> DecisionTreeClassifier:
    """A tree of about `leaves` leaves on noise (with NaN, when `missing`, so that predict takes it)."""
    generator = np.random.default_rng(rng.randrange(2**32))
    table = generator.random((max(4 * leaves, 12), columns))
    if missing:
        table[generator.random(table.shape) < 0.2] = np.nan
    labels = np.concatenate([np.arange(classes), generator.integers(0, classes, len(table) - classes)])
    return DecisionTreeClassifier(max_leaf_nodes=max(2, leaves), random_state=0).fit(table, labels)


def edited(model: DecisionTreeClassifier, **arrays: Sequence[Any]) -> DecisionTreeClassifier:
    """The tree with fields of its nodes (threshold, missing_go_to_left, feature) replaced."""
    state = model.tree_.__getstate__()
    nodes = state["nodes"].copy()
    for name, values in arrays.items():
        nodes[name] = np.array(values, dtype=nodes.dtype[name])
    state["nodes"] = nodes
    model.tree_.__setstate__(state)
    return model


def structure_of(model: DecisionTreeClassifier) -> Tree:
    """The tree's arrays as the IR wants them."""
    tree = model.tree_
    nodes = tree.__getstate__()["nodes"]
    inner = tree.children_left >= 0
    return Tree(
        column=tuple(int(f) if i else -1 for f, i in zip(tree.feature, inner, strict=True)),
        threshold=tuple(float(t) for t in tree.threshold),
        left=tuple(int(c) for c in tree.children_left),
        right=tuple(int(c) for c in tree.children_right),
        missing_left=tuple(bool(b) for b in nodes["missing_go_to_left"]),
        label=tuple(int(k) for k in tree.value[:, 0, :].argmax(axis=1)),
    )


def problem_around(model: DecisionTreeClassifier, features: Sequence[Feature], **changes: Any) -> Problem:
    """A classes problem over the whole domain, one query a label."""
    domain = Domain(tuple(features))
    classes = tuple(str(c) for c in model.classes_)
    columns = columns_of(features)
    wrapped = Model(
        path="model.pkl",
        sha256="0" * 64,
        kind="tree",
        classes=classes,
        columns=len(columns),
        column_names=None,
        structure=structure_of(model),
        predict=lambda x: np.searchsorted(model.classes_, model.predict(x)),
        accepts_missing=True,
        library="scikit-learn",
    )
    queries = tuple(Query(name, LabelIn((k,))) for k, name in enumerate(classes))
    case = Case(Box((0,) * len(features), domain.sizes), queries, (classes,))
    given = {"cases": (case,), "measure": Measure(), **changes}
    return Problem(
        model=wrapped,
        domain=domain,
        columns=columns,
        kind="classes",
        name="test",
        property_path="p.yaml",
        property_sha256="0" * 64,
        **given,
    )


def random_feature(rng: random.Random, name: str, missing: bool) -> Feature:
    """Any kind of feature, at most a dozen positions, in places where rounding matters."""
    missing = missing and rng.random() < 0.5
    kind = rng.choice(("int", "big", "bool", "category", "onehot", "fixed", "fine", "float32", "subnormal"))
    if kind == "int":
        return IntFeature(name, missing, minimum=rng.randint(-5, 5), maximum=rng.randint(6, 9))
    if kind == "big":
        base = rng.choice((2**24, 2**53, -(2**24), -(2**53), 2**64, 2**100)) + rng.randint(-6, 0)
        return IntFeature(name, missing, minimum=base, maximum=base + rng.randint(1, 9))
    if kind == "bool":
        return BoolFeature(name, missing)
    if kind == "category":
        codes = sorted(rng.sample((-7, 0, 1, 3, 16777217, Fraction(1, 3), Fraction(7, 10), Fraction(-5, 2)), 4))
        return CategoricalFeature(name, missing, values=("a", "b", "c", "d"), codes=tuple(codes))
    if kind == "onehot":
        names = tuple(f"{name}_{level}" for level in range(3))
        return CategoricalFeature(name, values=("a", "b", "c"), codes=(0, 1, 2), onehot=names)
    if kind == "fixed":
        minimum, step = Fraction(rng.randint(-9, 9), 10), rng.choice((Fraction(1, 10), Fraction(1, 1000), Fraction(3)))
        return FixedFeature(name, missing, minimum=minimum, step=step, steps=rng.randint(1, 11))
    if kind == "fine":
        base, step = Fraction(rng.choice((1, 16777216, 0))), rng.choice((Fraction(1, 2**25), Fraction(1, 10**9)))
        return FixedFeature(name, missing, minimum=base, step=step, steps=rng.randint(2, 11))
    first = rng.randint(-8, 0) if kind == "subnormal" else rng.choice((1065353216, -1065353220, 0x7F7FFFF0))
    return Float32Feature(
        name, missing, minimum=float32_from_key(first), maximum=float32_from_key(first + rng.randint(0, 10))
    )


def random_library_problem(seed: int, most_points: int = 4096) -> Problem:
    """A real tree, features of every kind, thresholds on float neighbours of the values, random NaN directions."""
    rng = random.Random(seed)
    missing = rng.random() < 0.5
    features: list[Feature] = []
    for number in range(rng.randint(1, 4)):
        features.append(random_feature(rng, f"f{number}", missing))
        if math.prod(f.size for f in features) > most_points:
            features.pop()
            break
    columns = columns_of(features)
    model = fitted(rng, len(columns), rng.randint(2, 14), rng.randint(2, 4), missing)
    thresholds = []
    for column, old in zip(model.tree_.feature, model.tree_.threshold, strict=True):
        if column < 0:
            thresholds.append(old)
        else:
            source = columns[column]
            thresholds.append(float_neighbours(rng, features[source.feature], source.level is not None))
    edited(model, threshold=thresholds, missing_go_to_left=[rng.random() < 0.5 for _ in thresholds])
    return problem_around(model, features)


def every_point(problem: Problem) -> np.ndarray:
    """All positions of a small domain, (points × features)."""
    return np.array(list(itertools.product(*map(range, problem.domain.sizes))), dtype=np.int64)

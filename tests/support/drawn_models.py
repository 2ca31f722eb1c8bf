"""Seeded real scikit-learn trees over drawn features, their thresholds on float neighbours of the values, on disk."""

from __future__ import annotations

import math
import pickle
import random
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from drawn_features import Drawn
from library_trees import edited
from sklearn.tree import DecisionTreeClassifier

Matrix = np.ndarray[Any, np.dtype[np.float64]]

CLASSES: tuple[tuple[Any, ...], ...] = (
    ("no", "yes"), ("strong left", "weak left", "none", "it's"), (0, 1), (-1, 0, 7), (False, True), ("1", "0"),
    (3, 4, 5, 6), (2, 10), ("only",), (1.0, 2.0), ("outside", "gap"), ("True", "b"),
)  # fmt: skip


def inputs_at(features: list[Drawn], positions: np.ndarray[Any, np.dtype[np.int64]]) -> Matrix:
    """The model's columns at rows of positions."""
    parts = [np.array(f.inputs, np.float64)[positions[:, place]] for place, f in enumerate(features)]
    return np.concatenate(parts, axis=1)


def float_neighbour(rng: random.Random, values: list[float]) -> float:
    """A threshold on a value, on its float32, on their next floats of either width, or between two values."""
    exact = rng.choice(values)
    near = np.float32(exact)
    other = float(np.float32(rng.choice(values)))
    middle = float(near) / 2 + other / 2
    found = rng.choice(
        (
            exact, float(near), middle,
            math.nextafter(exact, math.inf), math.nextafter(exact, -math.inf),
            math.nextafter(float(near), math.inf), math.nextafter(float(near), -math.inf),
            float(np.nextafter(near, np.float32(np.inf))), float(np.nextafter(near, np.float32(-np.inf))),
            math.nextafter(middle, math.inf), math.nextafter(middle, -math.inf),
            rng.choice((0.0, -0.0, 0.5, 5e-324, -5e-324, 1.0, math.nextafter(1.0, 0.0), 1e300, -1e300)),
        )
    )  # fmt: skip
    return found if math.isfinite(found) else exact


def draw_model(rng: random.Random, features: list[Drawn], rows: Matrix) -> DecisionTreeClassifier:
    """A tree on noise, many thresholds overwritten; perhaps a single leaf, perhaps with classes that no leaf has.

    Args:
        rng: The source of all choices.
        features: What its columns mean.
        rows: Inputs to fit on, NaN where a feature may be missing.
    """
    for _ in range(4):
        model = _fitted(rng, features, rows)
        answers = model.tree_.predict(rows.astype(np.float32)).argmax(axis=1)
        if len(np.unique(answers)) > 1:
            break
    if rng.random() < 0.5:
        model.feature_names_in_ = np.array([c for f in features for c in f.columns], dtype=object)
    return model


def _fitted(rng: random.Random, features: list[Drawn], rows: Matrix) -> DecisionTreeClassifier:
    classes = np.array(rng.choice(CLASSES))
    labels = classes[[rng.randrange(len(classes)) for _ in rows]]
    labels[: len(classes)] = classes[: len(rows)]
    leaves = rng.choice((2, 4, 8, 12, 20, 30))
    model = DecisionTreeClassifier(
        max_leaf_nodes=leaves, random_state=rng.randrange(1000), splitter=rng.choice(("best", "random"))
    )
    if rng.random() < 0.07:
        model.set_params(min_samples_split=len(rows) + 1, max_leaf_nodes=None)
    model.fit(rows, labels)
    _overwrite(rng, model, features)
    return model


def _overwrite(rng: random.Random, model: DecisionTreeClassifier, features: list[Drawn]) -> None:
    """Other columns, thresholds and NaN directions in many of the inner nodes."""
    values = [
        [row[place] for row in f.inputs if not math.isnan(row[place])]
        for f in features
        for place in range(len(f.columns))
    ]
    often = rng.choice((0.0, 0.4, 0.8))
    columns, thresholds, directions = [], [], []
    nodes = model.tree_.__getstate__()["nodes"]
    for column, threshold, direction in nodes[["feature", "threshold", "missing_go_to_left"]].tolist():
        if column >= 0 and rng.random() < often:
            column = rng.randrange(len(values)) if rng.random() < 0.5 else column
            threshold = float_neighbour(rng, values[column])
            direction = rng.random() < 0.5
        columns.append(column)
        thresholds.append(threshold)
        directions.append(direction)
    edited(model, feature=columns, threshold=thresholds, missing_go_to_left=directions)


def save(rng: random.Random, model: DecisionTreeClassifier, folder: Path) -> Path:
    """The model in one of the formats that are read."""
    kind = rng.choice(("pickle", "pickle", "joblib", "compressed", "skops"))
    if kind == "skops":
        from skops.io import dump

        dump(model, folder / "model.skops")
        return folder / "model.skops"
    if kind == "pickle":
        path = folder / "model.pkl"
        path.write_bytes(pickle.dumps(model, protocol=rng.choice((2, 3, 4, 5))))
        return path
    path = folder / "model.joblib"
    joblib.dump(model, path, compress=3 if kind == "compressed" else 0)
    return path

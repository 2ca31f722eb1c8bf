"""The emitted C under gcc, the native evaluator and scikit-learn's predict give one label."""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.tree import DecisionTreeClassifier

from quantify import discretise, engines, pipeline
from quantify.cnf.codegen import Names, emit_program, symbols
from quantify.resources import Progress

DRAWS = 3000


def draws(sizes: tuple[int, ...], cuts: dict[int, list[int]], rng: np.random.Generator) -> NDArray[np.int64]:
    """Uniform positions, and as many with some features at a cut of the tree or one step before it."""
    uniform = np.column_stack([rng.integers(0, size, DRAWS) for size in sizes])
    edges = uniform.copy()
    for feature, places in cuts.items():
        rows = rng.random(DRAWS) < 0.5
        chosen = rng.choice(places, rows.sum()) - rng.integers(0, 2, rows.sum())
        edges[rows, feature] = np.clip(chosen, 0, sizes[feature] - 1)
    return np.vstack([uniform, edges]).astype(np.int64)


MODELS = {
    "digits": (load_digits, "{type: int, min: 0, max: 16}"),
    "cancer": (load_breast_cancer, "{type: float32, min: 0, max: 3000}"),
    "iris": (load_iris, "{type: fixed, min: 0, max: 8, step: 0.05, missing: true}"),
}


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", MODELS)
def test_labels(name: str, tmp_path: Path) -> None:
    load, kind = MODELS[name]
    data, target = load(return_X_y=True)
    data = data.astype(float)
    if "missing" in kind:
        data[::7, 1] = np.nan
    model = DecisionTreeClassifier(random_state=3).fit(data, target)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    features = "\n".join(f"    - {{name: f{i}, {kind[1:]}" for i in range(data.shape[1]))
    (tmp_path / "p.yaml").write_text(
        f'property: safety\ndomain:\n  features:\n{features}\nassume: "f0 <= 5"\nassert: "label == \'1\'"\n'
    )
    prepared = pipeline.prepare(tmp_path / "model.pkl", tmp_path / "p.yaml", pipeline.Options(), Progress())
    grid, (case,) = prepared.grid, prepared.grid.cases
    (tmp_path / "program.c").write_text(emit_program(grid, case, Names(labels=prepared.problem.model.classes)))
    library = tmp_path / "program.so"
    subprocess.run(["gcc", "-std=c11", "-O1", "-shared", "-fPIC", tmp_path / "program.c", "-o", library], check=True)
    program = ctypes.CDLL(os.fspath(library))

    cuts: dict[int, list[int]] = {}
    for feature, low in zip(grid.tree.feature, grid.tree.low, strict=True):
        if feature >= 0:
            cuts.setdefault(feature, []).append(low)
    at = draws(grid.sizes, cuts, np.random.default_rng(5))
    rows = [(ctypes.c_longlong * len(row))(*row) for row in at.tolist()]
    emitted = np.array([program.classify(row) for row in rows])
    np.testing.assert_array_equal(emitted, engines.evaluate.labels(grid, at))
    predicted = model.predict(discretise.to_inputs(prepared.problem, at))
    np.testing.assert_array_equal(model.classes_[emitted], predicted)
    for query, symbol in zip(case.queries, symbols(case.queries), strict=True):
        truths = np.array([program[f"query_{symbol}"](row) for row in rows], dtype=bool)
        np.testing.assert_array_equal(truths, engines.evaluate.truths(grid, case, query, at))

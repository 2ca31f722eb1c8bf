"""Models made by hand and property files written on the spot, for tests of `quantify.properties`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from quantify import properties
from quantify.errors import InputError
from quantify.ir.model import Model, Tree
from quantify.ir.problem import Problem

STUMP = Tree((0, -1, -1), (0.5, 0.0, 0.0), (1, -1, -1), (2, -1, -1), (False,) * 3, (0, 0, 1))


def hand_model(
    columns: int = 1,
    names: Sequence[str] | None = None,
    classes: Sequence[str] = ("0", "1"),
    missing: bool = False,
    predict: Callable[[Sequence[float]], int] = lambda row: int(row[0] > 0.5),
) -> Model:
    """A model whose predict is a Python function of one row (by default: the second class iff column 0 > 0.5)."""

    def every_row(matrix: np.ndarray) -> np.ndarray:
        assert matrix.dtype == np.float64
        assert matrix.shape[1] == columns
        return np.array([predict(row) for row in matrix.tolist()], dtype=np.int64)

    return Model(
        "model.pkl",
        "0" * 64,
        "tree",
        tuple(classes),
        columns,
        None if names is None else tuple(names),
        STUMP,
        every_row,
        missing,
        "by hand",
    )


def bind(folder: Path, text: str, model: Model | None = None, seed: int = 0) -> Problem:
    """Write `text` as p.yaml, load it, bind it to the model (one without names and two classes by default)."""
    path = folder / "p.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    source = properties.load(path)
    return properties.bind(source, hand_model() if model is None else model, seed=seed)


def refused(folder: Path, text: str, model: Model | None = None, *, line: int | None = None) -> str:
    """The message and hint of the InputError that the property must cause; checks its file, line and hint."""
    with pytest.raises(InputError) as caught:
        bind(folder, text, model)
    error = caught.value
    assert error.message.count("p.yaml:") <= 1, error.message
    assert error.message.startswith(f"{folder / 'p.yaml'}:"), error.message
    if line is not None:
        assert error.message.startswith(f"{folder / 'p.yaml'}:{line}: "), error.message
    assert error.hint
    return f"{error.message} — {error.hint}".replace(str(folder) + "/", "")

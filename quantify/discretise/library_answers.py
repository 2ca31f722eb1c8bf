"""Inputs in, the labels that a model's own library gives them out, remembered by the model's hash and the library."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantify import __version__
from quantify.ir.model import Decision, Model, Predict
from quantify.resources import cache_folder


class LibraryAnswers:
    """A predict that asks the library only what it was never asked about this file: starting it takes seconds.

    Answers are kept in `cache_folder()/library`, one file a matrix of inputs, named after the model's hash, the
    library's version, the decision, the machine and the inputs themselves.
    """

    def __init__(self, model: Model, decision: Decision) -> None:
        self._model, self._decision = model, decision
        self._predict: Predict | None = None
        self.version = None if model.library_version is None else model.library_version()
        """None when it is not known without starting the library; nothing is remembered then."""

    @property
    def name(self) -> str:
        """The library with its version, and whether it was started for the answers."""
        if self.version is None:
            return "the library itself"
        return self.version + (" (answers kept from an earlier run)" if self._predict is None else "")

    def __call__(self, inputs: NDArray[np.float64]) -> NDArray[np.int64]:
        """Class indices by row.

        Raises:
            MissingToolError: The library is needed and not installed.
            InputError: It cannot load the file.
        """
        entry = self._entry(inputs)
        known = None if entry is None else _recall(entry, len(inputs), len(self._model.classes))
        if known is not None:
            return known
        if self._predict is None:
            assert self._model.library_predict is not None
            self._predict = self._model.library_predict(self._decision)
        labels = np.asarray(self._predict(inputs), np.int64)
        if entry is not None:
            _remember(entry, labels)
        return labels

    def _entry(self, inputs: NDArray[np.float64]) -> Path | None:
        if self.version is None:
            return None
        about = [__version__, self.version, self._model.sha256, self._decision, platform.machine(), *inputs.shape]
        digest = hashlib.sha256(json.dumps(about).encode())
        digest.update(np.ascontiguousarray(inputs).tobytes())
        return cache_folder() / "library" / f"{digest.hexdigest()}.npy"


def _recall(entry: Path, rows: int, labels: int) -> NDArray[np.int64] | None:
    """The labels kept there; None when there are none, or what is there cannot be an answer."""
    try:
        known = np.load(entry, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if not isinstance(known, np.ndarray) or known.dtype != np.int32 or known.shape != (rows,):
        return None
    if rows and not 0 <= known.min() <= known.max() < labels:
        return None
    return known.astype(np.int64)


def _remember(entry: Path, labels: NDArray[np.int64]) -> None:
    """Write in one step; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("wb", dir=entry.parent, delete=False) as file:
            np.save(file, labels.astype(np.int32), allow_pickle=False)
        os.replace(file.name, entry)

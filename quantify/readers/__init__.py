"""Model file to Model: one module a library, found by its `READER` attribute."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from quantify.errors import InputError
from quantify.ir.model import Decision, Model, Predict
from quantify.ir.network import Network, RequantiseLayer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Reader(Protocol):
    """What a module of this package offers as `READER`."""

    @property
    def name(self) -> str:
        """What it reads, for error messages: "scikit-learn decision trees"."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """File name endings it takes, lower case, with the dot."""
        ...

    def sniff(self, data: bytes) -> bool:
        """Whether the bytes look like one of its formats; must not run or import anything that they name."""
        ...

    def read(self, path: Path, data: bytes, sha256: str, *, trust_pickle: bool) -> Model:
        """The model in `data`, read from `path` (for messages) with digest `sha256`.

        Raises:
            UnsafeFileError: The file names types it has no business with, or its arrays would crash the library.
            InputError: Not a file of this kind, or a model that cannot be counted.
            MissingToolError: A library that is needed is not installed.
        """
        ...


@cache
def discover() -> tuple[Reader, ...]:
    """Every reader of this package, by module name; modules are imported on the first call."""
    modules = (importlib.import_module(f"{__name__}.{entry.name}") for entry in pkgutil.iter_modules(__path__))
    return tuple(module.READER for module in modules if hasattr(module, "READER"))


def read_model(path: Path, *, trust_pickle: bool = False) -> Model:
    """Read a trained model; the file is read once, and hashed from the same bytes.

    The reader is chosen by the file name's ending and the first bytes; either alone will do.

    Args:
        path: The file.
        trust_pickle: Let a pickle run what it names outside the reader's allow-list.

    Raises:
        InputError: No such file, not readable, empty, of an unknown kind, or not a model that can be counted.
        UnsafeFileError: See `Reader.read`.
    """
    data = read_bytes(path)
    readers = discover()
    claimed = [reader for reader in readers if path.name.lower().endswith(reader.suffixes)]
    sniffed = [reader for reader in (*claimed, *readers) if reader.sniff(data)]
    chosen = next(iter(sniffed + claimed), None)
    if chosen is None:
        known = "; ".join(f"{reader.name} ({', '.join(reader.suffixes)})" for reader in readers)
        raise InputError(f"{path}: not a model file that quantify knows", f"it reads {known}")
    return _completed(chosen.read(path, data, hashlib.sha256(data).hexdigest(), trust_pickle=trust_pickle))


def _completed(model: Model) -> Model:
    """Networks in floating point get what every format has alike: other decisions, and the error bound."""
    network = model.structure
    if not isinstance(network, Network) or any(isinstance(layer, RequantiseLayer) for layer in network.layers):
        return model
    from quantify.readers import float_error, float_network

    def predict_by(decision: Decision) -> Predict:
        return model.predict if decision == "argmax" else float_network.predictor(network, decision)

    def ambiguous(
        inputs: NDArray[np.float64], input_error: NDArray[np.float64], decision: Decision
    ) -> NDArray[np.bool_]:
        return float_error.ambiguous(network, inputs, input_error=input_error, decision=decision)

    return replace(
        model,
        predict_by=model.predict_by or predict_by,
        ambiguous=model.ambiguous or ambiguous,
    )


def read_bytes(path: Path) -> bytes:
    """What is in a model file.

    Raises:
        InputError: No such file, not readable, or empty.
    """
    try:
        if not path.exists():
            raise InputError(f"{path}: no such file", "give the path of a saved model")
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "is not a regular file"
            raise InputError(f"{path}: {what}", "give the model file itself")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})", "check the path and its permissions") from None
    if not data:
        raise InputError(f"{path}: the file is empty", "save the model again")
    return data

"""A Keras model in a `.keras` archive or an HDF5 file (Keras 2 or 3) to a Model, read as data: Keras is not needed."""

from __future__ import annotations

import importlib
import io
import math
import os
import re
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError, MissingToolError
from quantify.ir.model import Decision, Model, Predict
from quantify.ir.network import Network
from quantify.readers.float_network import at_least, predictor
from quantify.readers.hdf5_file import MAGIC, Hdf5File
from quantify.readers.installed import TENSORFLOW, versions
from quantify.readers.keras_builder import Builder, Wanted, Weights
from quantify.readers.keras_config import CHAIN, SAVE_AGAIN, Architecture, LayerConfig, architecture, parse_json
from quantify.readers.keras_layers import RECURRENT, converter, unsupported
from quantify.readers.unpickle import printable

CONFIG = b"config.json"
ZIP = b"PK\x03\x04"
WEIGHTS_NAME = "model.weights.h5"
MAX_CONFIG = 1 << 26
MAX_WEIGHTS = 1 << 30
INSTALL = "pip install 'quantify-ml[keras]'"


class KerasReader:
    """Reads feed-forward Keras classifiers; see `readers.Reader`."""

    name = "Keras networks"
    suffixes = (".keras", ".h5", ".hdf5")

    def sniff(self, data: bytes) -> bool:
        """Whether the bytes are a Keras archive or an HDF5 file."""
        return data.startswith(MAGIC) or (data.startswith(ZIP) and (WEIGHTS_NAME.encode() in data or CONFIG in data))

    def read(self, path: Path, data: bytes, sha256: str, *, trust_pickle: bool) -> Model:
        """See `readers.Reader.read`."""
        try:
            chain, weights, version = opened(data)
            network = assemble(chain, weights)
            weights.finish()
        except InputError as error:
            raise type(error)(f"{path}: {error.message}", error.hint) from None
        outputs = 2 if network.head == "sigmoid" else network.outputs
        return Model(
            path=str(path),
            sha256=sha256,
            kind="network",
            classes=tuple(str(label) for label in range(outputs)),
            columns=network.inputs,
            column_names=None,
            structure=network,
            predict=predictor(network),
            accepts_missing=False,
            library=f"quantify's own {network.dtype} evaluation (file saved by Keras {version})",
            library_predict=lambda decision: library_predict(path, network, decision),
            library_version=lambda: versions(("keras",), TENSORFLOW),
        )


READER = KerasReader()


# --- the two kinds of file ---------------------------------------------------------------------------------------
def opened(data: bytes) -> tuple[Architecture, StoredWeights, str]:
    """The layers in a file, their weights, and the version of Keras that saved it.

    Raises:
        InputError: Not a file of Keras, damaged, or not a chain of layers.
        UnsafeFileError: It holds code.
    """
    return _archive(data) if data.startswith(ZIP) else _hdf5(data)


def _archive(data: bytes) -> tuple[Architecture, StoredWeights, str]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            config = _member(archive, "config.json", MAX_CONFIG)
            metadata = _member(archive, "metadata.json", MAX_CONFIG)
            weights = _member(archive, WEIGHTS_NAME, MAX_WEIGHTS)
    except KeyError as error:
        raise InputError(f"is a zip archive without {printable(str(error.args[0]))}", SAVE_AGAIN) from None
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError, NotImplementedError) as error:
        raise InputError(f"is a damaged Keras archive ({printable(str(error))})", SAVE_AGAIN) from None
    told = parse_json(metadata, "metadata")
    version = printable(str(told.get("keras_version", "?"))) if isinstance(told, dict) else "?"
    return architecture(parse_json(config, "configuration")), ArchiveWeights(Hdf5File(weights)), version


def _member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """One unpacked file, no matter what sizes the archive claims."""
    try:
        entry = archive.getinfo(name)
    except KeyError:
        raise KeyError(name) from None
    with archive.open(entry) as stream:
        found = stream.read(limit + 1)
    if len(found) > limit:
        raise InputError(f"its {name} unpacks to more than {limit >> 20} MiB", "train a smaller model")
    return found


def _hdf5(data: bytes) -> tuple[Architecture, StoredWeights, str]:
    if not data.startswith(MAGIC):
        raise InputError("is neither a Keras archive nor an HDF5 file", SAVE_AGAIN)
    file = Hdf5File(data)
    text = file.text((), "model_config")
    if text is None:
        raise InputError(
            "is an HDF5 file without a Keras architecture", "save the whole model: model.save, not save_weights"
        )
    chain = architecture(parse_json(text, "configuration"))
    top = ("model_weights",) if file.members(("model_weights",)) is not None else ()
    version = file.text((), "keras_version") or file.text(top, "keras_version") or "1"
    if version.split(".")[0] == "1":
        raise InputError(
            "was saved by Keras 1, whose weights are laid out differently", SAVE_AGAIN + " in Keras 2 or 3"
        )
    return chain, OrderedWeights(file, top), printable(version)


class StoredWeights(Weights, Protocol):
    """All weights of a file."""

    def finish(self) -> None:
        """Refuse weights that no layer took."""
        ...


class OrderedWeights:
    """Weights of an `.h5` file: the layers that have any, in order, as Keras itself matches them (legacy_h5_format)."""

    def __init__(self, file: Hdf5File, top: tuple[str, ...]) -> None:
        self._file = file
        self._saved: list[tuple[str, list[tuple[str, ...]]]] = []
        for name in file.names(top, "layer_names"):
            group = (*top, *name.split("/"))
            weights = [(*group, *weight.split("/")) for weight in file.names(group, "weight_names")]
            if weights:
                self._saved.append((name, weights))
        self._next = 0

    def visit(self, layer: LayerConfig) -> None:
        """Layers without weights do not count here."""

    def take(self, layer: LayerConfig, shapes: Sequence[Wanted]) -> list[NDArray[np.generic]]:
        """See `keras_builder.Weights`."""
        if self._next == len(self._saved):
            raise InputError("has no weights in the file", SAVE_AGAIN)
        name, weights = self._saved[self._next]
        self._next += 1
        if len(weights) != len(shapes):
            raise InputError(f"has {len(weights)} weights (stored as {printable(name)}), not {len(shapes)}", SAVE_AGAIN)
        return [_checked(self._file.array(where), shape) for where, shape in zip(weights, shapes, strict=True)]

    def finish(self) -> None:
        """Refuse weights that no layer took."""
        for name, _ in self._saved[self._next :]:
            raise InputError(f"has weights of {printable(name)}, which its architecture does not name", SAVE_AGAIN)


class ArchiveWeights:
    """Weights of a `.keras` archive: layers/KIND_NUMBER/vars/0, 1, …, numbered per kind in order (saving_lib)."""

    def __init__(self, file: Hdf5File) -> None:
        self._file = file
        groups = file.members(("layers",))
        if groups is None:
            raise InputError(
                "has its weights in the layout of an older Keras", "load and " + SAVE_AGAIN + " in Keras 3"
            )
        places = [(group, (*inner, "vars")) for group in groups for inner in ((), ("cell",))]
        self._left = {group for group, inside in places if file.members(("layers", group, *inside))}
        self._used: dict[str, int] = {}

    def visit(self, layer: LayerConfig) -> None:
        """Number this layer, the next of its kind; its weights may be taken until the next visit."""
        kind = re.sub(r"\W+", "", layer.kind)
        kind = re.sub("([a-z])([A-Z])", r"\1_\2", re.sub("(.)([A-Z][a-z]+)", r"\1_\2", kind)).lower()
        number = self._used[kind] = self._used.get(kind, -1) + 1
        self._group = f"{kind}_{number}" if number else kind

    def take(self, layer: LayerConfig, shapes: Sequence[Wanted]) -> list[NDArray[np.generic]]:
        """See `keras_builder.Weights`."""
        inner = ("cell",) if layer.kind in RECURRENT else ()
        where = ("layers", self._group, *inner, "vars")
        found = self._file.members(where) or []
        if found != sorted(str(index) for index in range(len(shapes))):
            raise InputError(f"has {len(found)} weights in the file, not {len(shapes)}", SAVE_AGAIN)
        owner = self._file.text(("layers", self._group, "vars"), "name")
        if owner not in (None, layer.name):
            raise InputError(f"has the weights of a layer called {printable(str(owner))}", SAVE_AGAIN)
        self._left.discard(self._group)
        return [_checked(self._file.array((*where, str(i))), shape) for i, shape in enumerate(shapes)]

    def finish(self) -> None:
        """Refuse weights that no layer took."""
        for group in sorted(self._left):
            raise InputError(f"has weights of {printable(group)}, which its architecture does not name", SAVE_AGAIN)


def _checked(found: NDArray[np.generic], shape: Wanted) -> NDArray[np.generic]:
    if found.ndim != len(shape) or any(want not in (None, size) for want, size in zip(shape, found.shape, strict=True)):
        wanted = ", ".join("?" if size is None else str(size) for size in shape)
        raise InputError(f"has weights of shape {found.shape}, not ({wanted})", SAVE_AGAIN)
    return found


# --- the network -------------------------------------------------------------------------------------------------
def assemble(chain: Architecture, weights: Weights) -> Network:
    """The network of these layers and their weights.

    Raises:
        InputError: A layer that is not supported, or weights that do not fit it.
    """
    for layer in chain.layers:
        if layer.kind in RECURRENT:  # before its input's length, which is often left open, is missed
            raise unsupported(layer)
    dtype = cast(Literal["float32", "float64"], chain.dtype("float32", "float64"))
    shape = chain.input_shape
    builder = Builder(shape, dtype, weights, None if shape is None else math.prod(shape))
    for layer in chain.layers:
        weights.visit(layer)
        builder.add(layer, converter(layer))
    found = builder.known()
    if builder.inputs is None or not builder.layers:
        raise InputError("has no layer that computes anything", CHAIN)
    if found[-1] != math.prod(found):
        raise InputError(f"has outputs of shape {found}", "quantify reads classifiers: one vector of scores")
    return Network(
        inputs=builder.inputs,
        layers=tuple(builder.layers),
        outputs=found[-1],
        dtype=dtype,
        head="sigmoid" if builder.squash == "sigmoid" and found[-1] == 1 else "order",
        squash=builder.squash,
    )


# --- the library itself ------------------------------------------------------------------------------------------
def library_predict(path: Path, network: Network, decision: Decision = "argmax") -> Predict:
    """Keras's own prediction with the model in `path`, for cross-checks; `network` is what was read from it.

    Raises:
        MissingToolError: TensorFlow is not installed; the hint is the command that installs it.
        InputError: Keras cannot load the file.
    """
    model, version = loaded(path)
    shape = tuple(model.input_shape[1:])

    def predict(inputs: NDArray[np.float64]) -> NDArray[np.int64]:
        given = inputs.astype(network.dtype).reshape(len(inputs), *shape)
        found = np.asarray(model.predict(given, verbose=0, batch_size=4096)).reshape(len(inputs), -1)
        if network.head == "sigmoid":
            return at_least(found[:, 0], network).astype(np.int64)
        best = found.argmax(axis=1) if decision == "argmax" else found.argmin(axis=1)
        return np.asarray(best, np.int64)

    predict.__doc__ = f"Keras {version}"
    return predict


def loaded(path: Path) -> tuple[Any, str]:
    """The model in a file as Keras loads it, and Keras's version.

    Raises:
        MissingToolError: TensorFlow is not installed; the hint is the command that installs it.
        InputError: Keras cannot load the file.
    """
    # TensorFlow's start-up messages would mix with ours.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        keras = importlib.import_module("keras")
        importlib.import_module("tensorflow")
    except ImportError:
        raise MissingToolError("Keras with TensorFlow is not installed", INSTALL) from None
    try:
        # What was read as data before holds no code; Keras's own guard stays on as well.
        model = keras.models.load_model(path, compile=False, safe_mode=True, custom_objects={"sign": keras.ops.sign})
    # The library raises whatever its layers raise.
    except Exception as error:
        raise InputError(
            f"{path}: Keras {keras.__version__} cannot load it ({printable(str(error))})", SAVE_AGAIN
        ) from None
    return model, str(keras.__version__)

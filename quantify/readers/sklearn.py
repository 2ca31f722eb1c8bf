"""A scikit-learn DecisionTreeClassifier in a pickle, joblib or skops file to a Model.

Files are taken apart as data (`unpickle`, `skops_file`), checked (`tree_arrays`), and put together again
as a genuine scikit-learn object, whose `predict` is the model's.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError, UnsafeFileError
from quantify.ir.model import Model, Predict
from quantify.readers.compression import CannotDecompress, compression, decompress
from quantify.readers.skops_file import SUPPORTED, is_skops, read_skops
from quantify.readers.tree_arrays import RESAVE, OtherLayout, TreeArrays, check_arrays, to_tree
from quantify.readers.unpickle import (
    Estimator,
    Malformed,
    TreeRecord,
    UnexpectedGlobal,
    described,
    plain,
    printable,
    unpickle,
)

CHUNK_VALUES = 1 << 22
"""Matrix elements handed to the library at once: it makes float32 copies and a weight per class and row."""
UNKNOWN = "of an unknown version"
CRITERIA = ("gini", "entropy", "log_loss")
SPLITTERS = ("best", "random")
CLASS_NAME = re.compile(r"[A-Z]\w*")
RELABEL = "train it with integer or string labels"
# First opcodes of pickles: PROTO, or in protocols 0 and 1 what an object, dict, list or tuple begins with.
PICKLE_START = re.compile(rb"\x80[\x02-\x05]|c[A-Za-z_.]+\n|[(\]})\[]")


class SklearnReader:
    """Reads DecisionTreeClassifier; see `readers.Reader`."""

    name = "scikit-learn decision trees"
    suffixes = (".pkl", ".pickle", ".joblib", ".skops", ".pkl.gz", ".joblib.gz", ".sav")

    def sniff(self, data: bytes) -> bool:
        """Whether the bytes look like a pickle, a compressed file, or a zip archive (skops)."""
        return is_skops(data) or compression(data) is not None or PICKLE_START.match(data) is not None

    def read(self, path: Path, data: bytes, sha256: str, *, trust_pickle: bool) -> Model:
        """See `readers.Reader.read`."""
        try:
            attributes = _attributes(path, data, trust_pickle)
            fitted = _checked(attributes)
        except OtherLayout as error:
            raise _wrong_version(path, error.version) from None
        except InputError as error:
            raise type(error)(f"{path}: {error.message}", error.hint) from None
        return _model(path, sha256, fitted)


READER = SklearnReader()


@dataclass(frozen=True)
class Fitted:
    """A fitted classifier, checked."""

    arrays: TreeArrays
    classes: tuple[str, ...]
    column_names: tuple[str, ...] | None
    criterion: str
    splitter: str
    constrained: bool
    """Whether it was fitted with monotonicity constraints: some versions refuse NaN then."""
    version: str


# --- the file to attributes --------------------------------------------------------------------------------------
def _attributes(path: Path, data: bytes, trust_pickle: bool) -> dict[str, Any]:
    """The estimator's attributes, `tree_` being a dictionary of constructor arguments and state."""
    if is_skops(data):
        return genuine_attributes(*read_skops(data))
    try:
        stream = decompress(data)
    except CannotDecompress as error:
        raise InputError(str(error), "save the model again with joblib.dump or pickle.dump") from None
    if is_skops(stream):
        return genuine_attributes(*read_skops(stream))
    try:
        root = unpickle(stream)
    except (UnexpectedGlobal, Malformed) as error:
        if trust_pickle:
            return _trusted(stream)
        raise _not_data(path, stream, error) from None
    if not isinstance(root, Estimator):
        raise InputError(f"holds a {described(root)}, not a model", SUPPORTED)
    try:
        return _unwrapped(root)
    except Malformed as error:
        raise UnsafeFileError(f"the tree is malformed: {error}", RESAVE) from None


def _not_data(path: Path, stream: bytes, error: UnexpectedGlobal | Malformed) -> Exception:
    """What to tell of a file that is not just a decision tree."""
    if isinstance(error, UnexpectedGlobal):
        if error.first and error.module.startswith("sklearn.") and CLASS_NAME.fullmatch(error.name):
            return InputError(f"holds a {error.name} ({error.module})", SUPPORTED)
        return UnsafeFileError(
            f"names {error}, which no decision tree needs; nothing was executed",
            f"if you made the file yourself, let it run what it says: quantify count {path} --trust-pickle …",
        )
    if (version := _version_in(stream)) and version.startswith("0."):
        return OtherLayout(version)
    return InputError(f"cannot be read as a saved model: {error}", "save the model again with pickle.dump")


def _unwrapped(root: Estimator) -> dict[str, Any]:
    if not isinstance(root.state, dict):
        raise Malformed("an estimator without attributes")
    found = {key: plain(value) for key, value in root.state.items() if isinstance(key, str)}
    record = found.get("tree_")
    if isinstance(record, TreeRecord):
        if not isinstance(record.state, dict):
            raise Malformed("a tree without arrays")
        state = {key: plain(value) for key, value in record.state.items()}
        found["tree_"] = {"arguments": tuple(plain(argument) for argument in record.arguments), "state": state}
    return found


def _trusted(stream: bytes) -> dict[str, Any]:
    """The attributes after a full unpickling, which runs whatever the file says; the user asked for it."""
    import joblib
    from sklearn.tree import DecisionTreeClassifier

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            root = joblib.load(io.BytesIO(stream))
    # What runs is not ours: it may raise anything.
    except Exception as error:
        if "incompatible dtype" in str(error):
            raise OtherLayout(_version_in(stream) or UNKNOWN) from None
        said = f"{type(error).__name__}: {printable(str(error))}"
        raise InputError(f"cannot be unpickled ({said})", "save the model again where it was trained") from None
    if type(root) is not DecisionTreeClassifier:
        raise InputError(f"holds a {type(root).__name__} ({type(root).__module__})", SUPPORTED)
    return genuine_attributes(root, _version_in(stream) or UNKNOWN)


def genuine_attributes(estimator: Any, version: str) -> dict[str, Any]:
    """The attributes of a genuine estimator saved by `version`, in the form that `_checked` takes."""
    from sklearn.tree._tree import Tree

    found = {**vars(estimator), "_sklearn_version": version}
    tree = found.get("tree_")
    if type(tree) is Tree:
        reduced: Any = tree.__reduce__()
        _, arguments, state = reduced
        found["tree_"] = {"arguments": arguments, "state": state}
    return found


def _version_in(stream: bytes) -> str | None:
    """The scikit-learn version in a pickle that cannot be loaded, from its text."""
    found = re.search(rb"_sklearn_version.{1,16}?(\d+\.\d+(?:\.\w+)*)", stream, re.DOTALL)
    return found.group(1).decode("ascii", "replace") if found else None


# --- attributes to checked parts ---------------------------------------------------------------------------------
def _checked(attributes: Mapping[str, Any]) -> Fitted:
    from sklearn.tree._tree import NODE_DTYPE

    version = str(attributes.get("_sklearn_version", UNKNOWN))
    outputs = attributes.get("n_outputs_")
    if isinstance(outputs, int | np.integer) and outputs > 1:
        raise InputError(f"predicts {outputs} outputs at once", "train one tree an output, and count each")
    tree = attributes.get("tree_")
    if not isinstance(tree, Mapping) or "classes_" not in attributes:
        raise InputError("holds a classifier that was never fitted", "call fit before saving it")
    columns = attributes.get("n_features_in_", attributes.get("n_features_"))
    if not isinstance(columns, int | np.integer) or columns < 1:
        raise UnsafeFileError("does not say how many features it has", RESAVE)
    classes = _classes(attributes["classes_"])
    _check_arguments(tree["arguments"], int(columns), len(classes))
    try:
        arrays = check_arrays(int(columns), len(classes), tree["state"], NODE_DTYPE)
    except OtherLayout:
        raise OtherLayout(printable(version)) from None
    return Fitted(
        arrays=arrays,
        classes=classes,
        column_names=_column_names(attributes.get("feature_names_in_"), int(columns)),
        criterion=_one_of(attributes, "criterion", CRITERIA),
        splitter=_one_of(attributes, "splitter", SPLITTERS),
        constrained=attributes.get("monotonic_cst") is not None,
        version=printable(version),
    )


def _one_of(attributes: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    found = attributes.get(name, known[0])
    if not isinstance(found, str) or found not in known:
        raise InputError(f"was trained with an unknown {name}", f"train it with one of {', '.join(known)}")
    return found


def _check_arguments(arguments: Any, columns: int, classes: int) -> None:
    """The tree's constructor arguments must say the same as the classifier."""
    try:
        features, counts, outputs = arguments
        agree = int(features) == columns and int(outputs) == 1 and [int(n) for n in np.atleast_1d(counts)] == [classes]
    except (TypeError, ValueError, OverflowError):
        agree = False
    if not agree:
        raise UnsafeFileError("the tree is malformed: it has other features or classes than its classifier", RESAVE)


def _classes(found: Any) -> tuple[str, ...]:
    """Labels as `str(class)`, from a one-dimensional array of integers, floats, Booleans or strings."""
    if isinstance(found, list | tuple):
        raise InputError("predicts several outputs at once", "train one tree an output, and count each")
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "biufUO" or not len(found):
        raise UnsafeFileError("its classes are no list of numbers or strings", RELABEL)
    for label in found:
        sensible = isinstance(label, str | int | float | np.bool_ | np.integer | np.floating)
        if not sensible or (isinstance(label, float | np.floating) and not np.isfinite(label)):
            raise InputError(f"has a class of type {type(label).__name__} that is no label", RELABEL)
    labels = tuple(str(label) for label in found)
    if len(set(labels)) != len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InputError(f"has two classes that both read {printable(twice)!r}", "train it with distinct labels")
    return labels


def _column_names(found: Any, columns: int) -> tuple[str, ...] | None:
    if found is None:
        return None
    if not isinstance(found, np.ndarray) or found.shape != (columns,) or not all(isinstance(n, str) for n in found):
        raise UnsafeFileError(f"its feature names are no list of {columns} strings", RESAVE)
    names = tuple(str(name) for name in found)
    if len(set(names)) != columns:
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"has two columns called {printable(twice)!r}", "train it on columns with distinct names")
    return names


def _installed() -> str:
    from sklearn import __version__

    return str(__version__)


def _wrong_version(path: Path, version: str) -> InputError:
    here = _installed()
    fresh = f"fit the model again with scikit-learn {here} and save it"
    try:
        can_install = tuple(int(part) for part in version.split(".")[:2]) >= (1, 3)
    except ValueError:
        can_install = False
    other = f", or read it where it was made: pip install quantify-ml scikit-learn=={version}" if can_install else ""
    return InputError(
        f"{path}: was saved by scikit-learn {version}, whose trees scikit-learn {here} cannot load", fresh + other
    )


# --- checked parts to the model ----------------------------------------------------------------------------------
def _model(path: Path, sha256: str, fitted: Fitted) -> Model:
    estimator = _rebuild(fitted)
    columns = fitted.arrays.features
    here = _installed()
    library = f"scikit-learn {here}" + ("" if fitted.version == here else f" (file saved by {fitted.version})")
    return Model(
        path=str(path),
        sha256=sha256,
        kind="tree",
        classes=fitted.classes,
        columns=columns,
        column_names=fitted.column_names,
        structure=to_tree(fitted.arrays),
        predict=_predict(estimator, columns),
        # The library's own test before it lets NaN through (BaseDecisionTree._validate_X_predict).
        accepts_missing=bool(estimator._support_missing_values(np.empty((1, columns), dtype=np.float32))),
        library=library,
    )


def _rebuild(fitted: Fitted) -> Any:
    """A genuine classifier around the checked arrays, whose classes are the indices 0…k−1."""
    from sklearn.tree import DecisionTreeClassifier
    from sklearn.tree._tree import Tree

    arrays, classes = fitted.arrays, len(fitted.classes)
    tree = Tree(arrays.features, np.array([classes], dtype=np.intp), 1)
    tree.__setstate__(
        {
            "max_depth": arrays.depth,
            "node_count": len(arrays.nodes),
            "nodes": arrays.nodes,
            "values": arrays.values,
        }
    )
    estimator = DecisionTreeClassifier(criterion=fitted.criterion, splitter=fitted.splitter)
    if fitted.constrained:
        estimator.monotonic_cst = np.zeros(arrays.features, dtype=np.int8)
    estimator.n_features_in_ = arrays.features
    estimator.n_outputs_ = 1
    estimator.n_classes_ = classes
    estimator.classes_ = np.arange(classes, dtype=np.int64)
    estimator.tree_ = tree
    return estimator


def _predict(estimator: Any, columns: int) -> Predict:
    rows = max(1, CHUNK_VALUES // columns)

    def predict(inputs: NDArray[np.float64]) -> NDArray[np.int64]:
        if not len(inputs):
            return np.empty(0, dtype=np.int64)
        parts = [estimator.predict(inputs[start : start + rows]) for start in range(0, len(inputs), rows)]
        return np.concatenate(parts).astype(np.int64, copy=False)

    return predict

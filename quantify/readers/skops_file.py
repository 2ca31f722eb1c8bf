"""A skops archive to the DecisionTreeClassifier in it, refusing by name what such a file need not contain."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

from quantify.errors import InputError, UnsafeFileError
from quantify.readers.tree_arrays import OtherLayout
from quantify.readers.unpickle import printable

TREE = "sklearn.tree._tree.Tree"
CLASSIFIER = "sklearn.tree._classes.DecisionTreeClassifier"
SUPPORTED = (
    "of scikit-learn, quantify reads DecisionTreeClassifier: save that object itself, not what contains it; "
    "networks are read from Keras, .nnet, ONNX and TensorFlow Lite files"
)
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
# The (loader, type) pairs of a saved tree. skops itself trusts hundreds of types and functions.
ALLOWED = {
    ("ObjectNode", CLASSIFIER),
    ("TreeNode", TREE),
    ("RandomStateNode", "numpy.random.mtrand.RandomState"),
    ("DictNode", "builtins.dict"),
    ("ListNode", "builtins.list"),
    ("TupleNode", "builtins.tuple"),
    ("NdArrayNode", "numpy.ndarray"),
    *(("JsonNode", f"builtins.{name}") for name in ("str", "int", "float", "bool", "NoneType")),
    *(("TypeNode", f"builtins.{name}") for name in ("str", "int", "float", "bool")),
    *(
        (loader, f"numpy.{name}")
        for loader in ("NdArrayNode", "TypeNode")
        for name in ("bool", "bool_", *INTEGERS, "float32", "float64", "str_")
    ),
}
LIMIT = 1 << 31
"""Largest unpacked size in bytes; a decision tree is never near it."""


def is_skops(data: bytes) -> bool:
    """Whether the bytes are a zip archive."""
    return data.startswith(b"PK\x03\x04")


def read_skops(data: bytes) -> tuple[Any, str]:
    """The classifier in a skops archive and the scikit-learn version that saved it.

    It is genuine, but its tree's arrays are not yet checked: nothing may be predicted with it.

    Raises:
        UnsafeFileError: It names a type outside the allow-list; nothing was loaded.
        InputError: No skops archive, damaged, or something else than a decision tree.
        OtherLayout: Its tree is that of another scikit-learn.
    """
    schema = _schema(data)
    root = _type_name(schema)
    if root != CLASSIFIER:
        raise InputError(
            f"holds a {printable(root.rpartition('.')[2])} ({printable(root)})",
            SUPPORTED,
        )
    for node in _nodes(schema):
        pair = (str(node.get("__loader__")), _type_name(node))
        if pair not in ALLOWED:
            raise UnsafeFileError(
                f"names {printable(pair[1])} ({printable(pair[0])}), which no decision tree needs; nothing was loaded",
                "save the DecisionTreeClassifier alone with skops.io.dump",
            )
    version = _version(schema)
    return _load(data, version), version


def _schema(data: bytes) -> dict[str, Any]:
    hint = "save the model again with skops.io.dump"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LIMIT:
                raise InputError(f"unpacks to more than {LIMIT >> 20} MiB", hint)
            schema = json.loads(archive.read("schema.json"))
    except KeyError:
        raise InputError("is a zip archive without a skops schema", hint) from None
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RecursionError, RuntimeError) as error:
        raise InputError(f"is a damaged skops file ({printable(str(error))})", hint) from None
    if not isinstance(schema, dict):
        raise InputError("is a zip archive without a skops schema", hint)
    return schema


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every described object of the schema."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if "__class__" in value or "__module__" in value or "__loader__" in value:
                yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _type_name(node: dict[str, Any]) -> str:
    return f"{node.get('__module__')}.{node.get('__class__')}"


def _version(schema: dict[str, Any]) -> str:
    try:
        return printable(json.loads(schema["content"]["content"]["_sklearn_version"]["content"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        return "of an unknown version"


def _load(data: bytes, version: str) -> Any:
    """Load with skops, trusting the one type whose arrays are checked afterwards, before anything is predicted."""
    import skops.io

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return skops.io.loads(data, trusted=[TREE])
    except skops.io.exceptions.UntrustedTypesFoundException as error:
        raise UnsafeFileError(f"skops does not trust it: {printable(str(error))}", "save the model again") from None
    # A damaged archive can make skops raise anything.
    except Exception as error:
        if "incompatible dtype" in str(error):
            raise OtherLayout(version) from None
        said = f"{type(error).__name__}: {printable(str(error))}"
        raise InputError(f"cannot be loaded by skops ({said})", "save the model again with skops.io.dump") from None

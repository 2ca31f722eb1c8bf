"""Files that must be refused: hostile, damaged, or something else than a decision tree classifier.

The hostile ones are read in a process of their own, which must survive them all and leave no trace of their payloads.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import joblib
import numpy as np
import pytest
import skops.io
from joblib.numpy_pickle import NumpyPickler
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier

from quantify.errors import InputError, QuantifyError, UnsafeFileError
from quantify.readers import read_model
from quantify.readers.compression import CannotDecompress, decompress

IRIS, SPECIES = load_iris(return_X_y=True)
READ_THEM = """
import json, sys, warnings
from pathlib import Path
import numpy as np
from quantify.errors import QuantifyError
from quantify.readers import read_model
warnings.simplefilter("ignore")
found = {}
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        model = read_model(path, trust_pickle=path.name.startswith("trusted-"))
        model.predict(np.random.default_rng(0).normal(size=(50, model.columns)))
        found[path.name] = ["read", ""]
    except QuantifyError as error:
        assert str(path) in error.message and error.hint, error.message
        found[path.name] = [type(error).__name__, error.message]
json.dump(found, sys.stdout)
"""


def fitted() -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=3, random_state=0).fit(IRIS, SPECIES)


class Call:
    """Pickles as a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.what = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.what


def holding(**attributes: Any) -> DecisionTreeClassifier:
    estimator = fitted()
    estimator.__dict__.update(attributes)
    return estimator


def text_global(module: str, name: str) -> bytes:
    """A protocol 4 reference, which may hold dots."""
    parts = [b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, name)]
    return parts[0] + parts[1] + b"\x93"


def joblibbed(value: Any, **how: Any) -> bytes:
    buffer = io.BytesIO()
    joblib.dump(value, buffer, **how)
    return buffer.getvalue()


# --- code execution ----------------------------------------------------------------------------------------------
def payloads(canary: Path) -> dict[str, tuple[bytes, str]]:
    """Files that would create `canary` on a plain load, and what the refusal must name."""
    touch = f"touch {canary}"
    system, open_ = Call(os.system, touch), Call(open, str(canary), "w")
    command = pickle.dumps(touch, 4)[11:-2]  # the string alone, without frame, memo and stop
    assert command.startswith(b"\x8c")
    call = command + b"\x85R."
    objects = np.array([system, 1], dtype=object)
    name = f"{os.system.__module__}.system"
    return {
        **{f"system-{protocol}": (pickle.dumps(system, protocol), name) for protocol in range(6)},
        "open": (pickle.dumps(open_), "io.open"),
        "attribute": (pickle.dumps(holding(class_weight=system)), name),
        "in-the-tree": (pickle.dumps(holding(tree_=Call(fitted().tree_.__class__, 4, system, 1))), name),
        "in-a-class": (pickle.dumps(holding(classes_=objects)), name),
        "after-the-model": (pickle.dumps([fitted(), system]), name),
        "joblib": (joblibbed(holding(random_state=system)), name),
        "joblib-object-array": (joblibbed(holding(classes_=objects)), name),
        "joblib-zlib": (joblibbed(holding(random_state=system), compress=3), name),
        "joblib-xz": (joblibbed(system, compress=("xz", 1)), name),
        "eval": (b"\x80\x04" + text_global("builtins", "eval") + call, "builtins.eval"),
        "exec-python-2": (b"c__builtin__\nexec\n(S'open(\"" + bytes(canary) + b'", "w")\'\ntR.', "__builtin__.exec"),
        "getattr": (b"\x80\x04" + text_global("builtins", "getattr") + call, "builtins.getattr"),
        "dotted": (
            b"\x80\x04" + text_global("sklearn.tree._classes", "DecisionTreeClassifier.fit.__globals__") + call,
            "DecisionTreeClassifier.fit.__globals__",
        ),
        "dotted-numpy": (b"\x80\x04" + text_global("numpy", "f2py.os.system") + call, "numpy.f2py.os.system"),
        "numpy-load": (b"\x80\x04" + text_global("numpy", "load") + call, "numpy.load"),
        "inst": (b"(S'" + touch.encode() + b"'\nios\nsystem\n.", "os.system"),
        "obj": (b"(cos\nsystem\nS'" + touch.encode() + b"'\no.", "os.system"),
        "joblib-companion-file": (
            pickle.dumps(Call(joblib.numpy_pickle_compat.NDArrayWrapper, str(canary), np.ndarray)),
            "NDArrayWrapper",
        ),
    }


# --- data that would crash or mislead ----------------------------------------------------------------------------
class Crafted:
    """Pickles like a tree whose arguments and state were changed."""

    def __init__(self, change: Callable[[dict[str, Any]], None] = lambda state: None, arguments: Any = None) -> None:
        self.change, self.arguments = change, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        kind, arguments, state = fitted().tree_.__reduce__()
        state["nodes"], state["values"] = state["nodes"].copy(), state["values"].copy()
        self.change(state)
        return kind, self.arguments or arguments, state


def field(name: str, value: Any, node: int = 0) -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        state["nodes"][name][node] = value

    return change


def entry(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.update({name: value(state[name]) if callable(value) else value})


LEAF = int(np.flatnonzero(fitted().tree_.children_left == -1)[0])
INDICES = {
    "child-too-large": field("left_child", 9),
    "child-far": field("right_child", 1 << 40),
    "child-negative": field("left_child", -7),
    "child-is-root": field("right_child", 0, node=2),
    "self-loop": field("left_child", 2, node=2),
    "two-parents": field("left_child", 2),
    "one-child": field("left_child", -1),
    "leaf-with-one-child": field("right_child", 3, node=LEAF),
    "feature-too-large": field("feature", 4),
    "feature-far": field("feature", 1 << 40),
    "feature-negative": field("feature", -2),
    "threshold-nan": field("threshold", np.nan),
    "threshold-minus-inf": field("threshold", -np.inf),
    "values-nan": entry("values", lambda v: np.full_like(v, np.nan)),
}
SHAPES = {
    "no-nodes": Crafted(lambda state: state.update(nodes=state["nodes"][:0], values=state["values"][:0], node_count=0)),
    "nodes-missing": Crafted(lambda state: state.pop("nodes")),
    "nodes-a-list": Crafted(entry("nodes", [1, 2])),
    "nodes-2d": Crafted(entry("nodes", lambda n: n.reshape(1, -1))),
    "values-short": Crafted(entry("values", lambda v: v[:3])),
    "values-wide": Crafted(entry("values", lambda v: np.concatenate([v, v], axis=2))),
    "values-float32": Crafted(entry("values", lambda v: v.astype(np.float32))),
    "values-objects": Crafted(entry("values", lambda v: v.astype(object))),
    "count-large": Crafted(entry("node_count", 1 << 30)),
    "count-negative": Crafted(entry("node_count", -1)),
    "count-an-array": Crafted(entry("node_count", np.array([1, 2]))),
    "state-no-dictionary": Call(fitted().tree_.__class__, 4, np.array([3]), 1),
    "other-features": Crafted(arguments=(100, np.array([3]), 1)),
    "other-classes": Crafted(arguments=(4, np.array([300]), 1)),
    "other-outputs": Crafted(arguments=(4, np.array([3, 3]), 2)),
    "no-arguments": Crafted(arguments=(4,)),
    "infinite-features": Crafted(arguments=(float("inf"), np.array([3]), 1)),
}


def numpy_array(dtype: bytes, shape: bytes, data: bytes) -> bytes:
    """Opcodes of an ndarray with the given dtype and state."""
    make = b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    return make + b"(K\x01" + shape + dtype + b"\x89" + b"B" + struct.pack("<I", len(data)) + data + b"tb"


def classes_are(array: bytes) -> bytes:
    """A classifier whose classes_ are the given opcodes."""
    return b"\x80\x04csklearn.tree._classes\nDecisionTreeClassifier\n)\x81}\x8c\x08classes_" + array + b"sb."


FLOAT = b"cnumpy\ndtype\n\x8c\x02f8\x89\x88\x87R(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
OBJECT = b"cnumpy\ndtype\n\x8c\x02O8\x89\x88\x87R"
# A record with an object field that claims (flags 0) to hold no objects: NumPy would take the bytes for pointers.
RECORD = (
    b"cnumpy\ndtype\n\x8c\x02V8\x89\x88\x87R(K\x03\x8c\x01|N\x8c\x01a\x85}\x8c\x01a"
    + OBJECT
    + b"K\x00\x86sK\x08K\x01K\x00tb"
)
STREAMS = {
    "pointers": classes_are(numpy_array(RECORD, b"K\x01\x85", b"\x41" * 8)),
    "pointers-object": classes_are(numpy_array(OBJECT, b"K\x01\x85", b"\x41" * 8)),
    "surplus-data": classes_are(numpy_array(FLOAT, b"K\x01\x85", b"\x00" * 16)),
    "huge-shape": classes_are(numpy_array(FLOAT, b"\x8a\x07\xff\xff\xff\xff\xff\xff\x0f\x85", b"\x00" * 8)),
    "negative-shape": classes_are(numpy_array(FLOAT, b"J\xff\xff\xff\xff\x85", b"\x00" * 8)),
    "built-twice": classes_are(numpy_array(FLOAT, b"K\x01\x85", b"\x00" * 8) + b"}b"),
    "build-a-class": b"\x80\x04csklearn.tree._classes\nDecisionTreeClassifier\n}\x8c\x04evilK\x01sb.",
    "build-a-string": b"\x80\x04\x8c\x01a}b.",
    "call-a-string": b"\x80\x04\x8c\x01a)R.",
    "call-a-model": b"\x80\x04csklearn.tree._classes\nDecisionTreeClassifier\n)\x81)R.",
    "persistent": b"\x80\x04\x8c\x01aQ.",
    "extension": b"\x80\x04\x82\x01.",
    "no-such-buffer": b"\x80\x05\x97.",
    "large-bytearray": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"a.",
    "large-bytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"a.",
    "deep": b"\x80\x04" + b"]" * 10 + b"(" * 5000 + b"t" * 5000 + b".",
    "stack-underflow": b"\x80\x04R.",
    "bad-memo": b"\x80\x04h\x05.",
    "unknown-opcode": b"\x80\x04\xff.",
    "future-protocol": b"\x80\x09.",
    "text": b"hello, world\n",
    "zeros": bytes(100),
}


def write_all(folder: Path, canary: Path) -> dict[str, str]:
    """Write every hostile file; returns by file name what the message must contain."""
    files: dict[str, tuple[bytes, str]] = {f"{k}.pkl": v for k, v in payloads(canary).items()}
    for name, change in INDICES.items():
        files[f"{name}.pkl"] = pickle.dumps(holding(tree_=Crafted(change))), "malformed"
        files[f"{name}.joblib"] = joblibbed(holding(tree_=Crafted(change))), "malformed"
        trusted = holding(tree_=Crafted(change), class_weight=PurePosixPath("a"))
        files[f"trusted-{name}.pkl"] = pickle.dumps(trusted), "malformed"
        _, arguments, state = Crafted(change).__reduce__()
        tree = fitted().tree_.__class__(*arguments)
        tree.__setstate__(state)
        files[f"{name}.skops"] = skops.io.dumps(holding(tree_=tree)), "malformed"
    for name, crafted in SHAPES.items():
        files[f"{name}.pkl"] = pickle.dumps(holding(tree_=crafted)), "malformed"
    files |= {f"{name}.pkl": (data, "") for name, data in STREAMS.items()}
    for name, (data, _) in files.items():
        (folder / name).write_bytes(data)
    return {name: expected for name, (_, expected) in files.items()}


def read_all(folder: Path) -> dict[str, list[str]]:
    """Outcome of reading every file of the folder, in a process that must end well."""
    command = [sys.executable, "-c", READ_THEM, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[str]], dict[str, str], Path]:
    folder, canary = tmp_path_factory.mktemp("hostile"), tmp_path_factory.mktemp("canary") / "executed"
    expected = write_all(folder, canary)
    return read_all(folder), expected, canary


def test_nothing_is_executed_and_nothing_crashes(outcome: Any) -> None:
    found, expected, canary = outcome
    assert not canary.exists()
    assert set(found) == set(expected)
    assert not [name for name, (kind, _) in found.items() if kind == "read"]


def test_code_is_refused_by_name(outcome: Any) -> None:
    found, _, canary = outcome
    for name, (_, expected) in payloads(canary).items():
        kind, message = found[f"{name}.pkl"]
        assert kind == "UnsafeFileError", (name, message)
        assert expected in message, (name, message)


def test_malformed_trees_are_refused_as_such(outcome: Any) -> None:
    found, expected, _ = outcome
    cases = [name for name, word in expected.items() if word == "malformed"]
    assert len(cases) == 4 * len(INDICES) + len(SHAPES)
    for name in cases:
        kind, message = found[name]
        # Genuine Trees refuse some of these by themselves on a trusted load; an unfitted one has no arrays.
        assert kind in ("UnsafeFileError", "InputError"), (name, message)
        if kind != "UnsafeFileError":
            assert name == "state-no-dictionary.pkl" or "trusted" in name, (name, message)


def test_damaged_files_never_crash(tmp_path: Path) -> None:
    """Truncated anywhere, or with a byte changed: an error or a model, never anything else."""
    rng = np.random.default_rng(1)
    originals = {
        "pkl": pickle.dumps(fitted()),
        "joblib": joblibbed(fitted()),
        "gz": joblibbed(fitted(), compress=("gzip", 3)),
        "skops": skops.io.dumps(fitted()),
    }
    for suffix, data in originals.items():
        for place in np.linspace(0, len(data) - 1, 12, dtype=int):
            (tmp_path / f"cut-{place:06}.{suffix}").write_bytes(data[:place])
        for number in range(60):
            changed = bytearray(data)
            changed[rng.integers(len(data))] ^= int(rng.integers(1, 256))
            (tmp_path / f"flip-{number:03}.{suffix}").write_bytes(changed)
    found = read_all(tmp_path)
    assert all(kind != "read" for name, (kind, _) in found.items() if name.startswith("cut")), found


# --- skops -------------------------------------------------------------------------------------------------------
def test_skops_refuses_other_types_by_name(tmp_path: Path) -> None:
    for attribute, name in (
        (np.sum, "numpy.sum"),
        (StandardScaler(), "sklearn.preprocessing._data.StandardScaler"),
        (PurePosixPath("a"), "PurePosixPath"),
    ):
        skops.io.dump(holding(class_weight=attribute), tmp_path / "model.skops")
        with pytest.raises(UnsafeFileError, match=name):
            read_model(tmp_path / "model.skops")


def test_skops_schema_that_names_a_function(tmp_path: Path) -> None:
    data = io.BytesIO(skops.io.dumps(fitted()))
    with zipfile.ZipFile(data) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members["schema.json"])
    schema["content"]["content"]["class_weight"] = {
        "__class__": "system",
        "__module__": "os",
        "__loader__": "FunctionNode",
        "content": {"module_path": "os", "function": "system"},
    }
    members["schema.json"] = json.dumps(schema).encode()
    with zipfile.ZipFile(tmp_path / "model.skops", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(UnsafeFileError, match=r"os\.system"):
        read_model(tmp_path / "model.skops")


def test_a_zip_that_is_no_skops_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(InputError, match="without a skops schema"):
        read_model(tmp_path / "model.zip")


# --- not a decision tree classifier ------------------------------------------------------------------------------
OTHERS = {
    "RandomForestClassifier": lambda: RandomForestClassifier(3).fit(IRIS, SPECIES),
    "DecisionTreeRegressor": lambda: DecisionTreeRegressor().fit(IRIS, SPECIES),
    "ExtraTreeClassifier": lambda: ExtraTreeClassifier().fit(IRIS, SPECIES),
    "Pipeline": lambda: make_pipeline(StandardScaler(), DecisionTreeClassifier()).fit(IRIS, SPECIES),
    "GridSearchCV": lambda: GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1]}, cv=2).fit(IRIS, SPECIES),
    "LogisticRegression": lambda: LogisticRegression(max_iter=1000).fit(IRIS, SPECIES),
    "dict": lambda: {"model": fitted()},
    "list": lambda: [fitted()],
    "array": lambda: IRIS,
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("suffix", ["pkl", "joblib", "skops"])
@pytest.mark.parametrize("trust", [False, True])
def test_other_objects_are_named(name: str, suffix: str, trust: bool, tmp_path: Path) -> None:
    path = tmp_path / f"model.{suffix}"
    {"pkl": lambda v, p: p.write_bytes(pickle.dumps(v)), "joblib": joblib.dump, "skops": skops.io.dump}[suffix](
        OTHERS[name](), path
    )
    with pytest.raises(InputError, match=f"model.{suffix}: holds a .*{name}") as caught:
        read_model(path, trust_pickle=trust)
    assert "DecisionTreeClassifier" in caught.value.hint


def save(value: Any, path: Path) -> Path:
    path.write_bytes(pickle.dumps(value))
    return path


def test_not_fitted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="never fitted"):
        read_model(save(DecisionTreeClassifier(), tmp_path / "model.pkl"))


@pytest.mark.parametrize("dump", [save, joblib.dump, skops.io.dump])
def test_several_outputs(dump: Any, tmp_path: Path) -> None:
    estimator = DecisionTreeClassifier().fit(IRIS, np.stack([SPECIES, SPECIES], axis=1))
    dump(estimator, tmp_path / "model.bin")
    with pytest.raises(InputError, match="2 outputs"):
        read_model(tmp_path / "model.bin")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"classes_": np.array([1, "1", 2], dtype=object)}, "two classes"),
        ({"classes_": np.array([1, None, 2], dtype=object)}, "NoneType"),
        ({"classes_": np.array([0.0, 1.0, np.nan])}, "no label"),
        ({"classes_": np.array([1 + 1j, 2, 3])}, "dtype c16"),
        ({"classes_": np.array([[0, 1, 2]])}, "classes"),
        ({"classes_": np.array([0, 1])}, "classes"),
        ({"classes_": "abc"}, "classes"),
        ({"feature_names_in_": np.array(["a", "b", "a", "c"], dtype=object)}, "two columns called 'a'"),
        ({"feature_names_in_": np.array(["a", "b"], dtype=object)}, "4 strings"),
        ({"feature_names_in_": np.array([1, 2, 3, 4], dtype=object)}, "4 strings"),
        ({"n_features_in_": 0}, "features"),
        ({"n_features_in_": 5}, "malformed"),
        ({"criterion": "own"}, "unknown criterion"),
        ({"splitter": np.array(["best", "best"])}, "unknown splitter"),
    ],
)
def test_attributes_that_cannot_be(attributes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_model(save(holding(**attributes), tmp_path / "model.pkl"))


# --- trust, and files that are no models -------------------------------------------------------------------------
def test_trust_pickle_reads_what_is_otherwise_refused(tmp_path: Path) -> None:
    for dump in (save, lambda v, p: (joblib.dump(v, p, compress=3), p)[1]):
        path = dump(holding(class_weight=PurePosixPath("a")), tmp_path / "model.pkl")
        with pytest.raises(UnsafeFileError, match=r"pathlib.*PurePosixPath") as caught:
            read_model(path)
        assert "--trust-pickle" in caught.value.hint
        model = read_model(path, trust_pickle=True)
        assert (model.predict(IRIS) == fitted().predict(IRIS)).all()


def test_trust_pickle_reports_what_the_file_raises(tmp_path: Path) -> None:
    path = save(Call(int, "no number"), tmp_path / "model.pkl")
    with pytest.raises(InputError, match="ValueError"):
        read_model(path, trust_pickle=True)


@pytest.mark.parametrize("name", ["model.pkl", "model.skops", "model.h5", "model"])
def test_files_that_are_not_there_or_empty(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_model(tmp_path / name)
    (tmp_path / name).touch()
    with pytest.raises(InputError, match="empty"):
        read_model(tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="is a folder"):
        read_model(tmp_path / name)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(fitted(), tmp_path / "model.pkl")
    if os.geteuid() == 0:  # root may read everything, so the refusal has to come from the call
        monkeypatch.setattr(
            Path, "read_bytes", lambda self: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
        )
    else:
        path.chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        read_model(path)


def test_an_unknown_kind_of_file_is_told_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x03\0\0\0")
    with pytest.raises(InputError, match="not a model file") as caught:
        read_model(tmp_path / "model.gguf")
    assert ".pkl" in caught.value.hint
    assert "scikit-learn" in caught.value.hint


def test_a_decompression_bomb_stops_at_the_limit() -> None:
    for method in ("zlib", "gzip", "bz2", "xz", "lzma"):
        data = joblibbed(bytes(1 << 20), compress=(method, 9))
        assert len(decompress(data)) > 1 << 20
        with pytest.raises(CannotDecompress, match="more than 0 MiB"):
            decompress(data, limit=1 << 19)


def test_joblib_before_0_10_is_named() -> None:
    with pytest.raises(CannotDecompress, match=r"joblib before 0\.10"):
        decompress(b"ZF0x10" + bytes(20))


def test_a_subclass_of_array_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    NumpyPickler(buffer).dump(holding(classes_=np.ma.masked_array([0, 1, 2])))
    (tmp_path / "model.joblib").write_bytes(buffer.getvalue())
    with pytest.raises(QuantifyError, match=r"numpy\.ma"):
        read_model(tmp_path / "model.joblib")

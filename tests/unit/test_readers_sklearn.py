"""Fitted trees, saved in every way, read back: structure and predict against the library's own."""

from __future__ import annotations

import pickle
from pathlib import Path

import joblib
import numpy as np
import pytest
import skops.io
from numpy._core import multiarray, numeric
from sklearn import __version__ as sklearn_version
from sklearn.datasets import load_iris
from sklearn.tree import DecisionTreeClassifier

from quantify.errors import InputError
from quantify.ir.model import Model
from quantify.readers import read_model

IRIS, SPECIES = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"], dtype=object)


def walk(model: Model, rows: np.ndarray) -> list[int]:
    """Class indices by following the IR tree, in float32 arithmetic, one row at a time."""
    tree, labels = model.structure, []
    for row in rows.astype(np.float32):
        node = 0
        while tree.column[node] >= 0:
            value = row[tree.column[node]]
            goes_left = tree.missing_left[node] if np.isnan(value) else np.float64(value) <= tree.threshold[node]
            node = tree.left[node] if goes_left else tree.right[node]
        labels.append(tree.label[node])
    return labels


def near_thresholds(estimator: DecisionTreeClassifier, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows with values at, and one float32 and float64 step around, the thresholds of their columns."""
    tree, found = estimator.tree_, [rows]
    for column, threshold in zip(tree.feature, tree.threshold, strict=True):
        if column < 0 or not np.isfinite(threshold):
            continue
        nearest = np.float32(threshold)
        for value in (
            threshold,
            np.nextafter(threshold, np.inf),
            np.nextafter(threshold, -np.inf),
            nearest,
            np.nextafter(nearest, np.float32(np.inf)),
            np.nextafter(nearest, np.float32(-np.inf)),
        ):
            row = rows[rng.integers(len(rows))].copy()
            row[column] = value
            found.append(row[None])
    return np.concatenate(found)


def save(estimator: object, path: Path, protocol: int | None = None) -> Path:
    path.write_bytes(pickle.dumps(estimator, protocol))
    return path


def check(model: Model, estimator: DecisionTreeClassifier, rows: np.ndarray) -> None:
    expected = [str(label) for label in estimator.predict(rows)]
    assert [model.classes[k] for k in model.predict(rows)] == expected
    assert [model.classes[k] for k in walk(model, rows)] == expected


@pytest.mark.parametrize("seed", range(12))
def test_random_trees_agree_with_predict(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    columns, count = int(rng.integers(1, 9)), int(rng.integers(5, 120))
    rows = [
        rng.normal(size=(count, columns)),
        rng.integers(-3, 4, (count, columns)) / 4,
        rng.random((count, columns)) * 1e-30,
    ][seed % 3]
    missing = seed % 4 == 3
    if missing:
        rows[rng.random(rows.shape) < 0.3] = np.nan
    labels = [rng.integers(0, 2, count), rng.integers(-5, 5, count), np.array(list("abcd"))[rng.integers(0, 4, count)]][
        seed % 3
    ]
    estimator = DecisionTreeClassifier(
        criterion=("gini", "entropy", "log_loss")[seed % 3],
        splitter="random" if seed % 5 == 4 else "best",
        max_depth=int(rng.integers(1, 12)),
        max_leaf_nodes=7 if seed % 6 == 5 else None,
        ccp_alpha=0.01 if seed % 6 == 1 else 0.0,
        class_weight="balanced" if seed % 2 else None,
        random_state=seed,
    ).fit(rows, labels)
    model = read_model(save(estimator, tmp_path / "model.pkl"))
    check(model, estimator, near_thresholds(estimator, np.concatenate([rows, rng.normal(size=(200, columns))]), rng))
    assert (model.kind, model.columns, model.column_names) == ("tree", columns, None)
    assert model.structure.leaves == estimator.get_n_leaves()
    assert model.library == f"scikit-learn {sklearn_version}"
    assert model.accepts_missing


WAYS = {
    **{f"pickle-{n}": (lambda e, p, n=n: save(e, p, n)) for n in range(6)},
    **{f"joblib-{n}": (lambda e, p, n=n: joblib.dump(e, p, protocol=n)) for n in range(2, 6)},
    **{
        f"joblib-{name}": (lambda e, p, name=name: joblib.dump(e, p, compress=(name, 3)))
        for name in ("zlib", "gzip", "bz2", "lzma", "xz")
    },
    "skops": skops.io.dump,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (SPECIES, ("0", "1", "2")),
        (NAMES[SPECIES], tuple(NAMES)),
        (NAMES[SPECIES].astype(str), tuple(NAMES)),
        (SPECIES > 0, ("False", "True")),
        (SPECIES / 1.0 - 1, ("-1.0", "0.0", "1.0")),
        (SPECIES.astype(np.float32), ("0.0", "1.0", "2.0")),
        ((SPECIES * 100).astype(np.uint8), ("0", "100", "200")),
    ],
    ids=["int", "object", "str", "bool", "float64", "float32", "uint8"],
)
def test_every_way_to_save(way: str, labels: np.ndarray, classes: tuple[str, ...], tmp_path: Path) -> None:
    estimator = DecisionTreeClassifier(max_depth=4, random_state=0).fit(IRIS, labels)
    WAYS[way](estimator, tmp_path / "model.bin")
    model = read_model(tmp_path / "model.bin")
    assert model.classes == classes
    check(model, estimator, IRIS)


@pytest.mark.parametrize("way", ["pickle-0", "pickle-2", "pickle-5", "joblib-4", "joblib-zlib", "skops"])
@pytest.mark.parametrize(
    "state",
    [
        np.random.RandomState(),
        np.random.RandomState(np.random.MT19937(np.random.SeedSequence(5))),
        np.random.mtrand._rand,
    ],
    ids=["fresh", "seeded", "global"],
)
def test_random_state_objects_are_skipped_over(way: str, state: np.random.RandomState, tmp_path: Path) -> None:
    estimator = DecisionTreeClassifier(random_state=state, class_weight={0: 1, 1: 2.5, 2: 1}).fit(IRIS, SPECIES)
    WAYS[way](estimator, tmp_path / "model.bin")
    check(read_model(tmp_path / "model.bin"), estimator, IRIS)


@pytest.mark.parametrize("way", ["pickle-0", "pickle-2", "pickle-4", "pickle-5", "joblib-4"])
@pytest.mark.parametrize("core", ["numpy.core", "numpy._core"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_both_names_of_numpy_core(way: str, core: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = DecisionTreeClassifier(random_state=0).fit(IRIS, NAMES[SPECIES])
    for function, module in (
        (multiarray._reconstruct, "multiarray"),
        (multiarray.scalar, "multiarray"),
        (numeric._frombuffer, "numeric"),
    ):
        monkeypatch.setattr(function, "__module__", f"{core}.{module}")
    WAYS[way](estimator, tmp_path / "model.pkl")
    data = (tmp_path / "model.pkl").read_bytes()
    assert core.encode() in data
    assert (b"numpy.core" in data) != (b"numpy._core" in data)
    check(read_model(tmp_path / "model.pkl"), estimator, IRIS)


def test_column_names_are_kept_and_predict_is_silent(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    pandas = pytest.importorskip("pandas")
    names = ["sepal length (cm)", "b", "c", "d"]
    estimator = DecisionTreeClassifier(random_state=0).fit(pandas.DataFrame(IRIS, columns=names), SPECIES)
    for way in ("pickle-5", "joblib-4", "skops"):
        WAYS[way](estimator, tmp_path / "model.bin")
        model = read_model(tmp_path / "model.bin")
        assert model.column_names == tuple(names)
        model.predict(IRIS)
    assert not [warning for warning in recwarn if "quantify" in warning.filename or "sklearn" in warning.filename]


def test_a_single_leaf(tmp_path: Path) -> None:
    estimator = DecisionTreeClassifier().fit(IRIS, np.full(len(IRIS), "only"))
    model = read_model(save(estimator, tmp_path / "model.pkl"))
    assert (model.structure.column, model.structure.label, model.classes) == ((-1,), (0,), ("only",))
    check(model, estimator, IRIS)


def test_ties_go_to_the_lowest_class(tmp_path: Path) -> None:
    rows = np.array([[0.0], [0.0], [0.0], [1.0], [1.0]])
    estimator = DecisionTreeClassifier().fit(rows, ["c", "b", "a", "c", "b"])
    model = read_model(save(estimator, tmp_path / "model.pkl"))
    assert [model.classes[k] for k in walk(model, np.array([[0.0], [1.0]]))] == ["a", "b"]
    check(model, estimator, rows)


def test_a_split_on_missing_alone_has_a_finite_threshold(tmp_path: Path) -> None:
    rows = np.array([[1.0], [2.0], [3.0], [np.nan], [np.nan]])
    estimator = DecisionTreeClassifier().fit(rows, [0, 0, 0, 1, 1])
    assert estimator.tree_.threshold[0] == np.inf
    model = read_model(save(estimator, tmp_path / "model.pkl"))
    assert np.isfinite(model.structure.threshold).all()
    largest = float(np.finfo(np.float32).max)
    check(model, estimator, np.array([[largest], [-largest], [0.0], [np.nan]]))


def test_unreachable_nodes_are_dropped(tmp_path: Path) -> None:
    estimator = DecisionTreeClassifier(max_depth=2, random_state=0).fit(IRIS, SPECIES)
    tree = estimator.tree_
    state = tree.__getstate__()
    state["nodes"] = np.concatenate([state["nodes"], state["nodes"][-1:]])
    state["values"] = np.concatenate([state["values"], state["values"][-1:]])
    state["node_count"] += 1
    longer = type(tree)(4, np.array([3]), 1)
    longer.__setstate__(state)
    estimator.tree_ = longer
    model = read_model(save(estimator, tmp_path / "model.pkl"))
    assert len(model.structure.column) == longer.node_count - 1
    check(model, estimator, IRIS)


def test_the_other_byte_order_and_word_size(tmp_path: Path) -> None:
    estimator = DecisionTreeClassifier(max_depth=3, random_state=0).fit(IRIS, SPECIES)

    class Elsewhere:
        """A tree as a big-endian or 32-bit machine would have saved it."""

        def __init__(self, dtype: np.dtype) -> None:
            self.dtype = dtype

        def __reduce__(self) -> tuple[object, ...]:
            kind, arguments, state = estimator.tree_.__reduce__()
            state["nodes"] = state["nodes"].astype(self.dtype)
            state["values"] = state["values"].astype(">f8")
            return kind, arguments, state

    ours = estimator.tree_.__getstate__()["nodes"].dtype
    narrow = np.dtype([(name, ours[name].str.replace("i8", "i4")) for name in ours.names], align=True)
    for dtype in (ours.newbyteorder(), narrow, narrow.newbyteorder()):
        copy = DecisionTreeClassifier()
        copy.__dict__.update({**estimator.__dict__, "tree_": Elsewhere(dtype)})
        check(read_model(save(copy, tmp_path / "model.pkl")), estimator, IRIS)


def test_large_matrices_are_predicted_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = DecisionTreeClassifier(random_state=0).fit(IRIS, SPECIES)
    model = read_model(save(estimator, tmp_path / "model.pkl"))
    rows = np.repeat(IRIS, 8000, axis=0)
    assert len(rows) * 4 > 1 << 22
    assert (model.predict(rows) == np.repeat(estimator.predict(IRIS), 8000)).all()
    assert model.predict(np.empty((0, 4))).shape == (0,)


def test_the_digest_is_of_the_bytes(tmp_path: Path) -> None:
    import hashlib

    path = save(DecisionTreeClassifier().fit(IRIS, SPECIES), tmp_path / "model.pkl")
    model = read_model(path)
    assert model.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert model.path == str(path)


def test_a_neighbouring_version_is_read_without_a_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    estimator = DecisionTreeClassifier(random_state=0).fit(IRIS, SPECIES)
    data = pickle.dumps(estimator)
    older = "1" * len(sklearn_version)
    (tmp_path / "model.pkl").write_bytes(data.replace(sklearn_version.encode(), older.encode()))
    model = read_model(tmp_path / "model.pkl")
    assert model.library == f"scikit-learn {sklearn_version} (file saved by {older})"
    assert not recwarn.list


# --- an older scikit-learn ---------------------------------------------------------------------------------------
OLD_FIELDS = [
    "left_child",
    "right_child",
    "feature",
    "threshold",
    "impurity",
    "n_node_samples",
    "weighted_n_node_samples",
]


class OldTree:
    """Pickles like the tree of scikit-learn 1.2, which knew no missing values."""

    def __init__(self, tree: object) -> None:
        self.tree = tree

    def __reduce__(self) -> tuple[object, ...]:
        kind, arguments, state = self.tree.__reduce__()
        layout = [(name, "<f8" if name in OLD_FIELDS[3:5] + OLD_FIELDS[6:] else "<i8") for name in OLD_FIELDS]
        nodes = np.empty(len(state["nodes"]), dtype=layout)
        for name in OLD_FIELDS:
            nodes[name] = state["nodes"][name]
        return kind, arguments, {**state, "nodes": nodes}


@pytest.mark.parametrize("trust", [False, True])
def test_a_tree_of_1_2_is_an_error_that_names_both_versions(trust: bool, tmp_path: Path) -> None:
    estimator = DecisionTreeClassifier(random_state=0).fit(IRIS, SPECIES)
    estimator.tree_ = OldTree(estimator.tree_)
    for dump in (WAYS["pickle-4"], WAYS["joblib-4"]):
        dump(estimator, tmp_path / "model.pkl")
        data = (tmp_path / "model.pkl").read_bytes()
        assert data.count(sklearn_version.encode()) == 1
        (tmp_path / "model.pkl").write_bytes(data.replace(sklearn_version.encode(), b"1.2.2"))
        with pytest.raises(InputError, match=rf"scikit-learn 1\.2\.2, .*scikit-learn {sklearn_version}") as caught:
            read_model(tmp_path / "model.pkl", trust_pickle=trust)
        assert f"fit the model again with scikit-learn {sklearn_version}" in caught.value.hint

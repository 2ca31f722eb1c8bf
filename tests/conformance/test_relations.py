"""The eleven relational properties of QuantifyML at 4 nodes: every engine, and CBMC with Ganak, against enumeration."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from quantify import pipeline
from quantify.engines import evaluate
from quantify.engines.enumerate import EnumerateEngine
from quantify.engines.native_network import ISAS
from quantify.resources import Limits, Progress

NODES = 4
ALL = np.array(list(itertools.product((0, 1), repeat=NODES * NODES)), dtype=np.int8)
MATRICES: NDArray[np.bool_] = ALL.reshape(-1, NODES, NODES).astype(bool)
TRANSPOSED = MATRICES.transpose(0, 2, 1)
DIAGONAL = np.eye(NODES, dtype=bool)
COMPOSED = np.einsum("nij,njk->nik", MATRICES.astype(int), MATRICES.astype(int)) > 0

reflexive = (MATRICES | ~DIAGONAL).all(axis=(1, 2))
irreflexive = (~MATRICES | ~DIAGONAL).all(axis=(1, 2))
symmetric = (MATRICES == TRANSPOSED).all(axis=(1, 2))
antisymmetric = (~(MATRICES & TRANSPOSED) | DIAGONAL).all(axis=(1, 2))
transitive = (~COMPOSED | MATRICES).all(axis=(1, 2))
connex = (MATRICES | TRANSPOSED).all(axis=(1, 2))
TRUTH = {
    "antisymmetric": antisymmetric,
    "connex": connex,
    "semiconnex": (MATRICES | TRANSPOSED | DIAGONAL).all(axis=(1, 2)),
    "equivalence": reflexive & symmetric & transitive,
    "irreflexive": irreflexive,
    "nonstrictorder": reflexive & antisymmetric & transitive,
    "partialorder": antisymmetric & transitive,
    "preorder": reflexive & transitive,
    "reflexive": reflexive,
    "strictorder": irreflexive & transitive,
    "totalorder": reflexive & antisymmetric & transitive & connex,
    "transitive": transitive,
}
ELEVEN = [name for name in TRUTH if name != "semiconnex"]

# Published: DESIGN's calibration table for relations on 4 nodes (OEIS A000110, A006905, A000798, A001035, …).
PUBLISHED = {
    "antisymmetric": 11664, "connex": 729, "semiconnex": 11664, "equivalence": 15, "irreflexive": 4096,
    "nonstrictorder": 219, "partialorder": 3504, "preorder": 355, "reflexive": 4096, "strictorder": 219,
    "totalorder": 24, "transitive": 3994,
}  # fmt: skip

Prepare = Callable[[str], tuple[pipeline.Prepared, dict[str, int]]]


def test_the_oracle_gives_the_published_counts() -> None:
    assert {name: int(truth.sum()) for name, truth in TRUTH.items()} == PUBLISHED


@pytest.fixture
def prepare(tmp_path: Path) -> Prepare:
    """A tree trained on a balanced sample of the property, with the confusion counts by scikit-learn's predict."""

    def make(name: str) -> tuple[pipeline.Prepared, dict[str, int]]:
        truth, draw = TRUTH[name], np.random.default_rng(7)
        positives, negatives = np.flatnonzero(truth), np.flatnonzero(~truth)
        size = min(len(positives), 300)
        rows = np.concatenate([draw.choice(positives, size, False), draw.choice(negatives, size, False)])
        tree = DecisionTreeClassifier(random_state=0).fit(ALL[rows], truth[rows].astype(int))
        (tmp_path / "model.pkl").write_bytes(pickle.dumps(tree))
        (tmp_path / "property.yaml").write_text(
            f"property: learnability\nname: {name}\ndomain: {{relation: {{nodes: 4}}}}\n"
            f"ground_truth: {name}\npositive: 1\n"
        )
        said = tree.predict(ALL) == 1
        expected = {"tp": said & truth, "fp": said & ~truth, "tn": ~said & ~truth, "fn": ~said & truth}
        ready = pipeline.prepare(tmp_path / "model.pkl", tmp_path / "property.yaml", pipeline.Options(), Progress())
        return ready, {key: int(value.sum()) for key, value in expected.items()}

    return make


def counted(engine: str, ready: pipeline.Prepared, counter: str = "ganak") -> dict[str, int]:
    known = pipeline.available_engines(pipeline.Options(engine=engine, counter=counter))
    case = replace(ready.grid.cases[0], queries=tuple(q for q in ready.grid.cases[0].queries if q.reported))
    assert known[engine].refuses(ready.grid, case) is None
    counts = known[engine].count(ready.grid, case, Limits(), Progress())
    assert all(count.lower == count.upper for count in counts.values())
    return {name: count.lower for name, count in counts.items()}


@pytest.mark.parametrize("name", ELEVEN)
@pytest.mark.parametrize("engine", ["enumerate", "bdd", "boxes"])
def test_exact_engines(engine: str, name: str, prepare: Prepare) -> None:
    ready, expected = prepare(name)
    assert sum(expected.values()) == 65_536
    assert counted(engine, ready) == expected


def drawn_network(path: Path, sizes: tuple[int, ...], seed: int) -> NDArray[np.bool_]:
    """Writes a `.nnet` of ReLUs and integer weights; whether each relation gets label 1, by numpy."""
    draw = np.random.default_rng(seed)
    inputs, widest = NODES * NODES, max(NODES * NODES, *sizes)
    lines = [f"{len(sizes)},{inputs},{sizes[-1]},{widest},", ",".join(map(str, (inputs, *sizes))) + ",", "0,"]
    lines += ["0," * inputs, "1," * inputs, "0," * (inputs + 1), "1," * (inputs + 1)]
    values = ALL.astype(np.int64)
    for number, size in enumerate(sizes):
        weights, biases = draw.integers(-127, 128, (size, values.shape[1])), draw.integers(-99, 100, size)
        sums = values @ weights.T + biases
        if number + 1 == len(sizes):  # else most networks say the same of nearly all relations
            middle = int(np.median(sums[:, 1] - sums[:, 0]))
            biases[1] -= middle
            sums[:, 1] -= middle
        lines += [",".join(map(str, row)) + "," for row in weights.tolist()] + [f"{b}," for b in biases.tolist()]
        values = sums if number + 1 == len(sizes) else np.maximum(sums, 0)
    path.write_text("\n".join(lines) + "\n")
    return np.asarray(values.argmax(axis=1) == 1)


@pytest.mark.parametrize("name", ELEVEN)
def test_networks_in_bit_slices_and_point_by_point(name: str, tmp_path: Path) -> None:
    """On every instruction set here, by the property file, with one and two hidden layers, in blocks of two sizes."""
    truth = TRUTH[name]
    (tmp_path / "property.yaml").write_text(
        f"property: learnability\nname: {name}\ndomain: {{relation: {{nodes: 4}}}}\nground_truth: {name}\npositive: 1\n"
    )
    available = [isa for isa, code in ISAS.items() if isa and evaluate.native().network_has(code)]
    assert "portable" in available
    for seed, sizes in enumerate(((8, 2), (5, 4, 2))):
        said = drawn_network(tmp_path / "model.nnet", sizes, seed)
        parts = {"tp": said & truth, "fp": said & ~truth, "tn": ~said & ~truth, "fn": ~said & truth}
        expected = {key: int(part.sum()) for key, part in parts.items()}
        assert min(said.sum(), (~said).sum()) > 20_000
        grid = pipeline.prepare(
            tmp_path / "model.nnet", tmp_path / "property.yaml", pipeline.Options(), Progress()
        ).grid
        case = replace(grid.cases[0], queries=tuple(q for q in grid.cases[0].queries if q.reported))
        for isa in available:
            for slices, lane_bits in ((True, 13), (True, 7), (False, 13)):
                engine = EnumerateEngine(isa, slices, lane_bits)
                counts = engine.count(grid, case, Limits(jobs=2), Progress())
                assert {key: count.lower for key, count in counts.items()} == expected
                assert all(count.lower == count.upper for count in counts.values())
        for query in case.queries:
            point = EnumerateEngine().witness(grid, case, query, Limits())
            assert (point is None) == (expected[query.name] == 0)
            assert point is None or parts[query.name][int("".join(map(str, point)), 2)]


@pytest.mark.slow
@pytest.mark.needs("cbmc")
@pytest.mark.parametrize("name", ELEVEN)
def test_cbmc_and_ganak(name: str, prepare: Prepare) -> None:
    ready, expected = prepare(name)
    assert counted("cnf", ready) == expected

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


@pytest.mark.slow
@pytest.mark.needs("cbmc")
@pytest.mark.parametrize("name", ELEVEN)
def test_cbmc_and_ganak(name: str, prepare: Prepare) -> None:
    ready, expected = prepare(name)
    assert counted("cnf", ready) == expected

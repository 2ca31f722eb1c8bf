"""Training sets for relational properties: positives enumerated by a SAT solver, negatives drawn at random.

QuantifyML (section 4) enumerated its positives with Alloy; here the same first-order definitions are written as
clauses over the n×n adjacency variables and enumerated with PySAT.
"""

from __future__ import annotations

import csv
import itertools
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from harness import WORK
from numpy.typing import NDArray
from pysat.solvers import Solver
from sklearn.tree import DecisionTreeClassifier

Clause = list[int]


def _variable(n: int, i: int, j: int) -> int:
    return n * i + j + 1


def reflexive(n: int) -> Iterator[Clause]:
    """Every node is related to itself."""
    return ([_variable(n, i, i)] for i in range(n))


def irreflexive(n: int) -> Iterator[Clause]:
    """No node is related to itself."""
    return ([-_variable(n, i, i)] for i in range(n))


def symmetric(n: int) -> Iterator[Clause]:
    """i→j gives j→i."""
    return ([-_variable(n, i, j), _variable(n, j, i)] for i, j in itertools.permutations(range(n), 2))


def antisymmetric(n: int) -> Iterator[Clause]:
    """Not both i→j and j→i for i ≠ j."""
    return ([-_variable(n, i, j), -_variable(n, j, i)] for i, j in itertools.combinations(range(n), 2))


def transitive(n: int) -> Iterator[Clause]:
    """i→j and j→k give i→k."""
    return (
        [-_variable(n, i, j), -_variable(n, j, k), _variable(n, i, k)]
        for i, j, k in itertools.product(range(n), repeat=3)
    )


def connex(n: int) -> Iterator[Clause]:
    """i→j or j→i for all i, j, the diagonal included."""
    return ([_variable(n, i, j), _variable(n, j, i)] for i, j in itertools.combinations_with_replacement(range(n), 2))


PROPERTIES: dict[str, tuple[Callable[[int], Iterator[Clause]], ...]] = {
    "antisymmetric": (antisymmetric,),
    "connex": (connex,),
    "equivalence": (reflexive, symmetric, transitive),
    "irreflexive": (irreflexive,),
    "nonstrictorder": (reflexive, antisymmetric, transitive),
    "partialorder": (antisymmetric, transitive),
    "preorder": (reflexive, transitive),
    "reflexive": (reflexive,),
    "strictorder": (irreflexive, transitive),
    "totalorder": (reflexive, antisymmetric, transitive, connex),
    "transitive": (transitive,),
}
"""The eleven properties of QuantifyML's Table 1."""
POSITIVES = {4: 1_000, 5: 2_000, 6: 5_000}
"""At most so many positives, and as many negatives, in a training set; a quarter is kept for testing."""

Rows = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Adjacency matrices, row by row, and their labels."""


def clauses(name: str, n: int) -> list[Clause]:
    """The property over n nodes as clauses; a literal twice in a clause is written once."""
    return [sorted(set(clause)) for part in PROPERTIES[name] for clause in part(n)]


def task(name: str, n: int) -> tuple[Path, Rows, Rows]:
    """Folder with `property.yaml` and the test set as `test.csv`; the rows to train on; those to test on."""
    folder = WORK / f"{name}{n}"
    folder.mkdir(parents=True, exist_ok=True)
    rows, labels = training_set(name, n, POSITIVES[n], seed=1)
    cut = max(1, len(rows) * 3 // 4)
    write_property(folder / "property.yaml", name, n)
    with (folder / "test.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"r_{i}_{j}" for i in range(n) for j in range(n)), "label"])
        writer.writerows([*row.tolist(), int(label)] for row, label in zip(rows[cut:], labels[cut:], strict=True))
    return folder, (rows[:cut], labels[:cut]), (rows[cut:], labels[cut:])


def tree(folder: Path, train: Rows) -> tuple[Path, int]:
    """A decision tree trained on these rows, as `tree.pkl` of the folder; its path and its number of leaves."""
    model = DecisionTreeClassifier(random_state=1).fit(*train)
    path = folder / "tree.pkl"
    path.write_bytes(pickle.dumps(model))
    return path, int(model.get_n_leaves())


def write_property(path: Path, name: str, n: int, more: str = "") -> None:
    """The property file that asks how well a model has learnt the relation; `more` are further lines."""
    path.write_text(
        f"property: learnability\nname: {name}-{n}\ndomain: {{relation: {{nodes: {n}}}}}\n"
        f"ground_truth: {name}\npositive: 1\n{more}",
        encoding="utf-8",
    )


def holds(name: str, n: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each row is a relation with the property."""
    bits = rows.astype(bool)
    true = np.ones(len(rows), bool)
    for clause in clauses(name, n):
        true &= np.logical_or.reduce([bits[:, abs(x) - 1] == (x > 0) for x in clause])
    return true


def training_set(name: str, n: int, at_most: int, seed: int) -> Rows:
    """Up to `at_most` distinct positives and as many distinct random negatives, shuffled: (rows × n², labels)."""
    draw = random.Random(f"{name} {n} {seed}")
    formula = clauses(name, n)
    positives = _positives(formula, n * n, at_most, draw)
    negatives: set[tuple[int, ...]] = set()
    while len(negatives) < len(positives):
        row = tuple(draw.getrandbits(1) for _ in range(n * n))
        if any(all((row[abs(x) - 1] == 1) != (x > 0) for x in clause) for clause in formula):
            negatives.add(row)
    rows = [(row, 1) for row in positives] + [(row, 0) for row in sorted(negatives)]
    draw.shuffle(rows)
    return np.array([row for row, _ in rows]), np.array([label for _, label in rows])


def _positives(formula: list[Clause], variables: int, at_most: int, draw: random.Random) -> list[tuple[int, ...]]:
    """Models of the formula, each excluded once found; random phases spread them over the space."""
    found: list[tuple[int, ...]] = []
    with Solver(name="glucose4", bootstrap_with=formula) as solver:
        while len(found) < at_most:
            solver.set_phases([v if draw.getrandbits(1) else -v for v in range(1, variables + 1)])
            if not solver.solve():
                break
            model = [v for v in solver.get_model() if abs(v) <= variables]
            present = {abs(v): v for v in model}
            row = tuple(int(present.get(v, -v) > 0) for v in range(1, variables + 1))
            found.append(row)
            solver.add_clause([-v if bit else v for v, bit in enumerate(row, 1)])
    return found

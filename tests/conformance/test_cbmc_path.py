"""The path integer problem → C → CBMC → formula against enumeration, and the same C under gcc.

Formulas are counted by enumerating projected models with a SAT solver, so that no counter is involved.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from cnf_brute import projected_models
from random_grids import points, random_problem

from quantify.cnf.cbmc import translate
from quantify.cnf.codegen import emit_program, symbols
from quantify.cnf.formula import Cnf
from quantify.errors import MissingToolError, UndecidedError
from quantify.ir.domain import Measure
from quantify.ir.predicate import (
    AllOf,
    Always,
    AnyOf,
    CountOf,
    Extreme,
    FloorDiv,
    HasLabel,
    IntExpr,
    Linear,
    Negation,
    Plus,
    Predicate,
    Sign,
    Times,
    Within,
)
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree, Region
from quantify.resources import Limits

RANDOM_SEEDS = range(25)


# --- the meaning of the IR, written down once more ---------------------------------------------------------------
def number(expression: IntExpr, at: Sequence[int], label: int) -> int:
    match expression:
        case Linear(terms, constant):
            return constant + sum(c * at[f] for f, c in terms)
        case Plus(arguments):
            return sum(number(a, at, label) for a in arguments)
        case Times(left, right):
            return number(left, at, label) * number(right, at, label)
        case FloorDiv(argument, divisor):
            return number(argument, at, label) // divisor
        case Extreme(which, arguments):
            return (min if which == "min" else max)(number(a, at, label) for a in arguments)
        case CountOf(arguments):
            return sum(truth(a, at, label) for a in arguments)


def truth(predicate: Predicate, at: Sequence[int], label: int) -> bool:
    match predicate:
        case Always(value):
            return value
        case Within(feature, low, high):
            return low <= at[feature] < high
        case HasLabel(labels):
            return label in labels
        case Sign(op, argument):
            value = number(argument, at, label)
            return {"<": value < 0, "<=": value <= 0, "==": value == 0, "!=": value != 0}[op]
        case Negation(argument):
            return not truth(argument, at, label)
        case AllOf(arguments):
            return all(truth(a, at, label) for a in arguments)
        case AnyOf(arguments):
            return any(truth(a, at, label) for a in arguments)


def label_of(tree: GridTree, at: Sequence[int]) -> int:
    node = 0
    while tree.feature[node] >= 0:
        right = tree.low[node] <= at[tree.feature[node]] < tree.high[node]
        node = tree.right[node] if right else tree.left[node]
    return tree.label[node]


def expected(problem: GridProblem, case: GridCase) -> dict[str, set[tuple[int, ...]]]:
    """The points of each query, by enumeration."""
    found: dict[str, set[tuple[int, ...]]] = {query.name: set() for query in case.queries}
    for at in points(case.region):
        label = label_of(problem.tree, at)
        for query in case.queries:
            if truth(query.predicate, at, label):
                found[query.name].add(at)
    return found


# --- problems made by hand ---------------------------------------------------------------------------------------
SIZES = (5, 3, 2, 8, 4)
TREE = GridTree(  # node 3 is shared, node 1 splits three ways on feature 1, node 4 splits off a missing position
    feature=(0, 1, 3, 2, 0, 4, -1, -1, -1),
    low=(2, 1, 3, 1, 1, 3, 0, 0, 0),
    high=(5, 2, 8, 2, 4, 4, 0, 0, 0),
    left=(1, 4, 3, 6, 3, 6, 0, 0, 0),
    right=(2, 3, 5, 7, 8, 8, 0, 0, 0),
    label=(-1, -1, -1, -1, -1, -1, 0, 1, 2),
)
WHOLE = Box((0,) * 5, SIZES)
PART = Box((1, 1, 0, 2, 3), (5, 2, 2, 8, 4))


def line(*coefficients: int, constant: int = 0) -> Linear:
    return Linear(tuple((f, c) for f, c in enumerate(coefficients) if c), constant)


PREDICATES: dict[str, Predicate] = {
    "always": Always(True),
    "never": Always(False),
    "always, unseen": Sign("<=", Plus((line(1), Times(line(-1), line(1))))),
    "never, unseen": Sign("<", Plus((Times(line(1), line(1)), line(-1)))),
    "one label": HasLabel((1,)),
    "two labels": HasLabel((0, 2)),
    "no label": HasLabel(()),
    "every label": HasLabel((0, 1, 2)),
    "labels apart": AnyOf((AllOf((HasLabel((0,)), Within(3, 0, 4))), AllOf((HasLabel((2,)), Within(3, 5, 8))))),
    "within": Within(0, 1, 4),
    "outside the grid": AnyOf((Within(0, 5, 9), Within(3, 3, 3), Within(1, -2, 1))),
    "missing position": Negation(Within(0, 4, 5)),
    "empty conjunction": AllOf(()),
    "empty disjunction": AnyOf(()),
    "less": Sign("<", line(2, -3, 0, 1, constant=-4)),
    "at most": Sign("<=", line(-4, 6, 8, constant=5)),
    "equal": Sign("==", line(2, 0, 0, -1, constant=1)),
    "equal, wrong parity": Sign("==", line(2, 4, 6, constant=1)),
    "not equal": Sign("!=", line(1, -1, 3, -1)),
    "single, negative": Sign("<", line(-3, constant=7)),
    "negative only": Sign("<=", line(-1, -2, 0, -1, constant=9)),
    "many terms": Sign("<=", line(1, 2, -3, 4, -5, constant=-6)),
    "floor of negative": Sign("==", Plus((FloorDiv(line(1, -1, 0, -1, constant=-2), 3), Linear((), 2)))),
    "floor by one": Sign("<", FloorDiv(line(1, -3), 1)),
    "floor, folded": Sign("==", FloorDiv(line(0, 0, 1), 2)),
    "remainder": Sign(
        "==", Plus((line(1, 0, 0, 1), Times(Linear((), -3), FloorDiv(line(1, 0, 0, 1), 3)), Linear((), -1)))
    ),
    "product": Sign("<", Plus((Times(line(1, 0, 0, -1), line(0, 1, 0, 1, constant=-4)), Linear((), 3)))),
    "square": Sign("==", Plus((Times(line(1, -1), line(1, -1)), Linear((), -4)))),
    "constant factor": Sign(
        "<",
        Plus((Times(Linear((), -3), line(1)), Times(line(0, 1), Linear((), 4)), Times(Linear((), 0), line(0, 0, 1)))),
    ),
    "minimum": Sign("<", Plus((Extreme("min", (line(1), line(0, 2, constant=-1), line(0, 0, 0, 1))), Linear((), -2)))),
    "maximum with a constant": Sign(
        "==", Plus((Extreme("max", (line(1, constant=-4), Linear((), -2), line(0, -1))), Linear((), 1)))
    ),
    "maximum, dominated": Sign("<=", Plus((Extreme("max", (line(1), line(0, 0, 1, constant=-9))), Linear((), -3)))),
    "minimum of one": Sign("<", Extreme("min", (line(1, -2),))),
    "count": Sign(
        "==",
        Plus(
            (CountOf((Within(0, 0, 2), Within(3, 2, 5), HasLabel((1,)), Within(2, 1, 2), Always(True))), Linear((), -3))
        ),
    ),
    "count in arithmetic": Sign(
        "<", Plus((Times(CountOf((Within(0, 1, 3), HasLabel((0,)))), line(0, 0, 0, 1)), line(-2)))
    ),
    "nested": Negation(
        AnyOf((AllOf((Within(0, 0, 3), Negation(HasLabel((0,))))), Negation(Sign("<=", line(1, 1, 1, -1)))))
    ),
    "contradiction": AllOf((Within(0, 1, 3), Negation(Within(0, 1, 3)))),
    "tautology": AnyOf((Sign("<", line(1, -1)), Negation(Sign("<", line(1, -1))))),
}

REGIONS: dict[str, Region] = {
    "domain": WHOLE,
    "box": PART,
    "point": Box((2, 1, 1, 3, 0), (3, 2, 2, 4, 1)),
    "empty": Box((2, 1, 1, 3, 0), (3, 2, 2, 3, 1)),
    "l1": Ball(WHOLE, (2, 0, 1, 7, 1), "l1", (1, 2, 1, 1, 3), 5),
    "l1, weight zero": Ball(PART, (2, 1, 1, 4, 3), "l1", (2, 1, 0, 3, 1), 4),
    "l1, only the centre": Ball(WHOLE, (2, 0, 1, 7, 1), "l1", (1, 2, 1, 1, 3), 0),
    "l0": Ball(WHOLE, (2, 0, 1, 7, 1), "l0", (1,) * 5, 2),
    "l0, everything": Ball(PART, (2, 1, 1, 4, 3), "l0", (1,) * 5, 5),
    "l0, only the centre": Ball(WHOLE, (2, 0, 1, 7, 1), "l0", (1,) * 5, 0),
}


def by_hand(region: str, predicates: Sequence[str]) -> GridProblem:
    case = GridCase(REGIONS[region], tuple(GridQuery(name, PREDICATES[name]) for name in predicates), ())
    return GridProblem(SIZES, 3, TREE, Measure(), (case,))


# --- tests -------------------------------------------------------------------------------------------------------
def check_formulas(problem: GridProblem, queries: int | None = None) -> None:
    """Every count is right, every model is an input that satisfies the query, and no two models are the same one."""
    (case,) = problem.cases
    want = expected(problem, case)
    for query in case.queries[:queries]:
        translation = translate(problem, case, query, Limits())
        models = projected_models(translation.cnf)
        assert len(models) * translation.cnf.multiplier == len(want[query.name]), query.name
        inputs = {translation.positions(model) for model in models}
        assert inputs <= want[query.name], query.name
        assert len(inputs) == len(models), query.name


@pytest.mark.needs("cbmc")
@pytest.mark.parametrize("name", list(PREDICATES))
def test_predicates_over_a_box(name: str) -> None:
    check_formulas(by_hand("box", [name]))


@pytest.mark.needs("cbmc")
@pytest.mark.parametrize("region", list(REGIONS))
def test_regions(region: str) -> None:
    check_formulas(by_hand(region, ["always", "one label", "labels apart", "less", "never"]))


@pytest.mark.needs("cbmc")
@pytest.mark.parametrize(
    "name", ["floor of negative", "maximum with a constant", "count", "many terms", "missing position"]
)
def test_predicates_over_the_domain(name: str) -> None:
    check_formulas(by_hand("domain", [name]))


@pytest.mark.needs("cbmc")
@pytest.mark.parametrize("seed", RANDOM_SEEDS)
def test_random_problems(seed: int) -> None:
    check_formulas(random_problem(seed, widths=(1, 2, 3, 3, 5, 6)), 2)


@pytest.mark.needs("cbmc")
def test_single_leaf() -> None:
    tree = GridTree((-1,), (0,), (0,), (0,), (0,), (1,))
    case = GridCase(Box((0, 0), (7, 3)), (GridQuery("a", HasLabel((1,))), GridQuery("b", HasLabel((0,)))), ())
    check_formulas(GridProblem((7, 3), 2, tree, Measure(), (case,)))


def ganak(cnf: Cnf) -> int:
    """Projected count by Ganak's own binding, for what is too wide to enumerate."""
    import pyganak

    counter = pyganak.Counter()
    counter.new_vars(cnf.variables)
    counter.add_clauses([list(clause) for clause in cnf.clauses()])
    counter.set_sampling_set(list(cnf.projection))
    return cnf.multiplier * int(counter.count())


@pytest.mark.needs("cbmc", "pyganak")
@pytest.mark.parametrize("width", [1 << 31, (1 << 32) + 1, 1 << 63, (1 << 70) + 9])
def test_wide_inputs(width: int) -> None:
    """Comparisons of one feature with a constant, on both sides of the words' ends."""
    cut = width - width // 3
    queries = (
        GridQuery("below", Sign("<", line(1, constant=-cut))),
        GridQuery("above", Sign("<", line(-1, constant=cut))),
        GridQuery("middle", Within(0, 3, cut)),
        GridQuery("last", Within(0, width - 1, width)),
    )
    counts = (cut, width - cut - 1, cut - 3, 1)
    case = GridCase(Box((0,), (width,)), queries, ())
    problem = GridProblem((width,), 1, GridTree((-1,), (0,), (0,), (0,), (0,), (0,)), Measure(), (case,))
    for query, count in zip(queries, counts, strict=True):
        assert ganak(translate(problem, case, query, Limits()).cnf) == count, query.name


def wide_arithmetic(scale: int) -> list[GridQuery]:
    """Queries over few inputs whose intermediate numbers are about `scale`."""
    a, b = line(scale, 1 - scale, 3), line(-scale - 1, 0, scale // 2 + 1, constant=5 - scale)
    predicates = [
        Sign("<", a),
        Sign("<=", Plus((a, b))),
        Sign("==", Plus((line(scale), line(0, -scale), Linear((), -scale)))),
        Sign("<", Plus((Times(line(1, -1), Plus((b, line(0, scale)))), Linear((), scale)))),
        Sign("==", Plus((FloorDiv(b, scale), Linear((), 3)))),
        Sign("<", Plus((FloorDiv(a, 7), Linear((), -(scale // 5))))),
        Sign("<=", Plus((Extreme("min", (a, b, Linear((), -scale))), line(0, 0, scale)))),
        Sign("<", Plus((Extreme("max", (a, b)), line(-scale, -scale)))),
        Sign("<", Plus((Times(CountOf((Within(0, 1, 3), Within(1, 0, 1))), b), Linear((), 2 * scale)))),
    ]
    return [GridQuery(f"q{number}", predicate) for number, predicate in enumerate(predicates)]


SCALES = [(1 << k) + d for k, d in ((30, -1), (31, -1), (31, 1), (32, 1), (61, 1), (62, -1), (63, -1), (63, 1))]


@pytest.mark.needs("cbmc")
@pytest.mark.parametrize("scale", [*SCALES, (1 << 64) + 1, (1 << 71) - 3])
def test_wide_arithmetic(scale: int) -> None:
    case = GridCase(Box((0, 0, 0), (5, 4, 3)), tuple(wide_arithmetic(scale)), ())
    check_formulas(GridProblem((5, 4, 3), 1, GridTree((-1,), (0,), (0,), (0,), (0,), (0,)), Measure(), (case,)))


# --- the same statements under a C compiler ----------------------------------------------------------------------
def compiled(text: str, folder: Path) -> ctypes.CDLL:
    source, library = folder / "program.c", folder / "program.so"
    source.write_text(text)
    subprocess.run(["gcc", "-std=c11", "-O1", "-fwrapv", "-shared", "-fPIC", source, "-o", library], check=True)
    return ctypes.CDLL(os.fspath(library))


def check_program(problem: GridProblem, folder: Path) -> None:
    (case,) = problem.cases
    library = compiled(emit_program(problem, case), folder)
    want = expected(problem, case)
    for at in itertools.product(*map(range, problem.sizes)):
        positions = (ctypes.c_longlong * len(at))(*at)
        assert library.classify(positions) == label_of(problem.tree, at)
        for query, symbol in zip(case.queries, symbols(case.queries), strict=True):
            assert library[f"query_{symbol}"](positions) == (at in want[query.name]), query.name


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("region", list(REGIONS))
def test_program_by_hand(region: str, tmp_path: Path) -> None:
    check_program(by_hand(region, list(PREDICATES)), tmp_path)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("scale", SCALES)
def test_program_with_wide_arithmetic(scale: int, tmp_path: Path) -> None:
    case = GridCase(Box((0, 0, 0), (5, 4, 3)), tuple(wide_arithmetic(scale)), ())
    tree = GridTree((-1,), (0,), (0,), (0,), (0,), (0,))
    check_program(GridProblem((5, 4, 3), 1, tree, Measure(), (case,)), tmp_path)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("seed", range(100, 120))
def test_program_of_random_problems(seed: int, tmp_path: Path) -> None:
    check_program(random_problem(seed), tmp_path)


# --- when CBMC misbehaves ----------------------------------------------------------------------------------------
def impostor(folder: Path, body: str) -> str:
    """A program that answers --version like CBMC and does `body` otherwise, with the output file's path in $out."""
    path = folder / "cbmc"
    version = 'case "$1" in --version) echo "6.9.9 (impostor)"; exit 0;; esac'
    path.write_text(f"#!/bin/sh\n{version}\nout=query.cnf\n{body}\n")
    path.chmod(0o755)
    return os.fspath(path)


FORMULA = "p cnf 4 2\\n1 2 0\\n-3 4 0\\n"
MAPPED = "c main::1::x0!0@1#2 1 2 3\\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("exit 0", "no whole formula"),
        ("echo 'parse error: x'; exit 6", "parse error"),
        ("echo 'Unknown option: --no-standard-checks' >&2; exit 64", "Unknown option"),
        ("kill -ABRT $$", "crashed"),
        ("echo garbage > $out", "no whole formula"),
        ("exec sleep 20", "stopped after"),
        (f"printf '{FORMULA}{MAPPED}' | head -c 12 > $out", "no whole formula"),
        (f"printf '{FORMULA}{MAPPED}' | head -n 2 > $out", "contradicts its own header"),
        ("printf 'p cnf 2 1\\n1 x 0\\n' > $out", "no formula"),
        ("printf 'p cnf 2\\n1 0\\n' > $out", "no formula"),
        ("printf 'p cnf 2 1\\n1 -7 0\\n' > $out", "contradicts its own header"),
        (f"printf '{FORMULA}c main::1::x0!0@1#2 1 2\\n' > $out", "2 bits instead of 3"),
        (f"printf '{FORMULA}c symex::nondet0 1 2 3\\n' > $out", "belong to no input"),
    ],
)
def test_failures_of_cbmc(body: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTIFY_CBMC", impostor(tmp_path, body))
    problem = by_hand("domain", ["within"])
    limits = Limits.starting_now(timeout=1.5)
    with pytest.raises(UndecidedError, match=message):
        translate(problem, problem.cases[0], problem.cases[0].queries[0], limits)


def test_cbmc_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTIFY_CBMC", os.fspath(tmp_path / "nothing"))
    problem = by_hand("domain", ["within"])
    with pytest.raises(MissingToolError):
        translate(problem, problem.cases[0], problem.cases[0].queries[0], Limits())


def test_no_room_to_run_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTIFY_CBMC", impostor(tmp_path, "exit 0"))
    monkeypatch.setattr("tempfile.tempdir", os.fspath(tmp_path / "gone"))
    problem = by_hand("domain", ["within"])
    with pytest.raises(UndecidedError, match="no room"):
        translate(problem, problem.cases[0], problem.cases[0].queries[0], Limits())

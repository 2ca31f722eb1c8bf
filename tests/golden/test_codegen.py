"""The C that is written, as whole text: a reader of the golden files sees what CBMC and gcc see."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from quantify.cnf.codegen import Names, emit_c, emit_program, in_comment, symbols
from quantify.errors import InputError
from quantify.ir.domain import Measure
from quantify.ir.predicate import (
    AllOf,
    Always,
    AnyOf,
    CountOf,
    Extreme,
    FloorDiv,
    HasLabel,
    Linear,
    Negation,
    Plus,
    Sign,
    Times,
    Within,
)
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree

GOLDEN = Path(__file__).parent / "c"


def safety() -> tuple[GridProblem, Names]:
    """Three classes, a three-way split on `colour`, a shared leaf, arithmetic of every kind, one unused feature."""
    tree = GridTree(
        feature=(0, 2, 1, -1, -1, -1),
        low=(4, 1, 7, 0, 0, 0),
        high=(11, 2, 9, 0, 0, 0),
        left=(1, 3, 4, 0, 0, 0),
        right=(2, 4, 5, 0, 0, 0),
        label=(-1, -1, -1, 0, 1, 2),
    )
    arithmetic = AllOf(
        (
            Sign("<=", Linear(((0, 3), (1, -2)), 4)),
            Sign("!=", Plus((FloorDiv(Linear(((0, 1), (1, -1)), -3), 4), Linear((), 1)))),
            Sign("<", Plus((Times(Linear(((0, 1),), -5), Linear(((1, 1),), -2)), Linear((), -20)))),
            Sign("<", Plus((Extreme("max", (Linear(((0, 1),), 0), Linear(((1, 2),), 0))), Linear(((3, 1),), -18)))),
            Sign("==", Plus((CountOf((Within(0, 2, 5), Within(2, 0, 2), HasLabel((1,)))), Linear((), -2)))),
        )
    )
    query = GridQuery("violated */", AllOf((Within(0, 2, 11), Negation(AllOf((HasLabel((2,)), arithmetic))))))
    case = GridCase(Box((0,) * 5, (11, 9, 3, 2, 6)), (query,), ())
    names = Names(
        ("rho */ \N{GREEK SMALL LETTER RHO}", "theta\nspeed", "colour", "on", "unused"), ("left", "right", "stop")
    )
    return GridProblem((11, 9, 3, 2, 6), 3, tree, Measure(), (case,)), names


def robustness(norm: str) -> tuple[GridProblem, Names]:
    """Twelve pixels, four of them fixed, around a centre."""
    tree = GridTree(
        (0, 5, -1, 9, -1),
        (3, 128, 0, 10, 0),
        (256, 256, 0, 256, 0),
        (1, 2, 0, 4, 0),
        (3, 4, 0, 2, 0),
        (-1, -1, 0, -1, 1),
    )
    centre = (3, 0, 255, 7, 8, 128, 100, 0, 1, 9, 40, 50)
    low = tuple(max(0, c - 1) if i % 3 else c for i, c in enumerate(centre))
    high = tuple(min(256, c + 2) if i % 3 else c + 1 for i, c in enumerate(centre))
    weights = (1,) * 12 if norm == "l0" else (1, 2, 1, 1, 3, 1, 1, 1, 0, 1, 2, 1)
    ball = Ball(Box(low, high), centre, "l0" if norm == "l0" else "l1", weights, 3)
    case = GridCase(
        ball, (GridQuery("robust", HasLabel((0,))), GridQuery("fragile", HasLabel((1,)))), (("robust", "fragile"),)
    )
    return GridProblem((256,) * 12, 2, tree, Measure(), (case,)), Names(tuple(f"px_{i}" for i in range(12)), ("0", "1"))


def learnability() -> tuple[GridProblem, Names]:
    """A relation over three nodes: transitivity against a tree."""
    tree = GridTree((1, 3, -1, -1), (1, 1, 0, 0), (2, 2, 0, 0), (1, 2, 0, 0), (3, 3, 0, 0), (-1, -1, 1, 0))
    cell = [[Within(3 * i + j, 1, 2) for j in range(3)] for i in range(3)]
    transitive = AllOf(
        tuple(
            AnyOf((Negation(cell[i][j]), Negation(cell[j][k]), cell[i][k]))
            for i in range(3)
            for j in range(3)
            for k in range(3)
        )
    )
    queries = (
        GridQuery("tp", AllOf((transitive, HasLabel((1,))))),
        GridQuery("fp", AllOf((Negation(transitive), HasLabel((1,))))),
        GridQuery("all", Always(True)),
    )
    case = GridCase(Box((0,) * 9, (2,) * 9), queries, ())
    names = Names(tuple(f"r_{i}_{j}" for i in range(3) for j in range(3)), ("no", "yes"))
    return GridProblem((2,) * 9, 2, tree, Measure(), (case,), relation_nodes=3), names


def emitted() -> dict[str, str]:
    """File name → text, for every golden file."""
    texts = {}
    for stem, (problem, names) in {
        "safety": safety(),
        "robustness_l1": robustness("l1"),
        "robustness_l0": robustness("l0"),
        "learnability": learnability(),
    }.items():
        case = problem.cases[0]
        texts[f"{stem}.i"] = emit_c(problem, case, case.queries[0], names)
        texts[f"{stem}.c"] = emit_program(problem, case, names)
    problem, names = learnability()
    texts["always.i"] = emit_c(problem, problem.cases[0], problem.cases[0].queries[2], names)
    return texts


@pytest.mark.parametrize("name", sorted(emitted()))
def test_text(name: str) -> None:
    assert emitted()[name] == (GOLDEN / name).read_text()


@pytest.mark.parametrize("name", sorted(n for n in emitted() if n.endswith(".c")))
@pytest.mark.needs("gcc")
def test_program_compiles_without_warnings(name: str, tmp_path: Path) -> None:
    subprocess.run(
        ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-c", GOLDEN / name, "-o", tmp_path / "o.o"],
        check=True,
    )


def test_nothing_is_included() -> None:
    for text in emitted().values():
        assert "#" not in text
        assert text.isascii()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain", "plain"),
        ("a*/b", "a* /b"),
        ("a**//b", "a** //b"),
        ("/*", "/ *"),
        ("line\nbreak\t", "line\\x0abreak\\x09"),
        ("\N{GREEK SMALL LETTER RHO}", "\\u03c1"),
        ("what??/", "what? ?/"),
        ("x" * 80, "x" * 57 + "..."),
    ],
)
def test_names_are_safe_in_comments(name: str, shown: str) -> None:
    assert in_comment(name) == shown
    assert "*/" not in in_comment(name)
    assert "/*" not in in_comment(name)


def test_query_symbols_are_identifiers_and_distinct() -> None:
    names = ["tp", "a/b", "a b", "a-b", "\N{GREEK SMALL LETTER RHO}"]
    assert symbols([GridQuery(n, Always(True)) for n in names]) == ("tp", "a_b", "a_b_2", "a_b_3", "_")


def test_arithmetic_beyond_the_words_is_refused() -> None:
    problem, _ = safety()
    huge = GridQuery("q", Sign("<", Linear(((0, 1 << 600), (1, -(1 << 599) - 1)), 0)))
    with pytest.raises(InputError, match="bits"):
        emit_c(problem, problem.cases[0], huge)
    long = GridQuery("q", Sign("<", Linear(((0, 1 << 140), (1, -(1 << 139) - 1)), 0)))
    assert "u144" in emit_c(problem, problem.cases[0], long)
    with pytest.raises(InputError, match="128 bits"):
        emit_program(problem, GridCase(problem.cases[0].region, (long,), ()))


if __name__ == "__main__":  # rewrite the golden files; look at the difference before committing it
    for file, text in emitted().items():
        (GOLDEN / file).write_text(text)

"""DIMACS in and out."""

from __future__ import annotations

import gzip
import lzma
import random
import time
from array import array
from itertools import product
from pathlib import Path

import pytest

from quantify.cnf.dimacs import absorb_multiplier, dimacs_bytes, parse_dimacs, read_dimacs
from quantify.cnf.formula import Cnf
from quantify.errors import InputError


def cnf(variables: int, clauses: list[list[int]], projection: tuple[int, ...], multiplier: int = 1) -> Cnf:
    literals = array("i")
    for clause in clauses:
        literals.extend([*clause, 0])
    return Cnf(variables, literals, projection, multiplier)


def projected_count(formula: Cnf) -> int:
    """By trying every assignment."""
    clauses = list(formula.clauses())
    seen = set()
    for values in product((False, True), repeat=formula.variables):
        if all(any(values[abs(literal) - 1] == (literal > 0) for literal in clause) for clause in clauses):
            seen.add(tuple(values[variable - 1] for variable in formula.projection))
    return len(seen) * formula.multiplier


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p cnf 3 2\n1 -2 0\n3 0\n", cnf(3, [[1, -2], [3]], (1, 2, 3))),
        ("c a comment\n\np cnf 3 2\n1 -2 0 3 0", cnf(3, [[1, -2], [3]], (1, 2, 3))),
        ("p cnf 3 1\n1\n-2\n3\n0\n", cnf(3, [[1, -2, 3]], (1, 2, 3))),
        ("p  cnf\t3 1\r\n 1  -2\t0\r\n", cnf(3, [[1, -2]], (1, 2, 3))),
        ("c p show 3 1 0\np cnf 3 1\n1 2 0\n", cnf(3, [[1, 2]], (1, 3))),
        ("p cnf 3 1\n1 2 0\nc p show 3 0\nc p show 1 3 0\n", cnf(3, [[1, 2]], (1, 3))),
        ("c ind 2 0\nc ind 3 0\np cnf 3 1\n1 2 0\n", cnf(3, [[1, 2]], (2, 3))),
        ("c ind 2 0\np cnf 3 0\nc p show 2 0\n", cnf(3, [], (2,))),
        ("c p show 0\np cnf 3 1\n1 2 0\n", cnf(3, [[1, 2]], ())),
        ("c t pmc\nc p show 0\np cnf 0 0\n", cnf(0, [], ())),
        ("p cnf 0 0\n", cnf(0, [], ())),
        ("p cnf 5 0\n", cnf(5, [], (1, 2, 3, 4, 5))),
        ("p cnf 2 2\n0\n1 0\n", cnf(2, [[], [1]], (1, 2))),
        ("p cnf 2 1\n1 2 0\n%\n0\n", cnf(2, [[1, 2]], (1, 2))),
        ("c main::x!0@1#2 1 2\nc indices 7\np cnf 2 1\n1 2 0\n", cnf(2, [[1, 2]], (1, 2))),
    ],
)
def test_reads(text: str, expected: Cnf) -> None:
    assert parse_dimacs(text.encode()) == expected


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "no `p cnf` line"),
        ("c nothing\n", 2, "no `p cnf` line"),
        ("c x\n1 2 0\np cnf 2 1\n", 2, "'1' before the `p cnf` line"),
        ("p cnf two 1\n1 0\n", 1, "'p cnf two 1' is no header"),
        ("p cnf 2\n", 1, "'p cnf 2' is no header"),
        ("p cnf -2 1\n", 1, "'p cnf -2 1' is no header"),
        ("p dnf 2 1\n", 1, "'p dnf 2 1' is no header"),
        ("p cnf 99999999999 0\n", 1, "99999999999 variables are too many"),
        ("p cnf 2 1\n1 0\np cnf 2 1\n", 3, "a second header"),
        ("p cnf 2 1\n\n1 two 0\n", 3, "'two' is no literal"),
        ("p cnf 2000 1\n1_0 0\n", 2, "'1_0' is no literal"),
        ("p cnf 2 1\n1.5 0\n", 2, "'1.5' is no literal"),
        ("p cnf 2 1\n1 99999999999999999999 0\n", 2, "'99999999999999999999' is no literal"),
        ("p cnf 2 2\n1 2 0\nc 7 7 7\n1 -3 0\n", 4, "literal -3 is out of range"),
        ("p cnf 2 2\n1 2 0\n1\n-2\nc end\n", 4, "lacks its closing 0"),
        ("c ind 1 2\np cnf 2 0\n", 1, "`c ind` must end with its only 0"),
        ("p cnf 2 0\nc p show 1 0 2 0\n", 2, "`c p show` must end with its only 0"),
        ("p cnf 2 0\nc p show\n", 2, "`c p show` must end with its only 0"),
        ("p cnf 2 0\nc p show one 0\n", 2, "'one' in `c p show` is no variable"),
        ("p cnf 2 0\nc p show -1 0\n", 2, "'-1' in `c p show` is no variable"),
        ("p cnf 2 0\nc p show 1 0\nc p show 3 0\n", 3, "variable 3 is shown, but there are 2"),
        ("p cnf 2 0\nc p weight 1 0.5 0\n", 2, "weighted counting is not supported"),
        ("c t pwmc\np cnf 2 0\n", 1, "weighted counting is not supported"),
        ("c t mc\np cnf 2 0\nc p show 1 0\n", 1, "every variable counts"),
    ],
)
def test_errors_name_the_line(text: str, line: int, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_dimacs(text.encode(), "f.cnf")
    assert caught.value.message.startswith(f"f.cnf:{line}: ")
    assert said in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p cnf 2 3\n1 0\n2 0\n", "announces 3 clauses, and there are 2"),
        ("p cnf 2 1\n1 0\n2 0\n", "announces 1 clauses, and there are 2"),
        ("c ind 1 0\nc p show 2 0\np cnf 2 0\n", "name different variables"),
    ],
)
def test_errors_of_the_whole_file(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_dimacs(text.encode(), "f.cnf")


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress])
def test_compression_is_told_by_content(tmp_path: Path, compress) -> None:
    path = tmp_path / "formula"
    path.write_bytes(compress(b"c p show 1 0\np cnf 2 1\n1 2 0\n"))
    assert read_dimacs(path) == cnf(2, [[1, 2]], (1,))


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_a_file_cut_short_is_an_error(tmp_path: Path, compress) -> None:
    path = tmp_path / "formula.cnf.gz"
    path.write_bytes(compress(b"p cnf 2 1\n1 2 0\n" * 50)[:-12])
    with pytest.raises(InputError, match="cannot be read"):
        read_dimacs(path)


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "formula.cnf.gz"
    data = bytearray(gzip.compress(bytes(range(256)) * 20))
    data[30:60] = b"\xff" * 30
    path.write_bytes(data)
    with pytest.raises(InputError, match="cannot be read"):
        read_dimacs(path)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_dimacs(tmp_path / "absent.cnf")
    with pytest.raises(InputError, match="directory"):
        read_dimacs(tmp_path)


def test_writing_is_readable_and_whole() -> None:
    text = dimacs_bytes(cnf(4, [[1, -2], [], [3]], (1, 4)))
    assert text == b"c t pmc\np cnf 4 3\nc p show 1 4 0\n1 -2 0\n0\n3 0\n"
    assert dimacs_bytes(cnf(0, [], ())) == b"c t pmc\np cnf 0 0\nc p show 0\n"


def test_what_is_written_is_read_back() -> None:
    draw = random.Random(7)
    for _ in range(200):
        variables = draw.randint(0, 60)
        clauses = [
            [draw.choice((-1, 1)) * draw.randint(1, variables) for _ in range(draw.randint(0, 4))]
            for _ in range(draw.randint(0, 20) if variables else 0)
        ]
        projection = tuple(sorted(draw.sample(range(1, variables + 1), draw.randint(0, variables))))
        formula = cnf(variables, clauses, projection)
        assert parse_dimacs(dimacs_bytes(formula)) == formula


@pytest.mark.parametrize("multiplier", range(20))
def test_the_multiplier_becomes_counted_variables(multiplier: int) -> None:
    formula = cnf(3, [[1, 2], [-1, 3]], (1, 2), multiplier)
    absorbed = absorb_multiplier(formula)
    assert absorbed.multiplier == 1
    assert projected_count(absorbed) == projected_count(formula)


def test_a_million_clauses_are_read_in_seconds() -> None:
    """A tenth of them, so that the test stays fast; the bound is generous, for loaded machines."""
    clauses = 100_000
    text = b"p cnf 5000 %d\n" % clauses + b"17 -4999 321 0\n" * clauses
    started = time.process_time()
    formula = parse_dimacs(text)
    assert time.process_time() - started < 2
    assert len(formula.literals) == 4 * clauses

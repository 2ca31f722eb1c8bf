"""What CBMC writes, read: clauses, the map of input bits, folded results; on texts made by hand."""

from __future__ import annotations

import pytest
from cnf_brute import brute_count, projected_models

from quantify.cnf.cbmc import Translation, dimacs_text, formula, input_bits, parse
from quantify.cnf.dimacs import parse_dimacs
from quantify.cnf.straight import Input
from quantify.errors import UndecidedError
from quantify.ir.predicate import Always
from quantify.ir.problem import GridQuery

X0, X1 = Input(0, 3, 8), Input(12, 0, 5)


def text(variables: int, clauses: list[list[int]], *comments: str) -> str:
    rows = [f"p cnf {variables} {len(clauses)}", *(" ".join(map(str, [*c, 0])) for c in clauses), *comments]
    return "\n".join(rows) + "\n"


def counted(written: str, inputs: tuple[Input, ...], others: int = 1) -> int:
    dimacs = parse(written)
    return brute_count(formula(dimacs, inputs, input_bits(dimacs, inputs), others))


def test_map_lines() -> None:
    dimacs = parse(
        text(
            9,
            [[1, -2], [3]],
            "c main::1::x0!0@1#2 1 -2 TRUE",
            "c main::1::x12!0@1#2 FALSE ? 9",
            "c main::1::x0!0@1#1 4 5 6",
            "c a name with 3 spaces 7 8",
            "c prop_conv::context$0 9",
            "c symex::nondet0 1 2 TRUE",
        )
    )
    assert dimacs.variables == 9
    assert list(dimacs.literals) == [1, -2, 0, 3, 0]
    assert dimacs.symbols["a name with 3 spaces"] == (7, 8)
    assert input_bits(dimacs, (X0, X1)) == ((1, -2, True), (False, None, 9))


def test_negative_literals_constants_and_shared_variables() -> None:
    """Bits (v1, not v1, 1): two executions, whose numbers are 6 and 5."""
    dimacs = parse(text(4, [[4]], "c main::1::x0!0@1#2 1 -1 TRUE"))
    bits = input_bits(dimacs, (X0,))
    cnf = formula(dimacs, (X0,), bits, 1)
    assert cnf.projection == (1,)
    translation = Translation(cnf, "", (X0,), bits, (3,), (11,), "6")
    assert {translation.positions(model) for model in projected_models(cnf)} == {(3 + 5,), (3 + 6,)}


def test_two_inputs_sharing_a_literal() -> None:
    """x = y forced by the formula: as many executions as values of one."""
    y = Input(1, 0, 8)
    written = text(3, [], "c main::1::x0!0@1#2 1 2 3", "c main::1::x1!0@1#2 1 2 3")
    assert counted(written, (X0, y)) == 8


def test_missing_inputs_are_free_by_their_number_of_values() -> None:
    written = text(3, [[1, 2]], "c main::1::x0!0@1#2 1 2 3")
    assert counted(written, (X0,)) == 6
    assert counted(written, (X0, X1)) == 6 * 5
    assert counted(written, (X0, X1), others=7) == 6 * 5 * 7


def test_unknown_bits_are_free_by_two() -> None:
    assert counted(text(3, [[1]], "c main::1::x0!0@1#2 1 ? ?"), (X0,)) == 4


def test_bits_in_no_clause_are_counted() -> None:
    assert counted(text(5, [[1]], "c main::1::x0!0@1#2 1 2 3"), (X0,)) == 4


def test_folded_to_false() -> None:
    assert counted("p cnf 0 0\n", (X0, X1), others=7) == 0


def test_folded_to_true() -> None:
    assert counted("p cnf 1 0\nc prop_conv::context$0 1\n", (X0, X1), others=7) == 8 * 5 * 7


def test_variables_of_the_wrong_name_are_no_inputs() -> None:
    dimacs = parse(
        text(4, [[1]], "c main::1::x01!0@1#2 1 2 3", "c main::1::x0!0@1#3 1 2 3", "c main::1::yx0!0@1#2 1 2 3")
    )
    assert input_bits(dimacs, (X0,)) == ((None, None, None),)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("1 2 0\n", "no formula"),
        ("p cnf 2 1\n", "header"),
        ("p cnf 2 1\n1 2\n", "header"),
        ("p cnf 2 1\n1 2 0\n1", "header"),
        ("p cnf 2 1\n1 3 0\n", "header"),
        ("p cnf 2 1\n1 2 0\nc main::1::x0!0@1#2 1 2 3\n", "header"),
        ("p cnf 2 1\n1 99999999999 0\n", "no formula"),
        ("p cnf two 1\n1 0\n", "no formula"),
        ("p dnf 2 1 3 4\n1 0\n", "no formula"),
    ],
)
def test_broken_files(written: str, message: str) -> None:
    with pytest.raises(UndecidedError, match=message):
        parse(written)


def test_wrong_width_and_stray_bits() -> None:
    with pytest.raises(UndecidedError, match="2 bits instead of 3"):
        input_bits(parse(text(3, [], "c main::1::x0!0@1#2 1 2")), (X0,))
    dimacs = parse(text(3, [[1]], "c symex::nondet0 1 2 3"))
    with pytest.raises(UndecidedError, match="belong to no input"):
        formula(dimacs, (X0,), input_bits(dimacs, (X0,)), 1)


def test_written_dimacs_counts_without_a_multiplier() -> None:
    dimacs = parse(text(3, [[1, 2]], "c main::1::x0!0@1#2 1 -2 TRUE"))
    bits = input_bits(dimacs, (X0, X1))
    cnf = formula(dimacs, (X0, X1), bits, 3)
    written = dimacs_text(
        Translation(cnf, "", (X0, X1), bits, (3,) * 13, (11,) * 13, "6.6"), GridQuery("tp\n", Always(True))
    )
    assert brute_count(parse_dimacs(written.encode())) == brute_count(cnf) == 3 * 5 * 3
    assert "c bits of x0, position - 3 of feature 0: 1 -2 T\n" in written
    assert "c bits of x12, position - 0 of feature 12: ? ? ?\n" in written
    assert "c query: tp\\x0a\n" in written

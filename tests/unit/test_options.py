"""Values of options: names and numbers as they are typed."""

from fractions import Fraction

import click
import pytest

from quantify.cli.options import POSITIVE, UNIT, NamesType


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ("a",)),
        (" a, b c ,ü", ("a", "b c", "ü")),
        ('a,"x,y",b', ("a", "x,y", "b")),
        ('a, "x, y"', ("a", "x, y")),
        ('"5"" disk",b', ('5" disk', "b")),
        ('5" disk,b', ('5" disk', "b")),
    ],
)
def test_names_are_written_as_in_the_header_of_a_table(text: str, names: tuple[str, ...]) -> None:
    assert NamesType().convert(text, None, None) == names


@pytest.mark.parametrize("text", ["", "a,,b", "a,", '"a', '"a"b', "a\nb"])
def test_names_that_are_none(text: str) -> None:
    with pytest.raises(click.UsageError):
        NamesType().convert(text, None, None)


def test_numbers_are_exact_and_strictly_between_their_ends() -> None:
    assert UNIT.convert("0.1", None, None) == Fraction(1, 10)
    assert UNIT.convert("2/3", None, None) == Fraction(2, 3)
    assert POSITIVE.convert("7", None, None) == 7
    for option, texts in ((UNIT, ("0", "1", "-0.1", "1.5")), (POSITIVE, ("0", "-1"))):
        for text in texts:
            with pytest.raises(click.UsageError, match="out of range: give a number above 0"):
                option.convert(text, None, None)
    for text in ("", "x", "1/0", "nan", "inf"):
        with pytest.raises(click.UsageError, match="is not a number"):
            UNIT.convert(text, None, None)

"""Values of options: names as they are typed."""

import click
import pytest

from quantify.cli.options import NamesType


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

"""The YAML reader: core schema of YAML 1.2, exact numbers, refusals with their line."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from quantify.errors import InputError
from quantify.properties import yaml
from quantify.properties.yaml import Mapping, Scalar, Sequence


def value_of(text: str):
    """The value of a plain scalar."""
    root = yaml.parse(f"key: {text}\n".encode(), "p.yaml")
    assert isinstance(root, Mapping)
    node = root.items[0][1]
    assert isinstance(node, Scalar)
    return node.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # YAML 1.2.2, example 10.9 and the table of 10.3.2
        ("null", None),
        ("Null", None),
        ("~", None),
        ("", None),
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("0", 0),
        ("0o7", 7),
        ("0x3A", 58),
        ("-19", -19),
        ("+12", 12),
        ("0.", 0),
        ("-0.0", 0),
        (".5", Fraction(1, 2)),
        ("+12e03", 12000),
        ("-2E+05", -200000),
        # what YAML 1.1 reads otherwise
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("y", "y"),
        ("010", 10),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("1e-5", Fraction(1, 100000)),
        ("0b11", "0b11"),
        ("0X1F", "0X1F"),
        ("2001-12-14", "2001-12-14"),
        # exact, not the nearest float
        ("0.1", Fraction(1, 10)),
        ("0.30000000000000004", Fraction("0.30000000000000004")),
        ("123456789012345678901", 123456789012345678901),
        ("1.5e3", 1500),
        ("5.e2", 500),
        (".", "."),
        ("e5", "e5"),
        ("1e", "1e"),
        ("tRUE", "tRUE"),
        ("'12'", "12"),
        ('"true"', "true"),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


def test_infinities_and_nan_are_floats_that_number_readers_refuse() -> None:
    assert value_of(".inf") == math.inf
    assert value_of("-.INF") == -math.inf
    assert math.isnan(value_of(".NaN"))
    assert value_of("inf") == "inf"


def test_every_node_knows_its_line() -> None:
    root = yaml.parse(b"a: 1\nb:\n  - x\n  - {c: 2,\n     d: 3}\n", "p.yaml")
    assert isinstance(root, Mapping)
    sequence = root.items[1][1]
    assert isinstance(sequence, Sequence)
    inner = sequence.items[1]
    assert isinstance(inner, Mapping)
    assert [sequence.line, sequence.items[0].line, inner.line] == [3, 3, 4]
    assert [(key.text, key.line) for key, _ in inner.items] == [("c", 4), ("d", 5)]


def test_aliases_stand_for_what_they_name() -> None:
    root = yaml.parse(b"a: &grid {min: 0}\nb: *grid\n", "p.yaml")
    assert isinstance(root, Mapping)
    assert root.items[0][1] is root.items[1][1]


def test_a_byte_order_mark_is_no_text() -> None:
    root = yaml.parse(b"\xef\xbb\xbfa: 1\n", "p.yaml")
    assert isinstance(root, Mapping)
    assert root.items[0][0].text == "a"


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "'a' is there twice (first on line 1)"),
        ("x: {a: 1, 'a': 2}", 1, "there twice"),
        ("a: &x [1, *x]", 1, "contains itself"),
        ("a: *x", 1, "not defined"),
        ("a: 1\nb: !!python/object:os.system x", 2, "tag"),
        ("a: !!int 5", 1, "tag"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("a: [1, 2\n", None, "not valid YAML"),
        ("a: 1\n\tb: 2\n", None, "not valid YAML"),
        ("", 1, "empty"),
        ("# only a comment\n", 1, "empty"),
        ("%YAML 1.1\n---\na: 1\n", None, "YAML than 1.2"),
        ("? [1, 2]\n: 3\n", 1, "list or a mapping"),
        ("[" * 200 + "]" * 200, 1, "nested too deeply"),
        ("a: 1e999999999\n", 1, "too large"),
        ("a: " + "9" * 2000, 1, "too large"),
        (BOMB, None, "aliases"),
    ],
)
def test_refusals_name_file_and_line(text: str, line: int | None, words: str) -> None:
    with pytest.raises(InputError) as caught:
        yaml.parse(text.encode(), "p.yaml")
    assert words in caught.value.message
    assert caught.value.message.startswith("p.yaml:" if line is None else f"p.yaml:{line}: ")
    assert caught.value.hint


def test_other_encodings_are_refused() -> None:
    with pytest.raises(InputError, match=r"p\.yaml:2: not UTF-8"):
        yaml.parse("a: 1\nb: ä\n".encode("latin-1"), "p.yaml")


@pytest.mark.parametrize(
    ("text", "value"), [("1/3", None), ("1e5", 100000), ("١", None), ("1 ", None), ("0x1F", None), ("1e401", None)]
)
def test_exact_decimals(text: str, value: int | None) -> None:
    assert yaml.exact_decimal(text) == value

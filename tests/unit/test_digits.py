"""Integers of any length as digits, against Python's own conversion with its limit lifted; decimals against Decimal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

import pytest

from quantify.ir.digits import exact_ratio, from_digits, from_ratio, plain, to_digits


@pytest.fixture
def unlimited() -> Iterator[None]:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("digits", [1, 499, 500, 501, 603, 999, 1000, 1001, 1500, 2000, 4500])
def test_any_length_there_and_back(unlimited: None, digits: int) -> None:
    for number in (10 ** (digits - 1), 10**digits - 1, 10 ** (digits - 1) + 7, 3 * 10**digits // 7):
        for value in (number, -number):
            assert to_digits(value) == str(value)
            assert from_digits(str(value)) == value
    assert from_digits("0" * digits) == 0


@pytest.mark.parametrize("text", ["", "-", "+1", "1 ", "1_000", "0x1", "١", "1.0"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        from_digits(text)


@pytest.mark.parametrize("text", ["1", "1/0", "1/-2", "/", "1/"])
def test_what_is_no_ratio_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        from_ratio(text)


def test_ratios_are_in_lowest_terms_with_their_denominator() -> None:
    assert exact_ratio(Fraction(6, -4)) == "-3/2"
    assert exact_ratio(5) == "5/1"
    assert from_ratio("-6/4") == Fraction(-3, 2)


@pytest.mark.parametrize("places", range(13))
def test_up_to_twelve_places_are_written_as_a_decimal(places: int) -> None:
    for ticks in (1, -1, 10**places + 3, -7 * 10**places - 9):
        text = plain(Fraction(ticks, 10**places))
        assert Decimal(text) == Decimal(ticks).scaleb(-places)
        assert "E" not in text
        assert "/" not in text
    assert plain(Fraction(1, 2**12)) == "0.000244140625"
    assert plain(Fraction(1, 2**13)) == "1/8192"
    assert plain(Fraction(-1, 3)) == "-1/3"

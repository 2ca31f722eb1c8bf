"""Numbers as people read them: never rounded to something untrue."""

from __future__ import annotations

import random
import re
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from quantify.ir.digits import exact_ratio, from_digits, from_ratio, plain, to_digits
from quantify.report.numbers import compact, duration, grouped, percent, percent_range, scientific


def test_integers_are_grouped_or_cut_in_the_middle() -> None:
    assert grouped(0) == "0"
    assert grouped(1234567) == "1,234,567"
    assert grouped(-1234) == "-1,234"
    assert grouped(10**44).count("0") == 44
    assert grouped(10**45) == "1,000,000,000…000,000,000,000 (46 digits)"
    assert grouped(12345678901 * 10**50 + 987654321098) == "1,234,567,890…987,654,321,098 (61 digits)"


def test_narrow_columns_get_both_ends() -> None:
    assert compact(123_456_789_012_345) == "123,456,789,012,345"
    assert compact(1_234_567_890_123_456) == "1,234,567…456"
    assert compact(12 * 10**15 + 7) == "12,000,000…007"
    assert compact(10**374) == "100,000,000…000"


def test_a_hundred_thousand_digits_do_not_crash() -> None:
    number = 3 * 10**100_000 + 7
    assert grouped(number).endswith("(100,001 digits)")
    assert scientific(number) == "3.000 × 10^100000"
    assert scientific(Fraction(1, number)) == "3.333 × 10^-100001"
    assert percent(Fraction(number - 1, number), all_but=1) == "99.99…% (all but 1)"
    assert exact_ratio(Fraction(1, number)) == "1/3" + "0" * 99_999 + "7"
    assert from_ratio(exact_ratio(Fraction(-7, number))) == Fraction(-7, number)


def test_digits_of_any_length_go_there_and_back() -> None:
    rng = random.Random(1)
    with localcontext() as context:
        context.prec = 20_000
        for bits in (0, 1, 60, 1999, 2000, 2001, 5000, 33_333):
            number = rng.getrandbits(bits)
            assert to_digits(number) == f"{Decimal(number):f}"
            assert from_digits(to_digits(-number)) == -number
    for power in (499, 500, 501, 999, 1000, 1001, 4000):
        assert to_digits(10**power) == "1" + "0" * power
        assert to_digits(10**power - 1) == "9" * power
    with pytest.raises(ValueError, match="whole number"):
        from_digits("1e5")


def test_scientific_forms_are_those_of_decimal() -> None:
    rng = random.Random(2)
    for _ in range(300):
        value = Fraction(rng.randint(1, 10 ** rng.randint(1, 60)), rng.randint(1, 10 ** rng.randint(1, 60)))
        with localcontext() as context:
            context.prec = 150
            expected = f"{Decimal(value.numerator) / Decimal(value.denominator):.3e}"
        mantissa, exponent = expected.split("e")
        assert scientific(value) == f"{mantissa} × 10^{int(exponent)}"


def test_scientific_edges() -> None:
    assert scientific(0) == "0"
    assert scientific(9999) == "9.999 × 10^3"
    assert scientific(99999) == "1.000 × 10^5"
    assert scientific(99999, direction="down") == "9.999 × 10^4"
    assert scientific(-10001, direction="down") == "-1.001 × 10^4"
    assert scientific(7, digits=1) == "7 × 10^0"


def test_percentages_are_exact_when_short() -> None:
    assert percent(Fraction(0)) == "0 %"
    assert percent(Fraction(1)) == "100 %"
    assert percent(Fraction(1, 2)) == "50 %"
    assert percent(Fraction(1, 8)) == "12.5 %"
    assert percent(Fraction(1, 3)) == "33.3333 %"
    assert percent(Fraction(2, 3)) == "66.6667 %"
    assert percent(Fraction(1, 1000)) == "0.1 %"
    assert percent(Fraction(500001, 10**6)) == "50.0001 %"
    assert percent(Fraction(5000001, 10**7)) == "50.0000 %"  # four decimals: rounded


def test_percentages_never_round_to_all_or_nothing() -> None:
    assert percent(Fraction(10**9 - 3, 10**9)) == "100 % − 3.00 × 10^-7 %"
    assert percent(Fraction(10**9 - 3, 10**9), all_but=3) == "99.99…% (all but 3)"
    assert percent(Fraction(3, 10**9)) == "3.00 × 10^-7 %"
    rng = random.Random(3)
    for _ in range(500):
        size = 10 ** rng.randint(1, 30)
        share = Fraction(rng.choice([rng.randint(1, size - 1), 1, size - 1]), size)
        for direction in ("nearest", "down", "up"):
            text = percent(share, direction)
            assert not re.fullmatch(r"(0|100)(\.0*)? %", text), (share, direction, text)


def test_ranges_are_rounded_outwards() -> None:
    assert percent_range(Fraction(1, 3), Fraction(2, 3)) == "33.3333 % to 66.6667 %"
    assert percent_range(Fraction(0), Fraction(1)) == "0 % to 100 %"
    assert percent_range(Fraction(2, 3), Fraction(10**9 - 1, 10**9)) == "66.6666 % to 100 % − 1.00 × 10^-7 %"
    assert percent_range(Fraction(1, 4), Fraction(1, 4)) == "25 %"


def test_plain_decimals() -> None:
    assert plain(Fraction(3)) == "3"
    assert plain(Fraction(1, 2)) == "0.5"
    assert plain(Fraction(-5, 4)) == "-1.25"
    assert plain(Fraction(1, 3)) == "1/3"


def test_durations() -> None:
    assert [duration(s) for s in (7e-7, 0.0123, 1.26, 754.2)] == ["0.7 µs", "12.3 ms", "1.3 s", "12 min 34 s"]

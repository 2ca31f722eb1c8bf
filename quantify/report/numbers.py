"""Exact numbers to text for people: grouped, scientific and percent forms that never round to a lie."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from quantify.ir.digits import to_digits

Direction = Literal["nearest", "down", "up"]
PLACES = 4
"""Decimals of a percentage."""
ENDS = 12
"""Digits that are kept at either end of a shortened integer."""


def grouped(number: int, longest: int = 45) -> str:
    """The digits in groups of three; more than `longest` digits are cut in the middle and counted."""
    digits = to_digits(abs(number))
    sign = "-" if number < 0 else ""
    if len(digits) <= longest:
        return f"{number:,}"
    first = len(digits) % 3 or 3
    while first < ENDS - 2:
        first += 3
    return f"{sign}{_groups(digits[:first])}…{_groups(digits[-ENDS:])} ({len(digits):,} digits)"


def _groups(digits: str) -> str:
    first = len(digits) % 3 or 3
    return ",".join([digits[:first], *(digits[i : i + 3] for i in range(first, len(digits), 3))])


def compact(number: int) -> str:
    """The digits in groups when they fit a narrow column, else the first seven to nine and the last three."""
    digits = to_digits(number)
    if len(digits) <= 15:
        return grouped(number)
    return f"{_groups(digits[: (len(digits) % 3 or 3) + 6])}…{digits[-3:]}"


def scientific(value: Fraction | int, digits: int = 4, direction: Direction = "nearest") -> str:
    """`d.ddd × 10^e` with `digits` significant digits; 0 is "0". Any magnitude, no floats on the way."""
    value = Fraction(value)
    if value == 0:
        return "0"
    if value < 0:
        flipped: dict[Direction, Direction] = {"down": "up", "up": "down", "nearest": "nearest"}
        return "-" + scientific(-value, digits, flipped[direction])
    exponent = _exponent(value)
    mantissa = _rounded(value * Fraction(10) ** (digits - 1 - exponent), direction)
    if mantissa == 10**digits:
        mantissa, exponent = mantissa // 10, exponent + 1
    text = str(mantissa)
    return f"{text[0]}.{text[1:]} × 10^{exponent}" if digits > 1 else f"{text} × 10^{exponent}"


def _exponent(value: Fraction) -> int:
    """The e with 10^e ≤ value < 10^(e+1)."""
    bits = value.numerator.bit_length() - value.denominator.bit_length()
    exponent = math.floor(bits * math.log10(2)) - 1
    while value >= Fraction(10) ** (exponent + 1):
        exponent += 1
    return exponent


def _rounded(value: Fraction, direction: Direction) -> int:
    if direction == "down":
        return math.floor(value)
    return math.ceil(value) if direction == "up" else round(value)


def percent(share: Fraction, direction: Direction = "nearest", all_but: int | None = None) -> str:
    """A share from 0 to 1 in percent: `100 %` and `0 %` only when it is exactly that.

    Up to four decimals; fewer digits mean that the value is exact. A share that would round to 100 % names what is
    missing: the number `all_but` when it is given.
    """
    if share in (0, 1):
        return f"{share * 100} %"
    ticks = share * 100 * 10**PLACES
    if ticks.denominator == 1:
        return f"{_decimal(ticks.numerator).rstrip('0').rstrip('.')} %"
    rounded = _rounded(ticks, direction)
    if 0 < rounded < 100 * 10**PLACES:
        return f"{_decimal(rounded)} %"
    if share < Fraction(1, 2):
        return f"{scientific(share * 100, 3, direction)} %"
    if all_but is not None:
        return f"99.99…% (all but {grouped(all_but)})"
    flipped: dict[Direction, Direction] = {"down": "up", "up": "down", "nearest": "nearest"}
    return f"100 % − {scientific((1 - share) * 100, 3, flipped[direction])} %"


def _decimal(ticks: int) -> str:
    whole, rest = divmod(ticks, 10**PLACES)
    return f"{whole}.{rest:0{PLACES}d}"


def percent_range(lower: Fraction, upper: Fraction, all_but: int | None = None) -> str:
    """One percentage, or both ends rounded outwards."""
    if lower == upper:
        return percent(lower, all_but=all_but)
    return f"{percent(lower, 'down')} to {percent(upper, 'up')}"


def duration(seconds: float) -> str:
    """A time span with the unit that suits it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {seconds % 60:.0f} s"

"""Integers of any length to decimal digits and back; Python's own conversion refuses past some thousands of digits."""

from __future__ import annotations

from fractions import Fraction

SAFE_BITS = 2000
"""Numbers of fewer bits (640 digits, the least limit that Python can be given) convert directly."""


def to_digits(number: int) -> str:
    """The decimal digits of `number`, with a minus sign when negative."""
    if number < 0:
        return "-" + to_digits(-number)
    if number.bit_length() <= SAFE_BITS:
        return str(number)
    powers = [10**500]
    while powers[-1] <= number:
        powers.append(powers[-1] ** 2)
    # Halves, quarters, … of the digits: each part is below the power it came from.
    parts = [number]
    for level in range(len(powers) - 2, -1, -1):
        parts = [piece for part in parts for piece in divmod(part, powers[level])]
    return "".join(str(part).rjust(500, "0") for part in parts).lstrip("0")


def from_digits(text: str) -> int:
    """The integer that `text` (digits, perhaps after a minus sign) denotes.

    Raises:
        ValueError: Something else is in it.
    """
    negative = text.startswith("-")
    digits = text[1:] if negative else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"not a whole number: {text[:40]!r}")
    first = len(digits) % 500
    parts = [int(digits[:first] or "0"), *(int(digits[i : i + 500]) for i in range(first, len(digits), 500))]
    base = 10**500
    while len(parts) > 1:
        if len(parts) % 2:
            parts.insert(0, 0)
        parts = [parts[i] * base + parts[i + 1] for i in range(0, len(parts), 2)]
        base *= base
    return -parts[0] if negative else parts[0]


def exact_ratio(value: Fraction | int) -> str:
    """p/q in lowest terms, the denominator always written."""
    value = Fraction(value)
    return f"{to_digits(value.numerator)}/{to_digits(value.denominator)}"


def from_ratio(text: str) -> Fraction:
    """The fraction that `exact_ratio` wrote.

    Raises:
        ValueError: Something else, or a denominator of 0.
    """
    numerator, slash, denominator = text.partition("/")
    if not slash or from_digits(denominator) <= 0:
        raise ValueError(f"not a ratio: {text[:40]!r}")
    return Fraction(from_digits(numerator), from_digits(denominator))


def plain(value: Fraction) -> str:
    """A short decimal (0.5, 3), or p/q when no decimal of twelve places is exact."""
    if value.denominator == 1:
        return to_digits(value.numerator)
    for places in range(1, 13):
        scaled = value * 10**places
        if scaled.denominator == 1:
            sign, ticks = ("-" if scaled < 0 else ""), abs(scaled.numerator)
            whole, rest = divmod(ticks, 10**places)
            return f"{sign}{to_digits(whole)}.{rest:0{places}d}"
    return exact_ratio(value)

"""Integers of any length to decimal digits and back; Python's own conversion refuses past some thousands of digits."""

from __future__ import annotations

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

"""Proven intervals in, the C words and literals that hold them out.

CBMC promotes a narrow bit-vector to `int` like any short type, and pushes the truncation of an assignment back into
sums and products, so operands of up to 31 bits need no casts. Longer ones are cast to one common word first: between
`long` types of unequal sign C would convert a negative operand to an unsigned one.
"""

from __future__ import annotations

from dataclasses import dataclass

from quantify.errors import InputError

Interval = tuple[int, int]
"""Least and greatest value, both included."""
MAX_BITS = 512
"""Widest word this path writes."""


@dataclass(frozen=True, slots=True)
class Word:
    """A two's complement or unsigned word of `bits` bits."""

    signed: bool
    bits: int

    @property
    def name(self) -> str:
        """Its typedef: s12, u4, and bit for truth values."""
        return "bit" if self.bits == 0 else f"{'s' if self.signed else 'u'}{self.bits}"

    @property
    def promotes(self) -> bool:
        """Whether `int` holds all its values."""
        return self.bits <= 31 + self.signed


BIT = Word(False, 0)
"""The type of truth values."""


def join(a: Interval, b: Interval) -> Interval:
    """The smallest interval around both."""
    return min(a[0], b[0]), max(a[1], b[1])


def word_for(interval: Interval) -> Word:
    """The narrowest word for every value of an interval; unsigned when none is negative.

    Raises:
        InputError: More than `MAX_BITS` bits would be needed.
    """
    low, high = interval
    signed = low < 0
    bits = max(1, high.bit_length() + signed, (-low - 1).bit_length() + 1 if signed else 1)
    if bits > MAX_BITS:
        raise InputError(
            f"the arithmetic reaches {bits} bits, more than the {MAX_BITS} the CBMC path writes",
            "use another engine, or smaller coefficients or weights",
        )
    return Word(signed, bits)


def literal(value: int, word: Word) -> str:
    """An expression for a constant that `word` holds.

    CBMC 6.6 reads a decimal literal beyond 64 bits modulo 2^64 without a word, so long ones are shifted together.
    """
    if value < 0:
        return f"-{literal(-value, word)}"
    if value < 1 << 63:
        return str(value)
    high, low = value >> 62, value & ((1 << 62) - 1)
    return f"((({word.name}){literal(high, word)} << 62) + {low})"


def wide(operand: str, word: Word) -> str:
    """The operand as C computes with it in `word`: cast where promotion to int would not do."""
    return operand if word.promotes else f"({word.name}){operand}"

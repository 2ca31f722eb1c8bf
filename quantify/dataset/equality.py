"""Values of cases and of training rows to keys: two values are the same exactly when their keys are equal.

Text is compared in lower case with its white space folded (every run of it is one space, none at the ends); there is no
Unicode normalisation. Numbers are compared as exact decimals, however they are written: 1, 1.0 and 1e0 are one
number. JSON has types, so "1" is not 1 and true is not 1; where one of the files is a CSV, which has none, text is read
as a CSV cell is, in both files: what looks like a decimal is a number, an empty cell or `NA` is a missing value.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from quantify.properties.table import MISSING_WORDS
from quantify.properties.yaml import exact_decimal

EXACT = 2**53
"""Integers up to here are float64 values."""
NESTED = "\x00nested"
"""Rough key of every list and object."""


@dataclass(frozen=True, slots=True)
class Equality:
    """What it means that two values are the same."""

    digits: int | None = None
    """Decimals that numbers are rounded to (half to even) before they are compared; None: not at all."""
    untyped: bool = False
    """Whether text is read as a CSV cell."""

    def exact(self, value: Any) -> Hashable:
        """The key of a value: numbers int or Fraction, text, truth values, None, lists and objects of such."""
        if isinstance(value, bool):
            return ("text", "true" if value else "false") if self.untyped else ("bool", value)
        if isinstance(value, int | Fraction):
            return self._number(value)
        if isinstance(value, str):
            return self._text(folded(value))
        if value is None:
            return ("missing",)
        if isinstance(value, list | tuple):
            return ("list", tuple(map(self.exact, value)))
        if isinstance(value, dict):
            return ("object", frozenset((name, self.exact(item)) for name, item in value.items()))
        return ("other", str(value))

    def _number(self, value: int | Fraction) -> Hashable:
        return ("number", Fraction(value) if self.digits is None else round(Fraction(value), self.digits))

    def _text(self, text: str) -> Hashable:
        if self.untyped:
            if text in MISSING_WORDS:
                return ("missing",)
            number = exact_decimal(text)
            if number is not None:
                return self._number(number)
        return ("text", text)

    def rough(self, value: Any) -> Hashable:
        """A key that is quick to make, numbers as floats: values whose exact keys are equal have rough keys that match.

        They match when they are equal, or, when numbers are rounded, when one is among `rough_matches` of the other.
        """
        kind = type(value)
        if kind is str:
            text = folded(value)
            return self._rough_cell(text) if self.untyped else text
        if kind is float or kind is int or kind is Fraction:
            return self._rough_number(value)
        if kind is bool:
            return ("true" if value else "false") if self.untyped else value
        return None if value is None else NESTED

    def _rough_cell(self, text: str) -> Hashable:
        if text in MISSING_WORDS:
            return None
        try:
            number = float(text)
        except ValueError:
            return text
        # Where float reads what is no decimal, both files have the same text; NaN is not even equal to itself.
        return text if math.isnan(number) else self._rough_number(number)

    def _rough_number(self, value: float | Fraction) -> Hashable:
        if self.digits is not None:
            return _bucket(value, self.digits)
        if type(value) is int and -EXACT <= value <= EXACT:
            return value
        return _to_float(value)

    def rough_matches(self, value: Any) -> tuple[Hashable, ...]:
        """Every rough key that a value with the same exact key may have."""
        key = self.rough(value)
        if self.digits is None or not isinstance(key, int) or isinstance(key, bool):
            return (key,)
        return (key - 1, key, key + 1)


def folded(text: str) -> str:
    """Lower case, every run of white space one space, none at the ends."""
    return " ".join(text.lower().split())


def _to_float(value: float | Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _bucket(value: float | Fraction, digits: int) -> Hashable:
    """value · 10^digits to the nearest integer, one off at most; beyond 2^50, where floats are too coarse, one word."""
    scaled = _to_float(value) * 10.0**digits
    return round(scaled) if abs(scaled) < 2.0**50 else "\x00large"

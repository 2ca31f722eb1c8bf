"""Seeded random features: their YAML, and what it means (exact values, the library's float64) worked out here alone.

Decimals are added up as `Decimal` and become float64 through their text, float32 grids are walked with NumPy: nothing
here is shared with quantify.
"""

from __future__ import annotations

import decimal
import json
import math
import random
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

import numpy as np

Meaning = Fraction | str | None
"""What an expression sees: a number, the name of a category, None for a missing value."""
NUMERIC = ("int", "fixed", "float32")

INT_STARTS = (0, 0, -3, -6, 1, 2**24 - 3, -(2**24) - 4, 2**53 - 2, -(2**53) - 3, 1_000_000, 2**100)
FIXED_GRIDS = (
    ("0.1", "0.1"), ("-0.3", "0.1"), ("0.2", "0.001"), ("1e-5", "1e-5"), ("-1", "0.25"), ("16777215.5", "0.5"),
    ("-7", "3"), ("0.3", "0.7"), ("1", "0.0000001"), ("0.99999997", "1e-8"), ("-0.7", "0.35"), ("0", "2e-46"),
    # Around the middle of two float32s, in steps below that of float64: the value is rounded twice.
    ("1.0000000596046444", "1e-16"), ("3.0000001192092890", "1e-16"), ("-0.10000000521540645", "1e-17"),
)  # fmt: skip
FLOAT32_STARTS = (0.0, 1.0, 0.1, -0.1, 16777216.0, 1e-40, 1.1754944e-38, -1.0, 3e38, 0.5, 2.0**-149)
CODES = ("-7", "0", "1", "3", "16777217", "0.1", "-2.5", "0.30000001", "0.3", "1e-46")
WORDS = ("red", "green", "dark blue", "1", "no", "it's", "yes", "x")


@dataclass(frozen=True)
class Drawn:
    """One feature of a drawn problem."""

    name: str
    kind: str
    yaml: str
    """The flow mapping of the property file."""
    meanings: tuple[Meaning, ...]
    """In the order of the grid: ascending numbers (codes for categories), the missing value last."""
    texts: tuple[str, ...]
    """How a data file or a key of weights writes each of them."""
    inputs: tuple[tuple[float, ...], ...]
    """The model's columns for each of them."""
    columns: tuple[str, ...]
    codes: tuple[Fraction, ...] = ()
    """The exact numbers that categories stand for, where they are written in the file."""

    @property
    def size(self) -> int:
        """Number of positions."""
        return len(self.meanings)

    @property
    def numbers(self) -> list[Fraction]:
        """The numeric values, the missing one left out."""
        return [value for value in self.meanings if isinstance(value, Fraction)]

    @property
    def is_onehot(self) -> bool:
        return len(self.columns) > 1


def quoted(text: str) -> str:
    """Text as a YAML scalar: JSON strings are YAML 1.2 strings."""
    return json.dumps(text)


def decimal_text(value: Fraction) -> str:
    """The exact decimal of a fraction that has one."""
    with decimal.localcontext(prec=400) as context:
        context.traps[decimal.Inexact] = True
        return str(Decimal(value.numerator) / Decimal(value.denominator))


def draw_feature(rng: random.Random, name: str, kinds: tuple[str, ...], widest: int, missing: bool) -> Drawn:
    """A feature of one of `kinds` with at most about `widest` positions."""
    kind = rng.choice(kinds)
    made = {"int": _int, "bool": _bool, "categorical": _categorical, "codes": _codes, "onehot": _onehot,
            "fixed": _fixed, "float32": _float32}[kind](rng, name, max(1, widest))  # fmt: skip
    if missing and kind != "onehot" and made.size < widest and rng.random() < 0.5:
        made = replace(
            made,
            yaml=made.yaml[:-1] + ", missing: true}",
            meanings=(*made.meanings, None),
            texts=(*made.texts, "missing"),
            inputs=(*made.inputs, (math.nan,)),
        )
    return made


def _numeric(name: str, kind: str, keys: str, values: list[Fraction], floats: list[float]) -> Drawn:
    texts = tuple(map(decimal_text, values))
    yaml = f"{{name: {quoted(name)}, type: {kind}, {keys}}}"
    return Drawn(name, kind, yaml, tuple(values), texts, tuple((f,) for f in floats), (name,))


def _int(rng: random.Random, name: str, widest: int) -> Drawn:
    start = rng.choice(INT_STARTS)
    values = range(start, start + rng.randint(1, min(widest, rng.choice((4, 9, 9, 40)))))
    return int_feature(name, values)


def int_feature(name: str, values: range) -> Drawn:
    """Consecutive integers."""
    keys = f"min: {values[0]}, max: {values[-1]}"
    return _numeric(name, "int", keys, [Fraction(v) for v in values], [float(v) for v in values])


def _fixed(rng: random.Random, name: str, widest: int) -> Drawn:
    low, step = rng.choice(FIXED_GRIDS)
    steps = rng.randint(1, min(widest, rng.choice((4, 9, 9, 30))))
    with decimal.localcontext(prec=100):
        grid = [Decimal(low) + i * Decimal(step) for i in range(steps)]
    keys = f"min: {low}, max: {grid[-1]}, step: {step}"
    return _numeric(name, "fixed", keys, [Fraction(value) for value in grid], [float(str(value)) for value in grid])


def _float32(rng: random.Random, name: str, widest: int) -> Drawn:
    value = np.float32(rng.choice(FLOAT32_STARTS))
    for _ in range(rng.randint(0, 4)):
        value = np.nextafter(value, np.float32(-np.inf))
    values = [float(value)]
    for _ in range(rng.randint(min(widest - 1, rng.choice((0, 2))), min(widest, 9) - 1)):
        value = np.nextafter(value, np.float32(np.inf))
        values.append(float(value))
    values = [value + 0.0 for value in values]  # −0.0 is 0.0
    least, most = Fraction(values[0]), Fraction(values[-1])
    # Bounds that are no float32 round inward.
    sliver = Fraction(1, 10**200)
    low = decimal_text(least - rng.choice((0, sliver)))
    high = decimal_text(most + rng.choice((0, sliver)))
    return _numeric(name, "float32", f"min: {low}, max: {high}", [Fraction(v) for v in values], values)


def _bool(rng: random.Random, name: str, widest: int) -> Drawn:
    yaml = f"{{name: {quoted(name)}, type: bool}}"
    return Drawn(name, "bool", yaml, (Fraction(0), Fraction(1)), ("0", "1"), ((0.0,), (1.0,)), (name,))


def _words(rng: random.Random, widest: int) -> list[str]:
    return rng.sample(WORDS, rng.randint(min(2, widest), max(1, min(widest, 5))))


def _categorical(rng: random.Random, name: str, widest: int) -> Drawn:
    words = _words(rng, widest)
    yaml = f"{{name: {quoted(name)}, type: categorical, values: [{', '.join(map(quoted, words))}]}}"
    inputs = tuple((float(place),) for place in range(len(words)))
    return Drawn(name, "categorical", yaml, tuple(words), tuple(words), inputs, (name,))


def _codes(rng: random.Random, name: str, widest: int) -> Drawn:
    words = _words(rng, widest)
    pairs = dict(zip(words, rng.sample(CODES, len(words)), strict=True))
    written = ", ".join(f"{quoted(word)}: {code}" for word, code in pairs.items())
    yaml = f"{{name: {quoted(name)}, type: categorical, values: {{{written}}}}}"
    words.sort(key=lambda word: Decimal(pairs[word]))
    inputs = tuple((float(pairs[word]),) for word in words)
    codes = tuple(Fraction(pairs[word]) for word in words)
    return Drawn(name, "categorical", yaml, tuple(words), tuple(words), inputs, (name,), codes)


def _onehot(rng: random.Random, name: str, widest: int) -> Drawn:
    words = rng.sample(WORDS, rng.randint(2, max(2, min(widest, 4))))
    columns = tuple(f"{name}={place}" for place in range(len(words)))
    yaml = (
        f"{{name: {quoted(name)}, type: categorical, values: [{', '.join(map(quoted, words))}], "
        f"onehot: [{', '.join(map(quoted, columns))}]}}"
    )
    inputs = tuple(tuple(float(i == j) for j in range(len(words))) for i in range(len(words)))
    return Drawn(name, "categorical", yaml, tuple(words), tuple(words), inputs, columns)


def draw_features(rng: random.Random, most_points: int, missing: bool, kinds: tuple[str, ...]) -> list[Drawn]:
    """Between 1 and 12 features whose product has at most `most_points` points."""
    names = ["a", "b", "rho", "size (cm)", "d_0", "x", "flag", "h", "label2", "k", "not", "z"]
    features: list[Drawn] = []
    room = most_points
    for name in names[: rng.choice((1, 2, 3, 3, 4, 4, 5, 6, 12))]:
        if room < 2:
            break
        made = draw_feature(rng, name, kinds, room, missing)
        if made.size > room:
            continue
        features.append(made)
        room //= made.size
    return features or [_bool(rng, "flag", 2)]

"""Seeded random texts in the property language over drawn features: constants lie on, next to and between values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

from drawn_features import Drawn, decimal_text

Part = tuple[str, int]
"""Text and how tightly it binds."""
OR, AND, NOT, COMPARISON, SUM, PRODUCT, UNARY, ATOM = range(1, 9)
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
DIVISORS = ("2", "3", "0.1", "-2", "7", "-0.3", "0.25", "1", "-1", "5")
FACTORS = ("2", "3", "-1", "0.5", "-0.1", "7", "0", "-4", "1e1", ".25")


def at_least(part: Part, level: int) -> str:
    """The text, in parentheses unless it binds at least as tightly as `level`."""
    return part[0] if part[1] >= level else f"({part[0]})"


class Writer:
    """Draws expressions.

    Args:
        rng: The source of all choices.
        features: What may be named.
        labels: The classes by `str`, empty where the answer must not be used.
        integer_labels: Whether `label == 3` may be written without quotes.
        indexed: Whether `x[i]` may be used.
    """

    def __init__(
        self, rng: random.Random, features: Sequence[Drawn], labels: Sequence[str], integer_labels: bool, indexed: bool
    ) -> None:
        self.rng = rng
        self.features = list(features)
        self.labels = list(labels)
        self.integer_labels = integer_labels
        self.indexed = indexed
        self.exact = [f for f in features if f.kind in ("int", "fixed", "bool")]
        self.floats = [f for f in features if f.kind == "float32"]
        self.categories = [f for f in features if f.kind == "categorical"]

    def text(self, depth: int) -> str:
        """A whole expression."""
        return self.condition(depth)[0]

    # --- truth values ---
    def condition(self, depth: int) -> Part:
        ways = [(self.exact_comparison, bool(self.exact), 4), (self.float_comparison, bool(self.floats), 3)]
        ways += [(self.category, bool(self.categories), 3), (self.about_label, bool(self.labels), 3)]
        ways += [(self.about_missing, True, 1), (self.flag, True, 1)]
        if depth > 0:
            ways += [(self.junction, True, 8), (self.negation, True, 3), (self.implication, True, 2)]
            ways += [(self.quantified, self.indexed and len(self.exact) > 1, 3), (self.two_truths, True, 1)]
        possible = [(way, weight) for way, allowed, weight in ways if allowed]
        (way,) = self.rng.choices([w for w, _ in possible], [weight for _, weight in possible])
        return way(depth - 1)

    def junction(self, depth: int) -> Part:
        word, level = self.rng.choice((("and", AND), ("or", OR)))
        parts = [self.condition(depth) for _ in range(self.rng.choice((2, 2, 3, 4)))]
        return f" {word} ".join(at_least(part, level) for part in parts), level

    def negation(self, depth: int) -> Part:
        return f"not {at_least(self.condition(depth), NOT)}", NOT

    def implication(self, depth: int) -> Part:
        return f"implies({self.condition(depth)[0]}, {self.condition(depth)[0]})", ATOM

    def two_truths(self, depth: int) -> Part:
        left, right = self.condition(depth), self.condition(depth)
        return f"{at_least(left, SUM)} {self.rng.choice(('==', '!='))} {at_least(right, SUM)}", COMPARISON

    def flag(self, depth: int) -> Part:
        flags = [f for f in self.features if f.kind == "bool"]
        if not flags or self.rng.random() < 0.1:
            return self.rng.choice((("True", ATOM), ("false", ATOM), ("1 < 2", COMPARISON)))
        return self.named(self.rng.choice(flags))

    def about_missing(self, depth: int) -> Part:
        return f"is_missing({self.named(self.rng.choice(self.features))[0]})", ATOM

    def about_label(self, depth: int) -> Part:
        if self.rng.random() < 0.5:
            return f"label {self.rng.choice(('==', '!='))} {self.label()}", COMPARISON
        chosen = [self.label() for _ in range(self.rng.randint(1, 3))]
        return f"label {self.rng.choice(('in', 'not in'))} ({', '.join(chosen)},)", COMPARISON

    def label(self) -> str:
        found = self.rng.choice(self.labels)
        return found if self.integer_labels and self.rng.random() < 0.5 else repr(found)

    def category(self, depth: int) -> Part:
        feature = self.rng.choice(self.categories)
        words = [repr(word) for word in feature.meanings if isinstance(word, str)]
        name = self.named(feature)[0]
        others = [f for f in self.categories if f is not feature]
        if others and self.rng.random() < 0.2:
            return f"{name} {self.rng.choice(('==', '!='))} {self.named(self.rng.choice(others))[0]}", COMPARISON
        if self.rng.random() < 0.5:
            return f"{name} {self.rng.choice(('==', '!='))} {self.rng.choice(words)}", COMPARISON
        chosen = self.rng.choices(words, k=self.rng.randint(1, 3))
        return f"{name} {self.rng.choice(('in', 'not in'))} [{', '.join(chosen)}]", COMPARISON

    def quantified(self, depth: int) -> Part:
        """Over x[i], in the longest run of features that are exact numbers."""
        numeric = [f in self.exact for f in self.features]
        start = self.rng.choice([i for i, fine in enumerate(numeric) if fine])
        end = next((i for i in range(start, len(numeric)) if not numeric[i]), len(numeric))
        loop = f"for i in range({start}, {end})" if start else f"for i in range({end})"
        element = f"x[i] {self.rng.choice(COMPARISONS)} {self.rng.choice(('i', '2 * i - 1', '1', '0.1'))}"
        if self.rng.random() < 0.5:
            return f"{self.rng.choice(('all', 'any'))}({element} {loop})", ATOM
        if self.rng.random() < 0.5:
            return f"count({element} {loop}) {self.rng.choice(COMPARISONS)} {self.rng.randint(0, 3)}", COMPARISON
        many = [f for f in self.features[start:end] if f.numbers]
        around = sum((self.rng.choice(f.numbers) for f in many), Fraction(0))
        return f"sum(x[i] {loop}) {self.rng.choice(COMPARISONS)} {self.constant(around)[0]}", COMPARISON

    # --- comparisons ---
    def float_comparison(self, depth: int) -> Part:
        """A float32 feature with a constant or another one: all that is exact."""
        feature = self.rng.choice(self.floats)
        name = self.named(feature)
        number = self.constant(self.rng.choice(feature.numbers))
        op = self.rng.choice(COMPARISONS)
        way = self.rng.randrange(7)
        if way == 0 and len(self.floats) > 1:
            other = self.named(self.rng.choice(self.floats))[0]
            return f"{name[0]} {op} {self.rng.choice(('', '-'))}{other}", COMPARISON
        if way == 1:
            return f"abs({name[0]}) {op} {number[0]}", COMPARISON
        if way == 2:
            other = self.named(self.rng.choice(self.floats))[0]
            return f"{self.rng.choice(('min', 'max'))}({name[0]}, {other}) {op} {number[0]}", COMPARISON
        if way == 3:
            return f"{number[0]} {self.rng.choice(('<', '<='))} {name[0]} {op} {number[0]}", COMPARISON
        if way == 4:
            return f"-2 * {name[0]} + {at_least(number, PRODUCT)} {op} {number[0]}", COMPARISON
        return f"{name[0]} {op} {number[0]}", COMPARISON

    def exact_comparison(self, depth: int) -> Part:
        part, around = self.number(self.rng.choice((0, 1, 1, 2, 3)))
        text = f"{at_least(part, SUM)} {self.rng.choice(COMPARISONS)} "
        if self.rng.random() < 0.3:
            other, _ = self.number(self.rng.choice((0, 0, 1)))
            return text + at_least(other, SUM), COMPARISON
        text += self.constant(around)[0]
        if self.rng.random() < 0.15:
            other, _ = self.number(0)
            text += f" {self.rng.choice(COMPARISONS)} {at_least(other, SUM)}"
        return text, COMPARISON

    # --- numbers ---
    def number(self, depth: int) -> tuple[Part, Fraction]:
        """A number, and one that it may be."""
        if depth <= 0 or self.rng.random() < 0.3:
            feature = self.rng.choice(self.exact)
            return self.named(feature), self.rng.choice(feature.numbers)
        ways = (self.total, self.total, self.scaled, self.product, self.chosen, self.counted, *[self.divided] * 3)
        return self.rng.choice(ways)(depth - 1)

    def total(self, depth: int) -> tuple[Part, Fraction]:
        (left, a), (right, b) = self.number(depth), self.number(depth)
        if self.rng.random() < 0.5:
            return (f"{at_least(left, SUM)} + {at_least(right, PRODUCT)}", SUM), a + b
        return (f"{at_least(left, SUM)} - {at_least(right, PRODUCT)}", SUM), a - b

    def scaled(self, depth: int) -> tuple[Part, Fraction]:
        part, a = self.number(depth)
        factor = self.rng.choice(FACTORS)
        way = self.rng.randrange(3)
        if way == 0:
            return (f"{factor} * {at_least(part, UNARY)}", PRODUCT), Fraction(factor) * a
        if way == 1 and Fraction(factor):
            return (f"{at_least(part, PRODUCT)} / {factor}", PRODUCT), a / Fraction(factor)
        return (f"-{at_least(part, UNARY)}", UNARY), -a

    def product(self, depth: int) -> tuple[Part, Fraction]:
        (left, a), (right, b) = self.number(depth), self.number(depth)
        return (f"{at_least(left, PRODUCT)} * {at_least(right, UNARY)}", PRODUCT), a * b

    def divided(self, depth: int) -> tuple[Part, Fraction]:
        part, a = self.number(depth)
        if self.rng.random() < 0.7:
            # Around zero, where flooring and truncating differ.
            off = self.constant(a)
            part, a = (f"({at_least(part, SUM)} - {at_least(off, PRODUCT)})", ATOM), Fraction(0)
        op, divisor = self.rng.choice(("//", "%")), self.rng.choice(DIVISORS)
        value = a // Fraction(divisor) if op == "//" else a % Fraction(divisor)
        return (f"{at_least(part, PRODUCT)} {op} {divisor}", PRODUCT), Fraction(value)

    def chosen(self, depth: int) -> tuple[Part, Fraction]:
        (left, a), (right, b) = self.number(depth), self.number(depth)
        name = self.rng.choice(("abs", "min", "max", "sum"))
        if name == "abs":
            return (f"abs({left[0]})", ATOM), abs(a)
        result = {"min": min(a, b), "max": max(a, b), "sum": a + b}[name]
        return (f"{name}({left[0]}, {right[0]})", ATOM), result

    def counted(self, depth: int) -> tuple[Part, Fraction]:
        parts = [self.condition(min(depth, 1)) for _ in range(self.rng.randint(1, 3))]
        if self.rng.random() < 0.5:
            return (f"count({', '.join(part[0] for part in parts)})", ATOM), Fraction(self.rng.randint(0, len(parts)))
        other, a = self.number(0)
        return (f"({parts[0][0]}) + {at_least(other, PRODUCT)}", SUM), a

    # --- names and constants ---
    def named(self, feature: Drawn) -> Part:
        if self.indexed and self.rng.random() < 0.15:
            return f"x[{self.features.index(feature)}]", ATOM
        plain = feature.name.isidentifier() and feature.name not in ("x", "not", "label", "score")
        if plain and self.rng.random() < 0.95:
            return feature.name, ATOM
        return f'feature("{feature.name}")', ATOM

    def constant(self, around: Fraction) -> Part:
        """A decimal on `around` or a little off."""
        off = self.rng.choice((0, 0, 0, Fraction(1, 2), Fraction(-1, 10), Fraction(1, 10**9), -Fraction(1, 10**60), 1))
        value = around + off
        try:
            text = decimal_text(value)
        except ArithmeticError:
            text = str(round(value))
        return text, UNARY if text.startswith("-") else ATOM

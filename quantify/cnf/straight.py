"""What lies between an integer problem and C text: a straight-line program of typed single assignments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quantify.cnf.words import BIT, Word

NAME = re.compile(r"\b[a-z][a-z0-9]*\b")
CAST = re.compile(r"\(([su])(\d+)\)")
COMPARISON = re.compile(r"([a-z0-9]+) (==|!=|<|>=|<=|>) ([a-z0-9]+)")
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", "<=": ">", ">": "<="}


@dataclass(frozen=True, slots=True)
class Input:
    """One program input: the position of `feature` is `low` + input, 0 ≤ input < `width`, width ≥ 2."""

    feature: int
    low: int
    width: int

    @property
    def name(self) -> str:
        """What the program calls it."""
        return f"x{self.feature}"

    @property
    def word(self) -> Word:
        """Its type."""
        return Word(False, (self.width - 1).bit_length())

    @property
    def whole(self) -> bool:
        """Whether every bit pattern of its word is a value."""
        return self.width == 1 << self.word.bits


@dataclass(frozen=True, slots=True)
class Let:
    """One assignment `const word name = …;`, the lines being the operands of `operator` (or one expression)."""

    word: Word
    name: str
    lines: tuple[str, ...]
    operator: str = ""


@dataclass(frozen=True, slots=True)
class TreeLets:
    """The assignments that decide whether the label is one of `labels`."""

    labels: tuple[int, ...]
    lets: tuple[Let, ...]


@dataclass(frozen=True)
class StraightLine:
    """A program whose `condition` is true exactly on the wanted points of a region (or is the class index)."""

    inputs: tuple[Input, ...]
    """Ascending by feature; only those that the program refers to."""
    region: tuple[Let, ...]
    restriction: str
    """Truth of lying in the region, given that every input is below its width; "1" for a box, "0" for an empty one."""
    trees: tuple[TreeLets, ...]
    query: tuple[Let, ...]
    condition: str
    network: tuple[Let, ...] = ()
    """The scores of a network, layer by layer."""

    @property
    def words(self) -> tuple[Word, ...]:
        """Every integer word that occurs, narrow ones first."""
        lets = [*self.region, *self.network, *(let for tree in self.trees for let in tree.lets), *self.query]
        texts = [self.restriction, self.condition, *(line for let in lets for line in let.lines)]
        used = {let.word for let in lets} | {item.word for item in self.inputs}
        used |= {Word(sign == "s", int(bits)) for text in texts for sign, bits in CAST.findall(text)}
        return tuple(sorted(used - {BIT}, key=lambda word: (word.bits, word.signed)))


EMPTY = StraightLine((), (), "0", (), (), "0")
"""The program of a region without points."""


def names_in(texts: Iterable[str]) -> set[str]:
    """The inputs and assignments that expressions refer to."""
    return {name for text in texts for name in NAME.findall(text)}


def live(lets: Sequence[Let], needed: set[str]) -> tuple[Let, ...]:
    """The assignments that `needed` names rest on, in order; their own operands join `needed`."""
    kept: list[Let] = []
    for let in reversed(lets):
        if let.name in needed:
            kept.append(let)
            needed |= names_in(let.lines)
    return tuple(reversed(kept))


def enclosed(text: str) -> str:
    """The expression in parentheses unless it is a name or the negation of one."""
    return text if text.removeprefix("!").isalnum() else f"({text})"


def negated(text: str) -> str:
    """Logical negation, not doubled."""
    if text in ("0", "1"):
        return "1" if text == "0" else "0"
    comparison = COMPARISON.fullmatch(text)
    if comparison:
        return f"{comparison[1]} {OPPOSITE[comparison[2]]} {comparison[3]}"
    if text.startswith("!"):
        inner = text[1:]
        if inner.isalnum():
            return inner
        if inner.startswith("(") and inner.find(")") == len(inner) - 1:
            return inner[1:-1]
    return f"!{enclosed(text)}"

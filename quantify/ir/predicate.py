"""The integer predicate language that engines, CBMC and BDDs see: features are grid positions, labels class indices.

`discretise` lowers the syntax tree of `ir.property` into it: rationals are multiplied out, categories and float32
features become position ranges, and comparisons that read a missing value are guarded. All arithmetic is over the
unbounded integers; `discretise` proves an interval for every node (`ranges`), and a back end with machine words
refuses what does not fit its words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal


# --- integers ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Linear:
    """constant + Σ coefficient·(position of feature), features ascending, coefficients non-zero."""

    terms: tuple[tuple[int, int], ...]
    """(feature, coefficient) pairs."""
    constant: int


@dataclass(frozen=True, slots=True)
class Plus:
    """Sum of the arguments."""

    arguments: tuple[IntExpr, ...]


@dataclass(frozen=True, slots=True)
class Times:
    """left · right."""

    left: IntExpr
    right: IntExpr


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """⌊argument / divisor⌋, divisor > 0."""

    argument: IntExpr
    divisor: int


@dataclass(frozen=True, slots=True)
class Extreme:
    """The smallest ("min") or largest ("max") of one or more arguments."""

    which: Literal["min", "max"]
    arguments: tuple[IntExpr, ...]


@dataclass(frozen=True, slots=True)
class CountOf:
    """How many of the arguments are true."""

    arguments: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """The integer score `index` of the network as `IntNetwork` computes it (negated where it decides by argmin).

    It lies between `low` and `high`, both included, over the whole domain (proven by range analysis).
    """

    index: int
    low: int
    high: int


# --- truth values ------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Always:
    """A constant."""

    value: bool


@dataclass(frozen=True, slots=True)
class Within:
    """low ≤ position of `feature` < high."""

    feature: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class HasLabel:
    """The model's class index is one of `labels` (ascending)."""

    labels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sign:
    """argument op 0."""

    op: Literal["<", "<=", "==", "!="]
    argument: IntExpr


@dataclass(frozen=True, slots=True)
class Negation:
    """Not."""

    argument: Predicate


@dataclass(frozen=True, slots=True)
class AllOf:
    """Conjunction; true when empty."""

    arguments: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Disjunction; false when empty."""

    arguments: tuple[Predicate, ...]


IntExpr = Linear | Plus | Times | FloorDiv | Extreme | CountOf | Score
Predicate = Always | Within | HasLabel | Sign | Negation | AllOf | AnyOf


def nodes(node: IntExpr | Predicate) -> Iterator[IntExpr | Predicate]:
    """The node and everything below it."""
    stack: list[IntExpr | Predicate] = [node]
    while stack:
        top = stack.pop()
        yield top
        if isinstance(top, Plus | Extreme | CountOf | AllOf | AnyOf):
            stack.extend(top.arguments)
        elif isinstance(top, Sign | Negation | FloorDiv):
            stack.append(top.argument)
        elif isinstance(top, Times):
            stack.extend((top.left, top.right))


def reads_scores(node: IntExpr | Predicate) -> bool:
    """Whether the network's scores occur in `node`."""
    return any(isinstance(part, Score) for part in nodes(node))

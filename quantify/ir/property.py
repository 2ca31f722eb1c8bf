"""The syntax tree of the property language, with names resolved to feature places and class indices.

Booleans and numbers are separate node families; the parser inserts the conversions, so that every back end is a
plain visitor. Numbers are exact. A comparison whose arithmetic reads a missing value is false, whatever the operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

CompareOp = Literal["<", "<=", ">", ">=", "==", "!="]


# --- numbers -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Constant:
    """An exact rational constant."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class FeatureValue:
    """The value of the domain's feature at place `feature` (a number: not a categorical feature)."""

    feature: int


@dataclass(frozen=True, slots=True)
class ScoreValue:
    """The network's score `index`, as the library's real-valued one (a sigmoid head has score 0, the logit)."""

    index: int


@dataclass(frozen=True, slots=True)
class Negate:
    """−argument."""

    argument: NumberExpr


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """left op right, exactly."""

    op: Literal["+", "-", "*"]
    left: NumberExpr
    right: NumberExpr


@dataclass(frozen=True, slots=True)
class FloorDivide:
    """⌊argument / divisor⌋ as in Python; the divisor is a non-zero constant."""

    argument: NumberExpr
    divisor: Fraction


@dataclass(frozen=True, slots=True)
class Modulo:
    """argument − divisor·⌊argument / divisor⌋ as in Python; the divisor is a non-zero constant."""

    argument: NumberExpr
    divisor: Fraction


@dataclass(frozen=True, slots=True)
class Aggregate:
    """abs (one argument), min, max or sum of one or more numbers."""

    function: Literal["abs", "min", "max", "sum"]
    arguments: tuple[NumberExpr, ...]


@dataclass(frozen=True, slots=True)
class CountTrue:
    """How many of the arguments are true."""

    arguments: tuple[BoolExpr, ...]


# --- truth values ------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Truth:
    """A constant."""

    value: bool


@dataclass(frozen=True, slots=True)
class Compare:
    """left op right; false when either side reads a missing feature."""

    op: CompareOp
    left: NumberExpr
    right: NumberExpr


@dataclass(frozen=True, slots=True)
class CategoryIn:
    """The categorical feature holds one of `positions` (ascending grid positions, never the missing one)."""

    feature: int
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsMissing:
    """The feature is NaN."""

    feature: int


@dataclass(frozen=True, slots=True)
class LabelIn:
    """The model's answer is one of the class indices `labels` (ascending)."""

    labels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    argument: BoolExpr


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction; true when empty."""

    arguments: tuple[BoolExpr, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction; false when empty."""

    arguments: tuple[BoolExpr, ...]


NumberExpr = Constant | FeatureValue | ScoreValue | Negate | Arithmetic | FloorDivide | Modulo | Aggregate | CountTrue
BoolExpr = Truth | Compare | CategoryIn | IsMissing | LabelIn | Not | And | Or

"""The types that parts of an expression can have, beside numbers and truth values of `quantify.ir.property`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from quantify.ir.domain import Number
from quantify.ir.property import (
    And,
    BoolExpr,
    CategoryIn,
    Compare,
    IsMissing,
    LabelIn,
    Not,
    NumberExpr,
    Or,
    Truth,
)
from quantify.properties.scope import Scope

BOOLEANS = (Truth, Compare, CategoryIn, IsMissing, LabelIn, Not, And, Or)


@dataclass(frozen=True, slots=True)
class Plain:
    """A number that was written, or computed from such and loop variables; `text` is what labels are compared with."""

    value: Number
    text: str


@dataclass(frozen=True, slots=True)
class Word:
    """Text in quotes."""

    text: str


@dataclass(frozen=True, slots=True)
class Label:
    """The model's answer."""


@dataclass(frozen=True, slots=True)
class Rank:
    """The class with the lowest or highest score, ties to the lowest index."""

    which: Literal["lowest", "highest"]


@dataclass(frozen=True, slots=True)
class Category:
    """A categorical feature, by place."""

    feature: int


@dataclass(frozen=True, slots=True)
class Vector:
    """A list of values."""

    values: tuple[Any, ...]
    """Each a Value."""


Value = Plain | Word | Label | Rank | Category | Vector | NumberExpr | BoolExpr


class Resolver(Protocol):
    """What comparisons need from the resolver of expressions."""

    scope: Scope

    def as_number(self, value: Value, at: int) -> NumberExpr:
        """The value as a number, or an explained error."""
        ...


def type_name(value: Value) -> str:
    """The type in a message."""
    if isinstance(value, Word):
        return "text"
    if isinstance(value, Label | Rank):
        return "label"
    if isinstance(value, Category):
        return "category"
    if isinstance(value, Vector):
        return "list"
    return "truth value" if isinstance(value, BOOLEANS) else "number"

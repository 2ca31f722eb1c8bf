"""Counts with their guarantee, and the protocol of whatever produces them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Protocol

from quantify.resources import Limits, Progress

if TYPE_CHECKING:
    from quantify.ir.problem import GridCase, GridProblem, GridQuery


class Guarantee(IntEnum):
    """The ladder, weakest first so that min() of two is what a combination may claim."""

    SAMPLED = 0
    PAC = 1
    PROB_EXACT = 2
    BOUNDS = 3
    EXACT = 4

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Count:
    """How many points (or how much integer weight) satisfy a query, between `lower` and `upper`, both included."""

    lower: int
    upper: int
    guarantee: Guarantee
    engine: str
    seconds: float
    digest: str
    """`GridProblem.digest` of the case."""
    seed: int | None = None
    epsilon: Fraction | None = None
    """pac: the true count lies in [c/(1+ε), c(1+ε)] with probability ≥ 1−δ; lower and upper are these ends."""
    delta: Fraction | None = None
    """prob-exact, pac: probability that the statement is wrong."""
    confidence: Fraction | None = None
    """sampled: confidence of [lower, upper]."""
    samples: int | None = None
    """sampled: number of draws (over the region), of which `hits` satisfied the query."""
    hits: int | None = None
    estimate: int | None = None
    """pac, sampled: the point estimate."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an engine thinks a case will cost."""

    seconds: float
    reason: str
    """One clause that explains the figure, such as "2^36 inputs, bit-sliced"."""


class Engine(Protocol):
    """An integer problem to counts. One module in `quantify.engines` each, found by its `ENGINE` attribute."""

    name: ClassVar[str]
    guarantee: ClassVar[Guarantee]
    """Of a count that was not cut short."""
    automatic: ClassVar[bool]
    """Whether `auto` may choose it."""
    structures: ClassVar[frozenset[str]]
    """Kinds of model it counts on: "tree", "network"; other engines' methods are not called."""

    def refuses(self, problem: GridProblem, case: GridCase) -> str | None:
        """Why this engine cannot count the case, or None; cheap."""
        ...

    def estimate(self, problem: GridProblem, case: GridCase) -> Estimate:
        """Expected cost; cheap, and only for a case that is not refused."""
        ...

    def count(self, problem: GridProblem, case: GridCase, limits: Limits, progress: Progress) -> Mapping[str, Count]:
        """One count per query of the case, every query counted by itself unless the engine's docstring says so.

        On reaching the deadline the counts are the bounds proven so far, with guarantee BOUNDS.

        Raises:
            UndecidedError: Nothing at all could be said.
        """
        ...

    def witness(self, problem: GridProblem, case: GridCase, query: GridQuery, limits: Limits) -> tuple[int, ...] | None:
        """Positions of one input that satisfies the query, or None when there is none or it was not found."""
        ...

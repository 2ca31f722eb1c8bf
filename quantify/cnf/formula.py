"""A propositional formula with the variables it is to be counted over, and what a counter answers."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol

from quantify.ir.count import Guarantee
from quantify.resources import Limits


@dataclass(frozen=True)
class Cnf:
    """Clauses over variables 1…`variables`, and the variables to count over.

    Wanted is `multiplier` · the number of assignments to `projection` that extend to a model.

    A formula that is false has an empty clause (a lone 0 in `literals`); one without clauses is true.
    Projection variables may occur in no clause (each doubles the count); the projection may be empty (0 or 1).
    """

    variables: int
    literals: array[int]
    """DIMACS literals, each clause ended by 0 (typecode "i")."""
    projection: tuple[int, ...]
    """Ascending, without duplicates."""
    multiplier: int = 1

    def clauses(self) -> Iterator[tuple[int, ...]]:
        """The clauses one by one."""
        start = 0
        for place, literal in enumerate(self.literals):
            if literal == 0:
                yield tuple(self.literals[start:place])
                start = place + 1


@dataclass(frozen=True, slots=True)
class CounterAnswer:
    """What a counter says of a formula, the multiplier included; lower == upper for exact and prob-exact."""

    lower: int
    upper: int
    guarantee: Guarantee
    seconds: float
    estimate: int | None = None
    epsilon: Fraction | None = None
    delta: Fraction | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class CounterTool:
    """One installed counter, as found: the identity that calibration results are cached under."""

    name: str
    version: str
    path: str
    """Of the program or extension module whose bytes do the counting."""
    sha256: str


class Counter(Protocol):
    """A projected model counter. One module in `quantify.cnf.counters` each, found by its `COUNTER` attribute."""

    name: ClassVar[str]
    guarantee: ClassVar[Guarantee]
    install: ClassVar[str]
    """The command that installs it."""
    by_default: ClassVar[bool]
    """Part of the default install: its absence is a failure of `doctor`."""

    def locate(self) -> CounterTool | None:
        """Find the tool without running a count; None when it is not installed."""
        ...

    def count(
        self, cnf: Cnf, limits: Limits, *, epsilon: Fraction = Fraction(4, 5), delta: Fraction = Fraction(1, 5)
    ) -> CounterAnswer:
        """Count in one child process of its own (ε and δ matter to approximate counters only).

        Raises:
            MissingToolError: Not installed.
            UndecidedError: Timed out, ran out of memory, crashed, or printed something that is no count.
        """
        ...

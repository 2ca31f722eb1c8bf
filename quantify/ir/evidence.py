"""What a run has established: counts, the rates they give, checks, witnesses. The one input of reports and the gate."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from quantify.ir.count import Count, Guarantee
from quantify.ir.domain import Shown

CheckStatus = Literal["ok", "warning", "vacuous", "measured", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate between exact rational ends; `value` is the middle or the estimate, for display."""

    lower: Fraction
    upper: Fraction
    value: float
    guarantee: Guarantee = Guarantee.EXACT
    """The weakest of the counts it was made from."""
    risk: Fraction = Fraction(0)
    """Probability that the true rate lies outside, at most: the sum over the counts that are no proof."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked, and how it came out."""

    name: str
    status: CheckStatus
    detail: str


@dataclass(frozen=True, slots=True)
class Witness:
    """An input that was run through the original model."""

    query: str
    input: dict[str, Shown]
    label: str
    changed: dict[str, Shown] | None = None
    """Robustness: the features in which the input differs from the row, with the row's values."""


@dataclass(frozen=True)
class CaseEvidence:
    """The counts of one case, by query name; a query that was not finished may be absent."""

    counts: dict[str, Count]
    total: int
    """Size (or integer weight) of the region."""
    metrics: dict[str, Rate | None]
    """None for 0/0."""
    witnesses: tuple[Witness, ...] = ()
    row: int | None = None
    label: str | None = None
    epsilon: Fraction | None = None
    engine_reason: str = ""


@dataclass(frozen=True)
class Evidence:
    """Everything one `count` has to say; reports print it, the store keeps it, the gate judges it."""

    model: dict[str, object]
    property: dict[str, object]
    domain: dict[str, object]
    cases: tuple[CaseEvidence, ...]
    checks: tuple[Check, ...]
    scale: int = 1
    """Under a product measure, counts are integer weights over this total; 1 under the uniform measure."""
    complete: bool = True
    """False when a limit or an interruption cut the run short."""
    seconds: float = 0.0


@dataclass(frozen=True)
class CnfEvidence:
    """Everything one `cnf` has to say."""

    formula: dict[str, object]
    """path, sha256, variables, clauses, projection (numbers of variables, of clauses, of variables counted over)."""
    count: Count
    checks: tuple[Check, ...] = ()
    complete: bool = True
    """False when a limit left bounds."""
    seconds: float = 0.0

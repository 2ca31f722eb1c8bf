"""What is known of a model's loss by context: ranked features, errors by their number, the loss predicted elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from quantify.ir.record import DataRef, Reading

Source = Literal["rows", "weights", "marginals"]
"""How an operating domain is given: rows that are a sample of it, rows with weights, or independent marginals."""

KIs = Literal["least error", "within one standard error", "given"]
"""How many features: where the expected error is least, with further informative ones while it is within one standard
error of that, or as many as were asked for."""


@dataclass(frozen=True, slots=True)
class ContextFeature:
    """One context feature, as it was made discrete."""

    name: str
    kind: Literal["values", "bins"]
    labels: tuple[str, ...]
    """One a value or bin, in ascending order; the last one is `missing` where the table has missing values."""
    edges: tuple[float, ...] | None
    """bins: their edges, one more than there are bins."""
    missing: int
    """Rows of the test set without a value."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A context feature in its place of the ranking."""

    feature: ContextFeature
    information: float
    """I(L, C), in nats."""
    delta: float
    """ΔI at the round that chose it, in nats."""
    candidates: tuple[float | None, ...]
    """ΔI of every feature in this round, in the order of the columns; None: chosen before."""


@dataclass(frozen=True, slots=True)
class Error:
    """The expected error of predictions with the first k features."""

    k: int
    error: float
    standard_error: float
    """Of the mean over the splits."""
    untested: float
    """Mean share of validation rows whose context has no row in the fit set."""


@dataclass(frozen=True, slots=True)
class Context:
    """A tested context."""

    values: tuple[int, ...]
    """Place of the label, one a chosen feature."""
    rows: int
    loss: float
    """g: the mean loss of its rows."""
    operating: float | None
    """Its probability in the operating domain."""


@dataclass(frozen=True, slots=True)
class ByNumber:
    """What the first k features predict."""

    k: int
    loss: float
    untested: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """The loss predicted for an operating domain."""

    loss: float
    lower: float
    """Approximate interval for the expected loss."""
    upper: float
    untested: float
    """Probability of contexts without a row in the test set."""
    outside: float
    """The part of it with a value that no row of the test set has, or outside its range."""
    source: Source
    file: DataRef
    rows: int | None
    """rows, weights: rows of the file."""
    confidence: float
    replicates: int
    by_k: tuple[ByNumber, ...]
    """For k from 1 on, as far as the operating domain tells of the features: how much hangs on the choice of K."""


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that weakens the answer."""

    code: str
    text: str


@dataclass(frozen=True)
class Transfer:
    """The finished answer of `quantify transfer`."""

    table: DataRef
    loss_column: str
    rows: int
    observed: float
    """Mean loss of the test set."""
    skipped: tuple[str, ...]
    """Columns that are no features because they are pandas' index."""
    least: float
    """Minimum loss, for the lower end in untested contexts."""
    most: float
    """Maximum loss: what untested contexts are charged with."""
    most_is: Literal["1", "declared", "largest seen"]
    loss_levels: int
    """Different losses that the ranking tells apart."""
    features: tuple[ContextFeature, ...]
    """In the order of the columns that were named."""
    ranking: tuple[Ranked, ...]
    baseline: Error
    """k = 0: predicting the mean of the fit set."""
    errors: tuple[Error, ...]
    """k = 1 … J."""
    k: int
    k_is: KIs
    splits: int
    fit_rows: int
    seed: int
    contexts: tuple[Context, ...]
    possible: int
    """Contexts that the chosen features' values make, tested or not."""
    prediction: Prediction | None
    warnings: tuple[Warned, ...]
    readings: tuple[Reading, ...]

    def files(self) -> tuple[DataRef, ...]:
        """What must not have changed when a gate decides by the prediction."""
        return (self.table,) if self.prediction is None else (self.table, self.prediction.file)

    @property
    def chosen(self) -> tuple[ContextFeature, ...]:
        """The features of the context subspace, the most informative first."""
        return tuple(one.feature for one in self.ranking[: self.k])

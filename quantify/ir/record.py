"""What the evidence store keeps and the gate judges: rates that rules can name, and where each came from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any, Literal

from quantify.ir.count import Guarantee

About = Literal["property", "suite", "transform", "recipe", "table"]
"""What a rate is of: a counted property, a suite of cases, a declared transform, a recipe over seeds, or a table."""
Kind = Literal["count", "run", "leakage", "noise", "seeds", "slices", "transfer", "evolve"]
"""The command that made a record."""
Status = Literal["ok", "invalid"]

KINDS: tuple[Kind, ...] = ("count", "run", "leakage", "noise", "seeds", "slices", "transfer", "evolve")


@dataclass(frozen=True, slots=True)
class Metric:
    """A rate that a rule may name."""

    about: tuple[About, ...]
    meaning: str
    """One clause, for messages and documents."""
    is_share: bool = True
    """Whether its values lie between 0 and 1."""


METRICS: dict[str, Metric] = {
    "satisfaction": Metric(("property",), "share of the inputs meeting `assume` that satisfy `assert`"),
    "violation": Metric(("property",), "share of the inputs meeting `assume` that violate `assert`"),
    "robustness": Metric(("property",), "share of the inputs within ε that keep the right label, mean over the rows"),
    "accuracy": Metric(("property",), "share of the domain that the model gets right"),
    "precision": Metric(("property",), "share of the inputs called positive that are"),
    "recall": Metric(("property",), "share of the positive inputs that are called so"),
    "f1": Metric(("property",), "2·TP / (2·TP + FP + FN)"),
    "class_share": Metric(("property",), "share of the inputs meeting `assume` that get the label named as group"),
    "correct": Metric(("suite", "recipe"), "share of a suite's cases that a run, or a recipe over seeds, gets right"),
    "flips_under_noise": Metric(("transform",), "share of a suite's cases whose answer a declared transform changes"),
    "worst_slice_accuracy": Metric(("table",), "accuracy on the slice where it is lowest"),
    "incon_k": Metric(("table",), "largest change of a slice's value when at most k of its rows go", is_share=False),
    "predicted_loss": Metric(("table",), "loss predicted for the operating conditions", is_share=False),
    "adversarial_rate": Metric(("table",), "share of the instances for which a small change fooled the model"),
}
"""Every metric that a policy may name, by name; the one list of them."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Independent draws of which some are hits; what is unknown counts against both ends."""

    hits: int
    samples: int
    weight: Fraction = Fraction(1)
    """Its part of the rate, where that is a weighted sum of several shares."""
    unknown: int = 0
    """Draws that got no answer: no hits for the lower end, hits for the upper."""

    def __post_init__(self) -> None:
        _check(self.hits >= 0 and self.unknown >= 0, f"{self.hits} hits and {self.unknown} unknown")
        _check(self.hits + self.unknown <= self.samples, f"{self.hits} + {self.unknown} of {self.samples} draws")
        _check(0 < self.weight <= 1, f"a weight of {self.weight}")


@dataclass(frozen=True, slots=True)
class Reading:
    """One rate with its interval, and how far the interval may be believed."""

    metric: str
    """A key of `METRICS`."""
    about: About
    subject: str
    """Name of the property, suite, transform, recipe or table."""
    lower: Fraction
    upper: Fraction
    value: Fraction
    """The estimate, or the middle, for display."""
    guarantee: Guarantee
    group: str | None = None
    """The part that it is of (a label, `epsilon=1`, `region=north`); None: the whole."""
    risk: Fraction = Fraction(0)
    """Probability, at most, that the true rate lies outside the interval; 0 for proofs."""
    draws: tuple[Draws, ...] = ()
    """Where the rate is a proportion of draws (or a weighted sum of such): from these the gate makes an interval of
    its own confidence. Empty: the interval stands as it is, with its risk."""
    form: Literal["share", "f1", "least"] = "share"
    """What the draws are hits of: the rate itself, or for f1 the share J = TP/(TP+FP+FN), f1 being 2J/(1+J), or for
    `least` each of a rate of its own, of which the reading is the least."""
    looks: int = 1
    """`least`: the number of rates that were looked at, of which only those that can be an end have draws here; each
    gets the risk divided by this number."""
    epsilon: Fraction | None = None
    """pac: relative tolerance of each count."""
    delta: Fraction | None = None
    """pac: error probability of each count; `risk` is the sum over the counts."""
    sides: Literal[0, 1, 2] = 0
    """pac: how the tolerance enters: by (1+ε)^sides on the odds, or for 0 by (1+ε) on the rate itself."""
    support: int | None = None
    """Number of cases or rows, or size of the domain, that the rate is of."""
    approximate: bool = False
    """Whether the interval's coverage is only approximate (seeds, bootstrap): it decides only where a policy allows."""
    reason: str | None = None
    """A code that forbids deciding by it (`transform_declared`, `too_few_seeds`, `vacuous`, …); None: it may decide."""
    need: str | None = None
    """What would lift the reason, for people."""
    problem: str = ""
    """Digest of exactly what was measured: two proofs about one problem must have a common value."""

    def __post_init__(self) -> None:
        metric = METRICS.get(self.metric)
        _check(metric is not None, f"there is no metric {self.metric!r}")
        assert metric is not None
        _check(self.about in metric.about, f"{self.metric} is not about a {self.about}")
        _check(bool(self.subject), "a reading without a subject")
        _check(self.group != "", "an empty group; None is the whole")
        _check(self.lower <= self.value <= self.upper, f"{self.lower} ≤ {self.value} ≤ {self.upper} does not hold")
        _check(not metric.is_share or (self.lower >= 0 and self.upper <= 1), f"{self.metric} outside 0 to 1")
        _check(0 <= self.risk <= 1, f"a risk of {self.risk}")
        is_proof = self.guarantee >= Guarantee.BOUNDS
        may_be_sure = self.guarantee >= Guarantee.PROB_EXACT or self.approximate
        _check(not (is_proof and self.risk), f"{self.guarantee} with a risk of {self.risk}")
        _check(may_be_sure or self.risk > 0, f"{self.guarantee} with a risk of {self.risk}")
        _check(not (self.draws and is_proof), f"{self.guarantee} by draws")
        _check(self.guarantee is not Guarantee.EXACT or self.lower == self.upper, "exact, but lower < upper")
        _check(self.form == "least" or self.looks == 1, f"{self.looks} looks at a {self.form}")
        _check(
            self.form != "least" or self.looks >= len(self.draws) > 0, f"{self.looks} looks, {len(self.draws)} draws"
        )
        _check(self.support is None or self.support >= 0, f"a support of {self.support}")


@dataclass(frozen=True, slots=True)
class ModelRef:
    """The model file that was judged."""

    path: str
    """As it was given."""
    sha256: str
    kind: str

    def __post_init__(self) -> None:
        _check_sha256(self.sha256)


@dataclass(frozen=True, slots=True)
class PropertyRef:
    """The property file that was counted."""

    name: str
    path: str
    sha256: str

    def __post_init__(self) -> None:
        _check_sha256(self.sha256)


@dataclass(frozen=True, slots=True)
class DataRef:
    """A data file that was read; never its content."""

    role: str
    """`cases` (a suite), `training`, `inputs`, `domain`, `measure`, `table`, `labels`, …"""
    path: str
    sha256: str
    rows: int | None = None

    def __post_init__(self) -> None:
        _check_sha256(self.sha256)


@dataclass(frozen=True)
class Record:
    """One piece of evidence: everything one command has to say, once and for all."""

    kind: Kind
    created: str
    """UTC, ISO 8601; no part of the digest."""
    tool: dict[str, str]
    """`version` of quantify, and of whatever else took part."""
    readings: tuple[Reading, ...] = ()
    model: ModelRef | None = None
    property: PropertyRef | None = None
    data: tuple[DataRef, ...] = ()
    status: Status = "ok"
    """`invalid`: the evidence it speaks of must not be believed (a leaked case)."""
    body: dict[str, Any] = field(default_factory=dict)
    """What `--json` prints; plain JSON data without NaN."""

    def __post_init__(self) -> None:
        _check(self.kind in KINDS, f"there is no kind of record {self.kind!r}")
        _check(self.status in ("ok", "invalid"), f"there is no status {self.status!r}")
        _check("version" in self.tool, "a record without the version of the tool")
        _check(datetime.fromisoformat(self.created).utcoffset() is not None, f"{self.created} has no time zone")
        _check(self.kind != "count" or (self.model is not None and self.property is not None), "a count of nothing")


_SHA256 = re.compile(r"[0-9a-f]{64}")


def _check_sha256(text: str) -> None:
    _check(_SHA256.fullmatch(text) is not None, f"{text!r} is no SHA-256 digest")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)

"""What the gate decided, rule by rule, with the evidence behind it; the one input of its reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Literal

from quantify.ir.count import Guarantee
from quantify.ir.record import Reading, Record


class Outcome(Enum):
    """How a rule, or the whole policy, came out; from what weighs least to what weighs most."""

    PASS = "PASS"  # noqa: S105  not a password
    MANUAL_REVIEW = "MANUAL_REVIEW"
    INSUFFICIENT_EVIDENCE = "INSUFFICIENT_EVIDENCE"
    FAIL = "FAIL"
    INVALID = "INVALID"

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 undecided, 4 not to be believed."""
        return {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.INVALID: 4}.get(self, 3)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of several together; PASS for none."""
    order = list(Outcome)
    return max(outcomes, key=order.index, default=Outcome.PASS)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a rule came out as it did."""

    code: str
    """One of `REASONS`, or a code that a reading carried."""
    text: str
    """A sentence."""


REASONS: dict[str, str] = {
    "within": "the interval lies wholly on the right side",
    "outside": "the interval lies wholly on the wrong side",
    "across": "the interval contains a threshold",
    "noted": "a check of the count measured something that the reader should know",
    "superseded": "a later run on the same cases replaced it",
    "never_measured": "there is no evidence about it",
    "stale": "the evidence is of another version of a file",
    "model_missing": "the model file is not there, so its version cannot be compared",
    "guarantee_too_low": "the evidence is below the lowest rung that may decide",
    "risk_too_high": "the evidence may miss with a higher probability than the rule allows",
    "approximate_method": "the interval is approximate, and the policy does not allow such",
    "too_little_support": "the group has fewer cases than the rule asks for",
    "vacuous": "nothing meets the assumption, so nothing was measured",
    "contradiction": "two pieces of evidence exclude each other",
    "tampered": "a record is not what was stored",
    "leakage_unchecked": "the suite was not checked against the training data",
    "leaked": "cases of the suite are in the training data",
    "leakage_clean": "the suite was checked against the training data, and none of its cases is there",
}
"""Codes of the gate itself; readings may bring others (`transform_declared`, `too_few_seeds`, …)."""


@dataclass(frozen=True, slots=True)
class Need:
    """What would be needed for a decision."""

    kind: Literal["samples", "cases", "seconds", "epsilon", "delta", "other"]
    amount: int | Fraction | None
    """In all (samples, cases), in addition (seconds), or at most (epsilon, delta); None when no number can be given."""
    text: str
    """A sentence that says what to do."""


Use = Literal["decides", "considered", "refused"]


@dataclass(frozen=True)
class Source:
    """A piece of evidence as one rule saw it."""

    digest: str
    record: Record
    reading: Reading | None
    """None for a check of a suite."""
    use: Use
    reason: Reason | None = None
    """Why it was refused."""


@dataclass(frozen=True)
class Finding:
    """One rule (for one group, where it is about several)."""

    rule: str
    """Its id; `leakage` and `evidence` are the gate's own."""
    line: int
    """In the policy file."""
    metric: str
    subject: str
    """Empty when the rule names none and there is no evidence."""
    group: str | None
    minimum: Fraction | None
    maximum: Fraction | None
    outcome: Outcome
    reasons: tuple[Reason, ...]
    needs: tuple[Need, ...] = ()
    lower: Fraction | None = None
    """Ends of the interval that decided, or did not; None without evidence that may decide."""
    upper: Fraction | None = None
    value: Fraction | None = None
    guarantee: Guarantee | None = None
    confidence: Fraction | None = None
    """That the rule asks for."""
    level: Fraction | None = None
    """Confidence of the interval after the correction for several rules; None for proofs."""
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The whole policy."""

    policy: str
    """Path of the policy file."""
    policy_sha256: str
    outcome: Outcome
    findings: tuple[Finding, ...]
    correction: str
    """`holm` or `none`."""
    store: str
    """Path of the evidence store."""

    @property
    def exit_code(self) -> int:
        """See `Outcome.exit_code`."""
        return self.outcome.exit_code

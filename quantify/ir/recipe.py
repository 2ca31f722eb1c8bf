"""What is known of a training recipe tried with several seeds: every checkpoint's verdict on every case of a suite."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from quantify.ir.record import DataRef, ModelRef, Reading
from quantify.ir.verdict import Need, Outcome, Reason

CaseVerdict = Literal["correct", "wrong", "unanswered"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One seed."""

    name: str
    digest: str
    """Of the record of its run."""
    system: str
    model: ModelRef | None
    """None when training failed."""
    failed: str | None
    """Why there are no answers at all."""
    verdicts: tuple[CaseVerdict, ...]
    """One a case of the recipe, in its order."""

    @property
    def correct(self) -> int:
        """Number of cases that it gets right."""
        return self.verdicts.count("correct")

    @property
    def unanswered(self) -> int:
        """Number of cases that it gave no answer to."""
        return self.verdicts.count("unanswered")


@dataclass(frozen=True)
class Recipe:
    """Several checkpoints of one recipe on one suite, and the rule about their expected rate."""

    name: str
    file: str
    policy: str
    """Path of the policy file."""
    policy_sha256: str
    confidence: Fraction
    allow_approximate: bool
    suite: str
    """Name of the suite."""
    data: DataRef
    """The suite."""
    cases: tuple[str, ...]
    """Ids of the cases that say what is right, in the order of the suite."""
    checkpoints: tuple[Checkpoint, ...]
    reading: Reading
    rule: str
    minimum: Fraction | None
    maximum: Fraction | None
    outcome: Outcome
    reasons: tuple[Reason, ...]
    needs: tuple[Need, ...]

    def files(self) -> tuple[DataRef, ...]:
        """The suite and the model files: what must not have changed when a gate decides by the recipe."""
        models = (one.model for one in self.checkpoints if one.model is not None)
        return (self.data, *(DataRef("checkpoint", model.path, model.sha256) for model in models))

    def changing(self) -> tuple[int, ...]:
        """Places of the cases that some checkpoint gets right and another gets wrong."""
        every = zip(*(one.verdicts for one in self.checkpoints), strict=True)
        return tuple(place for place, found in enumerate(every) if {"correct", "wrong"} <= set(found))

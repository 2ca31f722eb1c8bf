"""What checking a certificate established: the input of its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quantify.ir.evidence import Check


@dataclass(frozen=True)
class Verdict:
    """What became of one case."""

    number: int
    """Place among the cases of the property, from 0."""
    counts: Mapping[str, tuple[int, int]]
    """As the certificate says them: per query, the least and the most points."""
    total: int
    """Points of the region."""
    refuted: str = ""
    """Why it proves nothing; empty when it is verified."""
    leaves: Mapping[str, int] = field(default_factory=dict)
    """Per kind."""
    points: int = 0
    """Of enumerated leaves."""
    exact: int = 0
    """Leaves that 64-bit words did not suffice for."""
    tree_bytes: int = 0
    """Before compression."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Verification:
    """A whole certificate, checked up to the first case that is refuted."""

    path: str
    size: int
    """Bytes of the file."""
    model: Mapping[str, object]
    property: Mapping[str, object]
    cases: tuple[Verdict, ...]
    of: int
    """Cases of the property; a run that was interrupted leaves fewer."""
    checks: tuple[Check, ...]
    """How the integers compare with the model."""
    seconds: float

    def verified(self) -> bool:
        """Whether every count in it is proven."""
        return not any(case.refuted for case in self.cases)

"""Sums of named integers: the numbers in the middle of lowering."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Sum:
    """constant + Σ coefficient·atom over named integers."""

    constant: int
    terms: dict[str, int] = field(default_factory=dict)

    def add(self, other: Sum, factor: int = 1) -> None:
        """Add factor · other in place."""
        self.constant += factor * other.constant
        for atom, coefficient in other.terms.items():
            total = self.terms.get(atom, 0) + factor * coefficient
            if total:
                self.terms[atom] = total
            else:
                self.terms.pop(atom, None)

    @classmethod
    def of(cls, parts: Iterable[Sum]) -> Sum:
        """The sum of the parts, as a new one."""
        total = cls(0)
        for part in parts:
            total.add(part)
        return total

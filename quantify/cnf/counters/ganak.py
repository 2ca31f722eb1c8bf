"""Ganak: exact projected counts, but for hash collisions in its cache of components."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from quantify.cnf.counters._base import LibraryCounter, Raw
from quantify.cnf.formula import Cnf
from quantify.ir.count import Guarantee

_HASH_BITS = 64
_WITHOUT_STATISTICS = Fraction(1, 10**9)
"""The authors' figure, should a version not print how often it consulted its cache."""


class Ganak(LibraryCounter):
    """Components are looked up by a 64-bit hash alone (Sharma et al., "GANAK", IJCAI 2019, section 4).

    A lookup goes wrong when it meets one of the stored components by accident, so the answer is wrong with probability
    at most lookups · stores / 2^64, which is the δ that is reported (`compute_collision_prob` in Ganak's main.cpp).
    """

    name = "ganak"
    guarantee = Guarantee.PROB_EXACT
    install = "pip install pyganak"
    by_default = True
    library = "pyganak"
    distribution = "pyganak"

    def interpret(self, count: int, answer: dict[str, Any], cnf: Cnf, epsilon: Fraction) -> Raw:
        accesses = answer["cache_accesses"]
        delta = _WITHOUT_STATISTICS if accesses is None else Fraction(int(accesses), 1 << _HASH_BITS)
        return Raw(count, count, delta=delta)


COUNTER = Ganak()

"""ApproxMC: projected counts within a factor 1+ε, with probability 1−δ."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from quantify.cnf.counters._base import LibraryCounter, Raw
from quantify.cnf.formula import Cnf
from quantify.ir.count import Guarantee


class ApproxMC(LibraryCounter):
    """Counts with one model more than the formula has, and takes it off again.

    Versions 4.3 and 4.4 of the binding lose a factor 2 for every projected variable that is or becomes unconstrained.
    A fresh counted variable y and, for one model m, the clauses (literal of v in m, or y) for every projected v
    constrain them all: with y false only m remains, with y true the formula is as before. So c, the answer, puts the
    count in [c/(1+ε) − 1, c·(1+ε) − 1] (Chakraborty, Meel, Vardi, CP 2013, theorem 1, for count + 1).
    """

    name = "approxmc"
    guarantee = Guarantee.PAC
    install = "pip install pyapproxmc"
    by_default = True
    library = "pyapproxmc"
    distribution = "pyapproxmc"

    def _version(self, path: Path) -> str:
        """Two distributions carry this module, and the one installed last has put its file there."""
        import importlib.metadata

        size = path.stat().st_size
        for name in (self.distribution, "pyganak"):
            try:
                distribution = importlib.metadata.distribution(name)
            except importlib.metadata.PackageNotFoundError:
                continue
            if any(file.name == path.name and file.size == size for file in distribution.files or ()):
                own = name == self.distribution
                return distribution.version if own else f"as shipped with {name} {distribution.version}"
        return "unknown"

    def interpret(self, count: int, answer: dict[str, Any], cnf: Cnf, epsilon: Fraction) -> Raw:
        ceiling = 1 << len(cnf.projection)
        lower = -(-count // (1 + epsilon)) - 1
        upper = int(count * (1 + epsilon)) - 1
        # The formula is satisfiable, and an assignment is counted once.
        lower, upper = min(max(lower, 1), ceiling), min(max(upper, 1), ceiling)
        return Raw(lower, upper, estimate=min(max(count - 1, lower), upper))


COUNTER = ApproxMC()

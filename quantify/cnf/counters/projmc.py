"""projMC on PATH: exact projected counts."""

from __future__ import annotations

from quantify.cnf.counters._base import ProgramCounter
from quantify.ir.count import Guarantee


class ProjMC(ProgramCounter):
    """The counter that QuantifyML's authors used (Lagniez, Marquis, AAAI 2019)."""

    name = "projmc"
    guarantee = Guarantee.EXACT
    install = "download projMC from its authors' page (CRIL, Lens) and put `projMC` on PATH"
    program = "projMC"

    def arguments(self, formula: str, projection: str) -> list[str]:
        return [formula, f"-fpv={projection}"]


COUNTER = ProjMC()

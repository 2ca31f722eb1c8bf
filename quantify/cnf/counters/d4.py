"""d4 (version 1) on PATH: exact projected counts, by compiling the formula into a decision diagram."""

from __future__ import annotations

from quantify.cnf.counters._base import ProgramCounter
from quantify.ir.count import Guarantee


class D4(ProgramCounter):
    """`-pv=NO` switches off the variable preprocessing, without which version 1.0 gets projected counts wrong."""

    name = "d4"
    guarantee = Guarantee.EXACT
    install = "build d4 (github.com/crillab/d4) and put `d4` on PATH"
    program = "d4"

    def arguments(self, formula: str, projection: str) -> list[str]:
        return ["-mc", formula, f"-fpv={projection}", "-pv=NO"]


COUNTER = D4()

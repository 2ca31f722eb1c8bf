"""tididi-cnf: exact projected counts, by compiling the formula into a tree decision diagram."""

from __future__ import annotations

from quantify.cnf.counters._base import LibraryCounter
from quantify.ir.count import Guarantee


class Tididi(LibraryCounter):
    """Right only when every projection variable occurs in a clause, which reduction sees to."""

    name = "tididi"
    guarantee = Guarantee.EXACT
    install = "pip install tididi-cnf"
    by_default = True
    library = "tididi_cnf.tididi_cnf"
    distribution = "tididi-cnf"


COUNTER = Tididi()

"""A formula goes in; the part of it that needs a counter, and the factor for the rest, come out."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from quantify.cnf.formula import Cnf


@dataclass(frozen=True, slots=True)
class Reduced:
    """The count of the original is `factor` · the count of `cnf`, or `factor` itself when `cnf` is None.

    In `cnf` every variable occurs, no clause is empty or names a variable twice, the projection is not empty and the
    multiplier is 1: the cases that one counter or another gets wrong or refuses do not reach it.
    """

    cnf: Cnf | None
    factor: int


def reduce(cnf: Cnf) -> Reduced:
    """Take out what needs no search: the multiplier, projection variables in no clause, tautologies, empty clauses."""
    literals = array("i")
    for clause in cnf.clauses():
        distinct = set(clause)
        if len(set(map(abs, distinct))) < len(distinct):
            continue  # v or not v
        if not distinct:
            return Reduced(None, 0)
        literals.extend(clause if len(distinct) == len(clause) else sorted(distinct))
        literals.append(0)
    used = set(map(abs, literals))
    used.discard(0)
    bound = [variable for variable in cnf.projection if variable in used]
    factor = cnf.multiplier << (len(cnf.projection) - len(bound))
    if not used:
        return Reduced(None, factor)
    variables = cnf.variables
    if len(used) < variables:
        number = {variable: place for place, variable in enumerate(sorted(used), start=1)}
        number |= {-variable: -place for variable, place in number.items()}
        number[0] = 0
        literals = array("i", map(number.__getitem__, literals))
        bound = [number[variable] for variable in bound]
        variables = len(used)
    if not bound:
        # Satisfiable or not: one model of one variable that must be true, or none.
        variables += 1
        literals.extend((variables, 0))
        bound = [variables]
    return Reduced(Cnf(variables, literals, tuple(bound)), factor)

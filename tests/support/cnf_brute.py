"""Slow, obvious counting of a formula, for tests of what makes formulas."""

from __future__ import annotations

from pysat.solvers import Glucose4

from quantify.cnf.formula import Cnf


def projected_models(cnf: Cnf) -> list[frozenset[int]]:
    """One model (its true literals) per assignment to the projection that extends to a model."""
    clauses = [list(clause) for clause in cnf.clauses()]
    if [] in clauses:
        return []
    models = []
    with Glucose4(bootstrap_with=clauses) as solver:
        while solver.solve():
            true = frozenset(solver.get_model() or ())
            # A variable in no clause is missing from the solver's model: false, and true when that is blocked.
            models.append(true)
            if not cnf.projection:
                break
            solver.add_clause([-v if v in true else v for v in cnf.projection])
    return models


def brute_count(cnf: Cnf) -> int:
    """multiplier · the number of projected models."""
    return cnf.multiplier * len(projected_models(cnf))

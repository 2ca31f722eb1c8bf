"""The instances that were searched in, the figures of the document's tables 1 to 4 out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from scipy import stats

from quantify.ir.evolved import CATEGORIES, KINDS, STATISTICS, Correlation, Evolved, Quartiles, Searched, Summary

FEWEST = 3
"""Instances below which a rank correlation says nothing."""


def summarise(evolved: Evolved) -> Summary:
    """Counts, rates, medians and correlations."""
    found = evolved.of("perturbable")
    evolved_on = len(found) + len(evolved.of("robust"))
    return Summary(
        classes={
            solver: {
                category: sum(one.winner == place for one in evolved.of(category)) for category in CATEGORIES
            }
            for place, solver in enumerate(evolved.solvers)
        },
        success_rate=len(found) / evolved_on if evolved_on else None,
        queries=_median([one.queries for one in found if one.queries is not None]),
        kinds={kind: sum(one.kind == kind for one in found) for kind in KINDS},
        run_fitness=_quartiles([fitness for one in found for fitness in one.run_fitness]),
        unique_total=sum(one.unique for one in found),
        unique_median=_median([one.unique for one in found]),
        medians={name: float(np.median([one.medians[name] for one in found])) for name in STATISTICS} if found else {},
        correlations=tuple(correlation(found, name) for name in STATISTICS),
    )  # fmt: skip


def correlation(found: Sequence[Searched], statistic: str) -> Correlation:
    """Spearman's rank correlation (section 5.2, table 2), with the p-value of scipy."""
    fitness = [one.median_fitness for one in found]
    values = [one.medians[statistic] for one in found]
    if len(found) < FEWEST or len(set(fitness)) == 1 or len(set(values)) == 1:
        return Correlation(statistic, len(found), None, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a perfect correlation divides by zero on the way to p = 0
        rank, p_value = stats.spearmanr(fitness, values)
    return Correlation(statistic, len(found), float(rank), None if np.isnan(p_value) else float(p_value))


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _quartiles(values: Sequence[float]) -> Quartiles | None:
    if not values:
        return None
    q1, median, q3 = (float(value) for value in np.quantile(values, [0.25, 0.5, 0.75]))
    return Quartiles(q1, median, q3)

"""The instances that were searched in, the figures of the document's tables 1 to 4 out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from quantify.ir.evolved import CATEGORIES, KINDS, STATISTICS, Correlation, Evolved, Quartiles, Searched, Summary

FEWEST = 3
"""Instances below which a rank correlation says nothing."""
PERMUTED = 8
"""Instances whose orders are all tried for a p-value."""
Ranks = NDArray[np.float64]


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
    """Spearman's rank correlation (section 5.2, table 2) with its two-sided p-value."""
    fitness = [one.median_fitness for one in found]
    values = [one.medians[statistic] for one in found]
    if len(found) < FEWEST or len(set(fitness)) == 1 or len(set(values)) == 1:
        return Correlation(statistic, len(found), None, None)
    x, y = stats.rankdata(fitness), stats.rankdata(values)
    rank = min(1.0, max(-1.0, float(np.corrcoef(x, y)[0, 1])))
    return Correlation(statistic, len(found), rank, _p_value(x, y, rank))


def _p_value(x: Ranks, y: Ranks, rank: float) -> float:
    """By all permutations of a few instances; of more, by Student's t distribution with n − 2 degrees of freedom."""
    count = len(x)
    if count <= PERMUTED:
        orders = np.array(list(itertools.permutations(y - y.mean())))
        products = np.abs(orders @ (x - x.mean()))
        observed = abs(float((x - x.mean()) @ (y - y.mean())))
        return float((products >= observed - 1e-9).mean())
    if 1 - abs(rank) < 1e-12:  # t is infinite: only orders that exchange equal values do as well, or the reverse ones
        same = math.prod(math.factorial(int(times)) for times in np.unique(y, return_counts=True)[1])
        return float(Fraction(2 * same, math.factorial(count)))
    t = rank * math.sqrt((count - 2) / (1 - rank * rank))
    return float(2 * stats.t.sf(abs(t), count - 2))


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _quartiles(values: Sequence[float]) -> Quartiles | None:
    if not values:
        return None
    q1, median, q3 = (float(value) for value in np.quantile(values, [0.25, 0.5, 0.75]))
    return Quartiles(q1, median, q3)

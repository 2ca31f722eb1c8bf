"""Losses and discrete context features in, the features ranked by information and the number of them to use out.

The ranking is Algorithm 1 and ΔI equation 9, the choice of K Algorithm 2 of "Network Generalization Prediction for
Safety Critical Tasks in Novel Operating Domains". Logarithms are natural.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantify.dataset.contexts import Codes, joined
from quantify.dataset.workers import in_order

TIE = 1e-12
"""Differences up to this are rounding: the first column, or the smallest K, then comes first."""
SIGNIFICANT = 0.05
"""Level of the test of independence: so many features on which the loss does not depend pass for informative."""
SMALL = 2**20
"""Cells of a table of pairs that are counted without sorting."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Round:
    """One round of the ranking."""

    feature: int
    delta: float
    candidates: tuple[float | None, ...]


def information(first: Codes, second: Codes) -> float:
    """The mutual information of two columns of codes, in nats (equation 5).

    Each term is rounded once or twice and their sum is exact, so that it depends neither on the order of the rows nor
    on which code stands for what; independent columns have 0.
    """
    rows = len(first)
    width = int(second.max()) + 1
    pairs, counts = _counted(first * width + second, (int(first.max()) + 1) * width)
    of_first, of_second = np.bincount(first), np.bincount(second)
    products = of_first[pairs // width].astype(np.float64) * of_second[pairs % width]
    terms = counts * np.log(counts.astype(np.float64) * rows / products)
    return max(0.0, math.fsum(terms.tolist()) / rows)


def _counted(numbers: Codes, size: int) -> tuple[Codes, Codes]:
    """The different numbers below `size`, and how often each is there."""
    if size > max(SMALL, len(numbers)):
        return np.unique(numbers, return_counts=True)
    counts = np.bincount(numbers)
    found = np.flatnonzero(counts)
    return found, counts[found]


def rank(loss: Codes, features: Sequence[Codes], proceed: Callable[[int], None] = lambda done: None) -> list[Round]:
    """Algorithm 1, to the end: every feature, in the order in which the greedy choice takes them.

    Args:
        loss: Code of each row's loss.
        features: Codes of each feature, one list a column.
        proceed: Called with the number of features that are placed; may raise to stop.
    """
    parts = [[information(codes, loss)] for codes in features]
    left = list(range(len(features)))
    rounds: list[Round] = []
    while left:
        proceed(len(rounds))
        deltas = {place: math.fsum(parts[place]) for place in left}
        best = max(deltas.values())
        chosen = next(place for place in left if deltas[place] >= best - TIE)
        rounds.append(Round(chosen, deltas[chosen], tuple(deltas.get(place) for place in range(len(features)))))
        left.remove(chosen)
        for place in left:
            parts[place].append(-information(features[place], features[chosen]))
    return rounds


def split(rows: int, fit_rows: int, seed: int, place: int) -> tuple[Codes, Codes]:
    """A random partition of the rows into a fit set and a validation set: that at a place, 0, 1, …, for a seed."""
    order = np.random.default_rng([seed, 1, place]).permutation(rows)
    return order[:fit_rows], order[fit_rows:]


def errors(
    loss: Floats,
    ranked: Sequence[Codes],
    most: float,
    partition: Callable[[int], tuple[Codes, Codes]],
    count: int,
    jobs: int = 1,
    proceed: Callable[[int], None] = lambda done: None,
) -> tuple[Floats, Floats]:
    """Algorithm 2: |observed − predicted validation loss| for every K on every split, K = 0 (no context) included.

    Args:
        ranked: Codes of the features, the most informative first.
        most: Loss of contexts without a row in the fit set.
        partition: The split at a place from 0 to `count` − 1; each is used for every K.
        jobs: Splits that are worked on at a time.
        proceed: Called with the number of splits that are done; may raise to stop.

    Returns:
        Errors and untested shares of the validation rows, each (J + 1) × splits.
    """
    codes = [np.zeros(len(loss), np.int64)]
    for feature in ranked:
        codes.append(joined([codes[-1], feature]))

    def tried(place: int) -> list[tuple[float, float]]:
        fit, validation = partition(place)
        observed = float(loss[validation].mean())
        predicted = [_validated(code, loss, fit, validation, most) for code in codes]
        return [(abs(observed - one), share) for one, share in predicted]

    found = []
    with closing(in_order(tried, range(count), jobs)) as rows:
        for done, row in enumerate(rows):
            proceed(done)
            found.append(row)
    errors_by_k, untested = np.array(found).T
    return errors_by_k, untested


def _validated(codes: Codes, loss: Floats, fit: Codes, validation: Codes, most: float) -> tuple[float, float]:
    """The predicted loss of the validation rows, and the share of them in contexts that the fit set lacks."""
    size = int(codes.max()) + 1
    counts = np.bincount(codes[fit], minlength=size)
    sums = np.bincount(codes[fit], weights=loss[fit], minlength=size)
    tested = counts > 0
    by_context = np.where(tested, sums / np.maximum(counts, 1), most)
    place = codes[validation]
    return float(by_context[place].mean()), float(1 - tested[place].mean())


def choose(errors_by_k: Floats, informative: Sequence[bool] | None = None) -> int:
    """The number of features, from 1 on; the first row is K = 0.

    Algorithm 2 takes the K with the least mean error, the smallest one of several. Splits have the mix of the test set,
    so that a feature that is left out costs little there and much under another mix: the least error is often that of
    too few. With `informative`, the K is therefore that of the last informative feature with which the error is still
    within one standard error of its least, unless the least is at a larger K.

    Args:
        informative: For each feature, in the order of the ranking, whether the loss depends on it. None: the document's
            rule.
    """
    means = errors_by_k[1:].mean(axis=1)
    least = 1 + int(np.flatnonzero(means <= means.min() + TIE)[0])
    if informative is None:
        return least
    within = means <= means[least - 1] + standard_errors(errors_by_k)[least] + TIE
    return int(max([least, *(1 + np.flatnonzero(within & np.array(informative)))]))


def standard_errors(errors_by_k: Floats) -> Floats:
    """Of the mean error of each K over the splits; 0 with one split."""
    count = errors_by_k.shape[1]
    return errors_by_k.std(axis=1, ddof=1) / math.sqrt(count) if count > 1 else np.zeros(len(errors_by_k))


def is_informative(rows: int, first: int, second: int, shared: float) -> bool:
    """Whether two columns depend on each other, by the G-test: 2·rows·I is then too large for chance.

    Args:
        first: Different values of one column.
        second: Of the other.
        shared: Their mutual information, in nats.
    """
    from scipy.special import chdtrc

    freedom = (first - 1) * (second - 1)
    return freedom > 0 and bool(chdtrc(freedom, 2 * rows * shared) < SIGNIFICANT)


def falls(errors_by_k: Floats, k: int, before: int) -> bool:
    """Whether the mean error at `k` is below that at `before`, by two standard errors of their paired difference."""
    difference = errors_by_k[before] - errors_by_k[k]
    count = len(difference)
    return bool(count > 1 and difference.mean() > 2 * difference.std(ddof=1) / math.sqrt(count) + TIE)

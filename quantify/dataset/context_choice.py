"""Losses and discrete context features in, the features ranked by information and the number of them to use out.

The ranking is Algorithm 1 and ΔI equation 9, the choice of K Algorithm 2 of "Network Generalization Prediction for
Safety Critical Tasks in Novel Operating Domains". Logarithms are natural.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantify.dataset.contexts import Codes, joined

TIE = 1e-12
"""Differences up to this are rounding: the first column, or the smallest K, then comes first."""
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


def splits(rows: int, count: int, fit_rows: int, seed: int) -> Iterator[tuple[Codes, Codes]]:
    """Random partitions of the rows into a fit set and a validation set; the same for the same seed."""
    random = np.random.default_rng([seed, 1])
    for _ in range(count):
        order = random.permutation(rows)
        yield order[:fit_rows], order[fit_rows:]


def errors(
    loss: Floats,
    ranked: Sequence[Codes],
    most: float,
    partitions: Iterator[tuple[Codes, Codes]],
    proceed: Callable[[int], None] = lambda done: None,
) -> tuple[Floats, Floats]:
    """Algorithm 2: |observed − predicted validation loss| for every K on every split, K = 0 (no context) included.

    Args:
        ranked: Codes of the features, the most informative first.
        most: Loss of contexts without a row in the fit set.
        partitions: The splits; each is used for every K.

    Returns:
        Errors and untested shares of the validation rows, each (J + 1) × splits.
    """
    codes = [np.zeros(len(loss), np.int64)]
    for feature in ranked:
        codes.append(joined([codes[-1], feature]))
    found: list[list[float]] = []
    untested: list[list[float]] = []
    for done, (fit, validation) in enumerate(partitions):
        proceed(done)
        observed = float(loss[validation].mean())
        row = [_validated(code, loss, fit, validation, most) for code in codes]
        found.append([abs(observed - predicted) for predicted, _ in row])
        untested.append([share for _, share in row])
    return np.array(found).T, np.array(untested).T


def _validated(codes: Codes, loss: Floats, fit: Codes, validation: Codes, most: float) -> tuple[float, float]:
    """The predicted loss of the validation rows, and the share of them in contexts that the fit set lacks."""
    size = int(codes.max()) + 1
    counts = np.bincount(codes[fit], minlength=size)
    sums = np.bincount(codes[fit], weights=loss[fit], minlength=size)
    tested = counts > 0
    by_context = np.where(tested, sums / np.maximum(counts, 1), most)
    place = codes[validation]
    return float(by_context[place].mean()), float(1 - tested[place].mean())


def choose(errors_by_k: Floats) -> int:
    """The K from 1 on with the least mean error, the smallest one of several; the first row is K = 0."""
    means = errors_by_k[1:].mean(axis=1)
    return 1 + int(np.flatnonzero(means <= means.min() + TIE)[0])


def falls(errors_by_k: Floats, k: int, before: int) -> bool:
    """Whether the mean error at `k` is below that at `before`, by two standard errors of their paired difference."""
    difference = errors_by_k[before] - errors_by_k[k]
    count = len(difference)
    return bool(count > 1 and difference.mean() > 2 * difference.std(ddof=1) / math.sqrt(count) + TIE)

"""Losses by context and a distribution of contexts in, an approximate interval for the expected loss there out.

The prediction is Σ p(c)·g(c) over the tested contexts, plus the maximum loss for the untested share. Each replicate of
a Bayesian bootstrap weighs the rows of every context anew (Dirichlet weights, context by context, because p is of
contexts); where the operating domain is known by rows, these are weighed anew as well. Two things are added that a
bootstrap of the rows alone lacks:

- Contexts with few rows hide their variance (one row has none). A normal term adds what is missing to

      Σ p(c)²·σ²(c)/n(c),   σ²(c) = (S(c) + A·σ²) / (n(c) − 1 + A)

  with S(c) the sum of squares about the context's mean, and σ² the variance within contexts, pooled over all of them.
- A loss that was not seen: one more row of the minimum loss for the lower end and of the maximum loss for the upper,
  with a share Beta(1, m) of the whole, m = 1 / Σ p(c)²/n(c) being the number of rows that the prediction rests on. With
  one context and losses of 0 and 1 the interval is that of Clopper and Pearson.

In untested contexts the loss lies between its minimum and its maximum: the lower end counts the one, the upper end the
other. Coverage by simulation: docs/transfer.md, benchmarks/transfer.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantify.dataset.workers import in_order

POOLED = 1.0
"""A: how many degrees of freedom the pooled variance counts for in each context."""
BATCH = 2_000_000
"""Random numbers drawn at once, at most."""
PIECE = 250
"""Replicates drawn at once, at most: so that workers share them."""
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses of the test set by tested context: one entry for each different loss in each context."""

    context: Integers
    """Place of the context, ascending, from 0, every one at least once."""
    value: Floats
    count: Integers
    """Rows, 1 or more."""
    minimum: float
    maximum: float


def interval(
    losses: Losses,
    shares: Floats,
    untested: float,
    rows: tuple[Integers, int] | None,
    confidence: float,
    replicates: int,
    random: np.random.Generator,
    jobs: int = 1,
    proceed: Callable[[int], None] = lambda done: None,
) -> tuple[float, float]:
    """Both ends of an approximate interval for the expected loss under a distribution of contexts.

    Args:
        shares: One a tested context: its probability in the operating domain.
        untested: Probability of all other contexts; with the shares it sums to 1.
        rows: Where the distribution was itself counted: operating rows in each tested context, and in all others.
        confidence: Strictly between 0 and 1.
        replicates: Of the bootstrap.
        jobs: Workers; the ends do not depend on it.
        proceed: Called with the number of replicates that are done; may raise to stop.
    """
    used = shares > 0
    place = np.cumsum(used) - 1
    keep = used[losses.context]
    context, value, count = place[losses.context[keep]], losses.value[keep], losses.count[keep]
    p = shares[used]
    operating = None if rows is None else (rows[0][used], rows[1])
    lower, upper = np.empty(replicates), np.empty(replicates)
    low, high = losses.minimum, losses.maximum
    if not len(p):
        return low, high
    starts = np.flatnonzero(np.diff(context, prepend=-1))
    missing, rested = _hidden(losses, context, value, count, starts, p)
    size = max(1, min(BATCH // (len(count) + len(p)), PIECE))
    starting = range(0, replicates, size)
    generators = random.spawn(len(starting))

    def piece(start: int) -> None:
        some, batch = generators[start // size], min(size, replicates - start)
        drawn = some.standard_gamma(count, (batch, len(count)))
        means = np.add.reduceat(drawn * value, starts, axis=1) / np.add.reduceat(drawn, starts, axis=1)
        weights, rest = _weights(operating, p, untested, batch, some)
        tested = 1 - rest
        total = np.einsum("bc,bc->b", weights, means) + math.sqrt(missing) * some.standard_normal(batch)
        total = np.clip(total, tested * low, tested * high)
        unseen = some.beta(1, rested, batch)
        lower[start : start + batch] = (1 - unseen) * (total + rest * low) + unseen * low
        upper[start : start + batch] = (1 - unseen) * (total + rest * high) + unseen * high

    with closing(in_order(piece, starting, jobs)) as pieces:
        for done, _ in zip(starting, pieces, strict=True):
            proceed(done)
    tail = (1 - confidence) / 2
    return float(np.quantile(lower, tail)), float(np.quantile(upper, 1 - tail))


def _hidden(
    losses: Losses, context: Integers, value: Floats, count: Integers, starts: Integers, p: Floats
) -> tuple[float, float]:
    """The variance that a bootstrap of the rows lacks, and the number of rows that the prediction rests on."""
    n, squares = _squares(context, value, count, starts)
    mean = np.average(losses.value, weights=losses.count)
    overall = np.average((losses.value - mean) ** 2, weights=losses.count)
    wanted = (squares + POOLED * overall) / (n - 1 + POOLED) / n
    there = squares / n / (n + 1)
    rested = 1 / float((p**2 / n).sum()) * float(p.sum()) ** 2
    return float((p**2 * np.maximum(wanted - there, 0)).sum()), rested


def _squares(context: Integers, value: Floats, count: Integers, starts: Integers) -> tuple[Integers, Floats]:
    """Rows of each context, and the sum of squares about its mean."""
    n = np.add.reduceat(count, starts)
    mean = np.add.reduceat(count * value, starts) / n
    return n, np.add.reduceat(count * (value - mean[context]) ** 2, starts)


def _weights(
    rows: tuple[Integers, int] | None, p: Floats, untested: float, batch: int, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Shares of the contexts in each replicate, and of what is untested."""
    if rows is None:
        return np.broadcast_to(p, (batch, len(p))), np.full(batch, untested)
    drawn = random.standard_gamma(rows[0], (batch, len(p)))
    rest = random.standard_gamma(rows[1], batch) if rows[1] else np.zeros(batch)
    total = drawn.sum(axis=1) + rest
    return drawn / total[:, None], rest / total

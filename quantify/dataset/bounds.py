"""Hits and samples, or means, of many sets in; intervals for their true rates out, for all of them at once.

Clopper-Pearson ends come from SciPy's incomplete beta function, are pushed outwards by one part in 10^11 and then
checked by the function itself; where the check fails, they are proven (`ir.intervals`). Means of values that cannot lie
outside a range get the interval of Hoeffding's inequality in its sharpest form (JASA 58, 1963, Theorem 1):
n·kl(mean, p) ≤ ln(2/risk); that covers at least as often as stated.
"""

from __future__ import annotations

import importlib
import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.ir.intervals import clopper_pearson

Floats = NDArray[np.float64]
PUSHED = 1e-11
"""Part by which an end is moved outwards."""
CHECKED = 1e-9
"""Part by which the tail beyond an end may miss what was asked for, as floats compute it."""
HALVINGS = 60


def load_ahead() -> None:
    """Load SciPy beside what comes next: it takes a quarter of a second, of which reading a table hides the most."""
    pool = ThreadPoolExecutor(1)
    pool.submit(importlib.import_module, "scipy.special")
    pool.shutdown(wait=False)


def proportions(hits: NDArray[Any], samples: NDArray[Any], risk: Fraction) -> tuple[Floats, Floats]:
    """Two-sided Clopper-Pearson intervals that each miss with probability at most `risk`; 0 to 1 without samples."""
    pairs, where = np.unique(hits.astype(np.int64) << 32 | samples.astype(np.int64), return_inverse=True)
    some, every = pairs >> 32, pairs & 0xFFFFFFFF
    lower = _lower(some, every, risk)
    upper = 1 - _lower(every - some, every, risk)
    return lower[where.reshape(-1)], upper[where.reshape(-1)]


def _lower(hits: NDArray[np.int64], samples: NDArray[np.int64], risk: Fraction) -> Floats:
    from scipy.special import betainc, betaincinv

    tail = float(risk / 2)
    found = np.zeros(len(hits))
    some = np.flatnonzero(hits > 0)
    a, b = hits[some].astype(np.float64), (samples[some] - hits[some] + 1).astype(np.float64)
    ends = betaincinv(a, b, tail) * (1 - PUSHED)
    good = (ends > 0) & (ends < 1) & (np.abs(betainc(a, b, ends) / tail - 1) <= CHECKED + PUSHED * 10 * a)
    found[some] = np.where(good, ends, 0)
    for place in some[~good].tolist():
        exact = clopper_pearson(int(hits[place]), int(samples[place]), 1 - risk)[0]
        found[place] = max(0.0, math.nextafter(float(exact), -1))
    return found


def means(mean: Floats, samples: NDArray[Any], low: float, high: float, risk: Fraction) -> tuple[Floats, Floats]:
    """Intervals for means of values from `low` to `high`; the whole range without samples."""
    share = np.clip((mean - low) / (high - low), 0, 1)
    room = math.log(2 / risk) / np.maximum(samples.astype(np.float64), 1)
    upper = _end(share, room)
    lower = 1 - _end(1 - share, room)
    none = ~(samples > 0)
    width = high - low
    return np.where(none, low, low + width * lower), np.where(none, high, low + width * upper)


def _end(share: Floats, room: Floats) -> Floats:
    """The largest p with kl(share, p) ≤ room, from above, by halving."""
    near, far = np.nan_to_num(share), np.ones(len(share))
    share = near
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.where(share > 0, share * np.log(share), 0) + np.where(share < 1, (1 - share) * np.log1p(-share), 0)
        for _ in range(HALVINGS):
            middle = (near + far) / 2
            cross = np.where(share > 0, share * np.log(middle), 0)
            cross += np.where(share < 1, (1 - share) * np.log1p(-middle), 0)
            inside = entropy - cross <= room
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
    return far

"""Online bin packing: instances in, the better of best and first fit out, exactly; and balanced sets of instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quantify.dataset.native import lib, pointer
from quantify.errors import InputError
from quantify.ir.selector import TIE, Instances, Masks, Winners

SOLVERS = ("best_fit", "first_fit")
"""In the order of their numbers in native/packing.c."""
MOST = 2**20
"""Sizes, capacities and lengths stay below: sums of squares then fit 64 bits."""
Balance = Literal["rejection", "search"]
SETS = {"ds2": 120, "ds4": 250}
"""Items of the instances that are like those of the document's data sets."""
MEAN, DEVIATION = 60.0, 20.0


@dataclass(frozen=True, slots=True)
class Packings:
    """What one solver makes of instances: the Falkenauer metric is squares / (bins · capacity²)."""

    squares: NDArray[np.int64]
    """[n]: sum over the bins of the square of what is in them."""
    bins: NDArray[np.int32]
    """[n]: number of bins."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The domain: items that arrive one by one, bins of one capacity, and the Falkenauer metric (larger is better)."""

    solvers: tuple[str, str] = ("best_fit", "first_fit")
    capacity: int = 150
    low: int = 20
    high: int = 100
    """Range of the sizes: what a mask pushes beyond is clipped."""

    def __post_init__(self) -> None:
        if set(self.solvers) != set(SOLVERS):
            raise InputError(f"solvers {', '.join(self.solvers)}", f"give both of {', '.join(SOLVERS)}, in any order")
        if not 1 <= self.low <= self.high <= self.capacity < MOST:
            raise InputError(
                f"sizes from {self.low} to {self.high} in bins of {self.capacity}",
                f"1 ≤ smallest ≤ largest ≤ capacity < {MOST:,} must hold",
            )

    def check(self, instances: Instances) -> None:
        if instances.shape[1] >= MOST:
            raise InputError(f"instances of {instances.shape[1]:,} items", f"fewer than {MOST:,} can be packed")
        outside = (instances < self.low) | (instances > self.high)
        if outside.any():
            row, item = (int(at) for at in np.argwhere(outside)[0])
            raise InputError(
                f"row {row}, item {item}: a size of {instances[row, item]} is outside {self.low} to {self.high}",
                "give --sizes LOW:HIGH as the data set has it, or correct the instance",
            )

    def winners(self, instances: Instances) -> Winners:
        sizes = np.ascontiguousarray(instances, dtype=np.int32)
        first, second = (_pack(sizes, self.capacity, SOLVERS.index(name)) for name in self.solvers)
        found = np.empty(len(sizes), dtype=np.int8)
        lib().packing_compare(
            pointer("int64_t", first.squares),
            pointer("int32_t", first.bins),
            pointer("int64_t", second.squares),
            pointer("int32_t", second.bins),
            len(sizes),
            pointer("int8_t", found),
        )
        return found

    def recheck(self, instances: Instances) -> Winners:
        """As `winners`, by plain Python: a second way for what is reported."""
        found = []
        for items in instances.tolist():
            (squares0, bins0), (squares1, bins1) = (_plain(items, self.capacity, name) for name in self.solvers)
            left, right = squares0 * bins1, squares1 * bins0
            found.append(0 if left > right else 1 if right > left else TIE)
        return np.array(found, dtype=np.int8)

    def perturb(self, instance: Instances, masks: Masks) -> Instances:
        changed = instance + masks.astype(np.int64)
        np.clip(changed, self.low, self.high, out=changed)
        return changed

    def describe(self) -> dict[str, Any]:
        return {
            "name": "bin packing",
            "solvers": list(self.solvers),
            "capacity": self.capacity,
            "sizes": [self.low, self.high],
        }


def pack(instances: Instances, capacity: int, solver: str) -> Packings:
    """What `solver` makes of instances whose sizes lie between 1 and `capacity`."""
    sizes = np.ascontiguousarray(instances, dtype=np.int32)
    if sizes.size and not (sizes.min() >= 1 and sizes.max() <= capacity < MOST and sizes.shape[1] < MOST):
        raise ValueError(f"sizes outside 1 to {capacity}")
    return _pack(sizes, capacity, SOLVERS.index(solver))


def _pack(sizes: NDArray[np.int32], capacity: int, solver: int) -> Packings:
    squares, bins = np.empty(len(sizes), dtype=np.int64), np.empty(len(sizes), dtype=np.int32)
    failed = lib().packing_pack(
        pointer("int32_t", sizes),
        *sizes.shape,
        capacity,
        solver,
        pointer("int64_t", squares),
        pointer("int32_t", bins),
    )
    if failed:
        raise MemoryError
    return Packings(squares, bins)


def _plain(items: list[int], capacity: int, solver: str) -> tuple[int, int]:
    """Sum of squares and number of bins of one packing."""
    rooms: list[int] = []
    for item in items:
        places = [place for place, room in enumerate(rooms) if room >= item]
        if not places:
            rooms.append(capacity - item)
        elif solver == "first_fit":
            rooms[places[0]] -= item
        else:
            rooms[min(places, key=lambda place: rooms[place])] -= item
    return sum((capacity - room) ** 2 for room in rooms), len(rooms)


# --- sets of instances -----------------------------------------------------------------------------------------------
def generate(
    count: int,
    items: int,
    seed: int,
    *,
    balance: Balance = "rejection",
    domain: Packing | None = None,
    steps: int = 2000,
    margin: float = 0.02,
) -> tuple[Instances, Winners]:
    """`count` instances of `items` sizes, half of them won by each solver (an odd one by the first), none tied.

    Sizes are drawn from N(60, 20), rounded, and clipped to the range of the domain.

    Args:
        balance: `rejection` draws until each solver has won enough. `search` draws once and changes single items (a new
            draw, or two that change places) for as long as this does not make the wanted solver worse beside the other,
            until it leads by `margin` of the Falkenauer metric or after `steps` changes.

    Returns:
        Instances [count, items] and their winners [count], in random order.
    """
    domain = domain or Packing()
    rng = np.random.default_rng([seed, items])
    wanted = np.zeros(count, dtype=np.int8)
    wanted[(count + 1) // 2 :] = 1
    if balance == "search":
        found = _searched(domain, wanted, items, rng, steps, margin)
    else:
        found = _rejected(domain, wanted, items, rng)
    order = rng.permutation(count)
    return np.ascontiguousarray(found[order]), wanted[order]


def draw(domain: Packing, shape: tuple[int, ...], rng: np.random.Generator) -> Instances:
    """Sizes from N(60, 20), rounded and clipped to the domain."""
    sizes = np.rint(rng.normal(MEAN, DEVIATION, shape)).astype(np.int64)
    return np.clip(sizes, domain.low, domain.high)


def _rejected(domain: Packing, wanted: Winners, items: int, rng: np.random.Generator) -> Instances:
    found = np.empty((len(wanted), items), dtype=np.int64)
    missing = {solver: list(np.flatnonzero(wanted == solver)) for solver in (0, 1)}
    drawn = 0
    while any(missing.values()):
        batch = draw(domain, (1024, items), rng)
        winners = domain.winners(batch)
        for solver, places in missing.items():
            kept = batch[winners == solver][: len(places)]
            for row in kept:
                found[places.pop()] = row
        drawn += len(batch)
        if drawn > 1000 * (len(wanted) + 1024):
            scarce = domain.solvers[0 if missing[0] else 1]
            raise InputError(
                f"fewer than one instance in a thousand is won by {scarce}", "draw instances by search, or more items"
            )
    return found


def _searched(
    domain: Packing, wanted: Winners, items: int, rng: np.random.Generator, steps: int, margin: float
) -> Instances:
    """Hill climbing, all instances at once; one that is not yet won by the wanted solver never stops early."""
    found = draw(domain, (len(wanted), items), rng)
    lead = _lead(domain, found, wanted)
    for step in range(50 * steps):
        open_ = np.flatnonzero(lead < margin if step < steps else lead <= 0)
        if not len(open_):
            break
        tried = found[open_]
        rows, places = np.arange(len(open_)), rng.integers(items, size=(2, len(open_)))
        swap = rng.random(len(open_)) < 0.5
        fresh = draw(domain, (len(open_),), rng)
        first, second = tried[rows, places[0]], tried[rows, places[1]]
        tried[rows, places[0]] = np.where(swap, second, fresh)
        tried[rows, places[1]] = np.where(swap, first, tried[rows, places[1]])
        now = _lead(domain, tried, wanted[open_])
        better = now >= lead[open_]
        found[open_[better]], lead[open_[better]] = tried[better], now[better]
    if not (domain.winners(found) == wanted).all():
        raise InputError("the search found no instance that one of the solvers wins", "give more items or steps")
    return found


def _lead(domain: Packing, instances: Instances, wanted: Winners) -> NDArray[np.float64]:
    """By how much of the Falkenauer metric the wanted solver leads."""
    first, second = (pack(instances, domain.capacity, name) for name in domain.solvers)
    values = [one.squares / (one.bins * float(domain.capacity) ** 2) for one in (first, second)]
    lead = np.where(wanted == 0, values[0] - values[1], values[1] - values[0])
    return np.where(domain.winners(instances) == TIE, 0.0, lead)

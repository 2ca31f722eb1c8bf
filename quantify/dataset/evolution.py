"""One instance in, masks that make a selector wrong about it out: at random, or evolved.

The algorithm is that of "Evaluating the Robustness of Deep-Learning Algorithm-Selection Models by Evolving Adversarial
Instances" (section 3.3): generational, tournaments of two, one-point crossover, each element mutated with probability
1/length, the children in the place of the parents. Every trial draws from a stream of its own, made from (seed, row,
run), so that nothing depends on the order in which trials are done, or on which worker does them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quantify.dataset.native import lib, pointer
from quantify.errors import InputError
from quantify.ir.evolved import Settings, Trial
from quantify.ir.selector import TIE, Domain, Instances, Masks, Selector, Winners

UNVERIFIED = 1e-5
"""|p_l − p_w| up to this may have the other sign where the network is evaluated otherwise: neither right nor wrong."""
ROUNDING = 1e-4
"""How far two probabilities in single precision may be from 1."""
SCREENING = -1
SAMPLE = np.dtype(
    [
        ("key", np.uint64, 2),
        ("fitness", np.float64),
        ("longest", np.int32),
        ("longest_up", np.int32),
        ("changes", np.int32),
        ("difference", np.int64),
        ("changed_winner", np.bool_),
    ]
)
"""One adversarial instance: 128 bits of its digest, its fitness, and how it differs from the original."""
Fitness = NDArray[np.float64]


class Stopped(Exception):
    """A limit was reached in the middle of a trial, of which nothing is kept."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Instances with the truth about them and what the selector says."""

    winners: Winners
    scores: NDArray[np.float64]
    """[n, 2]"""
    fitness: Fitness
    """p_l − p_w; −|p_0 − p_1| for a tie, which nothing a selector says is wrong about."""

    @property
    def adversarial(self) -> NDArray[np.bool_]:
        """Where the selector is wrong."""
        return self.fitness > UNVERIFIED

    @property
    def unverified(self) -> NDArray[np.bool_]:
        """Where it cannot be told; never for a tie."""
        unsure: NDArray[np.bool_] = np.abs(self.fitness) <= UNVERIFIED
        unsure[self.winners == TIE] = False
        return unsure


def judge(domain: Domain, selector: Selector, instances: Instances) -> Judged:
    """Solve the instances and ask the selector about them, all in one call.

    Algorithm 1 of the document; the second `winner is s1` there is s2.

    Raises:
        InputError: The selector does not answer with probabilities.
    """
    winners = domain.winners(instances)
    scores = np.asarray(selector.scores(instances), dtype=np.float64)
    if scores.shape != (len(instances), 2):
        raise InputError(
            f"the selector answers {len(instances)} instances with an array of shape {scores.shape}",
            "it must give two probabilities an instance, in the order of --solvers",
        )
    probable = (scores >= 0).all(axis=1) & (np.abs(scores.sum(axis=1) - 1) <= ROUNDING)
    if not probable.all():
        at = int(np.argmin(probable))
        raise InputError(
            f"the selector answers with {scores[at].tolist()}: these are no two probabilities",
            "its last layer must be a softmax, or one sigmoid unit",
        )
    lead = scores[:, 1] - scores[:, 0]
    fitness = np.where(winners == 0, lead, np.where(winners == 1, -lead, -np.abs(lead)))
    return Judged(winners, scores, fitness)


# --- masks -----------------------------------------------------------------------------------------------------------
def random_masks(count: int, length: int, p_init: float, magnitude: int, rng: np.random.Generator) -> Masks:
    """Zeros, of which each is drawn anew with probability `p_init`, uniformly from −magnitude to magnitude."""
    drawn = rng.integers(-magnitude, magnitude, size=(count, length), dtype=np.int8, endpoint=True)
    drawn[rng.random((count, length)) >= p_init] = 0
    return drawn


def offspring(masks: Masks, fitness: Fitness, settings: Settings, rng: np.random.Generator) -> Masks:
    """As many children as there are parents: the elite, then selection, crossover and mutation."""
    size, length = masks.shape
    pairs = size + size % 2
    entrants = rng.integers(size, size=(2, pairs))
    parents = masks[np.where(fitness[entrants[0]] >= fitness[entrants[1]], entrants[0], entrants[1])]
    children = crossed(parents, settings.p_crossover, rng)[:size]
    hit: NDArray[np.bool_] = rng.random((size, length)) < 1 / length
    if settings.p_mutation < 1:
        hit[rng.random(size) >= settings.p_mutation] = False
    values = rng.integers(-settings.magnitude, settings.magnitude, size=int(hit.sum()), dtype=np.int8, endpoint=True)
    children[hit] = values
    if settings.elite:
        best = np.argsort(-fitness, kind="stable")[: settings.elite]
        children[: len(best)] = masks[best]
    return children


def crossed(parents: Masks, probability: float, rng: np.random.Generator) -> Masks:
    """Parents 0 and 1, 2 and 3, … exchange what lies behind a point, uniform within the mask, with `probability`."""
    pairs, length = len(parents) // 2, parents.shape[1]
    children = parents.copy()
    if length < 2:
        return children
    points = rng.integers(1, length, size=pairs)
    points[rng.random(pairs) >= probability] = length
    behind = np.arange(length) >= points[:, None]
    children[0::2][behind], children[1::2][behind] = parents[1::2][behind], parents[0::2][behind]
    return children


# --- trials ----------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Book:
    """What a trial has evaluated."""

    domain: Domain
    selector: Selector
    instance: Instances
    winner: int
    """Of the instance as it is."""
    known: dict[bytes, float] = field(default_factory=dict)
    """Mask → fitness."""
    samples: list[NDArray[np.void]] = field(default_factory=list)
    ties: int = 0
    unverified: int = 0
    best_fitness: float = -np.inf
    best_mask: Masks | None = None

    def evaluate(self, masks: Masks) -> Fitness:
        """The fitness of each mask; those met before are not asked about again."""
        keys = [mask.tobytes() for mask in masks]
        fresh = {key: place for place, key in enumerate(keys) if key not in self.known}
        if fresh:
            asked = masks[list(fresh.values())]
            self._ask(asked, list(fresh))
        return np.array([self.known[key] for key in keys])

    def _ask(self, masks: Masks, keys: list[bytes]) -> None:
        perturbed = self.domain.perturb(self.instance, masks)
        judged = judge(self.domain, self.selector, perturbed)
        self.known.update(zip(keys, judged.fitness.tolist(), strict=True))
        self.ties += int((judged.winners == TIE).sum())
        self.unverified += int(judged.unverified.sum())
        best = int(np.argmax(judged.fitness))
        if judged.fitness[best] > self.best_fitness:
            self.best_fitness, self.best_mask = float(judged.fitness[best]), masks[best].copy()
        wrong = judged.adversarial
        if wrong.any():
            changed = judged.winners[wrong] != self.winner
            self.samples.append(samples_of(self.instance, perturbed[wrong], judged.fitness[wrong], changed))

    def trial(self, row: int, run: int, curve: list[float], queries: int | None, evaluations: int) -> Trial:
        """What is kept of it."""
        assert self.best_mask is not None
        samples = np.concatenate(self.samples) if self.samples else np.empty(0, SAMPLE)
        return Trial(
            row, run, self.best_fitness, self.best_mask, np.array(curve), queries, evaluations, len(self.known),
            self.ties, self.unverified, unique(samples),
        )  # fmt: skip


def samples_of(
    instance: Instances, perturbed: Instances, fitness: Fitness, changed_winner: NDArray[np.bool_]
) -> NDArray[np.void]:
    """The `SAMPLE` of each row of `perturbed`."""
    count, length = perturbed.shape
    changes, longest, longest_up = (np.empty(count, np.int32) for _ in range(3))
    difference = np.empty(count, np.int64)
    lib().packing_changes(
        pointer("int64_t", instance),
        pointer("int64_t", np.ascontiguousarray(perturbed)),
        count,
        length,
        pointer("int32_t", changes),
        pointer("int32_t", longest),
        pointer("int32_t", longest_up),
        pointer("int64_t", difference),
    )
    found = np.empty(count, SAMPLE)
    digests = b"".join(hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in perturbed)
    found["key"] = np.frombuffer(digests, np.uint64).reshape(count, 2)
    found["fitness"], found["changed_winner"] = fitness, changed_winner
    found["changes"], found["longest"], found["longest_up"] = changes, longest, longest_up
    found["difference"] = difference
    return found


def unique(samples: NDArray[np.void]) -> NDArray[np.void]:
    """One of each instance, by digest."""
    if len(samples) < 2:
        return samples
    keys = samples["key"]
    samples = samples[np.lexsort((keys[:, 0], keys[:, 1]))]
    keys = samples["key"]
    first = np.ones(len(samples), np.bool_)
    first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    return samples[first]


def stream(seed: int, row: int, run: int) -> np.random.Generator:
    """The random numbers of one trial."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, row, run + 1])))


def screen(book: Book, settings: Settings, seed: int, row: int) -> Trial:
    """Random masks on one instance (section 3.4)."""
    length = len(book.instance)
    rng = stream(seed, row, SCREENING)
    masks = random_masks(settings.screen, length, settings.screen_p_init, settings.magnitude, rng)
    fitness = book.evaluate(masks)
    wrong = np.flatnonzero(fitness > UNVERIFIED)
    queries = int(wrong[0]) + 1 if len(wrong) else None
    return book.trial(row, SCREENING, [float(fitness.max())], queries, len(masks))


def evolve(
    book: Book, settings: Settings, seed: int, row: int, run: int, expired: Callable[[], bool] = lambda: False
) -> Trial:
    """One run of evolution on one instance.

    Raises:
        Stopped: `expired` said so.
    """
    rng = stream(seed, row, run)
    masks = random_masks(settings.population, len(book.instance), settings.p_init, settings.magnitude, rng)
    fitness = book.evaluate(masks)
    curve = [float(fitness.max())]
    evaluations = settings.population
    queries = evaluations if curve[0] > UNVERIFIED else None
    for _ in range(settings.generations):
        if queries is not None and settings.stop_at_first:
            break
        if expired():
            raise Stopped
        masks = offspring(masks, fitness, settings, rng)
        fitness = book.evaluate(masks)
        curve.append(float(fitness.max()))
        evaluations += settings.population
        if queries is None and curve[-1] > UNVERIFIED:
            queries = evaluations
    return book.trial(row, run, curve, queries, evaluations)

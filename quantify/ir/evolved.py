"""What a search for adversarial instances found, instance by instance: the only input of its report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quantify.ir.record import DataRef, ModelRef, Reading

Category = Literal["fragile", "perturbable", "robust"]
"""A random mask was adversarial; only evolution found one; neither did."""
CATEGORIES: tuple[Category, ...] = ("fragile", "perturbable", "robust")
Kind = Literal["T1", "T2", "T3"]
"""Who wins the adversarial instances made of one: the same solver as before, the other one, or some of each."""
KINDS: tuple[Kind, ...] = ("T1", "T2", "T3")
Excluded = Literal["misclassified", "tie", "undecided"]
"""Why an instance is not searched: the selector is wrong about it as it is; no solver is better; |p_l − p_w| is too
small for another build of the network to agree."""
STATISTICS = ("longest", "longest_up", "changes", "difference")
"""How an adversarial instance differs from the original: longest run of changed items, longest run of increased ones,
number of changed items, difference of the sums."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The search; the defaults are the document's (p_crossover it leaves open)."""

    runs: int = 10
    generations: int = 500
    population: int = 50
    p_init: float = 0.3
    """Probability that an element of an initial mask is drawn anew, from −magnitude to magnitude, 0 among them."""
    p_crossover: float = 0.9
    p_mutation: float = 1.0
    """Probability that a child is mutated; then each element is, with probability 1/length."""
    magnitude: int = 1
    elite: int = 0
    """Best masks that live on; the document has none."""
    screen: int = 500
    """Random masks that come before evolution."""
    screen_p_init: float = 0.3
    stop_at_first: bool = False
    """Whether a run ends with its first adversarial mask."""


@dataclass(frozen=True)
class Trial:
    """One run of evolution on one instance, or its screening by random masks."""

    row: int
    run: int
    """From 0; −1 is the screening."""
    best_fitness: float
    """Greatest p_l − p_w of all masks."""
    best_mask: NDArray[np.int8]
    curve: NDArray[np.float64]
    """[generations + 1]: the best fitness in each population; for a screening, of all masks."""
    queries: int | None
    """Evaluations until the population that had the first adversarial mask was evaluated (for a screening: until that
    mask); None: there was none."""
    evaluations: int
    asked: int
    """Evaluations that were not of a mask met before in the same trial: what the selector was asked."""
    ties: int
    """Of those asked, instances that no solver wins."""
    unverified: int
    """Of those asked, instances with |p_l − p_w| so small that they count as neither right nor wrong."""
    samples: NDArray[Any]
    """The adversarial ones of those asked, see `dataset.evolution.SAMPLE`."""


@dataclass(frozen=True, slots=True)
class Best:
    """The strongest adversarial mask of a trial, tried once more."""

    run: int
    mask: NDArray[np.int8]
    instance: NDArray[np.int64]
    """The perturbed instance."""
    winner: int
    """Place of the better solver on it."""
    scores: tuple[float, float]
    """What the selector says of it."""
    fitness: float


@dataclass(frozen=True)
class Searched:
    """What all trials say of one instance."""

    row: int
    winner: int
    """Place of the better solver on the instance as it is."""
    confidence: float
    """p_w − p_l of the instance as it is, above 0."""
    category: Category
    best_fitness: float
    queries: float | None
    """Fragile: random masks until the first that was adversarial; perturbable: median over the runs that found one."""
    kind: Kind | None
    successes: int
    """Runs that found an adversarial mask."""
    evaluations: int
    asked: int
    ties: int
    unverified: int
    unique: int
    """Different adversarial instances over all trials."""
    changed_winner: int
    """Of these, how many are won by the other solver than before."""
    median_fitness: float | None
    """Of the unique adversarial instances; None without."""
    medians: dict[str, float]
    """`STATISTICS` of the unique adversarial instances; empty without."""
    run_fitness: tuple[float, ...]
    """Greatest fitness of each run."""
    curves: tuple[NDArray[np.float64], ...] = field(default=(), repr=False)
    """Best fitness by generation, a curve a run."""
    found: tuple[Best, ...] = ()
    """Adversarial instances, at most one a trial, each verified."""


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """What the network's own library says, where it was asked."""

    instances: int
    """As they are."""
    adversarial: int
    """Strongest ones, one a trial that found any."""
    largest: float
    """Largest difference between two probabilities."""


@dataclass(frozen=True)
class Evolved:
    """The whole search."""

    selector: ModelRef
    instances: DataRef | None
    """None: they were generated."""
    source: str
    """Path of the instances, or what was generated."""
    given: int
    length: int
    domain: dict[str, Any]
    settings: Settings
    seed: int
    excluded: dict[int, Excluded]
    """Row → why it was not searched."""
    searched: tuple[Searched, ...]
    """By row; those that were finished."""
    unfinished: tuple[int, ...]
    """Rows that a limit left without an answer."""
    reading: Reading
    """`adversarial_rate`."""
    notes: tuple[str, ...] = ()
    """What must be said of the selector."""
    cross_check: CrossCheck | None = None
    """None: the library was not asked."""

    @property
    def solvers(self) -> tuple[str, str]:
        """Names of the solvers, by place."""
        first, second = self.domain["solvers"]
        return first, second

    def of(self, category: Category) -> tuple[Searched, ...]:
        """The instances of a class."""
        return tuple(one for one in self.searched if one.category == category)


@dataclass(frozen=True, slots=True)
class Correlation:
    """Of an instance's median fitness with the median of one of `STATISTICS`, over the perturbable instances."""

    statistic: str
    instances: int
    spearman: float | None
    """None: fewer than three instances, or all alike."""
    p_value: float | None


@dataclass(frozen=True, slots=True)
class Quartiles:
    """Of some numbers, by linear interpolation."""

    q1: float
    median: float
    q3: float


@dataclass(frozen=True)
class Summary:
    """What the document tells of a data set (sections 4 and 5). Everything but `classes` is of the perturbable ones."""

    classes: dict[str, dict[Category, int]]
    """Solver → class → instances that it wins."""
    success_rate: float | None
    """Share of the instances that are not fragile for which evolution found a mask; None: there are none."""
    queries: float | None
    """Median over the instances."""
    kinds: dict[Kind, int]
    run_fitness: Quartiles | None
    """Of the greatest fitness of each run."""
    unique_total: int
    unique_median: float | None
    medians: dict[str, float]
    """Median over the instances of their medians of `STATISTICS`."""
    correlations: tuple[Correlation, ...]

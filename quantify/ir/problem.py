"""What is to be counted: first in the user's terms (`Problem`), then in integers (`GridProblem`)."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from quantify.ir.domain import Domain, Measure
from quantify.ir.model import Decision, Model
from quantify.ir.network import IntNetwork
from quantify.ir.predicate import Predicate
from quantify.ir.property import BoolExpr

PropertyKind = Literal["safety", "robustness", "learnability", "classes"]


# --- regions, in grid positions ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Box:
    """All points with low[i] ≤ position i < high[i]."""

    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of points, exactly."""
        return math.prod(max(0, high - low) for low, high in zip(self.low, self.high, strict=True))


@dataclass(frozen=True, slots=True)
class Ball:
    """The points of `box` at distance at most `radius` from `centre`.

    l1: Σ weights[i]·|position − centre[i]| ≤ radius. l0: at most `radius` features differ from the centre
    (`weights` are all 1). The missing position is never inside a box of an l1 ball.
    """

    box: Box
    centre: tuple[int, ...]
    norm: Literal["l1", "l0"]
    weights: tuple[int, ...]
    radius: int


Region = Box | Ball


# --- in the user's terms -----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Column:
    """Where a model column gets its value: from a feature, or with `level`, 1 iff the feature is at that position."""

    feature: int
    level: int | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """One number that is wanted: the inputs of a case's region where `expression` holds."""

    name: str
    expression: BoolExpr
    reported: bool = True
    """False for queries that only complete a partition."""


@dataclass(frozen=True, slots=True)
class Case:
    """A region with its queries; robustness has one case per row and ε, the other kinds exactly one.

    `partitions` names sets of queries that are disjoint and together cover the region, for the cross-check.
    """

    region: Region
    queries: tuple[Query, ...]
    partitions: tuple[tuple[str, ...], ...]
    row: int | None = None
    """0-based data row of a robustness centre."""
    label: str | None = None
    """The label that counts as right in a robustness case."""
    epsilon: Fraction | None = None
    centre: tuple[int, ...] | None = None
    """Grid positions of a robustness centre."""


@dataclass(frozen=True)
class NetworkOptions:
    """What a property file says about its network: how it becomes integers, and how scores name a label."""

    mode: Literal["default", "exact", "bits"] = "default"
    """default: as it is when all constants are integers, else exact."""
    bits: int = 8
    """bits: weights have this many, the sign included."""
    per: Literal["tensor", "channel"] = "tensor"
    activations: int = 15
    """bits: unsigned width that hidden activations are rescaled to where they may be wider."""
    calibration: tuple[tuple[Fraction, ...], ...] | None = None
    """bits: rows of model inputs (before `preprocess`) whose activations set the clipping; None: proven ranges."""
    decision: Decision = "argmax"
    scale: tuple[Fraction, ...] | None = None
    """One factor a model column: the model is given scale·value + offset; None for 1 everywhere."""
    offset: tuple[Fraction, ...] | None = None
    """One a model column; None for 0 everywhere."""


@dataclass(frozen=True)
class Problem:
    """Model + domain + property, validated together."""

    model: Model
    domain: Domain
    measure: Measure
    columns: tuple[Column, ...]
    """One per model column, in the model's order."""
    kind: PropertyKind
    name: str
    cases: tuple[Case, ...]
    property_path: str
    property_sha256: str
    positive: str | None = None
    """The positive label of a learnability property that names one."""
    norm: Literal["linf", "l1", "l0"] | None = None
    notes: tuple[str, ...] = ()
    """Things the reader of the answer must know (values dropped, ranges taken from data)."""
    network: NetworkOptions | None = None
    """For networks, and None for trees. `labels:` of the property file are in `model.classes`, `decision:` in
    `model.predict` already."""


# --- in integers -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class GridTree:
    """A decision tree over grid positions; node 0 is the root. Shared children are allowed, cycles are not.

    Inner node k sends an input right iff low[k] ≤ position of feature[k] < high[k], else left. An ordinary
    threshold is (cut, size), or (cut, missing position) when NaN goes left. Leaves have feature −1 and a class index.
    """

    feature: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    label: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GridQuery:
    """A query in integers."""

    name: str
    predicate: Predicate
    reported: bool = True


@dataclass(frozen=True, slots=True)
class GridCase:
    """A case in integers."""

    region: Region
    queries: tuple[GridQuery, ...]
    partitions: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class GridProblem:
    """The integer problem: everything an engine needs, and nothing else.

    Counts under a product measure are sums of products of the integer `measure.weights`; the caller divides.
    """

    sizes: tuple[int, ...]
    labels: int
    """Number of classes."""
    structure: GridTree | IntNetwork
    """The model in integers."""
    measure: Measure
    cases: tuple[GridCase, ...]
    relation_nodes: int | None = None

    @property
    def tree(self) -> GridTree:
        """The structure of a problem that is known to be a tree.

        Raises:
            TypeError: It is a network.
        """
        if isinstance(self.structure, IntNetwork):
            raise TypeError("this problem is about a network, not a tree")
        return self.structure

    @property
    def network(self) -> IntNetwork | None:
        """The structure when it is a network."""
        return self.structure if isinstance(self.structure, IntNetwork) else None

    @cached_property
    def base_digest(self) -> bytes:
        """Digest of what all cases share."""
        structure = self.structure.digest_text if isinstance(self.structure, IntNetwork) else self.structure
        text = repr((self.sizes, self.labels, structure, self.measure))
        return hashlib.sha256(text.encode()).digest()

    def digest(self, case: GridCase) -> str:
        """Hex digest that names one case of this problem in records and bundles."""
        return hashlib.sha256(self.base_digest + repr(case).encode()).hexdigest()

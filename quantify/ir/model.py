"""A trained model as readers hand it on: its structure, its classes, and the library's own predict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from quantify.ir.network import Network

if TYPE_CHECKING:  # a counter's child process imports this module and must start fast
    import numpy as np
    from numpy.typing import NDArray

Predict: TypeAlias = "Callable[[NDArray[np.float64]], NDArray[np.int64]]"
"""Library predict: a float64 matrix (rows × columns) to class indices; the library does its own rounding."""
Decision: TypeAlias = Literal["argmax", "argmin"]
"""Which of a network's scores names the label: the highest or the lowest, ties to the lowest index."""
Ambiguous: TypeAlias = "Callable[[NDArray[np.float64], NDArray[np.float64], Decision], NDArray[np.bool_]]"
"""(inputs, bounds on |the exact input − the float64 given|, decision) to the rows whose label some floating-point
evaluation of the network, in any order, might change."""


@dataclass(frozen=True)
class Tree:
    """A binary decision tree over model columns; node 0 is the root, arrays are parallel.

    Inner node k sends an input left iff its column `column[k]`, rounded to `dtype`, is ≤ `threshold[k]` (a float64);
    NaN goes left iff `missing_left[k]`. Leaves have `column[k] == -1` and the class index `label[k]`.
    Validated: children lie after no cycle, columns and labels in range, thresholds finite.
    """

    column: tuple[int, ...]
    threshold: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    missing_left: tuple[bool, ...]
    label: tuple[int, ...]
    dtype: Literal["float32", "float64"] = "float32"

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return sum(column < 0 for column in self.column)


@dataclass(frozen=True)
class Model:
    """One model file, read and validated."""

    path: str
    sha256: str
    """Digest of the file's bytes."""
    kind: str
    """"tree" (later "network", "ensemble")."""
    classes: tuple[str, ...]
    """`str(class)` by class index, in the library's order."""
    columns: int
    """Number of model inputs."""
    column_names: tuple[str, ...] | None
    """Names the library stored, or None."""
    structure: Tree | Network
    predict: Predict
    accepts_missing: bool
    """Whether the library's predict takes NaN."""
    library: str
    """Library and version that made predict, for the record."""
    predict_by: Callable[[Decision], Predict] | None = None
    """Networks: `predict` with the label taken by that decision (`predict` itself: argmax); None: argmax only."""
    ambiguous: Ambiguous | None = None
    """Networks in floating point: see the type; None for integer models, whose arithmetic is exact."""
    library_predict: Callable[[Decision], Predict] | None = None
    """Networks: the library itself, where `predict` is an evaluator of ours; the call imports it.

    Raises MissingToolError when it is not installed. None when `predict` is the library already.
    """
    library_version: Callable[[], str | None] | None = None
    """Networks: name and version of what `library_predict` asks, found without importing it; None: not installed."""

"""What a search for adversarial instances needs to know: a selector of algorithms, and the domain of its instances."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Instances = NDArray[np.int64]
"""[n, length], C-contiguous: one instance a row."""
Masks = NDArray[np.int8]
"""[n, length]: what is added to the elements of an instance."""
Winners = NDArray[np.int8]
"""[n]: the place of the better solver, 0 or 1, or `TIE`."""

TIE = -1
"""No solver is better: whatever a selector says, it is not wrong."""


class Selector(Protocol):
    """A black box that says which of two solvers is the better one on an instance."""

    def scores(self, instances: Instances) -> NDArray[np.floating[Any]]:
        """Probabilities, [n, 2], in the order of the domain's solvers; every row sums to 1.

        The scores of a row depend on nothing but the row.
        """


class Domain(Protocol):
    """Instances, two solvers for them, and how an instance may be changed."""

    @property
    def solvers(self) -> tuple[str, str]:
        """Names, in the order of the selector's outputs."""

    def check(self, instances: Instances) -> None:
        """Refuse rows that are no instances of the domain.

        Raises:
            InputError: With the row and the value.
        """

    def winners(self, instances: Instances) -> Winners:
        """The better solver of each row, compared exactly."""

    def perturb(self, instance: Instances, masks: Masks) -> Instances:
        """One instance, [length], under each mask, clipped to the domain: [n, length]."""

    def describe(self) -> dict[str, Any]:
        """Plain JSON data: what the answer says of the domain, and what a resumed search must find unchanged."""

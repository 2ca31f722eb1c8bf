"""A Network and input rows to scores, outputs and labels as its library has them: in floating point, in its dtype."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from quantify.ir.model import Decision, Predict
from quantify.ir.network import ActivationLayer, Layer, LinearLayer, MaxPoolLayer, Network, RequantiseLayer, Rows

Floats = NDArray[np.floating[Any]]
F = TypeVar("F", bound=np.floating[Any])

CHUNK_VALUES = 1 << 22
"""Matrix elements held at once for the widest layer."""
DENSE_SHARE = 0.2
"""Above this share of non-zeros a dense product is the faster one."""


def scores(network: Network, inputs: NDArray[np.float64]) -> Floats:
    """Scores of each row, (rows × outputs) in the network's dtype; inputs are rounded to that dtype first.

    The values before any softmax or sigmoid. Sums are made in an order of ours: they differ from the library's by
    rounding, within `float_error.error_bound`.

    Raises:
        TypeError: The network has integer layers (`RequantiseLayer`), which another evaluator computes.
        ValueError: The inputs have another number of columns.
    """
    steps = prepared(network)
    parts = [_forward(steps, rows.astype(network.dtype)) for rows in chunks(network, inputs)]
    return np.concatenate(parts) if parts else np.empty((0, network.outputs), network.dtype)


def outputs(network: Network, inputs: NDArray[np.float64]) -> Floats:
    """What the library's last layer returns: the scores, after the softmax or sigmoid if there is one."""
    return squashed(network, scores(network, inputs))


def labels(network: Network, inputs: NDArray[np.float64], decision: Decision = "argmax") -> NDArray[np.int64]:
    """Class index of each row: the extreme output, ties to the lowest index; sigmoid heads: 1 iff ≥ threshold."""
    found = outputs(network, inputs)
    if network.head == "sigmoid":
        return at_least(found[:, 0], network).astype(np.int64)
    best: NDArray[np.int64] = (found.argmax(axis=1) if decision == "argmax" else found.argmin(axis=1)).astype(np.int64)
    return best


def predictor(network: Network, decision: Decision = "argmax") -> Predict:
    """`labels` of this network as a Model's `predict`."""

    def predict(inputs: NDArray[np.float64]) -> NDArray[np.int64]:
        return labels(network, inputs, decision)

    return predict


def squashed(network: Network, found: Floats) -> Floats:
    """The softmax or sigmoid of scores, in their own dtype (softmax: exponentials of differences to the largest)."""
    if network.squash == "softmax":
        powers = np.exp(found - found.max(axis=1, keepdims=True))
        total: Floats = powers / powers.sum(axis=1, keepdims=True)
        return total
    if network.squash == "sigmoid":
        with np.errstate(over="ignore"):
            one = found.dtype.type(1)
            value: Floats = one / (one + np.exp(-found))
            return value
    return found


def at_least(probability: Floats, network: Network) -> NDArray[np.bool_]:
    """Whether each probability, a float, is ≥ the exact threshold."""
    threshold = network.threshold
    near = float(threshold)
    # A float64 that is at least the exact threshold: comparing with it is comparing with the threshold.
    while near < threshold:
        near = float(np.nextafter(near, np.inf))
    found: NDArray[np.bool_] = probability.astype(np.float64) >= near
    return found


# --- shared with the error bound ---------------------------------------------------------------------------------
class Product:
    """Multiplication of row vectors by a layer's sparse rows."""

    def __init__(self, rows: Rows, dtype: str, *, absolute: bool = False) -> None:
        values = np.abs(rows.values) if absolute else rows.values
        self._sparse: Any = None
        self._dense: Any = None
        if len(rows.values) > DENSE_SHARE * rows.inputs * rows.outputs:
            kept = Rows(rows.inputs, rows.start, rows.columns, values.astype(dtype))
            self._dense = np.ascontiguousarray(kept.to_dense().T)
        else:
            from scipy.sparse import csr_matrix

            parts = (values.astype(dtype), rows.columns, rows.start)
            self._sparse = csr_matrix(parts, shape=(rows.outputs, rows.inputs))

    def __call__(self, inputs: NDArray[F]) -> NDArray[F]:
        """(rows × inputs) to (rows × outputs), both of the dtype given."""
        found: NDArray[F] = inputs @ self._dense if self._dense is not None else (self._sparse @ inputs.T).T
        return found


def chunks(network: Network, inputs: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """The rows in pieces small enough for the widest layer."""
    if inputs.ndim != 2 or inputs.shape[1] != network.inputs:
        raise ValueError(f"the network has {network.inputs} inputs, not a matrix of shape {inputs.shape}")
    widest = max([network.inputs, *(width(layer) for layer in network.layers)])
    rows = max(1, CHUNK_VALUES // widest)
    for start in range(0, len(inputs), rows):
        yield inputs[start : start + rows]


def width(layer: Layer) -> int:
    """Elements that evaluating a layer holds per row; 1 for elementwise layers."""
    if isinstance(layer, LinearLayer):
        return max(1, layer.rows.outputs)
    return max(1, layer.members.size) if isinstance(layer, MaxPoolLayer) else 1


def gathered(layer: MaxPoolLayer, inputs: Floats, missing: float) -> Floats:
    """(rows × outputs × window) values of each window, `missing` where the border cuts it."""
    found: Floats = np.where(layer.members < 0, inputs.dtype.type(missing), inputs[:, layer.members])
    return found


# --- evaluation --------------------------------------------------------------------------------------------------
Step = tuple[Layer, Product | None]


@lru_cache(maxsize=8)
def prepared(network: Network) -> tuple[Step, ...]:
    """Each layer with its matrix in the network's dtype."""
    for layer in network.layers:
        if isinstance(layer, RequantiseLayer):
            raise TypeError("an integer network is not evaluated in floating point")
    return tuple(
        (layer, Product(layer.rows, network.dtype) if isinstance(layer, LinearLayer) else None)
        for layer in network.layers
    )


def _forward(steps: tuple[Step, ...], values: Floats) -> Floats:
    # Overflow to infinity is what the library does as well.
    with np.errstate(over="ignore", invalid="ignore"):
        for layer, product in steps:
            if isinstance(layer, LinearLayer):
                assert product is not None
                values = product(values) + layer.bias.astype(values.dtype)
                if layer.divisor is not None:
                    values = values / layer.divisor.astype(values.dtype)
            elif isinstance(layer, MaxPoolLayer):
                values = gathered(layer, values, -np.inf).max(axis=2)
            elif isinstance(layer, ActivationLayer):
                values = activated(layer, values)
    return values


def activated(layer: ActivationLayer, values: NDArray[F]) -> NDArray[F]:
    """The elementwise function, in the values' own dtype."""
    kind = values.dtype.type
    if layer.kind == "relu":
        positive: NDArray[F] = np.maximum(values, kind(0))
        return positive if layer.cap is None else np.minimum(positive, kind(float(layer.cap)))
    if layer.kind == "leaky":
        return np.where(values >= 0, values, values * kind(float(layer.slope)))
    sign = np.sign(values)
    return np.where(sign == 0, kind(layer.sign_of_zero), sign)

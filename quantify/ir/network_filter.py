"""Grid positions and an IntNetwork in, labels in double precision and which of them are proven out.

Wide exact networks (hundreds of bits) are slow in integers. Here every value carries a bound on its distance from the
exact one: with γ_k = k·u/(1 − k·u), u = 2^-53, a sum of n products of rounded constants is off by at most
γ_{n+3}·(Σ|w·x| + |b|) plus Σ|w|·(error of x), in any order and with or without fused operations (Higham, Accuracy and
Stability of Numerical Algorithms, section 3.1). Activations are Lipschitz; a sign is taken where the bound excludes 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.ir.network import IntLayer, IntNetwork, Rows

Floats = NDArray[np.float64]

UNIT = 2.0**-53
TINY = 2.0**-900
"""More than all underflow in one layer together."""
CHUNK_VALUES = 1 << 20
DENSE_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class _Linear:
    """Weights and bias divided by a power of two, so that nothing overflows whatever the integers' size."""

    weights: Any
    absolute: Any
    """(inputs × outputs), dense or sparse."""
    bias: Floats
    gamma: float
    up: float
    """Factor that makes up for the rounding of the bound itself."""


@dataclass(frozen=True, eq=False)
class _Step:
    layer: IntLayer
    linear: _Linear | None
    cap: float
    factors: tuple[float, float]


def applies(network: IntNetwork) -> bool:
    """Whether every activation has a bound here, and no bias is 2^1,000 times its layer's weights."""
    if not all(layer.activation in ("none", "relu", "leaky", "sign", "max") for layer in network.layers):
        return False
    try:
        _prepared(network)
    except OverflowError:
        return False
    return True


def labels(network: IntNetwork, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For every row the index of the largest score, and whether that is proven to be the exact network's label.

    `applies(network)` must hold.
    """
    steps = _prepared(network)
    rows = max(1, CHUNK_VALUES // max([network.inputs, *(_width(layer) for layer in network.layers)]))
    parts = [_chunk(steps, positions[start : start + rows]) for start in range(0, len(positions), rows)]
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.bool_)
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _width(layer: IntLayer) -> int:
    return len(layer.bias) if layer.members is None else layer.members.size


def _chunk(steps: tuple[_Step, ...], positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    values = positions.astype(np.float64)
    # Positions beyond 2^53 are rounded.
    error = np.where(values > 2.0**53, values * (2 * UNIT), 0.0)
    sure = np.ones(len(values), np.bool_)
    for step in steps:
        if step.linear is not None:
            values, error = _multiplied(step.linear, values, error)
        values, error, certain = _activated(step, values, error)
        sure &= certain
    best = np.asarray(values.argmax(axis=1), np.int64)
    own = best[:, None]
    gap = np.take_along_axis(values, own, 1) - values
    room = (np.take_along_axis(error, own, 1) + error) * (1 + 2.0**-40)
    apart = gap * (1 - 2.0**-40) > room
    np.put_along_axis(apart, own, True, 1)
    return best, sure & apart.all(axis=1)


def _multiplied(linear: _Linear, values: Floats, error: Floats) -> tuple[Floats, Floats]:
    found = _product(linear.weights, values) + linear.bias
    spread = _product(linear.absolute, linear.gamma * np.abs(values) + error) + linear.gamma * np.abs(linear.bias)
    return found, spread * linear.up + TINY


def _product(matrix: Any, values: Floats) -> Floats:
    result: Floats = values @ matrix if isinstance(matrix, np.ndarray) else (matrix.T @ values.T).T
    return result


def _activated(step: _Step, values: Floats, error: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    layer = step.layer
    every = np.ones(len(values), np.bool_)
    if layer.activation == "relu":
        positive = np.maximum(values, 0.0)
        if layer.cap is None:
            return positive, error, every
        return np.minimum(positive, step.cap), error + 2 * UNIT * step.cap, every
    if layer.activation == "leaky":
        positive_factor, negative_factor = step.factors
        bent = np.where(values >= 0, values * positive_factor, values * negative_factor)
        steepest = max(abs(positive_factor), abs(negative_factor))
        widened = (error * steepest + 4 * UNIT * (np.abs(values) + error) * steepest) * (1 + 2.0**-48) + TINY
        return bent, widened, every
    if layer.activation == "sign":
        signs = np.where(values > 0, 1.0, -1.0)
        return signs, np.zeros_like(error), np.asarray((np.abs(values) > error).all(axis=1))
    if layer.members is not None:
        members = np.where(layer.members < 0, layer.members.max(axis=1, keepdims=True), layer.members)
        return values[:, members].max(axis=2), error[:, members].max(axis=2), every
    return values, error, every


# --- constants -----------------------------------------------------------------------------------------------------
@lru_cache(maxsize=8)
def _prepared(network: IntNetwork) -> tuple[_Step, ...]:
    steps = []
    exponent = 0
    for layer in network.layers:
        linear = None
        if layer.members is None:
            exponent += _bits(layer.rows.values)
            linear = _linear(layer, _bits(layer.rows.values), exponent)
        cap = 0.0 if layer.cap is None else _scaled(layer.cap, exponent)
        factors = (1.0, 1.0)
        if layer.activation == "leaky":
            shift = max(abs(layer.positive), abs(layer.negative)).bit_length()
            factors = _scaled(layer.positive, shift), _scaled(layer.negative, shift)
            exponent += shift
        if layer.activation == "sign":
            exponent = 0
        steps.append(_Step(layer, linear, cap, factors))
    return tuple(steps)


def _bits(values: NDArray[Any]) -> int:
    return max(abs(int(values.max())), abs(int(values.min()))).bit_length() if values.size else 0


def _scaled(number: int, exponent: int) -> float:
    """number/2^exponent, rounded once."""
    return float(Fraction(number, 1 << exponent))


def _linear(layer: IntLayer, shift: int, exponent: int) -> _Linear:
    rows = layer.rows
    weights = np.array([_scaled(int(weight), shift) for weight in rows.values.tolist()], np.float64)
    bias = np.array([_scaled(int(entry), exponent) for entry in layer.bias.tolist()], np.float64)
    terms = int(np.diff(rows.start).max(initial=0)) + 3
    gamma = terms * UNIT / (1 - terms * UNIT) * (1 + 2.0**-40)
    return _Linear(
        weights=_matrix(rows, weights),
        absolute=_matrix(rows, np.abs(weights)),
        bias=bias,
        gamma=gamma,
        up=1 + (4 * terms + 32) * UNIT,
    )


def _matrix(rows: Rows, values: Floats) -> Any:
    if len(values) > DENSE_SHARE * rows.inputs * rows.outputs or len(values) < 4096:
        return np.ascontiguousarray(Rows(rows.inputs, rows.start, rows.columns, values).to_dense().T)
    from scipy.sparse import csr_matrix

    return csr_matrix((values, rows.columns, rows.start), shape=(rows.outputs, rows.inputs)).T

"""A quantised Network and int8 inputs to its exact int8 scores."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from quantify.ir.network import Layer, LinearLayer, MaxPoolLayer, Network, RequantiseLayer
from quantify.ir.network_eval import requantised
from quantify.readers.float_network import Product, chunks

EXACT = 2.0**53
"""Sums of integers below it are exact in float64, in any order."""


def scores(network: Network, inputs: NDArray[np.int64]) -> NDArray[np.int64]:
    """(rows × outputs) values of the last layer, zero points taken off, for integer inputs.

    Raises:
        TypeError: A layer is not one of integers.
        ValueError: The inputs have another number of columns, or sums may exceed what float64 holds exactly.
    """
    steps = _prepared(network)
    parts = []
    for rows in chunks(network, np.asarray(inputs, np.float64)):
        values = rows
        for layer, product in steps:
            if isinstance(layer, LinearLayer):
                assert product is not None
                values = product(values) + layer.bias.astype(np.float64)
                if not np.abs(values).max(initial=0) < 2.0**62:
                    raise ValueError("sums beyond 64 bits")
            elif isinstance(layer, MaxPoolLayer):
                values = np.where(layer.members < 0, -np.inf, values[:, layer.members]).max(axis=2)
            elif isinstance(layer, RequantiseLayer):
                values = requantised(layer, values.astype(np.int64)).astype(np.float64)
        parts.append(values.astype(np.int64))
    return np.concatenate(parts) if parts else np.empty((0, network.outputs), np.int64)


@lru_cache(maxsize=8)
def _prepared(network: Network) -> tuple[tuple[Layer, Product | None], ...]:
    largest = 128.0
    found: list[tuple[Layer, Product | None]] = []
    for layer in network.layers:
        product = None
        if isinstance(layer, LinearLayer):
            if layer.divisor is not None or layer.rows.values.dtype.kind != "i":
                raise TypeError(f"{layer.origin} is no layer of integers")
            product = Product(layer.rows, "float64")
            sums = Product(layer.rows, "float64", absolute=True)(np.full((1, layer.rows.inputs), largest))
            largest = float((sums + np.abs(layer.bias.astype(np.float64))).max(initial=0))
            if not largest < EXACT / 2:
                raise ValueError(f"{layer.origin}: sums beyond what float64 holds exactly")
        elif isinstance(layer, RequantiseLayer):
            largest = 128.0
        elif not isinstance(layer, MaxPoolLayer):
            raise TypeError(f"{layer.origin} is no layer of integers")
        found.append((layer, product))
    return tuple(found)

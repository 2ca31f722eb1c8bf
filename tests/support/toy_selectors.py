"""Selectors whose mistakes are known: for tests of `quantify evolve`, also as `--callable toy_selectors:NAME`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from quantify.dataset.packing import Packing
from quantify.ir.record import ModelRef

Sizes = NDArray[np.int64]
REF = ModelRef("toy", "0" * 64, "callable")


class Toy:
    """A selector that counts what it is asked."""

    ref = REF

    def __init__(self, function: Callable[[NDArray[np.int64]], NDArray[np.float64]]) -> None:
        self.function = function
        self.asked: list[NDArray[np.int64]] = []

    def scores(self, instances: NDArray[np.int64]) -> NDArray[np.float64]:
        self.asked.append(instances.copy())
        return self.function(instances)


def probabilities(first: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([first, 1 - first], axis=1)


def smooth(instances: Sizes) -> NDArray[np.float64]:
    """Says nothing about packing: a logistic function of a weighted sum of the sizes."""
    weights = np.sin(np.arange(instances.shape[1]))
    return probabilities(1 / (1 + np.exp(-(instances - 60) @ weights / 60 - 1.2)))


def oracle(instances: Sizes) -> NDArray[np.float64]:
    """Always right, by solving: no mask is adversarial."""
    return probabilities(np.choose(Packing().winners(instances) + 1, [0.5, 0.9, 0.1]))


def planted(instances: Sizes) -> NDArray[np.float64]:
    """Right, but wrong wherever the first two sizes add up to an odd number."""
    odd = instances[:, :2].sum(axis=1) % 2 == 1
    return np.where(odd[:, None], oracle(instances)[:, ::-1], oracle(instances))


def faint(instances: Sizes) -> NDArray[np.float64]:
    """As `planted`, wrong by less than what counts as verified."""
    right = oracle(instances)
    odd = instances[:, :2].sum(axis=1) % 2 == 1
    barely = np.where(right[:, :1] > 0.5, [[0.499999, 0.500001]], [[0.500001, 0.499999]])
    return np.where(odd[:, None], barely, right)


def constant(instances: Sizes) -> NDArray[np.float64]:
    """Best fit, always: wrong exactly where first fit wins."""
    return probabilities(np.full(len(instances), 0.75))


def broken(instances: Sizes) -> NDArray[np.float64]:
    """No probabilities."""
    return instances[:, :2] / 7.0


def failing(instances: Sizes) -> NDArray[np.float64]:
    raise RuntimeError("out of order")


def hungry(instances: Sizes) -> NDArray[np.float64]:
    """Needs 8 GiB of addresses, of which it uses none, for more than a few instances at a time."""
    if len(instances) > 8:
        np.empty(2**30, np.int64)
    return smooth(instances)


class EvenFirst:
    """Another domain: solver `even` wins when the sum of the row is even, `odd` otherwise, and a sum of 0 is a tie."""

    solvers = ("even", "odd")

    def check(self, instances: Sizes) -> None:
        if (instances < 0).any():
            raise ValueError("a negative number")

    def winners(self, instances: Sizes) -> NDArray[np.int8]:
        sums = instances.sum(axis=1)
        return np.where(sums == 0, -1, sums % 2).astype(np.int8)

    def perturb(self, instance: Sizes, masks: NDArray[np.int8]) -> Sizes:
        return np.clip(instance + masks, 0, 9)

    def describe(self) -> dict[str, object]:
        return {"name": "parity", "range": [0, 9]}


even_first = EvenFirst()


def says_even(instances: Sizes) -> NDArray[np.float64]:
    return probabilities(np.full(len(instances), 0.6))

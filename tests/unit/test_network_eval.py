"""Integer networks in bulk and in double precision against plain Python integers."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from quantify.ir import network_eval, network_filter
from quantify.ir.network import IntLayer, IntNetwork, RequantiseLayer, Rows

LARGEST = 200


def random_network(rng: random.Random, kinds: tuple[str, ...], widths: tuple[int, ...]) -> IntNetwork:
    """Dense layers with proven widths, inputs 0 … 200."""
    inputs = width = rng.randint(1, 5)
    layers, magnitude = [], LARGEST
    for _ in range(rng.randint(1, 4)):
        outputs, bits = rng.randint(2, 4), rng.choice(widths)
        weights = [[rng.randint(-(2**bits), 2**bits) for _ in range(width)] for _ in range(outputs)]
        bias = [rng.randint(-LARGEST * 2**bits, LARGEST * 2**bits) for _ in range(outputs)]
        most = max(sum(map(abs, row)) for row in weights) * magnitude + max(map(abs, bias))
        kind = rng.choice(kinds)
        more: dict[str, Any] = {}
        out = most
        if kind == "capped":
            kind, more, out = "relu", {"cap": most // 5}, most // 5
        elif kind == "leaky":
            more, out = {"positive": 5, "negative": rng.choice([1, -2])}, 5 * most
        elif kind == "sign":
            more, out = {"at_zero": rng.choice([-1, 0, 1])}, 1
        elif kind == "floor_shift":
            more, out = {"shift": bits, "low": -3, "high": 1000}, 1000
        dtype: Any = np.int64 if bits < 55 else object
        layers.append(
            IntLayer(
                Rows.dense(np.array(weights, dtype)),
                np.array(bias, dtype),
                activation=kind,  # type: ignore[arg-type]
                bits=max(most, out).bit_length() + 1,
                **more,
            )
        )
        width, magnitude = outputs, max(out, 1)
    return IntNetwork(inputs, tuple(layers), width)


def draws(network: IntNetwork, seed: int, rows: int) -> Any:
    return np.random.default_rng(seed).integers(0, LARGEST + 1, size=(rows, network.inputs))


@pytest.mark.parametrize("seed", range(60))
def test_bulk_scores_are_the_plain_ones(seed: int) -> None:
    rng = random.Random(seed)
    kinds = ("none", "relu", "capped", "leaky", "sign", "floor_shift")
    network = random_network(rng, kinds, (2, 18, 40, 61, 90))
    points = draws(network, seed, 20)
    wanted = [network_eval.point_scores(network, point) for point in points]
    assert network_eval.scores(network, points).tolist() == wanted
    assert network_eval.labels(network, points).tolist() == [row.index(max(row)) for row in wanted]


@pytest.mark.parametrize("seed", range(60))
def test_what_double_precision_proves_is_true(seed: int) -> None:
    rng = random.Random(1000 + seed)
    network = random_network(rng, ("none", "relu", "capped", "leaky", "sign"), (2, 18, 40, 90, 300, 1200))
    points = draws(network, seed, 30)
    found, sure = network_filter.labels(network, points)
    wanted = np.array([network_eval.point_label(network, point) for point in points])
    assert (found == wanted)[sure].all()
    assert (network_eval.labels(network, points) == wanted).all()


def test_close_scores_are_left_to_integers() -> None:
    huge = 2**200
    rows = Rows.dense(np.array([[huge], [huge]], object))
    for offset, label in ((1, 1), (0, 0), (-1, 0)):
        layer = IntLayer(rows, np.array([0, offset], object), bits=220)
        network = IntNetwork(1, (layer,), 2)
        points = np.array([[3], [200]])
        assert not network_filter.labels(network, points)[1].any()
        assert network_eval.labels(network, points).tolist() == [label, label]


def test_biases_that_no_double_sets_beside_the_weights() -> None:
    one = Rows.dense(np.array([[1], [-1]]))
    for bits, label in ((1030, 1), (900, 1)):
        far = IntLayer(one, np.array([-(1 << bits), 1 << bits], object), "relu", bits=bits + 8)
        network = IntNetwork(1, (far, IntLayer(one_by_one(), np.zeros(2, np.int64), bits=bits + 8)), 2)
        assert network_filter.applies(network) == (bits < 1000)
        assert network_eval.labels(network, np.array([[3], [200]])).tolist() == [label, label]


def one_by_one() -> Rows:
    return Rows.dense(np.array([[1, 0], [0, 1]]))


def test_maxima_over_cut_windows() -> None:
    none = Rows(3, np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    pool = IntLayer(none, np.empty(0, np.int64), activation="max", members=np.array([[0, 1], [2, -1]]))
    network = IntNetwork(3, (pool,), 2)
    points = np.array([[5, 7, 1], [0, 0, 9]])
    assert network_eval.scores(network, points).tolist() == [[7, 1], [0, 9]]
    assert [network_eval.point_scores(network, point) for point in points] == [[7, 1], [0, 9]]


@pytest.mark.parametrize("rounding", ["double", "single"])
def test_rescaling_of_quantised_libraries(rounding: Any) -> None:
    rng = np.random.default_rng(5)
    layer = RequantiseLayer(rng.integers(2**30, 2**31, 40), rng.integers(-20, 3, 40), -3, -128, 127, rounding)
    one = Rows(1, np.arange(41), np.zeros(40, np.int64), np.ones(40, np.int64))
    network = IntNetwork(
        1, (IntLayer(one, np.zeros(40, np.int64), activation="requantise", requantise=layer, bits=32),), 40
    )
    values = np.concatenate([rng.integers(-(2**28), 2**28, 200), np.arange(-50, 50)])[:, None]
    wanted = [network_eval.point_scores(network, value) for value in values]
    assert network_eval.requantised(layer, np.repeat(values, 40, axis=1)).tolist() == wanted
    single = dataclasses.replace(layer, rounding="single")
    # Nearest by either way: they differ only where a product lies next to the middle.
    other = network_eval.requantised(single, np.repeat(values, 40, axis=1))
    assert (abs(other - np.array(wanted)) <= 1).all()


def test_a_wrong_number_of_columns_is_an_error() -> None:
    network = IntNetwork(2, (IntLayer(Rows.dense(np.ones((1, 2), np.int64)), np.zeros(1, np.int64)),), 1)
    with pytest.raises(ValueError, match="2 inputs"):
        network_eval.scores(network, np.zeros((4, 3), np.int64))
    assert network_eval.labels(network, np.zeros((0, 2), np.int64)).tolist() == []

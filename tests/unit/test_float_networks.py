"""Floating-point evaluation of networks against rationals: every order of summation stays inside the proven error."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from exact_networks import exact_scores

from quantify.ir.network import ActivationLayer, Layer, LinearLayer, MaxPoolLayer, Network, RequantiseLayer, Rows
from quantify.readers.float_error import ambiguous, error_bound
from quantify.readers.float_network import labels, outputs, predictor, scores

Dtype = Literal["float32", "float64"]


def linear(weights: Any, bias: Any, dtype: Dtype = "float32", divisor: list[int] | None = None) -> LinearLayer:
    by = None if divisor is None else np.array(divisor, np.int64)
    return LinearLayer(Rows.dense(np.array(weights, dtype)), np.array(bias, dtype), by)


def one_layer(weights: Any, bias: Any, dtype: Dtype = "float32", **options: Any) -> Network:
    layer = linear(weights, bias, dtype)
    return Network(layer.rows.inputs, (layer,), layer.rows.outputs, dtype, **options)


def random_network(seed: int, dtype: Dtype) -> Network:
    r, rng = random.Random(seed), np.random.default_rng(seed)
    width = inputs = r.randint(2, 6)
    layers: list[Layer] = []
    for _ in range(r.randint(1, 4)):
        outputs = r.randint(2, 8)
        scale = 10.0 ** r.randint(-3, 3)
        weights = rng.normal(size=(outputs, width)) * scale * (rng.random((outputs, width)) < r.choice([0.15, 0.7, 1]))
        divisor = [r.choice([1, 3, 4, 9]) for _ in range(outputs)] if r.random() < 0.3 else None
        layers.append(linear(weights, rng.normal(size=outputs) * scale, dtype, divisor))
        width = outputs
        kind = r.choice(["none", "relu", "cap", "leaky", "sign", "pool"])
        if kind == "pool":
            members = [[i, (i + 1) % width, -1] for i in range(0, width, 2)]
            layers.append(MaxPoolLayer(width, np.array(members, np.int64)))
            width = len(members)
        elif kind == "cap":
            layers.append(ActivationLayer("relu", Fraction(3, 2)))
        elif kind == "leaky":
            layers.append(ActivationLayer("leaky", slope=Fraction(float(np.float32(0.1)))))
        elif kind == "sign":
            layers.append(ActivationLayer("sign", sign_of_zero=r.choice([-1, 0, 1])))
        elif kind == "relu":
            layers.append(ActivationLayer("relu"))
    layers.append(linear(rng.normal(size=(3, width)), rng.normal(size=3), dtype))
    return Network(inputs, tuple(layers), 3, dtype, squash=r.choice(["none", "softmax"]))


# --- other evaluations -------------------------------------------------------------------------------------------
def summed(terms: list[Any], order: str, r: random.Random) -> Any:
    """The sum of floats in their own type, in some order."""
    if order == "shuffled":
        r.shuffle(terms)
    elif order == "backwards":
        terms = terms[::-1]
    if order == "pairs":
        while len(terms) > 1:
            terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)] + terms[len(terms) // 2 * 2 :]
        return terms[0]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def evaluated(network: Network, values: Any, order: str, r: random.Random) -> list[Any]:
    """Scores in the network's type, scalar by scalar; "fused" rounds product and sum at once (float32)."""
    kind = np.dtype(network.dtype).type
    now = [kind(value) for value in values]
    for layer in network.layers:
        if isinstance(layer, LinearLayer):
            now = [_row(layer, row, now, order, r) for row in range(layer.rows.outputs)]
        elif isinstance(layer, MaxPoolLayer):
            now = [max(now[i] for i in members if i >= 0) for members in layer.members.tolist()]
        elif isinstance(layer, ActivationLayer):
            now = [_active(layer, value) for value in now]
    return now


def _row(layer: LinearLayer, row: int, now: list[Any], order: str, r: random.Random) -> Any:
    cut = slice(int(layer.rows.start[row]), int(layer.rows.start[row + 1]))
    pairs = [(w, now[int(c)]) for w, c in zip(layer.rows.values[cut], layer.rows.columns[cut], strict=True)]
    kind = type(layer.bias[row])
    if order == "fused" and kind is np.float32:
        total = layer.bias[row]
        for w, x in pairs:
            # Exact product and one rounding to float64 before that to float32: as good as one for these sizes.
            total = np.float32(np.float64(w) * np.float64(x) + np.float64(total))
    else:
        total = summed([w * x for w, x in pairs] + [layer.bias[row]], order, r)
    return total if layer.divisor is None else total * (kind(1) / kind(layer.divisor[row]))


def _active(layer: ActivationLayer, value: Any) -> Any:
    kind = type(value)
    if layer.kind == "relu":
        value = max(value, kind(0))
        return value if layer.cap is None else min(value, kind(float(layer.cap)))
    if layer.kind == "leaky":
        return value if value >= 0 else value * kind(float(layer.slope))
    return kind(int(value > 0) - int(value < 0)) if value else kind(layer.sign_of_zero)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(40))
def test_every_order_of_summation_is_within_the_bound(seed: int, dtype: Dtype) -> None:
    network, r = random_network(seed, dtype), random.Random(seed)
    inputs = np.random.default_rng(seed).normal(size=(6, network.inputs)).round(3)
    bound = error_bound(network, inputs, squash=False)
    settled = ~ambiguous(network, inputs)
    near = scores(network, inputs)
    for at, row in enumerate(inputs):
        real = exact_scores(network, [Fraction(float(v)) for v in row])
        for order in ("forwards", "backwards", "pairs", "shuffled", "fused"):
            found = evaluated(network, row, order, r)
            for i, value in enumerate(found):
                assert abs(Fraction(float(value)) - real[i]) <= Fraction(bound[at, i])
            if settled[at]:
                assert int(np.argmax(found)) == real.index(max(real))
        for i in range(3):
            assert abs(Fraction(float(near[at, i])) - real[i]) <= Fraction(bound[at, i])
        if settled[at]:
            assert labels(network, inputs[at : at + 1])[0] == real.index(max(real))


@pytest.mark.parametrize("seed", range(20))
def test_other_ways_of_normalising_a_batch_are_within_the_bound(seed: int) -> None:
    rng, one = np.random.default_rng(seed), np.float32(1)
    gamma, beta, mean = (rng.normal(size=5).astype("f") for _ in range(3))
    mean = mean * np.float32(10.0 ** rng.integers(0, 4))
    variance = rng.uniform(1e-3, 9, 5).astype("f")
    inverse = one / np.sqrt(variance) * gamma
    offset = beta - mean * inverse
    sizes = np.abs(beta) + np.abs(mean * inverse)
    diagonal = Rows.dense(np.diag(inverse))
    network = Network(5, (LinearLayer(diagonal, offset, derived=sizes),), 5, "float32")
    # Inputs close to the mean cancel most.
    inputs = (mean + rng.normal(size=(50, 5)).astype("f") * 10.0 ** rng.integers(-4, 2, (50, 5))).astype("f")
    bound = error_bound(network, inputs.astype(float))
    real = inputs.astype(float) * inverse.astype(float) + offset.astype(float)
    for units in (-2, 0, 2):
        root = one / np.sqrt(variance)
        other = (root + units * np.spacing(root)) * gamma
        for found in ((inputs - mean) * other + beta, inputs * other + (beta - mean * other)):
            assert (np.abs(found.astype(float) - real) <= bound * (1 + 1e-9)).all()


def test_the_bound_is_of_the_size_of_the_rounding() -> None:
    # One product and a bias: at most the input's, the product's and the sum's rounding, each half a unit.
    network = one_layer([[0.1]], [0.2])
    bound = error_bound(network, np.array([[0.3]]))[0, 0]
    assert 2.0**-25 * 0.03 < bound < 6 * 2.0**-24 * 0.23


def test_whole_numbers_are_summed_without_error() -> None:
    ternary = np.random.default_rng(0).integers(-1, 2, (5, 40)).astype(float)
    layers = (linear(ternary, [0.0] * 5), ActivationLayer("sign"), linear(np.eye(5), [0.5] * 5))
    network = Network(40, layers, 5, "float32", squash="softmax")
    inputs = np.random.default_rng(1).integers(0, 2, (50, 40)).astype(float)
    assert (error_bound(network, inputs, squash=False) == 0).all()
    # Ties without error stay ties, and the lowest index wins everywhere.
    assert not ambiguous(network, inputs).any()
    assert (error_bound(one_layer(ternary, [0.0] * 5), inputs + 0.1) > 0).all()


def test_whole_numbers_beyond_the_significand_are_rounded() -> None:
    network = one_layer([[1.0, 1.0]], [0.0])
    large = np.array([[2.0**24, 1.0]])
    assert scores(network, large)[0, 0] == 2.0**24
    assert error_bound(network, large)[0, 0] >= 1
    assert error_bound(network, large - 2)[0, 0] == 0


def test_flushing_denormals_is_part_of_the_bound() -> None:
    network = one_layer([[1e-30]], [0.0])
    assert error_bound(network, np.array([[1e-10]]))[0, 0] >= 1e-40
    assert error_bound(one_layer([[1.0]], [0.0]), np.array([[1e-40]]))[0, 0] >= 1e-40


def test_overflow_leaves_no_bound() -> None:
    network = one_layer([[1e30, 1.0], [0.0, 1.0]], [0.0, 0.0])
    found = error_bound(network, np.array([[1e30, 1.0], [1.0, 1.0]]))
    assert np.isinf(found[0]).all()
    assert np.isfinite(found[1]).all()
    assert ambiguous(network, np.array([[1e30, 1.0]])).tolist() == [True]
    assert np.isinf(error_bound(network, np.array([[1e300, 1.0]]))).all()


def test_the_inputs_own_error_passes_through() -> None:
    network = one_layer([[2.0], [-3.0]], [0.0, 0.0])
    found = error_bound(network, np.array([[1.0]]), input_error=0.25)
    assert (found[0] >= [0.5, 0.75]).all()
    assert (found[0] < [0.5001, 0.7501]).all()
    assert ambiguous(network, np.array([[0.2]]), input_error=0.25).all()


def test_a_softmax_can_make_a_tie_of_two_scores() -> None:
    network = one_layer([[1.0], [0.0]], [0.0, 0.0], squash="softmax")
    tiny = np.array([[-1e-9]])
    assert scores(network, tiny).argmax() == 1
    assert outputs(network, tiny)[0].tolist() == [0.5, 0.5]
    assert labels(network, tiny).tolist() == [0]
    assert ambiguous(network, tiny).tolist() == [True]
    assert ambiguous(one_layer([[1.0], [0.0]], [0.0, 0.0]), np.array([[-0.5]])).tolist() == [False]


def test_a_softmax_loses_low_scores_for_argmin() -> None:
    network = one_layer([[1.0], [-2.0], [-1.0]], [0.0, 0.0, 0.0], squash="softmax")
    far = np.array([[200.0]])
    assert labels(network, far, "argmin").tolist() == [1]
    assert ambiguous(network, far, decision="argmin").tolist() == [True]
    assert ambiguous(network, far).tolist() == [False]


@pytest.mark.parametrize("threshold", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 1000)])
def test_sigmoid_labels_are_sure_away_from_the_threshold(threshold: Fraction) -> None:
    network = one_layer([[1.0]], [0.0], head="sigmoid", squash="sigmoid", threshold=threshold)
    edge = float(np.log(float(threshold / (1 - threshold))))
    steps = np.concatenate([np.linspace(-1e-5, 1e-5, 201), [-1, 1]])
    inputs = (edge + steps)[:, None]
    unsure = ambiguous(network, inputs)
    assert unsure[100]
    assert not unsure[[-1, -2]].any()
    assert (labels(network, inputs)[~unsure] == (steps[~unsure] > 0)).all()


def test_saturated_sigmoids_are_ambiguous() -> None:
    network = one_layer([[1.0], [2.0]], [0.0, 0.0], squash="sigmoid")
    inputs = np.array([[30.0], [1.0], [-1.0]])
    assert ambiguous(network, inputs).tolist() == [True, False, False]
    # Both outputs are 1 in float32, and the lowest index wins.
    assert labels(network, inputs).tolist() == [0, 1, 0]


def test_predictors_know_their_decision_and_empty_batches() -> None:
    network = one_layer([[1.0], [0.0], [1.0]], [0.0, 0.0, 0.0])
    points = np.array([[1.0], [-1.0], [0.0]])
    assert predictor(network)(points).tolist() == [0, 1, 0]
    assert predictor(network, "argmin")(points).tolist() == [1, 0, 0]
    assert predictor(network)(points[:0]).tolist() == []
    assert error_bound(network, points[:0]).shape == (0, 3)
    assert ambiguous(network, points[:0]).shape == (0,)
    with pytest.raises(ValueError, match="1 inputs"):
        scores(network, np.zeros((1, 2)))


def test_integer_networks_are_left_to_their_own_evaluator() -> None:
    requantise = RequantiseLayer(np.array([1 << 30]), np.array([0]), 0, -128, 127)
    with pytest.raises(TypeError, match="integer"):
        scores(Network(1, (requantise,), 1, "float32"), np.zeros((1, 1)))

"""Networks in integers against the stored constants evaluated in fractions, at every point of small domains."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from quantify.discretise.network_steps import least_logit
from quantify.discretise.networks import lower_network
from quantify.errors import InputError
from quantify.ir import network_eval
from quantify.ir.domain import (
    BoolFeature,
    CategoricalFeature,
    Domain,
    Feature,
    FixedFeature,
    Float32Feature,
    IntFeature,
    Measure,
)
from quantify.ir.model import Model
from quantify.ir.network import (
    ActivationLayer,
    Layer,
    LinearLayer,
    MaxPoolLayer,
    Network,
    RequantiseLayer,
    Rows,
)
from quantify.ir.problem import Column, NetworkOptions, Problem


# --- the meaning, in fractions -----------------------------------------------------------------------------------
def real_scores(network: Network, inputs: list[Fraction]) -> list[Fraction]:
    values = inputs
    for layer in network.layers:
        if isinstance(layer, LinearLayer):
            matrix = layer.rows.to_dense().tolist()
            sums = [
                sum((Fraction(w) * v for w, v in zip(row, values, strict=True)), Fraction(b))
                for row, b in zip(matrix, layer.bias.tolist(), strict=True)
            ]
            by = [1] * len(sums) if layer.divisor is None else layer.divisor.tolist()
            values = [total / d for total, d in zip(sums, by, strict=True)]
        elif isinstance(layer, MaxPoolLayer):
            values = [max(values[m] for m in window if m >= 0) for window in layer.members.tolist()]
        else:
            assert isinstance(layer, ActivationLayer)
            values = [activated(layer, value) for value in values]
    return values


def activated(layer: ActivationLayer, value: Fraction) -> Fraction:
    if layer.kind == "relu":
        positive = max(value, Fraction(0))
        return positive if layer.cap is None else min(positive, layer.cap)
    if layer.kind == "leaky":
        return value if value >= 0 else layer.slope * value
    return Fraction((value > 0) - (value < 0) if value else layer.sign_of_zero)


def model_inputs(problem: Problem, point: tuple[int, ...]) -> list[Fraction]:
    options = problem.network or NetworkOptions()
    values = []
    for number, column in enumerate(problem.columns):
        if column.level is None:
            value = Fraction(problem.domain.features[column.feature].value(point[column.feature]))
        else:
            value = Fraction(point[column.feature] == column.level)
        scale = 1 if options.scale is None else options.scale[number]
        offset = 0 if options.offset is None else options.offset[number]
        values.append(value * scale + offset)
    return values


# --- building ----------------------------------------------------------------------------------------------------
def never(_: Any) -> Any:
    raise AssertionError("the lowering asks no predict")


def make_problem(network: Network, features: list[Feature], options: NetworkOptions | None = None) -> Problem:
    columns: list[Column] = []
    for place, feature in enumerate(features):
        if isinstance(feature, CategoricalFeature) and feature.onehot:
            columns.extend(Column(place, level) for level in range(len(feature.onehot)))
        else:
            columns.append(Column(place))
    assert len(columns) == network.inputs
    classes = ("0", "1") if network.head == "sigmoid" else tuple(map(str, range(network.outputs)))
    model = Model("m", "0", "network", classes, network.inputs, None, network, never, False, "none")
    domain = Domain(tuple(features))
    return Problem(
        model, domain, Measure(), tuple(columns), "classes", "n", (), "p", "0", network=options or NetworkOptions()
    )


def linear(outputs: int, inputs: int, rng: random.Random, dtype: type = np.float32, **more: Any) -> LinearLayer:
    weights = np.array([[rng.gauss(0, 1) for _ in range(inputs)] for _ in range(outputs)], dtype)
    weights[np.array([[rng.random() < 0.2 for _ in range(inputs)] for _ in range(outputs)], bool)] = 0
    bias = np.array([rng.gauss(0, 1) for _ in range(outputs)], dtype)
    return LinearLayer(Rows.dense(weights), bias, **more)


def random_layers(inputs: int, rng: random.Random) -> tuple[list[Layer], int]:
    layers: list[Layer] = []
    width = inputs
    for _ in range(rng.randint(1, 3)):
        outputs = rng.randint(2, 4)
        divisor = np.array([rng.choice([1, 3, 4, 9]) for _ in range(outputs)], np.int64) if rng.random() < 0.3 else None
        layers.append(linear(outputs, width, rng, rng.choice([np.float32, np.float64]), divisor=divisor))
        width = outputs
        kind = rng.choice(["relu", "cap", "leaky", "sign", "pool", "none"])
        if kind == "relu":
            layers.append(ActivationLayer("relu"))
        elif kind == "cap":
            layers.append(ActivationLayer("relu", cap=Fraction(rng.choice([1, 6, 0.1]))))
        elif kind == "leaky":
            layers.append(ActivationLayer("leaky", slope=Fraction(float(np.float32(rng.choice([0.3, 0.01, 0.5]))))))
        elif kind == "sign":
            layers.append(ActivationLayer("sign", sign_of_zero=rng.choice([-1, 0, 1])))
        elif kind == "pool":
            members = np.array([[0, 1], [width - 1, -1]], np.int64)
            layers.append(MaxPoolLayer(width, members))
            width = 2
    if rng.random() < 0.8:
        layers.append(linear(3, width, rng))
        width = 3
    return layers, width


FEATURES: list[Feature] = [
    IntFeature("i", minimum=-3, maximum=2),
    BoolFeature("b"),
    FixedFeature("f", minimum=Fraction(-1, 10), step=Fraction(1, 10), steps=5),
    CategoricalFeature("c", values=("p", "q", "r"), codes=(Fraction(-1), Fraction(1, 2), Fraction(7))),
    CategoricalFeature("even", values=("p", "q", "r"), codes=(0, 1, 2)),
    CategoricalFeature("h", values=("s", "t", "u"), codes=(0, 1, 2), onehot=("h_s", "h_t", "h_u")),
    CategoricalFeature("two", values=("s", "t"), codes=(0, 1), onehot=("t_s", "t_t")),
]


def width_of(features: list[Feature]) -> int:
    return sum(len(f.onehot) if isinstance(f, CategoricalFeature) and f.onehot else 1 for f in features)


def check(problem: Problem) -> None:
    """Scores, labels, ranges and widths of the lowered network at every point."""
    network = problem.model.structure
    assert isinstance(network, Network)
    options = problem.network or NetworkOptions()
    lowered = lower_network(problem)
    points = list(itertools.product(*map(range, problem.domain.sizes)))
    found = network_eval.scores(lowered.network, np.array(points, np.int64))
    labels = network_eval.labels(lowered.network, np.array(points, np.int64))
    for point, row, label in zip(points, found.tolist(), labels.tolist(), strict=True):
        assert network_eval.point_scores(lowered.network, point) == row
        wanted = real_scores(network, model_inputs(problem, point))
        told = [factor * row[score.index] for factor, score in lowered.scores]
        assert told == wanted
        assert all(score.low <= row[score.index] <= score.high for _, score in lowered.scores)
        if network.head == "sigmoid":
            assert label == (1 / (1 + math.exp(-wanted[0])) >= network.threshold)
        else:
            choose = max if options.decision == "argmax" else min
            assert label == wanted.index(choose(wanted))


@pytest.mark.parametrize("seed", range(60))
def test_exact_mode_is_the_real_function(seed: int) -> None:
    rng = random.Random(seed)
    features = rng.sample(FEATURES, rng.randint(1, 3))
    inputs = width_of(features)
    layers, outputs = random_layers(inputs, rng)
    network = Network(inputs, tuple(layers), outputs, "float32")
    options = NetworkOptions(
        mode="exact",
        decision=rng.choice(["argmax", "argmin"]),
        scale=tuple(Fraction(rng.randint(1, 9), 255) for _ in range(inputs)) if rng.random() < 0.5 else None,
        offset=tuple(Fraction(rng.randint(-9, 9), 7) for _ in range(inputs)) if rng.random() < 0.5 else None,
    )
    check(make_problem(network, features, options))


def test_a_normalisation_is_folded_into_the_first_layer() -> None:
    rng = random.Random(5)
    diagonal = LinearLayer(Rows.dense(np.diag([0.1, 3.0]).astype(np.float64)), np.array([-0.5, 2.0]))
    network = Network(2, (diagonal, linear(3, 2, rng), ActivationLayer("relu"), linear(2, 3, rng)), 2, "float32")
    problem = make_problem(network, [FEATURES[0], FEATURES[2]])
    assert len(lower_network(problem).network.layers) == 2
    check(problem)


def test_linear_layers_are_merged_where_that_is_cheaper() -> None:
    rng = random.Random(6)
    network = Network(8, (linear(3, 8, rng), linear(2, 3, rng)), 2, "float32")
    problem = make_problem(network, [BoolFeature(f"b{i}") for i in range(8)])
    assert len(lower_network(problem).network.layers) == 1
    check(problem)


def test_activations_first_and_last() -> None:
    rng = random.Random(7)
    layers = (ActivationLayer("relu"), linear(3, 2, rng), ActivationLayer("relu"))
    for decision in ("argmax", "argmin"):
        options = NetworkOptions(decision=decision)
        check(make_problem(Network(2, layers, 3, "float32"), [FEATURES[0], FEATURES[2]], options))


@pytest.mark.parametrize("threshold", [Fraction(1, 2), Fraction(1, 3), Fraction(9, 10), Fraction(0.3)])
def test_a_sigmoid_head_becomes_two_scores(threshold: Fraction) -> None:
    rng = random.Random(8)
    for _ in range(5):
        network = Network(2, (linear(1, 2, rng),), 1, "float32", head="sigmoid", threshold=threshold)
        check(make_problem(network, [FEATURES[0], FEATURES[2]]))


def test_a_logit_equal_to_the_threshold_is_class_one() -> None:
    layer = LinearLayer(Rows.dense(np.array([[1.0]], np.float32)), np.zeros(1, np.float32))
    network = Network(1, (layer,), 1, "float32", head="sigmoid")
    lowered = lower_network(make_problem(network, [IntFeature("i", minimum=-1, maximum=1)]))
    assert network_eval.labels(lowered.network, np.array([[0], [1], [2]])).tolist() == [0, 1, 1]


def test_the_least_logit_is_found_by_the_logarithm() -> None:
    # ln(9) = 2.19722457733621938279…, from tables.
    assert least_logit(Fraction(9, 10), Fraction(1, 10**20)) == 219722457733621938280
    assert least_logit(Fraction(1, 10), Fraction(1, 10**20)) == -219722457733621938279
    assert least_logit(Fraction(1, 2), Fraction(1, 3)) == 0
    assert least_logit(Fraction(9, 10), Fraction(1, 10**200)) // 10**180 == 219722457733621938279


def test_argmin_of_a_sigmoid_is_refused() -> None:
    network = Network(1, (linear(1, 1, random.Random(1)),), 1, "float32", head="sigmoid")
    with pytest.raises(InputError, match="argmin has no meaning for a sigmoid"):
        lower_network(make_problem(network, [BoolFeature("b")], NetworkOptions(decision="argmin")))


def test_float32_features_are_refused() -> None:
    network = Network(1, (linear(2, 1, random.Random(1)),), 2, "float32")
    with pytest.raises(InputError, match="is float32") as caught:
        lower_network(make_problem(network, [Float32Feature("x", minimum=0.0, maximum=1.0)]))
    assert "fixed" in (caught.value.hint or "")


def test_inputs_outside_what_the_file_allows_are_refused() -> None:
    network = Network(1, (linear(2, 1, random.Random(1)),), 2, "float32", input_bounds=((0.0, 3.141593),))
    inside = FixedFeature("t", minimum=Fraction(0), step=Fraction(3141593, 10**6), steps=2)
    check(make_problem(network, [inside]))
    outside = FixedFeature("t", minimum=Fraction(0), step=Fraction(3141594, 10**6), steps=2)
    with pytest.raises(InputError, match=r"'t' reaches 3\.141594"):
        lower_network(make_problem(network, [outside]))


def test_infinite_constants_are_refused() -> None:
    layer = LinearLayer(Rows.dense(np.array([[np.inf]], np.float32)), np.zeros(1, np.float32), origin="dense_1")
    with pytest.raises(InputError, match="dense_1"):
        lower_network(make_problem(Network(1, (layer,), 1, "float32"), [BoolFeature("b")]))


def test_integer_networks_keep_small_integers() -> None:
    weights = np.array([[3, -1], [2, 5]], np.int64)
    layers = (LinearLayer(Rows.dense(weights), np.array([1, -2], np.int64)), ActivationLayer("relu"))
    out = LinearLayer(Rows.dense(np.array([[1, -1], [0, 7]], np.int64)), np.array([0, 0], np.int64))
    problem = make_problem(Network(2, (*layers, out), 2, "float32"), [FEATURES[0], FEATURES[1]])
    check(problem)
    lowered = lower_network(problem).network
    assert lowered.score_scale == 1
    assert lowered.exact
    assert [layer.bits for layer in lowered.layers] == [6, 7]


# --- quantised files ---------------------------------------------------------------------------------------------
def tflite_like() -> Network:
    rng = np.random.default_rng(3)
    first = LinearLayer(Rows.dense(rng.integers(-127, 128, (3, 2))), rng.integers(-500, 500, 3))
    rescale = RequantiseLayer(np.array([2**30, 1_500_000_000, 2**31 - 1]), np.array([-7, -8, -9]), -3, -128, 127)
    second = LinearLayer(Rows.dense(rng.integers(-127, 128, (2, 3))), rng.integers(-500, 500, 2))
    last = RequantiseLayer(np.array([2**30, 2**30]), np.array([-8, -8]), 5, -128, 127)
    return Network(2, (first, rescale, second, last), 2, "float32", input_scale=Fraction(1, 255), input_zero_point=-128)


def test_quantised_files_keep_their_accumulators() -> None:
    network = tflite_like()
    features: list[Feature] = [
        FixedFeature("p", minimum=Fraction(0), step=Fraction(1, 255), steps=256),
        FixedFeature("q", minimum=Fraction(0), step=Fraction(1, 49), steps=50),
    ]
    lowered = lower_network(make_problem(network, features)).network
    # 1/49 is no multiple of 1/255: those inputs go through a table.
    assert lowered.layers[0].activation == "relu"
    for point in ((0, 0), (255, 49), (17, 3), (200, 26), (128, 49)):
        codes = [-128 + point[0], -128 + round(255 * point[1] / 49)]
        values = codes
        for layer in network.layers:
            if isinstance(layer, LinearLayer):
                values = (layer.rows.to_dense() @ np.array(values) + layer.bias).tolist()
            else:
                assert isinstance(layer, RequantiseLayer)
                values = network_eval.requantised(layer, np.array([values])).tolist()[0]
        assert network_eval.point_scores(lowered, point) == values
        assert network_eval.scores(lowered, np.array([point])).tolist() == [values]


def test_inputs_between_two_quantised_ones_are_refused() -> None:
    features: list[Feature] = [
        FixedFeature(name, minimum=Fraction(0), step=Fraction(1, 510), steps=20) for name in ("p", "q")
    ]
    with pytest.raises(InputError, match="lies between two"):
        lower_network(make_problem(tflite_like(), features))


# --- n bits ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("per", ["tensor", "channel"])
@pytest.mark.parametrize("seed", range(8))
def test_n_bit_weights_come_near_the_real_scores(seed: int, per: Any) -> None:
    rng = random.Random(seed)
    features: list[Feature] = [FEATURES[0], FEATURES[2], FEATURES[1]]
    layers = (linear(6, 3, rng), ActivationLayer("relu"), linear(6, 6, rng), ActivationLayer("relu"), linear(3, 6, rng))
    network = Network(3, layers, 3, "float32")
    points = list(itertools.product(*(range(f.size) for f in features)))
    errors = {}
    for bits in (4, 8, 14):
        problem = make_problem(network, features, NetworkOptions("bits", bits, per, activations=bits + 2))
        lowered = lower_network(problem)
        assert not lowered.network.exact
        assert lowered.network.layers[1].rows.values.max() < 2 ** (bits - 1 + (16 if per == "channel" else 0))
        worst = Fraction(0)
        for point in points:
            wanted = real_scores(network, model_inputs(problem, point))
            row = network_eval.point_scores(lowered.network, point)
            told = [factor * row[score.index] for factor, score in lowered.scores]
            worst = max(worst, *(abs(a - b) for a, b in zip(wanted, told, strict=True)))
        errors[bits] = float(worst)
    assert errors[14] < 0.02
    assert errors[14] < errors[8] / 4 < errors[4] / 8


def test_weights_that_fit_are_not_rounded() -> None:
    weights = np.array([[0.25, -1.5], [0.75, 1.0]], np.float32)
    layers = (LinearLayer(Rows.dense(weights), np.array([0.5, 0.25], np.float32)), ActivationLayer("relu"))
    out = LinearLayer(Rows.dense(np.array([[1.0, -1.0], [0.0, 0.5]], np.float32)), np.zeros(2, np.float32))
    problem = make_problem(
        Network(2, (*layers, out), 2, "float32"), [FEATURES[0], FEATURES[1]], NetworkOptions("bits", 4)
    )
    assert lower_network(problem).network.exact
    check(problem)


def test_calibration_clips_what_the_data_do_not_reach() -> None:
    rng = random.Random(11)
    layers = (linear(4, 2, rng), ActivationLayer("relu"), linear(2, 4, rng))
    network = Network(2, layers, 2, "float32")
    features: list[Feature] = [IntFeature("i", minimum=0, maximum=1000), IntFeature("j", minimum=0, maximum=1000)]
    rows = tuple((Fraction(i), Fraction(100 - i)) for i in range(0, 100, 7))
    wide = lower_network(make_problem(network, features, NetworkOptions("bits", 8, activations=8))).network
    near = lower_network(
        make_problem(network, features, NetworkOptions("bits", 8, activations=8, calibration=rows))
    ).network
    assert near.layers[0].activation == wide.layers[0].activation == "floor_shift"
    assert near.layers[0].high == 255
    assert near.layers[0].shift < wide.layers[0].shift


def test_a_quantised_file_is_not_quantised_again() -> None:
    features: list[Feature] = [
        FixedFeature(name, minimum=Fraction(0), step=Fraction(1, 255), steps=256) for name in ("p", "q")
    ]
    with pytest.raises(InputError, match="quantised already"):
        lower_network(make_problem(tflite_like(), features, NetworkOptions("bits", 8)))

"""Full-integer .tflite files: the recorded answers of the real interpreter, its arithmetic, and what is refused."""

from __future__ import annotations

import contextlib
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_models import Operator, Tensor, dense, tflite
from tflite_random import random_chain

from quantify.errors import InputError, MissingToolError
from quantify.ir.model import Model
from quantify.ir.network import Network
from quantify.readers import read_model
from quantify.readers.integer_network import scores
from quantify.readers.tflite import library_outputs, network_of, quantised
from quantify.readers.tflite_arithmetic import (
    fixed_point,
    mean_multiplier,
    quotient_multiplier,
    rounded_multiplier,
    softmax,
    softmax_keeps_order,
)
from quantify.readers.tflite_file import read_graph

RECORDED = Path(__file__).resolve().parents[1] / "data" / "tflite_recorded.npz"
RNG = np.random.default_rng(5)
SMALL = dense([[3, -5], [7, 2], [-1, 1]], [10, -20, 30], [0.5], (0.25, 3), (2.0, -4))


def written(folder: Path, data: bytes) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(data)
    return path


def read(folder: Path, data: bytes) -> Model:
    return read_model(written(folder, data))


def network(data: bytes) -> Network:
    return network_of(data)


def zero_of_scores(data: bytes) -> int:
    """Zero point of the tensor that holds the scores: scores are counted from it."""
    graph = read_graph(data)
    last = graph.operators[-1]
    index = last.inputs[0] if last.kind == "SOFTMAX" else last.outputs[0]
    return int(graph.tensors[index].zero_points[0])


# --- the interpreter's own answers -----------------------------------------------------------------------------------
@pytest.mark.parametrize("number", range(15))
def test_equals_what_the_interpreter_answered(number: int) -> None:
    # tests/data/record_tflite.py wrote them with TensorFlow's interpreter: reference kernels, no delegates.
    with np.load(RECORDED) as stored:
        data = stored[f"model_{number}"].tobytes()
        inputs, expected = stored[f"inputs_{number}"], stored[f"outputs_{number}"]
    try:
        found = network(data)
    except InputError as error:
        assert "SOFTMAX" in error.message  # noqa: PT017 - some random softmaxes confuse scores, and are refused
        return
    values = scores(found, inputs.astype(np.int64)) + zero_of_scores(data)
    if found.squash == "softmax":
        assert (values.argmax(axis=1) == expected.argmax(axis=1)).all()
    else:
        assert (values == expected).all()


def test_most_recorded_models_are_read() -> None:
    with np.load(RECORDED) as stored:
        models = [stored[f"model_{number}"].tobytes() for number in range(15)]
    read_ones = 0
    for data in models:
        try:
            network(data)
        except InputError:
            continue
        read_ones += 1
    assert read_ones >= 12


@pytest.mark.optional("tensorflow")
def test_random_chains_equal_the_interpreter(tmp_path: Path) -> None:
    for seed in range(1000, 1040):
        rng = np.random.default_rng(seed)
        chain = random_chain(rng)
        path = written(tmp_path, chain.bytes())
        try:
            model = read_model(path)
        except InputError as error:
            assert "SOFTMAX" in error.message  # noqa: PT017
            continue
        found = model.structure
        assert isinstance(found, Network)
        assert found.input_scale is not None
        levels = rng.integers(-128, 128, (100, found.inputs))
        real = (levels - found.input_zero_point) * float(found.input_scale)
        expected = library_outputs(path, found)(real)
        values = scores(found, levels) + zero_of_scores(path.read_bytes())
        if found.squash == "softmax":
            given = chain.tensors[chain.operators[-1].inputs[0]]
            values = softmax(values, given.scale[0], 1.0)
        assert (values == expected).all(), seed
        assert model.library_predict is not None
        assert (model.predict(real) == model.library_predict("argmax")(real)).all()


def test_without_an_interpreter_the_hint_installs_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = read(tmp_path, SMALL)

    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("quantify.readers.tflite.importlib.import_module", absent)
    assert model.library_predict is not None
    with pytest.raises(MissingToolError) as caught:
        model.library_predict("argmax")
    assert "quantify-ml[tflite]" in caught.value.hint


# --- arithmetic ------------------------------------------------------------------------------------------------------
def test_a_dense_layer_by_hand() -> None:
    # (3·(q0 − 3) − 5·(q1 − 3) + 10)·0.25·0.5/2 − 4 = acc/16 − 4, halves away from zero, clamped.
    levels = RNG.integers(-128, 128, (500, 2))
    weights, bias = np.array([[3, -5], [7, 2], [-1, 1]]), np.array([10, -20, 30])
    sums = (levels - 3) @ weights.T + bias
    rounded = np.copysign(np.floor(np.abs(sums) / 16 + 0.5), sums).astype(int)
    assert (scores(network(SMALL), levels) == np.clip(rounded - 4, -128, 127) + 4).all()
    assert network(SMALL).output_scale == 2


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 7, 9, 12, 25, 49, 64, 1000])
def test_quotients_round_halves_away_from_zero(count: int) -> None:
    multiplier, shift = quotient_multiplier(count)
    assert 0 < multiplier < 2**31
    sums = np.arange(-128 * count, 127 * count + 1)
    found = (sums * multiplier + (1 << (30 - shift))) >> (31 - shift)
    assert (found == np.copysign((np.abs(sums) + count // 2) // count, sums)).all()


@pytest.mark.parametrize("real", [1.0, 0.5, 0.75, 3.0, 1e-3, 1 / 3, 2.0**-40, 0.99999999999])
def test_fixed_point_is_the_nearest_of_31_bits(real: float) -> None:
    multiplier, shift = fixed_point(real)
    if real < 2.0**-32:
        assert (multiplier, shift) == (0, 0)
        return
    assert 2**30 <= multiplier < 2**31
    assert abs(Fraction(multiplier) * Fraction(2) ** (shift - 31) - Fraction(real)) <= Fraction(2) ** (shift - 32)


def test_a_mean_has_one_multiplier_for_scale_and_count() -> None:
    multiplier, shift = mean_multiplier(0.5, 12)
    # 0.5/12, the division cut off after eight times the multiplier.
    assert (multiplier, shift) == ((2**30 * 8) // 12, 0 - 3)


@pytest.mark.parametrize("most", [2**16, 2**21, 2**25])
@pytest.mark.parametrize(
    "scale", [2.0**-8, 3 * 2.0**-9, 0.0123456789, 1.7, 2.0**-17 * 1.1, *RNG.uniform(1e-5, 0.1, 20)]
)
def test_one_product_stands_for_rounding_in_double(scale: float, most: int) -> None:
    multiplier, shift = rounded_multiplier(scale, -255, 255, most)
    assert most * multiplier < 2**62
    edges = ((np.arange(-256, 257)[:, None] + 0.5) / scale + np.arange(-3, 4)).astype(np.int64).reshape(-1)
    sums = np.concatenate([edges, RNG.integers(-most, most + 1, 2000)])
    sums = sums[np.abs(sums) <= most]
    found = (sums * multiplier + (1 << (30 - shift))) >> (31 - shift)
    real = sums * scale
    expected = np.copysign(np.floor(np.abs(real) + 0.5), real)
    assert (np.clip(found, -255, 255) == np.clip(expected, -255, 255)).all()


def test_a_scale_whose_halves_fall_either_way_is_refused() -> None:
    # 49/98 falls short of a half in double, 245/98 is two and a half.
    assert 49 * (1 / 98) < 0.5
    assert 245 * (1 / 98) == 2.5
    with pytest.raises(InputError, match="no multiplier"):
        rounded_multiplier(1 / 98, -255, 255, 2**20)


@pytest.mark.parametrize("scale", [0.001, 0.003, 0.006, 0.007, 0.0078, 0.0085, 0.02, 0.1, 1.0])
def test_a_softmax_is_dropped_only_where_it_keeps_the_order(scale: float) -> None:
    pairs = np.stack(np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)), -1).reshape(-1, 2)
    outputs = softmax(pairs, scale, 1.0)
    same = bool((outputs.argmax(axis=1) == pairs.argmax(axis=1)).all())
    kept = softmax_keeps_order(scale, 1.0, 2)
    assert not kept or same
    # Where it is refused, it is for a reason: some pair really is confused.
    assert kept or not same


def test_softmax_outputs_are_near_the_real_ones() -> None:
    levels = RNG.integers(-128, 128, (2000, 10))
    powers = np.exp((levels - levels.max(axis=1, keepdims=True)) * 0.05)
    real = 256 * powers / powers.sum(axis=1, keepdims=True) - 128
    assert np.abs(softmax(levels, 0.05, 1.0) - np.minimum(real, 127)).max() < 0.51


# --- what is read ----------------------------------------------------------------------------------------------------
def test_a_model(tmp_path: Path) -> None:
    model = read(tmp_path, SMALL)
    assert (model.kind, model.columns, model.classes, model.accepts_missing) == ("network", 2, ("0", "1", "2"), False)
    assert isinstance(model.structure, Network)
    assert (model.structure.input_scale, model.structure.input_zero_point) == (Fraction(1, 4), 3)
    levels = RNG.integers(-128, 128, (50, 2))
    real = (levels - 3) * 0.25
    expected = scores(model.structure, levels)
    assert (model.predict(real) == expected.argmax(axis=1)).all()
    assert model.predict_by is not None
    assert (model.predict_by("argmin")(real) == expected.argmin(axis=1)).all()


def test_inputs_are_rounded_and_clamped() -> None:
    found = network(SMALL)
    assert quantised(found, np.array([[0.125, -0.125], [1e6, -1e6], [0.37, -0.38]])).tolist() == [
        [4, 2],
        [127, -128],
        [4, 1],
    ]


def test_float_and_unsigned_ends(tmp_path: Path) -> None:
    middle = [
        Tensor((1, 2), scale=[0.25], zero=[3]),
        Tensor((2, 2), scale=[0.5], zero=[0], data=[[3, -5], [7, 2]]),
        Tensor((2,), "int32", [0.125], [0], data=[10, -20]),
        Tensor((1, 2), scale=[2.0], zero=[-4]),
    ]
    plain = tflite(middle, [Operator("FULLY_CONNECTED", [0, 1, 2], [3])])
    floats = tflite(
        [*middle, Tensor((1, 2), "float32"), Tensor((1, 2), "float32")],
        [Operator("QUANTIZE", [4], [0]), Operator("FULLY_CONNECTED", [0, 1, 2], [3]), Operator("DEQUANTIZE", [3], [5])],
        inputs=[4],
    )
    unsigned = tflite(
        [*middle, Tensor((1, 2), "uint8", [0.25], [131]), Tensor((1, 2), "uint8", [2.0], [124])],
        [Operator("QUANTIZE", [4], [0]), Operator("FULLY_CONNECTED", [0, 1, 2], [3]), Operator("QUANTIZE", [3], [5])],
        inputs=[4],
    )
    levels = RNG.integers(-128, 128, (50, 2))
    expected = scores(network(plain), levels)
    for data, rounding in ((floats, "float32"), (unsigned, "nearest")):
        found = network(data)
        assert found.input_rounding == rounding
        assert (found.input_scale, found.input_zero_point) == (Fraction(1, 4), 3)
        assert (scores(found, levels) == expected).all()


def test_argmin_of_a_softmax_is_refused(tmp_path: Path) -> None:
    tensors = [
        Tensor((1, 2), scale=[0.25], zero=[3]),
        Tensor((2, 2), scale=[0.5], zero=[0], data=[[3, -5], [7, 2]]),
        Tensor((1, 2), scale=[2.0], zero=[-4]),
        Tensor((1, 2), scale=[1 / 256], zero=[-128]),
    ]
    operators = [Operator("FULLY_CONNECTED", [0, 1, -1], [2]), Operator("SOFTMAX", [2], [3], [(0, "float32", 1.0)])]
    model = read(tmp_path, tflite(tensors, operators))
    assert model.predict_by is not None
    with pytest.raises(InputError, match="argmin"):
        model.predict_by("argmin")


def logistic(scale: float) -> bytes:
    tensors = [
        Tensor((1, 2), scale=[0.25], zero=[3]),
        Tensor((1, 2), scale=[0.5], zero=[0], data=[[3, -5]]),
        Tensor((1, 1), scale=[scale], zero=[-4]),
        Tensor((1, 1), scale=[1 / 256], zero=[-128]),
    ]
    operators = [Operator("FULLY_CONNECTED", [0, 1, -1], [2]), Operator("LOGISTIC", [2], [3])]
    return tflite(tensors, operators)


def test_a_sigmoid_is_class_1_from_one_half(tmp_path: Path) -> None:
    model = read(tmp_path, logistic(2.0))
    assert isinstance(model.structure, Network)
    assert (model.structure.head, model.classes) == ("sigmoid", ("0", "1"))
    levels = RNG.integers(-128, 128, (300, 2))
    # (3·a − 5·b)·0.125/2, halves away from zero, is at least 0.
    sums = (levels - 3) @ [3, -5] / 16
    assert (model.predict((levels - 3) * 0.25) == (sums > -0.5)).all()
    with pytest.raises(InputError, match=r"steps of 0\.01"):
        network(logistic(0.01))


@pytest.mark.optional("tensorflow")
def test_a_sigmoid_equals_the_interpreter(tmp_path: Path) -> None:
    model = read(tmp_path, logistic(2.0))
    assert model.library_predict is not None
    real = (RNG.integers(-128, 128, (300, 2)) - 3) * 0.25
    assert (model.predict(real) == model.library_predict("argmax")(real)).all()


# --- what is refused -------------------------------------------------------------------------------------------------
def one(kind: str, *, shape: tuple[int, ...] = (1, 4), data_type: str = "int8", options: Any = ()) -> bytes:
    tensors = [Tensor(shape, data_type, [0.5], [0]), Tensor(shape, data_type, [0.5], [0])]
    return tflite(tensors, [Operator(kind, [0], [1], options)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (one("ADD"), r"operator 0 \(ADD\) is not supported"),
        (one("LOGISTIC"), "LOGISTIC.* is over values"),
        (one("RELU", data_type="float32"), "computes in float32"),
        (one("RELU", data_type="int16"), "computes in int16"),
        (one("RESHAPE"), "computes nothing"),
        (one("MAX_POOL_2D"), "of shape"),
        (one("RELU", shape=(2, 4)), "inputs of shape"),
        (tflite([Tensor((1, 2)), Tensor((1, 2))], [Operator("RELU", [0], [1])]), "0 scales"),
        (dense([[1, 2], [3, 4]], [1, 2], [0.5], (math.inf, 0), (1.0, 0)), "scale inf"),
        (dense([[1, 2], [3, 4]], [1, 2], [0.5, 0.25, 1.0], (1.0, 0), (1.0, 0)), "3 scales"),
        (dense([[1, 2], [3, 4]], [1, 2], [0.5], (1.0, 0), (1.0, 300)), "zero point"),
        (dense([[1, 2]], [1], [0.5], (1.0, 0), (1.0, 0)), "one output"),
        (b"\x1c\0\0\0TFL3", "damaged"),
        (b"\0\0\0\0nope" * 4, "no TensorFlow Lite model"),
    ],
)
def test_refusals(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, data)
    assert str(tmp_path) in caught.value.message
    assert caught.value.hint


def test_a_confusing_softmax_is_refused() -> None:
    tensors = [
        Tensor((1, 2), scale=[0.25], zero=[3]),
        Tensor((2, 2), scale=[0.5], zero=[0], data=[[3, -5], [7, 2]]),
        Tensor((1, 2), scale=[0.001], zero=[-4]),
        Tensor((1, 2), scale=[1 / 256], zero=[-128]),
    ]
    operators = [Operator("FULLY_CONNECTED", [0, 1, -1], [2]), Operator("SOFTMAX", [2], [3], [(0, "float32", 1.0)])]
    with pytest.raises(InputError, match="equal int8 outputs") as caught:
        network(tflite(tensors, operators))
    assert "without its softmax" in caught.value.hint


def test_branches_are_refused() -> None:
    tensors = [Tensor((1, 2), scale=[0.5], zero=[0]) for _ in range(3)]
    with pytest.raises(InputError, match="does not follow"):
        network(tflite(tensors, [Operator("RELU", [0], [1]), Operator("RELU", [0], [2])]))


def test_damaged_files_end_in_one_kind_of_error() -> None:
    rng = np.random.default_rng(3)
    for data in (SMALL, random_chain(np.random.default_rng(4)).bytes()):
        for cut in range(0, len(data), 7):
            with pytest.raises(InputError):
                network(data[:cut])
        for _ in range(1500):
            broken = bytearray(data)
            for place in rng.integers(8, len(data), int(rng.integers(1, 4))):
                broken[place] = int(rng.integers(256))
            with contextlib.suppress(InputError):
                network(bytes(broken))

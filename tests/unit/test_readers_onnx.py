"""ONNX files: the onnx library's own reference evaluator, ONNX Runtime where it is installed, and what is refused."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact_networks import exact_scores

from quantify.errors import InputError, MissingToolError
from quantify.ir.model import Model
from quantify.ir.network import ActivationLayer, LinearLayer, MaxPoolLayer, Network
from quantify.readers import read_model
from quantify.readers.float_network import outputs
from quantify.readers.onnx import READER

if importlib.util.find_spec("onnx"):
    import onnx
    from onnx import helper
    from onnx.reference import ReferenceEvaluator
    from onnx_models import Maker, random_chain

pytestmark = pytest.mark.needs("onnx")

RNG = np.random.default_rng(11)


def read(folder: Path, data: bytes) -> Model:
    path = folder / "model.onnx"
    path.write_bytes(data)
    return read_model(path)


def structure(folder: Path, data: bytes) -> Network:
    found = read(folder, data).structure
    assert isinstance(found, Network)
    return found


def reference(data: bytes, inputs: Any) -> Any:
    return ReferenceEvaluator(onnx.load_from_string(data)).run(None, {"x": inputs})[0].reshape(len(inputs), -1)


def small() -> Maker:
    return Maker((2,)).add("Gemm", [[1.0, -2.0], [0.5, 3.0]], [0.25, -1.0])


# --- against other evaluators ----------------------------------------------------------------------------------------
def comparable(maker: Maker) -> bool:
    """Whether onnx's reference evaluator is right: it is not for padded pooling and old batch normalisation."""
    kinds = {node.op_type for node in maker.nodes}
    return not kinds & {"AveragePool", "MaxPool"} and ("BatchNormalization" not in kinds or maker.opset >= 14)


@pytest.mark.parametrize("seed", range(80))
def test_random_models_equal_the_reference_evaluator(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    maker = random_chain(rng)
    while not comparable(maker):
        maker = random_chain(rng)
    data = maker.bytes()
    inputs = rng.normal(size=(5, *maker.inputs)).astype(maker.dtype)
    expected = reference(data, inputs)
    found = structure(tmp_path, data)
    got = outputs(found, inputs.reshape(5, -1).astype(np.float64))
    if maker.nodes[-1].op_type == "LogSoftmax":
        expected = np.exp(expected)
    tolerance = 1e-3 if maker.dtype == "float32" else 1e-9
    assert got.dtype == maker.dtype
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.optional("onnxruntime")
def test_random_models_equal_onnx_runtime(tmp_path: Path) -> None:
    compared = 0
    for seed in range(500, 580):
        rng = np.random.default_rng(seed)
        maker = random_chain(rng)
        model = read(tmp_path, maker.bytes())
        inputs = rng.normal(size=(50, model.columns))
        inputs = inputs.astype(maker.dtype).astype(np.float64)
        assert model.library_predict is not None
        assert model.ambiguous is not None
        try:
            expected = model.library_predict("argmax")(inputs)
        except Exception as error:
            # ONNX Runtime has no kernels in double for some operators, and others that limit the padding.
            if "onnxruntime" in type(error).__module__ or "cannot load" in str(error):
                continue
            raise
        settled = ~model.ambiguous(inputs, np.zeros_like(inputs), "argmax")
        assert (model.predict(inputs) == expected)[settled].all(), seed
        compared += 1
    assert compared > 40


def test_a_network_without_a_runtime_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = read(tmp_path, small().bytes())

    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("quantify.readers.onnx.importlib.import_module", absent)
    assert model.library_predict is not None
    with pytest.raises(MissingToolError) as caught:
        model.library_predict("argmax")
    assert "quantify-ml[onnx]" in caught.value.hint


def test_without_the_onnx_library_reading_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = small().bytes()

    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("quantify.readers.onnx_file.importlib.import_module", absent)
    with pytest.raises(MissingToolError) as caught:
        read(tmp_path, data)
    assert "quantify-ml[onnx]" in caught.value.hint


# --- what comes out --------------------------------------------------------------------------------------------------
def test_a_model(tmp_path: Path) -> None:
    model = read(tmp_path, small().bytes())
    assert (model.kind, model.columns, model.classes, model.accepts_missing) == ("network", 2, ("0", "1"), False)
    assert READER.sniff(small().bytes())
    points = RNG.normal(size=(200, 2))
    expected = (points @ np.array([[1.0, -2.0], [0.5, 3.0]]) + [0.25, -1.0]).argmax(axis=1)
    assert (model.predict(points) == expected).all()
    assert model.predict_by is not None
    assert (model.predict_by("argmin")(points) == 1 - expected).all()


def test_normalisation_in_the_graph_is_exact(tmp_path: Path) -> None:
    maker = Maker((2,)).add("Sub", [0.1, 0.2]).add("Div", [0.3, -7.0]).add("Relu").add("MatMul", np.eye(2))
    found = structure(tmp_path, maker.bytes())
    point = [Fraction(3, 7), Fraction(-5, 2)]
    single = [Fraction(float(np.float32(value))) for value in (0.1, 0.2, 0.3, -7.0)]
    expected = [
        max((point[0] - single[0]) / single[2], Fraction(0)),
        max((point[1] - single[1]) / single[3], Fraction(0)),
    ]
    assert exact_scores(found, point) == expected


def test_a_bias_after_a_product_joins_it(tmp_path: Path) -> None:
    maker = Maker((3,)).add("MatMul", RNG.normal(size=(3, 2))).add("Add", [1.0, 2.0]).add("Relu")
    layers = structure(tmp_path, maker.bytes()).layers
    assert [type(layer) for layer in layers] == [LinearLayer, ActivationLayer]
    assert isinstance(layers[0], LinearLayer)
    assert layers[0].bias.tolist() == [1.0, 2.0]


def test_transpositions_cost_no_layer(tmp_path: Path) -> None:
    maker = Maker((2, 2, 3)).add("Transpose", perm=[0, 2, 3, 1]).add("Flatten").add("MatMul", RNG.normal(size=(12, 2)))
    data = maker.bytes()
    found = structure(tmp_path, data)
    assert len(found.layers) == 1
    inputs = RNG.normal(size=(4, 2, 2, 3)).astype(np.float32)
    np.testing.assert_allclose(outputs(found, inputs.reshape(4, -1).astype(float)), reference(data, inputs), rtol=1e-4)


def test_a_transposition_at_the_end_is_a_layer(tmp_path: Path) -> None:
    maker = Maker((2, 3)).add("Relu").add("Transpose", perm=[0, 2, 1]).add("Flatten")
    found = structure(tmp_path, maker.bytes())
    point = np.arange(6.0)[None]
    assert outputs(found, point).tolist() == [[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]]


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("include", [0, 1])
def test_pooling_equals_its_definition(kind: str, include: int, tmp_path: Path) -> None:
    channels, height, width = 2, 5, 6
    values = RNG.normal(size=(channels, height, width))
    for _ in range(20):
        window, strides = RNG.integers(1, 4, 2).tolist(), RNG.integers(1, 3, 2).tolist()
        pads = [int(RNG.integers(0, size)) for size in (*window, *window)]
        options: dict[str, Any] = {"kernel_shape": window, "strides": strides, "pads": pads}
        if kind == "AveragePool":
            options["count_include_pad"] = include
        expected = []
        for channel in range(channels):
            for top in range(-pads[0], height + pads[2] - window[0] + 1, strides[0]):
                for left in range(-pads[1], width + pads[3] - window[1] + 1, strides[1]):
                    cells = [(top + a, left + b) for a in range(window[0]) for b in range(window[1])]
                    seen = [values[channel, y, x] for y, x in cells if 0 <= y < height and 0 <= x < width]
                    count = len(cells) if include else len(seen)
                    expected.append(max(seen) if kind == "MaxPool" else sum(seen) / count)
        maker = Maker((channels, height, width), "float64").add(kind, **options).add("Flatten")
        found = structure(tmp_path, maker.bytes())
        np.testing.assert_allclose(outputs(found, values.reshape(1, -1))[0], expected)


@pytest.mark.parametrize("include", [0, 1])
def test_averages_with_and_without_the_padding(include: int, tmp_path: Path) -> None:
    maker = Maker((1, 3, 3)).add(
        "AveragePool", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 0, 0], count_include_pad=include
    )
    maker.add("Flatten")
    layer = structure(tmp_path, maker.bytes()).layers[0]
    assert isinstance(layer, LinearLayer)
    assert layer.divisor is not None
    assert layer.divisor.tolist() == ([4] * 4 if include else [1, 2, 2, 4])


@pytest.mark.parametrize(
    ("build", "inputs"),
    [
        (
            lambda m: m.add("Conv", RNG.normal(size=(4, 1, 2, 2)), group=2, auto_pad="SAME_LOWER").add("Flatten"),
            (2, 4, 4),
        ),
        (lambda m: m.add("Conv", RNG.normal(size=(2, 2, 3)), dilations=[2], pads=[1, 2]).add("Flatten"), (2, 7)),
        (lambda m: m.add("ReduceMean", axes=[2, 3], keepdims=0), (3, 4, 5)),
        (lambda m: m.add("Unsqueeze", [1], ints=True).add("Squeeze", [1], ints=True).add("Relu"), (4,)),
        (lambda m: m.add("MatMul", RNG.normal(size=(3, 2))).add("Flatten"), (2, 3)),
        (lambda m: m.add("Sub", first=np.ones(3)).add("Mul", [2.0, 0.0, -1.0]), (3,)),
        (lambda m: m.add("BatchNormalization", [1.0, 2.0], [0.5, 0.0], [0.1, 0.2], [1.0, 3.0], epsilon=0.01), (2,)),
        (lambda m: m.add("LeakyRelu").add("Identity").add("Dropout"), (3,)),
    ],
)
def test_nodes_equal_the_reference_evaluator(
    build: Callable[[Maker], Maker], inputs: tuple[int, ...], tmp_path: Path
) -> None:
    data = build(Maker(inputs)).bytes()
    values = RNG.normal(size=(6, *inputs)).astype(np.float32)
    found = structure(tmp_path, data)
    np.testing.assert_allclose(
        outputs(found, values.reshape(6, -1).astype(float)), reference(data, values), rtol=1e-4, atol=1e-5
    )


def test_heads(tmp_path: Path) -> None:
    one = structure(tmp_path, Maker((2,)).add("MatMul", [[1.0], [2.0]]).add("Sigmoid").bytes())
    assert (one.head, one.squash, one.outputs) == ("sigmoid", "sigmoid", 1)
    soft = structure(tmp_path, small().add("Softmax", axis=1).bytes())
    assert (soft.head, soft.squash) == ("order", "softmax")
    label = read(tmp_path, small().add("Softmax", axis=-1).add("ArgMax", axis=1, keepdims=0).bytes("int64"))
    points = RNG.normal(size=(50, 2))
    assert (label.predict(points) == read(tmp_path, small().bytes()).predict(points)).all()


def test_old_files(tmp_path: Path) -> None:
    # Before operator set 11 limits were attributes, and files listed their constants as inputs too.
    maker = Maker((2,), opset=9)
    maker.add("MatMul", [[1.0, -1.0], [0.5, 2.0]]).add("Clip", min=0.0, max=1.0)
    model = maker.model()
    model.graph.input.append(helper.make_tensor_value_info("c0", 1, [2, 2]))
    found = structure(tmp_path, model.SerializeToString())
    assert found.layers[1] == ActivationLayer("relu", Fraction(1), origin="Clip node n1")


def test_constants_computed_early(tmp_path: Path) -> None:
    maker = Maker((3,))
    weights = RNG.normal(size=(2, 3)).astype(np.float32)
    maker.nodes.append(helper.make_node("Constant", [], ["w"], value=onnx.numpy_helper.from_array(weights)))
    maker.nodes.append(helper.make_node("Transpose", ["w"], ["wt"]))
    maker.nodes.append(helper.make_node("MatMul", ["x", "wt"], ["y"]))
    maker.last = "y"
    point = RNG.normal(size=(1, 3))
    found = structure(tmp_path, maker.bytes())
    np.testing.assert_allclose(outputs(found, point), point @ weights.T, rtol=1e-5)


def test_integer_inputs_that_are_cast(tmp_path: Path) -> None:
    maker = Maker((2,), "int64").add("Cast", to=1)
    maker.dtype = "float32"
    maker.add("MatMul", [[1.0, 0.0], [0.0, 1.0]])
    model = maker.model()
    model.graph.input[0].type.tensor_type.elem_type = 7
    found = structure(tmp_path, model.SerializeToString())
    assert found.dtype == "float32"
    assert outputs(found, np.array([[3.0, -4.0]])).tolist() == [[3.0, -4.0]]


def test_max_pooling_in_channels_first_order(tmp_path: Path) -> None:
    maker = Maker((2, 2, 2)).add("MaxPool", kernel_shape=[2, 2]).add("Flatten")
    layer = structure(tmp_path, maker.bytes()).layers[0]
    assert isinstance(layer, MaxPoolLayer)
    assert [sorted(window) for window in layer.members.tolist()] == [[0, 1, 2, 3], [4, 5, 6, 7]]


# --- what is refused -------------------------------------------------------------------------------------------------
def skip_connection() -> Any:
    maker = Maker((2,)).add("Relu")
    maker.nodes.append(helper.make_node("Add", ["x", maker.last], ["y"], name="skip"))
    maker.last = "y"
    return maker.model()


def external() -> Any:
    model = small().model()
    tensor = model.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    tensor.ClearField("raw_data")
    return model


def two_inputs() -> Any:
    model = small().model()
    model.graph.input.append(helper.make_tensor_value_info("z", 1, [1, 2]))
    return model


def huge_constant() -> Any:
    model = small().model()
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend([1 << 40, 1 << 20])
    return model


def lying_constant() -> Any:
    model = small().model()
    model.graph.initializer[0].dims[0] = 3
    return model


def free_size() -> Any:
    model = small().model()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "width"
    return model


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Maker((2,)).add("Tanh").model(), "Tanh node n0 is not supported"),
        (skip_connection, "reads|does not follow"),
        (external, "in another file"),
        (two_inputs, "2 inputs"),
        (huge_constant, "more than 67108864 constants"),
        (lying_constant, "damaged"),
        (free_size, "not fixed"),
        (lambda: Maker((2,), batch=3).add("Relu").model(), "3 inputs at a time"),
        (lambda: Maker((2,), opset=5).add("Relu").model(), "operator set 5"),
        (lambda: small().add("Softmax", axis=1).add("Relu").model(), "follows a softmax"),
        (lambda: Maker((2,)).add("Clip", [-1.0], [1.0]).model(), "from -1"),
        (lambda: Maker((2,)).add("Div", [0.0, 1.0]).model(), "by zero"),
        (lambda: Maker((2,)).add("MatMul", [[np.nan, 1.0], [1.0, 1.0]]).model(), "no numbers"),
        (lambda: Maker((2,)).add("MatMul", np.ones((3, 2))).model(), r"weights of shape \(3, 2\)"),
        (lambda: Maker((2,)).add("Gemm", np.ones((2, 2)), alpha=0.5).model(), "alpha"),
        (lambda: Maker((2, 2, 2)).add("Flatten", axis=2).model(), "axis 2"),
        (lambda: Maker((1, 2, 2)).add("MaxPool", kernel_shape=[3, 3]).model(), "larger than its input"),
        (
            lambda: Maker((1, 4, 4)).add("MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1).model(),
            "ceil_mode",
        ),
        (lambda: Maker((2, 2)).add("Relu").model(), "outputs of shape"),
        (lambda: Maker((2, 3)).add("Transpose", perm=[1, 0, 2]).model(), "permutation"),
        (lambda: Maker((2,)).add("Reshape", [2, 1], ints=True).model(), "batch"),
    ],
)
def test_refusals(build: Callable[[], Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, build().SerializeToString())
    assert str(tmp_path) in caught.value.message
    assert caught.value.hint


def test_damaged_files_end_in_one_kind_of_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    path = tmp_path / "model.onnx"
    for data in (small().bytes(), random_chain(np.random.default_rng(7)).bytes()):
        for cut in range(1, len(data), 5):
            with contextlib.suppress(InputError):
                READER.read(path, data[:cut], "", trust_pickle=False)
        for _ in range(400):
            broken = bytearray(data)
            for place in rng.integers(0, len(data), int(rng.integers(1, 4))):
                broken[place] = int(rng.integers(256))
            with contextlib.suppress(InputError), np.errstate(all="ignore"):
                READER.read(path, bytes(broken), "", trust_pickle=False)

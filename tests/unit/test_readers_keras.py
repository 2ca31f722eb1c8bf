"""Keras files written by hand: what is read is exactly what plain loops over the layers compute; else it is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from copy import deepcopy
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact_networks import exact_scores
from keras_files import Spec, apply, archive, entries, evaluate, hdf5, zipped

from quantify.errors import InputError, QuantifyError, UnsafeFileError
from quantify.ir.model import Model
from quantify.ir.network import MaxPoolLayer, Network
from quantify.readers import read_model
from quantify.readers.float_error import ambiguous
from quantify.readers.float_network import outputs, scores
from quantify.readers.keras import assemble, library_predict
from quantify.readers.keras_config import LayerConfig, architecture, parse_json

pytestmark = pytest.mark.needs("h5py")


def read(path: Path, data: bytes) -> Model:
    path.write_bytes(data)
    return read_model(path)


def network(path: Path, data: bytes) -> Network:
    found = read(path, data).structure
    assert isinstance(found, Network)
    return found


class Given:
    """The weights of layers in memory, for `assemble`."""

    def __init__(self, specs: list[Spec]) -> None:
        self.specs = iter(specs)

    def visit(self, layer: LayerConfig) -> None:
        self.now = next(self.specs)

    def take(self, layer: LayerConfig, shapes: Any) -> list[Any]:
        assert [len(shape) for shape in shapes] == [array.ndim for array in self.now.weights]
        for wanted, array in zip(shapes, self.now.weights, strict=True):
            assert array.shape == tuple(wanted)
        return self.now.weights


def assembled(specs: list[Spec], shape: tuple[int, ...], document: Any = None, *, functional: bool = False) -> Network:
    described = json.dumps(entries(specs, shape, functional) if document is None else document)
    return assemble(architecture(parse_json(described, "configuration")), Given(specs))


def dense(inputs: int, units: int, activation: Any = "linear", rng: Any = None, *, bias: bool = True) -> Spec:
    rng = rng or np.random.default_rng(0)
    weights = [rng.normal(size=(inputs, units)).astype("f"), rng.normal(size=units).astype("f")]
    return Spec("Dense", {"units": units, "activation": activation, "use_bias": bias}, weights[: 1 + bias])


# --- random architectures ----------------------------------------------------------------------------------------
ACTIVATIONS = ("linear", None, "relu", "relu6", "leaky_relu", "sign")


def convolution(r: random.Random, rng: Any, spatial: list[int], channels: int) -> Spec:
    rank = len(spatial)
    deep = r.random() < 0.3
    window = [r.randint(1, 3) for _ in spatial]
    stride, dilation = r.choice([(1, 1), (2, 1), (3, 1), (1, 2)])
    groups = 2 if not deep and channels % 2 == 0 and r.random() < 0.5 else 1
    config: dict[str, Any] = {
        "kernel_size": window,
        "strides": [stride] * rank,
        "dilation_rate": [dilation] * rank,
        "padding": r.choice(["same", "causal"] if rank == 1 and not deep else ["same"]),
        "data_format": "channels_last",
        "activation": r.choice(ACTIVATIONS),
        "use_bias": r.random() < 0.7,
    }
    if deep:
        multiplier = r.randint(1, 2)
        config["depth_multiplier"] = multiplier
        shape, filters = (*window, channels, multiplier), channels * multiplier
    else:
        filters = groups * r.randint(1, 2)
        config |= {"filters": filters, "groups": groups}
        shape = (*window, channels // groups, filters)
    weights = [rng.normal(size=shape).astype("f"), rng.normal(size=filters).astype("f")]
    return Spec(f"{'DepthwiseConv' if deep else 'Conv'}{rank}D", config, weights[: 1 + config["use_bias"]])


def some_layer(r: random.Random, rng: Any, spatial: list[int], channels: int) -> Spec:
    """A layer for values of this shape."""
    rank = len(spatial)
    kinds = ["dense", "batch", "normal", "rescale", "relu", "leaky", "drop", "act"]
    kind = r.choice(kinds + ["conv", "conv", "pool", "pool"] * (rank > 0) + ["pad"] * (rank == 2))
    if kind == "dense":
        return dense(channels, r.randint(1, 4), r.choice(ACTIVATIONS), rng)
    if kind == "batch":
        scale, centre = r.random() < 0.7, r.random() < 0.7
        weights = [rng.normal(size=channels).astype("f") for _ in range(1 + scale + centre)]
        config = {"axis": r.choice([-1, rank + 1]), "epsilon": 0.01, "scale": scale, "center": centre}
        return Spec("BatchNormalization", config, [*weights, rng.uniform(0.1, 3, channels).astype("f")])
    if kind == "normal":
        weights = [rng.normal(size=channels).astype("f"), rng.uniform(0, 9, channels).astype("f")]
        return Spec("Normalization", {"axis": [-1], "mean": None, "variance": None}, [*weights, np.array(3)])
    if kind == "pool":
        config = {
            "pool_size": [r.randint(1, 3) for _ in spatial],
            "padding": "same",
            "strides": r.choice([None, [2] * rank]),
        }
        return Spec(f"{r.choice(['Max', 'Average'])}Pooling{rank}D", config)
    if kind == "conv":
        return convolution(r, rng, spatial, channels)
    return {
        "rescale": Spec("Rescaling", {"scale": 1 / 255, "offset": r.choice([0.0, -0.1])}),
        "relu": Spec("ReLU", r.choice([{"max_value": 1.3}, {"negative_slope": 0.3}, {"threshold": 0.0}])),
        "leaky": Spec("LeakyReLU", {"negative_slope": 0.1}),
        "drop": Spec("Dropout", {"rate": 0.5}),
        "act": Spec("Activation", {"activation": r.choice(ACTIVATIONS)}),
        "pad": Spec("ZeroPadding2D", {"padding": [[1, 2], [0, 1]]}),
    }[kind]


def random_model(seed: int) -> tuple[list[Spec], tuple[int, ...]]:
    """A random chain that ends in a vector of scores."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    rank = r.choice([0, 1, 2])
    shape = (*(r.randint(3, 5) for _ in range(rank)), r.randint(1, 4))
    specs: list[Spec] = []
    at: tuple[int, ...] = shape
    for _ in range(r.randint(1, 4)):
        specs.append(some_layer(r, rng, list(at[:-1]), at[-1]))
        at = shape_after(specs, shape)
    if rank:
        specs.append(Spec(r.choice(["Flatten", f"GlobalAveragePooling{rank}D", f"GlobalMaxPooling{rank}D"])))
    head = r.choice(["linear", "softmax", "sigmoid", "layer"])
    units = 1 if head == "sigmoid" else r.randint(2, 3)
    inputs = shape_after(specs, shape)[-1]
    specs.append(dense(inputs, units, "linear" if head == "layer" else head, rng))
    if head == "layer":
        specs.append(Spec("Softmax", {"axis": -1}))
    return specs, shape


def shape_after(specs: list[Spec], shape: tuple[int, ...]) -> tuple[int, ...]:
    values = dict.fromkeys(product(*map(range, shape)), Fraction(0))
    for spec in specs:
        values, shape = apply(spec, values, shape)
    return shape


@pytest.mark.parametrize("seed", range(60))
def test_random_models_are_exactly_what_plain_loops_compute(seed: int, tmp_path: Path) -> None:
    specs, shape = random_model(seed)
    functional = seed % 2 == 1
    found = [assembled(specs, shape, functional=functional)]
    if seed < 6:
        version = "3.5.0" if seed % 3 else "2.2.4"
        found.append(network(tmp_path / "m.keras", archive(specs, shape, functional=functional)))
        found.append(network(tmp_path / "m.h5", hdf5(specs, shape, functional=functional, version=version)))
    size = int(np.prod(shape))
    rng = np.random.default_rng(seed)
    points = [
        [Fraction(int(v)) for v in rng.integers(-3, 4, size)],
        [Fraction(int(v), 7) for v in rng.integers(-99, 99, size)],
    ]
    wanted = [evaluate(specs, shape, point) for point in points]
    smooth = not any(spec.kind == "Activation" or "sign" in str(spec.config.get("activation")) for spec in specs)
    for each in found:
        assert (each.inputs, each.outputs) == (size, len(wanted[0]))
        assert [exact_scores(each, point) for point in points] == wanted
        if smooth:
            near = scores(each, np.array([[float(v) for v in point] for point in points]))
            np.testing.assert_allclose(near, np.array(wanted, float), rtol=1e-4, atol=1e-4)


@pytest.mark.optional("tensorflow")
@pytest.mark.parametrize("seed", range(0, 60, 2))
def test_keras_itself_reads_the_same_from_these_files(seed: int, tmp_path: Path) -> None:
    specs, shape = random_model(seed)
    if any(spec.config.get("groups", 1) > 1 for spec in specs):
        pytest.skip("TensorFlow has no grouped convolutions on a processor")
    if any(len(set(spec.config.get("strides") or ())) > 1 for spec in specs):
        pytest.skip("TensorFlow has no uneven strides here")
    path = tmp_path / "m.keras"
    found = network(path, archive(specs, shape))
    inputs = np.random.default_rng(seed).normal(size=(50, found.inputs))
    agreed = library_predict(path, found)(inputs) == read_model(path).predict(inputs)
    assert (agreed | ambiguous(found, inputs)).all()


# --- by hand -----------------------------------------------------------------------------------------------------
def row(values: list[float]) -> Any:
    return np.array([values], float)


def test_same_padding_puts_the_odd_cell_last(tmp_path: Path) -> None:
    # 4 inputs, stride 2, window 3: ((2−1)·2 + 3 − 4) = 1 cell of padding, after the last input.
    kernel = np.array([1, 10, 100], "f").reshape(3, 1, 1)
    config = {"filters": 1, "kernel_size": [3], "strides": [2], "padding": "same", "use_bias": False}
    found = network(tmp_path / "m.keras", archive([Spec("Conv1D", config, [kernel]), Spec("Flatten")], (4, 1)))
    assert scores(found, row([1, 2, 3, 4])).tolist() == [[321, 43]]


def test_averages_leave_the_padding_out(tmp_path: Path) -> None:
    config = {"pool_size": [3], "strides": [1], "padding": "same"}
    found = network(tmp_path / "m.h5", hdf5([Spec("AveragePooling1D", config), Spec("Flatten")], (3, 1)))
    assert scores(found, row([2, 4, 9])).tolist() == [[3, 5, 6.5]]


def test_maxima_never_see_the_padding(tmp_path: Path) -> None:
    config = {"pool_size": [2], "strides": [2], "padding": "same"}
    found = network(tmp_path / "m.h5", hdf5([Spec("MaxPooling1D", config), Spec("Flatten")], (3, 1)))
    assert isinstance(found.layers[0], MaxPoolLayer)
    assert scores(found, row([-2, -4, -9])).tolist() == [[-2, -9]]


def test_flattening_is_row_by_row_with_channels_last(tmp_path: Path) -> None:
    weights = [np.eye(8, dtype="f")[:, [5]], np.zeros(1, "f")]
    specs = [Spec("Flatten"), Spec("Dense", {"units": 1}, weights)]
    found = network(tmp_path / "m.keras", archive(specs, (2, 2, 2)))
    assert scores(found, row(list(range(8)))).tolist() == [[5]]


def test_old_sequential_files_need_no_input_shape(tmp_path: Path) -> None:
    spec = dense(3, 2, "softmax")
    layers = entries([spec], None, False)["config"]["layers"]
    for document in (
        {"class_name": "Sequential", "config": layers},
        {"class_name": "Sequential", "config": {"layers": layers}},
    ):
        model = read(tmp_path / "m.h5", hdf5([spec], None, version="2.1.0", document=document))
        assert (model.columns, model.classes, model.kind) == (3, ("0", "1"), "network")
        assert "2.1.0" in model.library


def test_names_are_split_over_several_attributes_when_there_are_many(tmp_path: Path) -> None:
    def split(file: Any) -> None:
        names = file["model_weights"].attrs.pop("layer_names")
        for part, name in enumerate(names):
            file["model_weights"].attrs[f"layer_names{part}"] = [name]

    specs = [dense(3, 4, "relu"), dense(4, 2)]
    whole, parts = (network(tmp_path / "m.h5", hdf5(specs, (3,), edit=edit)) for edit in (None, split))
    inputs = np.random.default_rng(0).normal(size=(9, 3))
    assert (scores(whole, inputs) == scores(parts, inputs)).all()


def test_a_sigmoid_is_two_classes(tmp_path: Path) -> None:
    weights = [np.array([[1]], "f"), np.array([0], "f")]
    spec = Spec("Dense", {"units": 1, "activation": "sigmoid"}, weights)
    model = read(tmp_path / "m.keras", archive([spec], (1,)))
    assert isinstance(model.structure, Network)
    assert (model.classes, model.structure.head, model.structure.outputs) == (("0", "1"), "sigmoid", 1)
    assert model.predict(np.array([[-1.0], [0.0], [1.0]])).tolist() == [0, 1, 1]
    np.testing.assert_allclose(outputs(model.structure, row([2.0])), 1 / (1 + np.exp(-2)), rtol=1e-6)


def test_ties_go_to_the_lowest_index(tmp_path: Path) -> None:
    spec = Spec("Dense", {"units": 3, "use_bias": False}, [np.array([[1, 1, -1]], "f")])
    model = read(tmp_path / "m.keras", archive([spec], (1,)))
    assert model.predict(np.array([[1.0], [0.0], [-1.0]])).tolist() == [0, 0, 2]


def test_sign_of_zero_is_zero(tmp_path: Path) -> None:
    spec = Spec("Dense", {"units": 2, "use_bias": False, "activation": "sign"}, [np.eye(2, dtype="f")])
    assert scores(network(tmp_path / "m.keras", archive([spec], (2,))), row([0, -3])).tolist() == [[0, -1]]


def test_an_activation_layer_may_be_an_argument(tmp_path: Path) -> None:
    cap = {"module": "keras.layers", "class_name": "ReLU", "config": {"max_value": 2.0}}
    spec = Spec("Dense", {"units": 2, "use_bias": False, "activation": cap}, [np.eye(2, dtype="f")])
    assert scores(network(tmp_path / "m.keras", archive([spec], (2,))), row([5, -3])).tolist() == [[2, 0]]


def test_float64_models_compute_in_float64(tmp_path: Path) -> None:
    weights = [np.array([[1 / 3, 2 / 3]])]
    document = entries([Spec("Dense", {"units": 2, "use_bias": False, "dtype": "float64"}, weights)], (1,), False)
    document["config"]["layers"][0]["config"]["dtype"] = "float64"
    found = network(tmp_path / "m.keras", archive([Spec("Dense", {}, weights)], (1,), document=document))
    assert found.dtype == "float64"
    assert scores(found, row([3])).tolist() == [[1.0, 2.0]]


# --- refusals ----------------------------------------------------------------------------------------------------
def refused(path: Path, data: bytes, match: str, kind: type[QuantifyError] = InputError) -> QuantifyError:
    with pytest.raises(kind, match=match) as caught:
        read(path, data)
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        (Spec("LSTM", {"units": 3}), r"layer l0 \(LSTM\) is not supported"),
        (Spec("Conv2D", {"filters": 1, "kernel_size": [2, 2], "data_format": "channels_first"}), "channels first"),
        (Spec("MaxPooling2D", {"pool_size": [9, 9]}), "larger than its input"),
        (Spec("Conv2D", {"filters": 3, "kernel_size": [1, 1], "groups": 2}), "groups"),
        (Spec("Conv2D", {"filters": 1, "kernel_size": [2, 2], "padding": "odd"}), "padding odd"),
        (Spec("Conv2D", {"filters": 1, "kernel_size": "2"}), "kernel_size 2"),
        (Spec("Dense", {"units": -1}), "units -1"),
        (dense(2, 2, "tanh"), "activation tanh"),
        (dense(2, 2, {"class_name": "function", "config": "mine"}), "activation mine"),
        (Spec("ReLU", {"threshold": 1.0}), "threshold 1.0"),
        (Spec("ReLU", {"max_value": 1.0, "negative_slope": 0.1}), "not both|max_value"),
        (Spec("LeakyReLU", {"negative_slope": 1.5}), "slope 1.5"),
        (Spec("LeakyReLU", {"negative_slope": "x"}), "negative_slope x"),
        (Spec("Activation", {"activation": "softmax"}), "softmax over parts"),
        (Spec("Reshape", {"target_shape": [7]}), "makes"),
        (Spec("BatchNormalization", {"axis": 1}), "axis 1"),
        (Spec("Conv1D", {"filters": 1, "kernel_size": [2]}), "not of 2 axes"),
        (Spec("Sequential", {"layers": []}), "model inside"),
        (Spec("Dense", {"units": 2, "dtype": "mixed_float16"}), "mixed_float16"),
        (Spec("Dense", {"units": 2, "dtype": "float64"}), "float32, float64"),
    ],
    ids=lambda value: value.kind if isinstance(value, Spec) else "",
)  # fmt: skip
def test_what_cannot_be_counted_is_named(spec: Spec, match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        assembled([spec, Spec("Flatten")], (4, 4, 2))
    assert caught.value.hint


@pytest.mark.parametrize("writer", [archive, hdf5])
def test_lambda_layers_are_never_loaded(writer: Callable[..., bytes], tmp_path: Path) -> None:
    spec = Spec("Lambda", {"function": {"class_name": "__lambda__", "config": {"code": "4wEAAAA="}}})
    refused(
        tmp_path / "m.keras",
        writer([spec, dense(2, 2)], (2,)),
        r"layer l0 \(Lambda\) holds Python code",
        UnsafeFileError,
    )


@pytest.mark.parametrize("change", [{"module": "mine"}, {"registered_name": "mine>Dense"}])
def test_custom_classes_are_refused_whatever_their_name(change: dict[str, str], tmp_path: Path) -> None:
    document = entries([dense(2, 2)], (2,), False)
    document["config"]["layers"][1] |= change
    refused(tmp_path / "m.keras", archive([dense(2, 2)], (2,), document=document), "custom class")


def test_only_chains_are_read() -> None:
    specs = [dense(2, 2), dense(2, 2)]
    for edit, match in (
        (lambda layers: layers[2]["inbound_nodes"].extend(layers[1]["inbound_nodes"]), "takes 2 inputs"),
        (lambda layers: layers[2].update(inbound_nodes=layers[1]["inbound_nodes"]), "no chain"),
        (lambda layers: layers[1].update(inbound_nodes=layers[2]["inbound_nodes"]), "no chain"),
        (lambda layers: layers[2].update(inbound_nodes=[[["x", 0, 0, {}]]]), "layer x"),
        (lambda layers: layers[2]["inbound_nodes"][0].update(kwargs={"training": True}), "training=True"),
        (lambda layers: layers[2].update(name="l0"), "without a name"),
    ):  # fmt: skip
        document = entries(specs, (2,), True)
        edit(document["config"]["layers"])
        with pytest.raises(InputError, match=match):
            assembled(specs, (2,), document)
    document = entries(specs, (2,), True)
    document["config"]["output_layers"] = [["l0", 0, 0], ["l1", 0, 0]]
    with pytest.raises(InputError, match="exactly one output"):
        assembled(specs, (2,), document)
    document = entries(specs, (2,), False)
    document["class_name"] = "Bidirectional"
    with pytest.raises(InputError, match="holds a Bidirectional"):
        assembled(specs, (2,), document)


def test_heads_stand_at_the_end() -> None:
    with pytest.raises(InputError, match="follows a sigmoid"):
        assembled([dense(2, 2, "sigmoid"), dense(2, 2)], (2,))
    with pytest.raises(InputError, match="follows a softmax"):
        assembled([dense(2, 2, "softmax"), Spec("Softmax")], (2,))
    with pytest.raises(InputError, match="no layer that computes"):
        assembled([Spec("Dropout")], (2,))
    with pytest.raises(InputError, match=r"outputs of shape \(3, 2\)"):
        assembled([dense(2, 2)], (3, 2))


def test_open_and_missing_shapes_are_refused(tmp_path: Path) -> None:
    document = entries([dense(2, 2)], (2,), False)
    document["config"]["layers"][0]["config"]["batch_shape"] = [None, None, 2]
    refused(tmp_path / "m.keras", archive([dense(2, 2)], (2,), document=document), r"no fixed shape: \(\?, 2\)")
    refused(tmp_path / "m.h5", hdf5([Spec("Flatten"), dense(2, 2)], None), "what shape its input has")


def test_weights_must_be_what_the_architecture_says(tmp_path: Path) -> None:
    good = [dense(2, 3, "relu"), dense(3, 2)]
    document = entries(good, (2,), False)
    for name, writer in (("m.keras", archive), ("m.h5", hdf5)):
        path = tmp_path / name
        refused(path, writer([good[0], dense(2, 2)], (2,), document=document), r"shape \(2, 2\), not \(3, 2\)")
        refused(path, writer([*good, dense(2, 2)], (2,), document=document), "does not name")
        refused(path, writer(good[:1], (2,), document=document), "weights")
        refused(path, writer([good[0], dense(3, 2, bias=False)], (2,), document=document), "weights")
        for bad in (np.nan, np.inf):
            weights = [good[1].weights[0], np.array([0, bad], "f")]
            refused(
                path, writer([good[0], Spec("Dense", {}, weights)], (2,), document=document), "infinite or no numbers"
            )
        weights = [good[1].weights[0].astype(int), good[1].weights[1]]
        refused(path, writer([good[0], Spec("Dense", {}, weights)], (2,), document=document), "type int64")

    def swap(file: Any) -> None:
        file["layers/dense/vars"].attrs["name"] = "l1"

    refused(tmp_path / "m.keras", archive(good, (2,), edit=swap), "of a layer called l1")


def test_nothing_is_followed_out_of_the_file(tmp_path: Path) -> None:
    import h5py

    outside = tmp_path / "outside.h5"
    with h5py.File(outside, "w") as file:
        file["k"] = np.zeros((2, 2), "f")
    where = "layers/dense/vars"

    def replaced(make: Callable[[Any], None]) -> bytes:
        def edit(file: Any) -> None:
            del file[f"{where}/0"]
            make(file)

        return archive([dense(2, 2)], (2,), edit=edit)

    def put(link: Any) -> Callable[[Any], None]:
        return lambda file: file[where].__setitem__("0", link)

    def external(file: Any) -> None:
        file.create_dataset(f"{where}/0", (2, 2), "f", external=[(str(outside), 0, 16)])

    def virtual(file: Any) -> None:
        layout = h5py.VirtualLayout((2, 2), "f")
        layout[:] = h5py.VirtualSource(str(outside), "k", shape=(2, 2))
        file.create_virtual_dataset(f"{where}/0", layout)

    path = tmp_path / "m.keras"
    refused(path, replaced(put(h5py.ExternalLink(str(outside), "/k"))), "link to elsewhere", UnsafeFileError)
    refused(path, replaced(put(h5py.SoftLink(f"/{where}/1"))), "link to elsewhere", UnsafeFileError)
    refused(path, replaced(external), "points out of the file", UnsafeFileError)
    refused(path, replaced(virtual), "points out of the file", UnsafeFileError)


def test_nothing_huge_or_odd_is_taken(tmp_path: Path) -> None:
    import h5py

    def huge(file: Any) -> None:
        del file["layers/dense/vars/0"]
        file.create_dataset("layers/dense/vars/0", (1 << 20, 1 << 20), "f", chunks=(1024, 1024))

    def texts(file: Any) -> None:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars/0"] = np.array([["a", "b"]], dtype=h5py.string_dtype())

    path = tmp_path / "m.keras"
    refused(path, archive([dense(2, 2)], (2,), edit=huge), "more than 1024 MiB")
    refused(path, archive([dense(2, 2)], (2,), edit=texts), "holds no numbers")
    refused(
        path, archive([Spec("ZeroPadding2D", {"padding": [[0, 9999], [0, 9999]]})], (2, 2, 2)), "connections|outputs"
    )
    refused(
        path,
        zipped({"metadata.json": "{}", "config.json": " " * (1 << 27), "model.weights.h5": b""}),
        "more than 64 MiB",
    )
    deep = "[" * 200_000 + "]" * 200_000
    refused(
        path, zipped({"metadata.json": "{}", "config.json": deep, "model.weights.h5": b""}), "configuration is no JSON"
    )


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    import h5py

    path = tmp_path / "m.h5"
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = np.zeros(3)
    refused(path, path.read_bytes(), "without a Keras architecture")
    refused(path, hdf5([dense(2, 2)], (2,), version="1.2.0"), "Keras 1")
    refused(tmp_path / "m.keras", zipped({"config.json": "{}", "metadata.json": "{}"}), "model.weights.h5")
    refused(tmp_path / "m.keras", b"PK\x03\x04" + bytes(50) + b"config.json", "damaged Keras archive")
    refused(tmp_path / "m.h5", b"hello", "neither")


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    for name, data in (("m.keras", archive([dense(2, 2)], (2,))), ("m.h5", hdf5([dense(2, 2)], (2,)))):
        for keep in np.linspace(1, len(data) - 1, 7, dtype=int).tolist():
            with pytest.raises(InputError) as caught:
                read(tmp_path / name, data[:keep])
            assert caught.value.hint


JUNK = [
    None,
    True,
    -1,
    0,
    1.5,
    10**400,
    "",
    "relu",
    [],
    [None],
    [[]],
    {},
    {"config": {}},
    {"class_name": 3},
    [1, 2],
    "é\x1b[1m",
]


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON document."""
    found: list[tuple[Any, Any]] = []
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        found.append((node, key))
        if isinstance(value, dict | list):
            found.extend(places(value))
    return found


def failure(specs: list[Spec], document: Any) -> QuantifyError | None:
    try:
        assembled(specs, (3, 3, 2), document)
    except QuantifyError as error:
        return error
    except AssertionError:  # of Given: other weights than there are
        return None
    return None


@pytest.mark.parametrize("functional", [False, True])
def test_no_configuration_makes_the_reader_crash(functional: bool) -> None:
    rng = np.random.default_rng(0)
    kernel = [rng.normal(size=(2, 2, 2, 2)).astype("f"), np.zeros(2, "f")]
    specs = [
        Spec("Rescaling", {"scale": 2.0, "offset": 1.0}),
        Spec("Normalization", {"axis": [-1], "mean": [1.0, 2.0], "variance": [1.0, 2.0]}),
        Spec(
            "Conv2D",
            {"filters": 2, "kernel_size": [2, 2], "strides": [1, 1], "padding": "same", "activation": "relu"},
            kernel,
        ),
        Spec("ZeroPadding2D", {"padding": [[1, 1], [1, 1]]}),
        Spec("AveragePooling2D", {"pool_size": [2, 2], "strides": [2, 2]}),
        Spec("BatchNormalization", {"axis": -1, "epsilon": 0.1}, [np.ones(2, "f")] * 4),
        Spec("ReLU", {"max_value": 1.0}),
        Spec("Reshape", {"target_shape": [-1]}),
        dense(8, 2, "softmax", rng),
    ]
    count = len(places(entries(specs, (3, 3, 2), functional)))
    for index in range(count):
        for junk in random.Random(index).sample(JUNK, 4):
            document = deepcopy(entries(specs, (3, 3, 2), functional))
            node, key = places(document)[index]
            node[key] = deepcopy(junk)
            if (error := failure(specs, document)) is not None:
                assert error.message.isprintable()
                assert error.hint

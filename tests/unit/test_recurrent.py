"""Recurrent selectors: read from Keras files written by hand and by Keras, scored natively, held to plain equations."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_files import Spec, archive, entries, hdf5
from recurrent_models import dense, expected, random_selector, recurrent

from quantify.dataset.native import lib
from quantify.dataset.recurrent import ISAS, RecurrentSelector, load
from quantify.errors import InputError, QuantifyError, UnsafeFileError
from quantify.ir.record import ModelRef
from quantify.ir.recurrent import DenseLayer, RecurrentLayer, RecurrentNetwork
from quantify.readers import read_model

pytestmark = pytest.mark.needs("h5py")
DATA = Path(__file__).resolve().parents[1] / "data"
RECORDED = np.load(DATA / "recurrent_recorded.npz")
STEPS = 9
SCALE = Fraction(1, 10)
OFFSET = Fraction(-3, 2)


def written(folder: Path, data: bytes, name: str = "m.keras") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def selector(folder: Path, specs: list[Spec], steps: int | None = STEPS, **more: Any) -> RecurrentSelector:
    return load(written(folder, archive(specs, (steps, 1), **more)), scale=SCALE, offset=OFFSET)


def instances(count: int, seed: int = 0, steps: int = STEPS) -> Any:
    return np.random.default_rng(seed).integers(-20, 50, (count, steps))


def by_hand(specs: list[Spec], rows: Any) -> Any:
    return np.array(
        [expected(specs, [float(np.float32(float(x * SCALE + OFFSET))) for x in row]) for row in rows.tolist()]
    )


@pytest.fixture(params=["portable", "avx2"])
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name = str(request.param)
    if not lib().recurrent_has(ISAS[name]):
        pytest.skip(f"this processor has no {name}")
    monkeypatch.setenv("QUANTIFY_ISA", name)
    return name


# --- against the equations ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(12))
def test_random_networks_score_as_the_equations_say(seed: int, isa: str, tmp_path: Path) -> None:
    specs = random_selector(seed)
    rows = instances((1, 15, 16, 17)[seed % 4], seed)
    expect = by_hand(specs, rows)
    network = selector(tmp_path, specs, functional=bool(seed % 2))
    assert network.scores(rows) == pytest.approx(expect, abs=3e-6)
    if seed % 4 == 0:
        for version in ("2.15.0", "3.5.0"):
            path = written(tmp_path, hdf5(specs, (STEPS, 1), version=version), "m.h5")
            assert (load(path, scale=SCALE, offset=OFFSET).scores(rows) == network.scores(rows)).all()


@pytest.mark.parametrize(("kind", "after"), [("GRU", True), ("GRU", False), ("LSTM", None)])
def test_gates_of_every_size_saturate_as_they_should(kind: str, after: bool | None, isa: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    more = {} if after is None else {"reset_after": after}
    for units, spread in ((1, 40.0), (4, 8.0), (33, 2.0)):
        specs = [recurrent(kind, 1, units, rng, spread=spread, **more), dense(units, 2, "softmax", rng)]
        # More steps of such weights would blow the rounding of float32 up.
        rows = instances(40, units, 2)
        assert selector(tmp_path, specs, 2).scores(rows) == pytest.approx(by_hand(specs, rows), abs=1e-5)


def test_what_overflows_is_no_number(isa: str, tmp_path: Path) -> None:
    """Two hidden units of 1 give infinities of both signs, and the next layer their sum."""
    rng = np.random.default_rng(0)
    memory, head = recurrent("GRU", 1, 2, rng), dense(2, 2, "softmax", rng)
    large, mixed = dense(2, 2, "linear", rng), dense(2, 2, "tanh", rng)
    memory.weights[0][:] = [[0, 0, 0, 0, 1, 1]]
    memory.weights[2][:] = [[-99] * 2 + [0] * 4] * 2
    large.weights[0][:] = [[3e38, -3e38], [3e38, -3e38]]
    mixed.weights[0][:] = 1
    network = selector(tmp_path, [memory, large, mixed, head])
    assert np.isnan(network.scores(np.full((1, STEPS), 10_000))).all()
    assert np.isfinite(network.scores(np.full((1, STEPS), 15))).all()


def test_long_sequences_and_lengths_left_open(isa: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    specs = [recurrent("GRU", 1, 6, rng), dense(6, 1, "sigmoid", rng)]
    network = selector(tmp_path, specs, None)
    assert network.length is None
    for steps in (1, 2, 250):
        rows = instances(3, steps, steps)
        assert network.scores(rows) == pytest.approx(by_hand(specs, rows), abs=3e-6)


# --- a row's scores depend on nothing but the row ----------------------------------------------------------------
def in_memory(seed: int) -> RecurrentSelector:
    """A GRU of either kind under an LSTM, of odd sizes, that was never in a file."""
    rng = np.random.default_rng(seed)
    first, second, hidden = rng.integers(1, 40, 3)

    def normal(*shape: int) -> Any:
        return rng.normal(0, 0.4, shape).astype("f")

    network = RecurrentNetwork(
        layers=(
            RecurrentLayer(
                "gru",
                normal(1, 3 * first),
                normal(first, 3 * first),
                normal(3 * first),
                normal(3 * first) if seed % 2 else None,
            ),
            RecurrentLayer("lstm", normal(first, 4 * second), normal(second, 4 * second), normal(4 * second), None),
        ),
        dense=(DenseLayer(normal(second, hidden), normal(hidden), "tanh"), DenseLayer(normal(hidden, 2), normal(2))),
        head="softmax",
        head_given=True,
        steps=None,
    )
    return RecurrentSelector(network, ModelRef("m.keras", "0" * 64, network.kind), SCALE, OFFSET)


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_the_same_in_every_batch(seed: int, isa: str) -> None:
    network = in_memory(seed)
    rows = instances(70, seed)
    scores = network.scores(rows)
    assert len(np.unique(scores)) > 100
    order = np.random.default_rng(seed).permutation(70)
    assert (network.scores(rows[order]) == scores[order]).all()
    for start, stop in ((0, 1), (3, 20), (20, 70)):
        assert (network.scores(rows[start:stop]) == scores[start:stop]).all()


def test_a_selector_travels_to_another_process() -> None:
    network = in_memory(1)
    rows = instances(20)
    scores = network.scores(rows)
    data = pickle.dumps(network)
    assert len(data) < 200_000
    again = pickle.loads(data)
    assert (again.scores(rows) == scores).all()
    assert again.ref == network.ref


# --- Keras's own answers -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["0", "1", "2", "3", "4", "trained"])
def test_networks_that_keras_saved_answer_as_recorded(name: str, isa: str, tmp_path: Path) -> None:
    path = DATA / "bin_packing_gru.keras"
    if name != "trained":
        path = written(tmp_path, RECORDED[f"model_{name}"].tobytes(), f"m.{RECORDED[f'ending_{name}']}")
    rows, outputs = RECORDED[f"instances_{name}"], RECORDED[f"outputs_{name}"].astype(np.float64)
    found = load(path).scores(rows)
    assert found.shape == (40, 2)
    assert found.sum(axis=1) == pytest.approx(np.ones(40))
    expect = outputs if outputs.shape[1] == 2 else np.concatenate([1 - outputs, outputs], axis=1)
    assert np.ptp(expect[:, 0]) > 0.01
    assert found == pytest.approx(expect, abs=1e-5)


@pytest.mark.optional("tensorflow")
@pytest.mark.parametrize("name", ["0", "1", "2", "3", "4", "trained"])
def test_keras_itself_answers_the_same(name: str, tmp_path: Path) -> None:
    path = DATA / "bin_packing_gru.keras"
    if name != "trained":
        path = written(tmp_path, RECORDED[f"model_{name}"].tobytes(), f"m.{RECORDED[f'ending_{name}']}")
    network = load(path)
    rows = np.random.default_rng(1).integers(20, 101, (500, network.length or 50))
    assert network.scores(rows) == pytest.approx(network.library()(rows), abs=1e-5)


@pytest.mark.optional("tensorflow")
def test_keras_agrees_about_logits(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for units in (1, 2):
        specs = [recurrent("GRU", 1, 4, rng), dense(4, units, "linear", rng)]
        network = selector(tmp_path, specs)
        assert network.scores(instances(9)) == pytest.approx(network.library()(instances(9)), abs=1e-5)


# --- what is said --------------------------------------------------------------------------------------------------
def test_kind_digest_and_length(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    layers = [recurrent("GRU", 1, 3, rng, return_sequences=True), recurrent("LSTM", 3, 2, rng)]
    network = selector(tmp_path, [*layers, dense(2, 2, "softmax", rng)])
    assert (network.ref.kind, network.length, network.note) == ("gru+lstm", STEPS, None)
    assert len(network.ref.sha256) == 64
    with pytest.raises(InputError, match="takes instances of 9 items, not of 8"):
        network.scores(instances(2, steps=8))


def test_logits_are_said_to_be_taken_for_such(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    network = selector(tmp_path, [recurrent("GRU", 1, 3, rng), dense(3, 2, "linear", rng)])
    assert network.note == "the network ends without a softmax: its results were taken for logits"


def test_instruction_sets_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTIFY_ISA", "avx1")
    with pytest.raises(InputError, match="no instruction set 'avx1'"):
        selector(tmp_path, random_selector(0)).scores(instances(1))


def test_a_count_sends_recurrent_networks_to_evolve(tmp_path: Path) -> None:
    for steps in (STEPS, None):
        path = written(tmp_path, archive(random_selector(0), (steps, 1)))
        with pytest.raises(InputError, match=r"\((GRU|LSTM)\) is not supported") as caught:
            read_model(path)
        assert "quantify evolve" in str(caught.value.hint)


# --- refusals ------------------------------------------------------------------------------------------------------
def refused(make: Callable[[], object], match: str, kind: type[QuantifyError] = InputError) -> None:
    with pytest.raises(kind, match=match) as caught:
        make()
    assert caught.value.hint


RNG = np.random.default_rng(5)
HEAD = dense(3, 2, "softmax", RNG)


def cell(kind: str = "GRU", **config: Any) -> Spec:
    spec = recurrent(kind, 1, 3, RNG)
    spec.config |= config
    return spec


def changed(spec: Spec, number: int, array: Any) -> Spec:
    weights = list(spec.weights)
    weights[number] = array
    return Spec(spec.kind, spec.config, weights)


@pytest.mark.parametrize(
    ("specs", "match"),
    [
        ([cell(activation="relu"), HEAD], r"layer l0 \(GRU\) has the activation relu"),
        ([cell("LSTM", recurrent_activation="hard_sigmoid"), HEAD], "recurrent_activation hard_sigmoid"),
        ([cell(activation={"class_name": "function", "config": "mine"}), HEAD], "activation mine"),
        ([cell(go_backwards=True), HEAD], "go_backwards"),
        ([cell(stateful=True), HEAD], "stateful"),
        ([cell(return_state=True), HEAD], "return_state"),
        ([cell("LSTM", time_major=True), HEAD], "time_major"),
        ([cell(units=0), HEAD], "units 0"),
        ([cell(units=5000), HEAD], "5000 units"),
        ([cell(use_bias="yes"), HEAD], "use_bias"),
        ([Spec("GRU", {"units": 3}, cell().weights), HEAD], "reset_after"),
        ([changed(cell(), 2, np.zeros(9, "f")), HEAD], r"shape \(9,\), not \(2, 9\)"),
        ([changed(cell(), 0, np.zeros((2, 9), "f")), HEAD], r"shape \(2, 9\), not \(1, 9\)"),
        ([changed(cell(), 1, np.zeros((3, 9))), HEAD], "type float64"),
        ([changed(cell(), 1, np.full((3, 9), np.nan, "f")), HEAD], "infinite or no numbers"),
        ([cell(use_bias=False), HEAD], "3 weights in the file, not 2"),
        ([cell(return_sequences=True), HEAD], "final state"),
        ([cell(return_sequences=True)], "returns a sequence"),
        ([cell(), cell()], "gets values of shape"),
        ([Spec("Masking", {"mask_value": 0.0}), cell(), HEAD], r"l0 \(Masking\) is not supported"),
        ([Spec("Embedding", {"input_dim": 101, "output_dim": 4}), cell(), HEAD], r"\(Embedding\) is not supported"),
        ([Spec("Bidirectional", {}), HEAD], r"\(Bidirectional\) is not supported"),
        ([Spec("SimpleRNN", {"units": 3}), HEAD], r"\(SimpleRNN\) is not supported"),
        ([Spec("CuDNNGRU", {"units": 3}), HEAD], r"\(CuDNNGRU\) is not supported"),
        ([cell(), dense(3, 1, "softmax", RNG)], "softmax over a single output"),
        ([cell(), dense(3, 2, "sigmoid", RNG)], "2 results of sigmoid"),
        ([cell(), dense(3, 1, "tanh", RNG)], "1 results of tanh"),
        ([cell()], "ends with its recurrent layer"),
        ([cell(), dense(3, 2, "elu", RNG)], "activation elu"),
        ([cell(), HEAD, dense(2, 2, "linear", RNG)], "follows a softmax"),
        ([cell(), dense(3, 2, "tanh", RNG), Spec("Activation", {"activation": "relu"})], "follows the activation tanh"),
        ([cell(), Spec("Softmax")], "does not follow a dense layer"),
        ([cell(), Spec("Rescaling", {"scale": 2.0, "offset": 0.0}), HEAD], "not the first"),
        ([Spec("Rescaling", {"scale": [1, 2], "offset": 0}), cell(), HEAD], "scale"),
        ([Spec("Reshape", {"target_shape": [3, 3]}), cell(), HEAD], "Reshape"),
        ([Spec("Dense", {"units": 2, "dtype": "mixed_float16"}), cell(), HEAD], "mixed_float16"),
    ],
)  # fmt: skip
def test_what_is_no_recurrent_classifier_is_named(specs: list[Spec], match: str, tmp_path: Path) -> None:
    refused(lambda: selector(tmp_path, specs), match)


def test_networks_without_recurrence_and_several_features(tmp_path: Path) -> None:
    plain = archive([Spec("Reshape", {"target_shape": [-1, 1]}), Spec("Dropout"), HEAD], (3,))
    refused(lambda: load(written(tmp_path, plain)), "does not follow the last recurrent layer")
    empty = archive([HEAD], (3,), document=entries([Spec("Dropout")], (3,), False))
    refused(lambda: load(written(tmp_path, empty)), "no recurrent layer")
    wide = archive([recurrent("GRU", 2, 3, RNG), HEAD], (STEPS, 2))
    refused(lambda: load(written(tmp_path, wide)), "takes 2 numbers at each time step")


def test_files_that_are_none(tmp_path: Path) -> None:
    refused(lambda: load(tmp_path / "none.keras"), "no such file")
    refused(lambda: load(written(tmp_path, b"")), "empty")
    refused(lambda: load(written(tmp_path, b"nothing of the kind")), "not a Keras file")
    whole = archive([cell(), HEAD], (STEPS, 1))
    refused(lambda: load(written(tmp_path, whole[:200] + whole[260:])), "damaged|HDF5|JSON|zip")
    code = entries([Spec("Lambda", {"function": "x"}), HEAD], (STEPS, 1), False)
    refused(
        lambda: load(written(tmp_path, archive([cell(), HEAD], (STEPS, 1), document=code))), "Lambda", UnsafeFileError
    )
    spare = archive([cell(), HEAD, HEAD], (STEPS, 1), document=entries([cell(), HEAD], (STEPS, 1), False))
    refused(lambda: load(written(tmp_path, spare)), "weights of dense_1")
    two = archive([cell(), HEAD], (STEPS, 1), document=entries([cell(), HEAD, HEAD], (STEPS, 1), False))
    refused(lambda: load(written(tmp_path, two)), "follows a softmax")

"""What is said about integers, real function and library of a network, and when nothing may be counted."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantify import discretise
from quantify.discretise.inputs import input_error
from quantify.discretise.library_answers import LibraryAnswers
from quantify.errors import ContradictionError
from quantify.ir.domain import Domain, Feature, FixedFeature, IntFeature, Measure
from quantify.ir.model import Decision, Model, Predict
from quantify.ir.network import LinearLayer, Network, Rows
from quantify.ir.problem import Column, NetworkOptions, Problem
from quantify.readers import float_error, float_network

WEIGHTS = np.array([[0.1, -0.7], [0.2, 0.3]], np.float32)


def problem(
    features: list[Feature], weights: Any = WEIGHTS, bias: Any = (0.0, 0.0), options: NetworkOptions | None = None
) -> Problem:
    network = Network(2, (LinearLayer(Rows.dense(weights), np.array(bias, weights.dtype)),), 2, "float32")
    model = Model(
        "m", "0", "network", ("no", "yes"), 2, None, network, float_network.predictor(network), False, "numpy",
        ambiguous=lambda inputs, error, decision: float_error.ambiguous(
            network, inputs, input_error=error, decision=decision
        ),
    )  # fmt: skip
    return Problem(
        model, Domain(tuple(features)), Measure(), (Column(0), Column(1)), "classes", "n", (), "p", "0",
        network=options or NetworkOptions(mode="exact"),
    )  # fmt: skip


def checks(of: Problem) -> dict[str, Any]:
    grid = discretise.lower(of)
    return {check.name: check for check in discretise.check_fidelity(of, grid, lambda rows: rows[:, 0], seed=0)}


SMALL: list[Feature] = [IntFeature("a", minimum=-3, maximum=4), IntFeature("b", minimum=0, maximum=5)]


def test_small_domains_are_compared_in_full() -> None:
    found = checks(problem(SMALL))
    assert found["fidelity"].status == "ok"
    assert "all 48 inputs" in found["fidelity"].detail
    assert "all 48 inputs" in found["float-ambiguous"].detail
    assert "quantised" not in found
    assert "note" not in found


def test_large_domains_are_sampled() -> None:
    found = checks(problem([IntFeature("a", minimum=0, maximum=10**6), IntFeature("b", minimum=0, maximum=10**6)]))
    assert "10000 inputs (uniform draws" in found["fidelity"].detail


def test_nothing_said_means_exact_and_says_so() -> None:
    found = checks(problem(SMALL, options=NetworkOptions()))
    assert "exact real function" in found["note"].detail
    whole = np.array([[1.0, -2.0], [3.0, 0.0]], np.float32)
    assert "note" not in checks(problem(SMALL, whole, options=NetworkOptions()))


def test_quantised_labels_are_counted() -> None:
    wide: list[Feature] = [IntFeature("a", minimum=-30, maximum=40), IntFeature("b", minimum=0, maximum=50)]
    of = problem(wide, np.array([[0.11, -0.7], [0.26, 0.33]], np.float32), options=NetworkOptions("bits", 2))
    found = checks(of)
    assert found["quantised"].status == "measured"
    # Two-bit weights are multiples of 0.7: label yes iff 0 > 0.7·(−b), by hand.
    differ = 0
    for a in range(-30, 41):
        for b in range(51):
            real = Fraction(float(np.float32(0.11))) * a - Fraction(float(np.float32(0.7))) * b
            other = Fraction(float(np.float32(0.26))) * a + Fraction(float(np.float32(0.33))) * b
            differ += (other > real) != (b > 0)
    assert f": {differ} labels" in found["quantised"].detail


def test_float_rounding_is_counted_as_such() -> None:
    # The scores differ by 2^-30 of their size: float32 sees a tie.
    close = np.array([[1.0, 1.0], [1.0, 1.0]], np.float32)
    of = problem(
        [IntFeature("a", minimum=2**23, maximum=2**23 + 3), FixedFeature("b", step=Fraction(1, 8), steps=8)],
        close,
        (0.0, 2.0**-9),
    )
    found = checks(of)
    assert found["fidelity"].status == "measured"
    assert found["float-ambiguous"].status == "measured"
    assert "32 labels of the real function differ" in found["fidelity"].detail
    assert "32 whose label" in found["float-ambiguous"].detail


def test_a_disagreement_that_rounding_does_not_explain_stops_everything() -> None:
    of = problem(SMALL)
    predict = of.model.predict

    def wrong(inputs: Any) -> Any:
        labels = predict(inputs)
        labels[(inputs == [4.0, 5.0]).all(axis=1)] ^= 1
        return labels

    broken = replace(of, model=replace(of.model, predict=wrong))
    with pytest.raises(ContradictionError, match="rounding cannot explain") as caught:
        checks(broken)
    assert "a=4, b=5" in caught.value.message
    # A model that computes in integers is never excused.
    with pytest.raises(ContradictionError):
        checks(replace(broken, model=replace(broken.model, ambiguous=None)))


def test_the_library_is_compared_with_real_function_and_evaluator() -> None:
    of = problem(SMALL)
    grid = discretise.lower(of)
    agreed = discretise.check_library(of, grid, of.model.predict, seed=0)
    assert (agreed.name, agreed.status) == ("library", "ok")
    assert "all 48 inputs" in agreed.detail
    with pytest.raises(ContradictionError, match="the library itself"):
        discretise.check_library(of, grid, lambda inputs: 1 - of.model.predict(inputs), seed=0)


@pytest.mark.parametrize(("columns", "said"), [(2**8, "all 65536 inputs"), (2**8 + 1, "10000 inputs (uniform draws")])
def test_the_library_is_asked_about_small_domains_in_full(columns: int, said: str) -> None:
    of = problem([IntFeature("a", minimum=0, maximum=columns - 1), IntFeature("b", minimum=0, maximum=255)])
    assert said in discretise.check_library(of, discretise.lower(of), of.model.predict, seed=0).detail


def test_what_rounding_excuses_is_counted_against_the_library_too() -> None:
    # As above: float32 sees 32 ties, so that the library and quantify's evaluator answer unlike real arithmetic.
    close = np.array([[1.0, 1.0], [1.0, 1.0]], np.float32)
    of = problem(
        [IntFeature("a", minimum=2**23, maximum=2**23 + 3), FixedFeature("b", step=Fraction(1, 8), steps=8)],
        close,
        (0.0, 2.0**-9),
    )
    grid = discretise.lower(of)
    same = discretise.check_library(of, grid, of.model.predict, seed=0)
    assert same.status == "measured"
    assert "32 labels of the real function and 0 of quantify's evaluator" in same.detail
    other = discretise.check_library(of, grid, lambda inputs: 1 - of.model.predict(inputs), seed=0)
    assert "0 labels of the real function and 32 of quantify's evaluator" in other.detail


# --- answers that are kept -------------------------------------------------------------------------------------------
class Library:
    """Stands for a library that takes long to start: tells how often it was started and asked."""

    def __init__(self, of: Problem) -> None:
        self.started = self.asked = 0
        self._predict = of.model.predict

    def start(self, decision: Decision) -> Predict:
        self.started += 1
        return self.predict

    def predict(self, inputs: Any) -> Any:
        self.asked += len(inputs)
        return self._predict(inputs)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUANTIFY_CACHE", str(tmp_path))
    return tmp_path / "library"


def with_library(of: Problem, version: str | None = "toy 1") -> tuple[Model, Library]:
    library = Library(of)
    return replace(of.model, library_predict=library.start, library_version=lambda: version), library


POINTS = np.array([[a, b] for a in range(-3, 5) for b in range(6)], np.float64)


def test_answers_are_kept_by_model_library_decision_and_inputs(cache: Path) -> None:
    of = problem(SMALL)
    expected = of.model.predict(POINTS).tolist()
    model, library = with_library(of)
    assert LibraryAnswers(model, "argmax")(POINTS).tolist() == expected
    again = LibraryAnswers(model, "argmax")
    assert again(POINTS).tolist() == expected
    assert (library.started, library.asked) == (1, 48)
    assert "kept from an earlier run" in again.name
    assert again.name.startswith("toy 1")
    for other, decision, inputs in (
        (replace(model, sha256="1"), "argmax", POINTS),
        (replace(model, library_version=lambda: "toy 2"), "argmax", POINTS),
        (model, "argmin", POINTS),
        (model, "argmax", POINTS[::-1]),
        (model, "argmax", POINTS[:47]),
    ):
        before = library.started
        fresh = LibraryAnswers(other, decision)
        assert fresh(inputs).tolist() == of.model.predict(inputs).tolist()
        assert library.started == before + 1
        assert "kept" not in fresh.name


def test_without_a_version_nothing_is_kept(cache: Path) -> None:
    model, library = with_library(problem(SMALL), None)
    for _ in range(2):
        LibraryAnswers(model, "argmax")(POINTS)
    assert library.started == 2
    assert not cache.exists()


def test_what_cannot_be_an_answer_is_asked_again(cache: Path) -> None:
    model, library = with_library(problem(SMALL))
    expected = LibraryAnswers(model, "argmax")(POINTS).tolist()
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    damaged = [b"", whole[:-1], b"no array"]
    for labels in (np.zeros(47, np.int32), np.zeros(48, np.int64), np.full(48, 2, np.int32), np.full(48, -1, np.int32)):
        np.save(entry, labels)
        damaged.append(entry.read_bytes())
    for number, data in enumerate(damaged):
        entry.write_bytes(data)
        assert LibraryAnswers(model, "argmax")(POINTS).tolist() == expected
        assert library.started == number + 2
        assert entry.read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("QUANTIFY_CACHE", str(tmp_path / "file"))
    model, _ = with_library(problem(SMALL))
    assert LibraryAnswers(model, "argmax")(POINTS).tolist() == model.predict(POINTS).tolist()


def test_input_errors_bound_the_rounding_of_decimals() -> None:
    of = problem([FixedFeature("a", step=Fraction(1, 10), steps=11), FixedFeature("b", step=Fraction(1, 8), steps=9)])
    points = np.array([[p, p % 9] for p in range(11)], np.int64)
    inputs = discretise.to_inputs(of, points)
    bounds = input_error(of, inputs)
    assert (bounds[:, 1] == 0).all()
    for position, seen, bound in zip(range(11), inputs[:, 0].tolist(), bounds[:, 0].tolist(), strict=True):
        assert abs(Fraction(position, 10) - Fraction(seen)) <= Fraction(bound) <= Fraction(1, 2**52)


def test_preprocessed_inputs_are_rounded_once() -> None:
    scale, offset = Fraction(1, 255), Fraction(1, 3)
    options = NetworkOptions(mode="exact", scale=(scale, Fraction(10**20)), offset=(offset, Fraction(1, 7)))
    of = problem(SMALL, options=options)
    points = np.array([[p, p % 6] for p in range(8)], np.int64)
    found = discretise.to_inputs(of, points)
    for (first, second), (p, q) in zip(found.tolist(), points.tolist(), strict=True):
        assert first == float((p - 3) * scale + offset)
        assert second == float(q * Fraction(10**20) + Fraction(1, 7))
    exact = input_error(problem(SMALL, options=NetworkOptions(mode="exact", scale=(Fraction(1, 4),) * 2)), found)
    assert not exact.any()

"""Property files of networks: their own keys, scores in expressions, and what is said about mistakes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantify import discretise, properties
from quantify.engines import logic
from quantify.errors import InputError
from quantify.ir import network_eval
from quantify.ir.model import Decision, Model
from quantify.ir.network import LinearLayer, Network, Rows
from quantify.ir.predicate import HasLabel
from quantify.ir.problem import Problem
from quantify.properties.evaluate import truth

WEIGHTS = np.array([[1.0, -2.0], [0.5, 0.0], [-1.0, 1.5]], np.float32)
BIAS = np.array([0.0, 0.25, 1.0], np.float32)
FEATURES = "{name: a, type: int, min: -2, max: 3}, {name: b, type: fixed, min: 0, max: 1, step: 0.25}"
DOMAIN = f"domain: {{features: [{FEATURES}]}}\n"
LABELS = "labels: [low, mid, top]\n"


def model(head: str = "order") -> Model:
    rows = 1 if head == "sigmoid" else 3
    network = Network(
        2,
        (LinearLayer(Rows.dense(WEIGHTS[:rows]), BIAS[:rows]),),
        rows,
        "float32",
        head=head,  # type: ignore[arg-type]
    )

    def predict_by(decision: Decision) -> Any:
        def predict(inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            scores = inputs.astype(np.float32) @ WEIGHTS[:rows].T + BIAS[:rows]
            if head == "sigmoid":
                return (scores[:, 0] >= 0).astype(np.int64)
            return scores.argmax(axis=1) if decision == "argmax" else scores.argmin(axis=1)

        return predict

    classes = ("0", "1") if head == "sigmoid" else ("0", "1", "2")
    return Model(
        "m.h5", "0", "network", classes, 2, None, network, predict_by("argmax"), False, "numpy", predict_by=predict_by
    )


def bound(tmp_path: Path, text: str, of: Model | None = None) -> Problem:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    return properties.bind(properties.load(path), of or model())


def refused(tmp_path: Path, text: str, of: Model | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        bound(tmp_path, text, of)
    assert "p.yaml:" in caught.value.message
    return caught.value


def safety(claim: str, more: str = LABELS) -> str:
    return f'property: safety\n{DOMAIN}{more}assert: "{claim}"\n'


# --- meaning -----------------------------------------------------------------------------------------------------
CLAIMS = [
    "lowest == 'low'",
    "lowest != 'top'",
    "lowest() in ('low', 'mid')",
    "highest == 'mid'",
    "highest() != 'mid' and label == 'low'",
    "label == highest",
    "label == lowest",
    "lowest != highest",
    "score[0] < score[1]",
    "score['top'] >= 1",
    "score[2] - 2 * score['low'] <= 1 / 3",
    "max(score) > 2 and min(score) < -1",
    "all(score[i] > -3 for i in range(len(score)))",
    "abs(score[0] - a) > 1",
    "score[1] == 1.25",
    "count(score[i] > 0 for i in range(3)) == 2",
    "implies(b >= 0.5, score[0] <= 0.5)",
]


@pytest.mark.parametrize("decision", ["argmax", "argmin"])
@pytest.mark.parametrize("claim", CLAIMS)
def test_scores_mean_the_same_in_fractions_and_in_integers(tmp_path: Path, claim: str, decision: str) -> None:
    problem = bound(tmp_path, safety(claim, LABELS + f"decision: {decision}\n"))
    grid = discretise.lower(problem)
    assert grid.network is not None
    query, lowered = problem.cases[0].queries[0], grid.cases[0].queries[0]
    for point in itertools.product(*map(range, grid.sizes)):
        values = [Fraction(feature.value(p)) for feature, p in zip(problem.domain, point, strict=True)]
        scores = [
            sum((Fraction(float(w)) * v for w, v in zip(row, values, strict=True)), Fraction(float(bias)))
            for row, bias in zip(WEIGHTS, BIAS, strict=True)
        ]
        low, high = scores.index(min(scores)), scores.index(max(scores))
        label = high if decision == "argmax" else low
        wanted = by_hand(claim, values, scores, label, low, high)
        assert truth(query.expression, values, point, label, scores) is wanted
        integers = network_eval.point_scores(grid.network, point)
        assert network_eval.point_label(grid.network, point) == label
        assert logic.holds(lowered.predicate, point, label, integers) is wanted


def by_hand(claim: str, values: list[Fraction], scores: list[Fraction], label: int, low: int, high: int) -> bool:
    names = ["low", "mid", "top"]
    text = claim.replace("lowest()", "lowest").replace("highest()", "highest").replace("1 / 3", "third")

    class Scores(list[Fraction]):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(names.index(index) if isinstance(index, str) else index)

    found = eval(
        text,
        {"count": sum, "implies": lambda p, q: not p or q, "third": Fraction(1, 3)}
        | {"a": values[0], "b": values[1], "score": Scores(scores)}
        | {"label": names[label], "lowest": names[low], "highest": names[high]},
    )
    return bool(found)


@pytest.mark.parametrize("decision", ["argmax", "argmin"])
def test_extremes_among_several_classes_go_to_the_first_at_ties(tmp_path: Path, decision: str) -> None:
    """The scores are the inputs themselves, so that every order of them and every tie occurs."""
    identity = Network(
        3, (LinearLayer(Rows.dense(np.eye(3, dtype=np.float32)), np.zeros(3, np.float32)),), 3, "float32"
    )
    of = replace(model(), columns=3, structure=identity)
    names = ("low", "mid", "top")
    domain = "domain: {default: {type: int, min: 0, max: 2}, features: [{name: 'x{i}', count: 3}]}\n"
    sets = [chosen for size in (1, 2, 3) for chosen in itertools.combinations(range(3), size)]
    for word, chosen in itertools.product(("lowest", "highest"), sets):
        written = ", ".join(f"'{names[index]}'" for index in chosen)
        for operator in ("in", "not in"):
            claim = f"{word} {operator} ({written},)"
            text = f'property: safety\n{domain}{LABELS}decision: {decision}\nassert: "{claim}"\n'
            query = bound(tmp_path, text, of).cases[0].queries[0]
            for scores in itertools.product(range(3), repeat=3):
                wanted = scores.index(min(scores) if word == "lowest" else max(scores)) in chosen
                label = scores.index(max(scores) if decision == "argmax" else min(scores))
                values = [Fraction(score) for score in scores]
                assert truth(query.expression, values, scores, label, values) is (wanted == (operator == "in"))


def test_the_extreme_that_decides_is_the_label_itself(tmp_path: Path) -> None:
    for decision, word in (("argmax", "highest"), ("argmin", "lowest")):
        problem = bound(tmp_path, safety(f"{word} == 'mid'", LABELS + f"decision: {decision}\n"))
        assert discretise.lower(problem).cases[0].queries[0].predicate == HasLabel((1,))


def test_a_sigmoid_head_has_one_score(tmp_path: Path) -> None:
    of = model("sigmoid")
    problem = bound(tmp_path, safety("label == 'yes' or score[0] < 0", "labels: [no, yes]\n"), of)
    grid = discretise.lower(problem)
    assert grid.network is not None
    for point in itertools.product(*map(range, grid.sizes)):
        scores = network_eval.point_scores(grid.network, point)
        label = network_eval.point_label(grid.network, point)
        assert logic.holds(grid.cases[0].queries[0].predicate, point, label, scores)
    assert "one score" in refused(tmp_path, safety("lowest == '0'", ""), of).message
    assert "argmin" in refused(tmp_path, safety("a > 0", "decision: argmin\n"), of).message


# --- options -----------------------------------------------------------------------------------------------------
def test_labels_and_decision_change_the_model_of_the_problem(tmp_path: Path) -> None:
    problem = bound(tmp_path, f"property: classes\n{DOMAIN}{LABELS}decision: argmin\n")
    assert problem.model.classes == ("low", "mid", "top")
    assert [query.name for query in problem.cases[0].queries] == ["low", "mid", "top"]
    assert problem.model.predict(np.array([[3.0, 0.0]])).tolist() == [2]
    assert problem.network is not None
    assert problem.network.decision == "argmin"
    plain = bound(tmp_path, f"property: classes\n{DOMAIN}")
    assert plain.model.classes == ("0", "1", "2")
    assert plain.model.predict(np.array([[3.0, 0.0]])).tolist() == [0]


def test_quantization_keys(tmp_path: Path) -> None:
    def options(text: str) -> Any:
        return bound(tmp_path, f"property: classes\n{DOMAIN}{text}").network

    assert options("").mode == "default"
    assert options("quantization: {mode: exact}\n").mode == "exact"
    found = options("quantization: {bits: 6, per: channel, activations: 9}\n")
    assert (found.mode, found.bits, found.per, found.activations) == ("bits", 6, "channel", 9)
    assert found.calibration is None


def test_calibration_rows_by_name_or_by_place(tmp_path: Path) -> None:
    (tmp_path / "named.csv").write_text("label,b,a\n1,0.5,2\n0,0.25,-1\n")
    (tmp_path / "plain.csv").write_text("u,v\n2,0.5\n-1,0.25\n")
    for name in ("named", "plain"):
        problem = bound(tmp_path, f"property: classes\n{DOMAIN}quantization: {{bits: 8, calibrate: {name}.csv}}\n")
        assert problem.network is not None
        assert problem.network.calibration == ((2, Fraction(1, 2)), (-1, Fraction(1, 4)))
        discretise.lower(problem)


def test_preprocess_is_one_number_or_one_a_column(tmp_path: Path) -> None:
    problem = bound(tmp_path, f'property: classes\n{DOMAIN}preprocess: {{scale: "1/255", offset: [0.5, -1]}}\n')
    assert problem.network is not None
    assert problem.network.scale == (Fraction(1, 255),) * 2
    assert problem.network.offset == (Fraction(1, 2), Fraction(-1))
    inputs = discretise.to_inputs(problem, np.array([[5, 4]], np.int64))
    assert inputs.tolist() == [[float(Fraction(3, 255) + Fraction(1, 2)), float(Fraction(1, 255) - 1)]]


def test_robustness_asks_the_model_after_preprocess(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n3,0\n-2,1\n")
    text = "property: robustness\ninputs: {file: rows.csv}\nepsilon: 1\ndecision: argmin\npreprocess: {scale: -1}\n"
    problem = bound(tmp_path, text + LABELS)
    asked = model().predict_by
    assert asked is not None
    wanted = asked("argmin")(np.array([[-3.0, 0.0], [2.0, -1.0]])).tolist()
    assert [case.label for case in problem.cases] == [("low", "mid", "top")[index] for index in wanted]


# --- mistakes ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ("labels: [a, b]\n", "2 labels for 3 classes"),
        ("labels: [a, b, a]\n", "'a' is there twice"),
        ("labels: a\n", "labels must be a list"),
        ("decision: argmim\n", "'argmim' is unknown"),
        ("quantization: exact\n", "quantization must be a mapping"),
        ("quantization: {mode: fast}\n", "'fast' is unknown"),
        ("quantization: {}\n", "needs mode: exact or bits"),
        ("quantization: {bits: 1}\n", "bits must lie between 2 and 16"),
        ("quantization: {bits: 2.5}\n", "bits must be an integer"),
        ("quantization: {mode: exact, bits: 8}\n", "'bits' has no meaning"),
        ("quantization: {bits: 8, per: layer}\n", "'layer' is unknown"),
        ("quantization: {bits: 8, calibrate: none.csv}\n", "there is no such file"),
        ("quantization: {bits: 8, calibrat: none.csv}\n", "did you mean 'calibrate'"),
        ("preprocess: {}\n", "needs scale or offset"),
        ("preprocess: {scale: 0}\n", "scale of 0"),
        ("preprocess: {scale: [1, 2, 3]}\n", "3 entries, the model takes 2"),
        ('preprocess: {scale: "1/0"}\n', "divides by zero"),
    ],
)
def test_mistakes_in_keys_are_named_with_their_line(tmp_path: Path, keys: str, part: str) -> None:
    error = refused(tmp_path, f"property: classes\n{DOMAIN}{keys}")
    assert part in error.message + (error.hint or "")
    assert "p.yaml:3" in error.message


@pytest.mark.parametrize(
    ("claim", "part"),
    [
        ("score[3] > 0", "index 3 is out of range"),
        ("score['tpo'] > 0", "did you mean 'top'"),
        ("score > 0", "a number is needed here, not a list"),
        ("score(0) > 0", "score is a list"),
        ("lowest == 'medium'", "no label 'medium'"),
        ("lowest < 'top'", "labels have no order"),
        ("lowest + 1 > 0", "a number is needed here, not a label"),
        ("lowest(1) == 'top'", "takes 0 arguments"),
        ("lowst == 'top'", "did you mean 'lowest'"),
    ],
)
def test_mistakes_in_expressions_are_explained(tmp_path: Path, claim: str, part: str) -> None:
    error = refused(tmp_path, safety(claim))
    assert part in error.message + (error.hint or "")


def test_a_ground_truth_cannot_use_scores(tmp_path: Path) -> None:
    for truth_ in ("score[0] > 0", "lowest == '1'"):
        text = f'property: learnability\n{DOMAIN}ground_truth: "{truth_}"\npositive: 1\n'
        assert "a ground truth cannot use the model's scores" in refused(tmp_path, text).message


def test_a_model_without_other_decisions_refuses_argmin(tmp_path: Path) -> None:
    fixed = replace(model(), predict_by=None)
    assert "highest score only" in refused(tmp_path, f"property: classes\n{DOMAIN}decision: argmin\n", fixed).message
    bound(tmp_path, f"property: classes\n{DOMAIN}decision: argmax\n", fixed)


def test_calibration_with_the_wrong_width_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("u,v,w\n1,2,3\n")
    error = refused(tmp_path, f"property: classes\n{DOMAIN}quantization: {{bits: 8, calibrate: c.csv}}\n")
    assert "has 3 columns, the model takes 2" in error.message
    (tmp_path / "c.csv").write_text("a,b\n1,x\n")
    assert (
        "no number"
        in refused(tmp_path, f"property: classes\n{DOMAIN}quantization: {{bits: 8, calibrate: c.csv}}\n").message
    )

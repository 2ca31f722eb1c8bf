"""Counts become readings that say no more than the counts did."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from quantify import properties
from quantify.evidence import rates, readings
from quantify.evidence.proportions import interval_at, interval_of
from quantify.ir.count import Count, Guarantee
from quantify.ir.evidence import CaseEvidence, Evidence
from quantify.ir.intervals import clopper_pearson
from quantify.ir.problem import PropertyKind
from quantify.ir.record import Draws, Reading

F = Fraction
NINETY, HALF, PERCENT = F(9, 10), F(1, 2), F(1, 100)
SHA = "a" * 64


def exact(number: int, digest: str = "d") -> Count:
    return Count(number, number, Guarantee.EXACT, "boxes", 0.1, digest)


def sampled(hits: int, draws: int, total: int, digest: str = "d", seed: int = 0, confidence: F = NINETY) -> Count:
    low, high = clopper_pearson(hits, draws, confidence)
    return Count(
        int(low * total), -int(-high * total // 1), Guarantee.SAMPLED, "sample", 0.1, digest,
        seed=seed, confidence=confidence, samples=draws, hits=hits, estimate=round(F(hits * total, draws)),
    )  # fmt: skip


def pac(number: int, epsilon: F = HALF, delta: F = PERCENT) -> Count:
    low, high = number / (1 + epsilon), number * (1 + epsilon)
    return Count(
        -int(-low // 1), int(high), Guarantee.PAC, "cnf", 0.1, "d", epsilon=epsilon, delta=delta, estimate=number
    )


def evidence(kind: PropertyKind, *cases: tuple[dict[str, Count], int, F | None]) -> Evidence:
    return Evidence(
        model={"path": "m.pkl", "sha256": SHA, "kind": "tree"},
        property={"name": "phi", "kind": kind, "sha256": SHA, "path": "p.yaml"},
        domain={"measure": "uniform", "size": 1000},
        cases=tuple(
            CaseEvidence(counts, total, rates.metrics(kind, counts, total), row=row, epsilon=epsilon)
            for row, (counts, total, epsilon) in enumerate(cases)
        ),
        checks=(),
    )


def found(made: Evidence) -> dict[tuple[str, str | None], Reading]:
    return {(reading.metric, reading.group): reading for reading in readings.from_evidence(made)}


def test_exact_counts_are_points() -> None:
    both = found(evidence("safety", ({"satisfied": exact(30), "violated": exact(10)}, 64, None)))
    violation, satisfaction = both["violation", None], both["satisfaction", None]
    assert (violation.lower, violation.upper, violation.value) == (F(1, 4), F(1, 4), F(1, 4))
    assert (violation.guarantee, violation.risk, violation.support) == (Guarantee.EXACT, 0, 40)
    assert satisfaction.lower == F(3, 4)
    assert violation.problem
    assert violation.problem != satisfaction.problem


def test_a_sampled_ratio_is_a_proportion_of_the_draws_that_met_the_assumption() -> None:
    """Of 1,000 draws 400 met the assumption, 100 of them violated: 100 of 400 is what is binomial."""
    counts = {"satisfied": sampled(300, 1000, 64), "violated": sampled(100, 1000, 64)}
    violation = found(evidence("safety", (counts, 64, None)))["violation", None]
    assert violation.draws == (Draws(100, 400),)
    assert (violation.lower, violation.upper) == clopper_pearson(100, 400, F(9, 10))
    assert (violation.risk, violation.guarantee) == (F(1, 10), Guarantee.SAMPLED)


def test_counts_of_different_draws_are_not_put_together() -> None:
    counts = {"satisfied": sampled(300, 1000, 64), "violated": sampled(100, 1000, 64, seed=1)}
    case = evidence("safety", (counts, 64, None))
    violation = found(case)["violation", None]
    assert violation.draws == ()
    assert violation.risk == F(2, 10)


def test_f1_by_draws_is_that_of_the_counts() -> None:
    """J = 30/(30+10+20), f1 = 2·30/(2·30+10+20) = 2J/(1+J)."""
    hits = {"tp": 30, "fp": 10, "tn": 40, "fn": 20}
    counts = {name: sampled(number, 100, 1000) for name, number in hits.items()}
    every = found(evidence("learnability", (counts, 1000, None)))
    assert every["f1", None].draws == (Draws(30, 60),)
    assert every["f1", None].value == F(60, 90)
    assert every["accuracy", None].draws == (Draws(70, 100),)
    assert every["precision", None].draws == (Draws(30, 40),)
    assert every["recall", None].draws == (Draws(30, 50),)
    low, high = clopper_pearson(30, 60, F(9, 10))
    assert interval_at(every["f1", None], F(1, 10)) == (2 * low / (1 + low), 2 * high / (1 + high))


def test_pac_ratios_carry_twice_delta_and_the_tolerance_on_both_sides() -> None:
    counts = {"satisfied": pac(600), "violated": pac(200)}
    violation = found(evidence("safety", (counts, 10**6, None)))["violation", None]
    assert (violation.risk, violation.epsilon, violation.delta, violation.sides) == (F(2, 100), F(1, 2), F(1, 100), 2)
    # odds 1/3, divided and multiplied by (1 + 1/2)² = 9/4 (the ends of the counts were rounded outward)
    for end, odds in ((violation.lower, F(1, 3) / F(9, 4)), (violation.upper, F(1, 3) * F(9, 4))):
        assert abs(end / (1 - end) - odds) < F(1, 100)
    assert interval_at(violation, F(2, 100)) == (violation.lower, violation.upper)
    assert interval_at(violation, F(199, 10_000)) is None


def test_pac_against_exact_counts_once() -> None:
    violation = found(evidence("safety", ({"satisfied": exact(600), "violated": pac(200)}, 10**6, None)))[
        "violation", None
    ]
    assert (violation.risk, violation.sides) == (F(1, 100), 1)


def test_what_is_unfinished_counts_against_both_ends() -> None:
    open_ = Count(10, 50, Guarantee.BOUNDS, "branch", 0.1, "d")
    violation = found(evidence("safety", ({"satisfied": exact(30), "violated": open_}, 80, None)))["violation", None]
    assert (violation.lower, violation.upper) == (F(10, 40), F(50, 80))
    assert violation.guarantee is Guarantee.BOUNDS


def test_robustness_is_the_mean_over_the_rows() -> None:
    made = evidence("robustness", ({"robust": exact(9)}, 10, F(1)), ({"robust": exact(50)}, 100, F(1)))
    (reading,) = readings.from_evidence(made)
    assert (reading.lower, reading.upper, reading.group, reading.support) == (F(14, 20), F(14, 20), None, 2)


def test_an_epsilon_that_is_one_of_several_is_a_group_and_there_is_no_whole() -> None:
    cases = [({"robust": exact(n)}, 10, e) for n, e in ((9, F(1, 4)), (7, F(1, 4)), (5, F(2)), (1, F(2)))]
    every = found(evidence("robustness", *cases))
    assert {key: reading.lower for key, reading in every.items()} == {
        ("robustness", "epsilon=0.25"): F(8, 10), ("robustness", "epsilon=2"): F(3, 10),
    }  # fmt: skip


def test_a_row_that_was_not_counted_is_open() -> None:
    unknown = Count(0, 10, Guarantee.BOUNDS, "none", 0.0, "d")
    (reading,) = readings.from_evidence(
        evidence("robustness", ({"robust": exact(9)}, 10, F(1)), ({"robust": unknown}, 10, F(1)))
    )
    assert (reading.lower, reading.upper, reading.guarantee) == (F(9, 20), F(19, 20), Guarantee.BOUNDS)


def test_sampled_rows_share_the_risk() -> None:
    made = evidence("robustness", *[({"robust": sampled(h, 50, 1000)}, 1000, F(1)) for h in (45, 50)])
    (reading,) = readings.from_evidence(made)
    assert reading.draws == (Draws(45, 50, F(1, 2)), Draws(50, 50, F(1, 2)))
    ends = [clopper_pearson(h, 50, F(95, 100)) for h in (45, 50)]  # each at half the risk of 1/10
    assert (reading.lower, reading.upper) == (sum(e[0] for e in ends) / 2, sum(e[1] for e in ends) / 2)
    assert interval_of(reading.draws, "share", F(1, 10)) == (reading.lower, reading.upper)


def test_nothing_meets_the_assumption_and_nothing_is_decided() -> None:
    every = found(evidence("safety", ({"satisfied": exact(0), "violated": exact(0)}, 64, None)))
    assert {reading.reason for reading in every.values()} == {"vacuous"}
    assert {(reading.lower, reading.upper) for reading in every.values()} == {(F(0), F(1))}


def test_a_row_of_no_weight_decides_nothing() -> None:
    made = evidence("robustness", ({"robust": exact(9)}, 10, F(1)), ({"robust": exact(0)}, 0, F(1)))
    (reading,) = readings.from_evidence(made)
    assert (reading.reason, reading.lower, reading.upper) == ("vacuous", F(0), F(1))


def test_an_epsilon_of_a_batch_is_a_group() -> None:
    (reading,) = readings.from_evidence(evidence("robustness", ({"robust": exact(9)}, 10, F(5, 2))), by_epsilon=True)
    assert (reading.group, reading.lower) == ("epsilon=2.5", F(9, 10))


def test_labels_are_groups() -> None:
    every = found(evidence("classes", ({"a/b": exact(10), "c": exact(30)}, 40, None)))
    assert {key: reading.lower for key, reading in every.items()} == {
        ("class_share", "a/b"): F(1, 4), ("class_share", "c"): F(3, 4),
    }  # fmt: skip
    counts = {f"yes/{cell}": exact(n) for cell, n in (("tp", 1), ("fp", 2), ("tn", 3), ("fn", 4))}
    every = found(evidence("learnability", (counts, 10, None)))
    assert every["accuracy", "yes"].lower == F(4, 10)
    assert every["recall", "yes"].lower == F(1, 5)


def test_the_record_names_model_property_and_engines() -> None:
    made = readings.to_record(
        evidence("safety", ({"satisfied": exact(30), "violated": pac(10)}, 64, None)),
        {"x": 1},
        created="2026-01-01T00:00:00Z",
    )
    assert made.model is not None
    assert (made.model.path, made.model.sha256, made.body) == ("m.pkl", SHA, {"x": 1})
    assert made.property is not None
    assert (made.property.name, made.property.path) == ("phi", "p.yaml")
    assert made.tool["engines"] == "boxes, cnf"


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("property: safety\ndomain: {from: d.csv, label: y}\nassert: 'True'\nmeasure: {product: {fit: m.csv}}",
         {"domain": "d.csv", "measure": "m.csv"}),
        ("property: robustness\ninputs: {file: x/rows.npz}\nepsilon: 1\nquantization: {bits: 8, calibrate: c.npy}",
         {"inputs": "x/rows.npz", "calibration": "c.npy"}),
        ("property: classes\ndomain: {features: [{name: from, type: bool}]}\nmeasure: uniform", {}),
    ],
)  # fmt: skip
def test_the_data_files_that_a_property_names(tmp_path: Path, text: str, files: dict[str, str]) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text, encoding="utf-8")
    named = properties.data_files(properties.load(path))
    assert {role: str(file.relative_to(tmp_path)) for role, file in named} == files

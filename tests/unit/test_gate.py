"""Every outcome of the gate, from evidence made by hand whose verdict is known by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from gate_records import Project, bounds, exact, pac, sampled, sha

from quantify.errors import InputError
from quantify.evidence.proportions import proportion
from quantify.evidence.store import Damage
from quantify.ir.count import Guarantee
from quantify.ir.intervals import clopper_pearson
from quantify.ir.record import Draws, Reading
from quantify.ir.verdict import Finding, Outcome

F = Fraction
PASS, FAIL, INVALID = Outcome.PASS, Outcome.FAIL, Outcome.INVALID
OPEN, REVIEW = Outcome.INSUFFICIENT_EVIDENCE, Outcome.MANUAL_REVIEW
MAX = "{id: r, metric: violation, property: phi, max: 0.25}"
ANY = "least_guarantee: sampled"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def code(finding: Finding) -> str:
    return finding.reasons[0].code


# --- exact counts and bounds ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("lower", "upper", "asked", "outcome"),
    [
        (F(1, 4), F(1, 4), "max: 0.25", PASS),
        (F(1, 4) + F(1, 10**30), F(1, 4) + F(1, 10**30), "max: 0.25", FAIL),
        (F(1, 4), F(1, 4), "min: 0.25", PASS),
        (F(1, 4) - F(1, 10**30), F(1, 4) - F(1, 10**30), "min: 0.25", FAIL),
        (F(0), F(0), "max: 0", PASS),
        (F(1, 3), F(1, 3), "min: 1/3, max: 1/3", PASS),
        (F(1, 5), F(1, 4), "max: 0.25", PASS),
        (F(1, 5), F(2, 5), "max: 0.25", OPEN),
        (F(1, 5), F(2, 5), "min: 0.25", OPEN),
        (F(3, 10), F(2, 5), "max: 0.25", FAIL),
        (F(3, 10), F(2, 5), "min: 0.25", PASS),
        (F(3, 10), F(2, 5), "min: 0.25, max: 0.5", PASS),
        (F(3, 10), F(2, 5), "min: 0.35, max: 0.5", OPEN),
        (F(3, 10), F(2, 5), "min: 0.5, max: 0.6", FAIL),
        (F(3, 10), F(2, 5), "min: 0.1, max: 0.2", FAIL),
    ],
)
def test_an_interval_against_its_thresholds(project: Project, lower: F, upper: F, asked: str, outcome: Outcome) -> None:
    project.count(bounds(lower, upper) if lower < upper else exact(lower))
    finding = project.rule(f"{{id: r, metric: violation, property: phi, {asked}}}")
    assert (finding.outcome, finding.lower, finding.upper) == (outcome, lower, upper)
    assert code(finding) == {PASS: "within", FAIL: "outside", OPEN: "across"}[outcome]
    assert [source.use for source in finding.sources] == ["decides"]


def test_the_tightest_evidence_decides_and_bounds_narrow_each_other(project: Project) -> None:
    project.count(bounds(F(1, 10), F(9, 10)))
    narrow = project.count(bounds(F(1, 5), F(2, 5)))
    finding = project.rule(MAX)
    assert (finding.outcome, finding.lower, finding.upper) == (OPEN, F(1, 5), F(2, 5))
    assert [source.digest for source in finding.sources if source.use == "decides"] == [narrow]
    project.count(bounds(F(0), F(6, 25)))
    finding = project.rule(MAX)
    assert (finding.outcome, finding.lower, finding.upper) == (PASS, F(1, 5), F(6, 25))


def test_open_bounds_say_how_many_seconds_more(project: Project) -> None:
    """In 30 s three quarters were closed; the rest takes 10 s at that pace."""
    project.count(bounds(F(1, 8), F(3, 8)), body={"seconds": 30.0, "complete": False})
    (need,) = project.rule(MAX).needs
    assert (need.kind, need.amount) == ("seconds", 10)


def test_bounds_that_no_time_narrows_ask_for_another_engine(project: Project) -> None:
    project.count(bounds(F(1, 8), F(3, 8)), body={"seconds": 30.0, "complete": True})
    (need,) = project.rule(MAX).needs
    assert need.amount is None
    assert "--engine" in need.text
    project.count(bounds(F(0), F(1)), body={"seconds": 30.0, "complete": False})


# --- samples --------------------------------------------------------------------------------------------------------
def test_a_sample_is_below_the_default_rung(project: Project) -> None:
    project.count(sampled(0, 10**6))
    finding = project.rule(MAX)
    assert (finding.outcome, code(finding)) == (OPEN, "guarantee_too_low")
    assert "sampled" in finding.reasons[0].text
    assert project.rule(MAX, ANY).outcome is PASS
    assert (
        project.rule("{id: r, metric: violation, property: phi, max: 0.25, least_guarantee: sampled}").outcome is PASS
    )
    assert (
        project.rule("{id: r, metric: violation, property: phi, max: 0.25, least_guarantee: pac}", ANY).outcome is OPEN
    )


def test_bounds_are_below_the_rung_exact(project: Project) -> None:
    project.count(bounds(F(1, 8), F(1, 6)))
    assert project.rule(MAX).outcome is PASS
    assert code(project.rule(MAX, "least_guarantee: exact")) == "guarantee_too_low"


@pytest.mark.parametrize(("confidence", "outcome"), [("0.95", PASS), ("0.999", OPEN)])
def test_a_sample_is_judged_at_the_confidence_of_the_rule(project: Project, confidence: str, outcome: Outcome) -> None:
    """20 of 130: the upper end is 22.8 % at 95 %, and 28.2 % at 99.9 % (R: binom.test)."""
    project.count(sampled(20, 130))
    finding = project.rule(MAX, f"{ANY}\nconfidence: {confidence}")
    assert finding.outcome is outcome
    assert (finding.lower, finding.upper) == clopper_pearson(20, 130, F(confidence))
    assert finding.level == F(confidence)


def test_how_many_draws_would_do(project: Project) -> None:
    """The run made 1,000 draws of which 100 met the assumption, so ten are needed for one."""
    body = {"counts": {"satisfied": {"samples": 1000}, "violated": {"samples": 1000}}}
    project.count(sampled(20, 100), body=body)
    (need,) = project.rule(MAX, ANY).needs
    assert need.kind == "samples"
    assert isinstance(need.amount, int)
    enough, less = need.amount // 10, need.amount // 10 * 9 // 10
    assert clopper_pearson(-(-enough // 5), enough, F(95, 100))[1] < F(1, 4)
    assert clopper_pearson(-(-less // 5), less, F(95, 100))[1] > F(1, 4)
    assert f"--samples {need.amount}" in need.text


def test_a_sample_never_proves_zero(project: Project) -> None:
    project.count(sampled(0, 10**6))
    finding = project.rule("{id: r, metric: violation, property: phi, max: 0}", ANY)
    assert finding.outcome is OPEN
    assert finding.needs[0].amount is None
    assert "count exactly" in finding.needs[0].text


def test_the_larger_sample_decides_and_the_first_of_two_as_large(project: Project) -> None:
    """Which one decides does not depend on what it found, so that repeating a run until it passes gains nothing."""
    first = project.count(sampled(40, 130))
    project.count(sampled(10, 130))
    finding = project.rule(MAX, ANY)
    assert (finding.lower, finding.upper) == clopper_pearson(40, 130, F(95, 100))
    assert [source.digest for source in finding.sources if source.use == "decides"] == [first]
    larger = project.count(sampled(20, 131))
    finding = project.rule(MAX, ANY)
    assert (finding.outcome, finding.level) == (PASS, F(95, 100))
    assert (finding.lower, finding.upper) == clopper_pearson(20, 131, F(95, 100))
    assert [source.digest for source in finding.sources if source.use == "decides"] == [larger]


def test_a_sample_and_a_pac_count_share_the_risk(project: Project) -> None:
    """Half of 5 % each: a risk of 2δ = 2 % fits, one of 3 % never does and leaves all of it to the sample."""
    project.count(sampled(20, 130))
    fitting = pac(F(15, 100), F(1, 10), F(1, 100))
    project.count(fitting)
    low, high = clopper_pearson(20, 130, F(975, 1000))
    finding = project.rule(MAX, ANY)
    assert finding.level == F(975, 1000)
    assert (finding.lower, finding.upper) == (max(low, fitting.lower), min(high, fitting.upper))
    project.stored.pop()
    project.count(pac(F(15, 100), F(1, 10), F(15, 1000)))
    finding = project.rule(MAX, ANY)
    assert (finding.lower, finding.upper) == clopper_pearson(20, 130, F(95, 100))


def test_a_sample_and_a_pac_count_that_have_nothing_in_common_leave_it_open(project: Project) -> None:
    project.count(sampled(30, 130))
    project.count(pac(F(1, 100), F(1, 100), F(1, 100)))
    finding = project.rule("{id: r, metric: violation, property: phi, max: 0.1}", ANY)
    assert (finding.outcome, code(finding)) == (OPEN, "across")


def test_the_pac_count_with_the_smallest_tolerance_that_the_risk_allows_decides(project: Project) -> None:
    project.count(pac(F(20, 100), F(1, 100), F(1, 10)))  # narrow, but may miss with 20 %
    project.count(pac(F(20, 100), F(4, 5), F(1, 100)))
    wanted = project.count(pac(F(10, 100), F(1, 10), F(2, 100)))
    project.count(pac(F(15, 100), F(1, 10), F(2, 100)))
    finding = project.rule(MAX, "least_guarantee: pac")
    assert finding.outcome is PASS
    assert [source.digest for source in finding.sources if source.use == "decides"] == [wanted]


def test_beside_a_sample_a_pac_count_must_fit_half_of_the_risk(project: Project) -> None:
    project.count(sampled(20, 130))
    project.count(pac(F(15, 100), F(1, 100), F(2, 100)))
    wide = pac(F(15, 100), F(1, 10), F(1, 100))
    project.count(wide)
    finding = project.rule(MAX, ANY)
    low, high = clopper_pearson(20, 130, F(975, 1000))
    assert (finding.lower, finding.upper) == (max(low, wide.lower), min(high, wide.upper))


def test_a_proof_decides_before_a_sample_does(project: Project) -> None:
    project.count(bounds(F(0), F(1, 4)))
    project.count(sampled(25, 100))
    finding = project.rule(MAX, ANY)
    assert (finding.outcome, finding.guarantee, finding.level) == (PASS, Guarantee.BOUNDS, None)


def test_proven_ends_narrow_a_sample(project: Project) -> None:
    project.count(bounds(F(1, 5), F(9, 10)))
    project.count(sampled(20, 100))
    finding = project.rule(MAX, ANY)
    assert (finding.lower, finding.upper) == (F(1, 5), clopper_pearson(20, 100, F(95, 100))[1])


# --- (ε, δ) ---------------------------------------------------------------------------------------------------------
def test_an_epsilon_delta_ratio_carries_twice_delta_and_the_square(project: Project) -> None:
    """Odds 1/9 times (1 + 1/5)² = 0.16, which is 13.8 %: below 25 %. Its risk of 4 % is below 5 %."""
    project.count(pac(F(1, 10), F(1, 5), F(2, 100)))
    finding = project.rule(MAX, "least_guarantee: pac")
    assert (finding.outcome, finding.guarantee) == (PASS, Guarantee.PAC)
    assert finding.upper == F(4, 29)
    assert project.rule(MAX).reasons[0].code == "guarantee_too_low"


def test_a_risk_above_that_of_the_rule_decides_nothing_and_says_which_delta_would(project: Project) -> None:
    project.count(pac(F(1, 10), F(1, 5), F(1, 5)))
    finding = project.rule(MAX, "least_guarantee: pac")
    assert (finding.outcome, code(finding)) == (OPEN, "risk_too_high")
    (need,) = finding.needs
    assert (need.kind, need.amount) == ("delta", F(25, 1000))
    project.stored.clear()
    project.count(pac(F(1, 10), F(1, 5), F(25, 1000)))
    assert project.rule(MAX, "least_guarantee: pac").outcome is PASS


def test_too_wide_a_tolerance_says_which_would_do(project: Project) -> None:
    """Odds 1/4 against 1/3: (1+ε)² ≤ 4/3, ε ≤ 0.1547…, rounded down to 0.15."""
    project.count(pac(F(1, 5), F(4, 5), F(1, 100)))
    finding = project.rule(MAX, "least_guarantee: pac")
    assert (finding.outcome, code(finding)) == (OPEN, "across")
    (need,) = finding.needs
    assert (need.kind, need.amount) == ("epsilon", F(15, 100))
    for epsilon, outcome in ((F(15, 100), PASS), (F(16, 100), OPEN)):
        project.stored.clear()
        project.count(pac(F(1, 5), epsilon, F(1, 100)))
        assert project.rule(MAX, "least_guarantee: pac").outcome is outcome


def test_prob_exact_decides_where_the_policy_lets_it(project: Project) -> None:
    project.count(replace(exact(F(1, 10)), guarantee=Guarantee.PROB_EXACT, risk=F(1, 10**12)))
    assert project.rule(MAX).reasons[0].code == "guarantee_too_low"
    assert project.rule(MAX, "least_guarantee: prob-exact").outcome is PASS


# --- several rules --------------------------------------------------------------------------------------------------
def clean(p: F, draws: int = 100) -> float:
    """The threshold that no hit in so many draws stays below at level p and no better: 2·(1 − t)^n = p."""
    return 1 - float(p / 2) ** (1 / draws) + 1e-12


@pytest.mark.parametrize(
    ("values", "holm", "none"),
    [
        ((F(10, 1000), F(20, 1000), F(40, 1000)), "PPP", "PPP"),
        ((F(10, 1000), F(30, 1000), F(40, 1000)), "POO", "PPP"),
        ((F(17, 1000), F(18, 1000), F(19, 1000)), "OOO", "PPP"),
        ((F(16, 1000), F(16, 1000), F(51, 1000)), "PPO", "PPO"),
        ((F(16, 1000), F(24, 1000), F(49, 1000)), "PPP", "PPP"),
        ((F(26, 1000), F(26, 1000), F(1, 1000)), "OOP", "PPP"),
    ],
)
def test_holm_by_hand(project: Project, values: tuple[F, ...], holm: str, none: str) -> None:
    """Sorted p against 0.05/3, 0.05/2, 0.05, up to the first that is larger."""
    rules = []
    for number, p in enumerate(values):
        project.count(sampled(0, 100, subject=f"phi{number}"))
        rules.append(f"{{id: r{number}, metric: violation, property: phi{number}, max: {clean(p):.15f}}}")
    for correction, expected in (("holm", holm), ("none", none)):
        found = project.rules(rules, f"{ANY}\ncorrection: {correction}")
        assert "".join("P" if finding.outcome is PASS else "O" for finding in found.values()) == expected
    found = project.rules(rules, ANY)
    assert "".join("P" if finding.outcome is PASS else "O" for finding in found.values()) == holm  # the default


def test_rules_that_proofs_decide_are_no_part_of_the_family(project: Project) -> None:
    project.count(sampled(0, 100, subject="phi0"))
    rules = [f"{{id: r, metric: violation, property: phi0, max: {clean(F(49, 1000)):.15f}}}"]
    for number in range(1, 5):
        project.count(exact(F(0), subject=f"phi{number}"))
        rules.append(f"{{id: e{number}, metric: violation, property: phi{number}, max: 0}}")
    assert {finding.outcome for finding in project.rules(rules, ANY).values()} == {PASS}


# --- contradictions -------------------------------------------------------------------------------------------------
def test_two_exact_counts_that_differ_are_invalid(project: Project) -> None:
    project.count(exact(F(1, 10), problem="p"))
    project.count(exact(F(1, 10) + F(1, 10**40), problem="p"))
    finding = project.rule(MAX)
    assert (finding.outcome, code(finding)) == (INVALID, "contradiction")
    assert project.judge(f"rules: [{MAX}]").exit_code == 4


def test_a_sample_contradicts_only_at_one_in_a_million(project: Project) -> None:
    """0.3 is outside the 95 % interval of 200/1000 and of 250/1000; the one at 10^-6 reaches to 26.6 % and 31.9 %."""
    project.count(exact(F(3, 10)))
    project.count(sampled(250, 1000))
    assert clopper_pearson(250, 1000, F(95, 100))[1] < F(3, 10)
    assert project.rule(MAX, ANY).outcome is FAIL
    project.count(sampled(200, 1000))
    finding = project.rule(MAX, ANY)
    assert (finding.outcome, code(finding)) == (INVALID, "contradiction")
    # A contradiction counts even where the sample is below the rung that may decide.
    assert project.rule(MAX, "least_guarantee: exact").outcome is INVALID


def test_a_pac_count_that_misses_with_a_real_probability_contradicts_nothing(project: Project) -> None:
    project.count(exact(F(1, 100)))
    project.count(pac(F(1, 2), F(1, 100), F(1, 100)))
    assert project.rule(MAX, "least_guarantee: pac").outcome is PASS


# --- which evidence -------------------------------------------------------------------------------------------------
def test_what_was_never_counted(project: Project) -> None:
    finding = project.rule(MAX)
    assert (finding.outcome, code(finding)) == (OPEN, "never_measured")
    assert "--record" in finding.needs[0].text
    project.count(exact(F(0), subject="phi2"))
    assert "did you mean 'phi2'" in project.rule(MAX).reasons[0].text


def test_a_changed_model_makes_the_evidence_stale(project: Project) -> None:
    project.count(exact(F(0)))
    assert project.rule(MAX).outcome is PASS
    (project.folder / "model.pkl").write_text("another model")
    for top in ("", "model: model.pkl"):
        finding = project.rule(MAX, top)
        assert (finding.outcome, code(finding)) == (OPEN, "stale")
        assert finding.sources[0].use == "refused"
    project.count(exact(F(1)))
    for top in ("", "model: model.pkl"):
        assert project.rule(MAX, top).outcome is FAIL
    (project.folder / "model.pkl").unlink()
    finding = project.rule(MAX)
    assert (finding.outcome, code(finding)) == (OPEN, "model_missing")


@pytest.mark.parametrize("name", ["phi.yaml", "training.csv"])
def test_a_changed_property_or_data_file_makes_it_stale(project: Project, name: str) -> None:
    project.count(exact(F(0)), data=(project.ref("inputs", "training.csv"),))
    assert project.rule(MAX).outcome is PASS
    (project.folder / name).write_text("another")
    assert code(project.rule(MAX)) == "stale"
    (project.folder / name).unlink()  # what is not there cannot be compared
    assert project.rule(MAX).outcome is PASS


def test_several_models_must_be_told_apart(project: Project) -> None:
    (project.folder / "other.pkl").write_text("other")
    project.count(exact(F(0)))
    project.count(exact(F(1)), model="other.pkl")
    with pytest.raises(InputError, match=r"release.yaml:3: rule 'r': several models .*model.pkl.*other.pkl"):
        project.rule(MAX)
    assert project.rule(MAX, "model: model.pkl").outcome is PASS
    assert project.rule(MAX, "model: other.pkl").outcome is FAIL
    assert (
        project.rule(
            "{id: r, metric: violation, property: phi, max: 0.25, model: other.pkl}", "model: model.pkl"
        ).outcome
        is FAIL
    )
    with pytest.raises(InputError, match=r"no model file nothing\.pkl"):
        project.rule(MAX, "model: nothing.pkl")


def test_a_copy_of_a_model_is_the_same_model(project: Project) -> None:
    (project.folder / "copy.pkl").write_bytes((project.folder / "model.pkl").read_bytes())
    project.count(exact(F(0)))
    project.count(bounds(F(0), F(1)), model="copy.pkl")
    assert project.rule(MAX).outcome is PASS


def test_a_model_without_evidence(project: Project) -> None:
    (project.folder / "other.pkl").write_text("other")
    project.count(exact(F(0)))
    assert code(project.rule(MAX, "model: other.pkl")) == "never_measured"


def test_a_property_may_be_named_by_its_file_and_must_where_two_share_a_name(project: Project) -> None:
    (project.folder / "phi2.yaml").write_text("another property of the same name")
    project.count(exact(F(0)))
    by_file = "{id: r, metric: violation, property: phi.yaml, max: 0.25}"
    assert project.rule(by_file).outcome is PASS
    project.count(exact(F(1)), prop="phi2.yaml")
    with pytest.raises(InputError, match="several versions of the property 'phi'"):
        project.rule(MAX)
    assert project.rule(by_file).outcome is PASS
    assert project.rule("{id: r, metric: violation, property: phi2.yaml, max: 0.25}").outcome is FAIL
    with pytest.raises(InputError, match=r"no property file phi3.yaml"):
        project.rule("{id: r, metric: violation, property: phi3.yaml, max: 0.25}")


def test_a_vacuous_count_decides_nothing(project: Project) -> None:
    project.count(bounds(F(0), F(1), reason="vacuous", need="an assumption that some input meets"))
    finding = project.rule("{id: r, metric: violation, property: phi, max: 1}")
    assert (finding.outcome, code(finding)) == (OPEN, "vacuous")


def test_what_a_count_measured_beside_its_number_is_told(project: Project) -> None:
    checks = [
        {"name": "fidelity", "status": "ok", "detail": "fine"},
        {"name": "quantised", "status": "measured", "detail": "3 of 1000 labels differ"},
    ]
    project.count(exact(F(0)), body={"checks": checks})
    finding = project.rule(MAX)
    assert [(reason.code, reason.text) for reason in finding.reasons[1:]] == [
        ("noted", "quantised: 3 of 1000 labels differ")
    ]
    assert finding.outcome is PASS


# --- groups ---------------------------------------------------------------------------------------------------------
def test_groups_are_judged_one_by_one_with_their_support(project: Project) -> None:
    project.count(
        exact(F(9, 10), "accuracy"),
        exact(F(1), "accuracy", group="north", support=50),
        exact(F(1, 2), "accuracy", group="south", support=60),
        exact(F(1), "accuracy", group="east", support=10),
    )
    rule = "{id: r, metric: accuracy, property: phi, min: 0.8"
    assert project.rule(rule + "}").outcome is PASS
    assert project.rule(rule + ", group: north, min_support: 50}").outcome is PASS
    assert code(project.rule(rule + ", group: north, min_support: 51}")) == "too_little_support"
    found = project.rules([rule + ", groups: all, min_support: 20}"])
    assert {name: finding.outcome for name, finding in found.items()} == {
        "r/north": PASS, "r/south": FAIL, "r/east": OPEN,
    }  # fmt: skip
    assert code(found["r/east"]) == "too_little_support"
    assert found["r/east"].needs[0].amount == 20
    assert project.rule(rule + ", group: north}").outcome is PASS
    finding = project.rule(rule + ", groups: [nord]}")
    assert (finding.outcome, code(finding)) == (OPEN, "never_measured")
    assert "did you mean 'north'" in finding.reasons[0].text


def test_a_rate_that_exists_by_group_only_needs_one(project: Project) -> None:
    project.count(exact(F(1), "robustness", group="epsilon=1"), exact(F(0), "robustness", group="epsilon=2"))
    rule = "{id: r, metric: robustness, property: phi, min: 0.95"
    with pytest.raises(InputError, match=r"by group only: 'epsilon=1', 'epsilon=2'"):
        project.rule(rule + "}")
    assert project.rule(rule + ", group: epsilon=1}").outcome is PASS
    assert project.judge(f"rules: [{rule}, groups: all}}]").exit_code == 1


def test_groups_of_what_has_none(project: Project) -> None:
    project.count(exact(F(1), "accuracy"))
    assert code(project.rule("{id: r, metric: accuracy, property: phi, min: 0.8, groups: all}")) == "never_measured"


# --- suites, recipes, leakage ---------------------------------------------------------------------------------------
CORRECT = "{id: r, metric: correct, suite: s, min: 0.8}"


def correct(hits: int, draws: int, **more: object) -> Reading:
    return proportion("correct", "suite", "s", Draws(hits, draws), **more)


def test_a_rate_of_cases_may_decide_as_a_sample_unless_told_otherwise(project: Project) -> None:
    project.run(correct(95, 100))
    assert project.rule(CORRECT).outcome is PASS
    assert project.rule("{id: r, metric: correct, min: 0.8}").outcome is PASS
    assert code(project.rule(CORRECT, "least_guarantee: bounds")) == "guarantee_too_low"


def test_the_latest_run_counts_not_the_best(project: Project) -> None:
    project.run(correct(95, 100))
    project.run(correct(10, 100))
    finding = project.rule(CORRECT)
    assert finding.outcome is FAIL
    assert [source.use for source in finding.sources] == ["refused", "decides"]
    assert finding.level == F(95, 100)


def test_how_many_cases_would_do(project: Project) -> None:
    project.run(correct(85, 100))
    (need,) = project.rule(CORRECT).needs
    assert need.kind == "cases"
    assert isinstance(need.amount, int)
    assert clopper_pearson(need.amount * 85 // 100, need.amount, F(95, 100))[0] > F(8, 10)


def test_a_rule_without_a_subject_needs_one_where_there_are_several(project: Project) -> None:
    noise = [proportion("flips_under_noise", "transform", name, Draws(0, 500)) for name in ("blur", "jpeg")]
    project.add("noise", noise[0])
    assert project.rule("{id: n, metric: flips_under_noise, max: 0.02}").outcome is PASS
    project.add("noise", noise[1])
    with pytest.raises(InputError, match="several: transform: blur, transform: jpeg"):
        project.rule("{id: n, metric: flips_under_noise, max: 0.02}")
    assert project.rule("{id: n, metric: flips_under_noise, transform: jpeg, max: 0.02}").outcome is PASS


def test_a_declared_transform_decides_nothing(project: Project) -> None:
    project.add("noise", proportion(
        "flips_under_noise", "transform", "n", Draws(0, 500), reason="transform_declared", need="labels of people"
    ))  # fmt: skip
    finding = project.rule("{id: n, metric: flips_under_noise, max: 0.02}")
    assert (finding.outcome, code(finding)) == (OPEN, "transform_declared")
    assert finding.needs[0].text == "labels of people"


def test_approximate_intervals_need_leave(project: Project) -> None:
    project.add("seeds", Reading(
        "correct", "recipe", "loan", F(83, 100), F(92, 100), F(88, 100), Guarantee.SAMPLED,
        risk=F(1, 20), approximate=True,
    ))  # fmt: skip
    rule = "{id: r, metric: correct, recipe: loan, min: 0.8}"
    finding = project.rule(rule)
    assert (finding.outcome, code(finding)) == (REVIEW, "approximate_method")
    assert project.judge(f"rules: [{rule}]").exit_code == 3
    allow = "allow_approximate_methods: true"
    assert project.rule(rule, allow).outcome is PASS
    assert project.rule(rule, allow + "\nleast_guarantee: exact").outcome is PASS
    assert code(project.rule(rule, allow + "\nconfidence: 0.99")) == "risk_too_high"


def test_leakage_must_be_checked_and_clean(project: Project) -> None:
    project.run(correct(95, 100))
    project.count(exact(F(0)))

    def outcomes() -> dict[str, Outcome]:
        found = project.rules([CORRECT, "{id: v, metric: violation, property: phi, max: 0}"], "leakage: required")
        return {name.split("/")[0]: finding.outcome for name, finding in found.items()}

    assert outcomes() == {"leakage": OPEN, "r": OPEN, "v": PASS}
    project.leakage()
    assert outcomes() == {"leakage": PASS, "r": PASS, "v": PASS}
    project.leakage("invalid", training="phi.yaml")
    assert outcomes() == {"leakage": INVALID, "r": INVALID, "v": PASS}
    project.leakage("ok", training="phi.yaml", body={"later": True})
    assert outcomes() == {"leakage": PASS, "r": PASS, "v": PASS}
    (project.folder / "phi.yaml").write_text("more training data")
    (project.folder / "training.csv").write_text("more training data")
    assert outcomes()["leakage"] is OPEN


def test_a_leakage_check_is_of_one_version_of_a_suite(project: Project) -> None:
    project.leakage()
    (project.folder / "cases.jsonl").write_text("another suite")
    project.run(correct(95, 100))
    verdict = project.judge(f"leakage: required\nrules: [{CORRECT}]")
    assert [code(finding) for finding in verdict.findings] == ["stale", "stale"]
    assert verdict.exit_code == 3


def test_leakage_without_any_suite_blocks_a_policy_of_counts_too(project: Project) -> None:
    project.count(exact(F(0)))
    text = "leakage: required\nrules: [{id: v, metric: violation, property: phi, max: 0}]"
    verdict = project.judge(text)
    assert (verdict.outcome, verdict.exit_code) == (OPEN, 3)
    project.leakage()
    assert project.judge(text).outcome is PASS
    project.leakage("invalid", body={"again": 1})
    assert project.judge(text).exit_code == 4
    with pytest.raises(InputError, match=r"no suite nothing.jsonl"):
        project.judge("suite: nothing.jsonl\n" + text)
    (project.folder / "two.jsonl").write_text("two")
    assert [code(f) for f in project.judge("suite: two.jsonl\n" + text).findings] == ["leakage_unchecked", "within"]


def test_another_suite_that_leaked_blocks_nothing(project: Project) -> None:
    (project.folder / "two.jsonl").write_text("two")
    project.run(correct(95, 100))
    project.leakage()
    project.leakage("invalid", cases="two.jsonl")
    verdict = project.judge(f"leakage: required\nrules: [{CORRECT}]")
    assert [(finding.rule, finding.outcome) for finding in verdict.findings] == [("leakage", PASS), ("r", PASS)]


def test_a_suite_that_changed_after_its_check_blocks_a_policy_of_counts(project: Project) -> None:
    project.count(exact(F(0)))
    project.leakage()
    (project.folder / "cases.jsonl").write_text("another suite")
    verdict = project.judge("leakage: required\nrules: [{id: v, metric: violation, property: phi, max: 0}]")
    assert [code(finding) for finding in verdict.findings] == ["stale", "within"]


def test_a_rule_whose_evidence_is_refused_anyway_says_why(project: Project) -> None:
    project.run(correct(95, 100))
    (project.folder / "model.pkl").write_text("another model")
    verdict = project.judge(f"leakage: required\nrules: [{CORRECT}]")
    assert [code(finding) for finding in verdict.findings] == ["leakage_unchecked", "stale"]


def test_a_failed_run_of_another_checkpoint_is_no_evidence_on_a_model(project: Project) -> None:
    project.run(correct(95, 100))
    project.add("run", correct(0, 100), data=(project.ref("cases", "cases.jsonl"),))
    assert project.rule(CORRECT).outcome is PASS
    assert project.rule(CORRECT, "model: model.pkl").outcome is PASS
    project.stored.pop(0)
    assert project.rule(CORRECT).outcome is FAIL


def test_evidence_on_two_suites_needs_the_name_of_one(project: Project) -> None:
    (project.folder / "two.jsonl").write_text("two")
    flips = [proportion("flips_under_noise", "transform", "n", Draws(hits, 500)) for hits in (0, 400)]
    project.run(flips[0])
    project.run(flips[1], data=(project.ref("cases", "two.jsonl"),))
    rule = "{id: n, metric: flips_under_noise, max: 0.02}"
    with pytest.raises(InputError, match="several suites"):
        project.rule(rule)
    assert project.rule(rule, "suite: cases.jsonl").outcome is PASS
    assert project.rule(rule, "suite: two.jsonl").outcome is FAIL


# --- the whole ------------------------------------------------------------------------------------------------------
def test_a_damaged_store_is_invalid_whatever_the_rules_say(project: Project) -> None:
    project.count(exact(F(0)))
    project.damages.append(Damage("ab" * 32, "its content was changed after it was stored"))
    verdict = project.judge(f"rules: [{MAX}]")
    assert (verdict.outcome, verdict.exit_code) == (INVALID, 4)
    assert [finding.outcome for finding in verdict.findings] == [INVALID, PASS]


def test_the_worst_rule_is_the_verdict(project: Project) -> None:
    project.count(exact(F(1, 2)), exact(F(1, 2), "satisfaction"))
    good, bad = (
        "{id: g, metric: violation, property: phi, max: 0.5}",
        "{id: b, metric: satisfaction, property: phi, min: 0.6}",
    )
    lost = "{id: l, metric: violation, property: psi, max: 0}"
    for rules, outcome, exit_code in (
        ([good], PASS, 0), ([good, lost], OPEN, 3), ([good, bad], FAIL, 1), ([good, lost, bad], FAIL, 1)
    ):  # fmt: skip
        verdict = project.judge(f"rules: [{', '.join(rules)}]")
        assert (verdict.outcome, verdict.exit_code) == (outcome, exit_code)
    assert verdict.policy_sha256 == sha(project.folder / "release.yaml")

"""`quantify seeds` as typed, on runs of five models whose right answers can be counted by hand."""

from __future__ import annotations

import json
import pickle
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from quantify.dataset.recipe_interval import interval
from quantify.report.json import schema

Run = Callable[..., subprocess.CompletedProcess[str]]
CORRECT = {"seed_1": 257, "seed_2": 263, "seed_3": 265, "seed_4": 267, "seed_5": 271}
SEEDS = """seeds:
  recipe: loan-model
  checkpoints: {seed_1: latest~4, seed_2: latest~3, seed_3: latest~2, seed_4: latest~1, seed_5: latest}
  rule: {id: recipe_accurate, criterion: correct, min: 0.8}
"""
POLICY = "allow_approximate_methods: true\nrules:\n  - {id: any, metric: correct, recipe: loan-model, min: 0.8}\n"


@pytest.fixture
def project(here: Run, tmp_path: Path) -> Run:
    """300 cases x = 0…299 that are all right to be called 1, and trees that say 1 from 300 − CORRECT on."""
    (tmp_path / "suite.csv").write_text("id,x,label\n" + "".join(f"c{x},{x},1\n" for x in range(300)))
    (tmp_path / "seeds.yaml").write_text(SEEDS)
    (tmp_path / "recipe.yaml").write_text(POLICY)
    x = np.arange(300.0)[:, None]
    for name, correct in CORRECT.items():
        tree = DecisionTreeClassifier().fit(x, x[:, 0] >= 300 - correct)
        tree.classes_ = np.array([0, 1])
        (tmp_path / f"{name}.pkl").write_bytes(pickle.dumps(tree))
    return here


def run_all(here: Run, *names: str) -> None:
    for name in names or CORRECT:
        assert here("run", f"{name}.pkl", "--cases", "suite.csv", "--record", "--quiet").returncode == 0


def answer(here: Run, exit_code: int, *more: str) -> dict[str, Any]:
    done = here("seeds", "seeds.yaml", "--policy", "recipe.yaml", "--json", "-", *more)
    assert done.returncode == exit_code, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(told, schema("seeds"))
    return told


def refused(here: Run, *words: str) -> None:
    done = here("seeds", "seeds.yaml", "--policy", "recipe.yaml", "--record")
    assert (done.returncode, done.stdout) == (2, "")
    for word in words:
        assert word in done.stderr


def test_the_recipe_of_the_document(project: Run, tmp_path: Path) -> None:
    run_all(project)
    told = answer(project, 0, "--record", "--quiet", "--html", "page.html")
    assert (told["outcome"], told["recipe"], told["suite"]["cases"]) == ("PASS", "loan-model", 300)
    assert {one["name"]: one["correct"] for one in told["checkpoints"]} == CORRECT
    rate = told["rate"]
    assert round(100 * rate["value"], 1) == 88.2
    assert abs(100 * Fraction(rate["lower"]) - Fraction("83.2")) < 1
    assert abs(100 * Fraction(rate["upper"]) - Fraction("91.9")) < 1
    # The best tree is right from 29 on, the worst from 43 on.
    assert told["changing"] == [f"c{x}" for x in range(29, 43)]
    for x, case in enumerate(told["cases"]):
        assert (case["id"], case["changes"]) == (f"c{x}", 29 <= x < 43)
        expected = {name: "correct" if x >= 300 - correct else "wrong" for name, correct in CORRECT.items()}
        assert case["verdicts"] == expected
    page = (tmp_path / "page.html").read_text()
    assert page.count('<td class="case-correct">correct</td>') == sum(CORRECT.values())
    assert page.count('<td class="case-wrong">wrong</td>') == 5 * 300 - sum(CORRECT.values())
    assert all(f'<td class="text">c{x}</td>' in page for x in range(300))
    # The text says the same, and the record decides a gate.
    text = project("seeds", "seeds.yaml", "--policy", "recipe.yaml").stdout
    assert "PASS" in text
    assert "88.2 %" in text
    assert project("gate", "recipe.yaml").returncode == 0
    (tmp_path / "recipe.yaml").write_text(POLICY.replace("true", "false"))
    done = project("gate", "recipe.yaml")
    assert done.returncode == 3
    assert "MANUAL_REVIEW" in done.stdout
    # A checkpoint that is another file now makes it stale.
    (tmp_path / "recipe.yaml").write_text(POLICY)
    (tmp_path / "seed_3.pkl").write_bytes((tmp_path / "seed_4.pkl").read_bytes())
    done = project("gate", "recipe.yaml")
    assert (done.returncode, "stale" in done.stdout, "seed_3.pkl" in done.stdout) == (3, True, True)


@pytest.mark.parametrize(
    ("rule", "policy", "exit_code", "outcome", "code"),
    [
        ("min: 0.95", POLICY, 1, "FAIL", "outside"),
        ("max: 0.8", POLICY, 1, "FAIL", "outside"),
        ("min: 0.88", POLICY, 3, "INSUFFICIENT_EVIDENCE", "across"),
        ("min: 0.5, max: 0.95", POLICY, 0, "PASS", "within"),
        ("min: 0.8", POLICY.replace("true", "false"), 3, "MANUAL_REVIEW", "approximate_method"),
        ("min: 0.8", POLICY.partition("\n")[2], 3, "MANUAL_REVIEW", "approximate_method"),
        ("min: 0.81", "confidence: 0.9999\n" + POLICY, 3, "INSUFFICIENT_EVIDENCE", "across"),
    ],
)
def test_outcomes(
    project: Run, tmp_path: Path, rule: str, policy: str, exit_code: int, outcome: str, code: str
) -> None:
    run_all(project)
    (tmp_path / "seeds.yaml").write_text(SEEDS.replace("min: 0.8", rule))
    (tmp_path / "recipe.yaml").write_text(policy)
    told = answer(project, exit_code)
    assert (told["outcome"], told["exit_code"], told["reasons"][0]["code"]) == (outcome, exit_code, code)


def test_two_seeds_decide_nothing(project: Run, tmp_path: Path) -> None:
    run_all(project, "seed_1", "seed_2")
    two = SEEDS.replace("seed_1: latest~4, seed_2: latest~3, seed_3: latest~2, ", "")
    (tmp_path / "seeds.yaml").write_text(two)
    for policy in (POLICY, POLICY.replace("true", "false")):
        (tmp_path / "recipe.yaml").write_text(policy)
        told = answer(project, 3, "--record", "--quiet")
        assert (told["outcome"], told["reasons"][0]["code"]) == ("INSUFFICIENT_EVIDENCE", "too_few_seeds")
    done = project("gate", "recipe.yaml")
    assert done.returncode == 3
    assert "too_few_seeds" in done.stdout


def test_a_failed_seed_stays(project: Run, tmp_path: Path) -> None:
    run_all(project, "seed_1", "seed_2", "seed_3", "seed_4")
    failed = ("run", "--failed", "loss became NaN", "--system", "seed-5", "--cases", "suite.csv", "--record", "--quiet")
    assert project(*failed).returncode == 0
    told = answer(project, 3)
    assert told["outcome"] == "INSUFFICIENT_EVIDENCE"
    last = told["checkpoints"][-1]
    assert (last["correct"], last["unanswered"], last["model"], last["failed"]) == (0, 300, None, "loss became NaN")
    assert Fraction(told["rate"]["lower"]) < Fraction(257 + 263 + 265 + 267, 1500)
    assert Fraction(told["rate"]["upper"]) > Fraction(257 + 263 + 265 + 267 + 300, 1500)
    # Failures for the lower end, successes for the upper, half and half for the estimate.
    four = [257, 263, 265, 267]
    lower, upper = interval([*four, 0], [*four, 300], 300, Fraction(95, 100))
    assert (Fraction(told["rate"]["lower"]), Fraction(told["rate"]["upper"])) == (lower, upper)
    assert told["rate"]["value"] == pytest.approx((sum(four) + 150) / 1500)
    # No answer is no other verdict: what changes is what answers show.
    assert told["changing"] == [f"c{x}" for x in range(33, 43)]


def test_runs_are_named_by_digest_too(project: Run, tmp_path: Path) -> None:
    run_all(project)
    first = answer(project, 0)
    named = ", ".join(f"{one['name']}: '{one['run'][:16]}'" for one in reversed(first["checkpoints"]))
    whole = SEEDS.splitlines()
    (tmp_path / "seeds.yaml").write_text("\n".join([*whole[:2], f"  checkpoints: {{{named}}}", whole[3]]))
    assert answer(project, 0)["rate"] == first["rate"]


def test_what_cannot_be_compared_is_refused(project: Run, tmp_path: Path) -> None:
    run_all(project, "seed_1", "seed_2", "seed_3", "seed_4")
    refused(project, "latest~4", "seeds.yaml:3", "evidence list")  # there are four runs
    suite = (tmp_path / "suite.csv").read_text()
    (tmp_path / "suite.csv").write_text(suite.replace("c7,7,1", "c7,7,0"))
    run_all(project, "seed_5")
    refused(project, "seed_5", "different content", "same suite")
    (tmp_path / "seeds.yaml").write_text(SEEDS.replace("seed_2: latest~3", "seed_2: latest~4"))
    refused(project, "seed_1 and seed_2", "one run")


def test_one_model_under_two_names_is_refused(project: Run, tmp_path: Path) -> None:
    run_all(project, "seed_1", "seed_2", "seed_3", "seed_4")
    (tmp_path / "again.pkl").write_bytes((tmp_path / "seed_2.pkl").read_bytes())
    run_all(project, "again")
    refused(project, "seed_2 and seed_5", "one model file")


def test_a_suite_with_groups_is_refused(project: Run, tmp_path: Path) -> None:
    rows = "".join(f"c{x},{x},1,{'north' if x % 2 else 'south'}\n" for x in range(300))
    (tmp_path / "suite.csv").write_text("id,x,label,group:region\n" + rows)
    run_all(project)
    refused(project, "groups (region)")


def write_score(path: Path, slope: int) -> None:
    """A network with one output, slope·x."""
    lines = ["1,1,1,1,", "1,1,", "0,", "-1000000.0,", "1000000.0,", "0.0,0.0,", "1.0,1.0,", f"{slope}.0,", "0.0,"]
    path.write_text("\n".join(lines) + "\n")


def test_scores_count_within_one_tolerance(project: Run, tmp_path: Path) -> None:
    """Scores of slope 1, 2 and 3 against the label x: within 4, right for every x, for x ≤ 4 and for x ≤ 2."""
    (tmp_path / "suite.csv").write_text("id,x,label\n" + "".join(f"c{x},{x},{x}\n" for x in range(40)))
    three = SEEDS.replace("seed_1: latest~4, seed_2: latest~3, ", "")
    (tmp_path / "seeds.yaml").write_text(three)
    run = ("run", "--cases", "suite.csv", "--record", "--quiet")
    for slope in (1, 2, 3):
        write_score(tmp_path / f"{slope}.nnet", slope)
        assert project(*run, f"{slope}.nnet", "--tolerance", "4").returncode == 0
    told = answer(project, 3)
    assert [one["correct"] for one in told["checkpoints"]] == [40, 5, 3]
    assert project(*run, "3.nnet", "--tolerance", "5").returncode == 0
    (tmp_path / "seeds.yaml").write_text(
        three.replace("seed_3: latest~2, seed_4: latest~1", "a: latest~3, b: latest~2")
    )
    refused(project, "different --tolerance")
    for slope in (1, 2, 3):
        assert project(*run, f"{slope}.nnet", "--system", "free").returncode == 0
    (tmp_path / "seeds.yaml").write_text(three)
    refused(project, "--tolerance")


def test_a_record_of_another_kind_is_refused(project: Run, tmp_path: Path) -> None:
    run_all(project)
    answer(project, 0, "--record", "--quiet")
    shown = json.loads(project("evidence", "show", "latest", "--json", "-").stdout)
    assert shown["record"]["kind"] == "seeds"
    digest = shown["record"]["digest"][:20]
    (tmp_path / "seeds.yaml").write_text(SEEDS.replace("latest~4", f"'{digest}'"))
    refused(project, "a record of quantify seeds")


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("recipe: loan", "recip: loan", "did you mean"),
        ("criterion: correct", "criterion: corect", "did you mean"),
        ("min: 0.8", "min: 80", "0.8"),
        (", min: 0.8", "", "no threshold"),
        ("seeds:\n", "seed:\n", "did you mean"),
        ("{seed_1: latest~4, seed_2: latest~3, seed_3: latest~2, seed_4: latest~1, seed_5: latest}", "{}", "no run"),
        ("latest~4", "latest~x", "names no record"),
        ("latest~4", "latest~" + "9" * 30, "not so many run records"),
        ("latest~4", "latest~" + "9" * 5000, "not so many run records"),
        ("seed_2: latest~3", "seed_1: latest~3", "seed_1"),
    ],
)
def test_mistakes_in_the_file_are_told(project: Run, tmp_path: Path, old: str, new: str, word: str) -> None:
    run_all(project)
    assert old in SEEDS
    (tmp_path / "seeds.yaml").write_text(SEEDS.replace(old, new))
    refused(project, word, "seeds.yaml:")

"""Mistakes in a policy are refused with the line they are on, and with what was probably meant."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from quantify.errors import InputError
from quantify.gate.policy import load
from quantify.ir.count import Guarantee

RULE = "  - {id: a, metric: violation, property: phi, max: 0}\n"


def read(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "release.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("confidense: 0.9\nrules:\n" + RULE, 1, "no key 'confidense' (did you mean 'confidence'?)"),
        ("rules:\n  - {id: a, metrik: violation, property: phi, max: 0}\n", 2, "did you mean 'metric'"),
        ("rules:\n  - {id: a, metric: violatoin, property: phi, max: 0}\n", 2, "did you mean 'violation'"),
        ("rules:\n  - id: a\n    metric: f2\n    property: phi\n    max: 0\n", 3, "'f2' is unknown"),
        ("confidence: 0.9\nrules: []\n", 2, "empty"),
        ("confidence: 0.9\n", 1, "needs the key 'rules'"),
        ("rules:\n", 1, "must be a list"),
        ("rules: 7\n", 1, "must be a list"),
        ("[]\n", 1, "mapping"),
        ("rules:\n" + RULE + "\n" + RULE, 4, "twice (first on line 2)"),
        ("rules:\n  - {id: leakage, metric: violation, property: phi, max: 0}\n", 2, "gate's own"),
        ("rules:\n  - {id: a, metric: violation, max: 0}\n", 2, "needs the property"),
        ("rules:\n  - {metric: violation, property: phi, max: 0}\n", 2, "needs the key 'id'"),
        ("rules:\n  - {id: a, property: phi, max: 0}\n", 2, "needs the key 'metric'"),
        ("rules:\n  - {id: a, metric: violation, property: phi}\n", 2, "no threshold"),
        ("rules:\n  - {id: a, metric: violation, property: phi, max: 5}\n", 2, "write 0.05 for 5 %"),
        ("rules:\n  - {id: a, metric: violation, property: phi, max: -1}\n", 2, "is none"),
        ("rules:\n  - {id: a, metric: violation, property: phi, max: low}\n", 2, "must be a number"),
        ("rules:\n  - {id: a, metric: violation, property: phi, min: 0.5, max: 0.4}\n", 2, "min > max"),
        ("rules:\n  - {id: a, metric: violation, suite: s, max: 0}\n", 2, "not the rate of a suite"),
        ("rules:\n  - {id: a, metric: correct, suite: s, recipe: r, min: 0}\n", 2, "write two rules"),
        ("confidence: 95\nrules:\n" + RULE, 1, "write 0.95"),
        ("confidence: 1\nrules:\n" + RULE, 1, "out of range"),
        ("least_guarantee: exakt\nrules:\n" + RULE, 1, "did you mean 'exact'"),
        ("correction: bonferroni\nrules:\n" + RULE, 1, "correction"),
        ("leakage: maybe\nrules:\n" + RULE, 1, "leakage"),
        ("allow_approximate_methods: yes\nrules:\n" + RULE, 1, "true or false"),
        ("rules:\n  - {id: a, metric: accuracy, property: phi, min: 0, min_support: 0}\n", 2, "min_support"),
        ("rules:\n  - {id: a, metric: accuracy, property: phi, min: 0, group: x, groups: all}\n", 2, "keep one"),
        ("rules:\n  - {id: a, metric: accuracy, property: phi, min: 0, groups: []}\n", 2, "empty"),
        ("rules:\n  - {id: a, metric: accuracy, property: phi, min: 0, groups: every}\n", 2, "groups"),
        ("rules:\n  - {id: a, metric: accuracy, property: phi, min: 0, groups: [x, x]}\n", 2, "twice"),
        ("rules:\n  - {id: a, id: b, metric: accuracy, property: phi, min: 0}\n", 2, "twice"),
        ("rules: [\n", 2, "not valid YAML"),
    ],
)
def test_a_mistake_is_refused_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = read(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load(path)
    assert caught.value.message.startswith(f"{path}:{line}: ")
    assert said in f"{caught.value.message} {caught.value.hint}"
    assert caught.value.hint


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "none.yaml")


def test_defaults_and_what_a_rule_overrides(tmp_path: Path) -> None:
    policy = load(read(tmp_path, "rules:\n" + RULE))
    (rule,) = policy.rules
    assert (policy.correction, policy.allow_approximate, policy.leakage_required) == ("holm", False, False)
    assert (rule.confidence, rule.least_guarantee, rule.model, rule.groups) == (Fraction(95, 100), None, None, None)
    assert (rule.about, rule.subject, rule.minimum, rule.maximum) == ("property", "phi", None, 0)
    policy = load(read(tmp_path, (
        "confidence: 0.9\nleast_guarantee: pac\nmodel: m.pkl\ncorrection: none\nallow_approximate_methods: true\n"
        "leakage: required\nsuite: cases.csv\nrules:\n" + RULE +
        "  - {id: b, metric: correct, suite: s, min: 1/3, confidence: 0.99, least_guarantee: exact, model: n.pkl,"
        " groups: [x, y], min_support: 5}\n"
    )))  # fmt: skip
    first, second = policy.rules
    assert (policy.correction, policy.allow_approximate, policy.leakage_required) == ("none", True, True)
    assert (policy.suite, policy.leakage_line) == ("cases.csv", 6)
    assert (first.confidence, first.least_guarantee, first.model) == (Fraction(9, 10), Guarantee.PAC, "m.pkl")
    assert (second.confidence, second.least_guarantee, second.model) == (Fraction(99, 100), Guarantee.EXACT, "n.pkl")
    assert (second.minimum, second.groups, second.min_support, second.line) == (Fraction(1, 3), ("x", "y"), 5, 10)

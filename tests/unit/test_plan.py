"""A plan's rows, its options, and a robustness property under another ε."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from quantify import properties
from quantify.properties import yaml


def test_rows_in_order_and_options_as_given(tmp_path: Path) -> None:
    for name in ("a.pkl", "b.pkl"):
        (tmp_path / name).touch()
    (tmp_path / "s.yaml").write_text("property: safety\ndomain: {relation: {nodes: 2}}\nassert: 'True'\n")
    (tmp_path / "r.yaml").write_text("property: robustness\nname: ball\ninputs: {file: x.csv}\n")
    (tmp_path / "plan.yaml").write_text(
        "models: [a.pkl, b.pkl]\nproperties: [s.yaml, r.yaml]\nepsilon: [1, 1/2]\nengine: boxes\ncross_check: true\n"
        "timeout: 1.5\nseed: 3\nsamples: 10\nconfidence: 0.9\ngap: 0.01\ncounter: d4\n"
    )
    plan = properties.load_plan(tmp_path / "plan.yaml")
    assert [(row.model.name, row.source.name, row.epsilon) for row in plan.rows] == [
        (model, name, epsilon)
        for model in ("a.pkl", "b.pkl")
        for name, epsilon in (("s", None), ("ball", Fraction(1)), ("ball", Fraction(1, 2)))
    ]
    assert plan.options == {
        "engine": "boxes", "cross_check": True, "timeout": Fraction(3, 2), "seed": 3, "samples": 10,
        "confidence": Fraction(9, 10), "gap": Fraction(1, 100), "counter": "d4",
    }  # fmt: skip


def test_an_epsilon_is_put_in_place_of_the_propertys_own_or_added(tmp_path: Path) -> None:
    for own in ("epsilon: [1, 2]\n", ""):
        path = tmp_path / "r.yaml"
        path.write_text(f"property: robustness\n{own}inputs: {{file: x.csv}}\n")
        source = properties.load(path)
        changed = properties.with_epsilon(source, Fraction(5, 2))
        node = changed.fields.need("epsilon", "")
        assert isinstance(node, yaml.Scalar)
        assert node.value == Fraction(5, 2)
        assert changed.fields.need("inputs", "") == source.fields.need("inputs", "")
        assert (changed.sha256, changed.name, changed.kind) == (source.sha256, source.name, source.kind)

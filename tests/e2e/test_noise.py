"""`quantify noise` as typed: rates checked by the library and by enumeration, and what the gate makes of them."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from PIL import Image
from sklearn.tree import DecisionTreeClassifier

from quantify.report.json import schema

Run = Callable[..., subprocess.CompletedProcess[str]]
POINTS = [(a, b) for a in range(0, 16, 2) for b in range(1, 16, 2)]
SPEC = """model: model.pkl
cases: suite.csv
metamorphic:
  transforms:
    - name: ball
      perturb: {kind: numeric_noise, property: robust.yaml, seed: 1}
    - name: swap
      perturb: {kind: categorical_swap, map: {a: {2: 14, 14: 2}}}
evaluators:
  - {type: metamorphic_relation, relation: same_label, transform: ball, field: label, passes_when: flipped}
  - {type: metamorphic_relation, relation: same_label, transform: swap}
"""
ROBUST = "property: robustness\nname: ball\ninputs: {file: suite.csv}\nepsilon: 2\nDOMAIN\n"


@pytest.fixture
def project(tmp_path: Path, small_tree: DecisionTreeClassifier, write_property: Callable[[str], Path]) -> Path:
    rows = "".join(f"p{i},{a},{b}\n" for i, (a, b) in enumerate(POINTS))
    (tmp_path / "suite.csv").write_text("id,a,b\n" + rows)
    (tmp_path / "noise.yaml").write_text(SPEC)
    write_property(ROBUST).rename(tmp_path / "robust.yaml")
    return tmp_path


def test_the_count_beside_the_sample_is_what_enumeration_gives(
    quantify: Run, project: Path, small_tree: DecisionTreeClassifier
) -> None:
    done = quantify("noise", "noise.yaml", "--record", "--json", "-")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    jsonschema.validate(told, schema("noise"))
    ball, swap = told["transforms"]
    shares = []
    for a, b in POINTS:
        around = list(itertools.product(*(range(max(0, x - 2), min(15, x + 2) + 1) for x in (a, b))))
        own = small_tree.predict([(a, b)])[0]
        shares.append(Fraction(int((small_tree.predict(np.array(around)) != own).sum()), len(around)))
    mean = sum(shares, Fraction(0)) / len(shares)
    assert 0 < mean < 1
    assert (Fraction(ball["counted"]["lower"]), Fraction(ball["counted"]["upper"])) == (mean, mean)
    assert ball["counted"]["guarantee"] == "exact"
    assert ball["counts"]["cases"] == len(POINTS)
    moved = np.array([({2: 14, 14: 2}.get(a, a), b) for a, b in POINTS])
    flips = small_tree.predict(np.array(POINTS)) != small_tree.predict(moved)
    assert [one["id"] for one in swap["flipped"]] == [f"p{i}" for i in np.flatnonzero(flips)]
    assert swap["counts"]["flipped"] == flips.sum() > 0
    assert (ball["reason"], swap["reason"], swap["counted"]) == ("transform_declared", "transform_declared", None)
    again = json.loads(quantify("noise", "noise.yaml", "--json", "-").stdout)
    assert again == told
    shown = json.loads(quantify("evidence", "show", "latest", "--json", "-").stdout)["record"]
    assert (shown["kind"], shown["body"]) == ("noise", told)
    assert {data["role"] for data in shown["data"]} >= {"cases", "transforms", "property"}


def test_a_declared_transform_decides_nothing(quantify: Run, project: Path) -> None:
    quantify("noise", "noise.yaml", "--record", "--quiet")
    for name in ("ball", "swap"):
        rule = f"{{id: noise, metric: flips_under_noise, transform: {name}, max: 1}}"
        (project / "release.yaml").write_text(f"rules:\n  - {rule}\n")
        done = quantify("gate", "release.yaml", "--json", "-")
        assert done.returncode == 3
        (finding,) = json.loads(done.stdout)["rules"]
        assert "transform_declared" in [reason["code"] for reason in finding["reasons"]]


def test_people_let_an_image_transform_decide(quantify: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    pixels = rng.integers(0, 200, (40, 9))
    tree = DecisionTreeClassifier(max_depth=1).fit(pixels, pixels[:, 4] > 100)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(tree))
    lines = []
    for i, row in enumerate(pixels):
        Image.fromarray(row.reshape(3, 3).astype(np.uint8), "L").save(tmp_path / f"{i}.png")
        lines.append(json.dumps({"id": str(i), "image": f"{i}.png"}))
    (tmp_path / "suite.jsonl").write_text("\n".join(lines))
    (tmp_path / "noise.yaml").write_text(
        "model: model.pkl\ncases: suite.jsonl\nmetamorphic:\n  transforms:\n"
        "    - {name: grey, field: image, perturb: {kind: occlusion, size: 3, value: 0}, labels: people.csv}\n"
        "evaluators: [{type: metamorphic_relation, relation: same_label, transform: grey}]\n"
    )
    (tmp_path / "release.yaml").write_text("rules:\n  - {id: noise, metric: flips_under_noise, max: 0.05}\n")
    said = ["kept"] * 40
    for code in (1, 3):
        (tmp_path / "people.csv").write_text("case,meaning\n" + "".join(f"{i},{w}\n" for i, w in enumerate(said)))
        done = quantify("noise", "noise.yaml", "--record", "--images", "changed", "--json", "-")
        assert done.returncode == 0, done.stderr
        (told,) = json.loads(done.stdout)["transforms"]
        jsonschema.validate(json.loads(done.stdout), schema("noise"))
        # The whole image is black now: whatever was True becomes False.
        assert told["counts"]["flipped"] == tree.predict(pixels).sum() > 5
        assert told["decides"] == (code == 1)
        assert quantify("gate", "release.yaml").returncode == code
        assert not np.asarray(Image.open(tmp_path / "changed" / "grey" / "7.png")).any()
        said[5] = "changed"


@pytest.mark.needs("onnx")
def test_a_regressor_is_held_to_a_tolerance(quantify: Run, tmp_path: Path) -> None:
    from onnx_models import Maker

    # score = a: swapping 1 for 1.25 is within 0.25, 2 for 3 is not.
    (tmp_path / "net.onnx").write_bytes(Maker((1,)).add("Gemm", np.array([[1.0]]), np.array([0.0])).bytes())
    (tmp_path / "s.csv").write_text("id,a\nx,1\ny,2\nz,5\n")
    (tmp_path / "n.yaml").write_text(
        "metamorphic: {transforms: [{name: t, perturb: {kind: categorical_swap, map: {a: {1: 1.25, 2: 3}}}}]}\n"
        "evaluators: [{type: metamorphic_relation, relation: same_score_within, transform: t, tolerance: 0.25}]\n"
    )
    done = quantify("noise", "n.yaml", "--model", "net.onnx", "--cases", "s.csv", "--json", "-")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)["transforms"]
    assert told["flipped"] == [{"id": "y", "before": 2.0, "after": 3.0}]
    text = (tmp_path / "n.yaml").read_text()
    (tmp_path / "n.yaml").write_text(text.replace("same_score_within", "same_label").replace(", tolerance: 0.25", ""))
    done = quantify("noise", "n.yaml", "--model", "net.onnx", "--cases", "s.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is a regressor" in done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model: model.pkl\n", ""),
        ("cases: suite.csv", "cases: none.csv"),
        ("property: robust.yaml", "property: none.yaml"),
        ("map: {a: ", "map: {q: "),
        ("kind: numeric_noise", "kind: noise"),
    ],
)
def test_bad_input_is_one_error(quantify: Run, project: Path, old: str, new: str) -> None:
    (project / "noise.yaml").write_text(SPEC.replace(old, new))
    done = quantify("noise", "noise.yaml", "--record")
    assert (done.returncode, done.stdout) == (2, "")
    assert "hint" in done.stderr


def test_a_region_that_is_not_of_the_suite_is_refused(quantify: Run, project: Path) -> None:
    (project / "other.csv").write_text("a,b\n1,1\n")
    text = (project / "robust.yaml").read_text()
    for changed in (
        text.replace("suite.csv", "other.csv"),
        text + "norm: l1\n",
        text.replace("epsilon: 2", "epsilon: [1, 2]"),
    ):
        (project / "robust.yaml").write_text(changed)
        done = quantify("noise", "noise.yaml")
        assert (done.returncode, done.stdout) == (2, ""), changed
        assert "hint" in done.stderr

"""Declared noise: what each transform does to a case, which answers count as flipped, and when a rate may decide."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from property_files import hand_model

from quantify.dataset import answers, noise, noise_spec, perturb, suite
from quantify.dataset.noise_spec import Transform
from quantify.errors import ContradictionError, InputError
from quantify.ir.count import Count, Guarantee
from quantify.ir.evidence import CaseEvidence
from quantify.resources import Progress


def write_suite(folder: Path, cases: list[dict[str, Any]]) -> suite.Suite:
    path = folder / "suite.jsonl"
    path.write_text("".join(json.dumps({"id": f"c{i}", **case}) + "\n" for i, case in enumerate(cases)))
    return suite.load(path)


def transform(**more: Any) -> Transform:
    return Transform("t", 1, **{"kind": "numeric_noise", **more})


NOISE = """
model: model.pkl
cases: suite.jsonl
metamorphic:
  transforms:
    - name: noise
      field: features
      perturb: {kind: numeric_noise, scale: {income: 1.0, debt_ratio: 0.02}, seed: 7}
evaluators:
  - {type: metamorphic_relation, relation: same_label, transform: noise, field: label, passes_when: flipped}
"""


def load(folder: Path, text: str) -> noise_spec.Spec:
    (folder / "noise.yaml").write_text(textwrap.dedent(text))
    return noise_spec.load(folder / "noise.yaml")


def test_a_noise_file_is_read(tmp_path: Path) -> None:
    spec = load(tmp_path, NOISE)
    (one,) = spec.transforms
    assert (one.name, one.kind, one.seed, one.distribution, one.relation) == (
        "noise", "numeric_noise", 7, "normal", "same_label"
    )  # fmt: skip
    assert one.scale == {"income": 1, "debt_ratio": Fraction(1, 50)}
    assert (spec.model, spec.cases) == (tmp_path / "model.pkl", tmp_path / "suite.jsonl")


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("metamorphic:", "metamorphoses:", 4, r"no key 'metamorphoses' \(did you mean 'metamorphic'\?\)"),
        ("kind: numeric_noise", "kind: numeric_nose", 8, "'numeric_nose' is unknown"),
        ("income: 1.0", "income: 0", 8, "the scale of 'income' is 0"),
        ("income: 1.0", "income: a", 8, "must be a number"),
        ("{income: 1.0, debt_ratio: 0.02}", "{}", 8, "scale names features"),
        ("seed: 7", "sed: 7", 8, r"no key 'sed' \(did you mean 'seed'\?\)"),
        ("seed: 7", "radius: 7", 8, "the perturbation numeric_noise has no key 'radius'"),
        ("seed: 7", "distribution: cauchy", 8, "'cauchy' is unknown"),
        ("seed: 7", "property: p.yaml", 8, "property, and scale"),
        ("field: features", "field: image", 7, "'image' is unknown"),
        ("transform: noise", "transform: nose", 6, "nothing evaluates the transform 'noise'"),
        ("same_label", "same_labels", 10, "'same_labels' is unknown"),
        ("same_label", "same_score_within", 10, "'label' is unknown"),
        ("field: label, passes_when: flipped", "tolerance: 1", 10, "same_label has a tolerance"),
        ("passes_when: flipped", "passes_when: kept", 10, "'kept' is unknown"),
        ("evaluators:", "evaluators:\n  - {type: metamorphic_relation, relation: same_label, transform: noise}", 11,
         "two evaluators"),
        ("      field: features\n", "      labels: people.csv\n", 6, "people cannot judge a numeric_noise"),
    ],
)  # fmt: skip
def test_mistakes_in_a_noise_file(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert old in NOISE
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path, NOISE.replace(old, new))
    assert f"noise.yaml:{line}:" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("perturbation", "message"),
    [
        ("{kind: jpeg, quality: 99}", "quality is a whole number"),
        ("{kind: occlusion, size: 1.5}", "size is a whole number"),
        ("{kind: occlusion, size: 2, value: 300}", "300 is no grey"),
        ("{kind: blur, radius: 0}", "changes nothing"),
        ("{kind: brightness, factor: 1}", "changes nothing"),
        ("{kind: blur}", "needs the key 'radius'"),
        ("{kind: categorical_swap, map: {a: {x: x}}}", "becomes itself"),
        ("{kind: categorical_swap, map: {a: x}}", "names values"),
        ("{kind: categorical_swap, map: {}}", "map names features"),
    ],
)
def test_mistakes_in_a_perturbation(tmp_path: Path, perturbation: str, message: str) -> None:
    text = NOISE.replace("{kind: numeric_noise, scale: {income: 1.0, debt_ratio: 0.02}, seed: 7}", perturbation)
    with pytest.raises(InputError, match=message):
        load(tmp_path, text.replace("      field: features\n", ""))


# --- what transforms do -----------------------------------------------------------------------------------------------
def test_noise_depends_on_seed_transform_and_case_alone(tmp_path: Path) -> None:
    cases = [{"features": {"a": 1, "b": None, "c": 5}} for _ in range(3)]
    read = write_suite(tmp_path, cases)
    one = transform(scale={"a": Fraction(1), "b": Fraction(1)}, seed=3)
    moved = [perturb.features(one, read, case) for case in read.cases]
    assert len({values[0] for values in moved}) == 3
    assert all(values[1:] == (None, 5) for values in moved)
    alone = write_suite(tmp_path, [{"id": "c2", "features": {"a": 1, "b": None, "c": 5}}])
    assert perturb.features(one, alone, alone.cases[0]) == moved[2]
    assert perturb.features(transform(scale=one.scale, seed=4), alone, alone.cases[0]) != moved[2]


@pytest.mark.parametrize("distribution", ["normal", "uniform"])
def test_noise_has_the_distribution_and_scale_that_were_declared(tmp_path: Path, distribution: str) -> None:
    read = write_suite(tmp_path, [{"features": {"a": 10}} for _ in range(4000)])
    one = transform(scale={"a": Fraction(2)}, distribution=distribution)
    moves = np.array([float(perturb.features(one, read, case)[0] - 10) for case in read.cases])  # type: ignore[operator]
    from scipy import stats

    law = stats.norm(0, 2) if distribution == "normal" else stats.uniform(-2, 4)
    assert stats.kstest(moves, law.cdf).pvalue > 1e-6  # the draws are fixed: this passes always or never
    assert distribution == "normal" or np.abs(moves).max() < 2


def test_swaps_follow_the_map(tmp_path: Path) -> None:
    read = write_suite(tmp_path, [{"features": {"r": r, "n": n}} for r, n in (("north", 1), ("south", 2), ("east", 3))])
    one = transform(kind="categorical_swap", swaps={"r": {"north": "south", "south": "north"}, "n": {"1": 7}})
    perturb.check(one, read)
    assert [perturb.features(one, read, case) for case in read.cases] == [("south", 7), ("north", 2), ("east", 3)]


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (transform(scale={"incom": Fraction(1)}), r"no feature 'incom' \(did you mean 'income'\?\)"),
        (transform(kind="categorical_swap", swaps={"income": {"9": 8}}), "no case has a income of '9'"),
        (transform(kind="blur", amount=Fraction(1)), "changes an image"),
    ],
)
def test_transforms_that_do_not_fit_the_suite(tmp_path: Path, one: Transform, message: str) -> None:
    with pytest.raises(InputError, match=message):
        perturb.check(one, write_suite(tmp_path, [{"features": {"income": 1}}]))


def test_noise_on_text_is_refused(tmp_path: Path) -> None:
    read = write_suite(tmp_path, [{"features": {"r": "north"}}])
    with pytest.raises(InputError, match="numeric noise moves numbers"):
        perturb.features(transform(scale={"r": Fraction(1)}), read, read.cases[0])


def test_images_are_changed_as_declared(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(40, 100, (12, 10, 3), dtype=np.uint8)
    Image.fromarray(pixels, "RGB").save(tmp_path / "0.png")
    (case,) = write_suite(tmp_path, [{"image": "0.png"}]).cases
    original = Image.fromarray(pixels, "RGB")

    def changed(kind: str, amount: str, **more: Any) -> Any:
        one = transform(kind=kind, amount=Fraction(amount), **more)
        return np.asarray(perturb.image(one, case, original)).astype(int)

    assert (changed("brightness", "1.5") == np.floor(pixels * 1.5)).mean() > 0.99
    covered = changed("occlusion", "4", value=7)
    same = (covered == pixels).all(axis=2)
    assert (~same).sum() == 16
    rows, columns = np.where(~same)
    assert (np.ptp(rows), np.ptp(columns)) == (3, 3)
    assert (covered[~same] == 7).all()
    blurred = changed("blur", "2")
    assert blurred.std() < pixels.std() / 2
    assert abs(blurred.mean() - pixels.mean()) < 2
    rough, fine = (np.abs(changed("jpeg", quality) - pixels).mean() for quality in ("5", "95"))
    assert 0 < fine < rough
    assert np.asarray(original).tolist() == pixels.tolist()


# --- rates ------------------------------------------------------------------------------------------------------------
def asked(read: suite.Suite, columns: int = 1, **model: Any) -> answers.Asked:
    made = hand_model(columns, **model)
    return answers.Asked(made, read, answers._columns(made, None, read), "hwc")


def tried(folder: Path, ask: answers.Asked, one: Transform) -> noise.Tried:
    spec = noise_spec.Spec(folder / "n.yaml", "0" * 64, None, None, None, "hwc", (one,))
    (found,) = noise.try_all(spec, ask, {}, Progress()).tried
    return found


def test_flips_are_counted_by_hand(tmp_path: Path) -> None:
    # The model says 1 iff x > 0.5; 1 becomes 0 and 2 becomes 3, so the first two flip, and the last has no answer.
    cases = [
        {"features": {"x": x}, "groups": {"g": g}} for x, g in ((1, "a"), (1, "b"), (2, "b"), (0, "b"), (None, "b"))
    ]
    one = transform(kind="categorical_swap", swaps={"x": {"1": 0, "2": 3}})
    found = tried(tmp_path, asked(write_suite(tmp_path, cases)), one)
    whole, a, b = noise.readings_of(found)
    assert [(r.group, r.draws[0].hits, r.draws[0].samples, r.draws[0].unknown) for r in (whole, a, b)] == [
        (None, 2, 5, 1), ("g=a", 1, 1, 0), ("g=b", 1, 4, 1)
    ]  # fmt: skip
    assert {reading.reason for reading in (whole, a, b)} == {"transform_declared"}
    assert (whole.metric, whole.about, whole.subject) == ("flips_under_noise", "transform", "t")


def test_a_regressor_flips_when_its_score_leaves_the_tolerance() -> None:
    one = transform(relation="same_score_within", tolerance=Fraction(1, 4))
    flips = [noise._flipped(one, 1.0, after) for after in (1.0, 1.25, 0.75, 1.2500001, -3.0, None)]
    assert flips == [False, False, False, True, True, None]


# --- what people say --------------------------------------------------------------------------------------------------
@pytest.fixture
def pictures(tmp_path: Path) -> answers.Asked:
    """Three images of 2 × 2 pixels; the model says 1 iff the first pixel is above 100."""
    for place, grey in enumerate((50, 90, 200)):
        Image.new("L", (2, 2), grey).save(tmp_path / f"{place}.png")
    read = write_suite(tmp_path, [{"image": f"{place}.png"} for place in range(3)])
    return asked(read, 4, predict=lambda row: int(row[0] > 100))


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (None, "labels_missing"),
        ("c0,kept\nc1,kept\nc2,kept\n", None),
        ("c0,kept\nc1,kept\n", "labels_missing"),
        ("c0,kept\nc1,changed\nc2,kept\n", "labels_show_meaning_lost"),
        ("c0,kept\nc1,changed\nc1,kept\nc2,kept\n", "labels_show_meaning_lost"),
        ("c1,changed\n", "labels_show_meaning_lost"),
    ],
)
def test_an_image_transform_decides_only_where_people_say_it_keeps_the_meaning(
    tmp_path: Path, pictures: answers.Asked, labels: str | None, reason: str | None
) -> None:
    path = None
    if labels is not None:
        path = tmp_path / "labels.csv"
        path.write_text("case,meaning\n" + labels)
    found = tried(tmp_path, pictures, transform(kind="brightness", amount=Fraction(3, 2), labels=path))
    # By hand: 50 → 75, 90 → 135, 200 → 255: the second flips.
    assert Counter(pair.flipped for pair in found.pairs) == {False: 2, True: 1}
    (reading,) = noise.readings_of(found)
    assert reading.reason == found.reason == reason
    assert (reading.need is None) == (reason is None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("case,meaning\nc9,kept\n", r":2: there is no case 'c9'"),
        ("case,meaning\nc0,kep\n", r":2: 'kep' is neither"),
        ("case,label\nc0,kept\n", "no column 'meaning'"),
    ],
)
def test_labels_with_mistakes(tmp_path: Path, pictures: answers.Asked, text: str, message: str) -> None:
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        noise.read_labels(tmp_path / "labels.csv", pictures.suite)


# --- the count beside the sample --------------------------------------------------------------------------------------
def counted(robust: int, total: int, upper: int | None = None) -> CaseEvidence:
    guarantee = Guarantee.EXACT if upper is None else Guarantee.BOUNDS
    return CaseEvidence({"robust": Count(robust, upper or robust, guarantee, "boxes", 0.0, "")}, total, {})


def test_a_count_stands_beside_the_sample_and_must_agree(tmp_path: Path) -> None:
    cases = [{"features": {"x": x % 2}} for x in range(60)]
    one = transform(kind="categorical_swap", swaps={"x": {"1": 0}})
    found = tried(tmp_path, asked(write_suite(tmp_path, cases)), one)  # 30 of 60 flip
    exact = noise.with_count(found, [counted(1, 2), counted(3, 4)]).counted
    assert exact is not None
    assert (exact.lower, exact.upper, exact.guarantee) == (Fraction(3, 8), Fraction(3, 8), Guarantee.EXACT)
    bounds = noise.with_count(found, [counted(1, 4, 3)]).counted
    assert bounds is not None
    assert (bounds.lower, bounds.upper) == (Fraction(1, 4), Fraction(3, 4))
    assert bounds.problem == noise.readings_of(found)[0].problem
    with pytest.raises(ContradictionError, match="one chance in a million"):
        noise.with_count(found, [counted(99, 100)])
    sampled = CaseEvidence({"robust": Count(1, 2, Guarantee.SAMPLED, "sample", 0.0, "")}, 2, {})
    assert noise.with_count(found, [sampled]).counted is None

"""The HTML pages in headless Chromium: nothing leaves them, they fit narrow and wide windows and say what JSON says."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from browser import Shown, show
from gate_records import F, Project, bounds, exact, sampled

from quantify.evidence.proportions import proportion
from quantify.ir.count import Guarantee
from quantify.ir.record import Draws, Reading
from quantify.report import verdict as words
from quantify.report import verdict_page
from quantify.report.numbers import percent_range

pytestmark = pytest.mark.needs("chromium")
NARROW, WIDE = 400, 1400
LONG = "an-identifier-that-somebody-made-far-too-long-to-fit-a-telephone-and-without-a-single-blank-in-it"
POLICY = f"""
allow_approximate_methods: true
rules:
  - {{id: unsafe, metric: violation, property: phi, max: 0}}
  - {{id: bounded, metric: satisfaction, property: phi, min: 0.5}}
  - {{id: {LONG}, metric: accuracy, property: phi, min: 0.2, max: 0.9}}
  - {{id: cases, metric: correct, suite: cases.jsonl, min: 0.7}}
  - {{id: recipe, metric: correct, recipe: loan, min: 0.8}}
  - {{id: cost, metric: predicted_loss, table: t.csv, max: 3}}
  - {{id: noise, metric: flips_under_noise, transform: blur, max: 0.1}}
  - {{id: never, metric: recall, property: phi, min: 0.5}}
"""


def check_fits(shown: Shown) -> None:
    """Nothing is asked for, nothing is cut off at the edge, and the text can be read."""
    assert shown.asked == []
    assert set(shown.at) == {NARROW, WIDE}
    for width, seen in shown.at.items():
        assert seen["client"] <= width
        assert seen["scroll"] <= seen["client"], "the page scrolls sideways"
        assert seen["cut"] == []
        for found in seen["selected"].values():
            assert all(one["size"] >= 12 for one in found)


def folded(seen: dict[str, Any]) -> Any:
    """The JSON at the end of the page."""
    (pre,) = seen["selected"]["details pre"]
    return json.loads(pre["text"])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    witness = {
        "query": "violated",
        "input": {"a<b>&": "1/3", "c": "<img src=http://elsewhere.test/x.png>"},
        "label": "low",
    }
    made.count(
        exact(F(1, 3)), bounds(F(1, 4), F(3, 4), "satisfaction"), exact(F(19, 20), "accuracy"),
        body={"witnesses": [witness] * 12},
    )  # fmt: skip
    answers = [{"id": f"c{i}", "expected": "yes", "answer": "no", "correct": i > 17} for i in range(100)]
    made.run(proportion("correct", "suite", "cases.jsonl", Draws(82, 100), support=100), body={"answers": answers})
    seeds = Reading(
        "correct", "recipe", "loan", F(823, 1000), F(920, 1000), F(882, 1000), Guarantee.SAMPLED, risk=F(1, 20),
        approximate=True,
    )  # fmt: skip
    made.add("seeds", seeds, body={"changing": ["c1", "c2"]})
    flips = proportion("flips_under_noise", "transform", "blur", Draws(1, 100), support=100)
    pairs = {"blur": "case-of-the-blur", "patch": "case-of-the-patch"}
    transforms = [
        {"name": name, "flipped": [{"id": case, "before": "yes", "after": "no"}]} for name, case in pairs.items()
    ]
    made.add("noise", flips, data=(made.ref("cases", "cases.jsonl"),), body={"transforms": transforms})
    made.leakage(body={"found": []})
    loss = Reading(
        "predicted_loss", "table", "t.csv", F(2), F(5, 2), F(9, 4), Guarantee.SAMPLED, risk=F(1, 20), approximate=True
    )
    made.add("transfer", loss)
    return made


def test_the_page_of_the_gate(project: Project, tmp_path: Path) -> None:
    verdict = project.judge(POLICY)
    page = tmp_path / "page.html"
    page.write_text(verdict_page.render(verdict), encoding="utf-8")
    selectors = (
        "#outcome", ".rule .name", ".rule .outcome", ".rule .found", "svg", "svg .end", "svg .threshold", "details pre",
        "h3", "td", "td.digest",
    )  # fmt: skip
    shown = show(page, tmp_path, (NARROW, WIDE), [one for one in selectors if one != "details pre"])
    check_fits(shown)
    told = json.loads(json.dumps(words.to_dict(verdict)))
    whole = show(page, tmp_path, (WIDE,), selectors).at[WIDE]
    assert folded(whole) == told
    for seen in shown.at.values():
        picked = {name: [one["text"] for one in found] for name, found in seen["selected"].items()}
        assert picked["#outcome"] == [told["outcome"]] == ["FAIL"]
        assert picked[".rule .outcome"] == [rule["outcome"] for rule in told["rules"]]
        assert picked[".rule .name"] == [rule["id"] for rule in told["rules"]]
        intervals = [rule["interval"] for rule in told["rules"] if rule["interval"]]
        assert len(intervals) == 7
        ends = [one for interval in intervals for one in (interval["lower"], interval["upper"])]
        drawn = seen["selected"]["svg .end"]
        assert [one["attributes"]["data-value"] for one in drawn] == ends
        check_drawings(seen, [rule for rule in told["rules"] if rule["interval"]])
        share = percent_range(Fraction(intervals[3]["lower"]), Fraction(intervals[3]["upper"]))
        assert picked[".rule .found"][3].startswith(share)
        digests = [source["digest"] for rule in told["rules"] for source in rule["evidence"]]
        assert picked["td.digest"] == digests
        assert sum(title.startswith("Witnesses") for title in picked["h3"]) == 6
        assert "case c17" not in seen["text"]  # ten are shown, c0 to c9
        assert "case c9" in seen["text"]
        assert "What this cannot tell you" in seen["text"]
        assert "case-of-the-blur" in seen["text"]
        assert "case-of-the-patch" not in seen["text"]
        assert "attacker" in seen["text"]  # noise leaves that open
        assert "resized" not in seen["text"]  # no rule asks about leakage


def check_drawings(seen: dict[str, Any], rules: list[dict[str, Any]]) -> None:
    """On the screen, ends and thresholds stand where their values are, within half a pixel of one scale a drawing."""
    ends, thresholds = iter(seen["selected"]["svg .end"]), iter(seen["selected"]["svg .threshold"])
    for rule, drawing in zip(rules, seen["selected"]["svg"], strict=True):
        values = [Fraction(rule["interval"][end]) for end in ("lower", "upper")]
        places = [middle(next(ends)) for _ in values]
        for key in ("min", "max"):
            if rule[key] is not None:
                values.append(Fraction(rule[key]))
                places.append(middle(next(thresholds)))
        assert all(drawing["left"] - 1 <= place <= drawing["right"] + 1 for place in places)
        low, high = (values.index(extreme(values)) for extreme in (min, max))
        scale = (places[high] - places[low]) / float(values[high] - values[low])
        assert scale > 0
        for value, place in zip(values, places, strict=True):
            assert place == pytest.approx(places[low] + scale * float(value - values[low]), abs=1)


def middle(box: dict[str, Any]) -> float:
    return float(box["left"] + box["right"]) / 2


def test_a_page_that_asks_for_something_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        '<!DOCTYPE html><body><div class="x" style="width:700px">a</div><img src="http://elsewhere.test/x.png">'
    )
    shown = show(page, tmp_path, (NARROW, WIDE))
    assert set(shown.asked) == {"http://elsewhere.test/x.png"}
    assert shown.at[NARROW]["scroll"] > NARROW
    assert "DIV.x" in shown.at[NARROW]["cut"]
    assert shown.at[WIDE]["scroll"] <= WIDE


def test_the_page_of_a_single_sample_at_the_end_of_the_scale(project: Project, tmp_path: Path) -> None:
    """0 of 10: the interval begins at 0, where the axis does."""
    project.count(sampled(0, 10, "recall"))
    rule = "{id: r, metric: recall, property: phi, max: 0, least_guarantee: sampled}"
    finding = project.rule(rule)
    drawing = verdict_page.draw(finding)
    assert drawing is not None
    assert (drawing.lower, drawing.thresholds, drawing.first) == ("0.000", ("0.000",), "0 %")
    assert not drawing.exact


@pytest.mark.parametrize("name", ["safety", "learnability", "classes"])
def test_the_pages_of_a_count(name: str, tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[1] / "golden" / "report" / f"{name}.html"
    shown = show(page, tmp_path, (NARROW, WIDE), ["td", "dd"])
    check_fits(shown)
    assert all(seen["selected"]["td"] for seen in shown.at.values())

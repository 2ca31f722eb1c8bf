"""`quantify transfer` as typed: answers that can be worked out by hand, evidence for the gate, pages in a browser."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from browser import show

from quantify.report.json import schema

Run = Callable[..., subprocess.CompletedProcess[str]]
NARROW, WIDE = 400, 1400
FAILED = {("day", "road"): (40, 2), ("day", "path"): (40, 8), ("night", "road"): (20, 5), ("night", "path"): (0, 0)}
"""Rows and failures by time and place; on paths at night nothing was tested."""
POLICY = """allow_approximate_methods: true
rules:
  - {{id: cost, metric: predicted_loss, table: test.csv, {more}}}
"""


@pytest.fixture
def project(here: Run, tmp_path: Path) -> Run:
    rows = [
        f"{time},{place},{int(i < failed)},{i % 2}\n" for (time, place), (n, failed) in FAILED.items() for i in range(n)
    ]
    (tmp_path / "test.csv").write_text("time,place,wrong,noise\n" + "".join(rows))
    (tmp_path / "dusk.csv").write_text(
        "place,time,noise\n" + "road,night,0\n" * 6 + "road,day,1\n" * 3 + "path,day,0\n"
    )
    (tmp_path / "dark.csv").write_text("place,time,p\nroad,night,0.6\npath,night,0.4\n")
    (tmp_path / "m.yaml").write_text("time: {day: 1/2, night: 1/2}\nplace: {road: 3/4, path: 1/4}\n")
    return here


def answer(here: Run, *more: object) -> dict[str, Any]:
    done = here("transfer", "test.csv", "--loss", "wrong", "--context", "time,place", *more, "--json", "-")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(told, schema("transfer"))
    return told


def refused(here: Run, *more: object, words: str) -> None:
    done = here("transfer", "test.csv", "--loss", "wrong", *more, "--json", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_answers_by_hand(project: Run) -> None:
    told = answer(project, "--k", 2)
    assert told["prediction"] is None
    assert (told["k"], told["k_is"], told["table"]["rows"]) == (2, "given", 100)
    assert told["loss"]["observed"] == 0.15
    assert sorted(one["feature"] for one in told["ranking"]) == ["place", "time"]
    assert [one["k"] for one in told["errors"]] == [1, 2]
    losses = {(one["values"]["time"], one["values"]["place"]): one["loss"] for one in told["contexts"]}
    assert losses == {("day", "road"): 0.05, ("day", "path"): 0.2, ("night", "road"): 0.25}
    assert told["context"] == {"features": told["context"]["features"], "tested": 3, "possible": 4}
    dusk = answer(project, "--k", 2, "--operating", "dusk.csv")["prediction"]
    assert dusk["loss"] == pytest.approx(0.6 * 0.25 + 0.3 * 0.05 + 0.1 * 0.2)
    assert (dusk["untested"], dusk["operating"]["source"], dusk["operating"]["rows"]) == (0, "rows", 10)
    dark = answer(project, "--k", 2, "--operating", "dark.csv", "--weight", "p")
    assert dark["prediction"]["loss"] == pytest.approx(0.6 * 0.25 + 0.4)
    assert (dark["prediction"]["untested"], dark["prediction"]["outside"]) == (pytest.approx(0.4), 0)
    assert dark["prediction"]["lower"] < 0.25 < 0.55 < dark["prediction"]["upper"]
    assert "untested" in {one["code"] for one in dark["warnings"]}
    product = answer(project, "--k", 2, "--marginals", "m.yaml")["prediction"]
    assert product["loss"] == pytest.approx((3 * 0.05 + 0.2 + 3 * 0.25 + 1) / 8)
    assert product["untested"] == 1 / 8
    # All columns but the loss, and the same again.
    every = project("transfer", "test.csv", "--loss", "wrong", "--json", "-").stdout
    assert {one["feature"] for one in json.loads(every)["ranking"]} == {"time", "place", "noise"}
    assert every == project("transfer", "test.csv", "--loss", "wrong", "--json", "-").stdout
    assert every != project("transfer", "test.csv", "--loss", "wrong", "--json", "-", "--seed", 1).stdout


def test_the_index_of_pandas_and_the_rule_are_told(project: Run, tmp_path: Path) -> None:
    lines = (tmp_path / "test.csv").read_text().splitlines()
    (tmp_path / "test.csv").write_text(
        "\n".join([f",{lines[0]}", *(f"{i},{line}" for i, line in enumerate(lines[1:]))])
    )
    done = project("transfer", "test.csv", "--loss", "wrong", "--choose", "least", "--json", "told.json")
    assert done.returncode == 0, done.stderr
    assert "the first column, which has no name, numbers the rows" in done.stdout
    told = json.loads((tmp_path / "told.json").read_text())
    jsonschema.validate(told, schema("transfer"))
    assert (told["skipped"], told["k_is"]) == ([""], "least error")
    assert {one["feature"] for one in told["ranking"]} == {"time", "place", "noise"}
    done = project("slices", "test.csv", "--metric", "rate", "--column", "wrong", "--json", "told.json")
    assert done.returncode == 0, done.stderr
    assert "the first column, which has no name, numbers the rows" in done.stdout
    told = json.loads((tmp_path / "told.json").read_text())
    jsonschema.validate(told, schema("slices"))
    assert told["skipped"] == [""]
    assert {one["attribute"] for one in told["subbasis"]} == {"time", "place", "noise"}


def test_the_terminal_says_the_same(project: Run) -> None:
    domain = ("--context", "time,place", "--k", 2, "--operating", "dark.csv", "--weight", "p")
    done = project("transfer", "test.csv", "--loss", "wrong", *domain)
    assert done.returncode == 0
    for words in ("0.55", "approximate", "40 %", "K = 2 (given)", "untested: 40 %", "maximum loss", "no context"):
        assert words in done.stdout, words
    assert project("transfer", "test.csv", "--loss", "wrong", "--quiet").stdout == ""


def test_the_gate_decides_by_a_predicted_loss(project: Run, tmp_path: Path) -> None:
    record = ("--k", 2, "--record", "--quiet")
    told = answer(project, "--operating", "dusk.csv", *record)["prediction"]
    policy = tmp_path / "release.yaml"
    for more, outcome in (
        (f"max: {told['upper'] + 0.001:.6f}", 0),
        (f"max: {told['lower'] - 0.001:.6f}", 1),
        (f"max: {told['loss']:.6f}", 3),
        (f"max: {told['upper'] + 0.001:.6f}, group: dusk.csv", 0),
        ("max: 1, group: dawn.csv", 3),
        ("max: 1, min_support: 101", 3),
        ("max: 1, confidence: 0.99", 3),
    ):
        policy.write_text(POLICY.format(more=more))
        done = project("gate", "release.yaml")
        assert done.returncode == outcome, (more, done.stdout, done.stderr)
    policy.write_text(POLICY.format(more="max: 1").partition("\n")[2])
    done = project("gate", "release.yaml")
    assert (done.returncode, "MANUAL_REVIEW" in done.stdout) == (3, True)
    # A second operating domain: a rule must say which one it means.
    answer(project, "--operating", "dark.csv", "--weight", "p", *record)
    policy.write_text(POLICY.format(more="max: 1"))
    done = project("gate", "release.yaml")
    assert done.returncode == 2
    assert "'wrong in dusk.csv', 'wrong in dark.csv'" in done.stderr
    # Two rules of 95 % need intervals of 97.5 % each.
    for domain in (("dusk.csv",), ("dark.csv", "--weight", "p")):
        answer(project, "--operating", *domain, *record, "--confidence", "0.98")
    for more, outcome in (("max: 0.6, group: dusk.csv", 0), ("max: 0.6, groups: all", 3), ("max: 1, groups: all", 0)):
        policy.write_text(POLICY.format(more=more))
        assert project("gate", "release.yaml").returncode == outcome, more
    # A loss of more than 1 is no share, and decides as well.
    (tmp_path / "cost.csv").write_text("cost,time,time2\n" + "3,day,0\n1,night,1\n" * 50)
    (tmp_path / "all.csv").write_text("time,time2,cost\n" + "day,0,1\n" * 50)
    of = ("--loss", "cost", "--context", "time")
    done = project("transfer", "cost.csv", *of, "--operating", "all.csv", "--max-loss", "9", *record[2:])
    assert done.returncode == 0, done.stderr
    policy.write_text(POLICY.replace("test.csv", "cost.csv").format(more="min: 2.5, max: 4"))
    assert project("gate", "release.yaml").returncode == 0
    # Another loss of the same table is not mistaken for this one, whichever was predicted last.
    assert project("transfer", "cost.csv", "--loss", "time2", "--operating", "all.csv", *record[2:]).returncode == 0
    done = project("gate", "release.yaml")
    assert (done.returncode, "'cost in all.csv', 'time2 in all.csv'" in done.stderr) == (2, True)
    assert "a table" in done.stderr
    (tmp_path / "all.csv").write_text("time\n" + "night\n" * 50)
    done = project("gate", "release.yaml")
    assert (done.returncode, "stale" in done.stdout, "all.csv" in done.stdout) == (3, True, True)
    assert project("evidence", "verify").returncode == 0


def test_bad_input_is_one_error(project: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "gap.csv").write_text("time,place,wrong\nday,road,\nday,road,1\n")
    refused(project, "--context", "tine", words="did you mean 'time'")
    refused(project, "--operating", "dusk.csv", "--marginals", "m.yaml", words="once")
    refused(project, "--weight", "p", words="--operating")
    refused(project, "--record", words="nothing is predicted")
    refused(project, "--operating", "nowhere.csv", words="nowhere.csv")
    refused(project, "--operating", "empty.csv", words="empty")
    refused(project, "--max-loss", "0.5", words="a loss of 1")
    refused(project, "--html", "no/page.html", words="mkdir -p no")
    refused(project, "--k", 1, "--choose", "least", words="give one of them")
    done = project("transfer", "gap.csv", "--loss", "wrong")
    assert (done.returncode, "row 0: there is no loss" in done.stderr) == (2, True)
    assert not (tmp_path / ".quantify").exists()


@pytest.mark.needs("chromium")
def test_the_page_in_a_browser(project: Run, tmp_path: Path) -> None:
    told = answer(project, "--k", 2, "--operating", "dark.csv", "--weight", "p", "--html", "page.html")
    selectors = ["figcaption", "svg text", "svg .cell", "svg .dot", "td", "dd"]
    shown = show(tmp_path / "page.html", tmp_path, (NARROW, WIDE), selectors)
    assert shown.asked == []
    assert set(shown.at) == {NARROW, WIDE}
    for seen in shown.at.values():
        assert seen["scroll"] <= seen["client"]
        assert seen["cut"] == []
        for found in seen["selected"].values():
            assert found
            assert all(one["size"] >= 12 for one in found)
        picked = {name: [one["text"] for one in found] for name, found in seen["selected"].items()}
        assert sum(text.startswith("Loss g") for text in picked["figcaption"]) == 1
        # The drawing is scaled as a whole: its letters are never below 11 pixels high on the screen.
        assert all(one["height"] >= 11 for one in seen["selected"]["svg text"] if "transform" not in one["attributes"])
        drawn = [text for text in picked["svg .cell"] if text.endswith((": 0.05", ": 0.2", ": 0.25", ": untested"))]
        wanted = {"day": {"road": "0.05", "path": "0.2"}, "night": {"road": "0.25", "path": "untested"}}
        first, second = told["context"]["features"]
        for time, places in wanted.items():
            for place, value in places.items():
                labels = {"time": time, "place": place}
                assert f"{labels[second]}, {labels[first]}: {value}" in drawn
        assert "What this cannot tell you" in seen["text"]
    whole = show(tmp_path / "page.html", tmp_path, (WIDE,), ["details pre"]).at[WIDE]
    (pre,) = whole["selected"]["details pre"]
    assert json.loads(pre["text"]) == told

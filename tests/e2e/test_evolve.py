"""`quantify evolve` as typed, on selectors whose mistakes are known."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from browser import show

from quantify.dataset import packing
from quantify.dataset.packing import Packing
from quantify.report.json import schema

Run = Callable[..., subprocess.CompletedProcess[str]]
SUPPORT = Path(__file__).resolve().parents[1] / "support"
QUICK = ("--runs", 2, "--generations", 15, "--population", 10, "--screen", 20, "--screen-p-init", 0.01)


@pytest.fixture
def project(here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The toy selectors as a user's module, and 12 instances."""
    monkeypatch.delitem(sys.modules, "toy_selectors", raising=False)
    shutil.copy(SUPPORT / "toy_selectors.py", tmp_path / "toy_selectors.py")
    np.save(tmp_path / "instances.npy", packing.generate(12, 120, 1, balance="search", steps=300)[0])
    return here


def answer(here: Run, name: str, *more: object, code: int = 0, instances: str = "instances.npy") -> dict[str, Any]:
    done = here("evolve", "--callable", f"toy_selectors:{name}", "--instances", instances, "--json", "-", *QUICK, *more)
    assert done.returncode == code, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(told, schema("evolve"))
    return told


def refused(here: Run, arguments: tuple[object, ...], *words: str) -> None:
    done = here("evolve", *arguments, *QUICK)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    for word in words:
        assert word in done.stderr


def test_planted_mistakes_are_reported_written_and_judged(project: Run, tmp_path: Path) -> None:
    told = answer(project, "planted", "--found", "found.npz", "--html", "page.html", "--record", "--generations", 40,
                  "--p-init", 0.01)  # fmt: skip
    instances = np.load(tmp_path / "instances.npy")
    even = instances[:, :2].sum(axis=1) % 2 == 0
    assert [one["row"] for one in told["instances"]] == np.flatnonzero(even).tolist()
    assert told["excluded"] == [{"row": int(row), "reason": "misclassified"} for row in np.flatnonzero(~even)]
    classes = told["summary"]["classes"]
    assert sum(classes.values()) == even.sum()
    assert classes["perturbable"] >= 2
    assert classes == {name: sum(one["class"] == name for one in told["instances"]) for name in classes}
    rate = told["summary"]["adversarial_rate"]
    assert (rate["hits"], rate["instances"]) == (classes["fragile"] + classes["perturbable"], even.sum())
    assert rate["lower"] <= rate["hits"] / rate["instances"] <= rate["upper"]
    # Every adversarial instance that was written is one: clipped, solved again, and read by the planted rule.
    found = np.load(tmp_path / "found.npz")
    assert set(found["row"].tolist()) == {one["row"] for one in told["instances"] if one["class"] != "robust"}
    assert (found["original"] == instances[found["row"]]).all()
    assert (np.clip(found["original"] + found["mask"], 20, 100) == found["instance"]).all()
    assert set(np.unique(found["mask"]).tolist()) <= {-1, 0, 1}
    assert (found["instance"][:, :2].sum(axis=1) % 2 == 1).all()
    assert (Packing().recheck(found["instance"]) == found["winner"]).all()
    assert (found["scores"].argmax(axis=1) == found["predicted"]).all()
    assert (found["predicted"] == 1 - found["winner"]).all()
    assert np.allclose(found["fitness"], 0.8)
    page = (tmp_path / "page.html").read_text()
    assert page.count('<figure class="plot">') >= 3
    # The gate decides by the rate.
    (tmp_path / "policy.yaml").write_text(
        "rules:\n  - {id: robust, metric: adversarial_rate, table: instances.npy, max: 0.999, confidence: 0.5}\n"
        "  - {id: fragile, metric: adversarial_rate, table: instances.npy, min: 0.001, confidence: 0.5}\n"
    )
    done = project("gate", "policy.yaml")
    assert "never_measured" not in done.stdout
    assert done.returncode in (0, 3)
    with (tmp_path / "toy_selectors.py").open("a") as file:
        file.write("# another selector now\n")
    assert "stale" in project("gate", "policy.yaml").stdout


def test_text_says_what_json_says(project: Run) -> None:
    told = answer(project, "smooth")
    done = project("evolve", "--callable", "toy_selectors:smooth", "--instances", "instances.npy", *QUICK)
    assert done.returncode == 0
    classes, rate = told["summary"]["classes"], told["summary"]["adversarial_rate"]
    assert f"{rate['hits']} of {rate['instances']}:" in done.stdout
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("all "))
    assert [int(word) for word in line.replace("%)", "").split() if word.isdigit()] == list(classes.values())
    assert f"{told['summary']['unique']['total']:,}" in done.stdout
    assert "no proof" in done.stdout


def test_workers_and_seeds(project: Run) -> None:
    alone = answer(project, "smooth", "--jobs", 1, "--seed", 3)
    assert answer(project, "smooth", "--jobs", 2, "--seed", 3) == alone
    assert answer(project, "smooth", "--jobs", 1, "--seed", 4)["instances"] != alone["instances"]


def test_generated_instances(project: Run) -> None:
    told = answer(project, "constant", "--seed", 7, instances="ds2:8")
    assert (told["data"]["instances"], told["data"]["length"], told["data"]["sha256"]) == (8, 120, None)
    assert told["summary"]["excluded"]["misclassified"] == 4  # half are won by first fit, which `constant` never says
    assert {one["winner"] for one in told["instances"]} == {"best_fit"}
    assert answer(project, "constant", "--stop-at-first", instances="ds4:2:search")["data"]["length"] == 250


def test_solvers_in_the_other_order(project: Run) -> None:
    told = answer(project, "constant", "--solvers", "first_fit,best_fit")
    assert {one["winner"] for one in told["instances"]} == {"first_fit"}


def test_a_domain_of_the_users_own(project: Run, tmp_path: Path) -> None:
    rows = np.array([[1, 1, 2], [1, 2, 4], [0, 0, 0], [9, 9, 8]])
    np.save(tmp_path / "rows.npy", rows)
    told = answer(project, "says_even", "--domain", "toy_selectors:even_first", "--screen", 0, "--p-init", 0.2,
                  instances="rows.npy")  # fmt: skip
    assert told["domain"]["name"] == "parity"
    assert told["excluded"] == [{"row": 1, "reason": "misclassified"}, {"row": 2, "reason": "tie"}]
    # One more or one less anywhere makes the sum odd, which the selector never says.
    assert [(one["row"], one["class"], one["type"]) for one in told["instances"]] == [
        (0, "perturbable", "T2"),
        (3, "perturbable", "T2"),
    ]
    assert told["instances"][0]["best_fitness"] == pytest.approx(0.2)


def test_a_limit_leaves_a_partial_answer_that_a_checkpoint_completes(project: Run, tmp_path: Path) -> None:
    whole = answer(project, "smooth", "--jobs", 1)
    cut = answer(project, "smooth", "--timeout", 1e-9, "--checkpoint", "c", code=3)
    assert not cut["complete"]
    assert len(cut["unfinished"]) == len(whole["instances"])
    rate = cut["summary"]["adversarial_rate"]
    assert (rate["lower"], rate["upper"], rate["unknown"]) == (0, 1, len(whole["instances"]))
    assert answer(project, "smooth", "--jobs", 2, "--checkpoint", "c") == whole
    arguments = ("--callable", "toy_selectors:smooth", "--instances", "instances.npy", "--checkpoint", "c", "--seed", 9)
    refused(project, arguments, "the seed differs")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_search_that_is_interrupted_goes_on(project: Run, tmp_path: Path, how: signal.Signals) -> None:
    arguments = ["evolve", "--callable", "toy_selectors:smooth", "--instances", "instances.npy", "--runs", "4",
                 "--generations", "200", "--population", "20", "--screen", "0", "--jobs", "2"]  # fmt: skip
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    running = subprocess.Popen(
        [sys.executable, "-P", "-m", "quantify", *arguments, "--checkpoint", "c", "--json", "cut.json"],
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    # Until some runs are kept: the file of a search without any is five pages long.
    while running.poll() is None and not ((tmp_path / "c").exists() and (tmp_path / "c").stat().st_size > 30_000):
        time.sleep(0.02)
    running.send_signal(how)
    code = running.wait(timeout=240)
    if how == signal.SIGINT:
        assert code in (0, 3)  # 0: it was done already
        cut = json.loads((tmp_path / "cut.json").read_text())
        jsonschema.validate(cut, schema("evolve"))
    end = time.monotonic() + 60
    while (left := [*temporary.glob("quantify-*")]) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left
    assert project(*arguments, "--checkpoint", "c", "--json", "resumed.json", "--quiet").returncode == 0
    assert project(*arguments, "--json", "whole.json", "--quiet").returncode == 0
    assert json.loads((tmp_path / "resumed.json").read_text()) == json.loads((tmp_path / "whole.json").read_text())


def test_bad_input(project: Run, tmp_path: Path) -> None:
    callable_ = ("--callable", "toy_selectors:oracle")
    refused(project, (*callable_, "--instances", "no.npy"), "there is no such file", "ds2:100")
    (tmp_path / "text.npy").write_text("1,2,3")
    refused(project, (*callable_, "--instances", "text.npy"), "not a .npy file")
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY\x01")
    refused(project, (*callable_, "--instances", "cut.npy"), "not a .npy file: ")
    (tmp_path / "cut.npz").write_bytes(b"PK")
    refused(project, (*callable_, "--instances", "cut.npz"), "several arrays")
    for name in ("ds3:20", "ds2:two", "ds2:-3"):
        refused(project, (*callable_, "--instances", name), f"{name}: no name of a set", "ds2:100")
    refused(project, (*callable_, "--instances", "ds2:2", "--elite", "999"), "--elite 999", "--population")
    (tmp_path / "empty.npy").write_bytes(b"")
    refused(project, (*callable_, "--instances", "empty.npy"), "not a .npy file")
    for name, array, word in [
        ("flat", np.arange(5), "shape (5,)"),
        ("none", np.empty((0, 5), int), "shape (0, 5)"),
        ("nan", np.array([[50, np.nan]]), "row 0, item 1 is nan"),
        ("half", np.array([[50, 50.5]]), "row 0, item 1 is 50.5"),
        ("huge", np.array([[50, 2**40]]), "row 0, item 1 is"),
        ("words", np.array([["a", "b"]]), "no type of numbers"),
        ("objects", np.array([[{}]], object), "Python objects"),
        ("range", np.array([[50, 50], [50, 101]]), "row 1, item 1: a size of 101"),
    ]:
        np.save(tmp_path / f"{name}.npy", array)
        refused(project, (*callable_, "--instances", f"{name}.npy"), word)
    np.savez(tmp_path / "two.npz", a=np.ones((2, 2)))
    refused(project, (*callable_, "--instances", "two.npz"), "several arrays")
    good = ("--instances", "instances.npy")
    refused(project, good, "give either MODEL or --callable")
    refused(project, ("--callable", "toy_selectors", *good), "module:name")
    refused(project, ("--callable", "no_such_module:f", *good), "cannot be imported", "no_such_module")
    refused(project, ("--callable", "toy_selectors:nothing", *good), "cannot be imported", "nothing")
    refused(project, ("--callable", "toy_selectors:SUPPORT", *good), "cannot be imported")
    refused(project, ("--callable", "toy_selectors:broken", *good), "no two probabilities")
    refused(project, ("--callable", "toy_selectors:failing", *good), "RuntimeError: out of order")
    refused(project, (*callable_, *good, "--solvers", "best_fit"), "--solvers best_fit")
    refused(project, (*callable_, *good, "--solvers", "best_fit,worst_fit"), "worst_fit")
    refused(project, (*callable_, *good, "--sizes", "20-100"), "--sizes 20:100")
    refused(project, (*callable_, *good, "--sizes", "20:200"), "sizes from 20 to 200 in bins of 150")
    refused(project, (*callable_, "--instances", "ds2:0"), "no instances")
    refused(project, (*callable_, *good, "--checkpoint", "no/c"), "there is no folder")
    refused(project, (*callable_, *good, "--found", "no/f.npz"), "there is no folder")
    refused(project, (*callable_, "--instances", "ds2:5", "--domain", "toy_selectors:even_first"), "bin packing")
    refused(project, (*callable_, *good, "--domain", "toy_selectors:oracle"), "it has no check")
    (tmp_path / "wrong.py").write_text(
        "from toy_selectors import EvenFirst, np\n"
        "class W(EvenFirst):\n    def winners(self, x): return np.full(len(x), 7)\nw = W()\n"
        "class P(EvenFirst):\n    def perturb(self, x, m): return x\np = P()\n"
    )
    np.save(tmp_path / "rows.npy", np.array([[1, 1, 2]]))
    own = ("--callable", "toy_selectors:says_even", "--instances", "rows.npy")
    refused(project, (*own, "--domain", "wrong:w"), "return one of 0, 1 and -1")
    refused(project, (*own, "--domain", "wrong:p"), "perturb gives int64 of shape (3,)")
    np.save(tmp_path / "negative.npy", np.array([[1, -1, 2]]))
    refused(
        project, (*own[:2], "--instances", "negative.npy", "--domain", "toy_selectors:even_first"), "a negative number"
    )


@pytest.mark.needs("chromium")
def test_the_page_fits_and_says_what_json_says(project: Run, tmp_path: Path) -> None:
    told = answer(project, "smooth", "--jobs", 1, "--html", "page.html")
    shown = show(tmp_path / "page.html", tmp_path, (400, 1400), ("figure", "td", "details pre"))
    assert shown.asked == []
    for width, seen in shown.at.items():
        assert seen["scroll"] <= seen["client"] <= width
        assert seen["cut"] == []
        (pre,) = seen["selected"]["details pre"]
        assert json.loads(pre["text"]) == told
        assert len(seen["selected"]["figure"]) >= 3
        cells = [cell["text"] for cell in seen["selected"]["td"]]
        assert all(f"{one['best_fitness']:.4f}" in cells for one in told["instances"])
        assert f"{told['summary']['unique']['total']:,}" in cells

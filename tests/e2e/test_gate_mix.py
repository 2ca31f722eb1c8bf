"""One policy over all kinds of evidence: counted, sliced, transferred and evolved."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from quantify.dataset import packing

Run = Callable[..., subprocess.CompletedProcess[str]]
SUPPORT = Path(__file__).resolve().parents[1] / "support"
PROPERTY = """property: safety
name: large-is-one
domain:
  features:
    - {name: u, type: int, min: 0, max: 99}
    - {name: v, type: int, min: 0, max: 9}
assume: "u >= 40"
assert: "label == '1'"
"""
RULES = {
    # id: (metric, what it is about, a threshold that passes, one that fails); values are worked out in the test below
    "unsafe": ("violation", "property: large-is-one", "max: 1/6", "max: 0.16"),
    "worst": ("worst_slice_accuracy", "table: test.csv", "min: 0.4", "min: 0.9"),
    "even": ("incon_k", "table: test.csv", "max: 0.2", "max: 0.05"),
    "abroad": ("predicted_loss", "table: test.csv", "max: 0.4", "max: 0.1"),
    "attacked": ("adversarial_rate", "table: instances.npy", "max: 0.9", "max: 0"),
}


@pytest.fixture
def recorded(here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """One record of each kind.

    The tree says 1 from u = 50 on: of the 600 inputs with u ≥ 40 it gets 100 wrong, a sixth. In the table 1 in 10 is
    wrong by day and 3 in 10 by night; half of it is by night, and all of where it goes four times in five. The selector
    never errs.
    """
    monkeypatch.delitem(sys.modules, "toy_selectors", raising=False)
    x = np.stack(np.meshgrid(np.arange(100.0), np.arange(10.0)), axis=-1).reshape(-1, 2)
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(DecisionTreeClassifier().fit(x, x[:, 0] >= 50)))
    tree = pickle.loads((tmp_path / "m.pkl").read_bytes())
    tree.classes_ = np.array([0, 1])
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(tree))
    (tmp_path / "property.yaml").write_text(PROPERTY)
    wrong = [(time, int(place % 10 < share)) for time, share in (("day", 1), ("night", 3)) for place in range(400)]
    rows = [f"{time},{loss},{place % 2},{(place + loss) % 2}\n" for place, (time, loss) in enumerate(wrong)]
    (tmp_path / "test.csv").write_text("time,loss,label,said\n" + "".join(rows))
    (tmp_path / "abroad.csv").write_text("time\n" + "night\n" * 400 + "day\n" * 100)
    shutil.copy(SUPPORT / "toy_selectors.py", tmp_path / "toy_selectors.py")
    np.save(tmp_path / "instances.npy", packing.generate(12, 120, 1, balance="search", steps=300)[0])
    for words in (
        ("count", "m.pkl", "--property", "property.yaml"),
        ("slices", "test.csv", "--label", "label", "--pred", "said", "--attributes", "time", "--incon-k", 400),
        ("transfer", "test.csv", "--loss", "loss", "--context", "time", "--k", 1, "--operating", "abroad.csv",
         "--confidence", "0.99"),
        ("evolve", "--callable", "toy_selectors:oracle", "--instances", "instances.npy", "--runs", 2,
         "--generations", 5, "--population", 6, "--screen", 5),
    ):  # fmt: skip
        done = here(*words, "--record", "--quiet")
        assert done.returncode == 0, (words, done.stderr)
    return here


def judge(here: Run, folder: Path, failing: str = "") -> tuple[int, dict[str, str]]:
    """Exit code and the outcome of each rule, with the threshold of one rule such that it fails."""
    lines = ["allow_approximate_methods: true", "rules:"]
    for name, (metric, about, passes, fails) in RULES.items():
        lines.append(f"  - {{id: {name}, metric: {metric}, {about}, {fails if name == failing else passes}}}")
    (folder / "release.yaml").write_text("\n".join(lines) + "\n")
    done = here("gate", "release.yaml", "--json", "-")
    told = json.loads(done.stdout)
    return done.returncode, {rule["id"]: rule["outcome"] for rule in told["rules"]}


def test_one_policy_decides_by_counted_sliced_transferred_and_evolved_evidence(recorded: Run, tmp_path: Path) -> None:
    code, outcomes = judge(recorded, tmp_path)
    assert (code, outcomes) == (0, dict.fromkeys(RULES, "PASS"))
    for name in RULES:
        code, outcomes = judge(recorded, tmp_path, failing=name)
        if name == "attacked":  # no sample proves that nothing at all can be attacked
            assert (code, outcomes[name]) == (3, "INSUFFICIENT_EVIDENCE")
        else:
            assert (code, outcomes[name]) == (1, "FAIL"), name
        assert all(outcome == "PASS" for other, outcome in outcomes.items() if other != name)

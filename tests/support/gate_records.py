"""Records of evidence made by hand, and the verdict of a policy on them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from quantify.evidence import records
from quantify.evidence.proportions import proportion
from quantify.evidence.store import Damage, Stored
from quantify.gate import decide, policy
from quantify.ir.count import Guarantee
from quantify.ir.record import DataRef, Draws, ModelRef, PropertyRef, Reading, Record
from quantify.ir.verdict import Finding, Verdict

WHEN = "2026-01-02T03:04:05+00:00"
F = Fraction


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def exact(value: Fraction, metric: str = "violation", subject: str = "phi", **more: Any) -> Reading:
    return Reading(metric, "property", subject, value, value, value, Guarantee.EXACT, **more)


def bounds(lower: Fraction, upper: Fraction, metric: str = "violation", **more: Any) -> Reading:
    return Reading(metric, "property", "phi", lower, upper, (lower + upper) / 2, Guarantee.BOUNDS, **more)


def sampled(hits: int, draws: int, metric: str = "violation", subject: str = "phi", **more: Any) -> Reading:
    return proportion(metric, "property", subject, Draws(hits, draws), **more)


def pac(value: Fraction, epsilon: Fraction, delta: Fraction, metric: str = "violation") -> Reading:
    """The ratio of two (ε, δ) counts."""
    odds, factor = value / (1 - value), (1 + epsilon) ** 2
    low, high = odds / factor, odds * factor
    return Reading(
        metric, "property", "phi", low / (1 + low), high / (1 + high), value, Guarantee.PAC,
        risk=2 * delta, epsilon=epsilon, delta=delta, sides=2,
    )  # fmt: skip


class Project:
    """A folder with a model, a property file and a store of records made by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stored: list[Stored] = []
        self.damages: list[Damage] = []
        for name in ("model.pkl", "phi.yaml", "cases.jsonl", "training.csv"):
            (folder / name).write_text(f"the content of {name}")

    def ref(self, role: str, name: str) -> DataRef:
        return DataRef(role, str(self.folder / name), sha(self.folder / name))

    def count(self, *readings: Reading, model: str = "model.pkl", prop: str = "phi.yaml", **more: Any) -> str:
        path, file = self.folder / model, self.folder / prop
        return self.add(
            "count",
            *readings,
            model=ModelRef(str(path), sha(path), "tree"),
            property=PropertyRef(readings[0].subject, str(file), sha(file)),
            **more,
        )

    def run(self, *readings: Reading, **more: Any) -> str:
        path = self.folder / "model.pkl"
        data = more.pop("data", (self.ref("cases", "cases.jsonl"),))
        return self.add("run", *readings, model=ModelRef(str(path), sha(path), "tree"), data=data, **more)

    def leakage(
        self, status: str = "ok", cases: str = "cases.jsonl", training: str = "training.csv", **more: Any
    ) -> str:
        data = (self.ref("cases", cases), self.ref("training", training))
        return self.add("leakage", status=status, data=data, **more)

    def add(self, kind: str, *readings: Reading, **more: Any) -> str:
        record = Record(kind, WHEN, {"version": "1"}, tuple(readings), **more)  # type: ignore[arg-type]
        digest = records.digest(record)
        self.stored = [one for one in self.stored if one.digest != digest] + [Stored(digest, record)]
        return digest

    def judge(self, text: str) -> Verdict:
        path = self.folder / "release.yaml"
        path.write_text(text, encoding="utf-8")
        return decide.judge(policy.load(path), self.stored, self.damages, Path("e.db"))

    def rule(self, rule: str, top: str = "") -> Finding:
        """The one finding of a policy with one rule."""
        (finding,) = self.judge(f"{top}\nrules:\n  - {rule}\n").findings
        return finding

    def rules(self, rules: Sequence[str], top: str = "") -> dict[str, Finding]:
        text = "".join(f"  - {rule}\n" for rule in rules)
        return {
            finding.rule if finding.group is None else f"{finding.rule}/{finding.group}": finding
            for finding in self.judge(f"{top}\nrules:\n{text}").findings
        }

"""Evidence by hand, one of each kind, for the tests of the reports."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from quantify.evidence.rates import metrics
from quantify.ir.count import Count, Guarantee
from quantify.ir.evidence import CaseEvidence, Check, CnfEvidence, Evidence, Witness

DIGEST = "0123456789abcdef" * 4
DIGITS = 30_000
HOSTILE = "<script>alert('x')</script>"


def exact(number: int, engine: str = "boxes", seconds: float = 0.0012) -> Count:
    return Count(number, number, Guarantee.EXACT, engine, seconds, DIGEST)


def bounds(lower: int, upper: int) -> Count:
    return Count(lower, upper, Guarantee.BOUNDS, "bdd", 10.04, DIGEST, note="the time limit was reached")


def pac(estimate: int) -> Count:
    return Count(
        estimate * 5 // 9, estimate * 9 // 5, Guarantee.PAC, "cnf", 3.5, DIGEST,
        seed=7, epsilon=Fraction(4, 5), delta=Fraction(1, 5), estimate=estimate,
    )  # fmt: skip


def sampled(lower: int, upper: int, estimate: int) -> Count:
    return Count(
        lower, upper, Guarantee.SAMPLED, "sample", 0.25, DIGEST,
        seed=0, confidence=Fraction(95, 100), samples=1_000_000, hits=1234, estimate=estimate,
    )  # fmt: skip


def evidence(kind: str, cases: tuple[CaseEvidence, ...], size: int, **changes: object) -> Evidence:
    made = Evidence(
        model={
            "path": "model.pkl", "sha256": DIGEST, "kind": "tree", "classes": ["0", "1"], "features": 4, "leaves": 12,
            "library": "scikit-learn 1.9.0",
        },
        property={
            "name": f"my {kind}", "kind": kind, "sha256": DIGEST, "path": "property.yaml",
            "positive": None, "norm": None,
        },
        domain={"size": size, "measure": "uniform", "source": "", "features": 4},
        cases=cases,
        checks=(Check("fidelity", "ok", "the tree and predict agree on 10,000 draws and 48 points at thresholds"),),
        seconds=0.42,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def case(kind: str, counts: dict[str, Count], total: int, **changes: object) -> CaseEvidence:
    made = CaseEvidence(counts, total, metrics(kind, counts, total), engine_reason="boxes: 12 leaves, ~0.001 s")  # type: ignore[arg-type]
    return replace(made, **changes)  # type: ignore[arg-type]


def safety() -> Evidence:
    total = 10**12
    counts = {"satisfied": exact(total - 3), "violated": exact(3)}
    shown = Witness("violated", {"rho": 250, "theta": 0.2, "kind": "red", "age": None}, "1")
    return evidence(
        "safety",
        (case("safety", counts, total, witnesses=(shown,)),),
        total,
        checks=(
            Check("fidelity", "ok", "agrees with predict on 10,000 draws"),
            Check("partition boxes", "ok", "satisfied + violated = 1,000,000,000,000, the whole region"),
            Check("cross-check cnf", "skipped", "CBMC is not installed"),
        ),
    )


def learnability() -> Evidence:
    counts = {"tp": exact(11_000), "fp": exact(2_000), "tn": exact(52_436), "fn": exact(100)}
    made = evidence("learnability", (case("learnability", counts, 65_536),), 65_536)
    return replace(made, property=made.property | {"positive": "1"})


def learnability_by_label() -> Evidence:
    cells = {"tp": exact(0), "fp": exact(0), "tn": exact(9), "fn": exact(7)}
    counts = {f"{label}/{cell}": count for label in ("a/b", "c") for cell, count in cells.items()}
    return evidence("learnability", (case("learnability", counts, 16),), 16)


def classes() -> Evidence:
    counts = {"red": exact(10), HOSTILE: exact(6), "never": exact(0)}
    made = evidence("classes", (case("classes", counts, 16),), 16)
    hostile = Witness("red", {HOSTILE: HOSTILE}, HOSTILE)
    return replace(
        made,
        cases=(replace(made.cases[0], witnesses=(hostile,)),),
        model=made.model | {"path": HOSTILE, "classes": list(counts)},
        property=made.property | {"name": HOSTILE},
        checks=(Check(HOSTILE, "warning", HOSTILE),),
    )


def robustness() -> Evidence:
    cases = []
    for row, epsilon, missing in ((0, 1, 0), (1, 1, 3), (2, 1, 3**783), (0, 2, 0)):
        total = (2 * epsilon + 1) ** 784
        counts = {"robust": exact(total - missing, seconds=7e-7)}
        cases.append(case("robustness", counts, total, row=row, label=str(row), epsilon=Fraction(epsilon)))
    total = 5**784
    open_case = {"robust": bounds(4 * 5**783, total - 1)}
    cases.append(case("robustness", open_case, total, row=1, label="1", epsilon=Fraction(2)))
    features = {f"px_{i}": i % 256 for i in range(784)}
    cases[1] = replace(cases[1], witnesses=(Witness("fragile", features, "7", {"px_3": 4, "px_700": 189}),))
    made = evidence("robustness", tuple(cases), 256**784, complete=False)
    return replace(made, property=made.property | {"norm": "linf"}, model=made.model | {"features": 784})


def weighted() -> Evidence:
    scale = 3**40
    counts = {"satisfied": exact(3**39), "violated": exact(2 * 3**39)}
    made = evidence("safety", (case("safety", counts, scale),), 2**40, scale=scale)
    return replace(made, domain=made.domain | {"measure": "product", "source": "weights of data.csv"})


def approximate() -> Evidence:
    counts = {"satisfied": pac(9_000_000), "violated": sampled(10, 30, 20)}
    return evidence("safety", (case("safety", counts, 2**24),), 2**24)


def vacuous() -> Evidence:
    counts = {"satisfied": exact(0), "violated": exact(0)}
    check = Check("vacuous", "vacuous", "no input meets the assumption: the property says nothing")
    return evidence("safety", (case("safety", counts, 100),), 100, checks=(check,))


def enormous() -> Evidence:
    total = 10**DIGITS
    counts = {"satisfied": exact(total - 1), "violated": exact(1)}
    return evidence("safety", (case("safety", counts, total),), total)


def cnf() -> CnfEvidence:
    formula: dict[str, object] = {
        "path": "f.cnf.gz", "sha256": DIGEST, "variables": 5000, "clauses": 20_000, "projection": 300,
    }  # fmt: skip
    count = Count(2**300 - 5, 2**300 - 5, Guarantee.PROB_EXACT, "ganak", 1.5, "", delta=Fraction(1, 10**9), seed=1)
    return CnfEvidence(formula, count, (Check("calibration", "ok", "26 formulas"),), seconds=1.6)


EVERY = {
    made.__name__: made
    for made in (
        safety, learnability, learnability_by_label, classes, robustness, weighted, approximate, vacuous, enormous,
    )
}  # fmt: skip

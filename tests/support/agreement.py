"""What must agree with a drawn problem: evaluators, engines, samples, evidence, rates and witnesses."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from drawn_problems import Mask
from drawn_problems import Problem as Drawn
from numpy.typing import NDArray

from quantify import engines, pipeline
from quantify.ir.count import Count, Guarantee
from quantify.ir.domain import CategoricalFeature
from quantify.ir.problem import GridCase
from quantify.properties import evaluate as exact
from quantify.resources import Limits, Progress

SURE = 1 - Fraction(1, 10**9)
ROWS = 40
"""Inputs a query at which the slow evaluator of expressions is asked."""


def prepared(drawn: Drawn) -> pipeline.Prepared:
    """What the pipeline makes of a problem's files (fidelity check included)."""
    ready = pipeline.prepare(drawn.model, drawn.property, pipeline.Options(), Progress())
    assert [feature.name for feature in ready.problem.domain] == [feature.name for feature in drawn.features], drawn
    assert len(ready.grid.cases) == len(drawn.cases), drawn
    for case, wanted in zip(ready.grid.cases, drawn.cases, strict=True):
        assert {query.name for query in case.queries} == set(wanted), drawn
    return ready


def placed(drawn: Drawn, ready: pipeline.Prepared) -> NDArray[np.int64]:
    """The drawn inputs as positions of the domain (wider than what was drawn when it comes from a data file)."""
    offsets = []
    for ours, theirs in zip(drawn.features, ready.problem.domain, strict=True):
        first = ours.meanings[0]
        at = theirs.position(first) if isinstance(first, Fraction) else 0
        assert at is not None, drawn
        offsets.append(at)
        if isinstance(theirs, CategoricalFeature):
            assert theirs.values == tuple(m for m in ours.meanings if m is not None), drawn
    return drawn.positions + np.array(offsets, np.int64)


def scale(ready: pipeline.Prepared) -> int:
    """What counts are out of: 1 a point under the uniform measure, the product of the weights' sums else."""
    return math.prod(ready.grid.measure.totals(ready.grid.sizes))


def check_exact(
    drawn: Drawn, ready: pipeline.Prepared, counts: Mapping[str, Count], wanted: dict[str, Mask], engine: str
) -> None:
    assert set(counts) == set(wanted), (engine, drawn)
    for name, mask in wanted.items():
        count = counts[name]
        assert count.lower == count.upper, (engine, name, str(drawn))
        assert count.guarantee is Guarantee.EXACT
        if drawn.weights is None:
            assert count.lower == int(mask.sum()), f"{engine} on {name}, {drawn}"
        else:
            assert Fraction(count.lower, scale(ready)) == drawn.share(mask), f"{engine} on {name}, {drawn}"


def check_bounds(drawn: Drawn, counts: Mapping[str, Count], wanted: dict[str, Mask], engine: str) -> None:
    """Bounds under the uniform measure."""
    assert set(counts) == set(wanted), (engine, drawn)
    for name, mask in wanted.items():
        assert counts[name].lower <= int(mask.sum()) <= counts[name].upper, f"{engine} on {name}, {drawn}"


def check_evaluators(drawn: Drawn, ready: pipeline.Prepared) -> None:
    """The native evaluator on every input; the evaluator of expressions, and that of regions, on some."""
    positions = placed(drawn, ready)
    indices = engines.evaluate.labels(ready.grid, positions)
    classes = ready.problem.model.classes
    assert [classes[index] for index in indices.tolist()] == drawn.labels.tolist(), drawn
    for case, grid_case, wanted in zip(ready.problem.cases, ready.grid.cases, drawn.cases, strict=True):
        for query, grid_query in zip(case.queries, grid_case.queries, strict=True):
            found = engines.evaluate.truths(ready.grid, grid_case, grid_query, positions)
            assert (found == wanted[query.name]).all(), f"native evaluator on {query.name}, {drawn}"
        region = engines.evaluate.contains(grid_case.region, positions)
        assert (region == drawn.regions[ready.grid.cases.index(grid_case)]).all(), f"region, {drawn}"
        for row in random.Random(drawn.seed).sample(range(len(positions)), min(ROWS, len(positions))):
            values = [
                m if not isinstance(m, str) else Fraction(0)
                for m in (f.meanings[p] for f, p in zip(drawn.features, drawn.positions[row], strict=True))
            ]
            for query in case.queries:
                scores = () if drawn.scores is None else drawn.scores[row]
                holds = exact.truth(query.expression, values, positions[row].tolist(), int(indices[row]), scores)
                assert (holds and bool(region[row])) == wanted[query.name][row], f"{query.name} at {values}, {drawn}"


def check_sampling(
    drawn: Drawn, ready: pipeline.Prepared, case: GridCase, wanted: dict[str, Mask], draws: int = 20_000
) -> None:
    """Intervals that are wrong once in a thousand million contain the truth."""
    engine = engines.sample.SampleEngine(samples=draws, confidence=SURE)
    if engine.refuses(ready.grid, case) is not None:
        return
    counts = engine.count(ready.grid, case, Limits(seed=drawn.seed), Progress())
    for name, mask in wanted.items():
        truth = int(mask.sum()) if drawn.weights is None else drawn.share(mask) * scale(ready)
        assert counts[name].lower <= truth <= counts[name].upper, f"sample on {name}, {drawn}"


def check_evidence(drawn: Drawn, rounds: bool = False) -> None:
    """The whole flow of the command: exact counts, rates, and witnesses that replay; `rounds`: the model, in floats."""
    evidence = pipeline.count(drawn.model, drawn.property, pipeline.Options(), Progress())
    assert pipeline.exit_code(evidence) == 0
    assert len(evidence.cases) == len(drawn.cases)
    for found, wanted, region in zip(evidence.cases, drawn.cases, drawn.regions, strict=True):
        shares = {name: drawn.share(mask) for name, mask in wanted.items()}
        whole = evidence.scale if drawn.weights is not None else 1
        for name, count in found.counts.items():
            assert count.lower == count.upper
            size = 1 if drawn.weights is not None else len(drawn.positions)
            assert Fraction(count.lower, whole) == shares[name] * size, f"{name}, {drawn}"
        check_rates(drawn, found.metrics, shares, drawn.share(region))
        for witness in found.witnesses:
            check_witness(drawn, witness.input, witness.label, wanted[witness.query], rounds)


def ratio(top: Fraction, *parts: Fraction) -> Fraction | None:
    bottom = sum(parts, Fraction(0))
    return top / bottom if bottom else None


def check_rates(drawn: Drawn, metrics: Any, shares: dict[str, Fraction], region: Fraction) -> None:
    """Rates by their textbook formulas."""
    wanted: dict[str, Fraction | None] = {}
    if drawn.kind == "safety":
        yes, no = shares["satisfied"], shares["violated"]
        wanted = {"satisfaction": ratio(yes, yes, no), "violation": ratio(no, yes, no)}
    elif drawn.kind in ("linf", "l1", "l0"):
        wanted = {"robustness": ratio(shares["robust"], region)}
    elif drawn.kind == "learnability" and "tp" in shares:
        tp, fp, tn, fn = (shares[name] for name in ("tp", "fp", "tn", "fn"))
        wanted = {
            "accuracy": ratio(tp + tn, tp, tn, fp, fn),
            "precision": ratio(tp, tp, fp),
            "recall": ratio(tp, tp, fn),
            "f1": ratio(2 * tp, 2 * tp, fp, fn),
        }
    for name, rate in wanted.items():
        assert name in metrics, (name, list(metrics))
        found = metrics[name]
        assert (None if found is None else (found.lower, found.upper)) == (None if rate is None else (rate, rate)), (
            f"{name}, {drawn}"
        )


def check_witness(drawn: Drawn, shown: dict[str, Any], label: str, mask: Mask, rounds: bool) -> None:
    """The input that is shown is one of those that the query counts, with its label.

    Where the model rounds, the label that counts may be followed by another, which the model itself gives.
    """
    if any(feature.name not in shown for feature in drawn.features):
        pytest.fail(f"a feature is missing from a witness, {drawn}")
    matching = np.ones(len(drawn.positions), np.bool_)
    for place, feature in enumerate(drawn.features):
        value = shown[feature.name]
        same = [value == m or (isinstance(m, Fraction) and value == float(m)) for m in feature.meanings]
        matching &= np.array(same)[drawn.positions[:, place]]
    assert (matching & mask).any(), f"witness {shown}, {drawn}"
    if rounds and (both := re.fullmatch(r"(.*) \(the model itself: (.*)\)", label)):
        label = both[1]
        assert both[2] != label, f"witness {shown}, {drawn}"
    assert label in drawn.labels[matching & mask], f"witness {shown}, {drawn}"

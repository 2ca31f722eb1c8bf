"""Over a thousand random problems: the library's predict by enumeration, every engine, and CBMC with Ganak agree.

A failure prints the seed and the property; `draw_problem(seed, folder)` writes the files again.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_problems import KINDS, Mask, draw_problem
from drawn_problems import Problem as Drawn
from numpy.typing import NDArray

from quantify import engines, pipeline
from quantify.cnf import counters
from quantify.cnf.cbmc import translate
from quantify.cnf.formula import Cnf
from quantify.errors import InputError
from quantify.ir.count import Count, Guarantee
from quantify.ir.domain import CategoricalFeature
from quantify.ir.problem import GridCase
from quantify.properties import evaluate as exact
from quantify.resources import Limits, Progress

CHUNKS, CHUNK = 60, 20
SEEDS = [range(chunk * CHUNK, (chunk + 1) * CHUNK) for chunk in range(CHUNKS)]
DRAWS = 20_000
SURE = 1 - Fraction(1, 10**9)
ROWS = 40
"""Inputs a query at which the slow evaluator of expressions is asked."""
MOST_CLAUSES = 30_000
"""Formulas beyond (products of numbers near 2^53) take a counter half a minute: another query is counted."""

EXACT = {
    name: engine
    for name, engine in engines.discover().items()
    if engine.guarantee is Guarantee.EXACT and "tree" in engine.structures
}
# What these engines choose by size or processor, chosen here by hand.
EXACT |= {
    "bit slices": engines.enumerate.EnumerateEngine(bit_slices=True),
    "small portable blocks": engines.enumerate.EnumerateEngine(isa="portable", bit_slices=True, lane_bits=3),
    "plain descent": engines.boxes.BoxesEngine(native=False),
}


def test_there_are_a_thousand_problems_of_every_kind(tmp_path: Path) -> None:
    seeds = {seed for chunk in SEEDS for seed in chunk}
    assert CHUNKS * (CHUNK - 2) >= 1000  # what the test of CBMC and Ganak counts at least
    assert set(EXACT) >= {"reference", "boxes", "enumerate", "bdd"}
    kinds = Counter(random.Random(seed).choice(KINDS) for seed in seeds)
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) >= 80


def prepared(seed: int, folder: Path) -> tuple[Drawn, pipeline.Prepared]:
    """The drawn problem, and what the pipeline makes of its files (fidelity check included)."""
    folder.mkdir()
    drawn = draw_problem(seed, folder)
    ready = pipeline.prepare(drawn.model, drawn.property, pipeline.Options(), Progress())
    assert [feature.name for feature in ready.problem.domain] == [feature.name for feature in drawn.features], drawn
    assert len(ready.grid.cases) == len(drawn.cases), drawn
    for case, wanted in zip(ready.grid.cases, drawn.cases, strict=True):
        assert {query.name for query in case.queries} == set(wanted), drawn
    return drawn, ready


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


# --- exact engines, evaluators, sampling -----------------------------------------------------------------------------
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_engines_agree_with_enumeration(seeds: range, tmp_path: Path) -> None:
    counted: Counter[str] = Counter()
    for seed in seeds:
        drawn, ready = prepared(seed, tmp_path / str(seed))
        check_evaluators(drawn, ready)
        for case, wanted in zip(ready.grid.cases, drawn.cases, strict=True):
            for name, engine in EXACT.items():
                if engine.refuses(ready.grid, case) is None:
                    counts = engine.count(ready.grid, case, Limits(), Progress())
                    check_exact(drawn, ready, counts, wanted, name)
                    counted[name] += 1
        check_sampling(drawn, ready, ready.grid.cases[0], drawn.cases[0])
        counted["problems"] += 1
    assert counted["problems"] == CHUNK
    for name in EXACT:
        assert counted[name] >= CHUNK // 3, f"{name} refuses too often to be tested: {counted}"


def scale(ready: pipeline.Prepared) -> int:
    """What counts are out of: 1 a point under the uniform measure, the product of the weights' sums else."""
    return math.prod(ready.grid.measure.totals(ready.grid.sizes))


def check_exact(drawn: Drawn, ready: pipeline.Prepared, counts: Any, wanted: dict[str, Mask], engine: str) -> None:
    assert set(counts) == set(wanted), (engine, drawn)
    for name, mask in wanted.items():
        count: Count = counts[name]
        assert count.lower == count.upper, (engine, name, str(drawn))
        assert count.guarantee is Guarantee.EXACT
        if drawn.weights is None:
            assert count.lower == int(mask.sum()), f"{engine} on {name}, {drawn}"
        else:
            assert Fraction(count.lower, scale(ready)) == drawn.share(mask), f"{engine} on {name}, {drawn}"


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
                holds = exact.truth(query.expression, values, positions[row].tolist(), int(indices[row]))
                assert (holds and bool(region[row])) == wanted[query.name][row], f"{query.name} at {values}, {drawn}"


def check_sampling(drawn: Drawn, ready: pipeline.Prepared, case: GridCase, wanted: dict[str, Mask]) -> None:
    engine = engines.sample.SampleEngine(samples=DRAWS, confidence=SURE)
    if engine.refuses(ready.grid, case) is not None:
        return
    counts = engine.count(ready.grid, case, Limits(seed=drawn.seed), Progress())
    for name, mask in wanted.items():
        truth = int(mask.sum()) if drawn.weights is None else drawn.share(mask) * scale(ready)
        assert counts[name].lower <= truth <= counts[name].upper, f"sample on {name}, {drawn}"


# --- the command's own flow ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seeds", SEEDS[::4], ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_evidence_and_rates(seeds: range, tmp_path: Path) -> None:
    for seed in seeds[::2]:
        drawn, _ = prepared(seed, tmp_path / str(seed))
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
                check_witness(drawn, witness.input, witness.label, wanted[witness.query])


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


def check_witness(drawn: Drawn, shown: dict[str, Any], label: str, mask: Mask) -> None:
    """The input that is shown is one of those that the query counts, and the label is the library's."""
    if any(feature.name not in shown for feature in drawn.features):
        pytest.fail(f"a feature is missing from a witness, {drawn}")
    matching = np.ones(len(drawn.positions), np.bool_)
    for place, feature in enumerate(drawn.features):
        value = shown[feature.name]
        same = [value == m or (isinstance(m, Fraction) and value == float(m)) for m in feature.meanings]
        matching &= np.array(same)[drawn.positions[:, place]]
    assert (matching & mask).any(), f"witness {shown}, {drawn}"
    assert label in drawn.labels[matching & mask], f"witness {shown}, {drawn}"


# --- CBMC and Ganak --------------------------------------------------------------------------------------------------
@pytest.mark.needs("cbmc", "pyganak")
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_cbmc_and_ganak_agree_with_enumeration(seeds: range, tmp_path: Path) -> None:
    """One query of each problem; the formulas of all of them in one child process, for starting it costs the most."""
    formulas: list[Cnf] = []
    wanted: list[int] = []
    about: list[str] = []
    for seed in seeds:
        drawn, ready = prepared(seed, tmp_path / str(seed))
        for case, query, count in asked(drawn, ready):
            try:
                translation = translate(ready.grid, case, query, Limits())
            except InputError:  # words beyond 512 bits
                continue
            if translation.cnf.literals.count(0) > MOST_CLAUSES:
                continue
            formulas.append(translation.cnf)
            wanted.append(count)
            about.append(f"{query.name}, {drawn}\n{translation.source}")
            break
    assert len(formulas) >= CHUNK - 2
    answers = counters.get("ganak").count_all(formulas, Limits())  # type: ignore[attr-defined]
    for answer, count, text in zip(answers, wanted, about, strict=True):
        assert answer.lower == answer.upper == count, f"CBMC and Ganak: {answer.lower}, not {count}: {text}"


def asked(drawn: Drawn, ready: pipeline.Prepared) -> list[tuple[GridCase, Any, int]]:
    """The problem's queries with their numbers of inputs, in random order, those that some inputs meet first."""
    pairs = [
        (case, query, int(wanted[query.name].sum()), int(region.sum()))
        for case, wanted, region in zip(ready.grid.cases, drawn.cases, drawn.regions, strict=True)
        for query in case.queries
    ]
    random.Random(drawn.seed).shuffle(pairs)
    if drawn.seed % 8:
        pairs.sort(key=lambda pair: pair[2] in (0, pair[3]))
    return [(case, query, count) for case, query, count, _ in pairs]

"""Over a thousand random networks: plain Python, every engine in every variant, and CBMC with Ganak agree.

`draw(seed)` makes a problem again, `draw_network_problem(seed, folder)` one with files.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path

import agreement
import numpy as np
import pytest
from agreement import prepared
from drawn_networks import DrawnNetwork, draw_network_problem, float_inputs, float_labels
from drawn_problems import Problem as DrawnProblem
from hard_networks import FAMILIES, Drawn, Inputs, draw, labels_of, scores_of

from quantify import engines, pipeline
from quantify.cnf import counters
from quantify.cnf.cbmc import translate
from quantify.cnf.engine import CnfEngine
from quantify.cnf.formula import Cnf
from quantify.engines.branch import BranchEngine
from quantify.engines.branch_checkpoint import Checkpoints
from quantify.engines.branch_plan import Tuning
from quantify.engines.enumerate import EnumerateEngine
from quantify.engines.native_network import ISAS
from quantify.errors import InputError
from quantify.ir import network_eval
from quantify.ir.count import Count, Engine, Guarantee
from quantify.ir.evidence import Check
from quantify.ir.problem import Box, GridCase
from quantify.pipeline import Prepared
from quantify.resources import Limits, Progress

CHUNKS, CHUNK = 40, 20
SEEDS = [range(chunk * CHUNK, (chunk + 1) * CHUNK) for chunk in range(CHUNKS)]
DRAWS = 4_000
SURE = 1 - Fraction(1, 10**9)
ROWS = 25
"""Inputs of a problem at which the slow evaluator of one point is asked."""

NETWORK_ENGINES = {name: engine for name, engine in engines.discover().items() if "network" in engine.structures}
EXACT = {name: engine for name, engine in NETWORK_ENGINES.items() if engine.guarantee is Guarantee.EXACT}
BOUNDING = {name: engine for name, engine in NETWORK_ENGINES.items() if engine.guarantee is Guarantee.BOUNDS}
AVAILABLE = [name for name, code in ISAS.items() if name and engines.evaluate.native().network_has(code)]
SPLIT = Tuning(leaf_points=1, loop_work=0, credit_points=1, local_points=0)
"""Boxes are split down to points, bounded by volumes, and wait in the heap."""


def branch_runs(isa: str) -> bool:
    """Whether the processor has what `branch` wants for an instruction set."""
    drawn = draw(0, ("ties",))
    problem = drawn.problem
    box = Box((0,) * len(problem.sizes), (2,) * len(problem.sizes))
    try:
        BranchEngine(isa=isa).count(problem, GridCase(box, problem.cases[0].queries[:1], ()), Limits(), Progress())
    except InputError:
        return False
    return True


VARIANTS: dict[str, tuple[Engine, Limits]] = {
    **{f"enumerate, {isa}": (EnumerateEngine(isa), Limits()) for isa in AVAILABLE},
    "enumerate, two threads": (EnumerateEngine(), Limits(jobs=2)),
    "enumerate, one by one": (EnumerateEngine(bit_slices=False), Limits()),
    "enumerate, bit slices": (EnumerateEngine(bit_slices=True), Limits()),
    "enumerate, small blocks": (EnumerateEngine("portable", bit_slices=True, lane_bits=3), Limits()),
    "branch, portable": (BranchEngine(isa="portable"), Limits()),
    "branch, avx2": (BranchEngine(isa="avx2"), Limits()),
    "branch, avx512": (BranchEngine(isa="avx512"), Limits()),
    "branch, down to points": (BranchEngine(tuning=SPLIT), Limits()),
    "branch, no closed forms": (BranchEngine(tuning=Tuning(leaf_points=2, closed_form=False)), Limits()),
    "branch, closed forms": (BranchEngine(tuning=Tuning(leaf_points=1, loop_work=1e9, credit_points=1e300)), Limits()),
    "branch, two workers": (BranchEngine(tuning=Tuning(leaf_points=2, local_points=0)), Limits(jobs=2)),
    "branch, little memory": (BranchEngine(tuning=Tuning(leaf_points=1, local_points=0)), Limits(jobs=3, memory_mb=0)),
}
"""What engines choose by size, processor or limits, chosen by hand."""
VARIANTS = {k: v for k, v in VARIANTS.items() if not k.startswith("branch, avx") or branch_runs(k.split()[-1])}


def test_there_are_a_thousand_problems_of_every_kind() -> None:
    seeds = [seed for chunk in SEEDS for seed in chunk]
    assert set(NETWORK_ENGINES) >= {"reference", "enumerate", "branch", "margins", "sample"}
    assert {"enumerate, portable", "branch, portable"} <= set(VARIANTS)
    families: Counter[str] = Counter()
    facts: Counter[str] = Counter()
    for seed in seeds:
        drawn = draw(seed)
        families[drawn.family] += 1
        scores = drawn.scores.tolist()
        facts["tie"] += any(sorted(row)[-2:] == [max(row)] * 2 for row in scores)
        facts["empty"] += not scores
        facts["several labels"] += len(set(drawn.labels.tolist())) > 1
        facts["one label"] += drawn.problem.labels == 1
        bits = max(layer.bits for layer in drawn.problem.network.layers)  # type: ignore[union-attr]
        for limit in (16, 32, 64):
            facts[f"{limit} bits"] += bits in (limit, limit + 1)
        facts["wide"] += bits > 65
    assert set(families) == set(FAMILIES)
    assert min(families.values()) >= 40
    assert min(facts.values()) >= 10, facts
    assert facts["tie"] >= 200
    assert facts["several labels"] >= 300


# --- engines -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_engines_agree_with_plain_python(seeds: range, tmp_path: Path) -> None:
    accepted: Counter[str] = Counter()
    for seed in seeds:
        drawn = draw(seed)
        check_evaluators(drawn)
        asked = {name: (engine, Limits()) for name, engine in EXACT.items()} | VARIANTS
        for name, (engine, limits) in asked.items():
            accepted[name] += counted(drawn, engine, limits, exact(name))
        for name, engine in BOUNDING.items():
            accepted[name] += counted(drawn, engine, Limits(), containing(name))
        for name, engine in {**EXACT, **BOUNDING}.items():
            counted(drawn, engine, Limits.starting_now(0.0), containing(f"{name} without time"))
        if seed % 4 == 0:
            check_sampling(drawn)
        check_interrupted_branch(drawn, tmp_path / str(seed))
    for name in EXACT:
        assert accepted[name] >= CHUNK // 3, f"{name} refuses too often to be tested: {accepted}"


Judge = Callable[[Drawn, Mapping[str, Count]], None]


def counted(drawn: Drawn, engine: Engine, limits: Limits, check: Judge) -> bool:
    """Count with an engine unless it refuses, and check."""
    problem = drawn.problem
    case = problem.cases[0]
    if engine.refuses(problem, case) is not None:
        return False
    assert engine.estimate(problem, case).seconds >= 0
    check(drawn, engine.count(problem, case, limits, Progress()))
    return True


def exact(name: str) -> Judge:
    def check(drawn: Drawn, counts: Mapping[str, Count]) -> None:
        assert set(counts) == set(drawn.masks)
        for query, count in counts.items():
            assert count.lower == count.upper == drawn.count(query), f"{name} on {query}, {drawn}"
            assert count.guarantee is Guarantee.EXACT

    return check


def containing(name: str) -> Judge:
    def check(drawn: Drawn, counts: Mapping[str, Count]) -> None:
        assert set(counts) == set(drawn.masks)
        for query, count in counts.items():
            assert 0 <= count.lower <= drawn.count(query) <= count.upper, f"{name} on {query}, {drawn}"
            assert count.guarantee is (Guarantee.EXACT if count.lower == count.upper else Guarantee.BOUNDS), name

    return check


def check_evaluators(drawn: Drawn) -> None:
    """Scores, labels and truths of the region's inputs, in bulk and one by one."""
    problem, points = drawn.problem, drawn.points
    network, case = problem.network, problem.cases[0]
    assert network is not None
    scores = drawn.scores.tolist()
    assert network_eval.scores(network, points).tolist() == scores, drawn
    assert (network_eval.labels(network, points) == drawn.labels).all(), drawn
    for row in range(0, len(points), max(1, len(points) // ROWS)):
        assert network_eval.point_scores(network, points[row].tolist()) == scores[row], drawn
    for with_scores in (False, True):
        labels, found = engines.evaluate.network_labels(problem, network, points, with_scores)
        assert (labels == drawn.labels).all(), drawn
        assert not with_scores or found.tolist() == scores, drawn
    for query in case.queries:
        truths = engines.evaluate.truths(problem, case, query, points)
        assert (truths == drawn.masks[query.name]).all(), f"native evaluator on {query.name}, {drawn}"


def check_sampling(drawn: Drawn) -> None:
    problem = drawn.problem
    engine = engines.sample.SampleEngine(samples=DRAWS, confidence=SURE)
    if engine.refuses(problem, problem.cases[0]) is None:
        counts = engine.count(problem, problem.cases[0], Limits(seed=drawn.seed), Progress())
        for name, count in counts.items():
            assert count.lower <= drawn.count(name) <= count.upper, f"sample on {name}, {drawn}"


def check_interrupted_branch(drawn: Drawn, folder: Path) -> None:
    """Stopped after every round of boxes: bounds that never get wider, and in the end every box counted once."""
    problem = drawn.problem
    case = problem.cases[0]
    if drawn.seed % 4 or BranchEngine().refuses(problem, case) is not None:
        return
    tuning = Tuning(leaf_points=1, local_points=0, credit_points=8)
    rounds = [(Limits.starting_now(0.0), containing("branch, interrupted"))] * 3 + [
        (Limits(), exact("branch, resumed"))
    ]
    for limits, judge in rounds:
        with Checkpoints(folder) as kept:
            engine = BranchEngine(checkpoint=kept, tuning=tuning)
            judge(drawn, engine.count(problem, case, limits, Progress()))


@pytest.mark.parametrize("seeds", SEEDS[::4], ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_witnesses(seeds: range) -> None:
    """Exact engines find an input wherever there is one, and everybody's inputs satisfy the query."""
    for seed in seeds:
        drawn = draw(seed)
        problem = drawn.problem
        case = problem.cases[0]
        rows = {tuple(point): row for row, point in enumerate(drawn.points.tolist())}
        for name, engine in NETWORK_ENGINES.items():
            if engine.refuses(problem, case) is not None:
                continue
            for query in case.queries[-3:]:
                found = engine.witness(problem, case, query, Limits())
                about = f"{name} on {query.name}, {drawn}"
                assert found is None or drawn.masks[query.name][rows[found]], about
                assert found is not None or name not in EXACT or not drawn.count(query.name), about


# --- through files -------------------------------------------------------------------------------------------------
FILE_CHUNKS, FILE_CHUNK = 20, 20
FILE_SEEDS = [range(chunk * FILE_CHUNK, (chunk + 1) * FILE_CHUNK) for chunk in range(FILE_CHUNKS)]


@pytest.mark.parametrize("seeds", FILE_SEEDS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_files_agree_with_fractions(seeds: range, tmp_path: Path) -> None:
    accepted: Counter[str] = Counter()
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        drawn, made = draw_network_problem(seed, folder)
        ready = prepared(drawn)
        agreement.check_evaluators(drawn, ready)
        check_float_ambiguous(drawn, made, ready)
        for case, wanted in zip(ready.grid.cases, drawn.cases, strict=True):
            for name, engine in {**EXACT, **BOUNDING}.items():
                if engine.refuses(ready.grid, case) is not None:
                    continue
                accepted[name] += 1
                counts = engine.count(ready.grid, case, Limits(), Progress())
                if name in EXACT:
                    agreement.check_exact(drawn, ready, counts, wanted, name)
                else:
                    agreement.check_bounds(drawn, counts, wanted, name)
        agreement.check_sampling(drawn, ready, ready.grid.cases[0], drawn.cases[0], DRAWS)
        check_n_bits(drawn, folder)
        if seed % 4 == 0:
            agreement.check_evidence(drawn, rounds=True)
    for name in EXACT:
        assert accepted[name] >= FILE_CHUNK // 5, f"{name} refuses too often to be tested: {accepted}"


def told(checks: Iterable[Check], name: str) -> int:
    """The figure of a check over the whole domain."""
    (detail,) = [check.detail for check in checks if check.name == name]
    found = re.match(r"all \d+ inputs: (\d+|all)", detail)
    assert found is not None, detail
    return 0 if found[1] == "all" else int(found[1])


def check_float_ambiguous(drawn: DrawnProblem, made: DrawnNetwork, ready: Prepared) -> None:
    """Inputs that float arithmetic in some order labels otherwise are among those that are told to be ambiguous."""
    differing = np.zeros(len(drawn.positions), np.bool_)
    for order in (1, -1):
        labels = float_labels(made, float_inputs(drawn), order)
        if labels is not None:
            differing |= labels != drawn.labels
    if len(drawn.positions) == ready.problem.domain.size:
        assert int(differing.sum()) <= told(ready.checks, "float-ambiguous"), drawn


def check_n_bits(drawn: DrawnProblem, folder: Path) -> None:
    """The same problem with few bits: engines agree with plain Python, and the difference that is told is right."""
    rng = random.Random(drawn.seed)
    text = drawn.property.read_text(encoding="utf-8").replace("quantization: {mode: exact}\n", "")
    options = f"bits: {rng.randint(2, 8)}, per: {rng.choice(('tensor', 'channel'))}, activations: {rng.randint(2, 12)}"
    path = folder / "bits.yaml"
    path.write_text(f"quantization: {{{options}}}\n{text}", encoding="utf-8")
    ready = pipeline.prepare(drawn.model, path, pipeline.Options(), Progress())
    network = ready.grid.network
    assert network is not None
    positions = agreement.placed(drawn, ready)
    scores = scores_of(network, positions)
    labels = labels_of(scores)
    classes = ready.problem.model.classes
    about = f"{options}, {drawn}"
    if len(positions) == ready.problem.domain.size and not network.exact:
        different = [classes[k] for k in labels.tolist()] != drawn.labels
        assert told(ready.checks, "quantised") == int(np.sum(different)), about
    for case, region in zip(ready.grid.cases, drawn.regions, strict=True):
        inside = Inputs(positions[region], labels[region], scores[region])
        for name, engine in EXACT.items():
            if ready.grid.measure.kind == "product" or engine.refuses(ready.grid, case) is not None:
                continue
            counts = engine.count(ready.grid, case, Limits(), Progress())
            for query in case.queries:
                want = int(inside.true(query.predicate).sum())
                assert counts[query.name].lower == counts[query.name].upper == want, f"{name}, {query.name}, {about}"


# --- CBMC and Ganak ------------------------------------------------------------------------------------------------
CNF_SEEDS = [range(chunk * 8, (chunk + 1) * 8) for chunk in range(8)]
INPUT_BITS = 12
MOST_PRODUCTS = 60
MOST_CLAUSES = 3_000
"""Sums of wide words are hard to count: Ganak takes half a minute for formulas of some 10,000 clauses."""


@pytest.mark.needs("cbmc", "pyganak")
@pytest.mark.parametrize("seeds", CNF_SEEDS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_cbmc_and_ganak_agree_with_plain_python(seeds: range) -> None:
    """One query of each problem; all formulas of a chunk in one child process."""
    found = [translated(seed) for seed in seeds]
    assert len({text for _, _, text in found}) == len(seeds)
    answers = counters.get("ganak").count_all([cnf for cnf, _, _ in found], Limits())  # type: ignore[attr-defined]
    for answer, (_, count, text) in zip(answers, found, strict=True):
        assert answer.lower == answer.upper == count, f"CBMC and Ganak: {answer.lower}, not {count}: {text}"


def translated(seed: int) -> tuple[Cnf, int, str]:
    """The formula of a problem of at most 12 input bits and few weights, with the count and a description.

    The query is the one that splits the region most evenly.
    """
    for number in range(10_000 + seed * 100, 10_100 + seed * 100):
        drawn = draw(number, most_points=1 << INPUT_BITS)
        problem, case = drawn.problem, drawn.problem.cases[0]
        region = case.region if isinstance(case.region, Box) else case.region.box
        bits = sum((b - a - 1).bit_length() for a, b in zip(region.low, region.high, strict=True) if b > a)
        assert problem.network is not None
        weights = sum(len(layer.rows.values) for layer in problem.network.layers)
        query = min(case.queries, key=lambda q: abs(2 * drawn.count(q.name) - len(drawn.points)))
        trivial = drawn.count(query.name) in (0, len(drawn.points))
        if bits > INPUT_BITS or weights > MOST_PRODUCTS or (trivial and seed % 8):
            continue
        if CnfEngine().refuses(problem, case) is None:
            translation = translate(problem, case, query, Limits())
            if translation.cnf.literals.count(0) <= MOST_CLAUSES:
                return translation.cnf, drawn.count(query.name), f"{query.name}, {drawn}\n{translation.source}"
    raise AssertionError(f"no problem for seed {seed}")

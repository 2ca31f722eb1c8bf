"""The enumeration engine against plain Python, published numbers, and itself on every instruction set."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace

import numpy as np
import pytest
from random_grids import counted, points, random_predicate, random_problem, random_tree

from quantify.engines import enumerate as engine_module
from quantify.engines import evaluate, logic
from quantify.engines.enumerate import ENGINE, ISAS, EnumerateEngine
from quantify.errors import InputError
from quantify.ir.count import Guarantee
from quantify.ir.domain import Measure
from quantify.ir.predicate import (
    AllOf,
    Always,
    AnyOf,
    CountOf,
    Extreme,
    FloorDiv,
    HasLabel,
    Linear,
    Negation,
    Plus,
    Predicate,
    Sign,
    Times,
    Within,
)
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree
from quantify.resources import Limits, Progress

LEAF = GridTree((-1,), (0,), (0,), (0,), (0,), (0,))
AVAILABLE = [name for name, code in ISAS.items() if name and evaluate.native().slices_choose(code)]


def counts(engine: EnumerateEngine, problem: GridProblem, limits: Limits | None = None) -> dict[str, int]:
    found = engine.count(problem, problem.cases[0], limits or Limits(), Progress())
    assert all(c.lower == c.upper and c.guarantee is Guarantee.EXACT for c in found.values())
    return {name: count.lower for name, count in found.items()}


def single(sizes: tuple[int, ...], *predicates: Predicate, tree: GridTree = LEAF, labels: int = 1) -> GridProblem:
    queries = tuple(GridQuery(f"q{k}", predicate) for k, predicate in enumerate(predicates))
    return GridProblem(sizes, labels, tree, Measure(), (GridCase(Box((0,) * len(sizes), sizes), queries, ()),))


@pytest.mark.parametrize("block", range(8))
def test_every_way_counts_what_python_counts(block: int) -> None:
    engines = [EnumerateEngine(bit_slices=False), EnumerateEngine(bit_slices=True)]
    lane_bits = (0, 1, 3, 6, 9, 10)
    engines += [EnumerateEngine(isa, True, lanes) for isa, lanes in zip(AVAILABLE * 3, lane_bits, strict=False)]
    for seed in range(block * 30, block * 30 + 30):
        problem = random_problem(seed)
        wanted = counted(problem, problem.cases[0])
        for engine in engines:
            assert counts(engine, problem) == wanted, (seed, engine.isa, engine.lane_bits)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 100])
def test_odd_widths_count_only_positions_that_exist(width: int) -> None:
    rng = random.Random(width)
    sizes = (width, 3, width)
    for _ in range(6):
        tree = random_tree(rng, sizes, 3, 6)
        predicates = [random_predicate(rng, sizes, 3, 3), HasLabel((0, 2)), Sign("<", Linear(((0, 2), (2, -3)), 5))]
        problem = single(sizes, *predicates, tree=tree, labels=3)
        wanted = counts(EnumerateEngine(bit_slices=False), problem)
        everything = np.stack(np.meshgrid(*(np.arange(n) for n in sizes), indexing="ij"), axis=-1).reshape(-1, 3)
        case = problem.cases[0]
        assert wanted == {q.name: int(evaluate.truths(problem, case, q, everything).sum()) for q in case.queries}
        for lanes in (0, 4, 9, 13):
            assert counts(EnumerateEngine("", True, lanes), problem) == wanted


def mixed_problem(seed: int) -> GridProblem:
    """About 2^20 points over wide and odd features, with arithmetic that reads many of them."""
    rng = random.Random(seed)
    sizes = (37, 16, 2, 100, 2, 2, 7)
    tree = random_tree(rng, sizes, 4, 30)
    total = Linear(tuple((f, rng.choice((-2, 1, 3))) for f in range(7)), -rng.randint(0, 200))
    predicates = (
        AllOf((HasLabel((1, 2)), Sign("<=", total))),
        AnyOf((Sign("==", Plus((FloorDiv(total, 7), Linear(((1, 1),), 0)))), HasLabel((3,)))),
        Sign("<", Extreme("min", (Times(Linear(((0, 1),), -9), Linear(((1, 1),), -8)), Linear(((3, -1),), 40)))),
    )
    return single(sizes, *predicates, tree=tree, labels=4)


@pytest.mark.parametrize("seed", [1, 2])
def test_instruction_sets_threads_and_block_sizes_agree_with_the_scalar_way(seed: int) -> None:
    problem = mixed_problem(seed)
    wanted = counts(EnumerateEngine(bit_slices=False), problem)
    assert all(0 < count < math.prod(problem.sizes) for count in wanted.values())
    for isa in AVAILABLE:
        for lanes, jobs in ((8, 1), (11, 3), (13, 2)):
            assert counts(EnumerateEngine(isa, True, lanes), problem, Limits(jobs=jobs)) == wanted
    assert counts(EnumerateEngine(bit_slices=False), problem, Limits(jobs=2)) == wanted


def test_split_work_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "SPLIT_NANOSECONDS", -1.0)
    monkeypatch.setattr(engine_module, "CALL_NANOSECONDS", 3000)
    for seed in range(40):
        problem = random_problem(seed)
        wanted = counted(problem, problem.cases[0])
        for jobs, lanes in ((1, 0), (2, 2), (3, 5)):
            assert counts(EnumerateEngine("", True, lanes), problem, Limits(jobs=jobs)) == wanted, seed


def related(nodes: int, *clauses: Predicate) -> GridProblem:
    return single((2,) * nodes**2, AllOf(clauses))


def holds(nodes: int, i: int, j: int) -> Predicate:
    return Within(i * nodes + j, 1, 2)


def transitive(nodes: int) -> tuple[Predicate, ...]:
    every = range(nodes)
    return tuple(
        AnyOf((Negation(holds(nodes, i, j)), Negation(holds(nodes, j, k)), holds(nodes, i, k)))
        for i in every
        for j in every
        for k in every
    )


def test_published_numbers_of_relations() -> None:
    """OEIS A006905 (transitive relations), A000110 (equivalences), A001035 (partial orders)."""
    for nodes, transitives, equivalences, orders in ((3, 171, 5, 19), (4, 3994, 15, 219), (5, 154303, 52, 4231)):
        every = range(nodes)
        reflexive = [holds(nodes, i, i) for i in every]
        symmetric = [AnyOf((Negation(holds(nodes, i, j)), holds(nodes, j, i))) for i in every for j in every]
        either = [Negation(AllOf((holds(nodes, i, j), holds(nodes, j, i)))) for i in every for j in range(i)]
        close = transitive(nodes)
        engine = EnumerateEngine(bit_slices=True)
        assert counts(engine, related(nodes, *close)) == {"q0": transitives}
        assert counts(engine, related(nodes, *close, *reflexive, *symmetric)) == {"q0": equivalences}
        assert counts(engine, related(nodes, *close, *reflexive, *either)) == {"q0": orders}


def test_transitive_relations_on_six_nodes() -> None:
    """2^36 inputs; OEIS A006905."""
    assert counts(ENGINE, related(6, *transitive(6)), Limits(jobs=2)) == {"q0": 9415189}


def test_features_that_nothing_reads_multiply() -> None:
    sizes = (1 << 40, 3, 10**30, 5)
    problem = single(sizes, Within(1, 1, 3), Always(True), Always(False))
    assert counts(ENGINE, problem) == {"q0": (1 << 40) * 2 * 10**30 * 5, "q1": (1 << 40) * 15 * 10**30, "q2": 0}


def test_counts_beyond_64_bits() -> None:
    problem = single((2,) * 62, AnyOf((Within(0, 0, 1), Within(61, 0, 1))), Sign("<=", Linear(((0, 1),), -1)))
    assert counts(ENGINE, problem) == {"q0": 3 << 60, "q1": 1 << 62}
    wide = single((1 << 40, 1 << 22, 3), Within(0, 5, 6), Negation(Within(0, 5, 6)))
    assert counts(ENGINE, wide) == {"q0": 3 << 22, "q1": ((1 << 40) - 1) * 3 << 22}


def test_a_deadline_leaves_bounds_that_hold() -> None:
    nodes = 7
    problem = related(nodes, *transitive(nodes))
    for jobs in (1, 2):
        limits = Limits(deadline=time.monotonic() + 0.4, jobs=jobs)
        count = ENGINE.count(problem, problem.cases[0], limits, Progress())["q0"]
        assert time.monotonic() < (limits.deadline or 0) + 5
        assert count.guarantee is Guarantee.BOUNDS
        assert count.lower < 878222530 < count.upper < 1 << 49  # OEIS A006905
        assert "stopped after" in count.note
    scalar = EnumerateEngine(bit_slices=False)
    slow = single((2,) * 30, Sign("<", Linear(tuple((f, 1) for f in range(30)), -4)))
    count = scalar.count(slow, slow.cases[0], Limits(deadline=time.monotonic() + 0.2), Progress())["q0"]
    assert count.guarantee is Guarantee.BOUNDS
    assert count.lower < sum(math.comb(30, k) for k in range(4)) < count.upper


@pytest.mark.parametrize("bit_slices", [False, True])
def test_witnesses_are_found_wherever_there_is_one(bit_slices: bool) -> None:
    found = 0
    for seed in range(120):
        problem = random_problem(seed)
        case = problem.cases[0]
        wanted = counted(problem, case)
        for query in case.queries:
            for lanes in (1, 13):
                point = EnumerateEngine("", bit_slices, lanes).witness(problem, case, query, Limits())
                assert (point is not None) == (wanted[query.name] > 0)
                if point is not None:
                    found += 1
                    assert point in set(points(case.region))
                    assert logic.holds(query.predicate, point, logic.label_of(problem.tree, point))
    assert found > 100


def test_empty_regions_and_queries() -> None:
    problem = single((3, 3), Always(True))
    empty = GridCase(Box((1, 2), (1, 3)), problem.cases[0].queries, ())
    assert ENGINE.count(problem, empty, Limits(), Progress())["q0"].upper == 0
    assert ENGINE.witness(problem, empty, empty.queries[0], Limits()) is None
    assert ENGINE.count(problem, GridCase(empty.region, (), ()), Limits(), Progress()) == {}


def test_refusals_name_their_reason() -> None:
    case = single((2,) * 80, at_most_three(80)).cases[0]
    refusal = ENGINE.refuses(single((2,) * 80), case)
    assert refusal is not None
    assert "2^80" in refusal
    with pytest.raises(InputError, match="2\\^80"):
        ENGINE.count(single((2,) * 80), case, Limits(), Progress())
    weighted = replace(single((2,), Always(True)), measure=Measure("product", ((1, 2),)))
    assert "weights" in str(ENGINE.refuses(weighted, weighted.cases[0]))
    with pytest.raises(InputError, match="instruction set"):
        counts(EnumerateEngine("sse9", True), single((2,), Within(0, 0, 1)))


def at_most_three(n: int) -> Predicate:
    return Sign("<=", Plus((CountOf(tuple(Within(f, 1, 2) for f in range(n))), Linear((), -3))))


def test_the_environment_chooses_the_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTIFY_ISA", "portable")
    assert counts(EnumerateEngine(bit_slices=True), related(4, *transitive(4))) == {"q0": 3994}
    monkeypatch.setenv("QUANTIFY_ISA", "mmx")
    with pytest.raises(InputError, match="mmx"):
        counts(EnumerateEngine(bit_slices=True), related(4, *transitive(4)))


def test_predicates_too_large_for_a_circuit_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "MAX_GATES", 50)
    problem = mixed_problem(3)
    assert "one by one" in ENGINE.estimate(problem, problem.cases[0]).reason
    monkeypatch.setattr(engine_module, "MAX_SCALAR_POINTS", 1000)
    fresh = EnumerateEngine()
    assert "more than 50 gates" in str(fresh.refuses(problem, problem.cases[0]))


def test_estimates_grow_with_the_work() -> None:
    small, large = related(4, *transitive(4)), related(7, *transitive(7))
    engine = EnumerateEngine(bit_slices=True)
    seconds = [engine.estimate(p, p.cases[0]).seconds for p in (small, large)]
    assert seconds[0] < 0.01
    assert seconds[1] > 1
    ball = Ball(Box((0,) * 30, (2,) * 30), (0,) * 30, "l0", (1,) * 30, 2)
    near = GridCase(ball, (GridQuery("q", Always(True)),), ())
    assert engine.count(single((2,) * 30), near, Limits(), Progress())["q"].lower == 1 + 30 + 435

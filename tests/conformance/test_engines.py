"""What every engine must do, whatever its method: over all that are discovered, and the path through CBMC."""

from __future__ import annotations

import math
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest
from random_grids import points, random_problem, random_tree

from quantify import engines
from quantify.cnf.engine import CnfEngine
from quantify.engines import logic
from quantify.errors import UndecidedError
from quantify.ir.count import Count, Engine, Guarantee
from quantify.ir.domain import Measure
from quantify.ir.predicate import AllOf, Always, AnyOf, CountOf, HasLabel, Linear, Negation, Plus, Sign, Times, Within
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree
from quantify.resources import Limits, Progress

FOUND = {name: engine for name, engine in engines.discover().items() if "tree" in engine.structures}
EVERY = [
    *(pytest.param(engine, id=name) for name, engine in FOUND.items()),
    pytest.param(CnfEngine(), id="cnf", marks=[pytest.mark.needs("cbmc", "pyganak"), pytest.mark.slow]),
]
every_engine = pytest.mark.parametrize("engine", EVERY)


# --- problems with known counts ----------------------------------------------------------------------------------
def weighted(problem: GridProblem, seed: int) -> GridProblem:
    """The problem under a product measure with zeros, ones and features without weights."""
    rng = random.Random(seed)
    weights = tuple(
        None if rng.random() < 0.3 else (*(rng.choice((0, 1, 1, 2, 7)) for _ in range(size - 1)), rng.randint(1, 3))
        for size in problem.sizes
    )
    return replace(problem, measure=Measure("product", weights))


def weight(problem: GridProblem, point: tuple[int, ...]) -> int:
    if problem.measure.kind == "uniform":
        return 1
    return math.prod(1 if w is None else w[p] for w, p in zip(problem.measure.weights, point, strict=True))


def truth(problem: GridProblem, case: GridCase) -> tuple[dict[str, int], int]:
    """The counts and the region's total by looking at every point."""
    counts = {query.name: 0 for query in case.queries}
    total = 0
    for point in points(case.region):
        label, mass = logic.label_of(problem.tree, point), weight(problem, point)
        total += mass
        for query in case.queries:
            counts[query.name] += mass * logic.holds(query.predicate, point, label)
    return counts, total


def problems() -> list[GridProblem]:
    found = [random_problem(seed) for seed in range(40)]
    found += [weighted(random_problem(seed), seed) for seed in range(40, 70)]
    return found + list(corners())


def corners() -> Iterator[GridProblem]:
    """One leaf, one point, no point, features of one value, queries that are constant or ask for every label."""
    leaf = GridTree((-1,), (0,), (0,), (0,), (0,), (1,))
    split = GridTree((1, -1, -1), (1, 0, 0), (3, 0, 0), (1, 0, 0), (2, 0, 0), (-1, 0, 2))
    everything = (
        GridQuery("all", Always(True)),
        GridQuery("none", Always(False), False),
        GridQuery("one label", HasLabel((1,))),
        GridQuery("other labels", HasLabel((0, 2))),
        GridQuery("empty and", AllOf(())),
        GridQuery("empty or", AnyOf(())),
    )
    partitions = (("all", "none"), ("one label", "other labels"))
    boxes = (Box((0, 0, 0), (4, 3, 1)), Box((1, 2, 0), (2, 3, 1)), Box((2, 1, 0), (2, 3, 1)))
    balls = (
        Ball(boxes[0], (1, 1, 0), "l1", (1, 1, 1), 0),
        Ball(boxes[0], (1, 1, 0), "l1", (3, 2, 1), 5),
        Ball(boxes[0], (3, 0, 0), "l0", (1, 1, 1), 1),
        Ball(boxes[1], (1, 2, 0), "l0", (1, 1, 1), 3),
    )
    for tree in (leaf, split):
        for region in (*boxes, *balls):
            plain = GridProblem((4, 3, 1), 3, tree, Measure(), (GridCase(region, everything, partitions),))
            yield plain
            yield weighted(plain, 1)


PROBLEMS = problems()


def accepted(engine: Engine) -> Iterator[tuple[GridProblem, GridCase]]:
    """The problems that the engine counts; few for the slow path through CBMC."""
    for problem in PROBLEMS[:: 9 if engine.name == "cnf" else 1]:
        if engine.refuses(problem, problem.cases[0]) is None:
            yield problem, problem.cases[0]


def counted(engine: Engine, problem: GridProblem, case: GridCase, limits: Limits | None = None) -> Mapping[str, Count]:
    return engine.count(problem, case, limits or Limits(seed=5), Progress())


# --- tests -------------------------------------------------------------------------------------------------------
def test_names_are_unique_and_those_they_are_found_by() -> None:
    assert {"reference", "boxes", "enumerate", "bdd", "sample"} <= set(FOUND)
    for name, engine in FOUND.items():
        assert engine.name == name == name.lower()
    assert "cnf" not in FOUND
    assert any(engine.automatic for engine in FOUND.values())
    assert all(engine.guarantee >= Guarantee.BOUNDS for engine in FOUND.values() if engine.automatic)


@every_engine
def test_counts_are_those_of_enumeration(engine: Engine) -> None:
    seen = 0
    for problem, case in accepted(engine):
        wanted, total = truth(problem, case)
        counts = counted(engine, problem, case)
        assert list(counts) == [query.name for query in case.queries]
        for name, count in counts.items():
            assert isinstance(count, Count)
            assert count.engine == engine.name
            assert count.guarantee is engine.guarantee or (count.guarantee is Guarantee.EXACT and engine.name == "cnf")
            assert count.digest == problem.digest(case)
            assert count.seconds >= 0
            assert 0 <= count.lower <= count.upper <= max(total, count.lower)
            if count.guarantee in (Guarantee.EXACT, Guarantee.PROB_EXACT):
                assert count.lower == count.upper == wanted[name], (name, case)
            elif count.guarantee is Guarantee.SAMPLED:
                assert None not in (count.seed, count.confidence, count.samples, count.hits, count.estimate)
        if engine.guarantee is Guarantee.EXACT:
            for names in case.partitions:
                assert sum(counts[name].lower for name in names) == total
        seen += 1
    assert seen >= 5


@every_engine
def test_an_expired_deadline_gives_bounds_or_says_that_nothing_is_known(engine: Engine) -> None:
    for problem, case in accepted(engine):
        wanted, _ = truth(problem, case)
        try:
            counts = counted(engine, problem, case, Limits(deadline=time.monotonic() - 1.0))
        except UndecidedError:
            continue
        assert set(counts) == set(wanted)
        for name, count in counts.items():
            if count.guarantee is Guarantee.SAMPLED:
                continue
            assert count.lower <= wanted[name] <= count.upper
            assert count.guarantee in (Guarantee.BOUNDS, engine.guarantee, Guarantee.EXACT)
            assert (count.lower == count.upper) or count.guarantee is Guarantee.BOUNDS


@every_engine
def test_results_depend_neither_on_jobs_nor_on_what_was_counted_before(engine: Engine) -> None:
    def essence(counts: Mapping[str, Count]) -> list[tuple[str, int, int, Guarantee, int | None]]:
        return [(name, c.lower, c.upper, c.guarantee, c.hits) for name, c in counts.items()]

    for problem, case in list(accepted(engine))[::3]:
        once = essence(counted(engine, problem, case, Limits(jobs=1, seed=3)))
        assert essence(counted(engine, problem, case, Limits(jobs=2, seed=3))) == once
        backwards = replace(case, queries=case.queries[::-1])
        assert sorted(essence(counted(engine, problem, backwards, Limits(seed=3)))) == sorted(once) or (
            engine.guarantee is Guarantee.SAMPLED
        )


@every_engine
def test_witnesses_satisfy_their_query(engine: Engine) -> None:
    found = 0
    for problem, case in accepted(engine):
        wanted, _ = truth(problem, case)
        inside = set(points(case.region))
        for query in case.queries:
            witness = engine.witness(problem, case, query, Limits(seed=2))
            if witness is None:
                # Sampling may miss one; an engine that counts exactly must find what it counts.
                assert wanted[query.name] == 0 or engine.guarantee is Guarantee.SAMPLED, (query, case)
                continue
            assert witness in inside
            assert logic.holds(query.predicate, witness, logic.label_of(problem.tree, witness))
            assert weight(problem, witness) > 0
            found += 1
    assert found >= 5


@every_engine
def test_estimates_are_finite_and_explained(engine: Engine) -> None:
    for problem, case in accepted(engine):
        estimate = engine.estimate(problem, case)
        # An empty region costs nothing.
        assert 0 <= estimate.seconds < 3600
        assert estimate.seconds > 0 or not truth(problem, case)[1]
        assert estimate.reason == estimate.reason.strip() != ""


@every_engine
def test_refusals_are_quick_and_say_why(engine: Engine) -> None:
    for problem in (*PROBLEMS, too_large(), awkward()):
        started = time.monotonic()
        reason = engine.refuses(problem, problem.cases[0])
        assert time.monotonic() - started < 5.0
        if reason is not None:
            assert reason == reason.strip() != ""
            assert not reason.endswith(".")


def too_large() -> GridProblem:
    """784 features of 256 values, all of which matter."""
    sizes = (256,) * 784
    total = Linear(tuple((f, 1 + f % 3) for f in range(784)), -100_000)
    case = GridCase(Box((0,) * 784, sizes), (GridQuery("q", Sign("<=", Times(total, total))),), ())
    return GridProblem(sizes, 2, random_tree(random.Random(1), sizes, 2, 60), Measure(), (case,))


def awkward() -> GridProblem:
    """A ball with weights that share no factor, and arithmetic beyond 128 bits."""
    ball = Ball(Box((0, 0), (2**40, 2**40)), (5, 2**39), "l1", (10**9 + 7, 998244353), 10**18)
    huge = Linear(((0, 2**70), (1, -(2**69))), 3)
    case = GridCase(ball, (GridQuery("q", Sign("<", Times(huge, huge))),), ())
    return GridProblem((2**40, 2**40), 1, GridTree((-1,), (0,), (0,), (0,), (0,), (0,)), Measure(), (case,))


# --- interruptions -----------------------------------------------------------------------------------------------
class Interrupting(Progress):
    """The user presses Ctrl-C as soon as something is shown."""

    def update(self, message: str, done: int = 0, total: int = 0) -> None:
        raise KeyboardInterrupt


def hard(features: int) -> GridProblem:
    """Products of all pairs of features of 8 values, compared with a number: there is no short way."""
    rng = random.Random(features)
    sizes = (8,) * features
    products = [
        Times(Linear(((i, 1),), rng.randint(-9, 9)), Linear(((j, rng.choice((-3, 2, 5))),), rng.randint(-9, 9)))
        for i in range(features)
        for j in range(i + 1, features)
    ]
    some = CountOf(tuple(Within(f, 2, 5) for f in range(features)))
    queries = (
        GridQuery("low", AllOf((HasLabel((0,)), Sign("<=", Plus((*products, some)))))),
        GridQuery("rest", Negation(AllOf((HasLabel((0,)), Sign("<=", Plus((*products, some))))))),
    )
    case = GridCase(Box((0,) * features, sizes), queries, (("low", "rest"),))
    return GridProblem(sizes, 2, random_tree(rng, sizes, 2, 40), Measure(), (case,))


def long_work(engine: Engine) -> GridProblem:
    """The largest of some hard problems that the engine takes."""
    if engine.name == "sample":
        return hard(6)
    taken = [p for p in map(hard, (6, 8, 9, 10)) if engine.refuses(p, p.cases[0]) is None]
    assert taken
    return taken[-1]


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def made_long(engine: Engine) -> Engine:
    return engines.sample.SampleEngine(samples=10**10) if engine.name == "sample" else engine


@pytest.mark.parametrize("engine", EVERY[:-1])
def test_progress_is_shown_and_may_interrupt(engine: Engine) -> None:
    problem = long_work(engine)
    with pytest.raises(KeyboardInterrupt):
        made_long(engine).count(problem, problem.cases[0], Limits.starting_now(timeout=30.0), Interrupting())


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("engine", EVERY[:-1])
def test_a_signal_interrupts(engine: Engine, jobs: int) -> None:
    problem = long_work(engine)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted_after(0.4):
        made_long(engine).count(problem, problem.cases[0], Limits.starting_now(timeout=30.0, jobs=jobs), Progress())
    assert time.monotonic() - started < 10.0


@pytest.mark.parametrize("engine", EVERY[:-1])
def test_the_deadline_is_kept(engine: Engine) -> None:
    problem = long_work(engine)
    case = problem.cases[0]
    started = time.monotonic()
    try:
        counts = made_long(engine).count(problem, case, Limits.starting_now(timeout=1.0), Progress())
    except UndecidedError:
        counts = {}
    assert time.monotonic() - started < 8.0
    size = math.prod(problem.sizes)
    if counts and engine.guarantee is not Guarantee.SAMPLED:
        assert sum(count.lower for count in counts.values()) <= size <= sum(count.upper for count in counts.values())

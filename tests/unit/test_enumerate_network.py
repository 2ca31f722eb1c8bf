"""Enumerating, evaluating and sampling networks against plain Python and numpy, on every instruction set."""

from __future__ import annotations

import itertools
import math
import random
import time
from fractions import Fraction

import numpy as np
import pytest
from random_grids import points
from random_int_networks import counted_by_python, dense_network, network_problem, random_network, score_predicate

from quantify.engines import enumerate_network, evaluate, logic, native_network, reference
from quantify.engines.enumerate import ENGINE, EnumerateEngine
from quantify.engines.native_network import ISAS, NotNativeError
from quantify.engines.sample import SampleEngine
from quantify.errors import InputError
from quantify.ir import network_eval
from quantify.ir.count import Guarantee
from quantify.ir.domain import Measure
from quantify.ir.network import IntLayer, IntNetwork, RequantiseLayer, Rows
from quantify.ir.predicate import AllOf, AnyOf, HasLabel, Linear, Negation, Predicate, Sign, Within
from quantify.ir.problem import Box, GridCase, GridProblem, GridQuery
from quantify.resources import Limits, Progress

AVAILABLE = [name for name, code in ISAS.items() if name and evaluate.native().network_has(code)]


def counts(engine: EnumerateEngine, problem: GridProblem, jobs: int = 1) -> dict[str, int]:
    found = engine.count(problem, problem.cases[0], Limits(jobs=jobs), Progress())
    assert all(c.lower == c.upper and c.guarantee is Guarantee.EXACT for c in found.values())
    return {name: count.lower for name, count in found.items()}


def over(network: IntNetwork, sizes: tuple[int, ...], *predicates: Predicate) -> GridProblem:
    queries = tuple(GridQuery(f"q{k}", predicate) for k, predicate in enumerate(predicates))
    case = GridCase(Box((0,) * len(sizes), sizes), queries, ())
    return GridProblem(sizes, network.outputs, network, Measure(), (case,))


def per_label(network: IntNetwork, sizes: tuple[int, ...]) -> GridProblem:
    return over(network, sizes, *(HasLabel((k,)) for k in range(network.outputs)))


def every_point(sizes: tuple[int, ...]) -> np.ndarray:
    return np.array(list(itertools.product(*map(range, sizes))), np.int64).reshape(-1, len(sizes))


def numpy_scores(network: IntNetwork, positions: np.ndarray) -> np.ndarray:
    """Of a network of sums and ReLUs, by dense int64 products."""
    values = positions
    for layer in network.layers:
        values = values @ layer.rows.to_dense().T + layer.bias
        values = np.maximum(values, 0) if layer.activation == "relu" else values
    return values


@pytest.mark.parametrize("block", range(10))
def test_every_instruction_set_counts_what_python_counts(block: int) -> None:
    engines = [EnumerateEngine(isa) for isa in AVAILABLE]
    for seed in range(block * 30, block * 30 + 30):
        problem = network_problem(seed, points_at_most=400)
        wanted = counted_by_python(problem)
        refusal = ENGINE.refuses(problem, problem.cases[0])
        if refusal is not None:
            assert "a rescaled sum" in refusal
            continue
        for jobs, engine in enumerate(engines, 1):
            assert counts(engine, problem, jobs) == wanted, (seed, engine.isa)


@pytest.mark.parametrize("most", [1, 127, 300, 40_000, 1 << 31, 1 << 40])
def test_every_width_of_words_gives_the_exact_labels_and_scores(most: int) -> None:
    rng = random.Random(most)
    refused = 0
    for _ in range(20):
        sizes = tuple(rng.choice((2, 3, 5, 7)) for _ in range(3))
        network = random_network(rng, 3, most, ("none", "relu", "leaky", "sign", "floor_shift", "max"))
        problem = per_label(network, sizes)
        positions = every_point(sizes)
        scores = [network_eval.point_scores(network, row) for row in positions.tolist()]
        wanted = [row.index(max(row)) for row in scores]
        found, found_scores = evaluate.network_labels(problem, network, positions, with_scores=True)
        assert found.tolist() == wanted
        assert found_scores.tolist() == scores
        assert evaluate.labels(problem, positions).tolist() == wanted
        if ENGINE.refuses(problem, problem.cases[0]) is not None:
            refused += 1
            continue
        assert counts(ENGINE, problem) == {f"q{k}": wanted.count(k) for k in range(network.outputs)}
    assert refused < 20
    assert refused == 0 or most > 1 << 30


@pytest.mark.parametrize(
    "reach", [126, 127, 128, 16_383, 16_384, 16_385, 32_767, 32_768, 32_769, (1 << 31) - 1, 1 << 31, (1 << 31) + 1]
)
@pytest.mark.parametrize("turn", [1, -1])
def test_sums_at_the_ends_of_words(reach: int, turn: int) -> None:
    """The largest sum is exactly at, or one beside, the end of 16 and of 32 bits, on both sides of 0."""
    part = reach // 3
    rows = Rows.dense(np.array([[turn, turn * 2], [turn * part, turn * (reach - part)]]))
    first = IntLayer(rows, np.array([0, 0]), "leaky", positive=1, negative=1)
    last = IntLayer(Rows.dense(np.array([[2, -3], [-1, 1]])), np.array([turn * reach, 0]))
    network = IntNetwork(2, (first, last), 2)
    for layers in (network.layers, (IntLayer(first.rows, first.bias, "relu"), last)):
        problem = per_label(IntNetwork(2, layers, 2), (2, 2))
        wanted = [network_eval.point_label(problem.network, p) for p in every_point((2, 2)).tolist()]  # type: ignore[arg-type]
        for isa in AVAILABLE:
            assert counts(EnumerateEngine(isa), problem) == {"q0": wanted.count(0), "q1": wanted.count(1)}


def stretched(rng: np.random.Generator, n: int, units: int, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and biases of units whose sums over n booleans lie between exactly low and high, both reached."""
    weights, biases = [], []
    for _ in range(units):
        cuts = np.sort(rng.choice(np.arange(1, high - low), n - 1, replace=False))
        row = np.diff([0, *cuts, high - low]) * rng.choice((-1, 1), n)
        weights.append(row)
        biases.append(low - int(row[row < 0].sum()))
    return np.array(weights), np.array(biases)


@pytest.mark.parametrize(
    ("low", "high"), [(-16_384, 16_383), (-16_384, 16_384), (-16_385, 16_383), (-32_768, 32_767), (3, 32_767)]
)
@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("cap", [None, 9_000])
def test_sums_that_just_fit_a_word_over_several_tiles(low: int, high: int, layers: int, cap: int | None) -> None:
    """From one end of 15 or 16 bits to the other, and one beyond, in boxes that start anywhere."""
    n, units = 13, 7
    rng = np.random.default_rng(high + layers)
    weights, biases = stretched(rng, n, units, low, high)
    first = IntLayer(Rows.dense(weights), biases, "relu", cap=cap)
    between = IntLayer(Rows.dense(rng.integers(-2, 3, (4, units))), rng.integers(-9, 10, 4), "relu")
    inputs = units if layers == 2 else 4
    last = rng.integers(-99, 100, inputs)
    positions = every_point((2,) * n)
    values = np.minimum(np.maximum(positions @ weights.T + biases, 0), high if cap is None else cap)
    assert cap is not None or (values.min(), values.max()) == (max(low, 0), high)
    if layers == 3:
        values = np.maximum(values @ between.rows.to_dense().T + between.bias, 0)
    scores = values @ last
    middle = int(np.median(scores))
    final = IntLayer(Rows.dense(np.stack([last, np.zeros(inputs, np.int64)])), np.array([0, middle]))
    network = IntNetwork(n, (first, final) if layers == 2 else (first, between, final), 2)
    says = scores < middle
    for held in ((), (0,), (0, 5), (12,)):
        low_end, high_end = [0] * n, [2] * n
        inside = np.ones(len(positions), bool)
        for f in held:
            low_end[f] = 1
            inside &= positions[:, f] == 1
        queries = (GridQuery("q0", HasLabel((0,))), GridQuery("q1", HasLabel((1,))))
        problem = GridProblem(
            (2,) * n, 2, network, Measure(), (GridCase(Box(tuple(low_end), tuple(high_end)), queries, ()),)
        )
        wanted = {"q0": int((~says & inside).sum()), "q1": int((says & inside).sum())}
        assert min(wanted.values()) > 0
        for isa in AVAILABLE:
            assert counts(EnumerateEngine(isa), problem) == wanted


def test_ties_go_to_the_lowest_index() -> None:
    for outputs in (2, 3, 5):
        same = IntLayer(Rows.dense(np.ones((outputs, 2), np.int64)), np.zeros(outputs, np.int64))
        assert counts(ENGINE, per_label(IntNetwork(2, (same,), outputs), (3, 3)))["q0"] == 9
    # Scores x and y: equal on the diagonal.
    network = IntNetwork(2, (IntLayer(Rows.dense(np.eye(2, dtype=np.int64)), np.zeros(2, np.int64)),), 2)
    for isa in AVAILABLE:
        assert counts(EnumerateEngine(isa), per_label(network, (7, 7))) == {"q0": 28, "q1": 21}


@pytest.mark.parametrize("outputs", [2, 3, 10, 40])
def test_many_inputs_in_odd_widths_against_numpy(outputs: int) -> None:
    """More than one tile, tiles cut short, boxes that start anywhere."""
    rng = random.Random(outputs)
    sizes = (5, 300, 3, 11, 2)
    network = dense_network(5, 23, outputs, outputs, 50)
    for _ in range(3):
        low = tuple(rng.randrange(n // 2 + 1) for n in sizes)
        high = tuple(rng.randint(a + 1, n) for a, n in zip(low, sizes, strict=True))
        queries = tuple(GridQuery(f"q{k}", HasLabel((k,))) for k in range(outputs))
        problem = GridProblem(sizes, outputs, network, Measure(), (GridCase(Box(low, high), queries, ()),))
        positions = np.stack(np.meshgrid(*map(np.arange, low, high), indexing="ij"), -1).reshape(-1, 5)
        labels = numpy_scores(network, positions).argmax(axis=1)
        wanted = {f"q{k}": int(n) for k, n in enumerate(np.bincount(labels, minlength=outputs))}
        for isa in AVAILABLE:
            assert counts(EnumerateEngine(isa), problem, 2) == wanted


def test_work_in_many_pieces_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumerate_network, "PIECE_NANOSECONDS", 20.0)
    monkeypatch.setattr(enumerate_network, "CALL_NANOSECONDS", 50.0)
    network = dense_network(14, 8, 3)
    positions = every_point((2,) * 14)
    ones = int((numpy_scores(network, positions).argmax(axis=1) == 1).sum())
    odd = Within(3, 1, 2)
    problem = over(
        network, (2,) * 14, HasLabel((1,)), AllOf((HasLabel((1,)), odd)), AllOf((HasLabel((1,)), Negation(odd)))
    )
    for jobs in (1, 3):
        assert counts(ENGINE, per_label(network, (2,) * 14), jobs) == {"q0": (1 << 14) - ones, "q1": ones}
        found = counts(ENGINE, problem, jobs)
        assert found["q0"] == ones == found["q1"] + found["q2"]


def relation(nodes: int, name: str) -> Predicate:
    every = range(nodes)

    def holds(i: int, j: int) -> Predicate:
        return Within(i * nodes + j, 1, 2)

    if name == "reflexive":
        return AllOf(tuple(holds(i, i) for i in every))
    return AllOf(
        tuple(
            AnyOf((Negation(holds(i, j)), Negation(holds(j, k)), holds(i, k)))
            for i in every for j in every for k in every
        )
    )  # fmt: skip


@pytest.mark.parametrize("name", ["reflexive", "transitive"])
def test_confusion_over_all_relations_on_four_nodes(name: str) -> None:
    """tp, fp, fn, tn on 2^16 inputs against numpy; 4,096 reflexive and 3,994 transitive relations (OEIS A006905)."""
    nodes, network = 4, dense_network(16, 8, 4)
    truth, yes = relation(nodes, name), HasLabel((1,))
    rest, no = Negation(truth), Negation(yes)
    problem = over(network, (2,) * 16, AllOf((yes, truth)), AllOf((yes, rest)), AllOf((no, truth)), AllOf((no, rest)))
    positions = every_point((2,) * 16)
    says = numpy_scores(network, positions).argmax(axis=1) == 1
    cells = positions.reshape(-1, nodes, nodes).astype(bool)
    if name == "reflexive":
        true = np.all(np.diagonal(cells, axis1=1, axis2=2), axis=1)
    else:
        true = np.all(~(cells.astype(int) @ cells.astype(int) > 0) | cells, axis=(1, 2))
    wanted = [int((a & b).sum()) for a, b in ((says, true), (says, ~true), (~says, true), (~says, ~true))]
    assert wanted[0] + wanted[2] == {"reflexive": 4096, "transitive": 3994}[name]
    for isa in AVAILABLE:
        for jobs in (1, 2):
            assert list(counts(EnumerateEngine(isa), problem, jobs).values()) == wanted


def test_two_to_the_25_in_bounds_of_reason() -> None:
    """The count is split by an input; every half is counted by itself."""
    network = dense_network(25, 16, 1)
    whole = counts(ENGINE, per_label(network, (2,) * 25), 2)
    assert sum(whole.values()) == 1 << 25
    halves = []
    for value in (0, 1):
        low, high = [0] * 25, [2] * 25
        low[11], high[11] = value, value + 1
        case = GridCase(Box(tuple(low), tuple(high)), (GridQuery("q1", HasLabel((1,))),), ())
        halves.append(
            EnumerateEngine(AVAILABLE[0]).count(per_label(network, (2,) * 25), case, Limits(), Progress())["q1"].lower
        )
    assert sum(halves) == whole["q1"]


def test_features_that_nothing_reads_multiply() -> None:
    weights = np.array([[1, 0, 0], [-1, 0, 0]])
    network = IntNetwork(3, (IntLayer(Rows.dense(weights), np.array([-3, 3])),), 2)
    assert counts(ENGINE, per_label(network, (7, 10**15, 5))) == {"q0": 4 * 5 * 10**15, "q1": 3 * 5 * 10**15}
    assert counts(ENGINE, over(network, (7, 10**15, 5), Within(2, 1, 3))) == {"q0": 14 * 10**15}


def test_a_first_layer_of_maxima() -> None:
    members = np.array([[0, 1, -1], [2, 1, 0]])
    nothing = np.zeros(0, np.int64)
    pool = IntLayer(Rows(3, np.zeros(1, np.int64), nothing, nothing), nothing, "max", members=members)
    network = IntNetwork(3, (pool,), 2)
    positions = every_point((4, 5, 6))
    ones = int((positions.max(axis=1) > positions[:, :2].max(axis=1)).sum())
    assert counts(ENGINE, per_label(network, (4, 5, 6))) == {"q0": 120 - ones, "q1": ones}


def test_maxima_of_wide_values_that_a_narrow_one_bounds() -> None:
    """The maximum of 5 and something far below it fits 32 bits; what it is compared with does not."""
    far = 2**32 - 7
    first = IntLayer(Rows.dense(np.array([[-far], [0], [1]])), np.array([0, 5, 0]))
    nothing = np.zeros(0, np.int64)
    for members in ([[0, 1], [2, -1]], [[1, 0], [2, 0], [0, 1]]):
        pool = IntLayer(Rows(3, np.zeros(1, np.int64), nothing, nothing), nothing, "max", members=np.array(members))
        network = IntNetwork(1, (first, pool), len(members))
        problem = per_label(network, (40,))
        # max(5, x) is the larger of 5 and x; the tie at 5 goes to label 0.
        for isa in AVAILABLE:
            assert list(counts(EnumerateEngine(isa), problem).values())[:2] == [6, 34]
        labels = evaluate.labels(problem, every_point((40,)))
        assert labels.tolist() == [0] * 6 + [1] * 34


def test_rescaling_matches_the_library_formula_in_exact_rationals() -> None:
    """Single rounding is ⌊x·m·2^(s−31) + ½⌋; double rounding goes half away from zero, twice."""
    rng = random.Random(9)
    for rounding in ("single", "double"):
        for _ in range(40):
            multiplier, shift = rng.randrange(1 << 30, 1 << 31), rng.randint(-12, 3)
            step = rng.choice((1, 3, 1001, 123_457))
            scale = RequantiseLayer(np.array([multiplier] * 2), np.array([shift] * 2), -3, -128, 127, rounding)
            layer = IntLayer(
                Rows.dense(np.array([[step], [-step]])), np.array([-7 * step, 7 * step]), "requantise", requantise=scale
            )
            problem = per_label(IntNetwork(1, (layer,), 2), (15,))
            _, scores = evaluate.network_labels(problem, problem.network, every_point((15,)), with_scores=True)  # type: ignore[arg-type]

            def rounded(x: Fraction) -> int:
                return math.floor(x + Fraction(1, 2)) if x >= 0 else -math.floor(-x + Fraction(1, 2))

            for position, row in enumerate(scores.tolist()):
                for z, y in zip((step * (position - 7), step * (7 - position)), row, strict=True):
                    exact = Fraction(z * multiplier) * Fraction(2) ** (shift - 31)
                    if rounding == "single":
                        wanted = math.floor(exact + Fraction(1, 2))
                    else:
                        wanted = rounded(
                            Fraction(rounded(Fraction((z << max(shift, 0)) * multiplier, 1 << 31)), 1 << max(-shift, 0))
                        )
                    assert y == min(max(wanted - 3, -128), 127)


def test_a_deadline_leaves_bounds_that_hold() -> None:
    network = dense_network(40, 16, 2)
    problem = per_label(network, (2,) * 40)
    for jobs in (1, 2):
        limits = Limits(deadline=time.monotonic() + 0.3, jobs=jobs)
        found = ENGINE.count(problem, problem.cases[0], limits, Progress())
        assert time.monotonic() < (limits.deadline or 0) + 2
        seen = sum(c.lower for c in found.values())
        assert 0 < seen < 1 << 40
        for count in found.values():
            assert count.guarantee is Guarantee.BOUNDS
            assert count.upper - count.lower == (1 << 40) - seen
            assert "stopped after" in count.note


def test_witnesses_are_found_wherever_there_is_one() -> None:
    found = 0
    for seed in range(60):
        problem = network_problem(seed, points_at_most=200)
        case, wanted = problem.cases[0], counted_by_python(problem)
        for query in case.queries:
            point = ENGINE.witness(problem, case, query, Limits())
            assert (point is not None) == (wanted[query.name] > 0)
            if point is not None:
                found += 1
                assert point in set(points(case.region))
                scores = network_eval.point_scores(problem.network, point)  # type: ignore[arg-type]
                assert logic.holds(query.predicate, point, scores.index(max(scores)), scores)
    assert found > 60


def test_refusals_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = IntLayer(Rows.dense(np.array([[1 << 70], [1]], object)), np.array([0, 0], object), bits=80)
    problem = per_label(IntNetwork(1, (wide,), 2), (4,))
    assert "64 bits" in str(ENGINE.refuses(problem, problem.cases[0]))
    large = per_label(dense_network(80, 4, 1), (2,) * 80)
    assert "2^80" in str(ENGINE.refuses(large, large.cases[0]))
    small = per_label(dense_network(4, 4, 1), (2,) * 4)
    wanted = counts(ENGINE, small)
    for name in AVAILABLE:
        monkeypatch.setenv("QUANTIFY_ISA", name)
        assert counts(EnumerateEngine(), small) == wanted
    monkeypatch.setenv("QUANTIFY_ISA", "mmx")
    with pytest.raises(InputError, match="mmx"):
        counts(EnumerateEngine(), small)


def test_empty_regions() -> None:
    problem = per_label(dense_network(2, 4, 1), (3, 3))
    empty = GridCase(Box((1, 2), (1, 3)), problem.cases[0].queries, ())
    assert all(c.upper == 0 for c in ENGINE.count(problem, empty, Limits(), Progress()).values())
    assert ENGINE.witness(problem, empty, empty.queries[0], Limits()) is None
    assert ENGINE.count(problem, GridCase(problem.cases[0].region, (), ()), Limits(), Progress()) == {}


@pytest.mark.parametrize("block", range(4))
def test_evaluator_reference_and_samples_agree_with_python(block: int) -> None:
    wide = 0
    for seed in range(1000 + block * 20, 1020 + block * 20):
        most = (None, None, 1 << 45)[seed % 3]
        problem = network_problem(seed, most=most, points_at_most=150)
        network, case = problem.network, problem.cases[0]
        assert network is not None
        if any(layer.requantise is not None for layer in network.layers) and most:
            continue
        try:
            native_network.lower(network, 5, (0,) * len(problem.sizes), problem.sizes, walk=False, scores=True)
        except NotNativeError:
            wide += 1
        positions = every_point(problem.sizes)
        inside = set(points(case.region))
        totals = {}
        for query in case.queries:
            truths = []
            for row in map(tuple, positions.tolist()):
                scores = network_eval.point_scores(network, row)
                truths.append(row in inside and logic.holds(query.predicate, row, scores.index(max(scores)), scores))
            assert evaluate.truths(problem, case, query, positions).tolist() == truths
            totals[query.name] = sum(truths)
        exact = reference.ENGINE.count(problem, case, Limits(), Progress())
        assert {name: count.lower for name, count in exact.items()} == totals
        sampled = SampleEngine(2000, 1 - Fraction(1, 10**6)).count(problem, case, Limits(), Progress())
        assert all(count.lower <= totals[name] <= count.upper for name, count in sampled.items())
    assert wide > 0


def test_samples_do_not_depend_on_threads() -> None:
    problem = over(dense_network(600, 4, 1), (9,) * 600, HasLabel((1,)), score_predicate(random.Random(1), 2))
    one, two = (
        SampleEngine(20_000).count(problem, problem.cases[0], Limits(jobs=jobs, seed=3), Progress()) for jobs in (1, 2)
    )
    assert {k: c.hits for k, c in one.items()} == {k: c.hits for k, c in two.items()}
    assert 0 < (one["q0"].hits or 0) < 20_000


def test_estimates_grow_with_the_work() -> None:
    small, large = per_label(dense_network(10, 16, 1), (2,) * 10), per_label(dense_network(36, 16, 1), (2,) * 36)
    seconds = [ENGINE.estimate(p, p.cases[0]).seconds for p in (small, large)]
    assert seconds[0] < 0.01
    assert 2 < seconds[1] < 300
    both = over(dense_network(36, 16, 1), (2,) * 36, Sign("<", Linear(((0, 1),), -1)))
    assert ENGINE.estimate(both, both.cases[0]).seconds < seconds[1]

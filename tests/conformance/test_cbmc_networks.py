"""Integer networks as C: CBMC with an exact counter, and a compiled program, against plain Python on every input."""

from __future__ import annotations

import ctypes
import os
import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from random_grids import points, random_predicate, random_region
from random_int_networks import counted_by_python, dense_network, random_layer

from quantify.cnf.codegen import emit_c, emit_program, symbols
from quantify.cnf.engine import CnfEngine
from quantify.engines import logic
from quantify.errors import InputError
from quantify.ir import network_eval
from quantify.ir.domain import Measure
from quantify.ir.network import IntLayer, IntNetwork, Rows
from quantify.ir.predicate import FloorDiv, HasLabel, Plus, Predicate, Score, Sign, Times
from quantify.ir.problem import Box, GridCase, GridProblem, GridQuery
from quantify.resources import Limits, Progress

KINDS = ("none", "relu", "leaky", "sign", "floor_shift", "max")
WIDE = 1 << 90


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    """No verdict of this machine's user is read or left behind."""
    patch = pytest.MonkeyPatch()
    patch.setenv("QUANTIFY_CACHE", os.fspath(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


def network_of(rng: random.Random, inputs: int, kind: str, most: int) -> IntNetwork:
    """One or two hidden layers, the first of the kind, and two to four scores, which small weights often tie."""
    widths = [inputs, *(rng.randint(2, 4) for _ in range(rng.randint(1, 2))), rng.randint(2, 4)]
    kinds = [kind, *(rng.choice(KINDS) for _ in widths[2:-1]), "none" if rng.random() < 0.7 else rng.choice(KINDS)]
    layers = [random_layer(rng, a, b, k, most) for a, b, k in zip(widths, widths[1:], kinds, strict=False)]
    return IntNetwork(inputs, tuple(layers), widths[-1])


def on_scores(rng: random.Random, outputs: int) -> Predicate:
    """A comparison of arithmetic over two scores."""
    first, second = (Score(rng.randrange(outputs), -WIDE, WIDE) for _ in range(2))
    product = Times(first, FloorDiv(second, rng.choice((2, 3))))
    return Sign(rng.choice(("<", "<=", "==", "!=")), rng.choice((Plus((product, second)), Plus((first, second)))))


def problem_of(seed: int) -> GridProblem:
    """At most 12 bits of input, over a box, a ball or the whole domain."""
    rng = random.Random(seed)
    sizes = tuple(rng.randint(2, 8) for _ in range(rng.randint(2, 4)))
    network = network_of(rng, len(sizes), KINDS[seed % len(KINDS)], rng.choice((1, 2, 3, 9)))
    predicates = (
        HasLabel((rng.randrange(network.outputs),)),
        HasLabel(tuple(sorted(rng.sample(range(network.outputs), network.outputs - 1)))),
        on_scores(rng, network.outputs) if seed % 2 else random_predicate(rng, sizes, network.outputs, 2),
    )
    region = random_region(rng, sizes, rng.choice(("domain", "domain", "box", "l0", "l1")))
    queries = tuple(GridQuery(f"q{k}", predicate) for k, predicate in enumerate(predicates))
    return GridProblem(sizes, network.outputs, network, Measure(), (GridCase(region, queries, ()),))


def checked(problem: GridProblem, engine: CnfEngine) -> None:
    case, want = problem.cases[0], counted_by_python(problem)
    assert engine.refuses(problem, case) is None
    assert engine.estimate(problem, case).seconds > 0
    counts = engine.count(problem, case, Limits(), Progress())
    assert {name: (count.lower, count.upper) for name, count in counts.items()} == {q: (n, n) for q, n in want.items()}


@pytest.mark.needs("cbmc", "pyganak")
@pytest.mark.parametrize("seed", range(30))
def test_counts(seed: int) -> None:
    checked(problem_of(seed), CnfEngine())


@pytest.mark.needs("cbmc")
def test_another_counter() -> None:
    checked(problem_of(101), CnfEngine("tididi"))


def compiled(problem: GridProblem, folder: Path) -> ctypes.CDLL:
    (folder / "program.c").write_text(emit_program(problem, problem.cases[0]))
    library = folder / "program.so"
    flags = ("-std=c11", "-O1", "-Wall", "-Wextra", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    subprocess.run(["gcc", *flags, "-shared", "-fPIC", folder / "program.c", "-o", library], check=True)
    return ctypes.CDLL(os.fspath(library))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("seed", [*range(200, 224), *range(1000, 1008)])
def test_compiled_program(seed: int, tmp_path: Path) -> None:
    """Weights of up to 40 bits too, which lead to words between 64 and 127 bits."""
    problem = problem_of(seed)
    case, network = problem.cases[0], problem.network
    assert network is not None
    if seed >= 1000:
        rng = random.Random(seed)
        network = network_of(rng, len(problem.sizes), "leaky" if seed % 2 else "relu", 1 << 30)
        queries = tuple(GridQuery(f"q{k}", HasLabel((k,))) for k in range(network.outputs))
        case = GridCase(case.region, queries, ())
        problem = replace(problem, labels=network.outputs, structure=network, cases=(case,))
    program = compiled(problem, tmp_path)
    inside = set(points(case.region))
    for point in points(Box((0,) * len(problem.sizes), problem.sizes)):
        at = (ctypes.c_longlong * len(point))(*point)
        scores = network_eval.point_scores(network, point)
        label = scores.index(max(scores))
        assert program.classify(at) == label
        for query, symbol in zip(case.queries, symbols(case.queries), strict=True):
            want = point in inside and logic.holds(query.predicate, point, label, scores)
            assert program[f"query_{symbol}"](at) == want


def over_domain(network: IntNetwork, sizes: tuple[int, ...]) -> GridProblem:
    case = GridCase(Box((0,) * len(sizes), sizes), (GridQuery("q", HasLabel((0,))),), ())
    return GridProblem(sizes, network.outputs, network, Measure(), (case,))


def single(weights: list[list[int]], **extra: object) -> IntLayer:
    matrix = np.array(weights, object)
    return IntLayer(Rows.dense(matrix), np.array([0] * len(weights), object), **extra)  # type: ignore[arg-type]


@pytest.mark.needs("cbmc", "pyganak")
def test_ties_go_to_the_lowest_index() -> None:
    problem = over_domain(IntNetwork(2, (single([[1, 0], [0, 1], [1, 0]]),), 3), (5, 5))
    queries = tuple(GridQuery(f"q{k}", HasLabel((k,))) for k in range(3))
    problem = replace(problem, cases=(replace(problem.cases[0], queries=queries),))
    counts = CnfEngine().count(problem, problem.cases[0], Limits(), Progress())
    assert [counts[f"q{k}"].lower for k in range(3)] == [15, 10, 0]


@pytest.mark.needs("cbmc", "pyganak")
def test_words_beyond_64_bits() -> None:
    hidden = single([[(1 << 70) + 3, -(1 << 69)], [-(1 << 68) - 1, 1 << 70]], activation="relu")
    network = IntNetwork(2, (hidden, single([[1, -1], [2, -3]])), 2)
    checked(over_domain(network, (4, 3)), CnfEngine())


def test_words_are_the_narrowest() -> None:
    """7·x0 + 3·x1 is at most 7·3 + 3·2 = 27, and 10 less is between −10 and 17."""
    layer = single([[7, 3]], activation="floor_shift", shift=1, low=-100, high=100)
    problem = over_domain(IntNetwork(2, (layer, single([[1], [-5]])), 2), (4, 3))
    (case,) = problem.cases
    source = emit_c(problem, case, case.queries[0])
    assert {int(bits) for bits in re.findall(r"__CPROVER_bitvector\[(\d+)\]", source)} <= {2, 4, 5}


def test_refusals() -> None:
    rng = random.Random(1)
    rescaled = over_domain(IntNetwork(2, (random_layer(rng, 2, 2, "requantise", 9),), 2), (3, 3))
    wide = over_domain(IntNetwork(2, (single([[1 << 600, 1], [1, 1]]),), 2), (3, 3))
    large = over_domain(dense_network(64, 64, 1), (2,) * 64)
    for problem, reason in ((rescaled, "rescales"), (wide, "512"), (large, "weights")):
        assert reason in (CnfEngine().refuses(problem, problem.cases[0]) or "")
    for problem, reason in ((rescaled, "rescales"), (wide, "bits")):
        with pytest.raises(InputError, match=reason):
            emit_c(problem, problem.cases[0], problem.cases[0].queries[0])
    middle = over_domain(IntNetwork(2, (single([[1 << 130, 0], [1, 1 << 129]]),), 2), (3, 3))
    with pytest.raises(InputError, match="128"):
        emit_program(middle, middle.cases[0])

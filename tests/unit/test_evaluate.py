"""The native evaluator against the plain-Python meaning of trees and predicates."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from random_grids import points, random_predicate, random_problem, random_tree

from quantify.engines import bytecode, evaluate, logic
from quantify.ir.domain import Measure
from quantify.ir.predicate import CountOf, Extreme, FloorDiv, Linear, Negation, Plus, Predicate, Sign, Times, Within
from quantify.ir.problem import Box, GridCase, GridProblem, GridQuery, GridTree

LEAF = GridTree((-1,), (0,), (0,), (0,), (0,), (0,))


def whole(sizes: tuple[int, ...], predicate: Predicate) -> tuple[GridProblem, GridCase, GridQuery]:
    query = GridQuery("q", predicate)
    case = GridCase(Box((0,) * len(sizes), sizes), (query,), ())
    return GridProblem(sizes, 1, LEAF, Measure(), (case,)), case, query


@pytest.mark.parametrize("block", range(10))
def test_labels_and_truths_agree_with_the_definition(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        problem = random_problem(seed)
        case = problem.cases[0]
        everything = list(itertools.product(*(range(n) for n in problem.sizes)))
        positions = np.array(everything, np.int64)
        labels = evaluate.labels(problem, positions)
        assert labels.tolist() == [logic.label_of(problem.tree, p) for p in everything]
        inside = set(points(case.region))
        for query in case.queries:
            found = evaluate.truths(problem, case, query, positions)
            wanted = [
                p in inside and logic.holds(query.predicate, p, label)
                for p, label in zip(everything, labels.tolist(), strict=True)
            ]
            assert found.tolist() == wanted, (seed, query)


@pytest.mark.parametrize("power", [10, 29, 30, 31, 41, 42, 43, 60, 70, 200])
def test_every_width_of_arithmetic_gives_the_exact_answer(power: int) -> None:
    big = 1 << power
    wide = Linear(((0, big), (1, -big + 1)), 3 - big)
    argument = Plus((Times(wide, Linear(((1, -3),), 1)), FloorDiv(Times(wide, wide), big - 1), Linear((), -2)))
    for op in ("<", "<=", "==", "!="):
        problem, case, query = whole((9, 7), Sign(op, argument))
        everything = list(itertools.product(range(9), range(7)))
        found = evaluate.truths(problem, case, query, np.array(everything, np.int64))
        assert found.tolist() == [logic.holds(query.predicate, p, 0) for p in everything]


def test_widths_are_chosen_by_proof() -> None:
    def program(argument: Linear | Times) -> bytecode.Program:
        problem, _, query = whole((3,), Sign("<", argument))
        return bytecode.compile_predicates([query.predicate], problem)

    assert not program(Linear(((0, (1 << 62) - 1),), 1)).wide
    assert program(Linear(((0, 1 << 62),), 0)).wide
    assert program(Linear(((0, -(1 << 62)),), -1)).wide
    assert not program(Linear(((0, -(1 << 62)),), 0)).wide
    with pytest.raises(bytecode.NotNativeError, match="129 bits"):
        program(Times(Linear(((0, 1 << 63),), 0), Linear(((0, 1 << 62),), 0)))


def test_a_feature_too_wide_for_words_still_has_labels_within_words() -> None:
    tree = GridTree((0, -1, -1), (5, 0, 0), (1 << 80, 0, 0), (1, 0, 0), (2, 0, 0), (-1, 0, 1))
    case = GridCase(Box((0,), (1 << 80,)), (GridQuery("q", Within(0, 3, 1 << 79)),), ())
    problem = GridProblem((1 << 80,), 2, tree, Measure(), (case,))
    positions = np.array([[0], [4], [5], [(1 << 63) - 1]], np.int64)
    assert evaluate.labels(problem, positions).tolist() == [0, 0, 1, 1]
    assert evaluate.truths(problem, case, case.queries[0], positions).tolist() == [False, True, True, True]


def test_counts_and_extremes_nest() -> None:
    rng = random.Random(5)
    sizes = (3, 4)
    parts = tuple(random_predicate(rng, sizes, 1, 2) for _ in range(4))
    inner = Extreme("max", (CountOf(parts), Extreme("min", (Linear(((0, 2),), -1), CountOf(parts[:2])))))
    problem, case, query = whole(sizes, Negation(Sign("<=", Plus((inner, Linear(((1, -1),), 0))))))
    everything = list(itertools.product(range(3), range(4)))
    found = evaluate.truths(problem, case, query, np.array(everything, np.int64))
    assert found.tolist() == [logic.holds(query.predicate, p, 0) for p in everything]


def test_positions_outside_the_grid_are_refused() -> None:
    problem, _, _ = whole((3, 2), Within(0, 0, 1))
    assert evaluate.labels(problem, np.zeros((0, 2), np.int64)).tolist() == []
    for bad in ([[3, 0]], [[0, -1]]):
        with pytest.raises(ValueError, match="outside"):
            evaluate.labels(problem, np.array(bad, np.int64))
    with pytest.raises(ValueError, match="shape"):
        evaluate.labels(problem, np.zeros((4, 3), np.int64))


def test_preparations_do_not_outlive_their_problem() -> None:
    problem = GridProblem((4,), 2, random_tree(random.Random(1), (4,), 2, 3), Measure(), ())
    evaluate.labels(problem, np.array([[1]], np.int64))
    assert id(problem) in evaluate._prepared
    key = id(problem)
    del problem
    assert key not in evaluate._prepared

"""The fidelity check lets right trees pass and catches every bug planted in the integer tree."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from library_trees import edited, fitted, problem_around, random_library_problem

from quantify.discretise import check_fidelity, lower, to_inputs
from quantify.discretise.draws import from_region
from quantify.engines.logic import label_of
from quantify.engines.reference import contains, points_of
from quantify.errors import ContradictionError
from quantify.ir.domain import IntFeature
from quantify.ir.problem import Ball, Box, Case, GridProblem, GridTree, Problem, Query
from quantify.ir.property import LabelIn


def evaluator(tree: GridTree) -> Callable[[np.ndarray], np.ndarray]:
    return lambda points: np.array([label_of(tree, point) for point in points.tolist()], dtype=np.int64)


def checked(problem: Problem, grid: GridProblem, samples: int = 300) -> str:
    (check,) = check_fidelity(problem, grid, evaluator(grid.tree), seed=0, samples=samples)
    assert (check.name, check.status) == ("fidelity", "ok")
    return check.detail


@pytest.mark.parametrize("seed", range(60))
def test_right_trees_pass(seed: int) -> None:
    problem = random_library_problem(seed)
    assert "inputs" in checked(problem, lower(problem))


def differs(problem: Problem, one: GridTree, other: GridTree) -> bool:
    domain = Box((0,) * len(problem.domain.sizes), problem.domain.sizes)
    return any(label_of(one, point) != label_of(other, point) for point in points_of(domain))


def cut_moved(tree: GridTree, sizes: tuple[int, ...], rng: random.Random) -> GridTree:
    node = rng.choice([n for n, f in enumerate(tree.feature) if f >= 0])
    low = list(tree.low)
    low[node] = min(max(low[node] + rng.choice((-1, 1)), 0), sizes[tree.feature[node]])
    return replace(tree, low=tuple(low))


def missing_swapped(tree: GridTree, sizes: tuple[int, ...], rng: random.Random) -> GridTree:
    node = rng.choice([n for n, f in enumerate(tree.feature) if f >= 0])
    size = sizes[tree.feature[node]]
    high = list(tree.high)
    high[node] = size if high[node] == size - 1 else size - 1
    return replace(tree, high=tuple(high))


def children_swapped(tree: GridTree, sizes: tuple[int, ...], rng: random.Random) -> GridTree:
    node = rng.choice([n for n, f in enumerate(tree.feature) if f >= 0])
    left, right = list(tree.left), list(tree.right)
    left[node], right[node] = right[node], left[node]
    return replace(tree, left=tuple(left), right=tuple(right))


def label_lost(tree: GridTree, sizes: tuple[int, ...], rng: random.Random) -> GridTree:
    leaf = rng.choice([n for n, f in enumerate(tree.feature) if f < 0])
    label = list(tree.label)
    label[leaf] = (label[leaf] + 1) % (max(label) + 2)
    return replace(tree, label=tuple(label))


def labels_permuted(tree: GridTree, sizes: tuple[int, ...], rng: random.Random) -> GridTree:
    return replace(tree, label=tuple(label if label < 0 else 1 - label if label < 2 else label for label in tree.label))


@pytest.mark.parametrize("bug", [cut_moved, missing_swapped, children_swapped, label_lost, labels_permuted])
def test_planted_bugs_are_caught(bug: Callable[..., GridTree]) -> None:
    planted = 0
    for seed in range(40):
        problem = random_library_problem(seed, most_points=600)
        grid = lower(problem)
        if grid.tree.feature[0] < 0:
            continue
        wrong = bug(grid.tree, grid.sizes, random.Random(seed))
        if not differs(problem, grid.tree, wrong):
            continue
        planted += 1
        with pytest.raises(ContradictionError):
            check_fidelity(problem, grid, evaluator(wrong), seed=seed, samples=2000)
    assert planted >= 10


def wide_problem(columns: int, leaves: int, widest: int) -> Problem:
    rng = random.Random(columns)
    model = fitted(rng, columns, leaves, 5, missing=False)
    edited(model, threshold=[rng.randrange(widest) + 0.5 for _ in range(model.tree_.node_count)])
    features = [IntFeature(f"p{place}", minimum=0, maximum=widest) for place in range(columns)]
    return problem_around(model, features)


@pytest.mark.parametrize("step", [-1, 1])
def test_off_by_one_in_a_wide_domain_is_found_next_to_the_threshold(step: int) -> None:
    """One value in a million: uniform draws would not find it."""
    problem = wide_problem(40, 30, 10**6)
    grid = lower(problem)
    cuts = [node for node, feature in enumerate(grid.tree.feature) if feature >= 0]
    moved = tuple(cut + step * (node == cuts[0]) for node, cut in enumerate(grid.tree.low))
    wrong = evaluator(replace(grid.tree, low=moved))
    with pytest.raises(ContradictionError, match="next to a threshold"):
        check_fidelity(problem, grid, wrong, seed=0, samples=2000)


def test_the_error_names_the_input_and_both_labels() -> None:
    model = edited(fitted(random.Random(1), 1, 2, 2, missing=False), threshold=[2.0, -2, -2])
    problem = problem_around(model, [IntFeature("size", minimum=0, maximum=4)])
    grid = lower(problem)
    wrong = replace(grid.tree, low=(2, *grid.tree.low[1:]))
    with pytest.raises(ContradictionError) as caught:
        check_fidelity(problem, grid, evaluator(wrong), seed=0)
    assert "size=2" in caught.value.message
    assert "'0'" in caught.value.message
    assert "'1'" in caught.value.message
    assert caught.value.exit_code == 4
    assert caught.value.hint


def test_a_wide_input_is_named_by_what_the_tree_asked() -> None:
    problem = wide_problem(40, 30, 255)
    grid = lower(problem)
    with pytest.raises(ContradictionError) as caught:
        check_fidelity(problem, grid, lambda points: np.full(len(points), 77), seed=0)
    assert "class index 77" in caught.value.message
    assert 0 < caught.value.message.count("=") < 40


def with_case(problem: Problem, region: Box | Ball, centre: tuple[int, ...]) -> Problem:
    query = Query("robust", LabelIn((0,)))
    return replace(problem, cases=(Case(region, (query,), (), row=7, epsilon=Fraction(1), centre=centre),))


@pytest.mark.parametrize("kind", ["region", "centre"])
def test_disagreements_inside_a_ball_are_found_and_its_row_named(kind: str) -> None:
    problem = wide_problem(3, 2, 10**6)
    centre = (500_000, 500_001, 500_002)
    box = Box(tuple(c - 1 for c in centre), tuple(c + 2 for c in centre))
    problem = with_case(problem, box if kind == "region" else Box((0, 0, 0), problem.domain.sizes), centre)
    grid = lower(problem)

    def wrong(points: np.ndarray) -> np.ndarray:
        near = (np.abs(points - np.array(centre)) <= (1 if kind == "region" else 0)).all(axis=1)
        return np.where(near, 99, evaluator(grid.tree)(points))

    with pytest.raises(ContradictionError, match="row 7"):
        check_fidelity(problem, grid, wrong, seed=0, samples=1000)


@pytest.mark.parametrize("norm", ["l1", "l0"])
def test_draws_from_balls_stay_inside_and_move(norm: str) -> None:
    rng = np.random.default_rng(0)
    ball = Ball(Box((0,) * 6, (50,) * 6), (5,) * 6, "l1" if norm == "l1" else "l0", (1, 2, 1, 1, 3, 1), 4)
    if norm == "l0":
        ball = replace(ball, weights=(1,) * 6, radius=2)
    drawn = {tuple(row) for row in from_region(rng, ball, 500).tolist()}
    assert len(drawn) > 50
    assert all(contains(ball, point) and all(0 <= p < 50 for p in point) for point in drawn)


def test_empty_regions_and_fixed_points_are_no_trouble() -> None:
    problem = wide_problem(3, 4, 9)
    for region in (Box((1, 1, 1), (1, 5, 5)), Ball(Box((1, 1, 1), (2, 2, 2)), (1, 1, 1), "l1", (1, 1, 1), 5)):
        case_problem = with_case(problem, region, (1, 1, 1))
        checked(case_problem, lower(case_problem))


def test_a_single_leaf_passes() -> None:
    model = edited(fitted(random.Random(1), 1, 2, 2, missing=False), threshold=[99.0, -2, -2])
    problem = problem_around(model, [IntFeature("size", minimum=0, maximum=4)])
    grid = lower(problem)
    assert len(grid.tree.feature) == 1
    checked(problem, grid)


def test_results_depend_on_the_seed_only() -> None:
    problem = wide_problem(5, 8, 99)
    grid = lower(problem)
    seen: list[list[list[int]]] = []

    def recording(points: np.ndarray) -> np.ndarray:
        seen[-1].extend(points.tolist())
        return evaluator(grid.tree)(points)

    for seed in (1, 1, 2):
        seen.append([])
        check_fidelity(problem, grid, recording, seed=seed, samples=200)
    assert seen[0] == seen[1] != seen[2]


def test_image_size_problems_take_a_moment_and_little_memory() -> None:
    problem = wide_problem(784, 150, 255)
    started = time.perf_counter()
    grid = lower(problem)
    lowered = time.perf_counter()
    most = 0

    def evaluate(points: np.ndarray) -> np.ndarray:
        nonlocal most
        most = max(most, points.nbytes)
        return problem.model.predict(to_inputs(problem, points))

    (check,) = check_fidelity(problem, grid, evaluate, seed=0)
    assert int(check.detail.split()[0]) > 10_000
    assert most < 2**26
    # Generous: the machine that runs the tests may be busy.
    assert lowered - started < 1
    assert time.perf_counter() - lowered < 5
    assert math.prod(grid.sizes) == 256**784

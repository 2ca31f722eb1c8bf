"""The engine `branch` where its words, doubles and buffers end: every count is one that a hand can make."""

import random
import time

import numpy as np
import pytest
from random_networks import int_layer, network_problem, plain_count, random_network

from quantify.engines import branch
from quantify.engines.branch import BranchEngine
from quantify.engines.branch_checkpoint import Checkpoints
from quantify.engines.branch_plan import Tuning
from quantify.evidence.certificates.check import check
from quantify.ir.network import IntNetwork
from quantify.ir.predicate import AnyOf, CountOf, HasLabel, Linear, Plus, Score, Sign, Times, Within
from quantify.ir.problem import GridQuery
from quantify.resources import Limits, Progress

HUGE = 1 << 130


def ends(problem, engine=None, limits=None):
    found = (engine or BranchEngine()).count(problem, problem.cases[0], limits or Limits(), Progress())
    return {name: (count.lower, count.upper) for name, count in found.items()}


def exactly(problem):
    return {name: (count, count) for name, count in plain_count(problem, problem.cases[0]).items()}


@pytest.mark.parametrize("leaf_points", [64, 20_000])
def test_every_point_in_doubt_finds_room(leaf_points):
    """Twin neurons whose huge weights cancel: score 0 − score 1 = max(y − 2, 0) − 3, too little for doubles to see."""
    weight = 1 << 60
    hidden = int_layer([[1, 0], [1, 0], [0, 1]], [-3, -3, -2], "relu")
    scores = int_layer([[weight, 0, weight // 3 + 1], [0, weight, weight // 3]], [0, 3])
    # Leaves of 57 points: 71 pairs of them leave less room than one more pair takes.
    problem = network_problem(IntNetwork(2, (hidden, scores), 2), (228, 128))
    engine = BranchEngine(tuning=Tuning(leaf_points=leaf_points, reduced_work=0, closed_form=False))
    limits = Limits(deadline=time.monotonic() + 120)
    assert ends(problem, engine, limits) == {"0": (228 * 123,) * 2, "1": (228 * 5,) * 2}


@pytest.mark.parametrize("isa", ["portable", ""])
@pytest.mark.parametrize("bits", [20, 46, 60])
def test_arguments_just_below_zero_on_a_part_of_one_position(bits, isa):
    """2^bits·x − 1 is −1 on the part x = 0: nearer to 0 than doubles of its weights can tell."""
    hidden = int_layer([[1 << bits, 0], [0, 1], [0, -1]], [-1, -5, 9], "relu")
    for sign in (1, -1):
        # With x = 0, max(y − 5, 0) > max(9 − y, 0) from y = 8 on (7 is a tie); with x = 1 the first decides.
        scores = int_layer([[0, 0, 0], [sign, 1, -1]], [0, 0])
        problem = network_problem(IntNetwork(2, (hidden, scores), 2), (2, 20_000))
        first = 8 if sign > 0 else 8 + 20_000
        assert ends(problem, BranchEngine(isa=isa)) == {"0": (first,) * 2, "1": (40_000 - first,) * 2}


def test_biases_of_any_size_where_no_slope_asks_for_them():
    idle = int_layer([[1, 0], [0, 1], [1, 1]], [0, 0, HUGE], "relu")
    alike = int_layer([[1, 0, 3], [2, 1, 3]], [0, -9])
    problem = network_problem(IntNetwork(2, (idle, alike), 2), (30, 20))
    assert ends(problem) == exactly(problem)
    plain = int_layer([[1, 0], [0, 1]], [0, 0], "relu")
    lifted = int_layer([[1, 0], [0, 1]], [HUGE, HUGE])
    problem = network_problem(IntNetwork(2, (plain, lifted), 2), (30, 20))
    assert ends(problem) == exactly(problem)


def test_shifts_beyond_doubles_are_refused():
    for shift, refused in ((1000, False), (1001, True), (2000, True)):
        shifted = int_layer([[1], [-1]], [-5, 4], "floor_shift", shift=shift, low=-3, high=3)
        problem = network_problem(IntNetwork(1, (shifted, int_layer([[1, 0], [0, 1]], [0, 0])), 2), (40,))
        reason = BranchEngine().refuses(problem, problem.cases[0])
        assert (reason is not None) == refused
        if reason is None:
            # z >> s is −1 below 0: label 1 wins where x < 5 only.
            assert ends(problem) == {"0": (35, 35), "1": (5, 5)}


def test_integers_that_leave_the_doubles_are_refused():
    last = int_layer([[3, 1], [1, 2]], [0, -4])
    for bits, refused in ((100, False), (700, False), (1500, True)):
        # The first neuron is never active: the next layer's numbers are small again.
        idle = int_layer([[-(1 << bits), 0], [0, 1]], [-(1 << bits), 0], "relu")
        problem = network_problem(IntNetwork(2, (idle, last), 2), (9, 8))
        reason = BranchEngine().refuses(problem, problem.cases[0])
        assert (reason == "its integers leave the range of doubles") == refused
        if not refused:
            assert reason is None
            assert ends(problem) == exactly(problem)
    wide = int_layer([[1 << 900], [1]], [-(4 << 900), 2], "floor_shift", shift=898, low=-(1 << 1100), high=1 << 1100)
    problem = network_problem(IntNetwork(1, (wide, int_layer([[1, 0], [0, 1]], [0, 0])), 2), (9,))
    assert BranchEngine().refuses(problem, problem.cases[0]) == "its integers leave the range of doubles"


def test_weights_that_scaling_makes_vanish_are_refused():
    """Both neurons have the argument 2^990 (x − 50); beside a weight of 2^500 no double holds one of 1."""
    top = 1 << 1000
    clamped = int_layer([[1 << 990]], [-(50 << 990)], "floor_shift", shift=0, low=-top, high=top)
    apart = int_layer([[1 << 500], [1]], [0, 0])
    scores = int_layer([[0, 0], [0, 1]], [0, 0])
    problem = network_problem(IntNetwork(1, (clamped, apart, scores), 2), (300,))
    assert BranchEngine().refuses(problem, problem.cases[0]) == "its integers leave the range of doubles"


def test_conditions_that_scaling_makes_vanish_are_refused():
    plain = IntNetwork(2, (int_layer([[1, 0], [0, 0]], [0, 0]),), 2)
    for bits, refused in ((300, False), (1500, True)):
        condition = Sign("<", Plus((Times(Linear((), 1 << bits), Score(0, 0, 8)), Linear(((1, -1),), 0))))
        problem = network_problem(plain, (9, 8), [GridQuery("some", condition)])
        reason = BranchEngine().refuses(problem, problem.cases[0])
        assert (reason == "its integers leave the range of doubles") == refused
        if not refused:
            assert reason is None
            assert ends(problem) == {"some": (7, 7)} == exactly(problem)  # x = 0 and y > 0


@pytest.mark.parametrize("isa", ["portable", ""])
@pytest.mark.parametrize("seed", range(30))
def test_errors_that_overflow_decide_nothing(seed, isa):
    """What rounding may do in layers of 300-bit weights outgrows doubles, while caps and signs keep values small."""
    rng = random.Random(seed)
    layers = []
    for before in (2, 3, 3, 3, 3, 3)[: rng.randint(4, 6)]:
        reach = 1 << rng.choice((200, 300, 390))
        weights = [
            [rng.choice((0, rng.randint(-reach, reach), rng.randint(-5, 5))) for _ in range(before)] for _ in range(3)
        ]
        bias = [rng.choice((0, 0, rng.randint(-reach, reach))) for _ in range(3)]
        if rng.random() < 0.8:
            layers.append(int_layer(weights, bias, "relu", cap=rng.randint(1, 9)))
        else:
            layers.append(int_layer(weights, bias, "sign", at_zero=rng.choice((-1, 0, 1))))
    layers.append(int_layer([[rng.randint(-2, 2) for _ in range(3)] for _ in range(3)], [0, 0, 0]))
    problem = network_problem(IntNetwork(2, tuple(layers), 3), (9, 8))
    assert BranchEngine().refuses(problem, problem.cases[0]) is None
    for tuning in (Tuning(), Tuning(leaf_points=1, reduced_work=0)):
        assert ends(problem, BranchEngine(isa=isa, tuning=tuning)) == exactly(problem)


def test_a_run_out_of_memory_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    hidden = int_layer(rng.integers(-9, 10, (6, 3)).tolist(), rng.integers(-90, 90, 6).tolist(), "relu")
    scores = int_layer(rng.integers(-9, 10, (3, 6)).tolist(), [0, 0, 0])
    problem = network_problem(IntNetwork(3, (hidden, scores), 3), (32, 32, 32))
    tuning = Tuning(leaf_points=1, local_points=0, reduced_work=0, closed_form=False)
    slices = branch._Run.slices

    def failing(run, limits):
        for _ in slices(run, limits):
            break
        yield branch.NO_MEMORY

    with Checkpoints(tmp_path) as kept:
        run = BranchEngine(tuning=tuning, checkpoint=kept)
        stopped = ends(problem, run, Limits(deadline=time.monotonic()))
        before = [(path, path.read_bytes()) for path in tmp_path.iterdir()]
        monkeypatch.setattr(branch._Run, "slices", failing)
        run.count(problem, problem.cases[0], Limits(), Progress())
        assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == before != []
        monkeypatch.setattr(branch._Run, "slices", slices)
        assert ends(problem, run) == exactly(problem) != stopped


@pytest.mark.parametrize("op", ["<", "<=", "==", "!="])
@pytest.mark.parametrize("seed", range(4))
def test_conditions_are_counted_inside_expressions(seed, op):
    """How many of several conditions hold, known on a box to lie between two numbers and no nearer."""
    rng = random.Random(seed)
    sizes = (12, 9)
    network = random_network(rng, 2, 2, [3], ("relu",), 9, 40)
    queries = []
    for most in range(4):
        parts = tuple(
            rng.choice((Within(f, low, low + 5), Sign("<", Linear(((f, 1), (1 - f, -1)), rng.randint(-3, 3)))))
            for f, low in ((0, 2), (0, 5), (1, 1), (1, 3))
        )
        queries.append(GridQuery(f"some {most}", Sign(op, Plus((CountOf(parts), Linear((), -most))))))
        weighed = Plus((Times(Linear((), -2), CountOf(parts)), Linear(((0, 1),), most)))
        queries.append(GridQuery(f"weighed {most}", AnyOf((HasLabel((0,)), Sign(op, weighed)))))
    problem = network_problem(network, sizes, queries)
    for tuning in (Tuning(), Tuning(leaf_points=1, loop_work=0, credit_points=1, local_points=0)):
        engine = BranchEngine(tuning=tuning)
        assert ends(problem, engine) == exactly(problem)
        record = engine.run(problem, problem.cases[0], Limits(), Progress(), record=True).record
        proven = check(problem, problem.cases[0], [record.stream], len(record.stream), Limits(), Progress())
        assert proven.counts == exactly(problem)

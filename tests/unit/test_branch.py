"""The engine `branch` against point-by-point counts: random networks, every activation, limits, workers, resumption."""

import itertools
import json
import math
import random
import resource
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from random_networks import (
    int_layer,
    label_queries,
    network_problem,
    plain_count,
    plain_label,
    plain_scores,
    plain_truth,
    random_network,
    random_score_predicate,
)

from quantify.engines import branch_record
from quantify.engines.branch import ENGINE, BranchEngine
from quantify.engines.branch_checkpoint import Checkpoints, Group, without
from quantify.engines.branch_plan import Tuning
from quantify.engines.branch_record import boxes_where, leaves
from quantify.engines.descent import native_module
from quantify.errors import ContradictionError, InputError
from quantify.ir.count import Guarantee
from quantify.ir.network import IntNetwork
from quantify.ir.predicate import HasLabel, Linear, Plus, Score, Sign, Times, Within
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery
from quantify.resources import Limits, Progress

SIXTEEN = ((16, 16), (16, 16, 16), (16, 16, 16, 16))
FINEST = Tuning(leaf_points=1, loop_work=0, credit_points=1, local_points=0)
"""Everything is split down to points, credited, and waits in the heap."""
CLOSED = Tuning(leaf_points=1, loop_work=1e9, credit_points=math.inf)
"""Half-spaces of any size are counted in closed form."""


def ends(engine, problem, limits=None, **options):
    outcome = engine.run(problem, problem.cases[0], limits or Limits(), Progress(), **options)
    return {name: (count.lower, count.upper) for name, count in outcome.counts.items()}


def exactly(counts):
    return {name: (count, count) for name, count in counts.items()}


def grid_count(network, sizes):
    """Points per label by 64-bit enumeration over the whole grid."""
    values = np.stack([g.ravel() for g in np.meshgrid(*map(np.arange, sizes), indexing="ij")], axis=1)
    for layer in network.layers:
        values = values @ layer.rows.to_dense().T + layer.bias
        if layer.activation == "relu":
            values = np.maximum(values, 0)
    labels = values.argmax(axis=1)
    return {str(k): int((labels == k).sum()) for k in range(network.outputs)}


def relu_problem(seed, hidden, sizes, labels=4, weight=50):
    rng = random.Random(seed)
    network = random_network(rng, len(sizes), labels, hidden, ("relu",), weight, weight * 20)
    return network_problem(network, sizes)


@pytest.mark.parametrize("seed", range(60))
def test_relu_networks_at_16_levels_equal_enumeration(seed):
    rng = random.Random(seed)
    hidden = [rng.randint(1, 12) for _ in range(rng.randint(0, 4))]
    problem = relu_problem(seed, hidden, SIXTEEN[seed % 3], rng.randint(1, 6), rng.choice((2, 9, 127)))
    expected = exactly(grid_count(problem.network, problem.sizes))
    assert ends(ENGINE, problem) == expected
    assert ends(BranchEngine(tuning=CLOSED), problem) == expected


@pytest.mark.parametrize("tuning", [Tuning(), FINEST, CLOSED])
@pytest.mark.parametrize("seed", range(40))
def test_every_activation_and_predicate_equals_the_definition(seed, tuning):
    rng = random.Random(1000 + seed)
    sizes = ((16, 16), (7, 1, 9), (3, 4, 2, 5))[seed % 3]
    labels = rng.randint(1, 5)
    network = random_network(rng, len(sizes), labels, [rng.randint(1, 7) for _ in range(rng.randint(0, 4))])
    predicates = (random_score_predicate(rng, sizes, labels, 2) for _ in range(3))
    queries = [GridQuery(f"q{k}", predicate) for k, predicate in enumerate(predicates)]
    low = tuple(rng.randrange(size) for size in sizes)
    part = Box(low, tuple(rng.randint(a + 1, size) for a, size in zip(low, sizes, strict=True)))
    problem = network_problem(network, sizes, queries if seed % 2 else (), part if seed % 4 == 3 else None)
    expected = exactly(plain_count(problem, problem.cases[0]))
    assert ends(BranchEngine(tuning=tuning), problem) == expected
    assert ends(BranchEngine(tuning=tuning), problem, Limits(jobs=2)) == expected


@pytest.mark.parametrize("bits", [24, 40, 60])
@pytest.mark.parametrize("seed", range(4))
def test_weights_of_any_size(seed, bits):
    # Layers of 2^bits: sums far beyond 64 and 128 bits, filtered in doubles and settled in whole numbers.
    rng = random.Random(seed)
    kinds = ("relu", "leaky", "capped", "sign", "floor_shift")
    network = random_network(
        rng, 3, 3, [4, 4, 3, 3, 3, 3, 3][: 2 + seed * 2], kinds[: 2 + seed], 1 << bits, 1 << (bits + 4)
    )
    problem = network_problem(network, (6, 7, 5))
    expected = exactly(plain_count(problem, problem.cases[0]))
    assert ends(ENGINE, problem) == expected
    assert ends(BranchEngine(tuning=FINEST), problem) == expected


def test_near_ties_of_large_weights_are_settled_exactly():
    big = 1 << 70
    last = int_layer([[big, 1], [big, 0], [big, 0]], [0, 1, 1])
    first = int_layer([[1, 0], [0, 1]], [0, 0], "relu")
    problem = network_problem(IntNetwork(2, (first, last), 3), (9, 9))
    # Score 0 is larger by the second input less one: 0 wins from 1 on, ties included.
    assert ends(ENGINE, problem) == exactly({"0": 72, "1": 9, "2": 0})


def test_ties_go_to_the_lowest_label():
    same = int_layer([[1, -1]] * 3, [0] * 3)
    assert ends(ENGINE, network_problem(IntNetwork(2, (same,), 3), (200, 200))) == exactly(
        {"0": 40_000, "1": 0, "2": 0}
    )
    crossing = int_layer([[1, -1], [-1, 1], [0, 0]], [0, 0, 0])
    problem = network_problem(IntNetwork(2, (crossing,), 3), (200, 200))
    assert ends(ENGINE, problem) == exactly({"0": 200 * 201 // 2, "1": 200 * 199 // 2, "2": 0})


def test_sums_of_scores_on_a_line():
    # score 0 = x, score 1 = y: how often does x beat y by more than 10, or x + y equal 30?
    network = IntNetwork(2, (int_layer([[1, 0], [0, 1]], [0, 0]),), 2)
    x, y = Score(0, 0, 49), Score(1, 0, 49)
    minus_y = Times(Linear((), -1), y)
    queries = [
        GridQuery("lead", Sign("<", Plus((y, Times(Linear((), -1), x), Linear((), 10))))),
        GridQuery("sum", Sign("==", Plus((x, y, Linear((), -30))))),
        GridQuery("not", Sign("!=", Plus((x, minus_y)))),
    ]
    expected = {"lead": sum(a - b > 10 for a in range(50) for b in range(50)), "sum": 31, "not": 2450}
    assert ends(ENGINE, network_problem(network, (50, 50), queries)) == exactly(expected)


def test_wide_grids_are_exact_where_a_half_space_decides():
    network = IntNetwork(2, (int_layer([[3, -5], [0, 0]], [1, 0]),), 2)
    sizes = (1 << 20, 1 << 20)
    wins = sum(min(sizes[1], (3 * a + 1) // 5 + 1) for a in range(sizes[0]))
    assert ends(ENGINE, network_problem(network, sizes)) == exactly({"0": wins, "1": sizes[0] * sizes[1] - wins})


def test_bounds_hold_at_every_deadline_and_shrink():
    problem = relu_problem(3, [10, 10, 10], (30, 30, 30, 30))
    expected = grid_count(problem.network, problem.sizes)
    for seconds in (0.0, 0.001, 0.01, 0.05, 0.2):
        found = ENGINE.count(problem, problem.cases[0], Limits.starting_now(seconds), Progress())
        for name, count in found.items():
            assert count.lower <= expected[name] <= count.upper
            assert count.guarantee is (Guarantee.EXACT if count.lower == count.upper else Guarantee.BOUNDS)


def test_volume_bounds_hold_on_wide_boxes():
    # The time is up after the whole region has been looked at once: all that is proven comes from volumes.
    network = IntNetwork(3, (int_layer([[7, -3, 2], [0, 0, 0]], [-90, 0]),), 2)
    problem = network_problem(network, (128, 128, 128))
    truth = grid_count(network, (128, 128, 128))["0"]
    engine = BranchEngine(tuning=Tuning(closed_form=False, credit_points=1))
    outcome = engine.run(problem, problem.cases[0], Limits.starting_now(0.0), Progress())
    assert outcome.work["boxes"] == 1
    assert outcome.counts["0"].lower <= truth <= outcome.counts["0"].upper
    assert 0 < outcome.open_share < Fraction(1, 50)


def test_the_gap_stops_early():
    problem = relu_problem(5, [8, 8], (1 << 16,) * 4)
    outcome = BranchEngine(gap=Fraction(1, 10)).run(problem, problem.cases[0], Limits.starting_now(20), Progress())
    assert 0 < outcome.open_share <= Fraction(1, 10)
    assert "the gap was reached" in next(c.note for c in outcome.counts.values() if c.lower != c.upper)


def test_one_worker_two_workers_and_little_memory_agree():
    problem = relu_problem(7, [9, 9], (24, 24, 24, 24))
    expected = exactly(grid_count(problem.network, problem.sizes))
    engine = BranchEngine(tuning=Tuning(leaf_points=4, local_points=4))
    assert ends(engine, problem) == expected
    assert ends(engine, problem, Limits(jobs=2)) == expected
    assert ends(engine, problem, Limits(jobs=3, memory_mb=1)) == expected
    assert ends(engine, problem, Limits(memory_mb=0)) == expected


@pytest.mark.parametrize("isa", ["portable", "avx2", "avx512"])
def test_instruction_sets_do_the_same_work(isa):
    problem = relu_problem(11, [10, 10], (20, 20, 20))
    work = BranchEngine(isa="portable").run(problem, problem.cases[0], Limits(), Progress())
    try:
        found = BranchEngine(isa=isa).run(problem, problem.cases[0], Limits(), Progress())
    except InputError:
        pytest.skip(f"this processor has no {isa}")
    assert found.work == work.work
    assert ends(BranchEngine(isa=isa), problem) == exactly(grid_count(problem.network, problem.sizes))


def test_many_inputs_and_a_last_layer_with_an_activation():
    rng = random.Random(2)
    for inputs in (7, 8, 12):
        network = random_network(rng, inputs, 3, [5, 5], ("relu",), 5, 10)
        problem = network_problem(network, (2,) * inputs)
        assert ends(BranchEngine(tuning=FINEST), problem) == exactly(grid_count(network, problem.sizes))
    ends_in_relu = IntNetwork(2, (*network_of_two(), int_layer([[1, -1], [-1, 1]], [0, 3], "relu")), 2)
    problem = network_problem(ends_in_relu, (16, 16))
    assert ends(ENGINE, problem) == exactly(plain_count(problem, problem.cases[0]))


def network_of_two():
    return (int_layer([[2, -1], [-3, 1]], [5, 9], "relu"),)


# --- records -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(6))
def test_the_recorded_tree_covers_the_region_and_gives_the_violations(seed):
    problem = relu_problem(seed, [6, 6], (12, 12, 12))
    case = problem.cases[0]
    outcome = BranchEngine(tuning=Tuning(leaf_points=8)).run(problem, case, Limits(), Progress(), record=True)
    seen = np.zeros(problem.sizes, int)
    kinds = set()
    for leaf in leaves(outcome.record):
        kinds.add(leaf.kind)
        seen[tuple(slice(a, b) for a, b in zip(leaf.low, leaf.high, strict=True))] += 1
        for label, winner in enumerate(leaf.winner):
            for corner in itertools.product(*((a, b - 1) for a, b in zip(leaf.low, leaf.high, strict=True))):
                assert winner is None or plain_label(plain_scores(problem.network, corner)) != label
    assert (seen == 1).all()
    assert kinds <= {"decided", "enumerated", "half-space"}
    inside = np.zeros(problem.sizes, int)
    for box in boxes_where(outcome.record, problem.network, HasLabel((0, 2))):
        inside[tuple(slice(a, b) for a, b in zip(box.low, box.high, strict=True))] += 1
    for point in itertools.product(range(0, 12, 3), repeat=3):
        assert inside[point] == (plain_label(plain_scores(problem.network, point)) in (0, 2))
    assert inside.sum() == sum(outcome.counts[str(k)].lower for k in (0, 2))


def test_records_do_not_depend_on_workers_or_order():
    problem = relu_problem(1, [7, 7], (16, 16, 16))
    case = problem.cases[0]
    first = ENGINE.run(problem, case, Limits(), Progress(), record=True).record
    other = BranchEngine(tuning=Tuning(local_points=0))
    assert first == other.run(problem, case, Limits(jobs=2), Progress(), record=True).record


@pytest.mark.parametrize("most", [1, 40, 1 << 12])
@pytest.mark.parametrize("seed", range(4))
def test_boxes_of_half_spaces_are_the_points_on_either_side(seed, most, monkeypatch):
    monkeypatch.setattr(branch_record, "MOST_POINTS", most)
    rng = random.Random(seed)
    sizes = (23, 1, 19, 17)
    matrix = [[rng.randint(-9, 9) for _ in sizes] for _ in range(2)]
    shift = sum((a - b) * (size // 2) for a, b, size in zip(*matrix, sizes, strict=True))
    problem = network_problem(IntNetwork(4, (int_layer(matrix, [0, shift]),), 2), sizes)
    case = problem.cases[0]
    outcome = BranchEngine(tuning=Tuning(leaf_points=1, reduced_work=0, local_points=0)).run(
        problem, case, Limits(), Progress(), record=True
    )
    assert any(leaf.kind == "half-space" for leaf in leaves(outcome.record))
    seen = {"0": np.zeros(sizes, int), "1": np.zeros(sizes, int)}
    for name, box in branch_record.boxes_of(problem, case, outcome.record, ("0", "1"), outcome.counts):
        seen[name][tuple(slice(a, b) for a, b in zip(box.low, box.high, strict=True))] += 1
    points = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1)
    label = np.argmax(points @ np.array(matrix).T + [0, shift], axis=-1)
    assert (seen["0"] == (label == 0)).all()
    assert (seen["1"] == (label == 1)).all()


def test_boxes_that_do_not_add_up_are_no_answer():
    problem = relu_problem(1, [6, 6], (12, 12, 12))
    case = problem.cases[0]
    outcome = ENGINE.run(problem, case, Limits(), Progress(), record=True)
    name = max(outcome.counts, key=lambda name: outcome.counts[name].lower)
    wrong = replace(outcome.counts[name], lower=1, upper=1)
    with pytest.raises(ContradictionError, match="were counted"):
        list(branch_record.boxes_of(problem, case, outcome.record, (name,), {**outcome.counts, name: wrong}))


def test_a_single_point_is_a_box():
    problem = relu_problem(1, [6, 6], (12, 12, 12))
    point = GridCase(Box((3, 4, 5), (4, 5, 6)), label_queries(4), ())
    outcome = ENGINE.run(problem, point, Limits(), Progress(), record=True)
    assert outcome.record is None
    label = str(plain_label(plain_scores(problem.network, (3, 4, 5))))
    found = list(branch_record.boxes_of(problem, point, None, ("0", "1", "2", "3"), outcome.counts))
    assert found == [(label, point.region)]


def test_open_leaves_are_in_the_record():
    problem = relu_problem(3, [10, 10, 10], (1 << 12,) * 4)
    outcome = ENGINE.run(problem, problem.cases[0], Limits.starting_now(0.05), Progress(), record=True)
    assert any(leaf.kind == "open" for leaf in leaves(outcome.record))


# --- checkpoints ---------------------------------------------------------------------------------------------------
FINE = Tuning(leaf_points=2, credit_points=64, local_points=4, descent_points=2, reduced_work=1)


def test_resumed_work_counts_everything_once(tmp_path):
    problem = relu_problem(7, [9, 9], (24, 24, 24, 24))
    case = problem.cases[0]
    expected = exactly(grid_count(problem.network, problem.sizes))
    for _ in range(3):  # a spent limit still lets one round of boxes pass, on machines of every speed
        with Checkpoints(tmp_path) as kept:
            BranchEngine(checkpoint=kept, tuning=FINE).count(problem, case, Limits.starting_now(0.0), Progress())
            assert next(kept.finish(complete=False)).status == "ok"
    assert len(list(tmp_path.iterdir())) == 1
    for _ in range(2):  # finished work is kept too, until the run over all cases ends
        with Checkpoints(tmp_path) as kept:
            assert ends(BranchEngine(checkpoint=kept, tuning=FINE), problem, Limits(jobs=2)) == expected
    with Checkpoints(tmp_path) as kept:
        assert ends(BranchEngine(checkpoint=kept, tuning=FINE), problem, Limits(jobs=2)) == expected
        assert "went on" in next(kept.finish(complete=True)).detail
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("jobs", [1, 2])
def test_resumed_bounds_never_widen_and_every_run_goes_on(tmp_path, jobs):
    # Boxes taken up lose what parts of them had proven; a limit spent long ago leaves two rounds of boxes a run.
    problem = relu_problem(7, [6, 6], (16, 16, 16), labels=3)
    truth = grid_count(problem.network, problem.sizes)
    tuning = Tuning(leaf_points=64, credit_points=8, local_points=0, reduced_work=0, closed_form=False)
    spent = Limits(deadline=-math.inf, jobs=jobs)
    last, runs = dict.fromkeys(truth, (0, 16**3)), 0
    while last != exactly(truth):
        with Checkpoints(tmp_path) as kept:
            found = ends(BranchEngine(checkpoint=kept, tuning=tuning), problem, spent)
        for name, (lower, upper) in found.items():
            assert last[name][0] <= lower <= truth[name] <= upper <= last[name][1]
        last, runs = found, runs + 1
        assert runs < 2 * 16**3 / 64  # every run after the first splits a box
    assert runs > 10


def test_work_taken_up_bit_by_bit_is_written_whole(tmp_path):
    problem = relu_problem(7, [9, 9], (24, 24, 24, 24))
    steps = []

    class Steps(Progress):
        def update(self, message, done=0, total=0):
            steps.append(message)

    def boxes():
        with np.load(next(tmp_path.glob("*.npz"))) as saved:
            return len(saved["open"])

    with Checkpoints(tmp_path) as kept:
        for _ in range(40):
            ends(BranchEngine(checkpoint=kept, tuning=FINE), problem, Limits(deadline=-math.inf))
        before = boxes()
        engine = BranchEngine(checkpoint=kept, tuning=FINE)
        engine.count(problem, problem.cases[0], Limits(deadline=-math.inf), Steps())
        assert steps[0] == f"taking up the checkpoint ({before} boxes)"
        assert before > 10  # of which one was taken up
        assert ends(engine, problem) == exactly(grid_count(problem.network, problem.sizes))


def test_what_waiting_boxes_had_proven_counts_until_they_are_taken_up(tmp_path):
    problem = relu_problem(7, [9, 9], (24, 24, 24, 24))
    spent = Limits(deadline=-math.inf)
    truth = list(grid_count(problem.network, problem.sizes).values())
    tuning = Tuning(leaf_points=2, credit_points=2, local_points=0, reduced_work=0, closed_form=False)
    with Checkpoints(tmp_path) as kept:
        engine = BranchEngine(checkpoint=kept, tuning=tuning)
        ends(engine, problem, spent)
        for _ in range(60):
            path = next(tmp_path.glob("*.npz"))
            with np.load(path) as saved:
                arrays = dict(saved)
            head = json.loads(str(arrays["head"]))
            # With the ends that the parts alone prove, the last run's best are forgotten.
            total, rest = (
                [[int(head[name][q]) + sum(int(g[k][q]) for g in head["groups"][skip:]) for q in range(4)]
                 for name, k in (("in", 1), ("out", 2))]
                for skip in (0, 1)
            )  # fmt: skip
            assert all(a <= t <= 24**4 - b for a, b, t in zip(*total, truth, strict=True))
            weak = {"lower": head["in"], "upper": [str(24**4 - int(x)) for x in head["out"]]}
            none = [[n, ["0"] * 4, ["0"] * 4] for n, _, _ in head["groups"]]
            ends_of = {"lower": list(map(str, total[0])), "upper": [str(24**4 - x) for x in total[1]]}
            np.savez(path, **(arrays | {"head": np.array(json.dumps(head | weak | {"groups": none}))}))
            plain = ends(engine, problem, spent)
            np.savez(path, **(arrays | {"head": np.array(json.dumps(head | ends_of))}))
            found = ends(engine, problem, spent)
            for (low, high), (least, most), inside, outside in zip(found.values(), plain.values(), *rest, strict=True):
                assert low >= max(inside, least)
                assert high <= min(24**4 - outside, most)
        assert sum(total[0]) > sum(map(int, head["in"]))
        assert len(head["groups"]) > 3
        assert list(ends(engine, problem).values()) == [(t, t) for t in truth]


@pytest.mark.parametrize(("taken", "boxes", "inside"), [
    (0, [2, 3, 1], [5, 7, 1]), (1, [1, 3, 1], [0, 7, 1]), (2, [3, 1], [7, 1]), (3, [2, 1], [0, 1]), (4, [1, 1], [0, 1]),
    (5, [1], [1]), (6, [], []),
])  # fmt: skip
def test_a_group_loses_its_proof_with_the_first_of_its_boxes(taken, boxes, inside):
    # The box that is taken up may be the one that all of it lies in, and proves it again.
    left = without([Group(2, (5,), (4,)), Group(3, (7,), (6,)), Group(1, (1,), (0,))], taken)
    assert [group.boxes for group in left] == boxes
    assert [group.inside[0] for group in left] == inside
    assert [group.outside[0] for group in left] == [max(0, x - 1) for x in inside]


def test_ends_that_do_not_add_up_are_refused(tmp_path):
    problem = relu_problem(7, [9, 9], (24, 24, 24, 24))
    case, size = problem.cases[0], 24**4
    spent = Limits(deadline=-math.inf)
    with Checkpoints(tmp_path) as kept:
        engine = BranchEngine(checkpoint=kept, tuning=FINE)
        for _ in range(40):
            engine.count(problem, case, spent, Progress())
        path = next(tmp_path.glob("*.npz"))
        with np.load(path) as saved:
            arrays = dict(saved)
        head = json.loads(str(arrays["head"]))
        first = int(np.argmax([int(x) for x in head["in"]]))
        truth = grid_count(problem.network, problem.sizes)[str(first)]
        assert 0 < int(head["in"][first]) < truth < int(head["upper"][first])

        def tamper(name, value):
            changed = head | {name: [*head[name]]}
            changed[name][first] = str(value)
            np.savez(path, **(arrays | {"head": np.array(json.dumps(changed))}))

        outside = int(head["out"][first])
        for name, value in (
            ("lower", int(head["in"][first]) - 1),
            ("lower", int(head["upper"][first]) + 1),
            ("upper", int(head["lower"][first]) - 1),
            ("upper", size - outside + 1),
        ):
            tamper(name, value)
            with pytest.raises(InputError, match="bounds do not add up"):
                engine.count(problem, case, spent, Progress())
        groups = head["groups"]
        more = [[n, [*a], [*b]] for n, a, b in groups]
        more[-1][1][first] = str(int(more[-1][1][first]) + size)
        fewer = [[n, ["-1", *a[1:]], b] for n, a, b in groups]
        for changed, said in (
            (more, "bounds do"),
            (fewer, "bounds do"),
            (groups[1:], "groups"),
            (groups * 2, "groups"),
        ):
            np.savez(path, **(arrays | {"head": np.array(json.dumps(head | {"groups": changed}))}))
            with pytest.raises(InputError, match=said):
                engine.count(problem, case, spent, Progress())
        for name, value in (("lower", truth + 1), ("upper", truth - 1)):  # seen when the count says otherwise
            tamper(name, value)
            with pytest.raises(InputError, match="do not add up with what was counted"):
                engine.count(problem, case, Limits(), Progress())


def test_work_of_another_model_is_not_taken_up(tmp_path):
    one, other = (relu_problem(seed, [9, 9], (24, 24, 24, 24)) for seed in (7, 8))
    with Checkpoints(tmp_path) as kept:
        BranchEngine(checkpoint=kept, tuning=FINE).count(one, one.cases[0], Limits.starting_now(0.0), Progress())
        list(kept.finish(complete=False))
    with Checkpoints(tmp_path) as kept:
        found = ends(BranchEngine(checkpoint=kept, tuning=FINE), other)
        assert "none of it was used" in next(kept.finish(complete=True)).detail
    assert found == exactly(grid_count(other.network, other.sizes))
    left = [path.name for path in tmp_path.iterdir()]
    assert left == [f"branch-{one.digest(one.cases[0])}.npz"]


def test_a_folder_serves_one_run_at_a_time(tmp_path):
    with Checkpoints(tmp_path), pytest.raises(InputError, match="in use"):
        Checkpoints(tmp_path)
    with Checkpoints(tmp_path):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="kept in"):
        Checkpoints(tmp_path / "file")


def test_a_full_disk_costs_the_file_but_no_bounds(tmp_path):
    problem = relu_problem(7, [9, 9], (24, 24, 24, 24))
    case = problem.cases[0]
    with Checkpoints(tmp_path) as kept:
        engine = BranchEngine(checkpoint=kept, tuning=FINE)
        engine.count(problem, case, Limits.starting_now(0.0), Progress())
        file = next(tmp_path.iterdir())
        before = file.read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, limits[1]))
        try:
            counts = engine.count(problem, case, Limits.starting_now(0.0), Progress())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert all(count.lower < count.upper for count in counts.values())
        (check,) = kept.finish(complete=False)
        assert check.status == "failed"
        assert "could not be written" in check.detail
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_a_checkpoint_that_does_not_add_up_is_refused(tmp_path):
    problem = relu_problem(3, [10, 10, 10], (1 << 12,) * 4)
    case = problem.cases[0]
    with Checkpoints(tmp_path) as kept:
        engine = BranchEngine(checkpoint=kept)
        engine.count(problem, case, Limits.starting_now(0.0), Progress())
        path = next(tmp_path.glob("*.npz"))
        with np.load(path) as saved:
            arrays = dict(saved)
        for change, said in ((-1, "do not add up to the region"), (2, "outside")):
            arrays["high"][0, 0] += change
            np.savez(path, **arrays)
            with pytest.raises(InputError, match=said):
                engine.count(problem, case, Limits.starting_now(0.0), Progress())
        path.write_bytes(b"PK\x03\x04 nonsense")
        with pytest.raises(InputError, match="cannot be read"):
            engine.count(problem, case, Limits.starting_now(0.0), Progress())


# --- witnesses, refusals -------------------------------------------------------------------------------------------
def test_witnesses_satisfy_their_query_even_when_rare():
    problem = relu_problem(7, [9, 9], (24, 24, 24, 24))
    case = problem.cases[0]
    for query in (*label_queries(4), GridQuery("never", Within(0, 24, 30))):
        found = ENGINE.witness(problem, case, query, Limits())
        if found is None:
            assert (
                ENGINE.count(problem, GridCase(case.region, (query,), ()), Limits(), Progress())[query.name].upper == 0
            )
        else:
            scores = plain_scores(problem.network, found)
            assert plain_truth(query.predicate, found, plain_label(scores), scores)
    needle = Sign("==", Linear(((0, 1), (1, 1 << 16)), -(123 + (45 << 16))))
    wide = network_problem(IntNetwork(2, network_of_two(), 2), (1 << 16, 1 << 16), [GridQuery("needle", needle)])
    assert ENGINE.witness(wide, wide.cases[0], wide.cases[0].queries[0], Limits()) == (123, 45)


def test_what_it_cannot_count_is_refused_with_a_reason():
    problem = relu_problem(1, [3], (4, 4))
    case = problem.cases[0]
    ball = GridCase(Ball(case.region, (1, 1), "l1", (1, 1), 2), case.queries, ())
    assert "balls" in ENGINE.refuses(problem, ball)
    falling = IntNetwork(
        2, (int_layer([[1, 1]], [0], "leaky", positive=1, negative=-1), int_layer([[1], [2]], [0, 0])), 2
    )
    bad = network_problem(falling, (4, 4))
    assert "slopes" in ENGINE.refuses(bad, bad.cases[0])
    squared = Times(Score(0, -9, 9), Score(0, -9, 9))
    curved = network_problem(problem.network, (4, 4), [GridQuery("q", Sign("<", squared))])
    assert "scores" in ENGINE.refuses(curved, curved.cases[0])
    with pytest.raises(InputError, match="scores"):
        ENGINE.count(curved, curved.cases[0], Limits(), Progress())


def test_empty_and_single_point_regions():
    problem = relu_problem(1, [3], (4, 4))
    for region in (Box((2, 1), (3, 2)), Box((2, 2), (2, 4))):
        case = GridCase(region, problem.cases[0].queries, ())
        found = ENGINE.count(problem, case, Limits(), Progress())
        assert sum(count.lower for count in found.values()) == region.size
        assert all(count.guarantee is Guarantee.EXACT for count in found.values())


def test_interruption_leaves_quickly():
    class Stop(Progress):
        def update(self, message, done=0, total=0):
            raise KeyboardInterrupt

    problem = relu_problem(3, [10, 10, 10], (1 << 16,) * 5)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ENGINE.count(problem, problem.cases[0], Limits(jobs=2), Stop())
    assert time.monotonic() - started < 5


# --- closed forms --------------------------------------------------------------------------------------------------
def words(value):
    low = value & ((1 << 64) - 1)
    return [low - (1 << 64) if low >> 63 else low, value >> 64]


@pytest.mark.parametrize("scale", [1, 1 << 40, (1 << 90) + 1])
def test_lattice_points_below_a_plane(scale):
    module = native_module()
    rng = random.Random(scale)
    for _ in range(150):
        dims = rng.randint(1, 4)
        width = [rng.randint(1, 9) for _ in range(dims)]
        a = [rng.choice((0, 1, -1, rng.randint(-40, 40))) * scale + rng.randint(-1, 1) for _ in range(dims)]
        bound = rng.randint(-60, 120) * scale
        expected = sum(
            sum(c * x for c, x in zip(a, point, strict=True)) <= bound
            for point in itertools.product(*(range(n) for n in width))
        )
        count = module.ffi.new("uint64_t[2]")
        flat = [word for c in a for word in words(c)]
        assert module.lib.branch_lattice(dims, flat, width, words(bound), 1e6, count)
        assert count[0] + (count[1] << 64) == expected


def test_volumes_are_bounded_from_above_and_tight():
    module = native_module()
    rng = random.Random(5)
    for dims in range(1, 9):
        for _ in range(30):
            a = [rng.choice((0.0, 1.0, rng.random(), rng.random() * 1e-6)) for _ in range(dims)]
            bound = rng.random() * sum(a)
            kept = [Fraction(x) for x in a if x]
            if not kept:
                continue
            total = Fraction(0)
            for chosen in itertools.product((0, 1), repeat=len(kept)):
                rest = Fraction(bound) - sum(x for x, c in zip(kept, chosen, strict=True) if c)
                total += (-1) ** sum(chosen) * max(rest, Fraction(0)) ** len(kept)
            truth = total / math.factorial(len(kept)) / math.prod(kept)
            found = Fraction(module.lib.branch_volume(dims, a, bound), 1 << 62)
            assert truth <= found <= truth + Fraction(1, 100) + truth / 10


def test_estimates_grow_with_the_region():
    small, large = relu_problem(1, [4], (8, 8)), relu_problem(1, [4], (4096, 4096))
    assert isinstance(small, GridProblem)
    few, many = (ENGINE.estimate(p, p.cases[0]) for p in (small, large))
    assert few.seconds < many.seconds
    assert "2^24 inputs" in many.reason

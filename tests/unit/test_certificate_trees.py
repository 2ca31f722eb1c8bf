"""Split trees that are not what they say: nothing false is proven by them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from certificate_trees import (
    ENGINES,
    node_places,
    number_at,
    numbers,
    of_every_kind,
    proven,
    relu_problem,
    written,
)
from random_networks import int_layer, network_problem

from quantify.engines.branch_record import leaves as engine_leaves
from quantify.evidence.certificates import tree
from quantify.evidence.certificates.check import RefutedError
from quantify.ir.network import IntNetwork
from quantify.ir.predicate import AllOf, CountOf, FloorDiv, HasLabel, Linear, Plus, Score, Sign, Times, Within
from quantify.ir.problem import Box, GridQuery
from quantify.resources import Limits, Progress


@pytest.fixture(scope="module")
def example():
    return of_every_kind(24, (8, 8, 8), 8)


def refused(problem, stream, counts):
    """A tree is refused, or proves other counts than those that the file names."""
    try:
        return proven(problem, stream).counts != counts
    except RefutedError:
        return True


@pytest.mark.parametrize("engine", ENGINES)
def test_the_engine_and_the_checker_read_the_same_leaves(engine):
    problem = relu_problem(1, (16, 16, 16), [9, 9])
    record = engine.run(problem, problem.cases[0], Limits(), Progress(), record=True).record
    region = problem.cases[0].region
    shape = tree.Shape(region.low, region.high, problem.labels, 36)
    ours = []
    for batch in tree.leaves([record.stream[i : i + 7] for i in range(0, len(record.stream), 7)], shape, 5):
        for n in range(len(batch)):
            steps = []
            if batch.leaf is not None:
                here = np.flatnonzero(batch.leaf == n)
                steps = list(zip(*(x[here].tolist() for x in (batch.place, batch.chord, batch.line)), strict=True))
            ours.append((batch.box(n), tree.KINDS[batch.kind], steps, batch.count[n] if batch.count else 0))
    theirs = [
        (tuple(zip(leaf.low, leaf.high, strict=True)), leaf.kind, list(leaf.steps), leaf.count)
        for leaf in engine_leaves(record)
    ]
    assert sorted(ours) == sorted(theirs)
    assert len(ours) > 3


def test_false_verdicts_are_refused(example):
    problem, stream, counts = example
    labels = problem.labels
    tried = dict.fromkeys((tree.DECIDED, tree.ENUMERATED, tree.HALF_SPACE), 0)
    for at, kind in node_places(stream, problem):
        if kind < 0x40 or tried[kind] > 20:
            continue
        place = at + 1 + labels
        if kind == tree.ENUMERATED:
            for label in range(labels):  # a leaf is said to be decided, which is right only when it is
                winner = bytes(0xFF if i == label else label for i in range(labels))
                try:
                    assert proven(problem, stream[:at] + b"\x40" + winner + b"\x00" + stream[at + 1 :]).counts == counts
                except RefutedError:
                    tried[kind] += 1
            continue
        winner = stream[at + 1 : place]
        for i, best in enumerate(winner):
            for other in {0xFF, *range(labels)} - {best}:
                false = stream[: at + 1] + winner[:i] + bytes([other]) + winner[i + 1 :] + stream[place:]
                try:
                    # A beaten label may be beaten by another one too.
                    assert proven(problem, false).counts == counts
                    assert best != 0xFF
                    assert other != 0xFF
                except RefutedError:
                    tried[kind] += 1
        end = numbers(stream, place, 1)
        if kind == tree.HALF_SPACE:
            count = number_at(stream, place)
            for off in (count + 1, max(0, count - 1), count ^ 64):
                with pytest.raises(RefutedError, match="half-space leaf"):
                    proven(problem, stream[:place] + written(off) + stream[end:])
            assert refused(problem, stream[:at] + b"\x43" + stream[end:], counts)
    assert min(tried.values()) > 10, tried


def test_false_splits_are_refused(example):
    problem, stream, _ = example
    tried = 0
    for at, kind in itertools.islice(node_places(stream, problem), 60):
        if kind < 0x40:
            cut, end = number_at(stream, at + 1), numbers(stream, at + 1, 1)
            for off in (0, cut + 40, 1 << 70):
                with pytest.raises(RefutedError, match="outside its box"):
                    proven(problem, stream[: at + 1] + written(off) + stream[end:])
            tried += 1
            for other in (3, 30):
                with pytest.raises(RefutedError, match="outside its box"):
                    proven(problem, stream[:at] + bytes([other]) + stream[at + 1 :])
    assert tried > 5


def test_splits_at_the_ends_of_a_box_are_refused():
    problem = network_problem(IntNetwork(1, (int_layer([[1], [0]], [0, 3]),), 2), (9,), region=Box((2,), (7,)))
    assert proven(problem, b"\x00\x04\x41\x41").counts == {"0": (4, 4), "1": (1, 1)}
    for cut in (0, 1, 2, 7, 8):
        with pytest.raises(RefutedError, match="outside its box"):
            proven(problem, b"\x00" + bytes([cut]) + b"\x41\x41")


def test_trees_that_are_too_deep_are_refused():
    problem = network_problem(IntNetwork(1, (int_layer([[1], [0]], [0, 3]),), 2), (1 << 17,))
    with pytest.raises(RefutedError, match="too deep"):
        proven(problem, b"".join(b"\x00" + written(cut) for cut in range((1 << 17) - 1, 0, -1)), 1 << 16)


@pytest.mark.parametrize("winners", [b"\xff\x02", b"\xff\xfe", b"\x02\xff", b"\xff\x01", b"\x00\xff", b"\x01\x00"])
@pytest.mark.parametrize("kind", [b"\x40", b"\x42"])
def test_labels_are_beaten_by_other_labels_and_not_all(kind, winners):
    problem = network_problem(IntNetwork(1, (int_layer([[0], [0]], [1, 0]),), 2), (9,))
    with pytest.raises(RefutedError, match="the labels of the leaf"):
        proven(problem, kind + winners + b"\x00")


def of_one_kink(scores, bias):
    """Two scores that are weighted sums of u = z + 8 and h = max(z, 0), z being x − 8 and x from 0 to 16."""
    first = int_layer([[1], [1]], [0, -8], "relu")
    return network_problem(IntNetwork(1, (first, int_layer(scores, bias)), 2), (17,))


def step(chord, line, place=2):
    return b"\x40\xff\x00\x01" + written(place) + written(2 * chord + line)


def test_the_line_of_a_step_decides_what_is_proven():
    above_line = of_one_kink([[0, 1], [1, 0]], [0, -8])  # h ≥ z
    above_zero = of_one_kink([[0, 1], [0, 0]], [0, 0])  # h ≥ 0
    for chord in (0, 1, 9999, 65536):
        assert proven(above_line, step(chord, 1)).counts == {"0": (17, 17), "1": (0, 0)}
        assert proven(above_zero, step(chord, 0)).counts == {"0": (17, 17), "1": (0, 0)}
        for problem, line in ((above_line, 0), (above_zero, 1)):
            with pytest.raises(RefutedError, match="not proven"):
                proven(problem, step(chord, line))


def test_the_chord_of_a_step_decides_what_is_proven():
    # 2h ≤ z + 8, which touches both ends of the kink: one slope of 65,537 is good enough. (Times 2^20, for otherwise
    # what is missing is less than one whole point, and no whole number lies in it.)
    problem = of_one_kink([[1 << 20, 0], [0, 2 << 20]], [0, 0])
    for chord in (0, 1, 32767, 32768, 32769, 65535, 65536):
        for line in (0, 1):
            if chord == 32768:
                assert proven(problem, step(chord, line)).counts == {"0": (17, 17), "1": (0, 0)}
            else:
                with pytest.raises(RefutedError, match="not proven"):
                    proven(problem, step(chord, line))
    # Where another neuron is named, which is stable, this one is given a slope by the reader.
    problem = of_one_kink([[1 << 20, 0], [0, 3 << 20]], [1 << 23, 0])  # 3h ≤ z + 16 needs 1/3, or nearly
    assert proven(problem, step(21846, 0)).counts == {"0": (17, 17), "1": (0, 0)}
    for stream in (step(21846, 0, place=0), step(21846, 0, place=3), b"\x40\xff\x00\x00"):
        with pytest.raises(RefutedError, match="not proven"):
            proven(problem, stream)
    # What is false is not proven by any slope: 2h ≤ z + 7 fails at both ends.
    problem = of_one_kink([[1, 0], [0, 2]], [-1, 0])
    for chord in range(0, 65537, 2048):
        with pytest.raises(RefutedError, match="not proven"):
            proven(problem, step(chord, 0))


def test_steps_out_of_range_are_refused():
    problem = of_one_kink([[1, 0], [0, 2]], [0, 0])
    for stream in (
        step(65537, 0), step(1 << 34, 0), step(32768, 0, place=4), step(32768, 0, place=1 << 40),
        b"\x40\xff\x00\x02" + written(2) + written(65536) + written(0) + written(65536),  # one place twice
    ):  # fmt: skip
        with pytest.raises(RefutedError, match="out of range"):
            proven(problem, stream)
    with pytest.raises(RefutedError, match="has 5 relaxation steps"):
        proven(problem, b"\x40\xff\x00" + written(5) + (b"\x01" + written(65536)) * 5)


def test_no_slope_proves_what_is_false(example):
    problem, stream, counts = example
    kept = broken = 0
    for at, kind in node_places(stream, problem):
        if kind != tree.DECIDED or not (steps := number_at(stream, at + 1 + problem.labels)):
            continue
        place = numbers(stream, at + 1 + problem.labels, 1)
        for _ in range(steps):
            place = numbers(stream, place, 1)
            end = numbers(stream, place, 1)
            packed = number_at(stream, place)
            for other in (packed ^ 1, packed & 1, 65536 << 1 | packed & 1):
                try:
                    assert proven(problem, stream[:place] + written(other) + stream[end:]).counts == counts
                    kept += 1
                except RefutedError:
                    broken += 1
            place = end
        if broken + kept > 150:
            break
    assert kept > 20


def test_ties_are_not_won_by_the_higher_label():
    problem = network_problem(IntNetwork(1, (int_layer([[1], [1]], [0, 0]),), 2), (9,))
    assert proven(problem, b"\x40\xff\x00\x00").counts == {"0": (9, 9), "1": (0, 0)}
    with pytest.raises(RefutedError, match="not proven"):
        proven(problem, b"\x40\x01\xff\x00")


def test_half_spaces_need_stable_neurons_and_two_labels():
    kinked = IntNetwork(1, (int_layer([[1]], [-4], "relu"), int_layer([[1], [0]], [0, 2])), 2)
    problem = network_problem(kinked, (9,))
    for claimed in range(10):  # whatever the number, even the right one
        with pytest.raises(RefutedError, match=r"half-space leaf .* is not proven"):
            proven(problem, b"\x42\xff\xff" + bytes([claimed]))
    stable = network_problem(kinked, (9,), region=Box((4,), (9,)))
    assert proven(stable, b"\x42\xff\xff\x03").counts == {"0": (3, 3), "1": (2, 2)}
    three = network_problem(IntNetwork(1, (int_layer([[1], [-1], [0]], [0, 8, 5]),), 3), (9,))
    for claimed in range(10):
        for winner in (b"\xff\xff\xff", b"\xff\xff\x00", b"\xff\x00\x00"):
            with pytest.raises(RefutedError, match=r"half-space leaf .* is not proven"):
                proven(three, b"\x42" + winner + bytes([claimed]))


def test_numbers_are_multiplied_without_overflow():
    # All scores and positions are 0 at the only point, and coefficients are beyond words.
    huge = 1 << 70
    query = GridQuery("q", Sign("<=", Plus((Times(Linear((), huge), Score(0, 0, 0)), Linear((), -1)))))
    problem = network_problem(IntNetwork(1, (int_layer([[0], [0]], [0, 0]),), 2), (1,), [query])
    assert proven(problem, b"\x41").counts == {"q": (1, 1)}


MALFORMED = [b"", b"\x44", b"\x41\x41", b"\x00\x04\x41", b"\x40\xff", b"\x00" + b"\xff" * 40, b"\x40" + b"\xff" * 90]


@pytest.mark.parametrize("stream", MALFORMED)
def test_malformed_trees_are_refused(example, stream):
    with pytest.raises(RefutedError):
        proven(example[0], stream)


def test_leaves_that_would_take_for_ever_are_refused():
    problem = network_problem(IntNetwork(2, (int_layer([[1, -1], [0, 0]], [0, 0]),), 2), (1 << 30, 1 << 30))
    with pytest.raises(RefutedError, match="points"):
        proven(problem, b"\x41")


def test_a_property_is_not_believed_on_a_leaf_that_leaves_it_open():
    queries = [GridQuery("high", Sign("<", Score(0, -99, 99))), GridQuery("one", HasLabel((0,)))]
    problem = network_problem(IntNetwork(1, (int_layer([[1], [0]], [-4, -100]),), 2), (9,), queries)
    assert proven(problem, b"\x41").counts == {"high": (4, 4), "one": (9, 9)}
    assert proven(problem, b"\x00\x04\x40\xff\x00\x00\x40\xff\x00\x00").counts == {"high": (4, 4), "one": (9, 9)}
    for stream in (b"\x40\xff\x00\x00", b"\x00\x05\x40\xff\x00\x00\x40\xff\x00\x00"):
        with pytest.raises(RefutedError, match="not proven"):
            proven(problem, stream)


def test_a_property_is_not_believed_on_a_half_space_that_leaves_it_open():
    # Label 0 wins from 4 on; the second query asks for positions too, and is open on a leaf that its end cuts.
    queries = [GridQuery("0", HasLabel((0,))), GridQuery("low", AllOf((HasLabel((0,)), Within(0, 0, 6))))]
    problem = network_problem(IntNetwork(1, (int_layer([[1], [0]], [0, 4]),), 2), (9,), queries)
    cut = b"\x00\x06" + b"\x42\xff\xff\x02" + b"\x40\xff\x00\x00"
    assert proven(problem, cut).counts == {"0": (5, 5), "low": (2, 2)}
    for claimed in range(10):
        with pytest.raises(RefutedError, match=r"half-space leaf .* is not proven"):
            proven(problem, b"\x42\xff\xff" + bytes([claimed]))


def test_inputs_that_the_region_fixes_count_in_sums_with_scores():
    # Score 0 is the first input, the second is 3: x + 2·3 − 10 < 0 below 4.
    line = Plus((Score(0, 0, 8), Linear(((1, 2),), -10)))
    network = IntNetwork(2, (int_layer([[1, 0], [0, 0]], [0, -1]),), 2)
    problem = network_problem(network, (9, 5), [GridQuery("q", Sign("<", line))], Box((0, 3), (9, 4)))
    leaf = b"\x40\xff\x00\x00"
    assert proven(problem, b"\x00\x04" + leaf * 2).counts == proven(problem, b"\x41").counts == {"q": (4, 4)}
    for cut in (3, 5):
        with pytest.raises(RefutedError, match="not proven"):
            proven(problem, b"\x00" + bytes([cut]) + leaf * 2)


def test_volumes_beyond_words_are_added_up():
    side = 1 << 35
    problem = network_problem(IntNetwork(2, (int_layer([[0, 0], [0, 0]], [0, -1]),), 2), (side, side))
    assert proven(problem, b"\x40\xff\x00\x00").counts == {"0": (1 << 70, 1 << 70), "1": (0, 0)}
    half = network_problem(IntNetwork(2, (int_layer([[1, 0], [0, 0]], [0, side // 2]),), 2), (side, side))
    assert proven(half, b"\x42\xff\xff" + written(1 << 69)).counts == dict.fromkeys("01", (1 << 69, 1 << 69))
    for claimed in (0, 1 << 64, (1 << 69) + 1, (1 << 70) - 1):
        with pytest.raises(RefutedError, match="half-space leaf"):
            proven(half, b"\x42\xff\xff" + written(claimed))


@pytest.mark.parametrize(
    ("op", "many", "inside"), [("<=", 0, 5), ("<", 1, 5), ("==", 1, 4), ("!=", 0, 4), ("!=", 1, 5)]
)
def test_conditions_that_a_box_leaves_open_may_hold_or_not(op, many, inside):
    condition = CountOf((Within(0, 0, 4), Within(0, 9, 9)))
    queries = [GridQuery("q", Sign(op, Plus((condition, Linear((), -many)))))]
    problem = network_problem(IntNetwork(1, (int_layer([[0], [0]], [0, -1]),), 2), (9,), queries)
    leaf = b"\x40\xff\x00\x00"
    assert proven(problem, b"\x00\x04" + leaf * 2).counts == proven(problem, b"\x41").counts == {"q": (inside,) * 2}
    for stream in (leaf, b"\x00\x03" + leaf * 2, b"\x00\x05" + leaf * 2):
        with pytest.raises(RefutedError, match="not proven"):
            proven(problem, stream)


@pytest.mark.parametrize("size", [100, 200])
def test_points_whose_scores_are_beyond_doubles(size):
    # Score 0 is 2^54 + x, score 1 is 2^54 + 1, which no double is; large leaves are folded first.
    last = int_layer([[1], [0]], [1 << 54, (1 << 54) + 1])
    for layers in ((last,), (int_layer([[1]], [0], "relu"), last)):
        problem = network_problem(IntNetwork(1, layers, 2), (size,))
        assert proven(problem, b"\x41").counts == {"0": (size - 1,) * 2, "1": (1, 1)}


def test_expressions_beyond_words_are_compared_exactly():
    # x² ≤ 2^70 up to 2^35, in a region that reaches to 2^40.
    square = Times(Linear(((0, 1),), 0), Linear(((0, 1),), 0))
    queries = [GridQuery("q", Sign("<=", Plus((square, Linear((), -(1 << 70))))))]
    problem = network_problem(IntNetwork(1, (int_layer([[0], [0]], [0, -1]),), 2), (1 << 40,), queries)
    leaf = b"\x40\xff\x00\x00"
    assert proven(problem, b"\x00" + written((1 << 35) + 1) + leaf * 2).counts == {"q": ((1 << 35) + 1,) * 2}
    for cut in (1 << 35, (1 << 35) + 2, 1 << 33):
        with pytest.raises(RefutedError, match="not proven"):
            proven(problem, b"\x00" + written(cut) + leaf * 2)


@pytest.mark.parametrize("stream", [b"\x41", b"\x40\xff\xff\x00"])
def test_scores_that_are_multiplied_or_divided_are_not_covered(stream):
    score = Score(0, 0, 8)
    for value in (Times(score, Score(1, 3, 3)), FloorDiv(score, 2)):
        queries = [GridQuery("q", Sign("<", value))]
        problem = network_problem(IntNetwork(1, (int_layer([[1], [0]], [0, 3]),), 2), (9,), queries)
        with pytest.raises(RefutedError, match="in a way that certificates do not cover"):
            proven(problem, stream)


@pytest.mark.parametrize("at_zero", [-1, 0, 1])
@pytest.mark.parametrize("slope", [1, -1])
def test_a_sign_at_zero_is_what_the_layer_says(at_zero, slope):
    # Score 0 is 2·sign(±x), score 1 is ±1: their order at x = 0 depends on what sign(0) is.
    network = IntNetwork(1, (int_layer([[slope]], [0], "sign", at_zero=at_zero), int_layer([[2], [0]], [0, slope])), 2)
    problem = network_problem(network, (9,))
    alike = at_zero == slope
    leaf = b"\x40\xff\x00\x00" if slope > 0 else b"\x40\x01\xff\x00"
    first = 9 if slope > 0 else 0
    expected = first if alike else abs(first - 1)
    assert proven(problem, b"\x00\x01\x41" + leaf).counts == {"0": (expected,) * 2, "1": (9 - expected,) * 2}
    if alike:
        assert proven(problem, leaf).counts == {"0": (first, first), "1": (9 - first, 9 - first)}
    else:
        with pytest.raises(RefutedError, match="not proven"):
            proven(problem, leaf)


def test_activations_that_certificates_do_not_know_are_refused():
    last = int_layer([[1, 0], [0, 1]], [0, 0])
    members = replace(int_layer([[0, 0]] * 2, [0, 0], "max"), members=np.array([[0, 1], [1, -1]]))
    for layer, why in (
        (int_layer([[1, 0], [0, 1]], [0, 0], "leaky", positive=2, negative=-1), "falling slopes"),
        (members, "has the activation max"),
        (int_layer([[1, 0], [0, 1]], [0, 0], "requantise"), "has the activation requantise"),
    ):
        problem = network_problem(IntNetwork(2, (layer, last), 2), (9, 9))
        for stream in (b"\x41", b"\x40\xff\xff\x00"):
            with pytest.raises(RefutedError, match=why):
                proven(problem, stream)


def test_what_certificates_have_no_numbers_for_is_refused():
    flat = int_layer([[0], [0]], [0, 0])
    far = network_problem(IntNetwork(1, (flat,), 2), (2 << 40,), region=Box(((1 << 40) - 1,), ((1 << 40) + 1,)))
    with pytest.raises(RefutedError, match="reaches further"):
        proven(far, b"\x41")
    problem = network_problem(IntNetwork(1, (flat,), 2), (9,))
    with pytest.raises(RefutedError, match="another number of scores"):
        proven(replace(problem, labels=3), b"\x41")
    for labels, covered in ((254, True), (255, False)):
        many = network_problem(IntNetwork(1, (int_layer([[0]] * labels, [0] * labels),), labels), (9,))
        if covered:
            assert proven(many, b"\x41").counts["0"] == (9, 9)
        else:
            with pytest.raises(RefutedError, match="more labels"):
                proven(many, b"\x41")


def test_open_leaves_stay_between_the_bounds(example):
    problem, stream, counts = example
    at = next(place for place, leaf in node_places(stream, problem) if leaf == tree.ENUMERATED)
    found = proven(problem, stream[:at] + b"\x43" + stream[at + 1 :])
    assert found.leaves["open"] == 1
    assert len({high - low for low, high in found.counts.values()} - {0}) == 1
    assert all(low <= counts[name][0] <= high for name, (low, high) in found.counts.items())

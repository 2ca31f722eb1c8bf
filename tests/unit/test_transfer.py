"""Losses by context: every number against a direct computation written apart, or worked out by hand."""

from __future__ import annotations

import csv
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import betaincinv

from quantify.dataset import context_choice, transfer_interval
from quantify.dataset.transfer import Plan, transfer
from quantify.dataset.transfer_interval import Losses
from quantify.errors import InputError, UndecidedError
from quantify.ir.transfer import Transfer
from quantify.resources import Limits, Progress, Stop

F = Fraction
Rows = Sequence[Sequence[object]]
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to(name: str, header: str, rows: Rows) -> Path:
        path = tmp_path / name
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header.split(","))
            writer.writerows(rows)
        return path

    return to


def answer(path: Path, context: str = "", limits: Limits | None = None, **more: Any) -> Transfer:
    names = tuple(context.split(",")) if context else ()
    return transfer(Plan(path, more.pop("loss", "loss"), names, **more), limits or Limits(), Progress())


# --- the ranking -----------------------------------------------------------------------------------------------------
def direct_information(first: Sequence[object], second: Sequence[object]) -> float:
    """Equation 5, as it is written."""
    n = len(first)
    joint, left, right = Counter(zip(first, second, strict=True)), Counter(first), Counter(second)
    return sum((c / n) * math.log((c / n) / ((left[a] / n) * (right[b] / n))) for (a, b), c in joint.items())


def direct_ranking(loss: Sequence[object], columns: dict[str, Sequence[object]]) -> list[tuple[str, float]]:
    """Algorithm 1 with equation 9, to the last feature; ties in column order."""
    chosen: list[str] = []
    found = []
    while len(chosen) < len(columns):
        deltas = {
            name: direct_information(loss, column) - sum(direct_information(columns[one], column) for one in chosen)
            for name, column in columns.items()
            if name not in chosen
        }
        best = max(deltas.values())
        name = next(name for name in columns if name in deltas and deltas[name] > best - 1e-9)
        chosen.append(name)
        found.append((name, deltas[name]))
    return found


def direct_bins(values: Sequence[Fraction | None]) -> list[object]:
    """Ten uniform bins of the range where there are more than ten values, by comparing with every edge."""
    known = [value for value in values if value is not None]
    if len(set(known)) <= 10:
        return list(values)
    low, high = min(known), max(known)
    edges = [low + (high - low) * i / 10 for i in range(1, 10)]
    return [None if value is None else sum(value >= edge for edge in edges) for value in values]


@pytest.mark.parametrize("seed", range(12))
def test_the_whole_ranking_is_equation_9(write: Write, seed: int) -> None:
    draw = random.Random(seed)
    n = draw.choice([7, 60, 400])
    columns: dict[str, list[Any]] = {}
    for place in range(draw.randint(1, 7)):
        kind = draw.randrange(5)
        if kind == 0:
            column: list[Any] = [draw.choice(["a", "b", "c"]) for _ in range(n)]
        elif kind == 1:
            column = [draw.choice([None, 0, 1, 2]) for _ in range(n)]
        elif kind == 2:
            column = [draw.choice([None, *range(-20, 21)]) for _ in range(n)]
        elif kind == 3:
            column = [F(draw.randrange(-5000, 5000), 100) for _ in range(n)]
        elif columns:
            source = columns[draw.choice(list(columns))]
            column = [value if draw.random() < 0.7 else draw.choice(source) for value in source]
        else:
            column = ["same"] * n
        columns[f"f{place}"] = column
    first = next(iter(columns.values()))
    loss = [int(draw.random() < (0.8 if value in ("a", 0) or value is None else 0.3)) for value in first]
    rows = zip(
        *([("" if v is None else float(v) if isinstance(v, F) else v) for v in c] for c in columns.values()), loss,
        strict=True,
    )  # fmt: skip
    path = write("t.csv", ",".join([*columns, "loss"]), list(rows))
    found = answer(path, splits=2, bins=10)
    discrete = {
        name: c if any(isinstance(v, str) for v in c) else direct_bins([None if v is None else F(v) for v in c])
        for name, c in columns.items()
    }
    expected = direct_ranking(loss, discrete)
    assert [one.feature.name for one in found.ranking] == [name for name, _ in expected]
    assert [one.delta for one in found.ranking] == pytest.approx([delta for _, delta in expected], abs=1e-12)
    for one in found.ranking:
        known = direct_information(loss, discrete[one.feature.name])
        assert one.information == pytest.approx(known, abs=1e-12)
        assert one.feature.missing == sum(value is None for value in columns[one.feature.name])


def test_information_in_closed_form(write: Write) -> None:
    """c1 is the loss, which has one bit; c3 never changes; c2 by hand below."""
    rows = [(0, 0, 0, "x"), (0, 0, 1, "x"), (1, 1, 0, "x"), (1, 1, 1, "x"), (1, 1, 0, "x"), (0, 0, 1, "x")]
    found = answer(write("t.csv", "loss,c1,c2,c3", rows), "c1,c2,c3", splits=2)
    ranked = {one.feature.name: one for one in found.ranking}
    assert [one.feature.name for one in found.ranking] == ["c1", "c2", "c3"]
    assert ranked["c1"].delta == pytest.approx(math.log(2), abs=1e-15)
    # c3 never changes: it says nothing, exactly, and is not redundant either.
    assert (ranked["c3"].delta, ranked["c3"].information) == (0.0, 0.0)
    # (loss, c2): 1 and 2 rows for loss 0, 2 and 1 for loss 1, all marginals ½:
    # I = 2·(1/6)·ln((1/6)/(1/4)) + 2·(1/3)·ln((1/3)/(1/4)) = (1/3)·ln(2/3) + (2/3)·ln(4/3).
    by_hand = math.log(2 / 3) / 3 + 2 * math.log(4 / 3) / 3
    assert ranked["c2"].information == pytest.approx(by_hand, abs=1e-15)
    # c1 is the loss, so ΔI = I(L, C2) − I(C1, C2) = 0, which ties with c3.
    assert ranked["c2"].delta == 0.0
    assert ranked["c1"].candidates == pytest.approx((math.log(2), by_hand, 0.0), abs=1e-15)


def test_redundant_features_have_negative_delta(write: Write) -> None:
    """c2 is c1 with other words: I(L, c2) − I(c1, c2) = I(L, c1) − ln 2, and I(L, c1) = ln 2 − H(¼)."""
    rows = [(int(i % 4 == 0) ^ (i // 4) % 2, (i // 4) % 2, ["no", "yes"][(i // 4) % 2]) for i in range(16)]
    found = answer(write("t.csv", "loss,c1,c2", rows), splits=2)
    quarter = -(math.log(0.25) / 4 + 3 * math.log(0.75) / 4)
    assert [one.delta for one in found.ranking] == pytest.approx([math.log(2) - quarter, -quarter], abs=1e-15)
    # A tie goes to the first column, however they are named.
    assert [one.feature.name for one in found.ranking] == ["c1", "c2"]
    assert [one.feature.name for one in answer(write("u.csv", "loss,c1,c2", rows), "c2,c1", splits=2).ranking] == [
        "c2",
        "c1",
    ]


def test_ties_do_not_depend_on_rounding() -> None:
    """Permuted copies of one column have the same information: whichever is first is taken first."""
    random_ = np.random.default_rng(5)
    loss = random_.integers(0, 2, 997)
    column = random_.integers(0, 7, 997)
    for _ in range(20):
        copies = [random_.permutation(7)[column] for _ in range(4)]
        rounds = context_choice.rank(loss, copies)
        assert [one.feature for one in rounds] == [0, 1, 2, 3]


# --- the number of features ------------------------------------------------------------------------------------------
def direct_errors(
    rows: Sequence[tuple[tuple[object, ...], float]], partitions: Sequence[tuple[Any, Any]], most: float
) -> list[list[float]]:
    """Algorithm 2 with dictionaries; K from 0."""
    width = len(rows[0][0])
    found = []
    for k in range(width + 1):
        row = []
        for fit, validation in partitions:
            by_context: dict[tuple[object, ...], list[float]] = {}
            for i in fit:
                by_context.setdefault(rows[i][0][:k], []).append(rows[i][1])
            observed = sum(rows[i][1] for i in validation) / len(validation)
            share = Counter(rows[i][0][:k] for i in validation)
            predicted = sum(
                count / len(validation)
                * (sum(by_context[c]) / len(by_context[c]) if c in by_context else most)
                for c, count in share.items()
            )  # fmt: skip
            row.append(abs(observed - predicted))
        found.append(row)
    return found


def test_errors_are_algorithm_2_with_the_same_splits_for_every_k(write: Write) -> None:
    draw = random.Random(3)
    rows = [
        (int(draw.random() < (0.7 if a == "x" else 0.2)), a, b, draw.randrange(6))
        for a, b in ((draw.choice("xyz"), draw.choice("pq")) for _ in range(90))
    ]
    path = write("t.csv", "loss,a,b,c", rows)
    found = answer(path, splits=9, limits=Limits(seed=4), choose="least")
    order = [found.features.index(one.feature) for one in found.ranking]
    table = [(tuple(row[1 + place] for place in order), float(row[0])) for row in rows]
    partitions = [context_choice.split(90, 45, 4, place) for place in range(9)]
    for fit, validation in partitions:
        assert sorted([*fit, *validation]) == list(range(90))
        assert len(fit) == 45
    assert len({tuple(fit) for fit, _ in partitions}) == 9
    expected = direct_errors(table, partitions, 1.0)
    told = [found.baseline, *found.errors]
    assert [one.k for one in told] == [0, 1, 2, 3]
    assert [one.error for one in told] == pytest.approx([np.mean(row) for row in expected], abs=1e-12)
    assert [one.standard_error for one in told] == pytest.approx(
        [np.std(row, ddof=1) / 3 for row in expected], abs=1e-12
    )
    means = [float(np.mean(row)) for row in expected[1:]]
    assert found.k == 1 + means.index(min(means))
    assert answer(path, splits=9, limits=Limits(seed=5)).errors != found.errors
    assert answer(path, splits=9, limits=Limits(seed=4, jobs=3), choose="least") == found


def test_a_tie_goes_to_the_smallest_k(write: Write) -> None:
    """A feature that never changes changes nothing: the errors are equal."""
    rows = [(i % 2, i % 2, "same") for i in range(20)]
    found = answer(write("t.csv", "loss,a,b", rows), splits=5)
    assert [one.error for one in found.errors] == [0.0, 0.0]
    assert found.k == 1


def test_contexts_that_the_fit_set_lacks_take_the_maximum_loss(write: Write) -> None:
    """Every row is a context of its own: the predicted validation loss is 1 throughout, whatever the split."""
    rows = [(int(i < 3), f"v{i}") for i in range(12)]
    path = write("t.csv", "loss,a", rows)
    found = answer(path, splits=20)
    (error,) = found.errors
    assert error.untested == 1.0
    validations = [context_choice.split(12, 6, 0, place)[1] for place in range(20)]
    expected = [1 - sum(1 for i in validation if i < 3) / 6 for validation in validations]
    assert error.error == pytest.approx(np.mean(expected), abs=1e-15)
    # A declared maximum is used there as well.
    expected = [abs(value + 1) for value in expected]
    assert answer(path, splits=20, most=F(2)).errors[0].error == pytest.approx(np.mean(expected), abs=1e-15)


def test_the_split_can_be_of_any_share(write: Write) -> None:
    rows = [(i % 2, i % 3) for i in range(10)]
    path = write("t.csv", "loss,a", rows)
    for share, expected in ((F(1, 1000), 1), (F(999, 1000), 9), (F(3, 10), 3)):
        assert answer(path, splits=2, fit_share=share).fit_rows == expected


def test_warnings_where_the_error_does_not_fall(write: Write) -> None:
    draw = random.Random(1)
    noise = [(draw.randrange(2), *(draw.randrange(3) for _ in range(3))) for _ in range(300)]
    assert "flat_or_rising" in {one.code for one in answer(write("n.csv", "loss,a,b,c", noise)).warnings}
    # Two features that say the loss only together, b more than a: the error falls to 0 at K = 2.
    rows = [(a & b, a, b) for a, b in itertools.product([0, 1], [0, 1]) for _ in range(50)]
    found = answer(write("i.csv", "loss,a,b", rows))
    assert found.k == 2
    assert found.errors[1].error == 0.0
    assert found.warnings == ()
    one = answer(write("o.csv", "loss,a", [(a, a) for a in [0, 1] * 50]))
    assert one.warnings == ()


# --- discrete features -----------------------------------------------------------------------------------------------
def test_ten_values_are_kept_and_eleven_are_cut(write: Write) -> None:
    ten = answer(write("a.csv", "loss,x", [(i % 2, i % 10) for i in range(40)]), splits=2).features[0]
    assert (ten.kind, ten.labels, ten.edges) == ("values", tuple(map(str, range(10))), None)
    eleven = answer(write("b.csv", "loss,x", [(i % 2, i % 11) for i in range(44)]), splits=2)
    assert eleven.features[0].kind == "bins"
    assert eleven.features[0].edges == tuple(map(float, range(11)))
    # 0 to 10 in ten bins: each number its own, but 10 with 9.
    assert [one.rows for one in eleven.contexts] == [4] * 9 + [8]
    # Numbers that are names stay apart.
    names = answer(write("c.csv", "loss,x", [(i % 2, i % 11) for i in range(44)]), splits=2, categorical=("x",))
    assert len(names.contexts) == 11


def test_edges_are_exact(write: Write) -> None:
    """0, 0.1, …, 1.0: 0.3 and 0.6 begin their bins, which floats (0.1 + 0.2, 0.6 / 0.1) would get wrong."""
    rows = [(0, f"{i / 10:.1f}") for i in range(11)] * 2
    found = answer(write("t.csv", "loss,x", rows), splits=2)
    assert [one.rows for one in found.contexts] == [2] * 9 + [4]


def test_missing_values_are_a_value(write: Write) -> None:
    rows = [(1, ""), (1, "NA"), (0, "a"), (0, "b"), (1, "a")]
    path = write("t.csv", "loss,x", rows)
    found = answer(path, splits=2, operating=write("o.csv", "x", [("",), ("a",)]))
    assert found.features[0].labels == ("a", "b", "missing")
    assert [(one.values, one.rows, one.loss) for one in found.contexts] == [((0,), 2, 0.5), ((1,), 1, 0), ((2,), 2, 1)]
    assert found.prediction is not None
    assert (found.prediction.loss, found.prediction.untested) == (0.75, 0.0)
    # Where the test set has none, a missing value is an untested one.
    complete = write("c.csv", "loss,x", [(0, "a"), (0, "b")])
    made = answer(complete, splits=2, operating=write("p.csv", "x,y", [("", 1), ("a", 2)])).prediction
    assert made is not None
    assert (made.loss, made.untested, made.outside) == (0.5, 0.5, 0.5)


# --- predictions -----------------------------------------------------------------------------------------------------
LOSSES = {("a", 0): (1, 0), ("a", 1): (1, 1, 0), ("b", 0): (0, 0)}


@pytest.fixture
def tested(write: Write) -> Path:
    """Contexts (a, 0): g = ½, (a, 1): g = ⅔, (b, 0): g = 0; (b, 1) is untested."""
    rows = [(loss, *context) for context, losses in LOSSES.items() for loss in losses]
    return write("t.csv", "loss,u,v", rows)


def test_predictions_by_hand(tested: Path, write: Write) -> None:
    rows = [("a", 0)] * 1 + [("a", 1)] * 2 + [("b", 0)] * 3 + [("b", 1)] * 1 + [("c", 0)] * 1
    found = answer(tested, splits=2, k=2, operating=write("o.csv", "v,u", [(v, u) for u, v in rows]))
    made = found.prediction
    assert made is not None
    assert (made.source, made.rows) == ("rows", 8)
    assert made.loss == pytest.approx((1 / 2 + 2 * 2 / 3 + 3 * 0 + 1 + 1) / 8, abs=1e-15)
    assert (made.untested, made.outside) == (2 / 8, 1 / 8)
    assert made.lower <= made.loss <= made.upper
    order = [one.name for one in found.chosen]
    labels = [{n: f.labels[p] for n, f, p in zip(order, found.chosen, c.values, strict=True)} for c in found.contexts]
    shares = {(one["u"], one["v"]): c.operating for one, c in zip(labels, found.contexts, strict=True)}
    assert shares == {("a", "0"): 1 / 8, ("a", "1"): 2 / 8, ("b", "0"): 3 / 8}
    assert found.possible == 4
    # The same as a joint table with weights, whose sum does not matter.
    joint = [("a", 0, "0.5"), ("a", 1, "1.0"), ("b", 0, "1.5"), ("b", 1, "0.5"), ("c", 0, "0.5"), ("d", 7, "0")]
    again = answer(tested, splits=2, k=2, operating=write("j.csv", "u,v,w", joint), weight="w").prediction
    assert again is not None
    assert again.source == "weights"
    assert (again.loss, again.untested, again.outside) == pytest.approx((made.loss, made.untested, made.outside))
    # How much hangs on K: with the first feature alone.
    assert [one.k for one in made.by_k] == [1, 2]
    assert made.by_k[1].loss == made.loss


def test_marginals_are_the_joint_written_out(tested: Path, write: Write, tmp_path: Path) -> None:
    marginals = tmp_path / "m.yaml"
    marginals.write_text("u: {a: 1/3, b: 0.25, c: 5/12}\nv: {0: 0.3, 1.0: 0.6, missing: 0.1}\n")
    made = answer(tested, splits=2, k=2, marginals=marginals).prediction
    u, v = {"a": F(1, 3), "b": F(1, 4), "c": F(5, 12)}, {0: F(3, 10), 1: F(6, 10), "": F(1, 10)}
    exact = sum((u[a] * v[b] * F(sum(losses), len(losses)) for (a, b), losses in LOSSES.items()), F(0))
    untested = 1 - sum((u[a] * v[b] for a, b in LOSSES), F(0))
    assert made is not None
    assert made.loss == pytest.approx(float(exact + untested), abs=1e-15)
    assert made.untested == pytest.approx(float(untested), abs=1e-15)
    assert made.outside == pytest.approx(float(1 - (1 - F(5, 12)) * (1 - F(1, 10))), abs=1e-15)
    joint = [(a, b, f"{float(p * q):.17g}") for (a, p), (b, q) in itertools.product(u.items(), v.items())]
    written = answer(tested, splits=2, k=2, operating=write("j.csv", "u,v,w", joint), weight="w").prediction
    assert written is not None
    assert (written.loss, written.untested) == pytest.approx((made.loss, made.untested), abs=1e-12)
    # The distribution is known in both, so the bootstrap draws the same.
    assert (written.lower, written.upper) == pytest.approx((made.lower, made.upper), abs=1e-9)


def test_numbers_stand_for_their_bins(write: Write, tmp_path: Path) -> None:
    rows = [(int(x >= 50), x) for x in range(101)]
    marginals = tmp_path / "m.yaml"
    marginals.write_text("x: {0: 1/4, 9.99: 1/4, 100: 0.3, 100.01: 0.2}\n")
    made = answer(write("t.csv", "loss,x", rows), splits=2, marginals=marginals).prediction
    assert made is not None
    # Bin 0 has g = 0 and half of the mass; the last bin g = 1; beyond 100 nothing was tested.
    assert (made.loss, made.untested, made.outside) == pytest.approx((0.5, 0.2, 0.2))


def test_numbers_in_quotes_are_numbers_where_the_test_set_has_some(write: Write, tmp_path: Path) -> None:
    few = [(x % 2, x % 4) for x in range(40)]  # the loss is 1 where x is odd
    many = [(int(x >= 50), x) for x in range(101)]
    for rows, text in ((few, '{"x": {"1": 0.75, "2.0": 0.25}}'), (many, '{"x": {"75": 0.75, "3": 0.25}}')):
        marginals = tmp_path / "m.yaml"
        marginals.write_text(text)
        made = answer(write("t.csv", "loss,x", rows), splits=2, marginals=marginals).prediction
        assert made is not None
        assert (made.loss, made.untested) == (0.75, 0)


def test_the_maximum_loss(write: Write) -> None:
    inside = write("a.csv", "loss,x", [("0.25", 0), ("0.5", 1)])
    far = write("o.csv", "x", [(9,)])
    found = answer(inside, splits=2, operating=far)
    assert (found.least, found.most, found.most_is) == (0, 1, "1")
    assert found.prediction is not None
    assert (found.prediction.loss, found.prediction.lower, found.prediction.upper) == (1, 0, 1)
    beyond = write("b.csv", "loss,x", [("-2", 0), ("3.5", 1)])
    found = answer(beyond, splits=2, operating=far)
    assert (found.least, found.most, found.most_is) == (-2, 3.5, "largest seen")
    assert "maximum_loss" in {one.code for one in found.warnings}
    assert found.prediction is not None
    assert (found.prediction.loss, found.prediction.lower) == (3.5, -2)
    found = answer(beyond, splits=2, operating=far, most=F(10))
    assert (found.most, found.most_is) == (10, "declared")
    assert "maximum_loss" not in {one.code for one in found.warnings}
    with pytest.raises(InputError, match=r"--max-loss 3: the table has a loss of 3.5"):
        answer(beyond, splits=2, most=F(3))


def test_losses_may_be_words_and_of_many_levels(write: Write) -> None:
    words = answer(write("w.csv", "loss,x", [("True", 0), ("FALSE", 1), ("true", 0)]), splits=2)
    assert words.observed == pytest.approx(2 / 3)
    levels = [(f"{i / 100:.2f}", i % 3) for i in range(100)]
    found = answer(write("l.csv", "loss,x", levels), splits=2)
    # Ten levels for the ranking; g and the mean are of the losses themselves.
    assert (found.loss_levels, found.observed) == (10, pytest.approx(0.495))
    discrete = direct_bins([F(i, 100) for i in range(100)])
    assert found.ranking[0].information == pytest.approx(
        direct_information(discrete, [i % 3 for i in range(100)]), abs=1e-12
    )


# --- the interval ----------------------------------------------------------------------------------------------------
def one_context(hits: int, rows: int) -> Losses:
    values = [(0.0, rows - hits), (1.0, hits)]
    kept = [(value, count) for value, count in values if count]
    return Losses(
        np.zeros(len(kept), np.int64), np.array([v for v, _ in kept]), np.array([c for _, c in kept]), 0.0, 1.0
    )


@pytest.mark.parametrize(("hits", "rows"), [(0, 20), (3, 20), (20, 20), (40, 200), (1, 500)])
def test_one_context_has_the_interval_of_clopper_and_pearson(hits: int, rows: int) -> None:
    got = transfer_interval.interval(
        one_context(hits, rows), np.array([1.0]), 0.0, None, 0.95, 100_000, np.random.default_rng(0)
    )
    low = float(betaincinv(hits, rows - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, rows - hits, 0.975)) if hits < rows else 1.0
    room = 0.02 * (high - low) + 1 / rows**1.5
    assert got == pytest.approx((low, high), abs=room)


def test_untested_contexts_widen_the_interval_by_their_share() -> None:
    losses = one_context(500, 1000)
    random_ = np.random.default_rng(0)
    low, high = transfer_interval.interval(losses, np.array([0.6]), 0.4, None, 0.95, 20_000, random_)
    # 0.6 of the mass lies near ½: 0.3, and 0.4 between 0 and 1.
    assert low == pytest.approx(0.3 - 0.6 * 0.032, abs=0.003)
    assert high == pytest.approx(0.7 + 0.6 * 0.032, abs=0.003)
    assert transfer_interval.interval(losses, np.array([0.0]), 1.0, None, 0.95, 100, random_) == (0.0, 1.0)


def test_one_row_a_context_does_not_hide_its_variance() -> None:
    """64 contexts with one row each, half of them 1: the mean of 64 draws has a standard error of 1/16."""
    losses = Losses(np.arange(64), np.tile([0.0, 1.0], 32), np.ones(64, np.int64), 0.0, 1.0)
    low, high = transfer_interval.interval(
        losses, np.full(64, 1 / 64), 0.0, None, 0.95, 20_000, np.random.default_rng(0)
    )
    assert low < 0.5 - 1.96 / 16 + 0.01
    assert high > 0.5 + 1.96 / 16 - 0.01
    assert high - low < 2 * 1.96 / 16 + 0.05


def test_sampled_operating_rows_add_their_own_uncertainty() -> None:
    """Two contexts with g near 0 and 1 and 100 operating rows, half in each: a standard error of 1/20."""
    losses = Losses(np.array([0, 1]), np.array([0.0, 1.0]), np.array([10**6, 10**6]), 0.0, 1.0)
    shares = np.array([0.5, 0.5])
    random_ = np.random.default_rng(0)
    known = transfer_interval.interval(losses, shares, 0.0, None, 0.95, 20_000, random_)
    assert known == pytest.approx((0.5, 0.5), abs=1e-3)
    low, high = transfer_interval.interval(losses, shares, 0.0, (np.array([50, 50]), 0), 0.95, 20_000, random_)
    assert (low, high) == pytest.approx((0.5 - 1.96 / 20, 0.5 + 1.96 / 20), abs=0.005)


def test_rows_are_a_sample_and_weights_are_not(write: Write) -> None:
    """g is 0 and 1, so all uncertainty is that of 100 operating rows: a standard error of 1/20, or none."""
    path = write("t.csv", "loss,x", [(x, x) for x in [0, 1] * 3000])
    rows = write("o.csv", "x,w", [(x, 1) for x in [0, 1] * 50])
    sample = answer(path, "x", splits=2, operating=rows).prediction
    joint = answer(path, "x", splits=2, operating=rows, weight="w").prediction
    assert sample is not None
    assert joint is not None
    assert (sample.loss, joint.loss) == pytest.approx((0.5, 0.5))
    assert (sample.lower, sample.upper) == pytest.approx((0.4, 0.6), abs=0.02)
    assert joint.upper - joint.lower < 0.01
    # A hundred times 1/100, as floats, is more than 1; a probability is not.
    one = answer(path, "x", splits=2, operating=write("p.csv", "x,w", [(1, "0.01")] * 100), weight="w")
    assert max(context.operating or 0 for context in one.contexts) == pytest.approx(1)
    assert all((context.operating or 0) <= 1 for context in one.contexts)


def test_the_interval_covers_at_its_rate() -> None:
    """40 contexts with other weights in the operating domain: 95 % nominal, 300 draws of the test set."""
    random_ = np.random.default_rng(11)
    g, test, there = random_.beta(1, 3, 40), random_.dirichlet(np.full(40, 2.0)), random_.dirichlet(np.ones(40))
    truth = float(g @ there)
    held = 0
    for _ in range(300):
        rows = random_.multinomial(600, test)
        failed = random_.binomial(rows, g)
        seen = np.flatnonzero(rows)
        counts = np.stack([rows - failed, failed], axis=1)[seen]
        context, value = np.nonzero(counts)
        losses = Losses(context, value.astype(float), counts[context, value], 0.0, 1.0)
        low, high = transfer_interval.interval(
            losses, there[seen], 1 - float(there[seen].sum()), None, 0.95, 400, random_
        )
        held += low <= truth <= high
    # At 95 % fewer than 274 of 300 happen once in 1,000 times.
    assert held >= 274


# --- synthetic data --------------------------------------------------------------------------------------------------
SCENE, WEATHER, LIGHT = 4, 3, 3
G = np.array([
    [[0.95 if s + 1.5 * w + 1.5 * t >= 4.5 else 0.04 for t in range(LIGHT)] for w in range(WEATHER)]
    for s in range(SCENE)
])  # fmt: skip


def drawn(random_: np.random.Generator, rows: int, shift: bool) -> list[tuple[int, ...]]:
    """Loss, three features that g is of, and three that say nothing."""
    scenes = [0.1, 0.2, 0.3, 0.4] if shift else [0.4, 0.3, 0.2, 0.1]
    weathers = [0.2, 0.3, 0.5] if shift else [0.5, 0.3, 0.2]
    lights = [0.2, 0.3, 0.5] if shift else [0.4, 0.3, 0.3]
    scene, weather = random_.choice(SCENE, rows, p=scenes), random_.choice(WEATHER, rows, p=weathers)
    light = random_.choice(LIGHT, rows, p=lights)
    noise = [random_.integers(0, size, rows) for size in (2, 3, 5)]
    loss = random_.random(rows) < G[scene, weather, light]
    return list(zip(*(one.tolist() for one in (loss.astype(int), noise[0], scene, noise[1], weather, noise[2], light)),
                    strict=True))  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_a_known_shift_of_a_known_g(write: Write, seed: int) -> None:
    """All 50 seeds: benchmarks/transfer.py."""
    random_ = np.random.default_rng(seed)
    path = write("t.csv", "loss,n0,scene,n1,weather,n2,light", drawn(random_, 8000, False))
    there = write("o.csv", "loss,n0,scene,n1,weather,n2,light", drawn(random_, 4000, True))
    found = answer(path, operating=there)
    assert {one.feature.name for one in found.ranking[:3]} == {"scene", "weather", "light"}
    p = np.einsum("i,j,k->ijk", [0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5])
    assert found.prediction is not None
    assert abs(found.prediction.loss - float((p * G).sum())) < 0.02
    least = min(found.errors, key=lambda one: one.error)
    assert found.errors[found.k - 1].error <= least.error + least.standard_error


# --- what cannot be used ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("header", "rows", "more", "words"),
    [
        ("loss,a", [(0, 1)], {}, "one row cannot be split"),
        ("loss,a", [(0, 1), ("", 1)], {}, "row 1: there is no loss"),
        ("loss,a", [(0, 1), ("bad", 1)], {}, "row 1: 'bad' is no loss"),
        ("loss,a", [(0, 1), ("1e400", 1)], {}, f"'1{'0' * 38}…' is no loss"),
        ("loss,a", [(0, 1), ("-1e308", 1)], {}, "is no loss"),
        ("loss,a", [(0, 1), (1, 1)], {"most": F("1e400")}, "--max-loss is above 1e150"),
        ("loss", [(0,), (1,)], {}, "no column but the loss"),
        ("loss,a", [(0, 1), (1, 1)], {"context": "a,a"}, "names 'a' twice"),
        ("loss,a", [(0, 1), (1, 1)], {"context": "loss"}, "cannot be a context feature"),
        ("loss,a", [(0, 1), (1, 1)], {"context": "los"}, "did you mean 'loss'"),
        ("loss,a", [(0, 1), (1, 1)], {"loss": "los"}, "did you mean 'loss'"),
        ("loss,a", [(0, 1), (1, 1)], {"k": 2}, "there are 1 context features"),
        ("loss,a", [(0, 1), (1, 1)], {"categorical": ("b",)}, "no context feature"),
    ],
)
def test_tables_that_cannot_be_used(write: Write, header: str, rows: Rows, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        answer(write("t.csv", header, rows), splits=2, **more)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("header", "rows", "weight", "words"),
    [
        ("u", [("a",)], None, "there is no column 'v'"),
        ("u,v,w", [("a", 0, -1)], "w", "row 0: '-1' is no weight"),
        ("u,v,w", [("a", 0, 1), ("a", 0, "x")], "w", "row 1: 'x' is no weight"),
        ("u,v,w", [("a", 0, 1), ("a", 0, "")], "w", "row 1: no weight"),
        ("u,v,w", [("a", 0, 0)], "w", "all weights are 0"),
        ("u,v", [("a", 0)], "w", "no column 'w'"),
    ],
)
def test_operating_tables_that_cannot_be_used(
    tested: Path, write: Write, header: str, rows: Rows, weight: str | None, words: str
) -> None:
    with pytest.raises(InputError, match=words) as raised:
        answer(tested, splits=2, k=2, operating=write("o.csv", header, rows), weight=weight)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("u: {a: 0.5, b: 0.4}\nv: {0: 1}\n", "m.yaml:1: the probabilities of 'u' sum to 0.9, not to 1"),
        ("u: {a: 1}\n", "m.yaml:1: there is no marginal of 'v'"),
        ("u: {a: 1}\nw: {0: 1}\n", "m.yaml:2: there is no context feature 'w'"),
        ("u: {a: 1.5, b: -0.5}\nv: {0: 1}\n", "m.yaml:1: the probability of b is negative"),
        ("u: {a: much, b: 0.5}\nv: {0: 1}\n", "must be a number"),
        ("u: [a, b]\nv: {0: 1}\n", "maps values to probabilities"),
        ("- u\n", "marginals map features"),
    ],
)
def test_marginals_that_cannot_be_used(tested: Path, tmp_path: Path, text: str, words: str) -> None:
    marginals = tmp_path / "m.yaml"
    marginals.write_text(text)
    with pytest.raises(InputError, match=words) as raised:
        answer(tested, splits=2, k=2, marginals=marginals)
    assert raised.value.hint


def test_text_is_no_number(write: Write, tmp_path: Path) -> None:
    path = write("t.csv", "loss,x", [(i % 2, i) for i in range(20)])
    with pytest.raises(InputError, match=r"o.csv: 'warm' is no number") as raised:
        answer(path, splits=2, operating=write("o.csv", "x", [(1,), ("warm",)]))
    assert "'x'" in raised.value.hint
    marginals = tmp_path / "m.yaml"
    marginals.write_text("x: {warm: 1}\n")
    with pytest.raises(InputError, match=r"m.yaml:1: 'warm' is no number"):
        answer(path, splits=2, marginals=marginals)


def test_a_stop_says_how_far_it_was(write: Write) -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(UndecidedError, match="stopped while ranking the features, after 0 of 1"):
        answer(write("t.csv", "loss,a", [(0, 1), (1, 1)]), limits=Limits(stop=stop))

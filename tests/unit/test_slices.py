"""Slices: a data set of 12 points worked out by hand, random tables by brute force, intervals by exact arithmetic."""

import csv
import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import slices_reference as reference

from quantify.dataset import bounds, columns, families, slice_evidence, slices
from quantify.errors import InputError, UndecidedError
from quantify.evidence.proportions import interval_at
from quantify.ir.count import Guarantee
from quantify.ir.intervals import clopper_pearson
from quantify.ir.slices import WHOLE
from quantify.report import lattice
from quantify.resources import Limits, Progress, Stop

ISAS = [1, 2]
"""Portable and AVX2."""


def skip_without(isa):
    if isa == 2:
        from pathlib import Path

        info = Path("/proc/cpuinfo")
        if info.exists() and " avx2 " not in info.read_text().replace("\n", " "):
            pytest.skip("this processor has no AVX2")


def write(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return columns.read(path)


def look(table, predicted="pred", isa=0, limits=None, **asked):
    plan = slices.Plan(**{"label": "label", "least": 1, **asked})
    given = None if predicted is None else slices.of_column(table, predicted)
    return slices.look(table, plan, given, limits or Limits(jobs=2), Progress(), isa)


def by_name(found):
    return {found.set_name(place): place for place in range(len(found.sets))}


# --- twelve points, by hand ------------------------------------------------------------------------------------------
TWELVE = [
    # label, colour, old, prediction
    ("p", "red", "1", "p"),  # 0
    ("p", "red", "1", "p"),  # 1
    ("p", "red", "0", "p"),  # 2
    ("p", "blue", "1", "p"),  # 3
    ("p", "blue", "0", "p"),  # 4
    ("p", "blue", "0", "n"),  # 5: wrong
    ("n", "red", "1", "p"),  # 6: wrong
    ("n", "red", "1", "n"),  # 7
    ("n", "red", "0", "n"),  # 8
    ("n", "blue", "0", "n"),  # 9
    ("n", "blue", "0", "n"),  # 10
    ("n", "blue", "", "p"),  # 11: wrong, and it is not known whether it is old
]
BY_HAND = {
    # name: (rows, right), from the table above
    "label=n": ({6, 7, 8, 9, 10, 11}, {7, 8, 9, 10}),
    "label=p": ({0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4}),
    "colour=blue": ({3, 4, 5, 9, 10, 11}, {3, 4, 9, 10}),
    "colour=red": ({0, 1, 2, 6, 7, 8}, {0, 1, 2, 7, 8}),
    "old=1": ({0, 1, 3, 6, 7}, {0, 1, 3, 7}),
    "label=n ∩ colour=blue": ({9, 10, 11}, {9, 10}),
    "label=n ∩ colour=red": ({6, 7, 8}, {7, 8}),
    "label=n ∩ old=1": ({6, 7}, {7}),
    "label=p ∩ colour=blue": ({3, 4, 5}, {3, 4}),
    "label=p ∩ colour=red": ({0, 1, 2}, {0, 1, 2}),
    "label=p ∩ old=1": ({0, 1, 3}, {0, 1, 3}),
    "colour=red ∩ old=1": ({0, 1, 6, 7}, {0, 1, 7}),
}
"""With at least two rows; colour=blue ∩ old=1 is row 3 alone, and two classes or two colours have no row in common."""
INCON_2 = {
    "label=n": (Fraction(0), "label=n"),
    "label=p": (Fraction(0), "label=p"),
    "colour=blue": (Fraction(0), "colour=blue"),
    "colour=red": (Fraction(1, 12), "colour=red ∩ old=1"),  # 5/6 − 3/4
    "old=1": (Fraction(1, 5), "label=p ∩ old=1"),  # 4/5 − 1; colour=red ∩ old=1 changes by 1/20 only
    "label=n ∩ colour=blue": (Fraction(0), "label=n ∩ colour=blue"),
    "label=n ∩ colour=red": (Fraction(1, 6), "label=n ∩ old=1"),  # 2/3 − 1/2
    "label=n ∩ old=1": (Fraction(0), "label=n ∩ old=1"),
    "label=p ∩ colour=blue": (Fraction(0), "label=p ∩ colour=blue"),
    "label=p ∩ colour=red": (Fraction(0), "label=p ∩ colour=red"),
    "label=p ∩ old=1": (Fraction(0), "label=p ∩ old=1"),
    "colour=red ∩ old=1": (Fraction(1, 4), "label=n ∩ old=1"),  # 3/4 − 1/2
}


@pytest.fixture
def twelve(tmp_path):
    return write(tmp_path / "twelve.csv", ["label", "colour", "old", "pred"], TWELVE)


@pytest.mark.parametrize("isa", ISAS)
def test_every_open_set_of_the_twelve_points_is_the_one_worked_out_by_hand(twelve, isa):
    skip_without(isa)
    found = look(twelve, least=2, k=2, present_only=True, isa=isa)
    places = by_name(found)
    assert set(places) == set(BY_HAND)
    for name, (rows, right) in BY_HAND.items():
        place = places[name]
        assert (found.sets.size[place], found.sets.hits[place]) == (len(rows), len(right))
        assert found.sets.value[place] == len(right) / len(rows)
    assert len(found.equal_to) == 0
    assert (found.whole.size, found.whole.value) == (12, 9 / 12)
    assert found.looked_at == 13


@pytest.mark.parametrize("isa", ISAS)
def test_every_incon_of_the_twelve_points_is_the_one_worked_out_by_hand(twelve, isa):
    skip_without(isa)
    found = look(twelve, least=2, k=2, present_only=True, isa=isa)
    for name, place in by_name(found).items():
        value, attained = INCON_2[name]
        assert found.sets.incon[place] == pytest.approx(float(value), abs=1e-15)
        assert found.set_name(found.sets.attained[place]) == attained
    assert (found.whole.incon, found.whole.attained) == (0.0, WHOLE)


def test_more_rows_may_go_with_a_larger_k(twelve):
    found = look(twelve, least=2, k=6, present_only=True)
    places = by_name(found)
    # label=n: 4/6, and 1/2 on label=n ∩ old=1; label=p: 5/6, and 2/3 on its blue rows or 1 on the others.
    assert found.sets.incon[places["label=n"]] == pytest.approx(1 / 6)
    assert found.set_name(found.sets.attained[places["label=n"]]) == "label=n ∩ old=1"
    assert found.sets.incon[places["label=p"]] == pytest.approx(1 / 6)
    # All rows: 9/12, and 4/6 or 5/6 where six rows are gone.
    assert found.whole.incon == pytest.approx(1 / 12)


def test_the_neighbourhoods_of_a_point_of_the_twelve(twelve):
    found = look(twelve, least=2, k=2, present_only=True, point=7)
    point = found.point
    assert (point.maximum, found.set_name(point.max_at)) == (5 / 6, "colour=red")
    assert (point.minimum, found.set_name(point.min_at)) == (1 / 2, "label=n ∩ old=1")
    assert {found.set_name(place) for place in point.neighbourhoods} == {
        "label=n", "colour=red", "old=1", "label=n ∩ colour=red", "label=n ∩ old=1", "colour=red ∩ old=1",
    }  # fmt: skip


def test_a_point_that_no_set_but_all_rows_contains_has_the_value_of_all_rows(tmp_path):
    table = write(tmp_path / "t.csv", ["label", "a", "pred"], [("p", "1", "p"), ("p", "1", "n"), ("", "", "p")])
    found = look(table, point=2)
    assert (found.point.maximum, found.point.minimum) == (0.5, 0.5)
    assert len(found.point.neighbourhoods) == 0


def test_sets_come_worst_first_and_without_a_value_last(twelve, tmp_path):
    values = look(twelve, present_only=True).sets.value
    assert list(values) == sorted(values)
    table = write(tmp_path / "t.csv", ["label", "g", "pred"], [("p", "x", "p"), ("n", "y", "p"), ("", "z", "p")])
    found = look(table, depth=1)
    assert math.isnan(found.sets.value[-1])
    assert found.set_name(len(found.sets) - 1) == "g=z"
    assert found.unjudged == 1
    assert math.isnan(found.sets.incon[-1])


# --- random tables, by brute force -----------------------------------------------------------------------------------
def random_table(path, seed, rows):
    draw = random.Random(seed)
    labels = [draw.choice("abc") if draw.random() < 0.95 else "" for _ in range(rows)]
    predicted = [
        (label or "a") if draw.random() < 0.7 else draw.choice(["a", "b", "c", "zebra", ""]) for label in labels
    ]
    shape = [draw.choice(["round", "square", ""]) for _ in range(rows)]
    has = [draw.choice("0001") for _ in range(rows)]
    same = [{"round": "R", "square": "S"}.get(one, "") for one in shape]
    number = [str(draw.randint(0, 40) / 4) if draw.random() < 0.9 else "NA" for _ in range(rows)]
    loss = [repr(draw.random()) for _ in range(rows)]
    content = list(zip(labels, predicted, shape, has, same, number, loss, strict=True))
    table = write(path / f"t{seed}.csv", ["label", "pred", "shape", "has", "same", "number", "loss"], content)
    return table, content


ATTRIBUTES = ("shape", "has", "same", "number")


def base_of(content, parts=4, most=10):
    """The subbasis of a random table, by its definition."""
    base = {}
    for place, name in ((0, "label"), (2, "shape"), (3, "has"), (4, "same"), (5, "number")):
        cells = [row[place] for row in content]
        present = [cell for cell in cells if cell not in ("", "NA")]
        if name == "number" and len(set(present)) > most:
            ordered = sorted(map(float, present))
            for part in range(1, parts):
                cut = ordered[math.ceil(len(ordered) * part / parts) - 1]
                below = {i for i, cell in enumerate(cells) if cell != "NA" and float(cell) <= cut}
                above = {i for i, cell in enumerate(cells) if cell != "NA" and float(cell) >= cut}
                base[f"number<={cut:g}"], base[f"number>={cut:g}"] = frozenset(below), frozenset(above)
        else:
            for cell in set(present):
                text = f"{float(cell):g}" if name == "number" else cell
                base[f"{name}={text}"] = frozenset(i for i, other in enumerate(cells) if other == cell)
    return base


def rows_named(base, name):
    return frozenset.intersection(*(base[one] for one in name.split(" ∩ ")))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("seed", range(12))
def test_random_tables_have_the_sets_and_inconsistencies_of_the_definition(tmp_path, seed, isa):
    skip_without(isa)
    rows = [5, 30, 63, 64, 65, 130, 300, 511, 512, 513, 40, 20][seed]
    depth, least, k = 1 + seed % 3, [1, 2, 5][seed % 3], [0, 1, 3, 10, 1000][seed % 5]
    table, content = random_table(tmp_path, seed, rows)
    base = base_of(content)
    found = look(table, attributes=ATTRIBUTES, depth=depth, least=least, k=k, isa=isa, point=seed % rows)
    expected = reference.families(base, depth, least)
    every = frozenset(range(rows))
    within = frozenset(i for i, row in enumerate(content) if row[0])
    hits = frozenset(i for i in within if content[i][0] == content[i][1])
    values = {one: reference.value(one, hits, within) for one in (*expected, every)}

    got = {rows_named(base, found.set_name(place)): place for place in range(len(found.sets))}
    assert got.keys() == expected.keys()
    assert len(got) == len(found.sets)
    for one, place in got.items():
        assert found.sets.size[place] == len(one)
        names = {found.set_name(place), *found.equal_names(place)}
        assert {frozenset(name.split(" ∩ ")) for name in names} == expected[one]
        assert len(found.set_name(place).split(" ∩ ")) == min(map(len, expected[one]))
        most, attained = reference.inconsistency(one, values, k)
        if most is None:
            assert math.isnan(found.sets.value[place])
            assert math.isnan(found.sets.incon[place])
            continue
        assert found.sets.value[place] == pytest.approx(float(values[one]), abs=1e-15)
        assert found.sets.incon[place] == pytest.approx(float(most), abs=1e-15)
        assert rows_named(base, found.set_name(found.sets.attained[place])) in attained
    most, attained = reference.inconsistency(every, values, k)
    assert found.whole.incon == pytest.approx(float(most), abs=1e-15)
    around = {one for one in expected if found.point.row in one}
    assert {rows_named(base, found.set_name(place)) for place in found.point.neighbourhoods} == around
    valued = [values[one] for one in (*around, every) if values[one] is not None]
    assert (found.point.maximum, found.point.minimum) == pytest.approx((float(max(valued)), float(min(valued))))


@pytest.mark.parametrize("seed", range(6))
def test_unions_are_those_of_the_definition(tmp_path, seed):
    table, content = random_table(tmp_path, seed, 9)
    base = base_of(content)
    found = look(table, attributes=("shape", "has"), depth=1 + seed % 2, least=2, unions=2 + seed % 2, k=3)
    some = {name: rows for name, rows in base.items() if name.split("=")[0] in ("label", "shape", "has")}
    parts = reference.families(some, 1 + seed % 2, 2)
    expected = reference.unions(parts, 2 + seed % 2)
    within = frozenset(i for i, row in enumerate(content) if row[0])
    hits = frozenset(i for i in within if content[i][0] == content[i][1])
    every = frozenset(range(9))
    values = {one: reference.value(one, hits, within) for one in (*expected, every)}

    def rows_of(name):
        joined = [one.strip("()") for one in name.split(" ∪ ")]
        return frozenset.union(*(rows_named(some, one) for one in joined))

    got = {rows_of(found.set_name(place)): place for place in range(len(found.sets))}
    assert got.keys() == expected
    assert len(got) == len(found.sets)
    for one, place in got.items():
        assert found.sets.size[place] == len(one)
        most, _ = reference.inconsistency(one, values, 3)
        if most is None:
            assert math.isnan(found.sets.incon[place])
        else:
            assert found.sets.incon[place] == pytest.approx(float(most), abs=1e-15)


@pytest.mark.parametrize("metric", ["precision", "recall", "f1"])
def test_precision_recall_and_f1_are_those_of_the_definition(tmp_path, metric):
    table, content = random_table(tmp_path, 3, 150)
    base = base_of(content)
    found = look(table, attributes=ATTRIBUTES, metric=metric, positive="a", depth=2, least=3)
    labelled = {i for i, row in enumerate(content) if row[0]}
    actual = frozenset(i for i in labelled if content[i][0] == "a")
    called = frozenset(i for i in labelled if content[i][1] == "a")
    within = {"precision": called, "recall": actual, "f1": called | actual}[metric]
    assert len(found.sets) == len(reference.families(base, 2, 3))
    for place in range(len(found.sets)):
        rows = rows_named(base, found.set_name(place))
        right, samples = len(rows & called & actual), len(rows & within)
        if not samples:
            assert math.isnan(found.sets.value[place])
            continue
        true = 2 * right / (len(rows & called) + len(rows & actual)) if metric == "f1" else right / samples
        assert found.sets.value[place] == pytest.approx(true)
        lower, upper = clopper_pearson(right, samples, Fraction(95, 100))
        if metric == "f1":
            lower, upper = 2 * lower / (1 + lower), 2 * upper / (1 + upper)
        assert found.sets.lower[place] == pytest.approx(float(lower), abs=1e-9)
        assert found.sets.upper[place] == pytest.approx(float(upper), abs=1e-9)


def test_losses_are_means_and_the_highest_comes_first(tmp_path):
    table, content = random_table(tmp_path, 5, 200)
    base = base_of(content)
    found = look(table, None, attributes=ATTRIBUTES, metric="loss", column="loss", value_range=(0.0, 1.0), k=4)
    values = [float(row[6]) for row in content]
    means = {}
    for place in range(len(found.sets)):
        rows = rows_named(base, found.set_name(place))
        means[rows] = math.fsum(values[i] for i in rows) / len(rows)
        assert found.sets.value[place] == pytest.approx(means[rows], rel=1e-12)
        assert found.sets.corrected_lower[place] <= found.sets.lower[place] <= found.sets.value[place]
        assert found.sets.value[place] <= found.sets.upper[place] <= found.sets.corrected_upper[place]
    assert list(found.sets.value) == sorted(found.sets.value, reverse=True)
    for place in range(len(found.sets)):
        rows = rows_named(base, found.set_name(place))
        near = [abs(means[rows] - means[other]) for other in means if other <= rows and len(rows - other) <= 4]
        assert found.sets.incon[place] == pytest.approx(max(near), abs=1e-12)


def test_a_rate_is_the_share_of_its_column(tmp_path):
    rows = [("yes", "x"), ("no", "x"), ("yes", "y"), ("", "y")]
    table = write(tmp_path / "t.csv", ["bad", "g"], rows)
    found = look(table, None, label=None, metric="rate", column="bad", worst="high")
    assert {found.set_name(place): found.sets.value[place] for place in range(2)} == {"g=y": 1.0, "g=x": 0.5}
    assert found.set_name(0) == "g=y"


def test_base_sets_alone_are_compared_where_that_is_asked_for(tmp_path):
    table, _ = random_table(tmp_path, 8, 300)
    every = look(table, attributes=ATTRIBUTES, k=30)
    base = look(table, attributes=ATTRIBUTES, k=30, incon_of="base")
    single = [" ∩ " not in base.set_name(place) for place in range(len(base.sets))]
    assert 0 < sum(single) < len(single)
    np.testing.assert_array_equal(base.sets.incon[single], every.sets.incon[single])
    assert np.isnan(base.sets.incon[~np.array(single)]).all()


def test_of_many_sets_only_those_of_the_subbasis_are_compared_unless_all_are_asked_for(tmp_path, monkeypatch):
    table, _ = random_table(tmp_path, 8, 100)
    every = look(table, attributes=ATTRIBUTES)
    assert every.incon_of == "all"
    monkeypatch.setattr(slices, "MOST_COMPARED", len(every.sets) - 1)
    assert look(table, attributes=ATTRIBUTES, incon_of="all").incon_of == "all"
    few = look(table, attributes=ATTRIBUTES)
    assert few.incon_of == "base"
    assert [reading.metric for reading in slice_evidence.readings(few)] == ["worst_slice_accuracy"]


def test_the_answer_does_not_depend_on_the_number_of_workers(tmp_path):
    table, _ = random_table(tmp_path, 9, 400)
    one, four = (look(table, attributes=ATTRIBUTES, depth=3, limits=Limits(jobs=jobs)) for jobs in (1, 4))
    for name in ("members", "size", "hits", "value", "lower", "incon", "attained"):
        np.testing.assert_array_equal(getattr(one.sets, name), getattr(four.sets, name))


# --- the subbasis ----------------------------------------------------------------------------------------------------
def test_one_set_for_a_binary_attribute_where_presence_counts(tmp_path):
    rows = [("p", "1", "yes", "red", "p"), ("n", "0", "no", "blue", "p"), ("n", "0", "no", "red", "n")]
    table = write(tmp_path / "t.csv", ["label", "wings", "tail", "colour", "pred"], rows)
    names = [name for name, _, _ in look(table, present_only=True).subbasis]
    assert names == ["label=n", "label=p", "wings=1", "tail=yes", "colour=blue", "colour=red"]
    assert len(look(table).subbasis) == 8


def test_numbers_with_many_values_are_cut_at_quantiles(tmp_path):
    rows = [("p", str(value), "p") for value in range(1, 21)]
    table = write(tmp_path / "t.csv", ["label", "age", "pred"], rows)
    sizes = {name: size for name, _, size in look(table, parts=4).subbasis}
    assert sizes == {
        "label=p": 20, "age<=5": 5, "age>=5": 16, "age<=10": 10, "age>=10": 11, "age<=15": 15, "age>=15": 6,
    }  # fmt: skip
    assert "age=7" in {name for name, _, _ in look(table, most_values=20).subbasis}


def test_texts_with_many_values_are_left_out_unless_they_were_named(tmp_path):
    rows = [("p", f"name {value}", "p") for value in range(20)]
    table = write(tmp_path / "t.csv", ["label", "who", "pred"], rows)
    assert look(table).skipped == ("who",)
    with pytest.raises(InputError, match="'who' has 20 values"):
        look(table, attributes=("who",))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"label": "lable"}, "no column 'lable'.*did you mean 'label'"),
        ({"attributes": ("nothing",)}, "no column 'nothing'"),
        ({"least": 100}, "no set has 100 rows: the table has 12"),
        ({"least": 7}, "no set has 7 rows: the largest of the subbasis has 6"),
        ({"point": 12}, "no row 12"),
        ({"metric": "f1"}, "f1 is of one class"),
        ({"metric": "f1", "positive": "q"}, "'q' is no class"),
        ({"metric": "loss", "column": "colour"}, "'colour' of row 0 is no number: 'red'"),
        ({"metric": "rate", "column": "colour"}, "'colour' of row 0 is neither 0 nor 1: 'red'"),
        ({"metric": "loss", "column": "old", "value_range": (0.0, 0.5)}, "'old' of row 0 is 1, outside 0 to 0.5"),
    ],
)
def test_what_cannot_be_answered_is_refused(twelve, asked, message):
    with pytest.raises(InputError, match=message):
        look(twelve, **asked)


@pytest.mark.parametrize("far", ["1e291", "-1e308", "1e400"])
def test_losses_whose_sum_is_no_float_are_refused(tmp_path, far):
    table = write(tmp_path / "t.csv", ["label", "loss"], [("p", "1e290"), ("p", far), ("n", "1")])
    with pytest.raises(InputError, match="'loss' of row 1 is above 1e290"):
        look(table, None, metric="loss", column="loss")


# --- intervals -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("risk", [Fraction(1, 20), Fraction(1, 20 * 130_816), Fraction(1, 10**30)])
def test_intervals_of_many_sets_are_those_of_exact_arithmetic(risk):
    draw = random.Random(1)
    sizes = [1, 2, 7, 20, 100, 1178, 11_788]
    pairs = [(hits, size) for size in sizes for hits in {0, size, size // 2, draw.randint(0, size), min(1, size)}]
    hits, samples = np.array(pairs).T
    lower, upper = bounds.proportions(hits, samples, risk)
    for (right, size), low, high in zip(pairs, lower, upper, strict=True):
        exact = clopper_pearson(right, size, 1 - risk)
        assert low == pytest.approx(float(exact[0]), rel=1e-8, abs=0)
        assert 1 - high == pytest.approx(float(1 - exact[1]), rel=1e-8, abs=2e-16)
        # Never more than rounding inside the proven interval, whose ends are outside by one part in 10^12 or so.
        assert low <= float(exact[0]) * (1 + 1e-11)


def test_an_interval_without_samples_is_everything():
    lower, upper = bounds.proportions(np.array([0]), np.array([0]), Fraction(1, 20))
    assert (lower[0], upper[0]) == (0, 1)
    low, high = bounds.means(np.array([np.nan]), np.array([0]), -1, 3, Fraction(1, 20))
    assert (low[0], high[0]) == (-1, 3)


def test_intervals_of_means_solve_the_inequality_of_hoeffding():
    means, samples = np.array([0.0, 0.2, 0.5, 1.0]), np.array([50, 20, 300, 50])
    risk = Fraction(1, 20)
    lower, upper = bounds.means(means, samples, 0, 1, risk)

    def divergence(mean, p):
        return sum(a * math.log(a / b) for a, b in ((mean, p), (1 - mean, 1 - p)) if a)

    for mean, size, low, high in zip(means, samples, lower, upper, strict=True):
        for end in (low, high):
            if 0 < end < 1:
                assert size * divergence(mean, end) == pytest.approx(math.log(40), rel=1e-6)
    assert (lower[0], upper[3]) == (0, 1)
    # 1 − (1/40)^(1/50), by hand
    assert upper[0] == pytest.approx(1 - (1 / 40) ** (1 / 50))


def test_the_corrected_intervals_are_those_of_bonferroni(tmp_path):
    table, _ = random_table(tmp_path, 4, 120)
    found = look(table, attributes=ATTRIBUTES, least=5)
    for place in range(0, len(found.sets), 7):
        hits, samples = int(found.sets.hits[place]), int(found.sets.samples[place])
        risk = Fraction(5, 100) / found.looked_at
        lower, upper = clopper_pearson(hits, samples, 1 - risk)
        assert found.sets.corrected_lower[place] == pytest.approx(float(lower), abs=1e-9)
        assert found.sets.corrected_upper[place] == pytest.approx(float(upper), abs=1e-9)


# --- what a gate may judge -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(3))
def test_the_worst_slice_has_the_least_ends_of_all_sets_at_any_confidence(tmp_path, seed):
    table, _ = random_table(tmp_path, seed, 90)
    found = look(table, attributes=ATTRIBUTES, least=4)
    worst, incon = slice_evidence.readings(found)
    assert (worst.metric, worst.subject, incon.metric) == ("worst_slice_accuracy", f"t{seed}.csv", "incon_k")
    pairs = [(int(found.sets.hits[i]), int(found.sets.samples[i])) for i in range(len(found.sets))]
    pairs.append((found.whole.hits, found.whole.samples))
    assert len(worst.draws) < len(pairs)
    for risk in (Fraction(1, 20), Fraction(1, 1000)):
        ends = [clopper_pearson(hits, samples, 1 - risk / found.looked_at) for hits, samples in pairs if samples]
        assert interval_at(worst, risk) == (min(low for low, _ in ends), min(high for _, high in ends))
    assert worst.value == min(Fraction(hits, samples) for hits, samples in pairs if samples)
    assert worst.support == found.sets.samples[0]


def test_the_inconsistency_of_a_table_is_a_fact_and_exact(twelve):
    found = look(twelve, least=2, k=2, present_only=True)
    _, incon = slice_evidence.readings(found)
    assert (incon.lower, incon.upper, incon.guarantee) == (Fraction(1, 4), Fraction(1, 4), Guarantee.EXACT)
    cut = look(twelve, limits=Limits(stop=After(2)))
    assert not list(slice_evidence.readings(cut)), "nothing is said where sets were not looked at"


def test_the_worst_slice_holds_though_it_was_selected():
    """200 tables of a model that is right 80 times in 100 everywhere: the least accuracy is held in 190 or more."""
    draw = np.random.default_rng(5)
    inside = raw = 0
    for _ in range(200):
        samples = draw.integers(20, 60, 40)
        hits = draw.binomial(samples, 0.8)
        lower, upper = bounds.proportions(hits, samples, Fraction(1, 20) / 40)
        inside += lower.min() <= 0.8 <= upper.min()
        worst = (hits / samples).argmin()
        one = bounds.proportions(hits[worst : worst + 1], samples[worst : worst + 1], Fraction(1, 20))
        raw += one[0][0] <= 0.8 <= one[1][0]
    assert inside >= 190
    assert raw < 150, "the interval of the worst one by itself is another matter"


@pytest.mark.parametrize("room", [0.5, 0.01], ids=["the whole", "one part"])
def test_more_sets_than_memory_holds_are_refused(tmp_path, monkeypatch, room):
    table, _ = random_table(tmp_path, 6, 60)
    limits = Limits(memory_mb=64)
    every = len(look(table, attributes=ATTRIBUTES, depth=4, limits=limits).sets)
    monkeypatch.setattr(families, "SET_BYTES", (64 << 20) // int(every * room))
    with pytest.raises(UndecidedError, match="more sets than memory holds"):
        look(table, attributes=ATTRIBUTES, depth=4, limits=limits)


def test_informative_sets_are_those_of_the_definition(tmp_path):
    draw = random.Random(4)
    rows = []
    for _ in range(3000):
        a, b, c, d = (draw.choice("01") for _ in range(4))
        rows.append(("p", a, b, c, d, "n" if draw.random() < (0.6 if a == b == "1" else 0.1) else "p"))
    table = write(tmp_path / "t.csv", ["label", "a", "b", "c", "d", "pred"], rows)
    found = look(table, depth=3, least=20)
    values = {
        frozenset(name.split(" ∩ ")): found.sets.value[place]
        for place in range(len(found.sets))
        for name in (found.set_name(place), *found.equal_names(place))
    }
    sets = found.sets
    expected = set()
    for place in range(len(sets)):
        names = frozenset(found.set_name(place).split(" ∩ "))
        apart = not sets.corrected_lower[place] <= found.whole.value <= sets.corrected_upper[place]
        larger = [values[names - {one}] for one in names] if len(names) > 1 else []
        if apart and all(not sets.lower[place] <= value <= sets.upper[place] for value in larger):
            expected.add(found.set_name(place))
    assert {found.set_name(place) for place in found.shown.places} == expected
    assert "a=1 ∩ b=1" in expected
    assert not any("c=" in name or "d=" in name for name in expected), "they say nothing"


# --- the drawing -----------------------------------------------------------------------------------------------------
def test_every_set_is_drawn_below_those_that_contain_it(tmp_path):
    draw = random.Random(1)
    rows = [(draw.choice("pn"), *(draw.choice("01") for _ in range(4))) for _ in range(900)]
    rows = [
        (label, *some, "x" if some[0] == some[1] == "1" and draw.random() < 0.6 else label) for label, *some in rows
    ]
    table = write(tmp_path / "t.csv", ["label", "a", "b", "c", "d", "pred"], rows)
    found = look(table, depth=3, least=20)
    drawn = lattice.draw(found, lambda _, value: f"{value:.3f}")
    nodes = {node.name: node for node in drawn.nodes}
    assert set(nodes) == {"all rows", *(found.set_name(place) for place in found.shown.places)}
    assert "a=1 ∩ b=1" in nodes
    assert len(drawn.edges) >= len(nodes) - 1
    for edge in drawn.edges:
        assert float(edge.y1) < float(edge.y2)


# --- stopping --------------------------------------------------------------------------------------------------------
class After(Stop):
    """A stop that is asked for after so many looks at the clock."""

    def __init__(self, looks):
        super().__init__()
        self.left = looks

    def is_set(self):
        self.left -= 1
        return self.left < 0


def test_a_stop_keeps_the_sets_that_were_found(tmp_path):
    table, content = random_table(tmp_path, 6, 60)
    with pytest.raises(UndecidedError, match="before any set"):
        look(table, attributes=ATTRIBUTES, limits=Limits(stop=After(0)))
    counts = []
    for looks in (1, 4, 10_000):
        found = look(table, attributes=ATTRIBUTES, limits=Limits(stop=After(looks)), least=1)
        counts.append(len(found.sets))
        assert found.complete == (looks == 10_000)
    assert counts[0] < counts[1] < counts[2] == len(reference.families(base_of(content), 2, 1))


# --- reading tables --------------------------------------------------------------------------------------------------
def plain(path):
    with path.open(newline="", encoding="utf-8-sig") as file:
        header, *rows = [row for row in csv.reader(file) if row]
    return header, rows


@pytest.mark.parametrize("seed", range(8))
def test_columns_are_what_the_csv_module_reads(tmp_path, seed):
    draw = random.Random(seed)
    cells = ["", "a", "bb", "x" * 7, "y" * 8, "z" * 9, "é", "日本語", "12", "-0.5", "1e3", " 7 ", "NA", "nan"]
    if seed % 2:
        cells += ["with, comma", 'with "quotes"', "two\nlines"]
    rows = [[draw.choice(cells) for _ in range(4)] for _ in range(draw.randint(1, 40))]
    end = ["\n", "\r\n"][seed // 2 % 2]
    path = tmp_path / "t.csv"
    with path.open("w", newline="", encoding=["utf-8", "utf-8-sig"][seed // 4 % 2]) as file:
        csv.writer(file, lineterminator=end).writerows([["a", "b", "c", "d"], *rows])
    header, expected = plain(path)
    table = columns.read(path)
    assert table.names == tuple(header)
    assert table.rows == len(expected)
    for place, name in enumerate(header):
        column = table.column(name)
        got = [None if code < 0 else column.cells[code] for code in column.codes.tolist()]
        for cell, text in zip(got, (row[place].strip() for row in expected), strict=True):
            if text in ("", "NA", "nan"):
                assert cell is None
            elif isinstance(cell, str):
                assert cell == text
            else:
                assert cell == Fraction(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"a,b\n", "no rows"),
        (b"a,b\n1\n2,3,4\n", "1 cells instead of 2"),
        (b"a,b\n1,2,3\n", "3 cells instead of 2"),
        (b"a,b\n1,2\n3,4,5\n6,7\n", ":3: 3 cells instead of 2"),
        (b"a,a\n1,2\n", "'a' is there twice"),
        (b'a,b\n"1,2\n', "not valid CSV"),
        (b"a,b\n\xff,2\n", ":2: not UTF-8"),
    ],
)
def test_files_that_are_no_table_are_refused(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        columns.read(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        columns.read(tmp_path / "t.csv")
    with pytest.raises(InputError, match=r"a table is a \.csv file"):
        columns.read(tmp_path / "t.npy")


def test_sets_are_packed_and_unpacked_whatever_the_number_of_rows(tmp_path):
    draw = np.random.default_rng(0)
    for rows, isa in itertools.product((1, 63, 64, 65, 511, 512, 513, 1000), ISAS):
        skip_without(isa)
        some = draw.random((3, rows)) < 0.4
        everything = np.ones(rows, bool)
        assigned = slices.Assignment("accuracy", None, None, everything, some[0])
        space = families.Space(list(some), assigned, isa=isa)
        for place in range(3):
            np.testing.assert_array_equal(space.unpacked(space.sets[place]), some[place])
        family, _ = families.intersections(space, 3, 1, Limits(), Progress())
        for place, members in enumerate(family.members):
            expected = np.logical_and.reduce(some[members[members >= 0]])
            assert (family.size[place], family.hits[place]) == (expected.sum(), (expected & some[0]).sum())


def plain_space(sets, rows, isa=0):
    everything = np.ones(rows, bool)
    return families.Space(list(sets), slices.Assignment("accuracy", None, None, everything, everything), isa=isa)


@pytest.mark.parametrize("isa", ISAS)
def test_equal_hashes_are_not_taken_for_equal_sets(isa):
    skip_without(isa)
    draw = np.random.default_rng(1)
    some = [draw.random(30) < 0.3 for _ in range(12)]
    space = plain_space(some, 30, isa)
    space._keys[:] = 0  # the hash is then a product of the halves of a word, and with 30 rows one half is empty
    family, _ = families.intersections(space, 2, 1, Limits(), Progress())
    assert not (family.hash & ~np.uint64(31)).any()
    distinct, others, equal_to = families.merged(space, family)
    rows = [space.rows_of(members).tobytes() for members in family.members]
    assert len(distinct) == len(set(rows))
    for members, place in zip(others.members, equal_to, strict=True):
        assert space.rows_of(members).tobytes() == space.rows_of(distinct.members[place]).tobytes()


@pytest.mark.parametrize("k", range(4))
def test_of_many_sets_those_without_the_first_rows_are_found_too(k):
    """Sets without some of another's rows, the first ones in the order of the bits above all: the hardest to find."""
    draw = np.random.default_rng(k)
    rows = 400
    order = plain_space([np.ones(rows, bool)], rows).order
    sets = []
    for _ in range(200):
        one = draw.random(rows) < 0.06
        one[order[0]] = True
        inside = order[one[order]]
        sets.append(one)
        for first in range(k + 2):
            for others in (0, 1):
                without = one.copy()
                without[inside[:first]] = False
                without[draw.choice(inside[first:], others, replace=False)] = False
                sets.append(without)
    space = plain_space(sets, rows)
    every, _ = families.intersections(space, 1, 1, Limits(), Progress())
    family, _, _ = families.merged(space, every)
    values = draw.random(len(family))
    most, attained, done = families.inconsistency(
        space, family, values, np.arange(len(family)), k, Limits(), Progress()
    )
    assert done == len(family)
    content = [frozenset(np.flatnonzero(space.rows_of(members)).tolist()) for members in family.members]
    index = families.Index(space, family, values, 1)
    assert np.diff(index._row_start).max() > 8 * (k + 2), (
        "some first row has so many second rows that they are searched"
    )
    for place, one in enumerate(content):
        near = [other for other, inside in enumerate(content) if inside <= one and len(one - inside) <= k]
        assert most[place] == max(abs(values[place] - values[other]) for other in near)
        assert abs(values[place] - values[attained[place]]) == most[place]


@pytest.mark.parametrize(
    ("names", "skipped"), [([""], ("",)), (["Unnamed: 0.1", "Unnamed: 0"], ("Unnamed: 0.1", "Unnamed: 0"))]
)
def test_the_index_that_pandas_writes_is_no_attribute_unless_it_is_named(tmp_path, names, skipped):
    rows = [(*[row] * len(names), "pn"[row % 2], "ab"[row % 3 == 0], "p") for row in range(30)]
    table = write(tmp_path / "t.csv", [*names, "label", "kind", "pred"], rows)
    found = look(table)
    assert {attribute for _, attribute, _ in found.subbasis} == {"label", "kind"}
    assert (found.skipped, found.indices) == (skipped, skipped)
    if names[-1]:
        found = look(table, attributes=("kind", names[-1]))
        assert {attribute for _, attribute, _ in found.subbasis} == {"label", "kind", names[-1]}
        assert (found.skipped, found.indices) == ((), ())


@pytest.mark.parametrize(
    ("header", "numbers"),
    [
        (["Unnamed: 0", "label"], [*range(9), 10]),  # not all of them
        (["Unnamed: 0", "label"], [*range(1, 11)]),  # from 1
        (["Unnamed: 0", "label"], [1, 0, *range(2, 10)]),  # in another order
        (["Unnamed: 0", "label"], [*range(9), ""]),  # one is missing
        (["number", "label"], [*range(10)]),  # it has a name
        (["label", "Unnamed: 0"], [*range(10)]),  # not the first
    ],
)
def test_other_columns_of_numbers_are_attributes(tmp_path, header, numbers):
    rows = [[number, "p"] if header[1] == "label" else ["p", number] for number in numbers]
    table = write(tmp_path / "t.csv", [*header, "pred"], [[*row, "p"] for row in rows])
    assert look(table).skipped == ()

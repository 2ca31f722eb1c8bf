"""Rates between exact ends: against every combination of counts inside their intervals."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import pytest

from quantify.evidence.rates import metrics, ratio, region_total, risk
from quantify.ir.count import Count, Guarantee
from quantify.ir.domain import Measure
from quantify.ir.problem import Ball, Box, GridProblem, GridTree, Region


def exact(number: int) -> Count:
    return Count(number, number, Guarantee.EXACT, "boxes", 0.0, "d")


def bounds(lower: int, upper: int) -> Count:
    return Count(lower, upper, Guarantee.BOUNDS if lower < upper else Guarantee.EXACT, "bdd", 0.0, "d")


def pac(estimate: int, epsilon: Fraction, delta: Fraction) -> Count:
    lower, upper = math.ceil(estimate / (1 + epsilon)), math.floor(estimate * (1 + epsilon))
    return Count(lower, upper, Guarantee.PAC, "cnf", 0.0, "d", epsilon=epsilon, delta=delta, estimate=estimate)


def within(count: Count) -> range:
    return range(count.lower, count.upper + 1)


def test_safety_of_exact_counts() -> None:
    found = metrics("safety", {"satisfied": exact(30), "violated": exact(10)}, 100)
    rate = found["satisfaction"]
    assert rate is not None
    assert (rate.lower, rate.upper, rate.value) == (Fraction(3, 4), Fraction(3, 4), 0.75)
    assert (rate.guarantee, rate.risk) == (Guarantee.EXACT, 0)
    assert found["violation"] is not None
    assert found["violation"].lower == Fraction(1, 4)


def test_nothing_over_nothing_is_none() -> None:
    nothing = {"satisfied": exact(0), "violated": exact(0)}
    assert metrics("safety", nothing, 9) == {"satisfaction": None, "violation": None}
    assert metrics("robustness", {"robust": exact(0), "fragile": exact(0)}, 0) == {"robustness": None}
    found = metrics("learnability", {"tp": exact(0), "fp": exact(0), "tn": exact(8), "fn": exact(0)}, 8)
    assert found["precision"] is found["recall"] is found["f1"] is None
    assert found["accuracy"] is not None
    assert found["accuracy"].lower == 1


@pytest.mark.parametrize("seed", range(60))
def test_the_ends_of_a_ratio_are_attained(seed: int) -> None:
    rng = random.Random(seed)

    def draw() -> Count:
        lower = rng.choice([0, 0, rng.randint(0, 4)])
        return bounds(lower, lower + rng.randint(0, 3))

    good, bad = [draw() for _ in range(rng.randint(1, 2))], [draw() for _ in range(rng.randint(0, 2))]
    values = [
        Fraction(sum(g), sum(g) + sum(b))
        for g in itertools.product(*map(within, good))
        for b in itertools.product(*map(within, bad))
        if sum(g) + sum(b)
    ]
    rate = ratio(good, bad)
    if not values:
        assert rate is None
    else:
        assert rate is not None
        assert (rate.lower, rate.upper) == (min(values), max(values))


@pytest.mark.parametrize("seed", range(40))
def test_learnability_contains_every_confusion_that_fits_the_region(seed: int) -> None:
    rng = random.Random(seed)
    truth = {name: rng.randint(0, 4) for name in ("tp", "fp", "tn", "fn")}
    total = sum(truth.values()) + rng.choice([0, 3])  # inputs outside `assume` are in no cell
    counts = {n: bounds(max(0, c - rng.randint(0, 2)), min(total, c + rng.randint(0, 2))) for n, c in truth.items()}
    known = dict(list(counts.items())[rng.randint(0, 1) :])  # perhaps tp was never finished
    ranges = [within(known[n]) if n in known else range(total + 1) for n in truth]
    combinations = [c for c in itertools.product(*ranges) if sum(c) <= total]
    for prefix in ("", "a/b/"):
        found = metrics("learnability", {prefix + n: c for n, c in known.items()}, total)
        for name, top, bottom in (
            ("accuracy", lambda tp, fp, tn, fn: tp + tn, lambda tp, fp, tn, fn: tp + fp + tn + fn),
            ("precision", lambda tp, fp, tn, fn: tp, lambda tp, fp, tn, fn: tp + fp),
            ("recall", lambda tp, fp, tn, fn: tp, lambda tp, fp, tn, fn: tp + fn),
            ("f1", lambda tp, fp, tn, fn: 2 * tp, lambda tp, fp, tn, fn: 2 * tp + fp + fn),
        ):
            values = [Fraction(top(*c), bottom(*c)) for c in combinations if bottom(*c)]
            rate = found[prefix + name]
            if rate is None:
                assert not values
            elif values:
                assert rate.lower <= min(values) <= max(values) <= rate.upper


def test_robustness_uses_what_is_known_of_the_fragile() -> None:
    found = metrics("robustness", {"robust": bounds(10, 90), "fragile": bounds(20, 30)}, 100)["robustness"]
    assert found is not None
    assert (found.lower, found.upper) == (Fraction(7, 10), Fraction(8, 10))
    alone = metrics("robustness", {"robust": bounds(10, 90)}, 100)["robustness"]
    assert alone is not None
    assert (alone.lower, alone.upper, alone.guarantee) == (Fraction(1, 10), Fraction(9, 10), Guarantee.BOUNDS)


def test_class_shares_sum_to_one() -> None:
    found = metrics("classes", {"a": exact(1), "b/c": exact(5), "never": exact(0)}, 6)
    assert set(found) == {"class_share/a", "class_share/b/c", "class_share/never"}
    assert sum(rate.lower for rate in found.values() if rate is not None) == 1


def test_a_quotient_of_approximate_counts_carries_both_risks() -> None:
    epsilon, delta = Fraction(1, 2), Fraction(1, 10)
    found = metrics("safety", {"satisfied": pac(600, epsilon, delta), "violated": pac(300, epsilon, delta)}, 2000)
    rate = found["satisfaction"]
    assert rate is not None
    assert rate.risk == 2 * delta
    assert rate.guarantee is Guarantee.PAC
    assert rate.value == pytest.approx(2 / 3)
    # s/v lies within (1+ε)² of 2.
    assert (rate.lower, rate.upper) == (Fraction(400, 400 + 450), Fraction(900, 900 + 200))


def test_sampled_counts_bring_what_their_confidence_leaves() -> None:
    sampled = Count(
        40, 60, Guarantee.SAMPLED, "sample", 0.0, "d", confidence=Fraction(95, 100), samples=10, hits=5, estimate=50
    )
    assert risk([sampled, exact(3), sampled]) == Fraction(1, 20)
    rate = metrics("robustness", {"robust": sampled}, 100)["robustness"]
    assert rate is not None
    assert (rate.risk, rate.value, rate.guarantee) == (Fraction(1, 20), 0.5, Guarantee.SAMPLED)


def test_the_scale_of_weights_cancels() -> None:
    plain = metrics("safety", {"satisfied": exact(3), "violated": exact(4)}, 7)
    scaled = metrics("safety", {"satisfied": exact(3 * 10**40), "violated": exact(4 * 10**40)}, 7 * 10**40)
    assert plain == scaled


def test_values_of_huge_counts_are_floats() -> None:
    half = 10**5000
    found = metrics("safety", {"satisfied": exact(half), "violated": exact(half)}, 2 * half)["satisfaction"]
    assert found is not None
    assert found.value == 0.5
    tiny = metrics("safety", {"satisfied": exact(1), "violated": exact(half)}, half + 1)["satisfaction"]
    assert tiny is not None
    assert tiny.value == 0.0 < tiny.lower


# --- totals --------------------------------------------------------------------------------------------------------
def problem(sizes: list[int], measure: Measure) -> GridProblem:
    leaf = GridTree((-1,), (0,), (0,), (0,), (0,), (0,))
    return GridProblem(tuple(sizes), 1, leaf, measure, ())


def is_inside(region: Region, point: tuple[int, ...]) -> bool:
    if isinstance(region, Box):
        return True
    steps = [abs(a - b) for a, b in zip(point, region.centre, strict=True)]
    if region.norm == "l0":
        return sum(step > 0 for step in steps) <= region.radius
    return sum(w * step for w, step in zip(region.weights, steps, strict=True)) <= region.radius


@pytest.mark.parametrize("seed", range(80))
def test_totals_are_those_of_enumeration(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randint(1, 6) for _ in range(rng.randint(1, 4))]
    low = [rng.randrange(size) for size in sizes]
    high = [rng.randint(start + (seed % 7 > 0), size) for start, size in zip(low, sizes, strict=True)]
    region: Region = Box(tuple(low), tuple(high))
    if seed % 3 and all(a < b for a, b in zip(low, high, strict=True)):
        centre = tuple(rng.randrange(a, b) for a, b in zip(low, high, strict=True))
        weights = (1,) * len(sizes) if seed % 3 == 1 else tuple(rng.choice([0, 1, 2, 4, 6]) for _ in sizes)
        region = Ball(region, centre, "l0" if seed % 3 == 1 else "l1", weights, rng.randint(0, 15))
    measure = Measure()
    if rng.random() < 0.5:
        measure = Measure(
            "product", tuple(None if rng.random() < 0.4 else tuple(rng.randint(0, 5) for _ in range(s)) for s in sizes)
        )
    expected = 0
    for point in itertools.product(*(range(a, b) for a, b in zip(low, high, strict=True))):
        if is_inside(region, point):
            chosen = measure.weights or (None,) * len(sizes)
            expected += math.prod(1 if w is None else w[p] for w, p in zip(chosen, point, strict=True))
    assert region_total(problem(sizes, measure), region) == expected


@pytest.mark.parametrize("kind", ["uniform", "product"])
def test_a_few_points_far_apart_are_quick(kind: str) -> None:
    sizes = [5, 4, 3]
    ball = Ball(Box((0, 0, 0), (5, 4, 3)), (1, 2, 0), "l1", (1, 10**9, 7), 10**9 + 8)
    weights = ((3, 0, 1, 2, 5), None, (1, 4, 2)) if kind == "product" else (None, None, None)
    expected = sum(
        math.prod(1 if w is None else w[p] for w, p in zip(weights, point, strict=True))
        for point in itertools.product(*map(range, sizes))
        if is_inside(ball, point)
    )
    measure = Measure("product", weights) if kind == "product" else Measure()
    assert region_total(problem(sizes, measure), ball) == expected


def test_a_ball_over_an_image_is_quick() -> None:
    pixels, radius = 784, 300
    box = Box((0,) * pixels, (256,) * pixels)
    ball = Ball(box, (128,) * pixels, "l1", (1,) * pixels, radius)
    total = region_total(problem([256] * pixels, Measure()), ball)
    # Points of the integer lattice at l1 distance at most r in n dimensions: Σ 2^k C(n, k) C(r, k), with r − 128 the
    # room on the tighter side; up to 127 steps the walls are out of reach.
    small = Ball(box, (128,) * pixels, "l1", (1,) * pixels, 100)
    lattice = sum(2**k * math.comb(pixels, k) * math.comb(100, k) for k in range(101))
    assert region_total(problem([256] * pixels, Measure()), small) == lattice
    assert total > lattice


def test_accuracy_is_among_the_inputs_that_meet_the_assumption() -> None:
    counts = {"tp": exact(3), "fp": exact(1), "tn": exact(2), "fn": exact(2)}
    found = metrics("learnability", counts, 100)
    assert found["accuracy"] is not None
    assert found["accuracy"].lower == found["accuracy"].upper == Fraction(5, 8)

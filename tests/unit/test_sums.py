"""Closed forms and distributions of sums against enumeration."""

import itertools
import random

import numpy as np
import pytest

from quantify.engines import sums
from quantify.engines.sums import Line, Spread, floor_sum, line_spread, mass_below, pairs_below, points_below, turned


def test_floor_sums():
    rng = random.Random(1)
    for _ in range(2000):
        count, divisor, slope, start = rng.randint(0, 20), rng.randint(1, 12), rng.randint(0, 15), rng.randint(0, 20)
        expected = sum((slope * i + start) // divisor for i in range(count))
        assert floor_sum(count, divisor, slope, start) == expected


def test_pairs_below_a_line():
    for a, b, limit in itertools.product(range(1, 5), range(1, 5), range(-2, 24)):
        expected = sum(a * x + b * y <= limit for x in range(4) for y in range(5))
        assert pairs_below(a, 4, b, 5, limit) == expected


def enumerated(lines, limit):
    steps = [range(0, line.coefficient * line.width, line.coefficient) for line in lines]
    return sum(sum(point) <= limit for point in itertools.product(*steps))


def test_lines_and_their_distribution_agree_with_enumeration():
    rng = random.Random(2)
    for _ in range(600):
        lines = [Line(rng.randint(1, 6), rng.randint(1, 5)) for _ in range(rng.randint(0, 4))]
        limit = rng.randint(-2, 60)
        assert points_below(lines, limit) == enumerated(lines, limit)
        both = mass_below([line_spread(line) for line in lines], [limit, limit - 7])
        assert both == [enumerated(lines, limit), enumerated(lines, limit - 7)]


def test_masses_past_a_word_are_exact():
    masses = [10**30, 1, 0, 7]
    spread = Spread(np.array([0, 2, 3, 5], dtype=object), np.array(masses, dtype=object), 0, 4, 5, sum(masses))
    assert mass_below([spread, line_spread(Line(1, 3))], [2]) == [3 * 10**30 + 1]
    huge = Line(2**70, 2)
    assert mass_below([line_spread(huge), line_spread(Line(1, 4))], [2]) == [3]


def test_turning_keeps_the_values():
    lines, constant = turned([(3, 2, 5), (-2, 1, 4)], 10)
    values = sorted(3 * x - 2 * y + 10 for x in range(2, 5) for y in range(1, 4))
    steps = [range(0, line.coefficient * line.width, line.coefficient) for line in lines]
    assert values == sorted(constant + sum(point) for point in itertools.product(*steps))


def test_work_that_would_take_too_long_is_left(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sums, "MOST_LINES", 8)
    monkeypatch.setattr(sums, "MOST_WORK", 100)
    assert points_below([Line(1, 9), Line(1, 10), Line(1, 11)], 5) is None
    assert points_below([Line(1, 8), Line(1, 10), Line(1, 11)], 5) == 56
    assert mass_below([line_spread(Line(1, 1000))] * 2, [500]) is None

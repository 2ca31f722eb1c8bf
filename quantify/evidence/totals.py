"""A region under a measure to its total: the number of its points, or their integer weight."""

from __future__ import annotations

import math

from quantify.ir.domain import Measure
from quantify.ir.problem import Ball, GridProblem, Region


def region_total(problem: GridProblem, region: Region) -> int:
    """Number of points of the region, or their weight under a product measure. Exact."""
    if isinstance(region, Ball):
        return _ball_total(problem.measure, region)
    return math.prod(
        _mass(problem.measure, feature, low, high)
        for feature, (low, high) in enumerate(zip(region.low, region.high, strict=True))
    )


def _weights(measure: Measure, feature: int) -> tuple[int, ...] | None:
    return measure.weights[feature] if measure.kind == "product" else None


def _mass(measure: Measure, feature: int, low: int, high: int) -> int:
    if high <= low:
        return 0
    weights = _weights(measure, feature)
    return high - low if weights is None else sum(weights[low:high])


def _ball_total(measure: Measure, ball: Ball) -> int:
    """Sum over the distances up to the radius; masses[d] is the mass at distance d of the features so far."""
    moving = [f for f, (low, high) in enumerate(zip(ball.box.low, ball.box.high, strict=True)) if high - low > 1]
    unit = 1 if ball.norm == "l0" else math.gcd(*(ball.weights[f] for f in moving)) or 1
    reach = _reach(ball, moving, unit)
    if math.prod(ball.box.high[f] - ball.box.low[f] for f in moving) <= reach:
        return _few_points(measure, ball)
    masses = [1] + [0] * reach
    for feature, (low, high) in enumerate(zip(ball.box.low, ball.box.high, strict=True)):
        centre = ball.centre[feature]
        step = 1 if ball.norm == "l0" else ball.weights[feature] // unit
        if ball.norm == "l0":
            here = _mass(measure, feature, centre, centre + 1) if low <= centre < high else 0
            masses = _with_steps(masses, {0: here, 1: _mass(measure, feature, low, high) - here})
        elif step and low <= centre < high and _weights(measure, feature) is None:
            masses = _with_arms(masses, step, centre - low, high - 1 - centre)
        else:
            near = range(max(low, centre - reach // step), min(high, centre + reach // step + 1)) if step else ()
            steps = {} if step else {0: _mass(measure, feature, low, high)}
            for position in near:
                distance = step * abs(position - centre)
                steps[distance] = steps.get(distance, 0) + _mass(measure, feature, position, position + 1)
            masses = _with_steps(masses, steps)
    return sum(masses)


def _few_points(measure: Measure, ball: Ball) -> int:
    """The total by the distances that occur, for a box with fewer points than the radius has units."""
    masses = {0: 1}
    for feature, (low, high) in enumerate(zip(ball.box.low, ball.box.high, strict=True)):
        longer: dict[int, int] = {}
        for position in range(low, high):
            away = abs(position - ball.centre[feature])
            step = int(away > 0) if ball.norm == "l0" else ball.weights[feature] * away
            mass = _mass(measure, feature, position, position + 1)
            for distance, found in masses.items():
                if mass and distance + step <= ball.radius:
                    longer[distance + step] = longer.get(distance + step, 0) + found * mass
        masses = longer
    return sum(masses.values())


def _reach(ball: Ball, moving: list[int], unit: int) -> int:
    """The largest distance that any point within the radius has, in units."""
    if ball.norm == "l0":
        return min(ball.radius, len(moving))
    far = 0
    for f in moving:
        steps = max(ball.centre[f] - ball.box.low[f], ball.box.high[f] - 1 - ball.centre[f], 0)
        far += ball.weights[f] // unit * steps
    return min(ball.radius // unit, far)


def _with_steps(masses: list[int], steps: dict[int, int]) -> list[int]:
    """One more feature, given its mass by distance."""
    moved = [0] * len(masses)
    for distance, mass in steps.items():
        if mass:
            for d in range(distance, len(masses)):
                moved[d] += mass * masses[d - distance]
    return moved


def _with_arms(masses: list[int], step: int, left: int, right: int) -> list[int]:
    """One more uniform feature with `left` positions below the centre and `right` above, each `step` farther out.

    Each arm is a running sum over a window of distances, so the cost does not grow with its length.
    """
    moved = list(masses)
    for arm in (left, right):
        window = [0] * len(masses)
        for d in range(step, len(masses)):
            window[d] = window[d - step] + masses[d - step]
            if d >= step * (arm + 1):
                window[d] -= masses[d - step * (arm + 1)]
        moved = [a + b for a, b in zip(moved, window, strict=True)]
    return moved

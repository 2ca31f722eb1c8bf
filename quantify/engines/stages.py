"""An integer network in, a chain of float64 affine maps with piecewise-linear activations out, every rounding stated.

Each stage is z = weights·h + bias followed by h = f(z), where f has at most three affine pieces per neuron and an error
band. Values are scaled by powers of two, so that sums of exact dyadic networks stay far from overflow. Max pooling
becomes differences and ReLUs: max(a, b) = a + max(b − a, 0).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.ir.network import IntLayer, IntNetwork, RequantiseLayer, Rows

Floats = NDArray[np.float64]

UNIT = 2.0**-53
"""Relative error of one rounding."""
DENSE_SHARE = 0.2
"""Above this share of non-zeros a dense product is the faster one."""
SMALL = 1 << 16
"""Matrices of fewer entries are dense anyway."""
WIDEST_EXPONENT = 900
"""Largest scaling exponent; beyond it constants would leave the range of float64."""


class NoFormError(ValueError):
    """An activation for which no affine bounds are known; the message names it."""


@dataclass(frozen=True, eq=False)
class Stage:
    """z = weights·h + bias, then f(z) − band_low ≤ h' ≤ f(z) + band_high.

    Row p of `slope` and `intercept` is a piece of f. Piece 0 holds up to kink[0], piece 1 from there to kink[1], piece
    2 beyond it. Weights and bias are correctly rounded; the true z never lies on a kink at which f jumps.
    """

    weights: Any
    """(outputs × inputs), an array or a scipy CSR array."""
    absolute: Any
    """|weights|, of the same kind."""
    bias: Floats
    slope: Floats
    intercept: Floats
    kink: Floats
    band_low: Floats
    band_high: Floats
    reach: Floats
    """The band applies only where [low − reach, high + reach] meets piece 1."""

    @property
    def outputs(self) -> int:
        """Number of neurons."""
        return len(self.bias)

    def used(self, low: Floats, high: Floats) -> NDArray[np.bool_]:
        """Which pieces (3 × neurons) z in [low, high] meets; one met in its end alone is left to its neighbour."""
        first, second = self.kink
        return np.stack(
            [
                low < first,
                ((high > first) | ((high == first) & (low == first))) & (low < second),
                (high > second) | ((high == second) & (low == second)),
            ]
        )

    def values(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Proven ends of the values after the activation, for z in [low, high]."""
        _, value, rounding = self.corners(low, high)
        least = np.fmin.reduce(value - rounding, axis=0) - self.band_low
        most = np.fmax.reduce(value + rounding, axis=0) + self.band_high
        return least - 4 * UNIT * np.abs(least), most + 4 * UNIT * np.abs(most)

    def corners(self, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
        """Both ends of every piece in use, f there, and bounds of f's rounding (6 × neurons, NaN for unused pieces)."""
        used = self.used(low, high)
        starts = np.stack([low, np.maximum(low, self.kink[0]), np.maximum(low, self.kink[1])])
        stops = np.stack([np.minimum(high, self.kink[0]), np.minimum(high, self.kink[1]), high])
        ends = np.concatenate([np.where(used, starts, np.nan), np.where(used, stops, np.nan)])
        linear = np.concatenate([self.slope] * 2) * ends
        intercept = np.concatenate([self.intercept] * 2)
        return ends, linear + intercept, 4 * UNIT * (np.abs(linear) + np.abs(intercept))

    def times(self, rows: Any) -> Any:
        """rows · weights, for rows over this stage's neurons; sparse when both are."""
        return rows @ self.weights


@dataclass(frozen=True, eq=False)
class Chain:
    """A whole network; real score = (last stage's value) · 2^exponent."""

    inputs: int
    stages: tuple[Stage, ...]
    exponent: int

    @property
    def terms(self) -> int:
        """The most terms of any sum over the neurons of a stage, or over the inputs."""
        return max([self.inputs, *(stage.outputs for stage in self.stages)])


@lru_cache(maxsize=4)
def chain_of(network: IntNetwork) -> Chain:
    """Scaled stages of a network, kept for the last few.

    Raises:
        NoFormError: A constant has more bits than float64 can scale, or an activation is not piecewise affine.
    """
    try:
        return _chain(network)
    except OverflowError:
        raise NoFormError("its integers leave the range of float64") from None


def _chain(network: IntNetwork) -> Chain:
    exponent = 0
    stages: list[Stage] = []
    odd = False
    for layer in network.layers:
        if layer.members is not None:
            stages.extend(_pooling(layer.members, stages[-1].outputs if stages else network.inputs))
            # The largest of odd integers is one of them.
            continue
        stage, exponent = _stage(layer, exponent, odd)
        odd = layer.activation == "sign" and (layer.at_zero != 0 or bool(np.isinf(stage.kink[1]).all()))
        if not -WIDEST_EXPONENT < exponent < WIDEST_EXPONENT:
            raise NoFormError("its integers have more than 900 bits")
        stages.append(stage)
    return Chain(network.inputs, tuple(stages), exponent)


# --- numbers -------------------------------------------------------------------------------------------------------
def scaled(values: NDArray[Any], exponent: int) -> Floats:
    """values · 2^−exponent, correctly rounded."""
    if values.dtype != object:
        # Halving is exact, so only the conversion rounds (small results could underflow: 2^-62 · 2^-900 does not).
        return np.ldexp(values.astype(np.float64), -exponent)
    return np.array([_quotient(int(v), exponent) for v in values.tolist()], np.float64)


def _quotient(value: int, exponent: int) -> float:
    return value / (1 << exponent) if exponent >= 0 else float(value << -exponent)


def _exactly(value: Fraction | int, exponent: int) -> float:
    """value · 2^−exponent, which must be a float64."""
    wanted = Fraction(value) / Fraction(2) ** exponent
    found = float(wanted)
    if Fraction(found) != wanted:
        raise NoFormError(f"the constant {value} of an activation does not fit float64")
    return found


def _bits(values: NDArray[Any]) -> int:
    return max((abs(int(v)).bit_length() for v in (values.max(initial=0), values.min(initial=0))), default=0)


def _matrix(rows: Rows, values: Floats) -> tuple[Any, Any]:
    """The matrix and its absolute values, dense or sparse."""
    size = rows.inputs * rows.outputs
    if size < SMALL or len(values) > DENSE_SHARE * size:
        # Entries of one row that share a column are summed by to_dense, with roundings counted in `terms`.
        dense = Rows(rows.inputs, rows.start, rows.columns, values).to_dense().astype(np.float64)
        absolute = Rows(rows.inputs, rows.start, rows.columns, np.abs(values)).to_dense().astype(np.float64)
        return dense, absolute
    from scipy.sparse import csr_array

    shape = (rows.outputs, rows.inputs)
    return (
        csr_array((values, rows.columns, rows.start), shape=shape),
        csr_array((np.abs(values), rows.columns, rows.start), shape=shape),
    )


# --- activations ---------------------------------------------------------------------------------------------------
def _stage(layer: IntLayer, before: int, odd: bool = False) -> tuple[Stage, int]:
    """The stage, and the exponent of its results; `odd` says that every value it reads is an odd integer."""
    bits = _bits(layer.rows.values)
    inside = before + bits
    weights, absolute = _matrix(layer.rows, scaled(layer.rows.values, bits))
    count = layer.rows.outputs
    shape = _Shape(count)
    outside = inside
    if layer.activation == "relu":
        shape.kink[0] = 0.0
        shape.slope[0] = 0.0
        if layer.cap is not None:
            shape.clamp_above(_exactly(layer.cap, inside), _exactly(layer.cap, inside))
    elif layer.activation == "leaky":
        outside = inside + max(abs(layer.positive), abs(layer.negative)).bit_length()
        shape.kink[0] = 0.0
        shape.slope[0] = _exactly(layer.negative, outside - inside)
        shape.slope[1:] = _exactly(layer.positive, outside - inside)
    elif layer.activation == "sign":
        outside = 0
        shape.sign(layer.at_zero, _exactly(Fraction(1, 2), inside))
        if layer.at_zero == 0:
            shape.unite(_never_zero(layer, odd))
    elif layer.activation == "floor_shift":
        outside = max(abs(layer.low), abs(layer.high)).bit_length()
        _floor_shift(shape, layer, inside, outside)
    elif layer.activation == "requantise":
        assert layer.requantise is not None
        outside = max(abs(layer.requantise.low), abs(layer.requantise.high)).bit_length()
        _requantise(shape, layer.requantise, inside, outside)
    elif layer.activation != "none":
        raise NoFormError(f"no affine bounds are known for the activation {layer.activation!r}")
    return shape.stage(weights, absolute, scaled(layer.bias, inside)), outside


class _Shape:
    """The pieces of one stage's activations, the identity until something is set."""

    def __init__(self, count: int) -> None:
        self.slope = np.ones((3, count))
        self.intercept = np.zeros((3, count))
        self.kink = np.empty((2, count))
        self.kink[0], self.kink[1] = -np.inf, np.inf
        self.band_low = np.zeros(count)
        self.band_high = np.zeros(count)
        self.reach = np.zeros(count)

    def clamp_above(self, kink: Floats | float, value: float) -> None:
        self.kink[1] = kink
        self.slope[2] = 0.0
        self.intercept[2] = value

    def clamp_below(self, kink: Floats | float, value: float) -> None:
        self.kink[0] = kink
        self.slope[0] = 0.0
        self.intercept[0] = value

    def sign(self, at_zero: int, half: float) -> None:
        """z is an integer, so the jumps lie half a step from 0, where no z is."""
        self.slope[:] = 0.0
        self.intercept[0], self.intercept[1], self.intercept[2] = -1.0, float(at_zero), 1.0
        self.kink[0] = half if at_zero == -1 else -half
        self.kink[1] = np.inf if at_zero != 0 else half
        if at_zero == -1:
            self.intercept[1] = 1.0

    def unite(self, rows: NDArray[np.bool_]) -> None:
        """Two pieces are enough for signs that are never 0: the value at 0 may be any."""
        self.intercept[1, rows] = 1.0
        self.kink[1, rows] = np.inf

    def stage(self, weights: Any, absolute: Any, bias: Floats) -> Stage:
        return Stage(
            weights, absolute, bias, self.slope, self.intercept, self.kink, self.band_low, self.band_high, self.reach
        )


def _never_zero(layer: IntLayer, odd: bool) -> NDArray[np.bool_]:
    """Rows whose z is never 0: z − bias is a multiple of the weights' divisor g; for odd inputs, z − bias − Σw of 2g.

    For then w·h = w + w·(h − 1), and h − 1 is even.
    """
    found = np.zeros(layer.rows.outputs, np.bool_)
    values, bias = layer.rows.values.tolist(), layer.bias.tolist()
    for row, (start, stop) in enumerate(itertools.pairwise(layer.rows.start.tolist())):
        divisor = math.gcd(*values[start:stop])
        if odd:
            divisor, rest = 2 * divisor, bias[row] + sum(values[start:stop])
        else:
            rest = bias[row]
        found[row] = rest % divisor != 0 if divisor else rest != 0
    return found


def _floor_shift(shape: _Shape, layer: IntLayer, inside: int, outside: int) -> None:
    """clamp(z / 2^s − δ) with 0 ≤ δ ≤ 1 − 2^−s, and clamping moves no two values apart."""
    shape.slope[:] = _exactly(1, layer.shift + outside - inside)
    shape.clamp_below(_exactly(layer.low << layer.shift, inside), _exactly(layer.low, outside))
    shape.clamp_above(_exactly(layer.high << layer.shift, inside), _exactly(layer.high, outside))
    shape.band_low[:] = _exactly(1 - Fraction(1, 1 << layer.shift), outside)
    # Beyond either clamp the floor is at the clamp already: no band there.
    shape.reach[:] = 0.0


def _requantise(shape: _Shape, layer: RequantiseLayer, inside: int, outside: int) -> None:
    """clamp(zero_point + z·multiplier·2^(shift−31) + δ); one rounding has |δ| ≤ ½, the double one ½ + ½·2^shift.

    Double rounding: the high multiplication rounds to the nearest integer (½), which the right shift divides by
    2^−shift before it rounds again (½).
    """
    two, unit = Fraction(2), Fraction(2) ** inside
    low, high = _exactly(layer.low, outside), _exactly(layer.high, outside)
    # The kinks are rounded: f is off by their relative error times the slope, which the band takes up.
    slack = Fraction(abs(layer.low) + abs(layer.high) + abs(layer.zero_point), 1 << 50)
    for row, (multiplier, shift) in enumerate(zip(layer.multiplier.tolist(), layer.shift.tolist(), strict=True)):
        factor = multiplier * two ** (shift - 31)
        error = Fraction(1, 2)
        if layer.rounding == "double" and shift < 0:
            error += two ** (shift - 1)
        shape.slope[1, row] = _exactly(factor, outside - inside)
        shape.intercept[1, row] = _exactly(layer.zero_point, outside)
        if factor > 0:
            shape.kink[0, row] = float((layer.low - layer.zero_point) / factor / unit)
            shape.kink[1, row] = float((layer.high - layer.zero_point) / factor / unit)
            shape.slope[(0, 2), row] = 0.0
            shape.intercept[0, row], shape.intercept[2, row] = low, high
            shape.reach[row] = float(2 * error / factor / unit)
        else:
            shape.intercept[1, row] = min(max(shape.intercept[1, row], low), high)
            shape.reach[row] = np.inf
        shape.band_low[row] = shape.band_high[row] = float((error + 2 * slack) / two**outside)


# --- max pooling ---------------------------------------------------------------------------------------------------
def _pooling(members: NDArray[np.int64], inputs: int) -> list[Stage]:
    """Stages that compute the maximum of each window: a tournament of pairs, then one sum.

    A value on its way is a sum of columns of the stage before: max(a, b) is the two columns [a, max(b − a, 0)].
    """
    values = [[[int(m)] for m in window if m >= 0] for window in members]
    stages = []
    width = inputs
    while any(len(window) > 1 for window in values):
        rows: list[dict[int, int]] = []
        rectified: list[bool] = []
        following: list[list[list[int]]] = []
        for window in values:
            played: list[list[int]] = []
            for a, b in zip(window[::2], window[1::2], strict=False):
                played.append([len(rows), len(rows) + 1])
                rows += [_difference(a, []), _difference(b, a)]
                rectified += [False, True]
            if len(window) % 2:
                played.append([len(rows)])
                rows.append(_difference(window[-1], []))
                rectified.append(False)
            following.append(played)
        stages.append(_sums(rows, rectified, width))
        width = len(rows)
        values = following
    stages.append(_sums([_difference(window[0], []) for window in values], [False] * len(values), width))
    return stages


def _difference(plus: list[int], minus: list[int]) -> dict[int, int]:
    row: dict[int, int] = {}
    for column in plus:
        row[column] = row.get(column, 0) + 1
    for column in minus:
        row[column] = row.get(column, 0) - 1
    return {column: sign for column, sign in row.items() if sign}


def _sums(rows: list[dict[int, int]], rectified: list[bool], width: int) -> Stage:
    start = np.cumsum([0] + [len(row) for row in rows]).astype(np.int64)
    columns = np.array([c for row in rows for c in row], np.int64)
    values = np.array([v for row in rows for v in row.values()], np.float64)
    shape = _Shape(len(rows))
    cut = np.array(rectified, np.bool_)
    shape.kink[0, cut] = 0.0
    shape.slope[0, cut] = 0.0
    return shape.stage(*_matrix(Rows(width, start, columns, values), values), np.zeros(len(rows)))

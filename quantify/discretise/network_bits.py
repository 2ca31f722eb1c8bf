"""Steps in exact numbers to integer layers with n-bit weights: post-training quantisation, a function of its own.

Weights of a linear layer are w ≈ q·Δ with |q| < 2^(n−1), Δ the largest |w| over 2^(n−1) − 1: one Δ for the whole layer
(`tensor`), or one a row that is a power of two finer than the coarsest (`channel`). A layer whose integers fit anyway
stays exact. Biases are rounded to the accumulator's unit. Hidden activations that may need more than `activations` bits
are shifted right, rounding to nearest, by proven ranges or by what the calibration rows reach (then clipped).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from quantify.discretise.linear import RealLinear, composed, identity, scaled
from quantify.discretise.network_inputs import InputMap, preprocess
from quantify.discretise.network_ranges import Interval, of_positions, through
from quantify.discretise.network_steps import Step, merged, origin, steps_of, with_inputs
from quantify.discretise.whole import Integers, bit_length, divisor_of, integers, narrowed
from quantify.errors import InputError
from quantify.ir.network import ActivationLayer, IntLayer, MaxPoolLayer, Network, Rows
from quantify.ir.problem import NetworkOptions, Problem

INPUT_BITS = 16
"""Steps of the inputs (in their common unit) that are wider than this are rounded to the network's precision."""
SLOPE = 256
"""Denominator of leaky slopes."""


def bits_layers(problem: Problem, network: Network, inputs: InputMap) -> tuple[list[IntLayer], Fraction, bool]:
    """Integer layers, what one unit of the scores is worth, and whether nothing was rounded at all.

    Raises:
        InputError: A calibration row that does not fit the model.
    """
    options = problem.network or NetworkOptions()
    linear, rest = with_inputs(steps_of(network), inputs.linear)
    start = of_positions(problem.domain.sizes)
    if inputs.tables is not None:
        start = through(inputs.tables, start)[1]
    run = _Run(options, linear, start)
    reached: list[float | None] = [None] * len(rest)
    steps = merged(rest)
    if options.calibration is not None:
        reached = _reached(problem, network, steps)
    last = max((i for i, step in enumerate(steps) if isinstance(step, RealLinear)), default=-1)
    for number, step in enumerate(steps):
        run.step(step, hidden=number < last, reached=_after(steps, reached, number))
    run.end()
    return run.layers, run.unit, run.lossless


class _Run:
    """The layers so far, the unit and the proven interval of the current values."""

    def __init__(self, options: NetworkOptions, inputs: RealLinear, start: Interval) -> None:
        self.options = options
        self.inputs: RealLinear | None = inputs
        self.layers: list[IntLayer] = []
        self.interval = start
        self.unit = Fraction(1)
        self.lossless = True
        self.open: tuple[Rows, Integers] | None = None

    # --- steps ---
    def step(self, step: Step, *, hidden: bool, reached: float | None) -> None:
        """Take one step; `hidden`: more linear layers follow; `reached`: the largest real value in calibration."""
        if isinstance(step, RealLinear):
            if self.open is not None:
                self._close_plain()
            self._linear(step)
        elif isinstance(step, ActivationLayer):
            self._activation(step, hidden, reached)
        elif isinstance(step, MaxPoolLayer):
            self._close_plain()
            nothing = Rows(step.inputs, np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
            self._add(IntLayer(nothing, np.empty(0, np.int64), activation="max", members=step.members))
        else:
            raise InputError(f"{origin(step)}: integer rescaling in a network of floats", "convert the model again")

    def end(self) -> None:
        """Finish a linear layer that has no activation: its sums stay as they are."""
        if self.inputs is not None:
            first, self.inputs = self.inputs, None
            rows, bias, self.unit = scaled(first, self.unit)
            self.open = rows, bias
        if self.open is not None:
            self._close_plain()

    def _close_plain(self) -> None:
        if self.inputs is not None:
            self.end()
        if self.open is not None:
            rows, bias = self.open
            self.open = None
            self._add(IntLayer(rows, bias))

    def _add(self, layer: IntLayer) -> None:
        layer, self.interval = through(layer, self.interval)
        self.layers.append(layer)

    # --- linear ---
    def _linear(self, step: RealLinear) -> None:
        rounded = self._rounded_weights(step)
        if self.inputs is not None:
            first, self.inputs = self._rounded_inputs(self.inputs), None
            # The bias takes the exact offsets of the inputs along, and is rounded afterwards with the rest.
            rounded = composed(rounded, first)
        weights, unit = rounded.weights, rounded.unit * self.unit
        factor = divisor_of(weights)
        if factor > 1:
            weights, unit = narrowed(np.asarray(weights // factor)), unit * factor
        wanted = [value * (rounded.bias_unit / unit) for value in rounded.bias.tolist()]
        if any(value.denominator != 1 for value in wanted):
            self.lossless = False
        bias = integers(_nearest(value) for value in wanted)
        self.open, self.unit = (rounded.rows(weights), bias), unit

    def _rounded_weights(self, step: RealLinear) -> RealLinear:
        most = 2 ** (self.options.bits - 1) - 1
        factor = divisor_of(step.weights)
        if factor == 0:
            return step
        exact = narrowed(np.asarray(step.weights // factor))
        if abs(int(exact.max())) <= most and abs(int(exact.min())) <= most:
            return replace(step, weights=exact, unit=step.unit * factor)
        self.lossless = False
        largest = max(abs(int(step.weights.max())), abs(int(step.weights.min())))
        finer = self._finer(step, largest)
        # Row i has w/unit ≈ q·largest/(most·2^finer_i); all rows count the finest of these units.
        finest = int(finer.max(initial=0))
        rows = np.repeat(finer, np.diff(step.start)).tolist()
        values = [
            _divide_nearest(int(weight) * most << shift, largest) << (finest - shift)
            for weight, shift in zip(step.weights.tolist(), rows, strict=True)
        ]
        return replace(step, weights=integers(values), unit=step.unit * largest / (most * 2**finest))

    def _finer(self, step: RealLinear, largest: int) -> NDArray[np.int64]:
        """For every row, how many powers of two its own step may be finer than the coarsest row's."""
        result = np.zeros(step.outputs, np.int64)
        if self.options.per == "channel":
            magnitudes = [abs(int(weight)) for weight in step.weights.tolist()]
            for row in range(step.outputs):
                own = max(magnitudes[step.start[row] : step.start[row + 1]], default=0)
                if own:
                    result[row] = min((largest // own).bit_length() - 1, 16)
        return result

    def _rounded_inputs(self, inputs: RealLinear) -> RealLinear:
        """The input map with steps of few bits: exact when they are, else 16 times finer than the weights matter."""
        factor = divisor_of(inputs.weights)
        if factor == 0 or bit_length(inputs.weights) - factor.bit_length() < INPUT_BITS:
            return inputs
        self.lossless = False
        reach = self.interval.magnitude
        widest = int(reach.max())
        span = max(int(abs(w)) * int(reach[c]) for w, c in zip(inputs.weights.tolist(), inputs.columns, strict=True))
        # One unit is span/(16·widest) of the map's own integers.
        values = [_divide_nearest(int(w) * 16 * widest, span) for w in inputs.weights.tolist()]
        return replace(inputs, weights=integers(values), unit=inputs.unit * span / (16 * widest))

    # --- activations ---
    def _activation(self, step: ActivationLayer, hidden: bool, reached: float | None) -> None:
        if self.inputs is not None:
            first, self.inputs = self.inputs, None
            rows, bias, self.unit = scaled(first, self.unit)
            self.open = rows, bias
        width = len(self.interval.low)
        rows, bias = self.open or (identity(width), np.zeros(width, np.int64))
        self.open = None
        if step.kind == "sign":
            self._add(IntLayer(rows, bias, activation="sign", at_zero=step.sign_of_zero))
            self.unit = Fraction(1)
        elif step.kind == "leaky":
            self._leaky(rows, bias, step.slope, hidden, reached)
        else:
            self._relu(rows, bias, step.cap, hidden, reached)

    def _relu(self, rows: Rows, bias: Integers, cap: Fraction | None, hidden: bool, reached: float | None) -> None:
        most = int(through(IntLayer(rows, bias, activation="relu"), self.interval)[1].high.max())
        limit = None
        if cap is not None:
            limit = max(1, _nearest(cap / self.unit))
            self.lossless = self.lossless and cap / self.unit == limit
            most = min(most, limit)
        shift = 0
        if hidden:
            if reached is not None:
                most = min(most, max(1, _nearest(Fraction(reached) / self.unit)))
            shift = max(0, most.bit_length() - self.options.activations)
        if shift == 0:
            self._add(IntLayer(rows, bias, activation="relu", cap=limit))
            return
        high = _rounded_shift(most, shift) if reached is None else self._ceiling(limit, shift)
        self._shifted(rows, bias, shift, 0, high)

    def _ceiling(self, limit: int | None, shift: int) -> int:
        full: int = 2**self.options.activations - 1
        return full if limit is None else min(full, _rounded_shift(limit, shift))

    def _leaky(self, rows: Rows, bias: Integers, slope: Fraction, hidden: bool, reached: float | None) -> None:
        positive, negative = slope.denominator, slope.numerator
        if positive > SLOPE:
            positive, negative = SLOPE, _nearest(slope * SLOPE)
            self.lossless = False
        self._add(IntLayer(rows, bias, activation="leaky", positive=positive, negative=negative))
        self.unit /= positive
        if not hidden:
            return
        most = int(self.interval.magnitude.max())
        if reached is not None:
            most = min(most, max(1, _nearest(Fraction(reached) / self.unit)))
        shift = max(0, most.bit_length() - self.options.activations)
        if shift:
            full = 2**self.options.activations - 1
            width = len(self.interval.low)
            self._shifted(identity(width), np.zeros(width, np.int64), shift, -full, full)

    def _shifted(self, rows: Rows, bias: Integers, shift: int, low: int, high: int) -> None:
        half = narrowed(np.asarray(bias.astype(object) + (1 << (shift - 1))))
        self._add(IntLayer(rows, half, activation="floor_shift", shift=shift, low=low, high=high))
        self.unit *= 2**shift
        self.lossless = False


def _nearest(value: Fraction) -> int:
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def _divide_nearest(numerator: int, denominator: int) -> int:
    """To the nearest, halves away from zero: symmetric."""
    magnitude = (2 * abs(numerator) + denominator) // (2 * denominator)
    return magnitude if numerator >= 0 else -magnitude


def _rounded_shift(value: int, shift: int) -> int:
    return (value + (1 << (shift - 1))) >> shift


# --- calibration ---------------------------------------------------------------------------------------------------
def _reached(problem: Problem, network: Network, steps: Sequence[Step]) -> list[float | None]:
    """The largest magnitude after each step over the calibration rows, in float64: it only decides where to clip."""
    options = problem.network
    assert options is not None
    assert options.calibration is not None
    adjust = [preprocess(problem, number) for number in range(network.inputs)]
    rows = [
        [float(value * scale + offset) for value, (scale, offset) in zip(row, adjust, strict=True)]
        for row in options.calibration
    ]
    values = np.array(rows, np.float64).reshape(len(rows), network.inputs)
    for step in steps_of(network):
        if not (isinstance(step, RealLinear) and step.is_diagonal):
            break
        values = _float_step(step, values)
    found: list[float | None] = []
    for step in steps:
        values = _float_step(step, values)
        found.append(float(np.abs(values).max(initial=0.0)))
    return found


def _after(steps: Sequence[Step], reached: Sequence[float | None], number: int) -> float | None:
    return reached[number] if number < len(steps) else None


def _float_step(step: Step, values: NDArray[np.float64]) -> NDArray[np.float64]:
    if isinstance(step, RealLinear):
        from scipy.sparse import csr_matrix

        weights = step.weights.astype(np.float64) * float(step.unit)
        matrix = csr_matrix((weights, step.columns, step.start), shape=(step.outputs, step.inputs))
        return np.asarray((matrix @ values.T).T + step.bias.astype(np.float64) * float(step.bias_unit))
    if isinstance(step, MaxPoolLayer):
        members = np.where(step.members < 0, step.members.max(axis=1, keepdims=True), step.members)
        return np.asarray(values[:, members].max(axis=2))
    assert isinstance(step, ActivationLayer)
    if step.kind == "relu":
        positive = np.maximum(values, 0.0)
        return positive if step.cap is None else np.minimum(positive, float(step.cap))
    if step.kind == "leaky":
        return np.where(values >= 0, values, values * float(step.slope))
    return np.where(values > 0, 1.0, np.where(values < 0, -1.0, float(step.sign_of_zero)))

"""A Network and inputs to proven bounds: how far any floating-point evaluation of it may lie from its real function.

"Any evaluation" means: each layer's sums in any order, with or without fused multiply-add, with or without flushing of
denormal numbers; division exact to half a unit or as multiplication by a rounded reciprocal. It does not mean
algorithms that change the products (Winograd, Fourier). With γ_k = k·u/(1 − k·u) a sum of k rounded terms is off by at
most γ_k·Σ|terms| (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1 and lemma 8.4), and the error
already in the inputs goes through |weights|.

The bookkeeping is in float64: every non-negative quantity is rounded up by more than its own computation can lose.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from quantify.ir.model import Decision
from quantify.ir.network import ActivationLayer, Layer, LinearLayer, MaxPoolLayer, Network
from quantify.readers.float_network import Product, activated, chunks, gathered, prepared

Matrix = NDArray[np.float64]

UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}
SMALLEST = {"float32": 2.0**-126, "float64": 2.0**-1022}
"""Smallest normal numbers: what flushing denormals to zero may lose in one operation."""
LARGEST = {"float32": float(np.finfo(np.float32).max), "float64": float(np.finfo(np.float64).max)}
LOWEST = {"float32": -126, "float64": -1000}
"""Multiples of two to this power are never denormal."""
BITS = {"float32": 24, "float64": 53}
DERIVED_UNITS = 16.0
"""How far apart two ways of normalising a batch may be, in units u of |weight·x| + `LinearLayer.derived`.

A reciprocal square root within two units in the last place (4 u), the product with γ, ours (4 u), and x − mean or
β − mean·γ/√variance with their products and sums (at most 7 u)."""
EXP_UNITS = 6.0
"""Relative error, in units u, granted to an exponential: three units in the last place (libraries state 1 to 2.5)."""
TINY = 2.0**-1000
NO_QUANTUM = np.iinfo(np.int64).min // 4


def error_bound(
    network: Network,
    inputs: NDArray[np.float64],
    *,
    input_error: NDArray[np.float64] | float | None = None,
    squash: bool = True,
    decision: Decision = "argmax",
) -> Matrix:
    """Bound on |a score as any floating-point evaluation has it − the real score|, (rows × outputs).

    Infinite where none is known: something may overflow.

    Args:
        network: Float layers only.
        inputs: Float64 rows, which the evaluation rounds to the network's dtype.
        input_error: Bound on |the real input − the float64 given|, broadcast to the inputs; none when they are equal.
        squash: Add what the rounding of a softmax or sigmoid is worth in scores, so that scores further apart than
            their two bounds together keep their order in the library's outputs (a sigmoid head: further from the
            threshold's logit than the bound keep their side).
        decision: argmin on a softmax also loses scores whose exponential underflows.

    Raises:
        TypeError: The network has integer layers.
    """
    parts = [
        _bounds(network, rows, error, squash, decision).error
        for rows, error in _with_error(network, inputs, input_error)
    ]
    return np.concatenate(parts) if parts else np.empty((0, network.outputs))


def ambiguous(
    network: Network,
    inputs: NDArray[np.float64],
    *,
    input_error: NDArray[np.float64] | float | None = None,
    decision: Decision = "argmax",
) -> NDArray[np.bool_]:
    """Rows whose label some floating-point evaluation might change; the others have the real label in every one."""
    parts = [
        _undecided(network, _bounds(network, rows, error, False, decision), decision)
        for rows, error in _with_error(network, inputs, input_error)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.bool_)


def _undecided(network: Network, found: _State, decision: Decision) -> NDArray[np.bool_]:
    centre, unsure = found.centre, found.error + found.real_error
    slack = _up(unsure + _squash_slack(network, found, decision), 4)
    if network.head == "sigmoid":
        odds = network.threshold / (1 - network.threshold)
        # The logarithm of a float64 quotient: relative error 2^-52, absolute error below 2^-45.
        edge = float(np.log(float(odds)))
        return np.logical_not(np.abs(centre[:, 0] - edge) > slack[:, 0] + 2.0**-45 * (1 + abs(edge)))
    if centre.shape[1] == 1:
        return np.zeros(len(centre), np.bool_)
    sign = 1.0 if decision == "argmax" else -1.0
    best = (sign * centre).argmax(axis=1)[:, None]
    gap = sign * (np.take_along_axis(centre, best, 1) - centre)
    room = np.take_along_axis(slack, best, 1) + slack
    apart = gap * (1 - 2.0**-50) > room * (1 + 2.0**-50)
    # Equal scores without any error are equal outputs, and the lowest index wins in every evaluation.
    tied = (gap == 0) & (unsure == 0) & (np.take_along_axis(unsure, best, 1) == 0)
    settled = apart | tied
    np.put_along_axis(settled, best, True, 1)
    result: NDArray[np.bool_] = np.logical_not(settled.all(axis=1))
    return result


# --- one chunk of rows -------------------------------------------------------------------------------------------
@dataclass
class _State:
    """What is known of one layer's values, (rows × width) each; `exact` and `quantum` per row."""

    centre: Matrix
    """The real function, about."""
    real_error: Matrix
    """|centre − real value|."""
    error: Matrix
    """|any evaluation − real value|."""
    quantum: NDArray[np.int64]
    """Every value is a multiple of 2^quantum, computed without error; NO_QUANTUM when that is not known."""
    lost: NDArray[np.bool_]
    """Rows in which something may overflow: no bound."""


def _with_error(
    network: Network, inputs: Matrix, error: NDArray[np.float64] | float | None
) -> list[tuple[Matrix, Matrix]]:
    given = np.zeros(1) if error is None else np.asarray(error, np.float64)
    full = np.broadcast_to(given, inputs.shape)
    return list(zip(chunks(network, inputs), chunks(network, full), strict=True))


def _bounds(network: Network, inputs: Matrix, input_error: Matrix, squash: bool, decision: Decision) -> _State:
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is marked as lost
        return _through(network, _start(network, inputs, input_error), squash, decision)


def _through(network: Network, state: _State, squash: bool, decision: Decision) -> _State:
    for layer, magnitudes in _magnitudes(network):
        if isinstance(layer, LinearLayer):
            assert magnitudes is not None
            state = _linear(network.dtype, layer, magnitudes, state)
        elif isinstance(layer, ActivationLayer):
            state = _activation(network.dtype, layer, state)
        elif isinstance(layer, MaxPoolLayer):
            state = _pool(layer, state)
    if squash and network.squash != "none":
        state.error = _up(state.error + _squash_slack(network, state, decision), 4)
    state.error = np.where(state.lost[:, None] | np.isnan(state.error), np.inf, state.error)
    return state


def _start(network: Network, inputs: Matrix, input_error: Matrix) -> _State:
    with np.errstate(over="ignore"):
        rounded = inputs.astype(network.dtype).astype(np.float64)
    lost = np.logical_not((np.isfinite(rounded) & np.isfinite(input_error)).all(axis=1))
    input_error = np.where(np.isfinite(input_error), input_error, 0.0)
    rounded = np.where(np.isfinite(rounded), rounded, 0.0)
    centre = np.where(np.isfinite(inputs), inputs, 0.0)
    flushed = np.where(np.abs(centre) < SMALLEST[network.dtype], np.abs(centre), 0.0)
    # The difference of a float64 and its float32 rounding is exact.
    error = np.abs(rounded - centre) + flushed + input_error
    exact = (error == 0).all(axis=1)
    error = np.where(error > 0, _up(error, 4), 0.0)
    quantum = np.where(exact, _lowest_bits(centre).min(axis=1, initial=1 << 20), NO_QUANTUM)
    return _State(centre, input_error, error, quantum, lost)


def _linear(dtype: str, layer: LinearLayer, matrices: _Magnitudes, state: _State) -> _State:
    unit, smallest, largest = UNIT[dtype], SMALLEST[dtype], LARGEST[dtype]
    terms = matrices.terms
    bias = layer.bias.astype(np.float64)
    # The value an evaluation starts from is at most this large.
    size = _up(np.abs(state.centre) + state.real_error + state.error, 8)
    total = _up(matrices.absolute(size) + np.abs(bias), terms)
    centre = matrices.signed(state.centre) + bias
    real_error = _up(matrices.absolute(state.real_error) + _gamma(2.0**-53, terms) * total, terms) + TINY
    rounding = _gamma(unit, terms) * total + 4 * terms * smallest
    if layer.derived is not None:
        made = DERIVED_UNITS * unit * _up(total + np.abs(layer.derived.astype(np.float64)), terms)
        rounding = rounding + made
    if matrices.denormal:
        rounding = rounding + 4 * smallest * size.sum(axis=1, keepdims=True)
    lost = np.logical_not(~state.lost & ((total <= largest / 4) & np.isfinite(rounding)).all(axis=1))

    # Multiples of 2^q that stay below 2^(q + significand bits) are never rounded, in no order.
    quantum = np.where(
        state.quantum == NO_QUANTUM, NO_QUANTUM, np.minimum(state.quantum + matrices.weight_bits, matrices.bias_bits)
    )
    whole = (quantum >= LOWEST[dtype]) & (quantum < 900) & (layer.derived is None)
    ceiling = np.ldexp(1.0, np.where(whole, np.minimum(quantum + BITS[dtype], 1000), -1074))
    unrounded = whole[:, None] & (total <= ceiling[:, None])
    real_error = np.where(unrounded, 0.0, real_error)
    error = np.where(unrounded, 0.0, _up(matrices.absolute(state.error) + rounding, terms + 8) + TINY)
    quantum = np.where(unrounded.all(axis=1), quantum, NO_QUANTUM)
    # Keeps later products free of infinity times zero; the rows are marked.
    result = _State(
        np.where(lost[:, None], 0.0, centre), np.where(lost[:, None], 0.0, real_error),
        np.where(lost[:, None], 0.0, error), quantum, lost,
    )  # fmt: skip
    return result if layer.divisor is None else _divided(dtype, layer.divisor, result)


def _divided(dtype: str, divisor: NDArray[np.int64], state: _State) -> _State:
    by = divisor.astype(np.float64)
    size = _up((np.abs(state.centre) + state.real_error + state.error) / by, 8)
    real_error = _up(state.real_error / by + 2.0**-53 * size, 8) + TINY
    error = _up(state.error / by + 3 * UNIT[dtype] * size, 8) + 4 * SMALLEST[dtype]
    return _State(state.centre / by, real_error, error, np.full_like(state.quantum, NO_QUANTUM), state.lost)


def _activation(dtype: str, layer: ActivationLayer, state: _State) -> _State:
    centre = activated(layer, state.centre)
    if layer.kind == "relu":
        # Clipped in the real function and in every evaluation: the same value.
        reach = _up(state.real_error + state.error, 4)
        same = state.centre + reach < 0
        quantum = state.quantum
        if layer.cap is not None:
            cap = float(layer.cap)
            same |= state.centre - reach > cap
            cap_bits = int(_lowest_bits(np.array([cap]))[0])
            quantum = np.where(quantum == NO_QUANTUM, NO_QUANTUM, np.minimum(quantum, cap_bits))
        real_error, error = (np.where(same, 0.0, known) for known in (state.real_error, state.error))
        return _State(centre, real_error, error, quantum, state.lost)
    if layer.kind == "leaky":
        steepest = max(1.0, abs(float(layer.slope)))
        size = _up((np.abs(state.centre) + state.real_error + state.error) * abs(float(layer.slope)), 8)
        # Only values that may be negative are multiplied.
        scaled = state.centre - state.real_error - state.error < 0
        real_error = np.where(scaled, _up(state.real_error * steepest + 2.0**-53 * size, 8) + TINY, state.real_error)
        error = np.where(scaled, _up(state.error * steepest + UNIT[dtype] * size, 8) + 4 * SMALLEST[dtype], state.error)
        quantum = np.where(scaled.any(axis=1), NO_QUANTUM, state.quantum)
        return _State(centre, real_error, error, quantum, state.lost)
    unsure = _up(state.error + state.real_error, 4)
    flips = (np.abs(state.centre) <= unsure) & (unsure > 0)
    flips_real = (np.abs(state.centre) <= _up(state.real_error, 4)) & (state.real_error > 0)
    steady = ~flips.any(axis=1)
    return _State(
        centre, np.where(flips_real, 2.0, 0.0), np.where(flips, 2.0, 0.0), np.where(steady, 0, NO_QUANTUM), state.lost
    )


def _pool(layer: MaxPoolLayer, state: _State) -> _State:
    def largest(values: Matrix, missing: float) -> Matrix:
        return np.asarray(gathered(layer, values, missing).max(axis=2), np.float64)

    return _State(
        largest(state.centre, -np.inf),
        largest(state.real_error, 0.0),
        largest(state.error, 0.0),
        state.quantum,
        state.lost,
    )


def _squash_slack(network: Network, state: _State, decision: Decision) -> Matrix:
    """What the rounding of the softmax or sigmoid is worth, in scores."""
    if network.squash == "none":
        return np.zeros_like(state.centre)
    unit = UNIT[network.dtype]
    highest = 85.0 if network.dtype == "float32" else 700.0
    reach = _up(np.abs(state.error) + state.real_error, 4)
    if network.squash == "softmax":
        # exp(score − largest)/sum: the difference is rounded once; quotients further apart than 2 u stay apart. For
        # argmax one of the two exponentials compared is exp(0) = 1. Half of it is charged to each score.
        below: Matrix = state.centre.max(axis=1, keepdims=True) - state.centre + 2 * reach.max(axis=1, keepdims=True)
        if decision == "argmax":
            return (EXP_UNITS + 3) / 2 * unit + unit * below
        return np.where(below > highest, np.inf, (EXP_UNITS + 2) * unit + unit * below)
    # 1/(1 + exp(−score)): d logit = dp / (p (1 − p)); twice that while it is small, where the curve is straight enough.
    relative = (EXP_UNITS + 4) * unit
    if network.head == "sigmoid":
        edge = 2 * relative / float(1 - network.threshold)
        return np.full_like(state.centre, edge if edge < 0.05 else np.inf)
    high = state.centre + reach
    steep = 2 * relative * (1 + np.exp(np.minimum(high, highest)))
    return np.where((steep < 0.05) & (state.centre - reach > -highest), steep, np.inf)


# --- matrices and numbers ----------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class _Magnitudes:
    """A linear layer's weights and absolute weights in float64, and what bounds the rounding of its sums."""

    signed: Product
    absolute: Product
    terms: NDArray[np.float64]
    """One more than the number of roundings a term can meet, for each output."""
    weight_bits: int
    """Every weight is a multiple of 2^weight_bits."""
    bias_bits: int
    denormal: bool


@lru_cache(maxsize=4)
def _magnitudes(network: Network) -> tuple[tuple[Layer, _Magnitudes | None], ...]:
    prepared(network)  # refuses integer layers
    found: list[tuple[Layer, _Magnitudes | None]] = []
    for layer in network.layers:
        if not isinstance(layer, LinearLayer):
            found.append((layer, None))
            continue
        values, bias = layer.rows.values.astype(np.float64), layer.bias.astype(np.float64)
        constants = np.abs(np.concatenate([values, bias]))
        matrices = _Magnitudes(
            signed=Product(layer.rows, "float64"),
            absolute=Product(layer.rows, "float64", absolute=True),
            terms=np.diff(layer.rows.start).astype(np.float64) + 2,
            weight_bits=int(_lowest_bits(values).min(initial=1 << 20)),
            bias_bits=int(_lowest_bits(bias).min(initial=1 << 20)),
            denormal=bool(((constants > 0) & (constants < SMALLEST[network.dtype])).any()),
        )
        found.append((layer, matrices))
    return tuple(found)


def _gamma(unit: float, terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """γ_k, rounded up; infinite where it is no bound."""
    share = terms * unit
    with np.errstate(divide="ignore"):
        return np.where(share < 0.5, share / (1 - share) * (1 + 2.0**-48), np.inf)


def _up(values: Matrix, operations: NDArray[np.float64] | float) -> Matrix:
    """At least the true value of a non-negative quantity made by about `operations` float64 sums and products."""
    result: Matrix = values * (1 + (np.asarray(operations) + 8) * 2.0**-51)
    return result


def _lowest_bits(values: Matrix) -> NDArray[np.int64]:
    """Exponent q of the lowest set bit: each value is an odd multiple of 2^q; large for zeros."""
    mantissa, exponent = np.frexp(values)
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    low = whole & -whole
    position = np.frexp(low.astype(np.float64))[1] - 1
    return np.where(whole == 0, 1 << 20, exponent.astype(np.int64) - 53 + position)

"""Scales to fixed-point multipliers, and the int8 softmax, as TensorFlow Lite's reference kernels compute them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError

Words = NDArray[np.int64]

ONE = (1 << 31) - 1
"""1 in Q0.31, saturated."""
DIFF_BITS = 5
"""Integer bits of the softmax's scaled differences (softmax.h, kScaledDiffIntegerBits)."""
SUM_BITS = 12
"""Integer bits of its sum of exponentials (kAccumulationIntegerBits)."""
UNIT = 1 << (31 - SUM_BITS)
"""exp(0) in the sum's format."""
MOST_SUMS = 1 << 26
"""Sums of exponentials that are tried one by one."""


def fixed_point(real: float) -> tuple[int, int]:
    """(multiplier, shift) with real ≈ multiplier·2^(shift − 31) (quantization_util.cc, `QuantizeMultiplier`).

    Raises:
        InputError: No usable scale.
    """
    if not (math.isfinite(real) and real > 0):
        raise InputError(f"has the scale {real}", "convert the model again with representative data")
    mantissa, shift = math.frexp(real)
    # mantissa·2^31 has at most 53 bits: the sum is exact where it is below 2^52, and std::round rounds halves up.
    multiplier = math.floor(mantissa * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier //= 2
        shift += 1
    if shift < -31:
        return 0, 0
    if shift > 30:
        raise InputError(f"has the scale {real}", "convert the model again with representative data")
    return multiplier, shift


def mean_multiplier(real: float, count: int) -> tuple[int, int]:
    """(multiplier, shift) of a mean of `count` values (reduce.h, `QuantizedMeanOrSum`)."""
    multiplier, shift = fixed_point(real)
    by = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << by) // count, shift - by


def quotient_multiplier(count: int) -> tuple[int, int]:
    """(multiplier, shift) that make one product, rounded once, the quotient by `count` with halves away from zero.

    multiplier·2^(shift − 31) exceeds 1/count by less than 2^(shift − 31), so halves fall on the outer side, and for
    sums up to 128·count in size nothing else does: the nearest other case is 1/(2·count) away (count < 2^20).
    """
    bits = 30 + (count - 1).bit_length()
    return (1 << bits) // count + 1, 31 - bits


def rounded_multiplier(scale: float, low: int, high: int, most: int) -> tuple[int, int]:
    """(multiplier, shift) of one product, rounded once, that equals round(sum·scale) in double, halves away from zero.

    That is what the reference kernel of FULLY_CONNECTED computes, per channel as per tensor. Both are monotone in the
    sum, so they are equal where each output begins at the same sum: every such place narrows the interval of
    multipliers, and any multiplier inside will do.

    Args:
        scale: A positive double.
        low: Outputs below it are clamped.
        high: Outputs above it are clamped.
        most: Largest size of a sum; its product with the multiplier stays below 2^62.

    Raises:
        InputError: No usable scale, or no multiplier inside.
    """
    fixed_point(scale)
    bits = min(62 - most.bit_length() - math.frexp(scale)[1], 60)
    outputs = np.arange(low + 1, high + 1, dtype=np.int64)
    edges = outputs - 0.5
    # The first sum whose output is at least this: the estimate is off by far less than two.
    estimate = np.ceil(edges / scale)
    kept = np.abs(estimate) <= most + 2
    edges, estimate = edges[kept], estimate[kept]
    tries = estimate[:, None] + np.arange(-2.0, 3.0)
    reached = np.where(edges[:, None] > 0, tries * scale >= edges[:, None], tries * scale > edges[:, None])
    first = tries[np.arange(len(tries)), reached.argmax(axis=1)]
    least, greatest = 1, (1 << 62 - most.bit_length()) - 1
    # first·m ≥ edge·2^bits > (first − 1)·m
    for output, found in zip(outputs[kept].tolist(), first.tolist(), strict=True):
        at = int(found)
        side = (2 * output - 1) << max(bits - 1, 0)
        if at > 0:
            least = max(least, -(-side // at))
            if at > 1:
                greatest = min(greatest, -(-side // (at - 1)) - 1)
        else:
            if at < 0:
                greatest = min(greatest, -side // -at)
            least = max(least, -side // (1 - at) + 1)
    if least > greatest or bits < 1:
        raise InputError(
            f"has a scale, {scale!r}, that no multiplier of 64-bit integers stands for", "convert the model again"
        )
    near = math.floor(math.ldexp(scale, bits) + 0.5)
    return min(max(near, least), greatest), 31 - bits


# --- softmax -------------------------------------------------------------------------------------------------------
def softmax_keeps_order(scale: float, beta: float, classes: int) -> bool | None:
    """Whether unequal int8 scores always get unequal softmax outputs where one of them is the largest.

    Then the label of the softmax's outputs is that of the scores, ties included: equal scores get equal outputs. None:
    too many classes to tell.

    Outputs grow with the exponential, so it is enough to look at the largest score and one a step below. An output
    differs from its real value 256·p by at most 1/2 from rounding and by far less than 1/4 from the reciprocal (three
    Newton steps from a relative error of 1/17): apart by 1.6 they cannot meet, and where the largest is clamped the
    others are below 2. The rest is tried, every sum.
    """
    multiplier, shift, least = softmax_constants(scale, beta)
    if least > -1:
        return True
    exponentials = softmax_exponentials(multiplier, shift, np.array([-1, 0], np.int64))
    gap = (ONE - int(exponentials[0])) / (1 << 31)
    first = max(UNIT, math.floor(160 * gap * UNIT))
    last = classes * UNIT
    if last - first > MOST_SUMS:
        return None
    for start in range(first, last + 1, 1 << 20):
        sums = np.arange(start, min(start + (1 << 20), last + 1), dtype=np.int64)
        below, top = (softmax_outputs(sums, value) for value in exponentials)
        if (below >= top).any():
            return False
    return True


def softmax_constants(scale: float, beta: float) -> tuple[int, int, int]:
    """Multiplier, left shift, and the least difference to the largest score that is not taken for −∞.

    quantization_util.cc: `PreprocessSoftmaxScaling`, `CalculateInputRadius`.
    """
    real = min(beta * scale * (1 << (31 - DIFF_BITS)), (1 << 31) - 1.0)
    multiplier, shift = fixed_point(real)
    if shift < 0:
        raise InputError(f"has the scale {scale}", "convert the model again with representative data")
    radius = math.floor(((1 << DIFF_BITS) - 1) * (1 << (31 - DIFF_BITS)) / (1 << shift))
    return multiplier, shift, -radius


def softmax(scores: Words, scale: float, beta: float) -> Words:
    """The int8 outputs of int8 scores, (rows × classes), bit for bit (reference/softmax.h)."""
    multiplier, shift, least = softmax_constants(scale, beta)
    differences = scores - scores.max(axis=1, keepdims=True)
    kept = differences >= least
    exponentials = softmax_exponentials(multiplier, shift, np.where(kept, differences, 0))
    sums = np.where(kept, _divided(exponentials, SUM_BITS), 0).sum(axis=1)
    return np.where(kept, softmax_outputs(sums[:, None], exponentials), -128)


def softmax_exponentials(multiplier: int, shift: int, differences: Words) -> Words:
    """exp of non-positive differences of scores, in Q0.31."""
    return _exp(_product(differences << shift, np.int64(multiplier)))


def softmax_outputs(sums: Words, exponentials: Words | np.int64) -> Words:
    """int8 outputs for sums of exponentials."""
    reciprocal, over = _reciprocal(sums)
    outputs = _divided(_product(reciprocal, exponentials), over + 31 - 8) - 128
    return np.clip(outputs, -128, 127)


def _product(a: Words, b: Words | np.int64) -> Words:
    """The high half of 2ab, rounded as gemmlowp's SaturatingRoundingDoublingHighMul; never saturated here."""
    product = a * b
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    return np.where(nudged >= 0, nudged >> 31, -((-nudged) >> 31))


def _divided(values: Words, exponent: Words | int) -> Words:
    """Division by a power of two, halves away from zero (gemmlowp: RoundingDivideByPOT)."""
    mask = (np.int64(1) << np.asarray(exponent, np.int64)) - 1
    above = (values & mask) > (mask >> 1) + (values < 0)
    return (values >> exponent) + above


EXP_STEPS = (
    (-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242),
)  # fmt: skip
"""exp(−2^k) in Q0.31."""


def _exp(values: Words) -> Words:
    """exp of non-positive Q5.26 numbers, in Q0.31 (gemmlowp: exp_on_negative_values)."""
    fraction = 31 - DIFF_BITS
    quarter = np.int64(1) << (fraction - 2)
    low = (values & (quarter - 1)) - quarter
    # A Taylor expansion around −1/8.
    x = (low << DIFF_BITS) + (1 << 28)
    x2 = _product(x, x)
    x3 = _product(x2, x)
    x4 = _product(x2, x2)
    tail = _divided(_product(_divided(x4, 2) + x3, np.int64(715827883)) + x2, 1)
    constant = np.int64(1895147668)
    result = constant + _product(x + tail, constant)
    remainder = low - values
    for exponent, factor in EXP_STEPS:
        has = (remainder >> (fraction + exponent)) & 1
        result = np.where(has != 0, _product(result, np.int64(factor)), result)
    return np.where(values == 0, ONE, result)


def _reciprocal(sums: Words) -> tuple[Words, Words]:
    """1/sum in Q0.31 of the sum scaled to [1, 2), and by how many bits it exceeds 1 (common.h: GetReciprocal)."""
    headroom = 32 - np.frexp(sums.astype(np.float64))[1].astype(np.int64)
    scaled = (sums << headroom) - (np.int64(1) << 31)
    half = _half_sum(scaled)
    # Newton's method in Q2.29 from 48/17 − 32/17·d.
    x = 1515870810 + _product(half, np.int64(-1010580540))
    for _ in range(3):
        x = x + (_product(x, (1 << 29) - _product(half, x)) << 2)
    return np.minimum(x << 1, ONE), SUM_BITS - headroom


def _half_sum(scaled: Words) -> Words:
    """(a + 1)/2 in Q0.31, rounded."""
    total = scaled + ONE
    return np.where(total >= 0, total + 1, total - 1) // 2

"""Hits among draws go in, the exact Clopper-Pearson interval for the share comes out, rounded outward by proof."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

DIGITS = 60
SLACK = Decimal("1e-25")
"""More than all rounding errors of 60-digit logarithms below 10^20 together."""
HALF_LOG_TWO_PI = Decimal("0.918938533204672741780329736405617639861397473637783412817")
FIXED = 80
EXACT_FACTORIAL = 200


def clopper_pearson(hits: int, draws: int, confidence: Fraction) -> tuple[Fraction, Fraction]:
    """Ends of a two-sided interval that holds the true share with probability at least `confidence`.

    Clopper and Pearson, Biometrika 26 (1934): the lower end is the share at which `hits` or more have probability
    (1 − confidence)/2, and the upper end likewise. Both ends are dyadic rationals no nearer to the centre than the
    true ones, by about one part in 10^12; 0 and 1 are exact when hits is 0 or draws.

    Raises:
        ValueError: Not 0 ≤ hits ≤ draws, or confidence not strictly between 0 and 1.
    """
    if not 0 <= hits <= draws:
        raise ValueError(f"{hits} hits among {draws} draws")
    tail = (1 - Fraction(confidence)) / 2
    if not 0 < tail < Fraction(1, 2):
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
    return _lower_end(hits, draws, tail), 1 - _lower_end(draws - hits, draws, tail)


def _lower_end(hits: int, draws: int, tail: Fraction) -> Fraction:
    """A share at which `hits` or more of `draws` have probability at most `tail`, close to the largest such."""
    if hits == 0:
        return Fraction(0)
    from scipy.special import betaincinv

    with localcontext() as context:
        context.prec = DIGITS
        log_tail = _log(tail) - SLACK
        guess = Fraction(float(betaincinv(hits, draws - hits + 1, float(tail))))
        if not 0 < guess < Fraction(hits, draws):
            guess = Fraction(hits, draws)
        margin = Fraction(1, 1 << 44)
        while margin < 1:
            share = _rounded_down(guess * (1 - margin))
            if share > 0 and _log_tail_above(hits, draws, share) <= log_tail:
                return share
            margin *= 2
    return Fraction(0)


def _rounded_down(share: Fraction) -> Fraction:
    """The nearest dyadic number below with 60 significant bits."""
    shift = 60 + max(0, share.denominator.bit_length() - share.numerator.bit_length())
    return Fraction(math.floor(share * (1 << shift)), 1 << shift)


def _log_tail_above(hits: int, draws: int, share: Fraction) -> Decimal:
    """An upper bound on ln P(at least `hits` of `draws`) for 0 < share < hits/draws.

    P(X ≥ k) = P(X = k)·(1 + r₀ + r₀r₁ + …) with r_j = (n−k−j)/(k+j+1)·p/(1−p), which falls in j and is below 1; the
    series is summed in fixed point, rounded up, and what is left is at most that of a geometric series.
    """
    up, down = share.numerator, share.denominator - share.numerator
    one = 1 << FIXED
    term = total = one
    for place in range(draws - hits):
        numerator, denominator = (draws - hits - place) * up, (hits + place + 1) * down
        term = -(-term * numerator // denominator)
        total += term
        if numerator < denominator and term * numerator * one < (denominator - numerator) * total << 30:
            # The rest is below term·r/(1−r), itself below total·2^-50.
            total += -(-total >> 50)
            break
    log_share, log_rest = _log(share), _log(1 - share)
    log_mass = _log_choose(draws, hits) + hits * log_share + (draws - hits) * log_rest
    return log_mass + _log(Fraction(total, one)) + SLACK


def _log(value: Fraction) -> Decimal:
    return Decimal(value.numerator).ln() - Decimal(value.denominator).ln()


def _log_choose(n: int, k: int) -> Decimal:
    """ln of the binomial coefficient, within 10^-27."""
    return _log_factorial(n) - _log_factorial(k) - _log_factorial(n - k)


def _log_factorial(n: int) -> Decimal:
    """ln n!, from the integer itself or by Stirling's series, whose error is below the first term left out."""
    if n <= EXACT_FACTORIAL:
        return Decimal(math.factorial(n)).ln()
    x = Decimal(n)
    terms = ((1, 12), (-1, 360), (1, 1260), (-1, 1680), (1, 1188), (-691, 360360), (1, 156), (-3617, 122400))
    series = sum((Decimal(a) / b / x ** (2 * k + 1) for k, (a, b) in enumerate(terms)), Decimal(0))
    return (x + Decimal("0.5")) * x.ln() - x + HALF_LOG_TWO_PI + series


def scaled_outward(interval: tuple[Fraction, Fraction], total: int) -> tuple[int, int]:
    """The interval of a share as integers out of `total`, the lower one rounded down and the upper one up."""
    return math.floor(interval[0] * total), math.ceil(interval[1] * total)

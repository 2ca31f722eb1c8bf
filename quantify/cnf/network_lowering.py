"""An integer network over named integers in, its scores as sums and its label as truth values or an index out.

Every neuron has the interval that its operands' intervals prove on the region's box, and the narrowest word for it;
where the interval decides an activation, or a comparison of two scores, nothing is written for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from quantify.cnf.straight import negated
from quantify.cnf.sums import Sum
from quantify.cnf.words import BIT, Interval, Word, join, literal, wide, word_for
from quantify.errors import InputError
from quantify.ir.network import IntLayer, IntNetwork

FEW_TERMS = 2
"""Longest sum that the next layer repeats for each of its neurons instead of naming it."""


class Arithmetic(Protocol):
    """What the lowering of predicates offers: names with proven intervals for sums, selects and truth values."""

    intervals: dict[str, Interval]

    def range(self, value: Sum) -> Interval: ...

    def value(self, total: Sum) -> str: ...

    def integer(self, interval: Interval, text: str) -> str: ...

    def extreme(self, which: str, arguments: list[Sum]) -> Sum: ...

    def sign(self, op: str, value: Sum) -> str: ...

    def indicator(self, text: str) -> Sum: ...

    def let(self, kind: str, word: Word, lines: Sequence[str], operator: str = "") -> str: ...

    def chain(self, operator: str, absorbing: str, texts: Iterable[str]) -> str: ...


def products(network: IntNetwork) -> int:
    """Number of products of a weight and an activation."""
    return sum(len(layer.rows.values) for layer in network.layers)


def scores(to: Arithmetic, network: IntNetwork, positions: Sequence[Sum]) -> list[Sum]:
    """The integer scores, one sum an output.

    Args:
        to: Takes the assignments.
        network: Its first layer reads the positions.
        positions: One sum an input.

    Raises:
        InputError: A layer is rescaled as a quantised library does it, or words would be too wide.
    """
    values = list(positions)
    for layer in network.layers:
        if layer.members is not None:
            windows = layer.members.tolist()
            values = [to.extreme("max", [values[m] for m in window if m >= 0]) for window in windows]
        else:
            values = [_activated(to, layer, total) for total in _weighted(to, layer, values)]
    # The difference of two scores is one sum without naming them; more comparisons share the named scores.
    return values if len(values) <= 2 else [_short(to, total) for total in values]


def _short(to: Arithmetic, total: Sum) -> Sum:
    return total if len(total.terms) <= FEW_TERMS else Sum(0, {to.value(total): 1})


def _weighted(to: Arithmetic, layer: IntLayer, values: Sequence[Sum]) -> list[Sum]:
    """Σ weights·x + bias of every row."""
    inputs = [_short(to, total) for total in values]
    start, columns, weights = layer.rows.start.tolist(), layer.rows.columns.tolist(), layer.rows.values.tolist()
    totals = []
    for row, bias in enumerate(layer.bias.tolist()):
        total = Sum(bias)
        for place in range(start[row], start[row + 1]):
            if weights[place]:
                total.add(inputs[columns[place]], weights[place])
        word_for(to.range(total))  # refuses what is too wide even where no statement is made of it
        totals.append(total)
    return totals


def _activated(to: Arithmetic, layer: IntLayer, total: Sum) -> Sum:
    """The layer's elementwise function of one accumulator."""
    match layer.activation:
        case "relu":
            return _clamped(to, total, 0, layer.cap)
        case "leaky":
            return _leaky(to, total, layer.positive, layer.negative)
        case "sign":
            return _sign(to, total, layer.at_zero)
        case "floor_shift":
            return _clamped(to, _shifted(to, total, layer.shift), layer.low, layer.high)
        case "requantise":
            raise InputError(
                "a layer rescales as a quantised library does, which is not written in C",
                "use another engine: `--engine enumerate` counts such networks",
            )
        case _:
            return total


def _clamped(to: Arithmetic, total: Sum, least: int, most: int | None) -> Sum:
    """min(max(total, least), most)."""
    if to.range(total)[0] < least:
        total = to.extreme("max", [total, Sum(least)])
    if most is not None and to.range(total)[1] > most:
        total = to.extreme("min", [total, Sum(most)])
    return total


def _leaky(to: Arithmetic, total: Sum, positive: int, negative: int) -> Sum:
    """positive·total where total ≥ 0, else negative·total."""
    least, most = to.range(total)
    scaled = Sum(0)
    if least >= 0 or most <= 0 or positive == negative:
        factor = positive if least >= 0 else negative
        if factor:
            scaled.add(total, factor)
        return scaled
    name = to.value(total)
    interval = join(_scaled((0, most), positive), _scaled((least, 0), negative))
    word = word_for(join(join(interval, (least, most)), join((positive, positive), (negative, negative))))
    shown = wide(name, word)
    up, down = (f"{wide(literal(factor, word), word)} * {shown}" for factor in (positive, negative))
    return Sum(0, {to.integer(interval, f"{shown} >= 0 ? {up} : {down}"): 1})


def _scaled(interval: Interval, factor: int) -> Interval:
    low, high = sorted(factor * end for end in interval)
    return low, high


def _sign(to: Arithmetic, total: Sum, at_zero: int) -> Sum:
    """1 above zero, −1 below, `at_zero` at it: truth values with coefficients, which need no adder of their own."""
    result = Sum(-1)
    if at_zero >= 0:
        result.add(to.indicator(negated(to.sign("<", total))), 1 if at_zero == 0 else 2)
    if at_zero <= 0:
        result.add(to.indicator(negated(to.sign("<=", total))), 1 if at_zero == 0 else 2)
    return result


def _shifted(to: Arithmetic, total: Sum, shift: int) -> Sum:
    """⌊total / 2^shift⌋, by a shift of a number that is made non-negative: with k = ⌊least / 2^shift⌋ it is k less."""
    least, most = to.range(total)
    quotient = least >> shift
    if shift == 0:
        return total
    if most >> shift == quotient:
        return Sum(quotient)
    name = to.value(Sum(total.constant - (quotient << shift), dict(total.terms)))
    most = to.intervals[name][1]
    text = f"{wide(name, word_for((0, most)))} >> {shift}"
    return Sum(quotient, {to.integer((0, most >> shift), text): 1})


# --- the label: the lowest index of the largest score ---------------------------------------------------------------
def label_in(to: Arithmetic, found: Sequence[Sum], wanted: Collection[int]) -> str:
    """Truth of the label being one of `wanted`; the smaller side is written."""
    inside = [label for label in range(len(found)) if label in wanted]
    outside = [label for label in range(len(found)) if label not in wanted]
    if len(outside) < len(inside):
        return negated(to.chain("||", "1", [_wins(to, found, label) for label in outside]))
    return to.chain("||", "1", [_wins(to, found, label) for label in inside])


def label_index(to: Arithmetic, found: Sequence[Sum], word: Word) -> str:
    """The label in `word`: a name or a literal."""
    index = str(len(found) - 1)
    for label in reversed(range(len(found) - 1)):
        won = _wins(to, found, label)
        if won == "1":
            index = str(label)
        elif won != "0":
            index = to.let("n", word, [f"({won}) ? {label} : {index}"])
    return index


def _wins(to: Arithmetic, found: Sequence[Sum], label: int) -> str:
    """Truth of the label: above all scores before it, and not below those after it."""
    before = [negated(_at_least(to, found, other, label)) for other in range(label)]
    after = [_at_least(to, found, label, other) for other in range(label + 1, len(found))]
    return to.chain("&&", "0", before + after)


def _at_least(to: Arithmetic, found: Sequence[Sum], first: int, second: int) -> str:
    """score `first` ≥ score `second`, named, so that both labels read one comparison."""
    difference = Sum.of([found[second]])
    difference.add(found[first], -1)
    text = to.sign("<=", difference)
    return text if text in ("0", "1") or text.removeprefix("!").isalnum() else to.let("b", BIT, [text])

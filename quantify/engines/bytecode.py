"""A tree and predicates in integers go in, arrays for the native evaluator come out (`native/machine.inc` runs them).

Every intermediate value is bounded by interval arithmetic while the program is written, so that the machine width
is chosen by proof: 64 bits, 128 bits, or `NotNativeError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantify.ir.predicate import (
    AllOf,
    Always,
    AnyOf,
    CountOf,
    Extreme,
    FloorDiv,
    HasLabel,
    IntExpr,
    Linear,
    Negation,
    Plus,
    Predicate,
    Score,
    Sign,
    Times,
    Within,
)
from quantify.ir.problem import GridProblem, GridTree

(
    HALT, CONSTANT, WITHIN, LABEL, MULTIPLY_ADD, ADD, TIMES, FLOOR, MINIMUM, MAXIMUM,
    LESS, AT_MOST, EQUAL, UNEQUAL, NOT, IF_FALSE, IF_TRUE, SCORE,
) = range(18)  # fmt: skip
SIGNS = {"<": LESS, "<=": AT_MOST, "==": EQUAL, "!=": UNEQUAL}
NODE = np.dtype(
    [("low", "i8"), ("high", "i8"), ("feature", "i4"), ("left", "i4"), ("right", "i4"), ("label", "i4")], align=True
)
STEP = np.dtype([("op", "i4"), ("target", "i4"), ("a", "i4"), ("b", "i4"), ("x", "i8"), ("y", "i8")], align=True)
MAX_SIZE = 1 << 62
"""Features with more positions than this are beyond the native evaluator."""


class NotNativeError(Exception):
    """The problem does not fit the machine's words; the argument says what does not."""


@dataclass(frozen=True)
class Program:
    """Steps that leave the truth of output i in register i."""

    steps: NDArray[np.void]
    label_sets: NDArray[np.uint8]
    """One row of 0/1 per label set, flattened; a step names the start of its row."""
    registers: int
    outputs: int
    wide: bool
    """Whether registers must have 128 bits."""
    uses_label: bool
    features: frozenset[int]
    """Features that the predicates read (the tree's not included)."""


def native_tree(tree: GridTree, sizes: Sequence[int]) -> NDArray[np.void]:
    """The tree's nodes as an array of `NODE`, cuts clamped to the features' sizes.

    Raises:
        NotNativeError: A feature has more than 2^62 positions.
    """
    check_sizes(sizes)
    nodes = np.zeros(len(tree.feature), NODE)
    limits = [sizes[f] if f >= 0 else 0 for f in tree.feature]
    nodes["low"] = [min(max(low, 0), limit) for low, limit in zip(tree.low, limits, strict=True)]
    nodes["high"] = [min(max(high, 0), limit) for high, limit in zip(tree.high, limits, strict=True)]
    for name in ("feature", "left", "right", "label"):
        nodes[name] = getattr(tree, name)
    return nodes


def check_sizes(sizes: Sequence[int]) -> None:
    """Raise `NotNativeError` when a feature's positions do not fit 64-bit words with room to spare."""
    widest = max(sizes, default=0)
    if widest > MAX_SIZE:
        raise NotNativeError(f"a feature has {widest} positions")


def compile_predicates(
    predicates: Sequence[Predicate], problem: GridProblem, guard: Predicate | None = None
) -> Program:
    """One program that decides all `predicates`; with a `guard` that is false, all outputs are false.

    Raises:
        NotNativeError: Some intermediate value may need more than 127 bits, or a feature is too wide.
    """
    check_sizes(problem.sizes)
    writer = _Writer(problem.sizes, problem.labels, len(predicates))
    patch = None
    if guard is not None:
        scratch = len(predicates)
        for target in range(len(predicates)):
            writer.emit(CONSTANT, target)
        writer.truth(guard, scratch)
        patch = writer.emit(IF_FALSE, scratch)
    for target, predicate in enumerate(predicates):
        writer.truth(predicate, target, len(predicates))
    if patch is not None:
        writer.steps[patch][2] = len(writer.steps)
    writer.emit(HALT, 0)
    return writer.finish()


class _Writer:
    """Appends steps; `truth` and `value` write code that leaves a result in the register `target`."""

    def __init__(self, sizes: Sequence[int], labels: int, outputs: int) -> None:
        self.sizes = sizes
        self.labels = labels
        self.outputs = outputs
        self.steps: list[list[int]] = []
        self.sets: dict[tuple[int, ...], int] = {}
        self.registers = max(1, outputs)
        self.peak = 0
        self.features: set[int] = set()

    def emit(self, op: int, target: int, a: int = 0, b: int = 0, x: int = 0, y: int = 0) -> int:
        self.registers = max(self.registers, target + 1)
        self.steps.append([op, target, a, b, x, y])
        return len(self.steps) - 1

    def emit_constant(self, op: int, target: int, value: int, a: int = 0) -> None:
        self.note(value, value)
        self.emit(op, target, a, 0, value >> 64, value & (1 << 64) - 1)

    def note(self, low: int, high: int) -> tuple[int, int]:
        self.peak = max(self.peak, high, -low - 1)
        return low, high

    def truth(self, predicate: Predicate, target: int, free: int | None = None) -> None:
        """Code for a truth value; registers from `free` on (default: after the target) may be overwritten."""
        scratch = max(target + 1, free or 0)
        match predicate:
            case Always(value):
                self.emit_constant(CONSTANT, target, int(value))
            case Within(feature, low, high):
                self.features.add(feature)
                size = self.sizes[feature]
                self.emit(WITHIN, target, feature, 0, min(max(low, 0), size), min(max(high, 0), size))
            case HasLabel(labels):
                start = self.sets.setdefault(labels, len(self.sets) * self.labels)
                self.emit(LABEL, target, start)
            case Sign(op, argument):
                self.value(argument, target, scratch)
                self.emit(SIGNS[op], target)
            case Negation(argument):
                self.truth(argument, target, scratch)
                self.emit(NOT, target)
            case AllOf(arguments):
                self._chain(arguments, target, scratch, IF_FALSE, 1)
            case AnyOf(arguments):
                self._chain(arguments, target, scratch, IF_TRUE, 0)

    def _chain(self, arguments: tuple[Predicate, ...], target: int, free: int, leave: int, empty: int) -> None:
        if not arguments:
            self.emit_constant(CONSTANT, target, empty)
        patches = []
        for argument in arguments:
            self.truth(argument, target, free)
            patches.append(self.emit(leave, target))
        for patch in patches:
            self.steps[patch][2] = len(self.steps)

    def value(self, expression: IntExpr, target: int, free: int) -> tuple[int, int]:
        """Code for an integer; returns the interval it is proven to lie in."""
        match expression:
            case Linear(terms, constant):
                return self._linear(terms, constant, target)
            case Plus(arguments):
                return self._fold(arguments, target, free, ADD)
            case Times(left, right):
                return self._fold((left, right), target, free, TIMES)
            case Extreme(which, arguments):
                return self._fold(arguments, target, free, MINIMUM if which == "min" else MAXIMUM)
            case FloorDiv(argument, divisor):
                low, high = self.value(argument, target, free)
                self.emit_constant(FLOOR, target, divisor)
                # The machine forms quotient · divisor, which truncation keeps within the argument's magnitude.
                return self.note(low // divisor, high // divisor)
            case CountOf(truths):
                self.emit_constant(CONSTANT, target, 0)
                for truth in truths:
                    self.truth(truth, free)
                    self.emit(ADD, target, target, free)
                return self.note(0, len(truths))
            case Score(index, low, high):
                self.emit(SCORE, target, index)
                return self.note(low, high)

    def _linear(self, terms: tuple[tuple[int, int], ...], constant: int, target: int) -> tuple[int, int]:
        self.emit_constant(CONSTANT, target, constant)
        low = high = constant
        for feature, coefficient in terms:
            self.features.add(feature)
            reach = coefficient * max(0, self.sizes[feature] - 1)
            self.note(min(0, reach), max(0, reach))
            low, high = self.note(low + min(0, reach), high + max(0, reach))
            self.emit_constant(MULTIPLY_ADD, target, coefficient, feature)
        return low, high

    def _fold(self, arguments: tuple[IntExpr, ...], target: int, free: int, op: int) -> tuple[int, int]:
        if not arguments:
            self.emit_constant(CONSTANT, target, 0)
            return 0, 0
        low, high = self.value(arguments[0], target, free)
        for argument in arguments[1:]:
            other_low, other_high = self.value(argument, free, free + 1)
            self.emit(op, target, target, free)
            if op == ADD:
                low, high = low + other_low, high + other_high
            elif op == TIMES:
                corners = [a * b for a in (low, high) for b in (other_low, other_high)]
                low, high = min(corners), max(corners)
            elif op == MINIMUM:
                low, high = min(low, other_low), min(high, other_high)
            else:
                low, high = max(low, other_low), max(high, other_high)
            self.note(low, high)
        return low, high

    def finish(self) -> Program:
        """The program as arrays.

        Raises:
            NotNativeError: 128 bits do not suffice.
        """
        bits = self.peak.bit_length() + 1
        if bits > 128:
            raise NotNativeError(f"the predicate's arithmetic needs {bits} bits")
        columns = np.zeros(len(self.steps), STEP)
        for place, name in enumerate(("op", "target", "a", "b")):
            columns[name] = [step[place] for step in self.steps]
        for place, name in ((4, "x"), (5, "y")):
            columns[name] = [_signed(step[place]) for step in self.steps]
        sets = np.zeros((max(1, len(self.sets)), max(1, self.labels)), np.uint8)
        for row, members in enumerate(self.sets):
            sets[row, [label for label in members if 0 <= label < self.labels]] = 1
        features = frozenset(self.features)
        return Program(columns, sets.ravel(), self.registers, self.outputs, bits > 64, bool(self.sets), features)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word

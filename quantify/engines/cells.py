"""A formula and a box to what it counts at once: closed forms for lines and sums, truth tables for the rest.

A truth table is one Python integer with a bit per cell. A feature that only ranges look at is cut into the few cells
between their ends; one that arithmetic reads has a cell per position.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import pairwise
from math import prod
from operator import and_, or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.engines.clauses import (
    FALSE,
    TRUE,
    Affine,
    Box,
    Clauses,
    Compare,
    Constant,
    Function,
    In,
    Junction,
    Test,
)
from quantify.engines.masses import Masses
from quantify.engines.parts import summands
from quantify.engines.sums import WORD, Spread, line_spread, mass_below, points_below, turned

MOST_BITS = 2**18
"""Largest truth table of ranges alone, in cells."""
MOST_NUMBERS = 2**17
"""Largest truth table with arithmetic or with cells of different mass."""
MOST_REMEMBERED = 100_000

Key = tuple[int, tuple[tuple[int, int], ...]]


class Cells:
    """Counts formulas of one store under one algebra, and remembers the answers."""

    def __init__(self, clauses: Clauses, masses: Masses) -> None:
        self._clauses = clauses
        self._masses = masses
        self._known: dict[Key, Any] = {}

    def count(self, formula: int, box: Box) -> Any:
        """The element that counts the formula over the features it reads, or None when it must be split first."""
        key = (formula, tuple(box[f] for f in self._clauses.used(formula)))
        if key not in self._known:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = self._count(formula, box)
        return self._known[key]

    def count_negated(self, formula: int, box: Box) -> Any:
        """The element that counts where the formula is false, over the same features; None as above."""
        clauses, mask = self._clauses, self._clauses.features[formula]
        opposite = clauses.restrict(clauses.negated(formula), box, mask)
        if opposite == FALSE:
            return self._masses.element([0] * (self._masses.degree + 1))
        counted = self._masses.unit if opposite == TRUE else self.count(opposite, box)
        if counted is not None:
            for feature in clauses.used(formula):
                if not clauses.features[opposite] >> feature & 1:
                    counted = self._masses.times(counted, self._masses.part(feature, *box[feature]))
        return counted

    def _count(self, formula: int, box: Box) -> Any:
        node = self._clauses.nodes[formula]
        if isinstance(node, In):
            return self._masses.times(self._masses.unit, self._masses.part(node.feature, node.low, node.high))
        if self._masses.scalar:
            closed = self._closed(node, box)
            if closed is not None:
                return closed
        return self._tabulated(formula, box)

    def _whole(self, features: Iterable[int], box: Box) -> int:
        """Mass of the box in these features (for boxes only)."""
        return prod(self._masses.total(self._masses.part(f, *box[f])) for f in features)

    # --- lines and sums ------------------------------------------------------------------------------------------
    def _closed(self, node: object, box: Box) -> int | None:
        if isinstance(node, Compare):
            return self._compared(node, box)
        if isinstance(node, Test):
            return self._summed(node, box)
        if isinstance(node, Junction) and len(node.arguments) == 2:
            one, other = (self._clauses.nodes[argument] for argument in node.arguments)
            if isinstance(one, Compare) and isinstance(other, Compare):
                return self._strip(node, one, other, box)
        return None

    def _compared(self, node: Compare, box: Box) -> int | None:
        if node.op == "<=":
            counts = self._below(node, (-node.constant,), box)
            return None if counts is None else counts[0]
        counts = self._below(node, (-node.constant, -node.constant - 1), box)
        if counts is None:
            return None
        at = counts[0] - counts[1]
        return at if node.op == "==" else self._whole((f for f, _ in node.terms), box) - at

    def _below(self, node: Compare, limits: tuple[int, ...], box: Box) -> list[int] | None:
        """Mass with Σ coefficient·position ≤ each limit."""
        lines, start = turned([(c, *box[f]) for f, c in node.terms], 0)
        moved = [limit - start for limit in limits]
        if all(self._masses.plain(f) for f, _ in node.terms):
            counts = [points_below(lines, limit) for limit in moved]
            if None not in counts:
                return [count for count in counts if count is not None]
            return mass_below([line_spread(line) for line in lines], moved)
        spreads = []
        for (feature, _), line in zip(node.terms, lines, strict=True):
            spread = self._value_spread(self._clauses.affine(((feature, dict(node.terms)[feature]),), 0), box)
            if spread is None:
                return None
            spreads.append(line_spread(line) if self._masses.plain(feature) else spread[0])
        return mass_below(spreads, moved)

    def _strip(self, node: Junction, one: Compare, other: Compare, box: Box) -> int | None:
        """Both or either of L + a <= 0 and −L + b <= 0, that is b <= L <= −a, or L outside of the gap between."""
        if one.op != "<=" or other.op != "<=" or one.terms != tuple((f, -c) for f, c in other.terms):
            return None
        bottom, top = other.constant, -one.constant
        if node.every:
            if bottom > top:
                return 0
            counts = self._below(one, (top, bottom - 1), box)
            return None if counts is None else counts[0] - counts[1]
        if bottom <= top + 1:
            return self._whole((f for f, _ in one.terms), box)
        low, high = self._below(one, (top,), box), self._below(other, (-bottom,), box)
        return None if low is None or high is None else low[0] + high[0]

    def _summed(self, node: Test, box: Box) -> int | None:
        """A test of a sum of numbers that share no feature, such as a count or absolute differences added up."""
        spreads, start = [], 0
        parts = summands(self._clauses, node.number)
        if sum(self._clauses.features[number] != 0 for number in parts) < 2:
            return None
        for number in parts:
            constant = self._clauses.constant_of(number)
            if constant is not None:
                start += constant
                continue
            spread = self._value_spread(number, box)
            if spread is None:
                return None
            spreads.append(spread[0])
            start += spread[1]
        limits = (-start,) if node.op == "<=" else (-start, -start - 1)
        counts = mass_below(spreads, limits)
        if counts is None:
            return None
        if node.op == "<=":
            return counts[0]
        at = counts[0] - counts[1]
        return at if node.op == "==" else prod(spread.total for spread in spreads) - at

    def _value_spread(self, number: int, box: Box) -> tuple[Spread, int] | None:
        """The distribution of a number over its box, and the value that its 0 stands for."""
        table = Table.over(self._clauses, self._masses, number, box, MOST_NUMBERS)
        if table is None:
            return None
        values = table.number(number)
        distinct, places = np.unique(values, return_inverse=True)
        masses = np.zeros(len(distinct), dtype=object)
        if table.uniform:
            masses[:] = np.bincount(places.reshape(-1), minlength=len(distinct)).tolist()
        else:
            np.add.at(masses, places.reshape(-1), table.flat_masses())
        start = int(distinct[0])
        exact = [int(value) - start for value in distinct.tolist()]
        spread = Spread(np.array(exact, dtype=object), masses, 0, len(exact), exact[-1], int(sum(masses)))
        return spread, start

    # --- truth tables --------------------------------------------------------------------------------------------
    def _tabulated(self, formula: int, box: Box) -> Any:
        table = Table.over(self._clauses, self._masses, formula, box, MOST_BITS)
        if table is None:
            return None
        small = table.size * (self._masses.degree + 1) <= MOST_NUMBERS
        if not small and not (table.uniform and not table.arithmetic):
            return None
        bits = table.truth(formula)
        if table.uniform:
            return self._masses.element([bits.bit_count()])
        return self._masses.element(table.contracted(bits))


class Table:
    """The cells of a box in the features of one formula or number, the last feature running fastest."""

    def __init__(
        self, clauses: Clauses, masses: Masses, features: list[int], edges: list[Sequence[int]], arithmetic: int
    ) -> None:
        self._clauses = clauses
        self._masses = masses
        self._features = features
        self._edges = edges
        """Cell i of a feature runs from edge i to edge i + 1."""
        self._counts = [len(ends) - 1 for ends in edges]
        self.arithmetic = arithmetic
        """Mask of the features that arithmetic reads."""
        self.size = prod(self._counts)
        self.uniform = masses.scalar and all(
            masses.plain(f) and ends[-1] - ends[0] == len(ends) - 1 for f, ends in zip(features, edges, strict=True)
        )
        """Whether every cell has mass 1."""
        self._full = (1 << self.size) - 1
        self._truths: dict[int, int] = {TRUE: self._full, FALSE: 0}

    @classmethod
    def over(cls, clauses: Clauses, masses: Masses, node: int, box: Box, most: int) -> Table | None:
        """The table for a formula or number, None when it has more than `most` cells."""
        ends: dict[int, set[int]] = {}
        arithmetic = _collect(clauses, node, ends)
        features = clauses.used(node)
        edges: list[Sequence[int]] = []
        size = 1
        for f in features:
            low, high = box[f]
            if arithmetic >> f & 1:
                size *= high - low
                edges.append(range(low, high + 1))
            else:
                inner = sorted(cut for cut in ends[f] if low < cut < high)
                size *= len(inner) + 1
                edges.append([low, *inner, high])
            if size > most:
                return None
        return cls(clauses, masses, features, edges, arithmetic)

    def truth(self, formula: int) -> int:
        """The truth table of a formula over these cells."""
        found = self._truths.get(formula)
        if found is None:
            found = self._truths[formula] = self._truth(formula)
        return found

    def _truth(self, formula: int) -> int:
        node = self._clauses.nodes[formula]
        if isinstance(node, In):
            return self._range(node)
        if isinstance(node, Junction):
            return reduce(and_ if node.every else or_, (self.truth(argument) for argument in node.arguments))
        if isinstance(node, Compare):
            number, op = self._clauses.affine(node.terms, node.constant), node.op
        else:
            assert isinstance(node, Test)
            number, op = node.number, node.op
        values = self.number(number)
        mask = values <= 0 if op == "<=" else values == 0 if op == "==" else values != 0
        return int.from_bytes(np.packbits(mask.astype(bool), bitorder="little").tobytes(), "little")

    def _range(self, node: In) -> int:
        place = self._features.index(node.feature)
        ends = self._edges[place]
        first, last = bisect_left(ends, node.low), bisect_left(ends, node.high)
        if last >= len(ends):
            last = len(ends) - 1
        if first >= last:
            return 0
        stride = prod(self._counts[place + 1 :])
        period = stride * self._counts[place]
        block = ((1 << (last - first) * stride) - 1) << first * stride
        return _repeated(block, period, self.size // period)

    def number(self, number: int) -> NDArray[Any]:
        """The values of a number in every cell: int64 where nothing can overflow, else Python integers."""
        node = self._clauses.nodes[number]
        if isinstance(node, Affine):
            return self._affine(node)
        assert isinstance(node, Function)
        if node.name == "count":
            total = np.zeros(self.size, dtype=np.int64)
            for argument in node.arguments:
                total += self._mask(self.truth(argument))
            return total
        arguments = [self.number(argument) for argument in node.arguments]
        if node.name == "div":
            return arguments[0] // (node.divisor if node.divisor < WORD else _as_object(node.divisor))
        if node.name in ("min", "max"):
            choose = np.minimum if node.name == "min" else np.maximum
            return reduce(choose, arguments)
        sizes = [max(abs(int(a.min())), abs(int(a.max()))) for a in arguments]
        safe = (prod(sizes) if node.name == "times" else sum(sizes)) < WORD
        exact = arguments if safe else [argument.astype(object) for argument in arguments]
        return reduce(np.multiply if node.name == "times" else np.add, exact)

    def _affine(self, node: Affine) -> NDArray[Any]:
        coefficients = dict(node.terms)
        farthest = abs(node.constant) + sum(
            abs(coefficients.get(f, 0)) * ends[-1] for f, ends in zip(self._features, self._edges, strict=True)
        )
        dtype: Any = np.int64 if farthest < WORD else object
        values: NDArray[Any] = np.array([node.constant], dtype=dtype)
        for f, ends, count in zip(self._features, self._edges, self._counts, strict=True):
            if f in coefficients:
                starts = np.arange(ends[0], ends[-1]) if dtype is np.int64 else np.array(ends[:-1], dtype=object)
                steps = starts * coefficients[f]
                values = (values[:, None] + steps[None, :]).reshape(-1)
            else:
                values = np.repeat(values, count)
        return values

    def _mask(self, bits: int) -> NDArray[np.uint8]:
        packed = np.frombuffer(bits.to_bytes((self.size + 7) // 8, "little"), dtype=np.uint8)
        return np.unpackbits(packed, count=self.size, bitorder="little")

    def flat_masses(self) -> NDArray[Any]:
        """The mass of every cell, as Python integers (for boxes)."""
        flat: NDArray[Any] = np.array([1], dtype=object)
        for f, ends in zip(self._features, self._edges, strict=True):
            row = np.array([self._masses.row(f, *cell)[0] for cell in pairwise(ends)], dtype=object)
            flat = (flat[:, None] * row[None, :]).reshape(-1)
        return flat

    def contracted(self, bits: int) -> list[int]:
        """Mass by distance of the cells whose bit is set: one feature after another is summed out."""
        rows = [
            np.array([self._masses.row(f, *cell) for cell in pairwise(ends)], dtype=object)
            for f, ends in zip(self._features, self._edges, strict=True)
        ]
        exact = prod(max(1, int(row.sum())) for row in rows) < WORD
        dtype: Any = np.int64 if exact else object
        width = self._masses.degree + 1
        table: NDArray[Any] = self._mask(bits).astype(dtype)[:, None]
        for row in reversed(rows):
            count = len(row)
            old = table.reshape(-1, count, table.shape[1])
            table = np.zeros((len(old), width), dtype=dtype)
            for cell, distance in np.argwhere(row != 0).tolist():
                kept = old[:, cell, : width - distance]
                table[:, distance : distance + kept.shape[1]] += kept * row[cell, distance]
        return [int(mass) for mass in table.reshape(-1, table.shape[1]).sum(axis=0).tolist()]


def _as_object(value: int) -> NDArray[Any]:
    return np.array(value, dtype=object)


def _repeated(block: int, period: int, times: int) -> int:
    """`block` (of `period` bits) written `times` times in a row, by doubling."""
    result, filled = 0, 0
    while times:
        if times & 1:
            result |= block << filled
            filled += period
        block |= block << period
        period *= 2
        times >>= 1
    return result


def _collect(clauses: Clauses, node: int, ends: dict[int, set[int]]) -> int:
    """Ends of the ranges per feature go to `ends`; returns the mask of features that arithmetic reads."""
    arithmetic = 0
    seen = {node}
    stack = [node]
    while stack:
        entry = clauses.nodes[stack.pop()]
        if isinstance(entry, In):
            ends.setdefault(entry.feature, set()).update((entry.low, entry.high))
        elif isinstance(entry, Compare | Affine):
            for f, _ in entry.terms:
                arithmetic |= 1 << f
        elif not isinstance(entry, Constant):
            below = (entry.number,) if isinstance(entry, Test) else entry.arguments
            fresh = [argument for argument in below if argument not in seen]
            seen.update(fresh)
            stack.extend(fresh)
    return arithmetic

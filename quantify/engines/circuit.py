"""Boolean functions of input bits, built gate by gate, go in; a list of three-input gates for native code comes out.

A literal is 2·node + complement; node 0 is the constant, so `FALSE` is 0 and `TRUE` is 1. Equal gates are one gate
(structural hashing), and constants are folded on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FALSE, TRUE = 0, 1
AND, XOR, CHOOSE = range(3)
GATE = np.dtype([("a", "u4"), ("b", "u4"), ("c", "u4"), ("table", "u4")], align=True)
NATIVE_FALSE = 0xFFFFFFFE
MASKS = (0xF0, 0xCC, 0xAA)
"""Truth tables of the three operands of a gate, in the order of vpternlog."""


class TooManyGatesError(Exception):
    """The circuit has outgrown its limit."""


@dataclass(frozen=True)
class Mapped:
    """A circuit of three-input gates; operand ids are inputs first, then gates in order."""

    gates: NDArray[np.void]
    outputs: NDArray[np.uint32]
    """One literal (2·id + complement, or NATIVE_FALSE + value) per output."""
    inputs: frozenset[int]
    """Inputs that some gate or output reads."""


class Circuit:
    """A growing circuit over `inputs` bits, whose literals are `input(0)` … `input(inputs − 1)`."""

    def __init__(self, inputs: int, limit: int) -> None:
        self.inputs = inputs
        self.limit = limit
        self.gates: list[tuple[int, int, int, int]] = []
        self._known: dict[tuple[int, int, int, int], int] = {}

    def input(self, number: int) -> int:
        """The literal of an input."""
        return 2 * (number + 1)

    def conjunction(self, a: int, b: int) -> int:
        """a and b."""
        if a > b:
            a, b = b, a
        if a == FALSE or a ^ b == 1:
            return FALSE
        if a in (TRUE, b):
            return b
        return self._gate((AND, a, b, 0))

    def disjunction(self, a: int, b: int) -> int:
        """a or b."""
        return self.conjunction(a ^ 1, b ^ 1) ^ 1

    def parity(self, a: int, b: int) -> int:
        """a xor b."""
        flip = (a ^ b) & 1
        a, b = min(a & ~1, b & ~1), max(a & ~1, b & ~1)
        if a == b:
            return flip
        return b ^ flip if a == FALSE else self._gate((XOR, a, b, 0)) ^ flip

    def choose(self, selector: int, then: int, other: int) -> int:
        """then if selector else other."""
        if selector & 1:
            selector, then, other = selector ^ 1, other, then
        if selector == FALSE:
            return other
        if then == other:
            return then
        if then ^ other == 1:
            return self.parity(selector, other)
        if then in (TRUE, selector):
            return self.disjunction(selector, other)
        if then in (FALSE, selector ^ 1):
            return self.conjunction(selector ^ 1, other)
        if other in (FALSE, selector):
            return self.conjunction(selector, then)
        if other in (TRUE, selector ^ 1):
            return self.disjunction(selector ^ 1, then)
        flip = other & 1
        return self._gate((CHOOSE, selector, then ^ flip, other ^ flip)) ^ flip

    def all(self, literals: Iterable[int]) -> int:
        """Conjunction of any number of literals."""
        result = TRUE
        for literal in literals:
            result = self.conjunction(result, literal)
        return result

    def any(self, literals: Iterable[int]) -> int:
        """Disjunction of any number of literals."""
        return self.all(literal ^ 1 for literal in literals) ^ 1

    def _gate(self, gate: tuple[int, int, int, int]) -> int:
        known = self._known.get(gate)
        if known is None:
            if len(self.gates) >= self.limit:
                raise TooManyGatesError(f"more than {self.limit} gates")
            self.gates.append(gate)
            known = self._known[gate] = 2 * (self.inputs + len(self.gates))
        return known

    def mapped(self, outputs: Sequence[int]) -> Mapped:
        """The gates that the outputs need, each merged with its operands as far as three inputs allow."""
        needed = self._needed(outputs)
        cuts: dict[int, tuple[tuple[int, ...], int]] = {}
        for node in needed:
            cuts[node] = self._cut(node, cuts)
        alive: set[int] = {literal >> 1 for literal in outputs}
        for node in reversed(needed):
            if node in alive:
                alive.update(cuts[node][0])
        ids = {number + 1: number for number in range(self.inputs)}
        rows: list[tuple[int, ...]] = []
        for node in needed:
            if node in alive:
                leaves, table = cuts[node]
                ids[node] = self.inputs + len(rows)
                operands = [ids[leaf] for leaf in leaves]
                rows.append((*operands, *operands[:1] * (3 - len(operands)), table))
        literals = [NATIVE_FALSE + v if v <= TRUE else 2 * ids[v >> 1] + (v & 1) for v in outputs]
        read = frozenset(node - 1 for node in alive if 0 < node <= self.inputs)
        return Mapped(np.array(rows, GATE), np.array(literals, np.uint32), read)

    def _needed(self, outputs: Sequence[int]) -> list[int]:
        """Gates below the outputs, operands first."""
        alive = {literal >> 1 for literal in outputs}
        for place in range(len(self.gates) - 1, -1, -1):
            if place + self.inputs + 1 in alive:
                alive.update(literal >> 1 for literal in self.gates[place][1:])
        return sorted(node for node in alive if node > self.inputs)

    def _cut(self, node: int, cuts: dict[int, tuple[tuple[int, ...], int]]) -> tuple[tuple[int, ...], int]:
        """Up to three nodes that decide `node`, and the truth table over them."""
        kind, *literals = self.gates[node - self.inputs - 1]
        operands = [literal >> 1 for literal in literals if literal > TRUE]
        best = tuple(dict.fromkeys(operands))
        replaced: frozenset[int] = frozenset()
        for mask in range(1, 1 << len(operands)):
            chosen = frozenset(n for k, n in enumerate(operands) if mask >> k & 1 and n in cuts)
            leaves: dict[int, None] = {}
            for operand in operands:
                leaves.update(dict.fromkeys(cuts[operand][0] if operand in chosen else (operand,)))
            if len(leaves) <= 3 and len(chosen) > len(replaced):
                best, replaced = tuple(leaves), chosen
        tables = dict(zip(best, MASKS, strict=False))
        values = []
        for literal in literals:
            operand = literal >> 1
            if operand == 0:
                value = 0
            elif operand in replaced:
                value = _composed(cuts[operand], tables)
            else:
                value = tables[operand]
            values.append(value ^ 0xFF if literal & 1 else value)
        a, b, c = values
        if kind == AND:
            return best, a & b
        return best, a ^ b if kind == XOR else (a & b) | (~a & 0xFF & c)


def _composed(cut: tuple[tuple[int, ...], int], tables: dict[int, int]) -> int:
    """The truth table of a merged operand over its parent's leaves."""
    leaves, table = cut
    values = [tables[leaf] for leaf in leaves]
    result = 0
    for row in range(8):
        if table >> row & 1:
            term = 0xFF
            for value, mask in zip(values, MASKS, strict=False):
                term &= value if mask >> row & 1 else ~value
            result |= term
    return result & 0xFF

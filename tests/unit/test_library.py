"""The relational library against predicates written on sets of pairs, by enumeration, and against published counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from quantify.ir.property import And, BoolExpr, Compare, FeatureValue, Not, Or
from quantify.properties.evaluate import truth
from quantify.properties.library import LIBRARY

Relation = Callable[[int, int], bool]


def is_reflexive(r: Relation, v: range) -> bool:
    return all(r(a, a) for a in v)


def is_transitive(r: Relation, v: range) -> bool:
    return not any(r(a, b) and r(b, c) and not r(a, c) for a in v for b in v for c in v)


def is_antisymmetric(r: Relation, v: range) -> bool:
    return not any(r(a, b) and r(b, a) and a != b for a in v for b in v)


def is_symmetric(r: Relation, v: range) -> bool:
    return {(a, b) for a in v for b in v if r(a, b)} == {(b, a) for a in v for b in v if r(a, b)}


def is_connex(r: Relation, v: range) -> bool:
    return all(r(a, b) or r(b, a) for a in v for b in v)


BY_HAND: dict[str, Callable[[Relation, range], bool]] = {
    "antisymmetric": is_antisymmetric,
    "connex": is_connex,
    "semiconnex": lambda r, v: all(a == b or r(a, b) or r(b, a) for a in v for b in v),
    "equivalence": lambda r, v: is_reflexive(r, v) and is_symmetric(r, v) and is_transitive(r, v),
    "irreflexive": lambda r, v: not any(r(a, a) for a in v),
    "nonstrictorder": lambda r, v: is_reflexive(r, v) and is_antisymmetric(r, v) and is_transitive(r, v),
    "partialorder": lambda r, v: is_antisymmetric(r, v) and is_transitive(r, v),
    "preorder": lambda r, v: is_reflexive(r, v) and is_transitive(r, v),
    "reflexive": is_reflexive,
    "strictorder": lambda r, v: (
        not any(r(a, a) for a in v) and is_transitive(r, v) and not any(r(a, b) and r(b, a) for a in v for b in v)
    ),
    "totalorder": lambda r, v: is_antisymmetric(r, v) and is_transitive(r, v) and is_connex(r, v),
    "transitive": is_transitive,
    "symmetric": is_symmetric,
    "functional": lambda r, v: all(sum(r(a, b) for b in v) <= 1 for a in v),
}

# Relations on 4 nodes: closed forms, Bell numbers, OEIS A000798 (preorders), A001035 (orders), A006905 (transitive).
FOUR = {
    "antisymmetric": 11664,
    "connex": 729,
    "semiconnex": 11664,
    "equivalence": 15,
    "irreflexive": 4096,
    "nonstrictorder": 219,
    "partialorder": 3504,
    "preorder": 355,
    "reflexive": 4096,
    "strictorder": 219,
    "totalorder": 24,
    "transitive": 3994,
    "symmetric": 1024,
    "functional": 625,
}
FIVE = {
    "antisymmetric": 2**5 * 3**10,
    "connex": 3**10,
    "semiconnex": 2**5 * 3**10,
    "equivalence": 52,
    "irreflexive": 2**20,
    "nonstrictorder": 4231,
    "partialorder": 2**5 * 4231,
    "preorder": 6942,
    "reflexive": 2**20,
    "strictorder": 4231,
    "totalorder": 120,
    "transitive": 154303,
    "symmetric": 2**15,
    "functional": 6**5,
}


def test_the_library_is_complete() -> None:
    assert set(LIBRARY) == set(BY_HAND) == set(FOUR)


def packed(expression: BoolExpr, words: list[np.ndarray]) -> np.ndarray:
    """Truth of a predicate of the library for every relation at once, one bit a relation."""
    if isinstance(expression, And | Or):
        join = np.bitwise_and if isinstance(expression, And) else np.bitwise_or
        parts = iter(expression.arguments)
        result = packed(next(parts), words).copy()
        for part in parts:
            join(result, packed(part, words), out=result)
        return result
    if isinstance(expression, Not):
        return ~packed(expression.argument, words)
    assert isinstance(expression, Compare)
    assert expression.op == "=="
    assert isinstance(expression.left, FeatureValue)
    return words[expression.left.feature]


def all_relations(nodes: int) -> list[np.ndarray]:
    """For each feature a bit vector over all 0/1 assignments: bit b of word w belongs to assignment 64·w + b."""
    lanes = np.arange(64, dtype=np.uint64)
    numbers = np.arange(2 ** (nodes * nodes - 6), dtype=np.uint64)
    low = [
        np.full(numbers.shape, int(sum(1 << int(lane) for lane in lanes if int(lane) >> place & 1)), dtype=np.uint64)
        for place in range(6)
    ]
    high = [
        np.where(numbers >> np.uint64(place) & np.uint64(1) == 1, np.uint64(2**64 - 1), np.uint64(0))
        for place in range(nodes * nodes - 6)
    ]
    return low + high


def ones(words: np.ndarray) -> int:
    return int(np.unpackbits(words.view(np.uint8)).sum(dtype=np.int64))


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_three_nodes_agree_relation_by_relation(name: str) -> None:
    expression, by_hand = LIBRARY[name](3), BY_HAND[name]
    for bits in itertools.product((0, 1), repeat=9):
        expected = by_hand(lambda a, b, bits=bits: bits[3 * a + b] == 1, range(3))
        assert truth(expression, bits, bits, 0) is expected, bits


@pytest.mark.parametrize(("nodes", "published"), [(4, FOUR), (5, FIVE)])
def test_counts_at_four_and_five_nodes(nodes: int, published: dict[str, int]) -> None:
    words = all_relations(nodes)
    assert {name: ones(packed(LIBRARY[name](nodes), words)) for name in published} == published


def test_one_node() -> None:
    yes = {name for name, predicate in LIBRARY.items() if truth(predicate(1), (0,), (0,), 0)}
    assert yes == set(LIBRARY) - {"reflexive", "connex", "equivalence", "nonstrictorder", "preorder", "totalorder"}

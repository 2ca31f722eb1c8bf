"""A predicate over a box to a guess of how many nodes its decision diagram will have, for estimates and refusals.

What a diagram must remember between two features bounds its width there: the bits above that some clause below still
asks for, or the bits below that some clause above has asked for, whichever are fewer, and the partial sums of the
comparisons that are open. A heuristic: for transitivity on 4 to 7 nodes it says 0.6 to 1.5 times the truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, pairwise

from quantify.engines.diagrams import Space, as_linear
from quantify.engines.logic import features_used
from quantify.ir.predicate import (
    AllOf,
    Always,
    AnyOf,
    CountOf,
    HasLabel,
    IntExpr,
    Linear,
    Negation,
    Plus,
    Predicate,
    Sign,
)
from quantify.ir.ranges import interval

SMALL = 4
"""A part over at most this many features is one clause; a larger one is taken apart."""
OVERLAP = 0.87
"""Share of the bits that counts where clauses overlap: what one of them tells, another need not."""


def log2_nodes(predicate: Predicate, space: Space) -> float:
    """Binary logarithm of the expected number of nodes (0 for a constant)."""
    clauses: list[tuple[int, ...]] = []
    signs: list[Sign] = []
    for part in _parts(predicate, space):
        if isinstance(part, Sign):
            signs.append(part)
        else:
            clauses.append(_open_features(part, space))
    # Cut i lies above feature i; entry i of `width` is the bits to be remembered there.
    count = len(space.bits)
    joint = [feature for clause in clauses if len(clause) > 1 for feature in clause]
    share = OVERLAP if len(joint) > 2 * len(set(joint)) else 1.0
    width = [share * min(a, b) for a, b in zip(*_live(clauses, space), strict=True)]
    for sign in signs:
        _add_sign(width, sign, space)
    used = {f for clause in clauses for f in clause} | {f for s in signs for f in _open_features(s, space)}
    exponents, above = [0.0], 0
    for feature in sorted(used):
        bits = space.bits[feature]
        after = width[feature + 1] if feature + 1 < count else 0.0
        inside = max(min(width[feature], above), min(after, above + bits))
        exponents.append(inside + math.log2(bits))
        above += bits
    top = max(exponents)
    return top + math.log2(sum(2.0 ** (exponent - top) for exponent in exponents))


def _open_features(predicate: Predicate, space: Space) -> tuple[int, ...]:
    return tuple(f for f in features_used(predicate) if space.bits[f])


def _parts(predicate: Predicate, space: Space) -> Iterator[Predicate]:
    """Clauses and comparisons."""
    if isinstance(predicate, Always | HasLabel):
        return
    if isinstance(predicate, Negation):
        yield from _parts(predicate.argument, space)
    elif isinstance(predicate, AllOf | AnyOf):
        small = len(_open_features(predicate, space)) <= SMALL
        parts = [part for argument in predicate.arguments for part in _parts(argument, space)]
        if small and not any(isinstance(part, Sign) for part in parts):
            yield predicate
        else:
            yield from parts
    else:
        yield predicate


def _live(clauses: list[tuple[int, ...]], space: Space) -> tuple[list[int], list[int]]:
    """Per cut, the bits above that a clause below needs too, and the bits below that a clause above needs too."""
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    for clause in clauses:
        for feature in clause:
            last[feature] = max(last.get(feature, feature), clause[-1])
            first[feature] = min(first.get(feature, feature), clause[0])
    size = len(space.bits) + 1
    above, below = [0] * size, [0] * size
    for feature, bits in enumerate(space.bits):
        if feature in last:
            above[feature + 1] += bits
            above[last[feature] + 1] -= bits
            below[first[feature] + 1] += bits
            below[feature + 1] -= bits
    return list(accumulate(above))[:-1], list(accumulate(below))[:-1]


def _add_sign(width: list[float], sign: Sign, space: Space) -> None:
    """Add the bits of one comparison's state to every cut that it crosses."""
    features = _open_features(sign, space)
    if not features:
        return
    total = sum(space.bits[f] for f in features)
    linear = as_linear(sign.argument) is not None
    bound = float(total)
    if _is_sum(sign.argument):
        low, high = interval(sign.argument, space.low, space.high)
        bound = math.log2(high - low + 2)
    above = 0
    for feature, following in pairwise(features):
        above += space.bits[feature]
        state = min(above, total - above if linear else above, bound)
        for cut in range(feature + 1, following + 1):
            width[cut] += state


def _is_sum(expression: IntExpr) -> bool:
    """Whether its partial sums are all that must be remembered: every term reads one feature."""
    if isinstance(expression, Plus):
        return all(_is_sum(argument) for argument in expression.arguments)
    if isinstance(expression, CountOf):
        return all(len(features_used(argument)) <= 1 for argument in expression.arguments)
    return isinstance(expression, Linear)

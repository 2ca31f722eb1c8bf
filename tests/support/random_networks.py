"""Seeded random integer networks, queries about them, and their exact count point by point in plain Python."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np

from quantify.ir.domain import Measure
from quantify.ir.network import IntLayer, IntNetwork, Rows
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
from quantify.ir.problem import Box, GridCase, GridProblem, GridQuery

KINDS = ("relu", "relu", "relu", "capped", "leaky", "sign", "floor_shift", "none")


def rows(matrix: Sequence[Sequence[int]]) -> Rows:
    """The rows of a dense matrix of Python integers, int64 when they fit."""
    wide = any(abs(w) >> 62 for row in matrix for w in row)
    return Rows.dense(np.array(matrix, object if wide else np.int64))


def int_layer(
    matrix: Sequence[Sequence[int]], bias: Sequence[int], activation: str = "none", **options: int
) -> IntLayer:
    """A dense layer; its `bits` claim nothing beyond 4,096."""
    wide = any(abs(b) >> 62 for b in bias)
    return IntLayer(rows(matrix), np.array(bias, object if wide else np.int64), activation, bits=4096, **options)


def random_layer(rng: random.Random, inputs: int, outputs: int, kind: str, weight: int, bias: int) -> IntLayer:
    """Weights in ±weight, some zero, some rows zero (dead neurons), biases in ±bias."""
    matrix = [
        [rng.randint(-weight, weight) if rng.random() < 0.85 else 0 for _ in range(inputs)]
        if rng.random() < 0.95 else [0] * inputs
        for _ in range(outputs)
    ]  # fmt: skip
    offsets = [rng.randint(-bias, bias) for _ in range(outputs)]
    if kind == "capped":
        return int_layer(matrix, offsets, "relu", cap=rng.randint(0, 4 * bias + 4))
    if kind == "leaky":
        positive = rng.choice((1, 4, 10))
        return int_layer(matrix, offsets, "leaky", positive=positive, negative=rng.randint(0, positive))
    if kind == "sign":
        return int_layer(matrix, offsets, "sign", at_zero=rng.choice((1, 0, -1)))
    if kind == "floor_shift":
        low = rng.choice((0, 0, -8))
        high = rng.randint(max(low, 0), 15)
        return int_layer(matrix, offsets, "floor_shift", shift=rng.randint(0, 6), low=low, high=high)
    return int_layer(matrix, offsets, kind)


def random_network(
    rng: random.Random,
    inputs: int,
    labels: int,
    hidden: Sequence[int],
    kinds: Sequence[str] = KINDS,
    weight: int = 9,
    reach: int = 60,
) -> IntNetwork:
    """Hidden layers of the given widths; small weights make ties common."""
    layers = []
    before = inputs
    for width in hidden:
        layers.append(random_layer(rng, before, width, rng.choice(kinds), weight, reach))
        before = width
    layers.append(random_layer(rng, before, labels, "none", weight, reach))
    return IntNetwork(inputs, tuple(layers), labels)


def plain_scores(network: IntNetwork, point: Sequence[int]) -> list[int]:
    """The scores of one point, by the definitions in the IR."""
    values = [int(p) for p in point]
    for layer in network.layers:
        matrix = layer.rows.to_dense().tolist()
        sums = (sum(int(w) * x for w, x in zip(row, values, strict=True)) for row in matrix)
        values = [_activated(layer, z + int(b)) for z, b in zip(sums, layer.bias.tolist(), strict=True)]
    return values


def _activated(layer: IntLayer, z: int) -> int:
    if layer.activation == "relu":
        return max(z, 0) if layer.cap is None else min(max(z, 0), layer.cap)
    if layer.activation == "leaky":
        return layer.positive * z if z >= 0 else layer.negative * z
    if layer.activation == "sign":
        return 1 if z > 0 else -1 if z < 0 else layer.at_zero
    if layer.activation == "floor_shift":
        return min(max(z // 2**layer.shift, layer.low), layer.high)
    assert layer.activation == "none"
    return z


def plain_label(scores: Sequence[int]) -> int:
    """The lowest index of the largest score."""
    return list(scores).index(max(scores))


def plain_number(expression: IntExpr, point: Sequence[int], label: int, scores: Sequence[int]) -> int:
    """An expression at a point."""
    match expression:
        case Linear(terms, constant):
            return constant + sum(c * point[f] for f, c in terms)
        case Score(index):
            return scores[index]
        case Plus(arguments):
            return sum(plain_number(a, point, label, scores) for a in arguments)
        case Times(left, right):
            return plain_number(left, point, label, scores) * plain_number(right, point, label, scores)
        case FloorDiv(argument, divisor):
            return plain_number(argument, point, label, scores) // divisor
        case Extreme(which, arguments):
            return {"min": min, "max": max}[which](plain_number(a, point, label, scores) for a in arguments)
        case CountOf(arguments):
            return sum(plain_truth(a, point, label, scores) for a in arguments)
    raise AssertionError(expression)


def plain_truth(predicate: Predicate, point: Sequence[int], label: int, scores: Sequence[int]) -> bool:
    """A predicate at a point."""
    match predicate:
        case Always(value):
            return value
        case Within(feature, low, high):
            return low <= point[feature] < high
        case HasLabel(labels):
            return label in labels
        case Negation(argument):
            return not plain_truth(argument, point, label, scores)
        case AllOf(arguments):
            return all(plain_truth(a, point, label, scores) for a in arguments)
        case AnyOf(arguments):
            return any(plain_truth(a, point, label, scores) for a in arguments)
        case Sign(op, argument):
            value = plain_number(argument, point, label, scores)
            return {"<": value < 0, "<=": value <= 0, "==": value == 0, "!=": value != 0}[op]
    raise AssertionError(predicate)


def plain_count(problem: GridProblem, case: GridCase) -> dict[str, int]:
    """Points per query, one at a time."""
    network = problem.network
    assert network is not None
    assert isinstance(case.region, Box)
    totals = {query.name: 0 for query in case.queries}
    for point in itertools.product(*(range(a, b) for a, b in zip(case.region.low, case.region.high, strict=True))):
        scores = plain_scores(network, point)
        label = plain_label(scores)
        for query in case.queries:
            totals[query.name] += plain_truth(query.predicate, point, label, scores)
    return totals


def label_queries(labels: int) -> tuple[GridQuery, ...]:
    """One query per label, by the label's number."""
    return tuple(GridQuery(str(label), HasLabel((label,))) for label in range(labels))


def network_problem(
    network: IntNetwork, sizes: Sequence[int], queries: Sequence[GridQuery] = (), region: Box | None = None
) -> GridProblem:
    """A problem with one case; by default one query per label over the whole grid."""
    whole = Box((0,) * len(sizes), tuple(sizes))
    case = GridCase(region or whole, tuple(queries) or label_queries(network.outputs), ())
    return GridProblem(tuple(sizes), network.outputs, network, Measure(), (case,))


def random_score_predicate(rng: random.Random, sizes: Sequence[int], labels: int, depth: int) -> Predicate:
    """Labels, ranges, comparisons of positions, and of weighted sums of scores."""
    kind = rng.choice(("all", "any", "not", "leaf")) if depth else "leaf"
    if kind in ("all", "any"):
        parts = tuple(random_score_predicate(rng, sizes, labels, depth - 1) for _ in range(rng.randint(1, 3)))
        return AllOf(parts) if kind == "all" else AnyOf(parts)
    if kind == "not":
        return Negation(random_score_predicate(rng, sizes, labels, depth - 1))
    leaf = rng.choice(("label", "within", "position", "score", "order", "curved"))
    op = rng.choice(("<", "<=", "==", "!="))
    far = 1 << 200
    if leaf == "label":
        return HasLabel(tuple(k for k in range(labels) if rng.random() < 0.5))
    if leaf == "within":
        feature = rng.randrange(len(sizes))
        low = rng.randrange(sizes[feature])
        return Within(feature, low, rng.randint(low, sizes[feature]))
    chosen = tuple((f, rng.choice((-3, -1, 1, 2))) for f in range(len(sizes)) if rng.random() < 0.6)
    line = Linear(chosen, rng.randint(-20, 20))
    if leaf == "position":
        return Sign(op, line)
    if leaf == "curved":
        return Sign(op, Extreme(rng.choice(("min", "max")), (FloorDiv(Times(line, line), 3), Linear((), 9))))
    first, second = (Score(rng.randrange(labels), -far, far) for _ in range(2))
    if leaf == "score":
        return Sign(op, Plus((Times(Linear((), rng.choice((-2, 1, 3))), first), line)))
    return Sign(op, Plus((first, Times(Linear((), -1), second))))

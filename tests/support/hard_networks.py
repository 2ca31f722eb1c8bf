"""Seeded integer networks of every shape that engines take, hard on purpose, with every answer in Python's integers.

Ties are made likely (small weights, repeated rows, biases that put an input on a kink), sums are stretched to the ends
of machine words, regions are small, empty or balls. Nothing of quantify's arithmetic is used: layers, predicates,
distances and intervals are worked out here alone, by their definitions in the IR.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from random_grids import random_predicate

from quantify.ir.domain import Measure
from quantify.ir.network import IntLayer, IntNetwork, RequantiseLayer, Rows
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
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, Region

Mask = NDArray[np.bool_]
Whole = NDArray[Any]
"""Python ints in an object array."""
Interval = tuple[int, int]

FAMILIES = (
    "dense",
    "dense",
    "ties",
    "image",
    "sequence",
    "binary",
    "stretched",
    "stretched",
    "stretched",
    "rescaled",
    "skip",
    "flat",
)
ACTIVATIONS = ("relu", "relu", "relu", "capped", "leaky", "sign", "floor_shift", "none")
ENDS = (7, 8, 15, 15, 16, 23, 24, 30, 31, 31, 31, 32, 46, 52, 53, 61, 62, 63, 63, 64, 75, 100, 126)
"""Powers of two that the largest sum of a stretched layer comes to, or just beside."""
MOST_POINTS = 500
NOTHING = np.zeros(0, np.int64)


@dataclass
class Drawn:
    """A problem with one case, and what must come out."""

    seed: int
    family: str
    problem: GridProblem
    points: NDArray[np.int64]
    """Every input of the region (rows × features)."""
    scores: Whole
    """(rows × outputs)."""
    labels: NDArray[np.int64]
    masks: dict[str, Mask]
    """Of each query, the inputs that it counts."""

    def count(self, name: str) -> int:
        """Inputs that satisfy a query."""
        return int(self.masks[name].sum())

    def __str__(self) -> str:
        return f"draw({self.seed}), {self.family}: {self.problem}"


def draw(seed: int, families: Sequence[str] = FAMILIES, most_points: int = MOST_POINTS) -> Drawn:
    """The problem of a seed."""
    rng = random.Random(seed)
    family = rng.choice(families)
    sizes, region = _space(rng, family, most_points)
    points = points_of(region)
    while 0 < len(points) < 12 and rng.random() < 0.9:
        sizes, region = _space(rng, family, most_points)
        points = points_of(region)
    layers = _LAYERS[family](rng, sizes)
    if len(points) and rng.random() < 0.9:
        way = _bent if rng.random() < 0.3 else _balanced
        layers = way(rng, layers, points)
    if family == "stretched":
        layers = _stretched(rng, layers, sizes)
        if len(points) and rng.random() < 0.7:
            layers = [*layers[:-1], _balanced(rng, layers, points)[-1]]
    network, intervals = with_widths(layers, sizes)
    queries = _queries(rng, sizes, intervals)
    case = GridCase(region, tuple(queries), ())
    problem = GridProblem(sizes, network.outputs, network, Measure(), (case,))
    scores = scores_of(network, points)
    labels = labels_of(scores)
    inputs = Inputs(points, labels, scores)
    masks = {query.name: inputs.true(query.predicate) for query in queries}
    return Drawn(seed, family, problem, points, scores, labels, masks)


# --- where ---------------------------------------------------------------------------------------------------------
def _space(rng: random.Random, family: str, most: int) -> tuple[tuple[int, ...], Region]:
    """Sizes of the features and a region of at most `most` points in its box."""
    count = {"image": rng.choice((9, 12, 18)), "sequence": rng.choice((6, 8, 10))}.get(family, rng.randint(1, 8))
    wide = rng.random() < 0.4
    choices = (2,) if family == "binary" or rng.random() < 0.2 else (1, 2, 2, 3, 4, 5, 9, 16)
    if wide:
        choices = (*choices, 100, 256, 4096, 70_000)
    sizes = [rng.choice(choices) for _ in range(count)]
    low, high = [0] * count, list(sizes)
    whole = rng.random() < 0.4
    for place in sorted(range(count), key=lambda k: -sizes[k]):
        while _volume(low, high) > most or (not whole and rng.random() < 0.12 and high[place] - low[place] > 1):
            width = max(1, (high[place] - low[place]) // rng.choice((2, 2, 3, 8)))
            low[place] = rng.choice((0, sizes[place] - width, rng.randrange(sizes[place] - width + 1)))
            high[place] = low[place] + width
            if width == 1:
                break
    if rng.random() < 0.02:
        place = rng.randrange(count)
        high[place] = low[place]
    box = Box(tuple(low), tuple(high))
    norm = rng.choice((None, None, None, None, None, "l1", "l0"))
    if norm is None or box.size == 0:
        return tuple(sizes), box
    centre = tuple(rng.randrange(a, b) for a, b in zip(low, high, strict=True))
    if norm == "l0":
        return tuple(sizes), Ball(box, centre, "l0", (1,) * count, rng.randint(0, count))
    weights = tuple(rng.choice((1, 1, 2, 3)) for _ in sizes)
    return tuple(sizes), Ball(box, centre, "l1", weights, rng.randint(0, 12))


def _volume(low: Sequence[int], high: Sequence[int]) -> int:
    found = 1
    for a, b in zip(low, high, strict=True):
        found *= b - a
    return found


def points_of(region: Region) -> NDArray[np.int64]:
    """Every point of a region (rows × features), by the definition of its distance."""
    box = region if isinstance(region, Box) else region.box
    ranges = [range(a, b) for a, b in zip(box.low, box.high, strict=True)]
    found = np.array(list(itertools.product(*ranges)), np.int64).reshape(-1, len(ranges))
    if isinstance(region, Box):
        return found
    steps = np.abs(found - np.array(region.centre))
    distance = (steps != 0).sum(axis=1) if region.norm == "l0" else (steps * np.array(region.weights)).sum(axis=1)
    return found[distance <= region.radius]


# --- layers --------------------------------------------------------------------------------------------------------
def layer_of(weights: Sequence[Sequence[int]], bias: Sequence[int], activation: str = "none", **more: Any) -> IntLayer:
    """A layer from the rows of a dense matrix."""
    kind: type = object if any(abs(w) >> 62 for row in weights for w in row) else np.int64
    offsets: type = object if any(abs(b) >> 62 for b in bias) else np.int64
    matrix = np.array(weights, kind).reshape(len(bias), -1)
    return IntLayer(Rows.dense(matrix), np.array(bias, offsets), activation, **more)  # type: ignore[arg-type]


def maximum(inputs: int, members: Sequence[Sequence[int]]) -> IntLayer:
    """A layer of maxima."""
    rows = Rows(inputs, np.zeros(1, np.int64), NOTHING, NOTHING)
    return IntLayer(rows, NOTHING, "max", members=np.array(members, np.int64))


def _activation(rng: random.Random, kind: str, reach: int) -> tuple[str, dict[str, int]]:
    """A kind of ACTIVATIONS for sums up to about `reach`, with its constants."""
    if kind == "capped":
        return "relu", {"cap": rng.choice((0, 1, rng.randint(0, reach), reach // 2))}
    if kind == "leaky":
        positive = rng.choice((1, 2, 10))
        return kind, {"positive": positive, "negative": rng.choice((0, 1, positive, rng.randint(0, positive), -1))}
    if kind == "sign":
        return kind, {"at_zero": rng.choice((-1, 0, 1))}
    if kind == "floor_shift":
        low = rng.choice((0, 0, -8, -128))
        return kind, {"shift": rng.randint(0, 6), "low": low, "high": rng.choice((low, 1, 15, 127, 255))}
    return kind, {}


def _matrix(rng: random.Random, rows: int, columns: int, most: int, thin: float = 0.85) -> list[list[int]]:
    found = [[rng.randint(-most, most) if rng.random() < thin else 0 for _ in range(columns)] for _ in range(rows)]
    for row in range(1, rows):
        if rng.random() < 0.08:  # equal neurons, and equal scores
            found[row] = list(found[row - 1])
    if rng.random() < 0.1:
        found[rng.randrange(rows)] = [0] * columns
    return found


def _dense(rng: random.Random, inputs: int, outputs: int, most: int, kinds: Sequence[str]) -> IntLayer:
    kind, constants = _activation(rng, rng.choice(kinds), 3 * most)
    bias = [rng.randint(-2 * most, 2 * most) if rng.random() < 0.8 else 0 for _ in range(outputs)]
    return layer_of(_matrix(rng, outputs, inputs, most), bias, kind, **constants)


def _chain(
    rng: random.Random, sizes: Sequence[int], most: int, depth: int, kinds: Sequence[str] = ACTIVATIONS
) -> list[IntLayer]:
    """`depth` hidden layers and the scores."""
    layers, width = [], len(sizes)
    for _ in range(depth):
        if rng.random() < 0.1:
            members = [[rng.randrange(width), rng.choice((-1, rng.randrange(width)))] for _ in range(rng.randint(1, 5))]
            for window in members:
                rng.shuffle(window)
            layers.append(maximum(width, members))
            width = len(members)
        wider = rng.randint(1, 6)
        layers.append(_dense(rng, width, wider, most, kinds))
        width = wider
    last = ("none",) if rng.random() < 0.8 else kinds
    layers.append(_dense(rng, width, rng.choice((1, *(2,) * 8, *(3,) * 6, 4, 5)), most, last))
    return layers


def _dense_layers(rng: random.Random, sizes: Sequence[int]) -> list[IntLayer]:
    return _chain(rng, sizes, rng.choice((3, 9, 50, 127, 1000)), rng.randint(0, 4))


def _tied(rng: random.Random, sizes: Sequence[int]) -> list[IntLayer]:
    return _chain(rng, sizes, rng.choice((1, 1, 2)), rng.randint(0, 3))


def _binary(rng: random.Random, sizes: Sequence[int]) -> list[IntLayer]:
    """Weights −1, 0, 1, thresholds on either side of 0, signs between: a binarised or ternary network."""
    return _chain(rng, sizes, 1, rng.randint(1, 3), ("sign",))


def _flat(rng: random.Random, sizes: Sequence[int]) -> list[IntLayer]:
    """Networks that are constant, or say one label only."""
    layers = _chain(rng, sizes, 4, rng.randint(0, 2))
    place = rng.randrange(len(layers))
    chosen = layers[place]
    if chosen.members is None:
        zeros = [[0] * chosen.rows.inputs for _ in range(chosen.rows.outputs)]
        layers[place] = replace(chosen, rows=layer_of(zeros, chosen.bias.tolist()).rows)
    return layers


def _skip(rng: random.Random, sizes: Sequence[int]) -> list[IntLayer]:
    """A residual connection: the hidden layer hands its inputs on beside what it makes of them, and both are added."""
    n, most = len(sizes), rng.choice((1, 3, 20))
    middle = rng.randint(1, 4)
    identity = [[int(i == j) for j in range(n)] for i in range(n)]
    first = layer_of(_matrix(rng, middle, n, most) + identity, [rng.randint(-9, 9)] * middle + [0] * n, "relu")
    added = [row + one for row, one in zip(_matrix(rng, n, middle, most), identity, strict=True)]
    kind, constants = _activation(rng, rng.choice(ACTIVATIONS), 30)
    second = layer_of(added, [rng.randint(-9, 9) for _ in range(n)], kind, **constants)
    return [first, second, _dense(rng, n, rng.randint(2, 4), most, ("none",))]


def _rescaled(rng: random.Random, sizes: Sequence[int]) -> list[IntLayer]:
    """Weights of 8 bits, accumulators of 32, and the rounding of a quantised library after every layer."""
    layers, width = [], len(sizes)
    reach = max(sizes)
    for outputs in [*(rng.randint(1, 5) for _ in range(rng.randint(0, 2))), rng.randint(1, 4)]:
        most = min(rng.choice((127, 3)), (1 << 28) // (reach * width) or 1)
        weights = _matrix(rng, outputs, width, most)
        bias = [rng.randint(-500, 500) for _ in range(outputs)]
        halves = rng.random() < 0.4
        usual = 7 - (reach * most * width // 2).bit_length()
        arithmetic = RequantiseLayer(
            np.array([1 << 30 if halves else rng.randrange(1 << 30, 1 << 31) for _ in range(outputs)]),
            np.array([min(1, usual + rng.randint(-1, 2)) for _ in range(outputs)]),
            rng.randint(-9, 90), *rng.choice(((-128, 127),) * 4 + ((-10, 100), (3, 3))),
            rng.choice(("double", "single")),
        )  # fmt: skip
        layers.append(layer_of(weights, bias, "requantise", requantise=arithmetic))
        width, reach = outputs, 128
    if rng.random() < 0.5:
        layers.append(_dense(rng, width, rng.randint(2, 4), 9, ("none",)))
    return layers


def _image(rng: random.Random, sizes: Sequence[int]) -> list[IntLayer]:
    """A convolution over height × width × channels, borders padded or not, pooling, and a dense layer."""
    channels = 2 if len(sizes) == 18 else 1
    height = 3
    width = len(sizes) // (height * channels)
    return _convolution(rng, (height, width), channels)


def _sequence(rng: random.Random, sizes: Sequence[int]) -> list[IntLayer]:
    channels = rng.choice((1, 2))
    return _convolution(rng, (1, len(sizes) // channels), channels)


def _convolution(rng: random.Random, shape: tuple[int, int], channels: int) -> list[IntLayer]:
    height, width = shape
    inputs, most = height * width * channels, rng.choice((1, 3, 20))
    window = min(height, rng.choice((1, 2, 3))), min(width, rng.choice((1, 2, 3)))
    filters, strides, pad = rng.randint(1, 2), (1, rng.choice((1, 1, 2))), rng.random() < 0.4
    starts = [
        range(-(cells // 2) if pad else 0, size - cells + 1 + (cells - 1 - cells // 2 if pad else 0), stride)
        for size, cells, stride in zip(shape, window, strides, strict=True)
    ]
    kernels = [
        {
            (i, j, c): rng.randint(-most, most)
            for i in range(window[0])
            for j in range(window[1])
            for c in range(channels)
        }
        for _ in range(filters)
    ]
    offsets = [rng.randint(-2 * most, 2 * most) for _ in range(filters)]
    rows, bias = [], []
    for top, left, f in itertools.product(*starts, range(filters)):
        row = [0] * inputs
        for (i, j, c), weight in kernels[f].items():
            if 0 <= top + i < height and 0 <= left + j < width:
                row[((top + i) * width + left + j) * channels + c] += weight
        rows.append(row)
        bias.append(offsets[f])
    kind, constants = _activation(rng, rng.choice(ACTIVATIONS), 5 * most)
    layers = [layer_of(rows, bias, kind, **constants)]
    found = len(starts[0]), len(starts[1])
    across = found[0] * found[1] * filters
    pooling = rng.choice(("none", "max", "mean"))
    if pooling != "none":
        corners = itertools.product(range(0, found[0], 2), range(0, found[1], 2), range(filters))
        windows = [
            [
                (y * found[1] + x) * filters + f
                for y in range(a, a + 2)
                for x in range(b, b + 2)
                if y < found[0] and x < found[1]
            ]
            for a, b, f in corners
        ]
        if pooling == "max":
            longest = max(map(len, windows))
            layers.append(maximum(across, [window + [-1] * (longest - len(window)) for window in windows]))
        else:
            summed = [[int(k in window) * (12 // len(window)) for k in range(across)] for window in windows]
            layers.append(layer_of(summed, [0] * len(windows)))
        across = len(windows)
    layers.append(_dense(rng, across, rng.randint(2, 4), most, ("none",)))
    return layers


_LAYERS: dict[str, Callable[[random.Random, Sequence[int]], list[IntLayer]]] = {
    "dense": _dense_layers, "ties": _tied, "image": _image, "sequence": _sequence, "binary": _binary,
    "stretched": _dense_layers, "rescaled": _rescaled, "skip": _skip, "flat": _flat,
}  # fmt: skip


def _bent(rng: random.Random, layers: Sequence[IntLayer], points: NDArray[np.int64]) -> list[IntLayer]:
    """The layers with biases such that some point lies on, or one step beside, every kink and every tie."""
    return _shifted(rng, layers, points[[rng.randrange(len(points))]].astype(object))


def _balanced(rng: random.Random, layers: Sequence[IntLayer], points: NDArray[np.int64]) -> list[IntLayer]:
    """The layers with sums that are negative as often as positive, so that neurons are alive and labels alternate."""
    return _shifted(rng, layers, points[:: max(1, len(points) // 64)].astype(object))


def _shifted(rng: random.Random, layers: Sequence[IntLayer], given: Whole) -> list[IntLayer]:
    found: list[IntLayer] = []
    for layer in layers:
        if layer.members is None:
            medians = [sorted(column)[len(column) // 2] for column in _sums(layer, given).T.tolist()]
            moved = [b - z + rng.choice((0, 0, 0, 1, -1)) for b, z in zip(layer.bias.tolist(), medians, strict=True)]
            if layer.activation == "requantise":
                moved = [max(-(1 << 29), min(b, 1 << 29)) for b in moved]
            layer = replace(layer, bias=np.array(moved, object if any(abs(b) >> 62 for b in moved) else np.int64))
        found.append(layer)
        given = _through(layer, given)
    return found


def _stretched(rng: random.Random, layers: Sequence[IntLayer], sizes: Sequence[int]) -> list[IntLayer]:
    """The layers with the sums of one (or of each) so large that a power of two is just reached, or just not."""
    found = list(layers)
    places = [k for k, layer in enumerate(found) if layer.members is None]
    for place in [rng.choice(places)] if rng.random() < 0.7 else places:
        layer, before = found[place], intervals_of(found[:place], sizes)[-1]
        largest = [most for _, most in _sum_intervals(layer, before)]
        if not max(largest):
            continue
        wanted = (1 << rng.choice(ENDS)) + rng.choice((-1, 0, 1))
        factor = max(1, wanted // max(largest))
        bias = [b * factor for b in layer.bias.tolist()]
        row = largest.index(max(largest))
        # What is missing goes into the bias of the row that reaches farthest.
        missing = wanted - max(largest) * factor
        bias[row] += missing if bias[row] >= 0 else -missing
        values = [v * factor for v in layer.rows.values.tolist()]
        wide = any(abs(v) >> 62 for v in [*values, *bias])
        kind: type = object if wide else np.int64
        rows = replace(layer.rows, values=np.array(values, kind))
        more = {"cap": layer.cap * factor + rng.choice((0, 1))} if layer.cap is not None else {}
        found[place] = replace(layer, rows=rows, bias=np.array(bias, kind), **more)
    return found


# --- intervals -----------------------------------------------------------------------------------------------------
def _terms(layer: IntLayer, row: int) -> list[tuple[int, int]]:
    start, end = int(layer.rows.start[row]), int(layer.rows.start[row + 1])
    return [(int(layer.rows.columns[k]), int(layer.rows.values[k])) for k in range(start, end)]


def _sum_intervals(layer: IntLayer, before: Sequence[Interval]) -> list[tuple[Interval, int]]:
    """Of every row, the interval of its sum, and the most that partial sums and the bias come to in any order."""
    found = []
    for row, bias in enumerate(layer.bias.tolist()):
        ends = [sorted((w * before[c][0], w * before[c][1])) for c, w in _terms(layer, row)]
        interval = bias + sum(a for a, _ in ends), bias + sum(b for _, b in ends)
        found.append((interval, abs(bias) + sum(max(abs(a), abs(b)) for a, b in ends)))
    return found


def _result_intervals(layer: IntLayer, before: Sequence[Interval]) -> list[Interval]:
    if layer.members is not None:
        windows = [[before[m] for m in window if m >= 0] for window in layer.members.tolist()]
        return [(max(a for a, _ in window), max(b for _, b in window)) for window in windows]
    found = []
    for row, ((low, high), _) in enumerate(_sum_intervals(layer, before)):
        # Every activation is monotone from either end to 0.
        ends = np.array([[low], [high], [min(max(0, low), high)]], object)
        values = [int(_active(layer, end, row)[0]) for end in ends]
        found.append((min(values), max(values)))
    return found


def intervals_of(layers: Sequence[IntLayer], sizes: Sequence[int]) -> list[list[Interval]]:
    """Of the positions and of what every layer passes on, intervals that hold over the whole domain."""
    found: list[list[Interval]] = [[(0, size - 1) for size in sizes]]
    for layer in layers:
        found.append(_result_intervals(layer, found[-1]))
    return found


def with_widths(layers: Sequence[IntLayer], sizes: Sequence[int]) -> tuple[IntNetwork, list[Interval]]:
    """The network with the narrowest `bits` that its definition allows, and the interval of every score."""
    intervals = intervals_of(layers, sizes)
    done = []
    for layer, before, after in zip(layers, intervals, intervals[1:], strict=False):
        largest = [max(abs(a), abs(b)) for a, b in after]
        if layer.members is None:
            largest += [most for _, most in _sum_intervals(layer, before)]
            largest += [abs(w) for w in layer.rows.values.tolist()]
        done.append(replace(layer, bits=max(largest).bit_length() + 1))
    return IntNetwork(len(sizes), tuple(done), len(intervals[-1])), intervals[-1]


# --- the answers, by definition ------------------------------------------------------------------------------------
def scores_of(network: IntNetwork, points: NDArray[np.int64]) -> Whole:
    """Scores of every row."""
    values: Whole = points.astype(object)
    for layer in network.layers:
        values = _through(layer, values)
    return values


def labels_of(scores: Whole) -> NDArray[np.int64]:
    """The lowest index of the largest score of every row."""
    return np.array([row.index(max(row)) for row in scores.tolist()], np.int64)


def _sums(layer: IntLayer, values: Whole) -> Whole:
    found = np.empty((len(values), len(layer.bias)), object)
    for row, bias in enumerate(layer.bias.tolist()):
        total = np.full(len(values), bias, object)
        for column, weight in _terms(layer, row):
            total = total + values[:, column] * weight
        found[:, row] = total
    return found


def _through(layer: IntLayer, values: Whole) -> Whole:
    if layer.members is not None:
        windows = [[m for m in window if m >= 0] for window in layer.members.tolist()]
        columns = [values[:, window].max(axis=1) if len(values) else values[:, 0] for window in windows]
    else:
        sums = _sums(layer, values)
        columns = [_active(layer, sums[:, row], row) for row in range(sums.shape[1])]
    return np.stack(columns, axis=1).astype(object)


def _active(layer: IntLayer, z: Whole, row: int) -> Whole:
    """The activation of a neuron, of all its sums."""
    if layer.activation == "relu":
        found = np.maximum(z, 0)
        return found if layer.cap is None else np.minimum(found, layer.cap)
    if layer.activation == "leaky":
        return np.where(z >= 0, z * layer.positive, z * layer.negative)
    if layer.activation == "sign":
        return np.where(z > 0, 1, np.where(z < 0, -1, layer.at_zero)).astype(object)
    if layer.activation == "floor_shift":
        return np.minimum(np.maximum(z // 2**layer.shift, layer.low), layer.high)
    if layer.activation == "requantise":
        assert layer.requantise is not None
        return _requantised(layer.requantise, z, row)
    assert layer.activation == "none"
    return z


def _requantised(by: RequantiseLayer, z: Whole, row: int) -> Whole:
    """Rounded once, halves up; or twice: to 32 bits with halves up, then by a power of two with halves away from 0."""
    multiplier, shift = int(by.multiplier[row]), int(by.shift[row])
    if by.rounding == "single":
        found = _half_up(z * multiplier, 31 - shift)
    else:
        found = _half_up(z * 2 ** max(shift, 0) * multiplier, 31)
        away = _half_up(np.abs(found), max(-shift, 0))
        found = np.where(found < 0, -away, away)
    return np.minimum(np.maximum(found + by.zero_point, by.low), by.high)


def _half_up(value: Whole, shift: int) -> Whole:
    return (2 * value + 2**shift) // 2 ** (shift + 1)


@dataclass
class Inputs:
    """Rows of inputs with the network's answers, at which predicates are asked."""

    points: NDArray[np.int64]
    labels: NDArray[np.int64]
    scores: Whole

    def true(self, node: Predicate) -> Mask:
        """Truth at every row."""
        everywhere = np.ones(len(self.points), np.bool_)
        match node:
            case Always(value):
                return everywhere & value
            case Within(feature, low, high):
                return (self.points[:, feature] >= low) & (self.points[:, feature] < high)
            case HasLabel(labels):
                return np.isin(self.labels, labels)
            case Negation(argument):
                return ~self.true(argument)
            case AllOf(arguments):
                return np.logical_and.reduce([everywhere, *map(self.true, arguments)])
            case AnyOf(arguments):
                return np.logical_or.reduce([~everywhere, *map(self.true, arguments)])
            case Sign(op, argument):
                z = self.number(argument)
                return np.asarray({"<": z < 0, "<=": z <= 0, "==": z == 0, "!=": z != 0}[op], np.bool_)
        raise AssertionError(node)

    def number(self, node: IntExpr) -> Whole:
        """Value at every row."""
        total = np.zeros(len(self.points), object)
        match node:
            case Linear(terms, constant):
                return sum((self.points[:, f].astype(object) * c for f, c in terms), total + constant)
            case Score(index):
                return self.scores[:, index]
            case Plus(arguments):
                return sum(map(self.number, arguments), total)
            case Times(left, right):
                return self.number(left) * self.number(right)
            case FloorDiv(argument, divisor):
                return self.number(argument) // divisor
            case CountOf(arguments):
                return sum((self.true(a).astype(object) * 1 for a in arguments), total)
            case Extreme(which, arguments):
                values = np.array([self.number(a) for a in arguments], object)
                return values.min(axis=0) if which == "min" else values.max(axis=0)
        raise AssertionError(node)


# --- queries -------------------------------------------------------------------------------------------------------
def _queries(rng: random.Random, sizes: tuple[int, ...], intervals: Sequence[Interval]) -> list[GridQuery]:
    """About labels alone, about labels and inputs, or about scores too: weighted sums of them, or anything."""
    outputs = len(intervals)
    mode = rng.randrange(5)
    found: list[Predicate] = [HasLabel((k,)) for k in range(outputs)]
    if mode < 2:
        found += [Negation(HasLabel((rng.randrange(outputs),))), HasLabel(())]
    else:
        found = [found[rng.randrange(outputs)]]
        found += [random_predicate(rng, sizes, outputs, rng.randint(1, 3)), _arithmetic(rng, sizes)]
    if mode >= 3:
        scores = [Score(k, low, high) for k, (low, high) in enumerate(intervals)]
        found += [_about_scores(rng, sizes, scores, curved=mode == 4) for _ in range(2)]
    return [GridQuery(f"q{k}", predicate) for k, predicate in enumerate(found)]


def _arithmetic(rng: random.Random, sizes: tuple[int, ...]) -> Predicate:
    """Inputs counted, rounded and multiplied, compared with a value that is taken somewhere."""

    def line() -> Linear:
        chosen = sorted(rng.sample(range(len(sizes)), min(len(sizes), rng.randint(1, 3))))
        terms = tuple((f, rng.choice((-3, -1, 1, 2))) for f in chosen)
        return Linear(terms, -sum(c * rng.randrange(sizes[f]) for f, c in terms))

    tests = tuple(
        Sign(rng.choice(("<", "<=", "==", "!=")), line())
        if rng.random() < 0.5
        else Within(f, 0, rng.randint(1, sizes[f]))
        for f in (rng.randrange(len(sizes)) for _ in range(rng.randint(2, 5)))
    )
    count = Plus((CountOf(tests), Linear((), -rng.randint(0, len(tests)))))
    rounded = Plus((FloorDiv(line(), rng.choice((2, 3, 7))), line()))
    product = Plus((Times(line(), line()), line()))
    extreme = Plus((Extreme(rng.choice(("min", "max")), (line(), line())), line()))
    return Sign(rng.choice(("<", "<=", "==", "!=")), rng.choice((count, count, rounded, product, extreme)))


def _about_scores(rng: random.Random, sizes: tuple[int, ...], scores: list[Score], curved: bool) -> Predicate:
    first, second = rng.choice(scores), rng.choice(scores)
    op = rng.choice(("<", "<=", "==", "!="))
    constant = Linear((), -rng.randint(first.low, first.high))
    line = Linear(((rng.randrange(len(sizes)), rng.choice((-3, 1, 2))),), rng.randint(-3, 3))
    minus = Times(Linear((), -1), second)
    if curved:
        product = Times(first, FloorDiv(second, rng.choice((2, 3))))
        total: IntExpr = rng.choice((Plus((product, minus)), Extreme("max", (*scores, line)), product))
    else:
        total = rng.choice(
            (Plus((first, constant)), Plus((first, minus)), Plus((first, minus, line)), Plus((minus, line)))
        )
    about = Sign(op, total)
    return rng.choice((about, AnyOf((about, HasLabel((rng.randrange(len(scores)),)))), Negation(about)))

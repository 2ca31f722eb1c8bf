"""An integer network and boxes go in; proven affine bounds of its neurons on each box come out, in integers.

A form is c0 + Σ c_k·t_k with t_k in [−1, 1], input k being (low + last)/2 + t_k·(last − low)/2. Every neuron has a form
below and one above it. A weighted sum takes the one or the other by the weight's sign; an activation with a kink is
bounded by a straight line of the recorded slope, moved until it holds at both ends of its form's range (the function
being convex or concave, it then holds between them). This is the relaxation of Singh et al., "An abstract domain for
certifying neural networks" (POPL 2019), with forms over the inputs carried forward.

Numbers are integers times 2^exponent. With `narrow` they are kept in 64-bit words: before a product they are cut to so
many bits that no sum can reach 2^62, and what is cut off is charged outwards. Without, they are Python's, and nothing
is lost. So `narrow` bounds hold too; they are merely a little wider.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from quantify.evidence.certificates.tree import STEEPEST
from quantify.ir.network import IntLayer, IntNetwork
from quantify.ir.problem import Box

WORD = 60
"""Sums of at most this many bits are safe, with their doubles and a constant on top."""
SLOPE = 16
WEIGHT_BITS = 24
FEWEST = 8
"""Bits of a form below which words are useless."""
PASS, UNDER, LOW, HIGH, UNSTABLE = range(5)
"""What is proven of a neuron: it has its slope above the kink, that below, its least or its largest value."""
KNOWN = ("none", "relu", "leaky", "sign", "floor_shift")


class TooWideError(Exception):
    """64-bit words have no room for these numbers."""


class Rows:
    """Affine functions: an (m × n) matrix of Python integers and m constants; also cut to words."""

    def __init__(self, matrix: Any, constant: Any) -> None:
        self.matrix = np.array(matrix, object).reshape(len(constant), -1)
        self.constant = np.array(constant, object)
        largest = max((abs(w) for w in self.matrix.ravel().tolist()), default=0)
        self.cut = max(0, largest.bit_length() - WEIGHT_BITS)
        half = (1 << self.cut) >> 1
        rounded = (self.matrix + half) >> self.cut if self.cut else self.matrix
        self.words = rounded.astype(np.int64)
        self.sizes = abs(self.words)
        self.bits = min(largest.bit_length(), WEIGHT_BITS) + 1
        self.constant_bits = max((abs(c) for c in self.constant.tolist()), default=0).bit_length()
        self.all_sizes = abs(self.matrix)


@dataclass(frozen=True, eq=False)
class Forms:
    """(n × (1 + d) × N): n neurons on N boxes, as integers times 2^exponent."""

    below: Any
    above: Any
    exponent: int

    def at(self, boxes: Any) -> Forms:
        """The forms on some of the boxes."""
        return Forms(self.below[:, :, boxes], self.above[:, :, boxes], self.exponent)


@dataclass(frozen=True, eq=False)
class Layered:
    """A network over the inputs that vary in a region; scores are affine in the last hidden vector."""

    varying: tuple[int, ...]
    hidden: tuple[tuple[Rows, IntLayer], ...]
    scores: Rows

    @property
    def places(self) -> int:
        """Two for each hidden neuron."""
        return 2 * sum(len(rows.constant) for rows, _ in self.hidden)

    @property
    def widest(self) -> int:
        """Most values in one layer."""
        return max([1, len(self.varying), len(self.scores.constant), *(len(r.constant) for r, _ in self.hidden)])


def layered(network: IntNetwork, region: Box) -> Layered:
    """The network on a region that is not empty, its fixed inputs folded into the first biases.

    Raises:
        ValueError: An activation that certificates do not know.
    """
    spans = list(zip(region.low, region.high, strict=True))
    varying = tuple(k for k, (a, b) in enumerate(spans) if b - a > 1)
    fixed = {k: a for k, (a, b) in enumerate(spans) if b - a == 1}
    stack = []
    for number, layer in enumerate(network.layers):
        if layer.activation not in KNOWN or layer.members is not None:
            raise ValueError(f"layer {number + 1} has the activation {layer.activation}")
        if layer.activation == "leaky" and min(layer.positive, layer.negative) < 0:
            raise ValueError(f"layer {number + 1} has falling slopes")
        matrix = _dense(layer)
        bias = [int(b) for b in layer.bias.tolist()]
        if number == 0:
            bias = [b + sum(row[k] * at for k, at in fixed.items()) for row, b in zip(matrix, bias, strict=True)]
            matrix = [[row[k] for k in varying] for row in matrix]
        stack.append((Rows(matrix, bias), layer))
    if stack[-1][1].activation == "none":
        scores = stack.pop()[0]
    else:
        outputs = network.outputs
        scores = Rows([[int(i == j) for j in range(outputs)] for i in range(outputs)], [0] * outputs)
    return Layered(varying, tuple(stack), scores)


def _dense(layer: IntLayer) -> list[list[int]]:
    start, columns, values = layer.rows.start.tolist(), layer.rows.columns.tolist(), layer.rows.values.tolist()
    matrix = [[0] * layer.rows.inputs for _ in range(layer.rows.outputs)]
    for i, row in enumerate(matrix):
        for k in range(start[i], start[i + 1]):
            row[columns[k]] += int(values[k])
    return matrix


# --- sums ----------------------------------------------------------------------------------------------------------
def of_inputs(low: Any, high: Any, narrow: bool) -> Forms:
    """The inputs on boxes (d × N), exactly."""
    dims, count = low.shape
    out = np.zeros((dims, 1 + dims, count), np.int64 if narrow else object)
    for k in range(dims):
        out[k, 0] = low[k] + high[k] - 1
        out[k, 1 + k] = high[k] - 1 - low[k]
    return Forms(out, out, -1)


def spread(form: Any) -> Any:
    """(n × N): how far each form goes from its constant."""
    return abs(form[:, 1:]).sum(axis=1)


def _norm(form: Any) -> Any:
    return abs(form).sum(axis=1)


def fit(forms: Forms, bits: int, least: int | None = None) -> Forms:
    """64-bit forms whose norms are below 2^bits and whose exponent is at least `least`; cut outwards where need be.

    Raises:
        TooWideError: So few bits are worth nothing.
    """
    slots = forms.below.shape[1]
    if bits < FEWEST + 2 or 2 * slots >= 1 << (bits - 1):
        raise TooWideError
    largest = max(int(_norm(form).max(initial=0)) for form in (forms.below, forms.above))
    shift = largest.bit_length() - (bits - 1)
    if least is not None:
        shift = max(shift, least - forms.exponent)
    return _cut(forms, shift)


def _cut(forms: Forms, shift: int) -> Forms:
    """The forms in units of 2^shift times their own; what is cut off is charged outwards."""
    below, above = forms.below, forms.above
    if shift <= 0:
        return Forms(below << -shift, above << -shift, forms.exponent + shift)
    slots = below.shape[1]
    by = min(shift, 62)  # as good as any further shift for numbers below 2^62
    below, above = below >> by, above >> by
    # Each coefficient lost less than one unit, and t is at most 1 in size.
    below[:, 0] -= slots - 1
    above[:, 0] += slots
    return Forms(below, above, forms.exponent + shift)


def _units(value: int, exponent: int) -> tuple[int, int]:
    """value / 2^exponent, rounded down and up."""
    if exponent <= 0:
        return value << -exponent, value << -exponent
    return value >> exponent, -(-value >> exponent)


def sums(rows: Rows, forms: Forms, narrow: bool) -> Forms:
    """The forms of affine functions of neurons.

    Raises:
        TooWideError: See `fit`.
    """
    inputs = rows.matrix.shape[1]
    if narrow:
        # |sum + difference| ≤ n·2^bits·2^(2 + room) ≤ 2^WORD.
        least = rows.constant_bits - WORD + 1 - rows.cut
        forms = fit(forms, WORD - 2 - rows.bits - inputs.bit_length(), least)
        matrix, sizes = rows.words, rows.sizes
    else:
        matrix, sizes = rows.matrix, rows.all_sizes
    shape = (len(rows.constant), *forms.below.shape[1:])
    exponent = forms.exponent - 1 + (rows.cut if narrow else 0)
    # Twice the sums: w⁺b + w⁻a = (w(a + b) − |w|(a − b)) / 2.
    below = above = _times(matrix, forms.above + forms.below).reshape(shape)
    difference = forms.above - forms.below
    if difference.any():
        apart = _times(sizes, difference).reshape(shape)
        below, above = below - apart, above + apart
    else:
        above = above.copy()
    if narrow and rows.cut:
        # Weights are off by at most half a unit: twice that, times what it multiplies.
        lost = np.maximum(_norm(forms.below), _norm(forms.above)).sum(axis=0)
        below[:, 0] -= lost
        above[:, 0] += lost
    for k, constant in enumerate(rows.constant.tolist()):
        down, up = _units(constant, exponent)
        below[k, 0] += down
        above[k, 0] += up
    return Forms(below, above, exponent)


def _times(matrix: Any, values: Any) -> Any:
    flat = values.reshape(values.shape[0], values.shape[1] * values.shape[2])
    if matrix.shape[1] == 0:
        return np.zeros((matrix.shape[0], flat.shape[1]), flat.dtype)
    return matrix @ flat


# --- activations ---------------------------------------------------------------------------------------------------
def _bent(
    forms: Forms, at: int, positive: int, negative: int, chord: Any, line: Any, narrow: bool
) -> tuple[Forms, Any, Any]:
    """y = at + g(z − at), g having the slope `positive` above 0 and `negative` below, both at least 0.

    chord, line: (n × N) the recorded slopes, chord −1 where none is recorded; any slope gives bounds that hold.

    Returns:
        The forms, and on which boxes all of z − at is at least 0, at most 0.
    """
    if narrow:
        room = WORD - 4 - SLOPE - max(positive, negative, 1).bit_length()
        forms = fit(forms, room, abs(at).bit_length() - room)
    # The function is not decreasing in `at`, so each side may round it its own way.
    at_below, at_above = _units(at, forms.exponent)
    below, above = forms.below.copy(), forms.above.copy()
    below[:, 0] -= at_below
    above[:, 0] -= at_above
    by, also = spread(below), spread(above)
    low, below_high = below[:, 0] - by, below[:, 0] + by
    above_low, high = above[:, 0] - also, above[:, 0] + also
    passes = low >= 0
    under = (high <= 0) & ~passes
    # Arrays even of one: left to itself, NumPy makes words of Python's integers, and lets them wrap.
    up, down = (np.array(slope << SLOPE, np.int64 if narrow else object) for slope in (positive, negative))
    missing = chord < 0
    chord = np.where(missing, np.where(high > -above_low, STEEPEST, 0), chord)
    line = np.where(missing, high > -low, line > 0)
    if not narrow:
        chord = chord.astype(object)
    slope, straight = down + (positive - negative) * chord, np.where(line, up, down)
    convex = positive >= negative
    ends = (above_low, high) if convex else (low, below_high)
    off = [np.where(end >= 0, up, down) * end - slope * end for end in ends]
    shift = np.maximum(*off) if convex else np.minimum(*off)
    stable, exact = passes | under, np.where(passes, up, down)
    slope, straight = np.where(stable, exact, slope), np.where(stable, exact, straight)
    shift = np.where(stable, 0, shift)
    below *= (straight if convex else slope)[:, None]
    above *= (slope if convex else straight)[:, None]
    (above if convex else below)[:, 0] += shift
    below[:, 0] += at_below << SLOPE
    above[:, 0] += at_above << SLOPE
    return Forms(below, above, forms.exponent - SLOPE), passes, under


def _constants(like: Any, low: Any, high: Any) -> Forms:
    below, above = np.zeros_like(like), np.zeros_like(like)
    below[:, 0], above[:, 0] = low, high
    return Forms(below, above, 0)


def activated(layer: IntLayer, forms: Forms, chord: Any, line: Any, narrow: bool) -> tuple[Forms, Any]:
    """The forms after the activation, and what is proven of each neuron (n × N).

    chord, line: (2n × N), two steps a neuron.

    Raises:
        TooWideError: See `fit`.
    """
    state = np.full((forms.below.shape[0], forms.below.shape[2]), UNSTABLE, np.int8)
    first, second = (chord[0::2], line[0::2]), (chord[1::2], line[1::2])
    if layer.activation == "none":
        state[:] = PASS
        return forms, state
    if layer.activation == "leaky":
        forms, passes, under = _bent(forms, 0, layer.positive, layer.negative, *first, narrow)
        state[passes], state[under] = PASS, UNDER
        return forms, state
    if layer.activation == "relu":
        forms, passes, under = _bent(forms, 0, 1, 0, *first, narrow)
        state[passes] = PASS
        if layer.cap is not None:
            forms, full, part = _bent(forms, layer.cap, 0, 1, *second, narrow)
            state[~part] = UNSTABLE
            state[full] = HIGH
        state[under] = LOW
        return forms, state
    if layer.activation == "sign":
        low = forms.below[:, 0] - spread(forms.below)
        high = forms.above[:, 0] + spread(forms.above)
        state[(high <= 0) if layer.at_zero == -1 else (high < 0)] = LOW
        state[(low >= 0) if layer.at_zero == 1 else (low > 0)] = HIGH
        return _constants(forms.below, np.where(state == HIGH, 1, -1), np.where(state == LOW, -1, 1)), state
    # floor_shift: z/2^s, at most 1 − 2^−s less, clamped.
    if narrow:
        forms = fit(forms, WORD - 1, layer.shift - WORD + 1)
    below = forms.below.copy()
    below[:, 0] -= _units((1 << layer.shift) - 1, forms.exponent)[1]
    forms = Forms(below, forms.above, forms.exponent - layer.shift)
    forms, _, under = _bent(forms, layer.low, 1, 0, *first, narrow)
    forms, full, _ = _bent(forms, layer.high, 0, 1, *second, narrow)
    state[full], state[under] = HIGH, LOW
    return forms, state


# --- whole networks ------------------------------------------------------------------------------------------------
def hidden(network: Layered, low: Any, high: Any, chord: Any, line: Any, narrow: bool) -> tuple[Forms, Any]:
    """The forms of the last hidden vector on boxes (d × N), and what is proven of all hidden neurons (neurons × N).

    chord, line: (places × N).

    Raises:
        TooWideError: See `fit`.
    """
    forms = of_inputs(low, high, narrow)
    states, start = [], 0
    for rows, layer in network.hidden:
        end = start + 2 * len(rows.constant)
        forms, state = activated(layer, sums(rows, forms, narrow), chord[start:end], line[start:end], narrow)
        states.append(state)
        start = end
    return forms, np.concatenate(states) if states else np.zeros((0, low.shape[1]), np.int8)


def lines(layer: IntLayer) -> tuple[Any, Any]:
    """By state, the slope and the constant of a neuron of which it is proven; 0 and 0 of an unstable one."""
    high, low = {"relu": (layer.cap, 0), "sign": (1, -1)}.get(layer.activation, (layer.high, layer.low))
    slopes, constants = np.zeros((2, UNSTABLE + 1), object)
    leaky = layer.activation == "leaky"
    slopes[PASS], slopes[UNDER] = (layer.positive, layer.negative) if leaky else (1, 0)
    constants[LOW], constants[HIGH] = low, high or 0
    return slopes, constants


def signs(forms: Forms) -> tuple[Any, Any]:
    """What is proven of the signs of whole numbers that lie between the forms: (least, most), each −1, 0 or 1."""
    low = forms.below[:, 0] - spread(forms.below)
    high = forms.above[:, 0] + spread(forms.above)
    # A whole number above −1 is at least 0.
    one = 1 << min(max(-forms.exponent, 0), 62)
    if low.dtype == object:
        one = 1 << max(-forms.exponent, 0)
    least = np.where(low > 0, 1, np.where(low > -one, 0, -1))
    most = np.where(high < 0, -1, np.where(high < one, 0, 1))
    return least, most


def joined(one: Forms, other: Forms) -> Forms:
    """The sum of two forms over the same inputs."""
    if one.below.dtype == object:
        exponent = min(one.exponent, other.exponent)
    else:
        one, other = fit(one, WORD), fit(other, WORD)
        exponent = max(one.exponent, other.exponent)
    one, other = _cut(one, exponent - one.exponent), _cut(other, exponent - other.exponent)
    return Forms(one.below + other.below, one.above + other.above, exponent)

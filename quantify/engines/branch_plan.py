"""A network case goes in; the native `branch_plan` comes out: doubles with their errors, exact words where they fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from quantify.engines.branch_layers import (
    EXACT_BITS,
    SAFE,
    WORD,
    Layer,
    Layers,
    Matrix,
    matrix,
    point_error,
    prepare,
    refusal,
    scale_of,
    scaled,
)
from quantify.engines.branch_predicates import Affine, Compiled, Node, UnsupportedError, compile_queries
from quantify.engines.descent import native_module
from quantify.ir.problem import Box, GridCase, GridProblem

MAX_LABELS = MAX_QUERIES = 64
MAX_DIMS = 31
MAX_POINTS = 1 << 120
MAX_WIDTH = 1 << 40
MAX_WEIGHTS = 1 << 21
MOST_DOUBLE_BITS = 600
"""Bits of all layers' constants and sums together that doubles hold in any case, inputs included."""
ACTIVATIONS = {"none": 0, "relu": 1, "leaky": 2, "sign": 3, "floor_shift": 4}
NARROW_BITS, WIDE_BITS = 61, 122
LANES = 8


@dataclass(frozen=True)
class Tuning:
    """What trades one kind of work for another; results do not depend on it."""

    leaf_points: int = 64
    """Boxes of at most so many points are enumerated."""
    reduced_work: float = 32768.0
    """Most instructions for evaluating all points of a box over what its stable neurons leave of the network."""
    descent_points: float = 2.0**20
    """Boxes of at most so many points are split further by what their stable neurons leave of the network."""
    sketch_levels: int = 3
    """Larger boxes that wait are bounded by so many levels of eight parts each; 0: by their volumes alone."""
    loop_work: float = 1024.0
    """Most floor sums for one half-space."""
    credit_points: float = 2.0**24
    """Boxes of at least so many points are bounded by volumes while they wait."""
    local_points: float = 2.0**16
    """Boxes of at most so many points are finished at once instead of waiting for their turn."""
    closed_form: bool = True
    """Whether half-spaces are counted in closed form."""


@dataclass
class Plan:
    """One case, ready for the native engine."""

    layers: Layers
    compiled: Compiled
    low: list[int]
    high: list[int]
    """The box over the varying inputs."""
    size: int
    native: Any
    """`branch_plan *`; `keep` holds what it points to."""
    keep: list[Any]


def refuses(problem: GridProblem, case: GridCase) -> str | None:
    """Why this case cannot be branched on, or None; cheap."""
    network, region = problem.network, case.region
    if network is None:
        return "it takes networks, not trees"
    if not isinstance(region, Box):
        return "it takes boxes, not l1 or l0 balls"
    if problem.measure.kind != "uniform":
        return "it counts points, not weights"
    if network.outputs != problem.labels or problem.labels > MAX_LABELS:
        return f"it takes networks with one score per label and at most {MAX_LABELS} labels"
    if len(case.queries) > MAX_QUERIES:
        return f"it takes at most {MAX_QUERIES} queries at once"
    widths = [b - a for a, b in zip(region.low, region.high, strict=True) if b - a > 1]
    if len(widths) > MAX_DIMS:
        return f"{len(widths)} inputs vary, and it splits at most {MAX_DIMS}"
    if region.size >= MAX_POINTS or max(region.high, default=0) > MAX_WIDTH:
        return "the region holds more than 2^120 points or positions beyond 2^40"
    if sum(layer.rows.outputs * layer.rows.inputs for layer in network.layers) > MAX_WEIGHTS:
        return f"its layers have more than {MAX_WEIGHTS:,} places for weights"
    if reason := refusal(network):
        return reason
    if native_module() is None:
        return "the native module is not built"
    return _unsupported(problem, case) or _beyond_doubles(problem, case)


def _beyond_doubles(problem: GridProblem, case: GridCase) -> str | None:
    """Scaled numbers of neighbouring layers may still be too far apart; a plan is only tried where that is possible."""
    network, region = problem.network, case.region
    assert network is not None
    assert isinstance(region, Box)
    # A sum over the inputs of a layer adds bits to those of its weights, and so do slopes.
    bits = sum(
        max(abs(int(x)) for x in (*_ends(layer.rows.values), *_ends(layer.bias), layer.cap or 0, layer.positive,
                                  layer.negative, layer.low, layer.high, 1 << layer.shift)).bit_length()
        + layer.rows.inputs.bit_length() + (layer.positive.bit_length() if layer.activation == "leaky" else 0)
        for layer in network.layers
    )  # fmt: skip
    if region.size <= 1:
        return None
    rows = [
        (abs(row.constant) + sum(map(abs, (*row.scores.values(), *row.positions.values())))).bit_length()
        for row in _compile(problem, case).rows
    ]
    if bits + max(rows, default=0) <= MOST_DOUBLE_BITS:
        return None
    try:
        make_plan(problem, case, Tuning(), workers=1, recording=False, isa=0, most_waiting=1)
    except OverflowError:
        return "its integers leave the range of doubles"
    return None


def _ends(values: Any) -> tuple[int, int]:
    return (int(values.min()), int(values.max())) if len(values) else (0, 0)


def _unsupported(problem: GridProblem, case: GridCase) -> str | None:
    try:
        _compile(problem, case)
    except UnsupportedError as error:
        return str(error)
    return None


def _compile(problem: GridProblem, case: GridCase) -> Compiled:
    region = case.region
    assert isinstance(region, Box)
    spans = list(zip(region.low, region.high, strict=True))
    varying = [k for k, (a, b) in enumerate(spans) if b - a > 1]
    fixed = {k: a for k, (a, b) in enumerate(spans) if b - a <= 1}
    return compile_queries([q.predicate for q in case.queries], problem.sizes, problem.labels, varying, fixed)


def make_plan(
    problem: GridProblem, case: GridCase, tuning: Tuning, *, workers: int, recording: bool, isa: int, most_waiting: int
) -> Plan:
    """Everything the native engine needs for a case that is not refused and whose region is not empty."""
    network, region = problem.network, case.region
    assert network is not None
    assert isinstance(region, Box)
    layers = prepare(network, region)
    compiled = _compile(problem, case)
    builder = _Builder(layers, compiled)
    native = builder.build(tuning, problem.labels, len(case.queries))
    native.workers, native.isa, native.recording, native.most_waiting = workers, isa, recording, most_waiting
    low = [region.low[k] for k in layers.varying]
    high = [region.high[k] for k in layers.varying]
    return Plan(layers, compiled, low, high, region.size, native, builder.keep)


def _words(value: int) -> tuple[int, int]:
    """Two's complement in two 64-bit words, low first, both as signed numbers."""
    low = value & ((1 << 64) - 1)
    return low - (1 << 64) if low >> 63 else low, value >> 64


def packed(weights: Any) -> Any:
    """(rows × columns) as blocks of 8 rows, each block column by column."""
    rows, columns = weights.shape
    blocks = -(-rows // LANES)
    full = np.zeros((blocks * LANES, columns))
    full[:rows] = weights
    return full.reshape(blocks, LANES, columns).transpose(0, 2, 1)


def padded(values: Any) -> Any:
    """The values with zeros up to a multiple of 8."""
    full = np.zeros(-(-len(values) // LANES) * LANES)
    full[: len(values)] = values
    return full


class _Builder:
    def __init__(self, layers: Layers, compiled: Compiled) -> None:
        self._layers = layers
        self._compiled = compiled
        module = native_module()
        self._ffi = module.ffi
        self.keep: list[Any] = []

    def _doubles(self, values: Any) -> Any:
        return self._pointer("double[]", np.ascontiguousarray(values, np.float64))

    def _pointer(self, kind: str, array: Any) -> Any:
        self.keep.append(array)
        pointer = self._ffi.from_buffer(kind, array) if array.size else self._ffi.new(kind, 1)
        self.keep.append(pointer)
        return pointer

    def _integers(self, values: list[int], kind: str = "int64_t[]") -> Any:
        array = self._ffi.new(kind, values or [0])
        self.keep.append(array)
        return array

    def build(self, tuning: Tuning, labels: int, queries: int) -> Any:
        layers, compiled = self._layers, self._compiled
        native = self._ffi.new("branch_plan *")
        dims = max(1, len(layers.varying))
        hidden = len(layers.last_largest)
        native.dims, native.layers, native.hidden = dims, len(layers.hidden), max(hidden, 1)
        native.labels, native.queries, native.rows = labels, queries, len(compiled.rows)
        native.nodes = len(compiled.nodes)
        native.widest = max([dims, hidden, 1, *(len(layer.bias) for layer in layers.hidden)])
        native.exact_points = layers.exact
        native.leaf_points, native.loop_work = tuning.leaf_points, tuning.loop_work
        native.reduced_work = tuning.reduced_work
        native.sketch_levels = tuning.sketch_levels if tuning.reduced_work else 0
        native.descent_points = tuning.descent_points if tuning.reduced_work else 0.0
        native.credit_points, native.local_points = tuning.credit_points, tuning.local_points
        native.closed_form = self._closed_form() if tuning.closed_form else 0
        native.layer = self._layer_array(native.closed_form > 0)
        self._scores(native)
        self._rows(native)
        self._nodes(native)
        return native

    # --- layers ------------------------------------------------------------------------------------------------------
    def _layer_array(self, closed_form: bool) -> Any:
        array = self._ffi.new("branch_layer[]", max(1, len(self._layers.hidden)))
        self.keep.append(array)
        before = 0
        columns = max(1, len(self._layers.varying))
        for into, layer in zip(array, self._layers.hidden, strict=False):
            self._layer(into, layer, layer.argument_scale - before, columns, closed_form)
            before, columns = layer.value_scale, len(layer.bias)
        return array

    def _layer(self, into: Any, layer: Layer, scale: int, columns: int, closed_form: bool) -> None:
        source = layer.source
        into.inputs, into.outputs = columns, len(layer.bias)
        into.activation, into.capped = ACTIVATIONS[source.activation], source.cap is not None
        low, high = source.low, source.high
        if source.activation == "relu":
            low, high = 0, source.cap or 0
        elif source.activation == "sign":
            low, high = -1, 1
        into.low, into.high = scaled(low, layer.value_scale), scaled(high, layer.value_scale)
        into.zero = float(source.at_zero)
        into.positive, into.negative = (
            scaled(source.positive, layer.slope_scale),
            scaled(source.negative, layer.slope_scale),
        )
        if source.activation == "floor_shift":
            into.factor = 2.0 ** (layer.argument_scale - source.shift)
            into.slack = 1.0 - 2.0**-source.shift if source.shift <= EXACT_BITS else 1.0
        into.point_error = layer.argument_error
        weights = matrix(layer.weights, scale, columns)
        into.weights = self._doubles(weights)
        into.packed = self._doubles(packed(weights))
        into.bias = self._doubles(padded([scaled(b, layer.argument_scale) for b in layer.bias]))
        if closed_form:
            into.exact = self._integers([w for row in layer.weights for w in (row or [0])])
            into.exact_bias = self._integers([word for b in layer.bias for word in _words(b)])
            into.exact_positive, into.exact_negative = source.positive, source.negative
            into.exact_low, into.exact_high = low, high

    def _closed_form(self) -> int:
        """Words that exact affine maps need, whatever the states of the neurons; 0 when two are not proven enough."""
        layers = self._layers
        columns = list(zip(*layers.score_weights, strict=True))
        slope = [max(column) - min(column) for column in columns]
        constant = max(layers.score_bias) - min(layers.score_bias)
        words = [w for row in layers.score_weights for w in row]
        for layer in reversed(layers.hidden):
            source = layer.source
            steep = [g * (source.positive if source.activation == "leaky" else 1) for g in slope]
            ends = max(abs(source.low), abs(source.high), source.cap or 0, 1)
            constant += sum(g * abs(b) for g, b in zip(steep, layer.bias, strict=True)) + ends * sum(slope)
            words += [w for row in layer.weights for w in row] + [source.positive, source.negative, ends]
            inputs = len(layer.weights[0]) if layer.weights else 0
            slope = [sum(g * abs(row[j]) for g, row in zip(steep, layer.weights, strict=True)) for j in range(inputs)]
            constant = max(constant, *steep, *slope) if inputs else constant
        # Coefficients times positions, widths and sums of them, each at most twice.
        total = constant + sum(4 * g * (top + 1) for g, top in zip(slope, layers.input_largest, strict=True))
        # Biases that a slope of 0 takes out of the total must fit two words all the same.
        biases = [b for column in (layers.score_bias, *(layer.bias for layer in layers.hidden)) for b in column]
        if any(abs(w).bit_length() >= WORD for w in words) or any(abs(b).bit_length() > WIDE_BITS for b in biases):
            return 0
        if total.bit_length() > WIDE_BITS:
            return 0
        return 1 if total.bit_length() <= NARROW_BITS else 2

    # --- rows --------------------------------------------------------------------------------------------------------
    def _scores(self, native: Any) -> None:
        layers = self._layers
        weights, bias = layers.score_weights, layers.score_bias
        labels = len(bias)
        top = max(self._reach(row, b) for row, b in zip(weights, bias, strict=True))
        scale = scale_of(top)
        native.score_weights = self._doubles(self._last(weights, scale))
        native.score_bias = self._doubles([scaled(b, scale) for b in bias])
        native.score_error = 0.0 if layers.exact else self._error(weights, bias, [], scale)
        # For each label its margins against all labels, in whole blocks.
        differences, constants = [], []
        for i in range(labels):
            rows: Matrix = [[a - b for a, b in zip(weights[i], weights[k], strict=True)] for k in range(labels)]
            differences.append(packed(self._last(rows, scale)))
            constants.append(padded([scaled(bias[i] - bias[k], scale) for k in range(labels)]))
        native.pair.packed = self._doubles(np.concatenate(differences))
        native.pair.inputs = self._ffi.NULL
        native.pair.bias = self._doubles(np.concatenate(constants))
        native.unit = 2.0**-scale
        native.whole = scale == 0 and not any(layer.argument_scale or layer.value_scale for layer in layers.hidden)
        native.pair_exact = self._ffi.NULL
        if native.closed_form:
            native.pair_exact = self._integers([w for row in weights for w in (row or [0])])
            native.pair_exact_bias = self._integers([word for b in bias for word in _words(b)])

    def _last(self, weights: Matrix, scale: int) -> Any:
        return matrix(
            [row or [0] for row in weights], scale - self._layers.last_scale, max(1, len(self._layers.last_largest))
        )

    def _reach(self, row: list[int], bias: int) -> int:
        return abs(bias) + sum(abs(w) * top for w, top in zip(row, self._layers.last_largest, strict=True))

    def _error(self, weights: Matrix, bias: list[int], inputs: Matrix, scale: int) -> float:
        """Bound on the error of these rows at a point."""
        layers = self._layers
        hidden = np.abs(matrix(weights, scale - layers.last_scale, len(layers.last_largest))) * SAFE
        largest = np.array([scaled(x, layers.last_scale) for x in layers.last_largest]) * SAFE
        constant = np.abs(np.array([scaled(b, scale) for b in bias]))
        if inputs:
            # Inputs are exact; what their products and the longer sum lose is charged as if it were bias.
            reach = np.array([float(x) for x in layers.input_largest])
            constant = constant + (np.abs(matrix(inputs, scale, len(reach))) * reach).sum(axis=1) * (len(reach) + 8)
        return point_error(hidden, constant * 4, largest, layers.value_error)

    def _rows(self, native: Any) -> None:
        layers, rows = self._layers, self._compiled.rows
        weights: Matrix = []
        inputs: Matrix = []
        bias: list[int] = []
        for row in rows:
            total, constant, over = self._row(row)
            weights.append(total)
            bias.append(constant)
            inputs.append(over)
        scales, errors = [], []
        for total, constant, over in zip(weights, bias, inputs, strict=True):
            top = self._reach(total, constant)
            top += sum(abs(c) * most for c, most in zip(over, layers.input_largest, strict=True))
            scales.append(scale_of(top))
            exact = layers.exact and top.bit_length() < EXACT_BITS
            errors.append(0.0 if exact else self._error([total], [constant], [over], scales[-1]))
        dims = max(1, len(layers.varying))
        width = max(1, len(layers.last_largest))
        over_hidden = np.array([self._last([w], s)[0] for w, s in zip(weights, scales, strict=True)]).reshape(-1, width)
        over_inputs = np.array([matrix([c], s, dims)[0] for c, s in zip(inputs, scales, strict=True)]).reshape(-1, dims)
        constants = [scaled(b, s) for b, s in zip(bias, scales, strict=True)]
        native.row_weights, native.row.packed = self._doubles(over_hidden), self._doubles(packed(over_hidden))
        native.row_inputs, native.row_bias = self._doubles(over_inputs), self._doubles(constants)
        native.row.inputs = self._doubles(packed(over_inputs)) if over_inputs.any() else self._ffi.NULL
        native.row.bias = self._doubles(padded(constants))
        native.row_unit = self._doubles([2.0**-s for s in scales])
        native.row_error = self._doubles(errors)

    def _row(self, row: Affine) -> tuple[list[int], int, list[int]]:
        """Weights over the last hidden vector, constant, weights over the inputs."""
        layers = self._layers
        total = [0] * len(layers.last_largest)
        constant = row.constant
        for index, by in row.scores.items():
            total = [t + by * w for t, w in zip(total, layers.score_weights[index], strict=True)]
            constant += by * layers.score_bias[index]
        return total, constant, [row.positions.get(k, 0) for k in range(len(layers.varying))]

    # --- predicates --------------------------------------------------------------------------------------------------
    def _nodes(self, native: Any) -> None:
        compiled = self._compiled
        nodes = self._ffi.new("branch_node[]", max(1, len(compiled.nodes)))
        self.keep.append(nodes)
        for into, node in zip(nodes, compiled.nodes, strict=False):
            into.op, into.a, into.b, into.x, into.y = node.op, node.a, node.b, node.x, node.y
        native.node = nodes
        native.link = self._integers(compiled.links, "int32_t[]")
        native.constant = self._integers([word for c in compiled.constants for word in _words(c)])
        native.root = self._integers(compiled.roots, "int32_t[]")
        native.static_true = self._integers(compiled.true_for, "uint64_t[]")
        native.label_only = compiled.label_only


__all__ = ["Node", "Plan", "Tuning", "make_plan", "refuses"]

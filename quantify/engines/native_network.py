"""An integer network goes in, a native evaluator comes out whose every word is proven wide enough.

Ranges are taken over a box of positions, in exact integers; sums in the machine wrap round, so that only what a layer
ends with must fit. Where 64 bits do not suffice the caller is told, and computes with Python's integers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.engines.bytecode import NotNativeError
from quantify.errors import InputError
from quantify.ir.network import IntLayer, IntNetwork, Rows

ISAS = {"": 0, "portable": 1, "avx2": 2, "avx512": 3, "vnni": 4}
"""Instruction sets by the name that QUANTIFY_ISA gives; empty: the best there is."""
ACTIVATIONS = {"none": 0, "relu": 1, "leaky": 2, "sign": 3, "floor_shift": 4, "max": 5, "requantise": 6}
PAIRS, WORDS, WIDE = range(3)
MAX_POSITION = 1 << 62
STRIP = 64

Ints = NDArray[Any]
"""int64, or object (Python ints)."""


@dataclass(frozen=True)
class Span:
    """Smallest and largest value of every unit, as Python ints."""

    low: Ints
    high: Ints

    def fits(self, bits: int) -> bool:
        """Whether all of them are two's complement numbers of that many bits."""
        limit = 1 << (bits - 1)
        return all(-limit <= low and high < limit for low, high in zip(self.low, self.high, strict=True))


@dataclass
class NativeNetwork:
    """The native form of a network over one box of positions."""

    shape: Any
    """A `network_shape *`."""
    outputs: int
    """Scores of a row; 0 when only their difference is computed."""
    labels: int
    """Classes that are counted."""
    fused: bool
    operations: float
    """Multiplications of 32 bits a point that layers after the first take, roughly."""
    units: int
    """Of the first layer."""
    features: tuple[int, ...]
    """Features of the problem that are the inputs, ascending."""
    keep: list[Any] = field(default_factory=list)

    def task(self, isa: str = "") -> Any:
        """A new native task (one for each thread), closed when it is dropped.

        Raises:
            InputError: The processor lacks what `isa` or QUANTIFY_ISA names.
        """
        from quantify.engines import _native

        name = isa or os.environ.get("QUANTIFY_ISA", "")
        if name not in ISAS:
            known = ", ".join(key for key in ISAS if key)
            raise InputError(f"there is no instruction set {name!r}", f"set QUANTIFY_ISA to one of: {known}")
        made = _native.lib.network_open(self.shape, ISAS[name])
        if not made:
            if not _native.lib.network_has(ISAS[name]):
                raise InputError("this processor lacks what QUANTIFY_ISA asks for", "unset QUANTIFY_ISA")
            raise MemoryError
        return _native.ffi.gc(made, _native.lib.network_close)


def spans(network: IntNetwork, low: Sequence[int], high: Sequence[int]) -> list[tuple[Span, Span]]:
    """Of every layer, what its sums and its results lie between when low ≤ position < high (not empty)."""
    now = Span(np.array(low, object), np.array([h - 1 for h in high], object))
    found = []
    for layer in network.layers:
        sums = _sums_span(layer, now)
        now = _activated(layer, sums)
        found.append((sums, now))
    return found


def lower(
    network: IntNetwork,
    labels: int,
    low: Sequence[int],
    high: Sequence[int],
    *,
    walk: bool,
    scores: bool,
) -> NativeNetwork:
    """The native form for low ≤ position < high (not empty).

    Args:
        network: The network.
        labels: Number of classes.
        low: Smallest position of every feature.
        high: One more than the largest.
        walk: For walking through boxes inside low…high: features of one position only are folded into the constants.
        scores: Whether scores are wanted besides labels.

    Raises:
        NotNativeError: Some value needs more than 64 bits.
    """
    if max(high, default=0) > MAX_POSITION:
        raise NotNativeError(f"a feature has {max(high)} positions")
    network = replace(network, layers=tuple(_without_repeats(layer) for layer in _with_sums_first(network).layers))
    features = tuple(range(network.inputs))
    if walk:
        features = tuple(f for f in features if high[f] - low[f] > 1)
        network = _folded(network, low, features)
        low, high = [low[f] for f in features], [high[f] for f in features]
    difference = network.outputs == 2 and not scores and network.layers[-1].activation == "none"
    if difference:
        network = _difference(network)
    return _Lowering(network, low, high, labels, features, walk, difference).made()


class _Lowering:
    def __init__(
        self,
        network: IntNetwork,
        low: Sequence[int],
        high: Sequence[int],
        labels: int,
        features: tuple[int, ...],
        walk: bool,
        difference: bool,
    ) -> None:
        from quantify.engines import _native

        self.ffi = _native.ffi
        self.network = network
        self.labels = labels
        self.features = features
        self.walk = walk
        self.difference = difference
        self.keep: list[Any] = []
        self.inputs = Span(np.array(low, object), np.array([h - 1 for h in high], object))
        self.spans = spans(network, low, high)
        given = [self.inputs, *(results for _, results in self.spans)]
        self.wide = [
            not _narrow(layer, inputs, *spans)
            for layer, inputs, spans in zip(network.layers, given, self.spans, strict=False)
        ]

    def made(self) -> NativeNetwork:
        layers = self.network.layers
        native = self.ffi.new("network_layer[]", len(layers))
        stored = [self._storage(k) for k in range(len(layers))]
        difference = self.difference
        last = WIDE if self.wide[-1] else WORDS
        operations = 0.0
        for k, layer in enumerate(layers):
            out = stored[k + 1] if k + 1 < len(layers) else last
            self._fill(native[k], layer, self.wide[k], stored[k], out)
            if k:
                weights = len(layer.rows.values) if layer.members is None else layer.members.size
                each = 0.5 if stored[k] == PAIRS else 8.0 if self.wide[k] else 1.0
                operations += weights * each + native[k].outputs
        pairs = self._starts_in_pairs(stored)
        fused = pairs and len(layers) == 2 and difference and stored[1] == PAIRS
        if fused:
            native[1].narrow = self._pointer("int32_t[]", _dense_pairs(layers[1], layers[0].rows.outputs))
        first = self.ffi.NULL
        if self.walk:
            matrix = np.ascontiguousarray(layers[0].rows.to_dense().T.astype(np.int64))
            first = self._pointer("int64_t[]", matrix)
        labels = max(self.labels, 2 if difference else _outputs(layers[-1]))
        shape = self.ffi.new(
            "network_shape *",
            {
                "layers": native,
                "count": len(layers),
                "inputs": self.network.inputs,
                "labels": labels,
                "difference": difference,
                "pairs": pairs,
                "lifted": pairs and layers[0].activation == "relu" and self.spans[0][0].fits(15),
                "fused": fused,
                "first": first,
            },
        )
        self.keep.append(native)
        return NativeNetwork(
            shape,
            0 if difference else _outputs(layers[-1]),
            labels,
            fused,
            operations,
            layers[0].rows.outputs,
            self.features,
            self.keep,
        )

    def _storage(self, k: int) -> int:
        """How the inputs of layer k are stored."""
        if self.wide[k]:
            return WIDE
        layer = self.network.layers[k]
        if k == 0 or layer.members is not None:
            return WORDS
        small = Span(layer.rows.values, layer.rows.values)
        return PAIRS if self.spans[k - 1][1].fits(16) and small.fits(16) else WORDS

    def _starts_in_pairs(self, stored: list[int]) -> bool:
        layer, (sums, results) = self.network.layers[0], self.spans[0]
        simple = layer.activation in ("none", "relu")
        return self.walk and len(stored) > 1 and stored[1] == PAIRS and simple and sums.fits(16) and results.fits(16)

    def _fill(self, to: Any, layer: IntLayer, wide: bool, stored: int, out: int) -> None:
        to.outputs = _outputs(layer)
        to.wide, to.out = wide, out
        setattr(to, "in", stored)
        to.activation = ACTIVATIONS["max" if layer.members is not None else layer.activation]
        to.at_zero, to.shift = layer.at_zero, layer.shift
        limit = (1 << 63) - 1
        to.cap = min(limit, layer.cap) if layer.cap is not None else limit
        to.positive, to.negative = _signed(layer.positive), _signed(layer.negative)
        to.low, to.high = layer.low, layer.high
        if layer.members is not None:
            to.window = layer.members.shape[1]
            to.members = self._pointer("int32_t[]", layer.members.astype(np.int32))
        elif layer.requantise is not None:
            r = layer.requantise
            to.multiplier = self._pointer("int64_t[]", r.multiplier.astype(np.int64))
            to.shifts = self._pointer("int64_t[]", r.shift.astype(np.int64))
            to.low, to.high, to.zero_point, to.single = r.low, r.high, r.zero_point, r.rounding == "single"
        if layer.members is None:
            self._fill_rows(to, layer, stored)

    def _fill_rows(self, to: Any, layer: IntLayer, stored: int) -> None:
        start, columns, values = layer.rows.start, layer.rows.columns, layer.rows.values
        to.bias = self._pointer("int64_t[]", _words(layer.bias))
        if stored == PAIRS:
            start, columns, packed = _packed(layer.rows)
            to.narrow = self._pointer("int32_t[]", packed)
        elif stored == WORDS:
            to.narrow = self._pointer("int32_t[]", _words(values).astype(np.int32))
        else:
            to.weights = self._pointer("int64_t[]", _words(values))
        to.start = self._pointer("int32_t[]", start.astype(np.int32))
        to.columns = self._pointer("int32_t[]", columns.astype(np.int32))

    def _pointer(self, kind: str, array: NDArray[Any]) -> Any:
        kept = np.ascontiguousarray(array)
        pointer = self.ffi.from_buffer(kind, kept)
        self.keep.append((kept, pointer))
        return pointer


# --- the network that is walked --------------------------------------------------------------------------------------
def _with_sums_first(network: IntNetwork) -> IntNetwork:
    """The same network, its first layer being one with weights."""
    if network.layers and network.layers[0].members is None:
        return network
    identity = Rows(
        network.inputs,
        np.arange(network.inputs + 1, dtype=np.int64),
        np.arange(network.inputs, dtype=np.int64),
        np.ones(network.inputs, np.int64),
    )
    first = IntLayer(identity, np.zeros(network.inputs, np.int64))
    return replace(network, layers=(first, *network.layers))


def _without_repeats(layer: IntLayer) -> IntLayer:
    """The same layer, no column named twice in a row, so that the halves of pairs hold whole weights."""
    rows = layer.rows
    if layer.members is not None or not len(rows.columns):
        return layer
    row_of = np.repeat(np.arange(rows.outputs), np.diff(rows.start))
    keys, place = np.unique(row_of * rows.inputs + rows.columns, return_inverse=True)
    if len(keys) == len(rows.columns):
        return layer
    values = np.zeros(len(keys), object)
    np.add.at(values, place, rows.values.astype(object))
    start = np.searchsorted(keys, np.arange(rows.outputs + 1) * rows.inputs).astype(np.int64)
    return replace(layer, rows=Rows(rows.inputs, start, keys % rows.inputs, values))


def _folded(network: IntNetwork, low: Sequence[int], features: tuple[int, ...]) -> IntNetwork:
    """The network over `features` alone, the others being at `low`."""
    layer = network.layers[0]
    rows = layer.rows
    held = np.array(low, object)
    place = np.full(network.inputs, -1, np.int64)
    place[list(features)] = np.arange(len(features))
    held[list(features)] = 0
    bias = layer.bias.astype(object) + _row_sums(rows, rows.values.astype(object) * held[rows.columns])
    keep = place[rows.columns] >= 0
    before = np.concatenate([[0], np.cumsum(keep)])
    kept = Rows(len(features), before[rows.start], place[rows.columns[keep]], rows.values[keep])
    return replace(network, inputs=len(features), layers=(replace(layer, rows=kept, bias=bias), *network.layers[1:]))


def _difference(network: IntNetwork) -> IntNetwork:
    """The network with score 0 − score 1 as its only output: class 1 iff that is negative."""
    last = network.layers[-1]
    dense = np.array(last.rows.to_dense().tolist(), object).reshape(2, last.rows.inputs)
    rows = Rows.dense(dense[:1] - dense[1:])
    bias = np.array([int(last.bias[0]) - int(last.bias[1])], object)
    return replace(network, outputs=1, layers=(*network.layers[:-1], replace(last, rows=rows, bias=bias)))


# --- ranges ----------------------------------------------------------------------------------------------------------
def _row_sums(rows: Rows, terms: Ints) -> Ints:
    """Sums of the rows' terms; of int64 terms, modulo 2^64."""
    before = np.concatenate([np.zeros(1, terms.dtype), np.cumsum(terms)])
    return np.asarray(before[rows.start[1:]] - before[rows.start[:-1]])


def _largest(numbers: Ints) -> int:
    return max(abs(int(numbers.min())), abs(int(numbers.max()))) if numbers.size else 0


def _sums_span(layer: IntLayer, inputs: Span) -> Span:
    if layer.members is not None:
        windows = [[int(m) for m in window if m >= 0] for window in layer.members]
        return Span(
            np.array([max(inputs.low[m] for m in window) for window in windows], object),
            np.array([max(inputs.high[m] for m in window) for window in windows], object),
        )
    most = max(1, _largest(layer.rows.values)) * max(1, _largest(inputs.low), _largest(inputs.high))
    longest = int(np.diff(layer.rows.start).max(initial=1))
    kind = np.int64 if most * longest < 1 << 62 else object
    weights, columns = layer.rows.values.astype(kind), layer.rows.columns
    one, other = weights * inputs.low.astype(kind)[columns], weights * inputs.high.astype(kind)[columns]
    bias = layer.bias.astype(object)
    low = bias + _row_sums(layer.rows, np.minimum(one, other)).astype(object)
    return Span(low, bias + _row_sums(layer.rows, np.maximum(one, other)).astype(object))


def _activated(layer: IntLayer, sums: Span) -> Span:
    if layer.members is not None or layer.activation == "none":
        return sums
    pairs = [
        _unit_span(layer, row, int(low), int(high))
        for row, (low, high) in enumerate(zip(sums.low, sums.high, strict=True))
    ]
    return Span(np.array([low for low, _ in pairs], object), np.array([high for _, high in pairs], object))


def _unit_span(layer: IntLayer, row: int, low: int, high: int) -> tuple[int, int]:
    """Of one unit's results: every activation takes its extremes at the ends of the sums' range or at 0."""
    if layer.activation == "requantise":
        assert layer.requantise is not None
        return layer.requantise.low, layer.requantise.high
    if layer.activation == "floor_shift":
        return tuple(min(max(z >> layer.shift, layer.low), layer.high) for z in (low, high))  # type: ignore[return-value]
    points = {low, high} | ({0} if low <= 0 <= high else set())
    if layer.activation == "relu":
        results = {max(z, 0) if layer.cap is None else min(max(z, 0), layer.cap) for z in points}
    elif layer.activation == "leaky":
        results = {(layer.positive if z >= 0 else layer.negative) * z for z in points}
    else:
        results = {layer.at_zero if z == 0 else 1 if z > 0 else -1 for z in points}
    return min(results), max(results)


def _narrow(layer: IntLayer, inputs: Span, sums: Span, results: Span) -> bool:
    """Whether 32 bits hold a layer's sums and results, and of a maximum all that is compared.

    Sums of inputs that were cut off at 32 bits are right modulo 2^32; a maximum of such inputs is not.

    Raises:
        NotNativeError: 64 bits do not, or a rescaling leaves its library's 32 bits.
    """
    if layer.activation == "requantise":
        assert layer.requantise is not None
        shifts = np.maximum(layer.requantise.shift, 0)
        scale = np.array([1 << int(s) for s in shifts], object)
        # Rescaling once never forms the shifted number; doing so twice must not overflow the library's int32.
        shifted = sums if layer.requantise.rounding == "single" else Span(sums.low * scale, sums.high * scale)
        if not shifted.fits(32):
            raise NotNativeError("a rescaled sum of the network needs more than 32 bits")
        return True
    if not (sums.fits(64) and results.fits(64)):
        raise NotNativeError("the network's numbers need more than 64 bits")
    if layer.activation == "floor_shift" and not (layer.shift < 64 and Span(*_ends(layer)).fits(64)):
        raise NotNativeError("a shift or its limits need more than 64 bits")
    if layer.members is not None and not inputs.fits(32):
        return False
    return sums.fits(32) and results.fits(32) and (layer.activation != "floor_shift" or layer.shift < 32)


def _ends(layer: IntLayer) -> tuple[Ints, Ints]:
    return np.array([layer.low, layer.low], object), np.array([layer.high, layer.high], object)


# --- arrays ----------------------------------------------------------------------------------------------------------
def _outputs(layer: IntLayer) -> int:
    return layer.rows.outputs if layer.members is None else len(layer.members)


def _signed(number: int) -> int:
    """The number modulo 2^64, as a signed word: products wrap round to the proven result."""
    word = number & (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


def _words(numbers: Ints) -> NDArray[np.int64]:
    if numbers.dtype != object:
        return numbers.astype(np.int64)
    return np.array([_signed(int(n)) for n in numbers], np.int64)


def _packed(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Start, column and value of pairs of 16-bit weights, for inputs stored in pairs."""
    start, columns, values = [0], [], []
    for row in range(rows.outputs):
        cut = slice(rows.start[row], rows.start[row + 1])
        pairs: dict[int, int] = {}
        for column, value in zip(rows.columns[cut].tolist(), rows.values[cut].tolist(), strict=True):
            low, high = (column % 2 == 0) * int(value), (column % 2) * int(value)
            before = pairs.get(column // 2, 0)
            pairs[column // 2] = _halves(_low(before) + low, (before >> 16) + high)
        columns += sorted(pairs)
        values += [pairs[p] for p in sorted(pairs)]
        start.append(len(columns))
    return np.array(start, np.int64), np.array(columns, np.int64), _as_int32(values)


def _dense_pairs(layer: IntLayer, units: int) -> NDArray[np.int32]:
    """The only row's weights, one word for every pair of units."""
    start, columns, values = _packed(layer.rows)
    dense = np.zeros((units + 1) // 2, np.int32)
    dense[columns[start[0] : start[1]]] = values[start[0] : start[1]]
    return dense


def _halves(low: int, high: int) -> int:
    return (low & 0xFFFF) | (high & 0xFFFF) << 16


def _low(pair: int) -> int:
    return pair & 0xFFFF


def _as_int32(words: list[int]) -> NDArray[np.int32]:
    return np.array(words, np.uint32).view(np.int32)

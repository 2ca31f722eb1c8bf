"""A network in the `.nnet` text format (ReLU layers, normalised inputs and outputs) to a Model.

Constants are the doubles nearest to the decimals of the text, and arithmetic is in double, as in the format's own C
loader. Scores come un-normalised: score·range + mean is the network's last layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError
from quantify.ir.model import Model, Predict
from quantify.ir.network import ActivationLayer, Layer, LinearLayer, Network, Rows
from quantify.readers.float_network import labels
from quantify.readers.unpickle import printable

MAX_WEIGHTS = 1 << 24
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
START = re.compile(
    rb"(?:[ \t]*(?://[^\n]*)?\r?\n)*[ \t]*\d+[ \t]*,[ \t]*\d+[ \t]*,[ \t]*\d+[ \t]*,[ \t]*\d+[ \t]*,?[ \t]*\r?\n"
)
FORMAT = "a .nnet file is: sizes, layer sizes, a flag, minima, maxima, means, ranges, weights and biases a row a line"

Vector = NDArray[np.float64]


class NnetReader:
    """Reads `.nnet` files; see `readers.Reader`."""

    name = ".nnet networks"
    suffixes = (".nnet",)

    def sniff(self, data: bytes) -> bool:
        """Whether the text begins with comments and a line of four whole numbers."""
        return START.match(data[: 1 << 16]) is not None

    def read(self, path: Path, data: bytes, sha256: str, *, trust_pickle: bool) -> Model:
        """See `readers.Reader.read`."""
        try:
            network = _network(_parsed(data))
        except InputError as error:
            raise InputError(f"{path}{error.message}", error.hint) from None
        return Model(
            path=str(path),
            sha256=sha256,
            kind="network",
            classes=tuple(str(label) for label in range(network.outputs)),
            columns=network.inputs,
            column_names=None,
            structure=network,
            predict=bounded_predictor(path, network),
            accepts_missing=False,
            library="quantify's own float64 evaluation",
        )


READER = NnetReader()


def bounded_predictor(path: Path, network: Network) -> Predict:
    """The label of each row, refusing inputs that the file's header rules out (the original would move them inside)."""
    assert network.input_bounds is not None
    low, high = np.array(network.input_bounds).T

    def predict(inputs: Vector) -> NDArray[np.int64]:
        outside = (inputs < low) | (inputs > high)
        if outside.any():
            row, column = (int(index) for index in np.argwhere(outside)[0])
            bounds = f"[{low[column]}, {high[column]}]"
            raise InputError(
                f"{path}: input {column} is {inputs[row, column]}, outside {bounds} of the file's header",
                "keep the domain inside the network's bounds",
            )
        return labels(network, inputs)

    return predict


# --- the text ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Parsed:
    """The file's numbers."""

    minima: Vector
    maxima: Vector
    means: Vector
    """One an input, and one for all outputs."""
    ranges: Vector
    layers: tuple[tuple[NDArray[np.float64], Vector], ...]
    """Weights (outputs × inputs) and biases."""


class _Lines:
    """The lines that are no comments, as lists of doubles."""

    def __init__(self, data: bytes) -> None:
        try:
            text = data.decode("ascii")
        except UnicodeDecodeError:
            raise InputError(": is no ASCII text", FORMAT) from None
        self._lines: Iterator[tuple[int, str]] = (
            (number, line.strip())
            for number, line in enumerate(text.splitlines(), start=1)
            if line.strip() and not line.lstrip().startswith("//")
        )
        self.at = 0

    def numbers(self, count: int | None, what: str) -> Vector:
        """The next line's numbers, `count` of them."""
        self.at, line = next(self._lines, (self.at, ""))
        fields = [field.strip() for field in line.rstrip(",").split(",")] if line else []
        if not fields:
            raise InputError(f":{self.at}: ends before {what}", FORMAT)
        wrong = next((field for field in fields if not NUMBER.fullmatch(field)), None)
        if wrong is not None:
            raise InputError(f":{self.at}: {printable(wrong)!r} is no number ({what})", FORMAT)
        found = np.array([float(field) for field in fields])
        if count is not None and len(found) != count:
            raise InputError(f":{self.at}: has {len(found)} numbers, not {count} ({what})", FORMAT)
        if not np.isfinite(found).all():
            raise InputError(f":{self.at}: a number too large for a double ({what})", FORMAT)
        return found

    def sizes(self, count: int | None, what: str) -> list[int]:
        """The next line's positive whole numbers."""
        found = self.numbers(count, what)
        if not all(1 <= size <= MAX_WEIGHTS and size == int(size) for size in found):
            raise InputError(f":{self.at}: {what} must be positive whole numbers", FORMAT)
        return [int(size) for size in found]

    def finish(self) -> None:
        """Refuse anything after the last bias."""
        for number, line in self._lines:
            raise InputError(f":{number}: {printable(line)!r} after the last layer", FORMAT)


def _parsed(data: bytes) -> Parsed:
    lines = _Lines(data)
    depth, inputs, outputs, _ = lines.sizes(4, "the numbers of layers, inputs, outputs and the largest layer")
    sizes = lines.sizes(depth + 1, "the layer sizes")
    if (sizes[0], sizes[-1]) != (inputs, outputs):
        raise InputError(f":{lines.at}: layers from {sizes[0]} to {sizes[-1]}, not {inputs} to {outputs}", FORMAT)
    if sum(a * b for a, b in pairwise(sizes)) > MAX_WEIGHTS:
        raise InputError(
            f":{lines.at}: more than {MAX_WEIGHTS} weights", "quantify cannot count on a network that large"
        )
    lines.numbers(None, "the unused flag")
    minima, maxima = lines.numbers(inputs, "the inputs' minima"), lines.numbers(inputs, "the inputs' maxima")
    if (minima > maxima).any():
        raise InputError(f":{lines.at}: an input whose minimum is above its maximum", "correct the header")
    means, ranges = lines.numbers(inputs + 1, "the means"), lines.numbers(inputs + 1, "the ranges")
    if (ranges <= 0).any():
        raise InputError(f":{lines.at}: a range that is not positive", "correct the header")
    layers = []
    for number, (width, rows) in enumerate(pairwise(sizes), start=1):
        weights = np.array([lines.numbers(width, f"weights of layer {number}") for _ in range(rows)])
        biases = np.array([lines.numbers(1, f"biases of layer {number}")[0] for _ in range(rows)])
        layers.append((weights, biases))
    lines.finish()
    return Parsed(minima, maxima, means, ranges, tuple(layers))


# --- the network -------------------------------------------------------------------------------------------------
def _network(parsed: Parsed) -> Network:
    inputs = len(parsed.minima)
    layers: list[Layer] = [_normalisation(parsed.means[:inputs], parsed.ranges[:inputs])]
    for number, (weights, biases) in enumerate(parsed.layers, start=1):
        layers.append(LinearLayer(Rows.dense(weights), biases, origin=f"layer {number}"))
        if number < len(parsed.layers):
            layers.append(ActivationLayer("relu", origin=f"layer {number}"))
    outputs = len(parsed.layers[-1][1])
    if parsed.means[-1] != 0 or parsed.ranges[-1] != 1:
        layers.append(
            _diagonal(np.full(outputs, parsed.ranges[-1]), np.full(outputs, parsed.means[-1]), "output range")
        )
    return Network(
        inputs=inputs,
        layers=tuple(layers),
        outputs=outputs,
        dtype="float64",
        input_bounds=tuple(zip(parsed.minima.tolist(), parsed.maxima.tolist(), strict=True)),
    )


def _diagonal(factor: Vector, offset: Vector, origin: str, divisor: NDArray[np.int64] | None = None) -> LinearLayer:
    places = np.arange(len(factor), dtype=np.int64)
    return LinearLayer(Rows(len(factor), np.arange(len(factor) + 1), places, factor), offset, divisor, origin)


def _normalisation(means: Vector, ranges: Vector) -> LinearLayer:
    """(x − mean)/range exactly: each range is an odd integer times a power of two, which moves to the numerator."""
    factors, divisors = [], []
    for size in ranges.tolist():
        numerator, denominator = size.as_integer_ratio()
        power = numerator & -numerator
        divisors.append(numerator // power)
        # A ratio of powers of two: exact unless it is beyond the largest double.
        factors.append(denominator / power if denominator < 1 << 1024 else np.inf)
    factor = np.array(factors)
    with np.errstate(over="ignore"):
        offset = -means * factor
    with np.errstate(all="ignore"):
        # A power of two is lost only by leaving the doubles' range.
        exact_offset = np.isfinite(offset).all() and (offset / factor == -means).all()
    if not exact_offset:
        raise InputError(": a mean and range of hopelessly different sizes", "correct the header")
    return _diagonal(factor, offset, "input normalisation", np.array(divisors, np.int64))

"""Seeded random networks on disk with a property file, and every count by the network's real function in fractions.

Files are written by hand (`.nnet`, `.onnx`, `.h5` of Keras 2 and 3, `.keras`), the real function is the one of
`keras_files.evaluate`: nothing of quantify is used.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from drawn_expressions import COMPARISON, COMPARISONS, Part, Writer
from drawn_features import Drawn, quoted
from drawn_models import inputs_at
from drawn_problems import KINDS, Builder, Problem
from keras_files import Spec, archive, evaluate, hdf5
from numpy.typing import NDArray
from onnx_models import Maker

FORMATS = ("nnet",) * 9 + ("onnx",) * 14 + ("h5", "keras")
"""HDF5 files are opened in a child process, which takes its time: few are drawn."""
FEATURE_KINDS = ("int", "int", "bool", "bool", "categorical", "codes", "onehot", "fixed", "fixed")
ACTIVATIONS = ("relu", "relu", "relu", "relu6", "leaky_relu", "sign", "linear")
LABELS = ("clear", "weak left", "it's", "strong", "outside")
WIDE = "1e40"


@dataclass
class DrawnNetwork:
    """A network as it will be written, and how it is asked."""

    format: str
    specs: list[Spec]
    shape: tuple[int, ...]
    """Of one input, channels last."""
    argmin: bool = False
    names: tuple[str, ...] = ()
    scale: list[Fraction] = field(default_factory=list)
    offset: list[Fraction] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    ranges: list[float] = field(default_factory=list)
    """Of `.nnet` files: one an input, and one for all scores."""
    path: Path = Path()

    @property
    def sigmoid(self) -> bool:
        return bool(self.specs[-1].config.get("activation") == "sigmoid")

    @property
    def classes_(self) -> list[str]:
        return list(self.names)

    def scores(self, columns: Sequence[Fraction]) -> list[Fraction]:
        """The real scores at exact values of the model's columns, before `preprocess`."""
        values = [v * s + o for v, s, o in zip(columns, self.scale, self.offset, strict=True)]
        if self.format == "nnet":
            values = [
                (v - Fraction(m)) / Fraction(r) for v, m, r in zip(values, self.means, self.ranges[:-1], strict=False)
            ]
        elif self.format == "onnx" and len(self.shape) > 1:
            values = [values[place] for place in self.channels_last()]
        found = evaluate(self.specs, self.shape, values)
        if self.format == "nnet":
            found = [score * Fraction(self.ranges[-1]) + Fraction(self.means[-1]) for score in found]
        return found

    def channels_last(self) -> list[int]:
        """Place among channels-first inputs of every channels-last one."""
        first = (self.shape[-1], *self.shape[:-1])
        places = np.arange(int(np.prod(first))).reshape(first)
        return [int(place) for place in np.moveaxis(places, 0, -1).ravel()]

    def label(self, scores: Sequence[Fraction]) -> int:
        """The class index."""
        if self.sigmoid:
            return int(scores[0] >= 0)
        return list(scores).index(min(scores) if self.argmin else max(scores))


# --- drawing -------------------------------------------------------------------------------------------------------
def draw_network(rng: random.Random, columns: int, sample: Sequence[Sequence[Fraction]]) -> DrawnNetwork:
    """A network of that many inputs, its last bias such that several labels win on the sample (rows of columns)."""
    made = DrawnNetwork(rng.choice(FORMATS), [], (columns,))
    made.scale, made.offset = [Fraction(1)] * columns, [Fraction(0)] * columns
    if rng.random() < 0.3:
        made.scale = [rng.choice((Fraction(1, 255), Fraction(-1, 3), Fraction(2)))] * columns
        if rng.random() < 0.5:
            made.offset = [Fraction(rng.randint(-9, 9), rng.choice((1, 7))) for _ in range(columns)]
    size = np.float64 if made.format == "nnet" else np.float32
    weights = _Weights(rng, size)
    if made.format == "nnet":
        made.means = [rng.choice((0.0, 0.5, 0.1, -3.0)) for _ in range(columns + 1)]
        made.ranges = [rng.choice((1.0, 2.0, 0.6, 6.28318530718)) for _ in range(columns + 1)]
    elif columns >= 4 and rng.random() < 0.4:
        _spatial(rng, made, weights, columns)
    width = int(np.prod(_shape_after(made.specs, made.shape)))
    if len(made.shape) > 1:
        made.specs.append(Spec("Flatten"))
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        kind = "relu" if made.format == "nnet" else rng.choice(ACTIVATIONS)
        wider = rng.randint(1, 5)
        made.specs.append(_dense(weights, width, wider, kind))
        width = wider
    sigmoid = made.format != "nnet" and rng.random() < 0.12
    outputs = 1 if sigmoid else rng.choice((2, 2, 3, 3, 4, 5))
    head = "sigmoid" if sigmoid else "linear" if made.format == "nnet" else rng.choice(("linear", "softmax"))
    made.specs.append(_dense(weights, width, outputs, head))
    _balance(rng, made, sample, size)
    made.argmin = not sigmoid and rng.random() < 0.3
    count = 2 if sigmoid else outputs
    made.names = tuple(rng.sample(LABELS, count)) if rng.random() < 0.4 else tuple(map(str, range(count)))
    return made


class _Weights:
    """Arrays of one kind of number: small integers, signs, quarters, any floats, large ones."""

    def __init__(self, rng: random.Random, size: type) -> None:
        self.rng, self.size = rng, size
        self.kind = rng.choice(("integers", "integers", "signs", "quarters", "floats", "floats", "large"))

    def __call__(self, *shape: int) -> NDArray[Any]:
        count = int(np.prod(shape))
        return np.array([self.one() for _ in range(count)], self.size).reshape(shape)

    def one(self) -> float:
        rng = self.rng
        if rng.random() < 0.15:
            return 0.0
        return {
            "integers": lambda: float(rng.randint(-3, 3)),
            "signs": lambda: float(rng.choice((-1, 1))),
            "quarters": lambda: rng.randint(-12, 12) / 4,
            "floats": lambda: float(self.size(rng.gauss(0, 1))),
            "large": lambda: float(rng.randint(-(2**20), 2**20) * 2 + 1),
        }[self.kind]()


def _dense(weights: _Weights, inputs: int, outputs: int, activation: str) -> Spec:
    config = {"units": outputs, "activation": activation, "use_bias": True}
    return Spec("Dense", config, [weights(inputs, outputs), weights(outputs)])


def _spatial(rng: random.Random, made: DrawnNetwork, weights: _Weights, columns: int) -> None:
    """A convolution and perhaps pooling, over a line or a plane of inputs."""
    channels = 2 if columns % 2 == 0 and rng.random() < 0.4 else 1
    length = columns // channels
    plane = next((n for n in (3, 2) if length % n == 0 and length > n), 0) if rng.random() < 0.6 else 0
    made.shape = (plane, length // plane, channels) if plane else (length, channels)
    axes = len(made.shape) - 1
    window = [rng.randint(1, min(3, n)) for n in made.shape[:-1]]
    filters = rng.randint(1, 2)
    config = {
        "filters": filters, "kernel_size": window, "strides": [rng.choice((1, 1, 2))] * axes,
        "padding": rng.choice(("valid", "same")), "activation": rng.choice(ACTIVATIONS), "use_bias": True,
        "data_format": "channels_last", "dilation_rate": [1] * axes, "groups": 1,
    }  # fmt: skip
    kernel = weights(*window, channels, filters)
    made.specs.append(Spec(f"Conv{axes}D", config, [kernel, weights(filters)]))
    reached = _shape_after(made.specs, made.shape)
    if rng.random() < 0.5:
        pool = [rng.randint(1, min(2, n)) for n in reached[:-1]]
        config = {
            "pool_size": pool, "strides": [rng.randint(1, 2)] * axes, "padding": rng.choice(("valid", "same")),
            "data_format": "channels_last",
        }  # fmt: skip
        made.specs.append(Spec(f"{rng.choice(('Max', 'Average'))}Pooling{axes}D", config))


def _shape_after(specs: Sequence[Spec], shape: tuple[int, ...]) -> tuple[int, ...]:
    for spec in specs:
        window = spec.config.get("kernel_size") or spec.config["pool_size"]
        spatial = [
            -(-n // stride) if spec.config["padding"] == "same" else (n - cells) // stride + 1
            for n, cells, stride in zip(shape[:-1], window, spec.config["strides"], strict=True)
        ]
        shape = (*spatial, spec.config.get("filters", shape[-1]))
    return shape


def _balance(rng: random.Random, made: DrawnNetwork, sample: Sequence[Sequence[Fraction]], size: type) -> None:
    """Take the median of every score off its bias, rounded to what the file holds."""
    found = [made.scores(row) for row in sample]
    gain = Fraction(made.ranges[-1]) if made.format == "nnet" else Fraction(1)
    bias = made.specs[-1].weights[1]
    for index in range(len(bias)):
        median = sorted(scores[index] for scores in found)[len(found) // 2]
        with np.errstate(over="ignore"):
            moved = float(size(float(Fraction(float(bias[index])) - median / gain)))
        if rng.random() < 0.8 and np.isfinite(moved):
            bias[index] = moved if rng.random() < 0.6 else round(moved)


# --- files ---------------------------------------------------------------------------------------------------------
def write(made: DrawnNetwork, folder: Path, rng: random.Random) -> Path:
    """The model file."""
    path = folder / f"model.{made.format}"
    if made.format == "nnet":
        path.write_text(_nnet(made), encoding="ascii")
    elif made.format == "onnx":
        path.write_bytes(_onnx(made, rng))
    elif made.format == "keras":
        path.write_bytes(archive(made.specs, made.shape, functional=rng.random() < 0.5))
    else:
        path.write_bytes(hdf5(made.specs, made.shape, version=rng.choice(("2.15.0", "3.5.0"))))
    return path


def _nnet(made: DrawnNetwork) -> str:
    inputs = made.shape[0]
    widths = [inputs, *(spec.weights[0].shape[1] for spec in made.specs)]

    def line(numbers: Any) -> str:
        return ",".join(repr(float(number)) for number in numbers) + ","

    lines = [
        "// drawn", f"{len(made.specs)},{inputs},{widths[-1]},{max(widths)},", ",".join(map(str, widths)) + ",", "0,",
        f"-{WIDE}," * inputs, f"{WIDE}," * inputs, line(made.means), line(made.ranges),
    ]  # fmt: skip
    for spec in made.specs:
        lines += [line(row) for row in spec.weights[0].T] + [line([bias]) for bias in spec.weights[1]]
    return "\n".join(lines) + "\n"


def _onnx(made: DrawnNetwork, rng: random.Random) -> bytes:
    """Channels first; the transposition before flattening keeps the order of the dense weights."""
    shape = made.shape if len(made.shape) == 1 else (made.shape[-1], *made.shape[:-1])
    maker = Maker(shape)
    for spec in made.specs:
        if spec.kind == "Flatten":
            maker.add("Transpose", perm=[0, *range(2, len(shape) + 1), 1]).add("Flatten")
        elif spec.kind == "Dense":
            if rng.random() < 0.5:
                maker.add("Gemm", *spec.weights)
            else:
                maker.add("MatMul", spec.weights[0]).add("Add", spec.weights[1])
        else:
            config = spec.config
            more = {"strides": config["strides"]}
            more["auto_pad"] = "SAME_UPPER" if config["padding"] == "same" else "VALID"
            if spec.kind.startswith("Conv"):
                axes = len(config["strides"])
                kernel = spec.weights[0].transpose(axes + 1, axes, *range(axes))
                maker.add("Conv", kernel, spec.weights[1], **more)
            else:
                maker.add(spec.kind[:7].replace("MaxPool", "MaxPool").replace("Average", "AveragePool"),
                          kernel_shape=config["pool_size"], **more)  # fmt: skip
        _onnx_activation(maker, spec.config.get("activation", "linear"))
    return maker.bytes()


def _onnx_activation(maker: Maker, kind: str) -> None:
    if kind == "relu6":
        maker.add("Clip", np.zeros((), np.float32), np.asarray(6, np.float32))
    elif kind == "leaky_relu":
        maker.add("LeakyRelu", alpha=float(np.float32(0.2)))
    elif kind == "softmax":
        maker.add("Softmax", axis=1)
    elif kind != "linear":
        maker.add({"relu": "Relu", "sign": "Sign", "sigmoid": "Sigmoid"}[kind])


# --- problems ------------------------------------------------------------------------------------------------------
def draw_network_problem(seed: int, folder: Path, kinds: tuple[str, ...] = KINDS) -> tuple[Problem, DrawnNetwork]:
    """The problem of a seed, its files written to `folder`."""
    rng = random.Random(seed)
    kind = rng.choice(kinds)
    builder = NetworkBuilder(rng, seed, kind, folder, rng.choice((32, 96, 200)))
    drawn = builder.robustness() if kind in ("linf", "l1", "l0") else builder.over_domain()
    return drawn, builder.network


class NetworkBuilder(Builder):
    """Problems about networks."""

    network: DrawnNetwork

    def __init__(self, rng: random.Random, seed: int, kind: str, folder: Path, room: int) -> None:
        super().__init__(rng, seed, kind, folder, room)
        self.missing = False
        self.kinds = FEATURE_KINDS

    def features(self) -> list[Drawn]:
        """Often without the numbers that 64 bits are too few for, and enough of them to be worth a count."""
        while True:
            found = super().features()
            size = math.prod(f.size for f in found)
            if self.rng.random() < 0.3 or (size >= self.room // 4 and all(tame(f) for f in found)):
                return found

    def measure_lines(self, problem: Problem) -> None:
        if self.rng.random() < 0.5:
            super().measure_lines(problem)

    def fitted(self, features: list[Drawn]) -> tuple[DrawnNetwork, list[Drawn]]:
        """A network that is written at once, and the lines of the property file that belong to it."""
        rows = [[self.rng.randrange(f.size) for f in features] for _ in range(11)]
        made = draw_network(self.rng, sum(len(f.columns) for f in features), [_values(features, row) for row in rows])
        self.network = made
        made.path = self.path = write(made, self.folder, self.rng)
        self.model_features = features
        self.in_order = not any(f.is_onehot for f in features)
        if made.names[0] != "0":
            self.lines.append(f"labels: [{', '.join(map(quoted, made.names))}]")
        if made.argmin or (not made.sigmoid and self.rng.random() < 0.2):
            self.lines.append(f"decision: {'argmin' if made.argmin else 'argmax'}")
        if self.rng.random() < 0.6:
            self.lines.append("quantization: {mode: exact}")
        if any(s != 1 for s in made.scale):
            offset = f", offset: [{', '.join(map(_rational, made.offset))}]" if any(made.offset) else ""
            self.lines.append(f"preprocess: {{scale: {_rational(made.scale[0])}{offset}}}")
        return made, list(features)

    def tells_labels(self) -> bool:
        """Where rounding may change the library's own answer, the file says what is right."""
        return not self.exact_in_floats() or super().tells_labels()

    def exact_in_floats(self) -> bool:
        """Whether all sums are integers or quarters well below 2^24."""
        quarters = all(tame(f) and (4 * v).denominator == 1 for f in self.model_features for v in f.numbers)
        quarters = quarters and not any(f.codes for f in self.model_features)
        weights = [w for spec in self.network.specs for array in spec.weights for w in array.ravel().tolist()]
        small = all(abs(w) < 1000 and (4 * w).is_integer() for w in weights)
        plain = self.network.format != "nnet" and len(self.network.specs) < 3 and len(self.network.shape) == 1
        return quarters and small and plain and not any(s != 1 for s in self.network.scale)

    def problem(self, model: DrawnNetwork, listed: list[Drawn]) -> Problem:
        positions = np.array(list(itertools.product(*(range(f.size) for f in listed))), np.int64)
        positions = positions.reshape(-1, len(listed))
        scores = [model.scores(_values(listed, row)) for row in positions.tolist()]
        labels = np.array([model.names[model.label(row)] for row in scores])
        made = Problem(self.seed, self.kind, self.path, self.folder / "property.yaml", listed, positions, labels)
        # The scores of a sigmoid have no order to speak of, and only one name.
        made.scores, made.names = scores, model.names[: 1 if model.sigmoid else None]
        return made

    def writer_of(self, problem: Problem, classes: list[str], integers: bool) -> Writer:
        assert problem.scores is not None
        return ScoreWriter(self.rng, problem, classes, self.in_order)


class ScoreWriter(Writer):
    """Draws expressions in which a network's scores occur."""

    def __init__(self, rng: random.Random, problem: Problem, classes: Sequence[str], indexed: bool) -> None:
        super().__init__(rng, problem.features, classes, False, indexed)
        assert problem.scores is not None
        self.scores, self.names = problem.scores, problem.names

    def condition(self, depth: int) -> Part:
        return self.about_scores() if self.rng.random() < 0.35 else super().condition(depth)

    def about_scores(self) -> Part:
        rng, around = self.rng, self.rng.choice(self.scores)
        several = len(around) > 1
        way = rng.choice(("order", "extreme", "one", "difference", "all", "spread") if several else ("one",))
        op = rng.choice(COMPARISONS)
        if way == "extreme":
            word = rng.choice(("lowest", "highest", "lowest()"))
            return (
                f"{word} {rng.choice(('==', '!='))} {rng.choice([repr(n) for n in self.names] + ['label'])}",
                COMPARISON,
            )
        (i, first), (j, second) = self.score(), self.score()
        if way == "order":
            return f"{first} {op} {second}", COMPARISON
        if way == "difference":
            return f"{first} - 2 * {second} {op} {self.constant(around[i] - 2 * around[j])[0]}", COMPARISON
        if way == "all":
            word = rng.choice(("all", "any"))
            return f"{word}(score[i] {op} {self.constant(around[i])[0]} for i in range(len(score)))", COMPARISON
        if way == "spread":
            return f"max(score) - min(score) {op} {self.constant(max(around) - min(around))[0]}", COMPARISON
        return f"{first} {op} {self.constant(around[i])[0]}", COMPARISON

    def score(self) -> tuple[int, str]:
        index = self.rng.randrange(len(self.names))
        return index, f"score[{index if self.rng.random() < 0.7 or len(self.names) == 1 else repr(self.names[index])}]"


def tame(feature: Drawn) -> bool:
    """Whether all numbers are small, with few decimals."""
    numbers = feature.codes or feature.numbers
    return all(abs(v) < 1000 and v.denominator <= 1000 for v in numbers)


def _rational(number: Fraction) -> str:
    return str(number) if number.denominator == 1 else quoted(str(number))


def _values(features: Sequence[Drawn], row: Sequence[int]) -> list[Fraction]:
    """The exact numbers that the model's columns stand for at a row of positions."""
    found: list[Fraction] = []
    for feature, position in zip(features, row, strict=True):
        meaning = feature.meanings[position]
        if isinstance(meaning, Fraction):
            found.append(meaning)
        else:
            found += _category_values(feature, position)
    return found


def _category_values(feature: Drawn, position: int) -> list[Fraction]:
    codes = feature.codes
    return [codes[position]] if codes else [Fraction(x) for x in feature.inputs[position]]


# --- in floating point ---------------------------------------------------------------------------------------------
def float_labels(made: DrawnNetwork, inputs: NDArray[np.float64], order: int) -> NDArray[np.str_] | None:
    """Labels by float arithmetic of the library's type, sums from the front (1) or the back (−1).

    None where a layer is not dense: those would be too slow in plain loops.
    """
    if len(made.shape) > 1:
        return None
    size = np.float64 if made.format == "nnet" else np.float32
    scale, offset = (np.array(list(map(float, numbers))) for numbers in (made.scale, made.offset))
    with np.errstate(over="ignore", under="ignore"):
        values = (inputs * scale + offset).astype(size)
        if made.format == "nnet":
            values = (values - np.array(made.means[:-1])) / np.array(made.ranges[:-1])
        for spec in made.specs:
            kernel, bias = spec.weights
            total = np.zeros((len(values), kernel.shape[1]), size)
            for column in range(len(kernel))[::order]:
                total = total + values[:, [column]] * kernel[[column]]
            values = _float_activation(spec.config["activation"], total + bias)
        if made.format == "nnet":
            values = values * size(made.ranges[-1]) + size(made.means[-1])
    assert values.dtype == size
    if made.sigmoid:
        index = (values[:, 0] >= 0).astype(int)
    else:
        index = values.argmin(axis=1) if made.argmin else values.argmax(axis=1)
    return np.array(made.names)[index]


def _float_activation(kind: str, z: NDArray[Any]) -> NDArray[Any]:
    if kind in ("relu", "relu6"):
        positive = np.maximum(z, 0)
        return positive if kind == "relu" else np.minimum(positive, z.dtype.type(6))
    if kind == "leaky_relu":
        return np.where(z >= 0, z, z * z.dtype.type(0.2))
    return np.sign(z) if kind == "sign" else z


def float_inputs(problem: Problem) -> NDArray[np.float64]:
    """The model's columns at every input."""
    return inputs_at(problem.features, problem.positions)

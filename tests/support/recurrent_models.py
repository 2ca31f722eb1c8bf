"""Recurrent networks drawn at random, and one number after the other through the equations that Keras documents."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
from keras_files import Spec

GATES = {"GRU": 3, "LSTM": 4}


def recurrent(kind: str, inputs: int, units: int, rng: Any, *, spread: float = 0.6, **config: Any) -> Spec:
    """A GRU or LSTM with random weights."""
    settings: dict[str, Any] = {"units": units, "activation": "tanh", "recurrent_activation": "sigmoid"}
    if kind == "GRU":
        settings["reset_after"] = True
    settings |= config
    columns = GATES[kind] * units
    bias = (2, columns) if settings.get("reset_after") else (columns,)
    shapes = [(inputs, columns), (units, columns), bias][: 2 + settings.get("use_bias", True)]
    return Spec(kind, settings, [rng.normal(0, spread, shape).astype("f") for shape in shapes])


def dense(inputs: int, units: int, activation: str, rng: Any, *, bias: bool = True) -> Spec:
    """A Dense layer with random weights."""
    weights = [rng.normal(0, 0.7, (inputs, units)).astype("f"), rng.normal(0, 0.7, units).astype("f")]
    return Spec("Dense", {"units": units, "activation": activation, "use_bias": bias}, weights[: 1 + bias])


def random_selector(seed: int) -> list[Spec]:
    """One to three recurrent layers of 1 to 37 units, and dense ones: two probabilities in the end, or their logits."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    specs: list[Spec] = []
    if r.random() < 0.5:
        specs.append(Spec("Rescaling", {"scale": 0.4, "offset": -0.3}))
    width, deep = 1, r.randint(1, 3)
    for depth in range(deep):
        kind, units = r.choice(["GRU", "GRU", "LSTM"]), r.choice([1, 2, 3, 5, 6, 7, 12, 32, 37])
        more: dict[str, Any] = {"return_sequences": depth + 1 < deep, "use_bias": r.random() < 0.8}
        if kind == "GRU":
            more["reset_after"] = r.random() < 0.6
        specs.append(recurrent(kind, width, units, rng, spread=r.choice([0.2, 0.6, 1.5]), **more))
        if r.random() < 0.3:
            specs.append(Spec("Dropout", {"rate": 0.5}))
        width = units
    for _ in range(r.randint(0, 2)):
        units = r.randint(2, 8)
        specs.append(dense(width, units, r.choice(["linear", "relu", "tanh", "sigmoid"]), rng))
        width = units
    units = r.choice([1, 2])
    head = r.choice(["linear", "softmax", "layer"] if units == 2 else ["linear", "sigmoid", "layer"])
    specs.append(dense(width, units, "linear" if head == "layer" else head, rng, bias=r.random() < 0.7))
    if head == "layer":
        specs.append(Spec("Softmax") if units == 2 else Spec("Activation", {"activation": "sigmoid"}))
    return specs


def expected(specs: list[Spec], values: list[float]) -> list[float]:
    """Probabilities of both classes for one sequence of numbers."""
    sequence = [[value] for value in values]
    vector: list[float] = []
    for spec in specs:
        named = spec.config.get("activation")
        if spec.kind == "Rescaling":
            scale, offset = (float(np.float32(spec.config[name])) for name in ("scale", "offset"))
            sequence = [[x * scale + offset for x in step] for step in sequence]
        elif spec.kind in GATES:
            sequence = gru(spec, sequence) if spec.kind == "GRU" else lstm(spec, sequence)
            vector = sequence[-1]
        elif spec.kind == "Dense":
            bias = spec.weights[1] if len(spec.weights) > 1 else [0] * spec.config["units"]
            sums = [float(b) + total for b, total in zip(bias, product(vector, spec.weights[0]), strict=True)]
            # A sigmoid of one unit is the head, which comes last.
            vector = sums if len(sums) == 1 else [FUNCTIONS.get(named, float)(x) for x in sums]
    if len(vector) == 1:
        one = sigmoid(vector[0])
        return [1 - one, one]
    powers = [math.exp(x - max(vector)) for x in vector]
    return [power / sum(powers) for power in powers]


def sigmoid(x: float) -> float:
    """1 / (1 + e^−x)."""
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


FUNCTIONS = {"relu": lambda x: max(x, 0.0), "tanh": math.tanh, "sigmoid": sigmoid}


def product(vector: list[float], matrix: Any) -> list[float]:
    """vector · matrix."""
    return [sum(x * float(w) for x, w in zip(vector, column, strict=True)) for column in matrix.T]


def parts(spec: Spec) -> tuple[Any, Any, Any, Any, int]:
    """Kernel, recurrent kernel, bias, recurrent bias and units."""
    units = spec.config["units"]
    columns = GATES[spec.kind] * units
    bias = spec.weights[2] if len(spec.weights) > 2 else np.zeros(columns)
    first, second = bias if bias.ndim == 2 else (bias, np.zeros(columns))
    return spec.weights[0], spec.weights[1], first, second, units


def gru(spec: Spec, sequence: list[list[float]]) -> list[list[float]]:
    """The state after every time step (keras.layers.GRU: z, r, h in this order)."""
    kernel, recurrent_kernel, bias, recurrent_bias, units = parts(spec)
    state, states = [0.0] * units, []
    for step in sequence:
        given = [x + float(b) for x, b in zip(product(step, kernel), bias, strict=True)]
        inner = [x + float(b) for x, b in zip(product(state, recurrent_kernel), recurrent_bias, strict=True)]
        z = [sigmoid(given[i] + inner[i]) for i in range(units)]
        r = [sigmoid(given[units + i] + inner[units + i]) for i in range(units)]
        if spec.config["reset_after"]:
            remembered = [r[i] * inner[2 * units + i] for i in range(units)]
        else:
            reset = [r[i] * state[i] for i in range(units)]
            remembered = product(reset, recurrent_kernel[:, 2 * units :])
        fresh = [math.tanh(given[2 * units + i] + remembered[i]) for i in range(units)]
        state = [z[i] * state[i] + (1 - z[i]) * fresh[i] for i in range(units)]
        states.append(state)
    return states


def lstm(spec: Spec, sequence: list[list[float]]) -> list[list[float]]:
    """The state after every time step (keras.layers.LSTM: i, f, c, o in this order)."""
    kernel, recurrent_kernel, bias, _, units = parts(spec)
    state, carry, states = [0.0] * units, [0.0] * units, []
    for step in sequence:
        sums = zip(product(step, kernel), product(state, recurrent_kernel), bias, strict=True)
        z = [a + b + float(c) for a, b, c in sums]
        i, f, c, o = (z[k * units : (k + 1) * units] for k in range(4))
        carry = [sigmoid(f[u]) * carry[u] + sigmoid(i[u]) * math.tanh(c[u]) for u in range(units)]
        state = [sigmoid(o[u]) * math.tanh(carry[u]) for u in range(units)]
        states.append(state)
    return states

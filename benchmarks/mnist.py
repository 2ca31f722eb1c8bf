"""Networks of image size in ε-balls: dense, convolutional and binary ones on MNIST, an int8 one on 8×8 digits.

A row is one network and one ε: the balls round 100 test images are bounded by the engine that `auto` chooses, each
within a second. The ten images that are nearest to another label stand beside what interval arithmetic says, and beside
draws.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import mnist_models
import numpy as np
from harness import JOBS, WORK, Job, Row, Settings, Table, duration, grid_of, timed, way_cell, with_ratios
from numpy.typing import NDArray

from quantify import pipeline
from quantify.cnf.engine import CnfEngine
from quantify.engines.interval_margins import interval_share
from quantify.ir import network_eval
from quantify.ir.intervals import clopper_pearson
from quantify.ir.network import ActivationLayer, IntNetwork, LinearLayer, MaxPoolLayer, Network, RequantiseLayer
from quantify.ir.problem import Box, GridCase, GridProblem
from quantify.resources import Limits, Progress

IMAGES = 100
NEAREST = 10
RADII = (1, 2, 4)
SECONDS = 1.0
"""What an image may take."""
TARGET = Fraction(1, 10**6)
"""An open share that counts as closed."""
DRAWS = {"dense": 1_000_000, "conv": 100_000, "bnn": 200_000, "int8": 100_000}
"""Draws from the ball of each of the nearest images."""
ALL_DRAWS = 1_000_000
"""Draws from the ball of each of the 100 images, for the dense network and ε = 1."""
FREE = 10
"""Inputs that are left free in the box that plain NumPy enumerates."""
CONTRADICTS = Fraction(1, 10**9)
"""A sampled interval that misses a bound at this confidence is a contradiction."""
RECORDED = Path(__file__).resolve().parents[1] / "tests" / "data" / "tflite_recorded.npz"
NAMES = {
    "dense": "784-64-10, ReLU",
    "conv": "two convolutions of stride 2, ReLU",
    "bnn": "784-64-32-10, weights and signs ±1",
    "int8": "full-integer TensorFlow Lite, one convolution and max pooling, 8×8 digits",
}


@dataclass(frozen=True)
class Made:
    """A network with its test images, as files that the command line takes as well."""

    model: Path
    images: Path
    facts: dict[str, Any]


def make(name: str) -> Made:
    """Train (or unpack) the model, unless that is done, and write the first test images as `images.npz`."""
    folder = WORK / f"mnist-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    images = folder / "images.npz"
    if name == "int8":
        from sklearn.datasets import load_digits

        model = folder / "digits.tflite"
        pixels, labels = load_digits(return_X_y=True)
        with np.load(RECORDED) as recorded:
            model.write_bytes(recorded["model_0"].tobytes())
        np.savez(images, X=np.rint(pixels[:IMAGES] * 255 / 16).astype(np.int64), y=labels[:IMAGES])
        return Made(model, images, {"test_accuracy": None})
    model, facts = mnist_models.make(name, folder)
    _, _, unseen, truth = mnist_models.digits()
    np.savez(images, X=unseen[:IMAGES], y=truth[:IMAGES])
    return Made(model, images, facts)


def prepared(made: Made, epsilon: int) -> pipeline.Prepared:
    """The balls, validated and lowered; robust means: labelled as the image itself."""
    text = (
        f'property: robustness\nname: eps{epsilon}\ninputs: {{file: {made.images.name}, rows: "0-{IMAGES - 1}"}}\n'
        f"epsilon: {epsilon}\nnorm: linf\nclip: [0, 255]\npreprocess: {{scale: 1/255}}\n"
        "domain: {default: {type: int, min: 0, max: 255}}\n"
    )
    if made.model.suffix != ".tflite":
        text += "quantization: {mode: exact}\n"
    file = made.images.with_name(f"eps{epsilon}.yaml")
    file.write_text(text, encoding="utf-8")
    return pipeline.prepare(made.model, file, pipeline.Options(), Progress())


# --- one row ---------------------------------------------------------------------------------------------------------
def measure(name: str, epsilon: int, limit: float) -> Row:
    """Bounds of every image's ball, the nearest images in detail, and the peers on one ball."""
    made = make(name)
    started = time.perf_counter()
    ready = prepared(made, epsilon)
    grid = ready.grid
    preparing = time.perf_counter() - started
    assert grid.network is not None
    assert set(grid.sizes) == {256}, "a position is a pixel"
    options = pipeline.Options()
    known = pipeline.available_engines(options)
    engine, reason = pipeline.choose_engine(grid, grid.cases[0], known, "auto")
    _once(engine, grid, grid.cases[0])  # what the engine keeps of a network is made once
    images = [
        {"image": k, "label": int(said.label or 0), **_once(engine, grid, case)}
        for k, (said, case) in enumerate(zip(ready.problem.cases, grid.cases, strict=True))
    ]
    gaps = centre_gaps(grid)
    nearest = [int(k) for k in np.argsort(gaps)[:NEAREST]]
    assert isinstance(ready.problem.model.structure, Network)
    forward = approximate(ready.problem.model.structure)
    for k, image in enumerate(images):
        image["gap"] = float(gaps[k])
        box = grid.cases[k].region
        assert isinstance(box, Box)
        if k in nearest:
            low, high = interval_share(grid.network, box, image["label"])
            image["interval"] = float(high - low)
        everywhere = name == "dense" and epsilon == RADII[0]
        if k in nearest or everywhere:
            draws = ALL_DRAWS if everywhere else DRAWS[name]
            image |= sampled(grid.network, box, image, draws, forward)
    return {
        "network": name,
        "epsilon": epsilon,
        "facts": made.facts,
        "chosen": engine.name,
        "reason": reason,
        "preparing": preparing,
        "images": images,
        "nearest": nearest,
        "ways": peers(grid, nearest[-1], engine, limit),
        "sub": sub_box(grid, images[nearest[-1]], engine, forward, limit),
    }


def _once(engine: Any, grid: GridProblem, case: GridCase) -> dict[str, Any]:
    """Bounds of the robust share of one ball, within SECONDS."""
    started = time.perf_counter()
    count = engine.count(grid, case, Limits.starting_now(SECONDS, jobs=JOBS), Progress())["robust"]
    seconds = time.perf_counter() - started
    assert isinstance(case.region, Box)
    size = case.region.size
    return {
        "seconds": seconds,
        "open": float(Fraction(count.upper - count.lower, size)),
        "bounds": [_text(Fraction(count.lower, size)), _text(Fraction(count.upper, size))],
    }


def _text(value: Fraction) -> str:
    """A share with 30 digits, rounded down: enough for every comparison here."""
    return str(value) if value.denominator == 1 else f"{math.floor(value * 10**30)}/{10**30}"


def _centre(box: Box) -> NDArray[np.int64]:
    return (np.array(box.low, np.int64) + np.array(box.high, np.int64) - 1) // 2


def centre_gaps(grid: GridProblem) -> NDArray[np.float64]:
    """Of every ball: the best score at the middle less the second best, real numbers."""
    assert grid.network is not None
    points = np.array([_centre(case.region) for case in grid.cases if isinstance(case.region, Box)])
    scores = np.sort(network_eval.scores(grid.network, points).astype(object), axis=1)
    scale = grid.network.score_scale
    return np.array([float((row[-1] - row[-2]) * scale) for row in scores.tolist()])


# --- draws -----------------------------------------------------------------------------------------------------------
Forward = Callable[[NDArray[np.float32], NDArray[np.float64]], tuple[NDArray[np.float32], NDArray[np.bool_]]]
"""Offsets from a point, and the point (both of grid positions): scores in float32, and rows where they may mislead."""
CLOSE = 0.01
"""Far more than the rounding of float32 in these networks, in scores and in sums before a sign."""


def approximate(network: Network) -> Forward | None:
    """Scores of a network of pixels / 255 in float32; None for networks of integers, which are evaluated exactly."""
    if any(isinstance(layer, RequantiseLayer | MaxPoolLayer) for layer in network.layers):
        return None
    linear = [layer for layer in network.layers if isinstance(layer, LinearLayer)]
    first, *others = [layer.rows.to_dense().astype(np.float32) for layer in linear]
    scaled = np.ascontiguousarray(first.T / np.float32(255))
    following = {id(layer): np.ascontiguousarray(matrix.T) for layer, matrix in zip(linear[1:], others, strict=True)}

    def forward(offsets: NDArray[np.float32], point: NDArray[np.float64]) -> Any:
        start = first.astype(np.float64) @ (point / 255) + linear[0].bias.astype(np.float64)
        values = offsets @ scaled + start.astype(np.float32)
        close = np.zeros(len(offsets), np.bool_)
        for layer in network.layers[1:]:
            if isinstance(layer, LinearLayer):
                values = values @ following[id(layer)] + layer.bias.astype(np.float32)
            elif isinstance(layer, ActivationLayer) and layer.kind == "sign":
                close |= (np.abs(values) < CLOSE).any(axis=1)
                values = np.sign(values)
            else:
                values = np.maximum(values, 0)
        best = np.partition(values, -2, axis=1)[:, -2:]
        return values, close | (best[:, 1] - best[:, 0] < CLOSE)

    return forward


def _labels(
    network: IntNetwork, forward: Forward | None, low: NDArray[np.int64], steps: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Labels of low + steps.

    Where `forward` is given, points that are far from every tie are believed to be labelled by it; the others, and
    every point without it, are evaluated exactly.
    """
    if forward is None:
        return network_eval.labels(network, low + steps.astype(np.int64))
    scores, close = forward(steps, low.astype(np.float64))
    found, near = scores.argmax(axis=1), np.flatnonzero(close)
    if len(near):
        found[near] = network_eval.labels(network, low + steps[near].astype(np.int64))
    return found


def sampled(
    network: IntNetwork, box: Box, image: dict[str, Any], draws: int, forward: Forward | None
) -> dict[str, Any]:
    """How many of `draws` points have the image's label, and whether an interval round that meets the bounds."""
    rng = np.random.default_rng(image["image"])
    low, width = np.array(box.low, np.int64), np.array(box.high, np.int64) - np.array(box.low, np.int64)
    hits, made, block = 0, 0, 10_000
    while made < draws:
        n = min(block, draws - made)
        # Truncating 24 random bits favours no value by more than 2^-24 · width.
        steps = np.floor(rng.random((n, len(low)), np.float32) * width.astype(np.float32))
        hits += int((_labels(network, forward, low, steps) == image["label"]).sum())
        made += n
    least, most = clopper_pearson(hits, made, 1 - CONTRADICTS)
    inside = Fraction(image["bounds"][0]) <= most and least <= Fraction(image["bounds"][1])
    return {"draws": made, "hits": hits, "inside": inside}


# --- peers -----------------------------------------------------------------------------------------------------------
def peers(grid: GridProblem, image: int, engine: Any, limit: float) -> dict[str, Any]:
    """The engine and the CBMC paths on the ball of one image."""
    case = replace(grid.cases[image], queries=tuple(q for q in grid.cases[image].queries if q.name == "robust"))
    ways = {engine.name: timed(engine, grid, case, SECONDS)}
    if "seconds" not in ways[engine.name]:
        return ways
    ways[engine.name]["finished"] = True  # bounds are what this engine is asked for
    for counter in ("ganak", "approxmc"):
        path = CnfEngine(counter=counter, epsilon=Fraction(4, 5), delta=Fraction(1, 5))
        ways[f"cnf+{counter}"] = timed(path, grid, case, limit)
    return with_ratios(ways, engine.name)


def sub_box(
    grid: GridProblem, image: dict[str, Any], engine: Any, forward: Forward | None, limit: float
) -> dict[str, Any]:
    """A box of the ball that plain NumPy can enumerate: all inputs at the centre but FREE, spread over the widest."""
    case, network = grid.cases[image["image"]], grid.network
    assert isinstance(case.region, Box)
    assert network is not None
    centre = _centre(case.region)
    widths = np.array(case.region.high) - np.array(case.region.low)
    candidates = np.flatnonzero(widths == widths.max())
    free = candidates[np.linspace(0, len(candidates) - 1, FREE).astype(int)]
    # The first few, so that there are at most 3^10 points.
    free = free[: max(1, int(FREE * math.log(3) / math.log(int(widths.max()))))]
    low, high = centre.copy(), centre + 1
    low[free], high[free] = np.array(case.region.low)[free], np.array(case.region.high)[free]
    box = Box(tuple(low.tolist()), tuple(high.tolist()))
    small = replace(case, region=box, queries=tuple(q for q in case.queries if q.name == "robust"))
    ours = _once(engine, grid, small)
    started = time.perf_counter()
    label, hits = image["label"], 0
    shape = tuple((high - low)[free].tolist())
    for start in range(0, box.size, 1 << 14):
        places = np.array(np.unravel_index(np.arange(start, min(box.size, start + (1 << 14))), shape)).T
        steps = np.zeros((len(places), len(low)), np.float32)
        steps[:, free] = places
        hits += int((_labels(network, forward, low, steps) == label).sum())
        if time.perf_counter() - started > limit:
            return {"points": box.size, "ours": ours, "finished": False}
    seconds = time.perf_counter() - started
    share = Fraction(hits, box.size)
    inside = Fraction(ours["bounds"][0]) <= share <= Fraction(ours["bounds"][1]) + Fraction(1, 10**29)
    ball = math.log10(case.region.size) - math.log10(box.size)
    return {
        "points": box.size,
        "inputs": len(free),
        "ours": ours,
        "seconds": seconds,
        "hits": hits,
        "inside": inside,
        "finished": True,
        "log10_times_for_the_ball": ball,
    }


# --- the table -------------------------------------------------------------------------------------------------------
def jobs(settings: Settings) -> Iterator[Job]:
    """A row for each network and ε."""
    for name in NAMES:
        for epsilon in RADII:
            yield Job(
                f"mnist {name} ε={epsilon}", lambda name=name, epsilon=epsilon: measure(name, epsilon, settings.limit)
            )


def markdown(rows: Sequence[Row]) -> str:
    """Three tables: all images, the nearest ones, and the peers."""
    if not rows:
        return "No rows.\n"
    whole = (
        f"The ball round each of {IMAGES} test images, {SECONDS:g} s for each; an image is robust where the ball has "
        "the label that the network gives the image. *Closed* are balls with an open share of at most "
        f"{float(TARGET):g}.\n"
    )
    heads = ["network", "test accuracy", "ε", "engine", "closed", "open share, median", "largest", "seconds, median"]
    near = (
        f"The {NEAREST} images whose two best scores are closest: the open share that is left, what intervals alone "
        "leave open, and how many draws from the ball had the label. *Inside* compares these with the bounds.\n"
    )
    near_heads = ["network", "ε", "image", "gap of scores", "robust at least", "open", "intervals", "draws", "hits"]
    others = (
        "The peers, on the ball of one of these images; plain NumPy enumerates a part of it, with all inputs but a few "
        "at the centre.\n"
    )
    peer_heads = ["network", "ε", "margins", "cnf+ganak", "cnf+approxmc", "NumPy: inputs", "points", "seconds"]
    parts = [
        whole,
        grid_of([*heads, "largest"], [_line(row) for row in rows]),
        _all_draws(rows),
        near,
        grid_of([*near_heads, "inside"], [line for row in rows for line in _nearest_lines(row)]),
        others,
        grid_of([*peer_heads, "inside", "the whole ball would take"], [_peer_line(row) for row in rows]),
    ]
    return "\n".join(parts)


def _all_draws(rows: Sequence[Row]) -> str:
    """How far draws from the balls of all images agree, where they were made."""
    lines = []
    for row in rows:
        drawn = [image for image in row["images"] if "draws" in image]
        if len(drawn) == len(row["images"]):
            inside = sum(image["inside"] for image in drawn)
            lines.append(
                f"{row['network']}, ε={row['epsilon']}: {min(image['draws'] for image in drawn):,} draws from each "
                f"ball, inside the bounds for {inside} of {len(drawn)} images.\n"
            )
    return "\n".join(lines)


def _line(row: Row) -> list[str]:
    shares = np.array([image["open"] for image in row["images"]])
    seconds = np.array([image["seconds"] for image in row["images"]])
    accuracy = row["facts"].get("test_accuracy")
    closed = sum(Fraction(image["open"]) <= TARGET for image in row["images"])
    return [
        f"{row['network']}: {NAMES[row['network']]}", "" if accuracy is None else f"{100 * accuracy:.1f} %",
        str(row["epsilon"]), row["chosen"], f"{closed} of {len(shares)}", f"{np.median(shares):.2g}",
        f"{shares.max():.2g}", duration(float(np.median(seconds))), duration(float(seconds.max())),
    ]  # fmt: skip


def _nearest_lines(row: Row) -> Iterator[list[str]]:
    for k in row["nearest"]:
        image = row["images"][k]
        yield [
            row["network"], str(row["epsilon"]), str(k), f"{image['gap']:.3g}",
            f"{float(Fraction(image['bounds'][0])):.9g}", f"{image['open']:.2g}", f"{image['interval']:g}",
            f"{image['draws']:,}", f"{image['hits']:,}", "yes" if image["inside"] else "NO",
        ]  # fmt: skip


def _peer_line(row: Row) -> list[str]:
    ways, sub = row["ways"], row["sub"]
    cells = [row["network"], str(row["epsilon"]), way_cell(ways.get(row["chosen"]))]
    cells += [way_cell(ways.get(name)) for name in ("cnf+ganak", "cnf+approxmc")]
    if not sub["finished"]:
        return [*cells, "", f"{sub['points']:,}", "—", "", ""]
    years = math.log10(sub["seconds"] / 3.15576e7) + sub["log10_times_for_the_ball"]
    return [
        *cells, str(sub["inputs"]), f"{sub['points']:,}", duration(sub["seconds"]), "yes" if sub["inside"] else "NO",
        f"10^{years:.0f} years",
    ]  # fmt: skip


TABLE = Table("mnist", "MNIST-size networks in ε-balls", jobs, markdown)

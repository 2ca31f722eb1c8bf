"""QuantifyML's Table 4: ACAS Xu's N(1,1), and a small network taught by it, on the properties φ1 to φ10."""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from harness import JOBS, WORK, Job, Row, Settings, Table, duration, grid_of, quantify, timed, way_cell, with_ratios
from networks import published_file
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from quantify import pipeline
from quantify.cnf.engine import CnfEngine
from quantify.ir.intervals import clopper_pearson
from quantify.ir.network import LinearLayer, Network
from quantify.readers import read_model
from quantify.readers.float_network import scores
from quantify.resources import Progress

ORIGINAL = "ACASXU_experimental_v2a_1_1.nnet"
PUBLISHED_TABLE = "table4_acasxu.csv"
LABELS = ("COC", "weak left", "weak right", "strong left", "strong right")
INPUTS = ("rho", "theta", "psi", "v_own", "v_int")
LEVELS = (128, 65_536)
LIMITS = {"small": 60.0, "original": 120.0}
"""Seconds for a count of ours."""
SAMPLES = 1_000_000
CONFIDENCE = 1 - Fraction(1, 10**6)
NUMPY_SECONDS = 10.0
"""Plain enumeration of 2^35 inputs and more is measured on what it gets done in this time."""
BLOCK = 1 << 16

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Kind = Literal["small", "original"]


# --- properties ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Answers:
    """What a network says of some inputs, plainly in doubles."""

    scores: Floats
    best: NDArray[np.int64]
    """The advisory: the lowest score of the original, the highest of the small network."""
    worst: NDArray[np.int64]


@dataclass(frozen=True)
class Property:
    """One of the ten, in physical units: ft, rad, rad, ft/s, ft/s."""

    region: tuple[tuple[str, str], ...]
    claim: str
    """`{best}` and `{worst}` stand for the extreme score that decides, and the other one."""
    holds: Callable[[Answers], Mask]
    ahead: str = ""
    """Inputs with |theta| below this are no part of the region."""


RHO, ANGLE, OWN, OTHER = ("0", "60760"), ("-3.141592", "3.141592"), ("100", "1200"), ("0", "1200")
AHEAD = (("55947.691", "60760"), ("-3.141593", "3.141593"), ("-3.141593", "3.141593"), ("1145", "1200"), ("0", "60"))
NEAR = (("1500", "1800"), ("-0.06", "0.06"))
PROPERTIES = {
    1: Property(AHEAD, "score['COC'] <= 1500", lambda a: a.scores[:, 0] <= 1500),
    2: Property(AHEAD, "{worst} != 'COC'", lambda a: a.worst != 0),
    3: Property(
        (*NEAR, ("3.10", "3.141593"), ("980", "1200"), ("960", "1200")), "{best} != 'COC'", lambda a: a.best != 0
    ),
    4: Property((*NEAR, ("0", "0"), ("1000", "1200"), ("700", "800")), "{best} != 'COC'", lambda a: a.best != 0),
    5: Property(
        (("250", "400"), ("0.2", "0.4"), ("-3.141592", "-3.136592"), ("100", "400"), ("0", "400")),
        "{best} == 'strong right'",
        lambda a: a.best == 4,
    ),
    6: Property(
        (("12000", "60760"), ANGLE, ("-3.141592", "-3.136592"), OWN, OTHER),
        "{best} == 'COC'",
        lambda a: a.best == 0,
        "0.7",
    ),
    7: Property((RHO, ANGLE, ANGLE, OWN, OTHER), "{best} not in ('strong left', 'strong right')", lambda a: a.best < 3),
    8: Property(
        (RHO, ("-3.141592", "-2.356194"), ("-0.1", "0.1"), ("600", "1200"), ("600", "1200")),
        "{best} in ('COC', 'weak left')",
        lambda a: a.best < 2,
    ),
    9: Property(
        (("2000", "7000"), ("-0.4", "-0.14"), ("-3.141592", "-3.131592"), ("100", "150"), ("0", "150")),
        "{best} == 'strong left'",
        lambda a: a.best == 3,
    ),
    10: Property(
        (("36000", "60760"), ("0.7", "3.141592"), ("-3.141592", "-3.131592"), ("900", "1200"), ("600", "1200")),
        "{best} == 'COC'",
        lambda a: a.best == 0,
    ),
}
"""φ6 reaches to 62,000 ft in print; the network's own range ends at 60,760."""


@dataclass(frozen=True)
class Axis:
    """Evenly spaced values of one input."""

    low: Decimal
    step: Decimal
    levels: int

    @property
    def high(self) -> Decimal:
        return self.low + self.step * (self.levels - 1)


def axes(phi: int, levels: int) -> tuple[Axis, ...]:
    """The grid over the property's region; steps are rounded down to six digits, so it ends early by 1e-5 at most."""
    rounding = Context(prec=6, rounding=ROUND_DOWN)
    found = []
    for low, high in PROPERTIES[phi].region:
        width = Decimal(high) - Decimal(low)
        found.append(
            Axis(Decimal(low), rounding.divide(width, Decimal(levels - 1)), levels)
            if width
            else Axis(Decimal(low), Decimal(1), 1)
        )
    return tuple(found)


def region_size(phi: int, levels: int) -> int:
    """Points of the grid that are in the region."""
    grid, ahead = axes(phi, levels), Decimal(PROPERTIES[phi].ahead or 0)
    theta = grid[1]
    kept = sum(abs(theta.low + theta.step * place) >= ahead for place in range(theta.levels))
    return kept * math.prod(axis.levels for axis in grid) // theta.levels


def write_property(path: Path, phi: int, levels: int, kind: Kind) -> None:
    """The property file; the network's scores are counted as real numbers."""
    best, worst = ("lowest", "highest") if kind == "original" else ("highest", "lowest")
    features = [
        f"    - {{name: {name}, type: fixed, min: {axis.low:f}, max: {axis.high:f}, step: {axis.step:f}}}"
        for name, axis in zip(INPUTS, axes(phi, levels), strict=True)
    ]
    found = PROPERTIES[phi]
    lines = [
        "property: safety",
        f"name: phi{phi}-{kind}-{levels}",
        f"labels: [{', '.join(LABELS)}]",
        f"decision: {'argmin' if kind == 'original' else 'argmax'}",
        "quantization: {mode: exact}",
        "domain:",
        "  features:",
        *features,
        *([f'assume: "theta >= {found.ahead} or theta <= -{found.ahead}"'] if found.ahead else []),
        f'assert: "{found.claim.format(best=best, worst=worst)}"',
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- networks --------------------------------------------------------------------------------------------------------
HIDDEN = (10, 10, 10, 10)
EVERYWHERE, EACH_REGION = 200_000, 10_000
"""Training inputs: uniform over all that the network takes, and over the region of each property."""
EPOCHS = 15
UNIT = 1024
"""The small network's weights are multiples of 1/1024."""
CENTRES, SPREADS = (20_480, 0, 0, 640, 640), (16_384, 2, 2, 256, 256)
TESTED = 100_000


def structure(path: Path) -> Network:
    """The network of a file, by quantify's own reader."""
    found = read_model(path).structure
    if not isinstance(found, Network):
        raise TypeError(f"{path} holds no network")
    return found


def small_network(original: Path) -> tuple[Path, dict[str, Any]]:
    """The 4×10 network taught by the labels of the original, and what is known of it; made once for each original."""
    folder = WORK / f"acas-{hashlib.sha256(original.read_bytes()).hexdigest()[:12]}"
    path, facts = folder / "small.nnet", folder / "facts.json"
    if not facts.exists():
        folder.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        _teach(structure(original), path)
        seconds = time.perf_counter() - started
        facts.write_text(json.dumps({"accuracy": _accuracy(structure(original), structure(path)), "seconds": seconds}))
    return path, json.loads(facts.read_text())


def _teach(original: Network, path: Path) -> None:
    draw = np.random.default_rng(1)
    low, high = np.array(original.input_bounds).T
    parts = [_uniform(draw, low, high, EVERYWHERE)]
    for found in PROPERTIES.values():
        least, most = np.array(found.region, float).T
        parts.append(_uniform(draw, least, most, EACH_REGION))
    inputs = np.concatenate(parts)
    labels = scores(original, inputs).argmin(axis=1)
    model = MLPClassifier(
        HIDDEN, batch_size=256, learning_rate_init=3e-3, alpha=0, max_iter=EPOCHS, tol=0, random_state=1
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of epochs is fixed
        model.fit((inputs - CENTRES) / np.array(SPREADS), labels)
    _write_nnet(path, [(w.T, b) for w, b in zip(model.coefs_, model.intercepts_, strict=True)], low, high)


def _uniform(draw: np.random.Generator, low: Floats, high: Floats, count: int) -> Floats:
    return low + (high - low) * draw.random((count, len(low)))


def _write_nnet(path: Path, layers: Sequence[tuple[Floats, Floats]], low: Floats, high: Floats) -> None:
    def line(values: Any) -> str:
        return "".join(f"{value!r}," for value in np.asarray(values, float).tolist())

    sizes = [len(low), *(len(bias) for _, bias in layers)]
    lines = ["// taught by the labels of ACAS Xu's N(1,1); the advisory is the highest score"]
    lines += ["".join(f"{n}," for n in (len(layers), sizes[0], sizes[-1], max(sizes))), "".join(f"{n}," for n in sizes)]
    lines += ["0,", line(low), line(high), line([*CENTRES, 0]), line([*SPREADS, 1])]
    for weight, bias in layers:
        lines += [line(np.rint(row * UNIT) / UNIT) for row in weight]
        lines += [line([np.rint(value * UNIT) / UNIT]) for value in bias]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _accuracy(original: Network, small: Network) -> float:
    """The share of fresh uniform inputs on which the two agree, both by quantify's own evaluation."""
    low, high = np.array(original.input_bounds).T
    inputs = _uniform(np.random.default_rng(2), low, high, TESTED)
    return float(np.mean(scores(small, inputs).argmax(axis=1) == scores(original, inputs).argmin(axis=1)))


class Plain:
    """A network in NumPy's doubles, every layer one matrix product: what one would write by hand."""

    def __init__(self, network: Network, kind: Kind) -> None:
        self._kind = kind
        self._steps: list[tuple[Floats, Floats] | None] = []
        for layer in network.layers:
            if not isinstance(layer, LinearLayer):
                self._steps.append(None)
                continue
            weights, bias = layer.rows.to_dense().astype(float), np.asarray(layer.bias, float)
            if layer.divisor is not None:
                weights, bias = weights / layer.divisor[:, np.newaxis], bias / layer.divisor
            self._steps.append((weights.T, bias))

    def __call__(self, inputs: Floats) -> Answers:
        values = inputs
        for step in self._steps:
            values = np.maximum(values, 0) if step is None else values @ step[0] + step[1]
        low, high = values.argmin(axis=1), values.argmax(axis=1)
        return Answers(values, low, high) if self._kind == "original" else Answers(values, high, low)

    def judged(self, phi: int, inputs: Floats) -> tuple[int, int]:
        """How many inputs meet the property and how many violate it."""
        applies = np.abs(inputs[:, 1]) >= float(PROPERTIES[phi].ahead or 0)
        holds = PROPERTIES[phi].holds(self(inputs))
        return int((applies & holds).sum()), int((applies & ~holds).sum())


# --- rows ------------------------------------------------------------------------------------------------------------
def table4(settings: Settings) -> Iterator[Job]:
    """The small network at each number of levels, then the original; none of it without the original's file."""
    original = None if settings.published is None else published_file(settings.published, ORIGINAL)
    if original is None:
        return
    table = published_file(settings.published, PUBLISHED_TABLE) if settings.published is not None else None
    plans: list[tuple[Kind, int, Sequence[int]]] = [
        ("small", 128, range(2, 11)),
        ("small", 65_536, range(2, 11)),
        ("original", 65_536, range(1, 11)),
    ]
    for kind, levels, numbers in plans:
        for phi in numbers:
            measure = functools.partial(_measured, kind, phi, levels, original, table, settings.limit)
            yield Job(f"table4 {kind} {levels} phi{phi}", measure)


def missing(settings: Settings) -> list[str]:
    """The original, when it is not there."""
    if settings.published is not None and published_file(settings.published, ORIGINAL) is not None:
        return []
    what = (
        f"left out, for {ORIGINAL} is not here: ACAS Xu's N(1,1), also the teacher of the small network, is among the "
        "resources of Marabou and in Stanford's release; it is not ours to copy, name its folder by --published DIR"
    )
    return [what]


def _measured(kind: Kind, phi: int, levels: int, original: Path, table: Path | None, limit: float) -> Row:
    facts: dict[str, Any] = {}
    model = original
    if kind == "small":
        model, facts = small_network(original)
    folder = WORK / "acas-properties"
    folder.mkdir(parents=True, exist_ok=True)
    prop = folder / f"phi{phi}-{kind}-{levels}.yaml"
    write_property(prop, phi, levels, kind)
    arguments = ("count", model, "--property", prop, "--engine", "branch", "--jobs", str(JOBS))
    answer = quantify(*arguments, limit=LIMITS[kind])
    total, region = int(answer["domain"]["size"]), region_size(phi, levels)
    counts = {name: (int(count["lower"]), int(count["upper"])) for name, count in answer["counts"].items()}
    exact = all(low == high for low, high in counts.values())
    plain = Plain(structure(model), kind)
    ways: dict[str, Any] = {
        "branch": {"finished": exact, "seconds": max(count["seconds"] for count in answer["counts"].values())},
        "numpy": in_numpy(plain, phi, levels),
    }
    if levels == min(LEVELS):
        grid = pipeline.prepare(model, prop, pipeline.Options(), Progress()).grid
        for counter in ("ganak", "approxmc"):
            path = CnfEngine(counter=counter, epsilon=Fraction(4, 5), delta=Fraction(1, 5))
            ways[f"cnf+{counter}"] = timed(path, grid, grid.cases[0], limit)
    return {
        "kind": kind,
        "phi": phi,
        "levels": levels,
        "facts": facts,
        "total": str(total),
        "region": str(region),
        "counts": {name: [str(low), str(high)] for name, (low, high) in counts.items()},
        "open": float(max(Fraction(high - low, region) for low, high in counts.values())),
        "exit": answer["exit"],
        "wall_seconds": answer["wall_seconds"],
        "own_limit": LIMITS[kind],
        "sample": sampled(plain, phi, levels, counts, total),
        "published": _published(table, phi),
        "ways": with_ratios(ways, "branch"),
    }


def _published(table: Path | None, phi: int) -> dict[str, str] | None:
    """The paper's row for its own small network: its seconds, its accuracy where it finished."""
    if table is None:
        return None
    with table.open(newline="", encoding="utf-8") as file:
        return next((line for line in csv.DictReader(file) if line["phi"] == str(phi)), None)


def _inputs(phi: int, levels: int, positions: NDArray[np.int64]) -> Floats:
    grid = axes(phi, levels)
    steps, lows = np.array([float(axis.step) for axis in grid]), np.array([float(axis.low) for axis in grid])
    found: Floats = lows + positions * steps
    return found


def sampled(
    plain: Plain, phi: int, levels: int, counts: dict[str, tuple[int, int]], total: int
) -> dict[str, dict[str, Any]]:
    """Hits among uniform draws from the grid, plainly in doubles, and whether their interval meets the proven one."""
    draw = np.random.default_rng(4)
    shape = [axis.levels for axis in axes(phi, levels)]
    hits = np.zeros(2, np.int64)
    for start in range(0, SAMPLES, BLOCK):
        positions = draw.integers(0, shape, (min(BLOCK, SAMPLES - start), len(shape)))
        hits += plain.judged(phi, _inputs(phi, levels, positions))
    found = {}
    for name, count in zip(("satisfied", "violated"), hits.tolist(), strict=True):
        low, high = clopper_pearson(count, SAMPLES, CONFIDENCE)
        meets = low * total <= counts[name][1] and high * total >= counts[name][0]
        found[name] = {"hits": count, "low": float(low), "high": float(high), "meets": meets}
    return found


def in_numpy(plain: Plain, phi: int, levels: int) -> dict[str, Any]:
    """Plain vectorised enumeration of the grid: what its time does not suffice for is extrapolated."""
    shape = [axis.levels for axis in axes(phi, levels)]
    total, done = math.prod(shape), 0
    counts = np.zeros(2, np.int64)
    started = time.perf_counter()
    while done < total and time.perf_counter() - started < NUMPY_SECONDS:
        numbers = np.arange(done, min(total, done + BLOCK))
        positions = np.empty((len(numbers), len(shape)), np.int64)
        for place in reversed(range(len(shape))):
            numbers, positions[:, place] = numbers // shape[place], numbers % shape[place]
        counts += plain.judged(phi, _inputs(phi, levels, positions))
        done += len(positions)
    way = {"finished": True, "seconds": (time.perf_counter() - started) * (total / done)}
    if done < total:
        return way | {"extrapolated": f"from {done} inputs"}
    return way | {"counts": {"satisfied": str(counts[0]), "violated": str(counts[1])}}


# --- report ----------------------------------------------------------------------------------------------------------
def markdown(rows: Sequence[Row]) -> str:
    """The small network at each number of levels, then the original."""
    intro = (
        "Shares of the region that are proven to satisfy and to violate the property. `sample`: 10^6 draws in plain "
        "doubles, their interval (Clopper and Pearson at 1 − 10^-6) meets the proven one. NumPy is extrapolated (`≈`) "
        f"from {NUMPY_SECONDS:g} s of plain vectorised enumeration in doubles, which proves nothing near ties; `>` was "
        f"stopped by its limit. {JOBS} threads; the properties are about other networks of the family but for φ1 and "
        "φ3 to φ6.\n"
    )
    parts = [intro]
    for kind in ("small", "original"):
        for levels in LEVELS:
            chosen = [row for row in rows if (row["kind"], row["levels"]) == (kind, levels)]
            if chosen:
                parts.append(_section(kind, levels, sorted(chosen, key=lambda row: row["phi"])))
    return "\n".join(parts)


def _section(kind: str, levels: int, rows: Sequence[Row]) -> str:
    first = rows[0]
    what = "The original 6×50 network N(1,1), the lowest score deciding"
    if kind == "small":
        what = (
            f"A 4×10 network taught by the original's labels, the highest score deciding: it gives the original's "
            f"advisory on {100 * first['facts']['accuracy']:.2f} % of uniform inputs"
        )
    names = list(dict.fromkeys(name for row in rows for name in row["ways"] if name != "branch"))
    heads = ["property", "inputs", "satisfied", "violated", "open", "branch", "command", "sample"]
    heads += [*names, "paper, its own network"]
    lines = []
    for row in rows:
        region = int(row["region"])
        cells = [f"φ{row['phi']}", f"{region:.3e}"]
        cells += [_shares(row["counts"][name], region) for name in ("satisfied", "violated")]
        cells += [f"{row['open']:.2g}" if row["open"] else "0, exact", way_cell(_alone(row["ways"]["branch"]))]
        cells += [duration(row["wall_seconds"])]
        cells += ["yes" if all(entry["meets"] for entry in row["sample"].values()) else "NO"]
        lines.append([*cells, *(way_cell(row["ways"].get(name)) for name in names), _paper(row, kind)])
    title = f"{what}; at most {levels:,} levels an input, {first['own_limit']:g} s for each count.\n\n"
    return title + grid_of(heads, lines)


def _alone(way: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in way.items() if key != "ratio"}


def _shares(ends: Sequence[str], region: int) -> str:
    low, high = (int(end) / region for end in ends)
    if ends[0] == ends[1]:
        return "0" if ends[0] == "0" else f"{low:.6g}"
    return f"{low:.6g} to {high:.6g}"


def _paper(row: Row, kind: str) -> str:
    if kind != "small" or row["published"] is None:
        return ""
    return f"{row['published']['seconds']} s" if row["published"]["seconds"] else "not finished"


TABLE = Table("4", "Table 4: ACAS Xu", table4, markdown, missing)

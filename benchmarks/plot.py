"""How much is open after how long: series of (seconds, open share) in, a picture with logarithmic axes out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import mnist
import numpy as np
from harness import JOBS, WORK, Job, Row, Settings, Table, duration, grid_of

from quantify.engines.branch import BranchEngine
from quantify.engines.margins import MarginsEngine
from quantify.ir.count import Engine
from quantify.ir.domain import Measure
from quantify.ir.network import IntLayer, IntNetwork, Rows
from quantify.ir.predicate import HasLabel
from quantify.ir.problem import Box, GridCase, GridProblem, GridQuery
from quantify.resources import Limits, Progress

Series = Sequence[tuple[float, float]]
"""(seconds, open share) of runs."""

TIMES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
"""Time limits of the runs that make up a series, each from the beginning, up to the row's own limit."""
FLOOR = 1e-12
"""Smaller shares, 0 among them, are drawn here."""
FIGURE = "gap.svg"
WIDE = {"2×10 hidden": (5, 10, 10, 5), "4×10 hidden": (5, 10, 10, 10, 10, 5)}
LEVELS = 65_536
CONTESTED = {"dense": 4, "conv": 2, "bnn": 4, "int8": 1}
"""Networks of `mnist` with the ε of the ball whose image is nearest to another label."""


def draw(series: Mapping[str, Series], file: Path) -> None:
    """Write the picture, in the format of the file's suffix.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "quantify"  # the same figures make the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for name, points in series.items():
        # Runs may take longer than a later one; what was reached by then counts.
        seconds, shares = zip(*sorted(points), strict=True)
        reached = np.maximum(np.minimum.accumulate(shares), FLOOR)
        axes.plot(seconds, reached, marker="o", markersize=3, label=name)
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="open share", ylim=(FLOOR / 2, 1.5))
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot.close(figure)


def series_of(engine: Engine, grid: GridProblem, case: GridCase, limit: float) -> list[tuple[float, float]]:
    """Runs under growing time limits: what each took, and the share that it left open; ends when a run ended early."""
    assert isinstance(case.region, Box)
    found: list[tuple[float, float]] = []
    for allowed in (*(t for t in TIMES if t < limit), limit):
        started = time.perf_counter()
        counts = engine.count(grid, case, Limits.starting_now(allowed, jobs=JOBS), Progress())
        seconds = time.perf_counter() - started
        found.append((seconds, max((c.upper - c.lower) / case.region.size for c in counts.values())))
        if seconds < 0.9 * allowed:
            break
    return found


# --- rows ------------------------------------------------------------------------------------------------------------
def wide_network(shape: Sequence[int], seed: int = 1) -> GridProblem:
    """An 8-bit ReLU network of a fixed seed over 65,536 levels of each input; its first label is counted."""
    rng = np.random.default_rng(seed)
    layers = []
    for number, (inputs, outputs) in enumerate(itertools.pairwise(shape)):
        weights = rng.integers(-127, 128, (outputs, inputs))
        # Centred, so that every ReLU bends somewhere in the middle of its range.
        bias = -(weights.sum(axis=1) * (LEVELS // 2)) if not number else np.zeros(outputs, np.int64)
        last = number == len(shape) - 2
        layers.append(IntLayer(Rows.dense(weights), bias, "none" if last else "relu"))
    network = IntNetwork(shape[0], tuple(layers), shape[-1])
    box = Box((0,) * shape[0], (LEVELS,) * shape[0])
    queries = tuple(GridQuery(str(k), HasLabel((k,))) for k in range(shape[-1]))
    return GridProblem(box.high, shape[-1], network, Measure(), (GridCase(box, queries, ()),))


def _wide(name: str, limit: float) -> Row:
    grid = wide_network(WIDE[name])
    return {"series": series_of(BranchEngine(), grid, grid.cases[0], limit), "engine": "branch"}


def _contested(name: str, limit: float) -> Row:
    made = mnist.make(name)
    grid = mnist.prepared(made, CONTESTED[name]).grid
    image = int(np.argmin(mnist.centre_gaps(grid)))
    return {"series": series_of(MarginsEngine(), grid, grid.cases[image], limit), "engine": "margins", "image": image}


def jobs(settings: Settings) -> Iterator[Job]:
    """One series a row."""
    limit = min(settings.limit, TIMES[-1])
    for name in WIDE:
        yield Job(f"gap branch {name}", lambda name=name: _wide(name, limit))
    for name in CONTESTED:
        yield Job(f"gap margins {name} ε={CONTESTED[name]}", lambda name=name: _contested(name, limit))


def markdown(rows: Sequence[Row]) -> str:
    """The picture, and its figures as a table."""
    series = {row["key"].removeprefix("gap "): row["series"] for row in rows if row["series"]}
    text = (
        "The share of the region that is still open, by runs under growing time limits: `branch` on 5 inputs of "
        f"{LEVELS:,} levels, `margins` on the ball of the image nearest to another label.\n\n"
    )
    if series:
        try:
            draw(series, WORK.parent / FIGURE)
            text += f"![open share against time]({FIGURE})\n\n"
        except ImportError:
            text += "(matplotlib is not installed: no picture.)\n\n"
    lines = [[name, *_ends(points)] for name, points in series.items()]
    return text + grid_of(["series", "runs", "first run", "open", "last run", "open"], lines)


def _ends(points: Sequence[Any]) -> list[str]:
    (first, before), (last, after) = points[0], points[-1]
    return [str(len(points)), duration(first), f"{before:.2g}", duration(last), f"{after:.2g}"]


TABLE = Table("gap", "Open share against time", jobs, markdown)

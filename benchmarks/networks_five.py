"""Five-input ReLU networks from fixed seeds: `python benchmarks/networks_five.py [--limit S] [--seeds 0,1] [--jobs N]`.

Two recipes. `int8`: weights drawn evenly from −127 … 127, no biases, inputs 0 … levels − 1. Its labels are as uneven as
they come.

`balanced`, which is harder on purpose: weights normal with variance 2 / fan-in (He) and biases uniform within
±1/√fan-in, over inputs in [−1, 1]; the score biases then set each score's mean over 4,096 random inputs to zero, so
that no label is lost from the start. Weights are rounded to 8 bits (one scale a layer), biases to the scale of their
accumulator; activations stay whole ("no requantisation"), so every sum is exact. The grid spaces its levels evenly
over [−1, 1] (its integers are 2·position − (levels − 1)).

Nobody chose the seeds of either: they are 0, 1, 2, …; every one is a row.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import resource
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import networks
import numpy as np
from harness import JOBS, Job, Row, Settings, Table, duration, grid_of, timed, way_cell, with_ratios

from quantify.cnf.engine import CnfEngine
from quantify.engines.branch import BranchEngine
from quantify.ir.domain import Measure
from quantify.ir.network import IntLayer, IntNetwork, Rows
from quantify.ir.predicate import HasLabel
from quantify.ir.problem import Box, GridCase, GridProblem, GridQuery
from quantify.resources import Limits, Progress

INPUTS, LABELS = 5, 5
SHAPES = (
    ("2x10", (10, 10), 256),
    ("4x10", (10, 10, 10, 10), 128),
    ("2x10", (10, 10), 65_536),
    ("4x10", (10, 10, 10, 10), 65_536),
)
"""Name, hidden layers, levels per input."""
RECIPES = ("int8", "balanced")
SEEDS = (0, 1, 2, 3, 4)
TARGETS = {("2x10", 256): 0.0, ("4x10", 128): 0.0, ("2x10", 65_536): 0.02, ("4x10", 65_536): 0.07}
"""Largest open share that was aimed at, after 30 seconds."""
SECONDS = 30.0
"""What `branch` has for a network in the report."""
NUMPY_SECONDS = 3.0
"""Plain enumeration is measured on what it gets done in this time."""
TOP = 127


def network(recipe: str, seed: int, hidden: Sequence[int], levels: int) -> IntNetwork:
    """The integer network of one seed over positions 0 … levels − 1 (see the head of this file)."""
    return (_balanced if recipe == "balanced" else _int8)(seed, hidden, levels)


def _int8(seed: int, hidden: Sequence[int], levels: int) -> IntNetwork:
    rng = np.random.default_rng(seed)
    widths = [INPUTS, *hidden, LABELS]
    layers = [
        IntLayer(Rows.dense(rng.integers(-TOP, TOP + 1, (b, a))), np.zeros(b, np.int64), "relu" if more else "none")
        for more, (a, b) in zip(range(len(hidden), -1, -1), pairwise(widths), strict=True)
    ]
    return IntNetwork(INPUTS, tuple(layers), LABELS)


def _balanced(seed: int, hidden: Sequence[int], levels: int) -> IntNetwork:
    rng = np.random.default_rng(seed)
    widths = [INPUTS, *hidden, LABELS]
    weights = [rng.normal(0, np.sqrt(2 / a), (b, a)) for a, b in pairwise(widths)]
    biases = [rng.uniform(-1, 1, b) / np.sqrt(a) for a, b in pairwise(widths)]
    values = rng.uniform(-1, 1, (4096, INPUTS))
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        values = np.maximum(values @ w.T + b, 0)
    biases[-1] = -(values @ weights[-1].T).mean(axis=0)
    layers = []
    unit = 1 / (levels - 1)  # one step of an integer input
    for place, (w, b) in enumerate(zip(weights, biases, strict=True)):
        step = float(np.abs(w).max()) / TOP
        whole = np.rint(w / step).astype(np.int64)
        unit *= step
        bias = np.rint(b / unit).astype(np.int64)
        if place == 0:
            whole, bias = 2 * whole, bias - (levels - 1) * whole.sum(axis=1)
        kind = "relu" if place < len(weights) - 1 else "none"
        layers.append(IntLayer(Rows.dense(whole), bias, kind))
    return IntNetwork(INPUTS, tuple(layers), LABELS)


def problem(recipe: str, seed: int, hidden: Sequence[int], levels: int) -> GridProblem:
    """How many inputs of the whole grid get each label."""
    sizes = (levels,) * INPUTS
    queries = tuple(GridQuery(str(label), HasLabel((label,))) for label in range(LABELS))
    case = GridCase(Box((0,) * INPUTS, sizes), queries, ())
    return GridProblem(sizes, LABELS, network(recipe, seed, hidden, levels), Measure(), (case,))


def row(
    recipe: str, name: str, hidden: Sequence[int], levels: int, seed: int, limit: float, jobs: int = 2
) -> dict[str, Any]:
    """One network, counted for at most `limit` seconds."""
    drawn = problem(recipe, seed, hidden, levels)
    engine = BranchEngine()
    wall, cpu = time.perf_counter(), _cpu()
    outcome = engine.run(drawn, drawn.cases[0], Limits.starting_now(limit, jobs=jobs), Progress())
    wall, cpu = time.perf_counter() - wall, _cpu() - cpu
    return {
        "key": _key(recipe, name, levels, seed),
        "recipe": recipe,
        "shape": "-".join(map(str, (INPUTS, *hidden, LABELS))),
        "levels": levels,
        "seed": seed,
        "limit": limit,
        "jobs": jobs,
        "seconds": wall,
        "cpu_seconds": cpu,
        "exact": outcome.open_share == 0,
        "open_share": float(outcome.open_share),
        "target": TARGETS.get((name, levels)),
        "work": dict(outcome.work),
        "counts": {key: [str(c.lower), str(c.upper)] for key, c in outcome.counts.items()},
    }


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _key(recipe: str, name: str, levels: int, seed: int) -> str:
    return f"five {recipe} {name}@{levels} seed {seed}"


def rows(limit: float = 30.0, seeds: Sequence[int] = SEEDS, jobs: int = 2) -> Iterator[dict[str, Any]]:
    """Every recipe, shape and seed, one after the other."""
    for recipe, (name, hidden, levels), seed in itertools.product(RECIPES, SHAPES, seeds):
        yield row(recipe, name, hidden, levels, seed, limit, jobs)


# --- the table -------------------------------------------------------------------------------------------------------
def table_five(settings: Settings) -> Iterator[Job]:
    """Every recipe, shape and seed; the CBMC path beside the first seed of each shape."""
    for recipe, (name, hidden, levels), seed in itertools.product(RECIPES, SHAPES, SEEDS):
        measure = functools.partial(_beside_others, recipe, name, hidden, levels, seed, settings.limit)
        yield Job(_key(recipe, name, levels, seed), measure)


def _beside_others(recipe: str, name: str, hidden: Sequence[int], levels: int, seed: int, limit: float) -> Row:
    found = row(recipe, name, hidden, levels, seed, SECONDS, JOBS)
    del found["key"]
    found["seconds_allowed"] = found.pop("limit")
    drawn = problem(recipe, seed, hidden, levels)
    ways: dict[str, Any] = {"branch": {"finished": found["exact"], "seconds": found["seconds"]}}
    ways["numpy"] = networks.in_numpy(drawn, NUMPY_SECONDS)
    if seed == SEEDS[0]:
        for counter in ("ganak", "approxmc"):
            path = CnfEngine(counter=counter, epsilon=Fraction(4, 5), delta=Fraction(1, 5))
            ways[f"cnf+{counter}"] = timed(path, drawn, drawn.cases[0], limit)
    return found | {"ways": with_ratios(ways, "branch")}


def markdown(rows: Sequence[Row]) -> str:
    """A line for each network: how much is open, after how long, beside what others take."""
    names = list(dict.fromkeys(name for line in rows for name in line["ways"] if name != "branch"))
    heads = ["network", "recipe", "levels", "seed", "inputs", "open share", "aimed at", "wall", "cpu", *names]
    lines = []
    for line in rows:
        share = "0 (exact)" if line["exact"] else f"{line['open_share']:.2g}"
        inputs = f"{line['levels'] ** INPUTS:.2e}".replace("e+", "e")
        seconds = [duration(line["seconds"]), duration(line["cpu_seconds"])]
        cells = [way_cell(line["ways"].get(name)) for name in names]
        aimed = "0" if line["target"] == 0 else f"{line['target']:g}"
        lines.append(
            [
                line["shape"],
                line["recipe"],
                str(line["levels"]),
                str(line["seed"]),
                inputs,
                share,
                aimed,
                *seconds,
                *cells,
            ]
        )
    intro = (
        f"Inputs of each of {LABELS} labels, by `branch` with {JOBS} threads, stopped after {SECONDS:g} s; weights of "
        "8 bits, no requantisation. NumPy is a plain enumeration, extrapolated from what it gets done in "
        f"{NUMPY_SECONDS:g} s; ratios are to the time of `branch`, finished or not.\n\n"
    )
    return intro + grid_of(heads, lines)


TABLE = Table("five", "Five-input networks from fixed seeds", table_five, markdown)


def main() -> None:
    """Print the rows as they come, one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for each network (default 30)")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    for found in rows(arguments.limit, [int(s) for s in arguments.seeds.split(",")], arguments.jobs):
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

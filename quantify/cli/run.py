"""`quantify run`: a model's answers to a suite of cases, and how many of them are right."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from quantify.cli import output
from quantify.cli.options import FILE, POSITIVE, output_options


@click.command("run")
@click.argument("model", type=FILE, required=False)
@click.option("--cases", type=FILE, required=True, metavar="CASES", help="The suite: a .csv or .jsonl file.")
@click.option(
    "--property",
    "property_file",
    type=FILE,
    metavar="P.yaml",
    help="Names of features, categories and labels, decision and preprocess, as for count; nothing is counted.",
)
@click.option("--system", metavar="NAME", help="What the run is of; the name of the model's file unless given.")
@click.option("--tolerance", type=POSITIVE, metavar="T", help="Regressors: a score this close to the label is correct.")
@click.option(
    "--layout",
    type=click.Choice(["hwc", "chw"]),
    default="hwc",
    show_default=True,
    help="Colour images: channels of a pixel together, or one channel after the other.",
)
@click.option(
    "--failed", metavar="REASON", help="Instead of MODEL: the system gives no answers, because its training failed."
)
@output_options
@click.option("--record", "recorded", is_flag=True, help="Keep the run as evidence for `quantify gate` and `seeds`.")
@click.option("--trust-pickle", is_flag=True, help="Unpickle types outside the allow-list: runs code from the file.")
def command(
    model: Path | None,
    cases: Path,
    property_file: Path | None,
    system: str | None,
    tolerance: Fraction | None,
    layout: Any,
    failed: str | None,
    json_file: Path | None,
    quiet: bool,
    recorded: bool,
    trust_pickle: bool,
) -> int:
    """Ask MODEL about every case of a suite.

    A case has an id, features (or an image), and perhaps the expected label and groups. A network with one output that
    is no probability is a regressor: its answers are scores.
    """
    output.check_writable(json_file)
    if (model is None) == (failed is None):
        raise click.UsageError("give a MODEL, or --failed REASON for one that gives no answers")
    if model is None and (property_file is not None or tolerance is not None):
        raise click.UsageError("--property and --tolerance are about a MODEL")
    if model is None and system is None:
        raise click.UsageError("--failed needs --system NAME: what gives no answers?")
    from quantify.cli import recording
    from quantify.dataset import answers
    from quantify.dataset import run as runs
    from quantify.dataset import suite as suites

    data: Any = ()
    if recorded:
        recording.check_store()
        if property_file is not None:
            from quantify import properties

            data = recording.data_refs(properties.data_files(properties.load(property_file)))
    suite = suites.load(cases)
    if model is None:
        assert system is not None
        found = runs.failed(suite, system, failed or "no reason given")
    else:
        asked = answers.prepare(model, suite, property_file, trust_pickle=trust_pickle, layout=layout)
        with output.progress(quiet) as shown:
            shown.update("asking the model", 0, len(suite.cases))
            found = runs.run(asked, system or model.name, tolerance)
    if not quiet and str(json_file) != "-":
        click.echo(_text(found))
    if json_file is not None:
        output.write_json(json_file, runs.to_dict(found))
    if recorded:
        recording.record(runs.to_record(found, data), quiet)
    return 0


def _text(found: Any) -> str:
    from quantify.dataset import run as runs
    from quantify.report.numbers import percent_range

    told = runs.to_dict(found)
    counts = told["counts"]
    lines = [f"{found.system} on {found.suite.path}: {counts['answered']:,} of {counts['cases']:,} cases answered"]
    if found.failed is not None:
        lines.append(f"  no answers: {found.failed}")
    if not counts["labelled"]:
        lines.append(
            "  no case says what is right"
            + ("; give --tolerance" if found.model is not None and told["model"]["kind"] == "regressor" else "")
        )
    for reading in runs.readings(found):
        (drawn,) = reading.draws
        group = "" if reading.group is None else f" {reading.group}"
        lines.append(
            f"  correct{group}: {drawn.hits:,} of {drawn.samples:,}"
            + (f", {drawn.unknown:,} without an answer" if drawn.unknown else "")
            + f" ({percent_range(reading.lower, reading.upper)} at 95 % confidence)"
        )
    return "\n".join(lines)

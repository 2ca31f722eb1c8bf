"""`quantify count`: one model, one property, one trustworthy answer."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import click

from quantify.cli import output
from quantify.cli.options import FILE, UNIT, counter_options, limit_options, limits_from, output_options


@click.command("count")
@click.argument("model", type=FILE)
@click.option(
    "--property", "property_file", type=FILE, required=True, metavar="P.yaml", help="What to count, and where."
)
@click.option(
    "--engine",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="auto, boxes, enumerate, bdd, branch, margins, reference, cnf or sample.",
)
@click.option(
    "--counter",
    default="ganak",
    show_default=True,
    metavar="NAME",
    help="Model counter of the cnf engine and of the cross-check.",
)
@click.option(
    "--cross-check", is_flag=True, help="Count again by independent ways, and refuse to answer if they disagree."
)
@click.option(
    "--gap",
    type=UNIT,
    metavar="SHARE",
    help="Stop a count by bounds once at most this share of the region is open.",
)
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="Draws of the sample engine.",
)
@click.option(
    "--confidence",
    type=UNIT,
    default="0.95",
    show_default=True,
    metavar="C",
    help="Confidence of the sample engine's interval.",
)
@counter_options
@limit_options
@output_options
@click.option("--html", "html_file", metavar="FILE", type=FILE, help="Write a self-contained page.")
@click.option(
    "--trust-pickle",
    is_flag=True,
    help="Unpickle types outside the allow-list: runs code from the file. Only for files you made.",
)
def command(
    model: Path,
    property_file: Path,
    engine: str,
    counter: str,
    cross_check: bool,
    gap: Fraction | None,
    samples: int,
    confidence: Fraction,
    epsilon: Fraction,
    delta: Fraction,
    timeout: float | None,
    memory: int | None,
    seed: int,
    jobs: int,
    json_file: Path | None,
    quiet: bool,
    html_file: Path | None,
    trust_pickle: bool,
) -> int:
    """Count the inputs of MODEL that satisfy a property.

    MODEL is a scikit-learn DecisionTreeClassifier saved with pickle, joblib or skops, or a network in a .keras, .h5,
    .nnet, .onnx or full-integer .tflite file.
    Ctrl-C stops the count and reports the bounds known so far.
    """
    limits = limits_from(timeout, memory, seed, jobs)
    output.check_writable(json_file, html_file)
    from quantify import pipeline
    from quantify.report import json as report_json

    options = pipeline.Options(
        engine=engine,
        counter=counter,
        cross_check=cross_check,
        trust_pickle=trust_pickle,
        limits=limits,
        samples=samples,
        confidence=confidence,
        epsilon=epsilon,
        delta=delta,
        gap=gap,
    )
    with output.progress(quiet) as shown, output.stoppable(limits):
        evidence = pipeline.count(model, property_file, options, shown)
    if not quiet and str(json_file) != "-":
        from quantify.report import terminal

        click.echo(terminal.to_text(evidence), nl=False)
    if json_file is not None:
        output.write_json(json_file, report_json.to_dict(evidence))
    if html_file is not None:
        from quantify.report import html

        output.write_text(html_file, html.render(evidence))
    return pipeline.exit_code(evidence)

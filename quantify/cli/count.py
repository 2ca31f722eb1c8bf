"""`quantify count`: one model, one property, one trustworthy answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quantify.cli import certifying, output
from quantify.cli.options import FILE, UNIT, counter_options, limit_options, limits_from, output_options

if TYPE_CHECKING:
    from quantify import pipeline


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
    "--checkpoint",
    type=FILE,
    metavar="DIR",
    help="Keep unfinished work of branch in DIR; the same command goes on from there.",
)
@click.option(
    "--boxes",
    "boxes_file",
    type=FILE,
    metavar="FILE",
    help="Count by branch, and write the failing inputs as boxes: JSON, or CSV by the name (- for stdout).",
)
@click.option(
    "--certificate",
    type=FILE,
    metavar="FILE",
    help="Count by branch, and write a proof that `quantify verify` checks.",
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
@click.option("--record", "recorded", is_flag=True, help="Keep the answer as evidence for `quantify gate`.")
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
    checkpoint: Path | None,
    boxes_file: Path | None,
    certificate: Path | None,
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
    recorded: bool,
    trust_pickle: bool,
) -> int:
    """Count the inputs of MODEL that satisfy a property.

    MODEL is a scikit-learn DecisionTreeClassifier saved with pickle, joblib or skops, or a network in a .keras, .h5,
    .nnet, .onnx or full-integer .tflite file.
    Ctrl-C stops the count and reports the bounds known so far.
    """
    limits = limits_from(timeout, memory, seed, jobs)
    output.check_writable(json_file, html_file, boxes_file, certificate)
    if str(certificate) == "-":
        raise click.UsageError("--certificate does not go to stdout: give a file name")
    if str(json_file) == str(boxes_file) == "-":
        raise click.UsageError("--json and --boxes cannot both go to stdout")
    from quantify import pipeline
    from quantify.report import json as report_json

    if recorded:
        from quantify import properties
        from quantify.cli import recording
        from quantify.evidence import readings

        recording.check_store()
        # Before the count: what is hashed is then no newer than what was read.
        data = recording.data_refs(properties.data_files(properties.load(property_file)))
    pipeline.known_engine(engine)
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
        checkpoint=checkpoint,
    )
    try:
        with (
            output.progress(quiet) as shown,
            output.stoppable(limits),
            _boxes(boxes_file) as boxes,
            certifying.certificate(certificate, quiet) as certify,
        ):
            evidence = pipeline.count(model, property_file, options, shown, _all(boxes, certify))
    except pipeline.CountedApartError as error:
        if recorded:
            body = report_json.to_dict(error.evidence)
            recording.record(readings.to_record(error.evidence, body, data, status="invalid"), quiet)
        raise
    if not quiet and "-" not in (str(json_file), str(boxes_file)):
        from quantify.report import terminal

        click.echo(terminal.to_text(evidence), nl=False)
    if json_file is not None:
        output.write_json(json_file, report_json.to_dict(evidence))
    if html_file is not None:
        from quantify.report import html

        output.write_text(html_file, html.render(evidence))
    if recorded:
        recording.record(readings.to_record(evidence, report_json.to_dict(evidence), data), quiet)
    return pipeline.exit_code(evidence)


def _all(*keeps: pipeline.Keep | None) -> pipeline.Keep | None:
    wanted = [keep for keep in keeps if keep is not None]

    def keep_all(prepared: pipeline.Prepared, split: pipeline.Split) -> None:
        for keep in wanted:
            keep(prepared, split)

    return keep_all if wanted else None


@contextlib.contextmanager
def _boxes(path: Path | None) -> Iterator[pipeline.Keep | None]:
    """What `pipeline.count` shall do with split trees: write their boxes to `path`, which is there after the block."""
    if path is None:
        yield None
        return
    from quantify import pipeline
    from quantify.report.boxes import CsvBoxes, JsonBoxes

    with output.opened(path) as file:
        writer = CsvBoxes(file) if path.suffix == ".csv" else JsonBoxes(file)

        def keep(prepared: pipeline.Prepared, split: pipeline.Split) -> None:
            counts = {name: split.counts[name] for name in split.names}
            writer.case(prepared.problem, split.case, pipeline.split_boxes(prepared, split), counts)

        yield keep
        writer.end()

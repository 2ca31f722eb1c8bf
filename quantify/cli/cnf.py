"""`quantify cnf`: count any DIMACS file, projected onto its `c p show` or `c ind` variables."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import click

from quantify.cli import output
from quantify.cli.options import FILE, counter_options, limit_options, limits_from, output_options


@click.command("cnf")
@click.argument("file", type=FILE)
@click.option(
    "--counter",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="auto (exact counters, one after the other), ganak, approxmc, d4, projmc, …",
)
@counter_options
@limit_options
@output_options
def command(
    file: Path,
    counter: str,
    epsilon: Fraction,
    delta: Fraction,
    timeout: float | None,
    memory: int | None,
    seed: int,
    jobs: int,
    json_file: Path | None,
    quiet: bool,
) -> int:
    """Count the models of FILE (DIMACS, also .gz and .xz).

    Counted are the assignments of the variables in `c p show` or `c ind` lines that extend to a model;
    without such lines, every variable.
    """
    limits = limits_from(timeout, memory, seed, jobs)
    output.check_writable(json_file)
    from quantify import pipeline
    from quantify.report import json as report_json

    with output.progress(quiet) as shown, output.stoppable(limits):
        answer = pipeline.count_cnf(file, counter, limits, epsilon, delta, shown)
    data = report_json.cnf_to_dict(answer)
    if not quiet and str(json_file) != "-":
        from quantify.report import terminal

        click.echo(terminal.cnf_to_text(answer), nl=False)
    if json_file is not None:
        output.write_json(json_file, data)
    return 0

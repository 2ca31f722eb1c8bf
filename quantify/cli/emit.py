"""`quantify emit`: the C program that CBMC reads, or the CNF that a counter reads, as files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from quantify.cli import output
from quantify.cli.options import FILE, limit_options, limits_from


@click.command("emit")
@click.argument("model", type=FILE)
@click.option(
    "--property", "property_file", type=FILE, required=True, metavar="P.yaml", help="What to count, and where."
)
@click.option(
    "--to",
    "form",
    type=click.Choice(["c", "cnf"]),
    required=True,
    help="c: include-free C with CBMC's nondeterministic inputs; cnf: DIMACS with `c p show`.",
)
@click.option("--query", metavar="NAME", help="Which count (satisfied, tp, …); the first unless said.")
@click.option(
    "--case",
    "number",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Which case of a robustness property, from 0.",
)
@click.option(
    "--output", "output_file", type=FILE, default="-", metavar="FILE", help="Where to write it; stdout unless said."
)
@limit_options
@click.option("--trust-pickle", is_flag=True, help="Unpickle types outside the allow-list: runs code from the file.")
def command(
    model: Path,
    property_file: Path,
    form: Literal["c", "cnf"],
    query: str | None,
    number: int,
    output_file: Path,
    timeout: float | None,
    memory: int | None,
    seed: int,
    jobs: int,
    trust_pickle: bool,
) -> int:
    """Write what is handed to CBMC (C) or to a counter (CNF) for one query of one case."""
    limits = limits_from(timeout, memory, seed, jobs)
    output.check_writable(output_file)
    from quantify import pipeline

    options = pipeline.Options(limits=limits, trust_pickle=trust_pickle)
    with output.progress(False) as shown:
        text = pipeline.emit(model, property_file, options, shown, form=form, query=query, number=number)
    output.write_text(output_file, text)
    return 0

"""`quantify transfer`: what will the loss be where conditions are mixed otherwise than in the test set?"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from quantify.cli import output
from quantify.cli.options import FILE, UNIT, FractionType, NamesType, limit_options, limits_from, output_options


@click.command("transfer")
@click.argument("table", metavar="TABLE.csv", type=FILE)
@click.option("--loss", metavar="L", required=True, help="The column of the loss of each row (0 and 1, or numbers).")
@click.option(
    "--context", type=NamesType(), metavar="A,B,…", help="The context features; all other columns if left out."
)
@click.option("--operating", type=FILE, metavar="O.csv", help="Rows of the operating domain; they need no loss.")
@click.option("--weight", metavar="W", help="The column of --operating that says how much each row counts.")
@click.option(
    "--marginals", type=FILE, metavar="M.yaml", help="Instead of --operating: {feature: {value: probability}}."
)
@click.option("--k", "k", type=click.IntRange(1), metavar="K", help="Use the first K features, whatever splits say.")
@click.option(
    "--choose", type=click.Choice(("informative", "least")), default="informative", show_default=True,
    help="K of the least expected error, alone or with further informative features within one standard error of it.",
)  # fmt: skip
@click.option(
    "--splits", type=click.IntRange(1), default=50, show_default=True, metavar="N", help="Splits that K is chosen by."
)
@click.option(
    "--fit-share", type=UNIT, default="1/2", show_default=True, metavar="S", help="Part of the rows that is fitted."
)
@click.option(
    "--max-loss", type=FractionType(0, None), metavar="M",
    help="The loss of untested contexts; 1 where losses lie in 0 to 1, else the largest in the table.",
)  # fmt: skip
@click.option(
    "--bins", type=click.IntRange(2, 1000), default=10, show_default=True, metavar="N",
    help="Cut numbers of more than N values into N bins.",
)  # fmt: skip
@click.option("--categorical", type=NamesType(), metavar="A,B,…", help="Numbers that are names: no bins.")
@click.option(
    "--confidence", type=UNIT, default="0.95", show_default=True, metavar="C", help="Of the interval, approximately."
)
@click.option(
    "--replicates", type=click.IntRange(100), default=2000, show_default=True, metavar="N", help="Of the bootstrap."
)
@limit_options
@output_options
@click.option("--html", "html_file", type=FILE, metavar="FILE", help="Write a page with heat maps.")
@click.option("--record", "recorded", is_flag=True, help="Keep the answer as evidence for `quantify gate`.")
def command(
    table: Path,
    loss: str,
    context: tuple[str, ...] | None,
    operating: Path | None,
    weight: str | None,
    marginals: Path | None,
    k: int | None,
    choose: Any,
    splits: int,
    fit_share: Fraction,
    max_loss: Fraction | None,
    bins: int,
    categorical: tuple[str, ...] | None,
    confidence: Fraction,
    replicates: int,
    timeout: float | None,
    memory: int | None,
    seed: int,
    jobs: int,
    json_file: Path | None,
    quiet: bool,
    html_file: Path | None,
    recorded: bool,
) -> int:
    """Predict the loss in another operating domain from the losses of a test set.

    Ranks the context features by the information that they add about the loss, chooses how many to use by splits of the
    test set, and weighs the mean loss of each context by its probability in the operating domain. Contexts that the
    test set lacks take the maximum loss.
    """
    limits = limits_from(timeout, memory, seed, jobs)
    _check(operating, weight, marginals, recorded)
    if k is not None and click.get_current_context().get_parameter_source("choose") is not ParameterSource.DEFAULT:
        raise click.UsageError("--k says how many features, --choose how to choose: give one of them")
    if str(json_file) == str(html_file) == "-":
        raise click.UsageError("only one of --json and --html can go to stdout")
    output.check_writable(json_file, html_file)
    from quantify import __version__
    from quantify.cli import recording
    from quantify.dataset import transfer
    from quantify.evidence import records
    from quantify.ir.record import Record
    from quantify.report import terminal
    from quantify.report import transfer as report

    if recorded:
        recording.check_store()
    plan = transfer.Plan(
        table, loss, context or (), operating, weight, marginals, k, choose, splits, fit_share, max_loss, bins,
        categorical or (), confidence, replicates,
    )  # fmt: skip
    with output.progress(quiet) as shown, output.stoppable(limits):
        found = transfer.transfer(plan, limits, shown)
    answer = report.to_dict(found)
    if not quiet and "-" not in (str(json_file), str(html_file)):
        click.echo(terminal.view_to_text(report.of_transfer(found)), nl=False)
    if json_file is not None:
        output.write_json(json_file, answer)
    if html_file is not None:
        output.write_text(html_file, report.render(found))
    if recorded:
        made = Record(
            "transfer",
            records.now(),
            {"version": __version__},
            readings=found.readings,
            data=found.files(),
            body=answer,
        )
        recording.record(made, quiet)
    return 0


def _check(operating: Path | None, weight: str | None, marginals: Path | None, recorded: bool) -> None:
    if operating is not None and marginals is not None:
        raise click.UsageError("give the operating domain once: --operating or --marginals")
    if weight is not None and operating is None:
        raise click.UsageError("--weight names a column of --operating")
    if recorded and operating is None and marginals is None:
        raise click.UsageError("nothing is predicted, so there is nothing to record: give --operating or --marginals")

"""`quantify slices`: on which parts of a table does a model do worst?"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quantify.cli import output
from quantify.cli.options import FILE, UNIT, NamesType, limit_options, limits_from, output_options
from quantify.errors import InputError

if TYPE_CHECKING:
    from quantify.dataset.columns import Columns
    from quantify.dataset.slices import Predicted

METRICS = ("accuracy", "loss", "precision", "recall", "f1", "rate")


class RangeType(click.ParamType[tuple[float, float]]):
    """Two numbers, the smaller first."""

    name = "range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        try:
            low, high = (float(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r}: give two numbers, such as 0,1", param, ctx)
        if not -1e300 < low < high < 1e300:
            self.fail(f"{value!r}: the first is less than the second, such as 0,1", param, ctx)
        return low, high


@click.command("slices")
@click.argument("table", metavar="TABLE.csv", type=FILE)
@click.option("--label", metavar="Y", help="The column that says what is right; its classes are sets.")
@click.option("--pred", "pred", metavar="YHAT", help="The column of the predictions.")
@click.option("--model", type=FILE, metavar="MODEL", help="Ask this model instead of reading predictions.")
@click.option(
    "--features", type=NamesType(), metavar="A,B", help="Columns that --model takes, where it has no names of its own."
)
@click.option("--property", "property_file", type=FILE, metavar="P.yaml", help="Names and categories for --model.")
@click.option(
    "--attributes", type=NamesType(), metavar="A,B,…", help="Columns whose values make sets; all others if left out."
)
@click.option(
    "--metric", type=click.Choice(METRICS), default="accuracy", show_default=True, help="What sets are judged by."
)
@click.option("--column", metavar="C", help="The column of a loss or a rate.")
@click.option("--positive", metavar="CLASS", help="The class of precision, recall and f1.")
@click.option("--worst", type=click.Choice(("low", "high")), help="Which values are bad: high of a loss, else low.")
@click.option("--range", "value_range", type=RangeType(), metavar="LOW,HIGH", help="Between which values a loss lies.")
@click.option(
    "--depth", type=click.IntRange(1, 16), default=2, show_default=True, metavar="K", help="Intersect up to K sets."
)
@click.option(
    "--unions", type=click.IntRange(1), is_flag=False, flag_value=2, default=1, metavar="[N]",
    help="Unite up to N of the intersections too (2 if no number is given).",
)  # fmt: skip
@click.option(
    "--min-size", "least", type=click.IntRange(1), default=20, show_default=True, metavar="N",
    help="Leave out sets of fewer rows.",
)  # fmt: skip
@click.option("--present-only", is_flag=True, help="One set for a binary attribute, of the rows that have it.")
@click.option(
    "--most-values", type=click.IntRange(1), default=10, show_default=True, metavar="N",
    help="Attributes with more values are cut at quantiles.",
)  # fmt: skip
@click.option(
    "--quantiles", type=click.IntRange(2, 100), default=4, show_default=True, metavar="N",
    help="Parts that numbers are cut into.",
)  # fmt: skip
@click.option(
    "--incon-k", type=click.IntRange(0), default=20, show_default=True, metavar="K",
    help="Compare each set with those inside it that lack at most K of its rows.",
)  # fmt: skip
@click.option(
    "--incon-of", type=click.Choice(("all", "base")),
    help="Do so for all sets, or for those of the subbasis; all, unless there are more than 500,000.",
)  # fmt: skip
@click.option("--point", type=click.IntRange(0), metavar="ROW", help="A row, from 0, whose neighbourhoods to show.")
@click.option("--confidence", type=UNIT, default="0.95", show_default=True, metavar="C", help="Of the intervals.")
@limit_options
@output_options
@click.option("--html", "html_file", type=FILE, metavar="FILE", help="Write a page with the lattice of the sets.")
@click.option("--record", "recorded", is_flag=True, help="Keep the answer as evidence for `quantify gate`.")
@click.option("--trust-pickle", is_flag=True, help="Unpickle types outside the allow-list: runs code from the file.")
def command(
    table: Path,
    label: str | None,
    pred: str | None,
    model: Path | None,
    features: tuple[str, ...] | None,
    property_file: Path | None,
    attributes: tuple[str, ...] | None,
    metric: Any,
    column: str | None,
    positive: str | None,
    worst: Any,
    value_range: tuple[float, float] | None,
    depth: int,
    unions: int,
    least: int,
    present_only: bool,
    most_values: int,
    quantiles: int,
    incon_k: int,
    incon_of: Any,
    point: int | None,
    confidence: Fraction,
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
    """Values on every set of rows that the labels and attributes of TABLE.csv define.

    Sets are classes of the label and values of attributes, their intersections and, on request, unions. Each gets its
    value with an exact interval, by itself and corrected for the number of sets; and how far it changes on the sets
    that are nearly the same. Exit codes: 0 done, 2 bad input, 3 a limit was reached.
    """
    limits = limits_from(timeout, memory, seed, jobs)
    if str(json_file) == str(html_file) == "-":
        raise click.UsageError("only one of --json and --html can go to stdout")
    _check_options(metric, pred, model, column, positive, value_range, features, property_file)
    if pred is not None and pred == label:
        raise click.UsageError(f"--label and --pred are both {pred!r}: what was predicted is another column")
    output.check_writable(json_file, html_file)
    from quantify.dataset import bounds

    if metric != "loss":
        bounds.load_ahead()
    from quantify.dataset import columns, slices
    from quantify.report import slices as report
    from quantify.report import terminal

    if recorded:
        from quantify.cli import recording

        recording.check_store()
    plan = slices.Plan(
        label=label,
        metric=metric,
        column=column,
        positive=positive,
        worst=worst,
        value_range=value_range,
        attributes=attributes,
        present_only=present_only,
        most_values=most_values,
        parts=quantiles,
        depth=depth,
        least=least,
        unions=unions,
        k=incon_k,
        incon_of=incon_of,
        point=point,
        confidence=confidence,
    )
    with output.progress(quiet) as shown, output.stoppable(limits):
        shown.update("reading the table")
        read = columns.read(table)
        predicted = _predicted(read, label, pred, model, features, property_file, trust_pickle)
        found = slices.look(read, plan, predicted, limits, shown)
        if not quiet and "-" not in (str(json_file), str(html_file)):
            text = terminal.view_to_text(report.of_slices(found))
        else:
            text = ""
        shown.update("writing the answer")
        if json_file is not None:
            with output.opened(json_file) as file:
                file.writelines(report.pieces(found))
    click.echo(text, nl=False)
    if html_file is not None:
        output.write_text(html_file, report.render(found))
    if recorded:
        from quantify.dataset import slice_evidence

        recording.record(slice_evidence.to_record(found, report.brief(found)), quiet)
    return 0 if found.complete else 3


def _check_options(
    metric: str,
    pred: str | None,
    model: Path | None,
    column: str | None,
    positive: str | None,
    value_range: tuple[float, float] | None,
    features: tuple[str, ...] | None,
    property_file: Path | None,
) -> None:
    """Refuse options that would be passed over."""
    if pred is not None and model is not None:
        raise click.UsageError("--pred and --model: predictions come from one of them")
    of_column = metric in ("loss", "rate")
    if of_column and column is None:
        raise click.UsageError(f"--metric {metric} is of a column: --column C")
    for name, given, fits, of in (
        ("--column", column, of_column, "a loss or a rate"),
        ("--positive", positive, metric in ("precision", "recall", "f1"), "precision, recall and f1"),
        ("--range", value_range, metric == "loss", "a loss"),
        ("--features", features, model is not None, "--model"),
        ("--property", property_file, model is not None, "--model"),
    ):
        if given is not None and not fits:
            raise click.UsageError(f"{name} is of {of}")


def _predicted(
    read: Columns,
    label: str | None,
    pred: str | None,
    model: Path | None,
    features: tuple[str, ...] | None,
    property_file: Path | None,
    trust_pickle: bool,
) -> Predicted | None:
    if pred is not None:
        from quantify.dataset import slices

        return slices.of_column(read, pred)
    if model is None:
        return None
    if label is None:
        raise InputError(
            "a model is asked to compare it with what is right", "name the column of the labels: --label Y"
        )
    from quantify.dataset import predictions

    return predictions.of_model(read, model, label, features, property_file, trust_pickle=trust_pickle)

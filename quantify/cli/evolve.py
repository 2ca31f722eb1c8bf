"""`quantify evolve`: for how many instances does a small change make a selector of algorithms wrong?"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quantify.cli import output
from quantify.cli.options import FILE, limit_options, limits_from, output_options
from quantify.errors import InputError

if TYPE_CHECKING:
    from quantify.dataset.evolve import ModelSelector, Scores
    from quantify.ir.evolved import Evolved, Summary
    from quantify.ir.selector import Domain

SHARE = click.FloatRange(0, 1)


class Decimal(click.ParamType[Fraction]):
    """Any rational, written as a decimal or p/q."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        try:
            return Fraction(value)
        except (ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number", param, ctx)


@click.command("evolve")
@click.argument("model", type=FILE, required=False)
@click.option(
    "--instances",
    "source",
    required=True,
    metavar="I.npy",
    help="Integers, an instance a row; or ds2:100, ds4:100 to generate 100 of 120, 250 items.",
)
@click.option(
    "--callable", "function", metavar="MODULE:NAME", help="Instead of MODEL, a Python function; runs its code."
)
@click.option("--domain", "domain_name", metavar="MODULE:NAME", help="Another domain than bin packing; runs its code.")
@click.option(
    "--solvers",
    default="best_fit,first_fit",
    show_default=True,
    metavar="A,B",
    help="What the outputs of the selector stand for, in their order.",
)
@click.option("--capacity", type=click.IntRange(1), default=150, show_default=True, metavar="C", help="Of a bin.")
@click.option(
    "--sizes",
    default="20:100",
    show_default=True,
    metavar="LOW:HIGH",
    help="Range of the items; masks are clipped to it.",
)
@click.option(
    "--scale", type=Decimal(), default="1", show_default=True, metavar="F", help="The model sees size·F + offset."
)
@click.option("--offset", type=Decimal(), default="0", show_default=True, metavar="B", help="See --scale.")
@click.option("--runs", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="Of each instance.")
@click.option("--generations", type=click.IntRange(0), default=500, show_default=True, metavar="N", help="Of a run.")
@click.option(
    "--population", type=click.IntRange(2), default=50, show_default=True, metavar="N", help="Masks at a time."
)
@click.option(
    "--p-init", type=SHARE, default=0.3, show_default=True, metavar="P", help="An element of a first mask is drawn."
)
@click.option("--p-c", type=SHARE, default=0.9, show_default=True, metavar="P", help="Two parents are crossed.")
@click.option("--p-m", type=SHARE, default=1.0, show_default=True, metavar="P", help="A child is mutated.")
@click.option(
    "--magnitude",
    type=click.IntRange(1, 127),
    default=1,
    show_default=True,
    metavar="N",
    help="Masks have values from −N to N.",
)
@click.option(
    "--elite", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Best masks that live on."
)
@click.option(
    "--screen",
    type=click.IntRange(0),
    default=500,
    show_default=True,
    metavar="N",
    help="Random masks before evolution.",
)
@click.option(
    "--screen-p-init", type=SHARE, default=0.3, show_default=True, metavar="P", help="As --p-init, for random masks."
)
@click.option("--stop-at-first", is_flag=True, help="End a run with its first adversarial mask.")
@click.option("--checkpoint", type=FILE, metavar="FILE", help="Keep finished runs in FILE, and go on from there.")
@click.option("--found", "found_file", type=FILE, metavar="FILE.npz", help="Write the adversarial instances.")
@click.option("--cross-check", "crossed", is_flag=True, help="Ask the model's library (Keras) about what was found.")
@limit_options
@output_options
@click.option("--html", "html_file", type=FILE, metavar="FILE", help="Write a page with fitness curves and masks.")
@click.option("--record", "recorded", is_flag=True, help="Keep the answer as evidence for `quantify gate`.")
def command(
    model: Path | None,
    source: str,
    function: str | None,
    domain_name: str | None,
    solvers: str,
    capacity: int,
    sizes: str,
    scale: Fraction,
    offset: Fraction,
    checkpoint: Path | None,
    found_file: Path | None,
    crossed: bool,
    timeout: float | None,
    memory: int | None,
    seed: int,
    jobs: int,
    json_file: Path | None,
    quiet: bool,
    html_file: Path | None,
    recorded: bool,
    **search: Any,
) -> int:
    """Evolve small changes of instances that make a selector of algorithms wrong.

    MODEL is a recurrent network (GRU or LSTM) in a Keras file, which says of a sequence of item sizes whether best fit
    or first fit packs it better. Exit codes: 0 done, 2 bad input, 3 a limit left instances without an answer.
    """
    limits = limits_from(timeout, memory, seed, jobs)
    if [str(json_file), str(html_file)].count("-") > 1:
        raise click.UsageError("only one of --json and --html can go to stdout")
    if search["elite"] >= search["population"]:
        raise click.UsageError(f"--elite {search['elite']} leaves no room for a child: take less than --population")
    output.check_writable(json_file, html_file, found_file, checkpoint)
    from quantify.cli import recording
    from quantify.dataset import evolve, evolve_summary, instances
    from quantify.report import evolve as report
    from quantify.report import terminal

    if recorded:
        recording.check_store()
    settings = _settings(search)
    domain = _domain(domain_name, solvers, capacity, sizes)
    with output.progress(quiet) as shown, output.stoppable(limits):
        selector = _selector(model, function, scale, offset)
        library = _library(selector) if crossed else None
        table = instances.load(source, domain, seed)
        evolved = evolve.search(table, domain, selector, settings, limits, shown, checkpoint)
        if library is not None:
            shown.update("asking the library")
            evolved = evolve.cross_check(evolved, table, selector, library)
    summary = evolve_summary.summarise(evolved)
    if not quiet and "-" not in (str(json_file), str(html_file)):
        click.echo(terminal.view_to_text(report.of_evolved(evolved, summary)), nl=False)
    if json_file is not None:
        output.write_json(json_file, report.to_dict(evolved, summary))
    if html_file is not None:
        output.write_text(html_file, report.render(evolved, summary))
    if found_file is not None:
        output.write_bytes(found_file, instances.adversarial(evolved, table.instances))
    if recorded:
        recording.record(_to_record(evolved, summary), quiet)
    return 3 if evolved.unfinished else 0


def _settings(search: dict[str, Any]) -> Any:
    from quantify.ir.evolved import Settings

    return Settings(p_crossover=search.pop("p_c"), p_mutation=search.pop("p_m"), **search)


def _domain(name: str | None, solvers: str, capacity: int, sizes: str) -> Domain:
    from quantify.dataset import black_box
    from quantify.dataset.packing import Packing

    if name is not None:
        return black_box.ImportedDomain(name)
    first, comma, second = (part.strip() for part in solvers.partition(","))
    low, colon, high = (part.strip() for part in sizes.partition(":"))
    if not comma:
        raise InputError(f"--solvers {solvers}", "write two names, as in --solvers best_fit,first_fit")
    if not colon or not low.isdecimal() or not high.isdecimal():
        raise InputError(f"--sizes {sizes}", "write the smallest and the largest, as in --sizes 20:100")
    return Packing((first, second), capacity, int(low), int(high))


def _selector(model: Path | None, function: str | None, scale: Fraction, offset: Fraction) -> ModelSelector:
    from quantify.dataset import black_box, recurrent

    if (model is None) == (function is None):
        raise click.UsageError("give either MODEL or --callable MODULE:NAME")
    if function is not None:
        return black_box.CallableSelector(function)
    assert model is not None
    return recurrent.load(model, scale=scale, offset=offset)


def _library(selector: ModelSelector) -> Scores:
    from quantify.dataset.recurrent import RecurrentSelector

    if not isinstance(selector, RecurrentSelector):
        raise InputError("--cross-check with --callable: there is no library to ask", "leave out --cross-check")
    return selector.library()


def _to_record(evolved: Evolved, summary: Summary) -> Any:
    from quantify import __version__
    from quantify.evidence import records
    from quantify.ir.record import Record
    from quantify.report import evolve as report

    return Record(
        "evolve",
        records.now(),
        {"version": __version__},
        readings=(evolved.reading,),
        model=evolved.selector,
        data=() if evolved.instances is None else (evolved.instances,),
        body=report.to_dict(evolved, summary),
    )

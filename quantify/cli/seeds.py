"""`quantify seeds`: is a way of training good enough, whichever seed it is given?"""

from __future__ import annotations

from pathlib import Path

import click

from quantify.cli import output
from quantify.cli.options import FILE, output_options


@click.command("seeds")
@click.argument("file", metavar="SEEDS.yaml", type=FILE)
@click.option(
    "--policy",
    "policy_file",
    type=FILE,
    required=True,
    metavar="POLICY.yaml",
    help="A policy of the gate: its confidence and its allow_approximate_methods are read, its rules are not.",
)
@output_options
@click.option("--html", "html_file", type=FILE, metavar="FILE", help="Write a page with each case under each seed.")
@click.option("--record", "recorded", is_flag=True, help="Keep the answer as evidence for `quantify gate`.")
def command(
    file: Path, policy_file: Path, json_file: Path | None, quiet: bool, html_file: Path | None, recorded: bool
) -> int:
    """Expected success of a training recipe, from the recorded runs of several checkpoints on one suite.

    The interval counts both the cases and the seeds tried. Exit codes: 0 PASS, 1 FAIL, 2 bad input, 3
    INSUFFICIENT_EVIDENCE or MANUAL_REVIEW.
    """
    if str(json_file) == str(html_file) == "-":
        raise click.UsageError("only one of --json and --html can go to stdout")
    output.check_writable(json_file, html_file)
    from quantify import __version__
    from quantify.cli import recording
    from quantify.dataset import seeds
    from quantify.evidence import records
    from quantify.evidence.store import Store
    from quantify.gate import policy as policies
    from quantify.ir.record import Record
    from quantify.report import seeds as report
    from quantify.report import terminal

    plan, policy = seeds.load(file), policies.load(policy_file)
    judge = seeds.Judge(policy_file, policy.sha256, policy.confidence, policy.allow_approximate)
    with Store() as store:
        recipe = seeds.judge(plan, store, judge)
    answer = report.to_dict(recipe)
    if not quiet and "-" not in (str(json_file), str(html_file)):
        click.echo(terminal.view_to_text(report.of_recipe(recipe)), nl=False)
    if json_file is not None:
        output.write_json(json_file, answer)
    if html_file is not None:
        output.write_text(html_file, report.render(recipe))
    if recorded:
        made = Record(
            "seeds",
            records.now(),
            {"version": __version__},
            readings=(recipe.reading,),
            data=recipe.files(),
            body=answer,
        )
        recording.record(made, quiet)
    return recipe.outcome.exit_code

"""`quantify leakage`: which cases of a suite are among the training rows?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from quantify.cli import output
from quantify.cli.options import FILE, limit_options, limits_from, output_options

if TYPE_CHECKING:
    from quantify.dataset.leakage import Leakage

SHOWN = 10
"""Cases that the terminal lists."""


@click.command("leakage")
@click.option("--cases", type=FILE, required=True, metavar="SUITE", help="The suite: a .csv or .jsonl file.")
@click.option("--training", type=FILE, required=True, metavar="FILE", help="The training rows: .csv or .jsonl.")
@click.option(
    "--field",
    "fields",
    multiple=True,
    metavar="NAME",
    help="Compare this feature (or label) only; may be repeated. All features unless given.",
)
@click.option(
    "--round",
    "digits",
    type=click.IntRange(0, 15),
    metavar="N",
    help="Round numbers to N decimals before they are compared.",
)
@click.option(
    "--near",
    type=click.FloatRange(0.3, 1),
    metavar="SHARE",
    help="Also report rows that share this much with a case, by MinHash.",
)
@limit_options
@output_options
@click.option("--record", "recorded", is_flag=True, help="Keep the check as evidence for `leakage: required`.")
def command(
    cases: Path,
    training: Path,
    fields: tuple[str, ...],
    digits: int | None,
    near: float | None,
    timeout: float | None,
    memory: int | None,
    seed: int,
    jobs: int,
    json_file: Path | None,
    quiet: bool,
    recorded: bool,
) -> int:
    """Look for the cases of a suite among the training rows.

    Text is compared in lower case with its white space folded, numbers by their exact value. The training file is read
    in pieces and never stored: an answer holds ids of cases and counts.
    Exit codes: 0 clean, 4 a case was found, so no rate on this suite may be believed.
    """
    limits = limits_from(timeout, memory, seed, jobs)
    output.check_writable(json_file)
    from quantify.cli import recording
    from quantify.dataset import leakage
    from quantify.dataset import suite as suites

    if recorded:
        recording.check_store()
    suite = suites.load(cases)
    with output.progress(quiet) as shown, output.stoppable(limits):
        found = leakage.check(suite, training, fields, digits, near, limits, shown)
    if not quiet and str(json_file) != "-":
        click.echo(_text(found))
    if json_file is not None:
        output.write_json(json_file, leakage.to_dict(found))
    if recorded:
        recording.record(leakage.to_record(found), quiet)
    return 0 if found.clean else 4


def _text(found: Leakage) -> str:
    cases, total = found.suite.cases, len(found.suite.cases)
    lines = []
    if found.clean:
        lines.append(f"clean: none of {_many(total, 'case')} is among {_many(found.rows, 'training row')}")
    else:
        lines.append(
            f"leaked: {len(found.found):,} of {_many(total, 'case')} {'is' if len(found.found) == 1 else 'are'} among "
            f"{_many(found.rows, 'training row')}; "
            f"no rate on {found.suite.path} may be believed"
        )
        lines += [f"  {cases[at].id}: {_many(rows, 'row')}" for at, rows in list(found.found.items())[:SHOWN]]
        if len(found.found) > SHOWN:
            lines.append(f"  and {len(found.found) - SHOWN:,} more: --json FILE lists them all")
    lines.append(f"  compared: {', '.join(found.fields)}")
    if found.near is not None:
        lines.append(
            f"near duplicates (share of {found.threshold:g} or more; one just above it may be missed): "
            f"{_many(len(found.near), 'case')}"
        )
        lines += [
            f"  {cases[at].id}: {_many(one.rows, 'row')}, the closest shares {float(one.similarity):.3f}"
            for at, one in list(found.near.items())[:SHOWN]
        ]
    return "\n".join(lines)


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"

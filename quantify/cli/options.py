"""The options that several commands share, and the readers of their values."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import click

from quantify.resources import Limits, Stop

Function = TypeVar("Function", bound=Callable[..., Any])
FILE = click.Path(path_type=Path)


class FractionType(click.ParamType[Fraction]):
    """A rational strictly between `above` and `below`, written as a decimal or p/q."""

    name = "number"

    def __init__(self, above: int, below: int | None) -> None:
        self.above, self.below = above, below

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        try:
            number = Fraction(value)
        except (ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number", param, ctx)
        if number <= self.above or (self.below is not None and number >= self.below):
            upper = "" if self.below is None else f" and below {self.below}"
            self.fail(f"{value} is out of range: give a number above {self.above}{upper}", param, ctx)
        return number


class NamesType(click.ParamType[tuple[str, ...]]):
    """Names separated by commas; one with a comma in it is put in quotes, as in a CSV file."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        try:
            (cells,) = csv.reader(io.StringIO(value, newline=""), skipinitialspace=True, strict=True)
        except (csv.Error, ValueError):
            self.fail(f"{value!r}: write names as in the first line of a CSV file", param, ctx)
        names = tuple(name.strip() for name in cells)
        if not all(names):
            self.fail(f"{value!r} has an empty name", param, ctx)
        return names


UNIT = FractionType(0, 1)
POSITIVE = FractionType(0, None)


def limit_options(function: Function) -> Function:
    """--timeout, --memory, --seed, --jobs."""
    for option in (
        click.option(
            "--jobs",
            type=click.IntRange(1),
            default=os.cpu_count() or 1,
            show_default="all cores",
            metavar="N",
            help="Workers; the answer does not depend on it.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(0, 2**63 - 1),
            default=0,
            show_default=True,
            metavar="N",
            help="Seed of everything random.",
        ),
        click.option(
            "--memory",
            type=click.IntRange(64),
            metavar="MB",
            help="Memory limit of engines and child processes, in MiB.",
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="S",
            help="Stop after S seconds with the bounds proven so far.",
        ),
    ):
        function = option(function)
    return function


def output_options(function: Function) -> Function:
    """--json, --quiet."""
    for option in (
        click.option("--quiet", is_flag=True, help="No progress and no report on the terminal; errors still show."),
        click.option("--json", "json_file", metavar="FILE", type=FILE, help="Write the answer as JSON (- for stdout)."),
    ):
        function = option(function)
    return function


def counter_options(function: Function) -> Function:
    """--epsilon, --delta: what an approximate counter promises."""
    for option in (
        click.option(
            "--delta",
            type=UNIT,
            default="0.2",
            show_default=True,
            metavar="D",
            help="Error probability of an approximate counter.",
        ),
        click.option(
            "--epsilon",
            type=POSITIVE,
            default="0.8",
            show_default=True,
            metavar="E",
            help="Relative tolerance of an approximate counter.",
        ),
    ):
        function = option(function)
    return function


def limits_from(timeout: float | None, memory: int | None, seed: int, jobs: int) -> Limits:
    """The limits of this run, the clock starting now; Ctrl-C within `stoppable` ends them early."""
    return Limits.starting_now(timeout, memory, jobs, seed, Stop())

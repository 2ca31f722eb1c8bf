"""The `quantify` command: finds the subcommand, runs it, and turns every error into one message and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, TextIO, cast

import click

from quantify import __version__
from quantify.errors import QuantifyError

# name → one line of help; the module of the same name in this package holds the command as `command`.
COMMANDS = {
    "count": "Count the inputs that satisfy a property of a model.",
    "compare": "Compare several models on one property.",
    "verify": "Check a certificate of a count, leaf by leaf.",
    "emit": "Write the C program or the CNF formula of a property.",
    "cnf": "Count the models of a DIMACS file, projected.",
    "batch": "Count many models and properties, recording each row.",
    "run": "Ask a model about a suite of cases.",
    "leakage": "Look for the cases of a suite among training rows.",
    "seeds": "Judge a training recipe by several of its checkpoints.",
    "slices": "Say on which parts of a table a model does worst.",
    "transfer": "Predict the loss in another operating domain.",
    "noise": "Count the answers that declared changes of the cases flip.",
    "evolve": "Evolve small changes that make a selector of algorithms wrong.",
    "gate": "Decide by a policy, from the evidence on record.",
    "evidence": "List, show, export and verify what was recorded.",
    "doctor": "Show every tool, where it is, and whether it counts correctly.",
    "init": "Copy a worked example into a new folder.",
    "completion": "Print the shell completion script.",
}


class LazyGroup(click.Group):
    """A group that imports a subcommand only when it is asked for, so that start-up stays short."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"quantify.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean `quantify {close[0]}`?" if close else "see `quantify --help`"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="quantify")
def cli() -> None:
    """How many inputs of a finite domain does a trained model get wrong?

    Exactly, between proven bounds, or with a stated error probability.
    Exit codes: 0 fine, 1 a rule of the gate fails, 2 bad input, 3 undecided, 4 two ways disagree.
    """


class Outlet:
    """A stream that swallows what is written after one of `swallowed`: the exit code keeps its meaning."""

    def __init__(self, stream: TextIO, swallowed: type[OSError]) -> None:
        self._stream, self._swallowed = stream, swallowed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except self._swallowed:
            self.discard()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except self._swallowed:
            self.discard()

    def discard(self) -> None:
        """From here on, everything that is or was to be written goes nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code; never lets a known error become a traceback."""
    _open_what_is_closed()
    before = sys.stdout, sys.stderr
    # The reader of the answer may leave (`| head`); that it cannot be written is an error. What is said beside it is
    # said where it can be.
    answers, said = Outlet(sys.stdout, BrokenPipeError), Outlet(sys.stderr, OSError)
    sys.stdout, sys.stderr = cast(TextIO, answers), cast(TextIO, said)
    try:
        code = _run(arguments)
        try:
            answers.flush()
        except OSError as error:
            answers.discard()
            code = _not_possible(error)
        said.flush()
        return code
    finally:
        sys.stdout, sys.stderr = before


def _open_what_is_closed() -> None:
    """Give streams that the shell closed (`>&-`) a place: else the next file that is opened takes their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (as long as the process)


def _run(arguments: list[str] | None) -> int:
    try:
        result: Any = cli.main(arguments, prog_name="quantify", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except QuantifyError as error:
        report(error.message, error.hint)
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.Abort:
        report("stopped by the user before anything was counted")
        return 3
    except click.ClickException as error:
        error.show()
        if isinstance(error, click.MissingParameter) and error.param is not None:
            click.echo(f"  hint: {_missing(error.param)}", err=True)
        return 2
    except KeyboardInterrupt:
        report("stopped by the user before anything was counted")
        return 3
    except OSError as error:
        return _not_possible(error)
    except MemoryError:
        report("out of memory", "give --memory and --timeout, or a smaller domain")
        return 3
    except Exception as error:
        if os.environ.get("QUANTIFY_TRACEBACK"):
            raise
        report(
            f"internal error: {type(error).__name__}: {error}",
            "this is a defect of quantify, no number was given: run again with QUANTIFY_TRACEBACK=1 and report it",
        )
        return 3


def _not_possible(error: OSError) -> int:
    reason = str(error.strerror or error)
    report(
        f"{reason}: {error.filename}" if error.filename else reason,
        "check that the path exists and that there is space and permission to use it",
    )
    return 2


def _missing(parameter: click.Parameter) -> str:
    """What to type where a parameter is missing."""
    if not isinstance(parameter, click.Option):
        return f"give {parameter.metavar or str(parameter.name).upper()}; --help lists the arguments"
    name = parameter.opts[-1]
    example = "; quantify init writes an example" if name == "--property" else ""
    said = f": {parameter.help.rstrip('.')}" if parameter.help else ""
    return f"add {name} {parameter.metavar or 'VALUE'}{said}{example}"


def report(message: str, hint: str = "") -> None:
    """One error on stderr, with what to do next."""
    for line in (f"quantify: error: {message}", *([f"  hint: {hint}"] if hint else [])):
        # Messages quote files, and a terminal obeys what it is sent.
        click.echo(
            "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in line), err=True
        )


def main() -> None:
    """Entry point of the installed script."""
    sys.exit(run())

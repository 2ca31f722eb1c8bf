"""`quantify completion`: the script that teaches a shell to complete quantify's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the completion script for SHELL.

    For bash: eval "$(quantify completion bash)"
    """
    from quantify.cli.main import cli

    completer = get_completion_class(shell)
    assert completer is not None  # the choices above are the shells click knows
    click.echo(completer(cli, {}, "quantify", "_QUANTIFY_COMPLETE").source())
    return 0

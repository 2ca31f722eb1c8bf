"""`quantify init`: copy a worked example into a new folder and train its model there."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from quantify.cli.options import FILE
from quantify.errors import InputError, UndecidedError
from quantify.resources import templates_dir

TRAINING_SECONDS = 300.0


def examples() -> list[str]:
    """Names of the examples shipped with the package."""
    return sorted(folder.name for folder in templates_dir("examples").iterdir() if folder.is_dir())


@click.command("init")
@click.option("--example", "name", metavar="NAME", help="cancer, digits, model-validation or relations.")
@click.option("--ci", metavar="SYSTEM", help="Print a pipeline with the gate instead: github or gitlab.")
@click.argument("folder", type=FILE, required=False)
def command(name: str | None, ci: str | None, folder: Path | None) -> int:
    """Copy an example into FOLDER (its name unless given) and train its model.

    Afterwards the folder holds train.py, the model, the files that the commands read and the data they need.
    """
    if ci is not None:
        if name is not None or folder is not None:
            raise click.UsageError("--ci prints a pipeline and copies no example")
        return _print_pipeline(ci)
    known = examples()
    if name is None or name not in known:
        wrong = "which example?" if name is None else f"there is no example called {name!r}"
        raise InputError(wrong, f"quantify init --example {known[0]}   (one of: {', '.join(known)})")
    target = folder if folder is not None else Path(name)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} exists and is not an empty folder", "give another folder as the last argument")
    from quantify.tools.process import run

    _copy(templates_dir("examples") / name, target)
    done = run([sys.executable, "-P", "train.py"], cwd=target, timeout=TRAINING_SECONDS)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UndecidedError(
            f"training the example failed: {said[-1] if said else 'no message'}", f"cd {target} && python train.py"
        )
    click.echo(done.stdout.decode(errors="replace").strip())
    if (target / "README.md").is_file():
        click.echo(f"next: cd {target}, and type what README.md says there")
    else:
        click.echo(f"next: cd {target} && quantify count model.pkl --property property.yaml --cross-check")
    return 0


def _copy(example: Path, target: Path) -> None:
    """Copy the files, all or none.

    Raises:
        InputError: They cannot be written, for example because the disk is full.
    """
    ignored = shutil.ignore_patterns("__pycache__")  # installers compile whatever ends in .py
    there = target.exists()
    try:
        shutil.copytree(example, target, dirs_exist_ok=True, ignore=ignored)
    except OSError as error:
        # copytree goes on after an error and raises a list of (source, target, reason) at the end.
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
        for path in target.iterdir() if there else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not there:
            shutil.rmtree(target, ignore_errors=True)
        raise InputError(f"cannot write {target}: {reason}", "free some space or give another folder") from None


def pipelines() -> list[str]:
    """Names of the CI systems that there is a template for."""
    return sorted(path.stem for path in templates_dir("ci").glob("*.yml"))


def _print_pipeline(system: str) -> int:
    known = pipelines()
    if system not in known:
        raise InputError(f"there is no template for {system!r}", f"choose one of: {', '.join(known)}")
    click.echo((templates_dir("ci") / f"{system}.yml").read_text(encoding="utf-8"), nl=False)
    return 0

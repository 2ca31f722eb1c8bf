"""`quantify evidence`: what is on record, one record in full, all of it as JSON lines, and whether it is intact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from quantify.cli import output
from quantify.cli.options import FILE, output_options

SCHEMA = "quantify/1"


@click.group("evidence")
def command() -> None:
    """What is on record: in QUANTIFY_STORE, else in .quantify/evidence.db.

    Records are named by the SHA-256 digest of their content; `latest`, `latest~1`, … name the last ones.
    """


@command.command("list")
@click.option("--kind", metavar="KIND", help="Only records of this kind: count, run, leakage, noise, seeds, …")
@output_options
def list_records(kind: str | None, json_file: Path | None, quiet: bool) -> int:
    """List the records, oldest first."""
    from quantify.errors import InputError
    from quantify.evidence.store import Store
    from quantify.ir.record import KINDS

    if kind is not None and kind not in KINDS:
        raise InputError(f"there is no kind of record {kind!r}", f"choose one of: {', '.join(KINDS)}")
    output.check_writable(json_file)
    with Store() as store:
        stored, damages = store.all(kind)
        path = store.path
    if not quiet and str(json_file) != "-":
        from quantify.report import evidence, terminal

        shown = evidence.of_list([(one.digest, one.record) for one in stored], path)
        click.echo(terminal.view_to_text(shown), nl=False)
    if json_file is not None:
        listed = [{name: value for name, value in _plain(one).items() if name != "body"} for one in stored]
        output.write_json(json_file, {"schema": SCHEMA, "store": str(path), "records": listed})
    return _tell(damages)


@command.command("show")
@click.argument("digest")
@output_options
def show(digest: str, json_file: Path | None, quiet: bool) -> int:
    """Show one record: DIGEST is the beginning of its digest, or latest, latest~1, …"""
    from quantify.evidence.store import Store

    output.check_writable(json_file)
    with Store() as store:
        found = store.find(digest)
    if not quiet and str(json_file) != "-":
        from quantify.report import evidence, terminal

        click.echo(terminal.view_to_text(evidence.of_record(found.digest, found.record)), nl=False)
    if json_file is not None:
        output.write_json(json_file, {"schema": SCHEMA, "record": _plain(found)})
    return 0


@command.command("export")
@click.option("--output", "file", metavar="FILE", type=FILE, default="-", help="Where to; stdout unless given.")
def export(file: Path) -> int:
    """Write every record as one line of JSON, oldest first."""
    from quantify.evidence.store import Store

    output.check_writable(file)
    with Store() as store:
        stored, damages = store.all()
    lines = (json.dumps(_plain(one), sort_keys=True, allow_nan=False) for one in stored)
    output.write_text(file, "".join(line + "\n" for line in lines))
    return _tell(damages)


@command.command("verify")
@output_options
def verify(json_file: Path | None, quiet: bool) -> int:
    """Recompute every digest. Exit code 4: something is not as it was stored."""
    from quantify.errors import InputError
    from quantify.evidence.store import Store

    output.check_writable(json_file)
    with Store() as store:
        if not store.path.exists():
            raise InputError(f"there is no evidence store at {store.path}", "record something: quantify count --record")
        many, damages = store.verify()
        path = store.path
    if not quiet and str(json_file) != "-":
        found = "all intact" if not damages else f"{len(damages)} damaged"
        click.echo(f"{path}: {many} record{'' if many == 1 else 's'}, {found}")
    if json_file is not None:
        listed = [{"digest": damage.digest, "detail": damage.detail} for damage in damages]
        answer = {"schema": SCHEMA, "store": str(path), "records": many, "intact": not damages, "damages": listed}
        output.write_json(json_file, answer)
    return _tell(damages)


def _plain(stored: Any) -> dict[str, Any]:
    from quantify.evidence import records

    return {"digest": stored.digest, **records.to_dict(stored.record)}


def _tell(damages: Any) -> int:
    """Name what is damaged on stderr; the exit code."""
    for damage in damages:
        name = f"the record {damage.digest[:12]}: " if damage.digest else ""
        click.echo(f"quantify: error: {name}{damage.detail}", err=True)
    return 4 if damages else 0

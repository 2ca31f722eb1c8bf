"""What `--record` does around a command: refuse early what could not be stored, store at the end, say the digest."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from quantify.errors import InputError
from quantify.evidence import records
from quantify.evidence.store import Store
from quantify.ir.record import DataRef, Record


def check_store() -> None:
    """Make the store if it is not there, before hours are spent on what would go there.

    Raises:
        InputError: It cannot be written to.
    """
    Store(create=True).close()


def data_refs(files: Iterable[tuple[str, Path]]) -> tuple[DataRef, ...]:
    """(role, path) of data files to what a record says of them.

    Raises:
        InputError: One cannot be read.
    """
    found = []
    for role, path in files:
        try:
            found.append(DataRef(role, str(path), records.file_sha256(str(path))))
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read: {error.strerror}", "check the path in the property file"
            ) from None
    return tuple(found)


def record(made: Record, quiet: bool) -> str:
    """Store a record; its digest, which is told on stderr unless `quiet`."""
    with Store(create=True) as store:
        digest = store.add(made)
        path = store.path
    if not quiet:
        click.echo(f"quantify: recorded as {digest[:12]} in {path}", err=True)
    return digest

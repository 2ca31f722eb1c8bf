"""What `count --certificate` does around a count: take each case's split tree, and leave a whole file or none."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quantify.errors import InputError

if TYPE_CHECKING:
    from quantify import pipeline
    from quantify.evidence.certificates.file import Head


@contextlib.contextmanager
def certificate(path: Path | None, quiet: bool) -> Iterator[pipeline.Keep | None]:
    """What `pipeline.count` shall do with split trees: write them to `path`, which is there after the block.

    Raises:
        InputError: The file cannot be written, or the property file changed during the run.
    """
    if path is None:
        yield None
        return
    from quantify.evidence.certificates.file import CaseHead, Writer
    from quantify.ir.problem import Box

    with contextlib.ExitStack() as stack:
        writers: list[Writer] = []

        def keep(prepared: pipeline.Prepared, split: pipeline.Split) -> None:
            if not writers:
                writers.append(stack.enter_context(Writer(path, _head(prepared))))
            grid = prepared.grid
            number = next(k for k, case in enumerate(grid.cases) if case is split.grid_case)
            region = split.grid_case.region
            assert isinstance(region, Box)
            # A region of one point has no tree: it is a single leaf, to be evaluated.
            tree = split.record.stream if split.record is not None else b"\x41" * region.size
            writers[0].add(CaseHead(number, grid.digest(split.grid_case), split.proven, len(tree)), tree)

        yield keep
    if not quiet:
        click.echo(
            f"quantify: certificate in {path} ({writers[0].size:,} bytes)"
            if writers
            else "quantify: no certificate: no case was counted",
            err=True,
        )


def _head(prepared: pipeline.Prepared) -> Head:
    from quantify.evidence.certificates.file import Head

    problem = prepared.problem
    path = Path(problem.property_path)
    text = path.read_bytes()
    if hashlib.sha256(text).hexdigest() != problem.property_sha256:
        raise InputError(f"{path} changed while it was counted", "count again")
    try:
        words = text.decode()
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8, and a certificate holds its text", "save it as UTF-8") from None
    return Head(
        model_sha256=problem.model.sha256,
        model=Path(problem.model.path).name,
        property_sha256=problem.property_sha256,
        property=path.name,
        property_text=words,
    )

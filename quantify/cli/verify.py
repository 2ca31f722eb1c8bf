"""`quantify verify`: a model and a certificate of `count --certificate`; is every number in it proven?"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quantify.cli import output
from quantify.cli.options import FILE, limit_options, limits_from, output_options
from quantify.errors import ContradictionError, InputError

if TYPE_CHECKING:
    from quantify import pipeline
    from quantify.evidence.certificates.file import Reader
    from quantify.ir.certificate import Verification
    from quantify.resources import Limits, Progress


@click.command("verify")
@click.argument("model", type=FILE)
@click.option(
    "--certificate", type=FILE, required=True, metavar="FILE", help="What count --certificate wrote for this model."
)
@click.option(
    "--property",
    "property_file",
    type=FILE,
    metavar="P.yaml",
    help="The property, where it names data files; the certificate holds its text.",
)
@limit_options
@output_options
@click.option(
    "--trust-pickle",
    is_flag=True,
    help="Unpickle types outside the allow-list: runs code from the file. Only for files you made.",
)
def command(
    model: Path,
    certificate: Path,
    property_file: Path | None,
    timeout: float | None,
    memory: int | None,
    seed: int,
    jobs: int,
    json_file: Path | None,
    quiet: bool,
    trust_pickle: bool,
) -> int:
    """Check every leaf of a certificate for MODEL, and add its counts up again.

    Exit codes: 0 all of it is proven, 2 another model or property, or a damaged file, 3 --timeout was too short,
    4 something in it is not true.
    """
    limits = limits_from(timeout, memory, seed, jobs)
    output.check_writable(json_file)
    from quantify import pipeline
    from quantify.evidence.certificates.check import go_on
    from quantify.evidence.certificates.file import Reader

    def _go_on(shown: Progress) -> None:
        go_on(limits)
        shown.update("reading the certificate")

    options = pipeline.Options(trust_pickle=trust_pickle, limits=limits)
    with (
        output.progress(quiet) as shown,
        output.stoppable(limits, "stopping: nothing is verified"),
        Reader(certificate, lambda: _go_on(shown)) as reader,
    ):
        _same_model(reader, model)
        with _property(reader, property_file) as source:
            prepared = pipeline.prepare(model, source, options, shown)
        found = _checked(reader, prepared, limits, shown)
    from quantify.report import certificate as report

    if not quiet and str(json_file) != "-":
        from quantify.report import terminal

        click.echo(terminal.view_to_text(report.of_verification(found)), nl=False)
    if json_file is not None:
        output.write_json(json_file, report.to_dict(found))
    if not found.verified():
        last = found.cases[-1]
        raise ContradictionError(
            f"{certificate}: the certificate is refuted: case {last.number}: {last.refuted}",
            "believe none of its counts; count again with quantify count",
        )
    return 0


def _checked(reader: Reader, prepared: pipeline.Prepared, limits: Limits, progress: Progress) -> Verification:
    from quantify.evidence.certificates.verify import verify
    from quantify.ir.certificate import Verification

    started = time.monotonic()
    problem = prepared.problem
    cases = verify(reader, prepared.grid, limits, progress)
    return Verification(
        path=str(reader.path),
        size=reader.size,
        model={"path": problem.model.path, "sha256": problem.model.sha256},
        property={"path": reader.head.property, "sha256": reader.head.property_sha256},
        cases=cases,
        of=len(prepared.grid.cases),
        checks=prepared.checks,
        seconds=time.monotonic() - started,
    )


def _same_model(reader: Reader, model: Path) -> None:
    from quantify.evidence.records import file_sha256

    digest = file_sha256(str(model))
    if digest != reader.head.model_sha256:
        raise InputError(
            f"{reader.path}: the certificate is about another model: {reader.head.model} with the SHA-256 digest "
            f"{reader.head.model_sha256}",
            f"the digest of {model} is {digest}",
        )


@contextlib.contextmanager
def _property(reader: Reader, given: Path | None) -> Iterator[Path]:
    """The property file: the one given, else the text in the certificate."""
    text = reader.head.property_text.encode()
    digest = hashlib.sha256(text if given is None else given.read_bytes()).hexdigest()
    if digest != reader.head.property_sha256:
        if given is None:
            raise reader.bad("damaged: the property's digest is not that of its text")
        raise InputError(
            f"{given}: the certificate is about another property, {reader.head.property}",
            "leave out --property to see what it proves, or give the file that was counted",
        )
    if given is not None:
        yield given
        return
    from quantify import properties

    with tempfile.TemporaryDirectory(prefix="quantify-") as folder:
        path = Path(folder) / reader.head.property
        path.write_bytes(text)
        if files := [file.name for _, file in properties.data_files(properties.load(path))]:
            raise InputError(
                f"{reader.path}: its property reads {', '.join(files)}", "give the property file: --property P.yaml"
            )
        yield path

"""`quantify batch`: many models × properties × ε, each row recorded as it is finished, none counted twice."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quantify.cli import output
from quantify.cli.options import FILE, limits_from, output_options
from quantify.errors import InputError, QuantifyError, UndecidedError

if TYPE_CHECKING:
    from quantify import pipeline
    from quantify.evidence.store import Store
    from quantify.ir.record import DataRef
    from quantify.properties import Plan, Row
    from quantify.resources import Limits, Progress

SCHEMA = "quantify/1"


@dataclass(frozen=True, slots=True)
class _Job:
    """A row with the name that its record carries."""

    row: Row
    key: str
    """Digest of everything that the answer depends on: files by content, ε, options, version."""
    model_sha256: str
    data: tuple[DataRef, ...]


@dataclass(frozen=True, slots=True)
class _Done:
    """How a row came out."""

    job: _Job
    status: str
    """`counted`, `on record`, `undecided`, `failed`, `contradiction`, `not reached`."""
    digest: str = ""
    said: str = ""


@click.command("batch")
@click.argument("plan", type=FILE)
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Workers of each count; all cores unless given.")
@click.option("--memory", type=click.IntRange(64), metavar="MB", help="Memory limit of each count, in MiB.")
@click.option("--trust-pickle", is_flag=True, help="As of `quantify count`, for every model of the plan.")
@output_options
def command(
    plan: Path, jobs: int | None, memory: int | None, trust_pickle: bool, json_file: Path | None, quiet: bool
) -> int:
    """Count every row of PLAN and record it; what is on record already is not counted again.

    Stopped by Ctrl-C, by a crash or by kill -9, the same command goes on where it was.
    Exit codes: 0 all rows are on record, 2 a row could not be counted, 3 a row is undecided, 4 ways disagree.
    """
    output.check_writable(json_file)
    from quantify import properties
    from quantify.cli import recording

    read = properties.load_plan(plan)
    recording.check_store()
    limits = limits_from(None, memory, 0, jobs or _cores())
    listed = [_job(row, read) for row in read.rows]
    with output.progress(quiet) as shown, output.stoppable(limits):
        done = [_run(job, read, limits, trust_pickle, shown, (n, len(listed)), quiet) for n, job in enumerate(listed)]
    if not quiet and str(json_file) != "-":
        _print(done)
    if json_file is not None:
        output.write_json(json_file, {"schema": SCHEMA, "plan": str(plan), "rows": [_plain(one) for one in done]})
    return _exit_code(done)


def _cores() -> int:
    import os

    return os.cpu_count() or 1


def _job(row: Row, plan: Plan) -> _Job:
    from quantify import __version__, properties
    from quantify.cli import recording
    from quantify.evidence import records

    data = recording.data_refs(properties.data_files(row.source))
    model = records.file_sha256(str(row.model))
    parts = {
        "model": model,
        "property": row.source.sha256,
        "data": [one.sha256 for one in data],
        "epsilon": str(row.epsilon),
        "options": {name: str(value) for name, value in plan.options.items()},
        "version": __version__,
    }
    return _Job(row, hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest(), model, data)


def _run(
    job: _Job, plan: Plan, limits: Limits, trust_pickle: bool, shown: Progress, place: tuple[int, int], quiet: bool
) -> _Done:
    """Count and record one row, unless it is on record or a stop was asked for.

    Another process may work on the same plan, so the store is asked just before.
    """
    from quantify.evidence.store import Store

    shown.update(_name(job.row), place[0], place[1])
    with Store(create=True) as store:
        known = store.of_row(job.key)
        if known is not None and known.record.status == "ok":
            return _Done(job, "on record" if known.record.body["complete"] else "undecided", known.digest)
        if limits.stopped():
            return _Done(job, "not reached")
        try:
            done = _counted(job, plan, limits, trust_pickle, shown, store)
        except KeyboardInterrupt:
            return _Done(job, "not reached")
        except UndecidedError as error:
            return _Done(job, "undecided", said=error.message)
        except QuantifyError as error:
            return _Done(job, "contradiction" if error.exit_code == 4 else "failed", said=error.message)
    if not quiet and done.digest:
        click.echo(f"quantify: recorded {_name(job.row)} as {done.digest[:12]}", err=True)
    return done


def _counted(job: _Job, plan: Plan, limits: Limits, trust_pickle: bool, shown: Progress, store: Store) -> _Done:
    from quantify import pipeline
    from quantify.evidence import readings, records
    from quantify.report import json as report_json

    options = _options(job.row, plan, limits, trust_pickle)
    apart = ""
    try:
        evidence = pipeline.count(job.row.model, job.row.source.path, options, shown)
    except pipeline.CountedApartError as error:
        evidence, apart = error.evidence, error.message
    if limits.stopped():
        return _Done(job, "not reached")
    body = report_json.to_dict(evidence)
    if body["model"]["sha256"] != job.model_sha256 or body["property"]["sha256"] != job.row.source.sha256:
        raise InputError(f"{job.row.model} or {job.row.source.path} changed while the batch ran", "run it again")
    body[records.BATCH] = {"row": job.key, "epsilon": None if job.row.epsilon is None else str(job.row.epsilon)}
    digest = store.add(
        readings.to_record(
            evidence, body, job.data, by_epsilon=job.row.epsilon is not None, status="invalid" if apart else "ok"
        )
    )
    if apart:
        return _Done(job, "contradiction", digest, apart)
    return _Done(job, "counted" if body["complete"] else "undecided", digest)


def _options(row: Row, plan: Plan, limits: Limits, trust_pickle: bool) -> pipeline.Options:
    from quantify import pipeline
    from quantify.resources import Limits

    given = dict(plan.options)
    timeout, seed = given.pop("timeout", None), given.pop("seed", 0)
    own = Limits.starting_now(
        None if timeout is None else float(timeout), limits.memory_mb, limits.jobs, seed, limits.stop
    )
    return replace(pipeline.Options(**given), limits=own, trust_pickle=trust_pickle, radius=row.epsilon)


def _name(row: Row) -> str:
    return f"{row.model} × {row.source.path}" + ("" if row.epsilon is None else f" × ε={row.epsilon}")


def _print(done: list[_Done]) -> None:
    from quantify.report import terminal
    from quantify.report.view import Table, View

    rows = tuple(
        (str(one.job.row.model), one.job.row.source.name, _epsilon(one), one.status, one.digest[:12], one.said)
        for one in done
    )
    headers = ("model", "property", "ε", "status", "evidence", "said")
    table = Table("Rows", headers, ("text", "text", "number", "status", "text", "text"), rows)
    left = sum(one.status not in ("counted", "on record") for one in done)
    notes = (f"{left} of {len(done)} rows are not finished: the same command goes on with them",) if left else ()
    click.echo(terminal.view_to_text(View("batch", f"{len(done)} rows", (), (table,), notes)), nl=False)


def _epsilon(one: _Done) -> str:
    return "" if one.job.row.epsilon is None else str(one.job.row.epsilon)


def _plain(one: _Done) -> dict[str, Any]:
    row = one.job.row
    return {
        "model": str(row.model),
        "property": str(row.source.path),
        "epsilon": None if row.epsilon is None else str(row.epsilon),
        "status": one.status,
        "digest": one.digest or None,
        "said": one.said,
    }


def _exit_code(done: list[_Done]) -> int:
    statuses = {one.status for one in done}
    if "contradiction" in statuses:
        return 4
    if "failed" in statuses:
        return 2
    return 3 if statuses & {"undecided", "not reached"} else 0

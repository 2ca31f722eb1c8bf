"""Run the benchmark tables, resumably: `python benchmarks/run.py [--tables 1,2,3] [--limit S] [--nodes 4,5] [--fresh]`.

Every finished row is kept in results/rows.jsonl at once; a second run does only what is missing. Rows that a run does
not measure stay in the report as they are. The answer of each way is compared with the exact one, but a difference is
shown and fails nothing: tests decide correctness.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from harness import Row, Settings, Table, machine

HERE = Path(__file__).resolve().parent
MODULES = ("tables", "networks", "networks_five", "acas", "mnist", "plot")
"""Modules with one `TABLE` or several `TABLES`; the report has the paper's first, by number."""


def main() -> int:
    """Measure what is missing, then write RESULTS.json and RESULTS.md."""
    tables = [table for name in MODULES for table in tables_of(name)]
    tables.sort(key=lambda table: int(table.name) if table.name.isdigit() else 99)  # the paper's, then ours
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", help=f"which tables, separated by commas (of {', '.join(t.name for t in tables)})")
    parser.add_argument("--nodes", default="4,5,6", help="sizes of the relations of Tables 1 and 2")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for each way of a row (default 30)")
    parser.add_argument(
        "--published",
        type=Path,
        default=os.environ.get("QUANTIFY_PUBLISHED"),
        metavar="DIR",
        help="folder of published networks, which are not copied here (default: QUANTIFY_PUBLISHED)",
    )
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows whose key contains this")
    parser.add_argument("--fresh", action="store_true", help="measure finished rows of these tables again")
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="DIR", help="where results are kept")
    arguments = parser.parse_args()
    known = {table.name: table for table in tables}
    wanted = list(known) if arguments.tables is None else arguments.tables.split(",")
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"no table {', '.join(unknown)}; there are {', '.join(known)}")
    if arguments.published is not None and not Path(arguments.published).is_dir():
        parser.error(f"--published: {arguments.published} is no folder")
    settings = Settings(
        arguments.limit,
        tuple(int(n) for n in arguments.nodes.split(",")),
        None if arguments.published is None else Path(arguments.published),
    )
    chosen = [known[name] for name in wanted]
    failed = run(chosen, settings, arguments.results, fresh=arguments.fresh, only=arguments.rows)
    write([*known.values()], arguments.results)
    print(f"written: {arguments.results / 'RESULTS.md'}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def tables_of(module: str) -> tuple[Table, ...]:
    """The tables of a module of this folder."""
    loaded = importlib.import_module(module)
    return tuple(loaded.TABLES) if hasattr(loaded, "TABLES") else (loaded.TABLE,)


def run(tables: list[Table], settings: Settings, results: Path, *, fresh: bool, only: str) -> list[str]:
    """Measure the rows that are missing, each kept as soon as it is finished; returns the keys of those that failed."""
    results.mkdir(parents=True, exist_ok=True)
    store = results / "rows.jsonl"
    if store.exists() and not store.read_bytes().endswith(b"\n"):
        with store.open("a", encoding="utf-8") as file:
            file.write("\n")  # the next row would be lost with the one that was cut short
    failed: list[str] = []
    done = set() if fresh else {row["key"] for row in read_rows(store)}
    for table in tables:
        for what in table.missing(settings):
            print(f"table {table.name}: {what}", flush=True)
        jobs = [job for job in table.jobs(settings) if only in job.key]
        for number, job in enumerate(jobs, 1):
            if job.key in done:
                continue
            print(f"table {table.name} [{number}/{len(jobs)}] {job.key}", flush=True)
            try:
                measured = job.measure()
            except Exception:  # the other rows are worth having
                traceback.print_exc()
                failed.append(job.key)
                continue
            row = {"key": job.key, "table": table.name, "machine": machine(), "limit": settings.limit, **measured}
            with store.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
                file.flush()
                os.fsync(file.fileno())
    return failed


def read_rows(store: Path) -> Iterator[Row]:
    """Finished rows, later ones of a key after earlier; a last line cut short by an interruption is dropped."""
    if store.exists():
        for line in store.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue


def write(tables: list[Table], results: Path) -> None:
    """Both reports: the rows of the last report, replaced by those measured since, in the order of the tables."""
    import report

    last = results / "RESULTS.json"
    rows: dict[str, Row] = {}
    if last.exists():
        rows = {row["key"]: row for row in json.loads(last.read_text(encoding="utf-8"))}
    for row in read_rows(results / "rows.jsonl"):
        rows[row["key"]] = row
    ordered = [row for table in tables for row in rows.values() if str(row["table"]) == table.name]
    last.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    (results / "RESULTS.md").write_text(report.markdown(tables, ordered), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

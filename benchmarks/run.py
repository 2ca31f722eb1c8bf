"""Run the benchmark tables, resumably: `python benchmarks/run.py [--tables 1,3] [--limit S] [--nodes 4,5,6] [--fresh]`.

Every finished row is kept in results/rows.jsonl at once; a second run does only what is missing. The answer of each
way is compared with the exact one, but a difference is shown and fails nothing: tests decide correctness.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import report
import tables

RESULTS = Path(__file__).resolve().parent / "results"


def main() -> int:
    """Measure what is missing, then write results/RESULTS.json and RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="1,3", help="which tables, separated by commas")
    parser.add_argument("--nodes", default="4,5,6", help="sizes of the relations of Table 1")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each way of a row (default 60)")
    parser.add_argument("--fresh", action="store_true", help="forget finished rows")
    arguments = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    store = RESULTS / "rows.jsonl"
    if arguments.fresh:
        store.unlink(missing_ok=True)
    done = {row["key"]: row for row in read_rows(store)}
    jobs: list[tables.Job] = []
    if "1" in arguments.tables.split(","):
        jobs += tables.table1([int(n) for n in arguments.nodes.split(",")])
    if "3" in arguments.tables.split(","):
        jobs += tables.table3()
    for number, job in enumerate(jobs, 1):
        if job.key in done:
            continue
        print(f"[{number}/{len(jobs)}] {job.key}", flush=True)
        row = {"key": job.key, "machine": machine(), **tables.measure(job, arguments.limit)}
        done[job.key] = row
        with store.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
    rows = [done[job.key] for job in jobs]
    (RESULTS / "RESULTS.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "RESULTS.md").write_text(report.markdown(rows), encoding="utf-8")
    print(f"written: {RESULTS / 'RESULTS.md'}")
    return 0


def read_rows(store: Path) -> Iterator[dict]:
    """Finished rows; a last line cut short by an interruption is dropped."""
    if store.exists():
        for line in store.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue


def machine() -> dict[str, object]:
    """What the figures depend on."""
    from importlib.metadata import version

    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    packages = ("scikit-learn", "numpy", "pyganak", "pyapproxmc", "dd")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        **{name: version(name) for name in packages},
    }


if __name__ == "__main__":
    sys.exit(main())

"""What a benchmark table must offer, and what tables share: settings, jobs, rows, timing of an engine, Markdown cells.

A table's module holds one `Table`, listed in `run.py`. A job is one row: it measures everything that the row compares
in one go, so that ratios within a row can be trusted.
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from quantify.errors import QuantifyError, UndecidedError
from quantify.ir.count import Count, Engine, Guarantee
from quantify.ir.problem import GridCase, GridProblem
from quantify.resources import Limits, Progress

Row = dict[str, Any]
"""One finished row, as JSON; the runner adds `key`, `table`, `machine` and `limit` to what the job returned."""

WORK = Path(__file__).resolve().parent / "results" / "models"
"""Where models and properties made for the benchmark lie, a folder a row; not kept in git."""
JOBS = 2
"""Threads of every way that takes threads."""


@dataclass(frozen=True)
class Settings:
    """What the command line said."""

    limit: float = 60.0
    """Seconds for each way of a row."""
    nodes: tuple[int, ...] = (4, 5, 6)
    """Sizes of the relations of Tables 1 and 2."""
    published: Path | None = None
    """Folder with what others published and what is not ours to copy; None: rows that need it are left out."""


@dataclass(frozen=True)
class Job:
    """One row: its key, unique over all tables, and how to measure it."""

    key: str
    measure: Callable[[], Row]


@dataclass(frozen=True)
class Table:
    """One table of the report."""

    name: str
    """What `--tables` takes."""
    title: str
    """Its heading."""
    jobs: Callable[[Settings], Iterable[Job]]
    """The rows in their order; models are made in `measure`, so that a finished row costs nothing."""
    markdown: Callable[[Sequence[Row]], str]
    """What stands below the heading, from the rows that are finished; never empty."""
    missing: Callable[[Settings], Sequence[str]] = lambda _: ()
    """What these settings leave out, and why: a sentence each."""


def machine() -> dict[str, object]:
    """What the figures depend on."""
    facts = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in facts if "model name" in line), platform.processor())
    flags = next((line.split(":", 1)[1].split() for line in facts if line.startswith("flags")), [])
    vectors = [flag for flag in ("avx2", "avx512bw", "avx512_vnni") if flag in flags]
    packages = {}
    for name in ("scikit-learn", "numpy", "pyganak", "pyapproxmc", "dd"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "missing"
    return {
        "cpu": model,
        "vectors": " ".join(vectors) or "none",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        **packages,
    }


# --- timing ----------------------------------------------------------------------------------------------------------
REPEAT_BELOW = 0.2
"""Ways faster than this are repeated, and the fastest repetition is kept."""


def timed(engine: Engine, grid: GridProblem, case: GridCase, limit: float) -> dict[str, Any]:
    """Counts of one engine, seconds of the clock and of this process's cores; a time-out is an entry, no error."""
    run = functools.partial(_once, engine, grid, case, limit)
    started = time.perf_counter()
    try:
        counts, seconds, cpu = run()
        if seconds < REPEAT_BELOW:
            seconds, cpu = min((seconds, cpu), *(run()[1:] for _ in range(4)))
    except UndecidedError as error:
        return {"finished": False, "why": error.message, "after": time.perf_counter() - started}
    except QuantifyError as error:
        return {"finished": False, "why": error.message}
    finished = all(c.guarantee is not Guarantee.BOUNDS or c.lower == c.upper for c in counts.values())
    return {
        "finished": finished,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "counts": {
            name: str(c.lower) if c.lower == c.upper else [str(c.lower), str(c.upper)] for name, c in counts.items()
        },
        "estimates": {name: str(c.estimate) for name, c in counts.items() if c.estimate is not None},
        "guarantee": str(min(c.guarantee for c in counts.values())),
    }


def _once(engine: Engine, grid: GridProblem, case: GridCase, limit: float) -> tuple[Mapping[str, Count], float, float]:
    started, cpu = time.perf_counter(), time.process_time()
    counts = engine.count(grid, case, Limits.starting_now(timeout=limit, jobs=JOBS), Progress())
    return counts, time.perf_counter() - started, time.process_time() - cpu


def with_ratios(ways: dict[str, dict[str, Any]], to: str) -> dict[str, dict[str, Any]]:
    """All, each with `ratio`, its seconds over those of the way called `to`; at least that where it was stopped."""
    base = ways[to].get("seconds")
    for way in ways.values():
        if not way["finished"] and "seconds" in way:
            way["after"] = way.pop("seconds")
        seconds = way.get("seconds", way.get("after"))
        if base and seconds is not None:
            way["ratio"] = seconds / base
    return ways


def quantify(*arguments: str | Path, limit: float | None = None) -> dict[str, Any]:
    """What a `quantify` command answers as JSON, with `exit` and `wall_seconds`, start of the interpreter included.

    Raises:
        RuntimeError: It answered nothing.
    """
    command = [sys.executable, "-P", "-m", "quantify", *map(str, arguments), "--json", "-", "--quiet"]
    if limit is not None:
        command += ["--timeout", f"{limit:g}"]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if not done.stdout:
        raise RuntimeError(f"{' '.join(command[3:])}: exit {done.returncode}: {done.stderr.strip()[-500:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer | {"exit": done.returncode, "wall_seconds": seconds}


# --- Markdown --------------------------------------------------------------------------------------------------------
def grid_of(heads: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table whose first `left` columns are text and whose others are numbers."""
    rules = ["---" if k < left else "--:" for k in range(len(heads))]
    rows = ["| " + " | ".join(cells) + " |" for cells in (heads, *lines)]
    return "\n".join([rows[0], "|" + "|".join(rules) + "|", *rows[1:]]) + "\n"


def duration(seconds: float) -> str:
    """Three digits, in µs or s."""
    return f"{seconds:.3g} s" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


def way_cell(way: Mapping[str, Any] | None) -> str:
    """Seconds and ratio of a way; > marks one that was stopped, ≈ one extrapolated; empty when it was not run."""
    if way is None:
        return ""
    seconds = way.get("seconds", way.get("after"))
    if seconds is None or (not way["finished"] and "after" not in way):
        return "—"
    sign = "" if way["finished"] else "> "
    sign = "≈ " if "extrapolated" in way else sign
    return sign + duration(seconds) + (f" ({sign}{way['ratio']:.3g}×)" if "ratio" in way else "")


def share(part: int, whole: int) -> str:
    """part / whole with four decimals; 0/0 is a dash."""
    return f"{part / whole:.4f}" if whole else "—"


def mean(numbers: Iterable[float]) -> float:
    """The arithmetic mean; not a number of nothing."""
    kept = list(numbers)
    return math.fsum(kept) / len(kept) if kept else math.nan

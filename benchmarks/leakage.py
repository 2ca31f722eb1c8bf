"""How fast `quantify leakage` compares: N training rows of about 250 bytes against M cases, with and without a copy.

Usage: leakage.py [--rows 1000000] [--cases 10000] [--jobs 2] [--format jsonl|csv] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("income", "debt_ratio", "age", "years_employed", "loans", "balance", "score", "region", "purpose", "note")
REGIONS = ("north", "south", "east", "west")
PURPOSES = ("car", "house", "education", "a holiday", "medical treatment", "a new kitchen")
WORDS = ("paid", "late", "early", "regular", "reminder", "sent", "moved", "house", "second", "job", "transfer")


def row(rng: random.Random) -> dict[str, Any]:
    """One applicant."""
    return {
        "income": round(rng.lognormvariate(10.5, 0.5), 2),
        "debt_ratio": round(rng.random(), 4),
        "age": rng.randrange(18, 90),
        "years_employed": round(rng.random() * 40, 1),
        "loans": rng.randrange(8),
        "balance": round(rng.gauss(2000, 9000), 2),
        "score": rng.randrange(300, 850),
        "region": rng.choice(REGIONS),
        "purpose": rng.choice(PURPOSES),
        "note": " ".join(rng.choice(WORDS) for _ in range(8)),
    }


def line(values: dict[str, object], form: str) -> str:
    """A training row as text."""
    if form == "csv":
        return ",".join(str(value) for value in values.values()) + "\n"
    return json.dumps({**values, "label": "yes"}) + "\n"


def write_training(path: Path, rows: int, form: str) -> None:
    """Distinct rows: up to 200,000 are made, then repeated with other balances."""
    rng = random.Random(1)
    made = [row(rng) for _ in range(min(rows, 200_000))]
    parts = [line({**one, "balance": -7777777.5}, form).split("-7777777.5") for one in made]
    with path.open("w", encoding="utf-8") as file:
        if form == "csv":
            file.write(",".join(NAMES) + "\n")
        for start in range(0, rows, len(parts)):
            block = zip(parts[: rows - start], made, strict=False)
            file.write("".join(f"{a}{one['balance'] + start / 1e7:.2f}{b}" for (a, b), one in block))


def main() -> None:
    """Make the files, compare, print seconds of wall clock and CPU, and the largest process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--format", choices=("jsonl", "csv"), default="jsonl")
    parser.add_argument("--keep", type=Path, help="folder for the files, which are made when they are not there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        training = folder / f"training-{options.rows}.{options.format}"
        if not training.exists():
            write_training(training, options.rows, options.format)
        size = training.stat().st_size
        rng = random.Random(2)
        cases = [row(rng) for _ in range(options.cases)]
        clean, planted = folder / "clean.jsonl", folder / "planted.jsonl"
        write_suite(clean, cases)
        cases[options.cases // 2] = last_row(training, options.format)
        write_suite(planted, cases)
        print(
            f"{options.rows:,} rows, {size / options.rows:.0f} bytes each, {options.cases:,} cases, {options.jobs} jobs"
        )
        for suite, expected in ((clean, 0), (planted, 4)):
            compare(suite, training, options.jobs, expected, size)


def last_row(training: Path, form: str) -> dict[str, object]:
    """The inputs of the last training row, text in upper case and with more spaces."""
    with training.open("rb") as file:
        file.seek(-2000, 2)
        text = file.read().decode().splitlines()[-1]
    found = dict(zip(NAMES, text.split(","), strict=True)) if form == "csv" else json.loads(text)
    found.pop("label", None)
    found["note"] = "  " + str(found["note"]).upper().replace(" ", "   ")
    return dict(found)


def write_suite(path: Path, cases: list[dict[str, object]]) -> None:
    """Cases as JSON lines."""
    path.write_text("".join(json.dumps({"id": f"c{i}", "features": one}) + "\n" for i, one in enumerate(cases)))


def compare(suite: Path, training: Path, jobs: int, expected: int, size: int) -> None:
    """One run."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "quantify", "leakage", "--cases", str(suite), "--training", str(training),
         "--jobs", str(jobs), "--quiet", "--json", "-"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != expected:
        sys.exit(f"exit code {done.returncode} instead of {expected}: {done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = json.loads(done.stdout)
    print(
        f"{suite.name:<14} {told['counts']['found']} found  {seconds:7.1f} s wall  {cpu:7.1f} s CPU  "
        f"{size / seconds / 1e6:6.0f} MB/s  largest process {after.ru_maxrss / 1024:.0f} MB"
    )


if __name__ == "__main__":
    main()

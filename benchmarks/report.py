"""Finished benchmark rows as Markdown: the report's frame, and the tables of trees."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from harness import Row, Table, grid_of, share, way_cell

from quantify.report.numbers import percent


def markdown(tables: Sequence[Table], rows: Sequence[Row]) -> str:
    """The whole report."""
    parts = [
        "# Benchmark results\n",
        (
            "`—` did not finish within the row's limit. Figures of one row come from one run. Below 0.2 s the fastest "
            "of five repetitions counts. The cnf ways include C generation, CBMC and the counter, for every query of "
            "the row.\n"
        ),
    ]
    for table in tables:
        chosen = [row for row in rows if str(row["table"]) == table.name]
        if chosen:
            parts += [f"## {table.title}\n", measured_on(chosen), table.markdown(chosen)]
    return "\n".join(parts)


def measured_on(rows: Sequence[Row]) -> str:
    """Machines and limits of the rows; more than one when they were not measured together."""
    found: dict[str, int] = {}
    for row in rows:
        facts = ", ".join(f"{name} {value}" for name, value in row["machine"].items())
        text = f"{facts}; {row['limit']:g} s for each way"
        found[text] = found.get(text, 0) + 1
    lines = [f"Machine: {text}{f' ({n} of {len(rows)} rows)' if len(found) > 1 else ''}." for text, n in found.items()]
    return "\n\n".join(lines) + "\n"


def trees(rows: Sequence[Row]) -> str:
    """Table 1: what is true of each tree beside what its test set says, then the times."""
    heads = ["property", "nodes", "leaves", "test_accuracy", "accuracy", "test_F1", "F1", "tp", "fp", "tn", "fn"]
    lines = []
    for row in rows:
        name, nodes = row["key"].split()[1:]
        c = {k: int(v) for k, v in row["ways"][row["chosen"]]["counts"].items()}
        facts = row["facts"]
        lines.append(
            [
                name,
                nodes,
                str(facts["leaves"]),
                f"{facts['test_accuracy']:.4f}",
                share(c["tp"] + c["tn"], sum(c.values())),
                f"{facts['test_f1']:.4f}",
                share(2 * c["tp"], 2 * c["tp"] + c["fp"] + c["fn"]),
                *(f"{c[k]:,}" for k in ("tp", "fp", "tn", "fn")),
            ]
        )
    return grid_of([head.replace("_", " ") for head in heads], lines) + "\n" + times(rows)


def digits(rows: Sequence[Row]) -> str:
    """Table 3: exact and sampled robustness, then the times."""
    facts = rows[0]["facts"]
    intro = (
        f"The tree has {facts['leaves']} leaves and is right on {100 * facts['test_accuracy']:.2f} % of the test "
        "images.\n"
    )
    lines = []
    for row in rows:
        total = int(row["total"])
        robust = Fraction(int(row["ways"][row["chosen"]]["counts"]["robust"]), total)
        estimates = [int(row["ways"][f"sample {n}"]["estimates"]["robust"]) for n in (100, 1_000, 10_000)]
        sampled = [f"{100 * float(Fraction(estimate, total)):.2f} %" for estimate in estimates]
        size = f"{total:.3e}".replace("e+", "e")
        lines.append([row["key"].split()[-1], size, percent(robust), *sampled])
    heads = ["digit", "inputs in the ball", "robust, exactly", "sampled 100", "1,000", "10,000"]
    return "\n".join([intro, grid_of(heads, lines, 0), times(rows)])


def times(rows: Sequence[Row]) -> str:
    """Seconds of every way of a row, and ratios to the way that was chosen."""
    names = list(dict.fromkeys(name for row in rows for name in row["ways"]))
    lines = []
    for row in rows:
        same = row["ways"].get("cnf+ganak", {}).get("identical")
        cells = [way_cell(row["ways"].get(name)) for name in names]
        verdict = {True: "yes", False: "NO", None: "—"}[same]
        lines.append([row["key"].split(" ", 1)[1], row["chosen"], *cells, verdict])
    return "Ratios are to the engine that `auto` chose.\n\n" + grid_of(
        ["row", "chosen", *names, "cnf+ganak identical"], lines, 2
    )

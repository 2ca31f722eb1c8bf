"""Finished benchmark rows as Markdown tables: figures of one row come from one run, so ratios can be trusted."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from quantify.report.numbers import percent

Row = dict[str, Any]


def markdown(rows: list[Row]) -> str:
    """The whole report."""
    parts = ["# Benchmark results\n", _machine(rows)]
    for table, title in (
        (1, "Table 1: decision trees on relational properties"),
        (3, "Table 3: ε=1 balls round MNIST digits"),
    ):
        chosen = [row for row in rows if row["table"] == table]
        if chosen:
            parts += [f"## {title}\n", _truth(chosen, table), _times(chosen)]
    return "\n".join(parts)


def _machine(rows: list[Row]) -> str:
    if not rows:
        return "No rows.\n"
    facts = ", ".join(f"{name} {value}" for name, value in rows[-1]["machine"].items())
    limit = rows[-1]["limit"]
    return (
        f"Machine: {facts}.\n\nEach way of a row had {limit:g} s; `—` did not finish. Ratios are to the exact "
        "engine that `auto` chose, in the same run. Below 0.2 s the fastest of five repetitions counts. "
        "The cnf ways include C generation, CBMC and the counter, for every query of the row.\n"
    )


def _truth(rows: list[Row], table: int) -> str:
    if table == 1:
        lines = [
            "| property | nodes | leaves | test accuracy | accuracy | test F1 | F1 | tp | fp | tn | fn |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for row in rows:
            name, nodes = row["key"].split()[1:]
            c = {k: int(v) for k, v in row["ways"][row["chosen"]]["counts"].items()}
            accuracy = Fraction(c["tp"] + c["tn"], sum(c.values()))
            f1 = 2 * c["tp"] / d if (d := 2 * c["tp"] + c["fp"] + c["fn"]) else float("nan")
            facts = row["facts"]
            lines.append(
                f"| {name} | {nodes} | {facts['leaves']} | {facts['test_accuracy']:.4f} | {float(accuracy):.4f} | "
                f"{facts['test_f1']:.4f} | {f1:.4f} | {c['tp']:,} | {c['fp']:,} | {c['tn']:,} | {c['fn']:,} |"
            )
        return "\n".join(lines) + "\n"
    lines = [
        (
            f"The tree has {rows[0]['facts']['leaves']} leaves and is right on "
            f"{100 * rows[0]['facts']['test_accuracy']:.2f} % of the test images.\n"
        ),
        "| digit | inputs in the ball | robust, exactly | sampled 100 | 1,000 | 10,000 |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        total = int(row["total"])
        robust = Fraction(int(row["ways"][row["chosen"]]["counts"]["robust"]), total)
        sampled = [
            f"{100 * float(Fraction(int(row['ways'][f'sample {n}']['estimates']['robust']), total)):.2f} %"
            for n in (100, 1_000, 10_000)
        ]
        lines.append(
            f"| {row['key'].split()[-1]} | {total:.3e} | {percent(robust)} | {' | '.join(sampled)} |".replace("e+", "e")
        )
    return "\n".join(lines) + "\n"


def _times(rows: list[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row["ways"]))
    lines = [
        "| row | chosen | " + " | ".join(names) + " | cnf+ganak identical |",
        "|---|---|" + "--:|" * len(names) + "---|",
    ]
    for row in rows:
        cells = [_cell(row["ways"].get(name)) for name in names]
        same = row["ways"].get("cnf+ganak", {}).get("identical")
        verdict = {True: "yes", False: "NO", None: "—"}[same]
        lines.append(f"| {row['key'].split(' ', 1)[1]} | {row['chosen']} | " + " | ".join(cells) + f" | {verdict} |")
    return "\n".join(lines) + "\n"


def _cell(way: dict[str, Any] | None) -> str:
    if way is None:
        return ""
    if not way["finished"] or "seconds" not in way:
        return "—"
    seconds = f"{way['seconds']:.3g} s" if way["seconds"] >= 1e-3 else f"{1e6 * way['seconds']:.3g} µs"
    return seconds + (f" ({way['ratio']:.3g}×)" if "ratio" in way else "")

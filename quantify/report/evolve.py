"""A search for adversarial instances to words and tables, to plain JSON data, and to a page with curves and masks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from quantify.ir.evolved import CATEGORIES, Category, Evolved, Searched, Summary
from quantify.report.heat_maps import HeatMap, heat_map
from quantify.report.html import fill
from quantify.report.numbers import percent, percent_range
from quantify.report.plots import Chart, Point, Series, line_chart, scatter
from quantify.report.view import Style, Table, View

WORDS = {
    "longest": "longest run of changed items",
    "longest_up": "longest run of increased items",
    "changes": "changed items",
    "difference": "difference of the sums",
}
PICTURED = 3
"""Instances whose curves and masks the page shows."""
CURVES = 6
MASKS = 5
POINTS = 60
"""Points of a curve, at most."""
COLUMNS = 250
"""Elements of a mask that a picture can show."""
LIMITS = (
    (
        "An instance called robust withstood this search, not every change: the share of instances that some change "
        "makes the selector wrong about is at least as large as the rate."
    ),
    "Only instances that the selector is right about were searched: its mistakes on the others are not in the rate.",
    "The interval supposes that the instances are independent draws of those that the selector will meet.",
)


def to_dict(evolved: Evolved, summary: Summary) -> dict[str, Any]:
    """The answer of `quantify evolve`."""
    return {
        "schema": "quantify/1",
        "selector": {"path": evolved.selector.path, "sha256": evolved.selector.sha256, "kind": evolved.selector.kind},
        "data": {
            "name": evolved.reading.subject,
            "source": evolved.source,
            "sha256": None if evolved.instances is None else evolved.instances.sha256,
            "instances": evolved.given,
            "length": evolved.length,
        },
        "domain": evolved.domain,
        "settings": asdict(evolved.settings),
        "seed": evolved.seed,
        "complete": not evolved.unfinished,
        "notes": list(evolved.notes),
        "cross_check": None if evolved.cross_check is None else asdict(evolved.cross_check),
        "instances": [_instance(evolved, one) for one in evolved.searched],
        "excluded": [{"row": row, "reason": reason} for row, reason in evolved.excluded.items()],
        "unfinished": list(evolved.unfinished),
        "summary": _summary(evolved, summary),
    }


def _instance(evolved: Evolved, one: Searched) -> dict[str, Any]:
    return {
        "row": one.row,
        "winner": evolved.solvers[one.winner],
        "confidence": one.confidence,
        "class": one.category,
        "best_fitness": one.best_fitness,
        "queries": one.queries,
        "type": one.kind,
        "successful_runs": one.successes,
        "run_fitness": list(one.run_fitness),
        "evaluations": one.evaluations,
        "asked": one.asked,
        "ties": one.ties,
        "unverified": one.unverified,
        "unique": one.unique,
        "changed_winner": one.changed_winner,
        "median_fitness": one.median_fitness,
        "medians": one.medians,
    }


def _summary(evolved: Evolved, summary: Summary) -> dict[str, Any]:
    reading = evolved.reading
    (draws,) = reading.draws
    return {
        "classes": {name: len(evolved.of(name)) for name in CATEGORIES},
        "by_solver": summary.classes,
        "excluded": {
            reason: list(evolved.excluded.values()).count(reason) for reason in ("misclassified", "tie", "undecided")
        },
        "adversarial_rate": {
            "lower": float(reading.lower),
            "upper": float(reading.upper),
            "value": float(reading.value),
            "hits": draws.hits,
            "instances": draws.samples,
            "unknown": draws.unknown,
            "confidence": float(1 - reading.risk),
        },
        "success_rate": summary.success_rate,
        "queries": summary.queries,
        "types": summary.kinds,
        "fitness": None if summary.run_fitness is None else asdict(summary.run_fitness),
        "unique": {"total": summary.unique_total, "median": summary.unique_median},
        "medians": summary.medians,
        "correlations": [asdict(one) for one in summary.correlations],
        "evaluations": sum(one.evaluations for one in evolved.searched),
        "asked": sum(one.asked for one in evolved.searched),
        "ties": sum(one.ties for one in evolved.searched),
        "unverified": sum(one.unverified for one in evolved.searched),
    }


# --- words and tables ------------------------------------------------------------------------------------------------
def of_evolved(evolved: Evolved, summary: Summary) -> View:
    """The report."""
    tables = [_classes(evolved, summary)]
    if summary.success_rate is not None:
        tables.append(_effectiveness(evolved, summary))
    if summary.medians:
        tables.append(_changes(summary))
    return View(
        f"{evolved.selector.path} on {evolved.reading.subject}",
        "adversarial instances",
        tuple(_facts(evolved)),
        tuple(tables),
        tuple(_notes(evolved)),
    )


def _facts(evolved: Evolved) -> list[tuple[str, str]]:
    reading = evolved.reading
    (draws,) = reading.draws
    interval = percent_range(reading.lower, reading.upper)
    reasons = list(evolved.excluded.values())
    left_out = [f"{reasons.count(reason):,} {reason}" for reason in dict.fromkeys(reasons)]
    return [
        ("instances", f"{evolved.source}: {evolved.given:,} of {evolved.length:,} items"),
        ("searched", f"{draws.samples:,}" + (f" (left out: {', '.join(left_out)})" if left_out else "")),
        (
            "search",
            _search(evolved),
        ),
        (
            "adversarial rate",
            f"{draws.hits:,} of {draws.samples:,}: {interval} at {percent(1 - reading.risk)} confidence",
        ),
    ]


def _search(evolved: Evolved) -> str:
    settings = evolved.settings
    return (
        f"{settings.screen:,} random masks, then {settings.runs:,} runs of {settings.generations:,} generations of "
        f"{settings.population:,}; p_init {settings.p_init:g}, p_c {settings.p_crossover:g}, values "
        f"−{settings.magnitude}…{settings.magnitude}, seed {evolved.seed}"
    )


def _classes(evolved: Evolved, summary: Summary) -> Table:
    total = len(evolved.searched)
    rows = [
        (solver, *(_part(counts[name], total) for name in CATEGORIES)) for solver, counts in summary.classes.items()
    ]
    rows.append(("all", *(_part(len(evolved.of(name)), total) for name in CATEGORIES)))
    return Table("Instances by winner and class", ("won by", *CATEGORIES), ("text", *("number",) * 3), tuple(rows))


def _part(number: int, total: int) -> str:
    return f"{number:,} ({100 * number / total:.1f} %)" if total else f"{number:,}"


def _effectiveness(evolved: Evolved, summary: Summary) -> Table:
    """As table 1 of the document."""
    found = len(evolved.of("perturbable"))
    tried = found + len(evolved.of("robust"))
    quartiles = summary.run_fitness
    row = (
        f"{evolved.settings.p_init:g}",
        f"{100 * found / tried:.2f} %",
        "—" if summary.queries is None else f"{summary.queries:,.0f}",
        *(f"{100 * number / found:.0f} %" if found else "—" for number in summary.kinds.values()),
        *(
            ("—",) * 3
            if quartiles is None
            else (f"{end:.4f}" for end in (quartiles.median, quartiles.q1, quartiles.q3))
        ),
        f"{summary.unique_total:,}",
    )
    headers = ("p_init", "success rate", "queries", *summary.kinds, "median fitness", "Q1", "Q3", "unique")
    title = f"Evolution on the {tried:,} instances that are not fragile"
    return Table(title, headers, tuple("number" for _ in headers), (row,))


def _changes(summary: Summary) -> Table:
    rows = []
    for one in summary.correlations:
        p_value = "—" if one.p_value is None else f"{one.p_value:.2g}"
        spearman = "—" if one.spearman is None else f"{one.spearman:.3f}"
        rows.append((WORDS[one.statistic], f"{summary.medians[one.statistic]:g}", spearman, p_value))
    return Table(
        "Changes in adversarial instances",
        ("statistic", "median", "Spearman with fitness", "p-value"),
        ("text", "number", "number", "number"),
        tuple(rows),
    )


def _notes(evolved: Evolved) -> list[str]:
    ties, unverified, asked = (
        sum(getattr(one, name) for one in evolved.searched) for name in ("ties", "unverified", "asked")
    )
    notes = [
        "the strongest adversarial instance of every trial was solved and classified once more",
        f"of {asked:,} perturbed instances {ties:,} were ties, which are not adversarial",
        f"{unverified:,} perturbed instances were too close to call: |p_l − p_w| ≤ 1e-5",
        "robust: withstood this search; no proof",
    ]
    checked = evolved.cross_check
    if checked is not None:
        notes.append(
            f"cross-check: the library is wrong about all {checked.adversarial:,} of them too; on these and the "
            f"{checked.instances:,} instances its probabilities differ by at most {checked.largest:.1e}"
        )
    notes += evolved.notes
    if evolved.unfinished:
        notes.insert(0, f"incomplete: a limit or an interruption left {len(evolved.unfinished):,} instances without an "
                        "answer; they count against both ends of the interval")  # fmt: skip
    return notes


# --- the page --------------------------------------------------------------------------------------------------------
def render(evolved: Evolved, summary: Summary) -> str:
    """The page."""
    chosen = pictured(evolved)
    return fill(
        "evolve.html.j2",
        f"evolve {evolved.reading.subject}",
        to_dict(evolved, summary),
        report=of_evolved(evolved, summary),
        every=[_instances(evolved)],
        curves=[_curve(one) for one in chosen if one.curves],
        masks=[_masks(evolved, one) for one in chosen if one.found],
        scatters=_scatters(evolved),
        limits=LIMITS,
    )


def pictured(evolved: Evolved) -> tuple[Searched, ...]:
    """The perturbable instances with the least, the middle and the greatest median fitness; else robust or fragile."""
    order: tuple[Category, ...] = ("perturbable", "robust", "fragile")
    for category in order:
        found = sorted(
            evolved.of(category),
            key=lambda one: one.best_fitness if one.median_fitness is None else one.median_fitness,
        )
        if found:
            places = dict.fromkeys(round(part * (len(found) - 1) / (PICTURED - 1)) for part in range(PICTURED))
            return tuple(found[place] for place in places)
    return ()


def _curve(one: Searched) -> Chart:
    """Fitness by generation, a line a run; of longer curves, the greatest of several generations."""
    longest = max(len(curve) for curve in one.curves)
    step = max(1, -(-longest // POINTS))
    series = []
    for run, curve in list(enumerate(one.curves))[:CURVES]:
        starts = range(0, len(curve), step)
        series.append(
            Series(
                f"run {run}",
                tuple(float(start) for start in starts),
                tuple(float(curve[start : start + step].max()) for start in starts),
            )
        )
    thinned = f", the greatest of {step} generations" if step > 1 else ""
    title = f"Instance {one.row} ({one.category}): best fitness{thinned}"
    return line_chart(title, series, x_label="generation", y_label="p_l − p_w", zero=True)


def _masks(evolved: Evolved, one: Searched) -> HeatMap:
    shown = one.found[:MASKS]
    length = min(evolved.length, COLUMNS)
    cut = f", first {length} of {evolved.length} items" if length < evolved.length else ""
    fitness = "" if one.median_fitness is None else f", median fitness {one.median_fitness:.3f}"
    magnitude = float(max(evolved.settings.magnitude, 1))
    columns = [str(place) if place % 20 == 0 else "" for place in range(length)]
    names = ["random" if best.run < 0 else f"run {best.run}" for best in shown]
    values = [[float(value) for value in best.mask[:length]] for best in shown]
    return heat_map(
        f"Instance {one.row}: strongest masks{fitness}{cut}",
        columns, names, values, x_label="item", low=-magnitude, high=magnitude, signed=True,
    )  # fmt: skip


def _scatters(evolved: Evolved) -> list[Chart]:
    found = [one for one in evolved.of("perturbable") if one.median_fitness is not None]
    if not found:
        return []
    return [
        scatter(
            f"{WORDS[name][0].upper()}{WORDS[name][1:]} and fitness (medians)",
            [Point(one.medians[name], one.median_fitness or 0.0, f"instance {one.row}") for one in found],
            x_label=WORDS[name],
            y_label="fitness",
        )
        for name in ("changes", "longest", "difference")
    ]


def _instances(evolved: Evolved) -> Table:
    rows = tuple(
        (
            str(one.row),
            evolved.solvers[one.winner],
            f"{one.confidence:.4f}",
            one.category,
            f"{one.best_fitness:.4f}",
            "—" if one.queries is None else f"{one.queries:,.0f}",
            one.kind or "—",
            f"{one.unique:,}",
        )
        for one in evolved.searched
    )
    headers = ("row", "won by", "confidence", "class", "best fitness", "queries", "type", "unique")
    styles: tuple[Style, ...] = ("number", "text", "number", "text", "number", "number", "text", "number")
    return Table("Every instance that was searched", headers, styles, rows)

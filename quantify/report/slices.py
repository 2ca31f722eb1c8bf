"""The slices of a table to words and tables, to JSON in pieces (there may be millions of sets), and to a page."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import orjson

from quantify.ir.slices import WHOLE, WHOLE_NAME, Names, Slices
from quantify.report import lattice, plots
from quantify.report.evidence import SHORT
from quantify.report.html import fill
from quantify.report.numbers import duration
from quantify.report.view import Style, Table, View, index_note

LISTED = 10
"""Sets at either end that the terminal lists."""
NEAR = 3
"""Neighbourhoods of a point at either end, as in Table 1 of the document."""
PLOTTED = 400
"""Sets of the subbasis in the plot of sizes and values, at most."""
PIECE = 4096
MEANINGS = {
    "accuracy": "share of the rows whose prediction is the label",
    "loss": "mean",
    "precision": "share of the rows called {positive} that are",
    "recall": "share of the rows that are {positive} that are called so",
    "f1": "2·TP / (2·TP + FP + FN) of {positive}",
    "rate": "share of the rows that have it",
}
LIMITS = (
    "Sets that no column names: a model may fail on rows that have something in common which is not in the table.",
    "Whether rows were chosen independently of each other: intervals suppose that they were.",
    "Causes: a set with a low value shares its rows with others.",
)


# --- JSON ------------------------------------------------------------------------------------------------------------
def head(found: Slices) -> dict[str, Any]:
    """The answer without its two long lists."""
    return {
        "schema": "quantify/1",
        "table": {"path": found.table.path, "sha256": found.table.sha256, "rows": found.table.rows},
        "label": found.label,
        "predictions": found.predictions,
        "model": None
        if found.model is None
        else {"path": found.model.path, "sha256": found.model.sha256, "kind": found.model.kind},
        "metric": found.metric,
        "column": found.column,
        "positive": found.positive,
        "worst": found.worst,
        "settings": {
            "depth": found.depth,
            "min_size": found.least,
            "unions": found.unions,
            "incon_k": found.k,
            "incon_of": found.incon_of,
            "confidence": float(found.confidence),
            "interval": found.interval,
            "range": None if found.value_range is None else list(found.value_range),
            "correction": "bonferroni",
            "looked_at": found.looked_at,
        },
        "counts": {
            "subbasis": len(found.subbasis),
            "sets": len(found.sets),
            "equal": len(found.equal_to),
            "apart": found.shown.total,
            "unanswered": found.unanswered,
            "unjudged": found.unjudged,
            "unknown_predictions": found.strange,
        },
        "presheaf": {"restriction": "identity", "to_the_empty_set": 0.0},
        "whole": _whole(found),
        "subbasis": [{"name": name, "attribute": of, "size": size} for name, of, size in found.subbasis],
        "skipped": list(found.skipped),
        "point": _point(found),
        "informative": [found.set_name(place) for place in found.shown.places],
        "complete": found.complete,
        "seconds": found.seconds,
    }


def brief(found: Slices) -> dict[str, Any]:
    """The answer with those sets alone that a report shows; what pages and records keep."""
    places = np.array(_places_shown(found), np.int64)
    return {
        **head(found),
        "sets": [orjson.loads(line) for line in _sets(found, places)],
        "inconsistency": [orjson.loads(line) for line in _inconsistencies(found, _by_incon(found)[:LISTED])],
        "left_out": len(found.sets) - len(places),
    }


def pieces(found: Slices) -> Iterator[str]:
    """The whole answer as text, a set a line."""
    yield json.dumps(head(found), indent=2, ensure_ascii=False, allow_nan=False)[: -len("\n}")]
    every = np.arange(len(found.sets))
    for name, lines in (("sets", _sets(found, every)), ("inconsistency", _inconsistencies(found, _by_incon(found)))):
        yield f',\n  "{name}": ['
        mark = "\n    "
        while batch := list(itertools.islice(lines, PIECE)):
            yield mark + ",\n    ".join(batch)
            mark = ",\n    "
        yield "\n  ]"
    yield "\n}\n"


def _sets(found: Slices, places: Any) -> Iterator[str]:
    """Each set as JSON, filled in by columns: with a dictionary a set, writing took longer than finding them."""
    sets = found.sets
    columns = {
        "size": sets.size,
        "value": sets.value,
        "lower": sets.lower,
        "upper": sets.upper,
        "corrected_lower": sets.corrected_lower,
        "corrected_upper": sets.corrected_upper,
        "samples": sets.samples,
    }
    if found.metric != "loss":
        columns["hits"] = sets.hits
    fill_in = "".join(('{"name":"%s"', *(f',"{name}":%s' for name in columns), "%s}")).__mod__
    names = _quotable(found)
    has_equal = np.zeros(len(sets), bool)
    has_equal[found.equal_to] = True
    for start in range(0, len(places), PIECE):
        some = places[start : start + PIECE]
        equal = [""] * len(some)
        for at in np.flatnonzero(has_equal[some]).tolist():
            equal[at] = f',"equal":{orjson.dumps(found.equal_names(some[at])).decode()}'
        numbers = (_numbers(column[some]) for column in columns.values())
        yield from map(fill_in, zip(names.all_of(sets.members[some]), *numbers, equal, strict=True))


def _quotable(found: Slices) -> Names:
    """The names as they stand between the quotes of JSON; what joins them needs no escape."""
    return Names(tuple(orjson.dumps(name).decode()[1:-1] for name in found.names.generators), found.names.bare)


def _numbers(column: Any) -> list[str]:
    """Numbers as JSON, null for NaN."""
    return orjson.dumps(column, option=orjson.OPT_SERIALIZE_NUMPY).decode()[1:-1].split(",")


def _by_incon(found: Slices) -> Any:
    """Places of the sets whose inconsistency was worked out, the largest first; those without a value last."""
    sets = found.sets
    asked = np.ones(len(sets), bool)
    if found.incon_of == "base":
        asked = ((sets.members >= 0).sum(axis=1) == 1) & (sets.members[:, 0] < found.names.bare)
    places = np.flatnonzero(asked)
    return places[np.argsort(-sets.incon[places], kind="stable")]


def _inconsistencies(found: Slices, places: Any) -> Iterator[str]:
    """Each as JSON."""
    sets, names = found.sets, _quotable(found)
    fill_in = '{"name":"%s","value":%s,"attained_at":%s,"change":%s}'.__mod__
    for start in range(0, len(places), PIECE):
        some = places[start : start + PIECE]
        inside, incon = sets.attained[some], sets.incon[some]
        none = np.isnan(incon)
        changes = np.where(none, np.nan, sets.value[some] - sets.value[inside])
        attained = [f'"{name}"' for name in names.all_of(sets.members[inside])]
        for at in np.flatnonzero(none | (inside == WHOLE)).tolist():
            attained[at] = "null" if none[at] else f'"{WHOLE_NAME}"'
        columns = (_numbers(incon), attained, _numbers(changes))
        yield from map(fill_in, zip(names.all_of(sets.members[some]), *columns, strict=True))


def _whole(found: Slices) -> dict[str, Any]:
    whole = found.whole
    attained = None if whole.attained is None else found.set_name(whole.attained)
    counts = {"name": WHOLE_NAME, "size": whole.size, "samples": whole.samples}
    ends = {"value": whole.value, "lower": whole.lower, "upper": whole.upper}
    return {**counts, **ends, "inconsistency": whole.incon, "attained_at": attained}


def _point(found: Slices) -> dict[str, Any] | None:
    point = found.point
    if point is None:
        return None
    named = [None if place is None else found.set_name(place) for place in (point.max_at, point.min_at)]
    return {
        "row": point.row,
        "max": point.maximum,
        "min": point.minimum,
        "max_at": named[0],
        "min_at": named[1],
        "neighbourhoods": found.names.all_of(found.sets.members[point.neighbourhoods]),
    }


# --- words and tables ------------------------------------------------------------------------------------------------
def number(found: Slices, value: float | None) -> str:
    """A value for people: a share in percent, a loss as a number."""
    if value is None or value != value:
        return "–"
    return f"{value:.4g}" if found.metric == "loss" else f"{100 * value:.1f} %"


def interval(found: Slices, lower: float | None, upper: float | None) -> str:
    """Both ends, rounded outwards."""
    if lower is None or upper is None or lower != lower:
        return "–"
    if found.metric == "loss":
        return f"{lower:.4g} to {upper:.4g}"
    return f"{np.floor(1000 * lower) / 10:.1f} % to {np.ceil(1000 * upper) / 10:.1f} %"


def _ends(found: Slices) -> tuple[list[int], list[int]]:
    """The sets that are shown: worse, and better, than all rows."""
    value, shown = found.whole.value, found.shown.places
    if value is None:
        return [], []
    is_low = [found.sets.value[place] < value for place in shown]
    worse = [place for place, low in zip(shown, is_low, strict=True) if low == (found.worst == "low")]
    better = [place for place, low in zip(shown, is_low, strict=True) if low != (found.worst == "low")]
    return worse, better[::-1]


def _extremes(found: Slices) -> tuple[list[int], list[int]]:
    """The worst and the best of all sets, informative or not."""
    valued = int((~np.isnan(found.sets.value)).sum())
    count = min(LISTED, valued)
    return list(range(count)), list(range(valued - 1, valued - 1 - count, -1))


def _places_shown(found: Slices) -> list[int]:
    near = [] if found.point is None else [*found.point.neighbourhoods[:NEAR], *found.point.neighbourhoods[-NEAR:]]
    return sorted({*found.shown.places, *(place for end in _extremes(found) for place in end), *map(int, near)})


def of_slices(found: Slices, listed: int | None = LISTED) -> View:
    """The report; `listed` sets at either end, or all that are informative."""
    tables = []
    worse, better = _ends(found)
    informative = bool(worse or better)
    titles = ("Informative sets worse than all rows", "Informative sets better than all rows")
    if not informative:
        worse, better = _extremes(found)
        titles = ("Worst sets", "Best sets")
    for title, places in zip(titles, (worse, better), strict=True):
        if places:
            tables.append(_table(found, title, places[:listed]))
    tables.append(_incon_table(found))
    if found.point is not None:
        tables.append(_near(found))
    notes = list(_notes(found, informative))
    for title, places in zip(titles, (worse, better), strict=True):
        if listed is not None and len(places) > listed:
            notes.append(f"{title.lower()}: {listed} of {len(places)} are listed; --html shows all, --json every set")
    subtitle = found.metric + ("" if found.column is None else f" of {found.column}")
    return View(found.name, f"slices by {subtitle}", tuple(_facts(found)), tuple(tables), tuple(notes))


def _facts(found: Slices) -> Iterator[tuple[str, str]]:
    whole = found.whole
    yield "table", f"{found.table.path}, {whole.size:,} rows (sha256 {found.table.sha256[:SHORT]}…)"
    if found.predictions is not None:
        none_known = found.strange > 0 and found.strange + found.unanswered == whole.size
        doubt = ": NONE of them is a label of the table" if none_known else ""
        yield "predictions", f"{found.predictions} for {found.label}{doubt}"
    yield found.metric, MEANINGS[found.metric].format(positive=found.positive)
    at_confidence = "" if found.interval is None else f" at {100 * float(found.confidence):g} % confidence"
    yield WHOLE_NAME, f"{number(found, whole.value)} ({interval(found, whole.lower, whole.upper)}{at_confidence})"
    limits = f"at most {found.depth} sets met, at least {found.least:,} rows"
    yield "sets", f"{len(found.sets):,} from {len(found.subbasis):,} of the subbasis ({limits})"
    if len(found.equal_to):
        yield "equal sets", f"{len(found.equal_to):,} names are of a set that has another name"
    if found.interval is not None:
        yield "correction", f"Bonferroni, for the {found.looked_at:,} sets that were looked at"
    largest = found.largest_incon
    if largest is not None:
        value, place, inside = largest
        names = f"{found.set_name(place)}, in {found.set_name(inside)}"
        yield "largest Incon", f"{_difference(found, value)} with k = {found.k}: {names}"
    yield "time", duration(found.seconds)


def _difference(found: Slices, value: float) -> str:
    return f"{value:.4g}" if found.metric == "loss" else f"{100 * value:.1f} points"


def _table(found: Slices, title: str, places: Sequence[int]) -> Table:
    sets = found.sets
    rows = [
        (
            found.set_name(place) + _also(found, place),
            f"{sets.size[place]:,}",
            number(found, sets.value[place]),
            interval(found, sets.lower[place], sets.upper[place]),
            interval(found, sets.corrected_lower[place], sets.corrected_upper[place]),
        )
        for place in places
    ]
    headers = ("set", "rows", found.metric, "interval", "corrected")
    styles: tuple[Style, ...] = ("text", "number", "number", "number", "number")
    columns = len(headers) if found.interval is not None else 3
    return Table(title, headers[:columns], styles[:columns], tuple(row[:columns] for row in rows))


def _also(found: Slices, place: int) -> str:
    others = len(found.equal_names(place))
    return f" (and {others:,} more name{'s' if others > 1 else ''})" if others else ""


def _incon_table(found: Slices) -> Table:
    sets = found.sets
    places = [place for place in _by_incon(found)[:LISTED].tolist() if sets.incon[place] > 0]
    rows = tuple(
        (
            found.set_name(place),
            f"{sets.size[place]:,}",
            _difference(found, sets.incon[place]),
            found.set_name(sets.attained[place]),
            f"{sets.size[sets.attained[place]]:,}",
        )
        for place in places
    )
    title = f"Largest changes when at most {found.k:,} rows go (Incon_{found.k})"
    styles: tuple[Style, ...] = ("text", "number", "number", "text", "number")
    return Table(title, ("set", "rows", "change", "in", "rows"), styles, rows)


def _near(found: Slices) -> Table:
    assert found.point is not None
    point, sets = found.point, found.sets
    valued = [place for place in point.neighbourhoods.tolist() if not np.isnan(sets.value[place])]
    chosen = dict.fromkeys((*valued[:NEAR], *valued[-NEAR:]))
    rows = tuple((found.set_name(place), f"{sets.size[place]:,}", number(found, sets.value[place])) for place in chosen)
    ends = f"{number(found, point.minimum)} to {number(found, point.maximum)}"
    title = f"Around row {point.row}: {ends} on {len(point.neighbourhoods):,} sets and all rows"
    return Table(title, ("neighbourhood", "rows", found.metric), ("text", "number", "number"), rows)


def _notes(found: Slices, informative: bool) -> Iterator[str]:
    if not found.complete:
        yield "incomplete: a limit or an interruption cut the run short; there are sets that were not looked at"
    if informative:
        yield (
            "informative: the corrected interval excludes the value of all rows, and the set's own interval the value "
            f"of every set with one condition less; {found.shown.total:,} sets do the first alone"
        )
    elif found.interval is not None:
        yield "no set differs from all rows once intervals are corrected; the worst and best may be so by chance"
    else:
        yield "a loss has intervals where --range says between which values it must lie"
    if found.incon_of == "base":
        yield f"Incon_{found.k} is of the sets of the subbasis alone; --incon-of all works it out for every set"
    if found.unanswered:
        yield f"{found.unanswered:,} rows have no prediction: they count as wrong"
    if found.strange:
        yield f"{found.strange:,} predictions are none of the labels in the table: they count as wrong"
    if found.unjudged:
        yield f"{found.unjudged:,} rows have no label or value: they belong to sets and are not judged"
    if found.indices:
        yield index_note(found.indices, "attribute", "--attributes")
    if others := [name for name in found.skipped if name not in found.indices]:
        yield f"no sets of {', '.join(others)}: too many values that are no numbers"


# --- page ------------------------------------------------------------------------------------------------------------
def render(found: Slices) -> str:
    """One offline page with the lattice of the informative sets."""
    return fill(
        "slices.html.j2",
        found.name,
        brief(found),
        report=of_slices(found, None),
        lattice=lattice.draw(found, number),
        chart=_chart(found),
        limits=LIMITS,
    )


def _chart(found: Slices) -> plots.Chart | None:
    """Size and value of the sets of the subbasis and of the informative ones."""
    sets = found.sets
    single = (sets.members >= 0).sum(axis=1) == 1
    base = [place for place in np.flatnonzero(single).tolist() if not np.isnan(sets.value[place])]
    base = base[:: max(1, len(base) // PLOTTED)]
    groups = dict.fromkeys(base, 0) | dict.fromkeys(found.shown.places, 1)
    if not groups:
        return None
    points = [
        plots.Point(float(sets.size[place]), float(sets.value[place]), found.set_name(place), group)
        for place, group in groups.items()
    ]
    return plots.scatter(
        "Size and value of sets",
        points,
        x_label="rows",
        y_label=found.metric,
        groups=("subbasis", "informative"),
        percent=(False, found.metric != "loss"),
    )

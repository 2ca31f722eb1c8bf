"""A loss predicted for another domain to words and tables, to plain JSON data, and to a page with heat maps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from quantify.ir.transfer import Context, ContextFeature, Error, Ranked, Transfer
from quantify.report.evidence import SHORT
from quantify.report.heat_maps import HeatMap, heat_map
from quantify.report.html import fill
from quantify.report.plots import Chart, Mark, Series, line_chart
from quantify.report.view import Table, View, index_note

LISTED = 20
"""Features that the terminal lists; the JSON and the page have all."""
WIDEST, PANELS, ROUNDS = 40, 6, 10
"""Values of a feature and panels of heat maps that are drawn, and rounds of the ranking."""
CONTEXTS = 1000
"""Contexts that the page has a row for; the JSON has all."""
LIMITS = (
    "Whether the loss in a context is the same there: another sensor, other labels, a feature not in the table.",
    "The loss in contexts that the test set does not have: the prediction charges them with the maximum.",
    "What the choice of the features and of their number adds to the uncertainty: the interval takes both as given.",
)
SOURCES = {
    "rows": "its rows are a sample of the operating domain",
    "weights": "a joint table with weights",
    "marginals": "marginals, taken as independent",
}


def to_dict(found: Transfer) -> dict[str, Any]:
    """The answer of `quantify transfer`."""
    made = found.prediction
    chosen = found.chosen
    return {
        "schema": "quantify/1",
        "table": {"path": found.table.path, "sha256": found.table.sha256, "rows": found.rows},
        "loss": {
            "column": found.loss_column,
            "observed": found.observed,
            "minimum": found.least,
            "maximum": found.most,
            "maximum_is": found.most_is,
            "levels": found.loss_levels,
        },
        "skipped": list(found.skipped),
        "ranking": [_ranked(one) for one in found.ranking],
        "k": found.k,
        "k_is": found.k_is,
        "splits": {"count": found.splits, "fit_rows": found.fit_rows, "seed": found.seed},
        "baseline": _error(found.baseline),
        "errors": [_error(one) for one in found.errors],
        "context": {
            "features": [one.name for one in chosen],
            "tested": len(found.contexts),
            "possible": found.possible,
        },
        "contexts": [_context(one, chosen) for one in found.contexts],
        "prediction": None
        if made is None
        else {
            "loss": made.loss,
            "lower": made.lower,
            "upper": made.upper,
            "untested": made.untested,
            "outside": made.outside,
            "confidence": made.confidence,
            "approximate": True,
            "replicates": made.replicates,
            "by_k": [{"k": one.k, "loss": one.loss, "untested": one.untested} for one in made.by_k],
            "operating": {
                "path": made.file.path, "sha256": made.file.sha256, "source": made.source, "rows": made.rows,
            },
        },
        "warnings": [{"code": one.code, "text": one.text} for one in found.warnings],
    }  # fmt: skip


def _ranked(one: Ranked) -> dict[str, Any]:
    feature = one.feature
    return {
        "feature": feature.name,
        "delta_i": one.delta,
        "information": one.information,
        "kind": feature.kind,
        "values": len(feature.labels),
        "edges": None if feature.edges is None else list(feature.edges),
        "missing": feature.missing,
        "round": list(one.candidates),
    }


def _error(one: Error) -> dict[str, Any]:
    return {"k": one.k, "error": one.error, "standard_error": one.standard_error, "untested": one.untested}


def _context(one: Context, chosen: Sequence[ContextFeature]) -> dict[str, Any]:
    return {
        "values": {
            feature.name: feature.labels[place] for feature, place in zip(chosen, one.values, strict=True)
        },
        "rows": one.rows,
        "loss": one.loss,
        "operating": one.operating,
    }  # fmt: skip


# --- words -----------------------------------------------------------------------------------------------------------
def of_transfer(found: Transfer, listed: int | None = LISTED) -> View:
    """The report; at most `listed` features of the ranking (None: all)."""
    table = Table(
        "Features by the information that they add (nats)",
        ("", "feature", "ΔI", "I(L, C)", "values", "missing"),
        ("number", "text", "number", "number", "number", "number"),
        tuple(
            (
                str(place), one.feature.name, _number(one.delta), _number(one.information),
                f"{len(one.feature.labels):,}{' bins' if one.feature.kind == 'bins' else ''}",
                f"{one.feature.missing:,}",
            )
            for place, one in enumerate(found.ranking[:listed], 1)
        ),
    )  # fmt: skip
    errors = Table(
        f"Expected error of predictions with the first K features ({found.splits:,} splits)",
        ("K", "error", "± standard error", "untested", "", "prediction", "untested there"),
        ("number", "number", "number", "number", "text", "number", "number"),
        tuple(
            (
                str(one.k), _number(one.error), _number(one.standard_error), _percent(one.untested),
                "no context" if one.k == 0 else "chosen" if one.k == found.k else "",
                *_predicted(found, one.k),
            )
            for one in (found.baseline, *found.errors[: listed and max(listed, found.k)])
        ),
    )  # fmt: skip
    if found.prediction is None:
        errors = Table(errors.title, errors.headers[:-2], errors.styles[:-2], tuple(row[:-2] for row in errors.rows))
    notes = [f"{one.code}: {one.text}" for one in found.warnings]
    if found.skipped:
        notes.append(index_note(found.skipped, "feature", "--context"))
    if listed is not None and len(found.ranking) > listed:
        notes.append(f"the first {listed} of {len(found.ranking):,} features are listed; --json and --html have all")
    return View(found.table.path, "loss by context", tuple(_facts(found)), (table, errors), tuple(notes))


def _predicted(found: Transfer, k: int) -> tuple[str, str]:
    """The prediction with k features, and what of the operating domain is untested then."""
    every = () if found.prediction is None else found.prediction.by_k
    return next(((_number(one.loss), _percent(one.untested)) for one in every if one.k == k), ("", ""))


def _facts(found: Transfer) -> Iterator[tuple[str, str]]:
    made = found.prediction
    if made is not None:
        yield "predicted loss", _number(made.loss)
        yield (
            "interval",
            f"{_number(made.lower)} to {_number(made.upper)} (approximate, bootstrap, confidence {made.confidence:g})",
        )
        yield "untested", f"{_percent(made.untested)} of the operating domain, at loss {found.most:g}"
        where = "" if made.rows is None else f", {made.rows:,} rows"
        yield (
            "operating domain",
            f"{made.file.path}{where}: {SOURCES[made.source]} (sha256 {made.file.sha256[:SHORT]}…)",
        )
    yield "loss on the test set", f"{_number(found.observed)}, mean of {found.loss_column} over {found.rows:,} rows"
    yield "maximum loss", f"{found.most:g} ({'losses lie in 0 to 1' if found.most_is == '1' else found.most_is})"
    names = ", ".join(one.name for one in found.chosen)
    yield "context", f"K = {found.k} ({found.k_is}): {names}"
    yield "contexts", f"{len(found.contexts):,} tested of {found.possible:,} that these values make"
    if found.loss_levels > 2:
        yield "loss levels", f"{found.loss_levels:,} that the ranking tells apart"
    yield "seed", str(found.seed)


def _number(value: float) -> str:
    return f"{value:.4g}"


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


# --- drawings --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Maps:
    """Heat maps of one value of the third feature."""

    title: str
    maps: tuple[HeatMap, ...]


def render(found: Transfer) -> str:
    """One offline page: the ranking, the errors, and heat maps of losses and probabilities by context."""
    return fill(
        "transfer.html.j2",
        f"transfer · {found.table.path}",
        to_dict(found),
        report=of_transfer(found, None),
        charts=[_errors(found)],
        rounds=_rounds(found),
        panels=list(_panels(found)),
        contexts=_table(found),
        limits=LIMITS,
    )


def _errors(found: Transfer) -> Chart:
    every = (found.baseline, *found.errors)
    series = Series(
        "expected error", tuple(float(one.k) for one in every), tuple(one.error for one in every),
        tuple(one.error - one.standard_error for one in every), tuple(one.error + one.standard_error for one in every),
        dots=True,
    )  # fmt: skip
    return line_chart(
        "Expected prediction error (band: ± one standard error)", [series], x_label="number of features K",
        y_label="error", marks=[Mark(found.k, "chosen")], zero=True,
    )  # fmt: skip


def _rounds(found: Transfer) -> HeatMap:
    """ΔI of the features round by round, the chosen ones first."""
    rounds = found.ranking[:ROUNDS]
    order = [found.features.index(one.feature) for one in found.ranking[:WIDEST]]
    return heat_map(
        "ΔI by round of the ranking (nats)", [str(place + 1) for place in range(len(rounds))],
        [found.features[place].name for place in order],
        [[one.candidates[place] for one in rounds] for place in order],
        x_label="round", y_label="feature", signed=True, absent="chosen before",
    )  # fmt: skip


def _panels(found: Transfer) -> Iterator[Maps]:
    """Probabilities and losses by the first two features, apart for each value of the third if it has few.

    Over features that are not drawn, probabilities are added and losses averaged over the rows of the test set.
    """
    chosen = found.chosen
    third = chosen[2] if len(chosen) > 2 and len(chosen[2].labels) <= PANELS else None
    for value in range(len(third.labels)) if third is not None else (None,):
        contexts = [one for one in found.contexts if value is None or one.values[2] == value]
        title = "" if value is None or third is None else f"{third.name}: {third.labels[value]}"
        if any(len(one.labels) > WIDEST for one in chosen[:2]):
            title += f" (the first {WIDEST} values of each feature)"
        yield Maps(title, tuple(_maps(found, contexts)))


def _maps(found: Transfer, contexts: Sequence[Context]) -> Iterator[HeatMap]:
    first = found.chosen[0]
    second = found.chosen[1] if len(found.chosen) > 1 else None
    columns = first.labels[:WIDEST]
    rows = ("all",) if second is None else second.labels[:WIDEST]
    cells: dict[tuple[int, int], list[Context]] = {}
    for one in contexts:
        cells.setdefault((one.values[1] if second is not None else 0, one.values[0]), []).append(one)

    def drawn(title: str, value: Any, absent: str, high: float | None = None) -> HeatMap:
        values = [
            [value(cells[i, j]) if (i, j) in cells else None for j in range(len(columns))] for i in range(len(rows))
        ]
        return heat_map(
            title, columns, rows, values, x_label=first.name, y_label="" if second is None else second.name,
            low=min(0.0, found.least), high=high, absent=absent,
        )  # fmt: skip

    yield drawn("Loss g by context", _loss, "untested", found.most)
    yield drawn("Test set: share of the rows", lambda every: sum(one.rows for one in every) / found.rows, "no row")
    if found.prediction is not None:
        yield drawn(
            "Operating domain: probability of tested contexts",
            lambda every: sum(one.operating or 0.0 for one in every),
            "untested",
        )


def _loss(every: Sequence[Context]) -> float:
    return sum(one.rows * one.loss for one in every) / sum(one.rows for one in every)


def _table(found: Transfer) -> Table:
    names = [one.name for one in found.chosen]
    every = sorted(found.contexts, key=lambda one: -one.rows)[:CONTEXTS]
    if len(every) == len(found.contexts):
        every = list(found.contexts)
    rows = tuple(
        (
            *(feature.labels[place] for feature, place in zip(found.chosen, one.values, strict=True)),
            f"{one.rows:,}", _number(one.loss), "" if one.operating is None else _percent(one.operating),
        )
        for one in every
    )  # fmt: skip
    left = len(found.contexts) - len(every)
    title = "Tested contexts" + (f" ({left:,} with fewer rows left out; the JSON has them)" if left else "")
    headers = (*names, "rows", "loss g", "operating")
    return Table(title, headers, (*("text" for _ in names), "number", "number", "number"), rows)  # type: ignore[arg-type]

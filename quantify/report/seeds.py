"""A recipe tried with several seeds to words and tables, to plain JSON data, and to a page with every case."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from quantify.ir.digits import exact_ratio
from quantify.ir.recipe import Checkpoint, Recipe
from quantify.report.evidence import SHORT
from quantify.report.html import fill
from quantify.report.numbers import percent, percent_range
from quantify.report.view import Table, View

LISTED = 20
"""Cases whose verdict changes that the terminal lists; the JSON and the page have all."""
LIMITS = (
    "Whether the seeds were chosen before any was judged, whether some were left out, whether only the seed differs.",
    "A failure rarer than about one seed in {seeds}: if none of these seeds has it, the interval cannot know of it.",
    "Cases of another kind than those of the suite.",
    "Whether cases of the suite are in the training data: the gate asks that of the checkpoint that is released.",
)


def to_dict(recipe: Recipe) -> dict[str, Any]:
    """The answer of `quantify seeds`."""
    reading = recipe.reading
    changing = set(recipe.changing())
    return {
        "schema": "quantify/1",
        "recipe": recipe.name,
        "policy": {
            "path": recipe.policy,
            "sha256": recipe.policy_sha256,
            "confidence": float(recipe.confidence),
            "allow_approximate_methods": recipe.allow_approximate,
        },
        "suite": {
            "name": recipe.suite,
            "path": recipe.data.path,
            "sha256": recipe.data.sha256,
            "cases": len(recipe.cases),
        },
        "checkpoints": [_checkpoint(one) for one in recipe.checkpoints],
        "rate": {
            "metric": reading.metric,
            "lower": exact_ratio(reading.lower),
            "upper": exact_ratio(reading.upper),
            "value": float(reading.value),
            "guarantee": str(reading.guarantee),
            "approximate": reading.approximate,
            "confidence": float(recipe.confidence),
        },
        "rule": {
            "id": recipe.rule,
            "criterion": reading.metric,
            "min": None if recipe.minimum is None else exact_ratio(recipe.minimum),
            "max": None if recipe.maximum is None else exact_ratio(recipe.maximum),
        },
        "outcome": recipe.outcome.value,
        "exit_code": recipe.outcome.exit_code,
        "reasons": [{"code": reason.code, "text": reason.text} for reason in recipe.reasons],
        "needs": [need.text for need in recipe.needs],
        "changing": [recipe.cases[place] for place in sorted(changing)],
        "cases": [
            {
                "id": case,
                "changes": place in changing,
                "verdicts": {one.name: one.verdicts[place] for one in recipe.checkpoints},
            }
            for place, case in enumerate(recipe.cases)
        ],
    }


def _checkpoint(one: Checkpoint) -> dict[str, Any]:
    return {
        "name": one.name,
        "run": one.digest,
        "system": one.system,
        "model": None if one.model is None else {"path": one.model.path, "sha256": one.model.sha256},
        "failed": one.failed,
        "correct": one.correct,
        "unanswered": one.unanswered,
    }


def asked(recipe: Recipe) -> str:
    """What the rule asks for."""
    low = "" if recipe.minimum is None else f" ≥ {percent(recipe.minimum)}"
    high = "" if recipe.maximum is None else f" ≤ {percent(recipe.maximum)}"
    return f"correct{low}{' and' if low and high else ''}{high}"


def of_recipe(recipe: Recipe, listed: int | None = LISTED) -> View:
    """The report; `listed` cases whose verdict changes are named (None: none, as the page shows every case)."""
    reading, total = recipe.reading, len(recipe.cases)
    facts = [
        ("verdict", f"{recipe.outcome.value} (exit code {recipe.outcome.exit_code})"),
        ("rule", f"{recipe.rule}: {asked(recipe)}"),
        ("expected rate", percent(reading.value)),
        (
            "interval",
            f"{percent_range(reading.lower, reading.upper)} (approximate, confidence {percent(recipe.confidence)})",
        ),
        ("policy", f"{recipe.policy} (sha256 {recipe.policy_sha256[:SHORT]}…)"),
        ("suite", f"{recipe.data.path}, {total:,} cases (sha256 {recipe.data.sha256[:SHORT]}…)"),
        *(("why", f"{reason.code}: {reason.text}") for reason in recipe.reasons),
        *(("needed", need.text) for need in recipe.needs),
    ]
    rows = tuple(
        (
            one.name,
            one.system,
            f"{one.correct:,} of {total:,}" + (f", {one.unanswered:,} without an answer" if one.unanswered else ""),
            _rate(one, total),
            one.digest[:SHORT],
        )
        for one in recipe.checkpoints
    )
    headers = ("checkpoint", "system", "correct", "rate", "run")
    tables = [Table("Checkpoints", headers, ("text", "text", "number", "number", "text"), rows)]
    changing = recipe.changing()
    notes = [f"{len(changing):,} of {total:,} cases change their verdict between seeds"]
    if listed is not None and changing:
        names = [one.name for one in recipe.checkpoints]
        shown = tuple(
            (recipe.cases[place], *(one.verdicts[place] for one in recipe.checkpoints)) for place in changing[:listed]
        )
        styles = ("text", *("text" for _ in names))
        tables.append(Table("Cases whose verdict changes between seeds", ("case", *names), styles, shown))  # type: ignore[arg-type]
        if len(changing) > listed:
            notes.append(f"the first {listed} of them are listed; --json and --html have all")
    return View(recipe.name, "recipe over seeds", tuple(facts), tuple(tables), tuple(notes))


def _rate(one: Checkpoint, total: int) -> str:
    return percent_range(Fraction(one.correct, total), Fraction(one.correct + one.unanswered, total))


def render(recipe: Recipe) -> str:
    """One offline page with every case under every checkpoint."""
    changing = set(recipe.changing())
    rows = [
        (case, place in changing, [one.verdicts[place] for one in recipe.checkpoints])
        for place, case in enumerate(recipe.cases)
    ]
    rows.sort(key=lambda row: not row[1])
    return fill(
        "seeds.html.j2",
        recipe.name,
        to_dict(recipe),
        report=of_recipe(recipe, None),
        checkpoints=[one.name for one in recipe.checkpoints],
        rows=rows,
        limits=[limit.format(seeds=len(recipe.checkpoints)) for limit in LIMITS],
    )

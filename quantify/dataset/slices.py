"""A table, what is right and what a model says in, the sets of rows on which it does best and worst out.

After "a topological framework for evaluating machine learning models": sets of rows form a space, values on them a
presheaf. Definitions 3.1 and 3.2 and section 4.1 are implemented in `families` and `assignment`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quantify.dataset import assignment, bounds, families, informative, subbasis
from quantify.dataset.assignment import Assignment, Metric
from quantify.dataset.columns import Columns
from quantify.dataset.families import Family, Space
from quantify.errors import InputError, UndecidedError
from quantify.ir.record import DataRef, ModelRef, PropertyRef
from quantify.ir.slices import JOIN, WHOLE, Ints, Names, Point, Sets, Slices, Whole
from quantify.resources import Limits, Progress

MOST_UNIONS = 100_000
MOST_COMPARED = 500_000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """What is asked."""

    label: str | None
    metric: Metric = "accuracy"
    column: str | None = None
    positive: str | None = None
    worst: Literal["low", "high"] | None = None
    """None: high for a loss, low for all else."""
    value_range: tuple[float, float] | None = None
    attributes: tuple[str, ...] | None = None
    present_only: bool = False
    most_values: int = 10
    parts: int = 4
    depth: int = 2
    least: int = 20
    unions: int = 1
    """Up to so many sets are united; 1: none."""
    k: int = 20
    incon_of: Literal["all", "base"] | None = None
    """None: all sets up to `MOST_COMPARED`, beyond those of the subbasis."""
    point: int | None = None
    confidence: Fraction = Fraction(95, 100)

    @property
    def worst_is(self) -> Literal["low", "high"]:
        """At which end the bad values are."""
        return self.worst or ("high" if self.metric == "loss" else "low")


@dataclass(frozen=True)
class Predicted:
    """What a model says of each row of a table."""

    answers: tuple[str | None, ...]
    """`str(class)`, None for no answer."""
    source: str
    """A column, or a model's file."""
    column: str | None = None
    model: ModelRef | None = None
    property: PropertyRef | None = None
    data: tuple[DataRef, ...] = ()


def of_column(table: Columns, name: str) -> Predicted:
    """Predictions that the table has."""
    column = table.column(name)
    texts = (*column.texts(), None)
    return Predicted(tuple(texts[code] for code in column.codes.tolist()), name, name)


def look(
    table: Columns,
    plan: Plan,
    predicted: Predicted | None,
    limits: Limits,
    progress: Progress,
    isa: int = 0,
) -> Slices:
    """Every set, its value with intervals, its inconsistency, and what surrounds the point.

    Args:
        isa: The path of the native code, as `families.Space` takes it.

    Raises:
        InputError: A column that is not there or says what it cannot; no set has so many rows; too many unions.
        UndecidedError: A limit was reached before there was any set, or memory ran out.
    """
    began = time.monotonic()
    _check(table, plan)
    progress.update("reading columns")
    assigned = _assigned(table, plan, predicted)
    others = [name for name in (plan.column, None if predicted is None else predicted.column) if name is not None]
    found = subbasis.build(
        table,
        plan.label,
        plan.attributes,
        others,
        present_only=plan.present_only,
        most_values=plan.most_values,
        parts=plan.parts,
    )
    space = Space([one.rows for one in found.sets], assigned, isa=isa)
    names, distinct, others_, equal_to, complete = _open_sets(space, found, plan, limits, progress)
    values, order = _worst_first(assigned, distinct, plan)
    whole_value = _whole_value(assigned)
    everything = np.flatnonzero(distinct.size == table.rows)
    looked_at = len(distinct) + (not len(everything))
    progress.update("comparing values")
    incon_of = plan.incon_of or ("all" if len(distinct) <= MOST_COMPARED else "base")
    distinct, values = distinct.taken(order), values[order]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    with ThreadPoolExecutor(min(limits.jobs, 2)) as pool:
        intervals = _intervals(pool, assigned, plan, distinct, values, looked_at)
        incon, attained, of_whole, done = _inconsistency(
            space, distinct, values, whole_value, plan.k, incon_of, limits, progress
        )
    plain, corrected = intervals
    sizes, samples, hits = (some.astype(np.int64) for some in (distinct.size, distinct.samples, distinct.hits))
    sets = Sets(distinct.members, sizes, samples, hits, values, *plain, *corrected, incon, attained)
    equal = place[equal_to]
    equal_order = np.argsort(equal, kind="stable")
    whole = _whole(assigned, plan, whole_value, of_whole, table.rows)
    return Slices(
        table=table.ref(),
        label=plan.label,
        predictions=None if predicted is None else predicted.source,
        model=None if predicted is None else predicted.model,
        declared=None if predicted is None else predicted.property,
        data=() if predicted is None else predicted.data,
        metric=plan.metric,
        column=plan.column,
        positive=plan.positive,
        worst=plan.worst_is,
        depth=plan.depth,
        least=plan.least,
        k=plan.k,
        unions=plan.unions,
        incon_of=incon_of,
        confidence=plan.confidence,
        interval=_kind(plan),
        value_range=plan.value_range,
        looked_at=looked_at,
        subbasis=tuple((one.name, one.attribute, int(one.rows.sum())) for one in found.sets),
        skipped=found.skipped,
        indices=found.indices,
        names=names,
        sets=sets,
        equal_members=others_.members[equal_order],
        equal_to=equal[equal_order],
        whole=whole,
        point=None if plan.point is None else _point(space, sets, whole, plan),
        shown=informative.choose(space, sets, whole),
        unanswered=assigned.unanswered,
        unjudged=assigned.unjudged,
        strange=assigned.strange,
        rounding=_rounding(assigned),
        complete=complete and done,
        seconds=time.monotonic() - began,
    )


def _check(table: Columns, plan: Plan) -> None:
    if plan.point is not None and not 0 <= plan.point < table.rows:
        raise InputError(
            f"{table.path}: there is no row {plan.point}: it has {table.rows:,} rows",
            f"rows are counted from 0: --point 0 to {table.rows - 1}",
        )
    if plan.least > table.rows:
        raise InputError(
            f"{table.path}: no set has {plan.least:,} rows: the table has {table.rows:,}",
            f"give a smaller --min-size, such as {max(1, table.rows // 20)}",
        )


def _assigned(table: Columns, plan: Plan, predicted: Predicted | None) -> Assignment:
    if plan.metric in ("loss", "rate"):
        if plan.column is None:
            raise InputError(f"{plan.metric} is of a column", "name it with --column")
        found = assignment.of_column(table, table.column(plan.column), plan.metric)
        if found.values is not None and plan.value_range is not None:
            _check_range(table, plan.column, found, plan.value_range)
        return found
    if plan.label is None or predicted is None:
        raise InputError(
            f"{plan.metric} needs what is right and what was predicted",
            "name the columns: --label Y --pred YHAT, or ask a model: --label Y --model MODEL",
        )
    return assignment.of_predictions(table, table.column(plan.label), predicted.answers, plan.metric, plan.positive)


def _check_range(table: Columns, column: str, found: Assignment, value_range: tuple[float, float]) -> None:
    assert found.values is not None
    low, high = value_range
    beyond = np.flatnonzero(found.within & ((found.values < low) | (found.values > high)))
    if len(beyond):
        row = int(beyond[0])
        raise InputError(
            f"{table.path}: {column!r} of row {row} is {found.values[row]:g}, outside {low:g} to {high:g}",
            "--range holds the least and the greatest value that is possible",
        )


# --- the sets --------------------------------------------------------------------------------------------------------
def _open_sets(
    space: Space, found: subbasis.Subbasis, plan: Plan, limits: Limits, progress: Progress
) -> tuple[Names, Family, Family, Ints, bool]:
    """Names, the distinct sets, the others, which of the distinct ones these equal, and whether that is all."""
    generators = [one.name for one in found.sets]
    bare = len(generators)
    every, complete = families.intersections(space, plan.depth, plan.least, limits, progress)
    progress.update("comparing equal sets")
    distinct, others, equal_to = families.merged(space, every)
    if not len(distinct) and not complete:
        raise UndecidedError("stopped before any set was looked at", "give more time: --timeout")
    if not len(distinct):
        sizes = max(int(one.rows.sum()) for one in found.sets)
        raise InputError(
            f"no set has {plan.least:,} rows: the largest of the subbasis has {sizes:,}",
            f"give a smaller --min-size: {max(1, sizes)}",
        )
    if plan.unions > 1 and complete:
        bits, parts, complete = families.unions(space, distinct, plan.unions, MOST_UNIONS, limits, progress)
        plain = Names(tuple(generators), bare).all_of(distinct.members)
        bracketed = [
            f"({name})" if row[1:].max(initial=-1) >= 0 else name
            for name, row in zip(plain, distinct.members, strict=True)
        ]
        generators += [JOIN.join(bracketed[part] for part in some) for some in parts]
        if len(bits):
            space.with_generators(bits)
            united, all_described = families.intersections(space, plan.depth, 1, limits, progress, first=bare)
            complete = complete and all_described
            distinct = _appended(distinct, united)
    return Names(tuple(generators), bare), distinct, others, equal_to, complete


def _appended(one: Family, other: Family) -> Family:
    fields = {name: np.concatenate((getattr(one, name), getattr(other, name))) for name, _ in families.FIELDS}
    total = None if one.sum is None or other.sum is None else np.concatenate((one.sum, other.sum))
    return Family(**fields, sum=total)


def _worst_first(assigned: Assignment, distinct: Family, plan: Plan) -> tuple[Floats, Ints]:
    """The values, and the places in order: of equal values the larger set first, no value last."""
    values = assigned.value_of(distinct.hits.astype(np.int64), distinct.samples.astype(np.int64), distinct.sum)
    badness = values if plan.worst_is == "low" else -values
    order = np.lexsort((-distinct.size.astype(np.int64), badness))
    return values, order.astype(np.int64)


def _whole_value(assigned: Assignment) -> Floats:
    """Of all rows, as an array of one."""
    sums = None if assigned.values is None else np.array([assigned.values[assigned.within].sum()])
    return assigned.value_of(np.array([assigned.hits.sum()]), np.array([assigned.within.sum()]), sums)


# --- values and how they change --------------------------------------------------------------------------------------
def _inconsistency(
    space: Space,
    distinct: Family,
    values: Floats,
    whole: Floats,
    k: int,
    incon_of: Literal["all", "base"],
    limits: Limits,
    progress: Progress,
) -> tuple[Floats, Ints, tuple[float, int] | None, bool]:
    """Incon_k and where it is attained for each set, the same for all rows, and whether all were compared."""
    single = (distinct.members >= 0).sum(axis=1) == 1
    base = single & (distinct.members[:, 0] < space.bare)
    of = np.flatnonzero(base if incon_of == "base" else np.ones(len(distinct), bool))
    most, attained, finished = families.inconsistency(space, distinct, values, of, k, limits, progress)
    incon, where = np.full(len(distinct), np.nan), np.full(len(distinct), WHOLE, np.int64)
    incon[of], where[of] = most, attained
    of_whole = None
    if not np.isnan(whole[0]):
        near = np.flatnonzero((distinct.size.astype(np.int64) >= space.rows - k) & ~np.isnan(values))
        differences = np.abs(values[near] - whole[0])
        of_whole = (0.0, WHOLE)
        if len(near) and differences.max() > 0:
            of_whole = (float(differences.max()), int(near[differences.argmax()]))
    return incon, where, of_whole, finished == len(of)


def _kind(plan: Plan) -> Literal["clopper-pearson", "hoeffding"] | None:
    if plan.metric != "loss":
        return "clopper-pearson"
    return None if plan.value_range is None else "hoeffding"


def _ends(
    assigned: Assignment, plan: Plan, hits: NDArray[Any], samples: NDArray[Any], values: Floats, risk: Fraction
) -> tuple[Floats, Floats]:
    if assigned.values is not None:
        if plan.value_range is None:
            return np.full(len(values), np.nan), np.full(len(values), np.nan)
        return bounds.means(values, samples, *plan.value_range, risk)
    lower, upper = bounds.proportions(hits, samples, risk)
    if assigned.metric == "f1":
        # F1 = 2J/(1+J) rises with J = TP/(TP+FP+FN), which is what the hits are a share of.
        lower, upper = 2 * lower / (1 + lower), 2 * upper / (1 + upper)
    return lower, upper


def _intervals(
    pool: Executor, assigned: Assignment, plan: Plan, distinct: Family, values: Floats, looked_at: int
) -> Iterator[tuple[Floats, Floats]]:
    """Both ends for each set by itself, then corrected by Bonferroni for all at once; the pool begins with both."""
    risk = 1 - plan.confidence
    ends = partial(_ends, assigned, plan, distinct.hits, distinct.samples, values)
    return pool.map(ends, (risk, risk / looked_at))


def _whole(assigned: Assignment, plan: Plan, value: Floats, of_whole: tuple[float, int] | None, rows: int) -> Whole:
    hits, samples = (np.array([some.sum()]) for some in (assigned.hits, assigned.within))
    lower, upper = _ends(assigned, plan, hits, samples, value, 1 - plan.confidence)
    hit = 0 if assigned.values is not None else int(hits[0])
    incon, attained = of_whole or (None, None)
    return Whole(rows, int(samples[0]), hit, _some(value), _some(lower), _some(upper), incon, attained)


def _some(one: Floats) -> float | None:
    return None if np.isnan(one[0]) else float(one[0])


def _rounding(assigned: Assignment) -> float:
    """A sum of n floats errs by less than n times half a unit in the last place of the sum of their sizes."""
    if assigned.values is None:
        return 0.0
    return float(8 * len(assigned.values) * np.abs(assigned.values).max() * np.finfo(np.float64).eps)


def _point(space: Space, sets: Sets, whole: Whole, plan: Plan) -> Point:
    """The neighbourhoods of a row, all rows among them; of equal values the larger set."""
    assert plan.point is not None
    position = int(np.flatnonzero(space.order == plan.point)[0])
    has = (space.sets[:, position >> 6] >> np.uint64(position & 63) & np.uint64(1)).astype(bool)
    inside = (has[sets.members] | (sets.members < 0)).all(axis=1)
    places = np.flatnonzero(inside)
    valued = places[~np.isnan(sets.value[places])]
    found: list[tuple[float, int, int]] = [
        (float(sets.value[place]), int(sets.size[place]), int(place)) for place in valued
    ]
    if whole.value is not None:
        found.append((whole.value, whole.size, WHOLE))
    if not found:
        return Point(plan.point, None, None, None, None, places)
    most = max(found, key=lambda one: (one[0], one[1]))
    least = min(found, key=lambda one: (one[0], -one[1]))
    return Point(plan.point, most[0], least[0], most[2], least[2], places)

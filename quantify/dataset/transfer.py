"""A table of losses and context features in, the loss in another operating domain out.

"Network Generalization Prediction for Safety Critical Tasks in Novel Operating Domains": the features are ranked
(Algorithm 1), their number is chosen by splits of the test set (Algorithm 2), g(c) is the mean loss of all test rows of
a context (equation 2), and the prediction is Σ p(c)·g(c) over the operating domain, untested contexts at the maximum
loss (equation 10). Everything is float64; cells are placed into bins, and marginals multiplied, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quantify.dataset import columns, context_choice, operating, transfer_interval
from quantify.dataset.columns import Columns, written
from quantify.dataset.context_choice import Round
from quantify.dataset.contexts import BINS, Codes, Coding, coding
from quantify.dataset.operating import Marginals, Operating, Subspace
from quantify.errors import InputError, UndecidedError
from quantify.ir.count import Guarantee
from quantify.ir.record import Reading
from quantify.ir.transfer import ByNumber, Context, ContextFeature, Error, KIs, Prediction, Ranked, Transfer, Warned
from quantify.resources import Limits, Progress

Floats = NDArray[np.float64]
SHOWN = 6
"""Numbers of features, at least, that a prediction is made with beside the chosen one."""
GRID = 10**12
"""Ends of the interval on record are rounded outwards to multiples of 1/GRID."""
TRUTH = {"true": 1.0, "false": 0.0}
LARGEST = 10**150
"""Of losses: the sum of the squares of more than there can be rows stays a float64."""


@dataclass(frozen=True)
class Plan:
    """What is asked for."""

    table: Path
    loss: str
    context: tuple[str, ...]
    """Columns; none: all but the loss."""
    operating: Path | None = None
    weight: str | None = None
    marginals: Path | None = None
    k: int | None = None
    """The number of features, instead of the choice."""
    choose: Literal["informative", "least"] = "informative"
    """How K is chosen: as `context_choice.choose` does with informative features, or by the least error alone."""
    splits: int = 50
    fit_share: Fraction = Fraction(1, 2)
    most: Fraction | None = None
    """The maximum loss."""
    bins: int = BINS
    categorical: tuple[str, ...] = ()
    confidence: Fraction = Fraction(95, 100)
    replicates: int = 2000


@dataclass(frozen=True)
class _Tested:
    """The test set as arrays."""

    table: Columns
    indices: tuple[str, ...]
    loss: Floats
    levels: Codes
    codings: tuple[Coding, ...]
    features: tuple[ContextFeature, ...]
    codes: tuple[Codes, ...]


@dataclass(frozen=True)
class _Scale:
    """Between which losses all lie."""

    least: float
    most: float
    most_is: Any


def transfer(plan: Plan, limits: Limits, progress: Progress) -> Transfer:
    """Rank, choose, and predict where an operating domain is given.

    Raises:
        InputError: A file that cannot be used, a column that is not there, a row without a loss, ….
        UndecidedError: A limit was reached, or Ctrl-C pressed, before the end.
    """
    tested = _read(plan)
    scale = _scale(tested.loss, plan.most)
    rounds = context_choice.rank(
        tested.levels, tested.codes, _steps("ranking the features", len(tested.codes), limits, progress)
    )
    rows = len(tested.loss)
    fit_rows = min(max(round(rows * plan.fit_share), 1), rows - 1)
    errors, untested = context_choice.errors(
        tested.loss,
        [tested.codes[one.feature] for one in rounds],
        scale.most,
        partial(context_choice.split, rows, fit_rows, limits.seed),
        plan.splits,
        limits.jobs,
        _steps("trying splits", plan.splits, limits, progress),
    )
    k, k_is = _chosen(plan, tested, rounds, errors)
    subspace, place = _subspace(tested, rounds[:k])
    losses = np.bincount(place, weights=tested.loss) / np.bincount(place)
    given = _given(plan, tested)
    domain, prediction = None, None
    if given is not None:
        domain = _operating(plan, subspace, given)
        step = _steps("bootstrapping", plan.replicates, limits, progress)
        prediction = _predict(plan, tested, scale, place, losses, domain, limits, step)
        by_k = _by_k(plan, tested, rounds[: max(k, SHOWN)], scale, given)
        prediction = replace(prediction, by_k=tuple(by_k))
    told = _told(errors, untested)
    found = Transfer(
        table=tested.table.ref(), loss_column=plan.loss, rows=rows, observed=float(tested.loss.mean()),
        skipped=tested.indices, least=scale.least, most=scale.most, most_is=scale.most_is,
        loss_levels=len(np.unique(tested.levels)), features=tested.features,
        ranking=_ranking(tested, rounds), baseline=told[0], errors=told[1:],
        k=k, k_is=k_is, splits=plan.splits, fit_rows=fit_rows,
        seed=limits.seed, contexts=_contexts(subspace, place, losses, domain),
        possible=math.prod(one.size for one in subspace.codings), prediction=prediction,
        warnings=(), readings=(),
    )  # fmt: skip
    return replace(found, warnings=tuple(_warnings(found, errors)), readings=_readings(found))


def _steps(message: str, total: int, limits: Limits, progress: Progress) -> Callable[[int], None]:
    def step(done: int) -> None:
        progress.update(message, done, total)
        if limits.expired():
            raise UndecidedError(
                f"stopped while {message}, after {done:,} of {total:,}", "run it to the end; a larger --timeout helps"
            )

    return step


# --- the test set ----------------------------------------------------------------------------------------------------
def _read(plan: Plan) -> _Tested:
    table = columns.read(plan.table)
    indices = () if plan.context else tuple(name for name in table.indices() if name != plan.loss)
    names = plan.context or tuple(name for name in table.names if name not in (plan.loss, *indices))
    table.check(plan.loss)
    for place, name in enumerate(names):
        table.check(name)
        if name == plan.loss:
            raise InputError(f"{name!r} is the loss: it cannot be a context feature", "leave it out of --context")
        if name in names[:place]:
            raise InputError(f"--context names {name!r} twice", "name it once")
    if not names:
        raise InputError(f"{plan.table}: there is no column but the loss", "context features are columns too")
    for name in plan.categorical:
        if name not in names:
            raise InputError(f"--categorical: {name!r} is no context feature", "name it in --context as well")
    if plan.k is not None and plan.k > len(names):
        raise InputError(f"--k {plan.k}: there are {len(names)} context features", f"give 1 to {len(names)}")
    if table.rows < 2:
        raise InputError(f"{plan.table}: one row cannot be split", "give the losses of a whole test set")
    loss, levels = _losses(table, plan.loss, plan.bins)
    every = [table.column(name) for name in names]
    codings = tuple(coding(column, plan.bins, column.name in plan.categorical) for column in every)
    return _Tested(
        table, indices, loss, levels, codings,
        tuple(one.feature(int((column.codes < 0).sum())) for one, column in zip(codings, every, strict=True)),
        tuple(one.codes(column) for one, column in zip(codings, every, strict=True)),
    )  # fmt: skip


def _losses(table: Columns, name: str, bins: int) -> tuple[Floats, Codes]:
    """The losses, and codes of them for the ranking: binned as features are where there are more than `bins`."""
    column = table.column(name)
    if (column.codes < 0).any():
        row = int(np.flatnonzero(column.codes < 0)[0])
        raise InputError(f"{table.path}: row {row}: there is no loss", "give every row its loss, or leave the row out")
    values = []
    for place, cell in enumerate(column.cells):
        value = TRUTH.get(cell.lower()) if isinstance(cell, str) else _finite(cell)
        if value is None:
            row = int(np.flatnonzero(column.codes == place)[0])
            text = written(cell)
            raise InputError(
                f"{table.path}: row {row}: {text if len(text) <= 40 else text[:39] + '…'!r} is no loss",
                "losses are numbers up to 1e150, or true and false",
            )
        values.append(value)
    loss = np.array(values)[column.codes]
    if column.numeric:
        return loss, coding(column, bins).codes(column)
    return loss, np.unique(loss, return_inverse=True)[1].reshape(-1)


def _finite(cell: int | Fraction) -> float | None:
    return float(cell) if -LARGEST <= cell <= LARGEST else None


def _scale(loss: Floats, declared: Fraction | None) -> _Scale:
    """The minimum and the maximum loss: 0 and 1 where all losses lie between them, unless the maximum is declared."""
    seen, smallest = float(loss.max()), float(loss.min())
    least = min(0.0, smallest)
    if declared is not None:
        if declared > LARGEST:
            raise InputError("--max-loss is above 1e150", "give the largest loss that is possible")
        if float(declared) < seen:
            raise InputError(
                f"--max-loss {float(declared):g}: the table has a loss of {seen:g}", f"give {seen:g} or more"
            )
        return _Scale(least, float(declared), "declared")
    if smallest >= 0 and seen <= 1:
        return _Scale(0.0, 1.0, "1")
    return _Scale(least, seen, "largest seen")


def _chosen(plan: Plan, tested: _Tested, rounds: Sequence[Round], errors: Floats) -> tuple[int, KIs]:
    """K, and what it is."""
    if plan.k is not None:
        return plan.k, "given"
    least = context_choice.choose(errors)
    if plan.choose == "least":
        return least, "least error"
    levels, shared = len(np.unique(tested.levels)), rounds[0].candidates
    informative = [
        context_choice.is_informative(
            len(tested.loss), levels, len(np.unique(tested.codes[one.feature])), shared[one.feature] or 0.0
        )
        for one in rounds
    ]
    k = context_choice.choose(errors, informative)
    return k, "least error" if k == least else "within one standard error"


def _subspace(tested: _Tested, rounds: Sequence[Round]) -> tuple[Subspace, Codes]:
    """The tested contexts, and which of them each row is in."""
    rows = np.stack([tested.codes[one.feature] for one in rounds], axis=1)
    contexts, place = np.unique(rows, axis=0, return_inverse=True)
    return Subspace(tuple(tested.codings[one.feature] for one in rounds), contexts), place.reshape(-1)


# --- the prediction --------------------------------------------------------------------------------------------------
def _operating(plan: Plan, subspace: Subspace, given: Columns | Marginals) -> Operating:
    if isinstance(given, Marginals):
        return operating.of_marginals(given, subspace)
    return operating.of_rows(given, plan.weight, subspace)


def _given(plan: Plan, tested: _Tested) -> Columns | Marginals | None:
    if plan.operating is not None:
        return columns.read(plan.operating)
    if plan.marginals is not None:
        return operating.load_marginals(plan.marginals, [one.name for one in tested.features])
    return None


def _by_k(
    plan: Plan, tested: _Tested, rounds: Sequence[Round], scale: _Scale, given: Columns | Marginals
) -> list[ByNumber]:
    """Predictions with the first 1, 2, … features, as far as the operating domain has them."""
    found = []
    for k in range(1, len(rounds) + 1):
        if tested.features[rounds[k - 1].feature].name not in given.names:
            break
        subspace, place = _subspace(tested, rounds[:k])
        domain = _operating(plan, subspace, given)
        losses = np.bincount(place, weights=tested.loss) / np.bincount(place)
        found.append(ByNumber(k, _loss(domain, losses, scale), domain.untested))
    return found


def _loss(domain: Operating, losses: Floats, scale: _Scale) -> float:
    """Equation 10."""
    return math.fsum([*(domain.shares * losses).tolist(), domain.untested * scale.most])


def _predict(
    plan: Plan,
    tested: _Tested,
    scale: _Scale,
    place: Codes,
    losses: Floats,
    domain: Operating,
    limits: Limits,
    step: Callable[[int], None],
) -> Prediction:
    loss = _loss(domain, losses, scale)
    values, level = np.unique(tested.loss, return_inverse=True)
    cells, counts = np.unique(place * len(values) + level.reshape(-1), return_counts=True)
    by_context = transfer_interval.Losses(
        cells // len(values), values[cells % len(values)], counts, scale.least, scale.most
    )
    lower, upper = transfer_interval.interval(
        by_context, domain.shares, domain.untested, domain.counts, float(plan.confidence), plan.replicates,
        np.random.default_rng([limits.seed, 2]), limits.jobs, step,
    )  # fmt: skip
    return Prediction(
        loss, min(lower, loss), max(upper, loss), domain.untested, domain.outside, domain.source, domain.file,
        domain.file.rows, float(plan.confidence), plan.replicates, (),
    )  # fmt: skip


def _readings(found: Transfer) -> tuple[Reading, ...]:
    """The predicted loss as rules name it: of the table, and with the operating domain's file as group."""
    made = found.prediction
    if made is None:
        return ()
    lower, upper = Fraction(math.floor(made.lower * GRID), GRID), Fraction(math.ceil(made.upper * GRID), GRID)
    return tuple(
        Reading(
            "predicted_loss", "table", Path(found.table.path).name, lower, upper, Fraction(made.loss),
            Guarantee.SAMPLED, group=group, risk=1 - Fraction(str(made.confidence)), support=found.rows,
            approximate=True,
        )
        for group in (None, Path(made.file.path).name)
    )  # fmt: skip


# --- what is told ----------------------------------------------------------------------------------------------------
def _ranking(tested: _Tested, rounds: Sequence[Round]) -> tuple[Ranked, ...]:
    first = rounds[0].candidates
    return tuple(
        Ranked(tested.features[one.feature], float(first[one.feature] or 0.0), one.delta, one.candidates)
        for one in rounds
    )


def _told(errors: Floats, untested: Floats) -> tuple[Error, ...]:
    spread = context_choice.standard_errors(errors)
    return tuple(
        Error(k, float(errors[k].mean()), float(spread[k]), float(untested[k].mean())) for k in range(len(errors))
    )


def _contexts(subspace: Subspace, place: Codes, losses: Floats, domain: Operating | None) -> tuple[Context, ...]:
    rows = np.bincount(place)
    return tuple(
        Context(tuple(values), int(rows[i]), float(losses[i]), None if domain is None else float(domain.shares[i]))
        for i, values in enumerate(subspace.contexts.tolist())
    )


def _warnings(found: Transfer, errors: Floats) -> list[Warned]:
    warnings = []
    if _is_flat(errors, found.k):
        shape = "rises" if found.errors[-1].error > found.errors[0].error else "is flat"
        better = context_choice.falls(errors, found.k, 0)
        warnings.append(Warned(
            "flat_or_rising",
            f"the expected error {shape} as features are added"
            + (", though it is lower than without any" if better else ", and is about the same without any")
            + ": features may not be informative about the loss; see what other numbers of them predict",
        ))  # fmt: skip
    if found.most_is == "largest seen":
        warnings.append(Warned(
            "maximum_loss",
            f"losses lie outside 0 to 1, so untested contexts take the largest loss seen, {found.most:g}; "
            "a larger one may be possible: declare it with --max-loss",
        ))  # fmt: skip
    made = found.prediction
    if made is not None and made.untested > 0:
        warnings.append(Warned(
            "untested",
            f"{100 * made.untested:.3g} % of the operating domain lies in contexts that the test set does not have; "
            "the prediction takes the maximum loss there, which is likely too high",
        ))  # fmt: skip
    return warnings


def _is_flat(errors: Floats, k: int) -> bool:
    """Whether the expected error does not fall with the number of features, beyond two standard errors."""
    if len(errors) == 2:
        return not context_choice.falls(errors, 1, 0)
    return k == 1 or not context_choice.falls(errors, k, 1)

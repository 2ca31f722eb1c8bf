"""Evolving masks: the operators against their definitions, selectors whose mistakes are planted, and what is kept."""

from __future__ import annotations

import itertools
import resource
import sys
import threading
import types
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_selectors
from hypothesis import given
from hypothesis import settings as drawing
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import beta, permutation_test, spearmanr

from quantify.dataset import evolution, evolve, evolve_summary, packing
from quantify.dataset.evolution import SAMPLE, SCREENING, UNVERIFIED, Book
from quantify.dataset.packing import Packing
from quantify.dataset.trials import Trials
from quantify.errors import ContradictionError, InputError, UndecidedError
from quantify.ir.evolved import Evolved, Searched, Settings, Trial
from quantify.resources import Limits, Progress, Stop

QUICK = Settings(runs=2, generations=12, population=10, screen=20, screen_p_init=0.02)


@cache
def some(count: int = 6, seed: int = 1, balance: packing.Balance = "search") -> evolve.Table:
    return evolve.Table(packing.generate(count, 120, seed, balance=balance, steps=300)[0], "generated", "toy")


def run(selector: Any, table: evolve.Table, settings: Settings = QUICK, **more: Any) -> Evolved:
    limits = Limits(None, more.pop("memory", None), more.pop("jobs", 1), more.pop("seed", 5), more.pop("stop", None))
    toy = selector if hasattr(selector, "ref") else toy_selectors.Toy(selector)
    return evolve.search(table, Packing(), toy, settings, limits, Progress(), **more)


def told(evolved: Evolved) -> str:
    """Everything that was found, as text."""
    with np.printoptions(threshold=10**9, floatmode="unique"):
        return repr(replace(evolved, searched=tuple(replace(one, curves=()) for one in evolved.searched))) + repr(
            [one.curves for one in evolved.searched]
        )


# --- operators -------------------------------------------------------------------------------------------------------
def test_initial_masks_have_the_stated_values_as_often_as_stated() -> None:
    rng = np.random.default_rng(0)
    masks = evolution.random_masks(2000, 100, 0.3, 2, rng)
    assert masks.dtype == np.int8
    # An element is drawn anew with 0.3, from five values of which 0 is one: 6 % each of the others, 76 % zeros.
    shares = [float((masks == value).mean()) for value in range(-2, 3)]
    assert np.allclose(shares, [0.06, 0.06, 0.76, 0.06, 0.06], atol=0.005)
    assert set(np.unique(masks)) == {-2, -1, 0, 1, 2}
    assert not evolution.random_masks(50, 20, 0.0, 1, rng).any()


def test_crossover_has_one_point() -> None:
    rng = np.random.default_rng(1)
    length = 7
    parents = np.repeat(np.array([[-1], [1]], np.int8), length, axis=1)[[0, 1] * 3000]
    children = evolution.crossed(parents, 0.9, rng)
    points = []
    for first, second in zip(children[0::2], children[1::2], strict=True):
        assert (first == -second).all()  # nothing is lost or made
        behind = np.flatnonzero(first == 1)
        points.append(int(behind[0]) if len(behind) else length)
        assert (first[: points[-1]] == -1).all()
        assert (first[points[-1] :] == 1).all()
    shares = np.bincount(points, minlength=length + 1) / len(points)
    assert shares[0] == 0
    assert np.allclose(shares[1:length], 0.9 / (length - 1), atol=0.03)
    assert np.isclose(shares[length], 0.1, atol=0.03)
    assert (evolution.crossed(parents, 0.0, rng) == parents).all()
    single = np.array([[1], [-1]], np.int8)
    assert (evolution.crossed(single, 1.0, rng) == single).all()


def test_tournaments_of_two_prefer_the_fitter() -> None:
    rng = np.random.default_rng(2)
    settings = Settings(population=4, p_crossover=0, p_mutation=0)
    masks = np.array([[-2], [-1], [1], [2]], np.int8)
    fitness = np.array([0.1, 0.2, 0.3, 0.4])
    children = np.concatenate([evolution.offspring(masks, fitness, settings, rng) for _ in range(4000)])[:, 0]
    # The best of two draws with replacement of four: 1, 3, 5, 7 sixteenths.
    shares = [float((children == value).mean()) for value in (-2, -1, 1, 2)]
    assert np.allclose(shares, np.array([1, 3, 5, 7]) / 16, atol=0.02)


def test_mutation_draws_each_element_with_one_over_the_length() -> None:
    rng = np.random.default_rng(3)
    length = 20
    masks = np.full((400, length), 3, np.int8)  # a value that mutation cannot draw
    settings = Settings(population=400, p_crossover=0, magnitude=1)
    children = np.concatenate([evolution.offspring(masks, np.zeros(400), settings, rng) for _ in range(50)])
    assert np.isclose((children != 3).mean(), 1 / length, atol=0.002)
    assert set(np.unique(children)) == {-1, 0, 1, 3}
    assert np.allclose([(children == value).mean() for value in (-1, 0, 1)], 1 / length / 3, atol=0.002)
    halved = replace(settings, p_mutation=0.5)
    children = np.concatenate([evolution.offspring(masks, np.zeros(400), halved, rng) for _ in range(50)])
    assert np.isclose((children != 3).mean(), 1 / length / 2, atol=0.002)


@drawing(max_examples=60, deadline=None)
@given(st.integers(2, 9), st.integers(1, 12), st.integers(1, 3), st.integers(0, 3), st.integers(0, 2**32))
def test_children_are_as_many_and_within_the_magnitude(
    size: int, length: int, magnitude: int, elite: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    settings = Settings(population=size, magnitude=magnitude, elite=elite)
    masks, fitness = evolution.random_masks(size, length, 1.0, magnitude, rng), rng.random(size)
    children = evolution.offspring(masks, fitness, settings, rng)
    assert children.shape == masks.shape
    assert (np.abs(children) <= magnitude).all()
    best = masks[np.argsort(-fitness, kind="stable")[:elite]].tolist()
    assert children[: len(best)].tolist() == best


# --- fitness ---------------------------------------------------------------------------------------------------------
def test_fitness_is_the_probability_of_the_loser_less_that_of_the_winner() -> None:
    class Fixed:
        solvers = ("a", "b")

        def winners(self, instances: NDArray[np.int64]) -> NDArray[np.int8]:
            return instances[:, 0].astype(np.int8)

    answers = np.array([[0.8, 0.2], [0.8, 0.2], [0.8, 0.2], [0.500001, 0.499999], [0.5, 0.5]])
    instances = np.array([[0], [1], [-1], [1], [-1]])
    domain: Any = Fixed()
    judged = evolution.judge(domain, toy_selectors.Toy(lambda _: answers), instances)
    assert np.allclose(judged.fitness, [-0.6, 0.6, -0.6, 2e-6, 0])
    assert judged.adversarial.tolist() == [False, True, False, False, False]
    assert judged.unverified.tolist() == [False, False, False, True, False]


@pytest.mark.parametrize("answer", [[0.4, 0.4], [1.2, -0.2], [float("nan"), 0.5], [3.0, -1.0]])
def test_what_is_no_probability_is_refused(answer: list[float]) -> None:
    selector = toy_selectors.Toy(lambda x: np.array([[0.5, 0.5]] * (len(x) - 1) + [answer]))
    with pytest.raises(InputError, match="no two probabilities"):
        evolution.judge(Packing(), selector, some(3).instances)


def test_answers_of_another_shape_are_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(3,\)"):
        evolution.judge(Packing(), toy_selectors.Toy(lambda x: np.ones(len(x))), some(3).instances)


def test_changes_of_hand_made_masks() -> None:
    original = np.array([20, 50, 50, 50, 100, 50])
    perturbed = np.array([
        [20, 50, 50, 50, 100, 50],
        [21, 51, 51, 49, 99, 50],
        [20, 49, 50, 51, 100, 51],
    ])  # fmt: skip
    samples = evolution.samples_of(original, perturbed, np.array([0.1, 0.2, 0.3]), np.array([True, False, True]))
    assert samples["changes"].tolist() == [0, 5, 3]
    assert samples["longest"].tolist() == [0, 5, 1]
    assert samples["longest_up"].tolist() == [0, 3, 1]
    assert samples["difference"].tolist() == [0, 1, 1]
    assert samples["changed_winner"].tolist() == [True, False, True]
    doubled = np.concatenate([samples, samples[[2, 0]]])
    assert len(evolution.unique(doubled)) == 3
    assert sorted(evolution.unique(doubled)["fitness"].tolist()) == [0.1, 0.2, 0.3]
    assert len(evolution.unique(np.empty(0, SAMPLE))) == 0


# --- whole searches on planted selectors -----------------------------------------------------------------------------
def test_nothing_is_found_where_the_selector_is_always_right() -> None:
    evolved = run(toy_selectors.oracle, some())
    assert [one.category for one in evolved.searched] == ["robust"] * 6
    for one in evolved.searched:
        assert (one.queries, one.kind, one.unique, one.found, one.medians) == (None, None, 0, (), {})
        assert one.best_fitness <= 0
    (draws,) = evolved.reading.draws
    assert (draws.hits, draws.samples, draws.unknown) == (0, 6, 0)
    assert evolved.reading.lower == 0
    assert float(evolved.reading.upper) == pytest.approx(1 - 0.025 ** (1 / 6), abs=1e-9)


def test_planted_mistakes_are_found_and_are_what_they_were_planted_as() -> None:
    table = some(12)
    even = table.instances[:, :2].sum(axis=1) % 2 == 0
    evolved = run(toy_selectors.planted, table, replace(QUICK, screen=3, p_init=0.01, generations=40))
    # The others are wrong from the beginning.
    assert set(evolved.excluded) == set(np.flatnonzero(~even))
    assert set(evolved.excluded.values()) == {"misclassified"}
    assert [one.row for one in evolved.searched] == np.flatnonzero(even).tolist()
    perturbable = evolved.of("perturbable")
    assert len(perturbable) >= 3
    for one in evolved.searched:
        for best in one.found:
            assert best.instance[:2].sum() % 2 == 1
            assert best.fitness == pytest.approx(0.8)
            assert set(best.mask[:2].tolist()) - {0}  # one of the first two was changed
            again = Packing().perturb(table.instances[one.row], best.mask[None])[0]
            assert (best.instance == again).all()
            assert best.winner == Packing().recheck(best.instance[None])[0]
            assert best.scores[best.winner] < best.scores[1 - best.winner]
    rate = evolved.reading
    hits = len(evolved.of("perturbable")) + len(evolved.of("fragile"))
    (draws,) = rate.draws
    assert (draws.hits, draws.samples) == (hits, even.sum())
    low = float(beta.ppf(0.025, hits, draws.samples - hits + 1))
    assert float(rate.lower) == pytest.approx(low, abs=1e-9)


def test_a_change_of_winner_that_the_selector_misses_is_of_type_two() -> None:
    # `constant` says best fit: it is right where that wins, and then wrong exactly where first fit takes over.
    table = some(16, balance="rejection")
    evolved = run(toy_selectors.constant, table, replace(QUICK, screen=0, generations=5))
    assert set(evolved.excluded) == set(np.flatnonzero(Packing().winners(table.instances) == 1))
    found = [one for one in evolved.searched if one.unique]
    assert found
    assert {one.kind for one in found} == {"T2"}
    assert all(one.changed_winner == one.unique for one in found)


@pytest.mark.parametrize(
    ("unique", "changed", "kind"), [(0, 0, None), (3, 0, "T1"), (3, 3, "T2"), (3, 1, "T3"), (1, 1, "T2")]
)
def test_types(unique: int, changed: int, kind: str | None) -> None:
    assert evolve.kind_of(unique, changed) == kind


def test_what_is_too_close_to_call_is_no_hit_and_widens_the_interval() -> None:
    table = some(8)
    evolved = run(toy_selectors.faint, table, replace(QUICK, screen=100, screen_p_init=0.5))
    odd = table.instances[:, :2].sum(axis=1) % 2 == 1
    assert evolved.excluded == dict.fromkeys(np.flatnonzero(odd).tolist(), "undecided")
    assert {one.category for one in evolved.searched} == {"robust"}
    assert all(one.unverified > 0 and 0 < one.best_fitness <= UNVERIFIED for one in evolved.searched)
    (draws,) = evolved.reading.draws
    assert (draws.hits, draws.samples, draws.unknown) == (0, (~odd).sum(), (~odd).sum())
    assert (evolved.reading.lower, evolved.reading.upper) == (0, 1)


def test_ties_are_no_mistakes_and_are_counted() -> None:
    class Tied:
        """Perturbed instances never have a winner."""

        solvers = ("a", "b")

        def check(self, instances: NDArray[np.int64]) -> None: ...

        def winners(self, instances: NDArray[np.int64]) -> NDArray[np.int8]:
            return np.where(instances[:, 0] == 5, 0, -1).astype(np.int8)

        def perturb(self, instance: NDArray[np.int64], masks: NDArray[np.int8]) -> NDArray[np.int64]:
            return instance + masks + 1

        def describe(self) -> dict[str, Any]:
            return {"solvers": ["a", "b"]}

    table = evolve.Table(np.array([[5, 9, 9], [4, 9, 9]]), "hand", "hand")
    selector = toy_selectors.Toy(lambda x: np.array([[0.9, 0.1]] * len(x)))
    settings = Settings(runs=1, generations=3, population=4, screen=0, p_init=0)
    evolved = evolve.search(table, Tied(), selector, settings, Limits(), Progress())
    assert evolved.excluded == {1: "tie"}
    (one,) = evolved.searched
    assert (one.category, one.best_fitness) == ("robust", pytest.approx(-0.8))
    # Elements that are lowered make the first one 5 again, which best is right about.
    assert 0 < one.ties <= one.asked


def test_masks_and_sizes_stay_within_their_ranges() -> None:
    selector = toy_selectors.Toy(toy_selectors.smooth)
    table = some(6)
    settings = replace(QUICK, magnitude=2, p_init=1.0, generations=30, screen=30)
    evolved = run(selector, table, settings)
    for asked in selector.asked:
        assert ((asked >= 20) & (asked <= 100)).all()
    everything = np.concatenate(selector.asked)
    distances = np.abs(everything[:, None] - table.instances[None]).max(axis=2).min(axis=1)
    assert distances.max() == 2
    for one in evolved.searched:
        for best in one.found:
            assert np.abs(best.mask).max() <= 2


def test_a_population_is_asked_about_in_one_call_and_nothing_twice() -> None:
    selector = toy_selectors.Toy(toy_selectors.smooth)
    table = some(6)
    book = Book(Packing(), selector, table.instances[0], int(Packing().winners(table.instances)[0]))
    settings = Settings(generations=40, population=30)
    trial = evolution.evolve(book, settings, 5, 0, 0)
    assert len(selector.asked) <= 41
    assert trial.evaluations == 41 * 30
    assert trial.asked == sum(map(len, selector.asked)) < trial.evaluations
    masks = np.concatenate(selector.asked)
    # Two masks may still be clipped to one instance.
    assert len(np.unique(masks, axis=0)) > 0.95 * len(masks)


def test_the_best_fitness_never_falls_under_an_elite_and_may_without() -> None:
    table = some(6)

    def curves(settings: Settings) -> list[NDArray[np.float64]]:
        return [curve for one in run(toy_selectors.smooth, table, settings).searched for curve in one.curves]

    settings = replace(QUICK, screen=0, generations=60)
    kept = curves(replace(settings, elite=1))
    assert kept
    assert all(len(curve) == 61 and (np.diff(curve) >= 0).all() for curve in kept)
    assert any((np.diff(curve) < 0).any() for curve in curves(settings))


def test_queries_are_whole_populations_and_runs_may_stop_at_the_first_mask() -> None:
    table = some(12)
    settings = replace(QUICK, screen=0, p_init=0.01, generations=40, runs=3)
    full = run(toy_selectors.planted, table, settings)
    cut = run(toy_selectors.planted, table, replace(settings, stop_at_first=True))
    assert [one.category for one in full.searched] == [one.category for one in cut.searched]
    found = full.of("perturbable")
    assert found
    for one, short in zip(full.searched, cut.searched, strict=True):
        assert one.queries == short.queries
        firsts = []
        for curve, stopped in zip(one.curves, short.curves, strict=True):
            wrong = np.flatnonzero(curve > 0)
            assert (stopped == curve[: len(stopped)]).all()
            assert len(stopped) == (wrong[0] + 1 if len(wrong) else 41)
            firsts += [10 * (int(wrong[0]) + 1)] if len(wrong) else []
        assert one.successes == len(firsts)
        assert one.queries == (np.median(firsts) if firsts else None)
        assert one.evaluations == 3 * 41 * 10


# --- the same for any number of workers, and after an interruption ---------------------------------------------------
class Interrupting(toy_selectors.Toy):
    """Asks for a stop at a certain question."""

    def __init__(self, stop: Stop, after: int) -> None:
        super().__init__(toy_selectors.smooth)
        self.stop, self.left = stop, after

    def scores(self, instances: NDArray[np.int64]) -> NDArray[np.float64]:
        self.left -= 1
        if self.left == 0:
            self.stop.set()
        return super().scores(instances)


class Nowhere(toy_selectors.Toy):
    """Of a module that is only here."""


def test_the_same_seed_gives_the_same_whatever_the_workers() -> None:
    table = some(6)
    alone, other = run(toy_selectors.smooth, table), run(toy_selectors.smooth, table, seed=6)
    assert {one.category for one in alone.searched} >= {"perturbable"}
    assert told(run(toy_selectors.smooth, table, jobs=2)) == told(alone)
    assert told(other) != told(alone)


def test_a_selector_that_no_worker_can_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("toy_nowhere")
    monkeypatch.setitem(sys.modules, "toy_nowhere", module)
    monkeypatch.setattr(module, "Nowhere", Nowhere, raising=False)
    monkeypatch.setattr(Nowhere, "__module__", "toy_nowhere")
    selector = Nowhere(toy_selectors.smooth)
    assert run(selector, some(6)).searched
    with pytest.raises(InputError, match="a worker cannot load the selector: ModuleNotFoundError"):
        run(selector, some(6), jobs=2)
    tied = toy_selectors.Toy(toy_selectors.smooth)
    monkeypatch.setattr(tied, "lock", threading.Lock(), raising=False)
    with pytest.raises(InputError, match="the selector cannot be sent to workers"):
        run(tied, some(6), jobs=2)


@pytest.mark.parametrize("after", [1, 3, 9, 20, 33, 50, 70])
def test_an_interrupted_search_loses_one_trial_and_ends_the_same(tmp_path: Path, after: int) -> None:
    table = some(6)
    whole = run(toy_selectors.smooth, table)
    path, stop = tmp_path / "c", Stop()
    selector = Interrupting(stop, after)
    cut = run(selector, table, stop=stop, checkpoint=path)
    assert cut.unfinished
    assert {one.row for one in cut.searched} | set(cut.unfinished) == {one.row for one in whole.searched}
    (draws,) = cut.reading.draws
    assert draws.unknown == len(cut.unfinished)
    with Trials(path, evolve._about(table, Packing(), toy_selectors.REF, QUICK, 5)) as trials:
        kept = len(trials.done())
    again = toy_selectors.Toy(toy_selectors.smooth)
    resumed = run(again, table, checkpoint=path)
    assert told(resumed) == told(whole)
    fresh = toy_selectors.Toy(toy_selectors.smooth)
    run(fresh, table, checkpoint=tmp_path / "fresh")
    # What was asked for kept trials is not asked again.
    assert kept == 0 or len(again.asked) < len(fresh.asked)
    # Once more from the finished file: only the selector's first answers and the verification remain.
    last = toy_selectors.Toy(toy_selectors.smooth)
    assert told(run(last, table, checkpoint=path)) == told(whole)
    verified = sum(len(one.found) for one in whole.searched)
    assert len(last.asked) == 1 + verified


def test_samples_are_dropped_once_an_instance_is_finished(tmp_path: Path) -> None:
    table = some(6)
    evolved = run(toy_selectors.smooth, table, checkpoint=tmp_path / "c")
    with Trials(tmp_path / "c", evolve._about(table, Packing(), toy_selectors.REF, QUICK, 5)) as trials:
        assert set(trials.pooled()) == {one.row for one in evolved.searched}
        for one in evolved.searched:
            assert all(len(trial.samples) == 0 for trial in trials.of(one.row))


def test_a_checkpoint_is_of_one_command_at_a_time(tmp_path: Path) -> None:
    with Trials(tmp_path / "c", {"seed": 1}) as first:
        first.add(Trial(0, 0, 0.5, np.zeros(3, np.int8), np.zeros(2), None, 1, 1, 0, 0, np.empty(0, SAMPLE)))
        with pytest.raises(InputError, match="locked") as refused, Trials(tmp_path / "c", {"seed": 1}):
            pass
        assert "wait for the command that uses it" in refused.value.hint
    with Trials(tmp_path / "c", {"seed": 1}) as second:
        assert second.done() == {(0, 0): False}


def test_a_checkpoint_of_another_search_is_refused(tmp_path: Path) -> None:
    table = some(4)
    path = tmp_path / "c"
    run(toy_selectors.smooth, table, checkpoint=path)
    with pytest.raises(InputError, match="the seed differs"):
        run(toy_selectors.smooth, table, checkpoint=path, seed=6)
    with pytest.raises(InputError, match="the instances differs"):
        run(toy_selectors.smooth, some(5), checkpoint=path)
    with pytest.raises(InputError, match="generations of the search, p_init of the search differ"):
        run(toy_selectors.smooth, table, replace(QUICK, generations=13, p_init=0.1), checkpoint=path)
    (tmp_path / "no").write_text("this is no database, but long enough to be looked at as if it were one" * 20)
    with pytest.raises(InputError, match="cannot be used as a checkpoint"):
        run(toy_selectors.smooth, table, checkpoint=tmp_path / "no")


def test_a_selector_that_changes_its_mind_is_found_out() -> None:
    calls = itertools.count()
    table = some(6)

    def moody(instances: NDArray[np.int64]) -> NDArray[np.float64]:
        right = toy_selectors.oracle(instances)
        return right[:, ::-1] if next(calls) and len(instances) > 1 else right

    with pytest.raises(ContradictionError, match="does not stand a second trial"):
        run(moody, table)


def test_a_selector_that_is_never_right_is_an_error() -> None:
    with pytest.raises(
        InputError, match="none of 4 instances is left to search: 4 where the selector is wrong already"
    ) as it:
        run(lambda x: toy_selectors.oracle(x)[:, ::-1], some(4))
    assert "--solvers" in it.value.hint


def test_instances_that_are_all_ties_are_an_error_that_says_so() -> None:
    """Two sizes that fill a bin, over and over: both solvers fill every bin."""
    ties = np.tile([100, 50], (5, 60))
    with pytest.raises(InputError, match="none of 5 instances is left to search: 5 where no solver is better") as it:
        run(toy_selectors.smooth, evolve.Table(ties, "ties.npy", "toy"))
    assert "--instances ds2:20" in it.value.hint
    mixed = np.concatenate([ties, some(2).instances])
    with pytest.raises(InputError, match="5 where no solver is better, 2 where its two answers are equal") as it:
        run(lambda x: np.full((len(x), 2), 0.5), evolve.Table(mixed, "mixed.npy", "toy"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_memory_is_limited_in_every_process_that_searches(jobs: int) -> None:
    used = resource.getrlimit(resource.RLIMIT_AS)
    whole = run(toy_selectors.hungry, some(4), jobs=jobs)
    assert told(whole) == told(run(toy_selectors.smooth, some(4)))
    with pytest.raises(UndecidedError, match="not enough memory") as it:
        run(toy_selectors.hungry, some(4), jobs=jobs, memory=6000)
    assert "more --memory" in it.value.hint
    assert told(run(toy_selectors.hungry, some(4), jobs=jobs, memory=40_000)) == told(whole)
    assert resource.getrlimit(resource.RLIMIT_AS) == used


# --- what they say together ------------------------------------------------------------------------------------------
def searched(row: int, category: Any = "perturbable", **more: Any) -> Searched:
    fields: dict[str, Any] = {
        "row": row, "winner": row % 2, "confidence": 0.5, "category": category, "best_fitness": 0.5, "queries": 100.0,
        "kind": "T1", "successes": 1, "evaluations": 10, "asked": 9, "ties": 0, "unverified": 0, "unique": 4,
        "changed_winner": 0, "median_fitness": 0.25, "run_fitness": (0.5,),
        "medians": dict.fromkeys(("longest", "longest_up", "changes", "difference"), 1.0),
    }  # fmt: skip
    return Searched(**{**fields, **more})


def test_the_summary_by_hand() -> None:
    base = run(toy_selectors.oracle, some(2))
    fitness = [0.1, 0.2, 0.3, 0.4]
    longest = [40.0, 30.0, 10.0, 20.0]
    found = [
        searched(row, queries=float(queries), kind=kind, unique=unique, median_fitness=value,
                 run_fitness=(value, -value),
                 medians={"longest": long, "longest_up": 2.0, "changes": 10 * value, "difference": -value})
        for row, (queries, kind, unique, value, long) in enumerate(
            zip([50, 150, 100, 900], ["T1", "T2", "T2", "T3"], [1, 10, 5, 2], fitness, longest, strict=True)
        )
    ]  # fmt: skip
    others = [searched(4, "fragile"), searched(5, "robust", kind=None), searched(6, "robust", kind=None)]
    summary = evolve_summary.summarise(replace(base, searched=(*found, *others)))
    assert summary.classes == {
        "best_fit": {"fragile": 1, "perturbable": 2, "robust": 1},
        "first_fit": {"fragile": 0, "perturbable": 2, "robust": 1},
    }
    assert summary.success_rate == pytest.approx(4 / 6)
    assert summary.queries == 125
    assert summary.kinds == {"T1": 1, "T2": 2, "T3": 1}
    quartiles = summary.run_fitness
    assert quartiles is not None
    # -0.4 -0.3 -0.2 -0.1 0.1 0.2 0.3 0.4
    assert (quartiles.q1, quartiles.median, quartiles.q3) == pytest.approx((-0.225, 0, 0.225))
    assert (summary.unique_total, summary.unique_median) == (18, 3.5)
    assert summary.medians["longest"] == 25
    by_name = {one.statistic: one for one in summary.correlations}
    # Of 24 orders only two are as extreme as a perfect one.
    assert by_name["changes"].p_value == pytest.approx(2 / 24)
    # Ranks 4 3 1 2 against 1 2 3 4: 1 - 6 * (9 + 1 + 4 + 4) / (4 * 15).
    assert by_name["longest"].spearman == pytest.approx(1 - 6 * 18 / 60)
    assert by_name["changes"].spearman == pytest.approx(1)
    assert by_name["difference"].spearman == pytest.approx(-1)
    assert (by_name["longest_up"].spearman, by_name["longest_up"].p_value) == (None, None)
    nothing = evolve_summary.summarise(replace(base, searched=()))
    assert (nothing.success_rate, nothing.queries, nothing.run_fitness, nothing.medians) == (None, None, None, {})


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("count", [4, 8, 9, 60])
def test_correlations_are_those_of_scipy(count: int, ties: bool) -> None:
    rng = np.random.default_rng(count)
    fitness = rng.normal(size=count)
    values = np.round(fitness + rng.normal(size=count), 0 if ties else 6)
    medians = [dict.fromkeys(("longest", "longest_up", "changes", "difference"), value) for value in values]
    found = [
        searched(row, median_fitness=f, medians=m) for row, (f, m) in enumerate(zip(fitness, medians, strict=True))
    ]
    told = evolve_summary.correlation(found, "changes")
    library = spearmanr(fitness, values)
    assert told.spearman == pytest.approx(library.statistic, abs=1e-12)
    if count <= 8:
        exact = permutation_test(
            (values,), lambda order: spearmanr(fitness, order).statistic, permutation_type="pairings",
            n_resamples=50_000 if count == 4 else 2000, rng=0,
        )  # fmt: skip
        assert told.p_value == pytest.approx(exact.pvalue, abs=1e-12 if count == 4 else 0.05)
    else:
        assert told.p_value == pytest.approx(library.pvalue, rel=1e-9)


def test_a_perfect_order_of_many_has_a_tiny_p_value_above_zero() -> None:
    medians = [dict.fromkeys(("changes",), float(value)) for value in range(10)]
    found = [searched(row, median_fitness=-float(row), medians=one) for row, one in enumerate(medians)]
    told = evolve_summary.correlation(found, "changes")
    assert (told.spearman, told.p_value) == (pytest.approx(-1), pytest.approx(2 / 3628800))


def test_pooling_counts_instances_of_several_runs_once() -> None:
    original = np.array([50, 50, 50])

    def trial(run: int, rows: list[list[int]], fitness: list[float], changed: list[bool]) -> Trial:
        samples = evolution.samples_of(original, np.array(rows), np.array(fitness), np.array(changed))
        return Trial(0, run, 0.9, np.zeros(3, np.int8), np.array([0.9]), 10, 10, 10, 0, 0, samples)

    pooled = evolve.pool(
        [
            trial(SCREENING, [[51, 50, 50]], [0.2], [False]),
            trial(0, [[51, 50, 50], [51, 51, 51]], [0.2, 0.6], [False, True]),
            trial(1, [[51, 51, 51], [50, 50, 49]], [0.6, 0.4], [True, False]),
        ]
    )
    assert pooled == {
        "unique": 3,
        "changed_winner": 1,
        "median_fitness": pytest.approx(0.4),
        "medians": {"longest": 1.0, "longest_up": 1.0, "changes": 1.0, "difference": 1.0},
    }

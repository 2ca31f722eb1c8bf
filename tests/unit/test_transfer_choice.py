"""How many features: by rules worked out by hand, whatever the number of workers."""

from __future__ import annotations

import csv
import itertools
import random
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from quantify.dataset import context_choice, transfer_interval
from quantify.dataset.transfer import Plan, transfer
from quantify.dataset.transfer_interval import Losses
from quantify.dataset.workers import in_order
from quantify.ir.transfer import Transfer
from quantify.resources import Limits, Progress


def errors_of(*rows: tuple[float, float]) -> Any:
    """Mean and standard error of K = 0, 1, …, as errors of two splits that have them."""
    return np.array([[mean - error, mean + error] for mean, error in rows])


@pytest.mark.parametrize(
    ("rows", "informative", "expected"),
    [
        # K = 0 first; the least is at K = 1, and 0.3 + 0.1 is the most that is within.
        ([(0.5, 0.1), (0.3, 0.1), (0.35, 0.9), (0.39, 0.0)], [True, True, True], 3),
        ([(0.5, 0.1), (0.3, 0.1), (0.35, 0.9), (0.41, 0.0)], [True, True, True], 2),
        ([(0.5, 0.1), (0.3, 0.1), (0.35, 0.9), (0.39, 0.0)], [True, True, False], 2),
        ([(0.5, 0.1), (0.3, 0.1), (0.35, 0.9), (0.39, 0.0)], [True, False, False], 1),
        # What is beyond need not be: K = 2 is too high, K = 3 is not, and its feature is informative.
        ([(0.5, 0.1), (0.3, 0.1), (0.45, 0.0), (0.39, 0.0)], [True, True, True], 3),
        # The standard error is that of the least, not of the others.
        ([(0.5, 0.9), (0.3, 0.01), (0.35, 0.9), (0.32, 0.9)], [True, True, True], 1),
        # The least is taken, informative or not; K = 0 is never taken.
        ([(0.1, 0.0), (0.3, 0.1), (0.25, 0.01), (0.2, 0.01)], [True, True, False], 3),
        # Without a standard error, ties alone are within.
        ([(0.1, 0.0), (0.3, 0.0), (0.3, 0.0), (0.31, 0.0)], [True, True, True], 2),
    ],
)
def test_further_informative_features_are_taken_within_one_standard_error(
    rows: list[tuple[float, float]], informative: list[bool], expected: int
) -> None:
    errors = errors_of(*rows)
    assert context_choice.standard_errors(errors).tolist() == pytest.approx([error for _, error in rows])
    assert context_choice.choose(errors, informative) == expected
    means = [mean for mean, _ in rows[1:]]
    assert context_choice.choose(errors) == 1 + means.index(min(means))


def test_one_split_has_no_standard_error() -> None:
    errors = np.array([[0.5], [0.3], [0.30001]])
    assert context_choice.standard_errors(errors).tolist() == [0, 0, 0]
    assert context_choice.choose(errors, [True, True]) == 1


@pytest.mark.parametrize("seed", range(30))
def test_the_g_test_is_that_of_scipy(seed: int) -> None:
    draw = np.random.default_rng(seed)
    loss = draw.integers(0, 2 + seed % 3, 200)
    codes = np.where(draw.random(200) < 0.12, loss, draw.integers(0, 4, 200))
    table = np.array([[((loss == a) & (codes == b)).sum() for b in np.unique(codes)] for a in np.unique(loss)])
    expected = chi2_contingency(table, correction=False, lambda_="log-likelihood").pvalue
    shared = context_choice.information(codes, loss)
    told = context_choice.is_informative(200, len(np.unique(loss)), len(np.unique(codes)), shared)
    assert told == (expected < 0.05)


def test_what_never_changes_is_not_informative() -> None:
    assert not context_choice.is_informative(100, 2, 1, 0.0)
    assert not context_choice.is_informative(100, 1, 5, 0.0)


def failures(folder: Path) -> tuple[Path, Path]:
    """A test set where `a` and `b` make failures likelier, and a domain where both are frequent."""
    draw = random.Random(5)
    test, there = folder / "test.csv", folder / "there.csv"
    for path, share, rows in ((test, 0.2, 1200), (there, 0.8, 400)):
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["loss", "a", "noise", "b"])
            for _ in range(rows):
                a, b = (int(draw.random() < share) for _ in range(2))
                writer.writerow([int(draw.random() < 0.05 + 0.4 * a + 0.4 * b), a, draw.randrange(3), b])
    return test, there


def answer(files: tuple[Path, Path], jobs: int = 1, **more: Any) -> Transfer:
    return transfer(Plan(files[0], "loss", (), files[1], **more), Limits(jobs=jobs, seed=1), Progress())


def test_the_rule_that_is_asked_for_decides(tmp_path: Path) -> None:
    files = failures(tmp_path)
    found = answer(files)
    means = [one.error for one in found.errors]
    least = min(found.errors, key=lambda one: one.error)
    assert [one.name for one in found.chosen[:2]] in (["a", "b"], ["b", "a"])
    assert means[found.k - 1] <= least.error + least.standard_error
    assert found.k_is == ("least error" if found.k == least.k else "within one standard error")
    document = answer(files, choose="least")
    assert (document.k, document.k_is) == (least.k, "least error")
    assert (answer(files, k=3).k, answer(files, k=3).k_is) == (3, "given")


@pytest.mark.parametrize("choose", ["informative", "least"])
def test_the_answer_does_not_depend_on_the_number_of_workers(tmp_path: Path, choose: str) -> None:
    files = failures(tmp_path)
    assert answer(files, 1, choose=choose, replicates=1100) == answer(files, 4, choose=choose, replicates=1100)


def test_replicates_of_all_workers_are_different_draws() -> None:
    """Four pieces of 250 that were the same draws would have the quantiles of 250."""
    losses = Losses(np.array([0, 0]), np.array([0.0, 1.0]), np.array([30, 10]), 0.0, 1.0)
    ends = {
        transfer_interval.interval(losses, np.array([1.0]), 0.0, None, 0.95, count, np.random.default_rng(3), 2)
        for count in (250, 500, 1000)
    }
    assert len(ends) == 3


def test_tasks_that_wait_are_given_up_when_nobody_wants_them() -> None:
    began: list[int] = []
    gate = threading.Event()

    def work(task: int) -> int:
        began.append(task)
        if task:
            gate.wait(10)
        return task

    with closing(in_order(work, range(100), 2)) as results:
        assert next(results) == 0
        threading.Timer(0.05, gate.set).start()
    assert len(began) < 10
    assert list(in_order(str, range(5), 3)) == ["0", "1", "2", "3", "4"]
    stops = itertools.count()
    assert list(in_order(str, range(5), 1, lambda: next(stops) >= 2)) == ["0", "1"]


def test_the_index_that_pandas_writes_is_no_feature_unless_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(",loss,a\n" + "".join(f"{row},{row % 2},{'xy'[row % 3 == 0]}\n" for row in range(40)))
    found = transfer(Plan(path, "loss", ()), Limits(), Progress())
    assert ([one.name for one in found.features], found.skipped) == (["a"], ("",))
    path.write_text(path.read_text().replace(",loss", "Unnamed: 0,loss", 1))
    found = transfer(Plan(path, "loss", ("Unnamed: 0", "a")), Limits(), Progress())
    assert ([one.name for one in found.features], found.skipped) == (["Unnamed: 0", "a"], ())

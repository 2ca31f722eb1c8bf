"""Counting a DIMACS file: which counter answers, and what happens when one does not."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from quantify.cnf import count_file as module
from quantify.cnf.calibration import Calibration
from quantify.cnf.count_file import count_file
from quantify.cnf.formula import Cnf, CounterAnswer, CounterTool
from quantify.errors import ContradictionError, InputError, MissingToolError, UndecidedError
from quantify.ir.count import Guarantee
from quantify.resources import Limits
from quantify.tools.process import run

TEXT = b"c p show 1 2 0\np cnf 4 2\n1 2 3 0\n-3 4 0\n"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUANTIFY_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "f.cnf.gz"
    path.write_bytes(gzip.compress(TEXT))
    return path


class Fake:
    """A counter that does what it is told."""

    install = "pip install it"
    by_default = True

    def __init__(self, name: str, act: Callable[[Limits], int], guarantee: Guarantee = Guarantee.EXACT) -> None:
        self.name, self.act, self.guarantee = name, act, guarantee
        self.allowed: float | None = None

    def locate(self) -> CounterTool | None:
        return CounterTool(self.name, "1", "/nowhere", "0")

    def count(self, cnf: Cnf, limits: Limits, *, epsilon: Fraction, delta: Fraction) -> CounterAnswer:
        self.allowed = limits.remaining()
        value = self.act(limits)
        return CounterAnswer(value, value, self.guarantee, 0.0)


def sleeps(limits: Limits) -> int:
    """Runs a real program that takes for ever."""
    ended = run(["sleep", "60"], timeout=limits.remaining())
    raise UndecidedError(f"sleeper: {ended.complaint()}")


def crashes(limits: Limits) -> int:
    raise UndecidedError("crasher: killed by SIGSEGV")


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make these the counters there are, all calibrated."""

    def put(*fakes: Fake) -> None:
        monkeypatch.setattr(module.counters, "discover", lambda: {fake.name: fake for fake in fakes})
        monkeypatch.setattr(
            module, "require_calibrated", lambda counter, limits: Calibration(counter.locate(), 1, (), False)
        )

    return put


@pytest.mark.needs("pyganak")
def test_the_default_is_an_exact_counter(path: Path) -> None:
    found = count_file(path, "auto", Limits(jobs=2))
    assert (found.answer.lower, found.answer.upper) == (4, 4)
    assert found.answer.guarantee in (Guarantee.EXACT, Guarantee.PROB_EXACT)
    assert (found.variables, found.clauses, found.projected) == (4, 2, 2)
    assert found.calibration.ok


@pytest.mark.needs("pyapproxmc")
def test_a_named_counter(path: Path) -> None:
    found = count_file(path, "approxmc", Limits(seed=3), Fraction(1, 2), Fraction(1, 100))
    assert found.counter == "approxmc"
    assert (found.answer.epsilon, found.answer.delta) == (Fraction(1, 2), Fraction(1, 100))
    assert found.answer.lower <= 4 <= found.answer.upper


@pytest.mark.needs("pyganak")
def test_the_empty_formula_counts_one(path: Path) -> None:
    path.write_bytes(b"p cnf 0 0\n")
    assert count_file(path, "auto", Limits()).answer.lower == 1


def test_unknown_counters_and_missing_files(path: Path) -> None:
    with pytest.raises(InputError, match="no counter 'ganack'"):
        count_file(path, "ganack", Limits())
    with pytest.raises(InputError, match="cannot be read"):
        count_file(path.with_name("absent"), "auto", Limits())


def test_no_exact_counter_at_all(path: Path, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    lonely = Fake("lonely", crashes)
    install(lonely, Fake("guess", lambda limits: 4, Guarantee.PAC))
    monkeypatch.setattr(lonely, "locate", lambda: None)
    with pytest.raises(MissingToolError, match="no exact counter"):
        count_file(path, "auto", Limits())


@pytest.mark.parametrize("jobs", [1, 2])
def test_another_counter_finishes_what_one_could_not(path: Path, install: Callable[..., None], jobs: int) -> None:
    install(Fake("crasher", crashes), Fake("other", lambda limits: 4))
    found = count_file(path, "auto", Limits.starting_now(30, jobs=jobs))
    assert (found.counter, found.answer.lower) == ("other", 4)
    assert found.notes == ("crasher: killed by SIGSEGV",)


def test_one_worker_leaves_time_for_the_next_counter(path: Path, install: Callable[..., None]) -> None:
    slow, quick = Fake("sleeper", sleeps), Fake("quick", lambda limits: 4)
    install(slow, quick)
    found = count_file(path, "auto", Limits.starting_now(3, jobs=1))
    assert found.counter == "quick"
    assert slow.allowed is not None
    assert quick.allowed is not None
    assert slow.allowed < 2
    assert quick.allowed > 0.5


def test_a_second_worker_joins_and_the_first_is_stopped(
    path: Path, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HEAD_START", 0.2)
    install(Fake("sleeper", sleeps), Fake("quick", lambda limits: 4))
    started = time.monotonic()
    found = count_file(path, "auto", Limits(jobs=2))
    assert found.counter == "quick"
    assert time.monotonic() - started < 20
    assert not any("ThreadPool" in thread.name for thread in threading.enumerate())


def test_a_quick_first_answer_starts_nothing_else(path: Path, install: Callable[..., None]) -> None:
    other = Fake("other", lambda limits: 5)
    install(Fake("quick", lambda limits: 4), other)
    assert count_file(path, "auto", Limits(jobs=2)).counter == "quick"
    assert other.allowed is None


def test_all_give_up(path: Path, install: Callable[..., None]) -> None:
    install(Fake("crasher", crashes), Fake("sleeper", sleeps))
    with pytest.raises(UndecidedError, match=r"crasher: killed by SIGSEGV; sleeper: stopped after") as caught:
        count_file(path, "auto", Limits.starting_now(1, jobs=2))
    assert "approxmc" in caught.value.hint


def test_a_lie_is_not_passed_over(path: Path, install: Callable[..., None]) -> None:
    def lies(limits: Limits) -> int:
        raise ContradictionError("two and two is five")

    install(Fake("liar", lies), Fake("other", lambda limits: 4))
    with pytest.raises(ContradictionError):
        count_file(path, "auto", Limits(jobs=2))

"""Every counter that was discovered, against brute force; and calibration, against counters that lie."""

from __future__ import annotations

import os
import random
import sys
from array import array
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

from quantify.cnf import calibration
from quantify.cnf.counters import discover, get
from quantify.cnf.formula import Cnf, Counter, CounterAnswer, CounterTool
from quantify.cnf.known_counts import count_by_truth_table, known_counts
from quantify.errors import ContradictionError, InputError, MissingToolError, UndecidedError
from quantify.ir.count import Guarantee
from quantify.resources import Limits

EXACT = (Guarantee.EXACT, Guarantee.PROB_EXACT)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTIFY_CACHE", str(tmp_path / "cache"))


@pytest.fixture(params=list(discover()))
def counter(request: pytest.FixtureRequest) -> Counter:
    found = discover()[request.param]
    if found.locate() is None:
        if found.by_default and request.config.getoption("--require-tools"):
            pytest.fail(f"{found.name} is not installed, and --require-tools was given", pytrace=False)
        pytest.skip(f"{found.name} is not installed")
    return found


def cnf(variables: int, clauses: list[list[int]], projection: list[int] | None = None, multiplier: int = 1) -> Cnf:
    literals = array("i")
    for clause in clauses:
        literals.extend([*clause, 0])
    shown = range(1, variables + 1) if projection is None else projection
    return Cnf(variables, literals, tuple(shown), multiplier)


def brute_force(formula: Cnf) -> int:
    clauses = list(formula.clauses())
    seen = set()
    for values in product((False, True), repeat=formula.variables):
        if all(any(values[abs(literal) - 1] == (literal > 0) for literal in clause) for clause in clauses):
            seen.add(tuple(values[variable - 1] for variable in formula.projection))
    return len(seen) * formula.multiplier


def random_cnf(draw: random.Random, most: int) -> Cnf:
    variables = draw.randint(1, most)
    clauses = [
        [draw.choice((-1, 1)) * draw.randint(1, variables) for _ in range(draw.choice((1, 2, 2, 3, 3, 3, 4)))]
        for _ in range(draw.randint(0, 4 * variables))
    ]
    projection = sorted(draw.sample(range(1, variables + 1), draw.randint(0, variables)))
    return cnf(variables, clauses, projection, draw.choice((1, 1, 1, 2, 3, 6)))


def program(folder: Path, name: str, text: str) -> Path:
    """An executable Python script."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


# What counters answer


def test_the_usual_counters_are_discovered() -> None:
    assert {"ganak", "approxmc", "d4", "projmc", "tididi"} <= set(discover())
    assert next(iter(discover())) in {name for name, found in discover().items() if found.by_default}
    with pytest.raises(InputError, match="there is no counter 'ganack'"):
        get("ganack")


def test_the_truth_table_agrees_with_brute_force() -> None:
    draw = random.Random(3)
    for _ in range(300):
        formula = random_cnf(draw, 7)
        assert count_by_truth_table(formula) == brute_force(formula)


def test_known_counts_are_right_where_they_can_be_enumerated() -> None:
    for known in known_counts():
        if known.cnf.variables <= 17:
            assert count_by_truth_table(known.cnf) == known.count, known.name


def test_random_formulas(counter: Counter) -> None:
    draw = random.Random(11)
    for number in range(20):
        formula = random_cnf(draw, 7)
        answer = counter.count(formula, Limits(seed=number), delta=Fraction(1, 10**6))
        assert answer.lower <= brute_force(formula) <= answer.upper
        if counter.guarantee in EXACT:
            assert answer.lower == answer.upper


def test_many_random_formulas_in_one_process(counter: Counter) -> None:
    draw = random.Random(12)
    many = 40 if counter.name in ("d4", "projmc") else 300
    formulas = [random_cnf(draw, 9) for _ in range(many)]
    assert isinstance(counter, calibration.BatchCounter)
    answers = counter.count_all(formulas, Limits(), epsilon=Fraction(4, 5), delta=Fraction(1, 10**6))
    for formula, answer in zip(formulas, answers, strict=True):
        assert answer.lower <= count_by_truth_table(formula) <= answer.upper


def test_counters_agree_on_formulas_too_large_to_enumerate() -> None:
    draw = random.Random(13)
    formulas = []
    for _ in range(6):
        clauses = [[draw.choice((-1, 1)) * v for v in draw.sample(range(1, 46), 3)] for _ in range(150)]
        formulas.append(cnf(45, clauses, sorted(draw.sample(range(1, 46), 20))))
    answers = {}
    for name, found in discover().items():
        if found.locate() is not None and found.guarantee in EXACT and isinstance(found, calibration.BatchCounter):
            answers[name] = found.count_all(formulas, Limits(), epsilon=Fraction(4, 5), delta=Fraction(1, 5))
    if len(answers) < 2:
        pytest.skip("fewer than two exact counters are installed")
    for said in zip(*answers.values(), strict=True):
        assert len({answer.lower for answer in said}) == 1, list(answers)
    assert len({answer.lower for answer in answers["ganak"]}) == 6


def test_every_answer_carries_its_guarantee(counter: Counter) -> None:
    formula = cnf(8, [[1, 2, 3], [-1, 4], [5, -6, 7]], [1, 2, 3, 5, 6, 8], 3)
    answer = counter.count(formula, Limits(seed=5), epsilon=Fraction(1, 2), delta=Fraction(1, 10))
    assert answer.guarantee is counter.guarantee
    assert answer.lower <= brute_force(formula) <= answer.upper
    if counter.guarantee is Guarantee.PAC:
        assert (answer.epsilon, answer.delta, answer.seed) == (Fraction(1, 2), Fraction(1, 10), 5)
        assert answer.estimate is not None
        assert answer.estimate % 3 == 0
        assert answer.lower < answer.estimate < answer.upper
    elif counter.guarantee is Guarantee.PROB_EXACT:
        assert answer.delta is not None
        assert 0 < answer.delta < Fraction(1, 10**6)
    else:
        assert answer.delta is None


def test_the_same_seed_gives_the_same_answer(counter: Counter) -> None:
    pairs = cnf(32, [[v, v + 1] for v in range(1, 32, 2)])
    first, second = (counter.count(pairs, Limits(seed=9)) for _ in range(2))
    assert (first.lower, first.upper) == (second.lower, second.upper)
    assert first.lower <= 3**16 <= first.upper


def test_an_unsatisfiable_formula_is_exactly_zero(counter: Counter) -> None:
    answer = counter.count(cnf(3, [[1, 2], [1, -2], [-1, 2], [-1, -2]], [3]), Limits())
    assert (answer.lower, answer.upper) == (0, 0)
    assert answer.guarantee in EXACT


def test_a_count_of_more_than_4300_digits(counter: Counter) -> None:
    variables = 15_000
    answer = counter.count(cnf(variables, [[1, 2]]), Limits())
    assert answer.lower <= 3 << (variables - 2) <= answer.upper


def test_a_deadline_that_has_passed(counter: Counter) -> None:
    with pytest.raises(UndecidedError, match=counter.name) as caught:
        counter.count(cnf(3, [[1, 2]]), Limits.starting_now(0))
    assert "--timeout" in caught.value.hint


def test_approxmc_keeps_its_promise_over_many_seeds() -> None:
    """With δ = 0.2, 16 of 30 outside would happen to an honest counter less than once in 10,000 suites."""
    approxmc = discover()["approxmc"]
    if approxmc.locate() is None:
        pytest.skip("approxmc is not installed")
    formula = cnf(33, [[v, v + 1] for v in range(1, 32, 2)] + [[-33, 1], [33, -1]])
    outside = 0
    for seed in range(30):
        answer = approxmc.count(formula, Limits(seed=seed), epsilon=Fraction(4, 5), delta=Fraction(1, 5))
        outside += not answer.lower <= 3**16 <= answer.upper
    assert outside < 16


# Calibration


def test_installed_counters_pass(counter: Counter) -> None:
    first = calibration.require_calibrated(counter, Limits())
    again = calibration.require_calibrated(counter, Limits())
    assert first.ok
    assert not first.cached
    assert again.cached
    assert first.checked == again.checked == len(known_counts())


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("QUANTIFY_CACHE", str(tmp_path / "file" / "cache"))
    assert not calibration.calibrate(Honest(), Limits()).cached
    assert not calibration.calibrate(Honest(), Limits()).cached


def test_a_damaged_cache_entry_is_ignored(tmp_path: Path) -> None:
    calibration.calibrate(Honest(), Limits())
    (entry,) = (tmp_path / "cache" / "calibration").iterdir()
    entry.write_text('{"tool": 3')
    assert not calibration.calibrate(Honest(), Limits()).cached
    assert calibration.calibrate(Honest(), Limits()).cached


class Honest:
    """Looks the answers up: a counter of the plain protocol, one formula at a time."""

    name = "honest"
    guarantee = Guarantee.EXACT
    install = "nothing to install"
    by_default = False

    def __init__(self, digest: str = "0" * 64) -> None:
        self.digest = digest
        self.asked = 0

    def locate(self) -> CounterTool | None:
        return CounterTool(self.name, "1", "/nowhere", self.digest)

    def count(
        self, cnf: Cnf, limits: Limits, *, epsilon: Fraction = Fraction(4, 5), delta: Fraction = Fraction(1, 5)
    ) -> CounterAnswer:
        self.asked += 1
        right = next(known.count for known in known_counts() if known.cnf == cnf)
        return self.answer(right, cnf)

    def answer(self, right: int, cnf: Cnf) -> CounterAnswer:
        return CounterAnswer(right, right, self.guarantee, 0.0)


class DropsMultiplier(Honest):
    def answer(self, right: int, cnf: Cnf) -> CounterAnswer:
        return super().answer(right // cnf.multiplier, cnf)


class DropsFreeVariables(Honest):
    def answer(self, right: int, cnf: Cnf) -> CounterAnswer:
        used = set(map(abs, cnf.literals))
        return super().answer(right >> sum(variable not in used for variable in cnf.projection), cnf)


class IgnoresEmptyProjection(Honest):
    def answer(self, right: int, cnf: Cnf) -> CounterAnswer:
        return super().answer(right if cnf.projection else 2 * right, cnf)


class OneForTheEmptyFormula(Honest):
    def answer(self, right: int, cnf: Cnf) -> CounterAnswer:
        return super().answer(max(right, 1), cnf)


class RoundsToDouble(Honest):
    def answer(self, right: int, cnf: Cnf) -> CounterAnswer:
        return super().answer(int(float(right) * (1 + 2**-50)), cnf)


class OffByOne(Honest):
    def answer(self, right: int, cnf: Cnf) -> CounterAnswer:
        return super().answer(right + (right > 100_000), cnf)


class Vague(Honest):
    """Claims to be exact and gives an interval."""

    def answer(self, right: int, cnf: Cnf) -> CounterAnswer:
        return CounterAnswer(0, right + 1, self.guarantee, 0.0)


class TooTight(Honest):
    """An approximate counter that undercounts by a factor 2 now and then."""

    guarantee = Guarantee.PAC

    def answer(self, right: int, cnf: Cnf) -> CounterAnswer:
        c = right // 2 if right == 3**16 else right
        return CounterAnswer(-(-5 * c // 9), 9 * c // 5, self.guarantee, 0.0)


@pytest.mark.parametrize(
    "liar",
    [
        DropsMultiplier, DropsFreeVariables, IgnoresEmptyProjection, OneForTheEmptyFormula, RoundsToDouble, OffByOne,
        Vague, TooTight,
    ],
)  # fmt: skip
def test_liars_are_caught(liar: type[Honest]) -> None:
    with pytest.raises(ContradictionError, match=r"known counts wrong: .+: .+") as caught:
        calibration.require_calibrated(liar(), Limits())
    assert caught.value.exit_code == 4
    assert not calibration.calibrate(liar(), Limits()).cached  # a failure is never remembered


def test_another_file_is_calibrated_anew() -> None:
    first, second = Honest("a" * 64), Honest("b" * 64)
    for fake in (first, first, second):
        calibration.require_calibrated(fake, Limits())
    assert first.asked == second.asked == len(known_counts())


# Programs that misbehave


def on_path(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


WRAPPER = """
import sys
sys.path[:] = {path!r}
import pyganak
formula, projection = {formula}, sys.argv[{fpv}].removeprefix("-fpv=")
assert sys.argv[{fpv}] != projection
counter = pyganak.Counter()
for line in open(formula):
    words = line.split()
    if words[0] == "p":
        counter.new_vars(int(words[2]))
    elif words[0] != "c":
        counter.add_clause(list(map(int, words[:-1])))
counter.set_sampling_set(list(map(int, open(projection).read().split(","))))
print("c a comment\\nc s 7")
print("s", counter.count())
"""


@pytest.mark.needs("pyganak")
@pytest.mark.parametrize(
    ("name", "binary", "formula", "fpv"),
    [("d4", "d4", "sys.argv[sys.argv.index('-mc') + 1]", 3), ("projmc", "projMC", "sys.argv[1]", 2)],
)
def test_programs_are_called_as_they_expect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, binary: str, formula: str, fpv: int
) -> None:
    """A real counter behind the command line of each program."""
    program(tmp_path, binary, WRAPPER.format(path=sys.path, formula=formula, fpv=fpv))
    on_path(monkeypatch, tmp_path)
    found = get(name)
    tool = found.locate()
    assert tool is not None
    assert tool.path == str(tmp_path / binary)
    draw = random.Random(4)
    for _ in range(8):
        case = random_cnf(draw, 8)
        assert found.count(case, Limits()).lower == brute_force(case)


SOLID = cnf(4, [[1, 2], [-2, 3], [3, 4, -1]])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('hello')", "no line `s COUNT`"),
        ("print('s many')", "no line `s COUNT`"),
        ("print('s 1.5e3')", "no line `s COUNT`"),
        ("print('s -3')", "no line `s COUNT`"),
        ("print('s 3'); print('s 4')", "no line `s COUNT`"),
        ("import os; os.write(1, bytes(range(256)) * 100)", "no line `s COUNT`"),
        ("print('s 3'); raise SystemExit(1)", "exit code 1"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "out of memory"),
        ("x = bytearray(1 << 32)", "out of memory"),
        ("import time; time.sleep(60)", "stopped after"),
    ],
)
def test_programs_that_misbehave_leave_it_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    program(tmp_path, "d4", text)
    on_path(monkeypatch, tmp_path)
    timeout = 1.0 if "sleep" in text else 60.0
    with pytest.raises(UndecidedError, match=f"d4: .*{said}") as caught:
        get("d4").count(SOLID, Limits.starting_now(timeout, memory_mb=1024))
    assert caught.value.exit_code == 3


def test_a_program_that_lies_fails_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d4").write_text("#!/bin/sh\necho 's 1'\n")
    (tmp_path / "d4").chmod(0o755)
    on_path(monkeypatch, tmp_path)
    with pytest.raises(ContradictionError, match="known counts wrong"):
        calibration.require_calibrated(get("d4"), Limits())


def test_an_impossible_count_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "d4", "print('s 17')")
    on_path(monkeypatch, tmp_path)
    with pytest.raises(ContradictionError, match=r"answers 17, and there are 2\^4 assignments"):
        get("d4").count(SOLID, Limits())


# Libraries that misbehave: another package may install a module of the same name


def library(monkeypatch: pytest.MonkeyPatch, folder: Path, count: str) -> Counter:
    """A module `pyganak` whose counter runs `count`, found before the installed one."""
    methods = "def new_vars(self, n): self.n = n\n    def add_clauses(self, c): self.c = list(c)"
    (folder / "pyganak.py").write_text(
        f"class Counter:\n    def __init__(self, verbose, seed): pass\n    {methods}\n"
        f"    def set_sampling_set(self, s): self.s = s\n    def count(self):\n        {count}\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.delitem(sys.modules, "pyganak", raising=False)
    return get("ganak")


@pytest.mark.needs("pysat")
def test_a_library_that_lies_fails_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = library(monkeypatch, tmp_path, "return min(2 ** len(self.s), 3)")
    tool = fake.locate()
    assert tool is not None
    assert tool.path == str(tmp_path / "pyganak.py")
    with pytest.raises(ContradictionError, match=r"ganak .*known counts wrong"):
        calibration.require_calibrated(fake, Limits())


@pytest.mark.needs("pysat")
@pytest.mark.parametrize(
    ("count", "said"),
    [
        ("return 'seven'", "exit code 1"),
        ("return 2.0", "exit code 1"),
        ("raise RuntimeError('no')", "RuntimeError: no"),
        ("import os; os._exit(0)", "0 answers to 1 questions"),
        ("import os; os.abort()", "SIGABRT"),
        ("bytearray(1 << 32)", "out of memory"),
        ("import time; time.sleep(60)", "stopped after"),
    ],
)
def test_libraries_that_misbehave_leave_it_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: str, said: str
) -> None:
    fake = library(monkeypatch, tmp_path, count)
    timeout = 2.0 if "sleep" in count else 60.0
    with pytest.raises(UndecidedError, match=f"ganak: .*{said}"):
        fake.count(SOLID, Limits.starting_now(timeout, memory_mb=1024))


@pytest.mark.needs("pysat")
def test_what_a_library_prints_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = library(monkeypatch, tmp_path, 'print(\'c o 7\\n{"count": "0x63"}\', flush=True); return 5')
    assert fake.count(SOLID, Limits()).lower == 5


@pytest.mark.needs("pysat")
def test_the_child_loads_the_file_that_was_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = library(monkeypatch, tmp_path, "return 5")
    other = tmp_path / "other"
    other.mkdir()
    (other / "pyganak.py").write_text((tmp_path / "pyganak.py").read_text())
    monkeypatch.setenv("PYTHONPATH", f"{other}{os.pathsep}{tmp_path}")
    with pytest.raises(UndecidedError, match=r"pyganak is .*other.pyganak\.py here, not "):
        fake.count(SOLID, Limits())


def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("d4", "projmc"):
        with pytest.raises(MissingToolError, match=f"the counter {name} is not installed") as caught:
            get(name).count(SOLID, Limits())
        assert "PATH" in caught.value.hint

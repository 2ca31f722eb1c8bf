"""The CBMC path as an engine: counts with their guarantee, witnesses, limits, and tools that may not be believed."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from cnf_brute import brute_count
from random_grids import counted, points, random_problem, random_region

from quantify.cnf import selfcheck
from quantify.cnf.cbmc import translate_line
from quantify.cnf.engine import CnfEngine, region_size
from quantify.errors import ContradictionError, InputError, MissingToolError, UndecidedError
from quantify.ir.count import Guarantee
from quantify.ir.domain import Measure
from quantify.ir.predicate import Always, HasLabel
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree
from quantify.resources import Limits, Progress
from quantify.tools import locate

LEAF = GridTree((-1,), (0,), (0,), (0,), (0,), (0,))


def problem_over(region: Box | Ball, sizes: tuple[int, ...]) -> GridProblem:
    case = GridCase(region, (GridQuery("all", Always(True)), GridQuery("none", HasLabel(()))), (("all", "none"),))
    return GridProblem(sizes, 1, LEAF, Measure(), (case,))


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    """No verdict of this machine's user is read or left behind."""
    patch = pytest.MonkeyPatch()
    patch.setenv("QUANTIFY_CACHE", os.fspath(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.mark.needs("cbmc", "pyganak")
@pytest.mark.parametrize("seed", range(200, 212))
def test_random_problems_with_the_default_counter(seed: int) -> None:
    problem = random_problem(seed)
    (case,) = problem.cases
    want = counted(problem, case)
    engine = CnfEngine()
    assert engine.refuses(problem, case) is None
    assert engine.estimate(problem, case).seconds > 0
    counts = engine.count(problem, case, Limits(), Progress())
    for query in case.queries:
        count = counts[query.name]
        assert (count.lower, count.upper) == (want[query.name],) * 2
        assert count.guarantee >= Guarantee.PROB_EXACT
        assert count.engine == "cnf"
        assert count.digest == problem.digest(case)
        assert "CBMC 6." in count.note
        witness = engine.witness(problem, case, query, Limits())
        assert (witness is None) == (want[query.name] == 0)
        if witness is not None:
            alone = Box(witness, tuple(p + 1 for p in witness))
            assert witness in set(points(case.region))
            assert counted(problem, GridCase(alone, (query,), ())) == {query.name: 1}


@pytest.mark.needs("cbmc", "pyapproxmc")
def test_approximate_counts_carry_their_errors() -> None:
    region = Ball(Box((0,) * 4, (11, 7, 5, 9)), (4, 3, 0, 8), "l1", (1, 1, 2, 1), 12)
    problem = problem_over(region, (11, 7, 5, 9))
    engine = CnfEngine("approxmc", epsilon=Fraction(1, 2), delta=Fraction(1, 100))
    count = engine.count(problem, problem.cases[0], Limits(seed=7), Progress())["all"]
    assert count.lower <= region_size(region) <= count.upper
    if count.guarantee is Guarantee.PAC:
        assert (count.epsilon, count.delta, count.seed) == (Fraction(1, 2), Fraction(1, 100), 7)


@pytest.mark.needs("cbmc", "pyganak")
def test_deadline_leaves_bounds() -> None:
    region = Ball(Box((0,) * 3, (6, 7, 8)), (1, 2, 3), "l1", (1, 2, 1), 4)
    problem = problem_over(region, (6, 7, 8))
    counts = CnfEngine().count(problem, problem.cases[0], Limits.starting_now(0.0), Progress())
    for count in counts.values():
        assert (count.lower, count.upper, count.guarantee) == (0, len(list(points(region))), Guarantee.BOUNDS)


@pytest.mark.parametrize("seed", range(20))
def test_region_size(seed: int) -> None:
    import random

    rng = random.Random(seed)
    region = random_region(rng, (3, 5, 1, 4), rng.choice(("box", "l0", "l1")))
    assert region_size(region) == len(list(points(region)))


def test_size_of_a_ball_with_very_many_distances_is_bounded_by_its_box() -> None:
    box = Box((0, 0), (1 << 32, 1 << 32))
    assert region_size(Ball(box, (5, 5), "l1", (1, 1), 1 << 33)) == box.size


def test_refusals() -> None:
    problem = problem_over(Box((0,), (3,)), (3,))
    weighted = replace(problem, measure=Measure("product", ((1, 2, 3),)))
    assert "uniform" in (CnfEngine().refuses(weighted, problem.cases[0]) or "")
    wide = problem_over(Box((0,), (1 << 600,)), (1 << 600,))
    assert "2^512" in (CnfEngine().refuses(wide, wide.cases[0]) or "")
    with pytest.raises(InputError, match="nonesuch"):
        CnfEngine("nonesuch").count(problem, problem.cases[0], Limits(), Progress())


@pytest.mark.needs("pyganak")
def test_cbmc_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(locate, "cbmc_candidates", lambda: ())
    problem = problem_over(Box((0,), (3,)), (3,))
    with pytest.raises(MissingToolError) as caught:
        CnfEngine().count(problem, problem.cases[0], Limits(), Progress())
    assert "cbmc" in caught.value.hint


# --- the check of CBMC itself ------------------------------------------------------------------------------------
@pytest.mark.needs("cbmc")
def test_known_counts_are_right_by_this_suite_too() -> None:
    for known in selfcheck.known_counts():
        assert brute_count(translate_line(known.line, known.region, known.query, Limits()).cnf) == known.count


def wrapped(folder: Path, before: str, after: str) -> str:
    """The real CBMC with its arguments or its output file tampered with."""
    real = locate.find("cbmc")
    assert real is not None
    path = folder / "cbmc"
    call = f'{shlex.join(real.argv_prefix)} "$@"'
    path.write_text(f'#!/bin/sh\ncase "$1" in --version) exec {call};; esac\n{before}\n{call}\n{after}\n')
    path.chmod(0o755)
    return os.fspath(path)


@pytest.mark.needs("cbmc")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "sed -i -E 's/^(c .*x1!0@1#2) (-?[0-9]+) (-?[0-9]+)$/\\1 \\2 \\2/' query.cnf"),  # a lost bit
        ("", "sed -i -E '/x2!0@1#2|nondet/d' query.cnf"),  # a lost input
        ("sed -i '/__CPROVER_assume/d' query.i", ""),  # lost assumptions
        ("sed -i 's/assert(!(/assert((/' query.i", ""),  # the opposite question
        ("sed -i 's/ < / <= /' query.i", ""),
        ("", 'grep -q "^p cnf 0 0" query.cnf && echo "p cnf 1 0" > query.cnf; true'),  # false as true
    ],
)
def test_a_wrong_translator_is_found_out(
    before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUANTIFY_CBMC", wrapped(tmp_path, before, after))
    with pytest.raises((ContradictionError, UndecidedError)):
        selfcheck.require_checked(Limits())
    with pytest.raises((ContradictionError, UndecidedError)):  # and it is not remembered as passed
        selfcheck.require_checked(Limits())


@pytest.mark.needs("cbmc")
def test_a_right_translator_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTIFY_CBMC", wrapped(tmp_path, "echo run >> $(dirname $0)/runs", ""))
    for _ in range(2):
        selfcheck.require_checked(Limits())
    assert len((tmp_path / "runs").read_text().split()) == len(list(selfcheck.known_counts()))

"""Over a thousand random problems: the library's predict by enumeration, every engine, and CBMC with Ganak agree.

A failure prints the seed and the property; `draw_problem(seed, folder)` writes the files again.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from agreement import check_evaluators, check_evidence, check_exact, check_sampling, prepared
from drawn_problems import KINDS, draw_problem
from drawn_problems import Problem as Drawn

from quantify import engines, pipeline
from quantify.cnf import counters
from quantify.cnf.cbmc import translate
from quantify.cnf.formula import Cnf
from quantify.errors import InputError
from quantify.ir.count import Guarantee
from quantify.ir.problem import GridCase
from quantify.resources import Limits, Progress

CHUNKS, CHUNK = 60, 20
SEEDS = [range(chunk * CHUNK, (chunk + 1) * CHUNK) for chunk in range(CHUNKS)]
MOST_CLAUSES = 30_000
"""Formulas beyond (products of numbers near 2^53) take a counter half a minute: another query is counted."""

EXACT = {
    name: engine
    for name, engine in engines.discover().items()
    if engine.guarantee is Guarantee.EXACT and "tree" in engine.structures
}
# What these engines choose by size or processor, chosen here by hand.
EXACT |= {
    "bit slices": engines.enumerate.EnumerateEngine(bit_slices=True),
    "small portable blocks": engines.enumerate.EnumerateEngine(isa="portable", bit_slices=True, lane_bits=3),
    "plain descent": engines.boxes.BoxesEngine(native=False),
}


def test_there_are_a_thousand_problems_of_every_kind(tmp_path: Path) -> None:
    seeds = {seed for chunk in SEEDS for seed in chunk}
    assert CHUNKS * (CHUNK - 2) >= 1000  # what the test of CBMC and Ganak counts at least
    assert set(EXACT) >= {"reference", "boxes", "enumerate", "bdd"}
    kinds = Counter(random.Random(seed).choice(KINDS) for seed in seeds)
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) >= 80


def drawn_in(seed: int, folder: Path) -> tuple[Drawn, pipeline.Prepared]:
    """The drawn problem, and what the pipeline makes of its files."""
    folder.mkdir()
    drawn = draw_problem(seed, folder)
    return drawn, prepared(drawn)


# --- exact engines, evaluators, sampling -----------------------------------------------------------------------------
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_engines_agree_with_enumeration(seeds: range, tmp_path: Path) -> None:
    counted: Counter[str] = Counter()
    for seed in seeds:
        drawn, ready = drawn_in(seed, tmp_path / str(seed))
        check_evaluators(drawn, ready)
        for case, wanted in zip(ready.grid.cases, drawn.cases, strict=True):
            for name, engine in EXACT.items():
                if engine.refuses(ready.grid, case) is None:
                    counts = engine.count(ready.grid, case, Limits(), Progress())
                    check_exact(drawn, ready, counts, wanted, name)
                    counted[name] += 1
        check_sampling(drawn, ready, ready.grid.cases[0], drawn.cases[0])
        counted["problems"] += 1
    assert counted["problems"] == CHUNK
    for name in EXACT:
        assert counted[name] >= CHUNK // 3, f"{name} refuses too often to be tested: {counted}"


# --- the command's own flow ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seeds", SEEDS[::4], ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_evidence_and_rates(seeds: range, tmp_path: Path) -> None:
    for seed in seeds[::2]:
        check_evidence(drawn_in(seed, tmp_path / str(seed))[0])


# --- CBMC and Ganak --------------------------------------------------------------------------------------------------
@pytest.mark.needs("cbmc", "pyganak")
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_cbmc_and_ganak_agree_with_enumeration(seeds: range, tmp_path: Path) -> None:
    """One query of each problem; the formulas of all of them in one child process, for starting it costs the most."""
    formulas: list[Cnf] = []
    wanted: list[int] = []
    about: list[str] = []
    for seed in seeds:
        drawn, ready = drawn_in(seed, tmp_path / str(seed))
        for case, query, count in asked(drawn, ready):
            try:
                translation = translate(ready.grid, case, query, Limits())
            except InputError:  # words beyond 512 bits
                continue
            if translation.cnf.literals.count(0) > MOST_CLAUSES:
                continue
            formulas.append(translation.cnf)
            wanted.append(count)
            about.append(f"{query.name}, {drawn}\n{translation.source}")
            break
    assert len(formulas) >= CHUNK - 2
    answers = counters.get("ganak").count_all(formulas, Limits())  # type: ignore[attr-defined]
    for answer, count, text in zip(answers, wanted, about, strict=True):
        assert answer.lower == answer.upper == count, f"CBMC and Ganak: {answer.lower}, not {count}: {text}"


def asked(drawn: Drawn, ready: pipeline.Prepared) -> list[tuple[GridCase, Any, int]]:
    """The problem's queries with their numbers of inputs, in random order, those that some inputs meet first."""
    pairs = [
        (case, query, int(wanted[query.name].sum()), int(region.sum()))
        for case, wanted, region in zip(ready.grid.cases, drawn.cases, drawn.regions, strict=True)
        for query in case.queries
    ]
    random.Random(drawn.seed).shuffle(pairs)
    if drawn.seed % 8:
        pairs.sort(key=lambda pair: pair[2] in (0, pair[3]))
    return [(case, query, count) for case, query, count, _ in pairs]

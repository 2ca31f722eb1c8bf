"""An installed CBMC in, nothing out, once it has translated programs whose counts are known.

Counters are calibrated elsewhere; here formulas are counted by listing their projected models with a SAT solver, so
that only CBMC and the reading of its files are on trial.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from quantify.cnf.cbmc import FLAGS, translate_line
from quantify.cnf.codegen import harness
from quantify.cnf.formula import Cnf
from quantify.cnf.lowering import straighten
from quantify.cnf.straight import Input, StraightLine
from quantify.errors import ContradictionError
from quantify.ir.domain import Measure
from quantify.ir.predicate import (
    AllOf,
    Always,
    CountOf,
    Extreme,
    FloorDiv,
    HasLabel,
    Linear,
    Negation,
    Plus,
    Predicate,
    Sign,
    Times,
    Within,
)
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree, Region
from quantify.resources import Limits, cache_folder
from quantify.tools import locate

SIZES = (11, 4, 3, 2)
INPUTS = tuple(Input(feature, 0, size) for feature, size in enumerate(SIZES))
WHOLE = Box((0,) * len(SIZES), SIZES)
TREE = GridTree(
    (0, 1, 2, -1, -1), (3, 1, 1, 0, 0), (11, 2, 2, 0, 0), (1, 3, 3, 0, 0), (2, 4, 4, 0, 0), (-1, -1, -1, 0, 1)
)
"""Three-way splits, and both leaves shared."""
Point = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """A program with the number of inputs that satisfy it."""

    query: GridQuery
    """Its name says what is tried; the predicate matters to nobody once it is lowered."""
    line: StraightLine
    region: Region
    count: int


def require_checked(limits: Limits) -> None:
    """Return when the installed CBMC gets every known count right; that it did is kept under the program's hash.

    Raises:
        MissingToolError: CBMC is not installed.
        ContradictionError: A count is wrong.
        UndecidedError: CBMC was stopped or crashed.
    """
    tool = locate.require_cbmc()
    entry = _entry(tool)
    if entry.exists():
        return
    for known in known_counts():
        found = _listed(translate_line(known.line, known.region, known.query, limits).cnf)
        if found != known.count:
            raise ContradictionError(
                f"CBMC {tool.version} ({tool.path}) failed its check: "
                f"{found} instead of {known.count} inputs for {known.query.name!r}",
                f"use another CBMC: {locate.install_cbmc_hint()}",
            )
    # A cache that cannot be written costs another check, no more.
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.touch()


def _entry(tool: locate.Tool) -> Path:
    """The file whose presence says that this program passed these checks."""
    digest = hashlib.sha256(repr((asdict(tool), FLAGS)).encode())
    for known in known_counts():
        digest.update(f"{known.count} {harness(known.line, known.region, known.query)}".encode())
    return cache_folder() / "calibration" / f"cbmc-{digest.hexdigest()[:32]}"


def known_counts() -> Iterator[Known]:
    """Programs with their counts, which are products of sizes or found by enumeration."""
    written = {"always": "1", "never": "0", "one of three": "x2 == 1", "the last of eleven": "x0 >= 10"}
    for (name, condition), count in zip(written.items(), (264, 0, 88, 24), strict=True):
        yield Known(GridQuery(name, Always(True)), StraightLine(INPUTS, (), "1", (), (), condition), WHOLE, count)
    some = StraightLine(INPUTS[:1], (), "1", (), (), "1")
    yield Known(GridQuery("always, inputs left out", Always(True)), some, WHOLE, 264)
    ball = Ball(WHOLE, (4, 3, 0, 1), "l1", (1, 2, 1, 3), 4)
    changed = Ball(WHOLE, (4, 3, 0, 1), "l0", (1,) * 4, 2)
    for name, predicate, holds in _predicates():
        yield _enumerated(name, WHOLE, predicate, holds)
    yield _enumerated("l1 ball", ball, HasLabel((1,)), lambda p: _label(p) == 1 and _near(p, ball) <= 4)
    yield _enumerated("l0 ball", changed, HasLabel((0,)), lambda p: _label(p) == 0 and _changed(p, changed) <= 2)


def _predicates() -> Iterator[tuple[str, Predicate, Callable[[Point], bool]]]:
    """Always and never in a form that nothing folds, and one predicate for each kind of arithmetic."""
    x, y, z = (Linear(((feature, 1),), 0) for feature in (0, 1, 2))
    yield "squares", Sign("<=", Plus((x, Times(Linear(((0, -1),), 0), x)))), lambda p: True
    yield "no squares", Sign("<", Plus((Times(y, y), Linear(((1, -1),), 0)))), lambda p: False
    yield "labels", AllOf((HasLabel((1,)), Negation(Within(0, 4, 7)))), lambda p: _label(p) == 1 and not 4 <= p[0] < 7
    yield "sums", Sign("<", Linear(((0, 2), (1, -3), (2, 5)), -7)), lambda p: 2 * p[0] - 3 * p[1] + 5 * p[2] < 7
    yield (
        "floor division",
        Sign("==", Plus((FloorDiv(Linear(((0, 1), (1, -2)), -3), 3), Linear((), 1)))),
        lambda p: (p[0] - 2 * p[1] - 3) // 3 == -1,
    )
    yield (
        "extremes",
        Sign("<", Plus((Extreme("max", (x, Linear(((1, 3),), -1))), Extreme("min", (y, z)), Linear((), -6)))),
        lambda p: max(p[0], 3 * p[1] - 1) + min(p[1], p[2]) < 6,
    )
    yield (
        "how many",
        Sign("==", Plus((CountOf((Within(0, 2, 9), Within(1, 0, 2), HasLabel((0,)))), Linear((), -2)))),
        lambda p: (2 <= p[0] < 9) + (p[1] < 2) + (_label(p) == 0) == 2,
    )


def _enumerated(name: str, region: Region, predicate: Predicate, holds: Callable[[Point], bool]) -> Known:
    query = GridQuery(name, predicate)
    case = GridCase(region, (query,), ())
    line = straighten(GridProblem(SIZES, 2, TREE, Measure(), (case,)), case, query)
    return Known(query, line, region, sum(map(holds, product(*map(range, SIZES)))))


def _label(point: Point) -> int:
    """What `TREE` answers, in other words."""
    return int(point[2] == 1) if point[0] >= 3 else int(point[1] == 1)


def _near(point: Point, ball: Ball) -> int:
    return sum(w * abs(p - c) for w, p, c in zip(ball.weights, point, ball.centre, strict=True))


def _changed(point: Point, ball: Ball) -> int:
    return sum(p != c for p, c in zip(point, ball.centre, strict=True))


def _listed(cnf: Cnf) -> int:
    """The count, by blocking one projected model after the other."""
    from pysat.solvers import Glucose4

    clauses = [list(clause) for clause in cnf.clauses()]
    if [] in clauses:
        return 0
    found = 0
    with Glucose4(bootstrap_with=clauses) as solver:
        while solver.solve():
            found += 1
            true = set(solver.get_model() or ())
            if not cnf.projection:
                break
            solver.add_clause([-v if v in true else v for v in cnf.projection])
    return cnf.multiplier * found

"""Nothing goes in; formulas whose projected counts are known by other means than counting come out."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

from quantify.cnf.formula import Cnf

_RANDOM = 40


@dataclass(frozen=True, slots=True)
class Known:
    """A formula and its count."""

    name: str
    cnf: Cnf
    count: int


def known_counts() -> tuple[Known, ...]:
    """About a hundred formulas: the traps counters are known to fall into, closed forms, and small random ones.

    The random ones (the same on every call) are counted here by their truth tables.
    """
    return (*_corners(), *_closed_forms(), *_relations(), *_random())


def _known(
    name: str,
    count: int,
    variables: int,
    clauses: Iterable[Iterable[int]],
    projection: Iterable[int] | None = None,
    multiplier: int = 1,
) -> Known:
    literals = array("i")
    for clause in clauses:
        literals.extend(clause)
        literals.append(0)
    shown = range(1, variables + 1) if projection is None else projection
    return Known(name, Cnf(variables, literals, tuple(shown), multiplier), count)


def _corners() -> Iterator[Known]:
    yield _known("nothing at all", 1, 0, [])
    yield _known("no clause", 2**5, 5, [])
    yield _known("no clause, no projection", 1, 5, [], ())
    yield _known("no clause, 2^200", 2**200, 200, [])
    yield _known("empty clause", 0, 3, [[1, 2], []])
    yield _known("empty clause, no projection", 0, 3, [[]], ())
    yield _known("contradiction", 0, 2, [[1], [-1]])
    yield _known("contradiction outside the projection", 0, 3, [[1, 2], [1, -2], [-1, 2], [-1, -2]], [3])
    yield _known("satisfiable, no projection", 1, 3, [[1, 2], [-1, 3]], ())
    yield _known("unsatisfiable, no projection", 0, 2, [[1, 2], [1, -2], [-1, 2], [-1, -2]], ())
    yield _known("unit clause", 2**2, 3, [[1]])
    yield _known("units only, all fixed", 1, 3, [[1], [-2], [3]])
    yield _known("tautology", 2**3, 3, [[1, -1], [2, 3, -2]])
    yield _known("repeated literals", 3, 2, [[1, 1, 2], [2, 1, 2]])
    yield _known("repeated clauses", 3, 2, [[1, 2]] * 5)
    yield _known("free projected variables", 3 * 2**4, 6, [[1, 2]])
    yield _known("projected variables in no clause, others hidden", 2 * 2**3, 9, [[1, 2], [-1, 2]], [1, 7, 8, 9])
    yield _known("a variable freed by a unit clause", 2**3, 4, [[1], [1, 2], [1, 3, 4]])
    yield _known("a variable freed by a hidden one", 2**2, 3, [[1, 3], [2, -1, 3]], [1, 2])
    yield _known("always true through hidden definitions", 2**2, 3, [[-3, 1, 2], [3, -1], [3, -2], [3, 1, -1]], [1, 2])
    yield _known("variables declared beyond the last clause", 2**100 * 3, 102, [[1, 2]])
    yield _known("multiplier", 3 * 6, 2, [[1, 2]], None, 6)
    yield _known("multiplier of a contradiction", 0, 1, [[1], [-1]], None, 6)
    yield _known("2^198 times three", 3 * 2**198, 200, [[3, 150]])


def _closed_forms() -> Iterator[Known]:
    n = 30
    yield _known("all equal", 2, n, [c for v in range(1, n) for c in ([-v, v + 1], [v, -v - 1])])
    yield _known("all equal, ends shown", 2, n, [c for v in range(1, n) for c in ([-v, v + 1], [v, -v - 1])], [1, n])
    yield _known("implication chain", n + 1, n, [[-v, v + 1] for v in range(1, n)])
    yield _known("implication chain, hidden inside", 3, n, [[-v, v + 1] for v in range(1, n)], [1, n])
    yield _known("at most one", n + 1, n, [[-a, -b] for a, b in combinations(range(1, n + 1), 2)])
    yield _known("exactly one", n, n, [range(1, n + 1), *([-a, -b] for a, b in combinations(range(1, n + 1), 2))])
    yield _known("pairs", 3**16, 32, [[v, v + 1] for v in range(1, 32, 2)])
    yield _known("pairs, one of each shown", 2**12, 24, [[v, v + 1] for v in range(1, 24, 2)], range(1, 24, 2))
    # The Fibonacci number F(16 + 2).
    yield _known("no two neighbours", 2584, 16, [[-v, -v - 1] for v in range(1, 16)])
    yield _known("parity", 2**15, 31, _parity(16, 16), range(1, 17))
    yield _known("pigeons without room", 0, 12, _injective(4, 3))
    yield _known("permutations", 120, 25, _injective(5, 5))
    yield _known("arrangements", 6 * 5 * 4 * 3, 24, _injective(4, 6))
    yield _known("arrangements, first row shown", 6, 24, _injective(4, 6), range(1, 7))
    yield _known("colourings of a path", 3 * 2**9, 30, _colourings([(v, v + 1) for v in range(9)], 10, 3))
    # Of a cycle: (k - 1)^n + (-1)^n (k - 1).
    yield _known("colourings of a cycle", 2**10 + 2, 30, _colourings([(v, (v + 1) % 10) for v in range(10)], 10, 3))
    yield _known("less than, 8 bits", 2**7 * (2**8 - 1), 24, _less_than(8), range(1, 17))


def _parity(bits: int, first_sum: int) -> Iterator[list[int]]:
    """Bits 1…n have an odd number of ones, by running sums in the variables after them."""
    running = 1
    for place in range(2, bits + 1):
        total = first_sum + place - 1
        for a, b in product((running, -running), (place, -place)):
            yield [-a, -b, total if (a < 0) != (b < 0) else -total]
        running = total
    yield [running]


def _injective(rows: int, columns: int) -> Iterator[list[int]]:
    """Every row has exactly one column, no column has two rows."""
    cell = [[row * columns + column + 1 for column in range(columns)] for row in range(rows)]
    for row in cell:
        yield row
        yield from ([-a, -b] for a, b in combinations(row, 2))
    for column in zip(*cell, strict=True):
        yield from ([-a, -b] for a, b in combinations(column, 2))


def _colourings(edges: list[tuple[int, int]], nodes: int, colours: int) -> Iterator[list[int]]:
    colour = [[node * colours + c + 1 for c in range(colours)] for node in range(nodes)]
    for node in colour:
        yield node
        yield from ([-a, -b] for a, b in combinations(node, 2))
    for a, b in edges:
        yield from ([-x, -y] for x, y in zip(colour[a], colour[b], strict=True))


def _less_than(bits: int) -> Iterator[list[int]]:
    """Number 1…k is less than number k+1…2k (least bit first); "so far less" in the variables after them."""
    before = 0
    for place in range(1, bits + 1):
        a, b, less = place, bits + place, 2 * bits + place
        yield [a, -b, less]
        yield [-a, b, -less]
        # Equal digits: as before, which for the first digit is "not less".
        for same in ([a, b], [-a, -b]):
            yield [*same, *([-less] if before == 0 else [-less, before])]
            if before:
                yield [*same, less, -before]
        before = less
    yield [before]


def _relations() -> Iterator[Known]:
    """Relations on a few nodes: OEIS A006905 (transitive), A000798 (preorders), A001035 (partial orders)."""
    for nodes, transitive, preorders, orders in ((3, 171, 29, 19), (4, 3994, 355, 219)):
        pair = {(i, j): i * nodes + j + 1 for i in range(nodes) for j in range(nodes)}
        chains = [[-pair[i, j], -pair[j, k], pair[i, k]] for i, j, k in product(range(nodes), repeat=3)]
        loops = [[pair[i, i]] for i in range(nodes)]
        one_way = [[-pair[i, j], -pair[j, i]] for i, j in combinations(range(nodes), 2)]
        yield _known(f"transitive relations on {nodes}", transitive, nodes**2, chains)
        yield _known(f"preorders on {nodes}", preorders, nodes**2, chains + loops)
        yield _known(f"partial orders on {nodes}", orders, nodes**2, chains + loops + one_way)


def _random() -> Iterator[Known]:
    draw = random.Random(20240229)
    for number in range(_RANDOM):
        variables = draw.randint(2, 10)
        clauses = [
            [draw.choice((-1, 1)) * draw.randint(1, variables) for _ in range(draw.choice((1, 2, 2, 3, 3, 3, 4)))]
            for _ in range(draw.randint(1, 3 * variables))
        ]
        projection = sorted(draw.sample(range(1, variables + 1), draw.randint(0, variables)))
        known = _known(f"random formula {number}", 0, variables, clauses, projection, draw.choice((1, 1, 1, 3)))
        yield Known(known.name, known.cnf, count_by_truth_table(known.cnf))


def count_by_truth_table(cnf: Cnf) -> int:
    """The count, by a truth table as one big integer: bit m tells whether assignment m is a model.

    For up to about 20 variables.
    """
    rows = 1 << cnf.variables
    everything = (1 << rows) - 1
    true = [0] * (cnf.variables + 1)
    for variable in range(1, cnf.variables + 1):
        run = 1 << (variable - 1)
        # `run` zeros, then `run` ones, over and over.
        true[variable] = everything // ((1 << run) + 1) << run & everything
    models = everything
    for clause in cnf.clauses():
        satisfied = 0
        for literal in clause:
            satisfied |= true[literal] if literal > 0 else everything ^ true[-literal]
        models &= satisfied
    for variable in set(range(1, cnf.variables + 1)) - set(cnf.projection):
        run = 1 << (variable - 1)
        models = (models | models >> run) & ~true[variable]
    return models.bit_count() * cnf.multiplier

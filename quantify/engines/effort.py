"""Trees and formulas to the seconds that the engine `boxes` will need for them, within a small factor.

Constants were measured on one core; `auto` compares them with those of other engines, so ratios matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2, prod

from quantify.engines.cells import MOST_BITS, MOST_NUMBERS
from quantify.engines.clauses import (
    Affine,
    Box,
    Clauses,
    Compare,
    Constant,
    Formula,
    Function,
    In,
    Junction,
    Test,
    affine_bounds,
)
from quantify.engines.descent import PreparedTree
from quantify.engines.masses import Masses
from quantify.engines.parts import components, summands
from quantify.engines.sums import BIG_INTEGER, MOST_LINES, MOST_WORK, WORD

CALL = 1e-4
"""Fixed cost of a case."""
NATIVE_NODE = 1e-7
PLAIN_NODE = 3e-6
COEFFICIENT = 3e-7
"""Per node and coefficient of a ball's series; coefficients of a thousand digits cost several times as much."""
OPERATION = 3e-6
"""Per formula node and leaf or split."""
BIT = 5e-11
"""Per cell and formula node of a truth table of ranges."""
NUMBER = 4e-9
"""Per cell and formula node where arithmetic is involved; forty times as much where cells differ in mass."""
PAIR = 4e-6
"""Per closed-form sum over two features."""
PART = 2e-5
"""Per independent summand whose distribution is tabulated."""
ADDITION = 2e-9
"""Per addition of a distribution of sums."""
NEVER = 1e12
"""What an estimate stops at."""


@dataclass(frozen=True, slots=True)
class _Effort:
    """What one independent part of a formula takes."""

    splits: float = 1.0
    """Boxes that it falls into before each can be counted at once."""
    each: float = 0.0
    """Seconds on every leaf."""
    shared: float = 0.0
    """Seconds for all leaves together, if they do not overlap in the part's features."""


def tree_effort(tree: PreparedTree) -> float:
    """Seconds for the label counts of a box that cuts every node."""
    return CALL + tree.paths * (NATIVE_NODE if tree.has_native else PLAIN_NODE)


def ball_effort(tree: PreparedTree, degree: int) -> float:
    """Seconds for the label counts of a ball whose largest distance is `degree`."""
    coefficients = (degree + 1) * (1 + degree / 500)
    return CALL + (tree.paths + tree.features) * (PLAIN_NODE + COEFFICIENT * coefficients)


def predicate_effort(
    clauses: Clauses, masses: Masses, roots: Mapping[int, int], tree: PreparedTree
) -> tuple[float, str]:
    """Seconds for one query whose formula per label is `roots`, and why."""
    box = Box(list(zip(masses.low, masses.high, strict=True)))
    leaves = float(tree.paths)
    seconds, splits, terms = CALL, 1.0, 0
    for root in set(roots.values()):
        size = len(_below(clauses, root))
        node = clauses.nodes[root]
        parts = components(clauses, node) if isinstance(node, Junction) else [root]
        efforts = [_part_effort(clauses, masses, part, box) for part in parts]
        falls = min(NEVER, prod(min(effort.splits, NEVER) for effort in efforts))
        # A leaf also cuts features that the formula does not read, so leaves overlap in those that it does; leaves
        # that are the same there are counted once.
        read = [f for f in clauses.used(root) if f in tree.tests]
        different = min(leaves, 1.0 + sum(tree.tests[f] for f in read))
        overlap = different ** (1 - len(read) / max(1, len(tree.tests)))
        seconds += leaves * size * OPERATION + different * sum(effort.each for effort in efforts)
        seconds += overlap * (sum(effort.shared for effort in efforts) + (falls - 1) * size * OPERATION)
        splits, terms = max(splits, falls), max(terms, size)
    what = f"a predicate of {terms:,} terms on up to {tree.paths:,} leaves"
    return min(seconds, NEVER), what + (f", split about {splits:.1g} times" if splits > 1 else "")


def _part_effort(clauses: Clauses, masses: Masses, formula: int, box: Box) -> _Effort:
    node = clauses.nodes[formula]
    if isinstance(node, Constant | In):
        return _Effort()
    line = _line_of(clauses, node)
    if line is not None and masses.scalar:
        effort = _line_effort(masses, line, box)
        if effort is not None:
            return effort
    if isinstance(node, Test) and masses.scalar:
        effort = _sum_effort(clauses, masses, node, box)
        if effort is not None:
            return effort
    return _table_effort(clauses, masses, formula, box)


def _line_of(clauses: Clauses, node: Formula) -> Compare | None:
    """The linear test that a formula is, or two of which it is a strip."""
    if isinstance(node, Compare):
        return node
    if isinstance(node, Junction) and len(node.arguments) == 2:
        one, other = (clauses.nodes[argument] for argument in node.arguments)
        if isinstance(one, Compare) and isinstance(other, Compare):
            return one if one.terms == tuple((f, -c) for f, c in other.terms) else None
    return None


def _line_effort(masses: Masses, line: Compare, box: Box) -> _Effort | None:
    """A linear test in closed form or by the distribution of the sum; None where it goes to tables."""
    widths = sorted(box[f][1] - box[f][0] for f, _ in line.terms)
    plain = all(masses.plain(f) for f, _ in line.terms)
    outer = min(NEVER, prod(widths[:-2]))
    if plain and outer <= MOST_LINES:
        return _Effort(each=PAIR, shared=PAIR * outer)
    span = sum(abs(c) * (box[f][1] - box[f][0] - 1) for f, c in line.terms)
    total = prod(masses.total(masses.part(f, *box[f])) for f, _ in line.terms)
    top = min(span, -affine_bounds(line.terms, line.constant, box)[0])
    work = (top + 1) * (3 * len(widths) if plain else sum(widths))
    work *= BIG_INTEGER if total >= WORD else 1
    if work <= 16 * MOST_WORK:
        return _Effort(2 ** (max(1, work / MOST_WORK) - 1), each=work * ADDITION)
    return _Effort(outer / MOST_LINES, PAIR, PAIR * outer) if plain else None


def _sum_effort(clauses: Clauses, masses: Masses, node: Test, box: Box) -> _Effort | None:
    """A test of a sum of independent numbers by the distribution of the sum; None where it goes to tables."""
    parts = [part for part in summands(clauses, node.number) if clauses.features[part]]
    if len(parts) < 2:
        return None
    values, total, cells = 0, 1, 0
    for part in parts:
        low, high = clauses.bounds(part, box)
        size, _ = _table(clauses, part, box)
        if size > MOST_NUMBERS:
            return None
        cells += size * len(_below(clauses, part))
        values += min(size, high - low + 1)
        total *= prod(masses.total(masses.part(f, *box[f])) for f in clauses.used(part))
    low, high = clauses.bounds(node.number, box)
    work = (min(high - low, -low) + 1) * values * (BIG_INTEGER if total >= WORD else 1)
    return _Effort(each=work * ADDITION + cells * 40 * NUMBER + len(parts) * PART) if work <= MOST_WORK else None


def _table_effort(clauses: Clauses, masses: Masses, formula: int, box: Box) -> _Effort:
    """A formula that is tabulated, after splits if its table is too large."""
    size, arithmetic = _table(clauses, formula, box)
    plain = all(masses.plain(f) for f in clauses.used(formula)) and masses.scalar
    if plain and not arithmetic:
        block, cost = MOST_BITS, BIT
    else:
        block = max(1, MOST_NUMBERS // (masses.degree + 1))
        cost = NUMBER * (1 if plain else 40 * (masses.degree + 1))
    cells = float(min(size, 10**100))
    splits = 1.0
    if cells > block:
        # Where numbers decide, only boxes on the border between true and false stay open: a surface, not a volume;
        # where each number alone has a closed form, only boxes where two borders cross.
        away = 2 if _lines_only(clauses, masses, formula, box) else 1
        splits = (cells / block) ** (1 - min(1.0, away / arithmetic) if arithmetic > 1 else 1.0)
        splits = max(splits, log2(cells))
        cells = splits * block
    return _Effort(min(splits, NEVER), 0.0, min(NEVER, cells * len(_below(clauses, formula)) * cost))


def _lines_only(clauses: Clauses, masses: Masses, formula: int, box: Box) -> bool:
    """Whether a formula joins ranges and linear tests that have a closed form each."""
    node = clauses.nodes[formula]
    if isinstance(node, Junction):
        return all(_lines_only(clauses, masses, argument, box) for argument in node.arguments)
    if not isinstance(node, Compare):
        return isinstance(node, In)
    effort = _line_effort(masses, node, box) if masses.scalar else None
    return effort is not None and effort.splits == 1


def _table(clauses: Clauses, formula: int, box: Box) -> tuple[int, int]:
    """Cells of the formula's truth table, and the number of features that arithmetic reads."""
    ends: dict[int, set[int]] = {}
    arithmetic: set[int] = set()
    for index in _below(clauses, formula):
        node = clauses.nodes[index]
        if isinstance(node, In):
            ends.setdefault(node.feature, set()).update((node.low, node.high))
        elif isinstance(node, Compare | Affine):
            arithmetic.update(f for f, _ in node.terms)
    size = 1
    for f in clauses.used(formula):
        low, high = box[f]
        size *= high - low if f in arithmetic else 1 + sum(low < cut < high for cut in ends[f])
    return size, len(arithmetic)


def _below(clauses: Clauses, formula: int) -> set[int]:
    """The indices of a formula and everything in it."""
    seen, stack = {formula}, [formula]
    while stack:
        node = clauses.nodes[stack.pop()]
        if isinstance(node, Junction | Function | Test):
            below = (node.number,) if isinstance(node, Test) else node.arguments
            stack.extend(argument for argument in below if argument not in seen)
            seen.update(below)
    return seen

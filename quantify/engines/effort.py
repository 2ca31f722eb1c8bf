"""Trees and formulas to the seconds that the engine `boxes` will need for them, within a small factor.

Constants were measured on one core; `auto` compares them with those of other engines, so ratios matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from quantify.engines.cells import MOST_BITS, MOST_NUMBERS
from quantify.engines.clauses import Affine, Box, Clauses, Compare, Constant, Function, In, Junction, Test
from quantify.engines.descent import PreparedTree
from quantify.engines.masses import Masses
from quantify.engines.sums import MOST_LINES, MOST_WORK

CALL = 1e-4
"""Fixed cost of a case."""
NATIVE_NODE = 1e-7
PLAIN_NODE = 3e-6
COEFFICIENT = 3e-7
"""Per node and coefficient of a ball's series."""
OPERATION = 3e-6
"""Per formula node and leaf or split."""
BIT = 5e-11
"""Per cell and formula node of a truth table of ranges."""
NUMBER = 2e-8
"""Per cell and formula node where arithmetic is involved."""


def tree_effort(tree: PreparedTree) -> float:
    """Seconds for the label counts of a box that cuts every node."""
    return CALL + tree.paths * (NATIVE_NODE if tree.has_native else PLAIN_NODE)


def ball_effort(tree: PreparedTree, degree: int) -> float:
    """Seconds for the label counts of a ball whose largest distance is `degree`."""
    return CALL + (tree.paths + tree.features) * (PLAIN_NODE + COEFFICIENT * (degree + 1))


def predicate_effort(clauses: Clauses, masses: Masses, roots: Mapping[int, int], leaves: int) -> tuple[float, str]:
    """Seconds for one query whose formula per label is `roots`, on a tree of so many leaves, and why."""
    box = Box(list(zip(masses.low, masses.high, strict=True)))
    worst, total, nodes = 0.0, 0.0, 0
    for root in set(roots.values()):
        size = len(_below(clauses, root))
        nodes = max(nodes, size)
        node = clauses.nodes[root]
        components = clauses.components(node) if isinstance(node, Junction) else [root]
        splits = prod(_splits(clauses, masses, component, box) for component in components)
        worst = max(worst, splits)
        total += splits * size * OPERATION + sum(_table_time(clauses, masses, part, box) for part in components)
    seconds = CALL + leaves * nodes * OPERATION + total
    if worst <= 1:
        return seconds, f"a predicate of {nodes} terms on up to {leaves:,} leaves"
    return seconds, f"a predicate of {nodes} terms that must be split about {worst:.2g} times"


def _splits(clauses: Clauses, masses: Masses, formula: int, box: Box) -> float:
    """How many boxes the formula falls into before each can be counted at once."""
    node = clauses.nodes[formula]
    if isinstance(node, Constant | In) or _closed(clauses, masses, formula, box):
        return 1.0
    size, arithmetic = _table(clauses, formula, box)
    uniform = masses.scalar and not arithmetic and all(masses.plain(f) for f in clauses.used(formula))
    block = MOST_BITS if uniform else max(1, MOST_NUMBERS // (masses.degree + 1))
    if size <= block:
        return 1.0
    tables = size / block if size < 10**300 else 1e300
    # Where numbers decide, only boxes on the border between true and false stay open: a surface, not a volume.
    surface = 1 - 1 / arithmetic if arithmetic > 1 else 1.0
    return float(tables**surface)


def _closed(clauses: Clauses, masses: Masses, formula: int, box: Box) -> bool:
    """Whether a closed form or a sum over values counts the formula."""
    node = clauses.nodes[formula]
    if not masses.scalar:
        return False
    if isinstance(node, Junction):
        parts = [clauses.nodes[argument] for argument in node.arguments]
        strip = len(parts) == 2 and all(isinstance(part, Compare) for part in parts)
        first, second = parts[0], parts[-1]
        if not (strip and isinstance(first, Compare) and isinstance(second, Compare)):
            return False
        return [f for f, _ in first.terms] == [f for f, _ in second.terms] and _closed(
            clauses, masses, node.arguments[0], box
        )
    if not isinstance(node, Compare):
        return False
    widths = sorted(box[f][1] - box[f][0] for f, _ in node.terms)
    if all(masses.plain(f) for f, _ in node.terms) and prod(widths[:-2]) <= MOST_LINES:
        return True
    span = sum(abs(c) * (box[f][1] - box[f][0]) for f, c in node.terms)
    return 120 * span * len(widths) <= MOST_WORK


def _table_time(clauses: Clauses, masses: Masses, formula: int, box: Box) -> float:
    """Seconds for the truth tables of a formula, all leaves together."""
    if isinstance(clauses.nodes[formula], Constant | In) or _closed(clauses, masses, formula, box):
        return 0.0
    size, arithmetic = _table(clauses, formula, box)
    plain = masses.scalar and not arithmetic and all(masses.plain(f) for f in clauses.used(formula))
    cells = min(float(size) if size < 10**300 else 1e300, 1e300)
    splits = _splits(clauses, masses, formula, box)
    if splits > 1 and arithmetic:
        cells = splits * MOST_NUMBERS
    cost = BIT if plain else NUMBER * (masses.degree + 1)
    return cells * len(_below(clauses, formula)) * cost


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

"""A grid tree in, one select per node out, from the leaves to the root.

Equal nodes are merged and nodes whose ways agree are skipped (the reduction rules of Bryant, "Graph-Based Algorithms
for Boolean Function Manipulation", IEEE Transactions on Computers 35(8), 1986, section 4, on the tests as they are
given), so the text is linear in a tree with shared children, and its formula has a tenth of the clauses that nested
branches cost, whose joins merge the label variable once a branch.
"""

from __future__ import annotations

from collections.abc import Callable

from quantify.cnf.straight import Let
from quantify.cnf.words import Word
from quantify.ir.problem import GridTree


def evaluate(
    tree: GridTree, test: Callable[[int, int, int], str], leaf: Callable[[int], str], word: Word, prefix: str
) -> tuple[str, list[Let]]:
    """The root's value and the assignments before it.

    Args:
        tree: What to evaluate.
        test: C truth of low ≤ position of a feature < high; "1" and "0" where the region decides it.
        leaf: C constant of a class index.
        word: Type of the values.
        prefix: Node 7 is called prefix + "7".
    """
    values: dict[int, str] = {}
    merged: dict[tuple[str, str, str], str] = {}
    lets: list[Let] = []
    pending = [0]
    while pending:
        node = pending[-1]
        if node in values or tree.feature[node] < 0:
            values.setdefault(node, leaf(tree.label[node]))
            pending.pop()
            continue
        condition = test(tree.feature[node], tree.low[node], tree.high[node])
        right, left = tree.right[node], tree.left[node]
        ways = (right,) if condition == "1" else (left,) if condition == "0" else (right, left)
        missing = [way for way in ways if way not in values]
        if missing:
            pending.extend(missing)
            continue
        sides = tuple(values[way] for way in ways)
        if sides[0] == sides[-1]:
            values[node] = sides[0]
            continue
        key = (condition, sides[0], sides[1])
        if key not in merged:
            merged[key] = f"{prefix}{node}"
            shown = condition if condition.removeprefix("!").isalnum() else f"({condition})"
            lets.append(Let(word, merged[key], (f"{shown} ? {sides[0]} : {sides[1]}",)))
        values[node] = merged[key]
    return values[0], lets

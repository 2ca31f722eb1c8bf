"""Tree over floats to tree over grid positions: every threshold becomes a cut, decided in the library's own dtype."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from quantify.discretise.grids import FloatType, seen_by_model
from quantify.errors import InputError
from quantify.ir.domain import Domain, Feature
from quantify.ir.model import Tree
from quantify.ir.problem import Column, GridTree


def cut(feature: Feature, threshold: float, dtype: FloatType) -> int:
    """How many positions of the feature (a prefix; the missing one not among them) go left at `threshold`.

    A position goes left iff the model's float of its value is ≤ `threshold`. Rounding never reverses an order, so
    the positions that go left are a prefix, and bisection with the rounded values themselves finds its length.
    """
    return bisect_right(range(feature.grid_size), threshold, key=seen_by_model(feature, dtype))


class Cuts:
    """The right-hand interval of every (column, threshold, NaN direction), each worked out once."""

    def __init__(self, domain: Domain, columns: Sequence[Column], dtype: FloatType) -> None:
        self._features = domain.features
        self._columns = columns
        self._dtype = dtype
        self._known: dict[tuple[int, float], int] = {}

    def right_interval(self, column: int, threshold: float, missing_left: bool) -> tuple[int, int]:
        """(low, high): the node goes right iff low ≤ position of the column's feature < high.

        low ≥ high means never, (0, size) always.

        Raises:
            InputError: The column is one of a one-hot group whose feature can be missing.
        """
        place, level = self._columns[column].feature, self._columns[column].level
        feature = self._features[place]
        if level is not None:
            if feature.missing:
                raise InputError(
                    f"feature {feature.name!r} is one-hot encoded and cannot be missing",
                    "drop `missing: true`, or add a category for it",
                )
            if threshold < 0:
                return 0, feature.size
            return (level, level + 1) if threshold < 1 else (0, 0)
        end = feature.grid_size if missing_left else feature.size
        return self.position(place, threshold), end

    def position(self, place: int, threshold: float) -> int:
        """`cut` of the feature at `place`, remembered."""
        key = (place, threshold)
        if key not in self._known:
            self._known[key] = cut(self._features[place], threshold, self._dtype)
        return self._known[key]


def lower_tree(tree: Tree, cuts: Cuts, columns: Sequence[Column], sizes: Sequence[int]) -> GridTree:
    """The same function over positions.

    A node that the domain always sends the same way is replaced by that child, a node whose two children are leaves
    of one class by the leaf; what nothing leads to any more is dropped. Nodes are numbered in pre-order.

    Raises:
        InputError: See `Cuts.right_interval`.
    """
    stands_for: dict[int, int] = {}
    intervals: dict[int, tuple[int, int]] = {}
    labels: dict[int, int] = {}
    stack = [0]
    while stack:
        node = stack[-1]
        if node in stands_for:
            stack.pop()
        elif tree.column[node] < 0:
            labels[node] = tree.label[node]
            stands_for[node] = node
        else:
            if node not in intervals:
                column = tree.column[node]
                intervals[node] = cuts.right_interval(column, tree.threshold[node], tree.missing_left[node])
            size = sizes[columns[tree.column[node]].feature]
            needed = _ways(intervals[node], size, tree.left[node], tree.right[node])
            waiting = [child for child in needed if child not in stands_for]
            if waiting:
                stack.extend(reversed(waiting))
            else:
                stands_for[node] = _representative(node, [stands_for[child] for child in needed], labels)
    return _numbered(tree, columns, stands_for, intervals, labels)


def _ways(interval: tuple[int, int], size: int, left: int, right: int) -> tuple[int, ...]:
    """The children that some position of the domain leads to."""
    low, high = interval
    if low >= high:
        return (left,)
    return (right,) if low == 0 and high >= size else (left, right)


def _representative(node: int, children: list[int], labels: dict[int, int]) -> int:
    if len(children) == 1:
        return children[0]
    left, right = children
    if left in labels and right in labels and labels[left] == labels[right]:
        return left
    return node


def _numbered(
    tree: Tree,
    columns: Sequence[Column],
    stands_for: dict[int, int],
    intervals: dict[int, tuple[int, int]],
    labels: dict[int, int],
) -> GridTree:
    order: list[int] = []
    number: dict[int, int] = {}
    stack = [stands_for[0]]
    while stack:
        node = stack.pop()
        if node in number:
            continue
        number[node] = len(order)
        order.append(node)
        if node not in labels:
            stack.extend((stands_for[tree.right[node]], stands_for[tree.left[node]]))

    def child(children: Sequence[int], node: int) -> int:
        return -1 if node in labels else number[stands_for[children[node]]]

    return GridTree(
        feature=tuple(-1 if node in labels else columns[tree.column[node]].feature for node in order),
        low=tuple(0 if node in labels else intervals[node][0] for node in order),
        high=tuple(0 if node in labels else intervals[node][1] for node in order),
        left=tuple(child(tree.left, node) for node in order),
        right=tuple(child(tree.right, node) for node in order),
        label=tuple(labels.get(node, -1) for node in order),
    )

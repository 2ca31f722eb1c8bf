"""A decision tree and boxes of grid positions to points per label: the native descent, and the plain one beside it.

Both follow one side of a test where it does not cut the box and every side where it does. The native one returns
residual products over the features that were cut, in 128 bits, and says when they do not fit; the plain one works
over any algebra of `masses` and with any size of number.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.engines.masses import Masses, prefix_sums
from quantify.errors import InputError
from quantify.ir.problem import Box, GridProblem, GridTree

Range = tuple[int, int]
VISITS = 50_000_000
"""Most nodes that one native call visits per box and pass: shared children make more paths than nodes."""
WORD = 2**62
"""Positions and weights the native descent is given stay below this."""


@cache
def native_module() -> Any:
    """The compiled module, or None where it was not built."""
    try:
        from quantify.engines import _native
    except ImportError:
        return None
    return _native


def leaves(tree: GridTree, masses: Masses) -> Iterator[tuple[int, dict[int, Range], Any]]:
    """The leaves that the box of `masses` reaches: label, the features that were cut with their ranges, and the mass.

    Pieces without mass (weights of zero, all points beyond the radius) are left out.
    """
    low, high = masses.low, masses.high
    whole = masses.unit
    for place in range(len(low)):
        whole = masses.times(whole, masses.part(place, low[place], high[place]))
    stack: list[tuple[int, dict[int, Range], Any]] = [(0, {}, whole)] if masses.total(whole) else []
    while stack:
        node, changed, mass = stack.pop()
        while (place := tree.feature[node]) >= 0:
            start, stop = changed.get(place) or (low[place], high[place])
            first, last = max(start, tree.low[node]), min(stop, tree.high[node])
            if first >= last:
                node = tree.left[node]
            elif first == start and last == stop:
                node = tree.right[node]
            else:
                break
        else:
            yield tree.label[node], changed, mass
            continue
        rest = masses.over(mass, masses.part(place, start, stop))
        pieces = ((last, stop, tree.left), (first, last, tree.right), (start, first, tree.left))
        for begin, end, side in pieces:
            if begin < end:
                piece = masses.times(rest, masses.part(place, begin, end))
                if masses.total(piece):
                    stack.append((side[node], changed | {place: (begin, end)}, piece))


class PreparedTree:
    """A tree with its arrays ready for the native descent. Make them with `prepare`, which keeps them per problem.

    Raises:
        InputError: A child, feature or label is out of range, or the tree has a cycle.
    """

    def __init__(self, problem: GridProblem) -> None:
        tree = problem.tree
        _check(problem)
        self.labels = problem.labels
        self.nodes = len(tree.feature)
        self.features = len(problem.sizes)
        self.depth, paths = _shape(tree)
        self.paths = min(paths, 10**18)
        """Paths from the root to leaves: more than leaves when children are shared. Capped."""
        self.tests = Counter(f for f in tree.feature if f >= 0)
        """How many nodes test each feature."""
        self._narrow = all(size < WORD for size in problem.sizes)
        self.used: NDArray[np.int64] = np.array(sorted({f for f in tree.feature if f >= 0}), dtype=np.int64)
        """The features that the tree reads, ascending: column c of a native box is feature used[c]."""
        self._places: list[int] = self.used.tolist()
        self.reached = tuple(sorted({label for f, label in zip(tree.feature, tree.label, strict=True) if f < 0}))
        """The labels that occur."""
        self._scratch = Lock()  # the call gives up the interpreter's lock, and its scratch memory is the tree's
        self._native = self._make_native(problem)

    @property
    def has_native(self) -> bool:
        """Whether the native descent can take this tree (it was built, and positions and weights fit its words)."""
        return self._native is not None

    def _make_native(self, problem: GridProblem) -> Any:
        module = native_module()
        sums = prefix_sums(problem.measure)
        weighted = {int(f): chosen for f in self.used if sums and (chosen := sums[f]) is not None}
        fits = all(problem.sizes[f] < WORD for f in self.used) and all(s[-1] < WORD for s in weighted.values())
        if module is None or not fits:
            return None
        ffi = module.ffi
        keep = ffi.new("qbox_tree *")
        nodes = ffi.new("qbox_node[]", self.nodes)
        columns = {int(f): column for column, f in enumerate(self.used)}
        tree = problem.tree
        for k in range(self.nodes):
            place = tree.feature[k]
            if place < 0:
                nodes[k] = {"feature": -1, "label": tree.label[k]}
                continue
            bounds = {"low": max(0, tree.low[k]), "high": min(problem.sizes[place], max(0, tree.high[k]))}
            bounds["low"] = min(bounds["low"], problem.sizes[place])
            nodes[k] = bounds | {"feature": columns[place], "left": tree.left[k], "right": tree.right[k]}
        offsets: list[int] = []
        flat: list[int] = []
        for f in self.used:
            offsets.append(len(flat) if int(f) in weighted else -1)
            flat.extend(weighted.get(int(f), ()))
        count = max(1, len(self.used))
        # cffi frees what nothing refers to: every array the struct points at is kept beside it.
        self._arrays = [
            nodes,
            ffi.new("uint64_t[]", flat),
            ffi.new("int64_t[]", offsets or [-1]),
            ffi.new("qbox_frame[]", 4 * self.depth + 8),
            ffi.new("int64_t[]", 2 * count),
            ffi.new("int32_t[]", count),
        ]
        keep.nodes, keep.features, keep.labels = nodes, len(self.used), self.labels
        keep.prefix = self._arrays[1] if flat else ffi.NULL
        keep.offset = self._arrays[2]
        keep.budget, keep.stack_length = VISITS, 4 * self.depth + 8
        keep.stack, keep.ranges, keep.touched_list = self._arrays[3:]
        return keep

    def residuals(
        self, low: NDArray[np.int64], high: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint8], NDArray[np.uint8]]:
        """The native descent over a batch of non-empty boxes.

        Args:
            low: First positions, boxes × len(used), C-contiguous.
            high: Positions past the last, same shape, low < high.

        Returns:
            residual counts (boxes × labels × 2 words, low word first) over the touched features, touched marks
            (boxes × len(used)), status (boxes): 0 where the first two hold, else a code of `native/boxes.h`.
        """
        boxes = len(low)
        residual = np.empty((boxes, self.labels, 2), dtype=np.uint64)
        touched = np.zeros((boxes, len(self.used)), dtype=np.uint8)
        status = np.zeros(boxes, dtype=np.uint8)
        module = native_module()
        cast = module.ffi.from_buffer
        arguments = (
            cast("int64_t[]", low),
            cast("int64_t[]", high),
            cast("uint64_t[]", residual, require_writable=True),
            cast("uint8_t[]", touched, require_writable=True),
            cast("uint8_t[]", status, require_writable=True),
        )
        with self._scratch:
            module.lib.qbox_count(self._native, boxes, *arguments)
        return residual, touched, status

    def native_counts(self, boxes: Sequence[Box], weights: list[tuple[int, ...] | None]) -> list[list[int] | None]:
        """Points (or weight) per label in each non-empty box, None where the native descent could not say."""
        low = np.array([self._columns(box.low) for box in boxes], dtype=np.int64)
        high = np.array([self._columns(box.high) for box in boxes], dtype=np.int64)
        residual, touched, status = self.residuals(low, high)
        found: list[list[int] | None] = []
        for b, box in enumerate(boxes):
            if status[b]:
                found.append(None)
                continue
            cut = self.used[touched[b].astype(bool)]
            if weights or not self._narrow:
                rest = _product(_widths(box, weights), cut)
            else:
                rest = _narrow_product(np.array(box.high) - np.array(box.low), cut)
            found.append([(first | second << 64) * rest for first, second in residual[b].tolist()])
        return found

    def _columns(self, positions: Sequence[int]) -> list[int]:
        return [positions[f] for f in self._places]


def _widths(box: Box, weights: list[tuple[int, ...] | None]) -> list[int]:
    if not weights:
        return [high - low for low, high in zip(box.low, box.high, strict=True)]
    return [
        high - low if sums is None else sums[high] - sums[low]
        for low, high, sums in zip(box.low, box.high, weights, strict=True)
    ]


def _product(widths: list[int], without: NDArray[np.int64]) -> int:
    """Product of the widths except those at `without`."""
    for place in without.tolist():
        widths[place] = 1
    return math.prod(widths)


def _narrow_product(widths: NDArray[np.int64], without: NDArray[np.int64]) -> int:
    """The same by powers of equal widths: a neighbourhood in an image has three different ones."""
    widths[without] = 1
    if len(widths) and widths.max() < 1024:
        return math.prod(width**times for width, times in enumerate(np.bincount(widths).tolist()) if times)
    return math.prod(widths.tolist())


def _check(problem: GridProblem) -> None:
    """Every index of the tree lies in range: native code will follow them."""
    tree = problem.tree
    count = len(tree.feature)
    if count == 0 or any(len(a) != count for a in (tree.low, tree.high, tree.left, tree.right, tree.label)):
        raise InputError("the tree has no nodes, or arrays of different lengths")
    for node, place in enumerate(tree.feature):
        if place < 0 and not 0 <= tree.label[node] < problem.labels:
            raise InputError(f"leaf {node} of the tree has class index {tree.label[node]} of {problem.labels}")
        children = (tree.left[node], tree.right[node])
        if place >= len(problem.sizes) or (place >= 0 and not all(0 <= child < count for child in children)):
            raise InputError(f"node {node} of the tree names a feature or a child that is not there")


def _shape(tree: GridTree) -> tuple[int, int]:
    """Nodes on the longest path from the root, and the number of paths to leaves."""
    depth = [0] * len(tree.feature)  # 0: not seen, -1: on the current path
    paths = [1] * len(tree.feature)
    stack = [0]
    while stack:
        node = stack[-1]
        children = () if tree.feature[node] < 0 else (tree.left[node], tree.right[node])
        if depth[node] == 0 and children:
            depth[node] = -1
            if any(depth[child] < 0 for child in children):
                raise InputError(f"the tree has a cycle through node {node}")
            stack.extend(child for child in children if depth[child] == 0)
            continue
        if depth[node] <= 0:
            depth[node] = 1 + max((depth[child] for child in children), default=0)
            paths[node] = sum(paths[child] for child in children) if children else 1
        stack.pop()
    return depth[0], paths[0]


_prepared: dict[int, tuple[weakref.ref[GridProblem], PreparedTree]] = {}


def prepare(problem: GridProblem) -> PreparedTree:
    """The prepared tree of a problem, made once per object (hashing a large problem would cost more than a count)."""
    key = id(problem)
    entry = _prepared.get(key)
    if entry is not None and entry[0]() is problem:
        return entry[1]
    ready = PreparedTree(problem)
    _prepared[key] = (weakref.ref(problem, lambda _: _prepared.pop(key, None)), ready)
    return ready

"""The arrays of a scikit-learn decision tree, of unknown origin, to checked arrays and the tree of the IR.

scikit-learn follows child and feature indices without looking, so a wrong one crashes the process or reads foreign
memory: everything is checked here before the library sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.errors import UnsafeFileError
from quantify.ir.model import Tree

LEAF = -1
"""`TREE_LEAF` of sklearn/tree/_tree.pyx; a node is a leaf iff its left child is this (`_apply_dense`)."""
RESAVE = "fit and save the model again; this file is damaged or crafted"
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class TreeArrays:
    """What `Tree.__reduce__` of scikit-learn holds for a single-output classifier, checked."""

    features: int
    nodes: NDArray[Any]
    """Records in the installed library's node dtype, shape (n,)."""
    values: NDArray[np.float64]
    """Class weights or fractions, shape (n, 1, classes)."""
    order: tuple[int, ...]
    """The nodes that are reachable from the root, the root first, parents before children."""
    depth: int


class OtherLayout(Exception):
    """The node records are those of another scikit-learn, of `version` where the file says so."""

    def __init__(self, version: str = "of an unknown version") -> None:
        super().__init__(version)
        self.version = version


def _refuse(what: str) -> UnsafeFileError:
    return UnsafeFileError(f"the tree is malformed: {what}", RESAVE)


def check_arrays(features: int, classes: int, state: Mapping[str, Any], node_dtype: np.dtype[Any]) -> TreeArrays:
    """Check the state of a sklearn Tree against the numbers of features and classes.

    Args:
        features: Number of model columns.
        classes: Number of classes.
        state: As `Tree.__getstate__` returns it: `node_count`, `nodes`, `values` (arrays, not yet trusted).
        node_dtype: The installed library's `NODE_DTYPE`.

    Raises:
        OtherLayout: The node records have other fields than the installed library's.
        UnsafeFileError: Wrong shapes or types, indices out of range, a cycle, a node with
            two parents, values that are not finite.
    """
    nodes, values = state.get("nodes"), state.get("values")
    if not isinstance(nodes, np.ndarray) or not isinstance(values, np.ndarray):
        raise _refuse("it has no node or value array")
    if nodes.ndim != 1 or len(nodes) == 0:
        raise _refuse("its node array is not a list of nodes")
    if not _compatible(nodes.dtype, node_dtype):
        raise OtherLayout
    count = len(nodes)
    stated = state.get("node_count")
    if not isinstance(stated, int | np.integer) or stated != count:
        raise _refuse(f"it holds {count} nodes, and says otherwise")
    if values.dtype.kind != "f" or values.dtype.itemsize != 8 or values.shape != (count, 1, classes):
        raise _refuse(f"its values have shape {values.shape}, expected ({count}, 1, {classes}) in float64")
    # Field by field: a plain astype would match fields by position.
    native = np.zeros(count, dtype=node_dtype)
    for name in node_dtype.names or ():
        native[name] = nodes[name]
    checked = np.ascontiguousarray(values, dtype=np.float64)
    if not np.isfinite(checked).all():
        raise _refuse("a value is not finite")
    order, depth = _walk(native, features)
    return TreeArrays(features, native, checked, order, depth)


def _compatible(found: np.dtype[Any], expected: np.dtype[Any]) -> bool:
    """Same fields, integers of 4 or 8 bytes, either byte order: what `_check_node_ndarray` of _tree.pyx accepts."""
    if found.names != expected.names or found.names is None:
        return False
    for name in found.names:
        theirs, ours = found[name], expected[name]
        widths = (4, 8) if ours.kind == "i" else (ours.itemsize,)
        if theirs.kind != ours.kind or theirs.itemsize not in widths:
            return False
    return True


def _walk(nodes: NDArray[Any], features: int) -> tuple[tuple[int, ...], int]:
    """Check the indices of all nodes, and list those reachable from the root."""
    count = len(nodes)
    left, right, column = nodes["left_child"], nodes["right_child"], nodes["feature"]
    inner = left != LEAF
    if (right[~inner] != LEAF).any():
        raise _refuse("a node has one child only")
    children = np.concatenate([left[inner], right[inner]])
    if ((children <= 0) | (children >= count)).any():
        raise _refuse(f"a child index lies outside 1…{count - 1}")
    if ((column[inner] < 0) | (column[inner] >= features)).any():
        raise _refuse(f"a feature index lies outside 0…{features - 1}")
    threshold = nodes["threshold"][inner]
    # +inf is genuine: "all that is not missing goes left" (node_split_best in sklearn/tree/_splitter.pyx).
    if (np.isnan(threshold) | (threshold == -np.inf)).any():
        raise _refuse("a threshold is not a number")
    parents = np.bincount(children, minlength=count)
    if (parents > 1).any():
        raise _refuse(f"node {int(np.argmax(parents > 1))} has two parents")
    # With one parent at most, whatever no parentless node leads to lies on a cycle.
    order, depth = _descend(left, right, [0])
    others = [int(k) for k in np.flatnonzero(parents == 0) if k != 0]
    if len(order) + len(_descend(left, right, others)[0]) != count:
        raise _refuse("its nodes form a cycle")
    return tuple(order), depth


def _descend(left: NDArray[Any], right: NDArray[Any], start: list[int]) -> tuple[list[int], int]:
    """Nodes below and including `start`, level by level, and the number of levels below."""
    order: list[int] = []
    level, depth = start, -1
    lefts, rights = left.tolist(), right.tolist()
    while level:
        order += level
        depth += 1
        level = [child for node in level if lefts[node] != LEAF for child in (lefts[node], rights[node])]
    return order, depth


def to_tree(arrays: TreeArrays) -> Tree:
    """The tree of the IR, of the reachable nodes.

    A leaf's label is the class of the largest value, the first on ties: `np.argmax(proba, axis=1)` in
    `BaseDecisionTree.predict`. The missing direction is true for any non-zero byte, as in `_apply_dense`.
    A threshold of +inf becomes the largest float32, which no finite input exceeds either.
    """
    order = list(arrays.order)
    place = {node: position for position, node in enumerate(order)}
    nodes = arrays.nodes[order]
    inner = (nodes["left_child"] != LEAF).tolist()
    best = np.argmax(arrays.values[order, 0, :], axis=1).tolist()
    thresholds = np.minimum(nodes["threshold"], FLOAT32_MAX).tolist()
    lefts, rights = nodes["left_child"].tolist(), nodes["right_child"].tolist()
    return Tree(
        column=tuple(c if i else -1 for c, i in zip(nodes["feature"].tolist(), inner, strict=True)),
        threshold=tuple(t if i else 0.0 for t, i in zip(thresholds, inner, strict=True)),
        left=tuple(place[k] if i else -1 for k, i in zip(lefts, inner, strict=True)),
        right=tuple(place[k] if i else -1 for k, i in zip(rights, inner, strict=True)),
        missing_left=tuple(bool(m) and i for m, i in zip(nodes["missing_go_to_left"].tolist(), inner, strict=True)),
        label=tuple(-1 if i else k for k, i in zip(best, inner, strict=True)),
        dtype="float32",
    )

"""Grid positions in bulk go in, class indices and truth values of predicates come out, by native code."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.engines import logic, native_network
from quantify.engines.bytecode import NotNativeError, Program, compile_predicates, native_tree
from quantify.ir import network_eval
from quantify.ir.network import IntNetwork
from quantify.ir.predicate import Predicate, reads_scores
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, Region


@dataclass
class Prepared:
    """What native calls need of one problem, built once."""

    nodes: NDArray[np.void] | None
    """Of a tree."""
    programs: dict[Predicate, Program] = field(default_factory=dict)
    networks: dict[bool, native_network.NativeNetwork | None] = field(default_factory=dict)
    """Of a network, by whether scores are wanted; None where 64 bits do not suffice."""


_prepared: dict[int, tuple[weakref.ref[GridProblem], Prepared]] = {}


def prepared(problem: GridProblem) -> Prepared:
    """What is cached for as long as the problem object lives: a tree's nodes from the start, the rest as it is made.

    Raises:
        NotNativeError: A feature has more than 2^62 positions.
    """
    key = id(problem)
    known = _prepared.get(key)
    if known is not None and known[0]() is problem:
        return known[1]
    made = Prepared(None if problem.network is not None else native_tree(problem.tree, problem.sizes))

    def forget(_: weakref.ref[GridProblem]) -> None:
        _prepared.pop(key, None)

    _prepared[key] = (weakref.ref(problem, forget), made)
    return made


def labels(problem: GridProblem, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Class index of every row of `positions` (rows × features; int64 grid positions).

    Raises:
        ValueError: The shape is wrong or a position lies outside its feature's grid.
    """
    rows = _checked(problem, positions)
    if problem.network is not None:
        return network_labels(problem, problem.network, rows)[0]
    try:
        nodes = tree_nodes(problem)
    except NotNativeError:
        found = [logic.label_of(problem.tree, tuple(row)) for row in rows.tolist()]
        return np.array(found, np.int64)
    out = np.empty(len(rows), np.int64)
    native().evaluate_labels(
        pointer("evaluate_node[]", nodes), pointer("int64_t[]", rows), *rows.shape, pointer("int64_t[]", out)
    )
    return out


def truths(problem: GridProblem, case: GridCase, query: GridQuery, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each row of `positions` (rows × features) lies in the case's region and satisfies the query.

    Raises:
        ValueError: The shape is wrong or a position lies outside its feature's grid.
    """
    rows = _checked(problem, positions)
    inside = contains(case.region, rows)
    if problem.network is not None:
        return inside & network_truths(problem, problem.network, [query.predicate], rows)[:, 0]
    try:
        nodes = tree_nodes(problem)
        program = _program(problem, query.predicate)
    except NotNativeError:
        found = (
            logic.holds(query.predicate, tuple(row), logic.label_of(problem.tree, tuple(row))) for row in rows.tolist()
        )
        return inside & np.fromiter(found, np.bool_, len(rows))
    out = np.empty(len(rows), np.uint8)
    native().evaluate_truths(
        pointer("evaluate_node[]", nodes),
        pointer("evaluate_step[]", program.steps),
        pointer("uint8_t[]", program.label_sets),
        program.wide,
        program.registers,
        pointer("int64_t[]", rows),
        *rows.shape,
        1,
        pointer("uint8_t[]", out),
    )
    return inside & out.view(np.bool_)


def tree_nodes(problem: GridProblem) -> NDArray[np.void]:
    """The native nodes of a tree.

    Raises:
        NotNativeError: A feature has more than 2^62 positions.
    """
    nodes = prepared(problem).nodes
    assert nodes is not None
    return nodes


def network_labels(
    problem: GridProblem, network: IntNetwork, rows: NDArray[np.int64], with_scores: bool = False
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Class index of every row of grid positions, and its scores if wanted (rows × outputs; object beyond 64 bits)."""
    native_form = _native_network(problem, network, with_scores)
    if native_form is None:
        scores = network_eval.scores(network, rows)
        return network_eval.best(scores), np.ascontiguousarray(scores)
    found = np.empty(len(rows), np.int64)
    scores = np.empty((len(rows), network.outputs if with_scores else 0), np.int64)
    native().network_rows(
        native_form.task(),
        pointer("int64_t[]", rows),
        len(rows),
        pointer("int64_t[]", found),
        pointer("int64_t[]", scores) if with_scores else null(),
    )
    return found, scores


def network_truths(
    problem: GridProblem, network: IntNetwork, predicates: Sequence[Predicate], rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether each predicate holds at each row of grid positions (rows × predicates), regions left aside."""
    found, scores = network_labels(problem, network, rows, any(map(reads_scores, predicates)))
    out = np.empty((len(rows), len(predicates)), np.bool_)
    for column, predicate in enumerate(predicates):
        out[:, column] = _known_truths(problem, predicate, rows, found, scores)
    return out


def _known_truths(
    problem: GridProblem,
    predicate: Predicate,
    rows: NDArray[np.int64],
    found: NDArray[np.int64],
    scores: NDArray[Any],
) -> NDArray[np.bool_]:
    try:
        program = _program(problem, predicate) if scores.dtype != object else None
    except NotNativeError:
        program = None
    if program is None:
        known = zip(rows.tolist(), found.tolist(), scores.tolist(), strict=True)
        truths = (logic.holds(predicate, row, label, row_scores) for row, label, row_scores in known)
        return np.fromiter(truths, np.bool_, len(rows))
    out = np.empty(len(rows), np.uint8)
    native().evaluate_known(
        pointer("int64_t[]", found),
        pointer("int64_t[]", scores),
        scores.shape[1],
        pointer("evaluate_step[]", program.steps),
        pointer("uint8_t[]", program.label_sets),
        program.wide,
        program.registers,
        pointer("int64_t[]", rows),
        *rows.shape,
        1,
        pointer("uint8_t[]", out),
    )
    return out.view(np.bool_)


def _native_network(
    problem: GridProblem, network: IntNetwork, with_scores: bool
) -> native_network.NativeNetwork | None:
    known = prepared(problem).networks
    if with_scores not in known:
        try:
            known[with_scores] = native_network.lower(
                network, problem.labels, (0,) * len(problem.sizes), problem.sizes, walk=False, scores=with_scores
            )
        except NotNativeError:
            known[with_scores] = None
    return known[with_scores]


def _program(problem: GridProblem, predicate: Predicate) -> Program:
    programs = prepared(problem).programs
    program = programs.get(predicate)
    if program is None:
        program = programs[predicate] = compile_predicates([predicate], problem)
    return program


def contains(region: Region, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows of `positions` lie in the region, exactly whatever the size of weights and radius."""
    box = region if isinstance(region, Box) else region.box
    inside = np.ones(len(positions), np.bool_)
    for feature, (low, high) in enumerate(zip(box.low, box.high, strict=True)):
        inside &= (positions[:, feature] >= low) & (positions[:, feature] < high)
    if isinstance(region, Ball):
        chosen = np.flatnonzero(inside)
        inside[chosen] = _near(region, positions[chosen])
    return inside


def _near(ball: Ball, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
    if ball.norm == "l0":
        centre = np.array(ball.centre, np.int64)
        return np.asarray((positions != centre).sum(axis=1) <= ball.radius)
    furthest = max((high for high in ball.box.high), default=0) + max((abs(c) for c in ball.centre), default=0)
    if sum(ball.weights) * furthest < 1 << 62:
        steps = np.abs(positions - np.array(ball.centre, np.int64))
        return np.asarray(steps @ np.array(ball.weights, np.int64) <= ball.radius)
    distances = (
        sum(w * abs(p - c) for w, p, c in zip(ball.weights, row, ball.centre, strict=True))
        for row in positions.tolist()
    )
    return np.fromiter((distance <= ball.radius for distance in distances), np.bool_, len(positions))


def _checked(problem: GridProblem, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    rows = np.ascontiguousarray(positions, dtype=np.int64)
    if rows.ndim != 2 or rows.shape[1] != len(problem.sizes):
        raise ValueError(f"positions have shape {rows.shape}, not (rows, {len(problem.sizes)})")
    if len(rows) and rows.shape[1]:
        last = np.array([min(size, 1 << 63) - 1 for size in problem.sizes], np.int64)
        if rows.min() < 0 or (rows.max(axis=0) > last).any():
            raise ValueError("a position lies outside its feature's grid")
    return rows


def native() -> Any:
    """The functions of the native module, imported at first use."""
    from quantify.engines import _native

    return _native.lib


def pointer(kind: str, array: NDArray[Any]) -> Any:
    """The memory of a contiguous array as the C array `kind`, such as "int64_t[]"."""
    from quantify.engines import _native

    return _native.ffi.from_buffer(kind, array)


def null() -> Any:
    """C's NULL."""
    from quantify.engines import _native

    return _native.ffi.NULL

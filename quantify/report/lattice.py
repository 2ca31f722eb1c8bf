"""The informative sets of a table to a drawing of how they lie in each other: all rows on top, smaller sets below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from quantify.ir.slices import WHOLE, Slices
from quantify.report.plots import WIDTH, position

MOST = 12
"""Sets at either end that are drawn."""
ACROSS = 12
"""Nodes beside each other; more are put on a second line."""
RADIUS = 13
STEP = 62
"""From one line to the next."""


@dataclass(frozen=True, slots=True)
class Node:
    """A set as drawn."""

    x: str
    y: str
    mark: str
    """Its number in the list below the drawing; nothing for all rows."""
    style: str
    """`worse`, `better` or `whole`."""
    name: str
    value: str
    size: str


@dataclass(frozen=True, slots=True)
class Edge:
    """An inclusion as drawn."""

    x1: str
    y1: str
    x2: str
    y2: str


@dataclass(frozen=True, slots=True)
class Lattice:
    """The drawing."""

    height: int
    spoken: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def draw(found: Slices, number: Callable[[Slices, float | None], str]) -> Lattice | None:
    """The worst and the best informative sets; None when there are none.

    Args:
        number: A value as text.
    """
    places = found.shown.places
    if not places:
        return None
    chosen = places if len(places) <= 2 * MOST else (*places[:MOST], *places[-MOST:])
    inclusions = list(_inclusions(found, chosen))
    lines = list(_lines(chosen, inclusions))
    at: dict[int, tuple[float, float]] = {WHOLE: (WIDTH / 2, RADIUS + 4)}
    for row, line in enumerate(lines, 1):
        for column, place in enumerate(line):
            at[place] = (WIDTH * (column + 0.5) / len(line), RADIUS + 4 + STEP * row)
    marks = {place: str(mark) for mark, place in enumerate(chosen, 1)}
    nodes = [_node(found, place, at[place], marks.get(place, ""), number) for place in (WHOLE, *chosen)]
    edges = [_edge(at[larger], at[smaller]) for larger, smaller in inclusions]
    height = 2 * (RADIUS + 4) + STEP * len(lines)
    return Lattice(
        height, f"{len(chosen)} sets below all rows, joined where one lies in the other", (*nodes,), (*edges,)
    )


def _lines(chosen: Sequence[int], inclusions: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Every set below those that contain it; a line holds `ACROSS` at most, in the order of their values."""
    level = {WHOLE: 0} | dict.fromkeys(chosen, 1)
    for _ in chosen:
        for larger, smaller in inclusions:
            level[smaller] = max(level[smaller], level[larger] + 1)
    for depth in range(1, max(level.values()) + 1):
        here = [place for place in chosen if level[place] == depth]
        lines = -(-len(here) // ACROSS)
        for line in range(lines):
            yield here[line::lines]


def _inclusions(found: Slices, chosen: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(larger, smaller) pairs of drawn sets, through sets that are not drawn."""
    drawn = {*chosen, WHOLE}
    above: dict[int, list[int]] = {}
    for larger, smaller in found.shown.edges:
        above.setdefault(smaller, []).append(larger)
    for place in chosen:
        seen: set[int] = set()
        waiting = list(above.get(place, [WHOLE]))
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            if one in drawn:
                yield one, place
            else:
                waiting += above.get(one, [WHOLE])


def _node(
    found: Slices, place: int, at: tuple[float, float], mark: str, number: Callable[[Slices, float | None], str]
) -> Node:
    x, y = map(position, at)
    whole = found.whole.value
    if place == WHOLE or whole is None:
        return Node(x, y, mark, "whole", found.set_name(WHOLE), number(found, whole), f"{found.whole.size:,}")
    value = float(found.sets.value[place])
    style = "worse" if (value < whole) == (found.worst == "low") else "better"
    return Node(x, y, mark, style, found.set_name(place), number(found, value), f"{found.sets.size[place]:,}")


def _edge(larger: tuple[float, float], smaller: tuple[float, float]) -> Edge:
    return Edge(position(larger[0]), position(larger[1] + RADIUS), position(smaller[0]), position(smaller[1] - RADIUS))

"""Junctions and sums to independent parts, which share no feature and so are counted apart."""

from __future__ import annotations

from quantify.engines.clauses import Affine, Clauses, Formula, Function, Junction


def components(clauses: Clauses, junction: Junction) -> list[int]:
    """The junction as one of formulas that share no feature (a single one: it does not come apart)."""
    return [clauses.junction(junction.every, members) for members in _grouped(clauses, list(junction.arguments))]


def summands(clauses: Clauses, number: int) -> list[int]:
    """Numbers without common features whose sum is `number`."""
    node = clauses.nodes[number]
    pieces: list[int] = []
    for argument in node.arguments if isinstance(node, Function) and node.name == "plus" else (number,):
        inner = clauses.nodes[argument]
        if isinstance(inner, Affine):
            pieces.append(clauses.affine((), inner.constant))
            pieces.extend(clauses.affine((term,), 0) for term in inner.terms)
            continue
        formulas, factor = _counted(clauses, inner)
        pieces.extend(clauses.times(clauses.count((formula,)), factor) for formula in formulas)
        if not formulas:
            pieces.append(argument)
    return [clauses.plus(members) for members in _grouped(clauses, pieces)]


def _counted(clauses: Clauses, node: Formula) -> tuple[tuple[int, ...], int]:
    """The formulas of a count and the number it is multiplied by; none when the node is something else."""
    if isinstance(node, Function) and node.name == "count":
        return node.arguments, clauses.affine((), 1)
    if isinstance(node, Function) and node.name == "times":
        for inner, factor in (node.arguments, node.arguments[::-1]):
            counted = clauses.nodes[inner]
            if isinstance(counted, Function) and counted.name == "count" and not clauses.features[factor]:
                return counted.arguments, factor
    return (), 0


def _grouped(clauses: Clauses, members: list[int]) -> list[list[int]]:
    """The members in groups such that no two groups read one feature."""
    groups: list[tuple[int, list[int]]] = []
    for member in members:
        mask, joined, apart = clauses.features[member], [member], []
        for other, others in groups:
            if other & mask:
                mask, joined = mask | other, others + joined
            else:
                apart.append((other, others))
        groups = [*apart, (mask, joined)]
    return [joined for _, joined in groups]

"""Problem to GridProblem: the tree or network over positions, and every query as an integer predicate."""

from __future__ import annotations

import math
from fractions import Fraction

from quantify.discretise.cuts import Cuts, lower_tree
from quantify.discretise.grids import seen_by_model
from quantify.discretise.networks import lower_network
from quantify.discretise.predicates import Lowering
from quantify.errors import InputError
from quantify.ir.domain import Feature
from quantify.ir.model import Tree
from quantify.ir.network import IntNetwork
from quantify.ir.predicate import Score
from quantify.ir.problem import GridCase, GridProblem, GridQuery, GridTree, Problem

MOST_POSITIONS = 2**62
"""Positions of one feature: engines keep a position in a signed 64-bit word."""


def lower(problem: Problem) -> GridProblem:
    """The integer problem with the same counts.

    Cases and queries keep their order and names; a threshold lies where the library's own comparison changes.

    Raises:
        InputError: A feature has no values or more than 2^62, reaches beyond the model's float type, can be missing
            where the model does not take NaN or is one-hot encoded; or an expression has no exact integer form. For
            networks, see `networks.lower_network`.
    """
    model, domain = problem.model, problem.domain
    if len(problem.columns) != model.columns:
        raise InputError(
            f"the model takes {model.columns} columns, and the domain gives {len(problem.columns)}",
            "list every model column once, in the features or in a one-hot group",
        )
    read = {column.feature for column in problem.columns}
    for place, feature in enumerate(domain.features):
        _validate(problem, feature, place in read)
    structure, scores = _structure(problem)
    lowering = Lowering(domain.features, len(model.classes), scores)
    return GridProblem(
        sizes=domain.sizes,
        labels=len(model.classes),
        structure=structure,
        measure=problem.measure,
        cases=tuple(
            GridCase(
                region=case.region,
                queries=tuple(
                    GridQuery(query.name, lowering.predicate(query.expression), query.reported)
                    for query in case.queries
                ),
                partitions=case.partitions,
            )
            for case in problem.cases
        ),
        relation_nodes=domain.relation_nodes,
    )


def _structure(problem: Problem) -> tuple[GridTree | IntNetwork, tuple[tuple[Fraction, Score], ...]]:
    structure = problem.model.structure
    if isinstance(structure, Tree):
        cuts = Cuts(problem.domain, problem.columns, structure.dtype)
        return lower_tree(structure, cuts, problem.columns, problem.domain.sizes), ()
    lowered = lower_network(problem)
    return lowered.network, lowered.scores


def _validate(problem: Problem, feature: Feature, read_by_model: bool) -> None:
    if feature.grid_size == 0:
        raise InputError(f"feature {feature.name!r} has no values", "widen its range")
    if feature.size > MOST_POSITIONS:
        raise InputError(
            f"feature {feature.name!r} has {feature.size} values, more than 2^62",
            "narrow its range or take a larger step",
        )
    if not read_by_model:
        return
    if feature.missing and not problem.model.accepts_missing:
        raise InputError(
            f"feature {feature.name!r} can be missing, and the model does not take missing values",
            "drop `missing: true`, or train the model on data with missing values",
        )
    dtype = problem.model.structure.dtype
    seen = seen_by_model(feature, dtype)
    if any(math.isinf(seen(position)) for position in (0, feature.grid_size - 1)):
        raise InputError(
            f"feature {feature.name!r} has values that are too large for a finite {dtype}",
            "the model's library refuses such inputs: narrow the range",
        )

"""A problem to what evidence records of its model, its property and its domain."""

from __future__ import annotations

from quantify.ir.model import Tree
from quantify.ir.network import LinearLayer, Network
from quantify.ir.problem import GridProblem, Problem


def of_model(problem: Problem, grid: GridProblem) -> dict[str, object]:
    """The model's file, its size, and how a network was made integer."""
    model = problem.model
    return {
        "path": model.path,
        "sha256": model.sha256,
        "kind": model.kind,
        "classes": list(model.classes),
        "features": model.columns,
        **_size(model.structure),
        "library": model.library,
        **_arithmetic(grid),
    }


def of_property(problem: Problem) -> dict[str, object]:
    """The property's name, kind and file."""
    return {
        "name": problem.name,
        "kind": problem.kind,
        "sha256": problem.property_sha256,
        "path": problem.property_path,
        "positive": problem.positive,
        "norm": problem.norm,
    }


def of_domain(problem: Problem) -> dict[str, object]:
    """The domain's size and measure."""
    return {
        "size": problem.domain.size,
        "measure": problem.measure.kind,
        "source": problem.measure.source,
        "features": len(problem.domain.features),
    }


def _size(structure: Tree | Network) -> dict[str, object]:
    if isinstance(structure, Tree):
        return {"leaves": structure.leaves}
    weights = sum(len(layer.rows.columns) for layer in structure.layers if isinstance(layer, LinearLayer))
    return {"layers": len(structure.layers), "weights": weights}


def _arithmetic(grid: GridProblem) -> dict[str, object]:
    network = grid.network
    if network is None:
        return {}
    return {
        "arithmetic": "exact" if network.exact else "quantised",
        "bits": max((layer.bits for layer in network.layers), default=0),
    }

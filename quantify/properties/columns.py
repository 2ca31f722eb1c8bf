"""Domain and model in, the source of every model column out: by name where the model has names, else by place."""

from __future__ import annotations

from quantify.ir.domain import CategoricalFeature
from quantify.ir.model import Model
from quantify.ir.problem import Column
from quantify.properties.domain import BuiltDomain
from quantify.properties.yaml import Node, fail, listed, suggest


def match(built: BuiltDomain, model: Model, node: Node) -> tuple[Column, ...]:
    """One Column per model column, in the model's order; `node` is the domain section.

    Raises:
        InputError: Counts or names differ, or a feature may be missing and the model takes no NaN.
    """
    wanted: dict[str, Column] = {}
    for place, feature in enumerate(built.domain):
        if feature.missing and not model.accepts_missing:
            fail(
                built.nodes[place],
                f"the feature {feature.name!r} may be missing, but this model does not accept missing values",
                "remove missing: true, or train the model on data with missing values",
            )
        if isinstance(feature, CategoricalFeature) and feature.onehot:
            wanted.update((name, Column(place, level)) for level, name in enumerate(feature.onehot))
        else:
            wanted[feature.name] = Column(place)
    if model.column_names is not None:
        _check_names(wanted, model.column_names, node)
        return tuple(wanted[name] for name in model.column_names)
    if len(wanted) != model.columns:
        fail(
            node,
            f"the domain has {len(wanted)} features, the model takes {model.columns}",
            "name the column of the answer with label:, and columns that are no features with drop: […]"
            if built.source
            else "describe each model input once, in the order the model was trained with",
        )
    return tuple(wanted.values())


def in_model_order(columns: tuple[Column, ...]) -> bool:
    """Whether the i-th feature of the domain is the i-th column of the model, for every i."""
    return all(column == Column(place) for place, column in enumerate(columns))


def _check_names(wanted: dict[str, Column], names: tuple[str, ...], node: Node) -> None:
    absent = [name for name in names if name not in wanted]
    known = set(names)
    strange = [name for name in wanted if name not in known]
    if not absent and not strange:
        return
    parts = []
    if absent:
        parts.append(f"the domain lacks {listed(absent)}")
    if strange:
        close = suggest(strange[0], absent) if absent else ""
        parts.append(f"the model has no feature {listed(strange)}{close}")
    fail(node, f"names differ from the model's: {'; '.join(parts)}", f"the model's features: {listed(names, 20)}")

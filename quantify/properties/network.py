"""The keys that only networks have in, the network's options and the model as the property sees it out.

```yaml
quantization: {mode: exact}            # or {bits: 8, per: channel, activations: 15, calibrate: data.csv}
decision: argmin                       # argmax unless said; ties to the lowest index
labels: [clear, weak left, weak right] # names of the scores, in order
preprocess: {scale: "1/255", offset: 0}   # the model is given scale·value + offset; lists have one entry a model input
```
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Literal, cast

from quantify.ir.domain import CategoricalFeature, Domain
from quantify.ir.model import Decision, Model
from quantify.ir.network import Network
from quantify.ir.problem import Column, NetworkOptions
from quantify.properties.fields import Fields, blame, choice, describe, integer, items, rational, text
from quantify.properties.table import Cell, Table, open_table
from quantify.properties.yaml import Node, Scalar, Sequence, fail, listed

WEIGHT_BITS = (2, 16)
ACTIVATION_BITS = (2, 30)
MAX_CALIBRATION = 10_000
"""Rows read; more change nothing that matters."""


def as_decided(fields: Fields, model: Model) -> Model:
    """The model with the property's labels, and its `predict` by the property's decision; trees unchanged.

    Raises:
        InputError: Labels that are not one a class, or a decision that the model cannot be asked for.
    """
    if not isinstance(model.structure, Network):
        return model
    head = model.structure.head
    node = fields.get("labels")
    if node is not None:
        model = replace(model, classes=_labels(node, model))
    decision_node = fields.get("decision")
    if decision_node is None:
        return model
    decision = cast(Decision, choice(decision_node, "decision", ("argmax", "argmin")))
    if decision == "argmin" and head == "sigmoid":
        fail(decision_node, "argmin has no meaning for a sigmoid output", "remove decision:")
    if model.predict_by is not None:
        return replace(model, predict=model.predict_by(decision))
    if decision == "argmin":
        fail(decision_node, f"{model.library} decides by the highest score only", "remove decision:")
    return model


def options(
    fields: Fields, model: Model, domain: Domain, columns: tuple[Column, ...], base: Path
) -> NetworkOptions | None:
    """What the file says about its network; None for trees.

    Raises:
        InputError: A key that cannot be used, with its line.
    """
    if not isinstance(model.structure, Network):
        return None
    found = _quantization(fields.get("quantization"), model, domain, columns, base)
    decision = fields.get("decision")
    if decision is not None:
        found = replace(found, decision=cast(Decision, text(decision, "decision")))
    return _with_preprocess(fields.get("preprocess"), found, model)


def _labels(node: Node, model: Model) -> tuple[str, ...]:
    names = tuple(text(entry, "a label") for entry in items(node, "labels"))
    if len(names) != len(model.classes):
        fail(node, f"{len(names)} labels for {len(model.classes)} classes", "name one label a class, in their order")
    for place, name in enumerate(names):
        if name in names[:place]:
            fail(node, f"the label {name!r} is there twice", "labels must be unique")
    return names


# --- quantization --------------------------------------------------------------------------------------------------
def _quantization(
    node: Node | None, model: Model, domain: Domain, columns: tuple[Column, ...], base: Path
) -> NetworkOptions:
    if node is None:
        return NetworkOptions()
    if isinstance(node, Scalar):
        fail(node, f"quantization must be a mapping, not {describe(node)}", "write {mode: exact} or {bits: 8}")
    fields = Fields(node, "quantization", ("mode", "bits", "per", "activations", "calibrate"))
    mode, bits = fields.get("mode"), fields.get("bits")
    if mode is not None:
        choice(mode, "mode", ("exact",))
        for key in ("bits", "per", "activations", "calibrate"):
            if key in fields:
                fail(fields.need(key, ""), f"mode: exact rounds nothing, so {key!r} has no meaning", "keep one of them")
        return NetworkOptions(mode="exact")
    if bits is None:
        fail(node, "quantization needs mode: exact or bits:", "write {mode: exact} or {bits: 8}")
    found = NetworkOptions(mode="bits", bits=_between(bits, "bits", WEIGHT_BITS))
    per, activations, calibrate = fields.get("per"), fields.get("activations"), fields.get("calibrate")
    if per is not None:
        word = choice(per, "per", ("tensor", "channel"))
        found = replace(found, per=cast(Literal["tensor", "channel"], word))
    if activations is not None:
        found = replace(found, activations=_between(activations, "activations", ACTIVATION_BITS))
    if calibrate is not None:
        found = replace(found, calibration=_calibration(calibrate, model, domain, columns, base))
    return found


def _between(node: Node, what: str, bounds: tuple[int, int]) -> int:
    value = integer(node, what)
    if not bounds[0] <= value <= bounds[1]:
        fail(node, f"{what} must lie between {bounds[0]} and {bounds[1]}, not {value}", f"write {what}: 8")
    return value


def _calibration(
    node: Node, model: Model, domain: Domain, columns: tuple[Column, ...], base: Path
) -> tuple[tuple[Fraction, ...], ...]:
    with blame(node):
        table = open_table(base / text(node, "calibrate"))
        height = min(table.height(), MAX_CALIBRATION)
        rows = table.rows(range(height))
    if not rows:
        fail(node, f"{table.path} has no data rows", "calibration needs inputs like those of the training data")
    places = _places(node, table, model, domain, columns)
    return tuple(
        tuple(
            _cell(node, row[place], domain, column, f"{table.path}: row {number}, column {place}")
            for place, column in zip(places, columns, strict=True)
        )
        for number, row in enumerate(rows)
    )


def _places(node: Node, table: Table, model: Model, domain: Domain, columns: tuple[Column, ...]) -> list[int]:
    """Where each model column stands in the file: by name when the file has the names, else by place."""
    names = model.column_names or tuple(_column_name(domain, column) for column in columns)
    known = table.names or ()
    absent = [name for name in names if name not in known]
    if not absent:
        return [known.index(name) for name in names]
    if table.width != model.columns:
        fail(
            node,
            f"{table.path} has {table.width} columns, the model takes {model.columns}",
            f"name its columns like the features; {listed(absent)} cannot be found",
        )
    return list(range(model.columns))


def _column_name(domain: Domain, column: Column) -> str:
    feature = domain.features[column.feature]
    if column.level is not None:
        assert isinstance(feature, CategoricalFeature)
        return feature.onehot[column.level]
    return feature.name


def _cell(node: Node, cell: Cell, domain: Domain, column: Column, where: str) -> Fraction:
    feature = domain.features[column.feature]
    if isinstance(cell, str) and isinstance(feature, CategoricalFeature) and cell in feature.values:
        position = feature.values.index(cell)
        return Fraction(position == column.level) if column.level is not None else Fraction(feature.value(position))
    if cell is None or isinstance(cell, str):
        fail(node, f"{where} is {'empty' if cell is None else repr(cell)}, no number", "remove such rows")
    return Fraction(cell)


# --- preprocess ----------------------------------------------------------------------------------------------------
def _with_preprocess(node: Node | None, found: NetworkOptions, model: Model) -> NetworkOptions:
    if node is None:
        return found
    fields = Fields(node, "preprocess", ("scale", "offset"))
    scale, offset = fields.get("scale"), fields.get("offset")
    if scale is None and offset is None:
        fail(node, "preprocess needs scale or offset", 'write preprocess: {scale: "1/255"}')
    factors = None if scale is None else _per_column(scale, "scale", model.columns)
    if scale is not None and factors is not None and not all(factors):
        fail(scale, "a scale of 0 makes every input the same", 'write scale: "1/255"')
    return replace(
        found, scale=factors, offset=None if offset is None else _per_column(offset, "offset", model.columns)
    )


def _per_column(node: Node, what: str, columns: int) -> tuple[Fraction, ...]:
    if not isinstance(node, Sequence):
        return (Fraction(rational(node, what)),) * columns
    values = tuple(Fraction(rational(entry, what)) for entry in node.items)
    if len(values) != columns:
        fail(node, f"{what} has {len(values)} entries, the model takes {columns} inputs", "write one number for all")
    return values

"""A robustness property and a model in, the Problem with one case per row and ε out."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal, cast

from quantify.ir.domain import Domain, IntFeature, Measure, Number
from quantify.ir.model import Model
from quantify.ir.problem import Case, Column, NetworkOptions, Problem, Query
from quantify.ir.property import LabelIn
from quantify.properties import columns, domain, measure, network, terms
from quantify.properties.balls import Shape, region
from quantify.properties.centres import Centres, class_of, read_cells, read_centres
from quantify.properties.domain import FLOAT32_MAX, MAX_GRID, BuiltDomain, shown
from quantify.properties.fields import Fields, choice, integer, items, number, rational, text, unknown
from quantify.properties.source import PropertySource
from quantify.properties.yaml import Mapping, Node, fail, listed
from quantify.properties.yaml import Sequence as ListNode

Norm = Literal["linf", "l1", "l0"]
MAX_CELLS = 50_000_000
"""Rows × ε × features: every case holds its box."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The words of the property that do not depend on the model."""

    norm: Norm
    epsilons: tuple[Number, ...]
    clip: tuple[Number, Number] | None


def build(source: PropertySource, model: Model, seed: int) -> Problem:
    """Centres, balls and labels of a robustness property, against a model.

    Raises:
        InputError: Anything that cannot be used, with file and line, and with row and column for data.
    """
    fields, base = source.fields, source.path.parent
    ask = _ask(fields)
    centres = read_centres(fields.need("inputs", 'write inputs: {file: data.csv, rows: "0-9"}'), base)
    domain_node = fields.get("domain")
    built = _integer_domain(centres, model, ask) if domain_node is None else domain.build(domain_node, model, base)
    places = columns.match(built, model, domain_node or centres.node)
    weights = _measure(fields, built, domain_node, base)
    if len(centres.rows) * len(ask.epsilons) * len(built.domain.features) > MAX_CELLS:
        fail(centres.node, f"{len(centres.rows)} rows are too many at once", 'choose some: rows: "0-99"')
    positions, notes = centres.positions(built.domain, places, model, ask.clip)
    held, held_note = _held(fields.get("fixed"), built.domain, seed)
    options = network.options(fields, model, built.domain, places, base)
    labels, label_notes = _labels(centres, positions, built.domain, places, model, options)
    shape = Shape(built.domain, ask.norm, ask.clip, held)
    return Problem(
        model=model,
        domain=built.domain,
        measure=weights,
        columns=places,
        kind="robustness",
        name=source.name,
        cases=tuple(_cases(ask, shape, centres, positions, labels, model)),
        property_path=str(source.path),
        property_sha256=source.sha256,
        norm=ask.norm,
        notes=(*built.notes, *notes, *held_note, *label_notes),
        network=options,
    )


# --- the words -----------------------------------------------------------------------------------------------------
def _ask(fields: Fields) -> Ask:
    norm_node = fields.get("norm")
    norm = "linf" if norm_node is None else choice(norm_node, "norm", ("linf", "l1", "l0"))
    node = fields.need("epsilon", "write epsilon: 1, or a list such as [1, 2, 4]")
    entries = node.items if isinstance(node, ListNode) else (node,)
    if not entries:
        fail(node, "the list of ε is empty", "write epsilon: 1, or a list such as [1, 2, 4]")
    epsilons: list[Number] = []
    for entry in entries:
        value = rational(entry, "epsilon")
        if value < 0:
            fail(entry, f"epsilon must not be negative: {shown(value)}", "ε is a distance in feature units")
        if value in epsilons:
            fail(entry, f"epsilon {shown(value)} is there twice", "name each ε once")
        epsilons.append(value)
    return Ask(cast(Norm, norm), tuple(epsilons), _clip(fields.get("clip")))


def _clip(node: Node | None) -> tuple[Number, Number] | None:
    if node is None:
        return None
    entries = items(node, "clip")
    if len(entries) != 2:
        fail(node, f"clip takes two numbers, not {len(entries)}", "write clip: [0, 255]")
    low, high = number(entries[0], "clip"), number(entries[1], "clip")
    if low > high:
        fail(node, f"clip is empty: {shown(low)} > {shown(high)}", f"write clip: [{shown(high)}, {shown(low)}]")
    return low, high


def _measure(fields: Fields, built: BuiltDomain, domain_node: Node | None, base: Path) -> Measure:
    node = fields.get("measure")
    weights = measure.build(node, built.domain, base)
    if node is not None and weights.kind == "product" and domain_node is None:
        fail(node, "a product measure needs a domain", "add domain: with the values that the weights are about")
    return weights


def _held(node: Node | None, features: Domain, seed: int) -> tuple[frozenset[int], tuple[str, ...]]:
    """Places of the features that stay at their value, and the note that says so when they were drawn."""
    if node is None:
        return frozenset(), ()
    count = len(features.features)
    if isinstance(node, Mapping):
        fields = Fields(node, "fixed", ("fraction", "seed"))
        place = fields.need("fraction", "write fixed: {fraction: 0.1, seed: 1}")
        fraction = rational(place, "fraction")
        if not 0 <= fraction <= 1:
            fail(place, f"fraction must lie between 0 and 1, not {shown(fraction)}", "write fraction: 0.1")
        seed_node = fields.get("seed")
        chosen_seed = seed if seed_node is None else integer(seed_node, "seed")
        wanted = math.floor(fraction * count)
        drawn = sorted(random.Random(chosen_seed).sample(range(count), wanted))
        names = listed((features.features[i].name for i in drawn), 20)
        return frozenset(drawn), (f"{wanted} of {count} features held (seed {chosen_seed}): {names or 'none'}",)
    held: set[int] = set()
    for entry in items(node, "fixed"):
        name = text(entry, "a feature to hold")
        index = features.index(name)
        if index is None:
            unknown(entry, "fixed", name, [feature.name for feature in features])
        held.add(index)
    return frozenset(held), ()


# --- the domain that the centres span ------------------------------------------------------------------------------
def _integer_domain(centres: Centres, model: Model, ask: Ask) -> BuiltDomain:
    """Integer features from the smallest centre − ε to the largest centre + ε, within `clip`; l0: all of `clip`."""
    if ask.norm == "l0" and ask.clip is None:
        fail(centres.node, "under l0 a feature takes any value of its range", "add clip: [0, 255], or a domain:")
    names = centres.feature_names(model)
    cells = read_cells(centres, names, model)
    reach = math.ceil(max(ask.epsilons))
    clip = None if ask.clip is None else (math.ceil(ask.clip[0]), math.floor(ask.clip[1]))
    limit = math.floor(FLOAT32_MAX)
    features = []
    for column, name in enumerate(names):
        values = [centres.integer(row[column], number_, name) for number_, row in zip(centres.rows, cells, strict=True)]
        least, most = min(values), max(values)
        low, high = least - reach, most + reach
        if clip is not None:
            floor, ceiling = clip
            low, high = (floor, ceiling) if ask.norm == "l0" else (max(low, floor), min(high, ceiling))
            # A centre outside clip gets a place too, so that the error about it can name its row.
            low, high = min(low, least), max(high, most)
        if max(abs(low), abs(high)) > limit or high - low >= MAX_GRID:
            fail(centres.node, f"the range of {name!r} is too large: {low} to {high}", "choose a smaller ε or clip")
        features.append(IntFeature(name, False, low, high))
    built = tuple(features)
    return BuiltDomain(Domain(built), (centres.node,) * len(built))


# --- cases ---------------------------------------------------------------------------------------------------------
def _labels(
    centres: Centres,
    positions: Sequence[tuple[int, ...]],
    features: Domain,
    places: tuple[Column, ...],
    model: Model,
    options: NetworkOptions | None,
) -> tuple[list[int], tuple[str, ...]]:
    """The class index that counts as right for each centre: the named label, else the model's own answer."""
    import numpy as np

    matrix = np.array([model_input(point, features, places, options) for point in positions], dtype=np.float64)
    predicted = [int(index) for index in model.predict(matrix)]
    if centres.labels is None:
        return predicted, ()
    named = [
        class_of(cell, model.classes, centres, row) for row, cell in zip(centres.rows, centres.labels, strict=True)
    ]
    wrong = [row for row, mine, yours in zip(centres.rows, predicted, named, strict=True) if mine != yours]
    if not wrong:
        return named, ()
    return named, (f"the model itself gives another label at the centre of rows {', '.join(map(str, wrong[:20]))}",)


def model_input(
    point: tuple[int, ...], features: Domain, places: tuple[Column, ...], options: NetworkOptions | None = None
) -> list[float]:
    """The row of model columns for one input, each rounded once."""
    values: list[Number] = [
        features.features[place.feature].value(point[place.feature])
        if place.level is None
        else int(point[place.feature] == place.level)
        for place in places
    ]
    if options is not None and options.scale is not None:
        values = [value * factor for value, factor in zip(values, options.scale, strict=True)]
    if options is not None and options.offset is not None:
        values = [value + shift for value, shift in zip(values, options.offset, strict=True)]
    return [float(value) for value in values]


def _cases(
    ask: Ask,
    shape: Shape,
    centres: Centres,
    positions: Sequence[tuple[int, ...]],
    labels: list[int],
    model: Model,
) -> list[Case]:
    queries = [
        (Query("robust", LabelIn((index,))), Query("fragile", terms.negation(LabelIn((index,))), reported=False))
        for index in range(len(model.classes))
    ]
    return [
        Case(
            region=region(shape, point, epsilon, centres.node),
            queries=queries[label],
            partitions=(("robust", "fragile"),),
            row=row,
            label=model.classes[label],
            epsilon=Fraction(epsilon),
            centre=point,
        )
        for row, point, label in zip(centres.rows, positions, labels, strict=True)
        for epsilon in ask.epsilons
    ]

"""A noise file in, what it declares out: transforms with their seeds, and the relation that each answer is held to."""

from __future__ import annotations

from collections.abc import Mapping as Table
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Literal, cast

from quantify.dataset.images import Layout
from quantify.ir.domain import Number
from quantify.properties import yaml
from quantify.properties.fields import Fields, choice, integer, items, number, rational, text
from quantify.properties.yaml import Mapping, Node, Scalar, fail, listed

Kind = Literal["numeric_noise", "categorical_swap", "blur", "brightness", "occlusion", "jpeg"]
Distribution = Literal["normal", "uniform"]
Relation = Literal["same_label", "same_score_within"]
TOP = ("model", "cases", "property", "layout", "metamorphic", "evaluators")
TRANSFORM = ("name", "field", "perturb", "labels")
EVALUATOR = ("type", "relation", "transform", "field", "passes_when", "tolerance")
PERTURB: dict[Kind, tuple[str, ...]] = {
    "numeric_noise": ("scale", "distribution", "property", "seed"),
    "categorical_swap": ("map",),
    "blur": ("radius",),
    "brightness": ("factor",),
    "occlusion": ("size", "value", "seed"),
    "jpeg": ("quality",),
}
"""Keys of a perturbation beside `kind`."""
IMAGE_KINDS: tuple[Kind, ...] = ("blur", "brightness", "occlusion", "jpeg")
EXAMPLE = "{name: noise, field: features, perturb: {kind: numeric_noise, scale: {income: 1.0}, seed: 7}}"
RELATION = "{type: metamorphic_relation, relation: same_label, transform: noise, field: label, passes_when: flipped}"


@dataclass(frozen=True)
class Transform:
    """One declared change of every case."""

    name: str
    line: int
    kind: Kind
    relation: Relation = "same_label"
    tolerance: Fraction = Fraction(0)
    """same_score_within: the scores differ by no more."""
    seed: int = 0
    scale: Table[str, Fraction] = field(default_factory=dict)
    """numeric_noise: feature → standard deviation (normal), or the half-width (uniform)."""
    distribution: Distribution = "normal"
    region: Path | None = None
    """numeric_noise: the noise is uniform over the balls of this robustness property instead."""
    swaps: Table[str, Table[str, Number | str]] = field(default_factory=dict)
    """categorical_swap: feature → value as text → new value."""
    amount: Fraction = Fraction(0)
    """blur: radius in pixels; brightness: factor; occlusion: side in pixels; jpeg: quality 1 to 95."""
    value: int = 128
    """occlusion: the grey, 0 to 255."""
    labels: Path | None = None
    """Images: what people said, case by case."""

    @property
    def is_image(self) -> bool:
        """Whether it changes images."""
        return self.kind in IMAGE_KINDS

    def parameters(self) -> dict[str, object]:
        """What was declared, as JSON."""
        found: dict[str, object] = {"kind": self.kind}
        if self.region is not None:
            found |= {"property": str(self.region), "seed": self.seed}
        elif self.kind == "numeric_noise":
            scale = {name: str(value) for name, value in self.scale.items()}
            found |= {"scale": scale, "distribution": self.distribution, "seed": self.seed}
        elif self.kind == "categorical_swap":
            found["map"] = {name: {a: str(b) for a, b in swaps.items()} for name, swaps in self.swaps.items()}
        else:
            found[PERTURB[self.kind][0]] = str(self.amount)
            if self.kind == "occlusion":
                found |= {"value": self.value, "seed": self.seed}
        return found


@dataclass(frozen=True)
class Spec:
    """One noise file."""

    path: Path
    sha256: str
    model: Path | None
    cases: Path | None
    property: Path | None
    layout: Layout
    transforms: tuple[Transform, ...]


def load(path: Path) -> Spec:
    """Read a noise file; paths in it start from its folder.

    Raises:
        InputError: Not there, not YAML, an unknown key or kind, a transform that nothing evaluates, …; with the line.
    """
    root, digest = yaml.read(path, "give a noise file, see docs/noise.md")
    fields = Fields(root, "a noise file", TOP)
    metamorphic = Fields(
        fields.need("metamorphic", f"write metamorphic: {{transforms: [{EXAMPLE}]}}"), "metamorphic", ("transforms",)
    )
    nodes = items(metamorphic.need("transforms", f"write transforms: [{EXAMPLE}]"), "transforms")
    judged = items(fields.need("evaluators", f"write evaluators: [{RELATION}]"), "evaluators")
    if not nodes:
        fail(metamorphic.node, "transforms is empty", f"write transforms: [{EXAMPLE}]")
    relations = _relations(judged)
    base = path.parent
    transforms = tuple(_transform(node, relations, base) for node in nodes)
    names = [one.name for one in transforms]
    for place, (name, node) in enumerate(zip(names, nodes, strict=True)):
        if name in names[:place]:
            fail(node, f"the transform {name!r} is there twice", "give it another name")
    for name, (node, _, _) in relations.items():
        if name not in names:
            hint = f"transforms are {listed(names, 20)}"
            fail(node, f"there is no transform {name!r}{yaml.suggest(name, names)}", hint)
    layout = fields.get("layout")
    return Spec(
        path,
        digest,
        _path(fields, "model", base),
        _path(fields, "cases", base),
        _path(fields, "property", base),
        "hwc" if layout is None else cast(Layout, choice(layout, "layout", ("hwc", "chw"))),
        transforms,
    )


def _path(fields: Fields, key: str, base: Path) -> Path | None:
    node = fields.get(key)
    return None if node is None else base / text(node, key)


Relations = dict[str, tuple[Node, Relation, Fraction]]


def _relations(nodes: tuple[Node, ...]) -> Relations:
    """Transform → its evaluator, relation and tolerance."""
    found: Relations = {}
    for node in nodes:
        fields = Fields(node, "an evaluator", EVALUATOR)
        choice(fields.need("type", f"write {RELATION}"), "type", ("metamorphic_relation",))
        relation = choice(fields.need("relation", f"write {RELATION}"), "relation", ("same_label", "same_score_within"))
        name = text(fields.need("transform", "name the transform"), "transform")
        if name in found:
            fail(node, f"the transform {name!r} has two evaluators", "keep one of them")
        about = fields.get("field")
        if about is not None:
            choice(about, "field", ("label",) if relation == "same_label" else ("score",))
        passes = fields.get("passes_when")
        if passes is not None:
            choice(passes, "passes_when", ("flipped",))
        tolerance = fields.get("tolerance")
        if (tolerance is None) != (relation == "same_label"):
            wrong = "needs a tolerance" if tolerance is None else "has a tolerance"
            fail(node, f"{relation} {wrong}", "same_score_within takes tolerance: 0.05, same_label takes none")
        within = Fraction(0) if tolerance is None else Fraction(rational(tolerance, "tolerance"))
        if within < 0:
            fail(node, f"a tolerance of {within}", "write the difference of scores that is no flip")
        found[name] = (node, cast(Relation, relation), within)
    return found


def _transform(node: Node, relations: Relations, base: Path) -> Transform:
    fields = Fields(node, "a transform", TRANSFORM)
    name = text(fields.need("name", f"write {EXAMPLE}"), "name")
    if name not in relations:
        fail(node, f"nothing evaluates the transform {name!r}", f"write evaluators: [{RELATION}]")
    perturb_node = fields.need("perturb", f"write {EXAMPLE}")
    every = sorted({key for keys in PERTURB.values() for key in keys})
    loose = Fields(perturb_node, "perturb", ("kind", *every))
    kind = cast(Kind, choice(loose.need("kind", f"one of {listed(PERTURB, 20)}"), "kind", PERTURB))
    perturb = Fields(perturb_node, f"the perturbation {kind}", ("kind", *PERTURB[kind]))
    about = fields.get("field")
    if about is not None:
        choice(about, "field", ("image",) if kind in IMAGE_KINDS else ("features",))
    labels = _path(fields, "labels", base)
    if labels is not None and kind not in IMAGE_KINDS:
        fail(node, f"people cannot judge a {kind}", "labels are for images; leave them out")
    _, relation, tolerance = relations[name]
    seed = perturb.get("seed")
    common = {"relation": relation, "tolerance": tolerance, "seed": 0 if seed is None else integer(seed, "seed")}
    if kind == "numeric_noise":
        return _numeric(name, node, perturb, base, common)
    if kind == "categorical_swap":
        return Transform(name, node.line, kind, swaps=_swaps(perturb), **common)  # type: ignore[arg-type]
    amount, value = _amount(perturb, kind), perturb.get("value") if kind == "occlusion" else None
    grey = 128 if value is None else integer(value, "value")
    if not 0 <= grey <= 255:
        fail(perturb.node, f"value: {grey} is no grey", "write 0 (black) to 255 (white)")
    return Transform(name, node.line, kind, amount=amount, value=grey, labels=labels, **common)  # type: ignore[arg-type]


def _numeric(name: str, node: Node, perturb: Fields, base: Path, common: Table[str, object]) -> Transform:
    counted, scale, distribution = perturb.get("property"), perturb.get("scale"), perturb.get("distribution")
    if counted is not None:
        if scale is not None or distribution is not None:
            fail(counted, "property, and scale or distribution", "the property says how far: uniform over its balls")
        path = base / text(counted, "property")
        return Transform(name, node.line, "numeric_noise", region=path, distribution="uniform", **common)  # type: ignore[arg-type]
    entries = perturb.need("scale", "write scale: {income: 1.0}, or property: robust.yaml")
    if not isinstance(entries, Mapping) or not entries.items:
        fail(entries, "scale names features and how far each moves", "write scale: {income: 1.0, debt_ratio: 0.02}")
    scales = {key.text: Fraction(number(value, f"the scale of {key.text!r}")) for key, value in entries.items}
    for key, value in entries.items:
        if scales[key.text] <= 0:
            fail(value, f"the scale of {key.text!r} is {scales[key.text]}", "write a number above 0")
    word = "normal" if distribution is None else choice(distribution, "distribution", ("normal", "uniform"))
    return Transform(
        name, node.line, "numeric_noise", scale=scales, distribution=cast(Distribution, word), **common  # type: ignore[arg-type]
    )  # fmt: skip


def _swaps(perturb: Fields) -> dict[str, dict[str, Number | str]]:
    hint = "write map: {region: {north: south, south: north}}"
    node = perturb.need("map", hint)
    if not isinstance(node, Mapping) or not node.items:
        fail(node, "map names features and which value becomes which", hint)
    found: dict[str, dict[str, Number | str]] = {}
    for key, swaps in node.items:
        if not isinstance(swaps, Mapping) or not swaps.items:
            fail(swaps, f"the map of {key.text!r} names values", hint)
        found[key.text] = {}
        for old, new in swaps.items:
            if not isinstance(new, Scalar) or new.value is None or isinstance(new.value, float):
                fail(new, f"the new value for {old.text!r} is text or a number", hint)
            if new.text == old.text:
                fail(new, f"{old.text!r} becomes itself", "leave it out")
            found[key.text][old.text] = new.text if isinstance(new.value, bool | str) else new.value
    return found


def _amount(perturb: Fields, kind: Kind) -> Fraction:
    key = PERTURB[kind][0]
    examples = {"blur": "1.5", "brightness": "1.3", "occlusion": "4", "jpeg": "40"}
    node = perturb.need(key, f"write {key}: {examples[kind]}")
    value = Fraction(number(node, key))
    if kind in ("occlusion", "jpeg"):
        most = 95 if kind == "jpeg" else 1 << 15
        if value.denominator != 1 or not 1 <= value <= most:
            fail(node, f"{key} is a whole number from 1 to {most}", f"write {key}: {examples[kind]}")
    elif value <= 0 or value > 1000 or (kind == "brightness" and value == 1):
        fail(node, f"{key}: {value} changes nothing that could be meant", f"write {key}: {examples[kind]}")
    return value

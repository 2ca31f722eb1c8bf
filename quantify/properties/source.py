"""The path of a property file in, its parsed and outwardly checked text out; no model is needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import cast

from quantify.ir.problem import PropertyKind
from quantify.properties import yaml
from quantify.properties.fields import Fields, choice, text
from quantify.properties.yaml import Mapping, Scalar, fail, integral

NETWORK_KEYS = ("quantization", "decision", "labels", "preprocess")
KEYS: dict[str, tuple[str, ...]] = {
    "safety": ("domain", "measure", "assume", "assert"),
    "classes": ("domain", "measure", "assume"),
    "learnability": ("domain", "measure", "assume", "ground_truth", "positive"),
    "robustness": ("inputs", "epsilon", "norm", "clip", "fixed", "domain", "measure"),
}


@dataclass(frozen=True)
class PropertySource:
    """A property file that is valid YAML of a known kind, with known keys."""

    path: Path
    sha256: str
    """Digest of the file's bytes."""
    kind: PropertyKind
    name: str
    """As written, or the file's name without its suffix."""
    root: Mapping

    @property
    def fields(self) -> Fields:
        """The top level, by key."""
        return Fields(self.root, f"a {self.kind} property", ("property", "name", *KEYS[self.kind], *NETWORK_KEYS))


def load(path: Path) -> PropertySource:
    """Read a property file.

    Raises:
        InputError: Not there, not YAML 1.2, of an unknown kind, or with unknown keys; with the line.
    """
    root, digest = yaml.read(path, "give a property file: quantify init --example relations")
    if not isinstance(root, Mapping):
        fail(root, "a property file is a mapping", "begin with property: safety")
    nodes = {key.text: node for key, node in root.items}
    if "property" not in nodes:
        fail(root, "the key 'property' is missing", f"write property: and one of {', '.join(KEYS)}")
    kind = cast(PropertyKind, choice(nodes["property"], "property", KEYS))
    name = text(nodes["name"], "name") if "name" in nodes else path.stem
    source = PropertySource(path, digest, kind, name, root)
    fields = source.fields  # refuses unknown keys before a model is read
    if kind == "robustness":
        fields.need("inputs", 'write inputs: {file: data.csv, rows: "0-9", label: target}')
    else:
        fields.need("domain", "write domain: {features: […]}, {relation: {nodes: 4}} or {from: data.csv}")
    return source


def with_epsilon(source: PropertySource, epsilon: Fraction) -> PropertySource:
    """The robustness property with this one ε instead of its own; digest and name stay those of the file."""
    items = tuple(
        (key, Scalar(key.file, key.line, integral(epsilon), str(epsilon)) if key.text == "epsilon" else node)
        for key, node in source.root.items
    )
    if not any(key.text == "epsilon" for key, _ in items):
        line = source.root.line
        key = Scalar(str(source.path), line, "epsilon", "epsilon")
        items = (*items, (key, Scalar(str(source.path), line, integral(epsilon), str(epsilon))))
    return replace(source, root=replace(source.root, items=items))

"""A plan file in, the rows of a batch out: every model with every property, and with every ε where it is robustness.

```yaml
models: [tree.pkl, net.keras]          # paths from the plan's folder
properties: [safe.yaml, robust.yaml]
epsilon: [1, 2, 4]                     # for robustness properties, instead of their own; one row each
engine: auto                           # what `quantify count` takes, for every row
timeout: 600                           # seconds a row
```
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from quantify.properties import yaml
from quantify.properties.fields import Fields, boolean, integer, items, rational, text
from quantify.properties.source import PropertySource, load
from quantify.properties.yaml import Mapping, Node, Sequence, fail

OPTIONS = ("engine", "counter", "cross_check", "timeout", "seed", "samples", "confidence", "gap")
TOP = ("models", "properties", "epsilon", *OPTIONS)
EXAMPLE = "models: [model.pkl], properties: [property.yaml]"


@dataclass(frozen=True, slots=True)
class Row:
    """One count of a batch."""

    model: Path
    source: PropertySource
    epsilon: Fraction | None
    """Instead of the property's own; None: as the property says."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows of a batch in order, and what every count is asked."""

    path: Path
    rows: tuple[Row, ...]
    options: dict[str, Any] = field(default_factory=dict)
    """By the names of `OPTIONS`; only those that the file gives."""


def load_plan(path: Path) -> Plan:
    """Read a plan, and every property file that it names.

    Raises:
        InputError: Not there, not YAML, an unknown key, an empty list, a file that is not there; with the line.
    """
    root, _ = yaml.read(path, f"give a plan such as {EXAMPLE}")
    if not isinstance(root, Mapping):
        fail(root, "a plan is a mapping", f"write {EXAMPLE}")
    fields = Fields(root, "a plan", TOP)
    models = _files(fields, "models", path.parent)
    sources = [load(file) for file in _files(fields, "properties", path.parent)]
    node = fields.get("epsilon")
    epsilons = [] if node is None else _epsilons(node)
    if node is not None and not any(source.kind == "robustness" for source in sources):
        fail(node, "epsilon, but no property of kind robustness", "remove epsilon, or add such a property")
    rows = tuple(
        Row(model, source, epsilon)
        for model in models
        for source in sources
        for epsilon in (epsilons if epsilons and source.kind == "robustness" else [None])
    )
    return Plan(path, rows, dict(_options(fields)))


def _files(fields: Fields, key: str, base: Path) -> list[Path]:
    node = fields.need(key, f"write {EXAMPLE}")
    entries = items(node, key)
    if not entries:
        fail(node, f"{key} is empty", f"write {EXAMPLE}")
    found: list[Path] = []
    for entry in entries:
        file = base / text(entry, f"an entry of {key}")
        if not file.is_file():
            fail(entry, f"there is no file {file}", "paths start from the plan's folder")
        if file in found:
            fail(entry, f"{file} is there twice", "keep one of them")
        found.append(file)
    return found


def _epsilons(node: Node) -> list[Fraction | None]:
    entries = node.items if isinstance(node, Sequence) else (node,)
    found: list[Fraction | None] = []
    for entry in entries:
        value = Fraction(rational(entry, "epsilon"))
        if value < 0 or value in found:
            fail(entry, "an epsilon below 0, or twice", "write each ε once, such as [1, 2, 4]")
        found.append(value)
    if not found:
        fail(node, "epsilon is empty", "write each ε once, such as [1, 2, 4]")
    return found


def _options(fields: Fields) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key in OPTIONS:
        node = fields.get(key)
        if node is None:
            continue
        value: Any
        if key in ("engine", "counter"):
            value = text(node, key)
        elif key == "cross_check":
            value = boolean(node, key)
        elif key in ("seed", "samples"):
            value = integer(node, key)
            if value < (1 if key == "samples" else 0):
                fail(node, f"{key}: {value} is too small", "write a positive number")
        else:
            value = Fraction(rational(node, key))
            if value <= 0 or (key != "timeout" and value >= 1):
                bounds = "above 0" if key == "timeout" else "strictly between 0 and 1"
                fail(node, f"{key} is out of range", f"it lies {bounds}")
        found.append((key, value))
    return found

"""A property file in, the data files that it names out: what a count depends on beside the model and the property."""

from __future__ import annotations

from pathlib import Path

from quantify.properties.source import PropertySource
from quantify.properties.yaml import Mapping, Node, Scalar

PLACES: dict[str, tuple[str, ...]] = {
    "inputs": ("inputs", "file"),
    "domain": ("domain", "from"),
    "measure": ("measure", "product", "fit"),
    "calibration": ("quantization", "calibrate"),
}
"""Role of a file → the keys that lead to its name."""


def data_files(source: PropertySource) -> tuple[tuple[str, Path], ...]:
    """(role, path) of each data file, relative paths taken from the property file's folder."""
    found = []
    for role, keys in PLACES.items():
        node: Node | None = source.root
        for key in keys:
            node = _under(node, key)
        if isinstance(node, Mapping):
            node = _under(node, "file")
        if isinstance(node, Scalar) and isinstance(node.value, str):
            found.append((role, source.path.parent / node.text))
    return tuple(found)


def _under(node: Node | None, key: str) -> Node | None:
    items = node.items if isinstance(node, Mapping) else ()
    return next((value for name, value in items if name.text == key), None)

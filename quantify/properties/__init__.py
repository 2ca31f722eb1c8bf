"""Property files: YAML in, `Problem` out; `load` reads the file, `bind` validates it together with a model."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quantify.properties.binding import bind
    from quantify.properties.files import data_files
    from quantify.properties.plan import Plan, Row, load_plan
    from quantify.properties.source import PropertySource, load, with_epsilon

__all__ = ["Plan", "PropertySource", "Row", "bind", "data_files", "load", "load_plan", "with_epsilon"]

_HOMES = {"bind": "binding", "data_files": "files", "Plan": "plan", "Row": "plan", "load_plan": "plan"}


def __getattr__(name: str) -> Any:
    """Each on first use: what reads a table needs the words of this package and not the whole language."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'source')}"), name)

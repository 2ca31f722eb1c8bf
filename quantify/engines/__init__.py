"""Integer problem to Count: one module an engine, found by its `ENGINE` attribute."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from types import ModuleType

from quantify.engines import checkout
from quantify.errors import QuantifyError
from quantify.ir.count import Engine

checkout.check(Path(__file__).with_name("_native.abi3.so"), Path(__file__).resolve().parents[2] / "native")


def discover() -> dict[str, Engine]:
    """Every engine of this package by name, in the order of the names.

    A module of the package belongs to it when it has an attribute `ENGINE`; nothing else needs to be registered.
    Modules are imported on the first call, not when the package is.

    Raises:
        QuantifyError: Two modules claim one name.
    """
    return dict(_discovered())


@cache
def _discovered() -> tuple[tuple[str, Engine], ...]:
    found: dict[str, Engine] = {}
    for entry in pkgutil.iter_modules(__path__):
        if entry.name.startswith("_"):
            continue
        engine: Engine | None = getattr(importlib.import_module(f"{__name__}.{entry.name}"), "ENGINE", None)
        if engine is None:
            continue
        if engine.name in found:
            raise QuantifyError(
                f"two engines are called {engine.name!r}", f"rename the one in quantify/engines/{entry.name}.py"
            )
        found[engine.name] = engine
    return tuple(sorted(found.items()))


def __getattr__(name: str) -> ModuleType:
    """Submodules on first use (`engines.sample`), so that importing the package costs nothing."""
    if not name.startswith("_") and any(entry.name == name for entry in pkgutil.iter_modules(__path__)):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

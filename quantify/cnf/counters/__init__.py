"""A formula to its projected count: one module a counter, found by its `COUNTER` attribute."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from quantify.cnf.formula import Counter
from quantify.errors import InputError, QuantifyError


def discover() -> dict[str, Counter]:
    """Every counter of this package by name, installed or not: those of the default install first, then by name.

    Raises:
        QuantifyError: Two modules claim one name.
    """
    return dict(_discovered())


def get(name: str) -> Counter:
    """The counter of that name.

    Raises:
        InputError: There is none.
    """
    known = discover()
    if name not in known:
        raise InputError(f"there is no counter {name!r}", f"choose from: auto, {', '.join(known)}")
    return known[name]


@cache
def _discovered() -> tuple[tuple[str, Counter], ...]:
    found: dict[str, Counter] = {}
    for entry in pkgutil.iter_modules(__path__):
        if entry.name.startswith("_"):
            continue
        counter: Counter | None = getattr(importlib.import_module(f"{__name__}.{entry.name}"), "COUNTER", None)
        if counter is None:
            continue
        if counter.name in found:
            raise QuantifyError(
                f"two counters are called {counter.name!r}", f"rename the one in quantify/cnf/counters/{entry.name}.py"
            )
        found[counter.name] = counter
    return tuple(sorted(found.items(), key=lambda item: (not item[1].by_default, item[0])))

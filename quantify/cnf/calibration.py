"""A counter goes in; whether it gets a set of known counts right comes out, remembered under the tool's hash."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from quantify.cnf.formula import Cnf, Counter, CounterAnswer, CounterTool
from quantify.cnf.known_counts import Known, known_counts
from quantify.errors import ContradictionError, MissingToolError
from quantify.ir.count import Guarantee
from quantify.resources import Limits, cache_folder

EPSILON = Fraction(4, 5)
DELTA = Fraction(1, 10**6)
"""Small enough that an honest approximate counter fails with probability below 10^-4 on the whole set."""
_SHOWN = 5
_PATIENCE = 120.0
"""Seconds for the whole set; the slowest honest counter takes a tenth of it."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How a counter came out."""

    tool: CounterTool
    checked: int
    """Formulas in the set."""
    failures: tuple[str, ...]
    """One sentence for each formula that it got wrong."""
    cached: bool
    """Whether this is remembered from an earlier run of the same file."""

    @property
    def ok(self) -> bool:
        """Whether the counter may be believed."""
        return not self.failures


@runtime_checkable
class BatchCounter(Protocol):
    """A counter that can take a list, which saves starting a process for each formula."""

    def count_all(
        self, cnfs: Sequence[Cnf], limits: Limits, *, epsilon: Fraction, delta: Fraction
    ) -> list[CounterAnswer]: ...


def calibrate(counter: Counter, limits: Limits) -> Calibration:
    """Let the counter count the known set, unless the same tool (name, version, path and hash) has passed before.

    Raises:
        MissingToolError: It is not installed.
        UndecidedError: It crashed, printed garbage or was stopped by a limit, so nothing was learnt.
    """
    tool = counter.locate()
    if tool is None:
        raise MissingToolError(f"the counter {counter.name} is not installed", counter.install)
    remembered = _recall(tool)
    if remembered is not None:
        return remembered
    remaining = limits.remaining()
    patience = _PATIENCE if remaining is None else min(remaining, _PATIENCE)
    own = Limits.starting_now(patience, limits.memory_mb, seed=1)
    known = known_counts()
    if isinstance(counter, BatchCounter):
        answers = counter.count_all([item.cnf for item in known], own, epsilon=EPSILON, delta=DELTA)
    else:
        answers = [counter.count(item.cnf, own, epsilon=EPSILON, delta=DELTA) for item in known]
    failures = [_failure(item, answer) for item, answer in zip(known, answers, strict=True)]
    result = Calibration(tool, len(known), tuple(filter(None, failures)), cached=False)
    if result.ok:
        _remember(result)
    return result


def require_calibrated(counter: Counter, limits: Limits) -> Calibration:
    """Calibrate, and refuse a counter that failed.

    Raises:
        ContradictionError: It got a known count wrong.
        MissingToolError, UndecidedError: See `calibrate`.
    """
    result = calibrate(counter, limits)
    if not result.ok:
        shown = "; ".join(result.failures[:_SHOWN])
        more = f"; and {len(result.failures) - _SHOWN} more" if len(result.failures) > _SHOWN else ""
        raise ContradictionError(
            f"the counter {result.tool.name} {result.tool.version} ({result.tool.path}) gets {len(result.failures)} of "
            f"{result.checked} known counts wrong: {shown}{more}",
            f"do not use it: choose another with --counter, or install it anew ({counter.install})",
        )
    return result


def _failure(known: Known, answer: CounterAnswer) -> str:
    exact = answer.guarantee in (Guarantee.EXACT, Guarantee.PROB_EXACT, Guarantee.BOUNDS)
    said = f"{answer.lower}" if answer.lower == answer.upper else f"{answer.lower} to {answer.upper}"
    if not answer.lower <= known.count <= answer.upper:
        return f"{known.name}: {said} instead of {known.count}"
    if exact and answer.lower != answer.upper:
        return f"{known.name}: {said}, which is not exact"
    return ""


@cache
def _set_digest() -> str:
    """Of the known set, and with it of this version's idea of a calibration."""
    digest = hashlib.sha256(f"{EPSILON} {DELTA}".encode())
    for item in known_counts():
        digest.update(f"{item.cnf!r} {item.count}\n".encode())
    return digest.hexdigest()


def _entry(tool: CounterTool) -> Path:
    identity = json.dumps([asdict(tool), _set_digest()], sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()
    return cache_folder() / "calibration" / f"{tool.name}-{digest[:32]}.json"


def _recall(tool: CounterTool) -> Calibration | None:
    try:
        stored = json.loads(_entry(tool).read_text(encoding="utf-8"))
        if stored["tool"] != asdict(tool) or stored["set"] != _set_digest():
            return None
        return Calibration(tool, int(stored["checked"]), (), cached=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(result: Calibration) -> None:
    """Write in one step, so that no other run reads half an entry; a cache that cannot be written is no error."""
    entry = _entry(result.tool)
    stored = {"tool": asdict(result.tool), "set": _set_digest(), "checked": result.checked}
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=entry.parent, delete=False, encoding="utf-8") as file:
            json.dump(stored, file)
        os.replace(file.name, entry)

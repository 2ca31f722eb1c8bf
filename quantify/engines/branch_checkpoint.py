"""Unfinished work of `branch` to a file and back: open boxes, and what is settled outside them."""

from __future__ import annotations

import json
import math
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quantify.engines.branch_plan import Plan
from quantify.errors import InputError

VERSION = 1


@dataclass(frozen=True, eq=False)
class State:
    """Boxes (rows of varying inputs) with the queries open and labels possible on them, and totals without them."""

    low: Any
    high: Any
    open: Any
    labels: Any
    inside: list[int]
    outside: list[int]


class Checkpoint:
    """The file of one case in `folder`, named after the case's digest."""

    def __init__(self, folder: Path, digest: str) -> None:
        self.path = folder / f"branch-{digest}.npz"
        self._digest = digest

    def save(self, low: Any, high: Any, still: Any, labels: Any, inside: list[int], outside: list[int]) -> None:
        """Write beside, then rename: a run that is cut off leaves the last complete file."""
        head = json.dumps(
            {"version": VERSION, "digest": self._digest, "in": list(map(str, inside)), "out": list(map(str, outside))}
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez(file, head=np.array(head), low=low, high=high, open=still, labels=labels)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)

    def remove(self) -> None:
        """Forget the case: it is finished."""
        self.path.unlink(missing_ok=True)

    def load(self, plan: Plan, queries: int) -> State | None:
        """The saved state, or None when there is none.

        Raises:
            InputError: The file is damaged, of another case, or its parts do not add up to the region for every query.
        """
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as arrays:
                head = json.loads(str(arrays["head"]))
                low, high, still, labels = (arrays[name] for name in ("low", "high", "open", "labels"))
                inside, outside = ([int(x) for x in head[name]] for name in ("in", "out"))
                state = State(low, high, still, labels, inside, outside)
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise self._bad(f"it cannot be read ({error})") from error
        if head.get("version") != VERSION or head.get("digest") != self._digest:
            raise self._bad("it belongs to another case or version")
        dims = len(plan.low)
        if state.low.shape != state.high.shape or state.low.shape != (len(state.open), dims):
            raise self._bad("its boxes have another number of inputs")
        self._check(state, plan, queries)
        return state

    def _check(self, state: State, plan: Plan, queries: int) -> None:
        if len(state.inside) != queries or len(state.outside) != queries or len(state.labels) != len(state.open):
            raise self._bad("its queries are others")
        left = [plan.size - a - b for a, b in zip(state.inside, state.outside, strict=True)]
        for low, high, still in zip(state.low.tolist(), state.high.tolist(), state.open.tolist(), strict=True):
            if not all(a <= b < c <= d for a, b, c, d in zip(plan.low, low, high, plan.high, strict=True)):
                raise self._bad("a box lies outside the region")
            points = math.prod(c - b for b, c in zip(low, high, strict=True))
            for q in range(queries):
                if still >> q & 1:
                    left[q] -= points
        if any(left):
            raise self._bad("its boxes and totals do not add up to the region")

    def _bad(self, why: str) -> InputError:
        return InputError(f"{self.path}: {why}", "delete the file to start again")

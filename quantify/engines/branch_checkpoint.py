"""Unfinished work of `branch` to a folder and back: per case the open boxes, and what is settled outside them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from quantify.engines.branch_plan import Plan
from quantify.errors import InputError
from quantify.ir.evidence import Check

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


class Checkpoints:
    """A folder of unfinished work, held by one run at a time.

    Files of finished cases stay until `finish`: a run over many cases that is cut off counts none of them twice.

    Raises:
        InputError: The folder cannot be made or written to, or another run holds it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._used: dict[str, Checkpoint] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(13, "permission denied")
            self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise InputError(
                f"no unfinished work can be kept in {folder}: {error.strerror}",
                "name another folder after --checkpoint",
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise InputError(
                f"{folder} is in use by another run", "give every run a --checkpoint of its own"
            ) from error
        except OSError:
            pass  # a file system without locks

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def of(self, digest: str) -> Checkpoint:
        """The file of the case with that digest."""
        return self._used.setdefault(digest, Checkpoint(self.folder, digest))

    def finish(self, complete: bool) -> Iterator[Check]:
        """Remove what is not needed again, and say what is kept.

        Args:
            complete: No limit cut the run short. Only work that a smaller gap would need is kept then.
        """
        used = list(self._used.values())
        if not used:
            yield Check("checkpoint", "skipped", "nothing was counted by branch, the engine that keeps unfinished work")
            return
        if complete:
            for each in used:
                if not each.open_boxes:
                    each.remove()
        elif any(each.failure for each in used):
            failure = next(each.failure for each in used if each.failure)
            yield Check("checkpoint", "failed", f"{self.folder}: {failure}; what was not written is lost")
            return
        if any(each.open_boxes for each in used):
            again = "run the same command again" + (" with a smaller --gap" if complete else "")
            yield Check("checkpoint", "ok", f"{again} to go on from what {self.folder} keeps")
        if any(each.resumed for each in used):
            yield Check("checkpoint", "ok", f"went on from what {self.folder} kept; times are of this run alone")
        elif any(path not in {each.path for each in used} for path in self.folder.glob("branch-*.npz")):
            yield Check(
                "checkpoint", "ok", f"{self.folder} keeps work of other models or properties: none of it was used"
            )


class Checkpoint:
    """The file of one case in `folder`, named after the case's digest."""

    def __init__(self, folder: Path, digest: str) -> None:
        self.path = folder / f"branch-{digest}.npz"
        self._digest = digest
        self.open_boxes = 0
        """Boxes left open when the case was last written."""
        self.resumed = False
        self.failure = ""
        """Why the last writing did not succeed; empty when it did."""

    def save(self, low: Any, high: Any, still: Any, labels: Any, inside: list[int], outside: list[int]) -> None:
        """Write beside, then rename: a run that is cut off, or a full disk, leaves the last complete file."""
        head = json.dumps(
            {"version": VERSION, "digest": self._digest, "in": list(map(str, inside)), "out": list(map(str, outside))}
        )
        self.open_boxes = len(still)
        partial = self.path.with_suffix(".partial")
        try:
            with partial.open("wb") as file:
                np.savez(file, head=np.array(head), low=low, high=high, open=still, labels=labels)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.path)
            self.failure = ""
        except OSError as error:
            # The count goes on, and its bounds are told with the failure.
            self.failure = f"unfinished work could not be written: {error.strerror or error}"
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)

    def remove(self) -> None:
        """Forget the case: it is finished."""
        self.path.unlink(missing_ok=True)
        self.path.with_suffix(".partial").unlink(missing_ok=True)

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
        self.resumed, self.open_boxes = True, len(state.open)
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
        return InputError(f"{self.path}: {why}", "delete the file to start the case again")

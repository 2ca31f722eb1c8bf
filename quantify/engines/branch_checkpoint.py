"""Unfinished work of `branch` to a folder and back: per case the open boxes, and what is settled outside them."""

from __future__ import annotations

import contextlib
import fcntl
import json
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
from quantify.resources import Progress

VERSION = 2
BLOCK = 1 << 16
"""Boxes whose volumes are Python's integers at once."""


@dataclass(frozen=True)
class Group:
    """So many boxes in a row, with points proven in and out on parts of them, per query."""

    boxes: int
    inside: tuple[int, ...]
    outside: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class State:
    """Boxes (rows of varying inputs) with the queries open and labels possible on them, and totals without them.

    The boxes come in groups; of each, the points proven in and out by bounding parts of its boxes, which the totals
    leave out. `lower` and `upper` are the best ends proven so far, with such parts.
    """

    low: Any
    high: Any
    open: Any
    labels: Any
    inside: list[int]
    outside: list[int]
    lower: list[int]
    upper: list[int]
    groups: list[Group]


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
        said = []
        if any(each.resumed for each in used):
            said.append(f"went on from what {self.folder} kept; times are of this run alone")
        if any(each.open_boxes for each in used):
            again = "run the same command again" + (" with a smaller --gap" if complete else "")
            said.append(f"{again} to go on from what {self.folder} keeps")
        if said:
            yield Check("checkpoint", "ok", "; ".join(said))
        if not any(each.resumed for each in used) and any(
            path not in {each.path for each in used} for path in self.folder.glob("branch-*.npz")
        ):
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

    def save(self, state: State) -> None:
        """Write beside, then rename: a run that is cut off, or a full disk, leaves the last complete file."""
        numbers = {"in": state.inside, "out": state.outside, "lower": state.lower, "upper": state.upper}
        head = json.dumps(
            {"version": VERSION, "digest": self._digest}
            | {name: list(map(str, x)) for name, x in numbers.items()}
            | {"groups": [[g.boxes, list(map(str, g.inside)), list(map(str, g.outside))] for g in state.groups]}
        )
        self.open_boxes = len(state.open)
        partial = self.path.with_suffix(".partial")
        try:
            with partial.open("wb") as file:
                np.savez(
                    file, head=np.array(head), low=state.low, high=state.high, open=state.open, labels=state.labels
                )
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

    def load(self, plan: Plan, queries: int, progress: Progress) -> State | None:
        """The saved state, or None when there is none.

        Raises:
            InputError: The file is damaged, of another case, or its parts do not add up to the region for every query.
        """
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as arrays:
                head = json.loads(str(arrays["head"]))
                if head["version"] != VERSION or head["digest"] != self._digest:
                    raise self.bad("it belongs to another case or version")
                low, high = (np.asarray(arrays[name], order="C") for name in ("low", "high"))
                inside, outside, lower, upper = (
                    [int(x) for x in head[name]] for name in ("in", "out", "lower", "upper")
                )
                groups = [Group(int(n), tuple(map(int, a)), tuple(map(int, b))) for n, a, b in head["groups"]]
                state = State(low, high, arrays["open"], arrays["labels"], inside, outside, lower, upper, groups)
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise self.bad(f"it cannot be read ({error})") from error
        kinds = [(x.dtype, x.ndim) for x in (low, high, state.open, state.labels)]
        if kinds != [(np.int64, 2)] * 2 + [(np.uint64, 1)] * 2:
            raise self.bad("its numbers are of another type")
        progress.update(f"taking up the checkpoint ({len(state.open):,} boxes)")
        dims = len(plan.low)
        if state.low.shape != state.high.shape or state.low.shape != (len(state.open), dims):
            raise self.bad("its boxes have another number of inputs")
        self._check(state, plan, queries)
        self.resumed, self.open_boxes = True, len(state.open)
        return state

    def _check(self, state: State, plan: Plan, queries: int) -> None:
        settled, ends = (state.inside, state.outside), (state.lower, state.upper)
        if any(len(x) != queries for x in settled + ends) or len(state.labels) != len(state.open):
            raise self.bad("its queries are others")
        low, high = state.low, state.high
        if not ((low >= plan.low) & (low < high) & (high <= plan.high)).all():
            raise self.bad("a box lies outside the region")
        left = [plan.size - a - b for a, b in zip(*settled, strict=True)]
        for start in range(0, len(state.open), BLOCK):
            part = slice(start, start + BLOCK)
            points = np.multiply.reduce((high[part] - low[part]).astype(object), axis=1)
            order = np.argsort(state.open[part])
            masks, first = np.unique(state.open[part][order], return_index=True)
            for mask, volume in zip(masks.tolist(), np.add.reduceat(points[order], first).tolist(), strict=True):
                for q in range(queries):
                    if mask >> q & 1:
                        left[q] -= volume
        if any(left):
            raise self.bad("its boxes and totals do not add up to the region")
        counts = [x for g in state.groups for x in (*g.inside, *g.outside)] + state.inside + state.outside
        if min(counts, default=0) < 0 or any(len(x) != queries for g in state.groups for x in (g.inside, g.outside)):
            raise self.bad("its bounds do not add up")
        if any(g.boxes < 1 for g in state.groups) or sum(g.boxes for g in state.groups) != len(state.open):
            raise self.bad("its boxes are other than its groups")
        for q, (inside, outside, lower, upper) in enumerate(zip(*settled, *ends, strict=True)):
            least = inside + sum(g.inside[q] for g in state.groups)
            most = plan.size - outside - sum(g.outside[q] for g in state.groups)
            if not least <= lower <= upper <= most:
                raise self.bad("its bounds do not add up")

    def bad(self, why: str) -> InputError:
        """The error that says why the file is of no use."""
        return InputError(f"{self.path}: {why}", "delete the file to start the case again")


def without(groups: list[Group], boxes: int) -> list[Group]:
    """The groups less so many boxes in front; what a group has proven goes with the first of its boxes."""
    for place, group in enumerate(groups):
        if boxes < group.boxes:
            if not boxes:
                return groups[place:]
            nothing = (0,) * len(group.inside)
            return [Group(group.boxes - boxes, nothing, nothing), *groups[place + 1 :]]
        boxes -= group.boxes
    return []


def heaviest_first(boxes: tuple[Any, ...], groups: list[Group]) -> tuple[tuple[Any, ...], list[Group]]:
    """Boxes and groups ordered by the points left open in a box of the group, about."""
    ends = np.cumsum([group.boxes for group in groups])
    starts = ends - [group.boxes for group in groups]
    volumes = np.add.reduceat(np.prod((boxes[1] - boxes[0]).astype(np.float64), axis=1), starts)
    proven = [float(min(map(sum, zip(g.inside, g.outside, strict=True)), default=0)) for g in groups]
    order = np.argsort((proven - volumes) / (ends - starts), kind="stable")
    rows = np.concatenate([np.arange(starts[k], ends[k]) for k in order])
    return tuple(x[rows] for x in boxes), [groups[k] for k in order]

"""Limits on time, memory and workers; where caches and the files shipped with the package lie."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path


class Stop:
    """A request to stop, made once and never taken back; it takes no lock, so a signal handler may make it."""

    def __init__(self) -> None:
        self._requested = False

    def set(self) -> None:
        """Ask for the stop."""
        self._requested = True

    def is_set(self) -> bool:
        """Whether it was asked for."""
        return self._requested


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use.

    `deadline` is a reading of `time.monotonic()`, so that stages share one clock; None means no limit.
    """

    deadline: float | None = None
    """Moment of `time.monotonic()` at which work stops with the bounds proven so far."""
    memory_mb: int | None = None
    """Address-space limit of each child process, and the working-set target of engines, in MiB."""
    jobs: int = 1
    """Workers to use; results do not depend on it."""
    seed: int = 0
    """Seed of everything random; results with the same seed are identical."""
    stop: Stop | None = None
    """Once set, the deadline counts as reached: how Ctrl-C ends a count with the bounds proven so far."""

    @classmethod
    def starting_now(
        cls,
        timeout: float | None = None,
        memory_mb: int | None = None,
        jobs: int = 1,
        seed: int = 0,
        stop: Stop | None = None,
    ) -> Limits:
        """Limits whose deadline lies `timeout` seconds ahead."""
        deadline = None if timeout is None else time.monotonic() + timeout
        return cls(deadline, memory_mb, jobs, seed, stop)

    def remaining(self) -> float | None:
        """Seconds left (never negative), or None without a deadline."""
        if self.stopped():
            return 0.0
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def expired(self) -> bool:
        """Whether the deadline has passed, or a stop was asked for."""
        return self.stopped() or (self.deadline is not None and time.monotonic() >= self.deadline)

    def why(self) -> str:
        """Why work ends once `expired`."""
        return "interrupted" if self.stopped() else "the time limit was reached"

    def stopped(self) -> bool:
        """Whether a stop was asked for."""
        return self.stop is not None and self.stop.is_set()


@dataclass(slots=True)
class Progress:
    """Where long work reports how far it is; the default swallows everything.

    Stages call `update`; the command line passes a subclass that draws. Not frozen: it is a channel, not data.
    """

    started: float = field(default_factory=time.monotonic)

    def update(self, message: str, done: int = 0, total: int = 0) -> None:
        """Say that `done` of `total` units of the work called `message` are finished (0 of 0: unknown)."""


def cache_folder() -> Path:
    """`QUANTIFY_CACHE`, else the user's cache folder."""
    named = os.environ.get("QUANTIFY_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "quantify")


def templates_dir(kind: str) -> Path:
    """Folder of the templates of `kind` ("c", "html", "examples"): inside the wheel, or in a source checkout.

    Raises:
        FileNotFoundError: The installation lacks its templates.
    """
    package = Path(__file__).resolve().parent
    for root in (package / "templates", package.parent / "templates"):
        if (root / kind).is_dir():
            return root / kind
    raise FileNotFoundError(f"templates/{kind} is missing from this installation of quantify")

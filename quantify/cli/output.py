"""Where answers and progress go: JSON and pages to files (whole or not at all), progress to stderr after a second."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import IO, Any, TextIO, cast

from quantify.errors import InputError
from quantify.resources import Limits, Progress


def check_writable(*paths: Path | None) -> None:
    """Refuse an output path before hours are spent on what would go there.

    Raises:
        InputError: A folder does not exist or cannot be written to, or the path is a folder.
    """
    for path in paths:
        if path is None or str(path) == "-":
            continue
        folder = path.parent
        if path.is_dir():
            raise InputError(f"cannot write to {path}: it is a folder", "give a file name")
        if not folder.is_dir():
            raise InputError(f"cannot write {path}: there is no folder {folder}", f"mkdir -p {folder}")
        if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
            raise InputError(f"cannot write {path}: permission denied", "choose another path")


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` in one step; `-` is stdout. Raises as `opened` does."""
    with opened(path) as file:
        file.write(text if text.endswith("\n") else text + "\n")


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` in one step; `-` is stdout. Raises as `opened` does."""
    with opened(path) as file:
        cast(TextIO, file).buffer.write(data)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """A file that is at `path` once the block has ended: a reader sees the old one or the whole new one. `-` is stdout.

    Raises:
        InputError: The file cannot be written, for example because the disk is full; the old file is untouched.
    """
    if str(path) == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    name = None
    try:
        if path.exists() and not path.is_file():  # a device or a pipe cannot be replaced, only written to
            with path.open("w", encoding="utf-8") as file:
                yield file
            return
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=".quantify-", delete=False
        ) as temporary:
            name = temporary.name
            yield temporary
            temporary.flush()
            os.fsync(temporary.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
        name = None
    except OSError as error:
        if error.filename not in (None, name, str(path)):
            raise
        raise InputError(f"cannot write {path}: {error.strerror}", "free some space or choose another path") from error
    finally:
        if name is not None:
            with contextlib.suppress(OSError):
                os.unlink(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write `data` as JSON to `path` (`-` is stdout)."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


class TerminalProgress(Progress):
    """Shows the stage on stderr once a run has lasted a second; a line a second at most when stderr is no terminal.

    A stage that says nothing more is shown as well: `watcher`, once started, looks every second until `close`.
    """

    QUIET_SECONDS = 1.0
    REDRAW_SECONDS = 0.1

    def __init__(self) -> None:
        super().__init__()
        self._drawn = 0.0
        self._stage: tuple[str, int, int] | None = None
        self._last = ""
        self._open_line = False
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.watcher = threading.Thread(target=self._watch, daemon=True)

    def update(self, message: str, done: int = 0, total: int = 0) -> None:
        with self._lock:
            self._stage = message, done, total
        self.look()

    def look(self) -> None:
        """Show the stage, if it is to be shown now."""
        with self._lock:
            if not self._closed.is_set():
                self._show()

    def _watch(self) -> None:
        while not self._closed.wait(self.QUIET_SECONDS):
            self.look()

    def _show(self) -> None:
        now = time.monotonic()
        if self._stage is None or now - self.started < self.QUIET_SECONDS:
            return
        message = self._stage[0]
        if sys.stderr.isatty():
            if now - self._drawn >= self.REDRAW_SECONDS:
                self._open_line = True
                self._write("\r\x1b[2K" + self._text(now)[:200], now)
        elif message != self._last and now - self._drawn >= self.QUIET_SECONDS:
            self._last = message
            self._write(self._text(now) + "\n", now)

    def _text(self, now: float) -> str:
        assert self._stage is not None
        message, done, total = self._stage
        share = "" if total <= 1 else f" {done}/{total}" if total < 10**9 else f" {100 * done / total:.1f} %"
        return f"[{now - self.started:6.1f} s] {message}{share}"

    def _write(self, text: str, now: float) -> None:
        self._drawn = now
        sys.stderr.write(text)
        sys.stderr.flush()

    def close(self) -> None:
        """Clear the line, and look no more."""
        self._closed.set()
        with self._lock:
            if self._open_line:
                self._write("\r\x1b[2K", self._drawn)
                self._open_line = False


@contextlib.contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """Progress for a `with` block; silent when `quiet`."""
    if quiet:
        yield Progress()
        return
    shown = TerminalProgress()
    shown.watcher.start()
    try:
        yield shown
    finally:
        shown.close()


@contextlib.contextmanager
def stoppable(limits: Limits, said: str = "stopping with the bounds proven so far") -> Iterator[None]:
    """Within the block, the first Ctrl-C (or SIGTERM) asks for a stop with what is known; the second aborts."""

    def asked(number: int, frame: FrameType | None) -> None:
        if limits.stop is None or limits.stop.is_set():
            raise KeyboardInterrupt
        limits.stop.set()
        os.write(2, f"\nquantify: {said}; once more to abort\n".encode())

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""An argument list, input and limits go in; what the program printed and how it ended comes out."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from quantify.errors import MissingToolError, UndecidedError
from quantify.resources import Stop

_CHUNK = 1 << 16
_STDERR_KEPT = 1 << 16
_POLL_SECONDS = 0.05
_PASSED_ON = ("PATH", "HOME", "TMPDIR")
_MEMORY_SIGNS = (
    b"memoryerror", b"bad_alloc", b"out of memory", b"cannot allocate", b"memory allocation", b"failed to allocate",
)  # fmt: skip
_NO_LONGER_NEEDED: ContextVar[threading.Event | Stop | None] = ContextVar("no_longer_needed", default=None)


@dataclass(frozen=True, slots=True)
class Completed:
    """How one run of a program ended."""

    returncode: int
    """Negative: killed by that signal (−9 too when `run` itself stopped it)."""
    stdout: bytes
    """At most `stdout_limit` bytes."""
    stderr: bytes
    """The last 64 KiB."""
    timed_out: bool
    truncated: bool
    """It printed more than `stdout_limit` and was stopped for it."""
    out_of_memory: bool
    """A guess from the signal and from what it complained of."""
    seconds: float

    def complaint(self) -> str:
        """One line that says how the run ended, for error messages."""
        if self.timed_out:
            return f"stopped after {self.seconds:.1f} s"
        if self.out_of_memory:
            return "out of memory"
        if self.truncated:
            return "printed without end"
        last = self.stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]
        said = f": {last}" if last else ""
        if self.returncode < 0:
            return f"killed by {_signal_name(-self.returncode)}{said}"
        return f"exit code {self.returncode}{said}"


def run(
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    timeout: float | None = None,
    memory_mb: int | None = None,
    cwd: Path | None = None,
    stdout_limit: int = 1 << 26,
    env: Mapping[str, str] | None = None,
) -> Completed:
    """Run a program to its end, or to the first limit, and leave no process of it behind.

    The program gets a session of its own and never a shell. Its whole process group is killed when it ends, when a
    limit is reached and when an exception (Ctrl-C included) passes through here; should this process itself be killed,
    the kernel kills the program.

    Args:
        argv: Program (a path, or a name looked up on PATH) and arguments.
        stdin: What it reads; then end of file.
        timeout: Seconds of wall-clock time; None for no limit, 0 or less for no run at all.
        memory_mb: Address-space limit (RLIMIT_AS) of each of its processes, in MiB.
        cwd: Working directory; None keeps the current one.
        stdout_limit: Bytes of output after which it is stopped.
        env: Added to a minimal environment (PATH, HOME, TMPDIR and a UTF-8 locale).

    Raises:
        MissingToolError: The program does not exist or may not be executed.
        UndecidedError: Another thread has said, through `stopped_by`, that the answer is no longer needed.
    """
    started = time.monotonic()
    program = shutil.which(argv[0])
    if program is None:
        raise MissingToolError(f"{argv[0]} cannot be executed", "run `quantify doctor` to see what is installed")
    if timeout is not None and timeout <= 0:
        return Completed(-signal.SIGKILL, b"", b"", True, False, False, 0.0)
    try:
        child = subprocess.Popen(
            [*_lifeline(), *_confined(memory_mb), program, *argv[1:]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=cwd, env=_environment(env), start_new_session=True, bufsize=0,
        )  # fmt: skip
    except OSError as error:
        raise MissingToolError(f"{argv[0]} cannot be started: {error.strerror}", "run `quantify doctor`") from error
    try:
        _limit(child.pid, memory_mb)
        exchange = _Exchange(child, stdin, stdout_limit, None if timeout is None else started + timeout)
        exchange.run()
    finally:
        _kill_group(child.pid)
        _reap(child)
    stderr = bytes(exchange.stderr)
    stopped = exchange.timed_out or exchange.truncated
    return Completed(
        returncode=child.returncode,
        stdout=bytes(exchange.stdout[:stdout_limit]),
        stderr=stderr,
        timed_out=exchange.timed_out,
        truncated=exchange.truncated,
        out_of_memory=not stopped and child.returncode != 0 and _smells_of_memory(child.returncode, stderr),
        seconds=time.monotonic() - started,
    )


@contextlib.contextmanager
def stopped_by(event: threading.Event | Stop) -> Iterator[None]:
    """Programs that this thread runs inside the block are stopped, and `run` raises, once the event is set."""
    token = _NO_LONGER_NEEDED.set(event)
    try:
        yield
    finally:
        _NO_LONGER_NEEDED.reset(token)


class _Exchange:
    """Feeds a child and gathers what it prints, until it ends or a limit is reached."""

    def __init__(self, child: subprocess.Popen[bytes], stdin: bytes, stdout_limit: int, deadline: float | None) -> None:
        self.child = child
        self.unsent = memoryview(stdin)
        self.stdout_limit = stdout_limit
        self.deadline = deadline
        self.no_longer_needed = _NO_LONGER_NEEDED.get()
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.timed_out = False
        self.truncated = False

    def run(self) -> None:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        assert self.child.stderr is not None
        with selectors.DefaultSelector() as selector:
            for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
                os.set_blocking(stream.fileno(), False)
            if self.unsent:
                selector.register(self.child.stdin, selectors.EVENT_WRITE)
            else:
                self.child.stdin.close()
            selector.register(self.child.stdout, selectors.EVENT_READ)
            selector.register(self.child.stderr, selectors.EVENT_READ)
            while not self.truncated:
                # A descendant may hold the pipes open after the program has ended, and a program may close them early.
                ended = _has_ended(self.child.pid)
                if ended:
                    _kill_group(self.child.pid)
                ready = self._wait(selector, ended)
                if self.timed_out or (ended and not ready):
                    break
                for stream in ready:
                    if not self._serve(stream):
                        selector.unregister(stream)
                        stream.close()

    def _wait(self, selector: selectors.BaseSelector, ended: bool) -> list[IO[bytes]]:
        if self.no_longer_needed is not None and self.no_longer_needed.is_set():
            raise UndecidedError("stopped: the answer is no longer needed")
        left = None if self.deadline is None else self.deadline - time.monotonic()
        if left is not None and left <= 0 and not ended:
            self.timed_out = True
            return []
        patience = 0.0 if ended else _POLL_SECONDS if left is None else min(_POLL_SECONDS, left)
        if not selector.get_map():
            time.sleep(min(patience, 0.002))
            return []
        return [key.fileobj for key, _ in selector.select(patience)]  # type: ignore[misc]

    def _serve(self, stream: IO[bytes]) -> bool:
        """One transfer; False when the stream has nothing more to give or take."""
        if stream is self.child.stdin:
            try:
                self.unsent = self.unsent[os.write(stream.fileno(), self.unsent[:_CHUNK]) :]
            except BrokenPipeError:
                return False
            return bool(self.unsent)
        data = os.read(stream.fileno(), _CHUNK)
        if stream is self.child.stdout:
            self.stdout += data
            self.truncated = len(self.stdout) > self.stdout_limit
        else:
            self.stderr += data
            if len(self.stderr) > 2 * _STDERR_KEPT:
                del self.stderr[:-_STDERR_KEPT]
        return bool(data)


def _has_ended(pid: int) -> bool:
    """Whether the child has ended; it stays a zombie, so that its group cannot be taken over by a stranger."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _reap(child: subprocess.Popen[bytes]) -> None:
    child.wait()
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None:
            stream.close()


def _limit(pid: int, memory_mb: int | None) -> None:
    """Set the limits from outside: code between fork and exec would not be safe with threads around."""
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        if memory_mb is not None:
            wanted = memory_mb << 20
            hard = resource.prlimit(pid, resource.RLIMIT_AS)[1]
            wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.prlimit(pid, resource.RLIMIT_AS, (wanted, wanted))


def _confined(memory_mb: int | None) -> tuple[str, ...]:
    """The command prefix that limits memory before the program's first instruction, where util-linux provides one.

    `_limit` comes from outside and may come late: on a busy machine a program can take its memory before.
    """
    prlimit = shutil.which("prlimit")
    if memory_mb is None or prlimit is None:
        return ()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    wanted = memory_mb << 20
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    return (prlimit, f"--as={wanted}:{wanted}", "--")


@cache
def _lifeline() -> tuple[str, ...]:
    """The command prefix that makes the kernel kill the program when its parent dies, where util-linux provides one."""
    setpriv = shutil.which("setpriv")
    return () if setpriv is None else (setpriv, "--pdeathsig", "KILL")


def _environment(additions: Mapping[str, str] | None) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C.UTF-8", **(additions or {})}


def _smells_of_memory(returncode: int, stderr: bytes) -> bool:
    lowered = stderr.lower()
    return returncode == -signal.SIGKILL or any(sign in lowered for sign in _MEMORY_SIGNS)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

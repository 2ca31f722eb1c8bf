"""Running external programs: nothing of them is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from quantify.errors import MissingToolError, UndecidedError
from quantify.tools.process import run, stopped_by

PYTHON = [sys.executable, "-c"]
FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
"""


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_output_exit_code_and_input() -> None:
    program = "import sys; print(sys.stdin.read()); print('err', file=sys.stderr); sys.exit(3)"
    ended = run([*PYTHON, program], stdin=b"in")
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, b"in\n", b"err\n")
    assert (ended.timed_out, ended.truncated, ended.out_of_memory) == (False, False, False)
    assert ended.complaint() == "exit code 3: err"


def test_large_input_and_output_do_not_block_each_other() -> None:
    data = os.urandom(1 << 20) * 8
    assert run(["cat"], stdin=data, timeout=60).stdout == data


def test_a_program_that_does_not_read_its_input() -> None:
    assert run(["true"], stdin=b"x" * (1 << 22), timeout=60).returncode == 0


def test_no_shell_is_involved() -> None:
    assert run(["echo", "$HOME; `id` > x *"]).stdout == b"$HOME; `id` > x *\n"


def test_the_environment_is_minimal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    monkeypatch.setenv("SECRET", "1")
    lines = run(["env"], env={"ADDED": "yes"}).stdout.decode().splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert names <= {"PATH", "HOME", "TMPDIR", "LC_ALL", "ADDED"}
    assert "ADDED=yes" in lines


def test_a_timeout_kills_the_whole_group() -> None:
    ended = run([*PYTHON, FAMILY + "time.sleep(60)"], timeout=1.5)
    assert ended.timed_out
    assert ended.seconds < 20
    assert ended.complaint().startswith("stopped after")
    assert gone(int(ended.stdout))


def test_a_child_left_behind_is_killed_and_not_waited_for() -> None:
    ended = run([*PYTHON, FAMILY], timeout=30)
    assert ended.returncode == 0
    assert ended.seconds < 20
    assert gone(int(ended.stdout))


def test_a_program_that_closes_its_output_is_still_awaited() -> None:
    ended = run([*PYTHON, "import os, time; os.close(1); os.close(2); time.sleep(0.3); os._exit(5)"], timeout=30)
    assert ended.returncode == 5


def test_no_time_left_means_no_run(tmp_path: Path) -> None:
    ended = run(["touch", str(tmp_path / "ran")], timeout=0)
    assert ended.timed_out
    assert not (tmp_path / "ran").exists()


def test_endless_output_is_cut() -> None:
    ended = run(["yes"], stdout_limit=10_000, timeout=60)
    assert ended.truncated
    assert len(ended.stdout) == 10_000
    assert ended.complaint() == "printed without end"


def test_endless_complaints_are_cut() -> None:
    ended = run([*PYTHON, "import sys\nfor k in range(40000): sys.stderr.write(f'line {k}\\n')"], timeout=60)
    assert len(ended.stderr) <= 1 << 17
    assert ended.stderr.endswith(b"line 39999\n")


def test_the_memory_limit() -> None:
    ended = run([*PYTHON, "x = bytearray(1 << 30)"], memory_mb=256, timeout=60)
    assert ended.out_of_memory
    assert ended.complaint() == "out of memory"
    assert run([*PYTHON, "x = bytearray(1 << 26)"], memory_mb=1024, timeout=60).returncode == 0


def test_signals_are_named() -> None:
    ended = run([*PYTHON, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"])
    assert ended.returncode == -signal.SIGSEGV
    assert "SIGSEGV" in ended.complaint()


def test_missing_and_unexecutable_programs(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    (tmp_path / "broken").write_text("#!/nonexistent/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    for program in ("no-such-program-at-all", str(tmp_path / "plain")):
        with pytest.raises(MissingToolError, match="cannot be executed"):
            run([program])
    with contextlib.suppress(MissingToolError):  # without setpriv it fails before anything has started
        assert run([str(tmp_path / "broken")]).returncode != 0


def test_nothing_is_left_of_an_interrupted_run(tmp_path: Path) -> None:
    """Ctrl-C in the middle: the program and its child die with the exception."""
    pids = tmp_path / "pids"
    program = f"import os\nopen({str(pids)!r}, 'w').write(str(os.getpid()))\n" + FAMILY + "time.sleep(60)"
    threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run([*PYTHON, program], timeout=60)
    assert gone(int(pids.read_text()))


def test_the_program_dies_with_its_parent(tmp_path: Path) -> None:
    """Even when the parent is killed outright and can clean nothing up."""
    pids = tmp_path / "pids"
    program = f"import os, time\nopen({str(pids)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    outer = f"import sys; from quantify.tools.process import run; run([sys.executable, '-c', {program!r}])"
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen([*PYTHON, outer], cwd=root) as parent:
        deadline = time.monotonic() + 20
        while not (pids.exists() and pids.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        parent.kill()
    assert gone(int(pids.read_text()))


def test_another_thread_can_stop_a_run() -> None:
    enough = threading.Event()
    threading.Timer(0.5, enough.set).start()
    with stopped_by(enough), pytest.raises(UndecidedError, match="no longer needed"):
        run(["sleep", "60"])

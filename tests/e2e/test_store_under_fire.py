"""Writers that are killed, and writers at the same time: what was reported as stored is there, whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from quantify.evidence.store import Store

WRITER = Path(__file__).resolve().parents[1] / "support" / "store_writer.py"


def start(path: Path, writer: object, many: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WRITER), str(path), str(writer), str(many)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


def test_eight_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "e.db"
    writers = [start(path, number, 12) for number in range(8)]
    said = [writer.communicate()[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 8
    with Store(path) as store:
        assert store.verify() == (96, ())
        assert {stored.digest for stored in store.all()[0]} == {name for names in said for name in names}


def test_killed_writers_lose_nothing_that_they_reported(tmp_path: Path) -> None:
    """Each writer is killed after it said a random number of digests and worked on for a random moment."""
    path, draws, reported = tmp_path / "e.db", random.Random(4), []
    for number in range(15):
        writer = start(path, number, 10**6)
        assert writer.stdout is not None
        for _ in range(draws.randint(1, 4)):
            reported.append(writer.stdout.readline().strip())
        for _ in range(draws.randint(0, 400_000)):
            pass
        os.kill(writer.pid, signal.SIGKILL)
        reported += writer.communicate()[0].split()
        assert writer.returncode == -signal.SIGKILL
    reported = [name for name in reported if len(name) == 64]
    with Store(path) as store:
        many, damages = store.verify()
        assert damages == ()
        assert set(reported) <= {stored.digest for stored in store.all()[0]}
        assert many <= len(reported) + 15  # one a killing may be stored and not reported yet

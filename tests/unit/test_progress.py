"""What progress shows, by a clock that the test moves: nothing in the first second, then every stage, its own label."""

from __future__ import annotations

import io
import sys

import pytest

from quantify.cli import output


class Clock:
    """Seconds that pass when the test says so; `time.monotonic` of `output` while it is in use."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(output, "time", clock)
    return clock


def shown_by(monkeypatch: pytest.MonkeyPatch, clock: Clock, stream: io.StringIO) -> output.TerminalProgress:
    monkeypatch.setattr(sys, "stderr", stream)
    shown = output.TerminalProgress()
    shown.started = clock.now
    return shown


def test_a_short_run_says_nothing(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    stream = io.StringIO()
    shown = shown_by(monkeypatch, clock, stream)
    for _ in range(9):
        shown.update("counting", 1, 3)
        clock.now += 0.1
    shown.close()
    assert stream.getvalue() == ""


def test_a_stage_that_began_early_and_says_nothing_more_is_shown(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    stream = io.StringIO()
    shown = shown_by(monkeypatch, clock, stream)
    shown.update("reading the model")
    clock.now += 1
    shown.look()
    clock.now += 0.5
    shown.update("counting")
    shown.update("cross-checking", 2, 3)  # within a second of the line before
    clock.now += 0.5
    shown.look()
    clock.now += 60
    shown.look()  # once a stage is enough in a log
    assert stream.getvalue().splitlines() == ["[   1.0 s] reading the model", "[   2.0 s] cross-checking 2/3"]


def test_a_terminal_shows_one_line_whose_clock_goes_on(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    stream = Terminal()
    shown = shown_by(monkeypatch, clock, stream)
    shown.update("counting", 3 * 10**9, 4 * 10**9)
    for _ in range(3):
        clock.now += 1
        shown.look()
    shown.close()
    clock.now += 1
    shown.look()
    lines = stream.getvalue().split("\r\x1b[2K")
    assert lines == ["", *(f"[   {n}.0 s] counting 75.0 %" for n in (1, 2, 3)), ""]


def test_the_thread_that_looks_ends_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output.TerminalProgress, "QUIET_SECONDS", 0.001)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with output.progress(quiet=False) as shown:
        assert isinstance(shown, output.TerminalProgress)
        shown.started -= 1
        shown.update("counting")
        shown.watcher.join(0)
        assert shown.watcher.is_alive()
    shown.watcher.join(60)
    assert not shown.watcher.is_alive()
    assert "] counting\n" in stream.getvalue()
    with output.progress(quiet=True) as silent:
        silent.update("counting")

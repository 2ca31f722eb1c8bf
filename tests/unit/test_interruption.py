"""Ctrl-C and SIGTERM: the first asks for a stop, the second aborts, and the words say which."""

from __future__ import annotations

import signal
import time

import pytest

from quantify.cli import doctor, main, output
from quantify.resources import Limits, Stop


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_for_a_stop_and_the_second_aborts(
    which: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    limits = Limits.starting_now(3600.0, stop=Stop())
    assert not limits.expired()
    with output.stoppable(limits, "stopping with what was found"):
        signal.raise_signal(which)
        assert limits.stopped()
        assert limits.expired()
        assert limits.remaining() == 0
        assert limits.why() == "interrupted"
        assert capfd.readouterr().err == "\nquantify: stopping with what was found; once more to abort\n"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(which)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_time_limit_is_not_called_an_interruption() -> None:
    limits = Limits(deadline=time.monotonic() - 1, stop=Stop())
    assert limits.expired()
    assert not limits.stopped()
    assert limits.why() == "the time limit was reached"


def test_a_stop_before_anything_was_counted_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "examine", interrupted)
    assert main.run(["doctor"]) == 3
    assert capfd.readouterr().err.strip() == "quantify: error: stopped by the user before anything was counted"

"""Options and markers of the whole suite."""

from __future__ import annotations

import importlib.util
import shutil
import signal

import pytest

# A shell's background jobs ignore Ctrl-C and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-tools", action="store_true", help="a missing external tool is a failure, not a skip")


def installed(name: str) -> bool:
    """Whether `name` is a program that quantify or the shell finds, or an importable library."""
    if name == "cbmc":
        from quantify.tools import find

        return find("cbmc") is not None
    return shutil.which(name) is not None or importlib.util.find_spec(name) is not None


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("optional"):
        for name in marker.args:
            if not installed(name):
                pytest.skip(f"{name} is not installed")
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            if installed(name):
                continue
            if item.config.getoption("--require-tools"):
                pytest.fail(f"{name} is not installed, and --require-tools was given", pytrace=False)
            pytest.skip(f"{name} is not installed")

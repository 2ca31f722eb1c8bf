"""Names of distributions in, the versions that are installed out, without importing any."""

from __future__ import annotations

from importlib import metadata

TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tensorflow-intel")
"""Distributions that hold TensorFlow."""


def versions(*wanted: tuple[str, ...]) -> str | None:
    """Such as "keras 3.10.0, tensorflow 2.20.0": of each tuple, the first distribution that is installed.

    None when all of one tuple are missing.
    """
    found = []
    for names in wanted:
        for name in names:
            try:
                found.append(f"{name} {metadata.version(name)}")
                break
            except metadata.PackageNotFoundError:
                continue
        else:
            return None
    return ", ".join(found)

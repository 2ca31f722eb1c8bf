"""Compile native/*.c into one cffi extension, `quantify.engines._native`, for the stable ABI of CPython 3.11 on.

Every `native/NAME.h` is both included by the C sources and parsed by cffi: plain declarations, `#include <stdint.h>`
and `#pragma once` only. Run as a script it builds into the source tree, for development; the wheel's build hook
calls `build`.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
MODULE = "quantify.engines._native"
# No -march: the portable path must run anywhere; vector paths carry their own target attributes.
# -ffp-contract=off: a fused multiply-add would round once where the library rounds twice.
COMPILE_ARGS = ["-O3", "-std=c11", "-ffp-contract=off", "-fno-strict-aliasing", "-Wall", "-Wextra", "-pthread"]


def sources_digest() -> str:
    """Of this folder's files; compiled in, so that in a checkout `quantify.engines` can tell when to rebuild."""
    digest = hashlib.sha256()
    for path in sorted(path for path in HERE.iterdir() if path.suffix in (".c", ".h", ".inc", ".py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def make_builder(extra_args: list[str] | None = None) -> FFI:
    """The configured builder over all headers and sources of this folder."""
    builder = FFI()
    headers = sorted(HERE.glob("*.h"))
    for header in headers:
        text = re.sub(r"^\s*#.*$", "", header.read_text(encoding="utf-8"), flags=re.MULTILINE)
        builder.cdef(text)
    args = COMPILE_ARGS + (extra_args or [])
    mark = f'const char quantify_native_sources[] = "quantify-native-sources:{sources_digest()}";'
    builder.set_source(
        MODULE,
        "\n".join([*(f'#include "{header.name}"' for header in headers), mark]),
        sources=[str(source) for source in sorted(HERE.glob("*.c"))],
        include_dirs=[str(HERE)],
        extra_compile_args=args,
        extra_link_args=[*(extra_args or []), "-pthread"],
        py_limited_api=True,
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
    )
    return builder


def build(target: Path, extra_args: list[str] | None = None) -> Path:
    """Compile in a temporary folder and put `_native.abi3.so` into `target`; returns its path."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        built = make_builder(extra_args).compile(tmpdir=scratch, target="_native.abi3.so")
        destination = target / "_native.abi3.so"
        # Renamed into place: overwriting a library that a running process has mapped crashes that process.
        staged = target / "_native.abi3.so.new"
        shutil.copyfile(built, staged)
        staged.replace(destination)
    return destination


if __name__ == "__main__":
    print(build(HERE.parent / "quantify" / "engines", sys.argv[1:]))

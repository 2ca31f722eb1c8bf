"""A C program of `quantify emit` in, its answers at many points out: compiled by gcc, called once."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DRIVER = """
void answer_all(const long long *rows, long long many, long long width, int *answers)
{{
  for (long long row = 0; row < many; row++, rows += width) {{
    {calls}
  }}
}}
"""


def answers(program: str, functions: Sequence[str], positions: NDArray[np.int64], folder: Path) -> NDArray[np.int32]:
    """What each of `functions` returns at each row of positions: (rows × functions)."""
    calls = "\n    ".join(f"*answers++ = {name}(rows);" for name in functions)
    # A library of a path that was loaded before would not be loaded again.
    number = len(list(folder.glob("program*.c")))
    source, library = folder / f"program{number}.c", folder / f"program{number}.so"
    source.write_text(program + DRIVER.format(calls=calls), encoding="ascii")
    command = ["gcc", "-std=c11", "-Wall", "-Werror", "-Wno-unused-variable", "-O1", "-fwrapv", "-shared", "-fPIC"]
    subprocess.run([*command, source, "-o", library], check=True)
    rows = np.ascontiguousarray(positions, np.int64)
    found = np.full((len(rows), len(functions)), -1, np.int32)
    ctypes.CDLL(str(library)).answer_all(
        rows.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_longlong(len(rows)),
        ctypes.c_longlong(rows.shape[1]),
        found.ctypes.data_as(ctypes.c_void_p),
    )
    return found

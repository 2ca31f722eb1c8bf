"""The child process of a library counter: formulas on stdin, one JSON line for each count on stdout.

Runs as a script, so that it is the same quantify that started it which is imported, whatever the search path says.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple


class Call(NamedTuple):
    """One formula to count, as the parent has reduced it."""

    variables: int
    literals: array[int]
    projection: list[int]
    seed: int
    epsilon: float
    delta: float
    memory_mb: int | None

    def clauses(self) -> Iterator[list[int]]:
        """The clauses one by one, as lists of literals."""
        flat = self.literals.tolist()
        start = 0
        for _ in range(flat.count(0)):
            end = flat.index(0, start)
            yield flat[start:end]
            start = end + 1


def encode(counter_module: str, library: str, path: str, calls: list[Call]) -> bytes:
    """What the parent writes to the child's stdin."""
    header = {
        "counter": counter_module, "library": library, "path": path,
        "calls": [{**call._asdict(), "literals": len(call.literals)} for call in calls],
    }  # fmt: skip
    return b"".join([json.dumps(header).encode(), b"\n", *(call.literals.tobytes() for call in calls)])


def decode(stream: BinaryIO) -> tuple[dict[str, Any], list[Call]]:
    """The header and the calls that `encode` wrote."""
    header = json.loads(stream.readline())
    calls = []
    for fields in header["calls"]:
        literals = array("i")
        literals.frombytes(stream.read(fields["literals"] * literals.itemsize))
        calls.append(Call(**{**fields, "literals": literals}))
    return header, calls


def load_library(name: str, path: str) -> ModuleType:
    """Import the library the parent found, and no other: calibration is kept under the hash of that file."""
    root = str(Path(path).parents[name.count(".")])
    if root not in sys.path:
        sys.path.append(root)
    module = importlib.import_module(name)
    if not module.__file__ or not os.path.samefile(module.__file__, path):
        raise SystemExit(f"{name} is {module.__file__} here, not {path}")
    return module


def main() -> None:
    """Serve the calls of stdin."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print what they like
    sys.set_int_max_str_digits(0)  # a count may have more than 4,300 digits
    root = str(Path(__file__).resolve().parents[3])
    sys.path.insert(0, root)
    importlib.import_module("quantify")
    sys.path.remove(root)
    header, calls = decode(sys.stdin.buffer)
    counter = importlib.import_module(header["counter"])
    library = load_library(header["library"], header["path"])
    for call in calls:
        answer = {
            name: hex(value) if name == "count" else value for name, value in counter.solve(library, call).items()
        }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()

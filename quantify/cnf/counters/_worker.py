"""The child process of a library counter: formulas on stdin, one JSON line for each count on stdout.

Runs as a script, with the counter's own half of the child (`_NAME.py` beside it) and nothing else of quantify: it must
start fast, and whatever the search path says, both halves belong to the quantify that started them.
"""

from __future__ import annotations

import importlib
import importlib.util
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

    def model(self, conflicts: int | None = None) -> list[int] | None:
        """A model as literals, checked; empty when there is none, None when `conflicts` were not enough to tell."""
        from pysat.solvers import Solver

        with Solver(name="glucose4", bootstrap_with=self.clauses()) as solver:
            if conflicts is not None:
                solver.conf_budget(conflicts)
            found = solver.solve_limited()
            if not found:
                return None if found is None else []
            model: list[int] = solver.get_model()
        chosen = set(model)
        if not all(any(literal in chosen for literal in clause) for clause in self.clauses()):
            raise SystemExit("the SAT solver returned an assignment that is no model")
        return model


def encode(child: Path, library: str, path: str, calls: list[Call]) -> bytes:
    """What the parent writes to the child's stdin."""
    header = {
        "child": str(child), "library": library, "path": path,
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


def load_child(path: str) -> ModuleType:
    """The counter's half of the child, a file with a function `solve(library, call)`."""
    spec = importlib.util.spec_from_file_location("child", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Serve the calls of stdin."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print what they like
    sys.set_int_max_str_digits(0)  # a count may have more than 4,300 digits
    header, calls = decode(sys.stdin.buffer)
    child = load_child(header["child"])
    library = load_library(header["library"], header["path"])
    for call in calls:
        answer = {name: hex(value) if name == "count" else value for name, value in child.solve(library, call).items()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()

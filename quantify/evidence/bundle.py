"""A contradiction to a folder with everything needed to see it again, and back to the integer problem."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from importlib import metadata
from pathlib import Path
from typing import Any

from quantify import __version__
from quantify.errors import ContradictionError, InputError
from quantify.ir import count as count_module
from quantify.ir import domain, predicate, problem
from quantify.ir.count import Count, Guarantee
from quantify.ir.digits import exact_ratio, from_digits, from_ratio, to_digits
from quantify.ir.problem import GridCase, GridProblem

LIBRARIES = ("numpy", "scipy", "scikit-learn", "skops", "dd", "python-sat", "pyapproxmc", "pyganak")
WIDE = 2**53
"""Integers from here on are written as digit strings: other readers of JSON keep only doubles."""

README = """\
This folder holds a contradiction that quantify {version} met: two ways of counting the same inputs disagreed, so
no number of that run may be believed.

{reason}

problem.json    the integer problem and the case that were counted
counts.json     what each way said
versions.json   the versions of everything that took part
{files}
To see it again, install the versions named there and run

    {command}

To count the integer problem alone with one engine, in Python:

    from pathlib import Path
    from quantify import engines
    from quantify.evidence.bundle import read_problem
    from quantify.resources import Limits, Progress

    problem, case = read_problem(Path("problem.json"))
    print(engines.discover()["boxes"].count(problem, case, Limits(), Progress()))

Please report it with this folder attached (look first whether the model and the property may be shared).
"""


def write_bundle(
    directory: Path,
    grid: GridProblem,
    case: GridCase,
    first: Mapping[str, Count],
    second: Mapping[str, Count],
    files: Sequence[Path] = (),
    reason: str = "",
) -> Path:
    """Write the reproduction bundle into a new folder below `directory`; nothing is ever overwritten.

    Args:
        files: The model and the property file, copied under their names.
        reason: What the ways disagree on.

    Returns:
        The new folder.

    Raises:
        ContradictionError: The folder cannot be written; the message still names the contradiction.
    """
    try:
        folder = _new_folder(directory, f"contradiction-{grid.digest(case)[:12]}")
        _write_json(folder / "problem.json", {"problem": _plain(grid), "case": _plain(case)})
        counts = {"first": _plain_counts(first), "second": _plain_counts(second), "reason": reason}
        _write_json(folder / "counts.json", counts)
        _write_json(folder / "versions.json", _versions())
        listed, names = _copy(files, folder)
        command = " ".join(["quantify count", *_arguments(names), "--cross-check"])
        text = README.format(version=__version__, reason=reason, files=listed, command=command)
        (folder / "README.txt").write_text(text, encoding="utf-8")
    except OSError as error:
        raise ContradictionError(
            f"{reason} (and the folder to reproduce it could not be written: {error})",
            "run again in a folder that can be written to, to keep what is needed to reproduce this",
        ) from error
    return folder


def read_problem(path: Path) -> tuple[GridProblem, GridCase]:
    """The problem and the case that `problem.json` of a bundle holds.

    Raises:
        InputError: The file is not one.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        grid, case = _rebuilt(data["problem"]), _rebuilt(data["case"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no problem of a bundle: {error}", "give the problem.json of a bundle") from error
    if not isinstance(grid, GridProblem) or not isinstance(case, GridCase):
        raise InputError(f"{path} is no problem of a bundle", "give the problem.json of a bundle")
    return grid, case


def _new_folder(directory: Path, name: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        folder = directory / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def _copy(files: Sequence[Path], folder: Path) -> tuple[str, list[str]]:
    listed, names = "", []
    for place, file in enumerate(files):
        # A model may be called like one of the bundle's own files.
        name = file.name if not (folder / file.name).exists() else f"{place}-{file.name}"
        try:
            shutil.copyfile(file, folder / name)
        except OSError as error:
            listed += f"{file}    could not be copied: {error.strerror}\n"
            continue
        names.append(name)
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        listed += f"{name}    copied from {file}, sha256 {digest}\n"
    return listed, names


def _arguments(names: list[str]) -> list[str]:
    quoted = [f"'{name}'" if " " in name else name for name in names]
    if len(quoted) != 2:
        return ["MODEL --property PROPERTY.yaml"]
    return [quoted[0], "--property", quoted[1]]


def _versions() -> dict[str, Any]:
    found: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return {
        "quantify": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "libraries": found,
    }


def _write_json(path: Path, data: object) -> None:
    with path.open("x", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
        file.write("\n")


# --- dataclasses to JSON and back ----------------------------------------------------------------------------------
_CLASSES = {
    name: found
    for module in (predicate, problem, domain, count_module)
    for name, found in vars(module).items()
    if isinstance(found, type) and dataclasses.is_dataclass(found)
}


def _plain(value: Any) -> Any:
    """A dataclass as {"is": class name, field: …}; wide integers as {"int": digits}, fractions as {"ratio": p/q}."""
    if isinstance(value, Guarantee):
        return str(value)
    if isinstance(value, bool) or value is None or isinstance(value, str | float):
        return value
    if isinstance(value, int):
        return value if -WIDE < value < WIDE else {"int": to_digits(value)}
    if isinstance(value, Fraction):
        return {"ratio": exact_ratio(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return {"is": type(value).__name__, **fields}


def _plain_counts(counts: Mapping[str, Count]) -> dict[str, Any]:
    return {name: _plain(count) for name, count in counts.items()}


def _rebuilt(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_rebuilt(item) for item in value)
    if not isinstance(value, dict):
        return value
    if "int" in value:
        return from_digits(value["int"])
    if "ratio" in value:
        return from_ratio(value["ratio"])
    made = _CLASSES[value["is"]]
    return made(**{name: _rebuilt(item) for name, item in value.items() if name != "is"})

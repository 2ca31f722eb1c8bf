"""The name of an external program goes in; where it is, how to call it and what it is comes out."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from quantify.errors import MissingToolError, QuantifyError
from quantify.tools.process import run

CBMC_VARIABLE = "QUANTIFY_CBMC"
CBMC_FOLDER = "cbmc"
"""Below a prefix: what `quantify.tools.fetch_cbmc` unpacks."""
MANIFEST = "tool.json"
_CBMC_OLDEST = (6, 0)
"""5.x has no --no-standard-checks, and its extra obligations change the count."""
_VERSION = re.compile(r"\b(\d+)\.(\d+)(?:\.\d+)*\b")


@dataclass(frozen=True, slots=True)
class Tool:
    """One installed program."""

    name: str
    argv_prefix: tuple[str, ...]
    """What stands before its arguments: the program, or a loader with its library path and the program."""
    version: str
    """As it says itself; "unknown" where it cannot be asked."""
    path: str
    sha256: str
    """Of the program's file."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place that was looked at."""

    place: str
    """Path, or the name of what was searched."""
    tool: Tool | None
    verdict: str
    """Why it cannot be used; empty when it can."""


def find(name: str) -> Tool | None:
    """The usable program of that name, or None; `cbmc` is looked for in private prefixes too.

    Raises:
        MissingToolError: `QUANTIFY_CBMC` is set and names something that cannot be used.
    """
    if name != "cbmc":
        return find_on_path(name)
    for candidate in cbmc_candidates():
        if candidate.tool is not None:
            return candidate.tool
        if candidate.place.startswith(CBMC_VARIABLE):
            raise MissingToolError(
                f"{candidate.place} cannot be used: {candidate.verdict}", f"correct or unset {CBMC_VARIABLE}"
            )
    return None


def require_cbmc() -> Tool:
    """CBMC, or an error that says what was looked at and which command installs it.

    Raises:
        MissingToolError: There is none, or only one that is too old.
    """
    found = find("cbmc")
    if found is not None:
        return found
    unusable = [f"{c.place}: {c.verdict}" for c in cbmc_candidates() if c.tool is None]
    raise MissingToolError("; ".join(["CBMC 6 or later is not installed", *unusable]), install_cbmc_hint())


def install_cbmc_hint() -> str:
    """The command that installs CBMC here."""
    checkout = checkout_root()
    if checkout is not None and (checkout / "Makefile").is_file():
        return "run `make cbmc`" if checkout == Path.cwd() else f"run `make -C {checkout} cbmc`"
    on_path = shutil.which("python")
    active = on_path is not None and Path(on_path).parent == Path(sys.executable).parent
    return f"run `{'python' if active else sys.executable} -m quantify.tools.fetch_cbmc`"


def find_on_path(name: str) -> Tool | None:
    """The program of that name on PATH, without asking it anything; None when there is none."""
    path = shutil.which(name)
    if path is None:
        return None
    path = os.path.realpath(path)
    return Tool(name, (path,), "unknown", path, sha256_of(Path(path)))


def cbmc_candidates() -> tuple[Candidate, ...]:
    """Every CBMC there is, the one to use first: `QUANTIFY_CBMC`, then PATH, then the private prefixes."""
    found: list[Candidate] = []
    named = os.environ.get(CBMC_VARIABLE)
    if named:
        found.append(judge(f"{CBMC_VARIABLE}={named}", named))
    on_path = shutil.which("cbmc")
    if on_path is not None:
        found.append(judge(on_path, on_path))
    for prefix in private_prefixes():
        folder = prefix / CBMC_FOLDER
        if (folder / MANIFEST).is_file():
            found.append(judge(str(folder), str(folder)))
    return tuple(found)


def private_prefixes() -> tuple[Path, ...]:
    """Folders that privately unpacked tools may lie in, first choice first."""
    checkout = checkout_root()
    roots = [checkout] if checkout is not None else []
    roots.append(Path.cwd())
    prefixes = [root / ".tools" for root in roots] + [data_prefix()]
    return tuple(dict.fromkeys(prefixes))


def checkout_root() -> Path | None:
    """The source checkout this code belongs to: it runs from there, or from a virtual environment inside it."""
    for root in (Path(__file__).resolve().parents[2], Path(sys.prefix).resolve().parent):
        if (root / "pyproject.toml").is_file() and (root / "quantify" / "tools" / "fetch_cbmc.py").is_file():
            return root
    return None


def data_prefix() -> Path:
    """Where the tools of an installed quantify go."""
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(home, "quantify", "tools")


def cbmc_in(folder: Path) -> Tool:
    """The CBMC that `fetch_cbmc` unpacked into `folder`, called through the loader it came with.

    Its own C library is newer than the system's may be. An exported LD_LIBRARY_PATH would do as well, but every
    program it starts would inherit it.

    Raises:
        MissingToolError: The folder is incomplete or does not run here.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        loader, libraries, program = (folder / manifest[key] for key in ("loader", "libraries", "program"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MissingToolError(f"{folder} is incomplete: {error}", install_cbmc_hint()) from error
    return _cbmc((str(loader), "--library-path", str(libraries), str(program)), program)


def judge(place: str, path: str | Path) -> Candidate:
    """Whether the CBMC at `path` (a program, or a folder that `fetch_cbmc` made) can be used."""
    try:
        if Path(path, MANIFEST).is_file():
            return Candidate(place, cbmc_in(Path(path).resolve()), "")
        program = shutil.which(path)
        if program is None:
            return Candidate(place, None, "it is no program that may be executed")
        # realpath would turn a compiler wrapper's symbolic link into the wrapper.
        return Candidate(place, _cbmc((os.path.abspath(program),), Path(os.path.abspath(program))), "")
    except QuantifyError as error:
        return Candidate(place, None, error.message)


def _cbmc(prefix: tuple[str, ...], program: Path) -> Tool:
    stamp = _stamp(str(program))
    version = _cbmc_version(prefix, stamp)
    match = _VERSION.search(version)
    if match is None:
        raise MissingToolError(f"it does not say its version ({version[:80]!r})", install_cbmc_hint())
    if (int(match[1]), int(match[2])) < _CBMC_OLDEST:
        raise MissingToolError(
            f"version {match[0]} is too old: 6.0 or later is needed (for --no-standard-checks)", install_cbmc_hint()
        )
    return Tool("cbmc", prefix, match[0], str(program), sha256_of(program))


def _stamp(path: str) -> tuple[int, int, int]:
    """What changes when the file does, so that answers about it can be kept within this process."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise MissingToolError(f"{path} cannot be read: {error.strerror}", "run `quantify doctor`") from error
    return status.st_ino, status.st_size, status.st_mtime_ns


@cache
def _cbmc_version(prefix: tuple[str, ...], stamp: tuple[int, int, int]) -> str:
    ended = run([*prefix, "--version"], timeout=20, stdout_limit=1 << 16)
    if ended.returncode != 0:
        raise MissingToolError(f"it does not run: {ended.complaint()}", install_cbmc_hint())
    return ended.stdout.decode(errors="replace").strip()


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, computed once while the file stays the same.

    Raises:
        MissingToolError: It cannot be read.
    """
    return _sha256(str(path), _stamp(str(path)))


@cache
def _sha256(path: str, stamp: tuple[int, int, int]) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise MissingToolError(f"{path} cannot be read: {error.strerror}", "run `quantify doctor`") from error

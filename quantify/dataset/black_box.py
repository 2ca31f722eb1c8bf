"""`module:name` to a selector or a domain of the user's own: code that runs because the user said so."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError, QuantifyError
from quantify.evidence import records
from quantify.ir.record import ModelRef
from quantify.ir.selector import Instances, Masks, Winners


class Imported:
    """An object of a module, imported where it is needed: workers get its name alone."""

    def __init__(self, name: str, option: str) -> None:
        """Import it.

        Raises:
            InputError: There is no such object.
        """
        self.name = name
        self._option = option
        self._folder = str(Path.cwd())
        self._object: Any = None
        self.load()

    def load(self) -> Any:
        """The object; the folder that the command was typed in comes first where modules are looked for."""
        if self._object is None:
            module, _, attribute = self.name.partition(":")
            if not module or not attribute:
                raise InputError(f"{self._option} {self.name}", "write it as module:name, as in my_selector:scores")
            if self._folder not in sys.path:
                sys.path.insert(0, self._folder)
            with _blamed(f"{self._option} {self.name}: it cannot be imported"):
                self._object = importlib.import_module(module)
                for part in attribute.split("."):
                    self._object = getattr(self._object, part)
        return self._object

    def file(self) -> tuple[str, str]:
        """Path and SHA-256 of the module's file.

        Raises:
            InputError: It has none.
        """
        module = importlib.import_module(self.name.partition(":")[0])
        path = getattr(module, "__file__", None)
        if path is None:
            raise InputError(f"{self._option} {self.name}: the module has no file", "put the function in a .py file")
        return path, records.file_sha256(path)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_object": None}


class CallableSelector:
    """A function from instances [n, length] to probabilities [n, 2]."""

    def __init__(self, name: str) -> None:
        self._function = Imported(name, "--callable")
        if not callable(self._function.load()):
            raise InputError(f"--callable {name}: it cannot be called", "name a function")
        path, sha256 = self._function.file()
        self.ref = ModelRef(path, sha256, "callable")

    def scores(self, instances: Instances) -> NDArray[np.floating[Any]]:
        with _blamed(f"--callable {self._function.name} failed"):
            return np.asarray(self._function.load()(instances), dtype=np.float64)


class ImportedDomain:
    """A domain of the user's own (`quantify.ir.selector.Domain`), its answers checked."""

    def __init__(self, name: str) -> None:
        self._domain = Imported(name, "--domain")
        domain = self._domain.load()
        missing = [part for part in ("check", "winners", "perturb", "describe", "solvers") if not hasattr(domain, part)]
        if missing:
            raise InputError(f"--domain {name}: it has no {missing[0]}", "docs/evolve.md shows what a domain must have")
        names = list(domain.solvers)
        if len(names) != 2 or not all(isinstance(one, str) for one in names) or names[0] == names[1]:
            raise InputError(f"--domain {name}: solvers are {names}", "there must be two, with names")
        self.solvers: tuple[str, str] = (names[0], names[1])
        self._sha256 = self._domain.file()[1]

    def check(self, instances: Instances) -> None:
        with _blamed(f"--domain {self._domain.name}: check"):
            self._domain.load().check(instances)

    def winners(self, instances: Instances) -> Winners:
        with _blamed(f"--domain {self._domain.name}: winners"):
            found = np.asarray(self._domain.load().winners(instances))
        if found.shape != (len(instances),) or not np.isin(found, (-1, 0, 1)).all():
            raise InputError(
                f"--domain {self._domain.name}: winners of {len(instances)} instances are {found!r:.80}",
                "return one of 0, 1 and -1 (a tie) for each",
            )
        return found.astype(np.int8)

    def perturb(self, instance: Instances, masks: Masks) -> Instances:
        with _blamed(f"--domain {self._domain.name}: perturb"):
            found = np.asarray(self._domain.load().perturb(instance, masks))
        if found.shape != masks.shape or not np.issubdtype(found.dtype, np.integer):
            raise InputError(
                f"--domain {self._domain.name}: perturb gives {found.dtype} of shape {found.shape}",
                f"return integers of shape {masks.shape}",
            )
        return np.ascontiguousarray(found, dtype=np.int64)

    def describe(self) -> dict[str, Any]:
        with _blamed(f"--domain {self._domain.name}: describe"):
            told: dict[str, Any] = self._domain.load().describe()
            return {**told, "solvers": list(self.solvers), "sha256": self._sha256}


class _blamed:  # noqa: N801 - used as a statement
    """Errors of the user's code become one error that says whose they are."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, QuantifyError):
            raise InputError(
                f"{self._what}: {type(error).__name__}: {error}", "try it in Python, in this folder"
            ) from error

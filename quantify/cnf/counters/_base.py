"""What counters have in common: a formula is reduced, a child process counts, its answer is checked and scaled."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

from quantify.cnf.counters import _worker
from quantify.cnf.counters._reduce import reduce
from quantify.cnf.dimacs import dimacs_bytes
from quantify.cnf.formula import Cnf, CounterAnswer, CounterTool
from quantify.errors import ContradictionError, MissingToolError, UndecidedError
from quantify.ir.count import Guarantee
from quantify.resources import Limits
from quantify.tools.locate import find_on_path, sha256_of
from quantify.tools.process import Completed, run

_EXACT = (Guarantee.EXACT, Guarantee.PROB_EXACT)


@dataclass(frozen=True, slots=True)
class Raw:
    """What a tool says of a reduced formula."""

    lower: int
    upper: int
    estimate: int | None = None
    delta: Fraction | None = None
    exact: bool = False
    """It is certain in this case, whatever the counter's guarantee is in general."""


class BaseCounter(ABC):
    """The `Counter` protocol, but for finding the tool and running it."""

    name: ClassVar[str]
    guarantee: ClassVar[Guarantee]
    install: ClassVar[str]
    by_default: ClassVar[bool] = False

    @abstractmethod
    def locate(self) -> CounterTool | None:
        """Find the tool without running a count; None when it is not installed."""

    @abstractmethod
    def run_tool(
        self, tool: CounterTool, cnfs: Sequence[Cnf], limits: Limits, epsilon: Fraction, delta: Fraction
    ) -> list[Raw]:
        """Count reduced formulas in child processes; one process may take them all.

        Raises:
            UndecidedError: Timed out, ran out of memory, crashed, or printed something that is no count.
        """

    def count(
        self, cnf: Cnf, limits: Limits, *, epsilon: Fraction = Fraction(4, 5), delta: Fraction = Fraction(1, 5)
    ) -> CounterAnswer:
        """See `Counter.count`.

        Raises:
            ContradictionError: The tool answers with more assignments than there are.
        """
        return self.count_all([cnf], limits, epsilon=epsilon, delta=delta)[0]

    def count_all(
        self,
        cnfs: Sequence[Cnf],
        limits: Limits,
        *,
        epsilon: Fraction = Fraction(4, 5),
        delta: Fraction = Fraction(1, 5),
    ) -> list[CounterAnswer]:
        """Count several formulas, possibly in one child process: for calibration, where starting is what takes time."""
        started = time.monotonic()
        tool = self.locate()
        if tool is None:
            raise MissingToolError(f"the counter {self.name} is not installed", self.install)
        reduced = [reduce(cnf) for cnf in cnfs]
        hard = [item.cnf for item in reduced if item.cnf is not None]
        raws = iter(self.run_tool(tool, hard, limits, epsilon, delta) if hard else [])
        answers = []
        for item in reduced:
            raw = Raw(1, 1, exact=True) if item.cnf is None else next(raws)
            if item.cnf is not None:
                self._require_possible(raw, item.cnf)
            answers.append(self._answer(raw, item.factor, time.monotonic() - started, limits.seed, epsilon, delta))
        return answers

    def _answer(
        self, raw: Raw, factor: int, seconds: float, seed: int, epsilon: Fraction, delta: Fraction
    ) -> CounterAnswer:
        if raw.exact or factor == 0:
            return CounterAnswer(raw.lower * factor, raw.upper * factor, Guarantee.EXACT, seconds)
        approximate = self.guarantee not in _EXACT
        return CounterAnswer(
            lower=raw.lower * factor,
            upper=raw.upper * factor,
            guarantee=self.guarantee,
            seconds=seconds,
            estimate=None if raw.estimate is None else raw.estimate * factor,
            epsilon=epsilon if approximate else None,
            delta=delta if approximate else raw.delta,
            seed=seed if self.guarantee is not Guarantee.EXACT else None,
        )

    def _require_possible(self, raw: Raw, cnf: Cnf) -> None:
        if not 0 <= raw.lower <= raw.upper <= 1 << len(cnf.projection):
            raise ContradictionError(
                f"{self.name} answers {raw.lower if raw.lower < 0 else raw.upper}, "
                f"and there are 2^{len(cnf.projection)} assignments",
                "do not use this counter; try another with --counter",
            )

    def fail(self, what: str) -> UndecidedError:
        """The error of a tool that gave no count."""
        return UndecidedError(f"{self.name}: {what}", "allow more with --timeout or --memory, or try another --counter")


class LibraryCounter(BaseCounter):
    """A counter that is a Python extension module; `_NAME.py` beside its file holds `solve(library, call)`."""

    library: ClassVar[str]
    """Import name of the extension module, such as "package.module"."""
    distribution: ClassVar[str]
    """Name on the package index."""

    def locate(self) -> CounterTool | None:
        package, _, module = self.library.partition(".")
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        path = spec.origin
        if module:
            folders = spec.submodule_search_locations or []
            path = next((str(p) for folder in folders for p in sorted(Path(folder).glob(f"{module}.*so"))), None)
        if path is None or not os.path.isfile(path):
            return None
        return CounterTool(self.name, self._version(Path(path)), path, sha256_of(Path(path)))

    def _version(self, path: Path) -> str:
        import importlib.metadata

        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return "unknown"

    def run_tool(
        self, tool: CounterTool, cnfs: Sequence[Cnf], limits: Limits, epsilon: Fraction, delta: Fraction
    ) -> list[Raw]:
        calls = [
            _worker.Call(
                cnf.variables, cnf.literals, list(cnf.projection), limits.seed,
                _not_above(epsilon), _not_above(delta), limits.memory_mb,
            )
            for cnf in cnfs
        ]  # fmt: skip
        child = Path(_worker.__file__).with_name(f"_{self.name}.py")
        ended = run(
            [sys.executable, "-P", _worker.__file__],
            stdin=_worker.encode(child, self.library, tool.path, calls),
            timeout=limits.remaining(),
            memory_mb=limits.memory_mb,
            env=_python_environment(),
        )
        if ended.returncode != 0 or ended.truncated:
            raise self.fail(ended.complaint())
        lines = ended.stdout.splitlines()
        if len(lines) != len(calls):
            raise self.fail(f"{len(lines)} answers to {len(calls)} questions")
        return [self._read(line, cnf, epsilon) for line, cnf in zip(lines, cnfs, strict=True)]

    def _read(self, line: bytes, cnf: Cnf, epsilon: Fraction) -> Raw:
        try:
            answer = json.loads(line)
            count = int(answer["count"], 16)
            if answer.get("unsatisfiable") and count == 0:
                return Raw(0, 0, exact=True)
            return self.interpret(count, answer, cnf, epsilon)
        except (ValueError, KeyError, TypeError) as error:
            raise self.fail(f"its answer {line[:80]!r} is no count") from error

    def interpret(self, count: int, answer: dict[str, Any], cnf: Cnf, epsilon: Fraction) -> Raw:
        """What `solve` returned for a formula that it did not find unsatisfiable, as bounds on the count of `cnf`."""
        return Raw(count, count)


class ProgramCounter(BaseCounter):
    """A counter that is a program on PATH, reads DIMACS and prints `s COUNT`."""

    program: ClassVar[str]

    @abstractmethod
    def arguments(self, formula: str, projection: str) -> list[str]:
        """Its command line for two files: the formula, and the counted variables with commas between them."""

    def locate(self) -> CounterTool | None:
        found = find_on_path(self.program)
        return None if found is None else CounterTool(self.name, found.version, found.path, found.sha256)

    def run_tool(
        self, tool: CounterTool, cnfs: Sequence[Cnf], limits: Limits, epsilon: Fraction, delta: Fraction
    ) -> list[Raw]:
        return [self._count_one(tool, cnf, limits) for cnf in cnfs]

    def _count_one(self, tool: CounterTool, cnf: Cnf, limits: Limits) -> Raw:
        with tempfile.TemporaryDirectory(prefix="quantify-") as scratch:
            formula, projection = Path(scratch, "formula.cnf"), Path(scratch, "projection")
            try:
                formula.write_bytes(dimacs_bytes(cnf))
                projection.write_text(",".join(map(str, cnf.projection)) + "\n")
            except OSError as error:
                raise self.fail(f"the formula cannot be written to {scratch}: {error.strerror}") from error
            ended = run(
                [tool.path, *self.arguments(str(formula), str(projection))],
                timeout=limits.remaining(),
                memory_mb=limits.memory_mb,
                cwd=Path(scratch),
            )
        count = self._parse(ended)
        return Raw(count, count)

    def _parse(self, ended: Completed) -> int:
        """The number of the one `s` line, whatever the exit code says: 0, 10 and 20 all occur in this trade."""
        if ended.timed_out or ended.truncated or ended.returncode not in (0, 10, 20):
            raise self.fail(ended.complaint())
        answers = [line.split() for line in ended.stdout.splitlines() if line.startswith(b"s ")]
        if len(answers) != 1 or len(answers[0]) != 2 or not answers[0][1].isdigit():
            raise self.fail("it printed no line `s COUNT`")
        return parse_decimal(answers[0][1].decode())


def parse_decimal(digits: str) -> int:
    """int() for any number of digits: the interpreter refuses more than 4,300 at a time."""
    value = 0
    for start in range(0, len(digits), 4000):
        part = digits[start : start + 4000]
        value = value * 10 ** len(part) + int(part)
    return value


def _not_above(number: Fraction) -> float:
    """The nearest float that does not promise less than `number` does."""
    value = float(number)
    return value if Fraction(value) <= number else math.nextafter(value, 0.0)


def _python_environment() -> dict[str, str]:
    """What a child interpreter needs to find the libraries that this one found."""
    path = os.environ.get("PYTHONPATH")
    return {} if not path else {"PYTHONPATH": os.pathsep.join(os.path.abspath(part) for part in path.split(os.pathsep))}

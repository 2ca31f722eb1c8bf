"""Integer problem + case + query in, CBMC run on its C, a formula with the way back to positions out.

What is relied on of CBMC 6 (checked at every run where it can be, by `quantify.cnf.selfcheck` where not): models of the
formula are the executions that meet every assumption and fail the assertion (CBMC manual, "--dimacs"), and the bits of
each variable stand in comments after the clauses, least significant first.
"""

from __future__ import annotations

import re
import tempfile
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from quantify.cnf.codegen import NO_NAMES, Names, harness, in_comment
from quantify.cnf.dimacs import absorb_multiplier, dimacs_bytes
from quantify.cnf.formula import Cnf
from quantify.cnf.lowering import box_of, straighten, untouched
from quantify.cnf.straight import Input, StraightLine
from quantify.errors import UndecidedError
from quantify.ir.problem import GridCase, GridProblem, GridQuery, Region
from quantify.resources import Limits
from quantify.tools import locate, process

FLAGS = ("--no-standard-checks", "--slice-formula", "--dimacs")
"""Without the first, default checks add obligations and change the count; 5.x does not know it, and writes nothing."""
PROBE_BYTES = 1 << 16
"""Room that must be left on the disk after CBMC has written: less means that its file may be cut short."""
HINT = "run `quantify doctor` to see which CBMC it is"
CONSTANTS: dict[str, bool | None] = {"TRUE": True, "FALSE": False, "?": None}
TOKEN = re.compile(r"-?\d+|TRUE|FALSE|\?")
INPUT = re.compile(r"(?:.*::)?x(\d+)!0@1#2")

Bit = int | bool | None
"""A bit of an input: a literal of the formula, a constant, or None where the formula does not know the bit."""


@dataclass(frozen=True, slots=True)
class Dimacs:
    """A file that CBMC wrote: the clauses and what each name's bits are."""

    variables: int
    clauses: int
    literals: array[int]
    symbols: dict[str, tuple[Bit, ...]]


@dataclass(frozen=True)
class Translation:
    """A query as a formula; positions of an input = `low` + the bits of its feature."""

    cnf: Cnf
    source: str
    """The C that CBMC read."""
    inputs: tuple[Input, ...]
    bits: tuple[tuple[Bit, ...], ...]
    """Per input, least significant bit first."""
    low: tuple[int, ...]
    """Lower corner of the region's box: where features that are no inputs may stand."""
    high: tuple[int, ...]
    """Upper corner, excluded."""
    version: str
    """CBMC's."""

    def positions(self, model: Iterable[int]) -> tuple[int, ...]:
        """The grid positions of one model of the formula (its true literals); bits it leaves open are 0."""
        true = set(model)
        found = list(self.low)
        for item, bits in zip(self.inputs, self.bits, strict=True):
            for place, bit in enumerate(bits):
                if bit is True or (_is_literal(bit) and bit in true):
                    found[item.feature] += 1 << place
        return tuple(found)


def translate(
    problem: GridProblem, case: GridCase, query: GridQuery, limits: Limits, names: Names = NO_NAMES
) -> Translation:
    """The formula of one query, `cnf.multiplier` · its projected models being the number of inputs.

    Raises:
        InputError: The predicate needs words that are too wide.
        MissingToolError: CBMC is not installed.
        UndecidedError: CBMC was stopped by a limit, crashed, or wrote no formula.
    """
    line = straighten(problem, case, query)
    return translate_line(line, case.region, query, limits, names)


def dimacs_text(translation: Translation, query: GridQuery, names: Names = NO_NAMES) -> str:
    """The formula as DIMACS whose projected count is the number of inputs, with the way back in comments."""
    whole = absorb_multiplier(translation.cnf)
    fresh = len(whole.projection) - len(translation.cnf.projection)
    lines = [
        f"c written by quantify with CBMC {translation.version}",
        f"c query: {in_comment(query.name)}",
        "c An input's bits, least significant first, are literals, T, F, or ? where either value will do.",
    ]
    for item, bits in zip(translation.inputs, translation.bits, strict=True):
        shown = " ".join("?" if bit is None else str(bit)[0] if isinstance(bit, bool) else str(bit) for bit in bits)
        lines.append(f"c bits of {item.name}, position - {item.low} of {names.feature(item.feature)}: {shown}")
    if fresh:
        choices = translation.cnf.multiplier
        lines.append(f"c The last {fresh} counted variables stand for {choices} choices without influence.")
    return "\n".join(lines) + "\n" + dimacs_bytes(whole).decode("ascii")


def translate_line(
    line: StraightLine, region: Region, query: GridQuery, limits: Limits, names: Names = NO_NAMES
) -> Translation:
    """`translate` for a program that was lowered already."""
    tool = locate.require_cbmc()
    source = harness(line, region, query, names)
    dimacs = parse(run_cbmc(tool, source, limits))
    bits = input_bits(dimacs, line.inputs)
    box = box_of(region)
    return Translation(
        cnf=formula(dimacs, line.inputs, bits, untouched(region, line.inputs)),
        source=source,
        inputs=line.inputs,
        bits=bits,
        low=box.low,
        high=box.high,
        version=tool.version,
    )


def formula(dimacs: Dimacs, inputs: Sequence[Input], bits: Sequence[tuple[Bit, ...]], others: int) -> Cnf:
    """Project CBMC's clauses onto the variables of the input bits.

    Why the product is right. Let b be the input bits that the map knows, each a literal, or a constant; let V be the
    variables of the literals. An assignment to V fixes b, and b fixes V, because each variable of V is some bit up to
    sign: so models projected onto V and values of b that occur in a failing execution correspond one to one, also when
    bits share a variable or are constant (the executions that this excludes do not exist, or CBMC would be unsound).
    Bits that the map does not know appear in no clause, so the formula, assumptions included, does not depend on them.
    An input that is missing altogether and whose range is no power of two would have its assumption in the formula,
    unless that is false anyway or the assumption was dropped with the input: its number of values is right in each.
    Inputs that were never written (`others`) are free by construction.

    Raises:
        UndecidedError: A nondeterministic bit is outside the projection: it would be lost from the count.
    """
    known = {abs(bit) for item in bits for bit in item if _is_literal(bit)}
    stray = {
        abs(bit)
        for name, symbol in dimacs.symbols.items()
        if name.startswith("symex::nondet")
        for bit in symbol
        if _is_literal(bit)
    } - known
    if stray:
        raise UndecidedError(
            "CBMC's formula has nondeterministic bits that belong to no input",
            "please report this with the CBMC version",
        )
    if dimacs.variables == 0 and dimacs.clauses == 0:
        # CBMC folds a query that no input satisfies into the empty formula, which would count as 1.
        return Cnf(0, array("i", [0]), ())
    multiplier = others
    for item, known_bits in zip(inputs, bits, strict=True):
        multiplier *= item.width if not any(bit is not None for bit in known_bits) else 1 << known_bits.count(None)
    return Cnf(dimacs.variables, dimacs.literals, tuple(sorted(known)), multiplier)


def _is_literal(bit: Bit) -> TypeGuard[int]:
    return bit is not None and bit is not True and bit is not False


def input_bits(dimacs: Dimacs, inputs: Sequence[Input]) -> tuple[tuple[Bit, ...], ...]:
    """What the map says of each input; all None when it does not know it.

    Raises:
        UndecidedError: The map gives an input another number of bits.
    """
    mapped = {int(match[1]): bits for name, bits in dimacs.symbols.items() if (match := INPUT.fullmatch(name))}
    found = tuple(mapped.get(item.feature, (None,) * item.word.bits) for item in inputs)
    for item, bits in zip(inputs, found, strict=True):
        if len(bits) != item.word.bits:
            raise UndecidedError(
                f"CBMC maps {item.name} to {len(bits)} bits instead of {item.word.bits}",
                "please report this with the CBMC version",
            )
    return found


def run_cbmc(tool: locate.Tool, source: str, limits: Limits) -> str:
    """The text of the file that CBMC writes for a C source.

    Its exit code says nothing (0 also when the file could not be written), so the file is judged.

    Raises:
        UndecidedError: A limit was reached, CBMC crashed, or the file is not there, not whole, or no formula.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="quantify-") as name:
            folder = Path(name)
            # A name in .i keeps CBMC from calling a preprocessor.
            (folder / "query.i").write_text(source, encoding="ascii")
            ended = process.run(
                [*tool.argv_prefix, *FLAGS, "--outfile", "query.cnf", "query.i"],
                timeout=limits.remaining(),
                memory_mb=limits.memory_mb,
                cwd=folder,
            )
            _judge_end(ended, tool)
            written = folder / "query.cnf"
            text = written.read_text(encoding="ascii", errors="replace") if written.is_file() else ""
            (folder / "probe").write_bytes(bytes(PROBE_BYTES))
    except OSError as error:
        raise UndecidedError(
            f"no room to run CBMC in: {error.strerror} ({error.filename or tempfile.gettempdir()})",
            "free some space, or set TMPDIR to another folder",
        ) from error
    if not re.search(r"^p cnf ", text, re.MULTILINE) or not text.endswith("\n"):
        raise UndecidedError(f"CBMC {tool.version} wrote no whole formula ({_said(ended)})", HINT)
    return text


def _judge_end(ended: process.Completed, tool: locate.Tool) -> None:
    if ended.timed_out:
        raise UndecidedError(f"CBMC was stopped after {ended.seconds:.1f} s", "allow more with --timeout")
    if ended.out_of_memory:
        raise UndecidedError("CBMC ran out of memory", "allow more with --memory")
    if ended.returncode < 0 or ended.truncated:
        raise UndecidedError(f"CBMC {tool.version} crashed ({_said(ended)})", HINT)


def _said(ended: process.Completed) -> str:
    """How it ended, and the first error it printed: CBMC complains on either stream."""
    lines = (ended.stdout + b"\n" + ended.stderr).decode(errors="replace").splitlines()
    errors = [line.strip() for line in lines if "error" in line.lower() or "unknown option" in line.lower()]
    return f"{ended.complaint()}; {errors[0][:200]}" if errors else ended.complaint()


def parse(text: str) -> Dimacs:
    """Read clauses and map.

    A map line is `c NAME bits`; names may hold spaces, so it is read from the right.

    Raises:
        UndecidedError: The file contradicts its own header, or holds something that is no DIMACS.
    """
    header, symbols, body = "", {}, []  # type: str, dict[str, tuple[Bit, ...]], list[str]
    for row in text.split("\n"):
        if row.startswith("c "):
            name, bits = _map_line(row[2:])
            symbols[name] = bits
        elif row.startswith("p "):
            header = row
        else:
            body.append(row)
    try:
        _, _, variables, clauses = header.split()
        literals = array("i", map(int, " ".join(body).split()))
        parsed = Dimacs(int(variables), int(clauses), literals, symbols)
    except (ValueError, OverflowError) as error:
        raise UndecidedError(f"CBMC wrote something that is no formula: {error}", "please report this") from error
    mapped = (abs(bit) for bits in symbols.values() for bit in bits if _is_literal(bit))
    largest = max(max(mapped, default=0), max(literals, default=0), -min(literals, default=0))
    if literals.count(0) != parsed.clauses or (literals and literals[-1] != 0) or largest > parsed.variables:
        raise UndecidedError("CBMC's formula contradicts its own header", "is the disk full?")
    return parsed


def _map_line(row: str) -> tuple[str, tuple[Bit, ...]]:
    words = row.split(" ")
    bits: list[Bit] = []
    while len(words) > 1 and TOKEN.fullmatch(words[-1]):
        word = words.pop()
        bits.append(CONSTANTS[word] if word in CONSTANTS else int(word))
    return " ".join(words), tuple(reversed(bits))

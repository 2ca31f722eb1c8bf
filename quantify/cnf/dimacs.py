"""A DIMACS file with `c p show` or `c ind` lines goes in, a Cnf comes out; and the way back."""

from __future__ import annotations

import gzip
import lzma
import re
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from quantify.cnf.formula import Cnf
from quantify.errors import InputError

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_NOT_CLAUSES = re.compile(rb"^[ \t]*([cp%]).*$", re.MULTILINE)
_LARGEST = 2**31 - 2
"""Variables are 32-bit literals in every counter; one more than a 31-bit number stays free."""
_WEIGHTED = ([b"wmc"], [b"pwmc"], [b"wpmc"])
_FORMAT_HINT = "the format is `p cnf VARIABLES CLAUSES`, then literals with a 0 after each clause"


def read_dimacs(path: Path) -> Cnf:
    """Read a DIMACS file, plain or compressed with gzip or xz (told by its content, not by its name).

    Counted over are the variables of its `c p show … 0` or `c ind … 0` lines, several of which add up; without any,
    all variables.

    Raises:
        InputError: The file cannot be read, or is no DIMACS; with the line number.
    """
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        elif data.startswith(_XZ):
            data = lzma.decompress(data)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or "the compressed data is cut short"
        raise InputError(f"{path}: cannot be read: {reason}", "give a .cnf file, plain or as .gz or .xz") from error
    return parse_dimacs(data, str(path))


def parse_dimacs(data: bytes, name: str = "formula") -> Cnf:
    """The formula in DIMACS text; `name` is what errors call the text.

    Clauses may span lines, and a line may hold several. As in the SATLIB collection, a line that starts with `%` ends
    the formula.

    Raises:
        InputError: A literal out of range, a missing 0, a clause count that is not the header's, weights, …
    """
    return _Parser(data, name).parse()


class _Parser:
    """One text; lines are numbered from 1, and only counted once something is wrong."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data.replace(b"\r\n", b"\n")
        self.name = name
        self.header: tuple[int, int] | None = None
        self.shown: dict[str, set[int]] = {}
        self.unprojected: int | None = None

    def parse(self) -> Cnf:
        literals = array("i")
        place = 0
        for match in _NOT_CLAUSES.finditer(self.data):
            self.read_literals(place, match.start(), literals)
            place = match.end()
            if match[1] == b"%":
                place = len(self.data)
                break
            self.read_directive(match.start(), match[0].split())
        self.read_literals(place, len(self.data), literals)
        if self.header is None:
            self.fail(len(self.data), "there is no `p cnf` line", _FORMAT_HINT)
        variables, clauses = self.header
        self.check(literals, variables, clauses)
        return Cnf(variables, literals, self.projection(variables))

    def read_literals(self, start: int, end: int, literals: array[int]) -> None:
        words = self.data[start:end].split()
        if not words:
            return
        if self.header is None:
            word = words[0].decode(errors="replace")
            self.fail(start + self.data[start:end].index(words[0]), f"{word!r} before the `p cnf` line", _FORMAT_HINT)
        try:
            literals.extend(map(int, words))
        except (ValueError, OverflowError):
            self.fail_at_word(start, end)
        # int() reads 1_000 as a thousand.
        if self.data.find(b"_", start, end) >= 0:
            self.fail_at_word(start, end)

    def fail_at_word(self, start: int, end: int) -> NoReturn:
        for match in re.finditer(rb"\S+", self.data[start:end]):
            if not re.fullmatch(rb"[+-]?\d{1,20}", match[0]) or abs(int(match[0])) > _LARGEST:
                word = match[0][:40].decode(errors="replace")
                self.fail(start + match.start(), f"{word!r} is no literal", _FORMAT_HINT)
        raise AssertionError("every word is a literal")

    def read_directive(self, place: int, words: list[bytes]) -> None:
        """A comment or the header; comments that are no directive mean nothing."""
        if words[0].startswith(b"p"):
            self.read_header(place, words)
        elif words[:3] == [b"c", b"p", b"show"]:
            self.read_shown(place, "c p show", words[3:])
        elif words[:2] == [b"c", b"ind"]:
            self.read_shown(place, "c ind", words[2:])
        elif words[:3] == [b"c", b"p", b"weight"] or (words[:2] == [b"c", b"t"] and words[2:3] in _WEIGHTED):
            text = b" ".join(words).decode(errors="replace")
            self.fail(place, f"{text!r}: weighted counting is not supported", "remove the weights to count models")
        elif words[:3] == [b"c", b"t", b"mc"]:
            self.unprojected = place

    def read_header(self, place: int, words: list[bytes]) -> None:
        line = b" ".join(words).decode(errors="replace")
        if self.header is not None:
            self.fail(place, f"a second header, {line!r}", "keep one `p cnf` line")
        if words[:2] != [b"p", b"cnf"] or len(words) != 4 or not all(re.fullmatch(rb"\d{1,12}", w) for w in words[2:]):
            self.fail(place, f"{line[:80]!r} is no header", "it has the form `p cnf VARIABLES CLAUSES`")
        self.header = int(words[2]), int(words[3])
        if self.header[0] > _LARGEST:
            self.fail(place, f"{self.header[0]} variables are too many", f"at most {_LARGEST} can be counted")

    def read_shown(self, place: int, directive: str, words: list[bytes]) -> None:
        hint = f"write `{directive} VARIABLE … 0`"
        for word in words:
            if not re.fullmatch(rb"\d{1,9}", word):
                self.fail(place, f"{word[:40].decode(errors='replace')!r} in `{directive}` is no variable", hint)
        numbers = list(map(int, words))
        if not numbers or numbers[-1] != 0 or 0 in numbers[:-1]:
            self.fail(place, f"`{directive}` must end with its only 0", hint)
        self.shown.setdefault(directive, set()).update(numbers[:-1])

    def projection(self, variables: int) -> tuple[int, ...]:
        if not self.shown:
            return tuple(range(1, variables + 1))
        if self.unprojected is not None:
            self.fail(self.unprojected, "`c t mc` says that every variable counts, other lines name some", "remove one")
        chosen, *others = self.shown.values()
        if any(other != chosen for other in others):
            raise InputError(f"{self.name}: `c p show` and `c ind` name different variables", "keep one of the two")
        projection = sorted(chosen)
        if projection and projection[-1] > variables:
            place = self.place_of_shown(projection[-1])
            self.fail(place, f"variable {projection[-1]} is shown, but there are {variables}", "correct the line")
        return tuple(projection)

    def place_of_shown(self, variable: int) -> int:
        found = re.search(rb"^[ \t]*c[ \t]+(ind|p[ \t]+show)[ \t][^\n]*\b%d\b" % variable, self.data, re.MULTILINE)
        return found.start() if found else len(self.data)

    def check(self, literals: array[int], variables: int, clauses: int) -> None:
        if literals and literals[-1] != 0:
            self.fail(self.last_literal(), "the last clause lacks its closing 0", "add it: 0 ends every clause")
        if literals and (max(literals) > variables or min(literals) < -variables):
            for place, literal in self.literal_places():
                if abs(literal) > variables:
                    self.fail(place, f"literal {literal} is out of range", f"the header declares {variables} variables")
        found = literals.count(0)
        if found != clauses:
            raise InputError(
                f"{self.name}: the header announces {clauses} clauses, and there are {found}",
                "the file may be cut short; correct the `p cnf` line if it is complete",
            )

    def literal_places(self) -> Iterator[tuple[int, int]]:
        skipped = [(match.start(), match.end()) for match in _NOT_CLAUSES.finditer(self.data)]
        position = 0
        for match in re.finditer(rb"\S+", self.data):
            while position < len(skipped) and skipped[position][1] <= match.start():
                position += 1
            if position < len(skipped) and skipped[position][0] <= match.start():
                continue
            yield match.start(), int(match[0])

    def last_literal(self) -> int:
        return max((place for place, _ in self.literal_places()), default=0)

    def fail(self, place: int, message: str, hint: str) -> NoReturn:
        line = self.data.count(b"\n", 0, place) + 1
        raise InputError(f"{self.name}:{line}: {message}", hint)


def absorb_multiplier(cnf: Cnf) -> Cnf:
    """The formula with its multiplier as fresh counted variables, so that DIMACS alone says what is to be counted.

    A multiplier m becomes the binary digits of a number that the added clauses keep below m.
    """
    if cnf.multiplier == 1:
        return cnf
    literals = array("i", cnf.literals)
    if cnf.multiplier <= 0:
        literals.append(0)
        return replace(cnf, literals=literals, multiplier=1)
    largest = cnf.multiplier - 1
    digits = range(cnf.variables + 1, cnf.variables + 1 + largest.bit_length())
    ones_above: list[int] = []
    for place in reversed(range(len(digits))):
        if largest >> place & 1:
            ones_above.append(-digits[place])
        else:
            literals.extend([-digits[place], *ones_above, 0])
    return Cnf(cnf.variables + len(digits), literals, (*cnf.projection, *digits))


def dimacs_bytes(cnf: Cnf) -> bytes:
    """DIMACS text of the formula with its projection as `c p show` lines, its multiplier absorbed."""
    cnf = absorb_multiplier(cnf)
    shown = list(map(str, cnf.projection))
    lines = [shown[start : start + 20] for start in range(0, len(shown), 20)] or [[]]
    header = ["c t pmc", f"p cnf {cnf.variables} {cnf.literals.count(0)}"]
    header += [" ".join(["c p show", *line, "0"]) for line in lines]
    body = re.sub(r"(?<!\d)0 ", "0\n", " ".join(map(str, cnf.literals)))
    return "\n".join([*header, body, ""] if body else [*header, ""]).encode()

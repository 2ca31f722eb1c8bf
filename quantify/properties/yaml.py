"""Bytes of a YAML file in, a tree of nodes out: YAML 1.2 core schema, exact numbers, a line for every node.

The events come from ruamel.yaml's pure parser, which only splits the text; what a scalar means is decided here, by
the core schema of YAML 1.2.2, chapter 10.3. Nothing is ever constructed from a tag.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

from quantify.errors import InputError
from quantify.ir.domain import Number

MAX_BYTES = 16 * 1024 * 1024
MAX_NODES = 2_000_000
"""Nodes after every alias has been followed: a small file must not unfold into a large one."""
MAX_DEPTH = 100
MAX_EXPONENT = 400
"""Beyond the exponents of float64: a short text must not become a number that fills the memory."""
MAX_DIGITS = 1000

_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_OCTAL = re.compile(r"0o[0-7]+\Z")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+\Z")
_DECIMAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE]([-+]?[0-9]+))?\Z")
_CONSTANTS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + dot: math.inf for sign in ("", "+") for dot in (".inf", ".Inf", ".INF")},
    **{"-" + dot: -math.inf for dot in (".inf", ".Inf", ".INF")},
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """One plain or quoted value."""

    file: str
    line: int
    """1-based."""
    value: bool | Number | float | str | None
    """By the core schema; a float is an infinity or NaN, every other number is exact."""
    text: str
    """As written, without quotes."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    file: str
    line: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys (scalars, unique as values) with their nodes, in the order of the file."""

    file: str
    line: int
    items: tuple[tuple[Scalar, Node], ...]


Node = Scalar | Sequence | Mapping


def fail(node: Node, message: str, hint: str) -> NoReturn:
    """Raise the InputError about `node`, its file and line before the message."""
    raise InputError(f"{node.file}:{node.line}: {message}", hint)


def suggest(word: str, known: Iterable[str]) -> str:
    """ " (did you mean 'x'?)" for the closest known word, a number of the same value first; or nothing."""
    every, value = list(known), exact_decimal(word)
    close = [] if value is None else [other for other in every if exact_decimal(other) == value][:1]
    close = close or difflib.get_close_matches(word, every, n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def listed(words: Iterable[str], limit: int = 8) -> str:
    """Words for a message, quoted, the long tail left out."""
    every = list(words)
    shown = ", ".join(repr(word) for word in every[:limit])
    return shown + (f" and {len(every) - limit} more" if len(every) > limit else "")


def exact_decimal(text: str) -> Number | None:
    """The exact value of a decimal such as `12`, `-0.25` or `1e-5`; None when `text` is none, or absurdly long.

    An integer value is an `int`, whatever its spelling.
    """
    match = _DECIMAL.match(text)
    if match is None or len(text) > MAX_DIGITS:
        return None
    if _INTEGER.match(text):
        return int(text)
    exponent = match.group(1)
    if exponent is not None and (len(exponent) > 6 or abs(int(exponent)) > MAX_EXPONENT):
        return None
    return integral(Fraction(text.rstrip(".") if exponent is None else text.replace(".e", "e").replace(".E", "e")))


def integral(value: Number) -> Number:
    """`value` as an int when it is one."""
    return value.numerator if value.denominator == 1 else value


def read(path: Path, hint: str) -> tuple[Node, str]:
    """The document in a file, and the file's SHA-256 digest.

    Args:
        path: The file.
        hint: What to give instead where it cannot be read.

    Raises:
        InputError: It cannot be read; and as of `parse`.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", hint) from None
    return parse(content, str(path)), hashlib.sha256(content).hexdigest()


def parse(content: bytes, file: str) -> Node:
    """The one document in `content` as a tree of nodes.

    Raises:
        InputError: Not YAML, not UTF-8, several documents, tags, duplicate keys, recursive or exploding aliases.
    """
    from ruamel.yaml import YAML  # 25 ms, only needed here
    from ruamel.yaml.error import YAMLError

    if len(content) > MAX_BYTES:
        raise InputError(f"{file}: larger than {MAX_BYTES // 2**20} MiB", "a property file is text of a few pages")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{file}:{line}: not UTF-8 text", "a property file is YAML, saved as UTF-8") from None
    builder = _Builder(file)
    try:
        for event in YAML(typ="safe", pure=True, plug_ins=[]).parse(text):
            builder.take(event)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = f"{file}:{mark.line + 1}" if mark is not None else file
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{where}: not valid YAML: {problem}", "check indentation, quotes and brackets") from None
    except RecursionError:
        raise InputError(f"{file}: nested too deeply", f"at most {MAX_DEPTH} levels are read") from None
    if builder.root is None:
        raise InputError(f"{file}:1: the file is empty", "start from an example: quantify init --example relations")
    return builder.root


class _Open:
    """A collection whose end has not come yet."""

    __slots__ = ("anchor", "children", "line", "mapping", "weight")

    def __init__(self, mapping: bool, line: int, anchor: str | None) -> None:
        self.mapping = mapping
        self.line = line
        self.anchor = anchor
        self.children: list[Node] = []
        self.weight = 1


class _Builder:
    """Events to nodes, without recursion."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self.documents = 0
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Node | None, int]] = {}
        """Anchor → node and its weight; node None while the anchored collection is still open."""

    def take(self, event: Any) -> None:
        """Add one parser event."""
        kind = type(event).__name__
        line = event.start_mark.line + 1 if event.start_mark is not None else 1
        if kind == "ScalarEvent":
            self._refuse_tag(event, line)
            plain = event.style is None
            if plain and not event.value and self.stack and self.stack[-1].children:
                line = self.stack[-1].children[-1].line  # ruamel.yaml puts what is left out where the next word is
            scalar = Scalar(self.file, line, self._resolve(event.value, line) if plain else event.value, event.value)
            self._add(scalar, 1, event.anchor)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self._refuse_tag(event, line)
            if len(self.stack) >= MAX_DEPTH:
                self._fail(line, "nested too deeply", f"at most {MAX_DEPTH} levels are read")
            if event.anchor is not None:
                self.anchors[event.anchor] = (None, 0)
            self.stack.append(_Open(kind == "MappingStartEvent", line, event.anchor))
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            done = self.stack.pop()
            self._add(self._close(done), done.weight, done.anchor)
        elif kind == "AliasEvent":
            node, weight = self.anchors.get(event.anchor, (None, -1))
            if node is None:
                reason = "is not defined before its use" if weight < 0 else "contains itself"
                self._fail(line, f"the alias *{event.anchor} {reason}", "write the value out")
            self._add(node, weight, None)
        elif kind == "DocumentStartEvent":
            self._start_document(event, line)

    def _start_document(self, event: Any, line: int) -> None:
        self.documents += 1
        if self.documents > 1:
            self._fail(line, "a second document begins here", "one property a file: put each document into its own")
        if event.version is not None and tuple(event.version) != (1, 2):
            self._fail(line, "the file asks for another YAML than 1.2", "remove the %YAML line")

    def _refuse_tag(self, event: Any, line: int) -> None:
        if event.tag is not None:
            self._fail(line, f"the tag {event.tag!s} is not allowed", "remove the tag; quote a value to make it text")

    def _add(self, node: Node, weight: int, anchor: str | None) -> None:
        if anchor is not None:
            self.anchors[anchor] = (node, weight)
        if not self.stack:
            self.root = node
            return
        self.stack[-1].children.append(node)
        self.stack[-1].weight += weight
        if self.stack[-1].weight > MAX_NODES:
            self._fail(node.line, "too many values once its aliases are written out", "use fewer aliases")

    def _close(self, done: _Open) -> Node:
        if not done.mapping:
            return Sequence(self.file, done.line, tuple(done.children))
        keys, values = done.children[0::2], done.children[1::2]
        seen: dict[object, int] = {}
        items: list[tuple[Scalar, Node]] = []
        for key, value in zip(keys, values, strict=True):
            if not isinstance(key, Scalar):
                self._fail(key.line, "a key that is a list or a mapping", "keys are names or numbers")
            # True == 1 for Python, not for YAML.
            identity = (isinstance(key.value, bool), key.value)
            if identity in seen:
                message = f"the key {key.text!r} is there twice (first on line {seen[identity]})"
                self._fail(key.line, message, "keep one of them")
            seen[identity] = key.line
            items.append((key, value))
        return Mapping(self.file, done.line, tuple(items))

    def _resolve(self, text: str, line: int) -> bool | Number | float | str | None:
        """A plain scalar by the core schema."""
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] not in "+-.0123456789":
            return text
        if _OCTAL.match(text):
            return int(text[2:], 8) if len(text) <= MAX_DIGITS else self._too_long(line)
        if _HEXADECIMAL.match(text):
            return int(text[2:], 16) if len(text) <= MAX_DIGITS else self._too_long(line)
        if _DECIMAL.match(text):
            number = exact_decimal(text)
            return self._too_long(line) if number is None else number
        return text

    def _too_long(self, line: int) -> NoReturn:
        limits = f"at most {MAX_DIGITS} digits, exponents within ±{MAX_EXPONENT}"
        self._fail(line, "a number too large to be meant", limits)

    def _fail(self, line: int, message: str, hint: str) -> NoReturn:
        raise InputError(f"{self.file}:{line}: {message}", hint)

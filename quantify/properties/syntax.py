"""Text of an expression in, an untyped syntax tree out: the grammar of the language, and nothing about its meaning.

The grammar is a subset of Python's, with Python's precedence: comparisons chain, `not` binds looser than they do, the
unary minus tighter than `*`. Numbers keep their text, so that 0.1 is one tenth.

    expression := conjunction ("or" conjunction)*
    conjunction := negation ("and" negation)*
    negation := "not" negation | comparison
    comparison := sum (op sum)*                             op: < <= > >= == != in, not in
    sum := product (("+"|"-") product)*
    product := unary (("*"|"/"|"//"|"%") unary)*
    unary := ("-"|"+") unary | item
    item := atom ("[" expression "]")*
    atom := NAME | NUMBER | STRING | NAME "(" arguments ")" | "(" … ")" | "[" … "]"
    comprehension := expression ("for" NAME "in" "range" "(" … ")" | "if" expression)+
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from quantify.ir.domain import Number
from quantify.properties.yaml import exact_decimal

MAX_LENGTH = 100_000
MAX_DEPTH = 50
"""Brackets, signs and negations within each other."""
MAX_FACTORS = 50


class ExpressionError(Exception):
    """What is wrong at offset `at` of the text; whoever knows the file turns it into an InputError."""

    def __init__(self, at: int, message: str, hint: str) -> None:
        super().__init__(message)
        self.at = at
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier."""

    at: int
    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, with its text."""

    at: int
    value: Number
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    at: int
    value: str


@dataclass(frozen=True, slots=True)
class Minus:
    """−argument."""

    at: int
    argument: Syntax


@dataclass(frozen=True, slots=True)
class Sum:
    """Two or more terms; True stands for a term that is subtracted."""

    at: int
    terms: tuple[tuple[bool, Syntax], ...]


@dataclass(frozen=True, slots=True)
class Product:
    """first, then each operator (* / // %) with its right side, from left to right."""

    at: int
    first: Syntax
    rest: tuple[tuple[str, Syntax], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """first, then each operator with the next operand."""

    at: int
    first: Syntax
    rest: tuple[tuple[str, Syntax], ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """Not argument."""

    at: int
    argument: Syntax


@dataclass(frozen=True, slots=True)
class Junction:
    """Two or more arguments joined by `and` or `or`."""

    at: int
    word: str
    arguments: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """function(arguments)."""

    at: int
    function: str
    arguments: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """base[index]."""

    at: int
    base: Syntax
    index: Syntax


@dataclass(frozen=True, slots=True)
class Group:
    """A tuple or list written out."""

    at: int
    items: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class For:
    """For variable in range(arguments)."""

    at: int
    variable: str
    arguments: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class Comprehension:
    """Element for … if …: loops and filters (bare expressions) from left to right."""

    at: int
    element: Syntax
    clauses: tuple[For | Syntax, ...]


Operation = Minus | Sum | Product | Comparison | Negation | Junction
Syntax = Operation | Name | Literal | Text | Call | Item | Group | Comprehension

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<number>(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+
        |(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?!\w))
    |(?P<name>[^\W\d]\w*)
    |(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
    |(?P<op>\*\*|//|<=|>=|==|!=|<>|&&|\|\||:=|[-+*/%<>()\[\],=!&|^~@;{}?.:])""",
    re.VERBOSE,
)
KEYWORDS = frozenset(("and", "or", "not", "in", "for", "if", "else", "is", "lambda", "None", "async", "await"))
_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t"}
_INSTEAD = {
    "=": "for equality write ==",
    "**": "powers are not in the language: write x * x",
    "&&": "write and",
    "||": "write or",
    "&": "write and",
    "|": "write or",
    "!": "write not",
    "^": "for 'either, not both' write a != b",
    "<>": "write !=",
    ":=": "assignments are not in the language",
    ";": "one expression a property: join parts with and",
    ".": 'names with dots are written as feature("…")',
    ":": "slices are not in the language: loop with for i in range(…)",
    "is": "write == or !=",
    "if": "conditional expressions are not in the language: write implies(a, b)",
    "lambda": "functions are not in the language",
    "None": "for missing values write is_missing(f)",
}


def parse(text: str) -> Syntax:
    """The syntax tree of `text`.

    Raises:
        ExpressionError: It is not in the language, too long or nested too deeply.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(0, f"longer than {MAX_LENGTH} characters", "use loops: all(… for i in range(n))")
    parser = _Parser(text, _tokens(text))
    tree = parser.expression()
    if parser.kind != "end":
        raise parser.unexpected()
    return tree


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """(kind, text, offset) of every token, keywords and operators having their own text as kind."""
    tokens: list[tuple[str, str, int]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            _no_token(text, at)
        kind, word = match.lastgroup, match.group()
        assert kind is not None
        if kind == "op" or word in KEYWORDS:
            tokens.append((word, word, at))
        elif kind != "space":
            tokens.append((kind, word, at))
        at = match.end()
    tokens.append(("end", "", len(text.rstrip())))
    return tokens


def _no_token(text: str, at: int) -> NoReturn:
    if text[at] == "#":
        raise ExpressionError(at, "a comment inside an expression", "put comments on lines of the YAML file itself")
    if text[at] in "'\"":
        raise ExpressionError(at, "a string that does not end", "close it with the same quote")
    if text[at].isdigit():
        word = re.match(r"[\w.]+", text[at:])
        raise ExpressionError(at, f"{word.group() if word else text[at]!r} is no number", "write 12, 0.25 or 1e-5")
    raise ExpressionError(at, f"the character {text[at]!r} is not in the language", "write a Python-like expression")


class _Parser:
    """Recursive descent over the tokens; one method a line of the grammar."""

    def __init__(self, text: str, tokens: list[tuple[str, str, int]]) -> None:
        self.text = text
        self.tokens = tokens
        self.place = 0
        self.depth = 0

    @property
    def kind(self) -> str:
        return self.tokens[self.place][0]

    @property
    def at(self) -> int:
        return self.tokens[self.place][2]

    def advance(self) -> str:
        """The text of this token; the next one becomes current."""
        word = self.tokens[self.place][1]
        self.place += 1
        return word

    def expect(self, kind: str, what: str) -> str:
        if self.kind != kind:
            raise self.unexpected(what)
        return self.advance()

    def unexpected(self, wanted: str = "") -> ExpressionError:
        """The error about the current token."""
        kind, word, at = self.tokens[self.place]
        found = "the expression ends too early" if kind == "end" else f"unexpected {word!r}"
        if kind == "name" and self.place and self.tokens[self.place - 1][0] == "name":
            return ExpressionError(at, found, 'names with spaces are written feature("…"), text in quotes')
        if wanted:
            found += f" instead of {wanted}"
        return ExpressionError(at, found, _INSTEAD.get(kind, "check brackets and operators; and, or, not are words"))

    def deeper(self, at: int) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError(at, "nested too deeply", f"at most {MAX_DEPTH} levels of brackets are read")

    def expression(self) -> Syntax:
        self.deeper(self.at)
        tree = self.junction("or", lambda: self.junction("and", self.negation))
        self.depth -= 1
        return tree

    def junction(self, word: str, part: Callable[[], Syntax]) -> Syntax:
        at = self.at
        arguments = [part()]
        while self.kind == word:
            self.advance()
            arguments.append(part())
        return arguments[0] if len(arguments) == 1 else Junction(at, word, tuple(arguments))

    def negation(self) -> Syntax:
        if self.kind != "not":
            return self.comparison()
        at = self.at
        self.deeper(at)
        self.advance()
        tree = Negation(at, self.negation())
        self.depth -= 1
        return tree

    def comparison(self) -> Syntax:
        at = self.at
        first = self.sum()
        rest: list[tuple[str, Syntax]] = []
        while self.kind in ("<", "<=", ">", ">=", "==", "!=", "in", "not"):
            op = self.advance()
            if op == "not":
                self.expect("in", "'in' after 'not'")
                op = "not in"
            rest.append((op, self.sum()))
        return Comparison(at, first, tuple(rest)) if rest else first

    def sum(self) -> Syntax:
        at = self.at
        terms = [(False, self.product())]
        while self.kind in ("+", "-"):
            minus = self.advance() == "-"
            terms.append((minus, self.product()))
        return terms[0][1] if len(terms) == 1 else Sum(at, tuple(terms))

    def product(self) -> Syntax:
        at = self.at
        first = self.unary()
        rest: list[tuple[str, Syntax]] = []
        while self.kind in ("*", "/", "//", "%"):
            op = self.advance()
            rest.append((op, self.unary()))
            if len(rest) > MAX_FACTORS:
                raise ExpressionError(at, f"a product of more than {MAX_FACTORS} factors", "split it with brackets")
        return Product(at, first, tuple(rest)) if rest else first

    def unary(self) -> Syntax:
        if self.kind not in ("-", "+"):
            return self.item()
        at = self.at
        self.deeper(at)
        minus = self.advance() == "-"
        argument = self.unary()
        self.depth -= 1
        return Minus(at, argument) if minus else Sum(at, ((False, argument),))

    def item(self) -> Syntax:
        at = self.at
        tree = self.atom()
        while self.kind == "[":
            self.advance()
            index = self.expression()
            self.expect("]", "']'")
            tree = Item(at, tree, index)
        return tree

    def atom(self) -> Syntax:
        kind, at = self.kind, self.at
        if kind == "number":
            return self.number()
        if kind == "string":
            return Text(at, self.string())
        if kind == "name":
            name = self.advance()
            if self.kind != "(":
                return Name(at, name)
            self.advance()
            return Call(at, name, self.arguments(")"))
        if kind in ("(", "["):
            self.advance()
            return self.bracketed(at, ")" if kind == "(" else "]")
        raise self.unexpected("a value")

    def bracketed(self, at: int, closing: str) -> Syntax:
        """What follows an opening bracket: a parenthesised expression, a comprehension, a tuple or a list."""
        before = self.place
        entries = self.arguments(closing)
        comma = self.tokens[self.place - 2][0] == "," if self.place - before > 1 else False
        alone = len(entries) == 1 and not comma
        if alone and (closing == ")" or isinstance(entries[0], Comprehension)):
            return entries[0]
        return Group(at, entries)

    def arguments(self, closing: str) -> tuple[Syntax, ...]:
        """Entries up to the closing bracket; a comprehension must be the only one."""
        entries: list[Syntax] = []
        while self.kind != closing:
            entry = self.expression()
            if self.kind == "for" and not entries:
                entry = self.comprehension(entry)
                self.expect(closing, repr(closing))
                return (entry,)
            entries.append(entry)
            if self.kind != ",":
                break
            self.advance()
        self.expect(closing, repr(closing))
        return tuple(entries)

    def comprehension(self, element: Syntax) -> Syntax:
        at = self.at
        clauses: list[For | Syntax] = []
        while self.kind in ("for", "if"):
            place = self.at
            if self.advance() == "if":
                clauses.append(self.expression())
                continue
            variable = self.expect("name", "a loop variable")
            self.expect("in", "'in'")
            if self.kind != "name" or self.tokens[self.place][1] != "range":
                raise ExpressionError(self.at, "loops run over range(…) only", "write for i in range(n)")
            self.advance()
            self.expect("(", "'('")
            clauses.append(For(place, variable, self.arguments(")")))
        return Comprehension(at, element, tuple(clauses))

    def number(self) -> Syntax:
        at, word = self.at, self.advance()
        hint = "write 12, 0.25 or 1e-5"
        if word[:2].lower() in ("0x", "0o", "0b"):
            return Literal(at, int(word, 0), word)
        if word.isdigit() and len(word) > 1 and word[0] == "0":
            raise ExpressionError(at, f"the number {word} begins with a zero", f"write {word.lstrip('0') or 0}")
        value = exact_decimal(word)
        if value is None:
            raise ExpressionError(at, "a number too large to be meant", hint)
        return Literal(at, value, word)

    def string(self) -> str:
        at, word = self.at, self.advance()

        def escaped(match: re.Match[str]) -> str:
            if match.group(1) not in _ESCAPES:
                raise ExpressionError(at, f"the escape {match.group()} is not known", r"write \\ for a backslash")
            return _ESCAPES[match.group(1)]

        return re.sub(r"\\(.)", escaped, word[1:-1])

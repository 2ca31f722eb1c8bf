"""Nodes of a YAML file in, checked Python values out: the words every section of a property file is read with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import NoReturn

from quantify.errors import InputError
from quantify.ir.domain import Number
from quantify.properties.yaml import Mapping, Node, Scalar, Sequence, exact_decimal, fail, listed, suggest


@contextmanager
def blame(node: Node) -> Iterator[None]:
    """Put the file and line of `node` before the message of any InputError raised inside that names no line of it."""
    try:
        yield
    except InputError as error:
        if error.message.startswith(f"{node.file}:"):
            raise
        raise InputError(f"{node.file}:{node.line}: {error.message}", error.hint) from None


class Fields:
    """A mapping whose keys must be among `allowed`; each is asked for by name.

    Args:
        node: The section.
        what: How messages call it ("the domain").
        allowed: Every key it may have.

    Raises:
        InputError: Not a mapping, or an unknown key (with the closest known one).
    """

    def __init__(self, node: Node, what: str, allowed: Iterable[str]) -> None:
        names = tuple(allowed)
        if not isinstance(node, Mapping):
            fail(node, f"{what} must be a mapping, not {describe(node)}", f"its keys are: {', '.join(names)}")
        self.node = node
        self.what = what
        self._items: dict[str, Node] = {}
        for key, value in node.items:
            if key.text not in names:
                message = f"{what} has no key {key.text!r}{suggest(key.text, names)}"
                fail(key, message, f"its keys are: {', '.join(names)}")
            self._items[key.text] = value

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def get(self, key: str) -> Node | None:
        """The node under `key`, or None; a null counts as absent."""
        node = self._items.get(key)
        return None if isinstance(node, Scalar) and node.value is None and node.text != "" else node

    def need(self, key: str, hint: str) -> Node:
        """The node under `key`.

        Raises:
            InputError: It is not there; `hint` says what to write.
        """
        node = self.get(key)
        if node is None:
            fail(self.node, f"{self.what} needs the key {key!r}", hint)
        return node


def describe(node: Node) -> str:
    """The node in a message."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    if node.value is None:
        return "nothing"
    if isinstance(node.value, str):
        return f"the text {node.text!r}"
    return node.text


def number(node: Node, what: str) -> Number:
    """An exact number.

    Raises:
        InputError: Text, an infinity or NaN, or no scalar.
    """
    if not isinstance(node, Scalar) or isinstance(node.value, bool | str) or node.value is None:
        fail(node, f"{what} must be a number, not {describe(node)}", "write a decimal such as 12, 0.25 or 1e-5")
    if isinstance(node.value, float):
        fail(node, f"{what} must be finite, not {node.text}", "write the number that is meant, such as 12 or 0.25")
    return node.value


def rational(node: Node, what: str) -> Number:
    """An exact number, a fraction such as `1/3` being allowed too.

    Raises:
        InputError: Anything else.
    """
    if isinstance(node, Scalar) and isinstance(node.value, str) and node.text.count("/") == 1:
        above, below = (exact_decimal(part.strip()) for part in node.text.split("/"))
        if above is not None and below is not None:
            if below == 0:
                fail(node, f"{what}: {node.text} divides by zero", "write a fraction such as 1/3")
            return Fraction(above) / Fraction(below)
    return number(node, what)


def integer(node: Node, what: str) -> int:
    """An exact integer, `3.0` and `1e3` included.

    Raises:
        InputError: Anything else.
    """
    value = number(node, what)
    if not isinstance(value, int):
        fail(node, f"{what} must be an integer, not {describe(node)}", "use type: fixed with a step for decimals")
    return value


def boolean(node: Node, what: str) -> bool:
    """True or false.

    Raises:
        InputError: Anything else, with YAML 1.1's `yes` and `no` among it.
    """
    if not isinstance(node, Scalar) or not isinstance(node.value, bool):
        fail(node, f"{what} must be true or false, not {describe(node)}", "write true or false")
    return node.value


def text(node: Node, what: str) -> str:
    """The text of a scalar, as written (`7` is the text "7").

    Raises:
        InputError: Empty, or no scalar.
    """
    if not isinstance(node, Scalar) or node.value is None or node.text == "":
        fail(node, f"{what} must be text, not {describe(node)}", "write a word, in quotes if need be")
    return node.text


def items(node: Node, what: str) -> tuple[Node, ...]:
    """The entries of a list.

    Raises:
        InputError: No list.
    """
    if not isinstance(node, Sequence):
        fail(node, f"{what} must be a list, not {describe(node)}", "write [first, second] or one '- entry' a line")
    return node.items


def choice(node: Node, what: str, options: Iterable[str]) -> str:
    """One of some words.

    Raises:
        InputError: Another word (with the closest known one).
    """
    word, known = text(node, what), tuple(options)
    if word not in known:
        unknown(node, what, word, known)
    return word


def unknown(node: Node, what: str, word: str, known: Iterable[str]) -> NoReturn:
    """Raise the error about a word that is not among the known ones."""
    every = tuple(known)
    fail(node, f"{what}: {word!r} is unknown{suggest(word, every)}", f"known: {listed(every, 20)}")

"""An operating domain (rows, weighted rows, independent marginals) in, the probability of each tested context out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantify.dataset.columns import Columns, written
from quantify.dataset.contexts import MISSING, OUTSIDE, Codes, Coding
from quantify.errors import InputError
from quantify.ir.record import DataRef
from quantify.ir.transfer import Source
from quantify.properties import yaml
from quantify.properties.fields import rational
from quantify.properties.yaml import Node, Scalar, fail, listed, suggest

Floats = NDArray[np.float64]
ROLE = "operating"
"""Of the file, in records."""
EXAMPLE = "{scene: {city: 0.7, highway: 0.3}, brightness: {20: 1/2, 200: 1/2}}"


@dataclass(frozen=True)
class Operating:
    """A distribution of contexts."""

    source: Source
    file: DataRef
    shares: Floats
    """One a tested context: its probability."""
    untested: float
    """Probability of all others."""
    outside: float
    """The part of it with a value that the test set does not have."""
    counts: tuple[Codes, int] | None
    """rows: how many are in each tested context, and in all others."""


@dataclass(frozen=True)
class Subspace:
    """The chosen features and the contexts that the test set has, in order."""

    codings: tuple[Coding, ...]
    contexts: Codes
    """(contexts × features), lexicographically ascending."""

    def places(self, rows: Codes) -> Codes:
        """The place of each row of codes among the contexts, or −1.

        Args:
            rows: (rows × features), `OUTSIDE` among them.
        """
        every = np.concatenate([self.contexts, rows])
        _, found = np.unique(every, axis=0, return_inverse=True)
        found = found.reshape(-1)
        table = np.full(int(found.max()) + 1, OUTSIDE, np.int64)
        table[found[: len(self.contexts)]] = np.arange(len(self.contexts))
        return table[found[len(self.contexts) :]]


def of_rows(table: Columns, weight: str | None, subspace: Subspace) -> Operating:
    """The distribution of the rows of a table.

    Args:
        weight: The column that says how much each row counts: probabilities or counts, exact and not negative. None:
            the rows are a sample, and each counts the same.

    Raises:
        InputError: A chosen feature that is no column, text instead of a number, weights that are none.
    """
    rows = np.stack([_codes(table, coding) for coding in subspace.codings], axis=1)
    places = subspace.places(rows)
    outside = (rows == OUTSIDE).any(axis=1)
    size = len(subspace.contexts)
    tested = places != OUTSIDE
    file = replace(table.ref(), role=ROLE)
    if weight is None:
        counts: Codes = np.bincount(places[tested], minlength=size).astype(np.int64)
        rest = int((~tested).sum())
        share, out = rest / table.rows, int(outside.sum()) / table.rows
        return Operating("rows", file, counts.astype(np.float64) / table.rows, share, out, (counts, rest))
    scaled = _weights(table, weight)
    shares = np.bincount(places[tested], weights=scaled[tested], minlength=size).astype(np.float64)
    shares = np.minimum(shares, 1.0)  # a sum of many may round to a little more
    return Operating("weights", file, shares, math.fsum(scaled[~tested]), math.fsum(scaled[outside]), None)


def _codes(table: Columns, coding: Coding) -> Codes:
    try:
        return coding.codes(table.column(coding.name))
    except InputError as error:
        named = error.message if str(table.path) in error.message else f"{table.path}: {error.message}"
        raise InputError(named, f"{error.hint}; the operating table needs the {coding.name!r} of every row") from None


def _weights(table: Columns, name: str) -> Floats:
    """The weight of each row, divided by their sum."""
    column = table.column(name)
    for place, cell in enumerate(column.cells):
        if isinstance(cell, str) or cell < 0:
            row = int(np.flatnonzero(column.codes == place)[0])
            raise InputError(f"{table.path}: row {row}: {written(cell)!r} is no weight", "weights are 0 or more")
    if (column.codes < 0).any():
        row = int(np.flatnonzero(column.codes < 0)[0])
        raise InputError(f"{table.path}: row {row}: no weight", "give every row one; 0 leaves it out")
    values = [Fraction(cell) for cell in column.cells]
    counts = np.bincount(column.codes, minlength=len(values)).tolist()
    total = sum((value * count for value, count in zip(values, counts, strict=True)), Fraction(0))
    if not total:
        raise InputError(f"{table.path}: all weights are 0", "some row must count")
    return np.array([float(value / total) for value in values])[column.codes]


# --- marginals -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Marginals:
    """A file of marginals."""

    file: DataRef
    node: yaml.Mapping

    @property
    def names(self) -> tuple[str, ...]:
        """The features that have one."""
        return tuple(key.text for key, _ in self.node.items)


def load_marginals(path: Path, known: Sequence[str]) -> Marginals:
    """Read a file of independent marginal distributions, {feature: {value: probability}}.

    Args:
        known: The names of all context features.

    Raises:
        InputError: Not there, an unknown feature, a distribution that is none; with the line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", f"give marginals: {EXAMPLE}") from None
    node = yaml.parse(content, str(path))
    if not isinstance(node, yaml.Mapping):
        fail(node, "marginals map features to distributions", f"such as {EXAMPLE}")
    for key, value in node.items:
        if key.text not in known:
            fail(key, f"there is no context feature {key.text!r}{suggest(key.text, known)}", f"known: {listed(known)}")
        _marginal(value, key.text, None)
    return Marginals(DataRef(ROLE, str(path), hashlib.sha256(content).hexdigest()), node)


def of_marginals(given: Marginals, subspace: Subspace) -> Operating:
    """The product of the marginal distributions.

    A number stands for the bin that it lies in, `missing` for a missing value. Probabilities are decimals or fractions
    and sum to 1, exactly.

    Raises:
        InputError: A chosen feature has no marginal, or a key that is no number where the test set has numbers.
    """
    nodes = {key.text: value for key, value in given.node.items}
    chosen = [coding.name for coding in subspace.codings]
    for name in chosen:
        if name not in nodes:
            fail(
                given.node, f"there is no marginal of {name!r}, which is one of the chosen features",
                f"the chosen ones are {listed(chosen)}; give each a marginal, or choose fewer with --k",
            )  # fmt: skip
    marginals = [_marginal(nodes[coding.name], coding.name, coding) for coding in subspace.codings]
    none = Fraction(0)
    shares = [
        math.prod((marginal.get(code, none) for marginal, code in zip(marginals, row, strict=True)), start=Fraction(1))
        for row in subspace.contexts.tolist()
    ]
    inside = math.prod((1 - marginal.get(OUTSIDE, none) for marginal in marginals), start=Fraction(1))
    untested = float(1 - sum(shares, none))
    return Operating(
        "marginals", given.file, np.array([float(one) for one in shares]), untested, float(1 - inside), None
    )


def _marginal(node: Node, name: str, coding: Coding | None) -> Mapping[int, Fraction]:
    """Code → probability; of a feature that is not chosen, only what must hold of any distribution is checked."""
    if not isinstance(node, yaml.Mapping) or not node.items:
        fail(node, f"the marginal of {name!r} maps values to probabilities", f"such as {EXAMPLE}")
    found: dict[int, Fraction] = {}
    total = Fraction(0)
    for key, weight in node.items:
        share = Fraction(rational(weight, f"the probability of {key.text}"))
        if share < 0:
            fail(weight, f"the probability of {key.text} is negative", "probabilities are 0 or more")
        code = OUTSIDE if coding is None else _key(key, coding)
        found[code] = found.get(code, Fraction(0)) + share
        total += share
    if total != 1:
        fail(
            node, f"the probabilities of {name!r} sum to {float(total):.10g}, not to 1",
            "write exact shares: decimals or fractions such as 1/3",
        )  # fmt: skip
    return found


def _key(key: Scalar, coding: Coding) -> int:
    """The code of a key: a missing value, a number, or a word as the table spells it."""
    if key.value is None or (key.text == MISSING and (coding.values is None or MISSING not in coding.values)):
        return coding.code(None)
    if isinstance(key.value, int | Fraction) and not isinstance(key.value, bool):
        return coding.code(key.value)
    quoted = yaml.exact_decimal(key.text)  # JSON has quotes around every key
    if quoted is not None:
        return coding.code(quoted)
    if coding.values is None:
        fail(key, f"{key.text!r} is no number, and {coding.name!r} is one in the test table", "write a number")
    return coding.code(key.text)

"""Near duplicates: rows that share most of their words or values with a case, found by MinHash, measured exactly.

The similarity of two rows is the Jaccard index of their sets of tokens: runs of five characters of the folded text of
a field, and the value of every other field. MinHash with locality-sensitive hashing (Broder 1997; Indyk and Motwani
1998) proposes pairs, of which those are kept whose index, computed from the sets, reaches the threshold: what is
reported is true, and a pair just above the threshold may be missed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from quantify.dataset.equality import Equality, folded

PERMUTATIONS = 128
SHINGLE = 5
"""Characters of a run of text."""
WEIGHTS = (0.1, 0.9)
"""Of pairs proposed in vain, and of pairs missed."""


@dataclass(frozen=True, slots=True)
class Near:
    """Training rows close to one case."""

    rows: int
    similarity: Fraction
    """Of the closest one."""


def merge(into: dict[int, Near], other: Mapping[int, Near]) -> None:
    """Add what another piece found."""
    for place, one in other.items():
        known = into.get(place)
        into[place] = one if known is None else Near(known.rows + one.rows, max(known.similarity, one.similarity))


class NearIndex:
    """The cases by their MinHash signatures."""

    def __init__(
        self, cases: Sequence[Sequence[Any]], fields: Sequence[str], equality: Equality, threshold: float, seed: int
    ) -> None:
        from datasketch import MinHash, MinHashLSH

        self.fields = fields
        self.equality = equality
        self.threshold = Fraction(threshold)
        self.sets = [frozenset(tokens(values, fields, equality)) for values in cases]
        # One of 1 is what the exact comparison is for, and LSH knows none.
        self.lsh: Any = MinHashLSH(threshold=min(threshold, 0.99), num_perm=PERMUTATIONS, weights=WEIGHTS)
        self.empty: Any = MinHash(num_perm=PERMUTATIONS, seed=seed % 2**32)
        for place, one in enumerate(self.sets):
            self.lsh.insert(place, self.signature(one))

    def signature(self, one: frozenset[bytes]) -> Any:
        """The MinHash of a set of tokens."""
        made = self.empty.copy()
        made.update_batch(one)
        return made


def look_up(index: NearIndex, values: Sequence[Any], into: dict[int, Near]) -> None:
    """Add the cases that a row is near to."""
    row = frozenset(tokens(values, index.fields, index.equality))
    for place in index.lsh.query(index.signature(row)):
        case = index.sets[place]
        similarity = Fraction(len(row & case), max(1, len(row | case)))
        if similarity >= index.threshold:
            merge(into, {place: Near(1, similarity)})


def tokens(values: Sequence[Any], fields: Sequence[str], equality: Equality) -> Iterator[bytes]:
    """What a row is made of."""
    for name, value in zip(fields, values, strict=True):
        key = equality.exact(value)
        if isinstance(value, str) and isinstance(key, tuple) and key[0] == "text":
            text = folded(value)
            for at in range(max(1, len(text) - SHINGLE + 1)):
                yield _token(name, text[at : at + SHINGLE])
        elif isinstance(value, list | tuple):
            for at, item in enumerate(value):
                yield _token(f"{name}[{at}]", equality.exact(item))
        else:
            yield _token(name, key)


def _token(name: str, value: Hashable) -> bytes:
    return repr((name, value)).encode("utf-8", "surrogatepass")

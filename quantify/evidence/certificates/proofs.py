"""Batches of leaves go in; how many points they prove in and out of each query comes out, or which leaf is not proven.

Nothing that the tree says is taken over: decided leaves are bounded anew (`forms`), points of enumerated leaves are
evaluated (`points`, `folded`), half-spaces are counted again (`lattice`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quantify.errors import UndecidedError
from quantify.evidence.certificates import folded, forms, lattice, points, tree, truths
from quantify.ir import network_eval
from quantify.ir.predicate import HasLabel, Predicate, reads_scores
from quantify.ir.problem import Box, GridCase, GridProblem
from quantify.resources import Limits

VALUES = 1 << 17
"""Numbers in one array of forms, about: what stays in a processor's cache."""
EXACT_BATCH = 128
LEAST_POINTS, POINTS = 1 << 8, 1 << 13
"""Evaluated at once."""
MOST_POINTS = 1 << 24
"""Points of one enumerated leaf; a certificate with larger ones is not checked."""
FEW_POINTS, MANY_POINTS = 1 << 7, 1 << 15
"""Enumerated leaves of so many points are worth folding their stable neurons."""
FEW_UNSTABLE = 8
MOST_POSITION = 1 << 40
"""What `branch` splits reaches no further, and words hold it."""
WORD = 62


class RefutedError(Exception):
    """The tree does not prove what it says; the message names the first bad leaf."""


@dataclass
class Tally:
    """What some leaves prove."""

    inside: list[int]
    """Per query, points proven in."""
    outside: list[int]
    leaves: dict[str, int] = field(default_factory=lambda: dict.fromkeys(tree.KINDS.values(), 0))
    points: int = 0
    """Of enumerated leaves."""
    exact: int = 0
    """Leaves that needed more than 64-bit words."""

    def add(self, other: Tally) -> None:
        """Take another tally in."""
        self.inside = [a + b for a, b in zip(self.inside, other.inside, strict=True)]
        self.outside = [a + b for a, b in zip(self.outside, other.outside, strict=True)]
        self.leaves = {kind: many + other.leaves[kind] for kind, many in self.leaves.items()}
        self.points += other.points
        self.exact += other.exact


def go_on(limits: Limits) -> None:
    """Return when there is time left.

    Raises:
        UndecidedError: There is none, or the user stopped it.
    """
    if limits.stopped():
        raise UndecidedError("stopped before every leaf was checked")
    if limits.expired():
        raise UndecidedError("the time was up before every leaf was checked", "raise --timeout")


class Checker:
    """Checks leaves of one case, batch by batch.

    Raises:
        ValueError: Certificates do not cover this network or region.
    """

    def __init__(self, problem: GridProblem, case: GridCase, limits: Limits) -> None:
        network, region = problem.network, case.region
        self.limits = limits
        assert network is not None
        assert isinstance(region, Box)
        self._region, self._sizes = region, problem.sizes
        if max(region.high) > MOST_POSITION:
            raise ValueError("the region reaches further than certificates do")
        self._queries = [query.predicate for query in case.queries]
        self._scores_read = any(reads_scores(predicate) for predicate in self._queries)
        self._of_labels = _of_labels(self._queries)
        self.labels = problem.labels
        if network.outputs != problem.labels or problem.labels >= tree.POSSIBLE:
            raise ValueError("the network has more labels than certificates name, or another number of scores")
        self.net = forms.layered(network, region)
        self._evaluator = points.Evaluator(network, self.net, region)
        self._folder = folded.Folder(self.net, self._evaluator.bits)
        self._points = max(LEAST_POINTS, min(POINTS, points.PRODUCTS // self.net.widest**2))
        self._volumes = np.int64 if region.size.bit_length() <= WORD else object
        low, high = ([ends[k] for k in self.net.varying] for ends in (region.low, region.high))
        self._shape = tree.Shape(tuple(low), tuple(high), self.labels, self.net.places)
        self._rows: dict[object, forms.Rows] = {}
        self._maps: dict[bytes, tuple[list[list[int]], list[int]]] = {}

    def batches(self, blocks: Iterable[bytes]) -> Iterator[tree.Leaves]:
        """The leaves of a tree, in batches of a good size.

        Raises:
            TreeError: It is malformed.
        """
        size = max(16, min(4096, VALUES // (self.net.widest * (1 + len(self.net.varying)))))
        return tree.leaves(blocks, self._shape, size)

    def _go_on(self) -> None:
        go_on(self.limits)

    def tally(self, leaves: tree.Leaves) -> Tally:
        """What these leaves prove.

        Raises:
            RefutedError: One of them is not proven.
            UndecidedError: The time is up, or the user stopped it.
        """
        tally = Tally([0] * len(self._queries), [0] * len(self._queries))
        tally.leaves[tree.KINDS[leaves.kind]] = len(leaves)
        if leaves.kind == tree.ENUMERATED:
            self._enumerate(leaves, tally)
        elif leaves.kind in (tree.DECIDED, tree.HALF_SPACE):
            proof = Proof(self, leaves, narrow=True)
            self._settle(leaves, proof, tally)
            rest = np.flatnonzero(~proof.good)
            tally.exact = len(rest)
            for start in range(0, len(rest), EXACT_BATCH):
                part = leaves.subset(rest[start : start + EXACT_BATCH])
                proof = Proof(self, part, narrow=False)
                if not proof.good.all():
                    bad = int(np.flatnonzero(~proof.good)[0])
                    raise RefutedError(f"the {tree.KINDS[leaves.kind]} leaf {self._where(part, bad)} is not proven")
                self._settle(part, proof, tally)
        return tally

    def _where(self, leaves: tree.Leaves, index: int) -> str:
        return tree.shown(leaves.low[:, index].tolist(), leaves.high[:, index].tolist())

    # --- leaves that hold for whole boxes ----------------------------------------------------------------------------
    def _settle(self, leaves: tree.Leaves, proof: Proof, tally: Tally) -> None:
        good = np.flatnonzero(proof.good)
        if not len(good):
            return
        volume = (leaves.high - leaves.low)[:, good].astype(self._volumes).prod(axis=0)
        if leaves.kind == tree.DECIDED:
            for q in range(len(self._queries)):
                yes = proof.agreed(q)[0][good]
                tally.inside[q] += int(volume[yes].sum())
                tally.outside[q] += int(volume[~yes].sum())
            return
        first = self._half_spaces(leaves, proof, good)
        pair = np.argsort(leaves.winner[good] != tree.POSSIBLE, axis=1, kind="stable")[:, :2]
        for part, side in ((first, 0), (volume - first, 1)):
            for q in range(len(self._queries)):
                yes = proof.truth[q][0][pair[:, side], good]
                tally.inside[q] += int(part[yes].sum())
                tally.outside[q] += int(part[~yes].sum())

    def _half_spaces(self, leaves: tree.Leaves, proof: Proof, good: Any) -> Any:
        """Points of the lower of the two labels, recounted."""
        out = np.zeros(len(good), self._volumes)
        keys = np.concatenate([proof.states[:, good], (leaves.winner[good] == tree.POSSIBLE).T])
        for _, members in folded.grouped(keys):
            at = good[members]
            slopes, constants = self._map(proof.states[:, at[0]])
            i, k = np.flatnonzero(leaves.winner[at[0]] == tree.POSSIBLE).tolist()
            slope = [a - b for a, b in zip(slopes[i], slopes[k], strict=True)]
            try:
                found = lattice.count(
                    slope, constants[i] - constants[k], leaves.low[:, at], leaves.high[:, at], self._go_on
                )
            except lattice.TooManyPlanesError:
                raise RefutedError(f"the half-space {self._where(leaves, int(at[0]))} is too large to count") from None
            for place, index, many in zip(members.tolist(), at.tolist(), found, strict=True):
                if many != leaves.count[index]:
                    raise RefutedError(
                        f"the half-space leaf {self._where(leaves, index)} has {many} points of label {i}, "
                        f"not {leaves.count[index]}"
                    )
                out[place] = many
        return out

    def _map(self, states: Any) -> tuple[list[list[int]], list[int]]:
        """The scores as an affine map of the varying positions: (labels × d) slopes, constants."""
        key = states.tobytes()
        if key not in self._maps:
            dims = len(self.net.varying)
            slopes = [[int(i == j) for j in range(dims)] for i in range(dims)]
            constants = [0] * dims
            start = 0
            for rows, layer in self.net.hidden:
                slopes, constants = _through(rows, slopes, constants, dims)
                lines = [part.tolist() for part in forms.lines(layer)]
                for i, state in enumerate(states[start : start + len(constants)].tolist()):
                    by, value = lines[0][state], lines[1][state]
                    slopes[i] = [by * s for s in slopes[i]]
                    constants[i] = by * constants[i] + value
                start += len(constants)
            self._maps[key] = _through(self.net.scores, slopes, constants, dims)
        return self._maps[key]

    # --- points ------------------------------------------------------------------------------------------------------
    def _enumerate(self, leaves: tree.Leaves, tally: Tally) -> None:
        width = leaves.high - leaves.low
        sizes = [1] * len(leaves)
        for row in width.tolist():
            sizes = [size * by for size, by in zip(sizes, row, strict=True)]
        worst = max(range(len(sizes)), key=sizes.__getitem__)
        if sizes[worst] > MOST_POINTS:
            raise RefutedError(f"the enumerated leaf {self._where(leaves, worst)} has {sizes[worst]:,} points")
        tally.points += sum(sizes)
        done: set[int] = set()
        some = [k for k, size in enumerate(sizes) if FEW_POINTS <= size <= MANY_POINTS]
        if some and self._of_labels and self._folder.usable:
            done.update(self._fold(leaves, np.array(some), tally))
        rest = np.array([k for k in range(len(leaves)) if k not in done], np.intp)
        for shape, members in folded.grouped(width[:, rest]):
            low, size = leaves.low[:, rest[members]], sizes[rest[members[0]]]
            for first in range(0, size, self._points):
                offsets = _positions(shape, first, min(first + self._points, size))
                many = max(1, self._points // offsets.shape[1])
                for start in range(0, len(members), many):
                    self._go_on()
                    at = low[:, start : start + many, None] + offsets[:, None, :]
                    self._evaluate(at.reshape(len(low), at.shape[1] * at.shape[2]), tally)

    def _fold(self, leaves: tree.Leaves, some: Any, tally: Tally) -> list[int]:
        """Count those leaves of which little is left when stable neurons are folded away; returns which these are."""
        low, high = leaves.low[:, some], leaves.high[:, some]
        untold = np.full((self.net.places, len(some)), -1)
        try:
            hidden, states = forms.hidden(self.net, low, high, untold, untold, narrow=True)
            possible = self._possible(hidden)
        except forms.TooWideError:
            return []
        few = np.flatnonzero((states == forms.UNSTABLE).sum(axis=0) <= FEW_UNSTABLE)
        if len(few):
            self._add_labels(self._folder.totals(low[:, few], high[:, few], states[:, few], possible[:, few]), tally)
        return list(some[few].tolist())

    def _possible(self, hidden: forms.Forms) -> Any:
        """(labels × N): which labels are not beaten by one that has a large score at the centre."""
        scores = forms.sums(self.net.scores, hidden, narrow=True)
        best = (scores.below[:, 0] + scores.above[:, 0]).argmax(axis=0)
        out = np.ones((self.labels, len(best)), bool)
        for j in np.unique(best).tolist():
            others = [i for i in range(self.labels) if i != j]
            at = np.flatnonzero(best == j)
            if others:
                pairs = tuple((j, i) for i in others)
                out[np.ix_(np.array(others), at)] = ~self.beaten(pairs, hidden.at(at), narrow=True)
        return out

    def beaten(self, pairs: tuple[tuple[int, int], ...], hidden: forms.Forms, narrow: bool) -> Any:
        """(pairs × N): where label j is proven to beat label i, for pairs (j, i). Ties go to the lower label."""
        least, _ = forms.signs(forms.sums(self.margins(pairs), hidden, narrow))
        return least >= np.array([0 if j < i else 1 for j, i in pairs])[:, None]

    def _add_labels(self, many: Sequence[int], tally: Tally) -> None:
        """Take in how many points have each label."""
        for q, labels in enumerate(self._of_labels):
            inside = sum(many[label] for label in labels)
            tally.inside[q] += inside
            tally.outside[q] += sum(many) - inside

    def _evaluate(self, at: Any, tally: Tally) -> None:
        if self._of_labels:
            self._add_labels(np.bincount(self._evaluator.labels(at), minlength=self.labels).tolist(), tally)
            return
        scores = None
        if self._scores_read:
            scores = self._evaluator.scores(at)
            label = network_eval.best(scores)
        else:
            label = self._evaluator.labels(at)
        boxes = self.boxes(at, at + 1, _exact_signs(scores))
        for q in range(self.queries):
            yes, no = self.truth(q, boxes, label)
            if not (yes != no).all():
                raise RefutedError(f"query {q} is not decided at a point")
            inside = int(np.count_nonzero(yes))
            tally.inside[q] += inside
            tally.outside[q] += len(label) - inside

    # --- small parts -------------------------------------------------------------------------------------------------
    def boxes(self, low: Any, high: Any, signs: Any) -> truths.Boxes:
        """Boxes over all inputs."""
        count = low.shape[1]
        ends = []
        for part, whole in ((low, self._region.low), (high, self._region.high)):
            full = np.empty((len(whole), count), np.int64)
            full[:] = np.array(whole, np.int64).reshape(-1, 1)
            full[list(self.net.varying)] = part
            ends.append(full)
        return truths.Boxes(ends[0], ends[1], self._sizes, signs)

    def truth(self, q: int, boxes: truths.Boxes, label: Any) -> tuple[Any, Any]:
        """Query q on boxes for the label given (one, or one a box)."""
        try:
            return truths.truth(self._queries[q], boxes, label)
        except truths.UnreadableError:
            raise RefutedError("the property uses scores in a way that certificates do not cover") from None

    @property
    def queries(self) -> int:
        """Number of queries."""
        return len(self._queries)

    def margins(self, pairs: tuple[tuple[int, int], ...]) -> forms.Rows:
        """Rows score j − score i of pairs (j, i)."""
        if pairs not in self._rows:
            w, b = self.net.scores.matrix, self.net.scores.constant
            matrix = [[x - y for x, y in zip(w[j], w[i], strict=True)] for j, i in pairs]
            self._rows[pairs] = forms.Rows(matrix, [b[j] - b[i] for j, i in pairs])
        return self._rows[pairs]

    def row(self, line: truths.Sum) -> forms.Rows:
        """The row of a sum of scores over the last hidden vector, its positions left out except fixed ones."""
        if line not in self._rows:
            w, b = self.net.scores.matrix, self.net.scores.constant
            matrix = [sum((c * w[i][k] for i, c in line.scores), 0) for k in range(w.shape[1])]
            constant = line.constant + sum(c * b[i] for i, c in line.scores)
            constant += sum(c * self._region.low[f] for f, c in line.positions if f not in self.net.varying)
            self._rows[line] = forms.Rows([matrix], [constant])
        return self._rows[line]

    def input_row(self, line: truths.Sum) -> forms.Rows:
        """The row of a sum over the varying inputs."""
        key = ("inputs", line)
        if key not in self._rows:
            by = dict(line.positions)
            self._rows[key] = forms.Rows([[by.get(f, 0) for f in self.net.varying]], [0])
        return self._rows[key]


class Proof:
    """What forms prove of some leaves."""

    def __init__(self, checker: Checker, leaves: tree.Leaves, narrow: bool) -> None:
        self._checker, self._leaves, self._narrow = checker, leaves, narrow
        self._possible = (leaves.winner == tree.POSSIBLE).T
        try:
            self._prove()
        except forms.TooWideError:
            self.good = np.zeros(len(leaves), bool)

    def _prove(self) -> None:
        leaves, checker = self._leaves, self._checker
        shape = (checker.net.places, len(leaves))
        chord, line = np.full(shape, -1, np.int64), np.zeros(shape, np.int64)
        if leaves.leaf is not None:
            chord[leaves.place, leaves.leaf] = leaves.chord
            line[leaves.place, leaves.leaf] = leaves.line
        self._hidden, self.states = forms.hidden(checker.net, leaves.low, leaves.high, chord, line, self._narrow)
        self.good = self._winners()
        boxes = checker.boxes(leaves.low, leaves.high, self._signs)
        self.truth = []
        for q in range(checker.queries):
            parts = [checker.truth(q, boxes, label) for label in range(checker.labels)]
            self.truth.append((np.stack([yes for yes, _ in parts]), np.stack([no for _, no in parts])))
            if leaves.kind == tree.DECIDED:
                yes, no = self.agreed(q)
                self.good &= yes | no
            else:
                # Each label answers for its own points.
                self.good &= (self.truth[q][0] | self.truth[q][1] | ~self._possible).all(axis=0)
        if leaves.kind == tree.HALF_SPACE:
            self.good &= (self.states != forms.UNSTABLE).all(axis=0) & (self._possible.sum(axis=0) == 2)

    def agreed(self, q: int) -> tuple[Any, Any]:
        """Where query q holds, and fails, for every possible label."""
        yes, no = self.truth[q]
        return (yes | ~self._possible).all(axis=0), (no | ~self._possible).all(axis=0)

    def _winners(self) -> Any:
        """Where every label that is ruled out is beaten by the one that is named."""
        winner = self._leaves.winner
        good = np.ones(len(winner), bool)
        patterns, members = np.unique(winner, axis=0, return_inverse=True)
        members = members.reshape(-1)
        for number, pattern in enumerate(patterns.tolist()):
            pairs = tuple((j, i) for i, j in enumerate(pattern) if j != tree.POSSIBLE)
            if not pairs:
                continue
            at = np.flatnonzero(members == number)
            good[at] = self._checker.beaten(pairs, self._hidden.at(at), self._narrow).all(axis=0)
        return good

    def _signs(self, line: truths.Sum, _: Any) -> tuple[Any, Any]:
        found = forms.sums(self._checker.row(line), self._hidden, self._narrow)
        inputs = self._checker.input_row(line)
        if inputs.matrix.any():
            at = forms.of_inputs(self._leaves.low, self._leaves.high, self._narrow)
            found = forms.joined(found, forms.sums(inputs, at, self._narrow))
        least, most = forms.signs(found)
        return least[0], most[0]


def _through(
    rows: forms.Rows, slopes: list[list[int]], constants: list[int], dims: int
) -> tuple[list[list[int]], list[int]]:
    """An affine map after an affine map."""
    matrix = rows.matrix.tolist()
    new = [
        [sum(w * slope[k] for w, slope in zip(row, slopes, strict=True)) for k in range(dims)] for row in matrix
    ]  # fmt: skip
    at = [
        b + sum(w * c for w, c in zip(row, constants, strict=True))
        for row, b in zip(matrix, rows.constant.tolist(), strict=True)
    ]
    return new, at


def _of_labels(queries: Sequence[Predicate]) -> list[frozenset[int]]:
    """The labels of each query when all of them ask for labels alone, else none."""
    found = [frozenset(query.labels) for query in queries if isinstance(query, HasLabel)]
    return found if len(found) == len(queries) else []


def _positions(shape: list[int], start: int, end: int) -> Any:
    """(d × N) positions of the points start … end − 1 of a box at the origin."""
    rest = np.arange(start, end)
    out = np.empty((len(shape), len(rest)), np.int64)
    for k, by in enumerate(shape):
        out[k] = rest % by
        rest //= by
    return out


def _exact_signs(scores: Any) -> Any:
    """Signs of sums at points whose scores are known."""

    def signs(line: truths.Sum, positions: Any) -> tuple[Any, Any]:
        values = scores
        top = max(1, abs(int(values.max())), abs(int(values.min())), int(positions.max()))
        by = [c for _, c in (*line.scores, *line.positions)]
        if (sum(map(abs, by)) * top + abs(line.constant)).bit_length() > WORD:
            values = values.astype(object)
        total = np.full(len(values), line.constant, values.dtype)
        for index, c in line.scores:
            total = total + c * values[:, index]
        for feature, c in line.positions:
            total = total + c * positions[feature].astype(values.dtype)
        sign = (total > 0).astype(int) - (total < 0).astype(int)
        return sign, sign

    return signs

"""A case and the bytes of its split tree go in; the counts that the tree proves come out, or why it proves nothing.

Leaves are proven in batches (`proofs`), by several processes when there are many, and their volumes are added up.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, replace

from quantify.errors import UndecidedError
from quantify.evidence.certificates import tree
from quantify.evidence.certificates.proofs import Checker, RefutedError, Tally, go_on
from quantify.ir.problem import Box, GridCase, GridProblem
from quantify.resources import Limits, Progress
from quantify.tools.workers import processes

LARGE = 1 << 20
"""Bytes of a tree from which on processes are worth their start."""


@dataclass(frozen=True)
class Proven:
    """What a tree was found to prove."""

    counts: Mapping[str, tuple[int, int]]
    """Per query, the least and the most points."""
    leaves: Mapping[str, int]
    """Per kind."""
    points: int
    exact: int
    seconds: float


def check(
    problem: GridProblem, case: GridCase, blocks: Iterable[bytes], size: int, limits: Limits, progress: Progress
) -> Proven:
    """Check the tree of one case.

    Args:
        blocks: The tree, in pieces of any length.
        size: Their length together.

    Raises:
        RefutedError: The tree is malformed, or a leaf is not proven.
        UndecidedError: The time is up, the user stopped it, or a worker was killed.
    """
    started = time.monotonic()
    total = Tally([0] * len(case.queries), [0] * len(case.queries))
    assert isinstance(case.region, Box)
    volume = case.region.size
    if volume:
        try:
            read = _Read(blocks)
            checker = Checker(problem, case, limits)
        except ValueError as error:
            raise RefutedError(str(error)) from error
        try:
            for tally in _tallies(checker, problem, case, read, size):
                total.add(tally)
                checked = sum(total.leaves.values())
                progress.update(f"checking leaves ({checked:,} done, {read.done / max(1, size):.0%} of the tree read)")
        except tree.TreeError as error:
            raise RefutedError(str(error)) from error
    elif any(blocks):
        raise RefutedError("an empty region has a tree")
    counts = {
        query.name: (total.inside[q], volume - total.outside[q]) for q, query in enumerate(case.queries)
    }  # fmt: skip
    return Proven(counts, total.leaves, total.points, total.exact, time.monotonic() - started)


class _Read:
    """Blocks, and how many bytes of them were taken."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = blocks
        self.done = 0

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks:
            yield block
            self.done += len(block)


def _tallies(
    checker: Checker, problem: GridProblem, case: GridCase, blocks: Iterable[bytes], size: int
) -> Iterator[Tally]:
    """The tally of each batch of leaves, in order."""
    limits = checker.limits
    batches = checker.batches(blocks)
    if limits.jobs < 2 or size < LARGE:
        for leaves in batches:
            go_on(limits)
            yield checker.tally(leaves)
        return
    try:
        alone = replace(problem, cases=(case,))
        with processes(limits.jobs, _start, alone, case, replace(limits, stop=None)) as pool:
            yield from _apart(pool, batches, limits)
    except BrokenExecutor:
        raise UndecidedError(
            "a worker was killed before every leaf was checked", "is there memory for them? give fewer --jobs"
        ) from None


def _apart(pool: Executor, batches: Iterator[tree.Leaves], limits: Limits) -> Iterator[Tally]:
    """The tally of each batch, in order; few batches wait at any time."""
    waiting: deque[Future[Tally]] = deque()
    for leaves in itertools.chain(batches, [None] * 3 * limits.jobs):
        go_on(limits)
        if leaves is not None:
            waiting.append(pool.submit(_tally, leaves))
        if waiting and (leaves is None or len(waiting) > 2 * limits.jobs):
            yield waiting.popleft().result()


_own: list[Checker] = []
"""The checker of a worker process."""


def _start(problem: GridProblem, case: GridCase, limits: Limits) -> None:
    _own[:] = [Checker(problem, case, limits)]


def _tally(leaves: tree.Leaves) -> Tally:
    return _own[0].tally(leaves)


__all__ = ["Proven", "RefutedError", "check", "go_on"]

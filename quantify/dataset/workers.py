"""Tasks in, results out in their order, worked on by threads: NumPy and native code let other threads run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, stopped: Callable[[], bool] = lambda: False
) -> Generator[Result, None, None]:
    """The result of each task, until `stopped`. Who may leave early closes it: tasks that wait are given up then."""
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(work, task) for task in tasks]
        try:
            for one in waiting:
                if stopped():
                    return
                yield one.result()
        finally:
            for one in waiting:
                one.cancel()

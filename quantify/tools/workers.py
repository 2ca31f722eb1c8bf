"""Worker processes for work in Python: they leave Ctrl-C to their parent, and end when it does."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager


@contextmanager
def processes(jobs: int, prepare: Callable[..., None], *arguments: object) -> Iterator[ProcessPoolExecutor]:
    """An executor of so many processes, started afresh, each of which calls `prepare(*arguments)` first.

    At the end what is waiting is dropped, and what runs is awaited.
    """
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin, (prepare, arguments))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(prepare: Callable[..., None], arguments: tuple[object, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prepare(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

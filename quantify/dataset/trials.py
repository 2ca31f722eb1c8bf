"""Trials in, kept in one SQLite file until their instance is finished: a search cut short goes on from there."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from quantify.dataset.evolution import SAMPLE
from quantify.errors import InputError
from quantify.ir.evolved import Trial

FORMAT = "quantify evolve checkpoint 1"
PLAIN = ("best_fitness", "queries", "evaluations", "asked", "ties", "unverified")
ARRAYS = ("best_mask", "curve", "samples")


class Trials:
    """The finished trials of one search, in a file or (without a path) in memory.

    A trial is there wholly or not at all: SQLite sees to it, whenever the process ends.
    """

    def __init__(self, path: Path | None, search: dict[str, Any]) -> None:
        """Open or make the file.

        Args:
            search: What decides the outcome, as plain data; a file of another search is refused.

        Raises:
            InputError: The file is of another search, is no checkpoint, or cannot be written.
        """
        self.path = path
        with self._refused():
            self._db = sqlite3.connect(":memory:" if path is None else path, timeout=1)
            try:
                self._open(search)
            except BaseException:
                self._db.close()
                raise

    def _open(self, search: dict[str, Any]) -> None:
        # One command at a time: two would drop the samples that the other has yet to pool.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        with self._db:
            self._db.execute("BEGIN EXCLUSIVE")
            self._db.execute("CREATE TABLE IF NOT EXISTS search (format TEXT, body TEXT)")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS trials (row INTEGER, run INTEGER, body BLOB, PRIMARY KEY (row, run))"
            )
            self._db.execute("CREATE TABLE IF NOT EXISTS pooled (row INTEGER PRIMARY KEY, body TEXT)")
            found = self._db.execute("SELECT format, body FROM search").fetchall()
            if not found:
                self._db.execute("INSERT INTO search VALUES (?, ?)", (FORMAT, json.dumps(search)))
                return
        ((kind, body),) = found
        before = json.loads(body) if kind == FORMAT else {}
        other = [key for key in search if before.get(key) != search[key]]
        if other:
            raise InputError(
                f"{self.path}: a checkpoint of another search: {', '.join(other)} differ"
                f"{'' if len(other) > 1 else 's'}",
                "give the arguments that it was made with, or another --checkpoint FILE",
            )

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *failure: object) -> None:
        self._db.close()

    def add(self, trial: Trial) -> None:
        """Keep a trial.

        Raises:
            InputError: The file cannot be written, for example because the disk is full.
        """
        with self._refused(), self._db:
            self._db.execute("INSERT OR REPLACE INTO trials VALUES (?, ?, ?)", (trial.row, trial.run, _to_bytes(trial)))

    def finish(self, row: int, pooled: dict[str, Any]) -> None:
        """Keep what the samples of all trials of an instance say together, instead of the samples.

        Raises:
            InputError: As `add`.
        """
        bare = [(_to_bytes(replace(trial, samples=np.empty(0, SAMPLE))), row, trial.run) for trial in self.of(row)]
        with self._refused(), self._db:
            self._db.executemany("UPDATE trials SET body = ? WHERE row = ? AND run = ?", bare)
            self._db.execute("INSERT INTO pooled VALUES (?, ?)", (row, json.dumps(pooled)))

    def pooled(self) -> dict[int, dict[str, Any]]:
        """Row → what was kept by `finish`."""
        with self._refused():
            return {row: json.loads(body) for row, body in self._db.execute("SELECT row, body FROM pooled")}

    def of(self, row: int) -> list[Trial]:
        """The trials of an instance, by run; without samples once it is finished.

        Raises:
            InputError: The file cannot be read, or was changed by something else.
        """
        with self._refused():
            rows = self._db.execute("SELECT run, body FROM trials WHERE row = ? ORDER BY run", (row,)).fetchall()
            return [_from_bytes(row, run, body) for run, body in rows]

    def done(self) -> dict[tuple[int, int], bool]:
        """(row, run) of every trial → whether it found an adversarial mask."""
        with self._refused():
            rows = self._db.execute("SELECT row, run, substr(body, 1, 1) FROM trials").fetchall()
            return {(row, run): mark == b"+" for row, run, mark in rows}

    @contextlib.contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, KeyError, OSError) as error:
            raise InputError(
                f"{self.path}: cannot be used as a checkpoint: {error}",
                "free some space, wait for the command that uses it, or give another --checkpoint FILE",
            ) from None


def _to_bytes(trial: Trial) -> bytes:
    """`+` or `-` for whether it found something, then an .npz."""
    buffer = io.BytesIO()
    plain = json.dumps([getattr(trial, name) for name in PLAIN])
    np.savez(buffer, plain=np.array(plain), **{name: getattr(trial, name) for name in ARRAYS})
    return (b"-" if trial.queries is None else b"+") + buffer.getvalue()


def _from_bytes(row: int, run: int, body: bytes) -> Trial:
    with np.load(io.BytesIO(body[1:]), allow_pickle=False) as arrays:
        plain = dict(zip(PLAIN, json.loads(str(arrays["plain"])), strict=True))
        kept = {name: arrays[name] for name in ARRAYS}
    if kept["samples"].dtype != SAMPLE:
        raise ValueError("samples of another form")
    return Trial(row=row, run=run, **plain, **kept)

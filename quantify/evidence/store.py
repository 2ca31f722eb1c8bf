"""Records in, records out: one SQLite file, content-addressed, one transaction a record.

The rollback journal with EXTRA synchronisation makes a record that was reported as stored survive `kill -9` and a
power cut; BEGIN IMMEDIATE and a long busy time-out make concurrent writers wait for each other. There is one file, so
that copying it copies everything.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from quantify.errors import InputError, InvalidEvidenceError
from quantify.evidence import records
from quantify.ir.record import KINDS, Record

VARIABLE = "QUANTIFY_STORE"
DEFAULT = Path(".quantify/evidence.db")
APPLICATION = 0x51465931
"""SQLite's application_id of our files: "QFY1"."""
LAYOUT = 1
BUSY_SECONDS = 60.0
MOST_DIGITS = 18
"""Of a number of records; SQLite takes no more."""
SHORTEST_PREFIX = 4
HINT = "believe none of it: quantify evidence verify tells which records are damaged"

TABLES = (
    "CREATE TABLE IF NOT EXISTS records (digest TEXT PRIMARY KEY, kind TEXT NOT NULL, row TEXT, content TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS rows ON records (row)",
    "CREATE TABLE IF NOT EXISTS log (number INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT, created TEXT NOT NULL)",
)
"""`records` holds each content once, with the row of a batch that it finishes. `log` says when it was recorded, so that
content may come again later."""


@dataclass(frozen=True)
class Stored:
    """A record with its name."""

    digest: str
    record: Record
    """`created` is when it was recorded (last)."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Something in the store that is not as it was written."""

    digest: str
    """Of the record, or empty when the file itself is damaged."""
    detail: str


def store_path() -> Path:
    """Where the evidence lies: `QUANTIFY_STORE`, or `.quantify/evidence.db` in the working directory."""
    return Path(os.environ.get(VARIABLE) or DEFAULT)


class Store:
    """An open evidence store; a context manager.

    Args:
        path: The file; its folder is made when missing.
        create: Whether to make a store that is not there. Without, a missing store is an empty one that refuses
            records.

    Raises:
        InputError: Not a store, of a later layout, damaged, or not accessible.
    """

    def __init__(self, path: Path | None = None, *, create: bool = False) -> None:
        self.path = store_path() if path is None else path
        self._connection: sqlite3.Connection | None = None
        if not create and not self.path.exists():
            return
        if self.path.is_dir():
            raise InputError(f"{self.path} is a folder, not an evidence store", f"set {VARIABLE} to a file")
        with _explained(self.path):
            if create:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}",
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
            )
            try:
                self._open(create)
            except BaseException:
                self._connection.close()
                raise

    def _open(self, create: bool) -> None:
        assert self._connection is not None
        self._connection.execute("PRAGMA synchronous = EXTRA")
        # Asking makes SQLite undo what a killed writer left half done.
        if self._identity() == (APPLICATION, LAYOUT):
            return
        if create:
            with self._transaction() as connection:
                # Within the transaction: another process may have made it meanwhile.
                identity = self._identity()
                if identity == (APPLICATION, LAYOUT):
                    return
                if self.path.stat().st_size:
                    raise _refusal(self.path, identity)
                for statement in TABLES:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {LAYOUT}")
        elif self.path.stat().st_size == 0:  # a writer was killed before its first record
            self.close()
            self._connection = None
        elif (identity := self._identity()) != (APPLICATION, LAYOUT):
            raise _refusal(self.path, identity)

    def _identity(self) -> tuple[int, int]:
        return self._pragma("application_id"), self._pragma("user_version")

    def _pragma(self, name: str) -> int:
        assert self._connection is not None
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        assert self._connection is not None
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    def add(self, record: Record) -> str:
        """Store a record; when this returns, no crash can lose it. What is there already is not stored twice.

        Returns:
            Its digest.

        Raises:
            InputError: The store cannot be written: full disk, no permission, locked for a minute, damaged.
        """
        if self._connection is None:
            raise InputError(f"there is no evidence store at {self.path}", "record something: quantify count --record")
        content = records.canonical(record)
        name = hashlib.sha256(content.encode()).hexdigest()
        with _explained(self.path), self._transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?)",
                (name, record.kind, records.row_of(record), content),
            )
            last = connection.execute(
                "SELECT log.digest FROM log JOIN records USING (digest) WHERE kind = ? ORDER BY number DESC LIMIT 1",
                (record.kind,),
            ).fetchone()
            if last != (name,):
                connection.execute("INSERT INTO log (digest, created) VALUES (?, ?)", (name, record.created))
        return name

    def all(self, kind: str | None = None) -> tuple[tuple[Stored, ...], tuple[Damage, ...]]:
        """Every record (of that kind) once, in the order in which they were last recorded, and those that are damaged.

        Raises:
            InputError: The file cannot be read.
        """
        rows = self._select(
            "WHERE number IN (SELECT max(number) FROM log GROUP BY digest) AND kind = ifnull(?, kind) ORDER BY number",
            (kind,),
        )
        stored: list[Stored] = []
        damages: list[Damage] = []
        for row in rows:
            try:
                stored.append(self._stored(*row))
            except InvalidEvidenceError as error:
                damages.append(Damage(row[0], error.message))
        return tuple(stored), tuple(damages)

    def find(self, prefix: str, kind: str | None = None) -> Stored:
        """The one record whose digest begins with `prefix` (four characters or more), or `latest`, `latest~1`, ….

        Args:
            kind: What `latest` is the last of; None: of any kind.

        Raises:
            InputError: No record, or several.
            InvalidEvidenceError: It is damaged.
        """
        if prefix == "latest" or prefix.startswith("latest~"):
            back = "0" if prefix == "latest" else prefix.removeprefix("latest~")
            if not back.isascii() or not back.isdigit():
                raise InputError(f"{prefix!r} names no record", "write latest, latest~1, latest~2, …")
            return self.latest(kind, int(back) if len(back) <= MOST_DIGITS else 10**MOST_DIGITS)
        lower = prefix.lower()
        if len(lower) < SHORTEST_PREFIX or set(lower) - set("0123456789abcdef"):
            raise InputError(
                f"{prefix!r} is no digest", f"give at least {SHORTEST_PREFIX} of its characters: quantify evidence list"
            )
        found = self._select(
            "WHERE number IN (SELECT max(number) FROM log GROUP BY digest) AND digest >= ? AND digest < ?",
            (lower, lower + "g"),
        )
        if not found:
            raise InputError(f"no record begins with {prefix!r}", "see quantify evidence list")
        if len(found) > 1:
            names = ", ".join(digest[:12] for digest, _, _ in found[:4])
            raise InputError(f"{prefix!r} begins {len(found)} records: {names}", "give more characters")
        return self._stored(*found[0])

    def of_row(self, row: str) -> Stored | None:
        """The last record that finishes this row of a batch.

        Raises:
            InvalidEvidenceError: It is damaged.
        """
        found = self._select("WHERE row = ? ORDER BY number DESC LIMIT 1", (row,))
        return self._stored(*found[0]) if found else None

    def latest(self, kind: str | None = "run", back: int = 0) -> Stored:
        """The last record of that kind (None: of any), or the one `back` before it.

        Raises:
            InputError: There are not so many.
            InvalidEvidenceError: It is damaged.
        """
        if kind is not None and kind not in KINDS:
            raise InputError(f"there is no kind of record {kind!r}", f"kinds are {', '.join(KINDS)}")
        found = self._select("WHERE kind = ifnull(?, kind) ORDER BY number DESC LIMIT 1 OFFSET ?", (kind, back))
        if not found:
            name = "latest" if back == 0 else f"latest~{back}"
            raise InputError(
                f"{name}: there are not so many {kind or ''} records in {self.path}".replace("  ", " "),
                "see quantify evidence list",
            )
        return self._stored(*found[0])

    def _select(self, which: str, arguments: tuple[object, ...]) -> list[tuple[str, str, str]]:
        """Digest, content and time; all at once, so that a slow reader does not keep the file locked for writers."""
        if self._connection is None:
            return []
        statement = f"SELECT digest, content, created FROM log JOIN records USING (digest) {which}"  # noqa: S608  constants
        with _explained(self.path):
            return self._connection.execute(statement, arguments).fetchall()

    def _stored(self, name: str, content: str, created: str) -> Stored:
        """The row as a record.

        Raises:
            InvalidEvidenceError: It does not match its digest, or is no record.
        """
        if hashlib.sha256(content.encode()).hexdigest() != name:
            raise InvalidEvidenceError(f"the record {name[:12]} in {self.path} was changed after it was stored", HINT)
        return Stored(name, records.from_text(content, created, f"the record {name[:12]} in {self.path}"))

    def verify(self) -> tuple[int, tuple[Damage, ...]]:
        """The number of records, and what is wrong: contents that do not match their digest, a damaged file.

        Raises:
            InputError: The file cannot be read at all.
        """
        if self._connection is None:
            return 0, ()
        damages: list[Damage] = []
        with _explained(self.path):
            for (line,) in self._connection.execute("PRAGMA integrity_check").fetchall():
                if line != "ok":
                    damages.append(Damage("", line))
            rows = self._connection.execute("SELECT digest, kind, row, content FROM records ORDER BY digest").fetchall()
            logged = dict(self._connection.execute("SELECT digest, max(created) FROM log GROUP BY digest").fetchall())
        for name, kind, row, content in rows:
            damages.extend(Damage(name, one) for one in _damages(name, (kind, row), content, logged.pop(name, None)))
        damages.extend(Damage(name, "is named in the log, but its content is gone") for name in logged)
        return len(rows), tuple(damages)


def _damages(name: str, filed: tuple[str, str | None], content: str, created: str | None) -> Iterator[str]:
    if hashlib.sha256(content.encode()).hexdigest() != name:
        yield "its content was changed after it was stored"
        return
    if created is None:
        yield "it is not in the log"
        return
    try:
        record = records.from_text(content, created, "it")
    except InvalidEvidenceError as error:
        yield error.message
        return
    if (record.kind, records.row_of(record)) != filed or records.canonical(record) != content:
        yield "it is filed as something that it is not"


def _refusal(path: Path, identity: tuple[int, int]) -> InputError:
    if identity[0] != APPLICATION:
        return _foreign(path)
    return InputError(
        f"{path} was written by a later version of quantify (layout {identity[1]}, not {LAYOUT})",
        "upgrade quantify, or give another store",
    )


def _foreign(path: Path) -> InputError:
    return InputError(f"{path} is no evidence store", f"set {VARIABLE} to another file, or move this one away")


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Errors of SQLite and of the file system as one sentence and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", None) or ""
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise InputError(
                f"{path} is locked by another process for more than {BUSY_SECONDS:.0f} s", "wait for it, or end it"
            ) from None
        if code.startswith("SQLITE_NOTADB"):
            raise _foreign(path) from None
        if code.startswith("SQLITE_CORRUPT") or isinstance(error, sqlite3.DataError):
            raise InputError(
                f"{path} is damaged: {error}",
                f"restore a copy, or save what is left: sqlite3 {path} .recover",
            ) from None
        if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            raise InputError(
                f"{path}: cannot be written: {error}", "make space; what was recorded before is safe"
            ) from None
        if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            raise InputError(f"{path}: {error}", f"check its permissions, or set {VARIABLE} to another file") from None
        if "no such table" in str(error) or "no such column" in str(error):
            raise _foreign(path) from None
        raise InputError(f"{path}: {error}", "quantify evidence verify tells whether the file is damaged") from None
    except OSError as error:
        hint = f"set {VARIABLE} to a file that can be written"
        raise InputError(f"{path}: {error.strerror or error}", hint) from None

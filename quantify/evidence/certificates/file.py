"""Certificates to files and back: gzip of a line of JSON, then for each case a line and its split tree, then a digest.

The format is docs/certificates.md. Trees are written as they come and read in blocks; a file is replaced only by a
complete one.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from quantify import __version__
from quantify.errors import InputError

FORMAT = "quantify-certificate"
VERSION = 1
BLOCK = 1 << 18
MOST_LINE = 1 << 24
MOST_DIGITS = 64
"""Of a count."""
LONGEST_NAME = 255
LEVEL = 6


@dataclass(frozen=True)
class Head:
    """What a certificate is about."""

    model_sha256: str
    model: str
    """The file's name, for messages."""
    property_sha256: str
    property: str
    """The file's name."""
    property_text: str


@dataclass(frozen=True)
class CaseHead:
    """One case of it; `size` bytes of tree follow."""

    number: int
    """Place among the cases of the property, from 0."""
    digest: str
    """Of the integer case with the queries that are counted."""
    counts: Mapping[str, tuple[int, int]]
    """Per query, the least and the most points that the tree proves."""
    size: int


def head_line(head: Head) -> bytes:
    """The first line of a file."""
    return _line(
        {
            "format": FORMAT,
            "version": VERSION,
            "written_by": f"quantify {__version__}",
            "model": {"name": head.model, "sha256": head.model_sha256},
            "property": {"name": head.property, "sha256": head.property_sha256, "text": head.property_text},
        }
    )


def case_line(case: CaseHead) -> bytes:
    """The line before a tree."""
    counts = {name: [str(low), str(high)] for name, (low, high) in case.counts.items()}
    return _line({"case": case.number, "digest": case.digest, "counts": counts, "bytes": case.size})


def _line(data: object) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class Writer:
    """Writes a certificate beside its place and moves it there when it is complete; nothing is left of a broken one.

    Raises:
        InputError: The file cannot be written.
    """

    def __init__(self, path: Path, head: Head) -> None:
        self._path, self._head = path, head
        self._digest = hashlib.sha256()
        self._zip: gzip.GzipFile | None = None
        self.size = 0
        """Bytes of the finished file."""

    def __enter__(self) -> Writer:
        try:
            handle, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        except OSError as error:
            raise self._failed(error) from error
        self._partial = Path(name)
        self._file: IO[bytes] = os.fdopen(handle, "wb")
        try:
            self._zip = gzip.GzipFile("", "wb", LEVEL, self._file, mtime=0)
            self._write(head_line(self._head))
        except BaseException:
            self._discard()
            raise
        return self

    def add(self, case: CaseHead, tree: bytes) -> None:
        """Append a case.

        Raises:
            InputError: The disk is full.
        """
        self._write(case_line(case))
        for start in range(0, len(tree), BLOCK):
            self._write(tree[start : start + BLOCK])

    def _write(self, data: bytes) -> None:
        assert self._zip is not None
        self._digest.update(data)
        try:
            self._zip.write(data)
        except OSError as error:
            raise self._failed(error) from error

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        try:
            if kind is None:
                self._write(_line({"sha256": self._digest.hexdigest()}))
                assert self._zip is not None
                self._zip.close()
                self._file.flush()
                os.fsync(self._file.fileno())
                self.size = self._file.tell()
                umask = os.umask(0)
                os.umask(umask)
                self._partial.chmod(0o666 & ~umask)
                self._partial.replace(self._path)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            self._discard()

    def _discard(self) -> None:
        """Close what is open; the file beside the place, if it was not moved there, goes."""
        for file in (self._zip, self._file):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
        self._partial.unlink(missing_ok=True)

    def _failed(self, error: OSError) -> InputError:
        reason = error.strerror or error
        return InputError(f"{self._path}: the certificate cannot be written: {reason}", "choose another --certificate")


class Reader:
    """A certificate whose digest was found right; `cases` may be gone through once.

    Args:
        go_on: Called now and then; what it raises ends the reading. A small file may hold a great deal.

    Raises:
        InputError: It is no certificate, of another version, or damaged.
    """

    def __init__(self, path: Path, go_on: Callable[[], None] = lambda: None) -> None:
        self.path, self._go_on = path, go_on
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read: {error.strerror}", "give a file of count --certificate"
            ) from None
        try:
            self.size = os.fstat(self._file.fileno()).st_size
            self.head = self._open()
            for _, blocks in self._cases():
                for _ in blocks:
                    pass
            self._open()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cases(self) -> Iterator[tuple[CaseHead, Iterator[bytes]]]:
        """Each case with the blocks of its tree, which must be used up before the next case.

        Raises:
            InputError: The file changed meanwhile.
        """
        return self._cases()

    def bad(self, why: str) -> InputError:
        """The error for a file that is no good."""
        return InputError(f"{self.path}: {why}", "write it again with quantify count … --certificate FILE")

    def _open(self) -> Head:
        self._file.seek(0)
        self._zip = gzip.GzipFile(fileobj=self._file, mode="rb")
        self._digest = hashlib.sha256()
        first = self._json("no certificate of quantify")
        if first.get("format") != FORMAT:
            raise self.bad("no certificate of quantify")
        if type(first.get("version")) is not int or first["version"] != VERSION:
            version = f"{first.get('version')!r:.20}"
            raise self.bad(f"a certificate of version {version}; this quantify reads version {VERSION}")
        try:
            model, source = first["model"], first["property"]
            texts = (model["sha256"], model["name"], source["sha256"], source["name"], source["text"])
        except (KeyError, TypeError):
            raise self.bad("its first line lacks the model or the property") from None
        if not all(isinstance(text, str) for text in texts):
            raise self.bad("its first line lacks the model or the property")
        head = Head(*texts)
        if not (_is_name(head.model) and _is_name(head.property)):
            raise self.bad("its first line names no files")
        try:
            head.property_text.encode()
        except UnicodeEncodeError:
            raise self.bad("its property is no text") from None
        return head

    def _cases(self) -> Iterator[tuple[CaseHead, Iterator[bytes]]]:
        while True:
            self._go_on()
            before = self._digest.hexdigest()
            line = self._json("damaged: a line between trees cannot be read")
            if "sha256" in line:
                break
            try:
                counts = {name: (_count(ends[0]), _count(ends[1])) for name, ends in line["counts"].items()}
                case = CaseHead(line["case"], line["digest"], counts, line["bytes"])
                if type(case.number) is not int or type(case.size) is not int or case.size < 0:
                    raise ValueError
            except (KeyError, TypeError, ValueError, IndexError, AttributeError):
                raise self.bad("damaged: a case lacks its counts or its size") from None
            yield case, self._tree(case.size)
        if line["sha256"] != before or self._read(1):
            raise self.bad("damaged: its digest is not that of its content")

    def _tree(self, size: int) -> Iterator[bytes]:
        while size:
            self._go_on()
            block = self._read(min(size, BLOCK))
            if not block:
                raise self.bad("damaged: it ends inside a tree")
            self._digest.update(block)
            size -= len(block)
            yield block

    def _json(self, why: str) -> dict[str, Any]:
        line = self._read(MOST_LINE, line=True)
        if not line.endswith(b"\n"):
            raise self.bad(why if not line else "damaged: a line is cut off or too long")
        self._digest.update(line)
        try:
            found = json.loads(line.decode(), object_pairs_hook=_object)
        except (ValueError, RecursionError):
            raise self.bad(why) from None
        if not isinstance(found, dict):
            raise self.bad(why)
        return found

    def _read(self, size: int, line: bool = False) -> bytes:
        try:
            return self._zip.readline(size) if line else self._zip.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise self.bad(f"damaged: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; a name that comes twice would mean one thing to this reader and another to the next."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _is_name(text: str) -> bool:
    """Whether this is a file's name that can be shown, and written to without leaving a folder."""
    return bool(text) and text.isprintable() and text == Path(text).name != ".." and len(text.encode()) <= LONGEST_NAME


def _count(text: object) -> int:
    if not isinstance(text, str) or not text.isdecimal() or not text.isascii() or len(text) > MOST_DIGITS:
        raise ValueError
    return int(text)

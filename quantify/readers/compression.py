"""Compressed bytes, as joblib and gzip write them, to the bytes inside; other bytes pass through."""

from __future__ import annotations

import io
from typing import IO

LIMIT = 1 << 31
"""Largest result in bytes; a decision tree is never near it, a decompression bomb is beyond it."""

# First bytes, as in joblib/compressor.py. None of them starts a pickle.
MAGIC = {
    b"\x78": "zlib",
    b"\x1f\x8b": "gzip",
    b"BZ": "bz2",
    b"\x5d\x00": "lzma",
    b"\xfd\x37\x7a\x58\x5a": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"ZF": "joblib before 0.10",
}


class CannotDecompress(Exception):
    """Damaged, too large, or of a kind that needs something that is not installed."""


def compression(data: bytes) -> str | None:
    """Name of the compression, by the first bytes; None for none."""
    return next((name for magic, name in MAGIC.items() if data.startswith(magic)), None)


def decompress(data: bytes, limit: int = LIMIT) -> bytes:
    """The bytes inside `data`, at most `limit` of them.

    Raises:
        CannotDecompress: See there.
    """
    kind = compression(data)
    if kind is None:
        return data
    try:
        inside = _read(kind, data, limit + 1)
    except CannotDecompress:
        raise
    # zlib.error, lzma.LZMAError, OSError, EOFError, RuntimeError: each module has its own word for "damaged".
    except Exception as error:
        raise CannotDecompress(f"its {kind} compression is damaged ({error})") from None
    if len(inside) > limit:
        raise CannotDecompress(f"it unpacks to more than {limit >> 20} MiB")
    return inside


def _read(kind: str, data: bytes, size: int) -> bytes:
    if kind == "zlib":
        import zlib

        machine = zlib.decompressobj()
        inside = machine.decompress(data, size)
        if not machine.eof and len(inside) < size:
            raise EOFError("it ends early")
        return inside
    with _open(kind, io.BytesIO(data)) as file:
        return file.read(size)


def _open(kind: str, file: io.BytesIO) -> IO[bytes]:
    if kind == "gzip":
        import gzip

        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]  # a reader all the same
    if kind == "bz2":
        import bz2

        return bz2.BZ2File(file)
    if kind in ("lzma", "xz"):
        import lzma

        return lzma.LZMAFile(file)
    if kind == "lz4":
        try:
            from lz4.frame import LZ4FrameFile
        except ImportError:
            raise CannotDecompress("it is compressed with lz4, which is not installed (pip install lz4)") from None
        opened: IO[bytes] = LZ4FrameFile(file)
        return opened
    raise CannotDecompress("it was written by joblib before 0.10, in a format no longer read")

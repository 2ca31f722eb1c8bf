"""The bytes of an HDF5 file to arrays and texts in it, following nothing out of the file and nothing huge."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError, MissingToolError, UnsafeFileError
from quantify.readers.unpickle import printable

MAGIC = b"\x89HDF\r\n\x1a\n"
MAX_BYTES = 1 << 30
"""Most array bytes taken from one file."""
MAX_TEXT = 1 << 26
"""Longest text attribute in bytes; an architecture is far shorter."""
MAX_NAMES = 1 << 16
SAVE_AGAIN = "save the model again with model.save"


@contextmanager
def _sound() -> Iterator[None]:
    """Turn what h5py raises on damaged files into an error of ours; all of it says that the bytes make no sense."""
    try:
        yield
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise InputError(f"is a damaged HDF5 file ({printable(str(error))})", SAVE_AGAIN) from None


class Hdf5File:
    """An open HDF5 file; paths are lists of link names from the root."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._taken = 0

    @_sound()
    def text(self, where: tuple[str, ...], name: str) -> str | None:
        """A text attribute of a group, or None."""
        found = self._attribute(where, name)
        if found is None:
            return None
        if isinstance(found, bytes):
            return found.decode("utf-8")
        if not isinstance(found, str):
            raise InputError(f"attribute {printable(name)} is no text", SAVE_AGAIN)
        return str(found)

    @_sound()
    def names(self, where: tuple[str, ...], name: str) -> list[str]:
        """A list of texts in an attribute; Keras splits long ones into NAME0, NAME1, …"""
        whole = self._attribute(where, name)
        parts = [] if whole is None else [whole]
        while whole is None and (more := self._attribute(where, f"{name}{len(parts)}")) is not None:
            parts.append(more)
        items = [item for part in parts for item in np.atleast_1d(np.asarray(part)).tolist()]
        if len(items) > MAX_NAMES or not all(isinstance(item, bytes | str) for item in items):
            raise InputError(f"attribute {printable(name)} is no list of names", SAVE_AGAIN)
        return [item.decode("utf-8") if isinstance(item, bytes) else item for item in items]

    @_sound()
    def members(self, where: tuple[str, ...]) -> list[str] | None:
        """Names in a group, sorted; None when there is no such group."""
        import h5py

        group = self._node(where)
        if not isinstance(group, h5py.Group):
            return None
        if len(group) > MAX_NAMES:
            raise InputError(f"group {printable('/'.join(where))} has {len(group)} members", SAVE_AGAIN)
        return sorted(group)

    @_sound()
    def array(self, where: tuple[str, ...]) -> NDArray[np.generic]:
        """A dataset of real numbers.

        Raises:
            InputError: No such dataset, not numbers, or too large.
            UnsafeFileError: Its data lie in another file.
        """
        import h5py

        shown = printable("/".join(where))
        dataset = self._node(where)
        if not isinstance(dataset, h5py.Dataset):
            raise InputError(f"has no dataset {shown}", SAVE_AGAIN)
        if dataset.is_virtual or dataset.external:
            raise UnsafeFileError(f"dataset {shown} points out of the file", SAVE_AGAIN)
        if dataset.dtype.kind not in "fiu" or dataset.shape is None:
            raise InputError(f"dataset {shown} holds no numbers ({printable(str(dataset.dtype))})", SAVE_AGAIN)
        self._taken += math.prod(dataset.shape) * dataset.dtype.itemsize
        if self._taken > MAX_BYTES:
            raise InputError(f"its arrays take more than {MAX_BYTES >> 20} MiB (at {shown})", "train a smaller model")
        found: NDArray[np.generic] = np.asarray(dataset[()])
        return found.astype(found.dtype.newbyteorder("="), copy=False)

    @_sound()
    def _node(self, where: tuple[str, ...]) -> Any:
        """The object at a path of hard links, or None."""
        import h5py

        node = self._root
        for name in where:
            if not isinstance(node, h5py.Group) or not name or name == ".":
                return None
            link = node.get(name, getlink=True)
            if link is None:
                return None
            if not isinstance(link, h5py.HardLink):
                raise UnsafeFileError(f"{printable('/'.join(where))} is a link to elsewhere", SAVE_AGAIN)
            node = node[name]
        return node

    @_sound()
    def _attribute(self, where: tuple[str, ...], name: str) -> Any:
        node = self._node(where)
        if node is None or name not in node.attrs:
            return None
        described = node.attrs.get_id(name)
        shape = described.shape
        if shape is None or math.prod(shape) > MAX_NAMES or math.prod(shape) * described.dtype.itemsize > MAX_TEXT:
            raise InputError(f"attribute {printable(name)} is too long", SAVE_AGAIN)
        value = node.attrs[name]
        return value.item() if isinstance(value, np.ndarray | np.generic) and not np.shape(value) else value


@contextmanager
def open_hdf5(data: bytes) -> Iterator[Hdf5File]:
    """The file in `data`, which is read from memory only.

    Raises:
        InputError: Damaged.
        MissingToolError: h5py is not installed.
    """
    try:
        import h5py
    except ImportError:
        raise MissingToolError("h5py is not installed", "pip install h5py") from None
    with _sound():
        root = h5py.File(io.BytesIO(data), "r")
    with root:
        yield Hdf5File(root)

"""The bytes of an HDF5 file to arrays and texts in it, following nothing out of the file and nothing huge."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.errors import InputError, MissingToolError, UnsafeFileError
from quantify.readers.hdf5_child import MAX_BYTES, MAX_TEXT
from quantify.readers.unpickle import printable
from quantify.tools.process import run

MAGIC = b"\x89HDF\r\n\x1a\n"
SAVE_AGAIN = "save the model again with model.save"
CHILD = Path(__file__).with_name("hdf5_child.py")
SECONDS = 30.0
"""For a small file; a damaged one may never end. Large ones get a second more for each MB."""
MEMORY_MB = 8192

Where = tuple[str, ...]


class Hdf5File:
    """What is in an HDF5 file; paths are tuples of names from the root."""

    def __init__(self, data: bytes) -> None:
        """Open the file in `data` in a process of its own, which may crash on it.

        Raises:
            InputError: Damaged, or too large.
            MissingToolError: h5py is not installed.
        """
        if importlib.util.find_spec("h5py") is None:
            raise MissingToolError("h5py is not installed", "pip install h5py")
        argv = [sys.executable, "-P", str(CHILD)]
        seconds = SECONDS + len(data) / 1e6
        done = run(argv, stdin=data, timeout=seconds, memory_mb=MEMORY_MB, stdout_limit=2 * MAX_BYTES)
        if done.returncode != 0 or done.timed_out or done.truncated:
            raise InputError(f"cannot be read as an HDF5 file ({printable(done.complaint())})", SAVE_AGAIN)
        try:
            end = 8 + int.from_bytes(done.stdout[:8], "little")
            described = json.loads(done.stdout[8:end])
        except ValueError:
            raise InputError("cannot be read as an HDF5 file", SAVE_AGAIN) from None
        if "error" in described:
            raise InputError(f"is a damaged HDF5 file ({printable(described['error'])})", SAVE_AGAIN)
        self._nodes: dict[str, dict[str, Any]] = described["nodes"]
        self._data = memoryview(done.stdout)[end:]

    def text(self, where: Where, name: str) -> str | None:
        """A text attribute of a group, or None.

        Raises:
            InputError: It is there, but no text.
        """
        found = self._attributes(where).get(name, "")
        if not isinstance(found, str):
            raise InputError(
                f"attribute {printable(name)} is no text, or one of more than {MAX_TEXT} bytes", SAVE_AGAIN
            )
        return found if name in self._attributes(where) else None

    def names(self, where: Where, name: str) -> list[str]:
        """A list of texts in an attribute; Keras splits long ones into NAME0, NAME1, …

        Raises:
            InputError: It is there, but no list of texts.
        """
        attributes = self._attributes(where)
        parts = [attributes[name]] if name in attributes else []
        while name not in attributes and f"{name}{len(parts)}" in attributes:
            parts.append(attributes[f"{name}{len(parts)}"])
        if not all(isinstance(part, list) for part in parts):
            raise InputError(f"attribute {printable(name)} is no list of names", SAVE_AGAIN)
        return [item for part in parts for item in part]

    def members(self, where: Where) -> list[str] | None:
        """Names in a group, sorted; None when there is no such group."""
        path = _path(where)
        if self._nodes.get(path, {}).get("kind") != "group":
            return None
        found = (other[len(path) + 1 :] for other in self._nodes if other.startswith(f"{path}/"))
        return sorted(name for name in found if "/" not in name)

    def array(self, where: Where) -> NDArray[np.generic]:
        """A dataset of real numbers.

        Raises:
            InputError: No such dataset, not numbers, or too large.
            UnsafeFileError: It, or a group on the way, lies elsewhere.
        """
        shown = printable("/".join(where))
        for depth in range(1, len(where) + 1):
            if self._nodes.get(_path(where[:depth]), {}).get("kind") == "link":
                raise UnsafeFileError(f"{printable('/'.join(where[:depth]))} is a link to elsewhere", SAVE_AGAIN)
        node = self._nodes.get(_path(where), {"kind": "group"})
        match node["kind"]:
            case "array":
                size = math.prod(node["shape"])
                found = np.frombuffer(self._data, node["dtype"], size, node["offset"]).reshape(node["shape"])
                return found.astype(found.dtype.newbyteorder("="))
            case "outside":
                raise UnsafeFileError(f"dataset {shown} points out of the file", SAVE_AGAIN)
            case "odd":
                raise InputError(f"dataset {shown} holds no numbers ({printable(node['what'])})", SAVE_AGAIN)
            case "huge":
                raise InputError(
                    f"its arrays take more than {MAX_BYTES >> 20} MiB (at {shown})", "train a smaller model"
                )
        raise InputError(f"has no dataset {shown}", SAVE_AGAIN)

    def _attributes(self, where: Where) -> dict[str, Any]:
        found = self._nodes.get(_path(where), {}).get("attributes")
        return found if isinstance(found, dict) else {}


def _path(where: Where) -> str:
    return "".join(f"/{name}" for name in where)

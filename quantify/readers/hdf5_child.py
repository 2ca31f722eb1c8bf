"""The child process that opens an HDF5 file: its bytes on stdin, its texts and arrays on stdout.

Runs as a script that imports nothing of quantify. The HDF5 library is known to crash on damaged files, and this
process is what crashes then. What it prints is data: eight bytes with the length of a JSON description, that
description, and the arrays' bytes one after the other.
"""

from __future__ import annotations

import io
import json
import math
import sys
from typing import Any, BinaryIO

MAX_BYTES = 1 << 30
"""Most array bytes taken from one file."""
MAX_TEXT = 1 << 26
"""Longest attribute in bytes; an architecture is far shorter."""
MAX_NODES = 1 << 17
MAX_DEPTH = 24
LEFT_OUT = ("optimizer_weights", "optimizer")
"""Groups of the root that no prediction needs."""


class Walk:
    """What was found so far; `nodes` maps paths to descriptions, `arrays` are in the order of their offsets."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.arrays: list[Any] = []
        self.size = 0

    def visit(self, node: Any, path: str, depth: int) -> None:
        """Describe a node and, in groups, all that hard links lead to."""
        import h5py

        if len(self.nodes) > MAX_NODES or depth > MAX_DEPTH:
            raise ValueError("too many or too deeply nested groups")
        if isinstance(node, h5py.Dataset):
            self.nodes[path] = self.dataset(node)
            return
        if not isinstance(node, h5py.Group):
            self.nodes[path] = {"kind": "odd", "what": type(node).__name__}
            return
        attributes = {name: attribute(node, name) for name in node.attrs}
        self.nodes[path] = {"kind": "group", "attributes": attributes}
        for name in node:
            below = f"{path}/{name}"
            if depth == 0 and name in LEFT_OUT:
                continue
            if isinstance(node.get(name, getlink=True), h5py.HardLink):
                self.visit(node[name], below, depth + 1)
            else:
                self.nodes[below] = {"kind": "link"}

    def dataset(self, node: Any) -> dict[str, Any]:
        """Description of a dataset; real numbers within the limit are read."""
        import numpy as np

        if node.is_virtual or node.external:
            return {"kind": "outside"}
        if node.dtype.kind not in "fiu" or node.shape is None:
            return {"kind": "odd", "what": str(node.dtype)}
        size = math.prod(node.shape) * node.dtype.itemsize
        if self.size + size > MAX_BYTES:
            return {"kind": "huge"}
        values = np.ascontiguousarray(node[()], node.dtype.newbyteorder("<"))
        found = {"kind": "array", "shape": list(node.shape), "dtype": values.dtype.str, "offset": self.size}
        self.arrays.append(values)
        self.size += values.nbytes
        return found


def attribute(node: Any, name: str) -> Any:
    """A text, a list of texts, or None for anything else."""
    import numpy as np

    described = node.attrs.get_id(name)
    if described.shape is None or math.prod(described.shape) * described.dtype.itemsize > MAX_TEXT:
        return None
    value = node.attrs[name]
    items = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(items, list):
        texts = [text(item) for item in items]
        return None if any(item is None for item in texts) else texts
    return text(items)


def text(value: Any) -> str | None:
    """A text of either kind."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return str(value) if isinstance(value, str) else None


def main(stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Read the file, print what is in it."""
    walk = Walk()
    described: dict[str, Any]
    try:
        import h5py

        with h5py.File(io.BytesIO(stdin.read()), "r") as root:
            walk.visit(root, "", 0)
        described = {"nodes": walk.nodes}
    # The library raises almost anything on damaged files.
    except Exception as error:
        walk.arrays = []
        described = {"error": str(error)[:500]}
    header = json.dumps(described).encode()
    stdout.write(len(header).to_bytes(8, "little") + header)
    for values in walk.arrays:
        stdout.write(values.tobytes())
    stdout.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)

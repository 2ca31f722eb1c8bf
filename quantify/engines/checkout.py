"""A checkout in, nothing out, or the error that says its native module was built from other sources."""

from __future__ import annotations

import hashlib
from pathlib import Path

from quantify.errors import QuantifyError

MARK = b"quantify-native-sources:"
"""What `native/build_ffi.py` compiles in, followed by the digest of its folder in hex."""


def check(module: Path, sources: Path) -> None:
    """Nothing is checked where there is no `build_ffi.py` among the sources (an installation) or no module.

    Raises:
        QuantifyError: The module was built from other sources: it may count by what was wrong before.
    """
    if not (sources / "build_ffi.py").is_file() or not module.is_file():
        return
    digest = hashlib.sha256()
    for path in sorted(path for path in sources.iterdir() if path.suffix in (".c", ".h", ".inc", ".py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    if MARK + digest.hexdigest().encode() not in module.read_bytes():
        raise QuantifyError(
            f"{module} was built from other sources than those in {sources}", f"run: python {sources / 'build_ffi.py'}"
        )

"""Paths in a policy or a record to the files that are there now, and to their digests."""

from __future__ import annotations

import os
from pathlib import Path

from quantify.errors import InputError
from quantify.evidence import records


class Files:
    """Looks files up in the working directory and in the policy's folder; each is read once.

    Args:
        policy: Path of the policy file.
    """

    def __init__(self, policy: Path) -> None:
        self.policy_folder = policy.parent
        self._digests: dict[Path, str] = {}

    def named(self, written: str) -> Path | None:
        """The file that the policy names: relative to its folder, or else to the working directory."""
        return self._first(self.policy_folder / written, Path(written))

    def recorded(self, written: str) -> Path | None:
        """The file that a record names: relative to the working directory, or else to the policy's folder."""
        return self._first(Path(written), self.policy_folder / written)

    def same(self, written: str) -> str:
        """One spelling of a recorded path, so that `./m.pkl` and `m.pkl` are one file."""
        found = self.recorded(written)
        return os.path.normpath(written) if found is None else str(found)

    def sha256(self, path: Path) -> str:
        """Digest of the file as it is now.

        Raises:
            InputError: It cannot be read.
        """
        if path not in self._digests:
            try:
                self._digests[path] = records.file_sha256(str(path))
            except OSError as error:
                raise InputError(f"{path}: cannot be read: {error.strerror}", "check its permissions") from None
        return self._digests[path]

    def changed(self, written: str, sha256: str) -> str | None:
        """The digest that a recorded file has now, when that is another; None also when it is not there."""
        found = self.recorded(written)
        if found is None:
            return None
        now = self.sha256(found)
        return None if now == sha256 else now

    @staticmethod
    def _first(*places: Path) -> Path | None:
        return next((place.resolve() for place in places if place.is_file()), None)

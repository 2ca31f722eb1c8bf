"""The errors a user can meet: each says what is wrong, what to do next, and which exit code it means."""

from __future__ import annotations

from typing import ClassVar


class QuantifyError(Exception):
    """Base of every error that the command line reports without a traceback.

    Args:
        message: What is wrong, with the offending value and, for files, `path:line`.
        hint: What to type or change next; empty when there is nothing sensible to say.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(QuantifyError):
    """A model, property, data file or argument that cannot be used (exit code 2)."""


class UnsafeFileError(InputError):
    """A serialised file that names a type outside the allow-list, or holds arrays that would crash the library."""


class MissingToolError(QuantifyError):
    """A program or optional library is not installed; the hint is the command that installs it (exit code 2)."""


class UndecidedError(QuantifyError):
    """No count could be given: a limit was reached, or a tool crashed, hung or printed garbage (exit code 3)."""

    exit_code: ClassVar[int] = 3


class ContradictionError(QuantifyError):
    """Two ways of counting disagree, or a tool failed its calibration: no number may be believed (exit code 4)."""

    exit_code: ClassVar[int] = 4


class InvalidEvidenceError(QuantifyError):
    """A record of evidence that is not what was stored: nothing may be decided by it (exit code 4)."""

    exit_code: ClassVar[int] = 4

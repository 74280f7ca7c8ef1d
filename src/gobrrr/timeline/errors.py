"""The errors that gobrrr raises on purpose, each with the exit code of its command.

Anything else that escapes is a defect in gobrrr (or was raised by the user's own code) and keeps
its traceback.
"""

from __future__ import annotations

from typing import ClassVar


class GobrrrError(Exception):
    """Base of all: one sentence that says what is wrong and what to do. Exit code 2."""

    exit_code: ClassVar[int] = 2


class InputError(GobrrrError, ValueError):
    """Bad usage or bad input: a missing file, an unknown option value, an unreadable trace."""


class UserCodeError(GobrrrError):
    """The user's own code raised. ``__cause__`` is what it raised. Exit code 3."""

    exit_code: ClassVar[int] = 3


class CaptureError(InputError):
    """A step that may well run cannot be followed without running it. Exit code 2."""


class DefectError(GobrrrError):
    """gobrrr itself failed. ``__cause__`` is how, for a report. Exit code 2."""


class GateFailure(GobrrrError):  # noqa: N818 - a failed gate is an answer, not an error
    """A gate that the user asked for did not hold. Exit code 1."""

    exit_code: ClassVar[int] = 1

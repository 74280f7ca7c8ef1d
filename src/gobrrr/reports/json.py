"""The diagnosis itself, as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.diagnosis.writing import encode


def render(diagnosis: Diagnosis, *, top: int | None = None, by: Sequence[str] = ()) -> bytes:
    """All of it, whatever ``top`` and ``by`` say: a report of it can choose again.

    Raises:
        AccountingError: the leaves do not sum to the step and the split.
    """
    diagnosis.check()
    return encode(diagnosis)

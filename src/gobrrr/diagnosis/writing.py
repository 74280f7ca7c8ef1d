"""A record as JSON that can be read again, in a file that is whole or not there."""

from __future__ import annotations

import msgspec
import numpy as np

from gobrrr.diagnosis.record import Record
from gobrrr.timeline.names import printable_json


class UnsavableError(ValueError):
    """A number that JSON has no word for stands where one is required: a defect in gobrrr."""


def encode(record: Record) -> bytes:
    """The record as JSON, one object, UTF-8.

    NaN and infinities become ``null`` where a field may be unknown.

    Raises:
        UnsavableError: one stands where a number is required; the message names the field.
    """
    data = msgspec.json.encode(record, enc_hook=_plain_number)
    try:
        msgspec.json.decode(data, type=type(record))
    except msgspec.ValidationError as error:
        raise UnsavableError(f"the diagnosis would not load again: {error}") from error
    return printable_json(data)


def _plain_number(value: object) -> object:
    # Sums over columns are numpy scalars; the type of a number is not part of what was found.
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"a diagnosis cannot hold a {type(value).__name__}")

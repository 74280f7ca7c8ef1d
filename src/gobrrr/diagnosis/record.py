"""What every part of a diagnosis is made of."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct):
    """Base of all parts of a diagnosis."""

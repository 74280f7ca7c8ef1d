"""Constants that devices of an architecture share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def of_architecture(constants: Mapping[str, T], architecture: str) -> T | None:
    """What stands under the longest name that the architecture's begins with.

    "Ada half-rate" takes what stands under "Ada"; ``None`` where no name fits.
    """
    known = [name for name in constants if architecture.startswith(name)]
    return constants[max(known, key=len)] if known else None

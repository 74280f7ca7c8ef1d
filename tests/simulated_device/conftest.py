"""What this process does beside is no part of a program whose clock is simulated."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    """The collector looks through the heap of all tests so far, in a step that has a few objects.

    By the clock of this process that is a share of the steps, and a cause of its own.
    """
    gc.disable()
    yield
    gc.enable()

"""Diagnoses to report, and snapshots to compare reports with."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import gobrrr
from gobrrr.diagnosis.schema import Diagnosis

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture
def training(data: Path) -> Diagnosis:
    return gobrrr.load(data / "training.json")


@pytest.fixture
def minimal(data: Path) -> Diagnosis:
    return gobrrr.load(data / "minimal.json")


@pytest.fixture
def same_as_snapshot() -> Callable[[str, str], None]:
    """Compares with a file; ``GOBRRR_UPDATE_SNAPSHOTS=1`` writes it instead, to be read."""

    def compare(name: str, text: str) -> None:
        path = SNAPSHOTS / name
        if os.environ.get("GOBRRR_UPDATE_SNAPSHOTS"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare

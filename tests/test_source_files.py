"""Files stay small enough to read in one go."""

from __future__ import annotations

from pathlib import Path

import gobrrr

ROOT = Path(gobrrr.__file__).parent
MOST_LINES = 400


def test_no_file_is_long() -> None:
    lengths = {path.relative_to(ROOT): _lines(path) for path in ROOT.rglob("*.py")}
    assert lengths
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())

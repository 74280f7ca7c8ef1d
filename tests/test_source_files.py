"""Files stay small enough to read in one go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import gobrrr

ROOT = Path(gobrrr.__file__).parent
# One noun a file: more than this is several.
MOST_LINES = 700
# A room of more than this has rooms within it.
MOST_FILES = 30


def test_no_file_is_long() -> None:
    lengths = {p.relative_to(ROOT).as_posix(): _lines(p) for p in ROOT.rglob("*.py")}
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_no_folder_has_many_files() -> None:
    folders = Counter(p.parent.relative_to(ROOT).as_posix() for p in ROOT.rglob("*.py"))
    assert {name: count for name, count in folders.items() if count > MOST_FILES} == {}

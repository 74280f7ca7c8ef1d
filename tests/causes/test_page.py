"""The page of known causes says what the catalogue says."""

from __future__ import annotations

import os
from pathlib import Path

from gobrrr.causes.catalogue import CAUSES
from gobrrr.causes.cause import Cause

PAGE = Path(__file__).parents[2] / "docs" / "causes.md"
HEAD = ("| cause | what happens | words | remedy | tried by |", "|---|---|---|---|---|")


def row(cause: Cause) -> str:
    tried = f"`{cause.verified_by}`" if cause.verified_by else ""
    cells = (f"`{cause.name}`", cause.title, ", ".join(cause.words), cause.remedy, tried)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def test_the_page_has_each_cause_as_it_is():
    before = PAGE.read_text().partition(HEAD[0])[0].rstrip("\n")
    wanted = "\n".join((before, "", *HEAD, *map(row, CAUSES), ""))
    if os.environ.get("GOBRRR_UPDATE_SNAPSHOTS"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted

"""Markdown for pull requests: complete, and inert whatever the names are."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec.structs import replace

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports import TABLES
from gobrrr.reports.markdown import report_markdown


def test_training_step(training: Diagnosis, same_as_snapshot: Callable[[str, str], None]) -> None:
    same_as_snapshot("training.md", report_markdown(training, top=3))


def test_nothing_known(minimal: Diagnosis) -> None:
    text = report_markdown(minimal)
    assert "| **overhead** | **0.0** | **-** | |" in text
    assert "details" not in text


def test_rows_have_as_many_cells_as_their_header(training: Diagnosis) -> None:
    names = "a|b\n| c"
    odd = replace(training, ops=[replace(op, name=names, shapes=names) for op in training.ops])
    text = report_markdown(odd, by=[table.name for table in TABLES])
    width = 0
    for line in text.splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", line))
        assert width in (0, cells), line
        width = cells


def test_markup_in_names_is_escaped(training: Diagnosis) -> None:
    op = replace(
        training.ops[0], name="</details><script>alert(1)</script>", module="**bold** @all"
    )
    text = report_markdown(replace(training, ops=[op]))
    assert "<script>" not in text
    assert r"\<script\>" in text and r"\*\*bold\*\* \@all" in text
    assert text.count("<details>") == text.count("\n</details>") == 2

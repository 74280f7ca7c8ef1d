"""Markdown for pull requests: complete, and inert whatever the names are."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec.structs import replace

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports import TABLES
from gobrrr.reports.html import report_html
from gobrrr.reports.markdown import report_markdown
from gobrrr.reports.terminal import gist_text, report_text


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


def test_every_report_says_first_what_a_step_was_taken_to_be(training: Diagnosis) -> None:
    said = "A step is a cycle of 6 steps, which is 2 turns of the loop at a_b.py:9; 40 ran."
    diagnosis = replace(training, step=replace(training.step, what=said))
    lines = report_markdown(diagnosis).splitlines()
    assert lines.index(said.replace("_", "\\_")) < lines.index("") + 4
    text = report_text(diagnosis)
    assert said in " ".join(text.split()) and text.index("A step is") < text.index("overhead")
    assert said in report_html(diagnosis)
    assert gist_text(diagnosis).count("A step is") == 1
    assert "A step is" not in report_text(training)

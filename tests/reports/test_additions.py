"""A report and a table from outside: one file (this one) and one line each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gobrrr import reports
from gobrrr.cli import main
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports import Format, Table
from gobrrr.reports.tables import Column, Row, TextTable


def render(diagnosis: Diagnosis, *, top: int | None = None, by: Sequence[str] = ()) -> bytes:
    return f"{diagnosis.regime},{diagnosis.step_s:.3f},{top},{'+'.join(by)}\n".encode()


def long_ops(diagnosis: Diagnosis, top: int) -> TextTable:
    columns = (Column("letters", number=False, flexible=True), Column("calls"))
    ops = sorted(diagnosis.ops, key=lambda op: -len(op.name))
    rows = tuple(Row((op.name.upper(), f"{op.count:.0f}")) for op in ops[:top])
    return TextTable("Ops by the length of their names", columns, rows, len(ops) - top)


@pytest.fixture
def saved(training: Diagnosis, tmp_path: Path) -> str:
    training.save(tmp_path / "step.json")
    return str(tmp_path / "step.json")


def test_a_report(saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        reports, "FORMATS", (*reports.FORMATS, Format("csv", "write one line", __name__))
    )
    out = tmp_path / "step.csv"
    assert main(["report", saved, "--csv", str(out), "--top", "3", "--by", "op"]) == 0
    assert out.read_text() == "compute,0.100,3,op\n"


def test_a_table(
    training: Diagnosis,
    saved: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        reports, "TABLES", (*reports.TABLES, Table("letters", __name__, "long_ops"))
    )
    out = tmp_path / "step.md"
    assert main(["report", saved, "--by", "letters", "--top", "2", "--markdown", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "Ops by the length of their names" in shown
    longest = max((op.name for op in training.ops), key=len).upper()
    assert longest in shown and f"{len(training.ops) - 2} more" in shown
    assert longest.replace("_", "\\_") in out.read_text()

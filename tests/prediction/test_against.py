"""A user's file of measured times: how it is read, refused and scored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gobrrr.prediction.against import AgainstRow, Measured, read_measured, scored, scored_row
from gobrrr.reports.against_table import against_text
from gobrrr.timeline.errors import InputError


def _file(folder: Path, text: str) -> Path:
    path = folder / "times.csv"
    path.write_text(text)
    return path


def test_ops_and_programs_in_any_unit(tmp_path: Path) -> None:
    text = 'program, op, us, device\n,"mm(64x32, 32x8, bf16)",21,T4\nbench.py:make,,3e3,\n'
    assert read_measured(_file(tmp_path, text)) == [
        Measured(2, "mm(64x32, 32x8, bf16)", "", "T4", pytest.approx(21e-6)),
        Measured(3, "", "bench.py:make", "", pytest.approx(3e-3)),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column named op or program"),
        ("name,ms\n", "no column named op or program"),
        ("op,time\n", "needs exactly one column of measured times, named s, ms or us: it has none"),
        ("op,ms,us\n", "it has ms and us"),
        ("op,ms,size\n", "has a column 'size'"),
        ("op,ms\n", "has no rows below its header"),
        ("op,ms\nrelu(8x8),fast\n", "line 2: 'fast' is not a number (ms)"),
        ("op,ms\nrelu(8x8),1\nrelu(8x8),0\n", "line 3: a time of 0 ms"),
        ("op,ms\nrelu(8x8),nan\n", "line 2: a time of nan ms"),
        ("op,ms\nrelu(8x8),-1\n", "line 2: a time of -1 ms"),
        ("op,ms\n,1\n", "line 2: neither op nor program"),
        ("op,program,ms\nrelu(8x8),a.py:f,1\n", "line 2: an op and a program"),
        ("op,ms\nmm(8x8, 8x8),1\n", "line 2: more cells than columns"),
        ('op,ms\n"relu(8x8,1\n', "is not a CSV file"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        read_measured(_file(tmp_path, text))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_measured(tmp_path / "none.csv")
    path = tmp_path / "binary.csv"
    path.write_bytes(b"op,ms\n\xff\xfe,1\n")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        read_measured(path)


def _row(line: int, measured_s: float, predicted_s: float, within: bool | None) -> AgainstRow:
    return AgainstRow(
        line=line, what=f"relu(8x{line})", kind="op", device="T4", measured_s=measured_s,
        predicted_s=predicted_s, low_s=None, high_s=None, within=within,
        regime="memory", because=f"arithmetic of line {line}",
    )  # fmt: skip


def test_scores_and_the_worst_rows_first() -> None:
    found = scored([_row(2, 1e-3, 1.1e-3, True), _row(3, 1e-3, 0.25e-3, False),
                    _row(4, 1e-3, 1.02e-3, None)])  # fmt: skip
    # A quarter of the time is further off than a tenth too much.
    assert [row.line for row in found.rows] == [3, 2, 4]
    (score,) = found.scores
    assert (score.rows, score.device, score.kind) == (3, "T4", "op")
    assert score.median_error == pytest.approx(0.1)
    assert score.bias == pytest.approx(0.02)
    # Between 0.1 and 0.75, at 0.8 of the way: 0.1 + 0.8 x 0.65 = 0.62
    assert score.p90_error == pytest.approx(0.62)
    assert score.within == 0.5
    text = against_text(found)
    assert "10.0 %" in text and "50 %" in text
    worst = text.split("Largest errors\n")[1]
    # Within 5 % nothing needs explaining.
    assert "line 3" in worst and "line 2" in worst and "line 4" not in worst


def test_a_column_without_intervals_is_unknown() -> None:
    found = scored([_row(2, 1e-3, 1e-3, None)], refused=["times.csv, line 3: no path"])
    assert found.scores[0].within is None
    text = against_text(found)
    assert "times.csv, line 3: no path" in text and "Largest errors" not in text


@pytest.mark.torch
def test_a_program_that_its_host_decides_has_an_interval_without_measured_kernels() -> None:
    torch = pytest.importorskip("torch")
    import gobrrr

    model = torch.nn.Linear(8, 8)
    found = gobrrr.predict((model, torch.empty(2, 8)), "M2", progress=False)
    assert found.source["host_bound"] and found.source["interval"] is None
    row = Measured(2, "", "bench.py:make", "M2", found.step_s)
    assert scored_row(row, found).within
    assert not scored_row(replace(row, seconds=100 * found.step_s), found).within

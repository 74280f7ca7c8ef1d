"""``gobrrr ceilings``, ``gobrrr devices``, ``gobrrr trace``: files in, figures out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gobrrr.cli import main

GIVEN = {
    "device": "Test device",
    "rows": {
        "matrix.float32": {"value": 206e9, "unit": "FLOP/s"},
        "memory.dram.copy": {"value": 34.1e9, "unit": "B/s", "source": "256 MiB"},
        "launch.latency": {"value": 4.2e-6, "unit": "s", "how": "measured"},
    },
}


@pytest.fixture
def given(tmp_path: Path) -> Path:
    path = tmp_path / "given.json"
    path.write_text(json.dumps(GIVEN))
    return path


def test_ceilings_from_a_file(given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ceilings", "--from", str(given)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Test device",
        "  matrix.float32       206 GFLOP/s  given: given.json",
        "  memory.dram.copy       34.1 GB/s  given: 256 MiB",
        "  launch.latency           4.20 µs  measured: given.json",
    ]


def test_ceilings_are_passed_on_as_json(given: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.json"
    assert main(["ceilings", "--from", str(given), "--json", str(again)]) == 0
    written = json.loads(again.read_text())
    assert written["rows"]["matrix.float32"]["value"] == 206e9


@pytest.mark.parametrize("command", [["ceilings", "--from"], ["trace", "t.json", "--ceilings"]])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("{", "is not a ceilings file"),
        ('{"device": "x", "rows": {"a": {"value": -1, "unit": "B/s"}}}', "not a positive number"),
    ],
)
def test_bad_ceilings_file(
    command: list[str],
    content: str | None,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "c.json"
    if content is not None:
        path.write_text(content)
    assert main([*command, str(path)]) == 2
    captured = capsys.readouterr().err
    assert message in captured and captured.count("\n") == 1


def test_devices_lists_this_one_and_the_sheets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Here: ")
    assert "\nH100-SXM " in shown


def test_one_device_with_its_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "NVIDIA H100 80GB HBM3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "H100" in lines[0]
    row = next(line for line in lines if " matrix.bfloat16 " in line)
    # Dense: the sheet's 1979 TFLOP/s are with 2:4 sparsity.
    assert "989 TFLOP/s" in row
    # Each row has the number of a source, and each number its source.
    number = row.split()[-1]
    assert next(line for line in lines if line.startswith(f"  {number} ")).count("http") == 1
    assert next(line for line in lines if " board.power " in line).split()[1:3] == ["700", "W"]
    # The sheet of this card states no base clock: unknown has no line.
    assert not any(" board.clock.base " in line for line in lines)
    assert main(["devices", "T4"]) == 0
    assert "board.clock.base" in capsys.readouterr().out


def test_a_sheet_fits_80_columns_and_says_what_predictions_make_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["devices", "RTX-3090"]) == 0
    out = capsys.readouterr().out
    # An address is not broken, however long.
    assert all(len(line) <= 80 for line in out.splitlines() if "http" not in line)
    assert "matrix and vector rates by 1.09" in " ".join(out.split())
    assert main(["devices", "H100-SXM"]) == 0
    assert "Predictions multiply" not in capsys.readouterr().out


def test_unknown_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "H1000-SXM"]) == 2
    assert (
        "no data sheet for the device 'H1000-SXM'; did you mean H100-SXM" in capsys.readouterr().err
    )


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"traceEvents": []}', b"\x1f\x8bcut"])
def test_a_trace_that_cannot_be_diagnosed(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json"
    if content is not None:
        path.write_bytes(content)
    report = tmp_path / "d.json"
    assert main(["trace", str(path), "--json", str(report)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert "t.json" in captured.err
    assert not report.exists()

"""``gobrrr predict --against``: measured times beside predicted ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gobrrr.cli import main

pytestmark = pytest.mark.torch
PROGRAM = """
import torch
from torch import nn


def make_step():
    model, x = nn.Linear(4096, 4096), torch.empty(4096, 4096)
    return lambda: model(x)
"""


def _times(folder: Path, text: str) -> str:
    path = folder / "times.csv"
    path.write_text(text)
    return str(path)


def test_ops_and_a_program_are_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "bench.py"
    program.write_text(PROGRAM)
    times = _times(
        tmp_path,
        'op,program,ms,device\n"mm(4096x4096, 4096x4096, bf16)",,0.2,\n'
        f'"add(8192x8192, 8192x8192)",,100,T4\n,{program}:make_step,3,\n',
    )
    out = tmp_path / "scored.json"
    assert main(["predict", "--against", times, "--device", "H100-SXM", "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "Largest errors" in shown and "add(8192x8192, 8192x8192) on T4" in shown
    saved = json.loads(out.read_text())
    # 805 MB take 2.5 to 5 ms on a T4, far from the 100 ms that the file claims.
    worst = saved["rows"][0]
    assert worst["line"] == 3 and worst["within"] is False
    assert 2.5e-3 < worst["predicted_s"] < 5e-3
    assert worst["low_s"] < worst["predicted_s"] < worst["high_s"] < worst["measured_s"]
    assert {(s["device"], s["kind"], s["rows"]) for s in saved["scores"]} == {
        ("H100-SXM", "op", 1), ("H100-SXM", "program", 1), ("T4", "op", 1),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "arguments", "said"),
    [
        ("op,ms\nrelu(8x8),1\n", [], "line 2: on which device?"),
        ("op,ms\nrelu(8x8),1\n", ["--device", "H100SX"], "did you mean H100-SXM"),
        ("op,ms,device\nrelu(8x8),1,H100SX\n", [], "line 2: no data sheet"),
        ("op,ms\nfoo(8x8),1\n", ["--device", "T4"], "line 2: PyTorch has no function 'foo'"),
        ("op,ms\nrelu,1\n", ["--device", "T4"], "line 2: cannot read the op 'relu'"),
        ("op,ms\nrelu(8x8),1\n", ["--device", "T4", "--explain"], "would have no effect"),
        ("op,ms\nrelu(8x8),1\n", ["--device", "T4", "--html", "a.html"], "no report of one step"),
        ("op,ms\nrelu(8x8),1\n", ["--device", "T4", "--device", "L4"], "one --device"),
        ("op,ms\nrelu(8x8),1\n", ["--device", "T4", "--op", "relu(8x8)"], "one thing to predict"),
    ],
)
def test_bad_rows_and_usage_are_one_sentence(
    rows: str, arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "--against", _times(tmp_path, rows), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gobrrr: ") and error.count("\n") == 1
    assert said in error


def test_a_row_without_a_path_on_its_device_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = _times(
        tmp_path,
        'op,ms\n"_scaled_mm(64x64:fp8, 64x64:fp8, [1], [1], fp32)",1\n"relu(4096x4096)",1\n',
    )
    assert main(["predict", "--against", times, "--device", "A100"]) == 0
    shown = capsys.readouterr().out
    assert "line 2: no matrix path for float8" in " ".join(shown.split())
    assert "relu(4096x4096)" in shown

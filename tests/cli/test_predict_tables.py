"""``gobrrr predict`` for several devices: what each of them cannot do, and what is assumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.cli import main

PROGRAM = """
import torch
from torch import nn


def in_fp8():
    a = torch.empty(64, 64, dtype=torch.float8_e4m3fn, device="cuda")
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, a.t(), one, one, out_dtype=torch.bfloat16)


def compiled_by_itself():
    model = torch.compile(nn.Linear(64, 64, device="cuda"), mode="max-autotune")
    x = torch.randn(8, 64, device="cuda")
    return lambda: model(x)
"""
FP8 = "no matrix path for float8_e4m3fn on "

pytestmark = pytest.mark.torch


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "bench.py"
    path.write_text(PROGRAM)
    monkeypatch.setenv("COLUMNS", "200")
    return str(path)


def test_a_device_without_the_dtype_has_a_sentence_and_the_others_their_rows(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = ["--device", "H100-SXM", "--device", "A100-SXM-80GB", "--device", "T4"]
    path = tmp_path / "d.json"
    assert main(["predict", f"{program}:in_fp8", *devices, "--json", str(path)]) == 0
    table = capsys.readouterr().out
    assert [line.split()[0] for line in table.splitlines()[:2]] == ["device", "H100-SXM"]
    assert f"No prediction: {FP8}A100-SXM-80GB, T4: _scaled_mm raises there" in table
    assert [found.name for found in tmp_path.glob("d*.json")] == ["d-H100-SXM.json"]


def test_a_step_is_refused_only_if_no_device_has_the_dtype(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", f"{program}:in_fp8", "--device", "A100-SXM-80GB"]) == 2
    assert capsys.readouterr().err.startswith(f"gobrrr: {FP8}A100-SXM-80GB: _scaled_mm raises")
    devices = ["--device", "A100-SXM-80GB", "--device", "T4"]
    assert main(["predict", f"{program}:in_fp8", *devices]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"gobrrr: none of the 2 devices can run the step: {FP8}A100-SXM-80GB")
    assert error.count("\n") == 1


def test_a_program_that_compiles_itself_is_told_to_be_predicted_as_eager_code(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["predict", f"{program}:compiled_by_itself", "--device", "H100-SXM"]
    for several in ([], ["--device", "T4"]):
        assert main([*arguments, *several]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert said.count("compiles with torch.compile is predicted as eager code") == 1
        assert said.count("--compile predicts the compiled kernels") == 1
        assert main([*arguments, *several, "--compile"]) == 0
        assert "eager code" not in capsys.readouterr().out

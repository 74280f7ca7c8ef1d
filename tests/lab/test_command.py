"""The command from end to end, with the experiments that take no time."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.cli import main
from gobrrr.lab.storage import load_outcome

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_an_experiment_writes_its_result_and_its_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert main(["lab", "generations", "--device", "cpu", "--out", str(tmp_path / "new")]) == 0
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["generations.json", "generations.png", "generations.svg"]
    outcome = load_outcome(tmp_path / "new" / "generations.json")
    assert (outcome.state, outcome.environment["torch"]) == ("complete", torch.__version__)
    out = capsys.readouterr().out
    assert "HOLDS: Compute grows faster than bandwidth" in out
    assert "article  it doubles more often" in out


def test_without_matplotlib_the_numbers_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gobrrr.lab.running.plots_possible", lambda: False)
    assert main(["lab", "generations", "--device", "cpu", "--out", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["generations.json"]
    assert "matplotlib is not installed (pip install 'gobrrr[lab]')" in capsys.readouterr().out


def test_without_a_compiler_an_experiment_is_skipped_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gobrrr.lab.compiled.compiler", lambda: None)
    assert main(["lab", "activations", "--device", "cpu", "--out", str(tmp_path)]) == 2
    assert "needs a C++ compiler on a CPU (install g++)" in capsys.readouterr().err
    assert load_outcome(tmp_path / "activations.json").state == "skipped"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "generations", "--device", "cuda"]) == 2
    assert "torch sees no GPU here" in capsys.readouterr().err


def test_a_file_where_the_folder_should_be_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "taken"
    path.write_text("")
    assert main(["lab", "generations", "--device", "cpu", "--out", str(path)]) == 2
    assert "is not a folder" in capsys.readouterr().err

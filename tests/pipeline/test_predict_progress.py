"""What a prediction tells while it works."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import gobrrr  # noqa: E402


def long_step() -> torch.Tensor:
    x = torch.randn(64)
    for _ in range(600):
        x = x * 2
    return x


def test_a_function_is_told_what_is_going_on() -> None:
    told: list[str] = []
    gobrrr.predict(long_step, "H100-SXM", progress=lambda phase, *_: told.append(phase))
    assert told == ["capturing the step", "capturing the step, 500 ops", "predicting 601 ops"]


def test_stderr_hears_of_what_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gobrrr.measure import progress

    monkeypatch.setattr(progress, "SILENT_S", 0.0)
    gobrrr.predict(long_step, "H100-SXM")
    assert "gobrrr: capturing the step" in capsys.readouterr().err
    gobrrr.predict(long_step, "H100-SXM", progress=False)
    assert not capsys.readouterr().err

"""Whose error it is: the program's, or gobrrr's own."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_what_only_fails_under_gobrrr_is_not_the_users_error() -> None:
    from gobrrr.capture.session import Plan
    from gobrrr.pipeline.live import measure_step
    from gobrrr.timeline.errors import DefectError, UserCodeError

    x = torch.randn(4)

    def dislikes_modes() -> Any:
        if torch._C._len_torch_dispatch_stack():
            raise TypeError("no modes here")
        return x + 1

    with pytest.raises(DefectError) as raised:
        measure_step(dislikes_modes, Plan(warmup=1, steps=2))
    assert str(raised.value) == (
        "gobrrr could not measure this step: while recording ops it failed with TypeError: "
        "no modes here; without gobrrr it runs"
    )
    assert raised.value.exit_code == 2
    assert not isinstance(raised.value, UserCodeError)
    assert torch._C._len_torch_dispatch_stack() == 0


def test_what_fails_by_itself_is() -> None:
    from gobrrr.capture.session import Plan
    from gobrrr.pipeline.live import measure_step
    from gobrrr.timeline.errors import UserCodeError

    steps = []

    def later() -> Any:
        steps.append(1)
        if len(steps) >= 2:
            raise ValueError("later")
        return torch.ones(2)

    with pytest.raises(UserCodeError, match="the step raised ValueError: later") as raised:
        measure_step(later, Plan(warmup=1, steps=2))
    assert isinstance(raised.value.__cause__, ValueError)
    assert raised.value.exit_code == 3


def test_an_analysis_that_fails_says_so_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from gobrrr.capture.session import Plan
    from gobrrr.devices.ceilings import Ceilings
    from gobrrr.pipeline import live
    from gobrrr.timeline.errors import DefectError

    def broken(*_: Any) -> Any:
        raise IndexError("list index out of range")

    monkeypatch.setattr(live, "analyse_cpu", broken)
    ceilings = Ceilings.__new__(Ceilings)
    with pytest.raises(DefectError, match="a defect of gobrrr and not of the program: IndexError"):
        live.diagnose_work(
            lambda: torch.ones(2), Plan(1, 2), ceilings, None, lambda *_: None
        )  # fmt: skip


def test_the_recorder_never_raises_into_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from gobrrr.capture import op_recorder

    def broken(*_: Any) -> Any:
        raise KeyError("describe")

    monkeypatch.setattr(op_recorder, "describe_arguments", broken)
    recorder = op_recorder.OpRecorder()
    with recorder:
        result = torch.ones(3) + 1
    assert result.tolist() == [2.0, 2.0, 2.0]
    assert recorder.ops == []
    assert recorder.failures["aten::add"] == "KeyError: 'describe'"

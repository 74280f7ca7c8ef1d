"""What is not public in PyTorch is looked for, and done without."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.cli import doctor, main
from gobrrr.devices.accelerator import profiler_runs
from gobrrr.live.profiles import profile
from gobrrr.observe import op_recorder
from gobrrr.observe.private_names import FOR_RECORDING, lacking

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_this_torch_has_them_all() -> None:
    assert lacking() == ()


@pytest.mark.parametrize("name", FOR_RECORDING)
def test_each_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Imports what holds them: torch itself needs these names to be imported.
    assert lacking() == ()
    monkeypatch.delattr(name)
    assert lacking() == (name,)


def step() -> Any:
    x = torch.ones(200, 200)
    return lambda: (x @ x).relu().sum()


def test_a_step_on_a_processor_is_timed_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import gobrrr

    monkeypatch.setattr(op_recorder, "lacking", lambda: ("torch._C._current_autograd_node",))
    found = gobrrr.diagnose(step(), warmup=1, steps=4, batch_test=False, progress=False)
    found.check()
    # (On a machine that others use, that is said first.)
    assert any(
        notice.startswith(
            "The ops of this step could not be recorded (this PyTorch has no "
            "torch._C._current_autograd_node): its time was measured"
        )
        for notice in found.notices
    )
    assert {op.name for op in found.ops} >= {"aten::matmul", "aten::relu"}


def test_a_profiler_whose_state_is_private_is_taken_to_be_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert profiler_runs() is False
    newer = SimpleNamespace(autograd=SimpleNamespace())
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch", newer)
        assert profiler_runs() is None
    monkeypatch.setattr(profile, "profiler_runs", lambda: None)
    profiler = profile.HostProfiler()
    profiler.start()
    assert not profiler.interrupted
    torch.ones(2) + 1
    profiler.mark()
    assert len(profiler.stop()) == 1


def test_the_doctor_names_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "lacking", lambda: ("torch._C._current_autograd_node",))
    main(["doctor"])
    assert "torch._C._current_autograd_node" in capsys.readouterr().out

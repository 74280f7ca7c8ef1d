"""A process that holds tensors of a GPU while its steps compute on the processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from gobrrr.live.measurements import Measurements, Plan  # noqa: E402
from gobrrr.live.profiles.device_profile import StepsOnDevice  # noqa: E402
from gobrrr.pipeline.live import diagnose_work  # noqa: E402
from gobrrr.pipeline.script import diagnose_script  # noqa: E402
from gobrrr.timeline.data import Phase  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402
from gobrrr.timeline.graph import StepOp  # noqa: E402
from gobrrr.timeline.names import GRAPH_REPLAY  # noqa: E402
from gobrrr.timeline.ops import OpCall, TensorSpec  # noqa: E402
from simulated_device import Accelerator, SimulatedBackend, slow  # noqa: E402
from simulated_device.backend import ceilings_of  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000


def held(monkeypatch: pytest.MonkeyPatch) -> tuple[Accelerator, Any]:
    """A device that holds a tensor."""
    gpu = Accelerator(table=slow(5 * US))
    SimulatedBackend(gpu).install(monkeypatch)
    with gpu:
        tensor = torch.ones(8) + 1
    assert gpu.used
    return gpu, tensor


def test_steps_on_the_processor_are_diagnosed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, _tensor = held(monkeypatch)
    x = torch.ones(64, 64)
    phases = []

    def phase(name: str, done: int, wanted: int) -> None:
        phases.append(name)

    done = diagnose_work(
        lambda: [torch.mm(x, x) for _ in range(20)], Plan(steps=4), ceilings_of(gpu), None, phase
    )
    found = done.diagnosis
    assert found.device.kind == "cpu"
    assert done.measured.device_timeline is None and done.measured.profiled
    assert [row.name for row in found.ops if row.name == "aten::mm"] == ["aten::mm"]
    said = " ".join(found.notices)
    assert "NVIDIA Simulated holds tensors of this process" in said
    assert "holds none" not in said
    # Measured anew, once.
    assert phases.count("warm-up") > 3


SCRIPT = """
import torch

x = torch.ones(64, 64)
net = torch.nn.Linear(64, 64)
for _ in range(60):
    with torch.no_grad():
        net(x)
"""


def test_a_script_s_steps_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu, _tensor = held(monkeypatch)
    ceilings = ceilings_of(gpu)
    monkeypatch.setattr("gobrrr.pipeline.measured.load_ceilings", lambda **_: ceilings)
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    ended = diagnose_script("train.py", [], steps=4)
    assert ended.problem is None
    assert ended.diagnosis is not None and ended.diagnosis.device.kind == "cpu"


def recorded(*calls: OpCall) -> Measurements:
    """Profiled steps without anything of a device, and what was recorded of them."""
    import numpy as np

    from gobrrr.timeline.data import Device, Timeline, no_kernels, no_spans

    timeline = Timeline(
        (), (), no_spans(), no_kernels(), np.empty((0, 2), np.int64), (), Device("", "cpu")
    )
    ops = [StepOp(call, "", "", Phase.FORWARD, 1, 0, 0, 0, 0) for call in calls]
    return Measurements(device_timeline=timeline, recorded=ops)


def test_ops_tell_where_the_profiler_may_not_look() -> None:
    here = OpCall("aten::add", (TensorSpec((8,), "float32", device="cpu"),))
    there = OpCall("aten::add", (TensorSpec((8,), "float32", device="cuda:1"),))
    made = OpCall("aten::ones", (), (TensorSpec((8,), "float32", device="cuda:0"),))
    alone = StepsOnDevice.left_alone_in
    assert alone(recorded(here, here))
    assert not alone(recorded(here, there))
    assert not alone(recorded(here, made))
    assert not alone(recorded(here, OpCall(GRAPH_REPLAY)))
    # Nothing is known of steps whose ops could not be recorded.
    unknown = recorded(here)
    unknown.recorded = None
    assert not alone(unknown)


def test_a_library_that_is_missing_is_not_taken_for_a_permission(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gobrrr.live.profiles import device_trouble

    gpu, _tensor = held(monkeypatch)
    backend = SimulatedBackend(gpu)
    measured = recorded()
    with pytest.raises(InputError, match="CUPTI, NVIDIA's library for profilers, did not start"):
        device_trouble.found(measured, backend)

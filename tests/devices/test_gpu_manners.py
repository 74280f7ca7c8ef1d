"""What gobrrr may not do to a program on a real GPU: these need one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.devices.accelerator import EventTimer, free_bytes  # noqa: E402
from gobrrr.devices.backends import identify  # noqa: E402
from gobrrr.live.measurements import Plan  # noqa: E402
from gobrrr.observe import snapshot  # noqa: E402
from gobrrr.pipeline.live import diagnose_work  # noqa: E402
from gobrrr.pipeline.script import diagnose_script  # noqa: E402
from simulated_device import Accelerator  # noqa: E402
from simulated_device.backend import ceilings_of  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

CAPTURED = """
import torch

net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]).cuda()
optimizer = torch.optim.Adam(net.parameters(), capturable=True)
x = torch.randn(64, 256, device="cuda")


def train():
    net(x).square().mean().backward()
    optimizer.step()


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(WARM):
        optimizer.zero_grad(set_to_none=True)
        train()
torch.cuda.current_stream().wait_stream(side)
optimizer.zero_grad(set_to_none=True)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    train()
for _ in range(120):
    graph.replay()
torch.cuda.synchronize()
print("trained")
"""


# The capture comes while gobrrr warms up, times, records and profiles.
@pytest.mark.parametrize("warm", [3, 10, 14, 18, 24])
def test_a_captured_training_step_is_captured(
    warm: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ceilings = ceilings_of(Accelerator())
    monkeypatch.setattr("gobrrr.pipeline.measured.ceilings_for_this_machine", lambda **_: ceilings)
    (tmp_path / "train.py").write_text(CAPTURED.replace("WARM", str(warm)))
    monkeypatch.chdir(tmp_path)
    ended = diagnose_script("train.py", [], steps=10)
    assert "trained" in capsys.readouterr().out
    assert ended.exit.code == 0 and ended.problem is None
    assert ended.diagnosis is not None
    assert "one replay of a CUDA graph" in ended.diagnosis.step.what


def test_steps_of_the_processor_are_told_as_such() -> None:
    held = torch.ones(8, device="cuda")
    x = torch.ones(128, 128)

    def step() -> Any:
        return [torch.mm(x, x) for _ in range(20)]

    ceilings = ceilings_of(Accelerator())
    found = diagnose_work(step, Plan(steps=4), ceilings, None, lambda *_: None).diagnosis
    assert found.device.kind == "cpu" and held.is_cuda


def test_copies_of_much_of_the_device_are_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    state = torch.zeros(1 << 28, dtype=torch.uint8, device="cuda")
    free = free_bytes(state.device)
    assert free is not None and 0 < free < torch.cuda.get_device_properties(0).total_memory
    monkeypatch.setattr(snapshot, "free_bytes", lambda device: 1 << 30)
    held = torch.cuda.memory_allocated()
    notices: list[str] = []
    with snapshot.state_put_back((state,), notices):
        assert torch.cuda.memory_allocated() == held
        state.fill_(7)
    assert notices == [] and int(state.max()) == 0


def test_events_agree_with_the_clock() -> None:
    x = torch.randn(2048, 2048, device="cuda")
    timer = EventTimer("cuda")
    # The first products load their library.
    for _ in range(2):
        timer.start_block()
        for _ in range(10):
            for _ in range(10):
                torch.mm(x, x)
            timer.mark()
        lengths = timer.end_block()
    assert len(lengths) == 10 and max(lengths) < 3 * min(lengths)
    found = identify("gpu")
    assert found.name == torch.cuda.get_device_name(0) and found.index == 0

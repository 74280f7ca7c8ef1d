"""What stands beside the steps of a GPU: as long as on its clock, though the host is ahead."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import gobrrr  # noqa: E402
from simulated_device import Accelerator, Kernel, Op, SimulatedBackend  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000


def product_of_100_us(op: Op) -> tuple[Kernel, ...] | None:
    return (Kernel("gemm", 100 * US),) if op.name == "aten::addmm" else (Kernel("other", 1),)


def test_an_evaluation_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Accelerator(table=product_of_100_us)
    SimulatedBackend(gpu).install(monkeypatch)
    model = torch.nn.Linear(8, 8).requires_grad_(False)
    x = torch.ones(4, 8)
    model.weight.requires_grad_(True)
    ran: list[int] = []

    def step() -> Any:
        ran.append(1)
        if len(ran) % 8 == 0:
            model.eval()
            with torch.no_grad():
                for _ in range(20):
                    model(x)
            gpu.synchronise()
            model.train()
        for _ in range(4):
            loss = model(x)
        return loss

    with gpu:
        found = gobrrr.diagnose(step, steps=32, progress=False)
    wall = found.wall
    assert wall is not None
    (part,) = wall.parts
    # Twenty products beside four: the device does nothing else in either.
    assert part.name == "evaluation" and part.time_s == pytest.approx(2e-3, rel=0.02)
    assert part.source is not None and "test_wall_time.py" in part.source
    assert part.per_step == pytest.approx(1 / 8, rel=0.3)
    assert found.step.time_s.median == pytest.approx(400e-6, rel=0.02)
    step_s, often = 400e-6, part.per_step
    assert wall.steps_share == pytest.approx(step_s / (step_s + often * part.time_s), rel=0.03)

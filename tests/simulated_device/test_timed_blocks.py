"""Steps timed on a device: those of a full queue, and those that a user's program has alone."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import gobrrr  # noqa: E402
from simulated_device import Accelerator, SimulatedBackend, slow  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000


@pytest.mark.parametrize("steps", [12, 16])
def test_a_step_that_fills_the_queue_is_not_told_beside_enough_others(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The host takes half as long as the device, which waits for it as each block begins.
    x = torch.ones(32, 32)
    gpu = Accelerator(table=slow(1000 * US))
    SimulatedBackend(gpu).install(monkeypatch)

    def step() -> Any:
        gpu.python(500 * US)
        return torch.mm(x, x)

    with gpu:
        found = gobrrr.diagnose(step, steps=steps, progress=False)
    told = found.step.samples_s
    assert found.step.time_s.median == pytest.approx(1e-3, rel=1e-6)
    assert sum(length_s > 1.4e-3 for length_s in told) == (2 if steps == 12 else 0)
    assert len(told) == (12 if steps == 12 else 14)
    assert len(found.step.slow_steps) == (2 if steps == 12 else 0)

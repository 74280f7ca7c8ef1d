"""What a GPU's allocator asks of the driver, and what a profiler leaves behind, in live steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.devices.backend import DriverCalls  # noqa: E402
from gobrrr.diagnosis.schema import Diagnosis  # noqa: E402
from gobrrr.live.measurements import Plan  # noqa: E402
from gobrrr.pipeline.live import diagnose_work  # noqa: E402
from simulated_device import Accelerator, SimulatedBackend, slow  # noqa: E402
from simulated_device.backend import ceilings_of  # noqa: E402
from simulated_device.machine import MAIN  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000


def diagnosed(
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Accelerator, SimulatedBackend], Callable[[], Any]],
) -> Diagnosis:
    gpu = Accelerator(table=slow(50 * US))
    backend = SimulatedBackend(gpu).install(monkeypatch)
    step = make(gpu, backend)
    with gpu:
        return diagnose_work(
            step, Plan(steps=24), ceilings_of(gpu), None, lambda *_: None
        ).diagnosis


def test_an_allocator_without_room_is_a_cause_with_its_own_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(gpu: Accelerator, backend: SimulatedBackend) -> Callable[[], Any]:
        x = torch.ones(8, 8)

        def step() -> None:
            torch.mm(x, x)
            for name in ("Free", "Malloc"):
                start_ns = gpu.machine.now_ns
                gpu.machine.advance(250 * US)
                gpu.machine.host_event("cuda_runtime", f"cuda{name}", start_ns, MAIN)
            retries, allocations = gpu.driver_calls
            gpu.driver_calls = DriverCalls(retries + 1, allocations + 2)
            torch.mm(x, x)

        return step

    found = diagnosed(monkeypatch, make)
    assert found.counters["allocator_retries"] == 1.0
    assert found.counters["driver_allocations"] == 2.0
    (finding,) = (each for each in found.findings if each.fix == "allocator_retries")
    assert finding.prediction is not None
    assert 0.0 < finding.prediction.expected_s <= found.leaves["overhead.allocation"]
    assert "expandable_segments:True" in finding.remedy
    assert "out=" not in found.verdict


@pytest.mark.parametrize("more_us", [0, 40])
def test_steps_that_are_slower_after_the_profile_are_told(
    more_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(gpu: Accelerator, backend: SimulatedBackend) -> Callable[[], Any]:
        x = torch.ones(8, 8)

        def step() -> None:
            torch.mm(x, x)
            gpu.python((200 + (more_us if backend.traces else 0)) * US)

        return step

    notices = [n for n in diagnosed(monkeypatch, make).notices if "since the profiler" in n]
    assert len(notices) == (more_us > 0)
    assert all("slower since the profiler was used" in notice for notice in notices)

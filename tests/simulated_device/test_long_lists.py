"""Operators on lists that are too long for the profiler to write their shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import gobrrr  # noqa: E402
from simulated_device import NVIDIA, Accelerator, SimulatedBackend  # noqa: E402
from simulated_device.traces import LONGEST_LIST  # noqa: E402

pytestmark = pytest.mark.torch


def test_an_update_of_many_tensors_is_modelled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    gpu = Accelerator(NVIDIA)
    SimulatedBackend(gpu).install(monkeypatch)
    tensors = [torch.ones(64) for _ in range(LONGEST_LIST + 10)]

    def step() -> None:
        torch._foreach_mul_(tensors, 0.5)

    with gpu:
        found = gobrrr.diagnose(step, steps=6, progress=False, restore=False)
    (row,) = [op for op in found.ops if op.name == "aten::_foreach_mul_"]
    assert row.bytes == 2 * 64 * 4 * len(tensors)

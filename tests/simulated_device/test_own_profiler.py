"""A program on a GPU that has a profiler of its own keeps it; gobrrr says why it has no parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from gobrrr.live.measurements import Plan  # noqa: E402
from gobrrr.pipeline.live import diagnose_work  # noqa: E402
from gobrrr.pipeline.script import diagnose_script  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402
from simulated_device import Accelerator, SimulatedBackend, slow  # noqa: E402
from simulated_device.backend import ceilings_of  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000
OWN_PROFILER = """
import torch
from torch.profiler import profile, schedule
x = torch.ones(8, 8)
# Its turn comes after gobrrr's would.
with profile(schedule=schedule(wait=1000, warmup=1, active=3)) as own:
    for _ in range(60):
        torch.mm(x, x)
        own.step()
"""


def test_a_script_that_steps_a_profiler_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu = Accelerator(table=slow(5 * US))
    backend = SimulatedBackend(gpu).install(monkeypatch)
    (tmp_path / "own.py").write_text(OWN_PROFILER)
    monkeypatch.chdir(tmp_path)
    with gpu:
        ended = diagnose_script("own.py", [], steps=6)
    assert ended.exit.code == 0 and ended.diagnosis is None
    assert ended.problem is not None and "profiler of its own" in ended.problem
    assert not backend.traces


def test_a_profiler_that_the_step_ends_by_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(8, 8)
    gpu = Accelerator(table=slow(5 * US))
    backend = SimulatedBackend(gpu).install(monkeypatch)
    made = backend.profiler

    def interrupted() -> Any:
        profiler = made()
        profiler.interrupted = True
        return profiler

    monkeypatch.setattr(backend, "profiler", interrupted)
    with gpu, pytest.raises(InputError, match="the program runs a profiler of its own"):
        diagnose_work(
            lambda: torch.mm(x, x), Plan(steps=6), ceilings_of(gpu), None, lambda *_: None
        )
    assert not backend.traces

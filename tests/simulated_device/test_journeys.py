"""Whole journeys on the simulated device: run-ahead, traces, scripts, batches, memory, trouble."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch")
import gobrrr  # noqa: E402
from gobrrr.live.measurements import Plan  # noqa: E402
from gobrrr.pipeline.live import Diagnosed, diagnose_work  # noqa: E402
from gobrrr.pipeline.script import diagnose_script  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402
from gobrrr.verification.memory import device_peak_bytes, step_peak_bytes  # noqa: E402
from simulated_device import (  # noqa: E402
    AMD,
    NVIDIA,
    Accelerator,
    HostCosts,
    SimulatedBackend,
    Vendor,
    slow,
)
from simulated_device import programs as made  # noqa: E402
from simulated_device.backend import ceilings_of  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000


def diagnosed(gpu: Accelerator, step: Any, steps: int = 6) -> Diagnosed:
    with gpu:
        return diagnose_work(step, Plan(steps=steps), ceilings_of(gpu), None, lambda *_: None)


def test_a_host_that_runs_ahead_of_whole_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two kernels of 1 ms: the host has issued every step before the device has done the first.
    x = torch.ones(32, 32)
    gpu = Accelerator(table=slow(1000 * US))
    SimulatedBackend(gpu).install(monkeypatch)
    done = diagnosed(gpu, lambda: torch.mm(torch.mm(x, x), x))
    found = done.diagnosis
    assert found.step.time_s.median == pytest.approx(2e-3)
    # All but the fixed cost, 2 us each, is the products'.
    busy = sum(v for k, v in found.leaves.items() if k.startswith(("compute.", "memory.")))
    assert busy == pytest.approx(2e-3 - 4e-6)
    assert found.leaves["overhead.kernel_fixed_cost"] == pytest.approx(4e-6)
    assert found.step.kernel_scale == pytest.approx(1.0)
    assert [row.count for row in found.ops] == [2.0]


@pytest.mark.parametrize("beside", ["copy on a second stream", "memset without a launch"])
def test_work_that_runs_long_before_the_kernels_of_its_step(
    beside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ten kernels of 100 us, issued in a tenth of that: the next step's copy has run by then.
    x = torch.ones(32, 32)
    gpu = Accelerator(table=slow(100 * US))
    SimulatedBackend(gpu).install(monkeypatch)
    batch = gpu.on_host(torch.ones(32, 32))

    def step() -> None:
        if beside.startswith("copy"):
            with gpu.stream(2, waits=False):
                gpu.to_device(batch, 5 * US)
        else:
            # No call has this number.
            gpu.machine.run("Memset (Device)", 5 * US, "", 10**9, cat="gpu_memset", bytes=4096)
        for _ in range(10):
            torch.mm(x, x)

    done = diagnosed(gpu, step)
    found = done.diagnosis
    assert found.step.time_s.median == pytest.approx(1e-3, rel=0.01)
    assert found.split.overhead_s < 0.05 * found.step.time_s.median
    (products,) = [row for row in found.ops if row.name == "aten::mm"]
    assert (products.count, products.time_s) == (10.0, pytest.approx(1e-3, rel=0.03))
    timeline = done.measured.device_timeline
    assert timeline is not None
    lengths_ns = timeline.steps[:, 1] - timeline.steps[:, 0]
    assert lengths_ns.tolist() == pytest.approx([1_000_000] * len(lengths_ns), rel=0.01)


def test_steps_that_take_streams_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(32, 32)
    gpu = Accelerator(table=slow(100 * US))
    SimulatedBackend(gpu).install(monkeypatch)
    done = [0]

    def step() -> None:
        done[0] += 1
        with gpu.stream(2 + done[0] % 2):
            for _ in range(10):
                torch.mm(x, x)

    (products,) = [row for row in diagnosed(gpu, step).diagnosis.ops if row.name == "aten::mm"]
    # Steps on two streams overlap: at the ends of the profile more of one runs in another's window.
    assert products.count == pytest.approx(10.0, rel=0.15)


def test_a_host_that_waits_for_the_device_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    # The host waits in every third step, for the kernels of those before, too.
    model = torch.nn.Linear(8, 8)
    gpu = Accelerator(table=slow(100 * US))
    SimulatedBackend(gpu).install(monkeypatch)
    done = [0]

    def step() -> None:
        done[0] += 1
        model(torch.ones(4, 8))
        if done[0] % 3 == 0:
            time.sleep(0.05)

    found = diagnosed(gpu, step, steps=20).diagnosis
    assert found.device.kind == "cuda"
    assert found.wall is not None and found.wall.parts == ()


# What only one of the two can know, and why. Everything else is the same.
KNOWN_TO_ONE = {
    "environment": "live: this machine and its versions; a trace: what it says of itself",
    "source": "live: the function's name; a trace: the file's",
    "step": "live: times without the profiler; a trace: its windows alone",
    "modules": "live: paths of attributes; a trace: classes and numbers of calls",
    "lines": "live: the line that ran; a trace: that of its function's def",
    "idle": "the same lines: they name the causes",
    "timeline": "which of the steps is drawn, with the names of modules and lines",
    "notices": "live: on the measurement; a trace: on the recording",
    "device_time": "sums over the windows: a trace has those of its first and last step too",
    "wall": "live: what stands beside steps; a trace: steps alone",
    "untried": "live: the fixes that could be tried on the program; a trace has none",
    "findings": "live: the storages that ops share, and the lines that ran; a trace: their order",
}
# The same of rows: by what they are, and what they may differ in.
OF_ROWS = {"module", "source"}


@pytest.mark.parametrize("vendor", [NVIDIA, AMD])
def test_live_and_a_trace_of_the_same_steps(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu = Accelerator(vendor, table=slow(20 * US))
    backend = SimulatedBackend(gpu).install(monkeypatch)
    backend.with_stack = True
    live = diagnosed(gpu, made.Training(after_step=gpu.synchronise)).diagnosis
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(backend.traces[-1]))
    traced = gobrrr.diagnose_trace(path, ceilings=ceilings_of(gpu))
    one, other = (msgspec.to_builtins(item) for item in (live, traced))
    assert one.keys() == other.keys()
    step_s = one["step"]["time_s"]["median"]
    differ = {
        key: list(differences(one[key], other[key], step_s, key))
        for key in one
        if key not in KNOWN_TO_ONE
    }
    assert {key: told for key, told in differ.items() if told} == {}
    # Of what differs in names, the figures are the same.
    assert one["step"]["time_s"]["median"] == pytest.approx(other["step"]["time_s"]["mean"], 1e-3)
    for found in (live, traced):
        assert found.step.profiled_steps >= 3
    for cause in {row.cause for found in (live, traced) for row in found.idle}:
        held = [sum(r.time_s for r in found.idle if r.cause == cause) for found in (live, traced)]
        assert held[0] == pytest.approx(held[1], abs=1e-3 * step_s), cause
    for table in ("modules", "lines"):
        times = [sorted(row.time_s for row in getattr(found, table)) for found in (live, traced)]
        assert sum(times[0]) == pytest.approx(sum(times[1]), rel=1e-3), table
    assert len(live.modules) == len(traced.modules)
    busy = [found.device_time.busy_s / found.device_time.window_s for found in (live, traced)]
    # The last window of a recording ends with its last kernel.
    assert busy[0] == pytest.approx(busy[1], abs=5e-3)


def differences(one: Any, other: Any, step_s: float, where: str) -> Iterator[str]:
    """Places where two records differ, by more than a thousandth of the step where they count."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other} - OF_ROWS):
            yield from differences(one.get(key), other.get(key), step_s, f"{where}.{key}")
    elif isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            yield f"{where}: {len(one)} and {len(other)} rows"
        for i, (a, b) in enumerate(zip(sorted(one, key=_which), sorted(other, key=_which))):
            yield from differences(a, b, step_s, f"{where}[{i}]")
    elif isinstance(one, float) and isinstance(other, float):
        # A recording of n steps has n windows but for what leads to its first kernel.
        if one != pytest.approx(other, rel=1e-3, abs=1e-3 * step_s):
            yield f"{where}: {one} and {other}"
    elif one != other:
        yield f"{where}: {one!r} and {other!r}"


def _which(row: Any) -> str:
    """What a row is of: two that are alike otherwise are in the order of their time."""
    if not isinstance(row, dict):
        return str(row)
    own = {key: row[key] for key in row if isinstance(row[key], str) and key not in OF_ROWS}
    return f"{sorted(own.items())} {row.get('time_s', 0.0):.9f}"


def test_twice_the_batch_on_a_device_that_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    # Rates of the device, so that the kernels grow as their work does.
    gpu = Accelerator(NVIDIA, HostCosts(python=100, dispatch=100, returning=0, launch=100))
    SimulatedBackend(gpu).install(monkeypatch)
    model = torch.nn.Sequential(*(torch.nn.Linear(128, 128, bias=False) for _ in range(3)))
    work = Workload(model, torch.randn(2048, 128))
    with gpu:
        found = gobrrr.diagnose(
            work, steps=6, batch_test=True, ceilings=ceilings_of(gpu), progress=False
        )
    growth = found.batch_doubling
    assert growth is not None and growth.agrees
    # 2 us of each kernel are fixed, and weights do not grow: 1.9 times the time or so.
    assert growth.ratio == pytest.approx(growth.expected_s / growth.time_s.median, rel=0.05)
    assert 1.3 < growth.ratio < 2.0
    assert [row.name for row in growth.ops] == ["aten::mm"]


def test_twice_the_batch_on_a_device_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Accelerator()
    SimulatedBackend(gpu).install(monkeypatch)
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(5)))
    with gpu:
        found = gobrrr.diagnose(
            Workload(model, torch.randn(8, 32)), steps=6, batch_test=True,
            ceilings=ceilings_of(gpu), progress=False,
        )  # fmt: skip
    growth = found.batch_doubling
    assert growth is not None and growth.agrees and growth.ratio == pytest.approx(1.0, abs=0.01)


def test_peak_memory_is_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(1000)
    gpu = Accelerator()
    SimulatedBackend(gpu).install(monkeypatch)

    def step() -> Any:
        return (x + 1) * 2

    with gpu:
        kept = x * 3
        # What lives, and two results of 4 kB at once; of the step alone those two.
        assert device_peak_bytes(step) == 12_000
        assert step_peak_bytes(step) == 8_000
    assert kept is not None


SCRIPT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.ones(8, 16)
for _ in range(60):
    optimizer.zero_grad()
    loss = model(data).mean()
    loss.backward()
    optimizer.step()
"""


def test_a_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    gpu = Accelerator(table=slow(5 * US))
    backend = SimulatedBackend(gpu).install(monkeypatch)
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    with gpu:
        ended = diagnose_script("train.py", [], steps=6, refresh_ceilings=True)
    assert ended.problem is None and ended.diagnosis is not None
    assert ended.diagnosis.device.name == NVIDIA.device and backend.measured == 1
    lines = {row.name.rpartition(":")[2] for row in ended.diagnosis.lines if row.name}
    assert {"8 in <module>", "10 in <module>"} <= lines
    phases = {row.name for row in ended.diagnosis.phases}
    assert {"forward", "backward", "optimizer"} <= phases

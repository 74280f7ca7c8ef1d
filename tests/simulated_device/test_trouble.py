"""What can go wrong with a GPU: a clear sentence and its exit code each, or the right figures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from gobrrr.attribution.device.run import DeviceAnalysis  # noqa: E402
from gobrrr.cli import main  # noqa: E402
from gobrrr.devices import backends  # noqa: E402
from gobrrr.devices.card import CardState, OtherProcess  # noqa: E402
from gobrrr.diagnosis.assemble import TAKEN_AWAY  # noqa: E402
from gobrrr.diagnosis.schema import Diagnosis  # noqa: E402
from gobrrr.diagnosis.storage import load  # noqa: E402
from gobrrr.fixes.gathering.gather import facts_of  # noqa: E402
from gobrrr.live.measurements import Plan  # noqa: E402
from gobrrr.measure.load import LoadReading  # noqa: E402
from gobrrr.pipeline.live import Diagnosed, diagnose_work  # noqa: E402
from gobrrr.pipeline.script import diagnose_script  # noqa: E402
from gobrrr.reports.terminal import Options, report_text  # noqa: E402
from gobrrr.timeline.errors import InputError, UserCodeError  # noqa: E402
from simulated_device import AMD, NVIDIA, Accelerator, SimulatedBackend, Vendor, slow  # noqa: E402
from simulated_device.backend import ceilings_of  # noqa: E402
from simulated_device.places import lines  # noqa: E402
from simulated_device.programs import line_of  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000


def diagnosed(gpu: Accelerator, step: Any, steps: int = 6) -> Diagnosed:
    with gpu:
        return diagnose_work(step, Plan(steps=steps), ceilings_of(gpu), None, lambda *_: None)


def test_a_profiler_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(8, 8)
    told = ((NVIDIA, "NVreg_RestrictProfilingToAdminUsers"), (AMD, "groups render and video"))
    for vendor, word in told:
        gpu = Accelerator(vendor, table=slow(5 * US))
        SimulatedBackend(gpu).install(monkeypatch).kernels_hidden = True
        with pytest.raises(InputError, match=word) as raised:
            diagnosed(gpu, lambda: [torch.mm(x, x) for _ in range(5)])
        assert "a step takes" in str(raised.value)


def test_a_profiler_that_saw_nothing_records_once_more_where_it_may_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.ones(8, 8)
    gpu = Accelerator(table=slow(5 * US))
    backend = SimulatedBackend(gpu).install(monkeypatch)
    backend.blind = True
    found = diagnosed(gpu, lambda: [torch.mm(x, x) for _ in range(5)]).diagnosis
    assert not backend.blind and found.step.profiled_steps >= 5
    assert [(row.name, row.count) for row in found.ops] == [("aten::mm", 5.0)]


def test_another_process_on_the_same_device(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(8, 8)
    gpu = Accelerator(table=slow(5 * US))
    backend = SimulatedBackend(gpu).install(monkeypatch)
    backend.others_bytes = 500 * 10**6
    alone = diagnosed(gpu, lambda: torch.mm(x, x)).diagnosis
    assert not [n for n in alone.notices if "Other processes" in n]
    backend.others_bytes = 10 * 10**9
    shared = diagnosed(gpu, lambda: torch.mm(x, x)).diagnosis
    assert "Other processes hold 10.0 GB of this GPU's memory" in " ".join(shared.notices)


def test_a_card_that_another_process_uses_and_that_holds_its_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    x = torch.ones(8, 8)
    gpu = Accelerator(table=slow(5 * US))
    backend = SimulatedBackend(gpu).install(monkeypatch)
    assert diagnosed(gpu, lambda: torch.mm(x, x)).diagnosis.card is None

    def states(others: tuple[OtherProcess, ...]) -> Iterator[CardState]:
        for second in range(4):
            yield CardState(
                at_ns=second * 10**9, sm_mhz=1410, sm_max_mhz=1980, others=others,
                power_held_ns=second * 400_000_000, energy_mj=second * 600_000,
            )  # fmt: skip

    backend.card_states = states(())
    held = diagnosed(gpu, lambda: torch.mm(x, x)).diagnosis
    assert held.card is not None and held.card.joules_per_step == pytest.approx(2 * 600 / 6)
    assert "held its clock at 1410 of 1980 MHz on average, for power in 40 %" in "".join(
        held.notices
    )
    assert load(held.save(tmp_path / "held.json")).card == held.card
    backend.card_states = states((OtherProcess(77, 10**6, 0.3),))
    shared = diagnosed(gpu, lambda: torch.mm(x, x)).diagnosis
    assert "Another process (pid 77) computed on this GPU" in "".join(shared.notices)
    assert shared.card is not None and shared.card.joules_per_step is None


def test_a_device_that_runs_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(1000)
    gpu = Accelerator()
    SimulatedBackend(gpu).install(monkeypatch)
    calls = [0]

    def step() -> Any:
        calls[0] += 1
        gpu.limit_bytes = 10**9 if calls[0] < 8 else 100
        return x + 1

    with pytest.raises(UserCodeError, match=r"OutOfMemoryError: CUDA out of memory"):
        diagnosed(gpu, step)


def test_a_device_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(8)
    gpu = Accelerator()
    SimulatedBackend(gpu).install(monkeypatch)
    calls, wait = [0], gpu.synchronise

    def lost(extra_ns: int = 0) -> None:
        if calls[0] > 8:
            raise RuntimeError("CUDA error: unspecified launch failure\nlong advice")
        wait(extra_ns)

    gpu.synchronise = lost  # type: ignore[method-assign]

    def step() -> Any:
        calls[0] += 1
        return x + 1

    with pytest.raises(UserCodeError) as raised:
        diagnosed(gpu, step)
    assert "unspecified launch failure" in str(raised.value) and "\n" not in str(raised.value)


def test_tensors_on_two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(8)
    gpu = Accelerator()
    SimulatedBackend(gpu).install(monkeypatch)
    host = gpu.on_host(torch.ones(8))
    with pytest.raises(UserCodeError, match="at least two devices"):
        diagnosed(gpu, lambda: x + host)


def test_a_device_that_comes_into_use_after_the_first_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, host = torch.ones(8, 8), torch.ones(8)
    gpu = Accelerator(table=slow(50 * US))
    SimulatedBackend(gpu).install(monkeypatch)
    gpu.on_host(host)
    calls = [0]

    def step() -> Any:
        calls[0] += 1
        # Warm-up is three steps or more; then one is recorded and one passes.
        return torch.mm(x, x) if recording[0] else host + 1

    recording = [False]

    def phase(name: str, done: int, wanted: int) -> None:
        recording[0] = recording[0] or name == "recording ops"

    with gpu:
        done = diagnose_work(step, Plan(steps=4), ceilings_of(gpu), None, phase)
    assert done.diagnosis.device.kind == "cuda"
    # The first step after a wait has its launch before it.
    assert 50e-6 <= done.diagnosis.step.time_s.median <= 60e-6


@pytest.mark.parametrize("vendor", [NVIDIA, AMD], ids=["nvidia", "amd"])
def test_several_devices_in_one_process_have_a_lane_each(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(8, 8)
    gpu = Accelerator(vendor, table=slow(50 * US))
    SimulatedBackend(gpu).install(monkeypatch)
    step = beside_another(gpu, lambda: torch.mm(x, x), other_us=10)
    found = diagnosed(gpu, step).diagnosis
    # The step's is the one with most work; the other one's is no part of its sum.
    assert [row.name for row in found.ops] == ["aten::mm"]
    assert sum(found.leaves.values()) == pytest.approx(found.step.time_s.median)
    (listed,) = found.concurrent
    assert (listed.thread, listed.name) == (f"{vendor.device} 1", "void other<float>")
    # Two streams, 10 us each.
    assert listed.time_s == pytest.approx(20e-6)
    told = " ".join(found.notices)
    assert "2 devices in one trace: this is the busiest; outside its steps' time are" in told
    assert f"{vendor.device} 1 (" in told
    assert "Other threads and devices, not part" in report_text(found, Options(verbose=True))


def test_the_steps_device_is_the_one_with_most_work(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(8, 8)
    gpu = Accelerator(table=slow(5 * US))
    SimulatedBackend(gpu).install(monkeypatch)
    found = diagnosed(gpu, beside_another(gpu, lambda: torch.mm(x, x), other_us=8)).diagnosis
    assert [row.name for row in found.ops] == ["void other<float>"]
    assert [(row.thread, row.name) for row in found.concurrent] == [
        (f"{NVIDIA.device} 0", NVIDIA.gemm)
    ]


def beside_another(gpu: Accelerator, work: Callable[[], Any], other_us: int) -> Callable[[], None]:
    """A step of which another device of the same make does a part, on two of its streams."""
    machine = gpu.machine

    def step() -> None:
        begins_us = machine.now_ns / 1000
        if machine.trace is not None:
            for stream in (7, 8):
                machine.trace.append(
                    {"ph": "X", "cat": "kernel", "name": "void other<float>", "pid": 1,
                     "tid": stream, "ts": begins_us, "dur": float(other_us),
                     "args": {"device": 1, "stream": stream}}
                )  # fmt: skip
        work()
        gpu.synchronise()

    return step


ON_BOTH = """
import torch, the_gpu
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = the_gpu.on_host(torch.ones(8, 16))
for _ in range(60):
    batch = data * 0.5 + 1.0
    x = the_gpu.to_device(batch, 5000)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
"""


def test_a_model_on_the_gpu_whose_script_also_runs_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    gpu = Accelerator(table=slow(5 * US))
    SimulatedBackend(gpu).install(monkeypatch)
    monkeypatch.setitem(sys.modules, "the_gpu", gpu)
    (tmp_path / "both.py").write_text(ON_BOTH)
    monkeypatch.chdir(tmp_path)
    facts = []

    def keep(diagnosis: Diagnosis, analysis: Any, watcher: Any) -> None:
        facts.append(facts_of(diagnosis, analysis, is_script=True))

    with gpu:
        ended = diagnose_script("both.py", [], steps=6, on_analysis=keep)
    found = ended.diagnosis
    assert ended.problem is None and found is not None and found.device.kind == "cuda"
    prepares = "both.py:7 in <module>"
    # What the processor computes is not the device's work: it waits meanwhile.
    assert not [row for row in found.ops if row.source == prepares]
    waits = [row for row in found.idle if row.source == prepares]
    assert {row.cause for row in waits} == {"dispatch"} and sum(r.time_s for r in waits) > 0
    (copied,) = [row for row in found.ops if row.name.startswith("Memcpy HtoD")]
    assert copied.source == "both.py:8 in <module>"
    products = [row for row in found.ops if row.name == "aten::addmm"]
    assert [row.source for row in products] == ["both.py:10 in <module>"]
    # Nor do fixes see time of it on the device.
    on_host = [op for op in facts[0].ops if op.source == prepares]
    assert {op.name for op in on_host} == {"aten::mul", "aten::add"}
    assert all(op.time_s == 0.0 for op in on_host)


@pytest.mark.parametrize("calls_before", [0, 2, 5, 7, 9, 12, 16, 20])
def test_whenever_a_device_goes_the_sentence_is_the_same(
    calls_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(8)
    gpu = Accelerator(table=slow(20 * US))
    SimulatedBackend(gpu).install(monkeypatch)
    calls = [0]

    def step() -> Any:
        calls[0] += 1
        if calls[0] == calls_before + 1:
            lose(gpu)
        return x + 1

    with pytest.raises(UserCodeError) as raised:
        diagnosed(gpu, step)
    assert str(raised.value) == (
        "the GPU failed while gobrrr waited for it (CUDA error: unspecified launch failure): "
        "a kernel of the program failed, or the device is lost"
    )


def lose(gpu: Accelerator) -> None:
    """Every wait fails from now on."""

    def lost(extra_ns: int = 0) -> None:
        raise RuntimeError("CUDA error: unspecified launch failure\nlong advice")

    gpu.synchronise = lost  # type: ignore[method-assign]


JOB = """
import torch, the_gpu
x = torch.ones(64, 64)
host = the_gpu.on_host(torch.ones(64, 64))
calls = [0]

def step():
    calls[0] += 1
    if calls[0] == 9:
        the_gpu.limit_bytes = {limit}
        {lost}
    return x + {other}

def make():
    return step
"""
HEALTHY = {"limit": 10**9, "lost": "pass", "other": "1"}


@pytest.mark.parametrize(
    ("how", "changed", "code", "sentence"),
    [
        ("full", {"limit": 100}, 3, "OutOfMemoryError: CUDA out of memory"),
        ("gone", {"lost": "the_gpu.lose()"}, 3, "the GPU failed while gobrrr waited for it"),
        ("two devices", {"other": "host"}, 3, "Expected all tensors to be on the same device"),
        ("no permission", {}, 2, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("no profiler", {}, 2, "but its parts are unknown: this make is not profiled"),
        ("healthy", {}, 0, ""),
    ],
)
def test_exit_codes(
    how: str, changed: dict[str, Any], code: int, sentence: str,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    gpu = Accelerator(table=slow(20 * US))
    backend = SimulatedBackend(gpu).install(monkeypatch)
    backend.kernels_hidden = how == "no permission"
    if how == "no profiler":
        backend.MISSING = ("this make is not profiled.",)
        monkeypatch.setattr(SimulatedBackend, "profiler", lambda self: None)
    gpu.lose = lambda: lose(gpu)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "the_gpu", gpu)
    name = how.replace(" ", "_")
    monkeypatch.delitem(sys.modules, name, raising=False)
    file = tmp_path / f"{name}.py"
    file.write_text(JOB.format(**{**HEALTHY, **changed}))
    with gpu:
        assert main(["run", f"{file}:make", "--steps", "4", "--quiet"]) == code
    told = capsys.readouterr().err
    if code:
        said = [line for line in told.splitlines() if line.startswith("gobrrr: ")]
        assert len(said) == 1 and sentence in said[0]


def test_an_op_on_tensors_of_two_devices_is_on_the_device_that_ran_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A number of the host's may meet a tensor of the device's: PyTorch hands over its value.
    x = torch.ones(8, 8)
    gpu = Accelerator(table=slow(20 * US))
    SimulatedBackend(gpu).install(monkeypatch)
    number = gpu.on_host(torch.tensor(2.0))

    def step() -> Any:
        return x * number  # line: number

    done = diagnosed(gpu, step)
    assert isinstance(done.analysis, DeviceAnalysis)
    here = line_of("number", __file__)
    assert lines(done.analysis.capture.timeline) == {("mul", here): 1}


def test_a_program_that_leaves_the_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Accelerator()
    SimulatedBackend(gpu).install(monkeypatch)
    assert backends.gpu_in_use() is None
    x = torch.ones(64, 64)
    done = diagnose_work(
        lambda: [torch.mm(x, x) for _ in range(20)], Plan(steps=4), ceilings_of(gpu), None,
        lambda *_: None,
    )  # fmt: skip
    assert done.diagnosis.device.kind == "cpu"
    said = " ".join(done.diagnosis.notices)
    assert "NVIDIA Simulated is available but holds none of its tensors" in said


def test_a_machine_that_was_taken_away_from_the_host_gives_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Busy:
        """One processor, which other programs have nine tenths of the time."""

        processors = 1

        def __init__(self) -> None:
            self._ms = 0

        def read(self) -> LoadReading:
            self._ms += 1000
            wall_ns = self._ms * 10**6
            return LoadReading(wall_ns, wall_ns // 10, wall_ns * 9 // 10, wall_ns)

    x = torch.ones(8, 8)
    gpu = Accelerator(table=slow(5 * US))
    SimulatedBackend(gpu).install(monkeypatch)
    left = diagnosed(gpu, lambda: torch.mm(x, x).relu().neg().exp()).diagnosis
    assert left.verdict
    assert "fusion" in [finding.fix for finding in left.findings]
    monkeypatch.setattr("gobrrr.measure.load.SystemLoadCounters", Busy)
    # Which other tests have switched off.
    monkeypatch.setattr("gobrrr.measure.load.Load.taken_away", True)
    taken = diagnosed(gpu, lambda: torch.mm(x, x).relu().neg().exp()).diagnosis
    assert (taken.verdict, taken.findings) == ("", [])
    notices = " ".join(taken.notices)
    assert TAKEN_AWAY in notices
    # Said once, with what follows from it.
    assert "Other programs took" not in notices

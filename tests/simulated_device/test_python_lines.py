"""Lines of Python between the ops of a step that a GPU waits for."""

from __future__ import annotations

import inspect
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import gobrrr  # noqa: E402
from gobrrr.attribution.device.lines import python_by_line  # noqa: E402
from gobrrr.devices.accelerator import TraceProfiler  # noqa: E402
from gobrrr.diagnosis.schema import Diagnosis  # noqa: E402
from gobrrr.live import session  # noqa: E402
from gobrrr.live.measurements import Measurements  # noqa: E402
from gobrrr.live.profiles.device_profile import DeviceProfiler, idle_share  # noqa: E402
from gobrrr.live.profiles.recorded_timeline import step_marks  # noqa: E402
from gobrrr.live.profiling import Profiling  # noqa: E402
from gobrrr.measure.torch_profiler import GC_NAME  # noqa: E402
from gobrrr.observe.sampler import LineSample, LineSampler  # noqa: E402
from gobrrr.recordings.traces import read_trace  # noqa: E402
from gobrrr.timeline.names import UNASKED_LINE  # noqa: E402
from simulated_device import Accelerator, Kernel, Op, SimulatedBackend  # noqa: E402
from trace_writing import WrittenTrace  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000


def of_5_us(op: Op) -> tuple[Kernel, ...] | None:
    return (Kernel("kernel", 5 * US),)


def tokenise(gpu: Accelerator) -> None:
    gpu.python(300 * US)


def log(gpu: Accelerator) -> None:
    gpu.python(100 * US)


def line_of(function: Any, text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    (at,) = [i for i, line in enumerate(lines) if text in line]
    return f"test_python_lines.py:{first + at} in {function.__name__}"


def python_rows(found: Diagnosis) -> dict[str, float]:
    rows = {row.source or "": row.time_s for row in found.idle if row.cause == "python"}
    return {source.rpartition("/")[2]: time_s for source, time_s in rows.items()}


def host_bound(gpu: Accelerator) -> Any:
    x = torch.ones(8, 8)

    def step() -> None:
        for _ in range(5):
            torch.mm(x, x)
        tokenise(gpu)
        for _ in range(5):
            torch.mm(x, x)
        log(gpu)

    return step


def test_python_between_ops_has_the_line_that_runs_there(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Accelerator(table=of_5_us)
    backend = SimulatedBackend(gpu).install(monkeypatch)
    step = host_bound(gpu)
    with gpu:
        found = gobrrr.diagnose(step, steps=8, progress=False, batch_test=False)
    rows = python_rows(found)
    assert "" not in rows
    whole = found.leaves["overhead.python"]
    assert sum(rows.values()) == pytest.approx(whole)
    # Less what the device still had to do of the op before, and as exact as looks in between are.
    assert rows[line_of(tokenise, "python(")] == pytest.approx(300e-6, rel=0.04)
    assert rows[line_of(log, "python(")] == pytest.approx(100e-6, rel=0.07)
    # The profile that times are of, and one more.
    assert len(backend.traces) == 2 and len(backend.traces[0]["traceEvents"]) > 0


def test_a_collection_between_ops_is_a_cause_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Accelerator(table=of_5_us)
    SimulatedBackend(gpu).install(monkeypatch)
    x = torch.ones(8, 8)

    def step() -> None:
        torch.mm(x, x)
        gpu.python(50 * US)
        begin_ns = gpu.machine.now_ns
        gpu.python(200 * US)
        gpu.machine.host_event("cpu_op", GC_NAME, begin_ns)

    with gpu:
        found = gobrrr.diagnose(step, steps=8, progress=False, batch_test=False)
    assert found.leaves["overhead.garbage_collection"] == pytest.approx(200e-6, rel=0.01)
    assert found.leaves["overhead.python"] < 60e-6


def test_a_device_that_waits_for_nothing_is_not_profiled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = Accelerator(table=lambda op: (Kernel("kernel", 100 * US),))
    backend = SimulatedBackend(gpu).install(monkeypatch)
    x = torch.ones(8, 8)

    def step() -> None:
        for _ in range(10):
            torch.mm(x, x)

    with gpu:
        gobrrr.diagnose(step, steps=8, progress=False, batch_test=False)
    assert len(backend.traces) == 1


@pytest.mark.parametrize("what", ["start", "interrupted"])
def test_without_a_second_profile_everything_else_is_told(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Accelerator(table=of_5_us)
    backend = SimulatedBackend(gpu).install(monkeypatch)
    begin = session.Session._start_profiling

    def second(self: Any, phase: str, *args: Any, **options: Any) -> None:
        if phase == session.SAMPLE and what == "start":
            monkeypatch.setattr(backend, "profiler", lambda: None)
        begin(self, phase, *args, **options)
        if phase == session.SAMPLE and what == "interrupted":
            self._profiling._profiler._profiler.interrupted = True

    monkeypatch.setattr(session.Session, "_start_profiling", second)
    with gpu:
        found = gobrrr.diagnose(host_bound(gpu), steps=8, progress=False, batch_test=False)
    assert found.leaves["overhead.python"] > 380e-6 and len(backend.traces) == 1
    assert not [notice for notice in found.notices if "profiled" in notice]
    assert line_of(tokenise, "python(") not in python_rows(found)


def test_a_stretch_is_divided_among_the_lines_seen_in_it(tmp_path: Path) -> None:
    made = WrittenTrace()
    for step in range(3):
        begin = 1000 * (step + 1)
        made.note(f"ProfilerStep#{step}", begin, 999)
        made.op("aten::mm", begin + 400, 20)
        made.launch("gemm", begin + 405, begin + 410, 100, 10 * step)
        made.op("aten::mm", begin + 900, 20)
        made.launch("gemm", begin + 905, begin + 910, 90, 10 * step + 1)
    timeline = read_trace(made.write(tmp_path))
    assert idle_share(timeline) == pytest.approx((410 + 400) / 1000, abs=0.01)
    at = 2_000_000

    def seen(us: float, line: str | None, since_us: float | None = None) -> LineSample:
        since = -1 if since_us is None else at + round(since_us * US)
        return LineSample(at + round(us * US), line, since)

    samples = [
        seen(100, "a"), seen(150, "a"), seen(200, "b"), seen(300, None), seen(405, "in an op"),
        seen(600, "c", 550), seen(650, "slept before", 505),
    ]  # fmt: skip
    shares = python_by_line(timeline, samples)
    # Per step 400 us up to the first op, and 390 from the first kernel's end to the second.
    # Two of three steps have no sample, and no op of theirs has a line.
    whole = 3 * (400 + 390)
    assert {line: round(share * whole) for line, share in shares.items()} == {
        "a": 200, "b": 100, "(no line of the program: the framework's own Python)": 100,
        "c": 390, None: whole - 790,
    }  # fmt: skip
    unasked = LineSample(at + 100 * US, UNASKED_LINE)
    assert python_by_line(timeline, []) == python_by_line(timeline, [unasked]) == {None: 1.0}


def test_samples_of_the_process_are_brought_to_the_clock_of_the_profilers_trace() -> None:
    # PyTorch's own profiler and the real sampler, on the processor.
    profiling = Profiling(DeviceProfiler(TraceProfiler("cpu", "CPU"), lambda: None))
    profiling.start()
    profiling.sample_with(LineSampler(threading.get_ident()))
    x = torch.ones(8, 8)
    for window in range(3):
        torch.mm(x, x)
        spin(0.05)
        torch.add(x, x)
        profiling.mark(window)
    result = Measurements(thread=threading.get_ident())
    profiling.put_timeline_into(result)
    timeline = result.sampled_timeline
    assert timeline is not None and result.device_timeline is None
    marks = step_marks(timeline)
    names = [timeline.names[name] for name in timeline.host.name]
    products = timeline.host.end_ns[[name == "aten::mm" for name in names]]
    sums = timeline.host.start_ns[[name == "aten::add" for name in names]]
    assert len(marks) == 4 and len(products) == len(sums) == 3
    spinning = [s.time_ns for s in result.line_samples if s.line and s.line.endswith("in spin")]
    assert spinning
    # Each within one of the stretches, but for what reading a clock takes.
    at = np.searchsorted(products, np.array(spinning) + 500_000, side="right") - 1
    assert (at >= 0).all() and (np.array(spinning) < sums[at] + 500_000).all()


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass

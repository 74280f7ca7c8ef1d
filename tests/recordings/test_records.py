"""Records of a device that cannot be: counted, told, and refused where they allow no verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gobrrr.live.measurements import Measurements
from gobrrr.live.profiles import device_trouble
from gobrrr.pipeline.trace import diagnose_trace
from gobrrr.recordings.records import damage, notices_of
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import LAZY_LOADING, Timeline
from gobrrr.timeline.errors import InputError
from trace_writing import OURS, SHARED, WrittenTrace

# As of a recording: its clock does not begin with it.
BEGIN_US = 5_000_000.25
LAUNCHES = 400


def recording(fault: str = "", faults: int = 0) -> WrittenTrace:
    """Four steps of 100 launches each; the first ``faults`` of the second step have the fault."""
    made = WrittenTrace()
    for step in range(4):
        begin = BEGIN_US + 1000 * step
        made.note(f"ProfilerStep#{step}", begin, 999)
        for i in range(100):
            number, called = 100 * step + i, begin + 10 * i
            broken = step == 1 and i < faults
            starts, took = called + 5, 4
            if broken and fault == "lost":
                made.call("cudaLaunchKernel", called, 2, number)
                continue
            if broken:
                starts = {"early": called - 3, "zero": 0, "late": called + 3e6}.get(fault, starts)
                took = 0 if fault == "empty" else took
            if not (broken and fault == "unlaunched"):
                made.call("cudaLaunchKernel", called, 2, number)
            made.kernel("gemm", starts, took, number)
    return made


def read(tmp_path: Path, fault: str = "", faults: int = 0) -> Timeline:
    return read_trace(recording(fault, faults).write(tmp_path))


WORDS = {
    "lost": "launches have no record on the device",
    "unlaunched": "kernels have no launch call",
    "early": "kernels start before their launch call",
    "zero": "kernels have times outside the recording",
    "late": "kernels have times outside the recording",
    "empty": "kernels take no time",
}


@pytest.mark.parametrize("fault", WORDS)
def test_each_fault_is_counted_and_told(fault: str, tmp_path: Path) -> None:
    sound = read(tmp_path)
    assert damage(sound) == "" and not [n for n in sound.notices if "not whole" in n]
    # Two of 400 are no more than the half per cent, but a time outside the recording.
    few = read(tmp_path, fault, 2)
    assert bool(damage(few)) is (fault in ("zero", "late"))
    some = read(tmp_path, fault, 4)
    (told,) = [notice for notice in some.notices if "not whole" in notice]
    assert f"4 of {LAUNCHES} {WORDS[fault]}" in told and "12.6 Update 2 to 13.0" in told
    many = read(tmp_path, fault, 60)
    assert damage(many).startswith(f"60 of {LAUNCHES} {WORDS[fault]} (15 %); CUPTI of CUDA")
    # Nothing of that is CUPTI's on another make.
    hip = replace(many, device=replace(many.device, kind="hip"))
    assert damage(hip).endswith("(15 %); record again")


@pytest.mark.parametrize("fault", WORDS)
def test_a_damaged_live_step_has_no_verdict(fault: str, tmp_path: Path) -> None:
    measured = Measurements(plain_ns=[[2_000_000], []])
    measured.device_timeline = read(tmp_path)
    assert device_trouble.found(measured, None) == ()
    measured.device_timeline = read(tmp_path, fault, 60)
    with pytest.raises(InputError) as raised:
        device_trouble.found(measured, None)
    said = str(raised.value)
    assert said.startswith("a step takes 2.00 ms, but what PyTorch's profiler recorded of the GPU")
    assert WORDS[fault] in said and "\n" not in said


def test_a_file_keeps_its_verdict_unless_its_steps_are_senseless(tmp_path: Path) -> None:
    for fault in ("lost", "unlaunched", "early", "empty"):
        found = diagnose_trace(recording(fault, 60).write(tmp_path))
        assert [notice for notice in found.notices if WORDS[fault] in notice], fault
    for fault in ("zero", "late"):
        found = diagnose_trace(recording(fault, 1).write(tmp_path))
        assert "Kernels left out: 1 at times that are not the recording's." in found.notices, fault
        assert found.step.time_s.n == 3 and found.step.time_s.high < 2e-3


def test_what_is_no_fault_is_not_counted(tmp_path: Path) -> None:
    made = WrittenTrace()
    made.op("aten::mm", BEGIN_US, 1000)
    # Launched before the recording began.
    for i in range(3):
        made.kernel(f"early{i}", BEGIN_US + i, 1, 900 + i)
    # A capture launches nothing, and neither do a memset of cuBLAS's and a call within a call.
    made.call("cudaStreamBeginCapture", BEGIN_US + 10, 1, 1)
    for i in range(50):
        made.call("cudaLaunchKernel", BEGIN_US + 12 + i, 0.5, 10 + i)
    made.call("cudaStreamEndCapture", BEGIN_US + 70, 1, 2)
    made.call("cudaMemsetAsync", BEGIN_US + 80, 1, 3)
    made.call("cudaLaunchKernelExC", BEGIN_US + 90, 5, 4)
    made.add("cuda_driver", "cuLaunchKernelEx", BEGIN_US + 91, 3, correlation=5)
    made.kernel("gemm", BEGIN_US + 96, 4, 4)
    # On a device that is set aside.
    made.call("cudaLaunchKernel", BEGIN_US + 100, 2, 6)
    made.kernel("copy", BEGIN_US + 103, 1, 6, device=1)
    # A memset of the runtime's own.
    made.kernel("Memset (Device)", BEGIN_US + 110, 1, 7, cat="gpu_memset")
    records = read_trace(made.write(tmp_path)).records
    assert records is not None and (records.launches, records.kernels) == (2, 5)
    assert records.without_record == records.without_launch == records.before_launch == 0
    assert notices_of(None, "cuda") == [] and notices_of(records, "cuda") == []


def test_records_of_one_stream_neither_overlap_nor_leave_the_order_of_launches(
    tmp_path: Path,
) -> None:
    moved = recording()
    kernels = [event for event in moved.events if event.get("cat") == "kernel"]
    for at in range(20):
        kernels[10 * at]["ts"] += 7 * 10 + 2
    timeline = read_trace(moved.write(tmp_path))
    assert timeline.records is not None and timeline.records.disordered == 20
    assert "20 of 400 records overlap or leave the order of launches" in "".join(timeline.notices)
    longer = recording()
    kernels = [event for event in longer.events if event.get("cat") == "kernel"]
    for at in range(20):
        # Until 1 us, and until 6 us, after the next begins.
        kernels[10 * at]["dur"] = 11 if at < 10 else 16
    timeline = read_trace(longer.write(tmp_path))
    assert timeline.records is not None and timeline.records.disordered == 10


def test_replays_of_a_graph_that_lack_kernels_are_told(tmp_path: Path) -> None:
    made = WrittenTrace()
    for step in range(5):
        begin = BEGIN_US + 1000 * step
        made.note(f"ProfilerStep#{step}", begin, 999)
        made.call("cudaGraphLaunch", begin + 10, 20, step)
        for node in range(50):
            if (step, node) not in ((1, 7), (3, 7), (3, 30), (4, 49)):
                made.kernel(f"kernel_{node % 5}", begin + 40 + 5 * node, 5, step)
    timeline = read_trace(made.write(tmp_path))
    # The last may be cut by the end of the recording.
    assert timeline.records is not None and timeline.records.lost_nodes == 3
    assert "3 of 246 kernels of graphs have no record" in "".join(timeline.notices)


@pytest.mark.parametrize("ahead_us", [0, 1, 8])
def test_a_devices_clock_that_is_ahead_is_put_back(ahead_us: int, tmp_path: Path) -> None:
    made = WrittenTrace()
    for step in range(4):
        begin = BEGIN_US + 1000 * step
        made.note(f"ProfilerStep#{step}", begin, 999)
        made.call("cudaLaunchKernel", begin + 10, 3, 2 * step)
        made.kernel("gemm", begin + 15 + ahead_us, 100, 2 * step)
        made.call("cudaMemcpyAsync", begin + 20, 3, 2 * step + 1)
        made.kernel(
            "Memcpy DtoH (Device -> Pinned)", begin + 115 + ahead_us, 1, 2 * step + 1,
            cat="gpu_memcpy", bytes=4,
        )  # fmt: skip
        made.call("cudaStreamSynchronize", begin + 24, 92, 2 * step + 900)
    timeline = read_trace(made.write(tmp_path))
    assert timeline.records is not None
    assert timeline.records.ahead_ns == 1000 * ahead_us
    # Little is put back without a word.
    assert ("clock is ahead" in "".join(timeline.notices)) is (ahead_us == 8)
    assert timeline.kernels.start_ns[0] == round((BEGIN_US + 15) * 1000)


def test_no_real_recording_is_called_damaged() -> None:
    folders = [OURS, *([SHARED, SHARED / "v100_dlrm_8ranks"] if SHARED.exists() else [])]
    files = [path for folder in folders for path in sorted(folder.glob("*.json.gz"))]
    assert len(files) >= 5
    for path in files:
        found = read_trace(path)
        assert found.records is not None and found.records.kernels, path
        assert notices_of(found.records, "cuda") == [] and damage(found) == "", path


def test_the_profilers_own_stalls_are_read_and_change_nothing(tmp_path: Path) -> None:
    plain = read(tmp_path)
    made = recording()
    rows = [
        ("Buffer Flush", 1995, 15), ("Activity Buffer Request", 1000, 100),
        (LAZY_LOADING, 40, 20), ("Instrumentation", 1050, 100),
    ]  # fmt: skip
    for name, start, took in rows:
        made.add("overhead", name, BEGIN_US + start, took, tid=0)
    path = made.write(tmp_path, "stalls.json")
    found = read_trace(path)
    assert len(plain.stalls) == 0 and plain.profiler_stalls.total == 0
    assert [found.names[name] for name in found.stalls.name] == [
        LAZY_LOADING, "Activity Buffer Request", "Instrumentation", "Buffer Flush",
    ]  # fmt: skip
    begin = round(BEGIN_US * 1000)
    spans = found.profiler_stalls
    assert ((spans.start - begin).tolist(), (spans.end - begin).tolist()) == (
        [1_000_000, 1_995_000], [1_150_000, 2_010_000],
    )  # fmt: skip
    assert len(found.host) == len(plain.host) and (found.steps == plain.steps).all()
    assert found.notices == plain.notices
    leaves = diagnose_trace(path).leaves
    assert leaves == diagnose_trace(recording().write(tmp_path)).leaves

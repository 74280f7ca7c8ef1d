"""What is drawn of a device's steps, and what runs beside them: times in microseconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attribution.test_device_rules import attributed, one_kernel
from gobrrr.attribution.device_tracks import tracks_of
from gobrrr.attribution.other_threads import concurrent_ops, work_on_others
from gobrrr.timeline.data import Device, OtherDevice
from trace_writing import WrittenTrace

US = 1000


def test_steps_regimes_and_idleness_are_a_track_each(tmp_path: Path) -> None:
    timeline, found = attributed(one_kernel("gemm", 3, 50, "aten::mm"), tmp_path)
    steps, bound, idle = tracks_of(timeline, found)
    assert (steps.name, bound.name, idle.name) == ("steps", "bound by", "idle because of")
    assert (steps.start_ns.tolist(), steps.end_ns.tolist()) == ([0], [53 * US])
    assert (bound.start_ns.tolist(), bound.end_ns.tolist()) == ([3 * US], [53 * US])
    assert list(bound.labels) == ["compute.matrix"]
    # 30,000 FLOPs at 1 a ns.
    (detail,) = bound.details
    assert (detail["kernel"], detail["flops"], detail["bytes"]) == ("gemm", 30_000, 10_000)
    assert detail["at the ceiling (us)"] == 30.0
    first, *others = idle.labels
    assert first == "overhead.dispatch" and set(others) == {"overhead.launch"}
    assert (idle.start_ns[0], idle.end_ns[-1]) == (0, 3 * US)


def test_outermost_ops_of_other_threads_are_beside_the_step(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for step, at in enumerate((0, 100)):
        trace.note(f"ProfilerStep#{step}", at, 100)
        trace.launch("gemm", at + 1, at + 90, 10, step)
        trace.op("aten::stack", at + 10, 20, tid=9)
        trace.op("aten::cat", at + 12, 5, tid=9)  # what it calls is part of it
        trace.op("aten::to", at + 40, 4, tid=9)
    trace.op("aten::stack", 190, 30, tid=9)  # 10 of it within the steps
    timeline, _ = attributed(trace, tmp_path)
    found = [(each.name, each.duration_ns) for each in concurrent_ops(timeline)]
    assert found == [("aten::stack", (20 + 20 + 10) * US / 2), ("aten::to", 8 * US / 2)]


def test_kernels_of_other_devices_count_between_the_steps_ends(tmp_path: Path) -> None:
    timeline, _ = attributed(one_kernel("gemm", 3, 97), tmp_path)
    names = (*timeline.names, "copy", "sum")
    copy, total = len(names) - 2, len(names) - 1
    start, end = np.array([-10, 20, 40, 90]) * US, np.array([5, 35, 41, 130]) * US
    other = OtherDevice(Device("H100", "cuda", 1), start, end, np.array([copy, total, copy, copy]))
    given = replace(timeline, names=names, others=(other,))
    found = [(each.thread, each.name, each.duration_ns) for each in work_on_others(given)]
    # 5 and 1 and 10 of the copies lie in [0, 100).
    assert found == [("H100 1", "copy", 16 * US), ("H100 1", "sum", pytest.approx(15 * US))]

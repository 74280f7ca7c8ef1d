from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attribution.test_device_rules import attributed
from gobrrr.attribution.device.attribute import attribute_device
from gobrrr.attribution.device.groups import group_kernels
from gobrrr.devices.datasheet import ceilings_from_datasheet
from gobrrr.recordings.traces import read_trace
from gobrrr.work import work_of
from trace_writing import OURS, SHARED, WrittenTrace

TRACES = {
    path.name: path
    for folder in (OURS, SHARED)
    if folder.exists()
    for path in sorted(folder.glob("*.json.gz"))
}


@pytest.mark.parametrize("path", TRACES.values(), ids=TRACES)
def test_groups_hold_what_the_kernels_hold(path: Path) -> None:
    timeline = read_trace(path)
    found = attribute_device(timeline, ceilings_from_datasheet(timeline.device.name), work_of)
    groups = group_kernels(timeline, found)
    shares, steps = found.attribution.kernels, len(timeline.steps)
    for column in ("duration_ns", "owned_ns", "fixed_ns", "roof_ns", "below_ns"):
        assert getattr(groups.shares, column).sum() == pytest.approx(getattr(shares, column).sum())
    known = ~np.isnan(shares.full_roof_ns)
    assert np.nansum(groups.shares.full_roof_ns) == pytest.approx(shares.full_roof_ns[known].sum())
    assert groups.idle_before_ns.sum() == pytest.approx(found.idle_before_ns.sum())
    flops = sum(w.flops or 0.0 for w in found.work.works if w is not None) / steps
    grouped = sum(
        (work.flops or 0.0) * weight
        for work, weight in zip(groups.works, groups.weight.tolist())
        if work is not None
    )
    assert grouped == pytest.approx(flops)
    # Calls: each linked operator once, each other kernel once.
    op = found.work.op
    assert groups.count.sum() * steps == pytest.approx(len(np.unique(op[op >= 0])) + (op < 0).sum())
    assert len(groups) <= len(timeline.kernels)


def test_an_op_of_several_kernels_is_one_call(tmp_path: Path) -> None:
    trace = WrittenTrace()
    # The first of all that the host did, before the step is marked.
    trace.op("aten::mm", 0, 9)
    for place in range(3):
        trace.launch("gemm", 1 + 2 * place, 10 + 10 * place, 10, place, call_time=1)
    trace.op("aten::mm", 12, 8)
    trace.launch("gemm", 14, 40, 10, 3, call_time=1)
    trace.kernel("of no op", 50, 5)
    trace.note("ProfilerStep#1", 9.5, 100)
    timeline, found = attributed(trace, tmp_path)
    groups = group_kernels(timeline, found)
    of_gemm = [timeline.names[timeline.kernels.name[row]] == "gemm" for row in groups.first]
    assert groups.count[of_gemm].sum() == pytest.approx(2.0)
    assert groups.count.sum() == pytest.approx(3.0)
    # Where each kernel stands for two, so do its calls and its work.
    twice = replace(found, counts=np.full(len(timeline.kernels), 2.0))
    doubled = group_kernels(timeline, twice)
    assert doubled.count.tolist() == pytest.approx((2 * groups.count).tolist())
    assert doubled.weight.tolist() == pytest.approx((2 * groups.weight).tolist())

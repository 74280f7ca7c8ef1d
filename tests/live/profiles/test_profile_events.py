"""Profiled steps as gobrrr reads them, beside what PyTorch itself makes of the same profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gobrrr.live.profiles.profile import STEP_MARK, HostProfiler  # noqa: E402

pytestmark = pytest.mark.torch


def test_steps_hold_the_events_that_torch_writes_between_the_marks(tmp_path: Path) -> None:
    weight = torch.randn(8, 8, requires_grad=True)

    def step() -> None:
        with torch.profiler.record_function("a range"):
            (torch.ones(4, 8) @ weight).relu().sum().backward()

    step()
    profiler = HostProfiler()
    profiler.start()
    for _ in range(3):
        step()
        profiler.mark()
    profiler._end()
    path = tmp_path / "trace.json"
    profiler._profile.export_chrome_trace(str(path))
    rows = [
        row
        for row in json.loads(path.read_text())["traceEvents"]
        if row.get("cat") in ("cpu_op", "user_annotation")
    ]
    marks = sorted(row["ts"] for row in rows if row["name"] == STEP_MARK)
    steps = profiler.stop()
    assert len(steps) == 3
    for ours, begin, end in zip(steps, marks, marks[1:]):
        inside = [row for row in rows if begin < row["ts"] < end]
        names = [ours.names[i] for i in ours.name]
        assert sorted(names) == sorted(row["name"] for row in inside)
        assert {"aten::mm", "a range", "aten::relu"} <= set(names)
        # A trace has microseconds.
        lengths = sorted((ours.end_ns - ours.start_ns).tolist())
        assert lengths == pytest.approx(sorted(1e3 * row["dur"] for row in inside), abs=1)
        ranges = [name for name, is_range in zip(names, ours.annotation) if is_range]
        assert ranges == [row["name"] for row in inside if row["cat"] == "user_annotation"]
        assert ranges == ["a range"]

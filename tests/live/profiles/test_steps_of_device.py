"""Steps of a recording whose host runs ahead of the device."""

from __future__ import annotations

from pathlib import Path

import gobrrr
from gobrrr.live.profiles.device_profile import RUN_AHEAD, TOO_FEW_TO_DIVIDE
from trace_writing import WrittenTrace

STEPS, HOST_US = 8, 100


def recording(folder: Path, kernel_us: int, steps: int = STEPS, kernels: int = 1) -> Path:
    """Steps that the host issues in 100 us each, of kernels that wait for the one before."""
    trace = WrittenTrace()
    free = 0
    for step in range(steps):
        start = step * HOST_US
        trace.note(f"ProfilerStep#{step}", start, HOST_US)
        trace.op(
            "aten::mm",
            start + 10,
            20,
            **{"Input Dims": [[64, 64]] * 2, "Input type": ["float"] * 2},
        )
        for kernel in range(kernels):
            begins = max(start + 20, free)
            number = kernels * step + kernel
            trace.launch("sgemm", start + 12 + kernel, begins, kernel_us, correlation=number)
            free = begins + kernel_us
    return trace.write(folder)


def test_steps_that_wait_in_the_queue_are_divided_where_the_device_begins_them(
    tmp_path: Path,
) -> None:
    found = gobrrr.diagnose_trace(recording(tmp_path, 400))
    assert found.step.time_s.median == 400e-6 and RUN_AHEAD in found.notices


def test_too_few_steps_to_divide_say_so(tmp_path: Path) -> None:
    found = gobrrr.diagnose_trace(recording(tmp_path, 400, steps=3, kernels=3))
    assert found.step.time_s.n == 3
    assert TOO_FEW_TO_DIVIDE in found.notices and RUN_AHEAD not in found.notices


def test_steps_that_end_in_their_window_keep_their_marks(tmp_path: Path) -> None:
    found = gobrrr.diagnose_trace(recording(tmp_path, 60))
    assert found.step.time_s.median == 100e-6 and RUN_AHEAD not in found.notices

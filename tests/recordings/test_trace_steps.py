from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.errors import InputError
from trace_writing import WrittenTrace


def test_marked_windows_tile_time_and_leave_no_kernel_outside(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.kernel("left over", 40, 5, 100)  # before the first mark: of the step before
    trace.note("ProfilerStep#1", 100, 80)
    trace.note("ProfilerStep#2", 200, 80)
    trace.launch("a", 110, 150, 30, correlation=1)
    trace.launch("b", 210, 300, 70, correlation=2)  # runs on after its step's host code
    timeline = read_trace(trace.write(tmp_path))
    assert timeline.steps.tolist() == [[40_000, 200_000], [200_000, 370_000]]
    assert timeline.step_names == ("ProfilerStep#1", "ProfilerStep#2")


def test_the_host_before_the_first_kernel_is_part_of_the_step(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 382_000)
    trace.launch("a", 217_000, 218_000, 100_000, correlation=1)
    # the window ends with the last kernel: 218 ms + 100 ms
    assert read_trace(trace.write(tmp_path)).steps.tolist() == [[0, 318_000_000]]


def test_a_mark_behind_the_last_kernel_opens_no_step(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 90)
    trace.launch("a", 10, 20, 30, correlation=1)
    trace.note("ProfilerStep#2", 90, 5)
    timeline = read_trace(trace.write(tmp_path))
    assert timeline.steps.tolist() == [[0, 50_000]]


def test_steps_from_optimizers(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for i in range(3):
        base = 1000 * i
        trace.op("aten::mm", base, 20)
        trace.launch("gemm", base + 5, base + 30, 100, correlation=10 * i)
        trace.note("Optimizer.step#SGD.step", base + 500, 50)
        trace.launch("update", base + 510, base + 520, 10, correlation=10 * i + 1)
    timeline = read_trace(trace.write(tmp_path))
    assert timeline.steps.tolist() == [[0, 550_000], [550_000, 1_550_000], [1_550_000, 2_530_000]]
    assert timeline.steps_how == "detected from the optimizer"


def test_two_optimizers_in_turn_make_one_step(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for i in range(2):
        for j, name in enumerate(("D", "D", "G")):
            trace.note(f"Optimizer.step#{name}.step", 900 * i + 300 * j, 100)
    trace.kernel("k", 1900, 50, 1)
    # steps end with G at 600 + 100 and 1500 + 100; the last runs to the last kernel
    assert read_trace(trace.write(tmp_path)).steps.tolist() == [[0, 700_000], [700_000, 1_950_000]]


def test_steps_from_kernels_that_repeat(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for i in range(4):
        for j, name in enumerate(("embed", "layer", "layer", "head")):
            trace.kernel(name, 1000 * i + 100 * j, 50, 10 * i + j)
    timeline = read_trace(trace.write(tmp_path))
    assert timeline.steps.tolist() == [
        [0, 1_000_000],
        [1_000_000, 2_000_000],
        [2_000_000, 3_000_000],
        [3_000_000, 3_350_000],
    ]


def test_layers_that_repeat_inside_one_step_are_no_steps(tmp_path: Path) -> None:
    trace = WrittenTrace()
    names = ["embed", *["attn", "mlp"] * 12, "head"]
    for i, name in enumerate(names):
        trace.kernel(name, 100 * i, 50, i)
    timeline = read_trace(trace.write(tmp_path))
    assert timeline.steps.tolist() == [[0, 2_550_000]]
    assert timeline.steps_how == "the whole trace"


def test_the_whole_trace_begins_with_its_first_host_event(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.op("aten::empty", 5, 5)
    trace.launch("k", 100, 120, 30, correlation=1)
    assert read_trace(trace.write(tmp_path)).steps.tolist() == [[5000, 150_000]]


def test_marks_of_another_thread_are_not_those_of_the_step(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for step in range(2):
        trace.note(f"ProfilerStep#{step}", 100 * step, 90)
        trace.note(f"ProfilerStep#{step}", 100 * step + 40, 90, tid=99)
        trace.launch("a", 100 * step + 10, 100 * step + 20, 30, correlation=step)
    assert read_trace(trace.write(tmp_path)).steps.tolist() == [[0, 100_000], [100_000, 150_000]]


def test_what_the_last_step_leaves_out_is_said(tmp_path: Path) -> None:
    for length, said in ((55, False), (5500, True)):
        trace = WrittenTrace()
        trace.note("ProfilerStep#1", 0, length)
        trace.launch("a", 10, 20, 34, correlation=1)
        timeline = read_trace(trace.write(tmp_path))
        notices = " ".join(timeline.notices)
        assert timeline.steps.tolist() == [[0, 54_000]]
        assert ("5.45 ms of its mark after that are in no step" in notices) is said


def test_a_recording_without_any_length_is_refused(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.kernel("a", 10, 0, 1)
    with pytest.raises(InputError, match="nothing that was recorded takes any time"):
        read_trace(trace.write(tmp_path))

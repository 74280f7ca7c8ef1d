"""Two diagnoses side by side: what is matched with what, and what the ratio's interval is."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

import gobrrr
from gobrrr.diagnosis.assemble import TAKEN_AWAY
from gobrrr.diagnosis.comparison import compare
from gobrrr.diagnosis.schema import Diagnosis


@pytest.fixture
def before(data: Path) -> Diagnosis:
    return gobrrr.load(data / "training.json")


@pytest.fixture
def after(before: Diagnosis) -> Diagnosis:
    return copy.deepcopy(before)


def set_step(diagnosis: Diagnosis, low: float, median: float, high: float, n: int = 24) -> None:
    time = diagnosis.step.time_s
    time.low, time.median, time.mean, time.high, time.n = low, median, median, high, n


def test_itself(before: Diagnosis, after: Diagnosis) -> None:
    comparison = compare(before, after)
    # 100 ms, from 98.5 to 101.3: 98.5 / 101.3 = 0.9724, 101.3 / 98.5 = 1.0284.
    assert comparison.speedup is not None
    assert comparison.speedup.low == pytest.approx(0.9724, abs=1e-4)
    assert comparison.speedup.high == pytest.approx(1.0284, abs=1e-4)
    assert comparison.verdict == "same"
    assert [op.matched for op in comparison.ops] == ["shapes"] * 7
    assert all(op.delta_s == 0 for op in comparison.ops)
    assert comparison.notices == []


def test_a_side_without_an_upper_end_leaves_no_interval(
    before: Diagnosis, after: Diagnosis
) -> None:
    after.step.time_s.high = None
    comparison = compare(before, after)
    assert comparison.speedup is None
    assert comparison.verdict == "unknown"


def test_faster_and_slower(before: Diagnosis, after: Diagnosis) -> None:
    set_step(after, 0.078, 0.08, 0.082)
    comparison = compare(before, after)
    assert comparison.verdict == "faster"
    assert comparison.speedup is not None
    # 0.1 / 0.08, 0.0985 / 0.082, 0.1013 / 0.078.
    assert comparison.speedup.median == pytest.approx(1.25)
    assert comparison.speedup.low == pytest.approx(1.2012, abs=1e-4)
    assert comparison.speedup.high == pytest.approx(1.2987, abs=1e-4)
    assert compare(after, before).verdict == "slower"


def test_overlapping_intervals_are_no_difference(before: Diagnosis, after: Diagnosis) -> None:
    set_step(after, 0.09, 0.095, 0.0999)
    assert compare(before, after).verdict == "same"


def test_too_few_steps_say_so(before: Diagnosis, after: Diagnosis) -> None:
    set_step(after, 0.05, 0.05, 0.05, n=2)
    comparison = compare(before, after)
    assert (comparison.ratio, comparison.speedup, comparison.verdict) == (2.0, None, "unknown")


def test_an_op_whose_shapes_changed_is_found_by_its_module(
    before: Diagnosis, after: Diagnosis
) -> None:
    after.ops[0].shapes, after.ops[0].time_s = "[1536] [1024x384] [384x1536]", 0.030
    changed = compare(before, after).ops[0]
    assert (changed.name, changed.matched) == ("aten::addmm", "module")
    # 30 - 16 ms.
    assert changed.delta_s == pytest.approx(0.014)


def test_two_shapes_in_one_module_are_not_guessed_at(before: Diagnosis, after: Diagnosis) -> None:
    extra = copy.deepcopy(after.ops[0])
    after.ops[0].shapes, extra.shapes = "[7]", "[8]"
    after.ops.append(extra)
    matched = [op.matched for op in compare(before, after).ops if op.name == "aten::addmm"]
    assert sorted(matched) == ["after", "after", "before"]


def test_ops_on_one_side_only(before: Diagnosis, after: Diagnosis) -> None:
    gone = after.ops.pop(1)
    comparison = compare(before, after)
    first = comparison.ops[0]
    assert (first.name, first.matched, first.after_s) == ("aten::mm", "before", None)
    assert first.delta_s == -gone.time_s


def test_rows_of_one_op_are_summed(before: Diagnosis, after: Diagnosis) -> None:
    after.ops.append(copy.deepcopy(after.ops[0]))
    first = compare(before, after).ops[0]
    assert (first.before_s, first.after_s) == (0.016, 0.032)


def test_leaves_and_counters(before: Diagnosis, after: Diagnosis) -> None:
    after.leaves["overhead.python"] = 0.002
    after.counters = {"kernels": 380, "graph_breaks": 2}
    comparison = compare(before, after)
    python = next(leaf for leaf in comparison.leaves if leaf.name == "overhead.python")
    assert (python.before, python.after) == (0.006, 0.002)
    counters = {c.name: (c.before, c.after) for c in comparison.counters}
    assert counters["kernels"] == (380, 380)
    assert counters["graph_breaks"] == (None, 2)
    assert counters["ops"] == (611, None)


def test_another_machine_is_said(before: Diagnosis, after: Diagnosis) -> None:
    after.device.name = "NVIDIA H100"
    after.environment["torch"] = "2.6.0"
    assert compare(before, after).notices == [
        "Not the same device: AMD EPYC 9R14 before, NVIDIA H100 after.",
        "Not the same torch: 2.13.0 before, 2.6.0 after.",
    ]


def test_times_of_a_busy_machine_are_no_difference(before: Diagnosis, after: Diagnosis) -> None:
    set_step(after, 0.078, 0.08, 0.082)
    after.notices = [TAKEN_AWAY]
    comparison = compare(before, after)
    assert (comparison.ratio, comparison.speedup, comparison.verdict) == (1.25, None, "unknown")
    assert comparison.notices == [
        "Measured on a machine too busy to time the program: after. A difference of such times is "
        "the machine's as much as the program's."
    ]
    before.notices = [TAKEN_AWAY]
    assert "the program: before and after. " in compare(before, after).notices[0]


def test_nothing(data: Path) -> None:
    nothing = gobrrr.load(data / "minimal.json")
    comparison = compare(nothing, nothing)
    assert (comparison.ratio, comparison.verdict, comparison.ops) == (None, "unknown", [])

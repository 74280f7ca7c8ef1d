"""What no device can have done is told, and makes no step, no idle time and no share of a peak."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.pipeline.trace import diagnose_trace
from gobrrr.timeline.errors import InputError
from trace_writing import OURS, WrittenTrace

_BEGIN_US = 5_000_000
_H100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}]}
_MM: dict[str, Any] = {
    "Input Dims": [[4096, 4096], [4096, 4096]],
    "Input type": ["c10::BFloat16", "c10::BFloat16"],
    "Input Strides": [[4096, 1], [4096, 1]],
}
_OPTIMIZER = "Optimizer.step#AdamW.step"


def recording(steps: int = 3, length_us: int = 2000, optimizers: tuple[int, ...] = ()):
    """Steps of eight products of 200 us each, 20 us apart; by step and number, their kernels."""
    made, kernels = WrittenTrace(**_H100), {}
    for step in range(steps):
        begin = _BEGIN_US + length_us * step
        made.note(f"ProfilerStep#{step}", begin, length_us)
        for i in range(8):
            number = 10 * step + i
            made.op("aten::mm", begin + 10 * i, 9, **{**_MM, "External id": number + 1})
            made.call("cudaLaunchKernel", begin + 10 * i + 3, 4, number)
            made.kernel("nvjet_tst", begin + 100 + 220 * i, 200, number,
                        **{"External id": number + 1})  # fmt: skip
            kernels[step, i] = made.events[-1]
        if step in optimizers:
            made.note(_OPTIMIZER, begin + 90, 5)
    return made, kernels


def told(made: WrittenTrace, tmp_path: Path) -> tuple[Diagnosis, str]:
    found = diagnose_trace(made.write(tmp_path))
    return found, " ".join(found.notices)


def sane(found: Diagnosis, step_s: float = 2e-3) -> None:
    """As the sound steps are: 1.6 ms of products and 0.4 ms of idle time."""
    found.check()
    assert found.step.time_s.high <= 1.01 * step_s
    assert found.accounted_s == pytest.approx(step_s, rel=0.1)
    assert found.split.compute_s == pytest.approx(0.8 * step_s, rel=0.05)
    assert found.leaves["overhead.unexplained"] < 0.2 * step_s
    assert 0.5 < found.mfu < 0.65


def test_records_of_another_clock_are_left_out_with_their_step(tmp_path):
    made, kernels = recording()
    for i in range(6):
        kernels[0, i]["ts"] -= 1_000_000
    found, said = told(made, tmp_path)
    sane(found)
    assert found.step.time_s.n == 2
    assert "Kernels left out: 6 that start long before their launch call." in said
    assert "1 of 3 steps are left out" in said


def test_times_of_zero_are_left_out_with_their_step(tmp_path):
    made, kernels = recording()
    for i in (2, 5):
        kernels[1, i].update(ts=0, dur=0)
    found, said = told(made, tmp_path)
    sane(found)
    assert found.step.time_s.n == 2
    assert "Kernels left out: 2 at times that are not the recording's." in said
    # What the device did is of the steps that are left.
    assert found.device_time.busy_s == pytest.approx(2 * 1.6e-3)
    assert found.device_time.window_s < 4e-3


def test_kernels_that_take_no_time_are_left_out(tmp_path):
    made, kernels = recording()
    kernels[1, 2]["dur"] = 0
    found, said = told(made, tmp_path)
    sane(found)
    assert "Kernels left out: 1 without a duration." in said
    assert not found.above_ceiling


@pytest.mark.parametrize("number", [2, 7])
def test_durations_beyond_the_step_are_cut_at_the_next_kernel(tmp_path, number):
    made, kernels = recording()
    kernels[1, number]["dur"] = 1_600_000
    found, said = told(made, tmp_path)
    sane(found)
    assert found.step.time_s.n == 2
    assert "1 kernel claims to run on through those behind on the stream" in said


def test_the_last_kernel_of_all_is_no_longer_than_others_of_its_name(tmp_path):
    made, kernels = recording()
    kernels[2, 7]["dur"] = 1_600_000
    found, said = told(made, tmp_path)
    sane(found)
    assert "1 kernel claims to run on" in said


def test_kernels_that_begin_early_are_real(tmp_path):
    made, kernels = recording()
    for i in range(1, 8):
        # Its launch does not wait for the end of the one before.
        kernels[1, i]["ts"] -= 32
    found, said = told(made, tmp_path)
    assert found.step.time_s.n == 3
    assert "left out" not in said and "run on" not in said


def test_rows_that_are_no_kernels_are_left_out(tmp_path):
    made, _ = recording()
    for step in range(3):
        made.kernel(f"step {step}", _BEGIN_US + 2000 * step + 90, 1800)
    found, said = told(made, tmp_path)
    sane(found)
    assert found.step.time_s.n == 3
    assert "Kernels left out: 3 that are none but span others on their stream." in said


def test_steps_that_lack_records_are_left_out(tmp_path):
    made, kernels = recording()
    lost = [kernels[1, i] for i in (1, 4)]
    made.events = [event for event in made.events if event not in lost]
    found, said = told(made, tmp_path)
    sane(found)
    assert "2 of 24 launches have no record" in said and "1 of 3 steps are left out" in said


def test_without_a_step_that_can_be_there_is_no_verdict(tmp_path):
    made, kernels = recording()
    for step in range(3):
        kernels[step, 3].update(ts=0, dur=0)
    with pytest.raises(InputError, match="3 of 24 kernels have times outside the recording"):
        diagnose_trace(made.write(tmp_path))


@pytest.mark.parametrize(("took_us", "believed"), [(140, True), (70, False)])
def test_products_at_twice_the_peak_allow_no_verdict(tmp_path, took_us, believed):
    # 2 * 4096^3 FLOPs = 137 GFLOP need 139 us at the 989 TFLOP/s of the data sheet.
    made, kernels = recording()
    for event in kernels.values():
        event["dur"] = took_us
    found, said = told(made, tmp_path)
    assert (found.regime is not None) is believed
    assert ("where the data sheet's peak needs" in said) is not believed


def test_marks_of_micro_batches_are_joined_to_training_steps(tmp_path):
    made, _ = recording(steps=8, optimizers=(3, 7))
    found, said = told(made, tmp_path)
    assert "The optimizer ran in 2 of 8 steps marked by the profiler" in said
    assert "figures are of steps of 4 marks" in said
    assert found.step.time_s.n == 2
    assert found.step.time_s.high == pytest.approx(8e-3)
    assert sum(row.count for row in found.ops if row.name == "aten::mm") == 32


@pytest.mark.parametrize(
    ("optimizers", "says"),
    [
        (tuple(range(8)), None),
        ((0, 1, 2, 3, 4, 5, 6), None),
        ((3,), "in 1 of 8 steps marked by the profiler"),
        ((0, 1, 3, 7), "figures are of one mark"),
        ((1, 4, 7), "figures are of steps of 3 marks. 2 marks at the ends are left out"),
        ((), None),
    ],
)
def test_marks_are_steps_where_nothing_says_otherwise(tmp_path, optimizers, says):
    found, said = told(recording(steps=8, optimizers=optimizers)[0], tmp_path)
    assert says in said if says else "The optimizer ran" not in said
    assert found.step.time_s.n == (2 if says and "3 marks" in says else 8)


_NAMES = ("h100_bert_small_inference", "mi250_toy_training", "mi300x_torch_compile_triton")


def _mutated(name: str, change, share: float) -> WrittenTrace:
    """A recording with a share of its kernels changed."""
    made = json.loads(gzip.decompress((OURS / f"{name}.json.gz").read_bytes()))
    random.seed(0)
    kernels = [event for event in made["traceEvents"] if event.get("cat") == "kernel"]
    changed = random.sample(kernels, max(1, round(share * len(kernels))))
    for event in changed:
        change(event)
    trace = WrittenTrace(**{k: v for k, v in made.items() if k != "traceEvents"})
    trace.events = [event for event in made["traceEvents"] if event.get("dur") != "lost"]
    return trace


_CHANGES = {
    "another clock": lambda event: event.update(ts=event["ts"] - 1e8),
    "before its launch": lambda event: event.update(ts=event["ts"] - 5e5),
    "zero": lambda event: event.update(ts=0, dur=0),
    "too long": lambda event: event.update(dur=1.6e6),
    "in the future": lambda event: event.update(ts=event["ts"] + 1e8),
}


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("kind", _CHANGES)
@pytest.mark.parametrize("share", [0.02, 0.2])
def test_a_recording_with_some_impossible_records_is_told_and_makes_no_long_step(
    tmp_path, name, kind, share
):
    sound = diagnose_trace(OURS / f"{name}.json.gz")
    made = _mutated(name, _CHANGES[kind], share)
    try:
        found, said = told(made, tmp_path)
    except InputError as error:
        assert re.search(r"\d+ of \d+ (kernels|launches|records)", str(error))
        return
    found.check()
    assert "Kernels left out" in said or "run on" in said
    assert found.accounted_s < 1.5 * sound.accounted_s + 1e-4

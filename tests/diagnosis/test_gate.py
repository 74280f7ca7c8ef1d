"""Gates: what is a breach, what is only said, and what cannot be checked."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

import gobrrr
from gobrrr.diagnosis.assemble import TAKEN_AWAY
from gobrrr.diagnosis.gate import GateResult, Limits, against_baseline, over_limits
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.timeline.errors import InputError


@pytest.fixture
def baseline(data: Path) -> Diagnosis:
    return gobrrr.load(data / "training.json")


@pytest.fixture
def now(baseline: Diagnosis) -> Diagnosis:
    return copy.deepcopy(baseline)


def slow_down(diagnosis: Diagnosis, factor: float) -> None:
    time = diagnosis.step.time_s
    for name in ("low", "median", "mean", "high"):
        setattr(time, name, getattr(time, name) * factor)


def test_itself_holds(baseline: Diagnosis, now: Diagnosis) -> None:
    result = against_baseline(now, baseline, exact=True)
    assert (result.breaches, result.notes) == ((), ())


def test_one_more_kernel_is_a_breach(baseline: Diagnosis, now: Diagnosis) -> None:
    now.counters["kernels"] += 1
    assert against_baseline(now, baseline).breaches == (
        "kernels: 381 per step, 380 in the baseline (+0.3 %)",
    )


def test_fewer_is_a_note_unless_exact(baseline: Diagnosis, now: Diagnosis) -> None:
    now.counters["kernels"] -= 1
    result = against_baseline(now, baseline)
    assert result.breaches == ()
    assert "new baseline" in result.notes[0]
    assert len(against_baseline(now, baseline, exact=True).breaches) == 1


def test_rounding_is_no_change(baseline: Diagnosis, now: Diagnosis) -> None:
    now.counters["flops"] *= 1 + 1e-12
    assert against_baseline(now, baseline, exact=True).breaches == ()


def test_what_is_no_longer_counted_is_a_breach(baseline: Diagnosis, now: Diagnosis) -> None:
    del now.counters["ops"]
    assert against_baseline(now, baseline).breaches == (
        "ops: 611 per step in the baseline, not counted here",
    )


def test_page_faults_are_not_held(baseline: Diagnosis, now: Diagnosis) -> None:
    baseline.counters["page_faults"], now.counters["page_faults"] = 10, 1000
    assert against_baseline(now, baseline).breaches == ()


def test_a_slower_step_is_a_breach_beyond_the_tolerance(
    baseline: Diagnosis, now: Diagnosis
) -> None:
    slow_down(now, 1.09)
    assert against_baseline(now, baseline).breaches == ()
    slow_down(now, 1.1)
    # 100 * 1.09 * 1.1 = 119.9 ms.
    assert against_baseline(now, baseline).breaches == (
        "step: 119.9 ms, 100.0 in the baseline (+19.9 %), more than 10 % allowed",
    )
    assert against_baseline(now, baseline, time_tolerance=0.2).breaches == ()
    assert against_baseline(now, baseline, times=False).breaches == ()


def test_overlapping_intervals_are_no_breach(baseline: Diagnosis, now: Diagnosis) -> None:
    slow_down(now, 1.2)
    now.step.time_s.low = 0.1
    assert against_baseline(now, baseline).breaches == ()


def test_times_of_another_device_are_not_compared(baseline: Diagnosis, now: Diagnosis) -> None:
    slow_down(now, 3)
    now.device.name = "another"
    result = against_baseline(now, baseline)
    assert result.breaches == ()
    assert result.notes == ("times not compared: this is another, the baseline AMD EPYC 9R14",)


def test_an_empty_baseline_is_refused(baseline: Diagnosis, now: Diagnosis) -> None:
    baseline.counters = {}
    with pytest.raises(InputError, match="no counters"):
        against_baseline(now, baseline, times=False)


def test_limits(now: Diagnosis) -> None:
    limits = Limits(
        counters={"kernels": 380, "ops": 600, "graph_breaks": 0},
        regime="memory", max_overhead=0.2, max_step_s=0.09,
    )  # fmt: skip
    assert over_limits(now, limits) == [
        "ops: 611 per step, at most 600 allowed",
        "graph_breaks: not counted in this diagnosis (it counts flops, kernels, ops)",
        "regime: compute, expected memory",
        # 27.5 of 100 ms.
        "overhead: 27.5 % of the step, at most 20.0 % allowed",
        "step: 100.0 ms, at most 90.0 allowed",
    ]
    assert over_limits(now, Limits(counters={"kernels": 380}, regime="compute")) == []


def test_no_verdict_is_not_the_expected_one(now: Diagnosis) -> None:
    now.regime = None
    assert over_limits(now, Limits(regime="compute")) == [
        "regime: no verdict could be drawn, expected compute"
    ]
    assert over_limits(now, Limits(max_overhead=0.9)) == [
        "overhead: no verdict could be drawn, at most 90.0 % allowed"
    ]


def test_a_limit_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="no regime 'cpu'"):
        Limits(regime="cpu")
    with pytest.raises(InputError, match="from 0 to 1"):
        Limits(max_overhead=40)


def test_means_over_steps_that_differ_are_held_with_a_tolerance(
    baseline: Diagnosis, now: Diagnosis
) -> None:
    now.step.varying = True
    now.counters["flops"] *= 1.08
    result = against_baseline(now, baseline)
    assert result.breaches == ()
    assert "counts are means" in result.notes[0]
    now.counters["flops"] *= 1.05
    assert len(against_baseline(now, baseline).breaches) == 1


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        (True, False, "this diagnosis"),
        (False, True, "the baseline"),
        (True, True, "this diagnosis and the baseline"),
    ],
)
def test_times_of_a_busy_machine_are_not_compared(
    baseline: Diagnosis, now: Diagnosis, here: bool, there: bool, said: str
) -> None:
    slow_down(now, 3)
    for diagnosis, busy in ((now, here), (baseline, there)):
        diagnosis.notices = [TAKEN_AWAY] if busy else []
    now.counters["kernels"] += 1
    result = against_baseline(now, baseline)
    assert [breach.split(":")[0] for breach in result.breaches] == ["kernels"]
    assert result.notes == (
        f"times not compared: the machine was too busy to time {said}; measure again on an idle "
        "machine",
    )


@pytest.mark.parametrize(("here", "there"), [(2, 24), (24, 1), (0, 24)])
def test_times_without_an_interval_are_not_compared(
    baseline: Diagnosis, now: Diagnosis, here: int, there: int
) -> None:
    slow_down(now, 3)
    now.step.time_s.n, baseline.step.time_s.n = here, there
    result = against_baseline(now, baseline)
    assert result.breaches == ()
    assert result.notes == (
        f"times not compared: too few steps for an interval ({here} here, {there} in the "
        "baseline; 3 are enough)",
    )


def test_predictions_are_no_samples(baseline: Diagnosis, now: Diagnosis) -> None:
    slow_down(now, 1.2)
    now.step.time_s.n = baseline.step.time_s.n = 0
    now.step.time_s.low, now.step.time_s.high = 0.01, None
    assert len(against_baseline(now, baseline).breaches) == 1
    assert against_baseline(now, baseline, time_tolerance=0.3) == GateResult((), ())

"""Gates: what is a breach, what is only said, and what cannot be checked."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from msgspec.structs import replace

import gobrrr
from gobrrr.diagnosis.assemble import TAKEN_AWAY
from gobrrr.diagnosis.figures import figures_of, load_figures
from gobrrr.diagnosis.gate import Limits, against_baseline, over_limits
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
    assert (result.breaches, result.notes, result.better) == ((), (), ())
    assert result.held == ("flops", "ops", "kernels", "step")


def test_one_more_kernel_is_a_breach(baseline: Diagnosis, now: Diagnosis) -> None:
    now.counters["kernels"] += 1
    assert against_baseline(now, baseline).breaches == (
        "kernels: 381 per step, 380 in the baseline (+0.3 %)",
    )


def test_fewer_is_better_unless_exact(baseline: Diagnosis, now: Diagnosis) -> None:
    now.counters["kernels"] -= 1
    result = against_baseline(now, baseline)
    assert result.breaches == ()
    assert result.better == ("kernels: 379 per step, 380 in the baseline (-0.3 %)",)
    assert len(against_baseline(now, baseline, exact=True).breaches) == 1


def test_rounding_is_no_change(baseline: Diagnosis, now: Diagnosis) -> None:
    now.counters["flops"] *= 1 + 1e-12
    assert against_baseline(now, baseline, exact=True).breaches == ()


def test_flops_may_grow_by_half_a_percent(baseline: Diagnosis, now: Diagnosis) -> None:
    now.counters["flops"] *= 1.004
    assert against_baseline(now, baseline).breaches == ()
    assert len(against_baseline(now, baseline, tolerance=0.003).breaches) == 1
    now.counters["flops"] *= 1.002
    assert len(against_baseline(now, baseline).breaches) == 1
    assert against_baseline(now, baseline, tolerance=0.01).breaches == ()


def test_only_what_is_named_is_compared(baseline: Diagnosis, now: Diagnosis) -> None:
    slow_down(now, 3)
    now.counters["kernels"] += 1
    result = against_baseline(now, baseline, only=["flops", "ops"])
    assert (result.breaches, result.held) == ((), ("flops", "ops"))
    assert len(against_baseline(now, baseline, only=["kernels"]).breaches) == 1
    assert against_baseline(now, baseline, only=["step"]).breaches[0].startswith("step: ")
    with pytest.raises(InputError, match=r"'kernel'.* it has flops, ops, kernels, step"):
        against_baseline(now, baseline, only=["kernel"])


def test_a_faster_step_is_better(baseline: Diagnosis, now: Diagnosis) -> None:
    slow_down(now, 0.8)
    result = against_baseline(now, baseline)
    assert result.breaches == ()
    assert result.better == ("step: 80.0 ms, 100.0 in the baseline (-20.0 %)",)


def test_a_baseline_of_figures_holds_what_its_diagnosis_does(
    baseline: Diagnosis, now: Diagnosis, tmp_path: Path
) -> None:
    path = figures_of(baseline).save(tmp_path / "base.json")
    # A figure is a line.
    assert len(path.read_text().splitlines()) < 25
    assert '"kernels": 380\n' in path.read_text()
    slow_down(now, 1.2)
    now.counters["kernels"] += 1
    assert against_baseline(now, load_figures(path)) == against_baseline(now, baseline)
    assert load_figures(baseline.save(tmp_path / "whole.json")).counters == baseline.counters


def test_what_is_no_baseline_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    for text, said in (
        ('{"figures_version": 99}', "newer gobrrr"),
        ('{"figures_version": 1}', "not a baseline"),
        ("{}", "not a gobrrr diagnosis"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            load_figures(path)


def test_what_a_library_reads_of_its_own_is_no_synchronisation(now: Diagnosis) -> None:
    read = replace(
        now.ops[0], name="aten::_local_scalar_dense", count=2.0, phase="forward",
        source="train.py:8 in main",
    )  # fmt: skip
    now.ops += [read, replace(read, phase="optimizer", source="train.py:9 in main")]
    now.counters |= {"reads_of_one_value": 4.0, "reads_by_optimizer": 2.0}
    none = Limits(counters={"synchronisations": 0})
    assert over_limits(now, none) == [
        "synchronisations: 2 per step, at most 0 allowed: train.py:8 in main (2 times)"
    ]
    # The user's own optimizer reads them: nothing of it is a library's.
    now.counters["reads_by_optimizer"] = 0.0
    assert over_limits(now, none)[0].endswith(
        ": train.py:8 in main (2 times), train.py:9 in main (2 times)"
    )
    assert over_limits(now, Limits(counters={"reads_of_one_value": 4, "synchronisations": 4})) == []


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


@pytest.mark.parametrize(
    ("name", "meant"),
    [("syncs", "synchronisations"), ("synchronizations", "synchronisations"),
     ("max_kernels", "kernels"), ("kernel", "kernels"), ("graphbreaks", "graph_breaks")],
)  # fmt: skip
def test_a_counter_by_another_name_is_told_its_own(now: Diagnosis, name: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"no counter '{name}'; did you mean {meant}"):
        over_limits(now, Limits(counters={name: 0}))
    with pytest.raises(InputError, match="no counter 'zzz'; there are bytes"):
        over_limits(now, Limits(counters={"zzz": 0}))


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
    assert against_baseline(now, baseline, time_tolerance=0.3).breaches == ()

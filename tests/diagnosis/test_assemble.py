"""The rules that every diagnosis follows, whatever its step came from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gobrrr.attribution.attributed import Attributed, AttributedOp, Provisional
from gobrrr.attribution.device.attribute import attribute_device
from gobrrr.attribution.device.attributed import attributed_device
from gobrrr.attribution.leaves import UNMODELLED, KernelShares
from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.diagnosis.assemble import TAKEN_AWAY, assemble, hardly_modelled, speed_of_light
from gobrrr.diagnosis.schema import NO_VERDICT, Coverage, Diagnosis, UnmodelledOp
from gobrrr.diagnosis.tables import coverage_of
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import WHOLE_TRACE, Device, Timeline
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from trace_writing import OURS


def ceilings() -> Ceilings:
    rows = {
        name: Ceiling(name, 1e14, "FLOP/s", "given", "test")
        for name in ("matrix.float32", "vector.float32")
    }
    return Ceilings("a device", rows, (MemoryLevel("hbm", None, ((0.0, 1e12),)),))


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    return read_trace(OURS / "mi250_toy_training.json.gz")


def attributed(
    timeline: Timeline, known: Ceilings | None, unprofiled_s: tuple[float, ...] = ()
) -> Attributed:
    return attributed_device(
        timeline, attribute_device(timeline, known, work_of), known, unprofiled_s
    )


def diagnosed(step: Attributed) -> Diagnosis:
    return assemble(step, source={"kind": "trace"}, environment={})


def test_of_a_recording_median_mean_and_interval_are_each_what_they_say(
    timeline: Timeline,
) -> None:
    found = diagnosed(attributed(timeline, ceilings()))
    lengths = sorted(((timeline.steps[:, 1] - timeline.steps[:, 0]) * 1e-9).tolist())
    time = found.step.time_s
    assert found.step.basis == "mean"
    assert time.mean == pytest.approx(sum(lengths) / len(lengths))
    assert time.median == pytest.approx(
        0.5 * (lengths[(len(lengths) - 1) // 2] + lengths[len(lengths) // 2])
    )
    assert time.high is not None
    assert time.low <= time.median <= time.high
    assert sum(found.leaves.values()) == pytest.approx(time.mean)


def test_unprofiled_times_are_the_step_and_name_its_slow_ones(timeline: Timeline) -> None:
    profiled = attributed(timeline, ceilings())
    base = profiled.step.time.mean
    samples = (base, base * 1.01, base * 0.99, base * 1.6, base)
    found = diagnosed(attributed(timeline, ceilings(), samples))
    assert found.step.basis == "median"
    assert found.step.samples_s == list(samples)
    assert sum(found.leaves.values()) == pytest.approx(base)
    assert [(slow.index, slow.time_s) for slow in found.step.slow_steps] == [(3, samples[3])]
    assert found.step.profiled_time_s == pytest.approx(base)


def test_the_speed_of_light_is_no_less_than_the_products_at_their_peak() -> None:
    """Kernels beside each other on several streams share the time, and not the arithmetic."""
    leaves = {"compute.matrix.roof": 1e-3, "compute.matrix.below": 2e-3, "memory.device.roof": 1e-3}
    assert speed_of_light(leaves, ceilings(), 0.0) == pytest.approx(2e-3)
    assert speed_of_light(leaves, ceilings(), 2.5e-3) == pytest.approx(2.5e-3)
    assert speed_of_light(leaves, None, 2.5e-3) is None


def test_without_ceilings_there_is_no_speed_of_light(timeline: Timeline) -> None:
    found = diagnosed(attributed(timeline, None))
    assert (found.speed_of_light_s, found.mfu) == (None, None)
    assert any("No ceilings" in notice for notice in found.notices)


def test_a_step_that_is_mostly_unmodelled_has_no_speed_of_light(timeline: Timeline) -> None:
    step = attributed(timeline, ceilings())
    known = diagnosed(step)
    fraction = known.coverage.modelled_time_fraction
    assert fraction is not None
    assert (known.speed_of_light_s is not None) == (fraction >= 0.9)
    unknown = replace(step, ops=tuple(replace(op, work=None, roof=None) for op in step.ops))
    assert diagnosed(unknown).speed_of_light_s is None
    assert diagnosed(unknown).mfu is None


@pytest.mark.parametrize(
    ("fraction", "lost_s", "known", "told"),
    [
        (0.06, 0.8, True, True),
        (0.5, 0.6, True, False),
        # Kernels are little of the step; without ceilings nothing of any step is known.
        (0.06, 0.3, True, False),
        (0.0, 0.9, False, False),
    ],
)
def test_a_step_of_which_next_to_nothing_is_known_has_no_verdict(
    timeline: Timeline, fraction: float, lost_s: float, known: bool, told: bool
) -> None:
    step = attributed(timeline, ceilings() if known else None)
    missing = UnmodelledOp(op="my::op", time_s=lost_s, reason="no formula")
    coverage = Coverage(modelled_time_fraction=fraction, unmodelled=[missing])
    said = hardly_modelled(coverage, step, 1.0)
    assert bool(said) == told
    assert all("6 % of the kernel time" in text and NO_VERDICT in text for text in said)
    assert all("no formula" in text for text in said)


def test_a_step_is_training_if_anything_of_it_runs_backward(timeline: Timeline) -> None:
    assert diagnosed(attributed(timeline, None)).step.kind == "training step"
    whole = replace(timeline, steps_how=WHOLE_TRACE)
    assert diagnosed(attributed(whole, None)).step.kind == "trace"


def test_nothing_is_above_the_ceilings_of_a_prediction(timeline: Timeline) -> None:
    slow = Ceilings(
        "slow", {n: replace(c, value=1e6) for n, c in ceilings().rows.items()}, ceilings().levels
    )
    step = attributed(timeline, slow)
    assert diagnosed(step).above_ceiling
    predicted = replace(step, step=replace(step.step, time=replace(step.step.time, n=0)))
    assert diagnosed(predicted).above_ceiling == []


def test_of_a_machine_that_was_taken_away_only_what_was_measured_is_told(
    timeline: Timeline,
) -> None:
    step = attributed(timeline, ceilings(), (0.1,) * 8)
    step = replace(step, step=replace(step.step, host_scale=1.0))
    free = diagnosed(step)
    assert free.verdict
    found = diagnosed(replace(step, step=replace(step.step, taken_away=True)))
    assert found.verdict == ""
    assert (found.regime, found.close) == (None, False)
    assert (found.mfu, found.speed_of_light_s) == (None, None)
    assert found.notices[0] == TAKEN_AWAY
    assert "75 %" in TAKEN_AWAY and "a hypervisor" in TAKEN_AWAY
    assert found.leaves == free.leaves


@pytest.mark.parametrize(
    ("bound", "says"),
    [
        (Provisional("overhead", 4e-3, 1e-3, 5e-4, 2e-4), "kernels take at most 1.00 ms"),
        (Provisional("compute", 4e-3, 1e-3, 2e-3, 2e-4), "its FLOPs take 2.00 ms"),
    ],
)
def test_what_counts_tell_of_it_is_marked_as_provisional(
    timeline: Timeline, bound: Provisional, says: str
) -> None:
    step = attributed(timeline, ceilings(), (0.1,) * 8)
    step = replace(step, step=replace(step.step, host_scale=1.0, provisional=bound))
    assert diagnosed(step).provisional is None
    step = replace(step, device=Device("a processor", "cpu"), threads=2)
    found = diagnosed(replace(step, step=replace(step.step, taken_away=True)))
    assert found.regime is None and found.findings == []
    assert found.provisional is not None and found.provisional.regime == bound.regime
    assert found.verdict.startswith("Provisional") and f"{bound.regime}-bound" in found.verdict
    assert says in found.verdict
    # One notice says why, and what helps.
    (notice,) = [text for text in found.notices if NO_VERDICT in text]
    assert "provisional" in notice and "--threads 1" in notice
    # Profiled steps of another length are the machine's.
    apart = replace(step.step, taken_away=True, host_scale=20.0, profiled_s=0.1)
    assert diagnosed(replace(step, step=apart)).provisional is not None


@pytest.mark.parametrize("scale", [0.02, 20.0])
def test_profiled_steps_that_are_nothing_like_the_timed_ones_have_no_verdict(
    timeline: Timeline, scale: float
) -> None:
    step = attributed(timeline, ceilings(), (0.1,) * 8)
    times = replace(step.step, host_scale=scale, profiled_s=0.1 / scale)
    found = diagnosed(replace(step, step=times))
    assert found.verdict == "" and found.regime is None
    assert "the program or the machine changed between them" in found.notices[0]


def test_an_op_without_sizes_is_not_said_to_have_no_formula() -> None:
    # An op that only other steps run is known by its name alone.
    calls = [OpCall("aten::add_"), OpCall("aten::_no_such_op")]
    items = [AttributedOp(StepOp(call), None, None, i, 0.0) for i, call in enumerate(calls)]
    times = np.array([2e6, 1e6])
    none = np.zeros(2)
    shares = KernelShares(
        np.arange(2), times, times, none, none, none, times, np.full(2, np.nan),
        np.full(2, UNMODELLED, np.uint8),
    )  # fmt: skip
    found = {row.op: row.reason for row in coverage_of(items, shares, 0.0).unmodelled}
    assert found == {"aten::add_": "sizes unknown", "aten::_no_such_op": "no formula"}

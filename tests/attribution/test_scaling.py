"""A profiled step brought to the length of the timed one, by hand: times in microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from attribution.test_device_rules import attributed, leaves_us, one_kernel
from gobrrr.attribution.device.attribute import DeviceAttribution
from gobrrr.attribution.device.scaling import Scales, scale_to_step, unsteady
from gobrrr.measure import Summary

US = 1000


def mm(folder: Path, starts: float, duration: float) -> DeviceAttribution:
    """A product with 1 of fixed cost and a roof of 30; its host takes all time before it."""
    return attributed(one_kernel("gemm", starts, duration, "aten::mm"), folder)[1]


@pytest.mark.parametrize(
    ("step", "roof", "below"), [(93, 30, 59), (113, 30, 79), (23, 19, 0)]
)  # fmt: skip
def test_of_a_busy_device_the_kernels_differ(
    tmp_path: Path, step: float, roof: float, below: float
) -> None:
    found, scales = scale_to_step(mm(tmp_path, 3, 100), step * US)
    # Idle for 3 of 103, or for 13 of 113. Fixed cost and roof stay, as far as there is room.
    assert scales == Scales(1.0, pytest.approx((step - 3) / 100))
    expected = {
        "overhead.dispatch": 1, "overhead.launch": 2, "overhead.kernel_fixed_cost": 1,
        "compute.matrix.roof": roof, "compute.matrix.below": below,
    }  # fmt: skip
    assert leaves_us(found) == {name: value for name, value in expected.items() if value}
    kernels = found.attribution.kernels
    assert kernels.owned_ns.sum() == pytest.approx((step - 3) * US)
    assert kernels.duration_ns.sum() == pytest.approx((step - 3) * US)
    assert found.attribution.step_ns == step * US


@pytest.mark.parametrize("step", [203, 303])
def test_of_an_idle_device_the_host_differs(tmp_path: Path, step: float) -> None:
    found, scales = scale_to_step(mm(tmp_path, 203, 50), step * US)
    factor = (step - 50) / 203
    assert scales == Scales(pytest.approx(factor), 1.0)
    leaves = leaves_us(found)
    assert leaves["overhead.dispatch"] == pytest.approx(factor, abs=1e-5)
    assert leaves["overhead.launch"] == pytest.approx(202 * factor, abs=1e-5)
    assert leaves["compute.matrix.below"] == 19
    idle = sum(gap.duration_ns for gap in found.attribution.idle)
    assert idle == pytest.approx((step - 50) * US)


def test_in_between_a_longer_step_is_unexplained(tmp_path: Path) -> None:
    profiled = mm(tmp_path, 33, 67)
    # Idle for 43 of 110.
    found, scales = scale_to_step(profiled, 110 * US)
    assert scales == Scales(1.0, 1.0)
    assert leaves_us(found) == {**leaves_us(profiled), "overhead.unexplained": 10}
    assert "unexplained" in found.attribution.notices[-1]
    # At the same clock it is the host's.
    _, scales = scale_to_step(profiled, 110 * US, same_clock=True)
    assert scales == Scales(pytest.approx(43 / 33), 1.0)
    # A shorter one as well: no profiler makes a host faster.
    _, scales = scale_to_step(profiled, 90 * US)
    assert scales == Scales(pytest.approx(23 / 33), 1.0)


def test_what_host_time_cannot_explain_is_of_all_parts(tmp_path: Path) -> None:
    found, scales = scale_to_step(mm(tmp_path, 33, 67), 10 * US)
    assert scales == Scales(0.1, 0.1)
    # 6.7 of the kernel: 1 is fixed.
    assert leaves_us(found) == {
        "overhead.dispatch": 0.1, "overhead.launch": 3.2, "overhead.kernel_fixed_cost": 1,
        "compute.matrix.roof": 5.7,
    }  # fmt: skip


def test_two_per_cent_are_within_what_timing_leaves_open(tmp_path: Path) -> None:
    profiled = mm(tmp_path, 3, 97)
    for step, said in ((98.5, 0), (101.5, 0), (97.5, 1), (103, 1)):
        found, _ = scale_to_step(profiled, step * US)
        assert len(found.attribution.notices) - len(profiled.attribution.notices) == said
        assert found.attribution.step_ns == step * US


def test_a_busy_device_whose_steps_vary_is_said(tmp_path: Path) -> None:
    def of(low: float, high: float) -> Summary:
        return Summary(100e-6, 100e-6, low, high, 9)

    busy, idle = mm(tmp_path, 3, 97), mm(tmp_path, 53, 47)
    assert unsteady(busy, of(99e-6, 100.9e-6)) == ()
    assert len(unsteady(busy, of(98e-6, 100.1e-6))) == 1
    assert unsteady(idle, of(90e-6, 110e-6)) == ()

"""A program whose host takes longer than its ops alone, as its user says."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import gobrrr  # noqa: E402
from gobrrr.prediction.step.host_lane import TYPICAL_HOST  # noqa: E402
from gobrrr.prediction.step.targets import predicted_target  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402

pytestmark = pytest.mark.torch


def step_of(width: int) -> Callable[[], object]:
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(8))).to("meta")
    x = torch.empty(16, width, device="meta")
    return lambda: model(x).square().mean().backward()


def test_a_step_that_the_host_binds_takes_as_many_times_as_long() -> None:
    step = step_of(64)
    alone = gobrrr.predict(step, "H100-SXM")
    assert alone.source["host_bound"]
    known = gobrrr.predict(step, "H100-SXM", host_overhead=5.0)
    assert known.source["host_s"] == pytest.approx(5 * alone.source["host_s"])
    assert known.step_s == pytest.approx(5 * alone.step_s, rel=0.15)
    assert known.source["host_bound"]
    for found in (alone, known):
        assert found.step.time_s.low < found.step_s < found.step.time_s.high
    # Only the program is unknown then, and not the host.
    wide, narrow = (found.step.time_s.high / found.step_s for found in (alone, known))
    assert narrow < 0.5 * wide
    assert any("5 times what a typical host takes, as given" in note for note in known.notices)
    assert not any("--host-overhead" in note for note in known.notices)


def test_a_step_that_the_device_binds_stays_as_it_is() -> None:
    step = step_of(16384)
    alone = gobrrr.predict(step, "H100-SXM")
    known = gobrrr.predict(step, "H100-SXM", host_overhead=1.5)
    assert known.step_s == pytest.approx(alone.step_s, rel=0.02)


def test_on_a_mesh_too() -> None:
    step = step_of(64)
    alone, known = (
        gobrrr.predict(step, "A100-SXM-80GB", mesh="dp=8", host_overhead=times)
        for times in (None, 6.0)
    )
    assert alone.source["host_bound"]
    assert known.source["host_bound"]
    assert known.step_s > 3 * alone.step_s


@pytest.mark.parametrize("compile", [False, True])
def test_on_a_mesh_the_interval_reaches_as_far_as_alone(compile: bool) -> None:
    step = step_of(64)
    alone, mesh = (
        gobrrr.predict(step, "A100-SXM-80GB", mesh=mesh, compile=compile) for mesh in (None, "dp=8")
    )
    # What is said of programs and hosts holds there too.
    assert alone.source["host_bound"] and mesh.source["host_bound"]
    for found in (alone, mesh):
        high = found.step.time_s.high
        assert high is not None
        assert 2.9 * found.source["host_s"] < high < 4 * found.source["host_s"]


@pytest.mark.parametrize("times", [0.0, -1.0, inf, float("nan")])
def test_an_overhead_is_a_number_above_0(times: float) -> None:
    with pytest.raises(InputError, match="above 0"):
        predicted_target("H100-SXM", times)


def test_a_processor_has_none() -> None:
    with pytest.raises(InputError, match="leave it out for a processor"):
        predicted_target("cpu", 2.0)


def test_without_one_the_host_is_the_typical_one() -> None:
    assert predicted_target("H100-SXM")[1] is TYPICAL_HOST

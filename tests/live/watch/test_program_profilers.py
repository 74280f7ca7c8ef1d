"""What is known of the profilers that a program runs itself."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch.profiler import ProfilerActivity, profile, schedule  # noqa: E402

from gobrrr.live.watch.program_profilers import ProgramProfilers  # noqa: E402

pytestmark = pytest.mark.torch


def test_one_that_is_stepped_is_expected_from_its_start_until_it_is_stopped() -> None:
    heard = []
    profilers = ProgramProfilers()
    profilers.before_start = lambda: heard.append("start")
    before = profile.start, profile.step, profile.stop, torch.autograd.profiler.profile.__enter__
    undo = profilers.watch(lambda: heard.append("step"))
    try:
        with profile(activities=[ProfilerActivity.CPU]):
            assert not profilers.expected()
        with profile(
            activities=[ProfilerActivity.CPU], schedule=schedule(wait=9, warmup=1, active=1)
        ) as own:
            assert profilers.expected()
            own.step()
            assert profilers.expected()
        assert not profilers.expected()
        with torch.autograd.profiler.profile():
            assert not profilers.expected()
    finally:
        undo()
    assert heard == ["start", "start", "step", "start"]
    after = profile.start, profile.step, profile.stop, torch.autograd.profiler.profile.__enter__
    assert after == before

"""A step that opens torch's profiler itself is timed without one."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_a_step_with_a_profiler_of_its_own_is_timed_op_by_op() -> None:
    from gobrrr.live.measurements import Plan
    from gobrrr.live.session import Session

    a = torch.randn(200, 200)
    session = Session(Plan(warmup=1, steps=2, profiled=3))
    session.boundary("test")
    kept = []
    while not session.done:
        with torch.profiler.profile() as profiler:
            (a @ a).relu_()
        kept.append(profiler)
        session.boundary("test")
    profiled = session.result.profiled
    assert len(profiled) == 3
    for step in profiled:
        assert [step.names[i] for i in step.name] == ["aten::mm", "aten::relu_"]
        assert (step.start_ns >= 0).all()
        assert (step.end_ns <= step.length_ns).all()
        assert (step.end_ns > step.start_ns).all()
    assert len(session.result.all_plain_ns) == 2
    (notice,) = session.result.notices
    assert notice.startswith("The program runs a profiler of its own, and only one can run at")
    # The program's own profiler works in every step that is not gobrrr's first attempt.
    assert any(event.name == "aten::mm" for event in kept[-1].events())
    assert not torch.autograd._profiler_enabled()


def test_a_profiler_that_is_open_around_the_steps_stays_open() -> None:
    from gobrrr.live.calibration.fixed_cost import calibrate_fixed_costs
    from gobrrr.live.measurements import Plan
    from gobrrr.live.profiles.profile import calibrate_profiler_cost
    from gobrrr.live.session import Session

    a = torch.randn(50, 50)
    with torch.profiler.profile() as profiler:
        session = Session(Plan(warmup=1, steps=2, profiled=2))
        session.boundary("test")
        while not session.done:
            a @ a
            session.boundary("test")
        cost = calibrate_profiler_cost()
        ops = session.result.recorded or []
        fixed = calibrate_fixed_costs(ops, np.ones(len(ops), bool), cost)
    assert cost.outside_ns == 0
    assert (fixed.time_ns > 0).all()
    assert len(session.result.profiled) == 2
    assert "Another profiler" in session.result.notices[0]
    assert sum(event.name == "aten::mm" for event in profiler.events()) >= 8


def test_steps_of_very_many_ops_do_not_fill_the_memory_of_a_profiler() -> None:
    from gobrrr.live.measurements import MOST_OPS_OF_PROFILER, Plan
    from gobrrr.live.session import Session
    from gobrrr.timeline.graph import StepOp
    from gobrrr.timeline.ops import OpCall

    class ManyOps:
        def start(self) -> None: ...

        def stop(self) -> list[StepOp]:
            return [StepOp(OpCall("aten::relu_"))] * (MOST_OPS_OF_PROFILER + 1)

    a = torch.randn(20, 20)
    session = Session(Plan(warmup=1, steps=2), make_recorder=lambda roots: ManyOps())
    session.boundary("test")
    while not session.done:
        (a @ a).relu_()
        session.boundary("test")
    assert session.result.by_dispatch
    for step in session.result.profiled:
        assert [step.names[i] for i in step.name] == ["aten::mm", "aten::relu_"]
    assert "60,001 ops per step" in session.result.notices[0]

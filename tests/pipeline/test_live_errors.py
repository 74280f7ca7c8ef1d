"""Whose error it is: the program's, or gobrrr's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def dislikes(sees: Any) -> Any:
    x = torch.randn(500, 500)

    def step() -> Any:
        if sees():
            raise TypeError("not while I am watched")
        return (x @ x).relu().sum()

    return step


def has_modes() -> bool:
    return bool(torch._C._len_torch_dispatch_stack())


def test_a_step_that_cannot_be_recorded_is_timed_and_profiled() -> None:
    import gobrrr

    found = gobrrr.diagnose(dislikes(has_modes), warmup=1, steps=4, batch_test=False)
    found.check()
    # Nothing is known of its kernels: no verdict, and why.
    # A view or an empty tensor may be: of these the work is known without sizes.
    assert found.regime is None and found.notices[0].startswith(("Only 0 % of", "Only <1 % of"))
    assert found.notices[1].startswith(
        "The ops of this step could not be recorded (TypeError: not while I am watched): "
    )
    assert {op.name for op in found.ops} >= {"aten::matmul", "aten::relu", "aten::sum"}
    assert sum(s for leaf, s in found.leaves.items() if leaf.endswith("unmodelled")) > 0
    assert not any(s for leaf, s in found.leaves.items() if leaf.endswith((".roof", ".below")))
    assert found.mfu is None
    assert not has_modes()


def test_a_step_that_fails_under_the_profiler_is_timed_through_the_dispatcher() -> None:
    from gobrrr.live.function import measure_step
    from gobrrr.live.measurements import Plan

    measured = measure_step(dislikes(torch.autograd._profiler_enabled), Plan(warmup=1, steps=2))
    assert measured.by_dispatch
    assert measured.profiled
    assert measured.notices[0].startswith("The step fails under torch's profiler (TypeError: not")
    assert [op.call.name for op in measured.recorded or ()] == ["aten::mm", "aten::relu",
                                                                "aten::sum"]  # fmt: skip


def test_what_only_fails_under_gobrrr_is_not_the_users_error() -> None:
    from gobrrr.live.function import measure_step
    from gobrrr.live.measurements import Plan
    from gobrrr.timeline.errors import DefectError, UserCodeError

    step = dislikes(lambda: has_modes() or torch.autograd._profiler_enabled())
    with pytest.raises(DefectError) as raised:
        measure_step(step, Plan(warmup=1, steps=2))
    assert str(raised.value) == (
        "gobrrr could not measure this step: during profiling it failed with TypeError: "
        "not while I am watched; it runs without gobrrr"
    )
    assert raised.value.exit_code == 2
    assert not isinstance(raised.value, UserCodeError)
    assert not has_modes()


def test_what_fails_by_itself_is() -> None:
    from gobrrr.live.function import measure_step
    from gobrrr.live.measurements import Plan
    from gobrrr.timeline.errors import UserCodeError

    steps = []

    def later() -> Any:
        steps.append(1)
        if len(steps) >= 2:
            raise ValueError("later")
        return torch.ones(2)

    with pytest.raises(UserCodeError, match="the step raised ValueError: later") as raised:
        measure_step(later, Plan(warmup=1, steps=2))
    assert isinstance(raised.value.__cause__, ValueError)
    assert raised.value.exit_code == 3


def test_an_analysis_that_fails_says_so_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from gobrrr.devices.ceilings import Ceilings
    from gobrrr.live.measurements import Plan
    from gobrrr.pipeline import live, measured
    from gobrrr.timeline.errors import DefectError

    def broken(*_: Any) -> Any:
        raise IndexError("list index out of range")

    monkeypatch.setattr(measured, "analyse_cpu", broken)
    ceilings = Ceilings.__new__(Ceilings)
    with pytest.raises(DefectError, match="a bug in gobrrr, not in the program: IndexError"):
        live.diagnose_work(
            lambda: torch.ones(2), Plan(1, 2), ceilings, None, lambda *_: None
        )  # fmt: skip


def test_the_recorder_never_raises_into_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from gobrrr.observe import op_recorder

    def broken(*_: Any) -> Any:
        raise KeyError("describe")

    monkeypatch.setattr(op_recorder, "describe_arguments", broken)
    recorder = op_recorder.OpRecorder()
    with recorder:
        result = torch.ones(3) + 1
    assert result.tolist() == [2.0, 2.0, 2.0]
    assert recorder.ops == []
    assert recorder.failures["aten::add"] == "KeyError: 'describe'"


async def awaited() -> None: ...


def generated() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("step", "says"),
    [(awaited, r"a coroutine, .* asyncio\.run"), (generated, r"a generator, .* list\(step\(\)\)")],
)
def test_a_step_that_only_makes_what_would_run_is_refused(
    step: Callable[[], Any], says: str, recwarn: pytest.WarningsRecorder
) -> None:
    from gobrrr.live.function import measure_step
    from gobrrr.live.measurements import Plan
    from gobrrr.timeline.errors import InputError

    with pytest.raises(InputError, match=says):
        measure_step(step, Plan(warmup=1, steps=2))
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]


def test_a_step_that_has_run_may_return_a_generator() -> None:
    from gobrrr.live.function import measure_step
    from gobrrr.live.measurements import Plan

    net = torch.nn.Linear(8, 8)

    def step() -> Iterator[torch.nn.Parameter]:
        net(torch.ones(4, 8)).sum().backward()
        return net.parameters()

    assert measure_step(step, Plan(warmup=1, steps=2)).profiled

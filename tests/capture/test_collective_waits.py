"""Ranges around what waits for other ranks, and what they leave behind."""

from __future__ import annotations

import pytest

from gobrrr.capture.collective_calls import collective_of, process_groups
from gobrrr.capture.collective_waits import BACKWARD_RANGE, WAIT_RANGE, ranges_around_waits
from gobrrr.capture.profile import HostProfiler

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def alone(tmp_path):  # type: ignore[no-untyped-def]
    """A process group of one process."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def _step() -> None:
    x = torch.ones(4, requires_grad=True)
    (x * 2).sum().backward()
    torch.distributed.all_reduce(torch.ones(3))


def _names(step) -> list[str]:  # type: ignore[no-untyped-def]
    return [step.names[index] for index in step.name]


@pytest.mark.usefixtures("alone")
def test_a_profiled_step_shows_where_it_waits() -> None:
    wait, backward = torch._C._distributed_c10d.Work.wait, torch.autograd._engine_run_backward
    profiler = HostProfiler()
    profiler.start()
    _step()
    profiler.mark()
    (step,) = profiler.stop()
    assert _names(step).count(WAIT_RANGE) == 1
    assert _names(step).count(BACKWARD_RANGE) == 1
    assert step.begin_ns > 0
    assert torch._C._distributed_c10d.Work.wait is wait
    assert torch.autograd._engine_run_backward is backward


@pytest.mark.usefixtures("alone")
def test_a_call_is_recorded_with_its_group_and_bytes() -> None:
    from gobrrr.capture.op_recorder import OpRecorder

    with OpRecorder() as recorder:
        torch.distributed.all_reduce(torch.ones(3))
    (call,) = [op.call for op in recorder.ops if op.call.name.startswith("c10d::")]
    found = collective_of(call, process_groups())
    assert (found.name, found.bytes_in, found.group_size) == ("all_reduce", 12, 1)
    assert found.group in process_groups()


def test_a_program_of_one_process_is_left_as_it_is() -> None:
    backward = torch.autograd._engine_run_backward
    undo = ranges_around_waits()
    assert torch.autograd._engine_run_backward is backward
    undo()
    assert process_groups() == {}

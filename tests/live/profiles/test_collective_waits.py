"""Ranges around what waits for other ranks, and what they leave behind."""

from __future__ import annotations

import pytest

from gobrrr.live.profiles.collective_calls import collective_of, group_titles, process_groups
from gobrrr.live.profiles.collective_waits import BACKWARD_RANGE, WAIT_RANGE, ranges_around_waits
from gobrrr.live.profiles.profile import HostProfiler
from gobrrr.observe.group_names import group_title

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
    from gobrrr.observe.op_recorder import OpRecorder

    with OpRecorder() as recorder:
        torch.distributed.all_reduce(torch.ones(3))
    (call,) = [op.call for op in recorder.ops if op.call.name.startswith("c10d::")]
    found = collective_of(call, process_groups())
    assert (found.name, found.bytes_in, found.group_size) == ("all_reduce", 12, 1)
    assert found.group in process_groups()
    assert found.group is not None
    assert group_titles()[found.group] == "world"


def test_a_program_of_one_process_is_left_as_it_is() -> None:
    backward = torch.autograd._engine_run_backward
    undo = ranges_around_waits()
    assert torch.autograd._engine_run_backward is backward
    undo()
    assert process_groups() == {}


def test_a_group_is_called_by_what_it_is() -> None:
    assert group_title("3", (0, 1, 2, 3), "mesh_dp") == "dp (ranks 0-3)"
    assert group_title("4", (1, 3), "mesh_tp") == "tp (ranks 1, 3)"
    assert group_title("5", tuple(range(1, 64, 4)), "mesh_dp") == "dp (every 4 ranks, 1-61)"
    assert group_title("6", (0, 2), "undefined") == "group 6 (ranks 0, 2)"
    odd = (0, 1, *range(5, 20, 2))
    # Two groups of one dimension never have one name.
    assert group_title("7", odd, "mesh_ep") == "ep (group 7, 10 ranks)"
    assert group_title("8", (2,), "") == "group 8 (rank 2)"

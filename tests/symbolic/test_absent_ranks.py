"""What a captured program sends to, or has from, ranks that are not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from gobrrr.prediction.capture_target import capture_target  # noqa: E402
from gobrrr.prediction.kernels.target import target_device  # noqa: E402
from gobrrr.symbolic.op_graph import CaptureOptions, capture_op_graph  # noqa: E402
from gobrrr.timeline.errors import CaptureError  # noqa: E402

pytestmark = pytest.mark.torch


def communicated(call: Callable[[Any], Any], ranks: int = 4) -> list[tuple[str, int]]:
    """Kind and bytes of what a step of that job asks for."""

    def make() -> Callable[[], Any]:
        dist.init_process_group("nccl")
        x = torch.zeros(8, device="cuda")

        def step() -> Any:
            call(x)
            return x + 1

        return step

    options = CaptureOptions(model=True, ranks=ranks, ranks_per_host=ranks)
    graph = capture_op_graph(make, capture_target(target_device("H100-SXM")), options)
    found = [op.collective for op in graph.ops if op.collective is not None]
    return [(each.kind, each.n_bytes) for each in found]


def batched(x: Any, peer: int) -> None:
    both = [dist.P2POp(op, x, peer) for op in (dist.isend, dist.irecv)]
    for request in dist.batch_isend_irecv(both):
        request.wait()


CALLS: list[Callable[[Any, int], Any]] = [
    lambda x, peer: dist.send(x, peer),
    lambda x, peer: dist.recv(x, peer),
    lambda x, peer: dist.isend(x, peer).wait(),
    lambda x, peer: dist.irecv(x, peer).wait(),
    batched,
    lambda x, peer: dist.broadcast(x, peer),
    lambda x, peer: dist.reduce(x, peer),
]


@pytest.mark.parametrize("call", CALLS)
def test_other_ranks_of_the_job_are_communicated_with(call: Callable[[Any, int], Any]) -> None:
    assert communicated(lambda x: call(x, 3))


@pytest.mark.parametrize("peer", [4, -1])
@pytest.mark.parametrize("call", CALLS)
def test_ranks_that_the_job_has_not_are_refused(call: Callable[[Any, int], Any], peer: int) -> None:
    said = rf"^the program calls \w+ with rank {peer}, which does not exist: --mesh has 4 devices, "
    with pytest.raises(CaptureError, match=said + r"ranks 0 to 3$"):
        communicated(lambda x: call(x, peer))


def test_ranks_that_a_group_has_not_are_refused() -> None:
    def in_pair(x: Any) -> None:
        dist.send(x, group=dist.new_group([0, 1]), group_dst=2)

    with pytest.raises(CaptureError, match=r"with rank 2, .*: its process group has 2, ranks 0 to"):
        communicated(in_pair)


def test_what_may_come_from_any_rank_is_received() -> None:
    assert communicated(lambda x: dist.irecv(x).wait()) == [("send", 32)]


def test_who_sends_is_not_known_here() -> None:
    with pytest.raises(CaptureError, match=r"receives from any rank \(recv without src\)"):
        communicated(dist.recv)
    assert communicated(lambda x: dist.recv(x, group_src=1)) == [("send", 32)]


def test_a_collective_that_a_step_holds_leaves_no_process_group_behind() -> None:
    """What the function reaches (all process groups) is no state of the step, to be put back."""
    for _ in range(2):
        assert communicated(dist.all_reduce) == [("all_reduce", 32)]
        assert not dist.is_initialized()

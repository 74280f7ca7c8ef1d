"""Compiled steps in CUDA graphs: what a graph holds, what is copied, and what the host pays."""

from __future__ import annotations

import pytest

from gobrrr.prediction.kernels.kernel_model import Flags
from gobrrr.prediction.kernels.target import target_device
from gobrrr.prediction.step.costs import CostedOp, CostedStep, cost_graph
from gobrrr.prediction.step.graph_replays import COPY, graphed
from gobrrr.prediction.step.host import host_share
from gobrrr.prediction.step.host_calls import host_calls_of
from gobrrr.prediction.step.host_lane import HostCosts, Launch
from gobrrr.prediction.step.timeline import replayed
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import OpGraph, StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec

FLAGS = Flags(tf32_matmul=False, tf32_convolution=False)
HOST = HostCosts()
SIZE = 1024


def _spec(storage: int, device: str = "cuda:0") -> TensorSpec:
    return TensorSpec((SIZE, SIZE), "float32", (SIZE, 1), storage, device, 0)


def _product(read: int, weight: int, made: int, phase: Phase = Phase.FORWARD) -> StepOp:
    call = OpCall("aten::mm", (_spec(read), _spec(weight)), (_spec(made),), "Tensor")
    return StepOp(call, phase=phase)


# Data 1 and weights 2, 3 and 4; results 10 to 12, gradients from 20 on.
FORWARD = [_product(1, 2, 10), _product(10, 3, 11), _product(11, 4, 12)]
BACKWARD = [_product(12, 4, 20, Phase.BACKWARD), _product(20, 3, 21, Phase.BACKWARD)]
UPDATE = [StepOp(OpCall("aten::add_", (_spec(2), _spec(21), 1), (_spec(2),), "Tensor"),
                 phase=Phase.OPTIMIZER)]  # fmt: skip
WEIGHTS = frozenset({2, 3, 4})


def _costed(ops: list[StepOp], *, cuda_graphs: bool) -> CostedStep:
    sizes = {s.storage or 0: 4 * s.numel for op in ops for s in op.call.tensors}
    graph = OpGraph(tuple(ops), WEIGHTS, WEIGHTS, frozenset({1}), sizes, None)
    return cost_graph(
        graph, target_device("H100-SXM"), flags=FLAGS, compiled=True, cuda_graphs=cuda_graphs
    )


def test_one_graph_for_each_pass_and_the_optimizer_stays_outside() -> None:
    found = graphed([*FORWARD, *BACKWARD, *UPDATE], {1}, lambda call: True)
    assert [op.call.name for op in found.ops[:2]] == [COPY, "aten::mm"]
    # The data are copied; weights, and what the forward graph left, are not.
    assert [spec.storage for spec in found.ops[0].call.tensors] == [-2, 1]
    assert found.graph == (0, 1, 1, 1, 2, 2, 0)


def test_what_a_graph_cannot_hold_stands_between_two() -> None:
    barrier = FORWARD[1].call
    found = graphed(FORWARD, {1}, lambda call: call is not barrier)
    # What was made outside is copied into the second.
    assert [op.call.name for op in found.ops] == [COPY, *["aten::mm"] * 2, COPY, "aten::mm"]
    assert found.graph == (0, 1, 0, 0, 2)
    assert found.ops[3].call.tensors[-1].storage == 11


def _calls(ops: tuple[CostedOp, ...]) -> list[Launch]:
    return [op.launch for op in ops]


def test_the_host_launches_a_graph_once() -> None:
    one_by_one = _costed([*FORWARD, *BACKWARD], cuda_graphs=False)
    found = _costed([*FORWARD, *BACKWARD], cuda_graphs=True)
    alone, first, inside = Launch.BY_ITSELF, Launch.OF_GRAPH, Launch.IN_GRAPH
    assert _calls(found.ops) == [alone, first, inside, inside, first, inside]
    assert [op.device_s for op in found.ops[1:]] == [op.device_s for op in one_by_one.ops]
    shares = [host_share(step.ops, HOST, step_s=1.0, exposed_s=0.0) for step in (one_by_one, found)]
    # Two launches and a copy.
    each_s = HOST.op_s + HOST.program_s
    assert shares[1].total_s == pytest.approx(3 * each_s)
    assert shares[1].total_s < 0.5 * shares[0].total_s
    assert "3 ops with kernels" in shares[1].sentences[0]
    assert any("5 ops in 2 CUDA graphs" in notice for notice in found.notices)
    calls = host_calls_of(found.ops)
    assert len({id(call) for call in calls}) < len(calls)


def test_a_step_that_the_host_bounds_gains_and_another_pays_for_its_copy_alone() -> None:
    slow, fast = HostCosts(op_s=1e-3, program_s=0.0, node_s=0.0), HostCosts().with_overhead(0.01)
    ends = {}
    for graphs in (False, True):
        ops = _costed([*FORWARD, *BACKWARD], cuda_graphs=graphs).ops
        for name, host in (("slow", slow), ("fast", fast)):
            ends[name, graphs] = float(replayed(ops, host).ops.end_s.max())
        if graphs:
            copy_s = ops[0].device_s
    # Products weigh 2.9 additions: 5 x 2.9 ms one by one; 3 ms in graphs.
    assert ends["slow", False] == pytest.approx(14.5e-3, rel=0.05)
    assert ends["slow", True] == pytest.approx(3e-3, rel=0.05)
    assert ends["fast", True] == pytest.approx(ends["fast", False] + copy_s + fast.gap_s, abs=1e-9)

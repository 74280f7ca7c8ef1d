"""Ops that are alike are costed once; what tells two ops apart is part of what is alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gobrrr.prediction.kernels.kernel_model import Flags
from gobrrr.prediction.kernels.target import target_device
from gobrrr.prediction.step.costs import CostedOp, NoPathError, cost_graph
from gobrrr.prediction.step.host_calls import host_calls_of
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import OpGraph, StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec

H100 = target_device("H100-SXM")
FLAGS = Flags(tf32_matmul=False, tf32_convolution=False)
MANY = 1 << 24


def spec(storage: int, size: int = 8, device: str = "cuda:0") -> TensorSpec:
    return TensorSpec((size,), "float32", (1,), storage, device, 0)


def add(*specs: TensorSpec, phase: Phase = Phase.FORWARD) -> StepOp:
    *read, written = specs
    return StepOp(OpCall("aten::add", (*read, 1), (written,), "Tensor"), phase=phase)


def costed(*ops: StepOp) -> tuple[CostedOp, ...]:
    sizes = {s.storage or 0: 4 * s.numel for op in ops for s in op.call.tensors}
    graph = OpGraph(ops, frozenset(), frozenset(), frozenset(), sizes, None)
    return cost_graph(graph, H100, flags=FLAGS).ops


def test_ops_that_are_alike_share_a_cost_and_a_host_call() -> None:
    first, second, third = costed(
        add(spec(1), spec(2), spec(3)),
        add(spec(4), spec(5), spec(6), phase=Phase.BACKWARD),
        add(spec(7), spec(8), spec(9)),
    )
    assert first.cost is second.cost is third.cost
    # What calls which op is the op's own.
    assert [op.op.call.tensors[0].storage for op in (first, second, third)] == [1, 4, 7]
    calls = host_calls_of((first, second, third))
    assert calls[0] is calls[2]
    assert [call.phase for call in calls] == [Phase.FORWARD, Phase.BACKWARD, Phase.FORWARD]


def test_one_tensor_twice_is_not_two_tensors() -> None:
    both, one = costed(add(spec(1, MANY), spec(2, MANY), spec(3, MANY)),
                       add(spec(4, MANY), spec(4, MANY), spec(5, MANY)))  # fmt: skip
    assert both.cost is not one.cost
    assert both.device_s > one.device_s


def test_an_op_on_the_host_says_nothing_of_the_same_op_on_the_device() -> None:
    # An optimizer's counter, and a tensor as small on the device, before it and after it.
    there = add(spec(1), spec(2), spec(3))
    here = add(*(spec(at, device="cpu") for at in (4, 5, 6)))
    found = costed(there, here, add(spec(7), spec(8), spec(9)))
    assert [op.kernels for op in found] == [1, 0, 1]


def test_a_result_without_elements_costs_no_kernel() -> None:
    empty, weight, none = (
        TensorSpec(shape, "float32", None, number, "cuda:0", 0)
        for number, shape in enumerate(((0, 64), (64, 32), (0, 32)))
    )
    (op,) = costed(StepOp(OpCall("aten::mm", (empty, weight), (none,))))
    assert (op.kernels, op.device_s, op.work) == (0, 0.0, None)


def test_what_is_in_a_cache_costs_less() -> None:
    # The second reads what the first has just written; then another tensor flushes all caches.
    first = add(spec(1, 1 << 20), spec(2, 1 << 20), spec(3, 1 << 20))
    second = add(spec(3, 1 << 20), spec(2, 1 << 20), spec(4, 1 << 20))
    flush = add(spec(5, MANY), spec(6, MANY), spec(7, MANY))
    cold, warm, _ = costed(first, second, flush)
    assert cold.cost.cold_bytes > warm.cost.cold_bytes
    assert replace(cold.op.call, missed=()).likeness == warm.op.call.likeness
    assert cold.device_s >= warm.device_s


def multiplied(made: int, *read: int) -> StepOp:
    args = tuple(spec(storage, MANY) for storage in read)
    return StepOp(OpCall("aten::mul", args, (spec(made, MANY),), "Tensor"), phase=Phase.FORWARD)


def test_generated_kernels_of_one_name_have_each_their_own_work() -> None:
    # One product and three, of one tensor each: both are called triton_poi_fused_mul.
    ops = (multiplied(2, 1, 1), multiplied(4, 3, 3), multiplied(5, 4, 4), multiplied(6, 5, 5))
    graph = OpGraph(ops, frozenset({2, 6}), frozenset(), frozenset({1, 3}), {}, None)
    found = cost_graph(graph, H100, flags=FLAGS, compiled=True).ops
    assert len({op.op.call.name for op in found}) == 1
    assert (
        replace(found[0].op.call, missed=()).likeness
        == replace(found[1].op.call, missed=()).likeness
    )
    assert [op.work.flops for op in found if op.work is not None] == [MANY, 3 * MANY]
    by_block = {id(op.op.call): op.work for op in found}
    again = cost_graph(replace(graph, ops=tuple(op.op for op in found)), H100, flags=FLAGS,
                       kernels=by_block).ops  # fmt: skip
    assert [op.work for op in again] == [op.work for op in found]


@pytest.mark.parametrize("device", ["H100-SXM", "MI300X"])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_products_of_integers_have_no_kernel_on_gpus(dtype: str, device: str) -> None:
    a, b, out = (TensorSpec((64, 64), dtype, (64, 1), at, "cuda:0", 0) for at in (1, 2, 3))
    graph = OpGraph(
        (StepOp(OpCall("aten::mm", (a, b), (out,), "Tensor")),),
        frozenset(), frozenset(), frozenset(), {1: 1 << 15, 2: 1 << 15, 3: 1 << 15}, None,
    )  # fmt: skip
    with pytest.raises(NoPathError) as error:
        cost_graph(graph, target_device(device), flags=FLAGS)
    said = str(error.value)
    assert said.startswith(f"PyTorch has no GPU kernel for products of {dtype}: mm raises on ")
    assert device in said and "\n" not in said


def batch_norm(shape: tuple[int, ...], device: str) -> CostedOp:
    _, c, h, w = shape
    x = TensorSpec(shape, "float32", (c * h * w, h * w, w, 1), 1, "cuda:0", 0)
    channels = tuple(TensorSpec((c,), "float32", (1,), at, "cuda:0", 0) for at in range(2, 6))
    call = OpCall("aten::native_batch_norm", (x, *channels, True, 0.1, 1e-5),
                  (replace(x, storage=9),), "")  # fmt: skip
    sizes = {t.storage or 0: 4 * t.numel for t in (*call.tensors, *(call.outputs or ()))}
    graph = OpGraph((StepOp(call),), frozenset(), frozenset(), frozenset(), sizes, None)
    return cost_graph(graph, target_device(device), flags=FLAGS).ops[0]


@pytest.mark.parametrize("device", ["MI300X", "H100-SXM"])
def test_a_long_walk_is_no_fixed_cost_and_is_told(device: str) -> None:
    # One block for each of 64 channels of 3 million elements: a recorded step would have its time
    # as memory below the ceiling, and only an empty kernel's as fixed cost.
    op = batch_norm((256, 64, 112, 112), device)
    assert 0 < op.cost.fixed_s < 5e-6
    assert op.device_s > 100 * op.cost.fixed_s
    assert "dependent trips to memory of 700 ns (" in op.because
    # A kernel as short as a few empty ones is latency, as before.
    small = batch_norm((2, 64, 4, 4), device)
    assert small.cost.fixed_s > 0.5 * small.device_s

"""The step of one rank, built from that of a single device: what is issued, and after what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.prediction.toy_model import (
    BYTES,
    COLUMNS,
    FACTS,
    GRAPH,
    OUT_BYTES,
    ROOT_BYTES,
    ROWS,
)

from gobrrr.prediction.kernels.target import target_device
from gobrrr.prediction.mesh.collectives import Collective, Group, collective_time
from gobrrr.prediction.mesh.costs import mesh_ops, model_of
from gobrrr.prediction.mesh.ddp import buckets_of, data_parallel
from gobrrr.prediction.mesh.fsdp import fully_sharded
from gobrrr.prediction.mesh.memory import RankMemory, rank_memory
from gobrrr.prediction.mesh.mesh import Mesh
from gobrrr.prediction.mesh.ops import COMPUTE, COPY_IN, GATHER, GROUP, REDUCE, SCATTER, MeshOps
from gobrrr.prediction.mesh.step import communication
from gobrrr.prediction.step.costs import CostedOp, OpCost
from gobrrr.prediction.step.host_lane import HostCosts
from gobrrr.prediction.step.step import on_device
from gobrrr.prediction.step.stream_replay import SLOWDOWN_BESIDE
from gobrrr.prediction.step.timeline import predicted_timeline
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import ModelFacts, Parameter, Wrapping

US = 1e-6
MIB = 1 << 20
FREE = HostCosts(*[0.0] * 8)
H100 = target_device("H100-SXM")


def issued(made: MeshOps) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(op.call.name.partition("::")[2], op.stream, op.after) for op in made.ops]


def parameters(*mib: float) -> list[Parameter]:
    return [
        Parameter(str(at), "", at, (1,), "float32", int(size * MIB), ready=at + 1)
        for at, size in enumerate(mib)
    ]


def test_buckets_close_once_they_are_as_large_as_their_limit() -> None:
    # The first at 1 MiB, the others at 25.
    found = buckets_of(parameters(0.5, 0.6, 20, 6, 1))
    assert [[each.storage for each in bucket] for bucket in found] == [[0, 1], [2, 3], [4]]


def test_a_bucket_holds_one_dtype() -> None:
    first, second = parameters(2, 2)
    found = buckets_of([first, replace(second, dtype="bfloat16")])
    assert [[each.dtype for each in bucket] for bucket in found] == [["float32"], ["bfloat16"]]


def test_ddp_reduces_a_bucket_when_its_last_gradient_is_there() -> None:
    made = data_parallel(GRAPH, FACTS, (0, 1))
    # 80 KiB in all: one bucket. Its copies stand where the gradients become ready.
    assert issued(made) == [
        *[("neg", COMPUTE, ())] * 5,
        ("_foreach_copy_", COMPUTE, ()),
        ("neg", COMPUTE, ()),
        ("_foreach_copy_", COMPUTE, ()),
        ("neg", COMPUTE, ()),
        ("_foreach_copy_", COMPUTE, ()),
        ("all_reduce", GROUP, (9,)),
        # What computes waits for it, and copies the gradients back before the optimizer.
        ("_foreach_copy_", COMPUTE, (10,)),
        *[("_foreach_copy_", COMPUTE, ())] * 2,
        *[("add_", COMPUTE, ())] * 2,
    ]
    assert [at for at in made.origin if at >= 0] == list(range(9))
    asked = made.ops[10].collective
    assert asked is not None
    assert (asked.kind, asked.n_bytes, asked.ranks) == (
        "all_reduce",
        2 * BYTES + ROOT_BYTES,
        (0, 1),
    )


def test_ddp_broadcasts_buffers_before_each_forward_pass() -> None:
    made = data_parallel(GRAPH, replace(FACTS, buffer_bytes=(100, 8)), (0, 1))
    # One of each dtype.
    for op, size in zip(made.ops[:2], (100, 8)):
        assert op.collective is not None
        assert (op.collective.kind, op.collective.n_bytes) == ("broadcast", size)
        assert op.stream == COMPUTE
    quiet = Wrapping("ddp", (0, 1), broadcasts=False)
    made = data_parallel(GRAPH, replace(FACTS, buffer_bytes=(100, 8)), (0, 1), quiet)
    assert made.ops[0].collective is None


def test_gradients_that_are_views_of_their_buckets_are_not_copied_back() -> None:
    views = Wrapping("ddp", (0, 1), bucket_views=True, bucket_bytes=50_000)
    made = data_parallel(GRAPH, FACTS, (0, 1), views)
    names = [name for name, _, _ in issued(made)]
    assert names.count("_foreach_copy_") == 3
    # 40 000, then 40 000 and 32 bytes: the first is below the limit.
    asked = [op.collective.n_bytes for op in made.ops if op.collective is not None]
    assert asked == [2 * BYTES, ROOT_BYTES]
    held = rank_memory(replace(GRAPH, wrapping=views), FACTS, Mesh(dp=2))
    # The buckets are the gradients; one is there until it has been copied.
    assert (held.buffers, held.gradients) == (2 * BYTES + ROOT_BYTES, BYTES)


def test_a_wrapper_whose_buckets_may_hold_nothing_reduces_each_gradient_alone() -> None:
    made = data_parallel(GRAPH, FACTS, (0, 1), Wrapping("ddp", (0, 1), bucket_bytes=0))
    asked = [op.collective.n_bytes for op in made.ops if op.collective is not None]
    assert asked == [BYTES, BYTES, ROOT_BYTES]


def test_a_wrapper_that_looks_for_unused_parameters_has_buckets_of_the_models_order() -> None:
    looks = Wrapping("ddp", (0, 1), finds_unused=True, bucket_bytes=50_000)
    made = data_parallel(GRAPH, FACTS, (0, 1), looks)
    asked = [op.collective.n_bytes for op in made.ops if op.collective is not None]
    # 32 and 40 000 bytes are below the limit, so the second block's are with them; then what was
    # used.
    assert asked == [2 * BYTES + ROOT_BYTES, 4 * 3]


def test_several_backward_passes_are_reduced_once_or_refused() -> None:
    facts = replace(FACTS, passes=2)
    assert data_parallel(GRAPH, facts, (0, 1)).ops == data_parallel(GRAPH, FACTS, (0, 1)).ops
    with pytest.raises(InputError, match="run all but the last under no_sync"):
        data_parallel(GRAPH, facts, (0, 1), Wrapping("ddp", (0, 1)))
    with pytest.raises(InputError, match="runs 2 backward passes"):
        fully_sharded(GRAPH, facts, (0, 1))


def test_a_step_that_trains_nothing_has_nothing_to_reduce() -> None:
    idle = ModelFacts(tuple(replace(each, ready=None) for each in FACTS.parameters), ())
    with pytest.raises(InputError, match="computes no gradients of the model"):
        data_parallel(GRAPH, idle, (0, 1))


def test_fsdp_gathers_ahead_and_scatters_behind() -> None:
    made = fully_sharded(GRAPH, FACTS, (0, 1))
    copy, gather, scatter = "_foreach_copy_", "all_gather", "reduce_scatter"
    assert issued(made) == [
        (copy, COPY_IN, (-1,)),  # 0: the root's shard
        (gather, GATHER, (-1, 0)),
        (copy, COMPUTE, (1,)),
        ("neg", COMPUTE, ()),
        (copy, COPY_IN, ()),  # 4: the first block, behind nothing that computes
        (gather, GATHER, (4,)),
        (copy, COMPUTE, (5,)),
        ("neg", COMPUTE, ()),
        (copy, COPY_IN, (2,)),  # 8: the second, once the root's buffer is free
        (gather, GATHER, (2, 8)),
        (copy, COMPUTE, (9,)),
        ("neg", COMPUTE, ()),
        (copy, COPY_IN, (6, 10)),  # 12: backward, the root's hook prefetches the last block
        (gather, GATHER, (6, 10, 12)),
        ("neg", COMPUTE, ()),
        (copy, COMPUTE, (13,)),
        (copy, COPY_IN, (15,)),  # 16: and that the one before
        (gather, GATHER, (15, 16)),
        ("neg", COMPUTE, ()),
        (copy, COMPUTE, ()),  # 19: its gradients, into what is scattered
        (scatter, SCATTER, (17, 19)),  # one communicator: after the gather that was issued first
        (copy, COMPUTE, (17,)),
        ("neg", COMPUTE, ()),
        (copy, COMPUTE, (20,)),  # 23: the buffer of the scatter before is free
        (scatter, SCATTER, (23,)),
        ("neg", COMPUTE, ()),
        (copy, COMPUTE, (24,)),  # 26: the root's
        (scatter, SCATTER, (26,)),
        ("add_", COMPUTE, (27,)),
        ("add_", COMPUTE, ()),
    ]
    # The optimizer steps on shards.
    assert made.ops[28].call.tensors[0].shape == (ROWS // 2, COLUMNS)
    assert made.origin[28:] == (-1, -1)


def test_a_unit_that_stays_gathered_is_not_gathered_again() -> None:
    facts = replace(FACTS, whole=frozenset({"", "blocks.1"}))
    made = fully_sharded(GRAPH, facts, (0, 1))
    gathered = [
        (op.module, op.phase.name) for op in made.ops
        if op.collective is not None and op.collective.kind == "all_gather"
    ]  # fmt: skip
    assert gathered == [
        ("", "FORWARD"), ("blocks.0", "FORWARD"), ("blocks.1", "FORWARD"),
        ("blocks.0", "BACKWARD"),
    ]  # fmt: skip
    # A root that is freed is gathered first in the backward pass.
    made = fully_sharded(GRAPH, replace(FACTS, whole=frozenset()), (0, 1))
    gathered = [
        (op.module, op.phase.name) for op in made.ops
        if op.collective is not None and op.collective.kind == "all_gather"
    ]  # fmt: skip
    assert gathered[3:] == [
        ("", "BACKWARD"), ("blocks.1", "BACKWARD"), ("blocks.0", "BACKWARD"),
    ]  # fmt: skip


def test_mixed_precision_casts_shards_and_what_is_reduced() -> None:
    # Shards of 4 bytes an element, computed in 2, reduced in 4.
    parameters = tuple(
        replace(each, dtype="bfloat16", stored="float32", n_bytes=each.n_bytes // 2)
        for each in FACTS.parameters
    )
    facts = replace(FACTS, parameters=parameters)
    made = fully_sharded(GRAPH, facts, (0, 1), reduce_dtype="float32")
    moved = [
        (op.collective.kind, op.collective.n_bytes) for op in made.ops if op.collective is not None
    ]
    gathers = [size for kind, size in moved if kind == "all_gather"]
    assert gathers == [ROOT_BYTES // 2, *[BYTES // 2] * 4]
    assert [size for kind, size in moved if kind == "reduce_scatter"] == [BYTES, BYTES, ROOT_BYTES]
    # The cast of a shard before each gather; nothing is cast back, for it was reduced in float32.
    copies = [op for op in made.ops if op.call.name == "aten::_foreach_copy_"]
    cast = [
        op for op in copies
        if (op.call.args[0][0].dtype, op.call.args[1][0].dtype) == ("bfloat16", "float32")  # type: ignore[index,union-attr]
    ]  # fmt: skip
    assert [op.stream for op in cast] == [COPY_IN] * 5
    made = fully_sharded(GRAPH, facts, (0, 1), (0, 2))
    back = [
        op.stream for op in made.ops
        if op.call.name == "aten::_foreach_copy_"
        and (op.call.args[0][0].dtype, op.call.args[1][0].dtype) == ("float32", "bfloat16")  # type: ignore[index,union-attr]
    ]  # fmt: skip
    assert back == [REDUCE] * 3


def test_what_fsdp_moves_is_padded() -> None:
    made = fully_sharded(GRAPH, FACTS, (0, 1, 2, 3))
    moved = [op.collective.n_bytes for op in made.ops if op.collective is not None]
    # 10 rows over 4 ranks are 3 each: 4 * 3 * 1000 * 4 bytes; the root has 4 * 2 * 4.
    block, root = 48_000, 32
    assert moved == [root, block, block, block, block, block, block, root]


def test_copies_of_shards_reduce_them_in_a_stream_of_their_own() -> None:
    made = fully_sharded(GRAPH, FACTS, (0, 1), (0, 2))
    reduced = [op for op in made.ops if op.collective and op.collective.kind == "all_reduce"]
    assert [op.stream for op in reduced] == [REDUCE] * 3
    # A shard each: 5 rows of 1000 elements, and the root's 4.
    assert [op.collective.n_bytes for op in reduced if op.collective] == [20_000, 20_000, 16]
    assert all(made.ops[op.after[0]].stream == SCATTER for op in reduced)


def test_a_parameter_without_a_dimension_is_named() -> None:
    scalar = replace(FACTS.parameters[0], shape=())
    facts = replace(FACTS, parameters=(scalar, *FACTS.parameters[1:]))
    with pytest.raises(InputError, match=r"no zero-dimensional parameter, and scale is one"):
        fully_sharded(GRAPH, facts, (0, 1))


def test_a_mesh_needs_a_model() -> None:
    with pytest.raises(InputError, match=r"the step has no torch\.nn\.Module with parameters"):
        model_of(replace(GRAPH, model=None))


def test_memory_of_a_rank_under_ddp() -> None:
    # While op 5 runs: two gradients, one output, and the bucket of all three gradients.
    assert rank_memory(GRAPH, FACTS, Mesh(dp=2)) == RankMemory(
        weights=2 * BYTES + ROOT_BYTES,
        gradients=2 * BYTES,
        optimizer=2 * BYTES,
        activations=OUT_BYTES,
        buffers=2 * BYTES + ROOT_BYTES,
    )


@pytest.mark.parametrize("views", [True, False])
def test_a_wrapper_has_its_buckets_over_one_rank_too(views: bool) -> None:
    alone = Wrapping("ddp", (0,), bucket_views=views)
    found = rank_memory(replace(GRAPH, wrapping=alone), FACTS, Mesh())
    two = Wrapping("ddp", (0, 1), bucket_views=views)
    assert found == rank_memory(replace(GRAPH, wrapping=two), FACTS, Mesh(dp=2))
    assert found.buffers == 2 * BYTES + ROOT_BYTES
    shards = Wrapping("fsdp", (0,))
    assert rank_memory(replace(GRAPH, wrapping=shards), FACTS, Mesh()).buffers == 0


def test_memory_of_a_rank_under_fsdp() -> None:
    shard = 3 * COLUMNS * 4  # 10 rows over 4 ranks: 3
    gathered = 4 * shard
    assert rank_memory(GRAPH, FACTS, Mesh(fsdp=4)) == RankMemory(
        weights=2 * shard + 8,
        # While op 5 runs: the last block's, whole until they are copied, and their shard; and those
        # that op 5 makes.
        gradients=2 * BYTES + shard,
        optimizer=2 * shard,
        activations=OUT_BYTES,
        # The root's parameters, those of the block that runs and the buffer that they came in, and
        # the gradients on their way out.
        buffers=32 + 3 * gathered,
    )


def test_memory_of_one_device_is_the_graphs() -> None:
    found = rank_memory(GRAPH, FACTS, Mesh())
    # Weights, gradients and state, and one output: while op 5 runs.
    assert found.peak == (2 * BYTES + ROOT_BYTES) + 2 * BYTES + 2 * BYTES + OUT_BYTES


def exposed_s(op_us: float) -> float:
    """Of the toy under DDP with a bucket of 2 MiB and one of 4: kernels of so many microseconds."""
    facts = replace(
        FACTS, parameters=tuple(replace(each, n_bytes=2 * MIB) for each in FACTS.parameters)
    )
    made = mesh_ops(GRAPH, facts, Mesh(dp=8))
    costed = []
    for op in made.ops:
        seconds = op_us * US
        if op.collective is not None:
            seconds = reduce_s(op.collective.n_bytes)
        link = "devices" if op.collective else ""
        costed.append(CostedOp(op, OpCost(op.call, None, None, seconds, 0.0, 1, 1, link=link)))
    ran = predicted_timeline(costed, H100, FREE)
    _, found = on_device(ran, H100)
    rows = communication(ran.timeline, found)
    assert [(row.group, row.kind, row.phase, row.calls) for row in rows] == [
        ("dp", "all_reduce", "backward", 2)
    ]
    return rows[0].exposed_s


def reduce_s(n_bytes: int) -> float:
    assert H100.sheet is not None
    return collective_time(Collective.ALL_REDUCE, n_bytes, Group(8), H100.sheet).seconds


def test_long_kernels_hide_all_but_the_last_bucket() -> None:
    assert exposed_s(1000) == pytest.approx(reduce_s(4 * MIB), abs=5e-9)


def test_short_kernels_hide_as_much_as_they_take_beside_the_collective() -> None:
    # Four kernels run beside the first bucket's reduction: two of the backward pass, two copies.
    hidden = 4 * US * (1 + SLOWDOWN_BESIDE)
    assert reduce_s(2 * MIB) > hidden
    expected = reduce_s(2 * MIB) + reduce_s(4 * MIB) - hidden
    assert exposed_s(1) == pytest.approx(expected, abs=5e-9)

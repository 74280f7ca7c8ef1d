"""A step on the stages of a pipeline: four blocks written by hand, every position known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gobrrr.prediction.kernels.kernel_model import DEFAULT_FLAGS
from gobrrr.prediction.kernels.target import target_device
from gobrrr.prediction.mesh.chunks import chunks_of
from gobrrr.prediction.mesh.costs import Platform, cost_ops
from gobrrr.prediction.mesh.memory import Levels, RankMemory
from gobrrr.prediction.mesh.mesh import Mesh, MeshOptions, parse_link, time_of
from gobrrr.prediction.mesh.parts import seconds_of
from gobrrr.prediction.mesh.pipeline import (
    CostedPipeline,
    ends_of,
    pipelined,
)
from gobrrr.prediction.mesh.pipeline_schedule import Schedule
from gobrrr.prediction.mesh.stage_memory import stage_memory
from gobrrr.prediction.mesh.update import optimizer_of
from gobrrr.prediction.step.host_lane import TYPICAL_HOST
from gobrrr.prediction.step.timeline import replayed
from gobrrr.timeline.data import Phase
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import (
    CollectiveCall,
    ModelFacts,
    OpGraph,
    Parameter,
    StepOp,
    StorageLife,
)
from gobrrr.timeline.ops import OpCall, TensorSpec

BLOCKS = 4
SHAPE = (1024, 1024)
SIZE = 1024 * 1024 * 4
# Kernels of these small networks are to be longer than what a host takes for them.
FAST = TYPICAL_HOST.with_overhead(0.01)
PLATFORM = Platform(target_device("H100-SXM"), None, DEFAULT_FLAGS)
# Storages: weights from 0, gradients from 10, activations from 20, gradients of those from 30.
NAMES = tuple(f"blocks.{i}" for i in range(BLOCKS))


def spec(storage: int) -> TensorSpec:
    return TensorSpec(SHAPE, "float32", (1024, 1), storage, "cuda:0", 0)


def op(module: str, phase: Phase, made: int, *read: int) -> StepOp:
    call = OpCall("aten::mm", tuple(map(spec, read)), (spec(made),))
    return StepOp(call, module, "", phase)


def fused(kind: str, *lists: range) -> StepOp:
    args = tuple(tuple(map(spec, each)) for each in lists)
    return StepOp(OpCall(kind, args, ()), "", "", Phase.OPTIMIZER)


FORWARD = [op(NAMES[i], Phase.FORWARD, 21 + i, 20 + i, i) for i in range(BLOCKS)]
LOSS = op("Net", Phase.FORWARD, 25, 24, 24)
BACKWARD = [
    one
    for i in reversed(range(BLOCKS))
    for one in (
        op(NAMES[i], Phase.BACKWARD, 10 + i, 31 + i, 20 + i),
        op(NAMES[i], Phase.BACKWARD, 30 + i, 31 + i, i),
    )
]
OPTIMIZER = fused("aten::_foreach_add_", range(BLOCKS), range(10, 10 + BLOCKS))
OPS = (*FORWARD, LOSS, *BACKWARD, OPTIMIZER)
FACTS = ModelFacts(
    parameters=tuple(
        Parameter(
            f"{NAMES[i]}.weight", NAMES[i], i, SHAPE, "float32", SIZE, 10 + i, 7 + 2 * (3 - i)
        )
        for i in range(BLOCKS)
    ),
    units=NAMES,
)
GRAPH = OpGraph(
    ops=OPS,
    kept=frozenset(),
    parameters=frozenset(range(BLOCKS)),
    inputs=frozenset({20}),
    sizes_bytes=dict.fromkeys(range(40), SIZE),
    peak_memory_bytes=None,
    lives={number: StorageLife(SIZE, 0, None) for number in range(40)},
    model=FACTS,
)


def made(
    mesh: Mesh, microbatches: int, schedule: Schedule = Schedule.ONE_F_ONE_B
) -> CostedPipeline:
    plain = cost_ops(GRAPH, mesh, PLATFORM)
    options = MeshOptions(mesh, None, microbatches, schedule)
    return pipelined(GRAPH, FACTS, plain, PLATFORM, FAST, options)


def test_blocks_are_divided_and_the_loss_is_the_last_part_s() -> None:
    chunks = chunks_of(GRAPH, FACTS, 2)
    assert chunks.forward == ((0, 1), (2, 3, 4))
    assert chunks.backward == ((9, 10, 11, 12), (5, 6, 7, 8))
    assert chunks.optimizer == (13,)
    assert chunks.of_parameter == {0: 0, 1: 0, 2: 1, 3: 1}
    # The second block's output is all that the second part reads.
    assert chunks.sent_bytes == (SIZE, 0)


def test_the_first_stage_runs_its_passes_and_waits_between() -> None:
    found = made(Mesh(pp=2), 3)
    text = "".join(
        "w" if at in found.waits else "f" if each.op.phase is Phase.FORWARD
        else "o" if each.op.phase is Phase.OPTIMIZER
        else "b" if each.op.module else "+"
        for at, each in enumerate(found.ops)
    )  # fmt: skip
    # Two forward passes, then turns, the gradients of the second and third added up.
    assert text.replace("ff", "F").replace("bbbb", "B") == "FFwBFwB+wB+o"
    waited = sum(found.ops[at].device_s for at in found.waits)
    assert waited == pytest.approx(found.ran.bubble_s[0])


def test_the_step_of_the_first_stage_is_as_long_as_the_schedule_says() -> None:
    found = made(Mesh(pp=2), 8)
    ran = float(replayed(found.ops, FAST).ops.end_s.max())
    assert ran == pytest.approx(found.stages.seconds, rel=0.01)
    added = [each for each in found.ops if not each.op.module and each.op.phase is Phase.BACKWARD]
    adding_s = sum(each.device_s for each in added if each.op.collective is None)
    once_s = sum(
        each.end_s - each.begin_s for each in found.ran.stages[0] if each.one.microbatch == 0
    )
    # Seven microbatches' gradients are added to those of the first.
    assert found.ran.busy_s[0] == pytest.approx(8 * once_s + adding_s, rel=0.01)


def test_a_step_whose_host_is_slow_is_no_shorter_than_the_schedule_of_all_stages() -> None:
    slow = replace(TYPICAL_HOST, op_s=1e-3, program_s=0.0, node_s=0.0)
    plain = cost_ops(GRAPH, Mesh(pp=2), PLATFORM)
    options = MeshOptions(Mesh(pp=2), None, 4, Schedule.ONE_F_ONE_B)
    found = pipelined(GRAPH, FACTS, plain, PLATFORM, slow, options)
    ran = float(replayed(found.ops, slow).ops.end_s.max())
    assert ran == pytest.approx(found.stages.seconds, rel=0.01)


def test_the_first_stage_updates_its_own_parameters() -> None:
    call = made(Mesh(pp=2), 2).ops[-1].op.call
    assert [spec.storage for spec in call.tensors] == [0, 1, 10, 11]


def test_each_stage_updates_its_part_of_each_group_of_parameters() -> None:
    # Groups with and without weight decay, each with its lists; the second has another's state too.
    groups = (
        fused("aten::_foreach_add_", range(1), range(10, 11)),
        fused("aten::_foreach_add_", range(1, BLOCKS), range(11, 10 + BLOCKS)),
        fused("aten::_foreach_sqrt", range(36, 39)),
    )
    graph = replace(GRAPH, ops=(*OPS[:-1], *groups))
    chunks = chunks_of(graph, FACTS, 2)
    mesh = Mesh(pp=2)
    updated = [
        [
            [spec.storage for spec in each.op.call.tensors]
            for each in optimizer_of(graph, FACTS, chunks, mesh, PLATFORM, stage)
        ]
        for stage in range(2)
    ]
    assert updated == [[[0, 10], [1, 11], [36]], [[2, 3, 12, 13], [37, 38]]]


def test_a_slow_last_stage_is_waited_for() -> None:
    host = FAST
    plain = cost_ops(GRAPH, Mesh(pp=2), PLATFORM)
    chunks = chunks_of(GRAPH, FACTS, 2)
    found = made(Mesh(pp=2), 8)
    one = seconds_of(plain.ops, chunks.forward[1], host) + seconds_of(
        plain.ops, chunks.backward[1], host
    )
    # It has the loss beside two blocks.
    assert found.ran.seconds > 8 * one


def test_copies_reduce_their_stage_s_gradients_at_the_end() -> None:
    found = made(Mesh(pp=2, dp=2), 2)
    asked = [each.op.collective for each in found.ops if each.op.collective is not None]
    reduced = [call for call in asked if call.kind == "all_reduce"]
    assert [(call.group, call.n_bytes) for call in reduced] == [("dp", 2 * SIZE)]


def linked(
    mesh: Mesh, link: str | None, schedule: Schedule = Schedule.ONE_F_ONE_B
) -> CostedPipeline:
    platform = replace(PLATFORM, link=None if link is None else parse_link(link))
    plain = cost_ops(GRAPH, mesh, platform)
    options = MeshOptions(mesh, platform.link, 4, schedule)
    return pipelined(GRAPH, FACTS, plain, platform, FAST, options)


def test_each_stage_sends_over_the_link_to_the_next() -> None:
    alone = linked(Mesh(pp=4), None)
    assert [call.ranks for call in alone.stages.sends] == [(0, 1), (1, 2), (2, 3), (3, 0)]
    # Two stages on each host: only what the second one sends leaves it.
    mesh = Mesh(pp=4, hosts=2)
    slow, slower = linked(mesh, "1Gb"), linked(mesh, "0.5Gb")
    one_s, other_s = (
        time_of(each.stages.sends[1], mesh, PLATFORM.device, parse_link(link)).seconds
        for each, link in ((slow, "1Gb"), (slower, "0.5Gb"))
    )
    assert slow.stages.sends[1].n_bytes == SIZE
    # So slow that a step is mostly sends: the first microbatch's there and back is in any case.
    assert slow.ran.seconds > alone.ran.seconds + 2 * 0.9 * one_s
    assert slower.ran.seconds - slow.ran.seconds > 2 * 0.9 * (other_s - one_s)


def test_the_last_stage_sends_to_the_first_where_each_has_several_parts() -> None:
    found = linked(Mesh(pp=2, hosts=2), "400Gb", Schedule.INTERLEAVED)
    assert [call.ranks for call in found.stages.sends] == [(0, 1), (1, 0), (0, 1), (1, 0)]


def test_stages_that_do_not_fill_a_host_wait_for_the_copy_that_crosses() -> None:
    # Hosts of ranks 0 to 3, 4 to 7 and so on; stages of three copies.
    mesh = Mesh(pp=4, dp=3, hosts=3)
    assert [ends_of(mesh, part) for part in range(3)] == [(1, 4), (3, 6), (6, 9)]
    assert ends_of(Mesh(pp=4, dp=2, hosts=2), 0) == (0, 2)


def test_only_a_pipeline_on_several_hosts_needs_their_link() -> None:
    with pytest.raises(InputError, match=r"the group pp of pp=4 spans 2 hosts.*--link"):
        linked(Mesh(pp=4, hosts=2), None)


HEAD = (1 << 20, 1024)
HEAD_SIZE = 4 << 30


def with_a_heavy_head() -> tuple[OpGraph, ModelFacts, CostedPipeline]:
    """The same with 4 GiB of weights in the last part: nothing but its update takes long."""

    def head(storage: int) -> TensorSpec:
        return TensorSpec(HEAD, "float32", (1024, 1), storage, "cuda:0", 0)

    loss = replace(LOSS, call=OpCall("aten::detach", (head(5),), (head(5),)))
    lists = tuple((*map(spec, each), head(last)) for each, last in
                  ((range(BLOCKS), 5), (range(10, 10 + BLOCKS), 15)))  # fmt: skip
    update = StepOp(OpCall("aten::_foreach_add_", lists, ()), "", "", Phase.OPTIMIZER)
    facts = replace(
        FACTS,
        parameters=(
            *FACTS.parameters,
            Parameter("head.weight", "", 5, HEAD, "float32", HEAD_SIZE, 15, 6),
        ),
    )
    graph = replace(
        GRAPH,
        ops=(*FORWARD, loss, *BACKWARD, update),
        parameters=frozenset(range(BLOCKS)) | {5},
        sizes_bytes={**GRAPH.sizes_bytes, 5: HEAD_SIZE, 15: HEAD_SIZE},
        lives={**GRAPH.lives, 5: StorageLife(HEAD_SIZE, -1, None),
               15: StorageLife(HEAD_SIZE, -1, None)},
        model=facts,
    )  # fmt: skip
    mesh = Mesh(pp=2)
    plain = cost_ops(graph, mesh, PLATFORM)
    options = MeshOptions(mesh, None, 4)
    return graph, facts, pipelined(graph, facts, plain, PLATFORM, FAST, options)


def test_a_step_ends_when_the_slowest_stage_has_updated_its_parameters() -> None:
    _, _, found = with_a_heavy_head()
    stages = found.stages
    first, last = stages.updates
    # Read twice and written once, at 3.35 TB/s.
    assert last.optimizer_s > 3 * HEAD_SIZE / 3.35e12 > 10 * first.optimizer_s
    assert (stages.slowest, found.record["slowest_stage"]) == (1, 1)
    assert stages.seconds == stages.ran.stages[1][-1].end_s + last.seconds
    # The first stage waits for it at the end.
    waits = found.ops[-1]
    assert len(found.ops) - 1 in found.waits
    assert waits.op.phase is Phase.OPTIMIZER
    assert waits.device_s == pytest.approx(stages.seconds - stages.ended_s[0])
    assert found.record["update_s"] == [first.seconds, last.seconds]


def test_equal_stages_end_with_the_first() -> None:
    stages = made(Mesh(pp=2), 4).stages
    assert stages.updates[0] == stages.updates[1]
    # Its backward pass is the last.
    assert stages.slowest == 0
    assert stages.seconds == stages.ran.seconds + stages.updates[0].seconds


def test_every_stage_reduces_over_its_own_copies() -> None:
    updates = made(Mesh(pp=2, dp=2), 2).stages.updates
    asked = [each.reduced for each in updates]
    assert [call.ranks for call in asked if call is not None] == [(0, 1), (2, 3)]
    assert all(each.seconds == each.reduce_s + each.optimizer_s for each in updates)
    assert all(each.reduce_s > 0 for each in updates)


def test_waiting_grows_with_the_kernels_at_the_interval_s_ends() -> None:
    found = made(Mesh(pp=2), 2)
    low, high = found.scaled(0.5, 2.0)
    for at in found.waits:
        assert low[at].device_s == found.ops[at].device_s * 0.5
        assert high[at].device_s == found.ops[at].device_s * 2.0


def test_two_parts_of_the_model_on_each_stage() -> None:
    found = made(Mesh(pp=2), 4, Schedule.INTERLEAVED)
    own = {each.op.module for each in found.ops if each.op.module}
    assert own == {"blocks.0", "blocks.2"}
    assert [spec.storage for spec in found.ops[-1].op.call.tensors] == [0, 2, 10, 12]


def levels(passes: RankMemory, update: RankMemory | None = None) -> Levels:
    """So much during all passes of a step whose last op is the optimizer, so much while it runs."""
    found = Levels(OPS)
    for kind, n_bytes in passes.by_kind().items():
        found.hold(kind, n_bytes, 0, len(OPS) - 2)
    for kind, n_bytes in (update or RankMemory(0, 0, 0, 0, 0)).by_kind().items():
        found.hold(kind, n_bytes, len(OPS) - 1, len(OPS) - 1)
    return found


def test_a_stage_holds_its_part_for_each_microbatch_in_flight() -> None:
    whole = levels(RankMemory(4 * SIZE, 0, 8 * SIZE, 5 * SIZE, 4 * SIZE))
    found = stage_memory(whole, GRAPH, FACTS, made(Mesh(pp=2), 4).stages)  # two in flight
    assert (found.weights, found.gradients, found.optimizer) == (2 * SIZE, 2 * SIZE, 4 * SIZE)
    assert found.activations == 4 * SIZE  # two of five outputs, twice
    assert found.buffers == 2 * SIZE
    # Of one microbatch there are no gradients left where it holds most.
    assert stage_memory(whole, GRAPH, FACTS, made(Mesh(pp=2), 1).stages).gradients == 0


def test_only_activations_of_the_passes_are_there_for_each_microbatch_in_flight() -> None:
    passes = RankMemory(4 * SIZE, 0, 8 * SIZE, 5 * SIZE, 0)
    # An optimizer that makes as much again as it has parameters: most, of one microbatch.
    update = RankMemory(4 * SIZE, 4 * SIZE, 8 * SIZE, 4 * SIZE, 0)
    stages = made(Mesh(pp=2), 32, Schedule.GPIPE).stages
    found = stage_memory(levels(passes, update), GRAPH, FACTS, stages)
    # The last stage: three of five outputs in 32 microbatches.
    assert found.activations == 3 * SIZE * 32
    # One in flight holds less than the update makes: half of the parameters' size.
    alone = made(Mesh(pp=2), 1, Schedule.GPIPE).stages
    few = replace(passes, activations=SIZE)
    found = stage_memory(levels(few, update), GRAPH, FACTS, alone)
    assert (found.gradients, found.activations) == (2 * SIZE, 2 * SIZE)


def test_memory_is_that_of_the_stage_that_needs_most() -> None:
    graph, facts, pipeline = with_a_heavy_head()
    whole = levels(RankMemory(4 * SIZE + HEAD_SIZE, 0, 0, 0, 0))
    found = stage_memory(whole, graph, facts, pipeline.stages)
    # The head and two blocks of four.
    assert found.weights == pytest.approx(2 * SIZE + HEAD_SIZE)
    assert found.gradients == 2 * SIZE + HEAD_SIZE


def collectives(found: CostedPipeline) -> list[tuple[str, str, tuple[int, ...], int]]:
    return [
        (call.kind, call.group, call.ranks, call.n_bytes)
        for call in (each.op.collective for each in found.ops)
        if call is not None and call.group != "pp"
    ]


def test_a_sharded_stage_gathers_once_and_scatters_after_its_last_backward_pass() -> None:
    found = made(Mesh(pp=2, fsdp=2), 3)
    gathers, scatters = (
        ("all_gather", "fsdp", (0, 1), SIZE),
        ("reduce_scatter", "fsdp", (0, 1), SIZE),
    )
    assert collectives(found) == [gathers, gathers, scatters, scatters]
    order = [each.op.collective.kind if each.op.collective else each.op.phase for each in found.ops]
    # Both before the first microbatch's pass is over, and nothing is computed after they are back.
    assert max(at for at, each in enumerate(order) if each == "all_gather") < order.index(
        "send", order.index("all_gather")
    )
    last_pass = max(
        at for at, each in enumerate(found.ops)
        if each.op.phase is Phase.BACKWARD and each.op.call.name == "aten::mm"
    )  # fmt: skip
    assert order.index("reduce_scatter") > last_pass


def test_the_first_microbatch_of_a_sharded_stage_waits_for_its_parameters() -> None:
    whole, sharded = made(Mesh(pp=2), 4), made(Mesh(pp=2, fsdp=2), 4)
    lengths = [
        [each.end_s - each.begin_s for each in found.ran.stages[1] if not each.one.backward]
        for found in (whole, sharded)
    ]
    assert lengths[1][0] > lengths[0][0]
    assert lengths[1][1:] == pytest.approx(lengths[0][1:])
    first, last = sharded.stages.updates
    assert first.reduced is None and first.reduce_s > 0
    assert last.reduce_s == pytest.approx(first.reduce_s)
    # Half of each parameter is updated.
    assert first.optimizer_s < whole.stages.updates[0].optimizer_s
    assert [each.shape for each in sharded.ops[-1].op.call.tensors] == [(512, 1024)] * 4


def test_the_first_gather_of_a_step_hides_behind_no_step_before() -> None:
    # Its stream waits for what was computed before, so that the first block's is exposed.
    whole, sharded = made(Mesh(pp=2), 4), made(Mesh(pp=2, fsdp=2), 4)
    first, plain = (
        found.ran.stages[0][0].end_s - found.ran.stages[0][0].begin_s for found in (sharded, whole)
    )
    gather = next(each for each in sharded.ops if each.op.collective is not None)
    assert first > plain + gather.device_s


def test_the_optimizer_waits_for_what_was_scattered() -> None:
    found = made(Mesh(pp=2, dp=2, fsdp=2), 2)
    optimizer = next(each for each in found.ops if each.op.phase is Phase.OPTIMIZER)
    waited = {found.ops[at].op.collective for at in optimizer.op.after}
    kinds = [call.kind for call in waited if call is not None]
    assert {"reduce_scatter", "all_reduce"} <= set(kinds)
    # As long as the step that its parts add up to.
    step_s = float(replayed(found.ops, FAST).ops.end_s.max())
    assert step_s == pytest.approx(found.stages.seconds, rel=0.05)


def test_shards_of_several_copies_are_reduced_over_them() -> None:
    found = made(Mesh(pp=2, dp=2, fsdp=2), 2)
    reduced = [each for each in collectives(found) if each[0] != "all_gather"]
    scatter, reduce = (
        ("reduce_scatter", "fsdp", (0, 1), SIZE),
        ("all_reduce", "dp", (0, 2), SIZE // 2),
    )
    assert reduced == [scatter, reduce, scatter, reduce]
    said = " ".join(found.assumptions)
    assert "reshard_after_forward=False" in said and "reduced over 2 copies" in said


def test_each_sharded_stage_is_on_its_own_ranks() -> None:
    shards = made(Mesh(pp=2, fsdp=2), 2).stages.shards
    assert shards is not None
    asked = [
        {each.op.collective.ranks for each in part.forward.ops if each.op.collective}
        for part in shards.parts
    ]
    assert asked == [{(0, 1)}, {(2, 3)}]


def test_a_sharded_stage_holds_its_parameters_and_gradients_whole() -> None:
    # Of a rank: half of the weights and of the optimizer's state.
    whole = levels(RankMemory(2 * SIZE, SIZE, 4 * SIZE, 5 * SIZE, 4 * SIZE))
    for microbatches in (1, 4):
        stages = made(Mesh(pp=2, fsdp=2), microbatches).stages
        found = stage_memory(whole, GRAPH, FACTS, stages)
        assert (found.weights, found.optimizer) == (SIZE, 2 * SIZE)
        assert found.gradients == 2 * SIZE
        # Both blocks gathered, and one's gradients in the buffer that is scattered.
        assert found.buffers == 3 * SIZE


def test_what_cannot_be_a_pipeline_is_one_sentence() -> None:
    with pytest.raises(InputError, match="a pipeline of 8 stages needs at least 8 blocks"):
        made(Mesh(pp=8), 2)
    alone = replace(GRAPH, ops=tuple(FORWARD))
    plain = cost_ops(alone, Mesh(pp=2), PLATFORM)
    with pytest.raises(InputError, match="no backward pass"):
        pipelined(alone, FACTS, plain, PLATFORM, FAST, MeshOptions(Mesh(pp=2), None, 2))
    speaks = StepOp(
        OpCall("c10d::all_reduce", (), ()), collective=CollectiveCall("all_reduce", 4, "x", (0, 1))
    )
    talking = replace(GRAPH, ops=(*OPS, speaks))
    with pytest.raises(InputError, match="calls collectives itself"):
        pipelined(talking, FACTS, plain, PLATFORM, FAST, MeshOptions(Mesh(pp=2), None, 2))


def test_what_is_said_of_a_pipeline() -> None:
    found = made(Mesh(pp=2, dp=2), 4)
    assert found.record["schedule"] == "1f1b"
    assert found.record["bubble_s"] == list(found.ran.bubble_s)
    said = " ".join(found.assumptions)
    assert "A step is 4 microbatches (1f1b)" in said
    assert "divided evenly into 2 parts on 2 stages" in said
    assert "Gradients are reduced over the copies" in said

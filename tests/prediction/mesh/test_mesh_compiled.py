"""A step whose blocks are compiled one by one: what is fused, what stays, and when."""

from __future__ import annotations

from dataclasses import replace

from gobrrr.prediction.mesh.compiled import compiled_by_block
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import CollectiveCall, ModelFacts, OpGraph, Parameter, StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec

SHAPE = (256, 256)


def spec(storage: int) -> TensorSpec:
    return TensorSpec(SHAPE, "float32", (256, 1), storage, "cuda:0", 0)


def op(name: str, module: str, phase: Phase, made: int, *read: int) -> StepOp:
    return StepOp(OpCall(f"aten::{name}", tuple(map(spec, read)), (spec(made),)), module, "", phase)


# Two blocks of two element-wise ops each, forward and backward; weights are 0 and 1.
OPS = (
    op("mul", "blocks.0", Phase.FORWARD, 11, 10, 0),
    op("exp", "blocks.0", Phase.FORWARD, 12, 11),
    op("mul", "blocks.1", Phase.FORWARD, 13, 12, 1),
    op("exp", "blocks.1", Phase.FORWARD, 14, 13),
    op("mul", "blocks.1", Phase.BACKWARD, 15, 14, 14),
    op("mul", "blocks.1", Phase.BACKWARD, 16, 15, 12),  # the second weight's gradient
    op("mul", "blocks.1", Phase.BACKWARD, 17, 15, 1),
    op("mul", "blocks.0", Phase.BACKWARD, 18, 17, 12),
    op("mul", "blocks.0", Phase.BACKWARD, 19, 18, 10),  # the first's
    op("add_", "", Phase.OPTIMIZER, 0, 0, 19),
    op("add_", "", Phase.OPTIMIZER, 1, 1, 16),
)
FACTS = ModelFacts(
    (
        Parameter("blocks.0.weight", "blocks.0", 0, SHAPE, "float32", 4 << 16, 19, 9),
        Parameter("blocks.1.weight", "blocks.1", 1, SHAPE, "float32", 4 << 16, 16, 6),
    ),
    ("blocks.0", "blocks.1"),
)
GRAPH = OpGraph(
    ops=OPS,
    kept=frozenset({0, 1, 16, 19}),
    parameters=frozenset({0, 1}),
    inputs=frozenset({10}),
    sizes_bytes={},
    peak_memory_bytes=None,
    model=FACTS,
)


def test_each_block_is_entered_in_both_passes_with_its_own_weights() -> None:
    found = compiled_by_block(GRAPH, FACTS, 132)
    assert found.entries == {0: 1, 1: 1, 2: 1, 3: 1}
    first, second = FACTS.parameters
    frozen = replace(FACTS, parameters=(replace(first, gradient=None, ready=None), second))
    assert compiled_by_block(GRAPH, frozen, 132).entries == {0: 0, 1: 1, 2: 1, 3: 0}


def test_each_block_is_one_kernel_a_pass() -> None:
    found = compiled_by_block(GRAPH, FACTS, 132)
    passes = [each for each in found.graph.ops if each.phase is not Phase.OPTIMIZER]
    assert [(each.module, each.phase.name) for each in passes] == [
        ("blocks.0", "FORWARD"), ("blocks.1", "FORWARD"),
        ("blocks.1", "BACKWARD"), ("blocks.0", "BACKWARD"),
    ]  # fmt: skip
    assert all(each.call.name.startswith("triton_poi_fused") for each in passes)
    assert all(found.works[id(each.call)] is not None for each in passes)
    assert found.graph.ops[4:] == OPS[9:]


def test_what_another_block_reads_is_written() -> None:
    found = compiled_by_block(GRAPH, FACTS, 132)
    written = [{s.storage for s in each.call.outputs or ()} for each in found.graph.ops[:4]]
    # Of the first block's two results the backward pass and the next block read the second.
    assert written == [{12}, {14}, {16, 17}, {19}]


def test_gradients_are_ready_when_their_block_is_done() -> None:
    found = compiled_by_block(GRAPH, FACTS, 132)
    assert [each.ready for each in found.facts.parameters] == [4, 3]
    assert found.graph.model == found.facts


def test_a_collective_is_in_no_kernel() -> None:
    asked = CollectiveCall("all_reduce", 4 << 16, "tp", (0, 1))
    summed = replace(op("all_reduce", "blocks.0", Phase.FORWARD, 11, 11), collective=asked)
    found = compiled_by_block(replace(GRAPH, ops=(OPS[0], summed, *OPS[1:])), FACTS, 132)
    names = [each.call.name.partition("_")[0] for each in found.graph.ops[:3]]
    assert names == ["triton", "aten::all", "triton"]

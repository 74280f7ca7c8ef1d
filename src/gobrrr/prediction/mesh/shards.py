"""Stages of a pipeline whose parameters are sharded: FSDP2 under torch.distributed.pipelining.

A stage's parameters are gathered during the first microbatch's forward pass and stay: its blocks
have ``reshard_after_forward=False``, as torchtitan gives them under a pipeline, because each of the
microbatches would gather them again. Backward passes neither shard them again nor reduce: gradients
are added up whole, and scattered after the last one, with nothing beside it
(torch/distributed/pipelining/stage.py, ``backward_maybe_with_nosync`` and ``perform_reduce_grad``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gobrrr.prediction.mesh.chunks import Chunks
from gobrrr.prediction.mesh.costs import CostedMesh, Platform, cost_mesh, cost_ops
from gobrrr.prediction.mesh.fsdp import fully_sharded, scattered, units_of
from gobrrr.prediction.mesh.mesh import Mesh
from gobrrr.prediction.mesh.ops import end_of_backward, sharded
from gobrrr.prediction.mesh.parts import part_of
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import ModelFacts, OpGraph


@dataclass(frozen=True, slots=True)
class ShardedPart:
    """What sharding adds to one part of the model.

    Attributes:
        forward: its first forward pass, with what gathers its parameters.
        reduce: what scatters its gradients after its last backward pass; and reduces them over
            the copies, where there are several.
    """

    forward: CostedMesh
    reduce: CostedMesh


@dataclass(frozen=True, slots=True)
class ShardedStages:
    """All parts of a model, and the step whose optimizer meets shards."""

    parts: tuple[ShardedPart, ...]
    graph: OpGraph


def sharded_stages(
    graph: OpGraph,
    facts: ModelFacts,
    plain: CostedMesh,
    chunks: Chunks,
    mesh: Mesh,
    platform: Platform,
) -> ShardedStages:
    """What sharding over ``mesh.fsdp`` ranks adds to each stage.

    Args:
        graph: of the captured step: one microbatch.
        facts: of its model.
        plain: the graph's ops with their costs.
        chunks: what belongs to which part of the model.
        mesh: of all devices.
        platform: devices and link.

    Raises:
        InputError: a parameter cannot be sharded, or a link is not known.
    """
    parts = [
        _sharded_part(graph, facts, plain, chunks, part, mesh, platform)
        for part in range(len(chunks.forward))
    ]
    shapes = frozenset(each.shape for each in facts.parameters)
    stored = {(each.shape, each.dtype): each.stored for each in facts.parameters if each.stored}
    ops = list(graph.ops)
    over = end_of_backward(graph.ops)
    for at in chunks.optimizer:
        if at < over and ops[at].phase is not Phase.OPTIMIZER:
            # A batch that is being prepared.
            continue
        ops[at] = replace(ops[at], call=sharded(ops[at].call, shapes, mesh.fsdp, stored))
    return ShardedStages(tuple(parts), replace(graph, ops=tuple(ops)))


def _sharded_part(
    graph: OpGraph,
    facts: ModelFacts,
    plain: CostedMesh,
    chunks: Chunks,
    part: int,
    mesh: Mesh,
    platform: Platform,
) -> ShardedPart:
    alone = part_of(plain.ops, chunks.forward[part])
    passing = replace(graph, ops=tuple(each.op for each in alone))
    own = [each for each in facts.parameters if chunks.of_parameter[each.storage] == part]
    of_part = replace(facts, parameters=tuple(own))
    # Nothing is scattered in the pass, so that none of its parameters counts as trained there.
    frozen = replace(of_part, parameters=tuple(replace(each, ready=None) for each in own))
    before = part % mesh.pp * (mesh.devices // mesh.pp)
    shards, copies = (_ranks(mesh, dimension, before) for dimension in ("fsdp", "dp"))
    gathered = fully_sharded(passing, frozen, shards, copies)
    units = units_of(passing, of_part)
    reduced = scattered(graph, units, shards, copies)
    return ShardedPart(
        cost_mesh(gathered, replace(plain, ops=tuple(alone)), passing, mesh, platform),
        cost_ops(replace(graph, ops=reduced.ops), mesh, platform),
    )


def _ranks(mesh: Mesh, dimension: str, before: int) -> Sequence[int]:
    """A stage's first group along a dimension; ``before``: ranks of the stages before it."""
    return tuple(before + rank for rank in mesh.ranks(dimension))

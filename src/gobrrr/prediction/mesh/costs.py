"""What a step of one rank of a mesh costs, op by op: collectives, shards, and the rest as alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gobrrr.prediction.kernels.kernel_model import Flags
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.mesh.collectives import CollectiveTime, HostLink
from gobrrr.prediction.mesh.ddp import data_parallel
from gobrrr.prediction.mesh.fsdp import fully_sharded
from gobrrr.prediction.mesh.mesh import Mesh, link_of, time_of
from gobrrr.prediction.mesh.ops import MeshOps
from gobrrr.prediction.step.costs import CostedOp, OpCost, cost_graph
from gobrrr.prediction.step.host_calls import begun
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import CollectiveCall, ModelFacts, OpGraph, StepOp
from gobrrr.work.estimate import Work


@dataclass(frozen=True, slots=True)
class Platform:
    """What a mesh is made of: alike devices, and the link between hosts where there are several."""

    device: TargetDevice
    link: HostLink | None
    flags: Flags


@dataclass(frozen=True, slots=True)
class CostedMesh:
    """The ops of one rank with their costs, and the time of each collective alone."""

    ops: tuple[CostedOp, ...]
    times: Mapping[CollectiveCall, CollectiveTime]
    notices: tuple[str, ...]

    def scaled(self, low: float, high: float) -> tuple[list[CostedOp], list[CostedOp]]:
        """The ops at both ends of their intervals: kernels times ``low`` and times ``high``."""

        def at(factor: float, end: str) -> list[CostedOp]:
            known: dict[OpCost, OpCost] = {}
            found = []
            for op in self.ops:
                asked, cost = op.op.collective, known.get(op.cost)
                if asked is not None:
                    cost = replace(op.cost, device_s=float(getattr(self.times[asked], end)))
                elif cost is None:
                    cost = replace(op.cost, device_s=op.cost.device_s * factor)
                    known[op.cost] = cost
                found.append(replace(op, cost=cost))
            return found

        return at(low, "low_s"), at(high, "high_s")


def model_of(graph: OpGraph) -> ModelFacts:
    """What is known of the model that the step trains.

    Raises:
        InputError: there is none.
    """
    if graph.model is None or not graph.model.parameters:
        raise InputError(
            "a mesh is applied to a model, and the step has no torch.nn.Module with parameters: "
            "return (module, inputs), a gobrrr.Workload, or a step that calls one"
        )
    return graph.model


def as_used(graph: OpGraph, mesh: Mesh) -> Mesh:
    """The mesh as the program itself has used it, where it wraps its model."""
    own = graph.wrapping
    if own is None:
        return mesh
    shards, copies = (1, len(own.ranks)) if own.kind == "ddp" else (len(own.ranks), len(own.copies))
    return replace(mesh, dp=copies, fsdp=shards)


def communicates(graph: OpGraph) -> bool:
    """Whether the program asks other ranks for something by itself."""
    ours = "tp" if graph.divided > 1 else None
    return any(op.collective is not None and op.collective.group != ours for op in graph.ops)


def mesh_ops(graph: OpGraph, facts: ModelFacts, mesh: Mesh) -> MeshOps:
    """The step of the first rank: under FSDP2, under DDP, or as it is.

    ``graph``: of a single device; with tensor parallelism, of one of those that share a layer.

    Raises:
        InputError: the model cannot be parallelised so.
    """
    own = graph.wrapping
    if own is not None and own.kind == "fsdp":
        return fully_sharded(graph, facts, own.ranks, own.copies, own.reduce_dtype)
    if own is not None:
        return data_parallel(graph, facts, own.ranks, own)
    if communicates(graph):
        return MeshOps(graph.ops, tuple(range(len(graph.ops))))
    if mesh.fsdp > 1:
        return fully_sharded(graph, facts, mesh.ranks("fsdp"), mesh.ranks("dp"))
    if mesh.dp > 1:
        return data_parallel(graph, facts, mesh.ranks("dp"))
    return MeshOps(graph.ops, tuple(range(len(graph.ops))))


def cost_ops(
    graph: OpGraph, mesh: Mesh, platform: Platform, kernels: Mapping[int, Work | None] | None = None
) -> CostedMesh:
    """Cost every op of a graph, collectives by their groups; ``kernels``: as of ``cost_graph``.

    Raises:
        InputError: a collective's link is not known.
        NoPathError: an op cannot run on the device.
    """
    alone = tuple(op for op in graph.ops if op.collective is None)
    found = cost_graph(
        replace(graph, ops=alone), platform.device, flags=platform.flags, kernels=kernels
    )
    costed = iter(found.ops)
    times: dict[CollectiveCall, CollectiveTime] = {}
    ops = [
        next(costed) if op.collective is None else _collective(op, mesh, platform, times)
        for op in graph.ops
    ]
    return CostedMesh(tuple(ops), times, found.notices)


def cost_mesh(
    made: MeshOps, plain: CostedMesh, graph: OpGraph, mesh: Mesh, platform: Platform
) -> CostedMesh:
    """Cost the ops of one rank; those as in ``plain``, the costed ``graph``, cost the same.

    Raises:
        InputError, NoPathError: as ``cost_ops``.
    """
    new = [op for op, origin in zip(made.ops, made.origin) if origin < 0]
    added = cost_ops(replace(graph, ops=tuple(new)), mesh, platform)
    costed = iter(added.ops)
    times = {**added.times}
    ops = []
    for op, origin in zip(made.ops, made.origin):
        found = next(costed) if origin < 0 else plain.ops[origin]
        if op.collective is None:
            same = op.call is found.op.call
            own = op if same else replace(op, call=found.op.call)
            ops.append(replace(found, op=own))
        else:
            ops.append(CostedOp(op, replace(found.cost, call=op.call)))
        if origin >= 0 and op.collective is not None:
            times[op.collective] = plain.times[op.collective]
    notices = dict.fromkeys((*plain.notices, *added.notices))
    return CostedMesh(tuple(ops), times, tuple(notices))


def cost_step(
    made: MeshOps, plain: CostedMesh, graph: OpGraph, mesh: Mesh, platform: Platform
) -> CostedMesh:
    """``cost_mesh`` of a whole step, with what the host does before its passes."""
    found = cost_mesh(made, plain, graph, mesh, platform)
    return replace(found, ops=tuple(begun(found.ops)))


def _collective(
    op: StepOp, mesh: Mesh, platform: Platform, times: dict[CollectiveCall, CollectiveTime]
) -> CostedOp:
    asked = op.collective
    if asked is None:
        raise ValueError(f"{op.call.name} asks nothing of other ranks")
    found = times.get(asked)
    if found is None:
        found = times[asked] = time_of(asked, mesh, platform.device, platform.link)
    cost = OpCost(
        op.call,
        work=None,
        roof=None,
        device_s=found.seconds,
        fixed_s=0.0,
        kernels=1,
        host_calls=1,
        because=found.arithmetic,
        link=link_of(asked, mesh),
    )
    return CostedOp(op, cost)


def alone(ops: Sequence[CostedOp]) -> list[CostedOp]:
    """The ops that are no collectives."""
    return [op for op in ops if op.op.collective is None]

"""A step under FSDP2: ``fully_shard`` on each block of the model, then on the model.

In the order in which torch issues it (torch/distributed/fsdp/_fully_shard, ``FSDPParamGroup``),
with its defaults: a block's parameters are gathered before its forward pass and freed after it,
gathered again before its backward pass, the next block's while it runs; its gradients are scattered
behind the backward pass of the block before. Overlap follows from streams and events, as there; the
root's parameters stay gathered. Over two dimensions (HSDP) shards are reduced over the copies.
Under a ``MixedPrecisionPolicy`` shards are cast before they are gathered, gradients as they are
copied into what is reduced, and what comes of it back to the dtype of the shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from gobrrr.prediction.mesh.ops import (
    COMPUTE,
    COPY_IN,
    GATHER,
    REDUCE,
    SCATTER,
    Builder,
    MeshOps,
    device_of,
    end_of_backward,
    first_and_last,
    sharded,
)
from gobrrr.timeline.data import Phase
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import CollectiveCall, ModelFacts, OpGraph, Parameter, StepOp
from gobrrr.timeline.ops import ITEM_SIZE_BYTES, OpCall
from gobrrr.timeline.streams import NOTHING, Event

ROOT = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """Parameters that are gathered together, and where the step needs them.

    Attributes:
        name: path of the block; ``""`` is the root.
        parameters: of it.
        forward, backward: from its first op of that phase to after its last; empty without one.
        whole: whether it stays gathered from its forward pass to its backward pass.
    """

    name: str
    parameters: tuple[Parameter, ...]
    forward: range
    backward: range
    whole: bool = False

    def shard_elements(self, ranks: int) -> list[int]:
        """Elements of each parameter's shard, as padded."""
        return [shard_elements(each.shape, ranks) for each in self.parameters]

    def gathered_bytes(self, ranks: int) -> int:
        """Of all shards, padding included: what an all-gather moves."""
        sizes = zip(self.shard_elements(ranks), self.parameters)
        return sum(ranks * count * ITEM_SIZE_BYTES[each.dtype] for count, each in sizes)

    def reduced_bytes(self, ranks: int, dtype: str = "") -> int:
        """Of the gradients, padded as well: what a reduce-scatter moves, in ``dtype`` if any."""
        sizes = zip(self.shard_elements(ranks), self.parameters)
        return sum(
            ranks * count * ITEM_SIZE_BYTES[dtype or each.dtype]
            for count, each in sizes
            if each.ready is not None
        )


def shard_elements(shape: Sequence[int], ranks: int) -> int:
    """Elements of one padded shard along the first dimension."""
    return -(-shape[0] // ranks) * prod(shape[1:])


def units_of(graph: OpGraph, facts: ModelFacts) -> list[Unit]:
    """The root, and the blocks in the order in which the forward pass comes to them.

    Raises:
        InputError: a parameter has no dimension to shard, or the step has several backward passes.
    """
    if facts.passes > 1:
        raise InputError(
            f"the step runs {facts.passes} backward passes, and FSDP2 gathers and scatters in "
            "each: only a step of one can be predicted, so give one microbatch"
        )
    for each in facts.parameters:
        if not each.shape:
            raise InputError(
                f"fully_shard accepts no zero-dimensional parameter, and {each.name} is one: give "
                "it the shape (1,)"
            )
    ops = graph.ops
    forward = first_and_last(ops, facts.units, Phase.FORWARD)
    backward = first_and_last(ops, facts.units, Phase.BACKWARD)
    of_unit: dict[str, list[Parameter]] = {}
    for each in facts.parameters:
        of_unit.setdefault(each.unit if each.unit in forward else ROOT, []).append(each)
    in_model = [at for at, op in enumerate(ops) if op.phase is Phase.FORWARD and op.module]
    begin, end = (in_model[0], in_model[-1] + 1) if in_model else (0, 0)
    over = end_of_backward(ops)
    starts = next((at for at, op in enumerate(ops) if op.phase is Phase.BACKWARD), over)
    whole = facts.whole
    own = tuple(of_unit.get(ROOT, ()))
    found = [Unit(ROOT, own, range(begin, end), range(starts, over), ROOT in whole)]
    for name in sorted(forward, key=lambda unit: forward[unit].start):
        parameters = tuple(of_unit.get(name, ()))
        if not parameters:
            continue
        there = backward.get(name)
        if there is not None:
            there = range(there.start, max([there.stop, *(p.ready or 0 for p in parameters)]))
        found.append(Unit(name, parameters, forward[name], there or range(0), name in whole))
    return found


class _Sharding:
    """Issues what FSDP2 does around each block."""

    def __init__(
        self,
        build: Builder,
        units: Sequence[Unit],
        shards: Sequence[int],
        copies: Sequence[int],
        reduce_dtype: str,
    ) -> None:
        self._build, self._order = build, build.order
        self._reduce_dtype = reduce_dtype
        self._shards, self._copies = tuple(shards), tuple(copies)
        self._n = len(shards)
        # What the backward pass prefetches after each block: the one before in the forward pass.
        blocks = [unit for unit in units if unit.name != ROOT]
        self._before: dict[str, Unit] = {after.name: unit for unit, after in pairwise(blocks)}
        if blocks:
            self._before[ROOT] = blocks[-1]
        self._gathered: dict[str, Event] = {}
        # The copy-out that the next gather of the forward pass waits for.
        self._copied_out: Event | None = None
        self._scattered: Event | None = None
        self._reduced: Event = NOTHING

    def before_forward(self, unit: Unit) -> None:
        if unit.name == ROOT:
            self._order.wait_stream(COPY_IN, COMPUTE)
            self._order.wait_stream(GATHER, COMPUTE)
        if unit.parameters:
            self._gather(unit, Phase.FORWARD)
            self._copy_out(unit, Phase.FORWARD)

    def after_forward(self) -> None:
        """The root's forward pass is over."""
        if self._copied_out is not None:
            self._gathers_wait(self._copied_out)
            self._copied_out = None

    def before_backward(self, unit: Unit) -> None:
        if unit.parameters and not unit.whole:
            if unit.name not in self._gathered:
                self._gather(unit, Phase.BACKWARD)
            self._copy_out(unit, Phase.BACKWARD)
        target = self._before.get(unit.name)
        if target is None or target.whole or not target.backward:
            return
        if target.name not in self._gathered:
            self._gather(target, Phase.BACKWARD)

    def after_backward(self, unit: Unit) -> None:
        trained = [each for each in unit.parameters if each.ready is not None]
        if self._scattered is not None:
            # Its input is freed before the next is made: one buffer at a time.
            self._order.wait(COMPUTE, self._scattered)
            self._scattered = None
        if not trained:
            return
        build, order = self._build, self._order
        counts = [shard_elements(each.shape, self._n) for each in trained]
        dtypes = [self._reduce_dtype or each.dtype for each in trained]
        inputs = [build.buffer(self._n * count, dtype) for count, dtype in zip(counts, dtypes)]
        gradients = [build.buffer(prod(each.shape), each.dtype, each.gradient) for each in trained]
        build.copy(inputs, gradients, COMPUTE, Phase.BACKWARD, unit.name)
        order.wait_stream(SCATTER, COMPUTE)
        n_bytes = unit.reduced_bytes(self._n, self._reduce_dtype)
        call = CollectiveCall("reduce_scatter", n_bytes, "fsdp", self._shards)
        build.collective(call, inputs[0], SCATTER, Phase.BACKWARD, unit.name)
        self._scattered = order.event(SCATTER)
        self._reduced = self._scattered
        last = SCATTER
        if len(self._copies) > 1:
            last = REDUCE
            order.wait_stream(REDUCE, SCATTER)
            call = CollectiveCall("all_reduce", n_bytes // self._n, "dp", self._copies)
            build.collective(call, inputs[0], REDUCE, Phase.BACKWARD, unit.name)
        stored = [each.stored or each.dtype for each in trained]
        if stored != dtypes:
            reduced = [build.buffer(count, dtype) for count, dtype in zip(counts, dtypes)]
            shards = [build.buffer(count, dtype) for count, dtype in zip(counts, stored)]
            build.copy(shards, reduced, last, Phase.BACKWARD, unit.name)
        self._reduced |= order.event(last)

    def end(self) -> None:
        """The backward pass is over: what computes waits for all that was reduced."""
        self._order.wait(COMPUTE, self._reduced)

    def _gather(self, unit: Unit, phase: Phase) -> None:
        build, order = self._build, self._order
        elements = unit.shard_elements(self._n)
        dtypes = [each.dtype for each in unit.parameters]
        sources = [build.buffer(count, dtype) for count, dtype in zip(elements, dtypes)]
        stored = [each.stored or each.dtype for each in unit.parameters]
        if stored != dtypes:
            shards = [build.buffer(count, dtype) for count, dtype in zip(elements, stored)]
            build.copy(sources, shards, COPY_IN, phase, unit.name)
        slots = [build.buffer(count, dtype) for count, dtype in zip(elements, dtypes)]
        build.copy(slots, sources, COPY_IN, phase, unit.name)
        order.wait_stream(GATHER, COPY_IN)
        call = CollectiveCall("all_gather", unit.gathered_bytes(self._n), "fsdp", self._shards)
        build.collective(call, slots[0], GATHER, phase, unit.name)
        self._gathered[unit.name] = order.event(GATHER)

    def _copy_out(self, unit: Unit, phase: Phase) -> None:
        build, order = self._build, self._order
        if phase is Phase.FORWARD and self._copied_out is not None:
            self._gathers_wait(self._copied_out)
        order.wait(COMPUTE, self._gathered.pop(unit.name))
        whole = [
            build.buffer(prod(each.shape), each.dtype, each.storage) for each in unit.parameters
        ]
        outputs = [
            build.buffer(self._n * count, each.dtype)
            for count, each in zip(unit.shard_elements(self._n), unit.parameters)
        ]
        build.copy(whole, outputs, COMPUTE, phase, unit.name)
        event = order.event(COMPUTE)
        if phase is Phase.FORWARD:
            self._copied_out = event
        else:
            self._gathers_wait(event)

    def _gathers_wait(self, event: Event) -> None:
        self._order.wait(COPY_IN, event)
        self._order.wait(GATHER, event)


def fully_sharded(
    graph: OpGraph,
    facts: ModelFacts,
    shards: Sequence[int],
    copies: Sequence[int] = (0,),
    reduce_dtype: str = "",
) -> MeshOps:
    """The step of one rank under FSDP2.

    Args:
        graph: of the single device's step.
        facts: of its model.
        shards: ranks that parameters are sharded over.
        copies: ranks that hold the same shard (HSDP); one alone for none.
        reduce_dtype: that gradients are reduced in; ``""``: their own.

    Raises:
        InputError: as ``units_of``.
    """
    units = units_of(graph, facts)
    build = Builder(graph)
    sharding = _Sharding(build, units, shards, copies, reduce_dtype)
    root = units[0]
    trains = any(each.ready is not None for each in facts.parameters)
    over = max([root.backward.stop, *(unit.backward.stop for unit in units)])
    forward_from = {unit.forward.start: unit for unit in units if unit.name != ROOT}
    backward_from: dict[int, list[Unit]] = {}
    backward_to: dict[int, list[Unit]] = {}
    for unit in units:
        if unit.name != ROOT and unit.backward and trains:
            backward_from.setdefault(unit.backward.start, []).append(unit)
            backward_to.setdefault(unit.backward.stop, []).append(unit)
    shapes = frozenset(each.shape for each in facts.parameters)
    stored = {(each.shape, each.dtype): each.stored for each in facts.parameters if each.stored}

    def of_shard(call: OpCall) -> OpCall:
        return sharded(call, shapes, len(shards), stored)

    for at in range(len(graph.ops) + 1):
        for unit in backward_to.get(at, ()):
            sharding.after_backward(unit)
        if at == root.forward.start and root.forward:
            sharding.before_forward(root)
        if at in forward_from:
            sharding.before_forward(forward_from[at])
        if at == root.forward.stop:
            sharding.after_forward()
        if trains and at == root.backward.start:
            sharding.before_backward(root)
        for unit in backward_from.get(at, ()):
            sharding.before_backward(unit)
        if trains and at == over:
            sharding.after_backward(root)
            sharding.end()
        if at < len(graph.ops):
            build.keep(at, of_shard if _on_shards(graph.ops[at], at, over, trains) else None)
    return build.done()


def _on_shards(op: StepOp, at: int, over: int, trains: bool) -> bool:
    """Whether an op that meets parameters or gradients meets this rank's shards of them."""
    return trains and (op.phase is Phase.OPTIMIZER or at >= over)


def scattered(
    graph: OpGraph, units: Sequence[Unit], shards: Sequence[int], copies: Sequence[int] = (0,)
) -> MeshOps:
    """Gradients of all units, scattered one unit after the other when no pass runs any more.

    Args:
        graph: of the step that the units are of; none of its ops is issued.
        units: whose trained parameters have gradients.
        shards: ranks that parameters are sharded over.
        copies: ranks that hold the same shard (HSDP); one alone for none.
    """
    build = Builder(replace(graph, ops=graph.ops[:0]), device=device_of(graph.ops))
    sharding = _Sharding(build, units, shards, copies, "")
    for unit in units:
        sharding.after_backward(unit)
    sharding.end()
    return build.done()

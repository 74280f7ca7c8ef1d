"""Ops that parallelism adds to a step: collectives, copies to and from their buffers, shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import CollectiveCall, OpGraph, StepOp
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.timeline.streams import StreamOrder

# Streams of a device: FSDP2's own four (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py,
# ``FSDPCommContext``), and the one that a process group of NCCL keeps for asynchronous collectives.
COMPUTE, COPY_IN, GATHER, SCATTER, REDUCE, GROUP = range(6)


@dataclass(frozen=True, slots=True)
class MeshOps:
    """The step of one rank of a mesh.

    Attributes:
        ops: in the order in which the host issues them, with their streams and waits.
        origin: of each the op of the single device's step that it is, unchanged; -1 if it is none.
    """

    ops: tuple[StepOp, ...]
    origin: tuple[int, ...]


@dataclass
class Builder:
    """Puts the ops of a single device's step, and others, into the order of a mesh's."""

    graph: OpGraph
    order: StreamOrder = field(default_factory=StreamOrder)
    origin: list[int] = field(default_factory=list)
    device: str = ""

    def __post_init__(self) -> None:
        self._device = self.device or device_of(self.graph.ops)
        self._storage = 1 + max(
            [*self.graph.lives, *self.graph.sizes_bytes, *self.graph.parameters], default=-1
        )
        # Where each op of the single device's step has come to stand.
        self._place: list[int] = []

    def keep(self, at: int, change: Callable[[OpCall], OpCall] | None = None) -> None:
        """Issue the op at a place of the single device's step, its call as ``change`` makes it."""
        op = self.graph.ops[at]
        call = op.call if change is None else change(op.call)
        same = call is op.call
        after = [self._place[other] if other >= 0 else other for other in op.after]
        placed = self.order.put(op if same else replace(op, call=call), op.stream, after)
        self._place.append(placed)
        self.origin.append(at if same else -1)

    def buffer(self, elements: int, dtype: str, storage: int | None = None) -> TensorSpec:
        """A flat tensor on the device; in a storage of its own unless one is given."""
        if storage is None:
            storage, self._storage = self._storage, self._storage + 1
        return TensorSpec((elements,), dtype, (1,), storage, self._device, 0)

    def collective(
        self, call: CollectiveCall, buffer: TensorSpec, stream: int, phase: Phase, module: str = ""
    ) -> int:
        """Issue a collective on a buffer; returns its position."""
        op = StepOp(
            OpCall(f"c10d::{call.kind}", (buffer,), (buffer,)),
            module=module,
            phase=phase,
            collective=call,
        )
        return self._add(op, stream)

    def copy(
        self,
        targets: Sequence[TensorSpec],
        sources: Sequence[TensorSpec],
        stream: int,
        phase: Phase,
        module: str = "",
    ) -> int:
        """Issue one copy of many tensors into as many others; returns its position."""
        call = OpCall("aten::_foreach_copy_", (tuple(targets), tuple(sources), False), ())
        return self._add(StepOp(call, module=module, phase=phase), stream)

    def _add(self, op: StepOp, stream: int) -> int:
        self.origin.append(-1)
        return self.order.put(op, stream)

    def done(self) -> MeshOps:
        """All that was issued."""
        return MeshOps(tuple(self.order.ops), tuple(self.origin))


def device_of(ops: Iterable[StepOp]) -> str:
    """The device of the first tensor that is on one; ``""`` if none is."""
    specs = (
        spec
        for op in ops
        for spec in (*op.call.tensors, *(op.call.outputs or ()))
        if spec.device not in ("", "cpu")
    )
    return next((spec.device for spec in specs), "")


Shape = tuple[int, ...]


def sharded(
    call: OpCall,
    shapes: frozenset[Shape],
    ranks: int,
    stored: Mapping[tuple[Shape, str], str] | None = None,
) -> OpCall:
    """An op on one of ``ranks`` shards: each tensor shaped like a parameter loses rows.

    ``shapes``: of the parameters that are sharded along their first dimension; the first rank has
    the most of what does not divide. ``stored``: the dtype of shards by shape and dtype of the
    parameter, where that is another. Returns the call itself where it is none of it.
    """
    changed = False

    def of(arg: Arg) -> Arg:
        nonlocal changed
        if isinstance(arg, TensorSpec):
            if arg.shape not in shapes:
                return arg
            changed = True
            dtype = (stored or {}).get((arg.shape, arg.dtype), arg.dtype)
            return replace(arg, shape=(-(-arg.shape[0] // ranks), *arg.shape[1:]), dtype=dtype)
        return tuple(of(each) for each in arg) if isinstance(arg, tuple) else arg

    args = tuple(of(arg) for arg in call.args)
    outputs = call.outputs
    if outputs is not None:
        outputs = tuple(spec for spec in map(of, outputs) if isinstance(spec, TensorSpec))
    return OpCall(call.name, args, outputs, call.overload) if changed else call


def end_of_backward(ops: Sequence[StepOp]) -> int:
    """How many ops have been issued when the backward pass is over; 0 without one."""
    return 1 + max((at for at, op in enumerate(ops) if op.phase is Phase.BACKWARD), default=-1)


def inside(module: str, unit: str) -> bool:
    """Whether a module is of a block."""
    return module == unit or module.startswith(f"{unit}.")


def first_and_last(ops: Iterable[StepOp], units: Sequence[str], phase: Phase) -> dict[str, range]:
    """Of each block, from its first op of a phase to after its last."""
    found: dict[str, range] = {}
    known: dict[str, str] = {}
    for at, op in enumerate(ops):
        if op.phase is not phase or not op.module:
            continue
        unit = known.get(op.module)
        if unit is None:
            unit = known[op.module] = next((u for u in units if inside(op.module, u)), "")
        if unit:
            found[unit] = range(found[unit].start if unit in found else at, at + 1)
    return found

"""Which operator reads what another wrote: the operators of a step, linked through their storages.

A value is what a storage holds between two writes. In-place operators make a new value of the same
storage, so that a graph with mutations is as free of them as Inductor's functionalised one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of
from gobrrr.work.estimate import Work
from gobrrr.work.traffic import is_inplace
from gobrrr.work.traits import Role, Space, space_of


@dataclass(frozen=True, slots=True)
class Access:
    """One tensor read or written: the value, and the bytes of it that the tensor spans."""

    value: int
    bytes: int
    spec: TensorSpec


@dataclass(frozen=True, slots=True)
class FlowOp:
    """An operator that does work.

    Attributes:
        index: position in the list that it came from.
        call: with its arguments.
        space: what it iterates over; ``None`` where its arguments do not tell.
        work: its least work; ``None`` if unknown.
        reads: tensors that it reads, each value once.
        writes: tensors that it writes.
        module: path of its module.
        source: the user's line.
        phase: part of the step.
    """

    index: int
    call: OpCall
    space: Space | None
    work: Work | None
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    module: str
    source: str
    phase: Phase

    @property
    def role(self) -> Role:
        """How it takes part in fusion: a kernel of its own where nothing is known."""
        return Role.EXTERN if self.space is None else self.space.role


@dataclass(frozen=True, slots=True)
class Dataflow:
    """The operators with work, linked.

    Attributes:
        ops: in order.
        producer: position in ``ops`` of the writer of each value; absent for values that existed
            before.
        readers: positions of the readers of each value, ascending.
        kept: values that must be in memory after the last operator.
    """

    ops: tuple[FlowOp, ...]
    producer: dict[int, int]
    readers: dict[int, tuple[int, ...]]
    kept: frozenset[int]


def link(
    ops: Sequence[StepOp], kept: Collection[int] = (), *, unread_parts_are_dead: bool = False
) -> Dataflow:
    """Link operators through storage ids.

    Args:
        ops: in the order of issue; every tensor with its storage, or none is linked.
        kept: storages whose last value outlives the step. A value that nothing reads is kept too:
            it is a result, or nobody needed it computed.
        unread_parts_are_dead: of an operator with several results those that nothing reads are
            not computed (a compiler's dead-code elimination: the positions of a maximum, the
            statistics of a norm).
    """
    current: dict[int, int] = {}
    next_value = 0
    flow: list[FlowOp] = []
    producer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    spaces: dict[object, tuple[Space | None, Work | None]] = {}

    def value_of(spec: TensorSpec) -> int:
        nonlocal next_value
        if spec.storage is None or spec.storage not in current:
            next_value += 1
            if spec.storage is None:
                return next_value
            current[spec.storage] = next_value
        return current[spec.storage]

    for index, op in enumerate(ops):
        call = op.call
        form = call.form
        known_of = spaces.get(form)
        if known_of is None:
            known_of = spaces[form] = (space_of(call), work_of(call))
        space, work = known_of
        outputs = call.outputs or ()
        if space is not None and space.role is Role.NOTHING:
            sources = {spec.storage for spec in call.tensors}
            for spec in outputs:
                # An allocation: memory that comes back holds nothing of what it held.
                if spec.storage is not None and spec.storage not in sources:
                    current.pop(spec.storage, None)
            continue
        if work is not None and not work.flops and work.bytes_moved == 0:
            continue
        position = len(flow)
        written = _written(call)
        reads: dict[int, Access] = {}
        for spec in _read(call):
            access = Access(value_of(spec), spec.unique_bytes or 0, spec)
            known = reads.get(access.value)
            if known is None or known.bytes < access.bytes:
                reads[access.value] = access
        writes = []
        for spec in written:
            next_value += 1
            if spec.storage is not None:
                current[spec.storage] = next_value
            producer[next_value] = position
            writes.append(Access(next_value, spec.unique_bytes or 0, spec))
        for value in reads:
            readers.setdefault(value, []).append(position)
        flow.append(
            FlowOp(index, call, space, work, tuple(reads.values()), tuple(writes), op.module,
                   op.source, op.phase)
        )  # fmt: skip
    last = {current[storage] for storage in kept if storage in current}
    unread = {value for value in producer if value not in readers}
    if unread_parts_are_dead:
        for linked in flow:
            used = [a.value for a in linked.writes if a.value in readers or a.value in last]
            if used:
                unread -= {a.value for a in linked.writes}
    return Dataflow(
        tuple(flow),
        producer,
        {value: tuple(found) for value, found in readers.items()},
        frozenset(last | unread),
    )


# What these write, they write over: the old content is not read.
_OVERWRITES = ("aten::copy_", "aten::fill_", "aten::zero_", "aten::uniform_", "aten::normal_")


def _read(call: OpCall) -> tuple[TensorSpec, ...]:
    tensors = call.tensors
    if call.name in _OVERWRITES or call.overload == "out":
        first = call.args[0] if call.args else None
        targets = _written(call)
        # A part of a storage keeps the rest of it: the new value holds the old one.
        whole = all(t.storage is None or t.offset in (0, None) for t in targets)
        if call.name in _OVERWRITES and whole and isinstance(first, TensorSpec):
            return tensors[1:]
        if call.overload == "out" and whole:
            return tuple(t for t in tensors if t not in targets)
    return tensors


def _written(call: OpCall) -> tuple[TensorSpec, ...]:
    if call.outputs:
        return call.outputs
    if is_inplace(call) and call.args:
        first = call.args[0]
        if isinstance(first, TensorSpec):
            return (first,)
        if isinstance(first, tuple):
            return tuple(spec for spec in first if isinstance(spec, TensorSpec))
    return ()

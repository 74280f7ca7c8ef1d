"""What fusing neighbouring ops would save: bytes that need not move, dispatches not needed.

Which ops fuse, and what is then moved, is ``roofline.fusion``'s to say; here its groups are those
of a step's facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gobrrr.diagnosis.facts import LOADING, Facts, OpFact
from gobrrr.roofline.dataflow import Dataflow, link
from gobrrr.roofline.fusion import FUSIBLE, FusedGroup, fuse
from gobrrr.timeline.data import PHASE_NAMES, Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall
from gobrrr.work.traits import Role, Space, space_of

# Without arguments or order, the classes of what a compiler generates code for, and the share of
# their bytes that fusion leaves (Ivanov et al., "Data Movement Is All You Need", MLSys 2021, table
# 2: 22.9 % less in all of BERT, about half of what such ops move).
_GENERATED = ("elementwise", "normalisation")
_LEFT_WITHOUT_ORDER = 0.5
# ``mv`` and ``dot`` become generated sums over rows (torch/_inductor/decomposition.py and its
# lowerings).
PRODUCTS_AS_LOOPS = ("aten::mv", "aten::dot", "aten::vdot")
_PHASES = {name: phase for phase, name in PHASE_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring ops that one kernel can do.

    ``bytes_before`` as they move now, ``bytes_after`` with each value read and written once and
    what no one else reads never written; ``fresh_after`` are newly allocated bytes left.
    """

    ops: tuple[OpFact, ...]
    bytes_before: float
    bytes_after: float
    fresh_after: float

    @property
    def fresh_before(self) -> float:
        """Newly allocated bytes now."""
        return sum(op.fresh_bytes for op in self.ops)


def placed(op: OpFact) -> StepOp:
    """The op as the models link it to others."""
    return StepOp(op.call, op.module, op.source, _PHASES.get(op.phase, Phase.OTHER))


def is_fusable(op: OpFact) -> bool:
    """Whether a compiler generates code for this op rather than calling a library."""
    space = _space(op.call)
    if space is None:
        return op.op_class in _GENERATED
    return space.role in FUSIBLE


def _space(call: OpCall) -> Space | None:
    """What the compiler's code for a call iterates over."""
    tensors = call.tensors
    if call.name in PRODUCTS_AS_LOOPS and tensors:
        return Space(Role.REDUCTION, tensors[0].numel, tensors[0].shape[-1])
    return space_of(call)


def find_groups(facts: Facts) -> tuple[Group, ...]:
    """Groups of fusable ops outside the optimizer, in order, as ``roofline.fusion`` finds them.

    Forward and backward pass are compiled as two graphs, so no group has ops of both.
    """
    # What makes a batch is in none of the program's modules.
    ops = [op for op in facts.ops if op.phase not in ("optimizer", LOADING)]
    if not facts.in_order:
        return tuple(_unordered(op) for op in ops if is_fusable(op))
    flow = link([placed(op) for op in ops])
    flow = replace(flow, ops=tuple(replace(op, space=_space(op.call)) for op in flow.ops))
    of = [ops[linked.index] for linked in flow.ops]
    found: list[tuple[int, Group]] = []
    for phase in dict.fromkeys(op.phase for op in of):
        part, places = _part(flow, [i for i, op in enumerate(of) if op.phase == phase])
        for fused in fuse(part):
            members = [places[m] for m in fused.members]
            if is_fusable(of[members[0]]):
                found.append((members[0], _group([of[m] for m in members], fused)))
    return tuple(group for _, group in sorted(found, key=lambda pair: pair[0]))


def _group(ops: Sequence[OpFact], fused: FusedGroup) -> Group:
    before = float(sum(op.bytes_moved or 0 for op in ops))
    after = before if fused.bytes_fused is None else float(fused.bytes_fused)
    fresh = float(sum(op.fresh_bytes for op in ops))
    if fused.work is not None:
        fresh = float(fused.work.fresh_bytes)
    return Group(tuple(ops), before, after, fresh)


def _part(flow: Dataflow, members: Sequence[int]) -> tuple[Dataflow, Sequence[int]]:
    """Some of the ops as a flow of their own, which keeps what others read; and their places."""
    place = {old: new for new, old in enumerate(members)}
    producer = {v: place[op] for v, op in flow.producer.items() if op in place}
    readers = {
        value: tuple(place[op] for op in found if op in place)
        for value, found in flow.readers.items()
    }
    others = {v for v, found in flow.readers.items() if any(op not in place for op in found)}
    ops = tuple(flow.ops[old] for old in members)
    return Dataflow(ops, producer, readers, flow.kept | others), members


def _unordered(op: OpFact) -> Group:
    moved = float(op.bytes_moved or 0)
    return Group((op,), moved, moved * _LEFT_WITHOUT_ORDER, op.fresh_bytes * _LEFT_WITHOUT_ORDER)


def seconds_to_move(facts: Facts, bytes_moved: float) -> float | None:
    """Least seconds for these bytes, in the smallest memory level that holds them."""
    if bytes_moved <= 0:
        return 0.0
    levels = ("l2", "l3") if not facts.on_gpu else ("l2",)
    for level in levels:
        capacity, rate = facts.rate(f"memory.{level}.capacity"), facts.rate(f"memory.{level}.copy")
        if capacity is not None and rate is not None and bytes_moved <= capacity:
            return bytes_moved / rate
    rate = facts.dram_bytes_per_s
    return None if rate is None else bytes_moved / rate

"""What fusing neighbouring ops would save: bytes that need not move, dispatches not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from gobrrr.fixes.facts import Facts, OpFact
from gobrrr.models.dataflow import Access, Dataflow, FlowOp
from gobrrr.models.fusion import FusedGroup, fuse
from gobrrr.timeline.data import Phase
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.traits import Role, Space

_FUSABLE = ("elementwise", "normalisation")
# Ops without arithmetic that a compiler folds into their neighbours.
_FOLDED = ("aten::clone", "aten::copy_", "aten::_to_copy", "aten::cat", "aten::embedding")
# Without the order of the ops: the share of the bytes of elementwise ops and normalisations that
# fusion leaves (Ivanov et al., "Data Movement Is All You Need", MLSys 2021, table 2: 22.9 % less
# in all of BERT, about half of what such ops move).
_LEFT_WITHOUT_ORDER = 0.5


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


def is_fusable(op: OpFact) -> bool:
    """Whether a compiler generates code for this op rather than calling a library."""
    if "rnn" in op.name or "lstm" in op.name or "gru" in op.name:
        return False
    return op.op_class in _FUSABLE or op.name in _FOLDED


def find_groups(facts: Facts) -> tuple[Group, ...]:
    """Groups of fusable ops outside the optimizer, in order, as ``models.fusion`` finds them.

    Forward and backward pass are compiled as two graphs, so no group has ops of both.
    """
    ops = [op for op in facts.ops if op.phase != "optimizer"]
    if not facts.in_order:
        return tuple(_unordered(op) for op in ops if is_fusable(op))
    flow = _link(ops)
    found: list[tuple[int, Group]] = []
    for phase in dict.fromkeys(op.phase for op in ops):
        part, places = _part(flow, [i for i, op in enumerate(ops) if op.phase == phase])
        for fused in fuse(part):
            members = [places[m] for m in fused.members]
            if is_fusable(ops[members[0]]):
                found.append((members[0], _group([ops[m] for m in members], fused)))
    return tuple(group for _, group in sorted(found, key=lambda pair: pair[0]))


def _group(ops: Sequence[OpFact], fused: FusedGroup) -> Group:
    before = sum(op.bytes_moved or 0.0 for op in ops)
    after = before if fused.bytes_fused is None else float(fused.bytes_fused)
    fresh = sum(op.fresh_bytes for op in ops)
    if fused.work is not None:
        fresh = float(fused.work.fresh_bytes)
    return Group(tuple(ops), before, after, fresh)


def _link(ops: Sequence[OpFact]) -> Dataflow:
    """The ops linked by the values that they read and write.

    A value is (storage, version): a storage's id comes back for another tensor once it is freed,
    which shows as a write by an op that does not read it.
    """
    current: dict[int, int] = {}
    producer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    flow = []
    newest = 0
    for position, op in enumerate(ops):
        reads, writes = [], []
        for storage, size in op.reads:
            if storage not in current:
                newest += 1
                current[storage] = newest
            reads.append(_access(current[storage], size))
            readers.setdefault(current[storage], []).append(position)
        for storage, size in op.writes:
            newest += 1
            current[storage] = newest
            producer[newest] = position
            writes.append(_access(newest, size))
        flow.append(
            FlowOp(position, OpCall(op.name, ()), _space(op), _work(op), tuple(reads),
                   tuple(writes), op.module, op.source, Phase.OTHER)
        )  # fmt: skip
    # What no one reads within the step is its result, or the next step's.
    kept = frozenset(value for value in producer if value not in readers)
    found = {value: tuple(positions) for value, positions in readers.items()}
    return Dataflow(tuple(flow), producer, found, kept)


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


def _access(value: int, size: float) -> Access:
    spec = TensorSpec((round(size),), "uint8", None, value)
    return Access(value, round(size), spec)


def _space(op: OpFact) -> Space:
    elements = op.elements
    if elements is None:
        elements = max(map(prod, op.shapes), default=0)
    if not is_fusable(op) or not elements:
        return Space(Role.EXTERN, elements)
    role = Role.POINTWISE if op.row == 1 else Role.NORMALISATION
    return Space(role, elements, op.row)


def _work(op: OpFact) -> Work:
    moved = round(op.bytes_moved or 0.0)
    written = min(moved, round(sum(size for _, size in op.writes)))
    return Work(
        matrix_flops=op.matrix_flops or 0.0, vector_flops=op.vector_flops or 0.0,
        bytes_read=moved - written, bytes_written=written, unique_bytes=moved,
        compute_dtype=op.dtype or "", op_class="other", fresh_bytes=round(op.fresh_bytes),
    )  # fmt: skip


def _unordered(op: OpFact) -> Group:
    moved = op.bytes_moved or 0.0
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

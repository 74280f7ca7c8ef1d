"""What fusing neighbouring ops would save: bytes that need not move, dispatches not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from gobrrr.fixes.facts import Facts, OpFact

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
    """Groups of fusable ops outside the optimizer, in order.

    An op joins the group before it unless an op of another kind that it depends on stands between.
    """
    ops = [op for op in facts.ops if op.phase != "optimizer"]
    if not facts.in_order:
        return tuple(_unordered(op) for op in ops if is_fusable(op))
    reads, writes = _values(ops)
    readers: dict[tuple[int, int], list[int]] = {}
    for position, used in enumerate(reads):
        for value in used:
            readers.setdefault(value, []).append(position)
    groups: list[list[int]] = []
    maker: dict[tuple[int, int], int] = {}
    for position, op in enumerate(ops):
        if is_fusable(op):
            # A library call between does no harm unless this op waits for it.
            waits_for = [maker[value] for value in reads[position] if value in maker]
            newest = max(waits_for, default=-1)
            open_group = (
                bool(groups) and newest <= groups[-1][-1] and _alike(ops[groups[-1][-1]], op)
            )
            if open_group and (newest >= groups[-1][0] or position == groups[-1][-1] + 1):
                groups[-1].append(position)
            else:
                groups.append([position])
        for value in writes[position]:
            maker[value] = position
    return tuple(_measure(members, ops, reads, writes, readers) for members in groups)


def _alike(before: OpFact, after: OpFact) -> bool:
    # One kernel runs over one iteration space, or reduces it.
    if before.phase != after.phase:
        return False
    sizes = [max(map(prod, op.shapes), default=0) for op in (before, after)]
    return min(sizes) > 0 and max(sizes) % min(sizes) == 0


def _values(
    ops: Sequence[OpFact],
) -> tuple[list[dict[tuple[int, int], float]], list[dict[tuple[int, int], float]]]:
    """Bytes of the values that each op reads and writes.

    A value is (storage, version): a storage's id comes back for another tensor once it is freed,
    which shows as a write by an op that does not read it.
    """
    version: dict[int, int] = {}
    reads, writes = [], []
    for op in ops:
        reads.append({(storage, version.get(storage, 0)): size for storage, size in op.reads})
        for storage, _ in op.writes:
            version[storage] = version.get(storage, 0) + 1
        writes.append({(storage, version[storage]): size for storage, size in op.writes})
    return reads, writes


def _measure(
    members: list[int],
    ops: Sequence[OpFact],
    reads: list[dict[tuple[int, int], float]],
    writes: list[dict[tuple[int, int], float]],
    readers: dict[tuple[int, int], list[int]],
) -> Group:
    inside = set(members)
    made: dict[tuple[int, int], float] = {}
    read: dict[tuple[int, int], float] = {}
    for position in members:
        for value, size in reads[position].items():
            if value not in made:
                read[value] = max(size, read.get(value, 0.0))
        made.update(writes[position])
    # What no one reads within the step is its result, or the next step's.
    kept = sum(
        size
        for value, size in made.items()
        if value not in readers or not inside.issuperset(readers[value])
    )
    before = sum(ops[p].bytes_moved or 0.0 for p in members)
    fresh = sum(ops[p].fresh_bytes for p in members)
    return Group(
        tuple(ops[p] for p in members), before, min(before, sum(read.values()) + kept),
        min(fresh, kept),
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

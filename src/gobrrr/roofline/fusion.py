"""Which operators a fusing compiler would run as one kernel, and the bytes that this saves.

The rules are those of Inductor's scheduler (``torch/_inductor/scheduler.py`` and ``choices.py``):
operators that iterate over the same points and share data become one kernel, a reduction takes what
computes its input and what uses its rows, a product by a library takes nothing. A fused kernel
reads each tensor once and writes only what something outside still reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from gobrrr.roofline.dataflow import Access, Dataflow, FlowOp
from gobrrr.timeline.ops import TensorSpec
from gobrrr.work.estimate import OpClass, Work
from gobrrr.work.traits import Role

FUSIBLE = (Role.POINTWISE, Role.REDUCTION, Role.NORMALISATION)
# Readers of a shared input that are looked at as partners: Inductor stops at a distance too
# (``config.max_fusion_buffer_group_pairwise_attempts`` is 64).
_PARTNERS = 16
# ``InductorChoices.reduction_split_factor``: rows this long are cut up where there are too few of
# them to fill the device.
_LONG_ROW = 8192


@dataclass(slots=True)
class _Group:
    members: list[int]
    fusible: bool
    elements: int
    row: int = 1
    split: bool = False
    # Bits of the groups that must run before.
    before: int = 0
    gone: bool = False


@dataclass(frozen=True, slots=True)
class FusedGroup:
    """Operators that run as one kernel.

    Attributes:
        members: positions in ``Dataflow.ops``, ascending.
        elements: points that the kernel iterates over.
        row: points that a reduction in it takes; 1 without one.
        split: whether a reduction in it takes two kernels, for want of rows.
        bytes_now: bytes read and written by the operators one by one; ``None`` if unknown.
        bytes_fused: by the one kernel; ``None`` if unknown.
        work: work of the one kernel; ``None`` if unknown.
    """

    members: tuple[int, ...]
    elements: int
    row: int
    split: bool
    bytes_now: int | None
    bytes_fused: int | None
    work: Work | None


def fuse(flow: Dataflow, *, multiprocessors: int | None = None) -> tuple[FusedGroup, ...]:
    """All kernels that are left when what can be fused is fused, in an order that they can run in.

    Args:
        flow: the operators of a step.
        multiprocessors: of the device, which decide whether a long row is split; ``None`` if
            unknown, and no row is split then.
    """
    groups = _Grouping(flow, multiprocessors).run()
    return tuple(
        measure_group(flow, sorted(g.members), g.elements, g.row, g.split)
        for g in sorted(groups, key=lambda g: min(g.members))
    )


class _Grouping:
    """Greedy fusion in program order."""

    def __init__(self, flow: Dataflow, multiprocessors: int | None) -> None:
        self.flow = flow
        self.multiprocessors = multiprocessors
        self.groups: list[_Group] = []
        self.of: list[int] = []
        # Ops of others that read what a group writes; a group has the number of its first op.
        self.users: dict[int, list[int]] = {}

    def run(self) -> list[_Group]:
        for position, op in enumerate(self.flow.ops):
            self._place(position, op)
        return [g for g in self.groups if not g.gone]

    def _place(self, position: int, op: FlowOp) -> None:
        needs = self._groups_read_by(op)
        before = 0
        for g in needs:
            before |= self.groups[g].before | 1 << g
        fusible = op.role in FUSIBLE
        new = _Group([position], fusible, 0, before=before)
        if op.space is not None:
            new.elements, new.row = op.space.elements, op.space.row
            new.split = op.role is not Role.POINTWISE and self._splits(op)
        self.groups.append(new)
        here = len(self.groups) - 1
        self.of.append(here)
        for g in needs:
            self.users.setdefault(g, []).append(here)
        if not fusible:
            return
        for other in self._partners(op, needs):
            if other != here and self._can_join(other, here):
                here = self._merge(other, here)

    def _splits(self, op: FlowOp) -> bool:
        assert op.space is not None
        if self.multiprocessors is None:
            return False
        rows = op.space.elements // max(1, op.space.row)
        if op.space.inner:
            return rows < 2 * self.multiprocessors and op.space.row > _LONG_ROW
        # Columns are summed 128 at a time (``xvals_per_block``).
        return rows < 2 * 128 * self.multiprocessors and op.space.row > 1024

    def _groups_read_by(self, op: FlowOp) -> list[int]:
        found: dict[int, None] = {}
        for access in op.reads:
            writer = self.flow.producer.get(access.value)
            if writer is not None:
                found[self.of[writer]] = None
        return list(found)

    def _partners(self, op: FlowOp, needs: list[int]) -> list[int]:
        """Groups that share data with the operator, those that share the most bytes first."""
        shared: dict[int, int] = {}
        own = len(self.of) - 1
        for access in op.reads:
            writer = self.flow.producer.get(access.value)
            if writer is not None:
                group = self.of[writer]
                shared[group] = shared.get(group, 0) + 2 * access.bytes
            for reader in self.flow.readers.get(access.value, ())[-_PARTNERS:]:
                if reader < own:
                    group = self.of[reader]
                    shared[group] = shared.get(group, 0) + access.bytes
        return sorted(shared, key=lambda g: -shared[g])

    def _can_join(self, a: int, b: int) -> bool:
        """Whether group ``b``, which runs no earlier than ``a``, can run in one kernel with it."""
        first, second = self.groups[a], self.groups[b]
        if not (first.fusible and second.fusible and self._same_points(a, b)):
            return False
        # No third group may have to run between them.
        for low, high in ((a, b), (b, a)):
            if not _has(self.groups[high].before, low):
                continue
            for member in self.groups[high].members:
                for needed in self._groups_read_by(self.flow.ops[member]):
                    if needed not in (low, high) and _has(self.groups[needed].before, low):
                        return False
        return True

    def _same_points(self, a: int, b: int) -> bool:
        first, second = self.groups[a], self.groups[b]
        if first.row == 1 and second.row == 1:
            if first.elements == second.elements:
                return True
            # A smaller expression with one user is computed again for every element of it
            # (``Loops.inner_fn`` is inlined, a broadcast included).
            return first.elements < second.elements and self._only_for(a, b)
        if first.row > 1 and second.row > 1:
            same = first.elements == second.elements and first.row == second.row
            return same and not first.split and not second.split
        reducing, plain = (first, second) if first.row > 1 else (second, first)
        if plain.elements == reducing.elements:
            # After a split reduction its input is read by another kernel.
            return reducing is second or not reducing.split
        if reducing is first and plain.elements * reducing.row == reducing.elements:
            return True
        return reducing is second and plain.elements < reducing.elements and self._only_for(a, b)

    def _only_for(self, a: int, b: int) -> bool:
        """Whether all that reads group ``a`` is in group ``b``."""
        for member in self.groups[a].members:
            for access in self.flow.ops[member].writes:
                if access.value in self.flow.kept:
                    return False
                for reader in self.flow.readers.get(access.value, ()):
                    if reader >= len(self.of) or self.of[reader] not in (a, b):
                        return False
        return True

    def _merge(self, a: int, b: int) -> int:
        """Group ``b`` becomes part of ``a``; returns the one that is left."""
        kept, gone = self.groups[a], self.groups[b]
        kept.members += gone.members
        for member in gone.members:
            self.of[member] = a
        self.users.setdefault(a, []).extend(self.users.pop(b, ()))
        kept.elements = max(kept.elements, gone.elements)
        kept.row = max(kept.row, gone.row)
        kept.split = kept.split or gone.split
        gone.gone = True
        before = _without(kept.before, a, b)
        kept.before = before | _without(gone.before, a, b)
        if b == len(self.groups) - 1 and kept.before == before:
            # The newest group: nothing depends on it, and on the other nothing new.
            return a
        gained = 1 << a | kept.before
        for later in self._users_of(a):
            self.groups[later].before |= gained
        return a

    def _users_of(self, group: int) -> set[int]:
        """The groups that must run after a group."""
        found: set[int] = set()
        left = [group]
        while left:
            at = left.pop()
            users = {self.of[user] for user in self.users.get(at, ())} - {at}
            self.users[at] = list(users)
            left += users - found
            found |= users
        return found


def _has(bits: int, place: int) -> bool:
    """Whether a bit is set, without making a number as long as the longest: there may be many."""
    if 2 * place < bits.bit_length():
        return bits & (1 << place) != 0
    return bool(bits >> place & 1)


def _without(bits: int, *places: int) -> int:
    for place in places:
        if _has(bits, place):
            bits ^= 1 << place
    return bits


class _Parts:
    """What is read of one value: parts of a tensor are read each, and one part once."""

    def __init__(self) -> None:
        self._bytes: dict[int | None, int] = {}
        self._begin, self._end = inf, 0.0

    def add(self, spec: TensorSpec, amount: int) -> None:
        """``amount``: the bytes of a tensor ``spec`` that an operator reads."""
        self._bytes[spec.offset] = max(self._bytes.get(spec.offset, 0), amount)
        item, begin = spec.item_size_bytes or 1, spec.offset or 0
        last = spec.numel - 1
        if spec.strides is not None:
            last = sum((n - 1) * step for n, step in zip(spec.shape, spec.strides))
        self._begin = min(self._begin, begin * item)
        self._end = max(self._end, (begin + last + 1) * item)

    @property
    def bytes(self) -> int:
        """Windows that overlap hold no more than what lies between their ends."""
        widest = max(self._bytes.values())
        between = max(widest, self._end - self._begin)
        return int(min(sum(self._bytes.values()), between))


def measure_group(
    flow: Dataflow, members: Sequence[int], elements: int, row: int = 1, split: bool = False
) -> FusedGroup:
    """Bytes and work of some operators, one by one and as one kernel.

    What is read twice is read once; what only members read is neither written nor read.
    """
    inside = set(members)
    ops = [flow.ops[m] for m in members]
    works = [op.work for op in ops]
    known = [
        w for w in works if w is not None and w.bytes_moved is not None and w.flops is not None
    ]
    if len(known) < len(works):
        return FusedGroup(tuple(members), elements, row, split, None, None, None)
    now = sum(w.bytes_moved or 0 for w in known)
    read = written = 0
    outside: dict[int, _Parts] = {}
    for op, work in zip(ops, known):
        fresh_read = work.bytes_read or 0
        for access in op.reads:
            amount = min(access.bytes, fresh_read)
            fresh_read -= amount
            if flow.producer.get(access.value) not in inside:
                outside.setdefault(access.value, _Parts()).add(access.spec, amount)
        read += fresh_read
        kept = work.bytes_written or 0
        for access in op.writes:
            if not must_be_written(flow, access, inside):
                kept -= min(access.bytes, kept)
        written += kept
    read += sum(parts.bytes for parts in outside.values())
    if split and any(flow.ops[m].role is Role.NORMALISATION for m in members):
        # Statistics in one kernel, every element in the next: the input is read again.
        read += max((a.bytes for op in ops for a in op.reads), default=0)
    largest = max(known, key=lambda w: w.flops or 0.0)
    op_class: OpClass = "normalisation" if row > 1 else largest.op_class
    work = replace(
        largest,
        matrix_flops=sum(w.matrix_flops or 0.0 for w in known),
        vector_flops=sum(w.vector_flops or 0.0 for w in known),
        special=sum(w.special for w in known),
        bytes_read=read,
        bytes_written=written,
        unique_bytes=read + written,
        fresh_bytes=min(written, sum(w.fresh_bytes for w in known)),
        op_class=op_class,
    )
    return FusedGroup(tuple(members), elements, row, split, now, read + written, work)


def must_be_written(flow: Dataflow, access: Access, inside: set[int]) -> bool:
    """Whether something outside these operators needs a value that one of them writes."""
    if access.value in flow.kept:
        return True
    return any(reader not in inside for reader in flow.readers.get(access.value, ()))


def tensors_of_group(
    flow: Dataflow, group: FusedGroup
) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Tensors that the fused kernel reads and writes."""
    inside = set(group.members)
    reads: dict[tuple[int, int | None], TensorSpec] = {}
    writes: list[TensorSpec] = []
    for member in group.members:
        op = flow.ops[member]
        for access in op.reads:
            if flow.producer.get(access.value) not in inside:
                reads.setdefault((access.value, access.spec.offset), access.spec)
        writes += [a.spec for a in op.writes if must_be_written(flow, a, inside)]
    return list(reads.values()), writes


def flops_until_compute_bound(
    bytes_per_element: float, bytes_per_s: float, flops_per_s: float
) -> float:
    """FLOPs per element that a kernel can do while it waits for its bytes.

    Each element's bytes take bytes / bandwidth; in that time the device does rate * time FLOPs
    (the ridge of the roofline, per element).
    """
    return bytes_per_element / bytes_per_s * flops_per_s

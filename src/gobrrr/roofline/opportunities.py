"""Fusion opportunities: groups of operators that one kernel could replace, and what that saves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gobrrr.devices.ceilings import Ceilings
from gobrrr.roofline.dataflow import Dataflow, FlowOp
from gobrrr.roofline.fusion import FusedGroup, flops_until_compute_bound, fuse, measure_group
from gobrrr.roofline.operator_limits import roof_of_op
from gobrrr.roofline.roof import MEMORY, Roof, roof_of
from gobrrr.timeline.data import Phase
from gobrrr.timeline.ops import TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.random_numbers import DRAWS
from gobrrr.work.traits import Role

CHAIN = "pointwise chain"
ONTO_REDUCTION = "pointwise onto reduction"
FROM_REDUCTION = "reduction onto pointwise"
SCALE_SHIFT_GATE = "normalisation with scale, shift and gate"
EPILOGUE = "pointwise epilogue of a matrix product"
PROLOGUE = "pointwise prologue of a matrix product"
ATTENTION = "unfused attention"
# How much of an operator's time is that of its bytes: all of it; what these take at the ceilings,
# beside functions of unknown rate; none beside arithmetic, random numbers, a library.
BYTES, PARTLY, OTHERWISE = range(3)
# Operators that may stand between the softmax of an attention and its two products.
_LONGEST_PATH = 8


@dataclass(frozen=True, slots=True)
class Opportunity:
    """Operators that one kernel could replace.

    Attributes:
        kind: one of the names of this module.
        members: positions in ``Dataflow.ops``.
        ops: names, in order.
        sources: the user's lines, each once.
        modules: module paths, each once.
        phase: of the first operator.
        bytes_now: read and written by the operators one by one.
        bytes_fused: by one kernel; what something outside still reads is written.
        work: of the one kernel.
        time_now_s: at the ceilings, one by one, fixed cost included; ``None`` without ceilings.
        time_fused_s: of the one kernel, likewise.
        elements: points that the kernel iterates over.
        flops_per_element: what it computes for each of them.
        free_flops_per_element: FLOPs per element up to which it stays memory-bound on the device;
            ``None`` without ceilings.
        moving_s: what each operator's bytes take at the ceilings, in the order of ``members``.
        decided: how much of its time bytes decide (``BYTES``, ``PARTLY``, ``OTHERWISE``), likewise.
        moving_fused_s: what is left of ``moving_s`` in the one kernel, without a library's own, and
            with what is made by an operator that something else than bytes decides.
    """

    kind: str
    members: tuple[int, ...]
    ops: tuple[str, ...]
    sources: tuple[str, ...]
    modules: tuple[str, ...]
    phase: Phase
    bytes_now: int
    bytes_fused: int
    work: Work
    time_now_s: float | None
    time_fused_s: float | None
    elements: int
    flops_per_element: float
    free_flops_per_element: float | None
    moving_s: tuple[float, ...] = ()
    decided: tuple[int, ...] = ()
    moving_fused_s: float = 0.0

    @property
    def saved_s(self) -> float | None:
        """Seconds saved at the ceilings; ``None`` without ceilings."""
        if self.time_now_s is None or self.time_fused_s is None:
            return None
        return self.time_now_s - self.time_fused_s


@dataclass(frozen=True, slots=True)
class Pattern:
    """The same opportunity at several places of a step (once per layer, usually)."""

    first: Opportunity
    places: tuple[Opportunity, ...]

    @property
    def bytes_now(self) -> int:
        """Of all places."""
        return sum(p.bytes_now for p in self.places)

    @property
    def bytes_fused(self) -> int:
        """Of all places."""
        return sum(p.bytes_fused for p in self.places)

    @property
    def saved_s(self) -> float | None:
        """Of all places; ``None`` without ceilings."""
        saved = [p.saved_s for p in self.places]
        known = [s for s in saved if s is not None]
        return sum(known) if len(known) == len(saved) else None


def find_opportunities(
    flow: Dataflow,
    ceilings: Ceilings | None = None,
    *,
    fixed_s: float = 0.0,
    multiprocessors: int | None = None,
    on_cpu: bool = False,
) -> list[Opportunity]:
    """All groups worth fusing, those that save the most first; no operator is in two of them.

    An attention written out comes before all else. Pointwise work that could also ride on a
    product is counted there (``EPILOGUE``, ``PROLOGUE``), its own chain included.

    Args:
        flow: the operators of a step.
        ceilings: of the device; without them there are bytes and no times.
        fixed_s: time of a kernel (on a CPU: an operator) that does nothing.
        multiprocessors: of the device; see ``fuse``.
        on_cpu: whether it is a processor, which draws random numbers slower than it moves them.
    """
    found: list[Opportunity] = []
    taken: set[int] = set()
    made = partial(_opportunity, flow, ceilings, fixed_s, on_cpu)
    for group in attentions(flow):
        found += made(ATTENTION, group)
        taken |= set(group.members)
    for group in fuse(flow, multiprocessors=multiprocessors):
        if taken & set(group.members):
            continue
        ops = [flow.ops[m] for m in group.members]
        if ops[0].role not in (Role.POINTWISE, Role.REDUCTION, Role.NORMALISATION):
            continue
        ridden = _on_product(flow, group, taken)
        if ridden is not None:
            kind, group = ridden
            taken |= set(group.members)
            found += made(kind, group)
        elif len(ops) > 1:
            found += made(_kind_of(ops), group)
    found = [o for o in found if o.bytes_fused < o.bytes_now]
    found.sort(key=lambda o: (-(o.saved_s or 0.0), o.bytes_fused - o.bytes_now))
    return found


def patterns(opportunities: Iterable[Opportunity]) -> list[Pattern]:
    """Opportunities of the same operators, sizes and lines put together, the best first."""
    groups: dict[object, list[Opportunity]] = defaultdict(list)
    for o in opportunities:
        groups[o.kind, o.ops, o.sources, o.elements, o.bytes_now, o.bytes_fused].append(o)
    found = [Pattern(members[0], tuple(members)) for members in groups.values()]
    found.sort(key=lambda p: (-(p.saved_s or 0.0), p.bytes_fused - p.bytes_now))
    return found


def _opportunity(
    flow: Dataflow,
    ceilings: Ceilings | None,
    fixed_s: float,
    on_cpu: bool,
    kind: str,
    group: FusedGroup,
) -> list[Opportunity]:
    if group.work is None or group.bytes_now is None or group.bytes_fused is None:
        return []
    ops = [flow.ops[m] for m in group.members]
    elements = max(1, group.elements)
    now = fused = free = None
    moving, decided, moving_fused_s = tuple[float, ...](), tuple[int, ...](), 0.0
    if ceilings is not None:
        roof_by = {
            id(op.call): None if op.work is None else roof_of_op(op.call, op.work, ceilings)
            for op in ops
        }
        roofs = [roof for op in ops if (roof := roof_by[id(op.call)]) is not None]
        one = roof_of(group.work, ceilings)
        if len(roofs) == len(ops) and one is not None:
            moving = tuple(roof.memory_s for roof in roofs)
            decided = tuple(_decided(op, roof, kind, on_cpu) for op, roof in zip(ops, roofs))
            # What has a rate of its own goes on at it, fused or not.
            limits_s = sum(roof.time_s for roof in roofs if roof.limit)
            arithmetic_s = sum(r.vector_s for r, by in zip(roofs, decided) if by != OTHERWISE)
            others_s = sum(
                roof.memory_s if op.role is not Role.CONTRACTION else -roof.memory_s
                for op, roof, by in zip(ops, roofs, decided)
                if by == OTHERWISE
            )
            moving_fused_s = max(one.memory_s + others_s, arithmetic_s)
            now = sum(roof.time_s + fixed_s for roof in roofs)
            fused = max(one.time_s, limits_s) + fixed_s
        free = _free_flops(group, elements, ceilings)
    return [
        Opportunity(
            kind=kind,
            members=group.members,
            ops=tuple(op.call.name.removeprefix("aten::") for op in ops),
            sources=tuple(dict.fromkeys(op.source for op in ops if op.source)),
            modules=tuple(dict.fromkeys(op.module for op in ops if op.module)),
            phase=ops[0].phase,
            bytes_now=group.bytes_now,
            bytes_fused=group.bytes_fused,
            work=group.work,
            time_now_s=now,
            time_fused_s=fused,
            elements=elements,
            flops_per_element=(group.work.vector_flops or 0.0) / elements,
            free_flops_per_element=free,
            moving_s=moving,
            decided=decided,
            moving_fused_s=moving_fused_s,
        )
    ]


def _decided(op: FlowOp, roof: Roof, kind: str, on_cpu: bool) -> int:
    """How much of an operator's time is that of the bytes that it moves."""
    if roof.regime != MEMORY or roof.limit:
        return OTHERWISE
    if op.role is Role.CONTRACTION and kind != ATTENTION:
        # What a library takes beyond its roof does not go with what stands beside it.
        return OTHERWISE
    if on_cpu and op.call.name.partition("::")[2] in DRAWS:
        return OTHERWISE
    return PARTLY if on_cpu and op.work is not None and op.work.special else BYTES


def _free_flops(group: FusedGroup, elements: int, ceilings: Ceilings) -> float | None:
    work = group.work
    if work is None or not work.bytes_moved or work.matrix_flops:
        return None
    rate = ceilings.vector_flops_per_s(
        "float32" if work.compute_dtype not in ("float32", "float64") else work.compute_dtype
    )
    roof = roof_of(work, ceilings)
    if rate is None or roof is None or not roof.memory_s:
        return None
    bandwidth = work.bytes_moved / roof.memory_s
    return flops_until_compute_bound(work.bytes_moved / elements, bandwidth, rate)


def _kind_of(ops: Sequence[FlowOp]) -> str:
    reducing = [i for i, op in enumerate(ops) if op.role in (Role.REDUCTION, Role.NORMALISATION)]
    if not reducing:
        return SCALE_SHIFT_GATE if _modulates(ops) >= 2 else CHAIN
    if any("norm" in ops[i].call.name for i in reducing) and _modulates(ops):
        return SCALE_SHIFT_GATE
    return FROM_REDUCTION if reducing[-1] < len(ops) - 1 else ONTO_REDUCTION


def _modulates(ops: Sequence[FlowOp]) -> int:
    """Multiplications and additions by one value per sample and channel: scales, shifts, gates."""
    count = 0
    for op in ops:
        if op.call.name.removesuffix("_") not in ("aten::mul", "aten::add", "aten::addcmul"):
            continue
        shapes = [t.shape for t in op.call.tensors]
        full = max(shapes, key=len, default=())
        if len(full) < 3:
            continue
        count += any(_per_sample_and_channel(shape, full) for shape in shapes)
    return count


def _per_sample_and_channel(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    if len(shape) != len(full) or shape[0] != full[0] or shape[-1] == 1:
        return False
    return shape[-1] == full[-1] and all(n == 1 for n in shape[1:-1]) and shape != full


def _on_product(
    flow: Dataflow, group: FusedGroup, taken: set[int]
) -> tuple[str, FusedGroup] | None:
    """The group together with a product that only it follows, or that only it feeds."""
    inside = set(group.members)
    if any(flow.ops[m].role is not Role.POINTWISE for m in group.members):
        return None
    for member in group.members:
        for access in flow.ops[member].reads:
            writer = flow.producer.get(access.value)
            if writer is None or writer in inside or writer in taken:
                continue
            product = flow.ops[writer]
            alone = access.value not in flow.kept and all(
                reader in inside for reader in flow.readers.get(access.value, ())
            )
            if product.role is Role.CONTRACTION and alone and _result(product) == group.elements:
                members = sorted((writer, *group.members))
                return EPILOGUE, measure_group(flow, members, group.elements)
    if len(group.members) > 1:
        return None
    only = flow.ops[group.members[0]]
    users = {r for a in only.writes for r in flow.readers.get(a.value, ())}
    if len(users) == 1 and not any(a.value in flow.kept for a in only.writes):
        user = users.pop()
        if flow.ops[user].role is Role.CONTRACTION and user not in taken and _is_cast(only):
            members = sorted((user, *group.members))
            return PROLOGUE, measure_group(flow, members, group.elements)
    return None


def _is_cast(op: FlowOp) -> bool:
    # A product computes a prologue again for every tile: only what is cheaper than its bytes
    # belongs there.
    return op.work is not None and not op.work.special


def _result(op: FlowOp) -> int:
    return 0 if op.space is None else op.space.elements


def attentions(flow: Dataflow) -> list[FusedGroup]:
    """Attention that is written out: product, scaling and mask, softmax, product.

    One kernel reads queries, keys, values and mask, and writes the result; the scores and their
    softmax never reach memory (Dao et al., "FlashAttention", NeurIPS 2022). Backward computes them
    again, so that what it reads of them does not count as needed.
    """
    found = []
    for position, op in enumerate(flow.ops):
        if op.call.name not in ("aten::_softmax", "aten::softmax", "aten::_safe_softmax"):
            continue
        before = _walk(flow, position, forward=False)
        after = _walk(flow, position, forward=True)
        if before is None or after is None:
            continue
        members = sorted({*before, position, *after})
        first, last = members[0], members[-1]
        now = measure_group(flow, members, flow.ops[last].space.elements)  # type: ignore[union-attr]
        if now.work is None:
            continue
        inside = set(members)
        read = {
            a.value: a.bytes
            for m in members
            for a in flow.ops[m].reads
            if flow.producer.get(a.value) not in inside
        }
        written = sum(a.bytes for a in flow.ops[last].writes)
        moved = sum(read.values()) + written
        work = replace(
            now.work,
            bytes_read=sum(read.values()),
            bytes_written=written,
            unique_bytes=moved,
            fresh_bytes=written,
            op_class="contraction",
        )
        assert first < last
        found.append(replace(now, bytes_fused=moved, work=work))
    return found


def _walk(flow: Dataflow, start: int, *, forward: bool) -> list[int] | None:
    """From a softmax to the nearest batched product, over pointwise operators; ``None`` if none."""
    path: list[int] = []
    here = start
    for _ in range(_LONGEST_PATH):
        step = _next(flow, here, forward)
        if step is None:
            return None
        path.append(step)
        role = flow.ops[step].role
        if role is Role.CONTRACTION:
            name = flow.ops[step].call.name
            return path if name in _BATCHED else None
        if role is not Role.POINTWISE:
            return None
        here = step
    return None


_BATCHED = ("aten::bmm", "aten::baddbmm", "aten::matmul", "aten::mm")


def _next(flow: Dataflow, here: int, forward: bool) -> int | None:
    op = flow.ops[here]
    if forward:
        first_phase = [
            reader
            for access in op.writes
            for reader in flow.readers.get(access.value, ())
            if flow.ops[reader].phase == op.phase
        ]
        return first_phase[0] if first_phase else None
    largest = max(op.reads, key=lambda a: _size(a.spec), default=None)
    return None if largest is None else flow.producer.get(largest.value)


def _size(spec: TensorSpec) -> int:
    return spec.unique_elements

"""Shares of ops -> the tables of a diagnosis: by op, module, line, phase and class.

Every table divides the same nanoseconds: kernels go to the op that is them, overhead to the op it
leads to, so that each table sums to the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.attributed import READ_OF_ONE_VALUE, AttributedOp
from gobrrr.attribution.leaves import COLLECTIVE, COPY, MOVES, REGIME_NAMES, KernelShares
from gobrrr.diagnosis.schema import AboveCeiling, Coverage, GroupRow, OpRow, UnmodelledOp
from gobrrr.roofline.roof import Roof
from gobrrr.timeline.data import PHASE_NAMES
from gobrrr.timeline.intervals import distinct
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.registry import has_formula

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

# Below this share of the step an op is not worth a row of its own in the saved tables.
MOST_ROWS = 2000


def describe_shapes(call: OpCall) -> str:
    """``(8944,1024)x(1024,2816)``: the shapes of the tensors, in order."""
    parts = []
    for arg in call.args:
        if isinstance(arg, TensorSpec):
            parts.append("(" + ",".join(map(str, arg.shape)) + ")")
        elif isinstance(arg, tuple) and any(isinstance(item, TensorSpec) for item in arg):
            tensors = [item for item in arg if isinstance(item, TensorSpec)]
            first = "(" + ",".join(map(str, tensors[0].shape)) + ")"
            parts.append(first if len(tensors) == 1 else f"{first}..[{len(tensors)}]")
    if not parts and call.outputs:
        parts = ["(" + ",".join(map(str, call.outputs[0].shape)) + ")"]
    return "x".join(parts)


def describe_dtypes(call: OpCall) -> str:
    """The distinct dtypes of the tensors, in order of appearance."""
    tensors = call.tensors or call.outputs or ()
    return ",".join(dict.fromkeys(t.dtype for t in tensors if t.dtype))


def op_class_of(item: AttributedOp, shares: KernelShares) -> str:
    """The class of an op's work; ``view`` for one without a kernel."""
    if item.share < 0:
        return "view"
    moves = MOVES.get(int(shares.regime[item.share]))
    if moves is not None:
        return moves
    return "unknown" if item.work is None else item.work.op_class


def op_rows(items: Sequence[AttributedOp], shares: KernelShares) -> list[OpRow]:
    """Ops with kernels, by op and shapes, the most time first (kernel and fixed cost).

    Reads of one value are also apart by line and phase.
    """
    groups: dict[Hashable, list[AttributedOp]] = defaultdict(list)
    for item in items:
        if item.share >= 0:
            call, apart = item.op.call, None
            if call.name == READ_OF_ONE_VALUE:
                # Which line waits, and whether it is the optimizer's own, is what is asked of it.
                apart = item.op.source, item.op.phase
            groups[call.name, call.args, apart].append(item)
    rows = [_op_row(members, shares) for members in groups.values()]
    rows.sort(key=lambda row: -row.time_s)
    return rows[:MOST_ROWS]


def _op_row(members: list[AttributedOp], shares: KernelShares) -> OpRow:
    first = members[0]
    index = np.array([m.share for m in members if m.share >= 0], np.int64)
    count = sum(m.count for m in members)
    kernel_s = _sum_of(index, shares.roof_ns, shares.below_ns, shares.page_faults_ns) * 1e-9
    fixed_s = _sum(shares.fixed_ns, index)
    roof_s = _sum(shares.roof_ns, index)
    time_s = kernel_s + fixed_s
    work, roof = first.work, first.roof
    flops, moved = _total(members, _flops), _total(members, _bytes_moved)
    known = roof is not None
    regime = _regime(index, shares) if len(index) else "overhead"
    return OpRow(
        name=first.op.call.name,
        shapes=describe_shapes(first.op.call),
        dtypes=describe_dtypes(first.op.call),
        count=count,
        time_s=time_s,
        kernel_s=kernel_s,
        fixed_s=fixed_s,
        flops=flops,
        bytes=moved,
        intensity=flops / moved if flops is not None and moved else None,
        flops_per_s=flops / time_s if flops is not None and time_s > 0 else None,
        bytes_per_s=moved / time_s if moved is not None and time_s > 0 else None,
        regime=regime,
        roof_s=roof_s if known else None,
        roof_fraction=_of_roof(index, shares, roof_s, time_s) if known and time_s > 0 else None,
        below_s=_sum(shares.below_ns, index) if known else None,
        page_faults_s=_sum(shares.page_faults_ns, index),
        dtype=work.compute_dtype if work is not None else None,
        memory_level=(roof.level or None) if roof is not None else None,
        unit=_unit(roof),
        op_class=work.op_class if work is not None else None,
        module=module_pattern([m.op.module for m in members]),
        source=_common([m.op.source for m in members]),
        phase=_common([PHASE_NAMES[m.op.phase] for m in members]),
    )


def _of_roof(index: Int64, shares: KernelShares, roof_s: float, time_s: float) -> float:
    """Roof over time; of ops that beat it, over the time of their kernels alone: above 1."""
    if not _beats_roof(index, shares):
        return roof_s / time_s
    left_s = float((shares.duration_ns[index] - shares.fixed_ns[index]).sum()) * 1e-9
    return _sum(shares.full_roof_ns, index) / left_s


def _beats_roof(index: Int64, shares: KernelShares) -> bool:
    """Whether kernels with a roof, together, ran faster than fixed cost plus roof.

    One that is all fixed cost is no faster than its roof: its fixed cost is then a median that it
    happens to be under.
    """
    time_s, fixed_s = _sum(shares.duration_ns, index), _sum(shares.fixed_ns, index)
    bound_s = _sum(shares.full_roof_ns, index) + fixed_s
    # Sums that are equal but for their rounding beat nothing.
    return bound_s > time_s * (1 + 1e-9) and fixed_s < 0.9 * time_s


def _unit(roof: Roof | None) -> str | None:
    if roof is None:
        return None
    if roof.limit:
        return roof.limit
    return "matrix" if roof.matrix_s >= roof.vector_s and roof.matrix_s > 0 else "vector"


def _regime(index: Int64, shares: KernelShares) -> str:
    totals: dict[str, float] = defaultdict(float)
    totals["overhead"] = _sum_of(index, shares.fixed_ns)
    totals["memory"] = _sum_of(index, shares.page_faults_ns)
    for regime, chosen in _by_regime(index, shares):
        totals[regime] += _sum_of(chosen, shares.roof_ns, shares.below_ns)
    return max(totals, key=lambda name: totals[name])


def _by_regime(index: Int64, shares: KernelShares) -> list[tuple[str, Int64]]:
    """The rows by the name of their regime, a regime once for each of its numbers."""
    if len(index) == 1:
        return [(REGIME_NAMES[shares.regime[index[0]]], index)]
    regimes = shares.regime[index]
    return [(REGIME_NAMES[each], index[regimes == each]) for each in distinct(regimes)]


def _sum(column: Float64, index: Int64) -> float:
    return _sum_of(index, column) * 1e-9


def _sum_of(index: Int64, *columns: Float64) -> float:
    """The sum over rows of what columns add up to in each; most ops have one row."""
    if len(index) == 1:
        row = index[0]
        return float(sum([column[row] for column in columns]))
    total = columns[0][index]
    for column in columns[1:]:
        total = total + column[index]
    return float(total.sum())


def module_pattern(paths: Sequence[str]) -> str | None:
    """One name for the modules of an op: ``h.*.attn`` for ``h.0.attn`` and ``h.1.attn``.

    ``None`` if they have no shape in common.
    """
    distinct = {tuple(path.split(".")) for path in paths}
    if len({len(parts) for parts in distinct}) != 1:
        return None
    merged = [place[0] if len(set(place)) == 1 else "*" for place in zip(*distinct)]
    if merged.count("*") == len(merged):
        return None
    return ".".join(merged) or None


def _common(values: list[str]) -> str | None:
    distinct = set(values)
    return (distinct.pop() or None) if len(distinct) == 1 else None


def group_rows(
    items: Sequence[AttributedOp],
    shares: KernelShares,
    key: Callable[[AttributedOp], tuple[str, str | None]],
    step_s: float,
    beside: Mapping[str, tuple[str, float]] = MappingProxyType({}),
) -> list[GroupRow]:
    """Rows by ``key`` (name, phase), the most time first; they sum to the step.

    ``beside`` is time that belongs to no op, its level and seconds by name: after the last op, say.
    """
    groups: dict[tuple[str, str | None], list[AttributedOp]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    total_flops = sum(_total([item], _flops) or 0.0 for item in items)
    rows = [
        _group_row(name, phase, members, shares, step_s, total_flops)
        for (name, phase), members in groups.items()
    ]
    for name, (level, time_s) in beside.items():
        if time_s > 0:
            rows.append(
                GroupRow(
                    name=name, count=0, time_s=time_s, compute_s=0.0,
                    memory_s=time_s if level == "memory" else 0.0,
                    overhead_s=time_s if level == "overhead" else 0.0,
                    unmodelled_s=0.0, flops=0.0, bytes=0.0, flops_share=0.0,
                    time_share=time_s / step_s if step_s else None, regime=level,
                )
            )  # fmt: skip
    rows.sort(key=lambda row: -row.time_s)
    return rows[:MOST_ROWS]


def _flops(work: Work) -> float | None:
    return work.flops


def _bytes_moved(work: Work) -> float | None:
    return work.bytes_moved


def _total(members: Sequence[AttributedOp], amount: Callable[[Work], float | None]) -> float | None:
    """Amount of work per step; ``None`` if any member's is unknown."""
    total = 0.0
    for member in members:
        if member.share < 0:
            continue
        found = None if member.work is None else amount(member.work)
        if found is None:
            return None
        total += found * member.weight
    return total


def _group_row(
    name: str,
    phase: str | None,
    members: list[AttributedOp],
    shares: KernelShares,
    step_s: float,
    total_flops: float,
) -> GroupRow:
    split = {"compute": 0.0, "memory": 0.0, "overhead": 0.0, "unmodelled": 0.0}
    split["overhead"] = sum(m.host_ns for m in members) * 1e-9
    index = np.array([m.share for m in members if m.share >= 0], np.int64)
    split["overhead"] += _sum(shares.fixed_ns, index)
    split["memory"] += _sum(shares.page_faults_ns, index)
    for regime, chosen in _by_regime(index, shares):
        split[regime] += _sum_of(chosen, shares.roof_ns, shares.below_ns) * 1e-9
    time_s = sum(split.values())
    flops, moved = _total(members, _flops), _total(members, _bytes_moved)
    return GroupRow(
        name=name,
        phase=phase,
        count=sum(m.count for m in members),
        time_s=time_s,
        compute_s=split["compute"],
        memory_s=split["memory"],
        overhead_s=split["overhead"],
        unmodelled_s=split["unmodelled"],
        flops=flops,
        bytes=moved,
        flops_share=flops / total_flops if flops is not None and total_flops > 0 else None,
        time_share=time_s / step_s if step_s > 0 else None,
        flops_per_s=flops / time_s if flops is not None and time_s > 0 else None,
        regime=max(split, key=lambda level: split[level]),
    )


def coverage_of(items: Sequence[AttributedOp], shares: KernelShares, unlinked_s: float) -> Coverage:
    """Share of kernel time that has a formula and a ceiling, and the ops that have not.

    Copies and collectives are no kernels: they have leaves of their own.
    """
    kernel = shares.roof_ns + shares.below_ns + shares.page_faults_ns
    counted = ~np.isin(shares.regime, (COPY, COLLECTIVE))
    total = float(kernel[counted].sum())
    missing: dict[str, tuple[float, str]] = {}
    for item in items:
        if item.share < 0 or item.roof is not None or not counted[item.share]:
            continue
        before, why = missing.get(item.op.call.name, (0.0, _why_unmodelled(item)))
        missing[item.op.call.name] = (before + float(kernel[item.share]) * 1e-9, why)
    rows = [UnmodelledOp(op=name, time_s=t, reason=why) for name, (t, why) in missing.items()]
    rows.sort(key=lambda row: -row.time_s)
    lost = sum(row.time_s for row in rows) * 1e9
    fraction = None if total <= 0 else max(0.0, 1.0 - lost / total)
    return Coverage(modelled_time_fraction=fraction, unmodelled=rows, unlinked_s=unlinked_s)


def _why_unmodelled(item: AttributedOp) -> str:
    call = item.op.call
    if item.work is not None:
        return "work or ceiling unknown"
    if not has_formula(call.name):
        return "no formula"
    # Of an op that the recorded step did not run, and of nested tensors.
    return "work unknown" if call.tensors else "sizes unknown"


def above_ceiling_rows(items: Sequence[AttributedOp], shares: KernelShares) -> list[AboveCeiling]:
    """Ops that, summed over the step, ran faster than fixed cost plus roof."""
    groups: dict[Hashable, list[AttributedOp]] = defaultdict(list)
    for item in items:
        if item.share >= 0 and item.roof is not None:
            groups[item.op.call.name, item.op.call.args].append(item)
    rows = []
    for members in groups.values():
        index = np.array([m.share for m in members], np.int64)
        if _beats_roof(index, shares):
            call = members[0].op.call
            rows.append(
                AboveCeiling(
                    op=call.name, shapes=describe_shapes(call),
                    time_s=_sum(shares.duration_ns, index),
                    roof_s=_sum(shares.full_roof_ns, index),
                )
            )  # fmt: skip
    rows.sort(key=lambda row: row.time_s - row.roof_s)
    return rows[:50]

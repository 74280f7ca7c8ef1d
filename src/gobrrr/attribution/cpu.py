"""Where a CPU step's time goes: each profiled step cut into kernels, dispatch and Python.

On a CPU an op runs in the calling thread. Its event is dispatch (its fixed cost) plus kernel (the
rest); time in events that hold no work is dispatch; time outside events is Python, unless a range
says data loading, compilation or garbage collection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.leaves import (
    MEMORY_UNMODELLED,
    UNMODELLED,
    Attribution,
)
from gobrrr.attribution.split import leaves_of_kernels, roof_times_ns, split_kernels
from gobrrr.capture.cpu_timeline import CpuCapture
from gobrrr.capture.profile import ProfilerCost
from gobrrr.devices.ceilings import Ceilings
from gobrrr.models.roof import Roof, roof_of
from gobrrr.timeline.data import HostKind, Int64
from gobrrr.timeline.intervals import ownership
from gobrrr.timeline.nesting import inherited_minimum, nearest, parents
from gobrrr.work.estimate import Work

# Who owns an instant of the step's thread, strongest first.
KERNEL, COLLECTING, LOADING, COMPILING, DISPATCH, PYTHON = range(6)
OVERHEAD_LEAF = {
    COLLECTING: "overhead.garbage_collection",
    LOADING: "overhead.data_loading",
    COMPILING: "overhead.compilation",
    DISPATCH: "overhead.dispatch",
    PYTHON: "overhead.python",
}
_RANK_OF_KIND = {
    HostKind.GARBAGE_COLLECTION: COLLECTING,
    HostKind.DATA_LOADING: LOADING,
    HostKind.COMPILATION: COMPILING,
    HostKind.OP: DISPATCH,
}
# The calibrated cost per event is an average over ops and machines states: it may be off by half.
COST_RANGE = (0.5, 1.5)


@dataclass(frozen=True)
class StepPieces:
    """One profiled step: kernel time per recorded op, and the rest by owner.

    ``kernel_ns[p]``: time of recorded op p (NaN: not in this step); ``other_ns``: kernel-like
    events that match no recorded op, by name, and ``other_count`` how many there were.
    ``host_ns[o, p]``: time of owner o (``COLLECTING``
    to ``PYTHON``) spent on the way to recorded op p; the last column is after the last op.
    ``cost_ns[o]``: the profiler's cost in each owner's time. ``piece_*`` are the stretches of
    time themselves, from the window's start, with owner and the op that they lead to.
    """

    kernel_ns: NDArray[np.float64]
    other_ns: dict[str, float]
    other_count: dict[str, int]
    host_ns: NDArray[np.float64]
    cost_ns: NDArray[np.float64]
    piece_owner: Int64
    piece_leads_to: Int64
    piece_start_ns: Int64
    piece_end_ns: Int64


def cut_step(
    capture: CpuCapture,
    window: tuple[int, int],
    has_work: NDArray[np.bool_],
    cost: ProfilerCost,
) -> StepPieces:
    """Give each instant of one window to its owner (precedence: see the constants)."""
    host = capture.timeline.host
    low, high = window
    begin, stop = np.searchsorted(host.start_ns, [low, high])
    rows = np.arange(begin, stop)
    rows = rows[host.thread[rows] == 0]
    start = host.start_ns[rows] - low
    end = np.minimum(host.end_ns[rows], high) - low
    kind, position = host.kind[rows], capture.position[rows]
    parent = parents(start, end, host.thread[rows])
    is_op = kind == HostKind.OP
    fused = np.array([is_generated_kernel(name) for name in capture.timeline.names], bool)
    named = host.name[rows]
    works = np.append(has_work, False)[position]  # -1, the last: no recorded op
    is_kernel = (is_op & works) | fused[named]
    enclosing = nearest(parent, is_kernel)
    inside = (enclosing >= 0) & (enclosing != np.arange(len(rows)))
    is_kernel &= ~inside

    # Ownership: kernels, then the ranges, then ops, then the whole step as Python.
    rank = np.full(len(rows) + 1, PYTHON, np.int64)
    for of_kind, value in _RANK_OF_KIND.items():
        rank[:-1][kind == of_kind] = value
    rank[:-1][is_kernel] = KERNEL
    keep = np.append(~inside & (rank[:-1] != PYTHON), True)
    pieces = ownership(np.append(start, 0)[keep], np.append(end, high - low)[keep], rank[keep])
    owner = rank[keep][pieces.row]

    # Kernel time, without what recording it cost.
    kernel_rows = np.flatnonzero(is_kernel)
    nested = np.bincount(enclosing[inside], minlength=len(rows))[kernel_rows]
    time = (end - start)[kernel_rows] - cost.inside_ns
    time = np.maximum(time - nested * (cost.inside_ns + cost.outside_ns), 0.0)
    kernel_ns = np.full(len(capture.recorded), np.nan)
    known = position[kernel_rows] >= 0
    kernel_ns[position[kernel_rows[known]]] = time[known]
    other: dict[str, float] = {}
    counts: dict[str, int] = {}
    for row, time_ns in zip(kernel_rows[~known], time[~known]):
        name = capture.timeline.names[named[row]]
        other[name] = other.get(name, 0.0) + float(time_ns)
        counts[name] = counts.get(name, 0) + 1

    # The rest, by owner and by the recorded op that it leads to.
    marks = np.flatnonzero(position >= 0)
    columns = len(capture.recorded) + 1
    ahead = np.searchsorted(start[marks], pieces.start)
    leads_to = np.append(position[marks], columns - 1)[ahead]
    host_ns = np.zeros((PYTHON + 1, columns))
    np.add.at(host_ns, (owner, leads_to), (pieces.end - pieces.start).astype(np.float64))

    # The profiler's cost: inside a span it is the span's, outside it is the parent's.
    own_rank = rank[:-1]
    region = np.where(own_rank == KERNEL, DISPATCH, own_rank)
    strongest = np.asarray(inherited_minimum(parent, region), np.int64)
    cost_ns = np.zeros(PYTHON + 1)
    visible = ~inside & (kind != HostKind.GARBAGE_COLLECTION)
    inner = visible & ~is_kernel
    np.add.at(cost_ns, strongest[inner], cost.inside_ns)
    parents_region = np.where(parent >= 0, strongest[np.maximum(parent, 0)], PYTHON)
    np.add.at(cost_ns, parents_region[visible], cost.outside_ns)
    return StepPieces(
        kernel_ns, other, counts, host_ns, cost_ns, owner, leads_to, pieces.start, pieces.end
    )


def is_generated_kernel(name: str) -> bool:
    """Whether an event is a CPU kernel that Inductor generated (``graph_0_cpp_fused_x``)."""
    return "cpp_fused_" in name


@dataclass(frozen=True)
class Reconciliation:
    """How profiled times were brought to the unprofiled step.

    ``cost_share`` of the calibrated profiler cost was removed from host time (1 unless the sums
    ask for another share within ``COST_RANGE``); ``scale`` was then applied to everything: what
    is left is drift of the machine between timing and profiling, which hits all alike.
    """

    profiled_ns: float
    cost_ns: float
    cost_share: float
    scale: float


def reconcile(kernels_ns: float, host_ns: float, cost_ns: float, step_ns: float) -> Reconciliation:
    """Choose ``cost_share`` and ``scale`` so that kernels + host - cost equals ``step_ns``."""
    share = 1.0
    if cost_ns > 0:
        share = (kernels_ns + host_ns - step_ns) / cost_ns
        share = min(max(share, COST_RANGE[0]), COST_RANGE[1])
        share = min(share, host_ns / cost_ns)
    total = kernels_ns + host_ns - share * cost_ns
    scale = step_ns / total if total > 0 else 1.0
    return Reconciliation(kernels_ns + host_ns, cost_ns, share, scale)


@dataclass(frozen=True)
class OtherKernel:
    """A generated kernel that no recorded op stands for: ``count`` calls a step, each with
    ``work`` and ``roof`` (``None``: unknown).
    """

    name: str
    count: float
    work: Work | None
    roof: Roof | None


@dataclass(frozen=True)
class CpuAttribution:
    """An ``Attribution`` of a CPU step with what reports and tests need beside it.

    ``host_by_op_ns[o, p]`` is overhead of owner o on the way to recorded op p, scaled like the
    leaves. ``steps`` are the pieces of each profiled step, unscaled.
    """

    attribution: Attribution
    reconciliation: Reconciliation
    host_by_op_ns: NDArray[np.float64]
    steps: tuple[StepPieces, ...]
    roofs: tuple[Roof | None, ...]
    other_kernels: tuple[OtherKernel, ...]


def attribute_cpu(
    capture: CpuCapture,
    works: Sequence[Work | None],
    fixed_ns: NDArray[np.float64],
    fault_ns: NDArray[np.float64],
    ceilings: Ceilings,
    cost: ProfilerCost,
    step_ns: float,
    release_ns: float = 0.0,
    generated: Mapping[str, Work | None] | None = None,
    has_work: NDArray[np.bool_] | None = None,
) -> CpuAttribution:
    """Attribute the profiled steps and scale them to ``step_ns``, the unprofiled median.

    ``works``, ``fixed_ns`` (NaN: unknown, taken as 0) and ``fault_ns`` (page-fault time) are per
    recorded op; ``generated`` is the work of generated kernels by name. ``release_ns``: giving back
    the pages that a step faults in. It happens where tensors die, between ops, where it would pass
    for Python; it is ``overhead.allocation``. ``has_work``: which recorded ops have a kernel; by
    default those that ``works_on``.
    Kernel and host times are medians over the profiled steps, except collection,
    loading and compilation, which come and go: those are means.
    """
    if has_work is None:
        has_work = np.array([works_on(work) for work in works], bool)
    steps = tuple(
        cut_step(capture, (int(low), int(high)), has_work, cost)
        for low, high in capture.timeline.steps
    )
    kernel_ns = _typical_kernels(steps, len(works))
    names = tuple(sorted({name for step in steps for name in step.other_ns}))
    other_ns = np.array(
        [np.median([step.other_ns.get(name, 0.0) for step in steps]) for name in names]
    )
    others = tuple(_other_kernel(name, steps, generated or {}, ceilings) for name in names)
    host_ns, cost_ns = _typical_host(steps)
    reconciled = reconcile(
        float(kernel_ns.sum() + other_ns.sum()), float(host_ns.sum()), float(cost_ns.sum()), step_ns
    )
    owners = host_ns.sum(axis=1)
    kept = owners - reconciled.cost_share * cost_ns
    # An owner cannot hold less than nothing: what its cost exceeds it by is the others' cost.
    deficit = -np.minimum(kept, 0.0).sum()
    kept = np.maximum(kept, 0.0)
    kept *= 1.0 - deficit / kept.sum() if kept.sum() > deficit else 0.0
    factor = np.divide(kept, owners, out=np.zeros_like(kept), where=owners > 0)
    host_ns = host_ns * factor[:, None] * reconciled.scale

    roofs = [roof_of(work, ceilings) if work is not None else None for work in works]
    rows = np.flatnonzero(has_work)
    chosen_rows = rows.tolist()
    duration_ns = np.concatenate([kernel_ns[rows], other_ns]) * reconciled.scale
    # Generated kernels have no recorded op: no fixed cost is known for them.
    nothing = np.zeros(len(others))
    shares = split_kernels(
        np.append(rows, np.full(len(others), -1)).astype(np.int64),
        duration_ns,
        np.array([
            *(UNMODELLED if roofs[i] is None else roofs[i].regime for i in chosen_rows),
            # They are fused pointwise operations and reductions: memory, by family.
            *(MEMORY_UNMODELLED if k.roof is None else k.roof.regime for k in others),
        ], np.uint8),
        np.append(
            roof_times_ns([roofs[i] for i in chosen_rows]),
            roof_times_ns([k.roof for k in others]) * np.array([k.count for k in others]),
        ),
        fixed_ns=np.append(np.nan_to_num(fixed_ns[rows]), nothing),
        page_faults_ns=np.append(fault_ns[rows], nothing),
    )  # fmt: skip
    leaves = leaves_of_kernels(shares, "overhead.dispatch")
    for owner, leaf in OVERHEAD_LEAF.items():
        leaves[leaf] += float(host_ns[owner].sum())
    released = min(release_ns, leaves["overhead.python"])
    leaves["overhead.python"] -= released
    leaves["overhead.allocation"] += released
    total = sum(leaves.values())
    # Float rounding and clipped costs: below a millionth of the step.
    leaves = {name: value * step_ns / total if total else 0.0 for name, value in leaves.items()}
    if not total:
        leaves["overhead.unexplained"] = step_ns
    above = np.flatnonzero(shares.full_roof_ns + shares.fixed_ns > shares.duration_ns)
    attribution = Attribution(
        step_ns=step_ns,
        leaves_ns=leaves,
        kernels=shares,
        works=tuple(works[i] for i in chosen_rows) + tuple(other.work for other in others),
        above_ceiling=tuple(int(i) for i in above),
    )
    attribution.check()
    return CpuAttribution(attribution, reconciled, host_ns, steps, tuple(roofs), others)


def works_on(work: Work | None) -> bool:
    """Whether an op has a kernel: it moves bytes, or computes, or nobody knows (``None``)."""
    if work is None:
        return True
    if work.flops is None or work.bytes_moved is None:
        return True
    return bool(work.flops or work.bytes_moved)


def _other_kernel(
    name: str,
    steps: Sequence[StepPieces],
    generated: Mapping[str, Work | None],
    ceilings: Ceilings,
) -> OtherKernel:
    count = float(np.median([step.other_count.get(name, 0) for step in steps]))
    work = generated.get(name)
    return OtherKernel(name, count, work, None if work is None else roof_of(work, ceilings))


def _typical_kernels(steps: Sequence[StepPieces], count: int) -> NDArray[np.float64]:
    if not steps or not count:
        return np.zeros(count)
    times = np.array([step.kernel_ns for step in steps])
    present = (~np.isnan(times)).mean(axis=0)
    filled = np.where(np.isnan(times).all(axis=0), 0.0, times)
    # An op that only some steps run costs its median times the share of steps that run it.
    return np.asarray(np.nanmedian(filled, axis=0) * present)


def _typical_host(
    steps: Sequence[StepPieces],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    host = np.array([step.host_ns for step in steps])
    cost = np.array([step.cost_ns for step in steps])
    totals = host.sum(axis=2)
    typical = np.median(totals, axis=0)
    for owner in (COLLECTING, LOADING, COMPILING):
        typical[owner] = totals[:, owner].mean()
    typical[KERNEL] = 0.0
    shape = np.median(host, axis=0)
    sums = shape.sum(axis=1)
    means = host.mean(axis=0)
    for owner in range(PYTHON + 1):
        if sums[owner] < 0.5 * typical[owner]:
            # Work that moves about between positions vanishes in a median by position.
            shape[owner], sums[owner] = means[owner], means[owner].sum()
    scale = np.divide(typical, sums, out=np.zeros_like(typical), where=sums > 0)
    return shape * scale[:, None], np.median(cost, axis=0)

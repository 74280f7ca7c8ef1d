"""Where a CPU step's time goes: the lane of each step, and one typical step of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.attributed import MEAN, MEDIAN
from gobrrr.attribution.cpu.unmatched import calls_of_alike, shared_by_name
from gobrrr.attribution.kernel_names import family_of, regime_without_roof
from gobrrr.attribution.lane import (
    COLLECTING,
    COMPILING,
    KERNEL,
    LEAF_OF_OWNER,
    LOADING,
    PYTHON,
    StepPieces,
    cut_step,
    is_generated_kernel,
)
from gobrrr.attribution.leaves import MEMORY_UNMODELLED, Attribution
from gobrrr.attribution.split import leaves_of_kernels, roof_times_ns, split_kernels
from gobrrr.devices.ceilings import Ceilings
from gobrrr.live.profiles.cpu_timeline import CpuCapture
from gobrrr.live.profiles.profile import ProfilerCost
from gobrrr.roofline.operator_limits import roof_of_op
from gobrrr.roofline.residency import missed_bytes_of_step
from gobrrr.roofline.roof import Roof, roof_of
from gobrrr.timeline.align import recorded_as
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work

Float64 = NDArray[np.float64]

# The calibrated cost per event is an average over ops and machines states: it may be off by half.
COST_RANGE = (0.5, 1.5)


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
    """A generated kernel, or an op, that no recorded op stands for: ``count`` calls a step, each
    with ``work`` and ``roof`` (``None``: unknown).
    """

    name: str
    count: float
    work: Work | None
    roof: Roof | None


@dataclass(frozen=True)
class CpuAttribution:
    """An ``Attribution`` of a CPU step with what reports and tests need beside it.

    ``host_by_op_ns[o, p]`` is overhead of owner o on the way to op p of the capture, scaled like
    the leaves; ``calls[p]`` is how often a step runs it. ``steps`` are the pieces of each profiled
    step, unscaled.
    """

    attribution: Attribution
    reconciliation: Reconciliation
    host_by_op_ns: Float64
    calls: Float64
    steps: tuple[StepPieces, ...]
    roofs: tuple[Roof | None, ...]
    other_kernels: tuple[OtherKernel, ...]


# The profiler of a recording, and of a prediction: nothing is known of it, or there is none.
NO_COST = ProfilerCost(0.0, 0.0)


def attribute_cpu(
    capture: CpuCapture,
    works: Sequence[Work | None],
    ceilings: Ceilings | None,
    step_ns: float | None = None,
    *,
    fixed_ns: Float64 | None = None,
    fault_ns: Float64 | None = None,
    cost: ProfilerCost = NO_COST,
    release_ns: float = 0.0,
    generated: Mapping[str, Work | None] | None = None,
    has_work: NDArray[np.bool_] | None = None,
    basis: str = MEDIAN,
    calls: Float64 | None = None,
) -> CpuAttribution:
    """Attributes the steps of a capture: to the unprofiled step, or as they were recorded.

    Args:
        capture: the steps, and the ops that they run.
        works: of one call of each op.
        ceilings: of the processor; ``None`` leaves every kernel without a roof.
        step_ns: the unprofiled step, to which all is scaled; ``None``: means over the steps,
            unscaled.
        basis: how kernel and host times of several steps become one: as medians, except
            collection, loading and compilation, which come and go and are means; or all as means,
            of steps that differ.
        calls: how often a step runs each op that it runs at all, where the profiled steps are not
            the measure of it.
        fixed_ns: fixed cost of one call of each op (NaN: unknown, taken as 0).
        fault_ns: page-fault time of one call of each op.
        cost: of the profiler.
        release_ns: giving back the pages that a step faults in. It happens where tensors die,
            between ops, where it would pass for Python; it is ``overhead.allocation``.
        generated: the work of generated kernels by name.
        has_work: which ops have a kernel; by default those that ``works_on``.
    """
    if has_work is None:
        has_work = np.array([works_on(work) for work in works], bool)
    steps = tuple(
        cut_step(capture, (int(low), int(high)), has_work, cost)
        for low, high in capture.timeline.steps
    )
    if step_ns is None:
        basis = MEAN
        step_ns = float(capture.timeline.step_lengths_ns.mean())
    kernel_ns, ran = _typical_kernels(steps, len(works), basis)
    other_time, other_count = _typical_others(steps, basis)
    recorded = [op.call.name for op in capture.recorded]
    if calls is None:
        calls = calls_of_alike(recorded, works, ran, other_count)
    calls = np.where(ran > 0, calls, 0.0)
    kernel_ns, other_time, other_count = shared_by_name(
        recorded, kernel_ns, ran, calls, other_time, other_count
    )
    other_ns = np.array([*other_time.values()], np.float64)
    others = tuple(
        OtherKernel(
            name,
            other_count[name],
            work := (generated or {}).get(name),
            None if work is None or ceilings is None else roof_of(work, ceilings),
        )
        for name in other_time
    )
    host_ns, cost_ns = _typical_host(steps, basis)
    reconciled = reconcile(
        float(kernel_ns.sum() + other_ns.sum()), float(host_ns.sum()), float(cost_ns.sum()), step_ns
    )
    host_ns = _without_cost(host_ns, cost_ns * reconciled.cost_share) * reconciled.scale

    roofs = roofs_of_step([op.call for op in capture.recorded], works, ceilings)
    rows = np.flatnonzero(has_work)
    regimes = [
        regime_without_roof(works[i], family_of(capture.recorded[i].call.name))
        if roof is None
        else roof.regime
        for i, roof in ((i, roofs[i]) for i in rows.tolist())
    ]
    regimes += [_regime_of_other(other) for other in others]
    times = np.append(calls[rows], [k.count for k in others])

    def of_step(of_call: Float64 | None) -> Float64 | float:
        if of_call is None:
            return 0.0
        by_name = _by_name(capture, of_call) if others else {}
        of_others = [by_name.get(recorded_as(other.name), 0.0) for other in others]
        of_kernel: Float64 = np.append(np.nan_to_num(of_call[rows]), of_others) * times
        return of_kernel

    shares = split_kernels(
        np.append(rows, np.full(len(others), -1)).astype(np.int64),
        np.append(kernel_ns[rows], other_ns) * reconciled.scale,
        np.array(regimes, np.uint8),
        roof_times_ns([*(roofs[i] for i in rows.tolist()), *(k.roof for k in others)]) * times,
        fixed_ns=of_step(fixed_ns),
        page_faults_ns=of_step(fault_ns),
    )
    leaves = leaves_of_kernels(shares, "overhead.dispatch")
    for owner, leaf in LEAF_OF_OWNER.items():
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
        works=tuple(works[i] for i in rows.tolist()) + tuple(other.work for other in others),
        above_ceiling=tuple(int(i) for i in above),
    )
    attribution.check()
    return CpuAttribution(attribution, reconciled, host_ns, calls, steps, tuple(roofs), others)


def _regime_of_other(other: OtherKernel) -> int:
    """Generated kernels are fused pointwise operations and reductions: memory, by family."""
    if other.roof is not None:
        return other.roof.regime
    if is_generated_kernel(other.name):
        return MEMORY_UNMODELLED
    return regime_without_roof(other.work, family_of(other.name))


def _by_name(capture: CpuCapture, of_call: Float64) -> dict[str, float]:
    """What a call of each op costs by its name, where it is known: what unmatched ops pay too.

    Generated kernels are called like no op: what they pay no op tells.
    """
    found: dict[str, list[float]] = {}
    for op, cost in zip(capture.recorded, of_call.tolist()):
        if not np.isnan(cost):
            found.setdefault(recorded_as(op.call.name), []).append(cost)
    return {name: float(np.median(costs)) for name, costs in found.items()}


def roofs_of_step(
    calls: Sequence[OpCall], works: Sequence[Work | None], ceilings: Ceilings | None
) -> list[Roof | None]:
    """The roof of each op of a step that repeats, its data where the step has left them."""
    if ceilings is None:
        return [None] * len(works)
    missed = missed_bytes_of_step(calls, ceilings)
    return [
        None if work is None else roof_of_op(call, work, ceilings, beyond)
        for call, work, beyond in zip(calls, works, missed)
    ]


def _without_cost(host_ns: Float64, cost_ns: Float64) -> Float64:
    """Host time by owner and op without the profiler's cost in each owner's."""
    owners = host_ns.sum(axis=1)
    kept = owners - cost_ns
    # An owner cannot hold less than nothing: what its cost exceeds it by is the others' cost.
    deficit = -np.minimum(kept, 0.0).sum()
    kept = np.maximum(kept, 0.0)
    kept *= 1.0 - deficit / kept.sum() if kept.sum() > deficit else 0.0
    factor = np.divide(kept, owners, out=np.zeros_like(kept), where=owners > 0)
    return np.asarray(host_ns * factor[:, None])


def works_on(work: Work | None) -> bool:
    """Whether an op has a kernel: it moves bytes, or computes, or nobody knows (``None``)."""
    if work is None:
        return True
    if work.flops is None or work.bytes_moved is None:
        return True
    return bool(work.flops or work.bytes_moved)


def _typical_kernels(
    steps: Sequence[StepPieces], count: int, basis: str
) -> tuple[Float64, Float64]:
    """Kernel time per step of each op, and how often a step runs it."""
    if not steps or not count:
        return np.zeros(count), np.zeros(count)
    times = np.array([step.kernel_ns for step in steps])
    calls = np.array([step.calls for step in steps]).mean(axis=0)
    if basis == MEAN:
        return np.nan_to_num(times).mean(axis=0), calls
    present = (~np.isnan(times)).mean(axis=0)
    filled = np.where(np.isnan(times).all(axis=0), 0.0, times)
    # An op that only some steps run costs its median times the share of steps that run it.
    return np.asarray(np.nanmedian(filled, axis=0) * present), calls


def _typical_others(
    steps: Sequence[StepPieces], basis: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Time per step of kernels that match no op, by name, and how many a step runs."""
    average = np.mean if basis == MEAN else np.median
    names = sorted({name for step in steps for name in step.other_ns})
    return (
        {name: float(average([step.other_ns.get(name, 0.0) for step in steps])) for name in names},
        {name: float(average([step.other_count.get(name, 0) for step in steps])) for name in names},
    )


def _typical_host(steps: Sequence[StepPieces], basis: str) -> tuple[Float64, Float64]:
    host = np.array([step.host_ns for step in steps])
    cost = np.array([step.cost_ns for step in steps])
    # What kernels own is not the host's.
    host[:, KERNEL] = 0.0
    if basis == MEAN:
        return host.mean(axis=0), cost.mean(axis=0)
    totals = host.sum(axis=2)
    typical = np.median(totals, axis=0)
    for owner in (COLLECTING, LOADING, COMPILING):
        typical[owner] = totals[:, owner].mean()
    shape = np.median(host, axis=0)
    sums = shape.sum(axis=1)
    means = host.mean(axis=0)
    for owner in range(PYTHON + 1):
        if sums[owner] < 0.5 * typical[owner]:
            # Work that moves about between positions vanishes in a median by position.
            shape[owner], sums[owner] = means[owner], means[owner].sum()
    scale = np.divide(typical, sums, out=np.zeros_like(typical), where=sums > 0)
    return shape * scale[:, None], np.median(cost, axis=0)

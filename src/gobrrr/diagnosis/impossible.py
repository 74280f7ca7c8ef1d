"""What cannot be true of a step: an error of gobrrr's own, said as such, or of its ceilings.

No verdict is drawn from a diagnosis that contradicts itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gobrrr.attribution.attributed import AttributedOp
from gobrrr.attribution.leaves import COMPUTE_MATRIX, COMPUTE_VECTOR, KernelShares
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.schema import NO_VERDICT
from gobrrr.timeline.quantities import count, share, time_text

# Clocks above a data sheet's and the spread of a measured ceiling: up to here a share of a peak may
# exceed 1 without anything being wrong.
MFU_TOLERANCE = 1.05
# Caches and a rounded ceiling explain less than a roof beaten threefold; single tiny kernels say
# nothing about the step.
ROOF_BEATEN, ROOF_BEATEN_SHARE = 3.0, 0.1
# No cache helps dense products beyond a data sheet's peak, and no way to compute them needs fewer
# FLOPs: only clocks do, by less.
PEAK_BEATEN = 1.5
_PRODUCTS = frozenset(
    f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear")
)
_WHY = (
    "the work and the time do not belong to the same steps, or a ceiling is wrong. This is an "
    f"error in gobrrr, so {NO_VERDICT} and no prediction."
)
# Begins the notice of ceilings that other programs may have lowered (``devices.cpu.measure``).
CEILINGS_OF_BUSY_MACHINE = "the machine was busy while its ceilings were measured"
_BUSY = (
    "most likely the ceilings are too low, for the machine was busy while they were measured, so "
    f"{NO_VERDICT} and no prediction. Measure them again when it is idle, with gobrrr ceilings "
    "--refresh."
)


def _why(ceilings: Ceilings | None) -> str:
    """What is likely behind work that was done faster than the ceilings allow."""
    notices = () if ceilings is None else ceilings.notices
    return _BUSY if any(CEILINGS_OF_BUSY_MACHINE in notice for notice in notices) else _WHY


def contradictions(
    mfu: float | None, shares: KernelShares, step_s: float, ceilings: Ceilings | None = None
) -> list[str]:
    """Sentences on what cannot be true; empty where nothing is wrong.

    Args:
        mfu: share of the matrix peak that the step would reach.
        shares: the step's kernels with their roofs.
        step_s: the step.
        ceilings: of the device; those of a busy machine are named as the likely cause.
    """
    found = []
    why = _why(ceilings)
    if mfu is not None and mfu > MFU_TOLERANCE:
        found.append(f"The MFU would be {share(mfu, 1.0)}, which is impossible: {why}")
    with np.errstate(invalid="ignore"):
        beaten = shares.full_roof_ns > ROOF_BEATEN * np.maximum(shares.duration_ns, 1.0)
    roofs_s = float(shares.full_roof_ns[beaten].sum()) * 1e-9
    if step_s > 0 and roofs_s > ROOF_BEATEN_SHARE * step_s:
        took_s = float(shares.duration_ns[beaten].sum()) * 1e-9
        kernels = int(beaten.sum())
        take = "1 kernel takes" if kernels == 1 else f"{count(kernels)} kernels take"
        found.append(
            f"{take} {time_text(took_s)} where {'its' if kernels == 1 else 'their'} work needs at "
            f"least {time_text(roofs_s)} at the ceilings, which is impossible: {why}"
        )
    return found


def against_work(
    ops: Sequence[AttributedOp],
    shares: KernelShares,
    leaves_s: Mapping[str, float],
    ceilings: Ceilings | None,
) -> list[str]:
    """Sentences on time without its work, and work without its time; empty where nothing is wrong.

    Of ops whose roof is the matrix unit's the products need FLOPs / ceiling, and the leaves of
    compute have to hold about that much: less than a third of it is no rounding
    (``ROOF_BEATEN``). Products that wait for bytes count as memory and are not looked at. The other
    way round, what counts as arithmetic of a unit has to have some of it. Either has to be a tenth
    of the step (``ROOF_BEATEN_SHARE``); work that is not known contradicts nothing.

    Args:
        ops: the step's, with their work and their rows in ``shares``.
        shares: the step's kernels.
        leaves_s: the step's leaves, in seconds.
        ceilings: of the device.
    """
    step_s = sum(leaves_s.values())
    least_s = ROOF_BEATEN_SHARE * step_s
    if step_s <= 0:
        return []
    found = []
    needed_s = _matrix_s(ops, ceilings)
    computed_s = sum(time_s for leaf, time_s in leaves_s.items() if leaf.startswith("compute."))
    # What products pay before they begin is time of theirs too.
    computed_s += 1e-9 * sum(
        float(shares.fixed_ns[op.share])
        for op in ops
        if op.share >= 0 and op.roof is not None and op.roof.regime == COMPUTE_MATRIX
    )
    if needed_s > least_s and ROOF_BEATEN * computed_s < needed_s:
        found.append(
            f"Matrix products need at least {time_text(needed_s)} of each step at the ceilings, "
            f"and {time_text(computed_s)} of it counts as compute, which is impossible: "
            f"{_why(ceilings)}"
        )
    found += _beyond_the_peak(ops, shares, step_s, ceilings)
    idle_s = _without_work_s(ops, shares)
    if idle_s > least_s:
        found.append(
            f"{time_text(idle_s)} of each step counts as compute in ops that have nothing to "
            f"compute, which is impossible: {_WHY}"
        )
    return found


def _matrix_s(ops: Sequence[AttributedOp], ceilings: Ceilings | None) -> float:
    """Seconds of the matrix unit that the ops need which it bounds."""
    if ceilings is None:
        return 0.0
    total_s = 0.0
    for op in ops:
        if op.share < 0 or op.work is None or op.roof is None or not op.work.matrix_flops:
            continue
        rate = ceilings.matrix_flops_per_s(op.work.compute_dtype)
        if op.roof.regime == COMPUTE_MATRIX and rate:
            total_s += op.work.matrix_flops * op.weight / rate
    return total_s


def _beyond_the_peak(
    ops: Sequence[AttributedOp], shares: KernelShares, step_s: float, ceilings: Ceilings | None
) -> list[str]:
    """Products whose recorded times are far below what the peak of a data sheet allows.

    Of float32 the peak is that of TF32, in which they may have run without a word in the name.
    """
    took_s = least_s = 0.0
    if ceilings is None:
        return []
    for op in ops:
        if op.share < 0 or op.work is None or op.op.call.name not in _PRODUCTS:
            continue
        dtype = op.work.compute_dtype
        peak = ceilings.rows.get(f"matrix.{dtype}")
        if peak is None or peak.how != "datasheet" or not op.work.matrix_flops:
            continue
        rate = max(peak.value, (dtype == "float32" and ceilings.matrix_flops_per_s("tf32")) or 0.0)
        needs_s = op.work.matrix_flops * op.weight / rate
        op_s = float(shares.duration_ns[op.share]) * 1e-9
        if needs_s > PEAK_BEATEN * op_s:
            took_s, least_s = took_s + op_s, least_s + needs_s
    if least_s <= ROOF_BEATEN_SHARE * step_s:
        return []
    return [
        f"Products take {time_text(took_s)} of each step where the data sheet's peak needs "
        f"{time_text(least_s)}, which is impossible: their recorded times are wrong, or it is "
        f"another device, so {NO_VERDICT} and no prediction."
    ]


def _without_work_s(ops: Sequence[AttributedOp], shares: KernelShares) -> float:
    """Seconds that count as a unit's arithmetic, of ops that are known to have none of it."""
    total_ns = 0.0
    for op in ops:
        if op.share < 0 or op.work is None:
            continue
        regime, work = int(shares.regime[op.share]), op.work
        # Random numbers and the like are bound by a rate that no FLOPs say.
        limited = op.roof is not None and bool(op.roof.limit)
        nothing = {
            COMPUTE_MATRIX: work.matrix_flops == 0,
            COMPUTE_VECTOR: work.vector_flops == 0 and not work.special and not limited,
        }
        if nothing.get(regime, False):
            total_ns += float(shares.roof_ns[op.share] + shares.below_ns[op.share])
    return total_ns * 1e-9

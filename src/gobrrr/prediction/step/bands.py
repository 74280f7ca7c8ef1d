"""How far predicted steps lay from measured ones, by what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log

from gobrrr.prediction.kernels.residuals import ErrorBand, band_of_step, class_of, widening
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.step.costs import CostedOp, OpCost
from gobrrr.prediction.step.interval_table import INTERVALS

__all__ = ["ErrorBand", "band_of", "class_of_cost", "classes_of", "interval_notices"]


def _band(name: str, *, own: bool) -> ErrorBand:
    low, high, words = INTERVALS[name]
    return ErrorBand(low, high, f"{words}, benchmarks/intervals.py", own=own)


# Of device time; host time is on top.
RECORDED = _band("RECORDED", own=False)
COMPILED_ON = "RTX-4090"
COMPILED = _band("COMPILED", own=True)
# Of eager steps on one core.
PROCESSOR = _band("PROCESSOR", own=False)


def band_of(
    device: TargetDevice, compiled: bool, ops: Sequence[CostedOp], *, cuda_graphs: bool = False
) -> ErrorBand | None:
    """How far measured steps lay from predicted ones; ``None`` where none were measured.

    Compiled steps in CUDA graphs have the band of others, and the source says so. An eager
    step on a CUDA device has the residuals of its classes of ops (``kernels.residuals``).
    """
    if device.kind == "cpu":
        return None if compiled else PROCESSOR
    if device.kind not in ("cuda", "hip"):
        return None
    if compiled:
        if device.kind != "cuda":
            return None
        found = _compiled(device.key)
        if not cuda_graphs:
            return found
        said = f"no step in CUDA graphs was measured; as of others: {found.source}"
        return replace(found, source=said, own=False)
    if device.kind == "hip":
        return RECORDED
    parts = [(kind, op.device_s) for op, kind in zip(ops, classes_of(ops)) if op.device_s > 0]
    return band_of_step(device.key, parts)


def interval_notices(band: ErrorBand | None) -> tuple[str, ...]:
    """Where the interval of a step comes from, if not from measurements of its kind alone."""
    return () if band is None or band.own else (f"Interval: {band.source}.",)


def _compiled(device: str) -> ErrorBand:
    """Of compiled steps: those of the one device, as much wider as eager ones are elsewhere."""
    if device == COMPILED_ON:
        return COMPILED
    wider = widening(device, COMPILED_ON)
    times = f", widened {wider:.1f} times" if wider >= 1.05 else ""
    return ErrorBand(
        exp(wider * log(COMPILED.low)),
        exp(wider * log(COMPILED.high)),
        f"no compiled step was measured on this device: errors on the RTX 4090{times}, "
        f"{COMPILED.source}",
        own=False,
    )


def classes_of(ops: Sequence[CostedOp]) -> list[str]:
    """The class of each op."""
    known: dict[OpCost, str] = {}
    found = []
    for op in ops:
        kind = known.get(op.cost)
        if kind is None:
            kind = known[op.cost] = class_of_cost(op.cost)
        found.append(kind)
    return found


def class_of_cost(cost: OpCost) -> str:
    """The class of ops whose residuals are kept together (``kernels.residuals.class_of``)."""
    return class_of(cost.call, cost.work.compute_dtype if cost.work is not None else "")

"""How far predicted steps lay from measured ones, by what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log

from gobrrr.models.residuals import ErrorBand, band_of_step, class_of, widening
from gobrrr.models.target import TargetDevice
from gobrrr.prediction.costs import CostedOp, OpCost

__all__ = ["ErrorBand", "band_of", "class_of_cost", "classes_of", "interval_notices"]


RECORDED_IN = "benchmarks/results/prediction_traces_2026-11-24.json"
COMPILED_IN = "benchmarks/results/prediction_rtx4090_2026-11-24.json"
PROCESSOR_IN = "benchmarks/results/prediction_cpu_amd-epyc_2026-11-23.json"
# Device time of seven recorded steps on H100 and MI300X, measured over predicted: from 0.746
# (bert on MI300X) to 1.248 (a ResNet with activation checkpoints, on MI300X). They are the extremes
# of few; host time is on top.
RECORDED = ErrorBand(
    0.746,
    1.248,
    f"the extremes of seven recorded steps on H100-SXM and MI300X, {RECORDED_IN}",
    own=False,
)
# Compiled steps of 257 networks on an RTX 4090, the 5th and the 95th percentile.
COMPILED_ON = "RTX-4090"
COMPILED = ErrorBand(0.905, 1.311, COMPILED_IN)
# Eager steps on one core of an AMD EPYC: of the networks that no constant was fitted on. The slow
# end is one whose operators are so small that the host's own time is most of the step.
PROCESSOR = ErrorBand(
    0.889,
    2.514,
    "the extremes of 12 steps, of six networks that nothing was fitted on, on one core of an AMD "
    f"EPYC, {PROCESSOR_IN}",
    own=False,
)


def band_of(
    device: TargetDevice, compiled: bool, ops: Sequence[CostedOp], *, cuda_graphs: bool = False
) -> ErrorBand | None:
    """How far measured steps lay from predicted ones; ``None`` where none were measured.

    Compiled steps in CUDA graphs have the band of others, and the source says so. An eager
    step on a CUDA device has the residuals of its classes of ops (``models.residuals``).
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
    """The class of ops whose residuals are kept together (``models.residuals.class_of``)."""
    return class_of(cost.call, cost.work.compute_dtype if cost.work is not None else "")

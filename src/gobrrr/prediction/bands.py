"""How far predicted steps lay from measured ones, by what was predicted."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.models.residuals import ErrorBand, band_of_step, class_of
from gobrrr.models.target import TargetDevice
from gobrrr.prediction.costs import CostedOp, OpCost

__all__ = ["ErrorBand", "band_of", "class_of_cost", "classes_of"]


# Device time of seven recorded steps on H100 and MI300X, measured over predicted: from 0.746
# (bert on MI300X) to 1.248 (a ResNet with activation checkpoints, on MI300X). They are the extremes
# of few; host time is on top.
RECORDED = ErrorBand(0.746, 1.248, "benchmarks/results/prediction_traces_2026-11-23.json")
# Compiled steps of 257 networks on an RTX 4090, the 5th and the 95th percentile.
COMPILED = ErrorBand(0.905, 1.311, "benchmarks/results/prediction_rtx4090_2026-11-23.json")
# Eager steps of 12 networks, forward and training, on one core of an AMD EPYC, likewise. The slow
# end are networks of operators so small that the host's own time is most of the step.
PROCESSOR = ErrorBand(0.91, 2.08, "benchmarks/results/prediction_cpu_amd-epyc_2026-11-21.json")


def band_of(device: TargetDevice, compiled: bool, ops: Sequence[CostedOp]) -> ErrorBand | None:
    """How far measured steps lay from predicted ones; ``None`` where none were measured.

    An eager step on a CUDA device has the residuals of its classes of ops (``models.residuals``).
    """
    if device.kind == "cpu":
        return None if compiled else PROCESSOR
    if device.kind not in ("cuda", "hip"):
        return None
    if compiled:
        return COMPILED if device.kind == "cuda" else None
    if device.kind == "hip":
        return RECORDED
    parts = [(kind, op.device_s) for op, kind in zip(ops, classes_of(ops)) if op.device_s > 0]
    return band_of_step(device.key, parts)


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

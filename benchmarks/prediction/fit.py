"""Fit the kernel model's coefficients on one half of the op shapes, by coordinate descent.

The loss is the mean of |log(predicted / measured)| over op shapes, half of it unweighted and half
weighted by the time that the op takes in its step. Few numbers and few data: every coefficient
stays within the bounds below, which are what is physically plausible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import log

from benchmarks.prediction.run import MeasuredOp, measured_ops

from gobrrr.prediction.carried.carry import source_device
from gobrrr.prediction.kernels.coefficients import Coefficients, coefficients_of
from gobrrr.prediction.kernels.kernel_model import estimate_op
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.timeline.data import Timeline

BOUNDS: dict[str, tuple[float, float]] = {
    "matrix_fraction": (0.35, 0.95),
    "tile_fill_s": (0.5e-6, 6e-6),
    "kernel_floor_s": (1e-6, 5e-6),
    "trip_s": (0.2e-6, 1.5e-6),
    "index_instructions": (10.0, 120.0),
    "dram_fraction": (0.6, 0.97),
    "vector_fraction": (0.1, 0.8),
    "attention_fraction": (0.05, 1.5),
    "attention_fill_s": (1e-6, 3e-5),
}
# Latencies of one kind on both GPUs: one number for both, since neither has enough of them.
SHARED = ("tile_fill_s", "trip_s")
STEPS = (1.41, 1.1, 1.03)


def fit(timelines: Mapping[str, Timeline]) -> None:
    by_gpu: dict[str, tuple[TargetDevice, list[MeasuredOp]]] = {}
    for name, timeline in timelines.items():
        device = source_device(timeline, name, None)
        ops = [op for op in measured_ops(name, timeline, device) if op.half == 0]
        by_gpu.setdefault(device.key, (device, []))[1].extend(ops)
    best = {key: coefficients_of(d.sheet) for key, (d, _) in by_gpu.items()}
    lowest = total(by_gpu, best)
    print({key: len(ops) for key, (_, ops) in by_gpu.items()}, f"op shapes, loss {lowest:.4f}")
    moves = [(name, tuple(by_gpu)) for name in SHARED]
    moves += [(name, (key,)) for name in BOUNDS if name not in SHARED for key in by_gpu]
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for name, keys in moves:
                for factor in (step, 1 / step):
                    tried = dict(best)
                    for key in keys:
                        tried[key] = scaled(best[key], name, factor)
                    found = total(by_gpu, tried)
                    if found < lowest - 1e-5:
                        best, lowest, moved = tried, found, True
    print(f"loss {lowest:.4f}")
    for key, found_ in best.items():
        print(key, {name: float(f"{getattr(found_, name):.3g}") for name in BOUNDS})


def scaled(c: Coefficients, name: str, factor: float) -> Coefficients:
    low, high = BOUNDS[name]
    return replace(c, **{name: min(max(getattr(c, name) * factor, low), high)})


def total(
    by_gpu: Mapping[str, tuple[TargetDevice, list[MeasuredOp]]], tried: Mapping[str, Coefficients]
) -> float:
    return sum(loss(ops, device, tried[key]) for key, (device, ops) in by_gpu.items()) / len(by_gpu)


def loss(ops: list[MeasuredOp], device: TargetDevice, c: Coefficients) -> float:
    errors, weights = [], []
    for op in ops:
        estimate = estimate_op(op.call, op.work, device, flags=op.flags, coefficients=c)
        if estimate is not None:
            errors.append(abs(log(estimate.time_s / op.measured_s)))
            weights.append(op.measured_s * op.count)
    weighted = sum(e * w for e, w in zip(errors, weights)) / sum(weights)
    return 0.5 * sum(errors) / len(errors) + 0.5 * weighted

"""Overhead of a CPU step by cause, with the source lines that spend it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from gobrrr.attribution.cpu import CpuAttribution, works_on
from gobrrr.attribution.cpu_run import CpuAnalysis
from gobrrr.attribution.lane import (
    COLLECTING,
    COMPILING,
    DISPATCH,
    LOADING,
    OVERHEAD_LEAF,
    PYTHON,
    cut_step,
)
from gobrrr.attribution.leaves import IdleGap
from gobrrr.attribution.lines import LaneStep, time_by_line
from gobrrr.capture.cpu_timeline import CpuCapture, build_cpu_capture
from gobrrr.capture.profile import RawEvents
from gobrrr.capture.session import Measurements


def causes_of_overhead(measured: Measurements, analysis: CpuAnalysis) -> list[IdleGap]:
    """Overhead by cause and source line, ns per step; lines of Python from samples."""
    return causes_of_lane(analysis.capture, analysis.result, _sampled_steps(measured, analysis))


def causes_of_lane(
    capture: CpuCapture, result: CpuAttribution, sampled: Sequence[LaneStep] = ()
) -> list[IdleGap]:
    """Overhead by cause and source line, ns per step; ``sampled``: steps with line samples."""
    recorded = capture.recorded
    leaves = result.attribution.leaves_ns
    gaps = []
    steps = sampled or [LaneStep(capture, pieces) for pieces in result.steps]
    for owner in (PYTHON, LOADING):
        leaf = OVERHEAD_LEAF[owner]
        shares = time_by_line(steps, owner)
        gaps += [IdleGap(leaves[leaf] * share, leaf, line) for line, share in shares.items()]
        if not shares:
            gaps.append(IdleGap(leaves[leaf], leaf))
    dispatch: dict[str, float] = defaultdict(float)
    host = result.host_by_op_ns[DISPATCH]
    for position, op in enumerate(recorded):
        dispatch[op.source] += float(host[position])
    dispatch[""] += float(host[-1])
    kernels = result.attribution.kernels
    for position, fixed_ns in zip(kernels.kernel, kernels.fixed_ns):
        if position >= 0:
            dispatch[recorded[position].source] += float(fixed_ns)
    gaps += [IdleGap(ns, OVERHEAD_LEAF[DISPATCH], line or None) for line, ns in dispatch.items()]
    for leaf in (OVERHEAD_LEAF[COLLECTING], OVERHEAD_LEAF[COMPILING], "overhead.allocation"):
        gaps.append(IdleGap(leaves[leaf], leaf))
    return gaps


def _sampled_steps(measured: Measurements, analysis: CpuAnalysis) -> list[LaneStep]:
    raws: list[RawEvents] = [raw for raw, _ in measured.sampled]
    if not raws:
        return []
    capture = build_cpu_capture(raws, analysis.capture.recorded, analysis.capture.timeline.device)
    has_work = np.array([works_on(work) for work in analysis.works], bool)
    return [
        LaneStep(
            capture, cut_step(capture, (int(low), int(high)), has_work, analysis.cost), samples
        )
        for (low, high), (_, samples) in zip(capture.timeline.steps, measured.sampled)
    ]

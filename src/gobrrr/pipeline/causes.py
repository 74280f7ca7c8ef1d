"""Overhead of a CPU step by cause, with the source lines that spend it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from gobrrr.attribution.cpu import (
    COLLECTING,
    COMPILING,
    DISPATCH,
    LOADING,
    OVERHEAD_LEAF,
    PYTHON,
    cut_step,
    works_on,
)
from gobrrr.capture.cpu_timeline import build_cpu_capture
from gobrrr.capture.profile import RawEvents
from gobrrr.capture.session import Measurements
from gobrrr.diagnosis.schema import IdleRow
from gobrrr.pipeline.cpu_analysis import CpuAnalysis
from gobrrr.pipeline.lines import time_by_line


def causes_of_overhead(measured: Measurements, analysis: CpuAnalysis) -> list[IdleRow]:
    """Overhead by cause and source line, the most time first."""
    result = analysis.result
    recorded = analysis.capture.recorded
    leaves = result.attribution.leaves_ns
    rows = []
    sampled = _sampled_pieces(measured, analysis)
    for owner in (PYTHON, LOADING):
        leaf = OVERHEAD_LEAF[owner]
        cause, time_s = leaf.removeprefix("overhead."), leaves[leaf] * 1e-9
        shares = time_by_line(sampled, [op.source for op in recorded], owner)
        for line, share in shares.items():
            if time_s * share > 0:
                rows.append(IdleRow(cause=cause, time_s=time_s * share, source=line))
        if not shares and time_s > 0:
            rows.append(IdleRow(cause=cause, time_s=time_s))
    dispatch: dict[str, float] = defaultdict(float)
    host = result.host_by_op_ns[DISPATCH]
    for position, op in enumerate(recorded):
        dispatch[op.source] += float(host[position])
    dispatch[""] += float(host[-1])
    kernels = result.attribution.kernels
    for position, fixed_ns in zip(kernels.kernel, kernels.fixed_ns):
        if position >= 0:
            dispatch[recorded[position].source] += float(fixed_ns)
    for line, time_ns in dispatch.items():
        if time_ns > 0:
            rows.append(IdleRow(cause="dispatch", time_s=time_ns * 1e-9, source=line or None))
    for leaf in (OVERHEAD_LEAF[COLLECTING], OVERHEAD_LEAF[COMPILING], "overhead.allocation"):
        if leaves[leaf] > 0:
            rows.append(IdleRow(cause=leaf.removeprefix("overhead."), time_s=leaves[leaf] * 1e-9))
    rows.sort(key=lambda row: -row.time_s)
    return rows


def _sampled_pieces(measured: Measurements, analysis: CpuAnalysis) -> list[Any]:
    raws: list[RawEvents] = [raw for raw, _ in measured.sampled]
    if not raws:
        return []
    capture = build_cpu_capture(raws, analysis.capture.recorded, analysis.capture.timeline.device)
    has_work = np.array([works_on(work) for work in analysis.works], bool)
    return [
        (cut_step(capture, (int(low), int(high)), has_work, analysis.cost), samples)
        for (low, high), (_, samples) in zip(capture.timeline.steps, measured.sampled)
    ]

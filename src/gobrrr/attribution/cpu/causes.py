"""Overhead of a CPU step by cause, with the source lines that spend it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gobrrr.attribution.cpu.attribute import CpuAttribution, works_on
from gobrrr.attribution.cpu.lines import LaneStep, time_by_line
from gobrrr.attribution.cpu.run import CpuAnalysis
from gobrrr.attribution.cpu.sleep import ASLEEP
from gobrrr.attribution.lane import (
    COLLECTING,
    COMPILING,
    DISPATCH,
    LEAF_OF_OWNER,
    LOADING,
    PYTHON,
    cut_step,
)
from gobrrr.attribution.leaves import IdleGap
from gobrrr.live.measurements import Measurements
from gobrrr.live.profiles.cpu_timeline import CpuCapture, build_cpu_capture
from gobrrr.live.profiles.profile import RawEvents
from gobrrr.timeline.data import HostKind


def causes_of_overhead(measured: Measurements, analysis: CpuAnalysis) -> list[IdleGap]:
    """Overhead by cause and source line, ns per step; lines of Python from samples."""
    sampled = _sampled_steps(measured, analysis)
    gaps = causes_of_lane(analysis.capture, analysis.result, sampled)
    if not measured.mostly_waited:
        return gaps
    python = LEAF_OF_OWNER[PYTHON]
    return [replace(gap, source=None) if gap.leaf == python else gap for gap in gaps]


def causes_of_lane(
    capture: CpuCapture, result: CpuAttribution, sampled: Sequence[LaneStep] = ()
) -> list[IdleGap]:
    """Overhead by cause and source line, ns per step; ``sampled``: steps with line samples."""
    recorded = capture.recorded
    leaves = result.attribution.leaves_ns
    gaps = []
    steps = sampled or [LaneStep(capture, pieces) for pieces in result.steps]
    for owner in (PYTHON, LOADING):
        leaf = LEAF_OF_OWNER[owner]
        shares = time_by_line(steps, owner)
        detail = _loader_of(capture) if owner == LOADING else None
        gaps += [
            IdleGap(leaves[leaf] * share, ASLEEP if spent.asleep and owner == PYTHON else leaf,
                    spent.line, detail)
            for spent, share in shares.items()
        ]  # fmt: skip
        if not shares:
            gaps.append(IdleGap(leaves[leaf], leaf, detail=detail))
    dispatch: dict[str, float] = defaultdict(float)
    host = result.host_by_op_ns[DISPATCH]
    for position, op in enumerate(recorded):
        dispatch[op.source] += float(host[position])
    dispatch[""] += float(host[-1])
    kernels = result.attribution.kernels
    for position, fixed_ns in zip(kernels.kernel, kernels.fixed_ns):
        if position >= 0:
            dispatch[recorded[position].source] += float(fixed_ns)
    gaps += [IdleGap(ns, LEAF_OF_OWNER[DISPATCH], line or None) for line, ns in dispatch.items()]
    for leaf in (LEAF_OF_OWNER[COLLECTING], LEAF_OF_OWNER[COMPILING], "overhead.allocation"):
        gaps.append(IdleGap(leaves[leaf], leaf))
    return gaps


def _loader_of(capture: CpuCapture) -> str | None:
    """What the step waits for data in, by the range around it: with workers or without them."""
    host = capture.timeline.host
    rows = np.flatnonzero(host.kind == HostKind.DATA_LOADING)
    if not len(rows):
        return None
    length = (host.end_ns[rows] - host.start_ns[rows]).astype(np.float64)
    waited = np.bincount(host.name[rows], weights=length)
    name = capture.timeline.names[int(waited.argmax())]
    # ``enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__``
    return name.partition("#")[2].partition(".")[0] or name


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

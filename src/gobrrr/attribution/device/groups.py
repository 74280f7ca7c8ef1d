"""Kernels that are alike, as one row each: what tables need of a trace of a million events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.device.attribute import DeviceAttribution, window_of
from gobrrr.attribution.leaves import KernelShares
from gobrrr.roofline.roof import Roof
from gobrrr.timeline.data import Timeline
from gobrrr.work.estimate import Work

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class KernelGroups:
    """Kernels of one call (name and arguments), kernel name, module, line, phase and regime.

    ``first`` is one member, a row of ``Timeline.kernels``; its operator, module, line and phase
    are the group's. ``origin`` is the host row that has the last three: the operator, else the
    call that launched the member (-1: neither was recorded). ``shares`` are sums over the members
    (means per step, like the members'; its ``kernel`` column repeats ``first``). ``works`` are
    those of whole calls and ``weight`` is how many of them per step the members do; ``roofs`` are
    the first member's. ``count`` is calls per step: an operator that launches three kernels counts
    a third with each. ``idle_before_ns`` is idle time per step that the members ended.
    """

    first: Int64
    origin: Int64
    shares: KernelShares
    works: tuple[Work | None, ...]
    roofs: tuple[Roof | None, ...]
    weight: Float64
    count: Float64
    idle_before_ns: Float64

    def __len__(self) -> int:
        return len(self.first)


def group_kernels(timeline: Timeline, found: DeviceAttribution) -> KernelGroups:
    """Groups all kernels of an attribution; the groups are in order of their first kernel."""
    host, kernels, work = timeline.host, timeline.kernels, found.work
    shares, steps = found.attribution.kernels, len(timeline.steps)
    op = work.op
    linked = op >= 0
    # Of a copy, a collective, or a graph's kernel there is no work: what launched it says where.
    origin = np.where(linked, op, np.where(kernels.op >= 0, kernels.op, kernels.launch))

    def of_row(column: NDArray[np.generic], row: Int64) -> Int64:
        if len(host) == 0:
            return np.full(len(row), -1, np.int64)
        return np.where(row >= 0, column[row].astype(np.int64), -1)

    columns = (
        work.call, linked, kernels.name, of_row(host.name, op), of_row(host.module, origin),
        of_row(host.source, origin), of_row(host.phase, origin), shares.regime,
    )  # fmt: skip
    first, group = distinct_rows(columns)
    count = len(first)

    def total(values: Float64) -> Float64:
        return np.asarray(np.bincount(group, weights=values, minlength=count), np.float64)

    launched = np.bincount(op[linked], minlength=len(host) or 1)
    # A kernel that only ends the last window is of no step, nor is one between two of them.
    counted = in_steps(kernels.start_ns, timeline.steps)
    each = counted * (1.0 if found.counts is None else found.counts)
    calls = np.where(linked, 1.0 / np.maximum(launched[op], 1), 1.0) * each
    return KernelGroups(
        first=first,
        origin=origin[first],
        shares=KernelShares(
            kernel=first,
            duration_ns=total(shares.duration_ns),
            owned_ns=total(shares.owned_ns),
            fixed_ns=total(shares.fixed_ns),
            page_faults_ns=total(shares.page_faults_ns),
            roof_ns=total(shares.roof_ns),
            below_ns=total(shares.below_ns),
            full_roof_ns=total(shares.full_roof_ns),
            regime=shares.regime[first],
        ),
        works=tuple(work.whole[row] for row in first.tolist()),
        roofs=tuple(work.roofs[row] for row in first.tolist()),
        weight=total(work.share * each) / steps,
        count=total(calls) / steps,
        idle_before_ns=total(found.idle_before_ns),
    )


def in_steps(start_ns: Int64, steps: Int64) -> NDArray[np.bool_]:
    """Which times lie in one of the windows ``steps`` (begin and end, in order), end excluded."""
    begin, end = steps[window_of(start_ns, steps)].T
    inside: NDArray[np.bool_] = (begin <= start_ns) & (start_ns < end)
    return inside


def distinct_rows(columns: tuple[NDArray[np.generic], ...]) -> tuple[Int64, Int64]:
    """First row of each distinct combination, in order of appearance, and each row's group."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        # Dense again after every column: the product of all sizes would overflow.
        _, number = np.unique(number * len(values) + code.reshape(-1), return_inverse=True)
        number = number.reshape(-1)
    _, first = np.unique(number, return_index=True)
    order = np.argsort(first, kind="stable")
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return first[order], position[number]

"""Two lanes: the host issues ops, the device runs their kernels in order; the step ends with both.

Host and device run asynchronously. A kernel starts when it has been issued and the one before it
has ended; the host waits only where it asks the device for a result, or where the queue of
launches is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gobrrr.models.host_lane import HostCall, HostCosts, host_seconds

# Launches that CUDA keeps in a stream's queue before a launch call blocks. Not documented; about
# this many were observed by users. An approximation, which matters to longer steps alone.
QUEUE_LENGTH = 1024
# Steps run one after the other until each takes as long as the one before: the first starts on an
# empty device, the second behind the first's lead; the third is like all later ones.
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class ReplayedOp:
    """One op on both lanes, seconds from the end of the step before on the device.

    ``begin_s``: the host begins with it (negative if the host ran ahead of that end).
    ``issued_s``: its launch calls have returned. ``told_s``: the host goes on; later than
    ``issued_s`` if the op waits for the device. ``start_s``, ``end_s``: its kernels on the device;
    both ``issued_s`` for an op without kernels.
    """

    begin_s: float
    issued_s: float
    told_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Replay:
    """A step among many, seen from the device.

    Attributes:
        ops: one row per op; the last kernel's end is the step's.
        lead: the same of the step before, on the same clock.
    """

    ops: tuple[ReplayedOp, ...]
    lead: tuple[ReplayedOp, ...]


def replay(calls: Sequence[HostCall], device_s: Sequence[float], costs: HostCosts) -> Replay:
    """Run the ops of one step through both lanes, as one of many steps.

    Args:
        calls: how the host sees each op; one of them at least launches a kernel.
        device_s: seconds of each op's kernels, fixed cost included; 0 without kernels.
        costs: of the host.

    Raises:
        ValueError: the two lists differ in length, or nothing is launched.
    """
    if len(calls) != len(device_s):
        raise ValueError(f"{len(calls)} calls and {len(device_s)} device times")
    if not any(call.kernels for call in calls):
        raise ValueError("no op launches a kernel: there is no device to replay")
    host = device = begin = 0.0
    # begin, issued, told, start and end of each op, from the start of the first step.
    rows: list[tuple[float, float, float, float, float]] = []
    lead = rows
    ends: list[float] = []
    for _ in range(_ROUNDS):
        begin, lead, rows = device, rows, []
        for call, seconds in zip(calls, device_s):
            if call.kernels and len(ends) >= QUEUE_LENGTH:
                host = max(host, ends[-QUEUE_LENGTH])
            began = host
            host += host_seconds(call, costs)
            issued = start = end = host
            if call.kernels:
                start = max(device + costs.gap_s, host + costs.latency_s)
                # Kernels of one op follow each other with the same gap.
                end = device = start + seconds + (call.kernels - 1) * costs.gap_s
                ends.append(device)
            if call.synchronises:
                host = max(host, device + costs.synchronise_s)
            rows.append((began, issued, host, start, end))
    return Replay(
        tuple(ReplayedOp(*(time - begin for time in row)) for row in rows),
        tuple(ReplayedOp(*(time - begin for time in row)) for row in lead),
    )

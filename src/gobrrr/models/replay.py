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
    """A step among many, seen from the device: ``makespan_s`` is the sum of the other times.

    Attributes:
        makespan_s: from the end of the step before to the end of this one.
        busy_s: kernels run.
        gap_s: the device moves from one queued kernel to the next.
        launch_s: the device is idle while a launch travels to it.
        host_s: the device is idle while the host prepares the next op.
        wait_s: the device is idle because the host learns late that it has finished.
        ops: one row per op.
        lead: the same of the step before, on the same clock.
    """

    makespan_s: float
    busy_s: float
    gap_s: float
    launch_s: float
    host_s: float
    wait_s: float
    ops: tuple[ReplayedOp, ...]
    lead: tuple[ReplayedOp, ...] = ()


@dataclass(slots=True)
class _Idle:
    gap: float = 0.0
    launch: float = 0.0
    host: float = 0.0
    wait: float = 0.0


def replay(
    calls: Sequence[HostCall],
    device_s: Sequence[float],
    costs: HostCosts,
    *,
    ends_synchronised: bool = False,
) -> Replay:
    """Run the ops of one step through both lanes, as one of many steps.

    Args:
        calls: how the host sees each op.
        device_s: seconds of each op's kernels, fixed cost included; 0 without kernels.
        costs: of the host.
        ends_synchronised: whether each step waits for its result (a program that reads its loss).

    Raises:
        ValueError: the two lists differ in length.
    """
    if len(calls) != len(device_s):
        raise ValueError(f"{len(calls)} calls and {len(device_s)} device times")
    launched = any(call.kernels for call in calls)
    if not launched:
        host_s = sum(host_seconds(call, costs) for call in calls)
        return Replay(host_s, 0.0, 0.0, 0.0, host_s, 0.0, ())
    host = device = begin = 0.0
    # When the host was told of the device's end: until then its lateness is waiting.
    told = 0.0
    idle = _Idle()
    # begin, issued, told, start and end of each op, from the start of the first step.
    rows: list[tuple[float, float, float, float, float]] = []
    lead = rows
    ends: list[float] = []
    for _ in range(_ROUNDS):
        begin, idle, lead, rows = device, _Idle(), rows, []
        for call, seconds in zip(calls, device_s):
            if call.kernels and len(ends) >= QUEUE_LENGTH:
                host = max(host, ends[-QUEUE_LENGTH])
            began = host
            host += host_seconds(call, costs)
            issued = start = end = host
            if call.kernels:
                start = max(device + costs.gap_s, host + costs.latency_s)
                _share_out(idle, device, start, told, costs)
                # Kernels of one op follow each other with the same gap.
                inner = (call.kernels - 1) * costs.gap_s
                idle.gap += inner
                end = device = start + seconds + inner
                ends.append(device)
            if call.synchronises:
                host = told = max(host, device + costs.synchronise_s)
            rows.append((began, issued, host, start, end))
        if ends_synchronised:
            host = told = max(host, device + costs.synchronise_s)
    makespan_s = device - begin
    busy_s = sum(seconds for call, seconds in zip(calls, device_s) if call.kernels)
    return Replay(
        makespan_s, busy_s, idle.gap, idle.launch, idle.host, idle.wait,
        tuple(ReplayedOp(*(time - begin for time in row)) for row in rows),
        tuple(ReplayedOp(*(time - begin for time in row)) for row in lead),
    )  # fmt: skip


def _share_out(idle: _Idle, device: float, start: float, told: float, costs: HostCosts) -> None:
    """Say why the device did nothing from ``device`` to ``start``.

    At the end of it the launch was on its way; before that the host prepared the op; at its
    beginning the host may not have known yet that the device had finished. The move from kernel
    to kernel is what remains where all of that had happened before.
    """
    length = start - device
    gap = min(length, costs.gap_s)
    late = length - gap
    launch = min(late, costs.latency_s)
    wait = min(max(told - device, 0.0), late - launch)
    idle.gap += gap
    idle.launch += launch
    idle.wait += wait
    idle.host += late - launch - wait

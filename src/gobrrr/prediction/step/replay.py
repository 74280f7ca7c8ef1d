"""Two lanes: the host issues ops, the device runs their kernels in order; the step ends with both.

Host and device run asynchronously. A kernel starts when it has been issued and the one before it
has ended; the host waits only where it asks the device for a result, or where the queue of
launches is full.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.prediction.step.host_lane import HostCall, HostCosts, Launch, host_seconds_of

Float64 = NDArray[np.float64]

# Launches that CUDA keeps in a stream's queue before a launch call blocks. Not documented; about
# this many were observed by users. An approximation, which matters to longer steps alone.
QUEUE_LENGTH = 1024
# Steps run one after the other until each takes as long as the one before: the first starts on an
# empty device, the second behind the first's lead; the third is like all later ones.
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class ReplayedOps:
    """Ops on both lanes, in columns: seconds from the end of the step before on the device.

    ``begin_s``: the host begins with it (negative if the host ran ahead of that end).
    ``issued_s``: its launch calls have returned. ``told_s``: the host goes on; later than
    ``issued_s`` if the op waits for the device. ``start_s``, ``end_s``: its kernels on the device;
    both ``issued_s`` for an op without kernels.
    """

    begin_s: Float64
    issued_s: Float64
    told_s: Float64
    start_s: Float64
    end_s: Float64

    def __len__(self) -> int:
        return len(self.begin_s)


@dataclass(frozen=True, slots=True)
class Replay:
    """A step among many, seen from the device.

    Attributes:
        ops: one row per op; the last kernel's end is the step's.
        lead: the same of the step before, on the same clock.
    """

    ops: ReplayedOps
    lead: ReplayedOps


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
    issuing_s = host_seconds_of(calls, costs)
    host = device = begin = 0.0
    # begin, issued, told, start and end of each op, from the start of the first step.
    rows = lead = _columns()
    ends: deque[float] = deque(maxlen=QUEUE_LENGTH)
    for _ in range(_ROUNDS):
        begin, lead, rows = device, rows, _columns()
        begins, issues, tells, starts, stops = (column.append for column in rows)
        for call, seconds, issuing in zip(calls, device_s, issuing_s):
            kernels = call.kernels
            queued = kernels and call.launch is not Launch.IN_GRAPH
            if queued and len(ends) == QUEUE_LENGTH:
                host = max(host, ends[0])
            begins(host)
            host += issuing
            issues(host)
            if kernels:
                start = max(device + costs.gap_s, host + costs.latency_s)
                # Kernels of one op follow each other with the same gap.
                device = start + seconds + (kernels - 1) * costs.gap_s
                if queued:
                    ends.append(device)
                starts(start)
                stops(device)
            else:
                starts(host)
                stops(host)
            if call.synchronises:
                host = max(host, device + costs.synchronise_s)
            tells(host)
    return Replay(_since(rows, begin), _since(lead, begin))


def _columns() -> tuple[array[float], ...]:
    return tuple(array("d") for _ in range(5))


def _since(columns: tuple[array[float], ...], begin: float) -> ReplayedOps:
    return ReplayedOps(*(np.frombuffer(column) - begin for column in columns))

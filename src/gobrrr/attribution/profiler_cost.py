"""What recording a step of a device cost its host, solved from the step itself.

The profiler makes the host slower by an amount per event that no loop measured beforehand tells
well (1151, 3866 and 0 ns in three tries on one H200). The step tells it: with the cost taken off,
the profiled step is as long as the timed one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.idle import IdlePieces
from gobrrr.timeline.data import HostKind, Timeline

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# No recording costs more than so many times ``EVENT_COSTS``.
_MOST = 6.0
_HALVINGS = 40
# A device that is idle for less of the step bounds it.
BUSY_IDLE = 0.15
# A difference between steps that is more than timing them leaves open.
SAID = 0.02


@dataclass(frozen=True)
class EventCosts:
    """What the profiler adds to the host's time, in ns per event.

    Attributes:
        before: ahead of an op's span, in what encloses it.
        inside: within an op's span.
        after: behind an op's span.
        call: within a call of the runtime (a launch, a wait).
    """

    before: float
    inside: float
    after: float
    call: float


# Their ratios count: what they are multiplied by is solved.
EVENT_COSTS = EventCosts(before=700.0, inside=0.0, after=300.0, call=1500.0)


class CostOfRecording:
    """The profiler's cost in the idle time of a device, for any factor on ``EVENT_COSTS``.

    What events cost while the device is idle makes the gap longer where they are. What they cost
    while it is busy makes the host come to the next gap later: without them its first part would
    have been over before the device was idle, and what exceeds a gap is a lead that the host has
    at the next one. That counts from the return of the launch that ended the gap before, or from
    the last wait for the device, where host and device are together. What a kernel waits after its
    launch has returned is no work of the host's, and stays.
    """

    def __init__(
        self, timeline: Timeline, pieces: IdlePieces, costs: EventCosts = EVENT_COSTS
    ) -> None:
        self._pieces = pieces
        self._length = (pieces.end_ns - pieces.start_ns).astype(np.float64)
        host, kernels = timeline.host, timeline.kernels
        self._any = len(pieces) > 0 and len(host) > 0
        if not self._any:
            return
        of_op = (host.kind == HostKind.OP) | (host.kind == HostKind.DATA_LOADING)
        of_call = ~of_op & (host.kind != HostKind.PYTHON)
        points = np.concatenate(
            (host.start_ns[of_op] - 1, host.start_ns[of_op], host.end_ns[of_op],
             host.start_ns[of_call])
        )  # fmt: skip
        amounts = np.repeat(
            (costs.before, costs.inside, costs.after, costs.call),
            (of_op.sum(), of_op.sum(), of_op.sum(), of_call.sum()),
        )
        order = np.argsort(points, kind="stable")
        self._points = points[order]
        self._total = np.append(0.0, np.cumsum(amounts[order]))

        first = np.append(True, pieces.start_ns[1:] != pieces.end_ns[:-1])
        self._first = np.flatnonzero(first)
        self._gap = np.cumsum(first) - 1
        starts, ends = pieces.start_ns[first], pieces.end_ns[np.append(first[1:], True)]
        kernel = pieces.kernel
        launch = np.where(kernel >= 0, kernels.launch[kernel], -1)
        returned = np.where(launch >= 0, host.end_ns[launch], pieces.end_ns)
        # After the launch call has returned: the kernel waits for nothing of the host's.
        self._queued = pieces.start_ns >= returned
        self._hideable = ~(self._queued & first)
        self._within = np.where(
            self._queued, 0.0, self._cost(pieces.end_ns) - self._cost(pieces.start_ns)
        )
        issued = np.minimum(returned[np.append(first[1:], True)], ends)
        together = np.append(timeline.steps[0, 0], issued[:-1])
        waited = np.sort(host.end_ns[host.kind == HostKind.SYNCHRONISE])
        self._reset = np.zeros(len(starts), bool)
        if len(waited):
            at = np.searchsorted(waited, ends, side="right") - 1
            last = np.where(at >= 0, waited[np.maximum(at, 0)], np.iinfo(np.int64).min)
            self._reset = last > together
            together = np.maximum(together, last)
        self._late = np.maximum(self._cost(starts) - self._cost(together), 0.0)

    def _cost(self, at: Int64) -> Float64:
        """Of all events before a moment."""
        found: Float64 = self._total[np.searchsorted(self._points, at, side="left")]
        return found

    def kept(self, factor: float) -> Float64:
        """The share of each piece that is not the profiler's."""
        length = self._length
        if factor <= 0 or not self._any:
            return np.ones(len(length))
        gap, count = self._gap, len(self._first)
        within = factor * self._within
        left = np.maximum(length - within, 0.0)
        # What exceeds a piece is its neighbours' in the gap.
        over = np.bincount(gap, np.maximum(within - length, 0.0) * ~self._queued, count)
        host_left = np.bincount(gap, left * ~self._queued, count)
        share = np.maximum(host_left - over, 0.0) / np.maximum(host_left, 1e-9)
        left = np.where(self._queued, left, left * share[gap])
        # A lead, from gap to gap, which starts anew where the host waited.
        room: Float64 = np.bincount(gap, np.where(self._hideable, left, 0.0), count).astype(float)
        lead = factor * self._late + np.maximum(over - host_left, 0.0)
        removed = np.minimum(_carried(lead, room, self._reset), room)
        # Taken from the head of each gap.
        total = np.cumsum(left)
        before = total - left - np.append(0.0, total)[self._first][gap]
        taken = np.clip(removed[gap] - before, 0.0, left) * self._hideable
        kept: Float64 = (left - taken) / np.maximum(length, 1.0)
        return kept

    def kept_of_step(self, weights: Float64, profiled_ns: float, timed_ns: float) -> Float64:
        """The share of each piece that is not the profiler's, which makes the step ``timed_ns``.

        A device that is hardly idle hides the host's cost: where its step differs by more than the
        timing does that says nothing of it, and the factor is 1.

        Args:
            weights: how much each piece counts in a step.
            profiled_ns: the profiled step.
            timed_ns: the step without the profiler.
        """
        spent = weights * self._length
        excess_ns = profiled_ns - timed_ns
        if abs(excess_ns) > SAID * timed_ns:
            kept = self.kept(1.0)
            if float((spent * kept).sum()) < BUSY_IDLE * profiled_ns:
                return kept
        return self.kept(self._solved(spent, excess_ns))

    def _solved(self, spent: Float64, excess_ns: float) -> float:
        """The factor at which so much idle time is the profiler's: between 0 and ``_MOST``."""
        if excess_ns <= 0 or not self._any:
            return 0.0
        low, high = 0.0, _MOST
        if float((spent * (1.0 - self.kept(high))).sum()) <= excess_ns:
            return high
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            if float((spent * (1.0 - self.kept(middle))).sum()) < excess_ns:
                low = middle
            else:
                high = middle
        return high


def _carried(lead: Float64, room: Float64, reset: NDArray[np.bool_]) -> Float64:
    """The lead that the host has at each gap: its own and what earlier gaps had no room for."""
    # Lindley's recursion w = max(0, w + lead - room) in closed form: a sum less its minimum so
    # far, a stretch between two resets at a time: each lies lower than all that were before.
    change = lead - room
    total = np.cumsum(change)
    before = total - change
    stretch = np.cumsum(reset).astype(np.float64)
    fall = float(np.ptp(total)) + float(np.abs(change).max(initial=0.0)) + 1.0
    lowest = np.minimum.accumulate(before - stretch * fall) + stretch * fall
    found: Float64 = lead + before - lowest
    return found

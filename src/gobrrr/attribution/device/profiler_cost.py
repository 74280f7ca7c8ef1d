"""What recording a step of a device cost its host, solved from the step itself.

The profiler makes the host slower by an amount per event that no loop measured beforehand tells
well (1151, 3866 and 0 ns in three tries on one H200). The step tells it: with the cost taken off,
the profiled step is as long as the timed one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.device.idle import IdlePieces
from gobrrr.timeline.data import HostKind, Timeline

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# No recording costs more than so many times ``EVENT_COSTS``.
_MOST = 3.0
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
        call_around: ahead of and behind a call of the runtime (a launch, a wait), half each.
        call: within such a call.
    """

    before: float
    inside: float
    after: float
    call_around: float
    call: float


# Their ratios count: what they are multiplied by is solved. On an H200 (torch 2.11, CUDA 13.0, the
# part ``cost`` of benchmarks/results/gpu_claims_nvidia-h200_2026-11-27.json) a view takes 0.95 us
# longer, 0.4 more with shapes; a bare launch 1.4 us, half of it in its span; an addition, an op
# with one launch, 4.0 us; a linear layer, five ops and four calls, 16.8 us.
EVENT_COSTS = EventCosts(before=800.0, inside=100.0, after=400.0, call_around=2400.0, call=700.0)


class CostOfRecording:
    """The profiler's cost in the idle time of a device, for any factor on ``EVENT_COSTS``.

    What events cost while the device is idle makes the gap longer where they are. What they cost
    while it is busy makes the host come to the next gap later: without them its first part would
    have been over before the device was idle, and what exceeds a gap is a lead that the host has
    at the next one. That counts from the return of the launch that ended the gap before, or from
    the last wait for the device, where host and device are together. What a kernel waits after its
    launch has returned is no work of the host's, and stays. Stretches that the profiler itself has
    noted (it asks for buffers, say) are taken off whole.
    """

    def __init__(
        self, timeline: Timeline, pieces: IdlePieces, costs: EventCosts = EVENT_COSTS
    ) -> None:
        self._length = (pieces.end_ns - pieces.start_ns).astype(np.float64)
        host, kernels = timeline.host, timeline.kernels
        self._any = len(pieces) > 0 and len(host) > 0
        if not self._any:
            return
        of_op = (host.kind == HostKind.OP) | (host.kind == HostKind.DATA_LOADING)
        of_call = ~of_op & (host.kind != HostKind.PYTHON)
        start, end = host.start_ns, host.end_ns
        half = costs.call_around / 2
        placed = (
            (start[of_op] - 1, costs.before), (start[of_op], costs.inside),
            (end[of_op], costs.after),
            (start[of_call] - 1, half), (start[of_call], costs.call), (end[of_call], half),
        )  # fmt: skip
        points = np.concatenate([at for at, _ in placed])
        amounts = np.concatenate([np.full(len(at), amount) for at, amount in placed])
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
        starts_ns, ends_ns = pieces.start_ns, pieces.end_ns
        self._stalls = timeline.profiler_stalls
        self._within, self._stalled_within = (
            np.where(self._queued, 0.0, until(ends_ns) - until(starts_ns))
            for until in (self._cost, self._stalled)
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
        self._late, self._stalled_late = (
            np.maximum(until(starts) - until(together), 0.0)
            for until in (self._cost, self._stalled)
        )

    def _cost(self, at: Int64) -> Float64:
        """Of all events before a moment."""
        found: Float64 = self._total[np.searchsorted(self._points, at, side="left")]
        return found

    def _stalled(self, at: Int64) -> Float64:
        """What the profiler itself says that it took of the host before a moment."""
        if not len(self._stalls.start):
            return np.zeros(len(at))
        borders = np.column_stack((self._stalls.start, self._stalls.end)).ravel()
        sums = np.cumsum(self._stalls.end - self._stalls.start)
        found: Float64 = np.interp(
            at, borders, np.column_stack((np.append(0, sums[:-1]), sums)).ravel()
        )
        return found

    def kept(self, factor: float) -> Float64:
        """The share of each piece that is not the profiler's."""
        length = self._length
        if not self._any or (factor <= 0 and not len(self._stalls.start)):
            return np.ones(len(length))
        gap, count = self._gap, len(self._first)
        within = factor * self._within + self._stalled_within
        left = np.maximum(length - within, 0.0)
        # What exceeds a piece is its neighbours' in the gap.
        over = np.bincount(gap, np.maximum(within - length, 0.0) * ~self._queued, count)
        host_left = np.bincount(gap, left * ~self._queued, count)
        share = np.maximum(host_left - over, 0.0) / np.maximum(host_left, 1e-9)
        left = np.where(self._queued, left, left * share[gap])
        # A lead, from gap to gap, which starts anew where the host waited.
        room = np.bincount(gap, left * self._hideable, count).astype(np.float64)
        lead = factor * self._late + self._stalled_late + np.maximum(over - host_left, 0.0)
        removed = np.minimum(_carried(lead, room, self._reset), room)
        # Taken from the head of each gap.
        total = np.cumsum(left)
        before = total - left - np.append(0.0, total)[self._first][gap]
        taken = np.clip(removed[gap] - before, 0.0, left) * self._hideable
        kept: Float64 = (left - taken) / np.maximum(length, 1.0)
        return kept

    def taken_ns(self, factor: float, weights: Float64) -> float:
        """What the profiler has of a step, in which each piece counts as much as its weight."""
        return float((weights * self._length * (1.0 - self.kept(factor))).sum())

    def kept_of_step(self, weights: Float64, profiled_ns: float, timed_ns: float) -> Float64:
        """The share of each piece that is not the profiler's, which makes the step ``timed_ns``.

        Where the cost can be no reason for all of the difference, and the device is hardly idle in
        the timed step, the kernels are the reason: the host's cost is hidden there, and the factor
        is 1.

        Args:
            weights: how much each piece counts in a step.
            profiled_ns: the profiled step.
            timed_ns: the step without the profiler.
        """
        excess_ns = profiled_ns - timed_ns
        factor = self._solved(weights, excess_ns)
        idle_ns = float((weights * self._length).sum()) - excess_ns
        if factor in (0.0, _MOST) and abs(excess_ns) > SAID * timed_ns:
            factor = 1.0 if idle_ns < BUSY_IDLE * timed_ns else factor
        return self.kept(factor)

    def _solved(self, weights: Float64, excess_ns: float) -> float:
        """The factor at which so much idle time is the profiler's: between 0 and ``_MOST``."""
        if excess_ns <= 0 or not self._any:
            return 0.0
        low, high = 0.0, _MOST
        if self.taken_ns(high, weights) <= excess_ns:
            return high
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            if self.taken_ns(middle, weights) < excess_ns:
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

"""A recorded timeline with kernels of other durations: what the step would have become.

The host's calls keep their own times and their order; what waits for the device waits for the new
end. On the device a kernel starts once its launch has arrived and the kernel that held it back has
ended.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.timeline.data import HostKind, Timeline, no_stalls

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# A kernel that starts this soon after its launch call returned was not held back by another one;
# a launch takes a few microseconds to reach an idle device.
_PROMPT_NS = 10_000
# A synchronisation that returns this soon after a kernel's end was waiting for it.
_NOTICED_NS = 50_000


@dataclass(frozen=True)
class Clock:
    """The old clock to the new: piecewise linear, growing."""

    old_ns: Float64
    new_ns: Float64

    def at(self, times_ns: Int64) -> Int64:
        """Times on the new clock. Beyond the last point it runs on at the same pace."""
        moved = np.interp(times_ns, self.old_ns, self.new_ns)
        late = times_ns > self.old_ns[-1]
        moved = np.where(late, times_ns + (self.new_ns[-1] - self.old_ns[-1]), moved)
        early = times_ns < self.old_ns[0]
        moved = np.where(early, times_ns + (self.new_ns[0] - self.old_ns[0]), moved)
        result: Int64 = np.rint(moved).astype(np.int64)
        return result


def retime(timeline: Timeline, durations_ns: Float64) -> Timeline:
    """The timeline with these kernel durations, and everything that follows from them moved.

    Args:
        timeline: with kernels, sorted by start.
        durations_ns: of every kernel, in the timeline's order; integers are made of them.

    Raises:
        ValueError: one duration for each kernel is needed.
    """
    kernels, host = timeline.kernels, timeline.host
    count = len(kernels)
    if len(durations_ns) != count:
        raise ValueError(f"{len(durations_ns)} durations for {count} kernels")
    if count == 0:
        return timeline
    length = np.maximum(np.rint(durations_ns), 0).astype(np.int64)
    launched = np.where(
        kernels.launch >= 0, host.end_ns[kernels.launch] if len(host) else 0, kernels.start_ns
    )
    held_by, waited = _predecessors(timeline, launched)
    waits = _waits(timeline)
    start = np.empty(count, np.int64)
    end = np.empty(count, np.int64)
    origin = float(min(int(kernels.start_ns.min()), _first(host.start_ns)))
    old, new = [origin], [origin]
    next_wait = 0
    for row in range(count):
        # What the host waited for before it launched this kernel moves the launch. Those kernels
        # started before the wait ended, so before this one.
        while next_wait < len(waits) and waits[next_wait].end_ns <= launched[row]:
            _wait(waits[next_wait], end, old, new)
            next_wait += 1
        shifted = _at(float(launched[row]), old, new)
        latency = int(kernels.start_ns[row] - launched[row])
        before = int(held_by[row])
        if before < 0:
            start[row] = round(shifted + latency)
        else:
            gap = int(kernels.start_ns[row] - kernels.end_ns[before])
            if kernels.launch[row] < 0:
                # Nobody knows when it was launched: the pause before it stays.
                start[row] = end[before] + gap
            elif waited[row]:
                # Behind another kernel; alone it would have started as promptly as others do.
                start[row] = round(max(end[before] + gap, shifted + min(latency, _PROMPT_NS // 2)))
            else:
                start[row] = round(max(end[before] + min(gap, 1000), shifted + latency))
        end[row] = start[row] + length[row]
    for wait in waits[next_wait:]:
        _wait(wait, end, old, new)
    clock = Clock(np.array(old), np.array(new))
    return _moved(timeline, clock, start, end)


def _first(values: Int64) -> int:
    return int(values.min()) if len(values) else np.iinfo(np.int64).max


def _predecessors(timeline: Timeline, launched: Int64) -> tuple[Int64, NDArray[np.bool_]]:
    """For each kernel the one that it may have waited for, and whether it did.

    On its own stream that is the kernel before it. A kernel that started late without one there
    waited for another stream: for what ended last before it started.
    """
    kernels = timeline.kernels
    count = len(kernels)
    held = np.full(count, -1, np.int64)
    last: dict[int, int] = {}
    by_end = np.argsort(kernels.end_ns, kind="stable")
    sorted_ends = kernels.end_ns[by_end]
    late = kernels.start_ns - launched > _PROMPT_NS
    waited = np.zeros(count, bool)
    for row in range(count):
        stream = int(kernels.stream[row])
        before = last.get(stream, -1)
        last[stream] = row
        begun = int(kernels.start_ns[row])
        if before >= 0 and kernels.end_ns[before] > launched[row]:
            held[row], waited[row] = before, True
        elif late[row]:
            position = int(np.searchsorted(sorted_ends, begun, side="right")) - 1
            other = int(by_end[position]) if position >= 0 else -1
            # Kernels are replayed in the order of their launches: an earlier row is known.
            if other >= 0 and other < row and kernels.end_ns[other] > launched[row]:
                held[row], waited[row] = other, True
            else:
                held[row] = before
        else:
            held[row] = before
    return held, waited


@dataclass(frozen=True)
class _Wait:
    """A host span that waited for the device, and the kernel whose end it waited for."""

    start_ns: int
    end_ns: int
    kernel: int
    kernel_end_ns: int


def _waits(timeline: Timeline) -> list[_Wait]:
    host, kernels = timeline.host, timeline.kernels
    by_end = np.argsort(kernels.end_ns, kind="stable")
    sorted_ends = kernels.end_ns[by_end]
    found: list[_Wait] = []
    reach = 0
    for row in np.flatnonzero(host.kind == HostKind.SYNCHRONISE).tolist():
        begin, stop = int(host.start_ns[row]), int(host.end_ns[row])
        position = int(np.searchsorted(sorted_ends, stop, side="right")) - 1
        if position < 0 or begin < reach:
            continue
        ended = int(sorted_ends[position])
        if ended >= begin and stop - ended <= _NOTICED_NS:
            found.append(_Wait(begin, stop, int(by_end[position]), ended))
            reach = stop
    return found


def _at(moment: float, old: list[float], new: list[float]) -> float:
    """A time on the new clock, as far as it is known: past the last point at the same pace."""
    after = bisect_right(old, moment)
    if after == len(old) or after == 0:
        edge = -1 if after else 0
        return moment + (new[edge] - old[edge])
    share = (moment - old[after - 1]) / (old[after] - old[after - 1])
    return new[after - 1] + share * (new[after] - new[after - 1])


def _wait(wait: _Wait, ends: Int64, old: list[float], new: list[float]) -> None:
    """Moves the clock: the wait ends as long after its kernel as it did."""
    begun = _at(float(wait.start_ns), old, new)
    if wait.start_ns > old[-1]:
        old.append(float(wait.start_ns))
        new.append(begun)
    noticed = max(float(ends[wait.kernel]), begun) + (wait.end_ns - wait.kernel_end_ns)
    old.append(float(wait.end_ns))
    new.append(max(noticed, new[-1]))


def _moved(timeline: Timeline, clock: Clock, start: Int64, end: Int64) -> Timeline:
    host, kernels = timeline.host, timeline.kernels
    order = np.argsort(start, kind="stable")
    moved_kernels = replace(kernels, start_ns=start, end_ns=end).take(order)
    moved_host = replace(host, start_ns=clock.at(host.start_ns), end_ns=clock.at(host.end_ns))
    steps = timeline.steps.copy()
    borders = clock.at(np.append(timeline.steps[:, 0], timeline.steps[-1, 1]))
    borders[0] = min(int(borders[0]), int(start.min()))
    borders[-1] = max(int(end.max()), int(borders[-2]))
    borders = np.maximum.accumulate(borders)
    steps[:, 0], steps[:, 1] = borders[:-1], borders[1:]
    return replace(
        timeline, host=moved_host, kernels=moved_kernels, steps=steps, others=(),
        stalls=no_stalls(),
    )  # fmt: skip

"""A step whose kernels run in several streams, with collectives among them.

As ``step.replay``, for steps that wait for other ranks: the host issues ops, each stream runs its
own in order, and an op that waits for others starts when these have ended. All ranks do the same,
so a collective starts everywhere at once. What runs at the same time slows each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gobrrr.prediction.step.host_lane import HostCall, HostCosts, host_seconds_of
from gobrrr.prediction.step.replay import QUEUE_LENGTH, Replay, ReplayedOps
from gobrrr.timeline.streams import step_before

# Kernels that compute beside a collective take so much longer: its channels hold multiprocessors
# and it reads and writes the same memory. 18.9 % is the mean slowdown on NVIDIA and AMD GPUs over
# training with FSDP and pipelines, 40.0 % the largest: Lee et al. 2025, "Characterizing
# Compute-Communication Overlap in GPU-Accelerated Distributed Deep Learning",
# https://arxiv.org/abs/2507.03114.
SLOWDOWN_BESIDE = 0.189
LARGEST_SLOWDOWN_BESIDE = 0.40
_ROUNDS = 3
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class StreamCall:
    """One op of a step in several streams.

    Attributes:
        call: as the host sees it.
        seconds: of its kernels alone, fixed cost included; 0 without kernels.
        stream: that its kernels run in.
        after: positions of ops before it that its kernels wait for; ``step_before`` of a stream
            for the last that it ran in the step before.
        link: of a collective, what it transfers over: collectives over one link share it;
            ``""`` of an op that is none.
    """

    call: HostCall
    seconds: float
    stream: int = 0
    after: tuple[int, ...] = ()
    link: str = ""


def replay_streams(
    calls: Sequence[StreamCall], costs: HostCosts, slowdown: float = SLOWDOWN_BESIDE
) -> Replay:
    """Run the ops of one step, as one of many steps.

    Args:
        calls: in the order in which the host issues them; one at least launches a kernel.
        costs: of the host.
        slowdown: by how much longer a kernel takes while a collective runs beside it.

    Raises:
        ValueError: nothing is launched, or an op waits for one that comes after it.
    """
    if not any(call.call.kernels for call in calls):
        raise ValueError("no op launches a kernel: there is no device to replay")
    device = _Device(calls, costs, slowdown)
    host = _Host(calls, costs, device)
    while not host.done:
        host.run()
        if not host.done:
            device.step()
    while device.step():
        pass
    n = len(calls)
    begins = [0.0]
    for number in range(_ROUNDS):
        ends = [end for end in device.end[number * n : (number + 1) * n] if end is not None]
        begins.append(max(begins[-1], *ends))

    def rows(number: int) -> ReplayedOps:
        found = []
        for at in range(number * n, (number + 1) * n):
            began, issued, told = host.rows[at]
            start, end = device.start[at], device.end[at]
            if start is None or end is None:
                start = end = issued
            found.append((began, issued, told, start, end))
        return ReplayedOps(*(np.array(found).T - begins[_ROUNDS - 1]))

    return Replay(rows(_ROUNDS - 1), rows(_ROUNDS - 2))


def _edges(calls: Sequence[StreamCall]) -> tuple[list[list[int]], list[list[int]]]:
    """The ops with kernels that each op with kernels waits for: of its step, of the one before.

    What waits without kernels of its own holds the next op of its stream up.
    """
    awaited: list[set[int]] = [set() for _ in calls]
    before: list[list[int]] = [[] for _ in calls]
    held: dict[int, set[int]] = {}
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    stands_for: list[frozenset[int]] = []
    for at, call in enumerate(calls):
        waits = held.pop(call.stream, set())
        for other in call.after:
            if other >= at:
                raise ValueError(f"op {at} waits for op {other}, which comes after it")
            waits |= stands_for[other] if other >= 0 else {other}
        if call.call.kernels:
            awaited[at] = waits
            first.setdefault(call.stream, at)
            last[call.stream] = at
            stands_for.append(frozenset((at,)))
            continue
        held[call.stream] = waits
        own = last.get(call.stream)
        stands_for.append(frozenset(waits if own is None else {*waits, own}))
    for stream, waits in held.items():
        if stream in first:
            before[first[stream]] = sorted(at for at in waits if at >= 0)
    for at, waits in enumerate(awaited):
        streams = [step_before(other) for other in waits if other < 0]
        before[at] += [last[stream] for stream in streams if stream in last]
    return [sorted(other for other in waits if other >= 0) for waits in awaited], before


class _Device:
    """The streams of a device; ``start`` and ``end`` are by op, over all rounds."""

    def __init__(self, calls: Sequence[StreamCall], costs: HostCosts, slowdown: float) -> None:
        self._costs, self._slowdown = costs, slowdown
        self._within, self._before = _edges(calls)
        self._size = len(calls)
        self._stream = [call.stream for call in calls]
        self._link = [call.link for call in calls]
        # Kernels of one op follow each other with the same gap.
        self._alone_s = [call.seconds + (call.call.kernels - 1) * costs.gap_s for call in calls]
        total = len(calls) * _ROUNDS
        self.start: list[float | None] = [None] * total
        self.end: list[float | None] = [None] * total
        self._ready: list[float] = [0.0] * total
        streams = sorted(set(self._stream))
        self._queues: dict[int, deque[int]] = {stream: deque() for stream in streams}
        self._free: dict[int, float] = dict.fromkeys(streams, 0.0)
        # Stream -> op that runs, and seconds of it that are left alone.
        self._running: dict[int, tuple[int, float]] = {}
        self._now = 0.0

    def launch(self, number: int, at_s: float) -> None:
        """An op's kernels are in the queue of their stream."""
        self._ready[number] = at_s + self._costs.latency_s
        self._queues[self._stream[number % self._size]].append(number)

    def _deps_done(self, number: int) -> bool:
        """Whether all that an op waits for has ended."""
        size, end = self._size, self.end
        at = number % size
        begin = number - at
        for other in self._within[at]:
            if end[begin + other] is None:
                return False
        if begin:
            for other in self._before[at]:
                if end[begin - size + other] is None:
                    return False
        return True

    def step(self) -> bool:
        """On to the next start or end; whether there was one."""
        gap, now, running = self._costs.gap_s, self._now, self._running
        soonest, starter = _NEVER, -1
        for stream, queue in self._queues.items():
            if queue and stream not in running and self._deps_done(queue[0]):
                at = max(self._ready[queue[0]], self._free[stream] + gap, now)
                if at < soonest:
                    soonest, starter = at, stream
        # One op alone runs as it does alone.
        rates = self._rates() if len(running) > 1 else dict.fromkeys(running, 1.0)
        ending, ender = _NEVER, -1
        for stream, (_, left) in running.items():
            at = now + left / rates[stream]
            if at < ending:
                ending, ender = at, stream
        if starter < 0 and ender < 0:
            return False
        then = min(soonest, ending)
        for stream, (number, left) in running.items():
            running[stream] = number, left - (then - now) * rates[stream]
        self._now = then
        if ending <= soonest:
            number, _ = running.pop(ender)
            self.end[number] = self._free[ender] = then
            return True
        number = self._queues[starter].popleft()
        self.start[number] = then
        running[starter] = number, self._alone_s[number % self._size]
        return True

    def _rates(self) -> dict[int, float]:
        """How fast each stream runs, beside what else does."""
        links = {
            stream: self._link[number % self._size] for stream, (number, _) in self._running.items()
        }
        sharing = list(links.values())
        beside = 1.0 / (1.0 + self._slowdown) if any(sharing) else 1.0
        return {
            stream: 1.0 / sharing.count(link) if link else beside for stream, link in links.items()
        }


class _Host:
    """Issues the ops of all rounds; waits where one asks for a result, or a queue is full."""

    def __init__(self, calls: Sequence[StreamCall], costs: HostCosts, device: _Device) -> None:
        self._calls, self._costs, self._device = calls, costs, device
        self._seconds = host_seconds_of([call.call for call in calls], costs)
        # When each op was begun, issued, and the host went on.
        self.rows: list[tuple[float, float, float]] = []
        self._now = 0.0
        self._launched: dict[int, list[int]] = {call.stream: [] for call in calls}

    @property
    def done(self) -> bool:
        """Whether all has been issued."""
        return len(self.rows) == len(self._calls) * _ROUNDS

    def run(self) -> None:
        """As far as it gets without the device."""
        calls, rows, size = self._calls, self.rows, len(self._calls)
        for number in range(len(rows), size * _ROUNDS):
            op = calls[number % size]
            asked = op.call
            launched = self._launched[op.stream]
            now = self._now
            if asked.kernels and len(launched) >= QUEUE_LENGTH:
                end = self._device.end[launched[-QUEUE_LENGTH]]
                if end is None:
                    return
                now = max(now, end)
            issued = told = now + self._seconds[number % size]
            if asked.synchronises:
                # What it waits for is launched once.
                if asked.kernels and (not launched or launched[-1] != number):
                    launched.append(number)
                    self._device.launch(number, issued)
                end = self._device.end[launched[-1]] if launched else 0.0
                if end is None:
                    return
                told = max(issued, end + self._costs.synchronise_s)
            elif asked.kernels:
                launched.append(number)
                self._device.launch(number, issued)
            rows.append((now, issued, told))
            self._now = told

"""Which op of a step waits for which, where its ops run in several streams of a device.

Streams run their ops in order; an event is what a stream had been given when it was recorded. Here
both are positions of ops in the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gobrrr.timeline.graph import StepOp

# All that has to have ended: positions of ops, or ``step_before`` of a stream.
Event = frozenset[int]
NOTHING: Event = frozenset()


def step_before(stream: int) -> int:
    """What stands for all that a stream was given in the step before, among positions of ops.

    Its own inverse.
    """
    return -1 - stream


@dataclass
class StreamOrder:
    """Ops as they are issued, each with the positions of those that it waits for.

    Collectives of one group wait for each other, whatever their streams: a communicator of NCCL
    runs one at a time, in the order in which they were issued
    (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/streams.html).
    """

    ops: list[StepOp] = field(default_factory=list)
    _last: dict[int, int] = field(default_factory=dict)
    _waits: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _of_group: dict[str, int] = field(default_factory=dict)

    def put(self, op: StepOp, stream: int | None = None, after: Iterable[int] = ()) -> int:
        """Issue an op, in its own stream or another; returns its position.

        ``after``: what it waits for beside the stream.
        """
        stream = op.stream if stream is None else stream
        waits = self._waits.pop(stream, set()) | set(after)
        if op.collective is not None:
            former = self._of_group.get(op.collective.group)
            if former is not None:
                waits.add(former)
            self._of_group[op.collective.group] = len(self.ops)
        # What the stream itself has run before is waited for anyway.
        needed = sorted(at for at in waits if self._stream_of(at) != stream)
        as_it_is = op.stream == stream and op.after == tuple(needed)
        self.ops.append(op if as_it_is else replace(op, stream=stream, after=tuple(needed)))
        self._last[stream] = len(self.ops) - 1
        return len(self.ops) - 1

    def _stream_of(self, at: int) -> int:
        return self.ops[at].stream if at >= 0 else step_before(at)

    def event(self, stream: int = 0) -> Event:
        """All that the stream has been given so far, what it was told to wait for included.

        Before its first op of the step that is what it was given in the step before.
        """
        last = self._last.get(stream, step_before(stream))
        return frozenset(self._waits.get(stream, ())) | {last}

    def wait(self, stream: int, event: Event) -> None:
        """What the stream is given from here on starts after the event."""
        self._waits[stream] |= event

    def wait_stream(self, stream: int, other: int) -> None:
        """The same, with all that the other stream has been given so far."""
        self.wait(stream, self.event(other))

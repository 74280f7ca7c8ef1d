"""How a device and its profiler misbehave: each setting is a fault that real ones have had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Profiling:
    """Nanoseconds of the host that recording takes, by where: what a profiler adds.

    Attributes:
        before: an op's span, after it, or within it: ``before``, ``after``, ``inside``.
        call: within a call of the runtime; ``around``: behind it.
    """

    before: int = 0
    inside: int = 0
    after: int = 0
    call: int = 0
    around: int = 0

    def __bool__(self) -> bool:
        return any((self.before, self.inside, self.after, self.call, self.around))


@dataclass(frozen=True)
class Flips:
    """A clock that is slower by ``factor`` in every other stretch of ``every_ns``."""

    every_ns: int
    factor: float

    def __call__(self, time_ns: int) -> float:
        """The factor at a time."""
        return self.factor if time_ns // self.every_ns % 2 else 1.0


@dataclass(frozen=True)
class Hostility:
    """Faults of device and profiler; by default none. Records are those of kernels and copies.

    Attributes:
        profiling: what recording costs the host, beside ``HostCosts.event``.
        gap_ns: from the end of a kernel to the start of the next that was queued behind it.
        node_gap_ns: the same between the nodes of a graph.
        clock: factor on the length of a kernel that begins at a time of the device.
        stretch: factor on the length of kernels while they are profiled.
        residue: factor on the host's time once a profile has ended.
        lost_every: of so many records one is not written; 0 for none, as the three that follow.
        late_every: one is moved by ``late_ns`` (before its launch if negative).
        zeroed_every: one has the time 0.
        empty_every: one has the length 0.
        zeroed_first: so many records have the time 0 as a profile begins.
        stall_ns: of the host in the launch call ``stalled_call`` of a profile.
        stall_told: the profiler writes the stall as overhead of its own.
        stalled_step: the profiled step in which the host is held for ``held_ns``.
        offset_ns: of the device's clock against the host's; ``drift`` is the share it gains.
        device: where the program runs; the current device is 0, whose events do not wait for it.
    """

    profiling: Profiling = Profiling()
    gap_ns: int = 0
    node_gap_ns: int = 0
    clock: Callable[[int], float] | None = None
    stretch: float = 1.0
    residue: float = 1.0
    lost_every: int = 0
    late_every: int = 0
    late_ns: int = 0
    zeroed_every: int = 0
    empty_every: int = 0
    zeroed_first: int = 0
    stall_ns: int = 0
    stalled_call: int = 50
    stall_told: bool = True
    stalled_step: int | None = None
    held_ns: int = 2_000_000
    offset_ns: int = 0
    drift: float = 0.0
    device: int = 0

    def length_ns(self, ns: int, begins_ns: int, profiled: bool) -> int:
        """How long a kernel runs that takes ``ns`` at the nominal clock."""
        factor = self.clock(begins_ns) if self.clock else 1.0
        return round(ns * factor * (self.stretch if profiled else 1.0))

    def record(self, number: int, begins_ns: int, ns: int) -> tuple[float, float] | None:
        """Start and length in us that the record of a profile's so manieth kernel has, if any."""

        def hit(every: int) -> bool:
            return bool(every) and number % every == every - 1

        if hit(self.lost_every):
            return None
        start_ns = begins_ns * (1 + self.drift) + self.offset_ns
        start_ns += self.late_ns if hit(self.late_every) else 0
        zeroed = hit(self.zeroed_every) or number < self.zeroed_first
        length_ns = 0.0 if hit(self.empty_every) else ns * (1 + self.drift)
        return 0.0 if zeroed else start_ns / 1000, length_ns / 1000


HONEST = Hostility()

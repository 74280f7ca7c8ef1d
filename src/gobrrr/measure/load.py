"""What else ran while something was measured: noise, and more threads than processors."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gobrrr.timeline.quantities import percent

# Shares above this are worth a sentence: the spread of an idle machine stays below it.
TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class LoadReading:
    """Counters at one moment, in nanoseconds since arbitrary starts.

    Attributes:
        wall_ns: the clock.
        cpu_ns: processor time this process has used, all threads together.
        waiting_ns: time its living threads were ready to run and had no processor; ``None``
            where the system does not count it.
        busy_ns: time the processors it may use were not idle, whoever used them, with what a
            hypervisor took; ``None`` where the system does not count it.
    """

    wall_ns: int
    cpu_ns: int
    waiting_ns: int | None
    busy_ns: int | None


class LoadCounters(Protocol):
    """Anything that reads the counters."""

    processors: int

    def read(self) -> LoadReading:
        """The counters now."""
        ...


@dataclass(frozen=True, slots=True)
class Load:
    """What happened between two readings.

    Attributes:
        wall_s: seconds that passed.
        cpu_s: processor seconds this process used.
        waiting_s: seconds its threads were ready but had no processor; ``None`` if unknown.
        others_s: processor seconds that went elsewhere; ``None`` if unknown.
        processors: how many it may use.
    """

    wall_s: float
    cpu_s: float
    waiting_s: float | None
    others_s: float | None
    processors: int

    @property
    def waiting_share(self) -> float | None:
        """Of the time that its threads wanted a processor, the part they had none."""
        if self.waiting_s is None:
            return None
        wanted = self.cpu_s + self.waiting_s
        return self.waiting_s / wanted if wanted > 0 else 0.0

    @property
    def others_share(self) -> float | None:
        """Of all processor time there was, the part that went elsewhere."""
        if self.others_s is None:
            return None
        available = self.wall_s * self.processors
        return self.others_s / available if available > 0 else 0.0

    def disturbance(self, tolerance: float = TOLERANCE) -> str | None:
        """One sentence on what disturbed the measurement; ``None`` if nothing is known to have."""
        waiting, others = self.waiting_share, self.others_share
        if others is not None and others > tolerance:
            return (
                f"other programs took {percent(others)} of the processor time while this was "
                "measured"
            )
        if waiting is not None and waiting > tolerance:
            return (
                f"threads waited for a processor {percent(waiting)} of the time they wanted one: "
                f"more of them than the {self.processors} there are"
            )
        return None


@dataclass(slots=True)
class LoadWatch:
    """Reads the counters when made and whenever asked.

    Attributes:
        counters: where they are read; the system's by default.
    """

    counters: LoadCounters = field(default_factory=lambda: SystemLoadCounters())
    _start: LoadReading = field(init=False)

    def __post_init__(self) -> None:
        self._start = self.counters.read()

    def so_far(self) -> Load:
        """The load since this watch was made."""
        return load_between(self._start, self.counters.read(), self.counters.processors)


def load_between(start: LoadReading, end: LoadReading, processors: int) -> Load:
    """Difference of two readings.

    Differences below zero are zero: a thread that ended takes its waiting time with it, and the
    system counts busy time in ticks of about 10 ms.
    """
    cpu_ns = end.cpu_ns - start.cpu_ns
    waiting_s = others_s = None
    if start.waiting_ns is not None and end.waiting_ns is not None:
        waiting_s = max(end.waiting_ns - start.waiting_ns, 0) * 1e-9
    if start.busy_ns is not None and end.busy_ns is not None:
        others_s = max(end.busy_ns - start.busy_ns - cpu_ns, 0) * 1e-9
    return Load(
        wall_s=(end.wall_ns - start.wall_ns) * 1e-9,
        cpu_s=cpu_ns * 1e-9,
        waiting_s=waiting_s,
        others_s=others_s,
        processors=processors,
    )


class SystemLoadCounters:
    """The counters of Linux; elsewhere the clock and the process's own time alone."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        self.processors = len(self._cpus) if self._cpus else (os.cpu_count() or 1)

    def read(self) -> LoadReading:
        """The counters now."""
        return LoadReading(
            wall_ns=time.perf_counter_ns(),
            cpu_ns=time.process_time_ns(),
            waiting_ns=self._waiting_ns(),
            busy_ns=self._busy_ns(),
        )

    def _waiting_ns(self) -> int | None:
        # Second field of schedstat: nanoseconds on a run queue (Documentation/scheduler/
        # sched-stats.rst of Linux). One file per thread; a thread may end while they are read.
        total, found = 0, False
        for path in (self._proc / "self" / "task").glob("*/schedstat"):
            try:
                total += int(path.read_text().split()[1])
            except (OSError, IndexError, ValueError):
                continue
            found = True
        return total if found else None

    def _busy_ns(self) -> int | None:
        # proc_stat(5): user nice system idle iowait irq softirq steal, in clock ticks. User
        # time contains guest time already.
        if self._cpus is None:
            return None
        try:
            lines = (self._proc / "stat").read_text().splitlines()
            tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            return None
        wanted = {f"cpu{cpu}" for cpu in self._cpus}
        ticks, found = 0, False
        for line in lines:
            name, *fields = line.split()
            if name in wanted and len(fields) >= 8:
                user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
                ticks += user + nice + system + irq + softirq + steal
                found = True
        return ticks * tick_ns if found else None

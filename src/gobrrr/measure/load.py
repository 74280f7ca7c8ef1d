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
# A program that had no processor for a larger share of the time that it wanted one, because others
# or a hypervisor had it, was taken apart by the system: where its time went says nothing of it.
TAKEN_AWAY = 0.75
# Where it waited for more than this share, what a line was seen at is where it was interrupted.
MOSTLY_WAITED = 0.5
# What is then said of the times, in every notice that says why.
TOO_LONG = "times are too long by an unknown amount"
# Threads that wait for one another spin while one of them has no processor, which counts as time
# that they used: beside others that take this share, what tells is how long some thread waited.
OTHERS_HELD = 0.2
# Linux counts what a hypervisor takes in ticks of 10 ms: of fewer than ten no share is known.
LEAST_STOLEN_S = 0.1


@dataclass(frozen=True, slots=True)
class LoadReading:
    """Counters at one moment, in nanoseconds since arbitrary starts.

    Attributes:
        wall_ns: the clock.
        cpu_ns: processor time this process has used, all threads together.
        family_ns: of the processes that it has started (loader workers), and of the other ranks
            of its job.
        stolen_ns: of ``busy_ns``, what a hypervisor took.
        waiting_ns: time its threads were ready to run and had no processor, as far as each was
            seen; ``None`` where the system does not count it.
        busy_ns: time the processors it may use were not idle, whoever used them, with what a
            hypervisor took; ``None`` where the system does not count it.
    """

    wall_ns: int
    cpu_ns: int
    waiting_ns: int | None
    busy_ns: int | None
    family_ns: int = 0
    stolen_ns: int = 0


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
        others_s: processor seconds that went elsewhere, to no process that this one has started;
            ``None`` if unknown.
        processors: how many it may use.
        stolen_s: of ``others_s``, what a hypervisor took while its processors had work, as far as
            that is known. A thread's clock does not count it, and on a run queue it is not then
            either (``update_rq_clock_task`` in kernel/sched/core.c of Linux).
        busy_s: processor seconds in which there was work, with the stolen ones.
    """

    wall_s: float
    cpu_s: float
    waiting_s: float | None
    others_s: float | None
    processors: int
    stolen_s: float = 0.0
    busy_s: float = 0.0

    @property
    def stolen_share(self) -> float:
        """Of the time in which its processors had work, the part a hypervisor took."""
        return self.stolen_s / self.busy_s if self.busy_s > 0 else 0.0

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
        causes = [self._stolen(tolerance), self._waited(tolerance)]
        return "; ".join(cause for cause in causes if cause) or None

    def _stolen(self, tolerance: float) -> str | None:
        if self.stolen_share <= tolerance:
            return None
        return (
            f"a hypervisor took the processors away for {percent(self.stolen_share)} of the time "
            "in which they had work"
        )

    def _waited(self, tolerance: float) -> str | None:
        waiting = self.waiting_share
        # What others did on processors that nobody here wanted did no harm.
        if waiting is not None and waiting <= tolerance:
            return None
        others = self.others_share
        if others is not None and self.wall_s > 0:
            others -= self.stolen_s / (self.wall_s * self.processors)
        if others is not None and others > tolerance:
            waited = ""
            if waiting is not None:
                waited = f"; its threads spent {percent(waiting)} of their runnable time waiting"
            return (
                f"other programs took {percent(others)} of the processor time while this was "
                f"measured{waited}"
            )
        if waiting is not None:
            return (
                f"threads spent {percent(waiting)} of their runnable time waiting for a "
                f"processor: there are more of them than the {self.processors} processors"
            )
        return None

    @property
    def severity(self) -> float:
        """What two loads are compared by: the larger of the shares waited and stolen.

        Where waiting is not counted, what others took stands for it.
        """
        waited = self.others_share if self.waiting_share is None else self.waiting_share
        return max(waited or 0.0, self.stolen_share)

    @property
    def taken_away(self) -> bool:
        """Whether the machine was so busy that the times say nothing of the program.

        What was waited is of the time that a hypervisor left: either leaves its part of the rest.
        """
        stolen = self.stolen_share if self.stolen_s >= LEAST_STOLEN_S else 0.0
        had = (1.0 - (self.waiting_share or 0.0)) * (1.0 - stolen)
        if had < 1.0 - TAKEN_AWAY:
            return True
        if not self.waiting_s or not self.others_s or (self.others_share or 0.0) <= OTHERS_HELD:
            return False
        return min(self.waiting_s, self.others_s) / self.wall_s > TAKEN_AWAY


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

    Differences below zero are zero: the system counts busy time in ticks of about 10 ms.
    """
    cpu_ns = end.cpu_ns - start.cpu_ns
    waiting_s = others_s = None
    stolen_s = busy_s = 0.0
    if start.waiting_ns is not None and end.waiting_ns is not None:
        waiting_s = max(end.waiting_ns - start.waiting_ns, 0) * 1e-9
    if start.busy_ns is not None and end.busy_ns is not None:
        family_ns = max(end.family_ns - start.family_ns, 0)
        busy_s = max(end.busy_ns - start.busy_ns, 0) * 1e-9
        others_s = max(end.busy_ns - start.busy_ns - cpu_ns - family_ns, 0) * 1e-9
        stolen_s = max(end.stolen_ns - start.stolen_ns, 0) * 1e-9
    return Load(
        wall_s=(end.wall_ns - start.wall_ns) * 1e-9,
        cpu_s=cpu_ns * 1e-9,
        waiting_s=waiting_s,
        others_s=others_s,
        processors=processors,
        stolen_s=stolen_s,
        busy_s=busy_s,
    )


def usable_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class SystemLoadCounters:
    """The counters of Linux; elsewhere the clock and the process's own time alone."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        self.processors = usable_processors()
        # What each thread had waited when it was last seen; those that ended stay in the sum.
        self._waited_ns: dict[str, int] = {}
        self._ended_ns = 0

    def read(self) -> LoadReading:
        """The counters now."""
        busy_ns, stolen_ns = self._busy_and_stolen_ns()
        return LoadReading(
            wall_ns=time.perf_counter_ns(),
            cpu_ns=time.process_time_ns(),
            waiting_ns=self._waiting_ns(),
            busy_ns=busy_ns,
            family_ns=family_ns(self._proc),
            stolen_ns=stolen_ns,
        )

    def _waiting_ns(self) -> int | None:
        # Second field of schedstat: nanoseconds on a run queue (Documentation/scheduler/
        # sched-stats.rst of Linux). One file per thread; a thread may end while they are read.
        for path in (self._proc / "self" / "task").glob("*/schedstat"):
            try:
                waited_ns = int(path.read_text().split()[1])
            except (OSError, IndexError, ValueError):
                continue
            thread = path.parent.name
            before_ns = self._waited_ns.get(thread, 0)
            if waited_ns < before_ns:
                # The number of a thread that ended was given to a new one.
                self._ended_ns += before_ns
            self._waited_ns[thread] = waited_ns
        return sum(self._waited_ns.values()) + self._ended_ns if self._waited_ns else None

    def _busy_and_stolen_ns(self) -> tuple[int | None, int]:
        # proc_stat(5): user nice system idle iowait irq softirq steal, in clock ticks. User
        # time contains guest time already.
        if self._cpus is None:
            return None, 0
        try:
            lines = (self._proc / "stat").read_text().splitlines()
            tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            return None, 0
        wanted = {f"cpu{cpu}" for cpu in self._cpus}
        ticks, stolen, found = 0, 0, False
        for line in lines:
            name, *fields = line.split()
            if name in wanted and len(fields) >= 8:
                user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
                ticks += user + nice + system + irq + softirq + steal
                stolen += steal
                found = True
        return ticks * tick_ns if found else None, stolen * tick_ns


# Nanoseconds of processes that nobody has waited for (``keep_family_of``).
_kept_ns: list[int] = []


def family_ns(proc: Path = Path("/proc")) -> int:
    """Processor time of all processes that this one has started, and they; 0 where it is untold.

    Under a launcher (``RANK`` is set) the other ranks, its other children, count too.
    """
    found = _all_processes(proc)
    if found is None:
        return 0
    root = os.getppid() if "RANK" in os.environ else os.getpid()
    total = _used_below(root, found)
    if os.getpid() in found.used_ns:
        # Children that have ended are in this process's own account.
        times = os.times()
        total += round((times.children_user + times.children_system) * 1e9)
    return total + sum(_kept_ns)


def keep_family_of(child: int, proc: Path = Path("/proc")) -> None:
    """Keep counting what the child's own processes have used, before all of them are killed.

    A process that is killed waits for none of its own, and the system forgets what those took.
    """
    found = _all_processes(proc)
    if found is not None:
        _kept_ns.append(_used_below(child, found))


@dataclass(frozen=True, slots=True)
class _Processes:
    """By number: what each has used, with those that it waited for, and whom it has started."""

    used_ns: dict[int, int]
    children: dict[int, list[int]]


def _all_processes(proc: Path) -> _Processes | None:
    used: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    try:
        tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        paths = [path for path in proc.iterdir() if path.name.isdecimal()]
    except (OSError, ValueError, AttributeError):
        return None
    for path in paths:
        try:
            # proc_pid_stat(5): after the name in parentheses state, ppid, ...; 14 to 17 are utime,
            # stime and those of children that were waited for.
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            used[int(path.name)] = sum(map(int, fields[11:15])) * tick_ns
            children.setdefault(int(fields[1]), []).append(int(path.name))
        except (OSError, ValueError, IndexError):
            continue
    return _Processes(used, children)


def _used_below(root: int, found: _Processes) -> int:
    """Of all processes under this one, this process excepted."""
    total, waiting = 0, list(found.children.get(root, ()))
    while waiting:
        process = waiting.pop()
        waiting += found.children.get(process, ())
        if process != os.getpid():
            total += found.used_ns[process]
    return total

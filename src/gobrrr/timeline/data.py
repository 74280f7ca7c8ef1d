"""A recorded program: host spans and device kernels on one clock, as columns of integers.

Columns (numpy arrays) rather than objects, because a trace holds millions of events. All times are
integer nanoseconds on one clock; indices are -1 where there is nothing to point to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.timeline.intervals import IntervalSet, union
from gobrrr.timeline.nesting import parents
from gobrrr.timeline.ops import OpCall

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]


def _empty(dtype: Any) -> NDArray[Any]:
    return np.empty(0, dtype=dtype)


def names_that(names: Sequence[str], say: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Of a table of names those for which something holds; index -1, no name, is none of them."""
    return np.array([*map(say, names), False], bool)


# ``Timeline.steps_how`` where nothing told one step from another.
WHOLE_TRACE = "the whole trace"


class HostKind(IntEnum):
    """What a host span is."""

    OP = 0  # a framework operator (cpu_op)
    LAUNCH = 1  # a runtime call that puts work on a stream (kernel, graph, async copy, memset)
    SYNCHRONISE = (
        2  # a runtime call that waits for the device, a blocking copy to the host included
    )
    ALLOCATE = 3  # device malloc/free, host register/pin
    RUNTIME = 4  # any other runtime or driver call
    PYTHON = 5  # a Python frame
    ANNOTATION = 6  # record_function ranges, ProfilerStep, optimizer and data-loader ranges
    GARBAGE_COLLECTION = 7
    COMPILATION = 8
    DATA_LOADING = 9
    NETWORK = 10  # a call that waits for other ranks


class KernelKind(IntEnum):
    """What a stretch of device work is."""

    KERNEL = 0
    COLLECTIVE = 1
    COPY = 2  # between a device and the host, or another device
    MEMSET = 3
    DEVICE_COPY = 4  # within one device's memory: it moves bytes as a kernel does


class Phase(IntEnum):
    """The part of a step that a span belongs to."""

    OTHER = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    LOADING = 4


PHASE_NAMES = {
    Phase.OTHER: "other",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.OPTIMIZER: "optimizer",
    Phase.LOADING: "loading",
}


@dataclass(frozen=True, slots=True)
class HostSpans:
    """Columns of host spans, sorted by start (ties: the longer first, so parents come first).

    ``name``, ``module`` and ``source`` index ``Timeline.names``; ``call`` indexes
    ``Timeline.calls``; ``sequence`` is autograd's number (-1: none).
    """

    start_ns: Int64
    end_ns: Int64
    thread: Int32
    kind: UInt8
    name: Int32
    call: Int32
    module: Int32
    source: Int32
    phase: UInt8
    sequence: Int64
    # Found when first asked for; a reader has it before it has the spans.
    _parent: Int64 | None = field(default=None, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def parent(self) -> Int64:
        """The row of the span around each (-1: none): ``nesting.parents``."""
        if self._parent is None:
            self.keep_parent(parents(self.start_ns, self.end_ns, self.thread))
        assert self._parent is not None
        return self._parent

    def keep_parent(self, parent: Int64) -> None:
        """Spares finding ``parent``: it is that of these spans."""
        object.__setattr__(self, "_parent", parent)

    def take(self, index: NDArray[Any]) -> HostSpans:
        """The rows of ``index`` (a boolean mask or positions)."""
        return HostSpans(*(getattr(self, f.name)[index] for f in fields(self) if f.init))


@dataclass(frozen=True, slots=True)
class Kernels:
    """Columns of device work, sorted by start.

    ``op`` and ``launch`` index ``Timeline.host`` (-1: not linked); ``bytes_moved`` is a copy's or
    collective's size where recorded (-1: unknown); ``collective`` indexes ``Timeline.collectives``
    (-1: none, or nothing recorded of it). ``twin`` is the row of the later kernel whose work this
    one has, where its own launch was not recorded (-1: none). ``call_number`` counts the calls of
    a collective's process group, the same on all its ranks (-1, or no column: not recorded).
    """

    start_ns: Int64
    end_ns: Int64
    stream: Int32
    kind: UInt8
    name: Int32
    op: Int64
    launch: Int64
    bytes_moved: Int64
    collective: Int64
    twin: Int64
    call_number: Int64 | None = None

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, index: NDArray[Any]) -> Kernels:
        """The rows of ``index`` (a boolean mask or positions); a twin left out is none."""
        given: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        columns: dict[str, Any] = {n: c if c is None else c[index] for n, c in given.items()}
        place = np.full(len(self) + 1, -1, np.int64)
        place[np.arange(len(self))[index]] = np.arange(len(columns["twin"]))
        columns["twin"] = place[columns["twin"]]
        return Kernels(**columns)


@dataclass(frozen=True, slots=True)
class Collective:
    """What was recorded of a collective; ``None`` or ``""`` where it was not.

    Attributes:
        name: ``"allreduce"``, ``"nccl:all_reduce"``.
        bytes_in, bytes_out: of this rank.
        dtype: of the elements.
        group_size: how many ranks take part.
        group: which ranks, by the name of their group.
    """

    name: str
    bytes_in: int | None = None
    bytes_out: int | None = None
    dtype: str = ""
    group_size: int | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """What ran the kernels (for a CPU timeline: the processor itself).

    Attributes:
        name: as the driver gives it, ``"NVIDIA H100 80GB HBM3"``; ``""`` where not recorded.
        kind: ``"cuda"``, ``"hip"``, ``"cpu"``, ``"xpu"``, ``"mps"``.
        index: position on the machine.
        memory_bytes: ``None`` if unknown.
        multiprocessors: SMs or compute units; ``None`` if unknown.
    """

    name: str
    kind: str
    index: int = 0
    memory_bytes: int | None = None
    multiprocessors: int | None = None

    @property
    def label(self) -> str:
        """What tells it from others of its make: ``NVIDIA H100 80GB HBM3 1``."""
        return f"{self.name or 'device'} {self.index}"


@dataclass(frozen=True, slots=True)
class OtherDevice:
    """The lane of a device that the same process used beside the timeline's own.

    Columns of its work, sorted by start; ``name`` indexes ``Timeline.names``.
    """

    device: Device
    start_ns: Int64
    end_ns: Int64
    name: Int32

    @property
    def busy_ns(self) -> int:
        """Of all its work together, on whatever streams."""
        return int((self.end_ns - self.start_ns).sum())


# Of ``Stalls`` the one that is the program's own: code is loaded when it first runs.
LAZY_LOADING = "Lazy Function Loading"


@dataclass(frozen=True, slots=True)
class Stalls:
    """Stretches in which the host was kept from its work, as the profiler itself has noted them.

    Columns sorted by start; ``name`` indexes ``Timeline.names``: "Activity Buffer Request",
    "Buffer Flush", "Command Buffer Full", "Instrumentation", or ``LAZY_LOADING``. On which thread
    is not recorded; they lie inside calls of the runtime.
    """

    start_ns: Int64
    end_ns: Int64
    name: Int32

    def __len__(self) -> int:
        return len(self.start_ns)


def no_stalls() -> Stalls:
    """Zero rows."""
    return Stalls(_empty(np.int64), _empty(np.int64), _empty(np.int32))


@dataclass(frozen=True, slots=True)
class Records:
    """How many records of a device there are, and how many of them cannot be.

    Attributes:
        launches: calls that launch kernels or graphs; ``without_record`` of them have none.
        kernels: records of the device, copies and all; ``before_launch``: they start before their
            call began; ``outside``: at a time that is not the recording's; ``without_launch``: of
            kernels, whose call is not there; ``empty``: of kernels that take no time;
            ``disordered``: of one stream, they overlap or leave the order of their launches.
        lost_nodes: kernels of graphs that other replays have.
        ahead_ns: what the device's clock was ahead of the host's, and its records were put back by.
        doubtful_ns: when the host launched, or the device began, what has no record, was left out
            or was cut short.
    """

    launches: int
    kernels: int
    without_record: int
    without_launch: int
    before_launch: int
    outside: int
    empty: int
    disordered: int = 0
    lost_nodes: int = 0
    ahead_ns: int = 0
    doubtful_ns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything recorded of some steps of one process on one device.

    ``steps`` is an (n, 2) array of windows that tile time; ``step_names`` has a name for each, and
    ``steps_how`` says how they were found. ``step_thread`` is the thread (a value of
    ``HostSpans.thread``) that runs the user's loop. ``notices`` are sentences for the user about
    what was missing or odd. ``source`` names the file that was read, ``events`` are its events,
    and ``base_ns`` is the wall clock at 0 (``None``: unknown). ``others`` are the process's other
    devices, the busiest first: what ran there is no part of the steps. ``stalls`` are no spans of
    ``host``: they cross its nesting. ``records`` counts the faults of the whole recording, of which
    the steps may be a part (``None``: of no recording).
    """

    names: tuple[str, ...]
    calls: tuple[OpCall, ...]
    host: HostSpans
    kernels: Kernels
    steps: Int64
    step_names: tuple[str, ...]
    device: Device
    step_thread: int = 0
    rank: int | None = None
    world_size: int | None = None
    torch_version: str = ""
    notices: tuple[str, ...] = ()
    collectives: tuple[Collective, ...] = ()
    steps_how: str = ""
    source: str = ""
    events: int = 0
    base_ns: int | None = None
    others: tuple[OtherDevice, ...] = ()
    stalls: Stalls = field(default_factory=no_stalls)
    records: Records | None = None

    @property
    def profiler_stalls(self) -> IntervalSet:
        """The time that the profiler took of the host beside its cost of each event."""
        own = names_that(self.names, lambda name: name != LAZY_LOADING)[self.stalls.name]
        return union(self.stalls.start_ns[own], self.stalls.end_ns[own])

    @property
    def step_lengths_ns(self) -> Int64:
        """Of each step's window."""
        lengths: Int64 = self.steps[:, 1] - self.steps[:, 0]
        return lengths

    @property
    def median_step(self) -> int:
        """The step of median length, by its row in ``steps``: the one that stands for all."""
        return int(np.argsort(self.step_lengths_ns, kind="stable")[len(self.steps) // 2])


def no_spans() -> HostSpans:
    """Zero rows."""
    i64, i32, u8 = _empty(np.int64), _empty(np.int32), _empty(np.uint8)
    return HostSpans(i64, i64, i32, u8, i32, i32, i32, i32, u8, i64)


def no_kernels() -> Kernels:
    """Zero rows."""
    i64, i32, u8 = _empty(np.int64), _empty(np.int32), _empty(np.uint8)
    return Kernels(i64, i64, i32, u8, i32, i64, i64, i64, i64, i64)

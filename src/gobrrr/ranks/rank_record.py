"""What one rank of a live job tells the others of its steps: plain data, a few kilobytes.

Times are on a clock that all processes of a host share, in integer nanoseconds: the machine's
monotonic one, or on a device the wall clock, which its profiler writes.
"""

from __future__ import annotations

import msgspec
import numpy as np

from gobrrr.attribution.collectives import Exposure
from gobrrr.attribution.cpu.attribute import CpuAttribution
from gobrrr.attribution.cpu.network import exposure_of, slept_for, waits_of
from gobrrr.attribution.device.attribute import DeviceAttribution
from gobrrr.attribution.device.attributed import exposure_of_device
from gobrrr.attribution.lane import LEAF_OF_OWNER, NETWORK
from gobrrr.attribution.leaves import COLLECTIVE, LEAVES
from gobrrr.live.profiles.cpu_timeline import CpuCapture
from gobrrr.ranks.rank_spans import (
    phase_of_kernels,
    stretches_of_device,
    stretches_of_lane,
)
from gobrrr.timeline import intervals
from gobrrr.timeline.data import (
    PHASE_NAMES,
    Collective,
    Device,
    Int64,
    KernelKind,
    Kernels,
    Phase,
    Timeline,
    no_spans,
)
from gobrrr.timeline.intervals import Pieces

# Who asked for a collective (its phase and module), where that is not known.
_NOBODY = (PHASE_NAMES[Phase.OTHER], "")


class Call(msgspec.Struct):
    """One collective: when it began and ended, which (of ``RankRecord.collectives``), for whom.

    ``exposed_ns`` of it had the rank do nothing else: in ``waits``, as (start, end). ``number`` is
    its own in its group; -1: not recorded.
    """

    start_ns: int
    end_ns: int
    which: int
    phase: str
    module: str
    exposed_ns: float
    duration_ns: float
    waits: list[tuple[int, int]]
    number: int = -1


class RankRecord(msgspec.Struct):
    """The collectives of one rank, and what it did beside them.

    ``steps`` are the windows of its profiled steps; ``own_ns`` how long it was busy in each,
    neither waiting for other ranks nor for a processor that something else had, and ``queued_ns``
    how long it waited for a processor (empty on a device). ``host`` tells whose clock it is.
    ``diagnosis`` is its own, as JSON, or empty with the ``problem`` why there is none.
    ``joined_s``: when it came to where the ranks first meet, in seconds of the same clock,
    without what gobrrr made it wait for and its waits for a processor. ``spans`` are what its host
    did, (name, start, end, thread), where a trace of the job was asked for. ``parts`` are the parts
    of each step, in ns: by leaf, and kernels by phase (``"kernels|forward"``), without its
    communication. ``communication`` is how much of that the rows of its diagnosis hold, in ns per
    step by phase and module (``"backward|net.2"``; empty on a processor, where they hold none).
    ``stretches`` are when it worked on which phase of a step, (phase, start, end). ``step_names``
    tell which steps of others are the same; empty: those of the same number.

    Of its timed steps, which nothing is attached to: ``ran_ns`` is the processor time of each one's
    thread, ``paused_ns`` that of the garbage collector (both empty on a device, whose host
    runs ahead). ``alone``: why it did not take the others' steps; empty if it did. ``ended``: how
    its script failed before all was measured; empty if it did not. ``threads``: how many compute on
    a processor; ``None``: not known.
    """

    rank: int
    host: str
    steps: list[tuple[int, int]] = []
    own_ns: list[float] = []
    collectives: list[tuple[str, int | None, str, int | None, str | None]] = []
    calls: list[Call] = []
    diagnosis: str = ""
    problem: str = ""
    joined_s: float | None = None
    spans: list[tuple[str, int, int, int]] = []
    parts: dict[str, list[float]] = {}
    stretches: list[tuple[str, int, int]] = []
    ran_ns: list[int] = []
    paused_ns: list[int] = []
    alone: str = ""
    ended: str = ""
    queued_ns: list[int] = []
    threads: int | None = None
    communication: dict[str, float] = {}
    step_names: list[str] = []


def record_of_lane(capture: CpuCapture, result: CpuAttribution, rank: int, host: str) -> RankRecord:
    """What is to be told of steps on a processor."""
    timeline = capture.timeline
    pieces = slept_for(capture, result)
    waits = waits_of(capture, result)
    places = [(PHASE_NAMES[op.phase], op.module) for op in capture.recorded]
    of_call = [places[i] if i >= 0 else _NOBODY for i in capture.issued_by.tolist()]
    # Windows tile time in the capture; here each is where it was by the clock.
    shift = capture.begin_ns - timeline.steps[:, 0]
    record = _record(
        timeline, exposure_of(capture, result, pieces), pieces, waits, of_call, shift,
        capture.queued_ns, rank, host,
    )  # fmt: skip
    record.queued_ns = capture.queued_ns.tolist()
    record.parts = _parts_of_steps(capture, result)
    record.stretches = stretches_of_lane(capture, result, shift)
    return record


# The part of a step that kernels are, in ``RankRecord.parts``.
KERNELS = "kernels"


def _parts_of_steps(capture: CpuCapture, result: CpuAttribution) -> dict[str, list[float]]:
    """What each profiled step consists of beside its communication."""
    phases = np.array([*(PHASE_NAMES[op.phase] for op in capture.recorded), _NOBODY[0]])
    parts: dict[str, list[float]] = {}
    for pieces in result.steps:
        of_rows = phases[capture.position[pieces.kernel_row]]
        for phase in PHASE_NAMES.values():
            time = float(pieces.kernel_row_ns[of_rows == phase].sum())
            parts.setdefault(f"{KERNELS}|{phase}", []).append(time)
        for owner, leaf in LEAF_OF_OWNER.items():
            if owner != NETWORK:
                parts.setdefault(leaf, []).append(float(pieces.host_ns[owner].sum()))
    return parts


def record_of_device(
    timeline: Timeline, found: DeviceAttribution, rank: int, host: str
) -> RankRecord:
    """What is to be told of steps on a device: of its collectives, and when it worked."""
    kernels, host_spans = timeline.kernels, timeline.host
    rows = np.flatnonzero(kernels.kind == KernelKind.COLLECTIVE)
    place = np.full(len(kernels), -1, np.int64)
    place[rows] = np.arange(len(rows))
    own = place[found.owned.row] >= 0
    pieces = Pieces(place[found.owned.row[own]], found.owned.start[own], found.owned.end[own])
    exposure = exposure_of_device(found)
    of_call = []
    for op in kernels.op[rows].tolist():
        phase = Phase(int(host_spans.phase[op])) if op >= 0 else Phase.OTHER
        module = int(host_spans.module[op]) if op >= 0 else -1
        of_call.append((PHASE_NAMES[phase], timeline.names[module] if module >= 0 else ""))
    alone = Timeline(
        names=timeline.names,
        calls=(),
        host=no_spans(),
        kernels=kernels.take(rows),
        steps=timeline.steps,
        step_names=timeline.step_names,
        device=timeline.device,
        collectives=timeline.collectives,
    )
    record = _record(
        alone,
        Exposure(exposure.owned_ns[rows], exposure.duration_ns[rows]),
        pieces,
        intervals.union(pieces.start, pieces.end),
        of_call,
        np.full(len(timeline.steps), timeline.base_ns or 0, np.int64),
        np.zeros(len(timeline.steps), np.int64),
        rank,
        host,
    )
    record.stretches = stretches_of_device(timeline)
    record.parts = _parts_of_device(timeline, found)
    for call in record.calls:
        who = f"{call.phase}|{call.module}"
        record.communication[who] = record.communication.get(who, 0.0) + call.exposed_ns
    return record


# What stands in the leaves of a device beside its kernels and its communication. What a kernel
# costs at least is a part of it.
_BESIDE_KERNELS = (
    "memory.copies",
    *(leaf for leaf in LEAVES if leaf.startswith("overhead.") and not leaf.endswith("_fixed_cost")),
)


def _parts_of_device(timeline: Timeline, found: DeviceAttribution) -> dict[str, list[float]]:
    """What each step consists of beside its communication."""
    parts = {
        leaf: [window[leaf] for window in found.attribution.windows] for leaf in _BESIDE_KERNELS
    }
    owned, steps = found.owned, len(timeline.steps)
    pieces, window = intervals.clip_to_windows(owned.start, owned.end, timeline.steps)
    row = owned.row[pieces.row]
    phase = phase_of_kernels(timeline)[row]
    computes = found.attribution.kernels.regime[row] < COLLECTIVE
    for which, name in PHASE_NAMES.items():
        of = computes & (phase == which)
        length = (pieces.end - pieces.start)[of].astype(np.float64)
        whole = np.bincount(window[of], weights=length, minlength=steps)
        parts[f"{KERNELS}|{name}"] = [float(ns) for ns in whole]
    return parts


def _record(
    timeline: Timeline,
    exposure: Exposure,
    pieces: Pieces,
    waits: intervals.IntervalSet,
    places: list[tuple[str, str]],
    shift: Int64,
    queued: Int64,
    rank: int,
    host: str,
) -> RankRecord:
    kernels, steps = timeline.kernels, timeline.steps
    window = np.searchsorted(steps[:, 1], kernels.start_ns, side="right")
    window = np.minimum(window, len(steps) - 1)
    slept: list[list[tuple[int, int]]] = [[] for _ in range(len(kernels))]
    for row, start, end in zip(*(column.tolist() for column in pieces)):
        moved = int(shift[window[row]])
        slept[row].append((start + moved, end + moved))
    unknown = len(timeline.collectives)
    calls = [
        Call(
            start_ns=int(kernels.start_ns[i] + shift[window[i]]),
            end_ns=int(kernels.end_ns[i] + shift[window[i]]),
            which=int(kernels.collective[i]) if kernels.collective[i] >= 0 else unknown,
            phase=places[i][0],
            module=places[i][1],
            exposed_ns=float(exposure.owned_ns[i]),
            duration_ns=float(exposure.duration_ns[i]),
            waits=slept[i],
            number=-1 if kernels.call_number is None else int(kernels.call_number[i]),
        )
        for i in range(len(kernels))
    ]
    waiting = intervals.intersect_rows(steps[:, 0], steps[:, 1], waits)
    length = (steps[:, 1] - steps[:, 0] - queued).astype(np.float64)
    length -= np.bincount(waiting.row, weights=waiting.end - waiting.start, minlength=len(steps))
    known = [(c.name, _size(c), c.dtype, c.group_size, c.group) for c in timeline.collectives]
    return RankRecord(
        rank=rank,
        host=host,
        steps=[(int(a), int(b)) for a, b in (steps + shift[:, None]).tolist()],
        own_ns=np.maximum(length, 0.0).tolist(),
        collectives=[*known, ("", None, "", None, None)],
        calls=calls,
    )


def _size(found: Collective) -> int | None:
    known = [size for size in (found.bytes_in, found.bytes_out) if size is not None]
    return max(known, default=None)


def names_of_steps(record: RankRecord) -> tuple[str, ...]:
    """By which its steps are those of other ranks."""
    return tuple(record.step_names or (f"step {i + 1}" for i in range(len(record.steps))))


def timeline_of(record: RankRecord, shift_ns: int = 0) -> Timeline:
    """The collectives of a record as a timeline, ``shift_ns`` earlier: without host and ops."""
    calls = record.calls
    count = len(calls)
    none = np.full(count, -1, np.int64)
    sizes = [record.collectives[call.which][1] for call in calls]
    return Timeline(
        names=("",),
        calls=(),
        host=no_spans(),
        kernels=Kernels(
            start_ns=np.array([call.start_ns - shift_ns for call in calls], np.int64),
            end_ns=np.array([call.end_ns - shift_ns for call in calls], np.int64),
            stream=np.zeros(count, np.int32),
            kind=np.full(count, KernelKind.COLLECTIVE, np.uint8),
            name=np.zeros(count, np.int32),
            op=none,
            launch=none,
            bytes_moved=np.array([-1 if size is None else size for size in sizes], np.int64),
            collective=np.array([call.which for call in calls], np.int64),
            twin=none,
            call_number=np.array([call.number for call in calls], np.int64),
        ),
        steps=np.array(record.steps, np.int64).reshape(-1, 2) - shift_ns,
        step_names=names_of_steps(record),
        device=Device("", ""),
        rank=record.rank,
        collectives=tuple(
            Collective(name, size, None, dtype, group_size, group)
            for name, size, dtype, group_size, group in record.collectives
        ),
    )


def exposure_of_record(record: RankRecord) -> Exposure:
    """How long each of its collectives ran, and was waited for, per step."""
    return Exposure(
        np.array([call.exposed_ns for call in record.calls], np.float64),
        np.array([call.duration_ns for call in record.calls], np.float64),
    )

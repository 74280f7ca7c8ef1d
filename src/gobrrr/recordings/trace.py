"""The traces of ``torch.profiler`` (Chrome's JSON, any version from 1.8 on) -> ``Timeline``."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.recordings import link as trace_link
from gobrrr.recordings.args import parse_call
from gobrrr.recordings.collectives import find_collectives, moved_bytes
from gobrrr.recordings.columns import TraceColumns, read_columns
from gobrrr.recordings.names import STEP_PREFIX, Route, kernel_kind, stays
from gobrrr.recordings.record_repairs import repaired
from gobrrr.recordings.records import check_records, clock_ahead_ns, notices_of
from gobrrr.recordings.repeats import repeated_by
from gobrrr.recordings.steps import find_steps
from gobrrr.timeline.data import (
    Device,
    HostKind,
    HostSpans,
    KernelKind,
    Kernels,
    OtherDevice,
    Phase,
    Stalls,
    Timeline,
)
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.intervals import distinct
from gobrrr.timeline.nesting import parents
from gobrrr.timeline.ops import OpCall
from gobrrr.timeline.quantities import time_text

Int64 = NDArray[np.int64]
# A smaller share of the last mark behind its last kernel is the end of any step.
_WORTH_SAYING = 0.05
# No job has more: a trace that says so is damaged, or not to be trusted.
MOST_RANKS = 1 << 20
NO_STACKS = "No Python stacks in this trace: record with with_stack=True to get source lines."


def recognises(path: Path, head: bytes) -> bool:
    """Always: what is wrong with a file that is no trace is said when it is read."""
    return True


def read(path: str | os.PathLike[str]) -> Timeline:
    """Reads a Chrome trace written by ``torch.profiler``.

    Args:
        path: the file, plain or gzip; an object with ``traceEvents`` or a bare list of events.

    Returns:
        The timeline of the process's busiest device. Times are exact integer nanoseconds on the
        trace's own clock. Metadata, environment and host names in the file are not read.
        ``extra`` holds ``source`` (the file's name), ``events``, ``base_ns`` (what to add for
        wall-clock time, or ``None``), ``steps_how``, ``recorded`` (whether shapes, strides, values
        and stacks were), ``collectives`` (what each distinct collective did), ``collective``
        (int32 per kernel: an index into it, or -1), and ``twin`` (int64 per kernel: for one that
        was launched before the recording, the later kernel that does the same; or -1).

    Raises:
        InputError: the file is missing, damaged, cut short, too large for the memory, or no trace.
    """
    path = Path(path)
    columns = read_columns(path)
    trace_link.sort_columns(columns)
    notices = _ignored_notices(columns)
    correlations = distinct(columns.device.column("correlation"))
    others = _set_others_aside(columns, notices)
    host, device = columns.host, columns.device
    texts = tuple(columns.names)
    kind = trace_link.host_kinds(columns, texts)
    parent = parents(host.column("start"), host.column("end"), host.column("thread"))
    launch = trace_link.match_launches(columns)
    trace_link.mark_blocking_copies(columns, texts, launch, kind)
    op = trace_link.match_ops(columns, launch, parent, kind)
    program = trace_link.locate(columns, columns.names, texts, parent, kind)
    calls, call = _calls(columns, texts, kind)
    names = tuple(columns.names)
    spans = HostSpans(
        host.column("start"), host.column("end"), host.column("thread"), kind, host.column("name"),
        call, program.module, program.source, program.phase, host.column("sequence"),
    )  # fmt: skip
    spans.keep_parent(parent)
    collectives, collective, call_number = find_collectives(columns, texts, parent, launch)
    kernels = Kernels(
        device.column("start"), device.column("end"), _ranked(device.column("stream")),
        _kernel_kinds(columns, texts), device.column("name"), op, launch,
        moved_bytes(device.column("bytes"), collectives, collective), collective,
        np.full(len(op), -1, np.int64), call_number,
    )  # fmt: skip
    ahead_ns = clock_ahead_ns(spans, kernels, names)
    if ahead_ns:
        kernels = replace(
            kernels, start_ns=kernels.start_ns - ahead_ns, end_ns=kernels.end_ns - ahead_ns
        )
    recorded_kernels, mended = kernels, repaired(spans, kernels)
    kernels = mended.kernels
    step_thread = _step_thread(spans, names)
    steps = find_steps(spans, kernels, names, step_thread)
    if len(kernels) + len(spans) and not np.ptp(steps.windows):
        raise InputError(f"{path}: nothing that was recorded takes any time")
    recorded = _recorded(columns, kind, program)
    kernels = replace(kernels, twin=repeated_by(kernels))
    answered = np.isin(host.column("correlation"), correlations)
    answered[launch[launch >= 0]] = True
    records = None
    if len(kernels):
        records = check_records(spans, recorded_kernels, names, answered, steps.windows, ahead_ns)
        records = replace(records, doubtful_ns=(*records.doubtful_ns, *mended.doubtful_ns))
    ran_on = _device_of_kernels(columns, texts)
    notices += [*notices_of(records, ran_on.kind), *mended.notices]
    early = kernels.twin >= 0
    if early.any():
        took = time_text(float((kernels.end_ns - kernels.start_ns)[early].sum()) * 1e-9)
        notices.append(
            f"{early.sum()} kernels were launched before the recording began; they are given the "
            "work of the same kernels, in the same order, in a later step, and count in the step "
            f"in which they ran ({took}), which is longer by that."
        )
    last = int(steps.windows[-1, 1] - steps.windows[-1, 0])
    if steps.cut_ns > _WORTH_SAYING * (last + steps.cut_ns):
        notices.append(
            f"The last step ends with its last kernel: {time_text(steps.cut_ns * 1e-9)} of its "
            "mark after that are in no step."
        )
    for key in ("rank", "world_size"):
        if key in columns.header.distributed and _rank_field(columns, key) is None:
            notices.append(f"Its {key} is no number that a job has, and is left out.")
    return Timeline(
        names=names,
        calls=calls,
        host=spans,
        kernels=kernels,
        steps=steps.windows,
        step_names=steps.names,
        device=ran_on,
        step_thread=step_thread,
        rank=_rank_field(columns, "rank"),
        world_size=_rank_field(columns, "world_size"),
        torch_version=next(iter(columns.header.versions.values()), ""),
        notices=(*notices, *_recording_notices(recorded)),
        collectives=collectives,
        steps_how=steps.how,
        source=path.name,
        events=columns.events,
        base_ns=columns.header.base_ns,
        others=others,
        stalls=_stalls(columns),
        records=records,
    )


def _stalls(columns: TraceColumns) -> Stalls:
    found = columns.stalls
    order = np.argsort(found.column("start"), kind="stable")
    return Stalls(*(found.column(name)[order] for name in ("start", "end", "name")))


def _ignored_notices(columns: TraceColumns) -> list[str]:
    return [f"{count} events were left out: {why}." for why, count in columns.ignored.items()]


def _ranked(stream: Int64) -> NDArray[np.int32]:
    """Streams numbered from 0, those in the file order of their first event."""
    found, inverse = np.unique(stream, return_inverse=True)
    del found
    return inverse.astype(np.int32).reshape(len(stream))


def _set_others_aside(columns: TraceColumns, notices: list[str]) -> tuple[OtherDevice, ...]:
    """A timeline is of one device: the one with the most device time stays in the columns."""
    device = columns.device
    number = device.column("device")
    present = distinct(number).tolist()
    if len(present) < 2:
        return ()
    texts = tuple(columns.names)
    start, end, name = (device.column(key) for key in ("start", "end", "name"))
    lanes = []
    for one in present:
        rows = np.flatnonzero(number == one)
        lane = OtherDevice(_device(columns, one, texts), start[rows], end[rows], name[rows])
        lanes.append((lane, rows))
    lanes.sort(key=lambda item: -item[0].busy_ns)
    (_, kept), *rest = lanes
    others = tuple(lane for lane, _ in rest)
    listed = ", ".join(
        f"{other.device.label} ({time_text(other.busy_ns / 1e9)} of kernels)" for other in others
    )
    notices.append(
        f"{len(present)} devices in one trace: this is the busiest; outside its steps' time are "
        f"{listed}."
    )
    device.take(kept)
    return others


def _calls(
    columns: TraceColumns, texts: tuple[str, ...], kind: NDArray[np.uint8]
) -> tuple[tuple[OpCall, ...], NDArray[np.int32]]:
    """Distinct operator calls, and for each host row the index of its own (-1: no operator)."""
    keys = columns.calls()
    call = columns.host.column("key").copy()
    call[kind != HostKind.OP] = -1
    used = distinct(call[call >= 0])
    table = np.full(len(keys) + 1, -1, np.int32)
    table[used] = np.arange(len(used))
    calls = tuple(parse_call(texts[keys[number][0]], *keys[number][1:]) for number in used.tolist())
    # Row -1 (no operator) reads the table's last entry, -1.
    return calls, table[call]


def _kernel_kinds(columns: TraceColumns, texts: tuple[str, ...]) -> NDArray[np.uint8]:
    route, name = columns.device.column("route"), columns.device.column("name")
    table = np.zeros(len(texts), np.uint8)
    is_kernel = route == Route.KERNEL
    for number in distinct(name[is_kernel]).tolist():
        table[number] = kernel_kind(texts[number])
    kind: NDArray[np.uint8] = table[name]
    is_copy = route == Route.COPY
    for number in distinct(name[is_copy]).tolist():
        table[number] = KernelKind.DEVICE_COPY if stays(texts[number]) else KernelKind.COPY
    kind[is_copy] = table[name[is_copy]]
    kind[route == Route.MEMSET] = KernelKind.MEMSET
    return kind


def _step_thread(host: HostSpans, names: tuple[str, ...]) -> int:
    """The thread of the user's loop: the one with the step marks, else the busiest forward one."""
    is_step = np.array([name.startswith(STEP_PREFIX) for name in names], bool)
    if not len(host):
        return 0
    marked = np.flatnonzero((host.kind == HostKind.ANNOTATION) & is_step[host.name])
    if len(marked):
        return int(host.thread[marked[0]])
    usable = (host.phase != Phase.BACKWARD) & (host.kind != HostKind.PYTHON)
    if not usable.any():
        usable = np.ones(len(host), bool)
    return int(np.bincount(host.thread[usable]).argmax())


_HIP = re.compile(r"^hip[A-Z]")
_SYCL = re.compile(r"^(?:ur|pi|piext)(?:Enqueue|USM|Queue)")


def _device_of_kernels(columns: TraceColumns, texts: tuple[str, ...]) -> Device:
    rows = columns.device.column("device")
    return _device(columns, int(rows[0]), texts) if len(rows) else Device("", "cpu")


def _device(columns: TraceColumns, number: int, texts: tuple[str, ...]) -> Device:
    """A device that ran kernels, from ``deviceProperties`` by its id."""
    identity = list(columns.device_ids)[number]
    try:
        index = int(identity)
    except (TypeError, ValueError, OverflowError):
        index = number
    listed = columns.header.device_properties
    found: dict[str, Any] = next((d for d in listed if d.get("id") == index), {})
    if not found and len({str(d.get("name")) for d in listed}) == 1:
        # ROCm numbers kernels' devices by agent, CPUs included, and lists GPUs from 0.
        found = listed[0]
    name = found.get("name")
    memory, units = found.get("totalGlobalMem"), found.get("numSms")
    is_hip = any(_HIP.match(text) for text in texts) or "AMD" in str(name)
    return Device(
        name=name if isinstance(name, str) else "",
        kind="hip" if is_hip else "xpu" if any(_SYCL.match(text) for text in texts) else "cuda",
        index=index,
        memory_bytes=memory if isinstance(memory, int) else None,
        multiprocessors=units if isinstance(units, int) else None,
    )


def _rank_field(columns: TraceColumns, key: str) -> int | None:
    value = columns.header.distributed.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MOST_RANKS else None


def _recorded(
    columns: TraceColumns, kind: NDArray[np.uint8], program: trace_link.Program
) -> dict[str, bool]:
    """What the operators of this trace carry."""
    keys = columns.calls()
    return {
        "ops": bool((kind == HostKind.OP).any()),
        "shapes": any(key[1] not in (b"", b"[]") for key in keys),
        "strides": any(key[3] not in (b"", b"[]") for key in keys),
        "values": any(key[4] not in (b"", b"[]") for key in keys),
        "stacks": bool((program.source >= 0).any()),
        "modules": bool((program.module >= 0).any()),
    }


def _recording_notices(recorded: dict[str, bool]) -> list[str]:
    """What was not recorded, and how to record it next time."""
    if not recorded["ops"]:
        return [
            "No operators in this trace, so FLOPs and bytes are unknown and kernels are classified "
            "by name: record with activities=[CPU, CUDA] and record_shapes=True."
        ]
    if not recorded["shapes"]:
        return [
            "No shapes in this trace, so FLOPs and bytes are unknown and kernels are classified by "
            "name: record with record_shapes=True."
        ]
    found = []
    if not recorded["strides"]:
        found.append("No strides in this trace (PyTorch before 2.1): tensors assumed contiguous.")
    if not recorded["stacks"]:
        found.append(NO_STACKS)
    return found

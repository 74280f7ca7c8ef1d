"""The drawn step of a diagnosis as a trace for ui.perfetto.dev.

The format: Google's "Trace Event Format", JSON; times in microseconds from the step's start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gobrrr.diagnosis.schema import Diagnosis, TimelineColumns
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.names import printable_json

_HOST, _DEVICE = 0, 1


def trace_of(diagnosis: Diagnosis) -> bytes:
    """JSON: the host's threads as one process, the device's streams as another.

    Raises:
        InputError: the diagnosis holds no step to draw.
    """
    if diagnosis.timeline is None:
        raise InputError("the diagnosis has no timeline, so there is no step to write a trace of")
    events = list(_events(diagnosis.timeline, diagnosis.device.name))
    return printable_json(msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"}))


def _events(drawn: TimelineColumns, device: str) -> Iterator[dict[str, Any]]:
    for process, title in ((_HOST, "host"), (_DEVICE, device)):
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": title}}
    for stream in sorted(set(drawn.kernel_stream)):
        named = {"name": f"stream {stream}"}
        yield {"ph": "M", "pid": _DEVICE, "tid": stream, "name": "thread_name", "args": named}
    for name, thread, start, duration in zip(
        drawn.host_name, drawn.host_thread, drawn.host_start_ns, drawn.host_duration_ns
    ):
        yield _span(drawn.names[name], _HOST, thread, start, duration)
    for name, stream, start, duration, regime in zip(
        drawn.kernel_name,
        drawn.kernel_stream,
        drawn.kernel_start_ns,
        drawn.kernel_duration_ns,
        drawn.kernel_regime,
    ):
        span = _span(drawn.names[name], _DEVICE, stream, start, duration)
        yield span | {"cat": "kernel", "args": {"stream": stream, "bound by": regime}}


def _span(name: str, process: int, thread: int, start_ns: int, length_ns: int) -> dict[str, Any]:
    return {
        "ph": "X", "pid": process, "tid": thread, "name": name, "ts": start_ns / 1e3,
        "dur": length_ns / 1e3,
    }  # fmt: skip

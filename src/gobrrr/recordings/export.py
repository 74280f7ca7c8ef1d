"""A trace written out again: with gobrrr's findings as tracks, or cleaned so that it can be shared.

Both copy event by event in bounded memory, and only what gobrrr reads, by an allow-list: what a
profiler's user put into ``metadata`` (public traces hold access tokens there), environments, host
names and commands stay behind, whoever is given the copy.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from gobrrr.recordings.events import decode_leniently
from gobrrr.recordings.stream import HARMLESS_FIELDS, Chunk, TraceReader
from gobrrr.timeline.data import Int64
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.files import written_atomically
from gobrrr.timeline.names import printable_json

# A process number that no operating system gives out, so that the tracks stand apart.
TRACK_PROCESS = 2**31 - 1

_DISTRIBUTED = frozenset(("backend", "rank", "world_size", "nccl_version"))


@dataclass(frozen=True)
class Track:
    """Spans to add, drawn as one thread: ``labels[i]`` from ``start_ns[i]`` to ``end_ns[i]``.

    Times are on the trace's clock. ``details`` are shown when a span is clicked.
    """

    name: str
    start_ns: Int64
    end_ns: Int64
    labels: Sequence[str]
    details: Sequence[dict[str, Any]] = ()


def write_with_tracks(
    source: str | os.PathLike[str], target: str | os.PathLike[str], tracks: Sequence[Track]
) -> None:
    """Copies a trace and adds tracks, for ui.perfetto.dev; gzip if ``target`` ends in ``.gz``.

    What is copied is what ``write_scrubbed`` copies.

    Raises ``InputError`` if the source cannot be read or the target not written.
    """
    _rewrite(Path(source), Path(target), lambda item: _scrubbed(item, False), _track_events(tracks))


def write_scrubbed(
    source: str | os.PathLike[str], target: str | os.PathLike[str], *, paths: bool = False
) -> None:
    """Copies what gobrrr reads of a trace and nothing else, so that the copy is safe to share.

    Kept are names, times, ids, shapes, sizes and launch figures, by an allow-list. Left behind are
    metadata, environment, host and process names, addresses, files of generated kernels, and
    strings among recorded values. Names of the user's own ranges, functions and kernels stay.

    Args:
        source: the trace.
        target: the copy; gzip if it ends in ``.gz``.
        paths: also cut the folders off file names (library folders stay).

    Raises:
        InputError: the source cannot be read or the target not written.
    """
    _rewrite(Path(source), Path(target), lambda item: _scrubbed(item, paths), iter(()))


def _rewrite(
    source: Path,
    target: Path,
    change: Callable[[Any], Any],
    more: Iterator[dict[str, Any]],
) -> None:
    if target.exists() and source.exists() and target.samefile(source):
        raise InputError(f"{target}: is the trace itself; write to another name")
    try:
        # Not durable: the trace is still there to copy again.
        with written_atomically(target, durable=False) as stream:
            if target.suffix != ".gz":
                _copy(TraceReader(source), stream, change, more)
                return
            # Without a name or a time of its own: equal copies are equal bytes.
            with gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed:
                _copy(TraceReader(source), packed, change, more)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise InputError(f"{target}: cannot be written: {reason}") from None


def _copy(
    reader: TraceReader,
    file: BinaryIO | gzip.GzipFile,
    change: Callable[[Any], Any],
    more: Iterator[dict[str, Any]],
) -> None:
    beside: dict[str, Any] = {}
    separator = b'{"traceEvents": [\n'

    def write(item: Any) -> None:
        nonlocal separator
        if item is not None and not _endless(item):
            file.write(separator + _json(item))
            separator = b",\n"

    for chunk in reader.chunks():
        items, found = _items(chunk)
        beside.update(found)
        for item in items:
            write(change(item))
    for item in more:
        write(item)
    header = reader.header
    beside.update(header.plain)
    beside.setdefault("deviceProperties", header.device_properties)
    beside.setdefault("distributedInfo", header.distributed)
    file.write(separator if separator.startswith(b"{") else b"")
    file.write(b"\n]")
    for key, value in _top_level(beside).items():
        file.write(b",\n" + _json(key) + b": " + _json(value))
    file.write(b"}\n")


def _endless(item: Any) -> bool:
    """Whether a time is NaN or infinite: no JSON, and no event for a reader."""
    times = (item.get("ts"), item.get("dur")) if isinstance(item, dict) else ()
    return any(isinstance(time, float) and not math.isfinite(time) for time in times)


def _json(item: Any) -> bytes:
    try:
        return printable_json(msgspec.json.encode(item))
    except (OverflowError, UnicodeEncodeError):
        # Integers beyond 64 bits and lone surrogates: what was read leniently is written so.
        return json.dumps(item, default=lambda raw: float(bytes(raw))).encode()


class _RawTail(msgspec.Struct):
    traceEvents: list[msgspec.Raw] = []  # noqa: N815 - the key in the file


def _items(chunk: Chunk) -> tuple[list[Any], dict[str, Any]]:
    """Events of a chunk as raw text where it is valid JSON, and what stands beside them."""
    try:
        if chunk.text.startswith(b"["):
            return msgspec.json.decode(chunk.text, type=list[msgspec.Raw]), {}
        raw: list[Any] = list(msgspec.json.decode(chunk.text, type=_RawTail).traceEvents)
        beside = msgspec.json.decode(chunk.text, type=dict[str, msgspec.Raw])
        return raw, {key: _value(beside[key]) for key in beside if key != "traceEvents"}
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    text = chunk.text
    if text.startswith(b"[") and not text.rstrip().endswith(b"]"):
        text = text.rstrip().rstrip(b",") + b"]"
    found = decode_leniently(text)
    if isinstance(found, dict):
        items = found.pop("traceEvents", [])
        return (items if isinstance(items, list) else []), found
    return list(found), {}


def _value(raw: msgspec.Raw) -> Any:
    # Raw text was split off without a look at its strings, which need not be UTF-8.
    return decode_leniently(bytes(raw))


def _top_level(found: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {
        key: value
        for key, value in found.items()
        if key in HARMLESS_FIELDS and isinstance(value, (str, int, float, bool))
    }
    devices = found.get("deviceProperties")
    if isinstance(devices, list) and devices:
        kept["deviceProperties"] = [
            {k: v for k, v in d.items() if k == "name" or isinstance(v, (int, float))}
            for d in devices
            if isinstance(d, dict)
        ]
    distributed = found.get("distributedInfo")
    if isinstance(distributed, dict) and distributed:
        kept["distributedInfo"] = {k: v for k, v in distributed.items() if k in _DISTRIBUTED}
    return kept


def _microseconds(ns: int) -> msgspec.Raw:
    """Exact text: a double would round the clocks of long-running machines."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return msgspec.Raw(f"{sign}{ns // 1000}.{ns % 1000:03d}".encode())


def _track_events(tracks: Sequence[Track]) -> Iterator[dict[str, Any]]:
    base = {"ph": "M", "pid": TRACK_PROCESS, "tid": 0, "ts": 0}
    yield {**base, "name": "process_name", "args": {"name": "gobrrr"}}
    yield {**base, "name": "process_sort_index", "args": {"sort_index": -1}}
    for number, track in enumerate(tracks):
        lane = {**base, "tid": number}
        yield {**lane, "name": "thread_name", "args": {"name": track.name}}
        yield {**lane, "name": "thread_sort_index", "args": {"sort_index": number}}
        rows = zip(track.start_ns.tolist(), track.end_ns.tolist(), track.labels)
        for row, (start, end, label) in enumerate(rows):
            event = {
                "ph": "X", "cat": "gobrrr", "name": label, "pid": TRACK_PROCESS, "tid": number,
                "ts": _microseconds(start), "dur": _microseconds(end - start),
            }  # fmt: skip
            if track.details:
                event["args"] = track.details[row]
            yield event


_EVENT_KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "bp", "s")
_ARGUMENT_KEYS = frozenset(
    ("correlation", "External id", "external id", "external ts", "stream", "device", "context",
     "queued", "bytes", "memory bandwidth (GB/s)", "registers per thread", "shared memory",
     "blocks per SM", "warps per SM", "grid", "block", "est. achieved occupancy %", "cbid", "cid",
     "kind", "Input Dims", "Input type", "Input Strides", "Concrete Inputs", "Sequence number",
     "Fwd thread id", "Call stack", "Python id", "Python parent id", "Python module id",
     "Record function id", "Ev Idx", "Bytes", "Device Id", "Device Type", "Total Allocated",
     "Total Reserved", "Collective name", "In msg nelems", "Out msg nelems", "dtype",
     "Group size", "Process Group Name", "Process Group Ranks", "Seq", "Rank", "kernel_backend",
     "num_warps", "num_stages", "graph id", "graph node id", "finished", "sort_index", "labels")
)  # fmt: skip
# Metadata events say how to lay a trace out; names of processes may hold a host or a command.
_LAYOUT_EVENTS = frozenset(
    ("process_sort_index", "thread_sort_index", "process_labels", "process_name", "thread_name")
)
# PyTorch gives its own threads names such as pt_autograd_0.
_PYTHON = r"(?:python[\d.]*|pt_\w+)"
_HARMLESS_LABEL = re.compile(
    rf"(?:CPU|GPU \d+|{_PYTHON}|PyTorch Profiler(?: \(\d+\))?|"
    rf"(?:stream|thread) \d+(?: \({_PYTHON}\))?) ?"
)
# Processes and threads that PyTorch's profiler names instead of numbering.
_HARMLESS_ID = re.compile(
    rf"-?\d*|Spans|Traces|Overhead|Trace PyTorch Profiler|{_HARMLESS_LABEL.pattern}"
)
# A recorded value that is a number, a truth value or a list of them; other strings may be anything.
_PLAIN_VALUE = re.compile(r"^[\[\]\d\s,.eE+\-]*$|^\[?(?:(?:True|False|None|inf|nan)(?:, )?)*\]?$")


def _scrubbed(item: Any, paths: bool) -> dict[str, Any] | None:
    event = _value(item) if isinstance(item, msgspec.Raw) else item
    if not isinstance(event, dict):
        return None
    given = event.get("args")
    args: dict[str, Any] = given if isinstance(given, dict) else {}
    if event.get("ph") == "M":
        if str(event.get("name")) not in _LAYOUT_EVENTS:
            return None
        labels = [str(args[key]) for key in ("labels", "name") if key in args]
        if not all(map(_HARMLESS_LABEL.fullmatch, labels)):
            return None
    kept = {key: event[key] for key in _EVENT_KEYS if key in event}
    for key in ("pid", "tid"):
        if isinstance(kept.get(key), str) and not _HARMLESS_ID.fullmatch(kept[key]):
            # One number for one text, as events of it belong together.
            kept[key] = zlib.crc32(kept[key].encode(errors="replace"))
    if isinstance(item, msgspec.Raw):
        # Times stay as written, digit by digit.
        kept.update(msgspec.json.decode(item, type=_Times).texts())
    allowed = {key: args[key] for key in args if key in _ARGUMENT_KEYS}
    if event.get("ph") == "M" and "name" in args:
        allowed["name"] = args["name"]
    values = allowed.get("Concrete Inputs")
    if isinstance(values, list):
        allowed["Concrete Inputs"] = [
            v if isinstance(v, str) and _PLAIN_VALUE.match(v) else "" for v in values
        ]
    if paths:
        if event.get("cat") == "python_function":
            kept["name"] = _without_folders(str(kept.get("name", "")))
        if isinstance(allowed.get("Call stack"), str):
            frames = allowed["Call stack"].split(";")
            allowed["Call stack"] = ";".join(_without_folders(frame) for frame in frames)
    if allowed:
        kept["args"] = allowed
    return kept


class _Times(msgspec.Struct):
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")

    def texts(self) -> dict[str, msgspec.Raw]:
        return {key: getattr(self, key) for key in ("ts", "dur") if bytes(getattr(self, key))}


_LIBRARY_FOLDER = re.compile(r"^.*?(?:site-packages|dist-packages)/|^.*?/lib/python3[^/]*/")


def _without_folders(frame: str) -> str:
    """``/home/u/p/net.py(3): forward`` -> ``net.py(3): forward``; libraries keep their own."""
    path, line, rest = frame.partition("(")
    inside = _LIBRARY_FOLDER.sub("", path)
    if inside != path or path.startswith("torch/"):
        return inside + line + rest
    return path.replace("\\", "/").rsplit("/", 1)[-1] + line + rest

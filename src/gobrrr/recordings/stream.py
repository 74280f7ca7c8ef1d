"""A trace file as a stream: bytes -> chunks of whole events, with bounded memory.

A trace of gigabytes, or a small archive that expands to them, must not fill the memory. So the
text is decompressed and cut piece by piece, between two events of the ``traceEvents`` array, and
each piece is parsed and dropped before the next.

Where to cut needs no parser: in valid JSON an opening brace, a quote and a letter in a row cannot
stand inside a string, since the quote would end the string and no letter may follow it.
"""

from __future__ import annotations

import importlib
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gobrrr.measure.process_memory import free_memory_bytes
from gobrrr.recordings.events import (
    NOTHING,
    Event,
    ExactEvent,
    MalformedError,
    as_event,
    decode_events,
    decode_leniently,
)
from gobrrr.recordings.tagged import tagged_decoder
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import binary_size

# Small enough that the parsed objects stay in the cache and are reused by the next chunk.
CHUNK_BYTES = 2 << 20
# No event is that long; a chunk without a cut is no list of events.
LONGEST_EVENT_BYTES = 32 << 20
# What stands beside the events: Python objects of it may take thirty times as much.
LONGEST_HEADER_BYTES = 4 << 20
# Real traces compress 10 to 40 times (a step repeated exactly, 100 times).
LARGEST_EXPANSION = 400
EXPANSION_MATTERS_FROM_BYTES = 1 << 30
# What the columns of one event may need, sorting included.
COLUMN_BYTES_PER_EVENT = 600
# Texts that could not be read by category before a file is taken to be full of such.
TRIES_BY_CATEGORY = 8
GZIP_MAGIC = b"\x1f\x8b"

# The top-level fields that say nothing about who recorded a trace, or where.
HARMLESS_FIELDS = frozenset(
    ("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds", "record_shapes", "with_stack",
     "with_flops", "with_modules", "profile_memory", "cuda_runtime_version", "cuda_driver_version",
     "cupti_version", "hip_runtime_version", "hip_driver_version", "roctracer_version",
     "pytorch_version", "torch_version")
)  # fmt: skip

_KEYS = rb"ph|cat|name|pid|tid|ts|dur|args|id|bp|s"
_CUT = re.compile(rb"\}\s*,\s*\{\s*\"(?:" + _KEYS + rb")\"\s*:")
# Where the keys that a file begins with are looked for.
_HEAD_BYTES = 4096
_EVENTS_KEY = re.compile(rb"\"traceEvents\"\s*:\s*\[")


class _Tail(msgspec.Struct):
    traceEvents: list[Event] = []  # noqa: N815 - the key in the file
    deviceProperties: msgspec.Raw = NOTHING  # noqa: N815
    distributedInfo: msgspec.Raw = NOTHING  # noqa: N815
    baseTimeNanoseconds: Any = None  # noqa: N815
    record_shapes: Any = None
    with_stack: Any = None
    with_modules: Any = None
    profile_memory: Any = None
    pytorch_version: Any = None
    torch_version: Any = None

    def header(self) -> dict[str, Any]:
        """What the file says beside its events."""
        found: dict[str, Any] = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, msgspec.Raw):
                # What is longer is no description of devices or ranks.
                short = 0 < len(memoryview(value)) <= LONGEST_HEADER_BYTES
                value = decode_leniently(bytes(value)) if short else None
            if name != "traceEvents" and value is not None:
                found[name] = value
        return found


class _ExactTail(_Tail):
    traceEvents: list[ExactEvent] = []  # type: ignore[assignment]  # noqa: N815


_TAIL, _EXACT_TAIL = msgspec.json.Decoder(_Tail), msgspec.json.Decoder(_ExactTail)


@dataclass
class TraceHeader:
    """What stands beside the events. Metadata, environment and host names are never read."""

    device_properties: list[dict[str, Any]] = field(default_factory=list)
    distributed: dict[str, Any] = field(default_factory=dict)
    base_ns: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    plain: dict[str, str | int | float] = field(default_factory=dict)

    def update(self, found: dict[str, Any]) -> None:
        """Takes what is known from ``found``, a JSON object; ignores all else."""
        devices = found.get("deviceProperties")
        if isinstance(devices, list):
            self.device_properties = [d for d in devices if isinstance(d, dict)]
        distributed = found.get("distributedInfo")
        if isinstance(distributed, dict):
            self.distributed = distributed
        base = found.get("baseTimeNanoseconds")
        if isinstance(base, int) and not isinstance(base, bool):
            self.base_ns = base
        for key in ("pytorch_version", "torch_version"):
            if isinstance(found.get(key), str):
                self.versions[key] = found[key]
        for key in HARMLESS_FIELDS & found.keys():
            if isinstance(found[key], (str, int, float)):
                self.plain[key] = found[key]


class TooLargeError(InputError):
    """A file of more events than fit the memory that may be taken."""


def file_error(path: Path, what: str) -> InputError:
    """The one sentence about a bad file."""
    return InputError(f"{path}: {what}")


def _inflate(path: Path, file: Any) -> Iterator[bytes]:
    """Decompressed pieces of a gzip file, several members in a row included."""
    codec: Any
    try:
        codec = importlib.import_module("isal.isal_zlib")
    except ImportError:
        codec = zlib
    errors = (zlib.error, getattr(codec, "error", zlib.error), getattr(codec, "IsalError", OSError))
    engine = codec.decompressobj(31)
    read = 0
    data = b""
    while True:
        if not data:
            data = file.read(1 << 20)
            read += len(data)
            if not data:
                break
        if engine.eof:
            if data[:2] != GZIP_MAGIC[: len(data)]:
                # Padding after the last member; gzip itself ignores it.
                break
            engine = codec.decompressobj(31)
        try:
            piece = engine.decompress(data, CHUNK_BYTES)
        except errors:
            where = read - len(data)
            raise file_error(
                path, f"damaged gzip data after byte {where}; copy the file again"
            ) from None
        data = engine.unused_data if engine.eof else engine.unconsumed_tail
        if piece:
            yield piece
    if not engine.eof:
        raise file_error(
            path, f"the gzip data ends early, at byte {read}; the file was cut short, copy it again"
        )


def _pieces(path: Path) -> Iterator[bytes]:
    """The text of a file, decompressed if need be, a few megabytes at a time."""
    if path.is_dir():
        raise file_error(path, "is a directory; give the trace file inside it")
    try:
        with path.open("rb") as file:
            magic = file.read(2)
            file.seek(0)
            if magic == GZIP_MAGIC:
                expanded, packed = 0, os.fstat(file.fileno()).st_size
                for piece in _inflate(path, file):
                    expanded += len(piece)
                    if (
                        expanded > EXPANSION_MATTERS_FROM_BYTES
                        and expanded > packed * LARGEST_EXPANSION
                    ):
                        raise file_error(
                            path,
                            f"expands more than {LARGEST_EXPANSION} times (beyond {expanded} "
                            "bytes); no profiler trace does, so it is not read further",
                        )
                    yield piece
            else:
                while piece := file.read(CHUNK_BYTES):
                    yield piece
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise file_error(path, f"cannot be read: {reason.lower()}") from None


@dataclass(frozen=True)
class Chunk:
    """Some events in file order. ``again`` decodes the same text with times kept as text.

    ``tagged``: the events are ``tagged.Tagged``, else ``events.Event``. ``text`` is a
    JSON array of the events; of a file's last, an object with ``traceEvents``.
    """

    events: list[Any]
    again: Callable[[], list[Any]]
    text: bytes
    tagged: bool = False


class TraceReader:
    """One pass over a trace file: ``chunks()`` yields the events, ``header`` fills meanwhile."""

    def __init__(self, path: Path, exact: bool = False, launch_flows: bool = True) -> None:
        self.path = path
        self.exact = exact
        self._launch_flows = launch_flows
        self._untagged = 0
        self.header = TraceHeader()
        self.bytes_read = 0
        self.events_read = 0
        self._pieces = _pieces(path)
        self._buffer = bytearray()
        free = free_memory_bytes()
        self._event_limit = None if free is None else free // COLUMN_BYTES_PER_EVENT

    def chunks(self) -> Iterator[Chunk]:
        """All events, a few megabytes of text at a time.

        Raises:
            InputError: the file is missing, cut short, damaged, no trace, or too large.
        """
        is_list = self._skip_head()
        opening = b"[" if is_list else b'{"traceEvents":['
        buffer = self._buffer
        wanted = CHUNK_BYTES
        while self._fill(wanted):
            cut = _last_cut(buffer)
            if cut >= 0:
                with memoryview(buffer) as view, view[: cut + 1] as part:
                    text = b"".join((b"[", part, b"]"))
                try:
                    tagged = self._by_category(text)
                    events = decode_events(text, self.exact) if tagged is None else tagged
                except MalformedError:
                    # Damaged, or cut inside an event (a list of objects with an event's field
                    # names), or behind the array: more text will tell.
                    cut = -1
                else:
                    again = partial(decode_events, text, True)
                    yield self._count(Chunk(events, again, text, tagged is not None))
                    del buffer[: buffer.index(b",", cut) + 1]
                    wanted = CHUNK_BYTES
            if cut < 0:
                if len(buffer) > LONGEST_EVENT_BYTES:
                    break
                wanted = 2 * len(buffer)
        if self._fill(wanted):
            where = self.bytes_read - len(buffer)
            raise file_error(
                self.path, f"no list of events from byte {where} on; this is not a profiler trace"
            )
        text = opening + bytes(buffer)
        where = self.bytes_read - len(buffer) - len(opening)
        buffer.clear()
        yield self._count(
            Chunk(self._tail(text, where), partial(self._tail, text, where, True), text)
        )

    def _by_category(self, text: bytes) -> list[Any] | None:
        """Events decoded by their category; ``None`` where one has none, or an unknown one."""
        if self._untagged >= TRIES_BY_CATEGORY:
            return None
        try:
            return tagged_decoder(self.exact, self._launch_flows).decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._untagged += 1
            return None

    def _fill(self, wanted: int) -> bool:
        """Reads until ``wanted`` bytes wait; false at the end of the file."""
        while len(self._buffer) < wanted:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._buffer += piece
            self.bytes_read += len(piece)
        return True

    def _count(self, chunk: Chunk) -> Chunk:
        self.events_read += len(chunk.events)
        if self._event_limit is not None and self.events_read > self._event_limit:
            raise TooLargeError(
                f"{self.path}: more than {self._event_limit} events, which do not fit in the free "
                "memory; record fewer steps, or read it on a larger machine"
            )
        return chunk

    def _skip_head(self) -> bool:
        """Drops what stands before the first event; true if the file is a bare list."""
        buffer = self._buffer
        self._fill(1)
        if not buffer:
            raise file_error(self.path, "is empty")
        if buffer.startswith(b"\xef\xbb\xbf"):
            del buffer[:3]
        while True:
            start = _first_visible(buffer)
            if start >= 0 or not self._fill(len(buffer) + 1):
                break
        first = buffer[start : start + 1] if start >= 0 else b""
        if first == b"[":
            del buffer[: start + 1]
            return True
        if first != b"{":
            where = self.bytes_read - len(buffer) + max(start, 0)
            raise file_error(self.path, f"is not JSON: no object or list at byte {where}")
        while (match := _EVENTS_KEY.search(buffer)) is None:
            more = self._fill(2 * len(buffer))
            if len(buffer) > LONGEST_EVENT_BYTES or not more:
                break
        if match is None:
            match = _EVENTS_KEY.search(buffer)
        if match is None:
            if len(buffer) <= LONGEST_HEADER_BYTES:
                self._whole(bytes(buffer), self.bytes_read - len(buffer))
            what = "this is not a PyTorch profiler trace"
            if b'"schema_version"' in buffer[:_HEAD_BYTES]:
                what += "; if gobrrr wrote it, gobrrr report shows it"
            raise file_error(self.path, f"has no traceEvents; {what}")
        head = bytes(buffer[: match.end()]) + b"]}"
        self.header.update(self._whole(head, self.bytes_read - len(buffer)))
        del buffer[: match.end()]
        return False

    def _whole(self, text: bytes, where: int) -> dict[str, Any]:
        """``text`` as an object; its errors at ``where`` plus their position in it."""
        if len(text) > LONGEST_HEADER_BYTES + CHUNK_BYTES:
            raise file_error(
                self.path,
                f"has {binary_size(len(text))} of JSON at byte {where} that are no events; no "
                "profiler trace has so much there",
            )
        try:
            found = decode_leniently(text)
        except MalformedError as error:
            at = where + error.position
            if error.truncated:
                raise file_error(
                    self.path,
                    f"the JSON ends early, at byte {at}; the file was cut short, copy it again",
                ) from None
            raise file_error(self.path, f"damaged JSON at byte {at} ({error.reason})") from None
        return found if isinstance(found, dict) else {}

    def _tail(self, text: bytes, where: int, exact: bool = False) -> list[Any]:
        """Events of the end of the file; what follows them goes into the header."""
        if text.startswith(b"["):
            try:
                return decode_events(text, exact or self.exact)
            except MalformedError as error:
                if not error.truncated:
                    self._whole(text, where)
            # The format lets a bare list end without its bracket.
            text = text.rstrip().rstrip(b",") + b"]"
            try:
                return decode_events(text, exact or self.exact)
            except MalformedError:
                self._whole(text[:-1], where)
        try:
            tail = (_EXACT_TAIL if exact or self.exact else _TAIL).decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = self._whole(text, where)
            self.header.update(found)
            items = found.get("traceEvents")
            items = items if isinstance(items, list) else []
            return [as_event(i, exact or self.exact) for i in items if isinstance(i, dict)]
        self.header.update(tail.header())
        return list(tail.traceEvents)


def _first_visible(buffer: bytearray) -> int:
    """Position of the first byte that is not white space; -1 if there is none."""
    rest = len(buffer) - len(buffer.lstrip())
    return rest if rest < len(buffer) else -1


def _last_cut(buffer: bytearray) -> int:
    """Position of the last closing brace that another event follows; -1 if there is none."""
    for window in (1 << 16, 1 << 20, len(buffer)):
        start = max(0, len(buffer) - window)
        last = -1
        for match in _CUT.finditer(buffer, start):
            last = match.start()
        if last >= 0:
            return last
    return -1

"""One trace -> the tables of its rank, as Parquet: what a worker does, wherever it runs.

A worker gets a ``MapTask``, which is plain data, and gives back a ``MappedFile``, which is too: the
same function runs in a process here and in a task of Ray.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gobrrr.attribution.recorded import recorded_step
from gobrrr.devices.datasheet import ceilings_from_datasheet
from gobrrr.fleet.extras import package
from gobrrr.fleet.rank_tables import rank_tables
from gobrrr.fleet.sources import SourceFile, is_remote
from gobrrr.measure.process_memory import limited_memory, peak_memory_bytes
from gobrrr.recordings.stream import TooLargeError
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.names import plain_name
from gobrrr.timeline.quantities import binary_size


@dataclass(frozen=True)
class MapTask:
    """One trace, and the memory that reading it may take beyond what the worker has already."""

    source: SourceFile
    memory_bytes: int
    ranks_per_host: int | None = None


@dataclass(frozen=True)
class MappedFile:
    """What became of one trace.

    ``tables`` are Parquet files by the name of their table; none with an ``error``, which is one
    sentence; ``retry`` if its cause lies outside the file, so that the next build reads it again.
    ``read_s`` is how long it took, ``cpu_s`` how much of a processor that was, ``worker_bytes`` the
    most memory that the worker has had.
    """

    source: SourceFile
    rank: int | None = None
    host: str | None = None
    error: str | None = None
    tables: Mapping[str, bytes] = field(default_factory=dict)
    world_size: int | None = None
    recorded_ns: int | None = None
    events: int | None = None
    read_s: float | None = None
    cpu_s: float | None = None
    worker_bytes: int | None = None
    notices: tuple[str, ...] = ()
    retry: bool = False


class FetchError(InputError):
    """A file that could not be had: nothing is known of what is in it."""


def map_file(task: MapTask) -> MappedFile:
    """Reads a trace, attributes it, and makes its tables; never raises for what is in the file."""
    begin, worked = time.perf_counter(), time.process_time()
    source = task.source
    try:
        with limited_memory(task.memory_bytes), _here(source.path) as path:
            timeline = read_trace(path)
            mapped = _mapped(timeline, task)
    except TooLargeError as error:
        share = f"a worker may use {binary_size(task.memory_bytes)} (--worker-memory)"
        return MappedFile(source, error=f"{_sentence(error, source.path)}; {share}", retry=True)
    except FetchError as error:
        return MappedFile(source, error=_sentence(error, source.path), retry=True)
    except InputError as error:
        return MappedFile(source, error=_sentence(error, source.path))
    except MemoryError:
        return MappedFile(
            source,
            error=f"{source.path}: needs more than {binary_size(task.memory_bytes)} of memory, the "
            "limit of a worker; raise it with --worker-memory",
            retry=True,
        )
    except Exception as error:
        # One file that breaks a reader must not end a thousand others.
        # Not what the error says: that may be the content of the file.
        return MappedFile(
            source,
            error=f"{source.path}: gobrrr failed to read it, which is a bug in gobrrr: "
            f"{type(error).__name__} at {_where(error)}",
        )
    return replace(
        mapped,
        read_s=time.perf_counter() - begin,
        cpu_s=time.process_time() - worked,
        worker_bytes=peak_memory_bytes(),
    )


def _where(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _mapped(timeline: Timeline, task: MapTask) -> MappedFile:
    source = task.source
    rank = timeline.rank if timeline.rank is not None else source.rank
    if rank is None:
        raise InputError(
            f"{source.path}: neither the trace nor its name says which rank recorded it; name "
            "files by rank (rank3.json.gz)"
        )
    if timeline.world_size is not None and not 0 <= rank < timeline.world_size:
        raise InputError(
            f"{source.path}: is rank {rank}, but its run has {timeline.world_size} ranks"
        )
    host = source.host
    if host is None and task.ranks_per_host is not None:
        host = f"host{rank // task.ranks_per_host}"
    name = timeline.device.name
    ran = recorded_step(timeline, ceilings_from_datasheet(name) if name else None)
    tables = rank_tables(timeline, ran, host)
    first_ns = int(timeline.steps[0, 0]) if len(timeline.steps) else 0
    return MappedFile(
        source=source,
        rank=rank,
        host=host,
        tables={name: _parquet(table) for name, table in tables.items()},
        world_size=timeline.world_size,
        recorded_ns=None if timeline.base_ns is None else timeline.base_ns + first_ns,
        events=timeline.events,
        notices=timeline.notices,
    )


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    # One row group for each rank: what asks for one rank reads one.
    # Without what a file says of itself beyond that: thousands of them are read at once.
    texts = [field.name for field in table.schema if field.type == pa.string()]
    pq.write_table(
        table, sink, compression="zstd", row_group_size=max(1, table.num_rows),
        use_dictionary=texts, write_statistics=False, store_schema=False,
    )  # fmt: skip
    data: bytes = sink.getvalue().to_pybytes()
    return data


@contextmanager
def _here(path: str) -> Iterator[Path]:
    """The file on this machine: itself, or a copy for as long as it is read."""
    if not is_remote(path):
        try:
            Path(path).open("rb").close()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise FetchError(f"{path}: cannot be read: {reason.lower()}") from None
        yield Path(path)
        return
    fsspec: Any = package("fsspec", f"reading {path}")
    with tempfile.TemporaryDirectory(prefix="gobrrr-fleet-") as folder:
        # Readers tell formats by the name, too.
        copy = Path(folder) / PurePosixPath(path).name
        try:
            with fsspec.open(path, "rb") as far, copy.open("wb") as near:
                shutil.copyfileobj(far, near, 1 << 20)
        except Exception as error:
            raise FetchError(
                f"{path}: cannot be fetched: {type(error).__name__}: {error}"
            ) from None
        yield copy


def _sentence(error: InputError, path: str) -> str:
    text = plain_name(" ".join(str(error).split()))
    return text if path in text else f"{path}: {text}"

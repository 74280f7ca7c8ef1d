"""From traces to a fleet folder and its verdict: map what is new, merge, say who is slow."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gobrrr.fleet.engines import map_here, map_on_ray
from gobrrr.fleet.folder import FleetFolder, key_of
from gobrrr.fleet.mapping import MappedFile, MapTask
from gobrrr.fleet.merge import merge_run
from gobrrr.fleet.sources import Naming, SourceFile, find_sources
from gobrrr.fleet.summary import run_verdict
from gobrrr.fleet.verdict import FleetVerdict
from gobrrr.measure.progress import Progress, silent
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.files import write_atomically
from gobrrr.timeline.names import printable_json

VERDICT = "verdict.json"
WORKER_MEMORY_BYTES = 1 << 30
# What is lost if the process is killed; Ctrl-C loses nothing.
SAVE_EVERY_S = 2.0

Engine = Callable[[Sequence[MapTask]], Iterator[MappedFile]]


@dataclass(frozen=True)
class FleetOptions:
    """How traces are mapped.

    Attributes:
        naming: of runs and hosts.
        workers: processes; ``None``: one per core.
        worker_memory_bytes: what reading one trace may take; a larger one is a row with an error.
        engine: ``"local"`` or ``"ray"``; ``address`` is that of the Ray cluster.
        again: also read what has not changed.
    """

    naming: Naming = field(default_factory=Naming)
    workers: int | None = None
    worker_memory_bytes: int = WORKER_MEMORY_BYTES
    engine: str = "local"
    address: str | None = None
    again: bool = False

    def run(self, tasks: Sequence[MapTask]) -> Iterator[MappedFile]:
        """The results of the tasks, as they come."""
        if self.engine == "ray":
            return map_on_ray(tasks, self.address)
        return map_here(tasks, self.workers)


def build_fleet(
    patterns: Sequence[str],
    out: Path,
    options: FleetOptions | None = None,
    progress: Progress = silent,
    engine: Engine | None = None,
) -> FleetVerdict:
    """Maps new and changed traces into the folder ``out``, merges it and says what it shows.

    Whenever it ends, the folder holds what was read until then; called again it goes on from there.

    Args:
        patterns: paths, folders or patterns of traces; none: the folder as it is.
        out: the folder.
        options: how to map.
        progress: told of each file.
        engine: instead of that of the options.

    Raises:
        InputError: no file matches; ``out`` is something else or is being written; none of the
            files could be read.
    """
    options = options or FleetOptions()
    if not patterns:
        folder = FleetFolder.open(out)
        with folder.written_alone():
            return _concluded(folder, [], progress)
    sources = find_sources(patterns, options.naming, outside=out)
    folder = FleetFolder.create(out)
    with folder.written_alone():
        folder.forget_failures_that_are_gone()
        keys = {source.path: _key(source, options) for source in sources}
        tasks = [
            MapTask(source, options.worker_memory_bytes, options.naming.ranks_per_host)
            for source in sources
            if options.again or not folder.known(source.path, keys[source.path])
        ]
        _map(folder, tasks, keys, engine or options.run, progress)
        return _concluded(folder, tasks, progress)


def _key(source: SourceFile, options: FleetOptions) -> str:
    return key_of(
        source.path, source.size_bytes, source.version, source.run, source.host, source.rank,
        options.naming.ranks_per_host,
    )  # fmt: skip


def _map(
    folder: FleetFolder,
    tasks: Sequence[MapTask],
    keys: dict[str, str],
    engine: Engine,
    progress: Progress,
) -> None:
    saved = time.monotonic()
    progress("reading traces", 0, len(tasks))
    try:
        with closing(_results(engine, tasks)) as results:
            for done, mapped in enumerate(results, 1):
                folder.add(mapped, keys[mapped.source.path])
                progress("reading traces", done, len(tasks))
                if time.monotonic() - saved > SAVE_EVERY_S:
                    folder.save()
                    saved = time.monotonic()
    finally:
        # Also after Ctrl-C: what has been read need not be read again.
        folder.save()


def _results(engine: Engine, tasks: Sequence[MapTask]) -> Generator[MappedFile, None, None]:
    if tasks:
        yield from engine(tasks)


def _concluded(folder: FleetFolder, tasks: Sequence[MapTask], progress: Progress) -> FleetVerdict:
    rows = folder.rows
    runs = folder.runs()
    errors = [row.error for row in rows if row.error is not None]
    if not runs:
        if not errors:
            raise InputError(f"{folder.path} holds no traces")
        none = f"none of the {len(rows)} files could be read; the first: "
        raise InputError(f"{none if len(rows) > 1 else ''}{errors[0]}")
    begin = time.perf_counter()
    verdicts = []
    for done, (run, files) in enumerate(runs.items()):
        progress("comparing ranks", done, len(runs))
        verdicts.append(run_verdict(merge_run(folder, run, files), folder))
    paths = {task.source.path for task in tasks}
    new = [row for row in rows if row.path in paths]
    peaks = [row.worker_bytes for row in rows if row.worker_bytes is not None]
    found = FleetVerdict(
        runs=verdicts,
        files=len(rows),
        bytes=sum(row.size_bytes for row in rows),
        read=len(tasks),
        read_s=sum(row.read_s or 0.0 for row in new),
        cpu_s=sum(row.cpu_s or 0.0 for row in new),
        errors=errors,
        worker_bytes=max(peaks, default=None),
        merge_s=time.perf_counter() - begin,
    )
    write_atomically(
        folder.path / VERDICT, printable_json(msgspec.json.encode(found)) + b"\n", durable=False
    )
    return found

"""A fleet folder: the tables of many traces, and the list of files that they were made from.

``fleet.json`` says that it is one and of which format, ``files.parquet`` lists every file that was
looked at, and ``TABLE/run=R/rank=N/NAME.parquet`` are the tables of one rank. Every file appears
whole or not at all, so that a folder is usable whenever the writing ends.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from gobrrr.fleet.mapping import MappedFile
from gobrrr.fleet.schema import FILES, FORMAT_VERSION, MAPPED, MERGED
from gobrrr.fleet.sources import is_remote, path_safe
from gobrrr.recordings.trace import MOST_RANKS
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.files import write_atomically

MARKER, FILE_LIST, LOCK = "fleet.json", "files.parquet", ".lock"
_MERGED_NAME = "merged.parquet"


class FileRow(msgspec.Struct, frozen=True, kw_only=True):
    """One file that was looked at; the columns of ``schema.FILES``.

    ``error`` is ``None`` for one whose tables are in the folder. ``key`` is what they depend on;
    ``stem`` the name of its tables' files. ``retry``: the error may be gone without a change of the
    file; ``None`` where an earlier version of gobrrr, which did not note it, listed the file.
    """

    path: str
    run: str
    size_bytes: int
    version: str
    key: str
    stem: str
    rank: int | None = None
    host: str | None = None
    error: str | None = None
    world_size: int | None = None
    recorded_ns: int | None = None
    events: int | None = None
    read_s: float | None = None
    cpu_s: float | None = None
    worker_bytes: int | None = None
    notices: list[str] | None = None
    retry: bool | None = None


def is_fleet(path: Path) -> bool:
    """Whether a folder is one."""
    return (path / MARKER).is_file()


class FleetFolder:
    """The folder, and what is known of its files. ``open`` and ``create`` make one."""

    def __init__(self, path: Path, rows: dict[str, FileRow]) -> None:
        self.path = path
        self._rows = rows

    @classmethod
    def open(cls, path: Path) -> FleetFolder:
        """A folder that exists.

        Raises:
            InputError: it is not a fleet folder, or of another format.
        """
        if not is_fleet(path):
            what = "is not a fleet folder" if path.is_dir() else "does not exist"
            raise InputError(f"{path} {what}; make one: gobrrr fleet TRACES --out {path}")
        try:
            found = json.loads((path / MARKER).read_text())["format"]
            listed = pq.read_table(
                path / FILE_LIST, use_threads=False, partitioning=None
            ).to_pylist()
            rows = {row["path"]: msgspec.convert(row, FileRow) for row in listed}
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise InputError(
                f"{path} is a damaged fleet folder ({type(error).__name__}); make it again in a "
                "new one"
            ) from None
        if not all(map(_is_possible, rows.values())):
            raise InputError(
                f"{path} lists files outside of it or a run of too many ranks: it is damaged or "
                "not to be trusted; make it again in a new folder"
            )
        if found != FORMAT_VERSION:
            raise InputError(
                f"{path} has format {found}, this version of gobrrr writes {FORMAT_VERSION}; make "
                "it again in a new folder"
            )
        return cls(path, rows)

    @classmethod
    def create(cls, path: Path) -> FleetFolder:
        """The folder, made if it does not exist yet.

        Raises:
            InputError: it holds something else, or cannot be written.
        """
        if is_fleet(path):
            return cls.open(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            if {each.name for each in path.iterdir()} - {FILE_LIST, LOCK}:
                raise InputError(
                    f"{path} has other files in it and is not a fleet folder; give another"
                )
            folder = cls(path, {})
            folder.save()
            write_atomically(path / MARKER, json.dumps({"format": FORMAT_VERSION}).encode() + b"\n")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from None
        return folder

    @contextmanager
    def written_alone(self) -> Iterator[None]:
        """Keeps other processes from writing here.

        Raises:
            InputError: another one does.
        """
        lock = FileLock(self.path / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise InputError(f"another gobrrr fleet is writing {self.path}; wait for it") from None
        try:
            yield
        finally:
            lock.release()

    @property
    def rows(self) -> list[FileRow]:
        """All files that were looked at, by path."""
        return [self._rows[path] for path in sorted(self._rows)]

    def runs(self) -> dict[str, list[FileRow]]:
        """The files whose tables are here, by run and in the order of their ranks."""
        found: dict[str, list[FileRow]] = {}
        for row in sorted(self.rows, key=lambda row: (row.run, row.rank or 0)):
            if row.error is None:
                found.setdefault(row.run, []).append(row)
        return found

    def known(self, path: str, key: str) -> bool:
        """Whether reading a file again would find what is here of it."""
        row = self._rows.get(path)
        if row is None or row.key != key:
            return False
        if row.error is None:
            return True
        # One that was refused beside another of its rank, if that is not there any more.
        held = row.rank is None or self._of_rank(row.run, row.rank) is not None
        return row.retry is False and held

    def add(self, mapped: MappedFile, key: str) -> None:
        """Takes the tables of a file, in place of those that it had.

        Of two files of one rank the first by path stays; the other becomes a row with an error.
        One that is not there any more makes room for what was recorded after it.
        """
        source = mapped.source
        self._forget(source.path)
        row = FileRow(
            path=source.path,
            run=source.run,
            size_bytes=source.size_bytes,
            version=source.version,
            key=key,
            stem=hashlib.sha256(source.path.encode()).hexdigest()[:16],
            rank=mapped.rank,
            host=mapped.host,
            error=mapped.error,
            world_size=mapped.world_size,
            recorded_ns=mapped.recorded_ns,
            events=mapped.events,
            read_s=mapped.read_s,
            cpu_s=mapped.cpu_s,
            worker_bytes=mapped.worker_bytes,
            notices=list(mapped.notices),
            retry=mapped.retry,
        )
        rival = self._of_rank(row.run, row.rank) if row.error is None else None
        if rival is not None and not _is_there(rival.path):
            self._forget(rival.path)
            rival = None
        if rival is not None and rival.path < row.path:
            row = _second(row, rival)
        elif rival is not None:
            self._forget(rival.path)
            self._rows[rival.path] = _second(rival, row)
        self._rows[row.path] = row
        if row.error is None:
            for table, data in mapped.tables.items():
                path = self._own(self._path(table, row))
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, data, durable=False)

    def _of_rank(self, run: str, rank: int | None) -> FileRow | None:
        """The file whose tables are those of a rank."""
        same = (each for each in self._rows.values() if (each.run, each.rank) == (run, rank))
        return next((each for each in same if each.error is None), None)

    def forget_failures_that_are_gone(self) -> None:
        """Drops what is said of files that could not be read and that nobody has any more."""
        for row in self.rows:
            if row.error is not None and not _is_there(row.path):
                del self._rows[row.path]

    def _forget(self, path: str) -> None:
        row = self._rows.pop(path, None)
        if row is not None and row.error is None:
            for table in MAPPED:
                with suppress(OSError):
                    self._own(self._path(table, row)).unlink()

    def _own(self, path: Path) -> Path:
        """The path, of a file that is written or removed: of this folder, and through no link.

        Raises:
            InputError: a link leads to somewhere else.
        """
        for each in (path, *path.parents):
            if each == self.path:
                break
            if each.is_symlink():
                raise InputError(
                    f"{each} is a link, and nothing is written or removed through one; give "
                    "another folder"
                )
        return path

    def _path(self, table: str, row: FileRow) -> Path:
        return self._of_run(table, row.run) / f"rank={row.rank}" / f"{row.stem}.parquet"

    def _of_run(self, table: str, run: str) -> Path:
        return self.path / table / f"run={run}"

    def save(self) -> None:
        """Writes the list of files."""
        rows = [msgspec.to_builtins(row) for row in self.rows]
        self._write(self.path / FILE_LIST, pa.Table.from_pylist(rows, schema=FILES))

    def read(self, table: str, run: str) -> pa.Table:
        """A mapped table of all ranks of a run, with its column ``rank``, in no order."""
        schema = MAPPED[table].append(pa.field("rank", pa.int64()))
        paths = [str(path) for path in self._listed(table, run)]
        if not paths:
            return schema.empty_table()
        keys = ds.partitioning(pa.schema([("rank", pa.int64())]), flavor="hive")
        return ds.dataset(paths, schema=schema, format="parquet", partitioning=keys).to_table()

    def read_rank(self, table: str, row: FileRow) -> pa.Table:
        """A mapped table of one file."""
        return pq.read_table(self._path(table, row), schema=MAPPED[table], partitioning=None)

    def write_merged(self, table: str, run: str, columns: dict[str, Any]) -> None:
        """Writes what the merge found of a run."""
        path = self._of_run(table, run)
        self._own(path).mkdir(parents=True, exist_ok=True)
        self._write(path / _MERGED_NAME, pa.table(columns, schema=MERGED[table]))

    def tables(self, name: str) -> list[Path]:
        """The Parquet files of a table."""
        if name == "files":
            return [self.path / FILE_LIST]
        if name in MAPPED:
            return sorted(path for run in self.runs() for path in self._listed(name, run))
        merged = (self._of_run(name, run) / _MERGED_NAME for run in self.runs())
        return sorted(path for path in merged if path.is_file())

    def _listed(self, table: str, run: str) -> list[Path]:
        """The files of a mapped table of a run; others may stem from a writing that was ended."""
        paths = (self._path(table, row) for row in self.runs().get(run, ()))
        return [path for path in paths if path.is_file()]

    def _write(self, path: Path, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        write_atomically(self._own(path), sink.getvalue().to_pybytes(), durable=False)


def _is_there(path: str) -> bool:
    """Whether a file still exists where it was; of a store of files: taken to be."""
    # Paths were once listed as they were given, and so depend on where that was.
    return is_remote(path) or (Path(path).is_absolute() and Path(path).exists())


def _is_possible(row: FileRow) -> bool:
    """Whether files in the folder can have its names: a list may come with a stranger's folder."""
    few = (row.world_size or 0) <= MOST_RANKS
    return few and row.run == path_safe(row.run) and row.stem == path_safe(row.stem)


def _second(row: FileRow, first: FileRow) -> FileRow:
    told = (
        f"{row.path}: a second trace of rank {row.rank} of run {row.run}, beside {first.path}; "
        "give each rank once, or separate runs with --run-per-folder"
    )
    return msgspec.structs.replace(row, error=told)


def key_of(*parts: object) -> str:
    """What tables were made from, in one short text."""
    text = json.dumps([FORMAT_VERSION, *map(str, parts)])
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]

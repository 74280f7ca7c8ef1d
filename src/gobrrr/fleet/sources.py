"""Which traces were meant: patterns of paths -> files, each with its run, its host and its rank.

Local paths need nothing; with a scheme (``s3://``, ``gs://``) they go through fsspec.
"""

from __future__ import annotations

import glob
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from gobrrr.fleet.extras import package
from gobrrr.recordings.ranks import ranks_of_names
from gobrrr.recordings.traces import ENDINGS
from gobrrr.timeline.errors import InputError

_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_MAGIC = re.compile(r"[*?\[]")
# ``torch.profiler.tensorboard_trace_handler``: HOST_PID.TIME.pt.trace.json, the time optional.
_TENSORBOARD = re.compile(r"^(?P<host>.+)_\d+(\.\d+)?\.pt\.trace\.json(\.gz)?$")
_HOST_FOLDER = re.compile(r"^(?:host|node)(?:[-_][\w.-]+|\d[\w.-]*)$", re.IGNORECASE)


@dataclass(frozen=True)
class Naming:
    """How files are told apart where their traces do not tell.

    Attributes:
        run: the run that all files are of; ``None``: what their folders are called.
        run_per_folder: the files of each folder are a run of their own.
        ranks_per_host: a rank's host is its rank divided by this, where its path names none.
    """

    run: str | None = None
    run_per_folder: bool = False
    ranks_per_host: int | None = None


@dataclass(frozen=True)
class SourceFile:
    """One trace to read.

    Attributes:
        path: as the user or the store names it.
        size_bytes: of the file as it lies there.
        version: its time of change or its entity tag: another one is another file.
        run: which run it is of, safe as part of a path.
        host: from its path; ``None``: unknown.
        rank: from the names of the files of its run; ``None``: unknown.
    """

    path: str
    size_bytes: int
    version: str
    run: str
    host: str | None
    rank: int | None


def is_remote(path: str) -> bool:
    """Whether a path has a scheme, and so is no path of this machine."""
    return _SCHEME.match(path) is not None


def find_sources(
    patterns: Sequence[str], naming: Naming, *, outside: Path | None = None
) -> tuple[SourceFile, ...]:
    """All files that the patterns name, by path, each once; none inside the folder ``outside``.

    A folder stands for all traces below it. The run of a file is the ``run=NAME`` in its path, else
    what ``naming`` says, else the name of the folder that all patterns have in common. Its host is
    the ``host=NAME`` in its path, the host that PyTorch's TensorBoard handler puts into the file's
    name, or a folder named like ``node03``.

    Raises:
        InputError: a pattern names no file, or its store cannot be read.
    """
    found: dict[str, tuple[int, str]] = {}
    bases: list[tuple[str, ...]] = []
    for pattern in patterns:
        listed = dict(_remote(pattern) if is_remote(pattern) else _local(pattern))
        if outside is not None:
            listed = {path: how for path, how in listed.items() if not _inside(path, outside)}
        if not listed:
            what = "holds no trace" if _is_folder(pattern) else "matches no file"
            raise InputError(f"{pattern} {what}; give traces, a pattern or a folder of them")
        found |= listed
        bases.append(_base(pattern, is_file=_normal(pattern) in listed))
    common = _common_folder(bases)
    by_run: dict[str, list[str]] = defaultdict(list)
    for path in sorted(found):
        by_run[_run_of(path, common, naming)].append(path)
    # Absolute: a folder is added to from wherever its user is. Names of runs and hosts are looked
    # for in what was given.
    sources: dict[str, SourceFile] = {}
    for run, paths in by_run.items():
        ranks = _ranks_of_paths(paths)
        for i, path in enumerate(paths):
            size, version = found[path]
            own = _absolute(path)
            sources[own] = SourceFile(own, size, version, run, host_of(path), ranks[i])
    return tuple(sources[path] for path in sorted(sources))


def _ranks_of_paths(paths: Sequence[str]) -> Sequence[int | None]:
    named = [_part(path, "rank") for path in paths]
    told = [int(value) for value in named if value is not None and value.isdecimal()]
    if len(told) == len(paths):
        return told
    # The file's own name says more than that of its folder.
    for depth in (1, 2):
        ranks = ranks_of_names(["/".join(PurePosixPath(path).parts[-depth:]) for path in paths])
        if ranks is not None:
            return ranks
    if len(paths) == 1:
        return [0]
    # Beside what else lies there.
    by_rank = [path for path in paths if "rank" in PurePosixPath(path).name.lower()]
    ranks = ranks_of_names([PurePosixPath(path).name for path in by_rank]) if by_rank else None
    return [dict(zip(by_rank, ranks or ())).get(path) for path in paths]


def _inside(path: str, folder: Path) -> bool:
    return not is_remote(path) and Path(path).resolve().is_relative_to(folder.resolve())


def _is_folder(pattern: str) -> bool:
    return not is_remote(pattern) and Path(pattern).is_dir()


def _local(pattern: str) -> Iterable[tuple[str, tuple[int, str]]]:
    path = Path(pattern)
    if path.is_dir():
        names = [str(each) for each in path.rglob("*") if each.name.endswith(ENDINGS)]
    elif path.exists():
        names = [pattern]
    else:
        names = glob.glob(pattern, recursive=True)  # noqa: PTH207 - pathlib's has no absolute ones
    for name in names:
        try:
            status = Path(name).stat()
        except OSError:
            # Gone since it was listed: it is not there.
            continue
        if not Path(name).is_dir():
            yield os.path.normpath(name), (status.st_size, str(status.st_mtime_ns))


def _remote(pattern: str) -> Iterable[tuple[str, tuple[int, str]]]:
    try:
        store, path = package("fsspec", f"reading {pattern}").core.url_to_fs(pattern)
        scheme = pattern.partition("://")[0]
        if not _MAGIC.search(path) and store.isdir(path):
            listed = store.find(path, detail=True)
            listed = {name: each for name, each in listed.items() if name.endswith(ENDINGS)}
        else:
            listed = store.glob(path, detail=True)
    except InputError:
        raise
    except ImportError as error:
        raise InputError(f"{pattern} cannot be listed: {error}") from None
    except Exception as error:
        # Each store has errors of its own; what they say is all that is known.
        raise InputError(f"{pattern} cannot be listed: {_said(error)}") from None
    for name, details in listed.items():
        if details.get("type") != "directory":
            full = name if is_remote(name) else f"{scheme}://{name.lstrip('/')}"
            if scheme in ("file", "local"):
                full = f"{scheme}://{name}"
            yield full, (int(details.get("size") or 0), _version(details))


def _said(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _version(details: dict[str, Any]) -> str:
    """What changes with the file's content, by whatever name its store has for it."""
    for key in ("ETag", "etag", "md5Hash", "generation", "LastModified", "last_modified",
                "updated", "mtime", "created"):  # fmt: skip
        value = details.get(key)
        if value is not None:
            return value.isoformat() if isinstance(value, datetime) else str(value).strip('"')
    return ""


def _normal(pattern: str) -> str:
    return pattern if is_remote(pattern) else os.path.normpath(pattern)


def _base(pattern: str, *, is_file: bool) -> tuple[str, ...]:
    """The parts of the deepest folder that holds all that a pattern can name."""
    parts = PurePosixPath(_absolute(pattern)).parts
    still = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    return parts[: still - 1 if is_file else still]


def _absolute(path: str) -> str:
    return path if is_remote(path) else str(Path(path).absolute())


def _common_folder(bases: Sequence[tuple[str, ...]]) -> PurePosixPath:
    """The deepest folder that is above all of them."""
    shared = []
    for parts in zip(*bases):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return PurePosixPath(*shared)


def _run_of(path: str, common: PurePosixPath, naming: Naming) -> str:
    named = _part(path, "run")
    if named is not None:
        return path_safe(named)
    if naming.run is not None:
        return path_safe(naming.run)
    if naming.run_per_folder:
        full = PurePosixPath(_absolute(path)).parent
        below = full.parts[len(common.parts) :] if full.is_relative_to(common) else (full.name,)
        return path_safe("-".join(below) or common.name)
    return path_safe(common.name)


def path_safe(name: str) -> str:
    """A run's name as it stands in paths and tables: letters, digits, dots, dashes."""
    return re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII).strip(".") or "run"


def _part(path: str, key: str) -> str | None:
    """The value of ``key=value`` in a path."""
    for part in PurePosixPath(path).parts:
        name, equals, value = part.partition("=")
        if equals and name == key and value:
            return value
    return None


def host_of(path: str) -> str | None:
    """The host that a path names; ``None`` if it names none."""
    named = _part(path, "host")
    if named is not None:
        return named
    *folders, name = PurePosixPath(path).parts
    match = _TENSORBOARD.match(name)
    if match is not None:
        return match["host"]
    return next((part for part in reversed(folders) if _HOST_FOLDER.match(part)), None)

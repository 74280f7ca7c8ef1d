"""Files written whole or not at all."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from gobrrr.timeline.errors import InputError


def write_atomically(path: str | os.PathLike[str], data: bytes, *, durable: bool = True) -> Path:
    """``written_atomically`` for data that is there at once; returns ``path``.

    Raises:
        OSError: the folder does not exist or cannot be written, or ``path`` is a folder. Nothing
            is left behind.
    """
    with written_atomically(path, durable=durable) as stream:
        stream.write(data)
    return Path(path)


@contextmanager
def written_atomically(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[BinaryIO]:
    """A stream into a file beside ``path``, which is renamed there so that no reader sees half.

    A symlink is followed. A device, a pipe, and what this process prints to (``/dev/stdout``, even
    where that is a file) are written straight. What is raised while the stream is open leaves no
    file behind, and an older one as it was.

    Without ``durable`` the disk is not waited for: for what can be made again.

    Raises:
        OSError: the folder does not exist or cannot be written, or ``path`` is a folder.
    """
    given = Path(path)
    if given.is_dir():
        raise IsADirectoryError(0, "it is a folder", str(given))
    # Asked of the path as given: the link behind /dev/stdout leads to a pipe without a name.
    if given.exists() and not given.is_file():
        with given.open("wb") as stream:
            yield stream
        return
    printed = _printed_to(given)
    if printed is not None:
        # Between what was printed before and what will be.
        with os.fdopen(os.dup(printed), "wb") as stream:
            yield stream
        return
    try:
        target = given.resolve() if given.is_symlink() else given
    except RuntimeError as error:  # Python before 3.13 of a link that leads to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(given)) from error
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:64]}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        # mkstemp makes the file private; a report is as public as any file the user makes.
        temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_output(path: str | os.PathLike[str], data: bytes) -> Path:
    """``write_atomically`` for a path that the user named.

    Raises:
        InputError: it cannot be written.
    """
    try:
        return write_atomically(path, data)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _printed_to(path: Path) -> int | None:
    """The descriptor of standard output or error if that is this file; what is buffered is out."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        with suppress(OSError, ValueError):
            if os.path.samestat(path.stat(), os.fstat(number)):
                if stream is not None:
                    stream.flush()
                return number
    return None


def _umask() -> int:
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    # Elsewhere it is read by setting it: a file that another thread makes meanwhile is private.
    current = os.umask(0o077)
    os.umask(current)
    return current

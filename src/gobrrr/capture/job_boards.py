"""Where the ranks of a job leave messages for each other: a folder, or the program's own store."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gobrrr.capture.joined_group import joined_distributed
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.files import write_atomically

_LAUNCHER_VARIABLES = (
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
)  # fmt: skip
# Of what a store's client says, which may go on with a stack of C++.
_MOST_SAID = 120


class BoardLostError(Exception):
    """No message can be left any more; a clause that says why."""


class Board(Protocol):
    """Where ranks leave messages for each other."""

    def post(self, key: str, message: bytes) -> None:
        """Leave a message; ``key`` has no other. Raises BoardLostError."""
        ...

    def read(self, key: str) -> bytes | None:
        """The message, or ``None`` while there is none. Raises BoardLostError."""
        ...


@dataclass(frozen=True)
class FolderBoard:
    """Messages as files, for ranks of one host."""

    folder: Path

    def post(self, key: str, message: bytes) -> None:
        """See ``Board``."""
        path = self.folder / key
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(path, message)
        except OSError as error:
            raise BoardLostError(
                f"{self.folder}, where ranks of a host leave messages for each other, cannot be "
                f"written ({error.strerror or error})"
            ) from error

    def read(self, key: str) -> bytes | None:
        """See ``Board``."""
        try:
            return (self.folder / key).read_bytes()
        except OSError:
            return None

    def names(self, key: str) -> set[str]:
        """What messages there are below ``key``."""
        try:
            # Those with a dot are being written.
            return {
                path.name for path in (self.folder / key).iterdir() if not path.name.startswith(".")
            }
        except OSError:
            return set()

    def claim(self, key: str) -> bool:
        """Whether this process is the first that comes here with ``key``, which has no message."""
        path = self.folder / key
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(exist_ok=False)
        except FileExistsError:
            return False
        except OSError:
            # Nobody can see what this one does, so it waits for nobody.
            return True
        return True


@dataclass(frozen=True)
class StoreBoard:
    """Messages in the store of the program's process group, for ranks of several hosts."""

    store: Any

    def post(self, key: str, message: bytes) -> None:
        """See ``Board``."""
        try:
            self.store.set(f"gobrrr/{key}", message)
        except (RuntimeError, OSError) as error:
            raise _store_lost(error) from error

    def read(self, key: str) -> bytes | None:
        """See ``Board``."""
        try:
            if not self.store.check([f"gobrrr/{key}"]):
                return None
            return bytes(self.store.get(f"gobrrr/{key}"))
        except (RuntimeError, OSError) as error:
            raise _store_lost(error) from error


def _store_lost(error: Exception) -> BoardLostError:
    said = f"{error}".partition("\n")[0][:_MOST_SAID].rstrip(". ") or type(error).__name__
    return BoardLostError(
        "the job's store is gone, probably because the process of rank 0 has ended "
        f"(the store's client says: {said})"
    )


def store_of_program() -> Any:
    """The store of the default process group; ``None`` before there is one."""
    distributed = joined_distributed()
    if distributed is None:
        return None
    return distributed.distributed_c10d._get_default_store()


def folder_of(environment: Mapping[str, str], start: str = "") -> Path:
    """One folder for the ranks of this job on this host; of this user alone.

    ``start``: what tells this start of the job from others, where a launcher says so.
    """
    # torchrun makes a folder for each start of its workers, and tells them of a file in it, .../
    # attempt_0/1/error.json. Other launchers are told apart by their own process.
    errors = Path(environment.get("TORCHELASTIC_ERROR_FILE", "")).parent.parent
    parent = os.getppid()
    if errors.is_absolute():
        start = str(errors)
    start = start or repr((parent, _started(parent)))
    key = repr(([environment.get(name, "") for name in _LAUNCHER_VARIABLES], start))
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"gobrrr-job-{user}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and folder.stat().st_uid != user:
        raise InputError(f"{folder} belongs to another user; remove it, or set TMPDIR")
    return folder


def _started(pid: int) -> str:
    """When a process started, so that a number that comes back is another one; "" if unknown."""
    try:
        # proc_pid_stat(5): the 22nd field; the second, a name in brackets, may hold spaces.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""

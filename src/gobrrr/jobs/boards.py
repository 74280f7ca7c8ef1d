"""Where the ranks of a job leave messages for each other: a folder, or the program's own store."""

from __future__ import annotations

import hashlib
import math
import os
import queue
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from gobrrr.measure.own_thread import OwnThread
from gobrrr.observe.joined_group import joined_distributed
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.files import write_atomically
from gobrrr.timeline.quantities import whole_seconds

_LAUNCHER_VARIABLES = (
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
)  # fmt: skip
JOB_FOLDER = "gobrrr-job"
# Of what a store's client says, which may go on with a stack of C++.
_MOST_SAID = 120
# How long one message may take. torch's client waits for an answer without a limit where the host
# of the store has vanished, because nothing closes the connection.
STORE_LIMIT_S = 20.0
# torch's server ends the connection of one that sends it more than 8 MiB at once.
_PART_BYTES = 4 << 20
# Before a message is tried again, by a new connection.
_PAUSES_S = (0.1, 1.0)
# How long a connection may take to be made.
_CONNECT_LIMIT_S = 5.0

_Kind = TypeVar("_Kind")


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


def message_of(text: bytes | None, kind: type[_Kind]) -> _Kind | None:
    """A message as what it should be; ``None``: there is none, or somebody else left another."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


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


class StoreBoard:
    """Messages in the store of the program's process group, for ranks of several hosts.

    They go through a client of their own, where torch can make one (from 2.7 on): the program's
    makes one call at a time, and may be in one that waits for another rank. ``limit_s``: how long
    one message may take, with all that is tried.
    """

    def __init__(self, store: Any, limit_s: float = STORE_LIMIT_S) -> None:
        # For as long as others may ask: the store itself is in the process of one of the ranks.
        self._store = store
        self._limit_s = limit_s
        self._client: Any = None
        self._calls = _Calls()

    def post(self, key: str, message: bytes) -> None:
        """See ``Board``."""
        names = _names_of_parts(key, max(1, math.ceil(len(message) / _PART_BYTES)))
        parts = [message[i * _PART_BYTES : (i + 1) * _PART_BYTES] for i in range(len(names))]
        # Those that come are there before the one that says how many they are.
        parts[0] = b"%d\n" % len(parts) + parts[0]

        def leave(client: Any) -> None:
            for name, part in reversed([*zip(names, parts)]):
                client.set(name, part)
            # The client of torch returns from `set` once it has sent, and what is sent is lost with
            # its connection; the answer to this one comes after the message was taken.
            if not client.check(names):
                raise RuntimeError("a message did not arrive")

        self._ask(leave)

    def read(self, key: str) -> bytes | None:
        """See ``Board``."""
        (first,) = _names_of_parts(key, 1)

        def take(client: Any) -> bytes | None:
            if not client.check([first]):
                return None
            count, _, part = bytes(client.get(first)).partition(b"\n")
            more = _names_of_parts(key, int(count))[1:]
            return part + b"".join(bytes(client.get(name)) for name in more)

        found: bytes | None = self._ask(take)
        return found

    def _ask(self, call: Callable[[Any], Any]) -> Any:
        deadline = time.monotonic() + self._limit_s
        first: Exception | None = None
        for pause_s in (*_PAUSES_S, 0.0):
            try:
                return self._calls.result(lambda: self._answer(call), deadline - time.monotonic())
            except _NoAnswerError:
                limit = whole_seconds(self._limit_s)
                raise BoardLostError(
                    f"the job's store has not answered for {limit}, probably because the host of "
                    "rank 0 is gone"
                ) from first
            except (RuntimeError, OSError) as error:
                first = first or error
                if isinstance(error, ConnectionRefusedError):
                    break
                time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
        assert first is not None
        raise _store_lost(first) from first

    def _answer(self, call: Callable[[Any], Any]) -> Any:
        """In the thread of the calls."""
        if self._client is None:
            self._client = _own_client(self._store)
        try:
            return call(self._client)
        except Exception:
            # torch makes no new connection for one that was lost.
            self._client = None
            raise


def _names_of_parts(key: str, count: int) -> list[str]:
    return [f"gobrrr/{key}", *(f"gobrrr/{key}#{i}" for i in range(1, count))]


class _NoAnswerError(Exception):
    """A call has not returned."""


class _Calls:
    """Makes calls that may never return, one at a time, in a thread that no exit waits for."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        OwnThread(self._run).start()

    def result(self, call: Callable[[], Any], limit_s: float) -> Any:
        """What the call returns or raises. Raises _NoAnswerError if it does neither in time."""
        told: Future[Any] = Future()
        self._asked.put((call, told))
        if not wait([told], max(0.0, limit_s)).done:
            raise _NoAnswerError
        return told.result()

    def _run(self) -> None:
        while True:
            call, told = self._asked.get()
            try:
                told.set_result(call())
            except Exception as error:
                told.set_exception(error)


def _own_client(store: Any) -> Any:
    """A client that the program does not use; its own one where torch makes no other.

    Raises OSError if nobody listens there: torch would try again for as long as the program's
    process group waits, half an hour, and print that it does.
    """
    if not hasattr(store, "clone"):
        return store
    server = store
    while hasattr(server, "underlying_store"):
        server = server.underlying_store
    if hasattr(server, "port"):
        socket.create_connection((server.host, server.port), _CONNECT_LIMIT_S).close()
    try:
        return store.clone()
    except RuntimeError:
        if hasattr(server, "port"):
            raise
        # A kind of store that has no such thing.
        return store


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
    folder = Path(tempfile.gettempdir()) / f"{JOB_FOLDER}-{user}-{digest}"
    # Its name can be guessed, and others may write where it stands.
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}; remove it, or set TMPDIR") from None
    if not stat.S_ISDIR(found.st_mode):
        raise InputError(f"{folder} is a link and no folder; remove it, or set TMPDIR")
    if hasattr(os, "getuid") and found.st_uid != user:
        raise InputError(f"{folder} belongs to another user; remove it, or set TMPDIR")
    if found.st_mode & 0o077 and os.name == "posix":
        raise InputError(f"{folder} is open to other users; remove it, or set TMPDIR")
    return folder


def _started(pid: int) -> str:
    """When a process started, so that a number that comes back is another one; "" if unknown."""
    try:
        # proc_pid_stat(5): the 22nd field; the second, a name in brackets, may hold spaces.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""

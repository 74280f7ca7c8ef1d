"""The ranks of a job that share this host: they meet in a folder before any program runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from gobrrr.jobs.boards import JOB_FOLDER, BoardLostError, FolderBoard, message_of
from gobrrr.jobs.hosts import Place

_POLL_FROM_S, _POLL_TO_S = 0.0005, 0.02
# Between claiming to be the first and saying so; for the lock of those that come.
_CLAIM_LIMIT_S = 1.0
# What nobody has written to for a day is left behind.
_OLD_S = 86400.0


class Presence(msgspec.Struct, frozen=True):
    """What a rank says of itself when it starts.

    ``numbers``: the namespace that its ``pid`` is one of, and since when its machine runs:
    containers share the name of their host, and machines may have one.
    """

    rank: int
    world_size: int
    host: str
    pid: int
    program: str
    numbers: str = ""

    @classmethod
    def of_this_process(cls, rank: int, world_size: int, program: str) -> Presence:
        """Of the calling one."""
        host = socket.gethostname()
        return cls(rank, world_size, host, os.getpid(), program, _namespace_of_pids())

    @property
    def is_dead(self) -> bool:
        """Whether its process is known to have ended: only one that can be seen here can be."""
        here = (socket.gethostname(), _namespace_of_pids())
        return (self.host, self.numbers) == here and not _lives(self.pid)


class RanksOfHost:
    """One rank among those of its host.

    Attributes:
        size: how many these are; ``None``: the launcher does not say.
        first: whether this one is the one of them that measures the machine.
    """

    def __init__(self, board: FolderBoard, own: Presence, place: Place) -> None:
        self.board = board
        self.size = place.size
        self._own = own
        with _alone_in(board.folder):
            self._remove_what_was_left_here()
            self.say(f"local/{own.rank}", msgspec.json.encode(own))
        if place.size is not None and place.rank is not None:
            self.first = place.rank == 0
        else:
            # Whoever comes first: whether rank 0 of this host comes here at all is not known.
            self.first = board.claim("claimed")
        if self.first:
            self.say("first", msgspec.json.encode(own))
            self._remove_what_others_left()

    def say(self, key: str, message: bytes = b"") -> None:
        """Leave a message for the ranks of this host; lost where the folder cannot be written."""
        with contextlib.suppress(BoardLostError):
            self.board.post(key, message)

    def wait_for_all(self, what: str, limit_s: float) -> None:
        """Until all of them have come here, or the limit; not if their number is unknown."""
        self.say(f"{what}/{self._own.rank}")
        size = self.size
        if size is not None:
            poll(lambda: len(self.board.names(what) | self.dead()) >= size, limit_s)

    def wait_for_first(self, what: str, limit_s: float) -> None:
        """Until the first has said ``what``, or has ended, or the limit; not if none has come."""
        if poll(lambda: self.board.read("first") is not None, _CLAIM_LIMIT_S):
            # Its process: the rank that an earlier job left here lives again.
            first = message_of(self.board.read("first"), Presence)
            poll(
                lambda: self.board.read(what) is not None or (first is not None and first.is_dead),
                limit_s,
            )

    def there(self) -> dict[int, Presence]:
        """Those that have come to this host's folder, by rank."""
        return _there(self.board)

    def dead(self) -> set[str]:
        """The ranks whose process has ended, as text."""
        return {str(rank) for rank, present in self.there().items() if present.is_dead}

    def has_left(self, rank: int) -> bool:
        """Whether one of them does nothing any more."""
        return str(rank) in self.board.names("left") | self.dead()

    def leave(self) -> None:
        """The last that a rank does here; the last of them removes the folder."""
        self.say(f"left/{self._own.rank}")
        gone = self.board.names("left") | self.dead()
        if self.board.names("local") <= gone and len(gone) >= (self.size or 0):
            shutil.rmtree(self.board.folder, ignore_errors=True)

    def _remove_what_was_left_here(self) -> None:
        """What ranks left who were killed before this job was started from the same shell.

        That shell is all that tells jobs started by hand apart. A rank that came here twice is of
        two jobs, and none of the former lives.
        """
        there = self.there()
        if self._own.rank in there and all(each.is_dead for each in there.values()):
            # Those with a dot are no messages: the lock is one.
            for path in self.board.folder.glob("[!.]*"):
                with contextlib.suppress(OSError):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _remove_what_others_left(self) -> None:
        """Folders of this user's jobs whose ranks all died before the last could remove them.

        Not on the day: a folder that hosts of one name share may be another's that runs.
        """
        own = self.board.folder
        kind = own.name.rpartition("-")[0]
        for folder in own.parent.glob(f"{kind}-*") if kind.startswith(JOB_FOLDER) else ():
            # One of another version of gobrrr may say other things of itself.
            with contextlib.suppress(msgspec.MsgspecError, OSError):
                if folder == own or not _is_old(folder):
                    continue
                there = _there(FolderBoard(folder))
                if there and all(each.is_dead for each in there.values()):
                    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Without the other ranks of this host, unless one keeps the lock or there can be none."""
    # Not at the top: it brings asyncio, and only jobs need it.
    from filelock import FileLock

    with contextlib.ExitStack() as held:
        # A lock that is kept too long is an OSError too.
        with contextlib.suppress(OSError, NotImplementedError):
            held.enter_context(FileLock(folder / ".lock").acquire(timeout=_CLAIM_LIMIT_S))
        yield


def _there(board: FolderBoard) -> dict[int, Presence]:
    found = [message_of(board.read(f"local/{name}"), Presence) for name in board.names("local")]
    return {each.rank: each for each in found if each is not None}


def _is_old(folder: Path) -> bool:
    changed = [path.stat().st_mtime for path in (folder, *folder.rglob("*"))]
    return time.time() - max(changed) > _OLD_S


def poll(condition: Callable[[], bool], limit_s: float) -> bool:
    """Whether the condition came true within the limit; asked once at least."""
    deadline = time.monotonic() + limit_s
    pause = _POLL_FROM_S
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _POLL_TO_S)
    return True


@cache
def _namespace_of_pids() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{Path('/proc/self/ns/pid').readlink()} {boot}"
    except OSError:
        return ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    with contextlib.suppress(OSError, IndexError):
        # A process that has ended and that its launcher has not looked at yet.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return True

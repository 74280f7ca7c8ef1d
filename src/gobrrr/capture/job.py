"""The processes of one job: which rank this one is, and what ranks tell each other.

A launcher (torchrun, accelerate) says by its environment which rank a process is. Ranks of one host
meet in a folder; ranks of several hosts in the store that the program's own process group made.
Nobody waits without a limit, and who has waited in vain goes on alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gobrrr.capture.job_boards import (
    Board,
    FolderBoard,
    StoreBoard,
    folder_of,
    store_of_program,
)
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import whole_seconds

# How long a rank waits for the others where all of them come in the same step, ...
MEETING_LIMIT_S = 60.0
# ... and for what they have found, which they find out at their own pace.
RESULT_LIMIT_S = 180.0
_STEPS_APART = 5
_POLL_FROM_S, _POLL_TO_S = 0.0005, 0.02


class Presence(msgspec.Struct):
    """What a rank says of itself when it starts."""

    rank: int
    world_size: int
    host: str
    pid: int
    program: str


class Job:
    """One rank among several.

    Attributes:
        rank, world_size: of the job; ``local_rank``, ``local_world_size``: of this host.
        alone: why this rank no longer waits for the others; ``""`` while it does.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        program: str = "",
        find_store: Callable[[], Any] | None = None,
        folder: Path | None = None,
        meeting_limit_s: float = MEETING_LIMIT_S,
    ) -> None:
        self.rank = int(environment["RANK"])
        self.world_size = int(environment["WORLD_SIZE"])
        self.local_rank = int(environment.get("LOCAL_RANK", self.rank))
        self.local_world_size = int(environment.get("LOCAL_WORLD_SIZE", self.world_size))
        self.alone = ""
        self.program = program
        self._limit_s = meeting_limit_s
        self._here = FolderBoard(folder or folder_of(environment))
        self._find_store = find_store or store_of_program
        self._everywhere: Board | None = self._here if self.one_host else None
        self._rounds = 0
        self._host = socket.gethostname()
        self._here.post(f"local/{self.local_rank}", b"")

    @property
    def one_host(self) -> bool:
        """Whether all ranks are on this host."""
        return self.local_world_size >= self.world_size

    def join(self) -> None:
        """Say that this rank is there, as soon as there is a place to say it."""
        board = self._board()
        if board is not None and board.read(f"here/{self.rank}") is None:
            own = Presence(self.rank, self.world_size, self._host, os.getpid(), self.program)
            board.post(f"here/{self.rank}", msgspec.json.encode(own))

    def _board(self) -> Board | None:
        if self._everywhere is None:
            store = self._find_store()
            if store is not None:
                self._everywhere = StoreBoard(store)
        return self._everywhere

    # On this host

    def wait_for_local(self, what: str, limit_s: float) -> None:
        """Until every rank of this host has come here, or the limit."""
        self._here.post(f"{what}/{self.local_rank}", b"")
        _poll(
            lambda: all(
                self._here.read(f"{what}/{rank}") is not None
                for rank in range(self.local_world_size)
            ),
            limit_s,
        )

    def wait_for_first(self, what: str, limit_s: float) -> None:
        """Until the first rank of this host has said so, or the limit."""
        _poll(lambda: self._here.read(f"{what}/first") is not None, limit_s)

    def tell_local(self, what: str) -> None:
        """The first rank of this host says that it has done what the others wait for."""
        self._here.post(f"{what}/first", b"")

    # In the whole job

    def agree(self, what: str, own: Mapping[str, float]) -> dict[str, float]:
        """The largest of each figure among all ranks; this one's own, once it is alone.

        All ranks come here in the same order, each at the end of the same step.
        """
        if self.alone:
            return dict(own)
        self.join()
        self._rounds += 1
        key = f"round{self._rounds}"
        message = msgspec.json.encode({"what": what, "figures": dict(own)})
        # Steps may be longer than the limit, and ranks a step apart.
        limit_s = max(self._limit_s, _STEPS_APART * own.get("step_s", 0.0))
        said = self._exchange(key, message, limit_s)
        figures = dict(own)
        for rank, text in said.items():
            other = msgspec.json.decode(text)
            if other["what"] != what:
                self.go_alone(
                    f"rank {rank} is at {other['what']} while rank {self.rank} is at {what}: "
                    "they do not run the same steps"
                )
                return dict(own)
            for name, value in other["figures"].items():
                figures[name] = max(value, figures.get(name, value))
        return dict(own) if self.alone else figures

    def go_alone(self, why: str) -> None:
        """Wait for nobody from here on, and let nobody wait."""
        if self.alone:
            return
        self.alone = why
        board = self._board()
        if board is not None:
            with contextlib.suppress(OSError, RuntimeError):
                board.post(f"alone/{self.rank}", why.encode())

    def _exchange(self, key: str, message: bytes, limit_s: float) -> dict[int, bytes]:
        board = self._board()
        if board is None:
            self.go_alone("the program made no process group that connects ranks of several hosts")
            return {}
        board.post(f"{key}/{self.rank}", message)
        said, why = self._gather(board, key, self._gone, limit_s)
        if why:
            self.go_alone(next(iter(why.values())))
        return said

    def _gather(
        self, board: Board, key: str, gone: Callable[[Board, int], str], limit_s: float
    ) -> tuple[dict[int, bytes], dict[int, str]]:
        """What each rank said, and why the others have not.

        ``gone``: why nothing is to be expected of a rank any more; empty if something is.
        """
        said: dict[int, bytes] = {}
        why: dict[int, str] = {}
        waiting = list(range(self.world_size))

        def all_told() -> bool:
            for rank in list(waiting):
                reason, message = "", board.read(f"{key}/{rank}")
                if message is None:
                    reason = gone(board, rank)
                    if not reason:
                        continue
                    # It may have said it just before.
                    message = board.read(f"{key}/{rank}")
                if message is None:
                    why[rank] = reason
                else:
                    said[rank] = message
                waiting.remove(rank)
            return not waiting

        if not _poll(all_told, limit_s):
            why |= {rank: self._late(board, rank, limit_s) for rank in waiting}
        return said, why

    def _gone(self, board: Board, rank: int) -> str:
        """Why nothing more is to be expected of a rank; empty if something is."""
        message = board.read(f"alone/{rank}")
        if message is not None:
            return f"rank {rank} continues without the others ({message.decode()})"
        over = self._over(board, rank)
        found = self._presence(board, rank)
        if over or found is None:
            return over
        if found.world_size != self.world_size:
            return (
                f"rank {rank} reports {found.world_size} ranks, rank {self.rank} reports "
                f"{self.world_size}"
            )
        if found.program != self.program:
            return f"rank {rank} runs {found.program}, rank {self.rank} {self.program}"
        return self._dead(found)

    def _over(self, board: Board, rank: int) -> str:
        message = board.read(f"ended/{rank}")
        return "" if message is None else f"rank {rank} has ended ({message.decode()})"

    def _dead(self, found: Presence) -> str:
        dead = found.host == self._host and not _lives(found.pid)
        return f"the process of rank {found.rank} has ended" if dead else ""

    def _presence(self, board: Board, rank: int) -> Presence | None:
        there = board.read(f"here/{rank}")
        return None if there is None else msgspec.json.decode(there, type=Presence)

    def _late(self, board: Board, rank: int, limit_s: float) -> str:
        if board.read(f"here/{rank}") is None:
            return f"rank {rank} did not reach a step within {whole_seconds(limit_s)}"
        return f"rank {rank} did not reach the same step within {whole_seconds(limit_s)}"

    # Beside the steps, from any thread

    def post(self, key: str, message: bytes) -> None:
        """Leave a message for whoever asks for it; lost where there is no place to leave it."""
        board = self._board()
        if board is not None:
            board.post(key, message)

    def read(self, key: str) -> bytes | None:
        """What was left; ``None`` if nothing was."""
        board = self._board()
        return None if board is None else board.read(key)

    def why_gone(self, rank: int) -> str:
        """How a rank has ended; empty if it has not, as far as this one can see."""
        how = self.read(f"ended/{rank}")
        if how is not None:
            return f"ended: {how.decode()}"
        board = self._board()
        found = None if board is None else self._presence(board, rank)
        return "ended" if found is not None and self._dead(found) else ""

    # What was found

    def publish(self, result: bytes) -> None:
        """Leave what this rank has found for the first rank."""
        self.join()
        board = self._board()
        if board is not None:
            board.post(f"result/{self.rank}", result)

    def results(self, limit_s: float = RESULT_LIMIT_S) -> tuple[dict[int, bytes], dict[int, str]]:
        """What the ranks have found, and why some have not told."""
        board = self._board()
        if board is None:
            missing = dict.fromkeys(range(self.world_size), "the ranks cannot reach each other")
            return {}, missing
        # A rank that goes on alone still tells.
        return self._gather(board, "result", self._ended, limit_s)

    def _ended(self, board: Board, rank: int) -> str:
        """Why a rank says nothing more because it is over; empty if it is not."""
        if rank == self.rank:
            # What it had to tell it would have told before it asked the others.
            return f"rank {rank} has no result of its own"
        found = self._presence(board, rank)
        return self._over(board, rank) or (self._dead(found) if found is not None else "")

    def leave(self, how: str) -> None:
        """The program of this rank is over; the last one on this host removes the folder."""
        board = self._board()
        with contextlib.suppress(OSError, RuntimeError):
            if board is not None:
                board.post(f"ended/{self.rank}", how.encode())
            self._here.post(f"left/{self.local_rank}", b"")
            if all(
                self._here.read(f"left/{rank}") is not None for rank in range(self.local_world_size)
            ):
                shutil.rmtree(self._here.folder, ignore_errors=True)


def rank_of(environment: Mapping[str, str]) -> int:
    """Which rank of a job this process is; 0 for a process on its own."""
    rank = environment.get("RANK", "")
    return int(rank) if rank.isdecimal() and job_size(environment) > 1 else 0


def job_size(environment: Mapping[str, str]) -> int:
    """How many processes the job of this one has; 1 for a process on its own."""
    size = environment.get("WORLD_SIZE", "")
    return int(size) if size.isdecimal() and environment.get("RANK", "") else 1


def job_of(environment: Mapping[str, str], program: str) -> Job | None:
    """The job that the launcher's environment tells of; ``None`` for a process on its own.

    Raises:
        InputError: the environment contradicts itself.
    """
    rank, size = environment.get("RANK", ""), environment.get("WORLD_SIZE", "")
    if not rank or not size:
        return None
    if not (rank.isdecimal() and size.isdecimal()):
        raise InputError(f"RANK={rank} and WORLD_SIZE={size} in the environment are not numbers")
    if int(size) < 2:
        return None
    if int(rank) >= int(size):
        raise InputError(
            f"RANK={rank} in the environment is not below WORLD_SIZE={size}: the ranks of a job "
            "count from 0"
        )
    return Job(environment, program=program)


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


def _poll(condition: Callable[[], bool], limit_s: float) -> bool:
    """Whether the condition came true within the limit."""
    deadline = time.monotonic() + limit_s
    pause = _POLL_FROM_S
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _POLL_TO_S)
    return True
